"""Events of TCP connections, on traces by hand: who opened, refused, reset, closed, or did not answer."""

from __future__ import annotations

from typing import Any

import pytest

from iscsitrace.events import derived
from tests.support.histories import Told, at


def events(told: Told, *kinds: str) -> list[dict[str, Any]]:
    rows = list(derived.make("events", told.source()).rows())
    return [row for row in rows if not kinds or row["kind"] in kinds]


def connection(told: Told, first: float = 0, last: float = 5, **columns: Any) -> int:
    """A connection without iSCSI; a packet at 60 s makes the capture that long."""
    number = told.connection(first, last, **columns)
    told.connection(60, 60, has_syn=False, target_port=22)
    return number


def test_an_opened_connection_lasts_from_the_syn_to_the_syn_ack() -> None:
    told = Told()
    connection(told, syn_ns=0.0, syn_frame=7, syn_ack_ns=0.004, packets_to_initiator=1)
    assert [
        (row["kind"], row["severity"], row["time_ns"], row["end_ns"], row["frame"], row["connection"], row["text"])
        for row in events(told)
    ] == [("tcp_open", "info", at(0), at(0.004), 7, 0, "10.0.0.1 opened a connection to 10.0.0.2:3260")]


def test_a_syn_that_had_to_be_repeated_is_a_warning() -> None:
    told = Told()
    answered = {"syn_ns": 0.0, "syn_frame": 7, "syn_ack_ns": 3.2, "packets_to_initiator": 1}
    connection(told, **answered, retransmitted_syns_to_target=2, target_address="fd00::2")
    (row,) = events(told)
    assert (row["severity"], row["text"]) == ("warning", "10.0.0.1 opened a connection to [fd00::2]:3260, after 3 SYNs")


def test_a_refusal_is_at_its_rst() -> None:
    told = Told()
    connection(told, syn_ns=0.0, syn_frame=7, is_refused=True, rst_to_initiator_ns=0.004, packets_to_initiator=1)
    (row,) = events(told)
    assert (row["kind"], row["severity"], row["time_ns"]) == ("tcp_refused", "error", at(0.004))
    assert row["text"] == "10.0.0.2:3260 refused a connection from 10.0.0.1: RST to the SYN"


SILENT = {"syn_ns": 0.0, "syn_frame": 7, "time_last_to_target_ns": 3.0}


def test_syns_without_an_answer_are_counted_and_last_until_the_last() -> None:
    told = Told()
    connection(told, **SILENT, retransmitted_syns_to_target=2)
    (row,) = events(told)
    assert (row["kind"], row["severity"], row["frame"]) == ("tcp_unanswered", "error", 7)
    assert (row["time_ns"], row["end_ns"]) == (at(0), at(3))
    assert row["text"] == "10.0.0.2:3260 did not answer 3 SYNs from 10.0.0.1"


@pytest.mark.parametrize(
    "columns",
    [
        {"packets_to_initiator": 1},  # something came back
        {"data_last_to_target_ns": 0.1},  # only one direction was captured
        {"target_port": 22},  # no portal
        {"syn_ns": None},
    ],
)
def test_no_silence(columns: dict[str, Any]) -> None:
    told = Told()
    row = SILENT | {"retransmitted_syns_to_target": 2} | columns
    connection(told, **{name: value for name, value in row.items() if value is not None})
    assert events(told, "tcp_unanswered") == []


@pytest.mark.parametrize(("last", "count"), [(0.999, 0), (1.0, 1)])
def test_one_syn_is_silence_after_a_second(last: float, count: int) -> None:
    told = Told()
    told.connection(0, last, syn_ns=0.0, syn_frame=7)
    assert len(events(told, "tcp_unanswered")) == count


@pytest.mark.parametrize("by", ["discovery", "redirect"])
def test_a_portal_that_the_target_named_is_one_on_any_port(by: str) -> None:
    told = Told()
    connection(told, **SILENT, retransmitted_syns_to_target=2, target_port=4000, target_address="10.0.0.9")
    assert events(told, "tcp_unanswered") == []
    told.connection(0, 1, is_iscsi=True)
    if by == "discovery":
        text = "TargetName=iqn.t TargetAddress=10.0.0.2:3260,1 TargetAddress=10.0.0.9:4000,1"
        told.add("texts", connection=2, response_ns=0.5, request_text="SendTargets=All", response_text=text)
    else:
        told.add("parameters", connection=2, key="TargetAddress", target_value="10.0.0.9:4000")
    assert len(events(told, "tcp_unanswered")) == 1


