"""A capture: its tables, the facts that several families of events share, and the events of the capture itself.

Events of one kind are columns. A text is made for each distinct combination, not for each event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from iscsitrace.relate.portals import Portals
from iscsitrace.relate.stories import LoginRequest, replacements
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Array, Source, Table, null_value
from iscsitrace.wording import amounts


@dataclass(frozen=True)
class Batch:
    """Events of one kind. A column is an array, or one value for all; None is null."""

    kind: str
    time_ns: Array
    text: Array | str
    frame: Array | None = None
    end_ns: Array | int | None = None
    session: Array | None = None
    connection: Array | None = None
    lun: Array | None = None
    cycle: Array | None = None
    severity: Array | str | None = None
    """Words; None for the usual one of the kind."""

    def __len__(self) -> int:
        return len(self.time_ns)


def distinct(*columns: Array) -> tuple[list[tuple[Any, ...]], Array]:
    """The distinct combinations of values of these columns, and for each row the number of its own."""
    number_of: dict[tuple[Any, ...], int] = {}
    rows = zip(*(column.tolist() for column in columns), strict=True)
    codes = np.array([number_of.setdefault(row, len(number_of)) for row in rows], dtype=np.intp)
    return list(number_of), codes


def texts(word: Callable[..., str], *columns: Array) -> Array:
    """The text of each row; ``word`` is called once for each combination of values of the columns."""
    combinations, codes = distinct(*columns)
    words = np.empty(len(combinations), dtype=object)
    words[:] = [word(*values) for values in combinations]
    return words[codes]


LONG_NS: Final = 1_000_000_000
"""No delay of healthy traffic lasts this long: TCP's initial retransmission timeout (RFC 6298 section 2), and the
shortest outage."""
NULL_UINT32: Final = null_value("uint32")


class EventSource:
    """The tables of a trace, and for each connection what its events need."""

    def __init__(self, table: Source) -> None:
        """``table`` is the method ``table`` of a trace read with the tables NEEDED."""
        self.table = table

    @cached_property
    def connections(self) -> Table:
        """The table ``connections``."""
        return self.table("connections")

    @cached_property
    def end_ns(self) -> int:
        """The last TCP packet of the capture; 0 without one."""
        return int(self.connections.raw("time_last_ns").max(initial=0))

    @cached_property
    def is_ours(self) -> Array:
        """Which connections carry iSCSI, or are an attempt to reach a portal."""
        rows = self.connections
        if not len(rows):
            return np.zeros(0, dtype=bool)
        portals = Portals.of(self.table)
        places, of_row = distinct(rows.raw("target_address"), rows.raw("target_port"))
        is_place = [portals.has(address, port) for address, port in places]
        return np.asarray(rows.raw("is_iscsi") | (rows.raw("has_syn") & np.array(is_place)[of_row]))

    def of_connection(self, name: str, numbers: Array) -> Array:
        """A column of ``connections``, as stored, for the connections of these numbers."""
        return self.connections.raw(name)[self.row_of(numbers)]

    def of_session(self, name: str, numbers: Array) -> Array:
        """A text column of ``sessions`` for the sessions of these numbers; "" where there is none."""
        sessions = self.table("sessions")
        own = sessions.raw("session")
        shown = np.full(len(numbers), "", dtype=object)
        has = np.isin(numbers, own)
        shown[has] = sessions.raw(name)[np.searchsorted(own, numbers[has])]
        return shown

    def row_of(self, numbers: Array) -> Array:
        """The rows of these connections."""
        own = self.connections.raw("connection")
        order = np.argsort(own, kind="stable")
        return order[np.searchsorted(own[order], numbers)]

    def session_of(self, connections: Array) -> Array:
        """The session of each connection, or null."""
        return self.of_connection("session", connections)

    @cached_property
    def is_open(self) -> Array:
        """Which rows of ``cycles`` never had a status, not even one that is missing from the capture.

        A status whose PDU was not complete counts as none if the network lost the rest: where the capture has all bytes
        that the initiator acknowledged.
        """
        cycles, rows = self.table("cycles"), self.connections
        lacking = [rows.raw(f"{name}_to_initiator") for name in ("gap_bytes", "cut_bytes", "missing_pdu_count")]
        is_whole = np.logical_and.reduce([each == 0 for each in lacking])
        has_gap = cycles.raw("has_capture_gap")
        is_open = ~known(cycles, "status_ns") & ~known(cycles, "status") & ~has_gap
        unsure = np.flatnonzero(~known(cycles, "status_ns") & has_gap)
        is_open[unsure] = is_whole[self.row_of(cycles.raw("connection")[unsure])]
        return is_open

    @cached_property
    def replacements(self) -> dict[int, LoginRequest]:
        """The Login Request by which another session took the place of each session."""
        return replacements(self.table)

    def time_of_frames(self, frames: Array) -> Array:
        """The time of each frame; where it is not known, that of the last frame before it of which it is."""
        cycles, connections = self.table("cycles"), self.connections
        best_frame = np.zeros(len(frames), dtype=np.uint64)
        best_ns = np.full(len(frames), connections.raw("time_first_ns").min(initial=self.end_ns), dtype=np.int64)
        for own_frames, own_ns in (
            (cycles.raw("command_frame"), cycles.raw("command_first_ns")),
            (connections.raw("frame_first"), connections.raw("time_first_ns")),
            (connections.raw("frame_last"), connections.raw("time_last_ns")),
        ):
            order = np.argsort(own_frames, kind="stable")
            places = np.searchsorted(own_frames[order], frames, side="right") - 1
            for row in np.flatnonzero(places >= 0).tolist():
                at = order[places[row]]
                if own_frames[at] >= best_frame[row]:
                    best_frame[row], best_ns[row] = own_frames[at], own_ns[at]
        return best_ns


_DIGESTS: Final = {"header_digest_error": "header", "data_digest_error": "data"}
_ELSEWHERE: Final = ("cycle_incomplete", "capture_gap_bytes", "unexplained_bytes")
"""Counters of what has events of its own, and of bytes that other counters count as holes."""


def events(capture: EventSource) -> Iterator[Batch]:
    """What the capture misses, digest errors, and the commands in flight at its end."""
    counters = capture.table("counters")
    rows = [row for row in counters.rows() if row["count"] and row["name"] not in _ELSEWHERE]
    broken = [row for row in rows if row["name"] in _DIGESTS]
    missing = [row for row in rows if row["severity"] in ("data_loss", "error")]
    yield _counted(
        capture,
        "digest_error",
        broken,
        [
            amounts.count(row["count"], f"{_DIGESTS[row['name']]} digest error") + ", the first one here"
            for row in broken
        ],
    )
    yield _counted(
        capture,
        "capture_incomplete",
        missing,
        [f"{row['count']} {row['meaning']}" + (", the first one here" if row["count"] > 1 else "") for row in missing],
    )
    yield _end(capture)


def _counted(capture: EventSource, kind: str, rows: list[dict[str, Any]], texts: list[str]) -> Batch:
    null_frame = null_value("uint64")
    frames = np.array(
        [null_frame if row["first_frame"] is None else row["first_frame"] for row in rows], dtype=np.uint64
    )
    connections = np.array(
        [NULL_UINT32 if row["connection"] is None else row["connection"] for row in rows], dtype=np.uint32
    )
    sessions = np.full(len(rows), NULL_UINT32, dtype=np.uint32)
    has = connections != NULL_UINT32
    sessions[has] = capture.session_of(connections[has])
    times = np.full(len(rows), capture.end_ns, dtype=np.int64)
    times[frames != null_frame] = capture.time_of_frames(frames[frames != null_frame])
    severities = np.array([row["severity"] for row in rows], dtype=object) if kind == "capture_incomplete" else None
    return Batch(
        kind,
        times,
        np.array(texts, dtype=object),
        frame=frames,
        session=sessions,
        connection=connections,
        severity=severities,
    )


def _end(capture: EventSource) -> Batch:
    """Sessions with commands in flight at the end, of connections that nobody closed."""
    cycles = capture.table("cycles")
    is_fresh = capture.is_open & ~cycles.raw("is_aborted") & known(cycles, "session")
    is_fresh &= capture.end_ns - cycles.raw("command_first_ns") < LONG_NS
    rows = np.flatnonzero(is_fresh)
    rows = rows[~is_closed(capture)[capture.row_of(cycles.raw("connection")[rows])]]
    sessions, counts = np.unique(cycles.raw("session")[rows], return_counts=True)
    texts = [f"the capture ends with {amounts.count(count, 'command')} in flight" for count in counts.tolist()]
    return Batch(
        "capture_end",
        np.full(len(sessions), capture.end_ns, dtype=np.int64),
        np.array(texts, dtype=object),
        session=sessions.astype(np.uint32),
    )


ENDS: Final = ("fin_to_target_ns", "fin_to_initiator_ns", "rst_to_target_ns", "rst_to_initiator_ns")


def is_closed(capture: EventSource) -> Array:
    """Which connections had a FIN or a RST."""
    rows = capture.connections
    return np.asarray(np.logical_or.reduce([known(rows, name) for name in ENDS]))
