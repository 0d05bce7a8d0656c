"""The findings reservation_conflict, target_busy and ats_miscompare: by hand, and on recordings of kernels."""

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

CONFLICT, BUSY, FULL = 0x18, 0x08, 0x28
MISCOMPARE = {"status": 2, "sense_key": 14, "asc": 0x1D, "ascq": 0}


def found(diagnosis: Diagnosis, name: str) -> Finding | None:
    findings = [each for opinion in diagnosis.stories for each in opinion.findings if each.name == name]
    return findings[0] if findings else None


def reading(**session: Any) -> Told:
    told = Told()
    told.session(0, 20, **session)
    told.reads(0, 0.0, 20)
    return told


def writes_refused(told: Told) -> Told:
    """Writes from 1 s to 3 s, all refused, with a read served between them; one that succeeds before and after."""
    for number, status in enumerate((0, CONFLICT, CONFLICT, 0)):
        told.read(0, 0.5 + number, 0.51 + number, operation="write", is_read=False, is_write=True, status=status)
    told.read(0, 2.0, 2.01)
    return told


def test_a_reservation_says_who_is_refused_and_what_is_served() -> None:
    diagnosis = writes_refused(reading()).diagnosis()
    finding = found(diagnosis, "reservation_conflict")
    assert finding
    assert finding.text == (
        "Session 0: 2 of 4 WRITE commands to LUN 0, from 1.51 s to 2.51 s, ended in RESERVATION CONFLICT. Meanwhile "
        "the target served 1 READ command on this LUN. The capture does not show who holds the reservation."
    )
    assert (finding.severity, finding.is_final, finding.luns) == ("error", True, (0,))
    assert finding.spans == ((at(1.5), at(2.51)),)
    assert finding.cost_ns == 1.01 * SECOND
    assert diagnosis.headline
    assert diagnosis.headline.name == "reservation_conflict"
    assert found(diagnosis, "command_errors") is None


@pytest.mark.parametrize(
    ("columns", "is_named"),
    [
        ({"operation": "reserve"}, True),
        ({"operation": "persistent_reserve_out"}, True),
        ({"operation": "reserve", "status": CONFLICT}, False),
        ({"operation": "reserve", "lun": 1}, False),
        ({"operation": "inquiry"}, False),
    ],
)
def test_the_holder_is_named_where_it_is_seen(columns: dict[str, Any], is_named: bool) -> None:
    told = reading()
    told.session(0.2, 20, initiator_name="iqn.other", isid="81")
    told.read(1, 1.0, 1.01, bytes=0, is_read=False, **columns)
    finding = found(writes_refused(told).diagnosis(), "reservation_conflict")
    assert finding
    assert ("Session 1 (iqn.other) took the reservation at 1.01 s" in finding.text) == is_named


def test_another_target_does_not_hold_it() -> None:
    told = reading()
    told.session(0.2, 20, initiator_name="iqn.other", isid="81", target_name="iqn.elsewhere")
    told.read(1, 1.0, 1.01, bytes=0, is_read=False, operation="reserve")
    finding = found(writes_refused(told).diagnosis(), "reservation_conflict")
    assert finding
    assert "does not show who holds" in finding.text


def test_a_cluster_that_competes_for_a_disk_is_a_note() -> None:
    told = reading()
    told.read(0, 1.0, 1.01, bytes=0, is_read=False, operation="persistent_reserve_out", status=CONFLICT)
    finding = found(told.diagnosis(), "reservation_conflict")
    assert finding
    assert (finding.severity, finding.is_final, finding.leads) == ("info", False, False)


def busy(refused: int, *, status: int = FULL, retried: bool = True) -> Told:
    """Reads at LBA 0, 32, ...; some are refused at queue depth 33 to 40 and retried 10 ms later."""
    told = reading()
    for number in range(refused):
        first = 1 + 0.02 * number
        block = {"lba": 32 * number, "block_count": 32}
        told.read(0, first, first + 0.001, status=status, queue_depth=33 + number % 8, **block)
        if retried:
            told.read(0, first + 0.01, first + 0.015, **block)
    return told


