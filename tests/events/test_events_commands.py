"""Events of commands and of exchanges beside them, on traces by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.events.test_events_tcp import events
from tests.support.histories import Told, at


def read_with(**columns: Any) -> Told:
    told = Told()
    told.session(0, 5)
    told.read(0, 1.0, 1.5, **{"status_frame": 31} | columns)
    return told


STATUSES = ("check_condition", "reservation_conflict", "busy", "task_set_full", "command_failed", "no_status")
SENSE = {"status": 0x02, "sense_key": 0x3, "asc": 0x11, "ascq": 0x00}


@pytest.mark.parametrize(
    ("columns", "kind", "severity", "text"),
    [
        (SENSE, "check_condition", "error", "READ: MEDIUM ERROR, unrecovered read error (3/11/00)"),
        (
            SENSE | {"sense_key": 0x6, "asc": 0x29},
            "check_condition",
            "info",
            "READ: UNIT ATTENTION, power on, reset, or bus device reset occurred (6/29/00)",
        ),
        (
            SENSE | {"sense_key": 0x5, "asc": 0x20, "operation": "inquiry"},
            "check_condition",
            "info",
            "INQUIRY: ILLEGAL REQUEST, invalid command operation code (5/20/00), unsupported command",
        ),
        (
            SENSE | {"sense_key": 0x5, "asc": 0x20, "operation": None, "cdb_opcode": 0xC1},
            "check_condition",
            "info",
            "a command: ILLEGAL REQUEST, invalid command operation code (5/20/00), unsupported command",
        ),
        ({"status": 0x18}, "reservation_conflict", "error", "READ: RESERVATION CONFLICT"),
        ({"status": 0x18, "operation": "inquiry"}, "reservation_conflict", "warning", "INQUIRY: RESERVATION CONFLICT"),
        ({"status": 0x08}, "busy", "warning", "READ: BUSY"),
        ({"status": 0x28}, "task_set_full", "warning", "READ: TASK SET FULL"),
        ({"status": 0x40}, "command_failed", "warning", "READ: TASK ABORTED, aborted by the target"),
        ({"status": 0x30}, "command_failed", "error", "READ: ACA ACTIVE, command failed"),
        # the status is not valid
        (
            {"status": 0x08, "response": 1},
            "command_failed",
            "error",
            "READ: target failure (iSCSI service response), command failed",
        ),
    ],
)
def test_a_status_in_words(columns: dict[str, Any], kind: str, severity: str, text: str) -> None:
    (row,) = events(read_with(**columns), *STATUSES)
    assert (row["kind"], row["severity"], row["text"]) == (kind, severity, text)
    assert (row["time_ns"], row["lun"], row["cycle"], row["session"]) == (at(1.5), 0, 0, 0)

    assert row["frame"] == 31


@pytest.mark.parametrize("columns", [{"status": 0}, {"status": 0x04}, {"status": None, "has_capture_gap": True}])
def test_a_good_or_unknown_status_is_no_event(columns: dict[str, Any]) -> None:
    assert events(read_with(**columns), *STATUSES) == []


HANGS = [
    # how the core says that it ended, and when; words
    (None, None, 30.0, "until the capture ended"),
    ("capture_end", 28.0, 28.0, "until the capture ended"),
    ("connection_end", 4.0, 4.0, "when its connection ended"),
    ("connection_end", 1.001, 1.001, "when its connection ended"),
    ("session_end", 4.0, 4.0, "when its session ended"),
    ("abort", 6.5, 6.5, "until it was aborted"),
    ("reset", 6.5, 6.5, "until it was aborted"),
    ("rejected", 1.1, 1.1, "until it was rejected"),
]


@pytest.mark.parametrize(("by", "ended", "end", "words"), HANGS)
def test_a_command_without_a_status(by: str | None, ended: float | None, end: float, words: str) -> None:
    told = Told()
    told.session(0, 30)
    told.read(0, 1.0, None, ended_by=by, end_ns=None if ended is None else at(ended))
    (row,) = events(told, "no_status", "capture_end")
    assert (row["kind"], row["severity"], row["text"]) == ("no_status", "error", f"READ had no status {words}")
    assert (row["time_ns"], row["end_ns"], row["cycle"], row["lun"]) == (at(1), at(end), 0, 0)


def test_a_command_whose_status_the_capture_lacks_had_one() -> None:
    told = Told()
    told.session(0, 30)
    told.read(0, 1.0, None, ended_by="status", end_ns=at(9))
    assert events(told, "no_status") == []


@pytest.mark.parametrize(
    ("columns", "count"),
    [
        # the status may be missing from the capture
        ({"gap_bytes_to_initiator": 1}, 0),
        ({"missing_pdu_count_to_initiator": 1}, 0),
        ({"cut_bytes_to_initiator": 1}, 0),
        # a hole that was never acknowledged: nothing is missing
        ({}, 1),
    ],
)
def test_a_status_that_may_be_missing_from_the_capture(columns: dict[str, Any], count: int) -> None:
    told = Told()
    told.session(0, 30, **columns)
    told.read(0, 1.0, None, has_capture_gap=True)
    assert len(events(told, "no_status")) == count


def test_a_status_whose_pdu_the_snaplen_cut_is_one() -> None:
    told = Told()
    told.session(0, 30, cut_bytes_to_initiator=1)
    told.read(0, 1.0, None, status=0)
    assert events(told, "no_status") == []


@pytest.mark.parametrize(("last", "kind"), [(1.999, "capture_end"), (2.0, "no_status")])
def test_the_capture_ends_with_a_command_in_flight(last: float, kind: str) -> None:
    told = Told()
    told.session(0, last)
    told.read(0, 1.0, None)
    told.read(0, 1.0, None)
    rows = events(told, "no_status", "capture_end")
    assert {row["kind"] for row in rows} == {kind}
    if kind == "capture_end":
        (row,) = rows
        assert (row["severity"], row["session"], row["time_ns"]) == ("info", 0, at(last))
        assert row["text"] == "the capture ends with 2 commands in flight"


@pytest.mark.parametrize(("waited", "count"), [(4.999, 0), (5.0, 1)])
@pytest.mark.parametrize("is_answered", [False, True])
def test_nops_without_an_answer_in_time(waited: float, count: int, is_answered: bool) -> None:
    told = Told()
    told.session(0, 1 + (9 if is_answered else waited))
    answer = {"response_ns": 1 + waited} if is_answered else {}
    told.add("nops", connection=0, request_ns=1.0, request_frame=6, is_ping=True, is_from_initiator=True, **answer)
    rows = events(told, "nop_timeout")
    assert len(rows) == count
    for row in rows:
        assert (row["severity"], row["frame"], row["time_ns"], row["end_ns"]) == ("error", 6, at(1), at(6))
        assert row["text"] == ("NOP-Out answered too late" if is_answered else "NOP-Out without an answer")


@pytest.mark.parametrize(
    ("how", "until", "text"),
    [
        ({"rst_to_target_ns": 2.0}, 2.0, " until the initiator closed the connection"),
        ({"fin_to_target_ns": 3.0, "rst_to_target_ns": 4.0}, 3.0, " until the initiator closed the connection"),
        # the other side did not wait for it, and what came before it says nothing
        ({"fin_to_initiator_ns": 2.0}, 9.0, ""),
        ({"fin_to_target_ns": 0.5}, 9.0, ""),
    ],
)
def test_a_nop_waits_no_longer_than_its_sender(how: dict[str, Any], until: float, text: str) -> None:
    """The target retransmits until 9 s on the connection that the initiator has closed."""
    told = Told()
    told.session(0, 9, **how)
    told.add("nops", connection=0, request_ns=1.0, request_frame=6, is_ping=True, is_from_initiator=True)
    (row,) = events(told, "nop_timeout")
    assert (row["text"], row["end_ns"]) == (f"NOP-Out without an answer{text}", at(until))


def test_a_nop_that_is_sent_with_the_fin_has_no_time_for_an_answer() -> None:
    told = Told()
    told.session(0, 9, fin_to_target_ns=1.0)
    told.add("nops", connection=0, request_ns=1.0, request_frame=6, is_ping=True, is_from_initiator=True)
    assert events(told, "nop_timeout") == []


@pytest.mark.parametrize("change", [{"is_ping": False}, {"request_ns": None}, {"gap": 1}])
def test_nops_that_need_no_answer_or_whose_answer_may_be_missing(change: dict[str, Any]) -> None:
    told = Told()
    told.session(0, 30, gap_bytes_to_initiator=change.get("gap", 0))
    row = {"connection": 0, "request_ns": 1.0, "is_ping": True} | {key: change[key] for key in change if key != "gap"}
    told.add("nops", **row)
    assert events(told, "nop_timeout") == []


def test_task_management_has_its_command_and_response() -> None:
    told = Told()
    told.session(0, 60)
    told.read(0, 1.0, None, is_aborted=True)
    common = {"connection": 0, "request_ns": 31.04, "request_frame": 50, "lun": 3}
    told.add(
        "task_management",
        **common,
        response_ns=31.3,
        function=1,
        function_text="ABORT TASK",
        response=0,
        response_text="function complete",
        referenced_cycle=0,
    )
    told.add("task_management", **common | {"request_ns": 40.0}, function=5, function_text="LOGICAL UNIT RESET")
    told.add("task_management", **common | {"request_ns": 50.0}, function=9, function_text="QUERY TASK")
    assert [(row["severity"], row["lun"], row["end_ns"], row["text"]) for row in events(told, "task_management")] == [
        ("error", 3, at(31.3), "ABORT TASK of READ after 30.0 s: function complete"),
        ("error", 3, None, "LOGICAL UNIT RESET: no response"),
        ("warning", 3, None, "QUERY TASK: no response"),
    ]


def test_rejects_and_asynchronous_messages() -> None:
    told = Told()
    told.session(0, 60)
    told.add(
        "rejects", connection=0, time_ns=1.0, frame=5, reason=9, reason_text="invalid PDU field", rejected_opcode=1
    )
    for number, event in enumerate((0, 1, 2, 3, 4, 255)):
        told.add("asyncs", connection=0, time_ns=2.0 + number, frame=6, event=event, event_text=f"event {event}")
    (reject,) = events(told, "reject")
    assert (reject["severity"], reject["frame"], reject["session"]) == ("warning", 5, 0)
    assert reject["text"] == "the target rejected a SCSI Command: invalid PDU field"
    rows = events(told, "async_message")
    assert rows[0]["text"] == "Asynchronous Message: event 0"
    assert [row["severity"] for row in rows] == ["warning", "warning", "error", "error", "info", "info"]
