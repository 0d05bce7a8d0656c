"""Events of a trace, as a log and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from iscsitrace.events.selection import HEADINGS, display_filter, runs
from iscsitrace.measure.selection import frames_filter
from iscsitrace.show import inputs
from iscsitrace.show.document import Section, table
from iscsitrace.show.terminal import json_rows
from iscsitrace.tables.nulls import known
from iscsitrace.wording import amounts, cells

if TYPE_CHECKING:
    from iscsitrace.tables.table import Table
    from iscsitrace.tables.trace import TraceTables

_FRAMES_SHOWN: Final = 200
"""Frames in the filter of all events: Wireshark compiles a longer one slowly, and nobody reads it."""


def json_lines(trace: TraceTables, events: Table) -> Iterator[str]:
    """What ``events --json`` prints, one row at a time."""
    streams, start_ns = _streams(trace), trace.start_ns
    rows = (
        row | {"display_filter": display_filter(row, streams.get(row["session"], ()), start_ns)}
        for row in events.rows()
    )
    return json_rows(trace.provenance, "events", rows)


def _streams(trace: TraceTables) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in trace.connections.rows(("session", "connection")):
        if row["session"] is not None:
            found.setdefault(row["session"], []).append(row["connection"])
    return found


def sections(trace: TraceTables, events: Table, *, is_absolute: bool, has_every: bool) -> Iterator[Section]:
    """One line per event; runs of equal events are one line unless ``has_every``."""
    start_ns = trace.start_ns
    if not len(events):
        yield Section("", ("no events",))
        return
    if has_every:
        shown, untils, counts = events, [None] * len(events), [1] * len(events)
    else:
        firsts, lasts, numbers = runs(events)
        shown, untils, counts = events.select(firsts), events.raw("time_ns")[lasts].tolist(), numbers.tolist()

    def clock(time_ns: int) -> str:
        return cells.date(time_ns) if is_absolute else cells.seconds(time_ns - start_ns)

    rows = (_line(row, count, until, clock) for row, until, count in zip(shown.rows(), untils, counts, strict=True))
    note = "time: UTC" if is_absolute else inputs.zero_of_times(trace)
    yield Section("", (note, table(HEADINGS, rows)))
    frames = sorted(set(shown.raw("frame")[known(shown, "frame")].tolist()))
    if frames:
        title = "Display filter"
        if len(frames) > _FRAMES_SHOWN:
            title += f" of the first {_FRAMES_SHOWN} of {len(frames):,} frames"
        yield Section("", (f"{title}: {frames_filter(frames[:_FRAMES_SHOWN])}",))


def _line(row: dict[str, Any], count: int, until_ns: int | None, clock: Any) -> tuple[object, ...]:
    text = row["text"]
    if count > 1:
        text += f" ({count:,} times until {clock(until_ns)})"
    elif row["end_ns"] is not None and row["end_ns"] > row["time_ns"]:
        text += f" ({amounts.time(row['end_ns'] - row['time_ns'])})"
    return (
        clock(row["time_ns"]),
        (row["severity"] or "").replace("_", " "),
        row["session"],
        row["connection"],
        row["lun"],
        text,
        row["frame"],
    )