SIDES = {
    "rst_to_initiator": ("tcp_reset", "the target reset the connection"),
    "rst_to_target": ("tcp_reset", "the initiator reset the connection"),
    "fin_to_initiator": ("tcp_closed", "the target closed the connection"),
    "fin_to_target": ("tcp_closed", "the initiator closed the connection"),
}


def _at(name: str) -> dict[str, Any]:
    return {f"{name}_ns": 4.5}


@pytest.mark.parametrize("name", SIDES)
def test_who_ended_a_connection(name: str) -> None:
    told = Told()
    told.session(0, 5, end="closed", **_at(name))
    (row,) = events(told, "tcp_reset", "tcp_closed")
    assert (row["kind"], row["text"]) == SIDES[name]
    assert (row["time_ns"], row["session"]) == (at(4.5), 0)
    # nothing was in flight: programs end like this, targets do not
    assert row["severity"] == ("warning" if name.endswith("to_initiator") else "info")


def test_the_first_fin_and_every_rst_after_it() -> None:
    told = Told()
    told.session(0, 5, end="logout", fin_to_target_ns=4.0, fin_to_initiator_ns=4.1, rst_to_target_ns=4.2)
    assert [(row["time_ns"], row["severity"], row["text"]) for row in events(told, "tcp_reset", "tcp_closed")] == [
        (at(4.0), "info", "the initiator closed the connection"),
        (at(4.2), "info", "the initiator reset the connection after it was closed"),
    ]


def test_a_fin_after_a_rst_closes_nothing() -> None:
    told = Told()
    told.session(0, 5, end="reset", rst_to_initiator_ns=4.0, fin_to_target_ns=4.1)
    assert [row["kind"] for row in events(told, "tcp_reset", "tcp_closed")] == ["tcp_reset"]


@pytest.mark.parametrize("name", SIDES)
def test_commands_in_flight_make_an_end_an_error(name: str) -> None:
    told = Told()
    told.session(0, 5, end="closed", **_at(name))
    told.read(0, 4.49, None)
    (row,) = events(told, "tcp_reset", "tcp_closed")
    assert row["severity"] == "error"


@pytest.mark.parametrize(
    ("end", "session_type", "is_replaced", "severity"),
    [
        ("closed", "normal", False, "info"),
        ("closed", "normal", True, "warning"),
        ("logout", "normal", True, "info"),
        ("closed", "discovery", True, "info"),
    ],
)
def test_an_idle_initiator_that_comes_back_had_lost_its_session(
    end: str, session_type: str, is_replaced: bool, severity: str
) -> None:
    told = Told()
    told.session(0, 5, end=end, session_type=session_type, fin_to_target_ns=4.5)
    told.session(6, 7, replaces=0 if is_replaced else None)
    (row,) = events(told, "tcp_closed")
    assert row["severity"] == severity


def silent(until: float, retransmitted: float | None) -> Told:
    """A target that sends nothing after 2.0 s."""
    told = Told()
    told.session(0, until, time_last_to_initiator_ns=2.0, time_last_to_target_ns=until)
    told.session(0, 9, time_last_to_initiator_ns=9, time_last_to_target_ns=9)
    if retransmitted is not None:
        told.add("retransmissions", connection=0, to_target=True, time_ns=retransmitted, frame=9)
    # of another connection, and of another direction
    told.add("retransmissions", connection=1, to_target=True, time_ns=2.5, frame=10)
    told.add("retransmissions", connection=0, to_target=False, time_ns=2.0, frame=11)
    return told


def test_a_silent_target() -> None:
    (row,) = events(silent(3.0, 2.2), "tcp_silent")
    assert (row["time_ns"], row["end_ns"], row["connection"]) == (at(2), at(3), 0)
    assert row["text"] == "the target fell silent: 1 retransmission without an answer"


@pytest.mark.parametrize(("until", "retransmitted"), [(2.999, 2.2), (3.0, None), (3.0, 2.0), (3.0, 1.5)])
def test_a_target_with_nothing_to_answer_is_not_silent(until: float, retransmitted: float | None) -> None:
    assert events(silent(until, retransmitted), "tcp_silent") == []
