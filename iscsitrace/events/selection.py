"""Selection of events, runs of equal events as a log folds them, and display filters for Wireshark."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np

from iscsitrace.events.capture import distinct
from iscsitrace.measure.selection import frames_filter
from iscsitrace.tables.condition import Columns
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES, DERIVED_TABLES
from iscsitrace.tables.table import Array, Table

HEADINGS: Final[Mapping[str, str]] = {
    "time": "time_ns",
    "severity": "severity",
    "session": "session",
    "stream": "connection",
    "LUN": "lun",
    "event": "text",
    "frame": "frame",
}
"""What the log of events calls its columns."""

COLUMNS: Final = Columns(
    "events",
    DERIVED_TABLES["events"].columns,
    frozenset({"time_ns", "end_ns"}),
    {"stream": "connection", "tcp.stream": "connection", "frame.number": "frame"},
    HEADINGS,
)
"""What a condition on events can name."""


def runs(events: Table) -> tuple[Array, Array, Array]:
    """Runs of equal events of one session and logical unit: row of the first, row of the last, and number of each run.

    Equal are events of one kind and severity with one text. Events of other sessions and units may stand between them.
    """
    if not len(events):
        none = np.zeros(0, dtype=np.intp)
        return none, none, none
    _, of_place = distinct(events.raw("session"), events.raw("lun"))
    _, what = distinct(events.raw("kind"), events.raw("severity"), events.raw("text"))
    order = np.argsort(of_place, kind="stable")
    is_new = np.ones(len(events), dtype=bool)
    is_new[1:] = (np.diff(of_place[order]) != 0) | (np.diff(what[order]) != 0)
    begins = np.flatnonzero(is_new)
    ends = np.append(begins[1:], len(events))
    firsts, lasts, counts = order[begins], order[ends - 1], ends - begins
    in_time = np.argsort(firsts, kind="stable")
    return firsts[in_time], lasts[in_time], counts[in_time]


def display_filter(event: dict[str, Any], streams: Collection[int], start_ns: int) -> str:
    """A filter for one event, a row as a dict: its frame, or the time in which it happened on its connections.

    ``streams`` are the connections of its session, ``start_ns`` the first packet of the capture.
    """
    if event["frame"] is not None:
        return frames_filter([event["frame"]])
    own = [event["connection"]] if event["connection"] is not None else streams
    terms = [f"tcp.stream in {{{', '.join(map(str, sorted(own)))}}}"] if own else []
    terms.append(f"frame.time_relative >= {_relative(event['time_ns'] - start_ns)}")
    if event["end_ns"] is not None:
        terms.append(f"frame.time_relative <= {_relative(event['end_ns'] - start_ns)}")
    return " && ".join(terms)


def _relative(amount_ns: int) -> str:
    return f"{amount_ns // 10**9}.{amount_ns % 10**9:09d}" if amount_ns >= 0 else "0"


def ends_ns(events: Table, open_ns: int | None) -> Array:
    """When each ended: its time where it has no length, or ``open_ns`` for an outage that had not ended."""
    times = events.raw("time_ns")
    without = times
    if open_ns is not None:
        is_outage = events.raw("kind") == CATEGORIES["event_kind"].index("outage")
        without = np.where(is_outage, np.maximum(times, open_ns), times)
    found: Array = np.where(known(events, "end_ns"), events.raw("end_ns"), without)
    return found
