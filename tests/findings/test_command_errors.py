"""The finding command_errors: on traces by hand, and on recordings of kernels with a known fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding
from tests.support.histories import SECOND, Told, at
from tests.support.recordings import captures_folder
from tests.support.tables_by_hand import MS

VECTORS = Path(__file__).parents[1] / "vectors" / "guests"

MEDIUM_ERROR = {"status": 2, "sense_key": 3, "asc": 0x11, "ascq": 0}
NOT_READY = {"status": 2, "sense_key": 2, "asc": 8, "ascq": 0}
BECOMING_READY = {"status": 2, "sense_key": 2, "asc": 4, "ascq": 1}
UNIT_ATTENTION = {"status": 2, "sense_key": 6, "asc": 0x29, "ascq": 3}
UNSUPPORTED = {"status": 2, "sense_key": 5, "asc": 0x20, "ascq": 0}


def found(diagnosis: Diagnosis, name: str = "command_errors") -> Finding | None:
    findings = [each for opinion in diagnosis.stories for each in opinion.findings if each.name == name]
    return findings[0] if findings else None


def at_block(lba: int, **columns: Any) -> dict[str, Any]:
    """Columns of a read of 32 blocks."""
    return {"lba": lba, "block_count": 32} | columns


def reading() -> Told:
    """Twenty reads in the first 100 ms of a session of 20 s."""
    told = Told()
    told.session(0, 20)
    for number in range(20):
        told.read(0, number * 0.005, (number + 1) * 0.005, **at_block(32 * number))
    return told


def test_an_error_has_its_sense_its_blocks_and_how_many() -> None:
    told = reading()
    told.read(0, 1.0, 1.004, **at_block(640, **MEDIUM_ERROR))
    told.read(0, 2.0, 2.006, **at_block(6400, **MEDIUM_ERROR))
    # the blocks after the first ones: one range
    told.read(0, 3.0, 3.001, **at_block(672, **MEDIUM_ERROR))
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.text == (
        "Session 0: 3 of 23 READ commands to LUN 0 ended in MEDIUM ERROR, unrecovered read error "
        "(3/11/00), from 1.00 s to 3.00 s, at LBA 640 to 703, 6400 to 6431. No retry succeeded: these are I/O errors."
    )
    assert (finding.severity, finding.is_final, finding.sessions, finding.luns) == ("error", True, (0,), (0,))
    # nothing succeeded from the first to the last
    assert finding.spans == ((at(1.0), at(3.001)),)
    assert finding.cost_ns == 2.001 * SECOND
    assert "smartctl" in finding.advice[0]
    headline = diagnosis.headline
    assert headline
    assert (headline.name, headline.text) == ("command_errors", finding.text)


def test_errors_among_reads_that_succeed_cost_their_own_time() -> None:
    told = reading()
    for second in (1.0, 2.0):
        told.read(0, second, second + 0.004, **at_block(int(640 * second), **MEDIUM_ERROR))
        told.read(0, second + 0.1, second + 0.105, **at_block(0))
    finding = found(told.diagnosis())
    assert finding
    assert finding.cost_ns == 8 * MS
    assert finding.is_final


@pytest.mark.parametrize(
    ("failures", "after_s", "is_final"),
    [
        (1, 0.1, False),
        # Linux tries a command six times
        (5, 0.1, False),
        (6, 0.1, True),
        # as late as a retry is
        (1, 4.999, False),
        (1, 5.002, True),
    ],
)
def test_an_error_is_an_io_error_unless_a_retry_succeeds(failures: int, after_s: float, is_final: bool) -> None:
    told = reading()
    for number in range(failures):
        told.read(0, 1 + number * 0.01, 1.001 + number * 0.01, **at_block(640, **MEDIUM_ERROR))
    last = 1.001 + (failures - 1) * 0.01
    told.read(0, last + after_s, last + after_s + 0.005, **at_block(640))
    finding = found(told.diagnosis())
    assert finding
    assert finding.is_final == is_final
    assert finding.severity == ("error" if is_final else "warning")
    words = "These are" if failures > 1 else "this is an I/O error"
    assert ("I/O error" in finding.text) == is_final, words


def test_a_retry_is_of_the_same_blocks_on_the_same_lun() -> None:
    for other in (at_block(672), at_block(640, lun=1), at_block(640, operation="write"), at_block(640, block_count=8)):
        told = reading()
        told.read(0, 1.0, 1.001, **at_block(640, **MEDIUM_ERROR))
        told.read(0, 1.1, 1.101, **other)
        finding = found(told.diagnosis())
        assert finding
        assert finding.is_final, other


def test_the_retry_may_come_in_the_next_session() -> None:
    told = Told()
    told.session(0, 1.1, end="reset", rst_to_initiator_ns=1.1)
    told.reads(0, 0.0, 20)
    told.read(0, 1.0, 1.001, **at_block(640, **MEDIUM_ERROR))
    told.session(2.0, 20, replaces=0)
    told.read(1, 3.0, 3.001, **at_block(640))
    finding = found(told.diagnosis())
    assert finding
    assert not finding.is_final


def test_waiting_until_a_lun_is_ready_costs_its_time() -> None:
    """Three tries, a second apart: the kernel waits, and nobody sees an error."""
    told = reading()
    for number in range(3):
        told.read(0, 1.0 + number, 1.001 + number, **at_block(640, **BECOMING_READY))
    told.read(0, 4.0, 4.001, **at_block(640))
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert (finding.severity, finding.is_final, finding.cost_ns) == ("warning", False, 3.001 * SECOND)
    assert finding.text.endswith("Each retry succeeded.")
    assert diagnosis.headline
    assert diagnosis.headline.name == "command_errors"


def test_what_a_healthy_kernel_meets_is_no_error() -> None:
    told = reading()
    told.read(0, 1.0, 1.001, **at_block(640, **UNIT_ATTENTION))
    told.read(0, 1.1, 1.101, **at_block(640))
    told.read(0, 1.2, 1.201, operation="inquiry", bytes=36, **UNSUPPORTED)
    told.read(0, 1.3, 1.301, operation="unmap", bytes=24, **UNSUPPORTED)
    assert found(told.diagnosis()) is None
    told.read(0, 2.0, 2.001, **at_block(640, **MEDIUM_ERROR))
    finding = found(told.diagnosis())
    assert finding
    assert finding.text.endswith(
        "3 more CHECK CONDITIONs are normal: they refused optional commands or reported events."
    )


def test_an_unsupported_read_is_an_error() -> None:
    told = reading()
    told.read(0, 1.0, 1.001, **at_block(640, **UNSUPPORTED))
    finding = found(told.diagnosis())
    assert finding
    assert finding.is_final


def test_a_failed_flush_is_an_error_and_a_failed_inquiry_is_a_note() -> None:
    told = reading()
    told.read(0, 1.0, 1.001, operation="synchronize_cache", bytes=0, **MEDIUM_ERROR)
    flush = found(told.diagnosis())
    assert flush
    assert (flush.is_final, flush.severity) == (True, "error")
    assert "the only SYNCHRONIZE CACHE command to LUN 0 ended in MEDIUM ERROR" in flush.text
    told = reading()
    told.read(0, 1.0, 1.001, operation="test_unit_ready", bytes=0, **NOT_READY)
    diagnosis = told.diagnosis()
    note = found(diagnosis)
    assert note
    assert (note.is_final, note.severity, note.leads) == (False, "info", False)
    assert diagnosis.headline
    assert diagnosis.headline.name != "command_errors"


def test_a_command_without_a_status_is_no_command_error() -> None:
    told = reading()
    told.read(0, 1.0, None, **at_block(640))
    assert found(told.diagnosis()) is None


RECORDED = [
    # scenario, what its README or truth names: how many, of what, with which sense
    ("storage-errors-lio", "READ commands to LUN 0 ended in NOT READY, logical unit communication failure (2/08/00)"),
]


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize(("name", "words"), RECORDED)
def test_recordings_of_kernels(name: str, words: str, tap: str) -> None:
    trace = iscsitrace.read(VECTORS / name / f"{tap}.pcapng.gz", tables=NEEDED)
    diagnosis = examine(trace.table)
    finding = found(diagnosis)
    assert finding
    assert words in finding.text
    assert diagnosis.headline
    assert diagnosis.headline.name == "command_errors"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        # its README: 4 CHECK CONDITIONs with sense 2/08/00 from 4.24 to 6.24 s, at these four areas
        (
            "26_medium_error_lio.pcap.gz",
            "NOT READY, logical unit communication failure (2/08/00), from 4.24 s to 6.24 s, at LBA 12800 to 12927, "
            "16384 to 16511, 22016 to 22143, 25600 to 25727. No retry succeeded: these are I/O errors.",
        ),
        # a read beyond the end of the disk, and sg3-utils' probes
        (
            "17_scsi-command-variety.pcap",
            "ILLEGAL REQUEST, logical block address out of range (5/21/00), at 27.89 s, at LBA 2130706432.",
        ),
    ],
)
def test_recorded_errors(name: str, words: str) -> None:
    file = captures_folder() / name
    if not file.exists():
        pytest.skip("the recorded captures are not there")
    diagnosis = examine(iscsitrace.read(file, tables=NEEDED).table)
    finding = found(diagnosis)
    assert finding
    assert words in finding.text
    assert diagnosis.headline
    assert diagnosis.headline.name == "command_errors"


@pytest.mark.parametrize(
    ("failed", "retried", "is_final"),
    [
        (1.0, None, True),
        # an initiator retries what a UNIT ATTENTION stopped
        (1.0, 1.1, False),
        # the retry may follow the capture
        (19.5, None, False),
    ],
)
def test_sense_data_that_the_snaplen_cut(failed: float, retried: float | None, is_final: bool) -> None:
    told = reading()
    told.read(0, failed, failed + 0.004, **at_block(640, status=2))
    if retried is not None:
        told.read(0, retried, retried + 0.004, **at_block(640))
    finding = found(told.diagnosis())
    assert finding
    assert "CHECK CONDITION, no sense data in the capture" in finding.text
    assert (finding.is_final, finding.severity == "error") == (is_final, is_final)


@pytest.mark.parametrize(("count", "is_final"), [(1, False), (5, False), (6, True)])
def test_statuses_whose_addresses_the_snaplen_cut(count: int, is_final: bool) -> None:
    """A UNIT ATTENTION looks the same, and its retry cannot be seen; but few commands have one."""
    told = reading()
    for number in range(count):
        told.read(0, 1 + number, 1.004 + number, status=2, operation=None, lba=None, block_count=None)
    # the end of its PDU is missing
    told.read(0, 9, None, status=2, operation=None, lba=None, block_count=None)
    finding = found(told.diagnosis())
    assert finding
    assert f"Session 0: {count} of " in finding.text or count == 1
    assert " commands to LUN 0 ended in CHECK CONDITION" in finding.text or count == 1
    assert "NONE" not in finding.text
    assert (finding.is_final, finding.severity == "error") == (is_final, is_final)
    unclear = "The capture does not show the address, nor whether the command was retried."
    assert (unclear in finding.text) == (not is_final)


def paths(*, second: float) -> Told:
    """One volume over two sessions; a read fails on the first path, and is sent over the other one."""
    told = reading()
    told.session(0, 20, isid="81", target_name="iqn.other")
    for session in (0, 1):
        told.add(
            "logical_units",
            session=session,
            lun=0,
            peripheral_qualifier=0,
            device_type=0,
            designator="naa.6001405c86130259b4c4d2a9b1b0008a",
        )
    told.read(0, 1.0, 1.001, **at_block(640, **NOT_READY))
    told.read(1, second, second + 0.005, **at_block(640))
    return told


def test_a_retry_over_another_path_to_the_volume() -> None:
    finding = found(paths(second=2.0).diagnosis())
    assert finding
    assert (finding.is_final, finding.severity) == (False, "warning")
    assert "The retry succeeded over another path (session 1)." in finding.text
    # from the command to the status of its retry
    assert finding.cost_ns == 1_005 * MS


@pytest.mark.parametrize("change", ["too late", "another volume"])
def test_what_is_no_retry_over_another_path(change: str) -> None:
    told = paths(second=6.1 if change == "too late" else 2.0)
    if change == "another volume":
        told.rows["logical_units"][1]["designator"] = "naa.6001405c86130259b4c4d2a9b1b0008b"
    finding = found(told.diagnosis())
    assert finding
    assert finding.is_final


OUT_OF_RANGE = {"status": 2, "sense_key": 5, "asc": 0x21, "ascq": 0}


@pytest.mark.parametrize(
    ("block_count", "side"),
    [
        (672, "the target, which reported a capacity that includes these blocks"),
        (671, "the initiator, which addressed blocks beyond the end"),
        (None, "the initiator, or a logical unit that changed its size"),
    ],
)
def test_blocks_out_of_range_point_to_who_was_wrong_about_the_capacity(block_count: int | None, side: str) -> None:
    told = reading()
    told.add("logical_units", session=0, lun=0, peripheral_qualifier=0, device_type=0, block_count=block_count)
    told.read(0, 1.0, 1.004, **at_block(640, **OUT_OF_RANGE))
    finding = found(told.diagnosis())
    assert finding
    assert finding.points_to == side
