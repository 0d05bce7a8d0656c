"""Events of progress and of the capture itself, on traces by hand; their order; and a healthy trace."""

from __future__ import annotations

from typing import Any

import pytest

from tests.events.test_events_tcp import events
from tests.support.histories import Told, at

OPENED: dict[str, Any] = {"syn_ack_ns": 0.001, "packets_to_initiator": 9}


def test_an_outage_lasts_until_progress_over_the_sessions_of_its_story() -> None:
    told = Told()
    told.session(0, 5, end="reset", rst_to_initiator_ns=4.0)
    told.read(0, 1.0, None)
    told.time(0, 1.0, 9.0, "outage")
    told.session(8, 20, replaces=0)
    told.read(1, 8.9, 9.1)
    # another story goes on meanwhile
    told.session(0, 20, isid="81")
    told.read(2, 9.0, 9.01)
    (row,) = events(told, "outage")
    assert (row["severity"], row["session"], row["text"]) == ("error", 0, "outage: no I/O completes")
    assert (row["time_ns"], row["end_ns"]) == (at(1.0), at(9.1))


def test_an_outage_of_two_sessions_is_one() -> None:
    told = Told()
    told.session(0, 5, end="reset", rst_to_initiator_ns=4.0)
    told.time(0, 1.0, 9.0, "outage")
    told.session(8, 20, replaces=0)
    told.time(1, 8.9, 12.0, "outage")
    told.read(1, 12.0, 12.5)
    (row,) = events(told, "outage")
    assert (row["time_ns"], row["end_ns"], row["text"]) == (
        at(1),
        at(12.5),
        "outage: no I/O completes, also in session 1",
    )


def test_an_outage_of_a_story_ends_when_its_next_session_works() -> None:
    """A command of the first session is answered late, by a target that has not noticed the new login."""
    told = Told()
    told.session(0, 15, end="reinstated")
    told.read(0, 1.0, 14.0)
    told.time(0, 1.0, 14.0, "outage")
    told.session(12, 20, replaces=0)
    for tenth in range(130, 150, 5):
        told.read(1, tenth / 10, tenth / 10 + 0.1)
    (row,) = events(told, "outage")
    assert (row["time_ns"], row["end_ns"]) == (at(1.0), at(13.1))


def test_an_outage_that_does_not_end() -> None:
    told = Told()
    told.session(0, 8)
    told.time(0, 1.0, 8.0, "outage")
    (row,) = events(told, "outage")
    assert row["end_ns"] is None
    assert row["text"] == "outage: no I/O completes for 7.0 s and up to the end of the capture"


@pytest.mark.parametrize(("again_s", "end"), [(12.2, at(12.2)), (None, None), (1.1, 0)])
def test_a_stop_by_the_numbers_of_the_command_window_is_an_outage(again_s: float | None, end: int | None) -> None:
    told = Told()
    told.session(0, 20)
    told.read(0, 0.2, 0.21)
    row = {"rule": "S8", "side": "target", "connection": 0, "time_ns": 0.21, "last_time_ns": 0.21, "frame": 7}
    told.add("violations", **row, count=1, seen=50, expected=0)
    if again_s:
        told.read(0, again_s, again_s + 0.1)
    found = events(told, "outage")
    if end == 0:
        assert not found, "less than a second"
        return
    (event,) = found
    what = "outage: the command window is closed (rule S8), no command is sent"
    assert (event["time_ns"], event["end_ns"], event["session"]) == (at(0.2), end, 0)
    assert event["text"] == (what if end else f"{what} for 19.8 s and up to the end of the capture")


@pytest.mark.parametrize(
    ("cause", "length", "spurious", "severity", "text"),
    [
        ("timeout", 0.01, 0, "warning", "retransmission timeout: 2 retransmissions to the target"),
        ("timeout", None, 0, "warning", "retransmission timeout: 2 retransmissions to the target, never acknowledged"),
        ("timeout", 0.01, 2, "info", "retransmission timeout: 2 spurious retransmissions to the target"),
        (
            "lost acks",
            0.01,
            2,
            "warning",
            "retransmission timeout: 2 retransmissions to the target, because ACKs were lost",
        ),
        ("fast", 0.2, 1, "warning", "long recovery from a loss: 2 retransmissions to the target"),
        ("fast", 0.199, 0, None, None),
        ("fast", None, 0, None, None),
    ],
)
def test_recoveries(cause: str, length: float | None, spurious: int, severity: str | None, text: str | None) -> None:
    told = Told()
    told.session(0, 8)
    end = {} if length is None else {"time_last_ns": 1 + length}
    counts: dict[str, Any] = {"retransmitted_packets": 2, "spurious_packets": spurious}
    if cause == "lost acks":
        cause, counts["ack_loss"] = "timeout", "before_tap"
    told.add("recoveries", connection=0, to_target=True, cause=cause, time_first_ns=1.0, frame_first=9, **end, **counts)
    rows = events(told, "recovery")
    assert [(row["severity"], row["text"]) for row in rows] == ([] if text is None else [(severity, text)])
    assert all((row["frame"], row["time_ns"], row["session"]) == (9, at(1), 0) for row in rows)