@pytest.mark.parametrize(("status", "words"), [(FULL, "TASK SET FULL"), (BUSY, "BUSY")])
def test_a_busy_target(status: int, words: str) -> None:
    diagnosis = busy(10, status=status).diagnosis()
    finding = found(diagnosis, "target_busy")
    assert finding
    assert finding.text == (
        f"Session 0: 10 of 40 READ commands to LUN 0, from 1.00 s to 1.18 s, ended in {words}. The queue depth was 33 "
        "to 40. All succeeded on retry."
    )
    # from each command to the status of its retry
    assert finding.cost_ns == 10 * 15 * MS
    assert finding.severity == "warning"
    assert diagnosis.headline
    assert diagnosis.headline.name == "target_busy"


def test_single_refusals_find_the_queue_depth() -> None:
    told = busy(1)
    finding = found(told.diagnosis(), "target_busy")
    assert finding
    # 1 of 22 reads: below 5 %
    assert (finding.severity, finding.leads) == ("info", False)


def locking(status: dict[str, Any], *later: float) -> Told:
    """COMPARE AND WRITE of one block at 1 s, and successes later."""
    told = reading()
    lock = {"operation": "compare_and_write", "lba": 100, "block_count": 1, "is_read": False, "is_write": True}
    told.read(0, 1.0, 1.01, **lock | status)
    for second in later:
        told.read(0, second, second + 0.01, **lock)
    return told


def test_a_lock_that_another_host_took() -> None:
    diagnosis = locking(MISCOMPARE).diagnosis()
    finding = found(diagnosis, "ats_miscompare")
    assert finding
    assert finding.text == (
        "Session 0: the only COMPARE AND WRITE command to LUN 0, at 1.01 s, at LBA 100, ended in MISCOMPARE. No retry "
        "succeeded within 5.0 s."
    )
    assert diagnosis.headline
    assert diagnosis.headline.name == "ats_miscompare"
    assert found(diagnosis, "command_errors") is None


def test_contention_for_a_lock_is_a_note() -> None:
    finding = found(locking(MISCOMPARE, 1.1).diagnosis(), "ats_miscompare")
    assert finding
    assert (finding.severity, finding.leads) == ("info", False)
    assert found(locking({}, 1.1).diagnosis(), "ats_miscompare") is None


def test_a_heartbeat_whose_first_try_had_no_status() -> None:
    told = reading()
    lock = {"operation": "compare_and_write", "lba": 100, "block_count": 1, "is_read": False, "is_write": True}
    told.read(0, 1.0, None, **lock)
    told.read(0, 3.0, 3.01, **lock | MISCOMPARE)
    told.read(0, 3.1, 3.11, **lock)
    finding = found(told.diagnosis(), "ats_miscompare")
    assert finding
    assert finding.is_final
    assert "The target may have run it, so the retry found the new data" in finding.text


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_a_recording_of_a_reservation(tap: str) -> None:
    """Another initiator reserves the disk: a read of session 1 is refused, and session 2 is the holder."""
    trace = iscsitrace.read(VECTORS / "reservation-held-lio" / f"{tap}.pcapng.gz", tables=NEEDED)
    diagnosis = examine(trace.table)
    finding = found(diagnosis, "reservation_conflict")
    assert finding
    assert "READ commands to LUN 0" in finding.text
    assert "Session 2 (iqn.2025-01.org.iscsitrace:other) took the reservation" in finding.text
    assert diagnosis.headline
    assert diagnosis.headline.name == "reservation_conflict"


def test_a_recorded_reservation_whose_holder_is_elsewhere() -> None:
    """Its README: 40 writes refused from 5.621 to 9.254 s, 30 reads in between served."""
    file = captures_folder() / "25_reservation_conflict.pcap.gz"
    if not file.exists():
        pytest.skip("the recorded captures are not there")
    trace = iscsitrace.read(file, tables=NEEDED)
    finding = found(examine(trace.table), "reservation_conflict")
    assert finding
    assert "40 of 80 WRITE commands to LUN 0, from 5.62 s to 9.25 s, ended in RESERVATION CONFLICT" in finding.text
    assert "the target served 30 READ commands" in finding.text
    assert "does not show who holds" in finding.text
