"""The time breakdown with the waits for the target from the tap beside it, in tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.measure.budget import PARTS
from iscsitrace.tables.table import Table
from iscsitrace.taps import senders
from tests.support.tables_by_hand import table

ONE_WAY = 10
READ, WRITE = 0, 1
Row = tuple[int, int, str]
CYCLES = table("cycles", {"cycle": READ, "is_read": True}, {"cycle": WRITE, "is_write": True})


def stretch(first: int, last: int, part: str, cycle: int | None = READ, **columns: Any) -> dict[str, Any]:
    times = {"time_first_ns": first, "time_last_ns": last}
    return {"session": 0, "connection": 0, "part": part, "cycle": cycle, "frame": last} | times | columns


def joined(own: list[dict[str, Any]], other: list[dict[str, Any]], connections: tuple[int, ...] = (0,)) -> Table:
    return senders.budget(
        table("budget", *own), table("budget", *other), CYCLES, np.array(connections), lambda times: times + ONE_WAY
    )


def rows(found: Table) -> list[Row]:
    return list(zip(*(found[name].tolist() for name in ("time_first_ns", "time_last_ns", "part")), strict=True))


def test_a_wait_gets_the_part_that_the_sender_s_tap_shows_one_way_earlier() -> None:
    found = joined(
        [stretch(100, 200, "loss_recovery"), stretch(200, 300, "transfer")],
        [stretch(90, 120, "congestion_window"), stretch(120, 150, "transfer"), stretch(150, 240, "loss_recovery")],
    )
    assert rows(found) == [
        (100, 130, "congestion_window"),
        (130, 200, "loss_recovery"),
        (200, 300, "transfer"),
    ]
    assert found["frame"].tolist() == [200, 200, 300]


def test_what_was_no_wait_of_tcp_stays() -> None:
    for part in ("transfer", "propagation", "initiator_service", "initiator_think", "outage", "receive_window"):
        assert rows(joined([stretch(0, 100, part)], [stretch(0, 90, "loss_recovery")])) == [(0, 100, part)]


def test_what_the_sender_s_tap_does_not_explain_stays() -> None:
    for part in ("transfer", "propagation", "target_service", "unknown"):
        found = joined([stretch(0, 100, "congestion_window")], [stretch(0, 90, part)])
        assert rows(found) == [(0, 100, "congestion_window")]


def test_a_target_serves_only_while_it_has_a_command() -> None:
    """An answer that the path delays is no service, and neither is a command that is not there yet."""
    shown = [stretch(0, 20, "initiator_think"), stretch(20, 40, "target_service"), stretch(40, 90, "propagation")]
    for cycle in (READ, WRITE):
        found = joined([stretch(10, 100, "target_service", cycle)], shown)
        assert rows(found) == [(10, 30, "propagation"), (30, 50, "target_service"), (50, 100, "propagation")]


def test_a_target_that_has_the_command_recovers_from_nothing() -> None:
    found = joined([stretch(0, 100, "loss_recovery")], [stretch(0, 40, "target_service")])
    assert rows(found) == [(0, 10, "loss_recovery"), (10, 50, "target_service"), (50, 100, "loss_recovery")]


def test_an_unknown_wait_is_explained() -> None:
    found = joined([stretch(0, 100, "unknown")], [stretch(-10, 40, "receive_window")])
    assert rows(found) == [(0, 50, "receive_window"), (50, 100, "unknown")]


def test_writes_and_other_connections_stay() -> None:
    limits = [stretch(0, 90, "loss_recovery"), stretch(0, 90, "loss_recovery", connection=1)]
    for own in (stretch(0, 100, "congestion_window", WRITE), stretch(0, 100, "congestion_window", None)):
        assert rows(joined([own], limits)) == [(0, 100, "congestion_window")]
    assert rows(joined([stretch(0, 100, "ack_wait")], limits, connections=(1,))) == [(0, 100, "ack_wait")]


def test_the_time_of_a_session_and_that_of_its_connection_are_apart() -> None:
    own = [stretch(0, 100, "congestion_window"), stretch(0, 100, "congestion_window", connection=None)]
    found = joined(own, [stretch(-10, 40, "loss_recovery")])
    assert rows(found) == [(0, 50, "loss_recovery"), (50, 100, "congestion_window")] * 2
    assert found["connection"].tolist() == [0, 0, None, None]


@st.composite
def breakdowns(draw: st.DrawFn) -> list[dict[str, Any]]:
    edges = sorted(draw(st.sets(st.integers(0, 60), min_size=2, max_size=12)))
    parts = draw(st.lists(st.sampled_from(PARTS), min_size=len(edges) - 1, max_size=len(edges) - 1))
    cycles = draw(st.lists(st.sampled_from((READ, WRITE, None)), min_size=len(parts), max_size=len(parts)))
    return [stretch(*each) for each in zip(edges[:-1], edges[1:], parts, cycles, strict=True)]


@given(breakdowns(), breakdowns())
def test_every_nanosecond_has_one_part(own: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Against the definition, nanosecond by nanosecond."""
    limits = {"receive_window", "congestion_window", "send_buffer", "ack_wait", "loss_recovery"}
    unsure = limits - {"receive_window"} | {"unknown"}
    at_target = {
        time + ONE_WAY: row["part"] for row in other for time in range(row["time_first_ns"], row["time_last_ns"])
    }

    def part_of(part: str, shown: str | None, cycle: int | None) -> str:
        if part == "target_service" and shown in {"propagation", "initiator_think"} and cycle is not None:
            return "propagation"
        if cycle != READ or shown is None:
            return part
        if shown in limits and part in unsure | {"target_service"}:
            return shown
        return shown if (part, shown) == ("loss_recovery", "target_service") else part

    expected = [
        (time, part_of(row["part"], at_target.get(time), row["cycle"]), row["cycle"])
        for row in own
        for time in range(row["time_first_ns"], row["time_last_ns"])
    ]
    found = joined(own, other)
    told = [
        (time, row["part"], row["cycle"])
        for row in found.rows()
        for time in range(row["time_first_ns"], row["time_last_ns"])
    ]
    assert told == expected