def counted(told: Told, name: str, severity: str, count: int = 1, **columns: object) -> None:
    row = {"name": name, "severity": severity, "count": count, "meaning": "holes", **columns}
    told.rows["counters"].append(row)


def test_what_the_capture_misses_has_the_time_of_the_last_known_frame() -> None:
    told = Told()
    told.session(0, 8, frame_first=1, frame_last=90)
    told.read(0, 1.0, 1.1, command_frame=20)
    told.read(0, 2.0, 2.1, command_frame=40)
    counted(told, "capture_gap", "data_loss", 3, connection=0, first_frame=39)
    counted(told, "hole_abandoned", "data_loss", connection=0, first_frame=40)
    counted(told, "dropped_by_capture", "data_loss", 7)
    rows = events(told, "capture_incomplete")
    assert [(row["time_ns"], row["severity"], row["session"], row["frame"], row["text"]) for row in rows] == [
        (at(1), "data_loss", 0, 39, "3 holes, the first one here"),
        (at(2), "data_loss", 0, 40, "1 holes"),
        (at(8), "data_loss", None, None, "7 holes, the first one here"),
    ]


def test_counters_of_no_loss_and_of_what_has_events_are_no_events() -> None:
    told = Told()
    told.session(0, 8)
    for name, severity, count in (
        ("cycle_incomplete", "data_loss", 1),
        ("capture_gap_bytes", "data_loss", 1),
        ("unexplained_bytes", "data_loss", 1),
        ("check_condition", "info", 1),
        ("task_aborted", "warning", 1),
        ("capture_gap", "data_loss", 0),
    ):
        counted(told, name, severity, count, connection=0, first_frame=5)
    assert events(told, "capture_incomplete", "digest_error") == []


def test_digest_errors() -> None:
    told = Told()
    told.session(0, 8)
    counted(told, "data_digest_error", "warning", 3, connection=0, first_frame=5)
    (row,) = events(told, "digest_error")
    assert (row["severity"], row["text"]) == ("error", "3 data digest errors, the first one here")


def test_events_are_numbered_in_order_of_time_and_frame() -> None:
    told = Told()
    told.session(0, 8, end="closed", fin_to_initiator_ns=7.0, syn_ns=0.0, syn_frame=1, **OPENED)
    told.read(0, 1.0, 1.5, status=0x08, status_frame=31)
    told.read(0, 1.1, 1.5, status=0x18, status_frame=30)
    rows = events(told)
    assert [row["event"] for row in rows] == list(range(len(rows)))
    assert [row["kind"] for row in rows[1:5]] == ["login", "reservation_conflict", "busy", "tcp_closed"]


def test_a_healthy_trace_has_information_only() -> None:
    told = Told()
    told.session(
        0, 8, end="logout", syn_ns=0.0, syn_frame=1, syn_ack_ns=0.001, packets_to_initiator=9, fin_to_target_ns=7.9
    )
    told.reads(0, 1.0, 20)
    told.read(0, 0.5, 0.51, operation="inquiry", status=2, sense_key=5, asc=0x24, ascq=0)
    told.add("nops", connection=0, request_ns=2.0, response_ns=2.001, is_ping=True)
    told.add("logouts", connection=0, request_ns=7.8, response_ns=7.81, response=0, request_frame=99)
    rows = events(told)
    assert {row["severity"] for row in rows} == {"info"}
    assert [row["kind"] for row in rows] == ["tcp_open", "login", "check_condition", "logout", "tcp_closed"]


def test_a_trace_without_anything() -> None:
    told = Told()
    assert events(told) == []


@pytest.mark.parametrize("first", [-(1 << 40), (1 << 62)])
def test_times_at_the_ends_of_their_type(first: int) -> None:
    """A capture before 1970, or with a broken clock: no difference of times overflows."""
    told = Told()
    told.session(0, 5, end="reset", rst_to_initiator_ns=4.0)
    told.read(0, 1.0, None)
    shift = first - at(0)
    for rows in told.rows.values():
        for row in rows:
            row.update(
                {name: value + shift for name, value in row.items() if name.endswith("_ns") and value is not None}
            )
    assert [(row["kind"], row["time_ns"] - first) for row in events(told, "no_status", "tcp_reset")] == [
        ("no_status", 1_000_000_000),
        ("tcp_reset", 4_000_000_000),
    ]
