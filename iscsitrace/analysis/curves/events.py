"""The events of a view, by layer and sort: marks, stretches of time, and outages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from iscsitrace.analysis.curves.marks import Array, Spans
from iscsitrace.analysis.curves.view import View
from iscsitrace.analysis.groups.events import NEEDED
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table
from iscsitrace.wording.event_kinds import DATA_LOSS, ERROR, INFO, WARNING

__all__ = ["NEEDED", "SORTS", "Marks", "Sort", "Timeline", "of_view"]

LAYERS: Final = ("TCP", "iSCSI", "SCSI")
_COLUMNS: Final = 800
"""Marks of one sort and severity that are apart by less than a share of the view of 1/800 are one."""


@dataclass(frozen=True)
class Sort:
    """Events that a plot shows with one mark."""

    name: str
    layer: str
    kinds: tuple[str, ...]
    is_shown_as_info: bool = True
    """Whether events that healthy traffic has are shown under plots."""


SORTS: Final = (
    Sort("connection opened", "TCP", ("tcp_open",), is_shown_as_info=False),
    Sort("RST or close", "TCP", ("tcp_reset", "tcp_closed")),
    Sort("no answer", "TCP", ("tcp_refused", "tcp_unanswered", "tcp_silent")),
    Sort("TCP recovery", "TCP", ("recovery",), is_shown_as_info=False),
    Sort("capture incomplete", "TCP", ("capture_incomplete", "capture_end"), is_shown_as_info=False),
    Sort("login", "iSCSI", ("login", "login_redirected", "discovery")),
    Sort("login again", "iSCSI", ("relogin", "session_reinstated")),
    Sort("login failed", "iSCSI", ("login_refused", "login_unfinished", "key_mismatch")),
    Sort("logout", "iSCSI", ("logout",)),
    Sort("NOP timeout", "iSCSI", ("nop_timeout",)),
    Sort("Reject, Async Message, digest error", "iSCSI", ("reject", "async_message", "digest_error"), False),
    Sort("abort or reset", "SCSI", ("task_management",)),
    Sort(
        "bad status",
        "SCSI",
        ("check_condition", "reservation_conflict", "busy", "task_set_full", "command_failed"),
        is_shown_as_info=False,
    ),
    Sort("no status", "SCSI", ("no_status",)),
)
"""All kinds of events but ``outage``, which is shaded."""

_SEVERITIES: Final = CATEGORIES["severity"]
LOOKS: Final = (INFO, WARNING, DATA_LOSS, ERROR)


@dataclass(frozen=True)
class Marks:
    """The events of one sort and severity, in order of time."""

    sort: Sort
    severity: str
    times_ns: Array
    ends_ns: Array
    """When each ended; its time, where it has no length."""


@dataclass(frozen=True)
class Timeline:
    """The events of a view."""

    view: View
    marks: tuple[Marks, ...]
    outages: Spans

    @property
    def is_quiet(self) -> bool:
        """Whether there are none but those of healthy traffic."""
        return not len(self.outages) and all(each.severity == INFO for each in self.marks)


def of_view(events: Table, connections: Table, view: View) -> Timeline:
    """The events of the connections of a view and of their sessions, as far as they are within its time."""
    seen = events.select(_is_of(events, connections, view))
    seen = seen.select((seen.raw("time_ns") <= view.end_ns) & (ends_ns(seen, view.end_ns) >= view.start_ns))
    return Timeline(view, marks(seen, view), outages(seen, view))


def outages(events: Table, view: View) -> Spans:
    """The outages among them, each to its end or that of the view."""
    own = events.select(events.raw("kind") == CATEGORIES["event_kind"].index("outage"))
    return Spans(own.raw("time_ns"), ends_ns(own, view.end_ns))


def marks(events: Table, view: View, *, has_all: bool = False) -> tuple[Marks, ...]:
    """The others by sort and severity; ``has_all`` keeps those that healthy traffic has many of."""
    kinds = CATEGORIES["event_kind"]
    found = []
    for sort in SORTS:
        own = events.select(np.isin(events.raw("kind"), [kinds.index(kind) for kind in sort.kinds]))
        for code, severity in enumerate(_SEVERITIES):
            if severity == INFO and not (has_all or sort.is_shown_as_info):
                continue
            chosen = own.select(own.raw("severity") == code)
            if len(chosen):
                found.append(_thinned(sort, severity, chosen, view))
    return tuple(found)


def _thinned(sort: Sort, severity: str, events: Table, view: View) -> Marks:
    """One mark of each pixel column: the one that lasts longest."""
    times, ends = events.raw("time_ns"), ends_ns(events, None)
    column_ns = max(1, (view.end_ns - view.start_ns) // _COLUMNS)
    order = np.lexsort((times - ends, times // column_ns))
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = np.diff(times[order] // column_ns) != 0
    kept = np.sort(order[is_first])
    return Marks(sort, severity, times[kept], ends[kept])


def ends_ns(events: Table, open_ns: int | None) -> Array:
    """When each ended: its time where it has no length, or ``open_ns`` for an outage that had not ended."""
    times = events.raw("time_ns")
    without = times
    if open_ns is not None:
        is_outage = events.raw("kind") == CATEGORIES["event_kind"].index("outage")
        without = np.where(is_outage, np.maximum(times, open_ns), times)
    found: Array = np.where(known(events, "end_ns"), events.raw("end_ns"), without)
    return found


def _is_of(events: Table, connections: Table, view: View) -> Array:
    """Which events are of the connections of a view, of their sessions, or of tries between the same hosts."""
    rows = list(
        connections.rows(("connection", "session", "initiator_address", "target_address", "target_port", "is_iscsi"))
    )
    own = [row for row in rows if row["connection"] in set(view.connections)]
    places = {(row["initiator_address"], row["target_address"], row["target_port"]) for row in own}
    tries = [
        row["connection"]
        for row in rows
        if row["session"] is None and (row["initiator_address"], row["target_address"], row["target_port"]) in places
    ]
    sessions = [row["session"] for row in own if row["session"] is not None]
    has_connection = known(events, "connection")
    found: Array = has_connection & np.isin(events.raw("connection"), [*view.connections, *tries])
    found |= ~has_connection & known(events, "session") & np.isin(events.raw("session"), sessions)
    return found
