"""The class, severity and text of a command's status: by hand, for whole columns, and in recorded captures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import iscsitrace
from iscsitrace.measure.data_commands import is_operation
from iscsitrace.wording import command_status as subject
from iscsitrace.wording.command_status import CommandStatus, command_status, of_columns
from iscsitrace.wording.status_classes import SEVERITIES, STATUS_CLASSES
from tests.support.recordings import captures_folder

Codes = tuple[int | None, ...]

# status, sense key, additional sense code, qualifier: class, severity of reads and writes, of other commands
CASES: list[tuple[Codes, str, str, str]] = [
    # power on; mode parameters, capacity, access state, INQUIRY data, LUNs changed; reservations preempted
    ((2, 6, 0x29, 0x00), "unit_attention", "info", "info"),
    ((2, 6, 0x29, 0x07), "unit_attention", "info", "info"),
    ((2, 6, 0x2A, 0x01), "unit_attention", "info", "info"),
    ((2, 6, 0x2A, 0x06), "unit_attention", "info", "info"),
    ((2, 6, 0x2A, 0x09), "unit_attention", "info", "info"),
    ((2, 6, 0x3F, 0x03), "unit_attention", "info", "info"),
    ((2, 6, 0x3F, 0x0E), "unit_attention", "info", "info"),
    ((2, 6, 0x2A, 0x03), "unit_attention", "info", "info"),
    # operation code, field in CDB, in parameter list, parameter list length, saving parameters
    ((2, 5, 0x20, 0x00), "unsupported", "error", "info"),
    ((2, 5, 0x24, 0x00), "unsupported", "error", "info"),
    ((2, 5, 0x26, 0x00), "unsupported", "error", "info"),
    ((2, 5, 0x1A, 0x00), "unsupported", "error", "info"),
    ((2, 5, 0x39, 0x00), "unsupported", "error", "info"),
    # unsupported enclosure function; XCDB, fast format; the last of the parameters and descriptors
    ((2, 5, 0x35, 0x01), "unsupported", "error", "info"),
    ((2, 5, 0x24, 0x09), "unsupported", "error", "info"),
    ((2, 5, 0x26, 0x0E), "unsupported", "error", "info"),
    # CDB decryption, data decryption, enclosure services failure
    ((2, 5, 0x24, 0x01), "other", "error", "warning"),
    ((2, 5, 0x26, 0x05), "other", "error", "warning"),
    ((2, 5, 0x26, 0x0F), "other", "error", "warning"),
    ((2, 5, 0x35, 0x00), "other", "error", "warning"),
    # but not: access denied, invalid release of persistent reservation, command sequence error
    ((2, 5, 0x20, 0x02), "other", "error", "warning"),
    ((2, 5, 0x26, 0x04), "other", "error", "warning"),
    ((2, 5, 0x2C, 0x00), "other", "error", "warning"),
    ((2, 5, 0x25, 0x00), "no_such_lun", "error", "warning"),
    ((2, 5, 0x21, 0x00), "out_of_range", "error", "warning"),
    # of a tape library's element
    ((2, 5, 0x21, 0x01), "other", "error", "warning"),
    ((2, 3, 0x11, 0x00), "medium_error", "error", "error"),
    ((2, 3, 0x0C, 0x02), "medium_error", "error", "error"),
    # ID CRC or ECC error: not of the protection information
    ((2, 3, 0x10, 0x00), "medium_error", "error", "error"),
    ((2, 4, 0x44, 0x00), "hardware_error", "error", "error"),
    ((2, 4, 0x3E, 0x01), "hardware_error", "error", "error"),
    # failure prediction, temperature: reported beside a command that succeeds or is retried
    ((2, 1, 0x5D, 0x00), "hardware_error", "warning", "warning"),
    ((2, 6, 0x5D, 0x10), "hardware_error", "warning", "warning"),
    ((2, 6, 0x0B, 0x01), "hardware_error", "warning", "warning"),
    # becoming ready, space allocation in progress; manual intervention, communication failure, no medium
    ((2, 2, 0x04, 0x01), "not_ready", "warning", "info"),
    ((2, 2, 0x04, 0x14), "not_ready", "warning", "info"),
    ((2, 2, 0x04, 0x03), "not_ready", "error", "warning"),
    ((2, 2, 0x08, 0x00), "not_ready", "error", "warning"),
    ((2, 2, 0x3A, 0x00), "not_ready", "error", "warning"),
    # transition, standby, unavailable; then: structure check required
    ((2, 2, 0x04, 0x0A), "alua", "warning", "info"),
    ((2, 2, 0x04, 0x0B), "alua", "warning", "info"),
    ((2, 2, 0x04, 0x0C), "alua", "warning", "info"),
    ((2, 2, 0x04, 0x0D), "not_ready", "error", "warning"),
    ((2, 6, 0x2A, 0x07), "alua", "warning", "warning"),
    ((2, 7, 0x27, 0x00), "write_protected", "error", "warning"),
    ((2, 7, 0x27, 0x02), "write_protected", "error", "warning"),
    ((2, 7, 0x27, 0x07), "space_full", "error", "error"),
    ((2, 6, 0x38, 0x07), "space_full", "warning", "warning"),
    # event status notification of a drive
    ((2, 6, 0x38, 0x06), "unit_attention", "info", "info"),
    # security: the data is protected, but not against writing
    ((2, 7, 0x74, 0x71), "other", "error", "warning"),
    ((2, 0xB, 0x47, 0x7F), "aborted", "warning", "warning"),
    ((2, 0xB, 0x0C, 0x0D), "aborted", "warning", "warning"),
    ((2, 6, 0x2F, 0x00), "aborted", "warning", "warning"),
    ((0x40, None, None, None), "aborted", "warning", "warning"),
    ((2, 0xB, 0x10, 0x01), "protection", "error", "error"),
    ((2, 5, 0x10, 0x03), "protection", "error", "error"),
    ((2, 4, 0x10, 0x05), "protection", "error", "error"),
    # T10 has no 10h/06h: the sense key decides
    ((2, 4, 0x10, 0x06), "hardware_error", "error", "error"),
    ((2, 0xE, 0x1D, 0x00), "miscompare", "warning", "warning"),
    ((0x18, None, None, None), "reservation_conflict", "error", "warning"),
    ((0x08, None, None, None), "busy", "warning", "warning"),
    ((0x28, None, None, None), "task_set_full", "warning", "warning"),
    ((2, 1, 0x17, 0x01), "recovered", "info", "info"),
    ((2, 0, 0x00, 0x00), "recovered", "info", "info"),
    ((2, 0xD, 0x00, 0x00), "other", "error", "warning"),
    ((2, 9, 0x80, 0x01), "other", "error", "warning"),
    ((0x30, None, None, None), "other", "error", "warning"),
    ((0x23, None, None, None), "other", "error", "warning"),
    # the sense data is missing, or cut by the snaplen: it could be a unit attention
    ((2, None, None, None), "other", "warning", "info"),
]


@pytest.mark.parametrize(("codes", "name", "of_data", "of_others"), CASES)
def test_class_and_severity(codes: Codes, name: str, of_data: str, of_others: str) -> None:
    for is_read_or_write, severity in ((True, of_data), (False, of_others)):
        found = command_status(*codes, is_read_or_write=is_read_or_write)
        assert found is not None
        assert (found.status_class.name, found.severity) == (name, severity)


def test_a_logical_unit_that_becomes_ready_by_itself_is_a_warning() -> None:
    states = {ascq: text for (asc, ascq), text in subject.codes().items() if asc == 0x04}
    passing = {ascq for ascq, text in states.items() if "in progress" in text or "in process" in text}
    assert len(passing) == 15
    for ascq, text in states.items():
        found = command_status(2, 2, 0x04, ascq)
        assert found is not None
        if found.status_class.name == "not_ready":
            assert found.severity == ("warning" if ascq in passing else "error"), text
        else:
            assert text.startswith("logical unit not accessible"), text


def test_each_class_has_a_case_words_and_advice() -> None:
    assert {name for _, name, _, _ in CASES} == {each.name for each in STATUS_CLASSES}
    for words in ({each.name for each in STATUS_CLASSES}, {each.label for each in STATUS_CLASSES}):
        assert len(words) == len(STATUS_CLASSES)
    for each in STATUS_CLASSES:
        assert each.meaning.endswith(".")
        assert each.advice
        assert all(text.endswith(".") for text in each.advice)
        # other commands are never worse than reads and writes
        assert SEVERITIES.index(each.severity_of_others) <= SEVERITIES.index(each.severity)


def test_method_md_has_each_class_with_its_severities() -> None:
    lines = (Path(__file__).resolve().parents[2] / "docs/method.md").read_text().splitlines()
    section = lines[lines.index("### Status and sense data") : lines.index("## 4. The time breakdown")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section if line.startswith("| `")]
    assert sorted((name.strip("`"), of_data, of_others) for name, _, of_data, of_others in rows) == sorted(
        (each.name, each.severity, each.severity_of_others) for each in STATUS_CLASSES
    )


@pytest.mark.parametrize(
    ("codes", "response", "text"),
    [
        ((2, 3, 0x11, 0x00), 0, "MEDIUM ERROR, unrecovered read error (3/11/00)"),
        ((2, 3, None, None), None, "MEDIUM ERROR, no additional sense code in the capture"),
        # FFh in a column is null
        ((2, 9, 0xFF, None), None, "VENDOR SPECIFIC, no additional sense code in the capture"),
        ((2, None, None, None), 0, "CHECK CONDITION, no sense data in the capture"),
        ((0x28, None, None, None), 0, "TASK SET FULL"),
        ((0x23, None, None, None), 0, "status 23h"),
        # RFC 7143 section 11.4.3: the status means nothing
        ((0, None, None, None), 1, "target failure (iSCSI service response)"),
        ((None, None, None, None), 0x80, "0x80 (iSCSI service response)"),
    ],
)
def test_text(codes: Codes, response: int | None, text: str) -> None:
    found = command_status(*codes, response=response)
    assert found is not None
    assert found.text == text


@pytest.mark.parametrize(
    ("sense_key", "name", "of_data", "of_others"),
    [(6, "unit_attention", "info", "info"), (3, "medium_error", "error", "error"), (5, "other", "warning", "info")],
)
def test_a_sense_key_without_its_code_has_a_class_only_where_the_key_decides(
    sense_key: int, name: str, of_data: str, of_others: str
) -> None:
    for is_read_or_write, severity in ((True, of_data), (False, of_others)):
        found = command_status(2, sense_key, is_read_or_write=is_read_or_write)
        assert found is not None
        assert (found.status_class.name, found.severity) == (name, severity)


@pytest.mark.parametrize("status", [None, 0x00, 0x04, 0x10, 0x14])
def test_success_and_no_status_have_no_class(status: int | None) -> None:
    assert command_status(status, 3, 0x11, 0x00, response=0) is None


def test_columns_have_the_status_of_each_row_and_each_combination_is_classified_once() -> None:
    random_numbers = np.random.default_rng(7143)
    made = [
        (codes, response, is_read_or_write)
        for codes, _, _, _ in CASES
        for response in (0, 1, None)
        for is_read_or_write in (True, False)
    ]
    made += [((status, None, None, None), 0, True) for status in (None, 0x00, 0x04)]
    # FFh as a code, which stands for null in a column
    made.append(((2, 9, 0xFF, 0xFF), 0, True))
    rows = [made[number] for number in random_numbers.integers(len(made), size=5000)]
    columns = [np.array([255 if codes[n] is None else codes[n] for codes, _, _ in rows], np.uint8) for n in range(4)]
    responses = np.array([255 if response is None else response for _, response, _ in rows], np.uint8)
    is_read_or_write = np.array([each for _, _, each in rows])
    with mock.patch.object(subject, "command_status", wraps=command_status) as asked:
        found, places = of_columns(*columns, response=responses, is_read_or_write=is_read_or_write)
    assert asked.call_count <= len(set(rows)) < len(rows) / 10
    shown = [None if place < 0 else found[place] for place in places.tolist()]
    assert shown == [command_status(*codes, response=response, is_read_or_write=each) for codes, response, each in rows]
    assert Counter(places.tolist()).keys() == {-1, *range(len(found))}


def test_no_rows() -> None:
    empty = np.empty(0, np.uint8)
    found, places = of_columns(*[empty] * 4, response=empty, is_read_or_write=np.empty(0, bool))
    assert (found, places.tolist()) == ([], [])


def _statuses(file: Path) -> Counter[tuple[str, str, str]]:
    """Operation, class and severity of the commands of a capture that did not succeed."""
    cycles = iscsitrace.read(file).cycles
    columns = [cycles.raw(name) for name in ("status", "sense_key", "asc", "ascq")]
    found, places = of_columns(
        *columns, response=cycles.raw("response"), is_read_or_write=is_operation(cycles, "read", "write")
    )
    named: list[CommandStatus | None] = [*found, None]
    return Counter(
        (operation, each.status_class.name, each.severity)
        for operation, place in zip(cycles["operation"].tolist(), places.tolist(), strict=True)
        if (each := named[place]) is not None
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # what a scan of Linux meets
        ("01_seqread_qd1_delay00ms_tso-off.pcap.gz", {("report_supported_opcodes", "unsupported", "info"): 1}),
        # cut before the sense data
        ("09_snaplen128_read+write_delay01ms.pcap.gz", {("report_supported_opcodes", "other", "info"): 1}),
        ("12_tgt_read_delay04ms.pcap.gz", {("test_unit_ready", "unit_attention", "info"): 1}),
        (
            "25_reservation_conflict.pcap.gz",
            {("report_supported_opcodes", "unsupported", "info"): 1, ("write", "reservation_conflict", "error"): 40},
        ),
        # LIO answers so for a medium error of its backing device
        (
            "26_medium_error_lio.pcap.gz",
            {("report_supported_opcodes", "unsupported", "info"): 1, ("read", "not_ready", "error"): 4},
        ),
        (
            "17_scsi-command-variety.pcap",
            {
                ("report_supported_opcodes", "unsupported", "info"): 2,
                ("unmap", "unsupported", "info"): 1,
                ("read_block_limits", "unsupported", "info"): 1,
                ("other", "unsupported", "info"): 1,
                ("persistent_reserve_out", "not_ready", "warning"): 1,
                ("read", "out_of_range", "error"): 1,
                ("compare_and_write", "miscompare", "warning"): 1,
            },
        ),
    ],
)
def test_recorded_commands(name: str, expected: dict[tuple[str, str, str], int]) -> None:
    file = captures_folder() / name
    if not file.exists():
        pytest.skip("needs the recorded captures: ISCSITRACE_CAPTURES")
    assert _statuses(file) == expected
