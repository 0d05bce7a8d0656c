"""The round-trip time under load: which connections and times are shown, its queue, its retransmissions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.patches import StepPatch

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.errors import InputInvalid
from iscsitrace.plots import style
from iscsitrace.plots.kinds import rtt
from iscsitrace.plots.marks import Detail
from iscsitrace.plots.view import View, Zoom
from iscsitrace.tables.table import Table
from tests.support.calls import calls_of, rows_of
from tests.support.tables_by_hand import MS, table

STEP = rtt.WINDOW_NS
VIEW = View(0, 0, 4 * STEP, (0, 1), to_target=False)


def window(number: int, least_ms: int, median_ms: int, **columns: Any) -> dict[str, Any]:
    row = {"connection": 0, "time_ns": number * STEP, "rtt_least_ns": least_ms * MS, "rtt_median_ns": median_ms * MS}
    return row | columns


def connection(number: int, to_initiator_ms: int | None = 0, to_target_ms: int | None = 10) -> dict[str, Any]:
    both = {"rtt_to_initiator_min_ns": to_initiator_ms, "rtt_to_target_min_ns": to_target_ms}
    return {"connection": number} | {name: None if ms is None else ms * MS for name, ms in both.items()}


def curves(
    *windows: dict[str, Any],
    connections: tuple[dict[str, Any], ...] = (connection(0), connection(1)),
    senders: tuple[dict[str, Any], ...] = (),
    again: tuple[dict[str, Any], ...] = (),
    view: View = VIEW,
    detail: Detail | None = None,
) -> rtt.RttCurves:
    tables = table("rtt", *windows), table("connections", *connections), table("senders", *senders)
    return rtt.compute(*tables, table("retransmissions", *again), view, detail or Detail())


def test_a_step_is_a_window_and_time_without_data_is_a_gap() -> None:
    (course,) = curves(window(0, 12, 15), window(1, 30, 40), window(3, 11, 11)).courses
    assert course.path_ns == 10 * MS
    assert course.edges_ns.tolist() == [0, STEP, 2 * STEP, 3 * STEP, 4 * STEP]
    assert course.least_ns[[0, 1, 3]].tolist() == [12 * MS, 30 * MS, 11 * MS]
    assert course.median_ns[[0, 1, 3]].tolist() == [15 * MS, 40 * MS, 11 * MS]
    assert np.isnan([course.least_ns[2], course.median_ns[2]]).all()
    assert course.above_ns == (5 + 30 + 1) * MS


def test_windows_that_the_view_touches_are_shown() -> None:
    view = View(0, STEP, 2 * STEP - 1, (0,), to_target=False)
    every = [window(0, 1, 1), window(1, 2, 2), window(2, 3, 3), window(1, 9, 9, connection=1)]
    (course,) = curves(*every, view=view).courses
    assert course.least_ns.tolist() == [2 * MS]


def test_the_direction_is_that_of_the_view_if_data_of_it_were_measured() -> None:
    out, back = window(0, 12, 12, to_target=True), window(0, 13, 13)
    assert [(each.to_target, each.least_ns[0]) for each in curves(out, back).courses] == [(False, 13 * MS)]
    (course,) = curves(out).courses
    assert (course.to_target, course.least_ns[0]) == (True, 12 * MS)
    assert rtt.title(curves(out)) == "Round-trip time under load, data to the target"
    assert rtt.title(curves(out, window(0, 13, 13, connection=1))) == "Round-trip time under load"


def test_the_rows_of_a_connection_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 300
    view = View(0, 0, 4 * STEP, tuple(range(count)), to_target=False)
    windows = [window(0, 1, 1, connection=number) for number in range(count)]
    both = [{"connection": number} for number in range(count)]
    selections = calls_of(monkeypatch, Table, "select")
    assert (
        curves(
            *windows,
            connections=tuple(map(connection, range(count))),
            senders=tuple(both),
            again=tuple(both),
            view=view,
        ).measured_count
        == count
    )
    assert rows_of(selections) <= 10 * count


def test_a_path_is_known_where_both_sides_of_the_tap_are() -> None:
    windows = window(0, 12, 12), window(0, 12, 12, connection=1)
    found = curves(*windows, connections=(connection(0, 3), connection(1, None)))
    assert [each.path_ns for each in found.courses] == [13 * MS, None]
    assert list(rtt.notes(found)) == ["connection 1: the minimum RTT of the path cannot be told from this capture"]


def test_retransmissions_are_those_of_the_data_one_mark_for_each_pixel_column() -> None:
    def again(time_ns: int, cause: str = "fast", **columns: Any) -> dict[str, Any]:
        return {"connection": 0, "time_ns": time_ns, "cause": cause} | columns

    rows = [again(5), again(9), again(4 * STEP), again(4 * STEP + 1), again(7, "timeout"), again(6, to_target=True)]
    (course,) = curves(window(0, 12, 12), again=(*rows, again(8, connection=1))).courses
    assert {cause: times.tolist() for cause, times in course.retransmissions.items()} == {
        "fast": [5, 4 * STEP],
        "timeout": [7],
    }


def test_the_standing_queue_is_that_of_the_table_senders() -> None:
    queue = {"standing_queue_ns": 3 * STEP, "standing_queue_delay_ns": 40 * MS}
    senders = ({"connection": 0, "to_target": True}, {"connection": 0, "to_target": False} | queue)
    found = curves(window(0, 50, 50), window(0, 12, 12, connection=1), senders=senders)
    assert [(each.queue_ns, each.queue_delay_ns) for each in found.courses] == [(3 * STEP, 40 * MS), (0, None)]
    assert list(rtt.notes(found)) == [
        "connection 0: a standing queue lasted 750 ms of the capture and delayed the data by 40 ms (median)"
    ]


def test_of_many_connections_those_with_the_longest_queues_are_drawn() -> None:
    ends = tuple(connection(number) for number in range(5))
    windows = [window(0, 11, 11 + waits, connection=number) for number, waits in enumerate((1, 9, 3, 8))]
    view = View(0, 0, 4 * STEP, tuple(range(5)), to_target=False)
    found = curves(*windows, connections=ends, view=view, detail=Detail(top=2))
    assert [each.connection for each in found.courses] == [1, 3]
    assert list(rtt.notes(found)) == [
        "the RTT under load of 1 more connection cannot be told from this capture",
        "2 of 4 connections: those with the longest queues",
    ]


def test_a_long_view_keeps_the_least_and_the_highest_median_of_each_column() -> None:
    view = View(0, 0, 400 * STEP - 1, (0,), to_target=False)
    windows = [window(number, 20 + number % 2, 40 + number % 2) for number in range(400)]
    found = curves(*windows, view=view, detail=Detail(columns=100))
    (course,) = found.courses
    assert found.is_decimated
    assert (course.least_ns.tolist(), course.median_ns.tolist()) == ([20 * MS] * 100, [41 * MS] * 100)


def test_where_the_packets_do_not_tell_there_is_nothing_to_draw() -> None:
    with pytest.raises(InputInvalid, match=r"cannot be told from this capture: fewer than two segments"):
        curves()


def test_the_queue_is_shaded_from_the_path_up() -> None:
    again = ({"connection": 0, "time_ns": 2 * STEP, "cause": "timeout"},)
    found = curves(window(0, 12, 15), window(1, 30, 40), again=again)
    with style.applied():
        figure = style.new_figure()
        rtt.draw(figure, found)
    (axes,) = figure.axes
    areas: dict[str, Any] = {
        str(each.get_label()): each.get_data() for each in axes.patches if isinstance(each, StepPatch)
    }
    throughout, at_times = areas["lowest RTT of 250 ms"], areas["from the lowest to the median RTT of 250 ms"]
    assert (list(throughout.baseline), throughout.values.tolist()) == ([10, 10], [12, 30])
    assert (list(at_times.baseline), at_times.values.tolist()) == ([12, 30], [15, 40])
    lines = {str(each.get_label()): each for each in axes.lines}
    assert np.asarray(lines["median RTT of 250 ms"].get_xdata()).tolist() == [0, 250, 500]
    assert np.asarray(lines["median RTT of 250 ms"].get_ydata()).tolist() == [15, 40, 40]
    assert list(np.asarray(lines["minimum RTT of the path"].get_ydata())) == [10, 10]
    assert np.asarray(lines["timeout"].get_xdata()).tolist() == [500]
    assert axes.get_ylabel() == "connection 0\nRTT, ms"


def test_both_taps_show_the_queue_of_a_full_line(tmp_path: Path) -> None:
    """20 Mbit/s and 256 KiB of queue: up to 105 ms, and the path takes 10 ms."""
    options = "read --rate 20Mbit --queue 256K --one-way-delay 5ms --block-size 256K --queue-depth 8 --bytes 8M"
    made = CliRunner().invoke(main, ["simulate", *options.split(), "-o", str(tmp_path), "--quiet"])
    assert made.exit_code == 0, made.output
    for end in ("initiator", "target"):
        trace = iscsitrace.read(tmp_path / f"{end}.pcapng", tables=rtt.KIND.tables)
        drawing = rtt.KIND.drawing(trace, Zoom(), 0, Detail())
        found = rtt.prepare(trace, drawing.view, Detail())
        (course,) = found.courses
        assert course.path_ns is not None
        assert 10 * MS <= course.path_ns < 11 * MS
        # what is in flight fills the queue, and it never empties
        assert 95 * MS < np.nanmax(course.median_ns) < 120 * MS
        assert np.nanmedian(course.least_ns) > 60 * MS
        assert any("a standing queue lasted" in note for note in drawing.notes)
