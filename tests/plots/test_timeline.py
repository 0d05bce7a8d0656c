"""The time line under plots, and the events of sessions as lanes: on traces by hand, and read from what is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iscsitrace
from iscsitrace import Trace
from iscsitrace.errors import InputInvalid
from iscsitrace.plots import kinds, style, timeline
from iscsitrace.plots.kinds import events as lanes
from iscsitrace.plots.marks import Detail, Spans
from iscsitrace.plots.timeline import LAYERS, SORTS
from iscsitrace.plots.view import View, Zoom
from iscsitrace.wording.event_kinds import EVENT_KINDS
from tests.support.tables_by_hand import table

SAMPLES = Path(__file__).parents[2] / "samples"
VECTORS = Path(__file__).parents[1] / "vectors" / "guests"
SECOND = 1_000_000_000
OVER_TIME = [name for name in kinds.NAMES if kinds.load(name).has_timeline]
VIEW = View(0, 0, 10 * SECOND, (0, 1), None)


def drawn(trace: Trace, kind: str, **zoom: Any) -> Figure:
    found = kinds.load(kind).drawing(trace, Zoom(**zoom), trace.inputs[0]["time_first_ns"], Detail())
    with style.applied():
        figure = style.new_figure(found.height_in)
        found.draw(figure)
        figure.draw_without_rendering()
    return figure


def strips(figure: Figure) -> list[Axes]:
    return [each for axes in figure.axes for each in axes.child_axes if isinstance(each, Axes)]


@pytest.fixture(scope="module")
def healthy() -> Trace:
    return iscsitrace.read(SAMPLES / "sequential-read-4ms" / "capture.pcapng.gz", tables=every_table())


def every_table() -> tuple[str, ...]:
    every = [kinds.load(kind) for kind in kinds.NAMES]
    return tuple(dict.fromkeys(table for kind in every for table in (*kind.tables, *kind.zoomed_tables)))


def event(kind: str, severity: str, from_s: float, to_s: float | None = None, **columns: Any) -> dict[str, Any]:
    end_ns = None if to_s is None else round(to_s * SECOND)
    at = {"kind": kind, "severity": severity, "time_ns": round(from_s * SECOND), "end_ns": end_ns}
    return at | {"text": kind, "session": 0, "connection": 0} | columns


def events(*rows: dict[str, Any]) -> Any:
    return table("events", *({"event": number} | row for number, row in enumerate(rows)))


CONNECTIONS = [
    {"connection": number, "session": session, "initiator_address": "10.0.0.1", "target_address": address}
    for number, session, address in ((0, 0, "10.0.0.2"), (1, 1, "10.0.0.2"), (2, 2, "10.0.0.3"), (3, None, "10.0.0.2"))
]


def timeline_of(*rows: dict[str, Any], view: View = VIEW) -> timeline.Timeline:
    return timeline.of_view(events(*rows), table("connections", *CONNECTIONS), view)


def test_every_kind_of_event_has_one_mark_but_the_outage_that_is_shaded() -> None:
    named = [kind for sort in SORTS for kind in sort.kinds]
    assert sorted(named) == sorted(kind.name for kind in EVENT_KINDS if kind.name != "outage")
    assert {sort.layer for sort in SORTS} == set(LAYERS)


def test_no_two_sorts_look_the_same() -> None:
    handles, _ = timeline.key(
        tuple(timeline.Marks(sort, "error", np.zeros(1), np.zeros(1)) for sort in SORTS), has_outage=False
    )
    markers = [handle.get_marker() for handle in handles if handle.get_marker() != "None"]
    assert len(markers) == len(set(markers)) == len(SORTS)


def test_events_are_those_of_the_connections_of_their_sessions_and_of_tries_between_the_same_hosts() -> None:
    found = timeline_of(
        event("nop_timeout", "error", 1, 2),
        event("nop_timeout", "error", 2, session=2, connection=2),
        event("tcp_unanswered", "error", 3, session=None, connection=3),
        event("outage", "error", 4, 6, connection=None, session=1),
        event("outage", "error", 4, 6, connection=None, session=2),
    )
    assert [(each.sort.name, each.times_ns.tolist(), each.ends_ns.tolist()) for each in found.marks] == [
        ("refused or no answer", [3 * SECOND], [3 * SECOND]), ("NOP timeout", [SECOND], [2 * SECOND]),
    ]  # fmt: skip
    assert (found.outages.starts_ns.tolist(), found.outages.ends_ns.tolist()) == ([4 * SECOND], [6 * SECOND])


def test_events_outside_of_the_time_shown_are_left_out_and_what_began_before_it_is_kept() -> None:
    view = View(0, 2 * SECOND, 3 * SECOND, (0,), None)
    rows = [event("login_refused", "error", at) for at in (1, 2, 3, 4)]
    found = timeline_of(*rows, event("outage", "error", 1, 9), view=view)
    (marks,) = found.marks
    assert marks.times_ns.tolist() == [2 * SECOND, 3 * SECOND]
    assert len(found.outages) == 1
    # an outage without an end lasts as long as is shown
    open_ = timeline_of(event("outage", "error", 1), view=view)
    assert open_.outages.ends_ns.tolist() == [3 * SECOND]


def test_what_began_before_the_time_shown_takes_no_room_for_its_mark() -> None:
    view = View(0, 2 * SECOND, 9 * SECOND, (0,), None)
    axes = style.new_figure().subplots()
    axes.set_xlim(2, 9)
    timeline.draw_marks(axes, timeline_of(event("busy", "warning", 1, 4), view=view).marks, view, [0.0])
    assert (len(axes.collections), len(axes.lines)) == (1, 0)


def test_what_healthy_traffic_has_is_quiet() -> None:
    login, scan = event("login", "info", 1), event("check_condition", "info", 2)
    assert timeline_of(login, scan).is_quiet
    assert [each.sort.name for each in timeline_of(login, scan).marks] == ["login"]
    assert not timeline_of(login, event("busy", "warning", 2)).is_quiet
    assert not timeline_of(event("outage", "error", 2, 4)).is_quiet


def test_of_many_events_each_pixel_column_keeps_the_longest() -> None:
    rows = [event("check_condition", "error", place / 100_000, place / 100_000 + 0.001) for place in range(100_000)]
    rows[50_000]["end_ns"] = 9 * SECOND
    (marks,) = timeline_of(*rows, view=View(0, 0, SECOND, (0,), None)).marks
    assert 800 <= len(marks.times_ns) <= 801
    assert np.diff(marks.times_ns).min() > 0
    assert marks.ends_ns.max() == 9 * SECOND


# --- what is drawn


@pytest.mark.parametrize("kind", OVER_TIME)
def test_a_healthy_plot_has_no_strip(healthy: Trace, kind: str) -> None:
    figure = drawn(healthy, kind)
    assert strips(figure) == []


@pytest.fixture(scope="module")
def broken() -> Trace:
    """A login, then an outage over a lost connection, and a login again."""
    capture = next((VECTORS / "black-out-lio").glob("*.pcapng*"))
    return iscsitrace.read(capture, tables=every_table())


@pytest.mark.parametrize("kind", OVER_TIME)
def test_the_strip_is_right_below_the_axes_over_time_and_as_wide(broken: Trace, kind: str) -> None:
    figure = drawn(broken, kind)
    (strip,) = strips(figure)
    above = next(axes for axes in figure.axes if strip in axes.child_axes)
    box, place = above.get_window_extent(), strip.get_window_extent()
    assert (place.x0, place.x1) == pytest.approx((box.x0, box.x1), abs=0.5)
    assert box.y0 - 12 < place.y1 < box.y0
    assert strip.get_xlim() == above.get_xlim()
    assert strip.get_xlabel()
    # nothing below runs into it
    for other in figure.axes:
        if other is not above and other.get_window_extent().x0 < place.x1 and other.get_window_extent().x1 > place.x0:
            assert other.get_window_extent().y1 < place.y0 or other.get_window_extent().y0 > box.y1


def test_lanes_are_the_sessions_of_a_story_and_tell_the_worst_in_words(broken: Trace) -> None:
    shown = lanes.compute(broken.table, lanes.view_of(broken.table, Zoom(), broken.inputs[0]["time_first_ns"]))
    address = next(iter(broken.connections.rows()))["initiator_address"]
    assert [(lane.label, lane.host) for lane in shown.lanes] == [
        (f"session {row['session']}, {address}", row["initiator_name"]) for row in broken.sessions.rows()
    ]
    assert shown.lane_count == len(shown.lanes)
    rows = list(broken.events.rows())
    worst = next(row for row in rows if row["severity"] == "error")
    when = (worst["time_ns"] - broken.inputs[0]["time_first_ns"]) / SECOND
    assert any(told.startswith(f"{when:.2f} s: {worst['text']}") for told in shown.told)
    assert sum(len(lane.outages) for lane in shown.lanes) == sum(row["kind"] == "outage" for row in rows)
    with pytest.raises(InputInvalid, match="there is no session 99"):
        lanes.view_of(broken.table, Zoom(session=99), 0)


def test_of_many_sessions_those_with_the_worst_events_are_shown() -> None:
    count = lanes.LANES + 6
    sessions = [{"session": number, "time_first_ns": 0, "time_last_ns": 9 * SECOND} for number in range(count)]
    connections = [
        {"connection": number, "session": number, "is_iscsi": True, "initiator_address": "10.0.0.1",
         "target_address": "10.0.0.2", "target_port": 3260, "time_first_ns": 0, "time_last_ns": 9 * SECOND}
        for number in range(count)
    ]  # fmt: skip
    tables = {
        "sessions": table("sessions", *sessions),
        "connections": table("connections", *connections),
        **{name: table(name) for name in ("texts", "parameters", "logins")},
        "events": events(event("login_refused", "error", 3, session=count - 1, connection=count - 1)),
    }
    shown = lanes.compute(tables.__getitem__, lanes.view_of(tables.__getitem__, Zoom(), 0))
    numbers = [*range(lanes.LANES - 1), count - 1]
    assert [lane.label for lane in shown.lanes] == [f"session {number}, 10.0.0.1" for number in numbers]
    # without a login the portal is known
    assert {lane.host for lane in shown.lanes} == {"to 10.0.0.2:3260"}
    assert shown.lane_count == count
    assert shown.told == ("3.00 s: login_refused",)
    assert kinds.load("events").notes(shown)[-1].startswith(f"{lanes.LANES} of {count} sessions")


def test_a_long_name_of_a_host_keeps_its_end() -> None:
    lane = lanes.Lane("session 0, 10.0.0.1", "iqn.2026-01.org.example:rack-7:host-12", 0, 1, (), Spans())
    assert lanes._named(lane, 38) == "session 0, 10.0.0.1\niqn.2026-01.org.example:rack-7:host-12"
    assert lanes._named(lane, 17) == "session 0, 10.0.0.1\n...rack-7:host-12"
