"""Commands as bars: their ends, lanes, and what replaces them where there are many."""

from __future__ import annotations

from typing import Any

import numpy as np

from iscsitrace.plots import timeline
from iscsitrace.plots.view import View
from tests.support.tables_by_hand import table

VIEW = View(origin_ns=0, start_ns=100, end_ns=4_100, connections=(0,))


def command(number: int, start_ns: int, end_ns: int | None, **columns: Any) -> dict[str, Any]:
    times = {"command_first_ns": start_ns, "status_ns": end_ns, "end_ns": end_ns}
    return {"cycle": number, "connection": 0, "operation": "read"} | times | columns


def test_a_command_without_a_status_lasts_until_the_end_of_the_view() -> None:
    outside = [command(6, 0, 99), command(7, 4_101, 5_000), command(8, 50, None), command(9, 200, 300, connection=1)]
    rows = [command(3, 50, 100), command(4, 200, None, operation=None), command(5, 4_100, 5_000), *outside]
    found = timeline.tasks_of_view(table("cycles", *rows), VIEW)
    assert (found.cycles, found.operations) == ((3, 4, 5), ("read", "unknown", "read"))
    assert (found.spans.starts_ns.tolist(), found.spans.ends_ns.tolist()) == ([50, 200, 4_100], [100, 4_100, 5_000])
    assert (found.count, len(found.outstanding)) == (3, 0)


def test_a_command_whose_connection_ended_lasts_until_then() -> None:
    spans = [(50, 99), (50, 120), (200, 230)]
    rows = [command(number, start, None) | {"end_ns": end} for number, (start, end) in enumerate(spans)]
    found = timeline.tasks_of_view(table("cycles", *rows), VIEW)
    assert (found.cycles, found.spans.ends_ns.tolist()) == ((1, 2), [120, 230])


def test_each_command_takes_the_first_free_of_four_lanes() -> None:
    spans = [(100, 200), (110, 400), (120, 400), (130, 350), (200, 210), (205, 300), (209, 600), (400, 500), (500, 501)]
    rows = [command(number, start, end) for number, (start, end) in enumerate(spans)]
    found = timeline.tasks_of_view(table("cycles", *rows), VIEW)
    # with four in flight the fifth and the sixth share the last lane, which is then busy until 600
    assert found.lanes == (0, 1, 2, 3, 0, 3, 3, 0, 0)


def test_more_than_300_commands_become_the_time_in_which_any_was_in_flight() -> None:
    rows = [command(number, 100 + 2 * number, 101 + 2 * number) for number in range(301)]
    assert len(timeline.tasks_of_view(table("cycles", *rows[:300]), VIEW).spans) == 300
    found = timeline.tasks_of_view(table("cycles", *rows), VIEW)
    assert (found.cycles, len(found.spans), found.count) == ((), 0, 301)
    assert (found.outstanding.starts_ns.tolist(), found.outstanding.ends_ns.tolist()) == ([100], [701])


def test_stretches_less_than_a_pixel_apart_are_one() -> None:
    """A pixel is a 2000th of the view: 2 ns."""
    starts, ends = np.array([300, 100, 112, 115, 305]), np.array([400, 110, 114, 120, 310])
    found = timeline.union(starts, ends, VIEW)
    assert (found.starts_ns.tolist(), found.ends_ns.tolist()) == ([100, 300], [120, 400])
    found = timeline.union(np.array([100, 113]), np.array([110, 120]), VIEW)
    assert (found.starts_ns.tolist(), found.ends_ns.tolist()) == ([100, 113], [110, 120])
    narrower = View(origin_ns=0, start_ns=100, end_ns=4_099)
    assert len(timeline.union(np.array([100, 112]), np.array([110, 120]), narrower)) == 2


def test_no_commands_are_no_bars() -> None:
    assert timeline.tasks_of_view(table("cycles"), VIEW).count == timeline.Tasks().count == 0
