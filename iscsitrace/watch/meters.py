"""Counts since the start by initiator, target, portal and LUN: what a fleet of watches adds up. Never a run's numbers.

A path is an initiator, a target and a portal; several sessions between them are one. Its counts go when it has had no
open connection for a while. Beyond a number of series what is new counts under `OTHER`, so sums stay right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import throughput
from iscsitrace.measure.waits import Waits
from iscsitrace.tables.nulls import known
from iscsitrace.tables.passes import SECOND_NS
from iscsitrace.tables.table import Table
from iscsitrace.watch.figures import CAUSES, WatchLine
from iscsitrace.wording import scsi_names
from iscsitrace.wording.cells import printable

SERIES_MAX: Final = 20_000
"""Series of all paths together."""
STAYS_NS: Final = 120 * SECOND_NS
"""How long the counts of a path stay after its last open connection: Prometheus asks every minute at least."""
_MS_NS: Final = 1_000_000
LATENCY_BOUNDS_NS: Final = tuple(
    int(ms * _MS_NS) for ms in (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)
)
"""Upper bounds of the classes of latency, each included."""
NO_STATUS: Final = "none"
"""Aborted, or its connection ended."""
NOT_CAPTURED: Final = "not_captured"
"""In flight at the end, or packets of it are missing."""
_NO_STATUS_CODE, _NOT_CAPTURED_CODE = 256, 257
_OF_PATH: Final = 32
_OF_OPERATION: Final = len(LATENCY_BOUNDS_NS) + 3


class PathLabels(NamedTuple):
    """Its names are labels."""

    initiator: str
    """The name; the address where the login was not captured."""
    target: str
    """The name; empty where the login was not captured."""
    portal: str
    """Address and port."""


OTHER: Final = PathLabels("other", "other", "other")


@dataclass
class Latencies:
    """Commands with a status, by class of latency."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(LATENCY_BOUNDS_NS) + 1, dtype=np.int64))
    """The last class is above all bounds."""
    sum_ns: int = 0

    def add(self, latencies_ns: NDArray[Any]) -> None:
        """Adds these."""
        classes = np.searchsorted(LATENCY_BOUNDS_NS, latencies_ns, side="left")
        self.counts += np.bincount(classes, minlength=len(self.counts))
        self.sum_ns += int(latencies_ns.sum())


@dataclass
class Unit:
    """A logical unit on a path."""

    read_bytes: int = 0
    write_bytes: int = 0
    commands: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By operation and status."""
    latencies: dict[str, Latencies] = field(default_factory=dict)
    """By operation."""


@dataclass
class Gauges:
    """A path at the end of an interval."""

    session_count: int = 0
    connection_count: int = 0
    in_flight: int = 0
    oldest_ns: int = 0
    no_progress_ns: int = 0
    rtt_smoothed_ns: int | None = None
    rtt_min_ns: int | None = None
    owin_peak_bytes: int | None = None


@dataclass
class Counts:
    """A path since it was first seen."""

    units: dict[str, Unit] = field(default_factory=dict)
    """By LUN."""
    parts_ns: Counter[str] = field(default_factory=Counter)
    """The time breakdown of the busy time, added over connections; empty without TCP dynamics."""
    retransmissions: Counter[str] = field(default_factory=Counter)
    """By cause; empty without TCP dynamics."""
    outages: int = 0
    """Those that were there at the end of an interval."""
    now: Gauges = field(default_factory=Gauges)
    open_ns: int | None = None
    """When it last had an open connection, or was first seen."""

    @property
    def series(self) -> int:
        """How many series it is."""
        return _OF_PATH + sum(
            2 + len(unit.commands) + _OF_OPERATION * len(unit.latencies) for unit in self.units.values()
        )


class Meters:
    """The counts of all paths."""

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self.paths: dict[PathLabels, Counts] = {}
        self.of_session: dict[int, PathLabels] = {}
        """The path of each session shown, that of its first connection."""
        self._series = 0
        self._series_max = series_max
        self._out: set[int] = set()
        """Sessions in an outage."""
        self._last: dict[int, _Place] = {}
        """Where each connection of the last interval counted."""

    def add(
        self, sessions: Sequence[WatchLine], connections: Sequence[WatchLine], cycles: Table, waited: Waits, to_ns: int
    ) -> None:
        """Adds an interval that ended at ``to_ns``: its lines, and the commands that left."""
        self._series = sum(counts.series for counts in self.paths.values())
        last, self._last = self._last, self._places({line.number: line for line in sessions}, connections)
        of_connection = {number: place.path for number, place in self._last.items()}
        self.of_session = {line.number: of_connection[line.connections[0]] for line in sessions if line.connections[:1]}
        self._count_commands(of_connection, cycles, waited)
        # a line that stayed as it was adds nothing to a count, and its path keeps its gauges
        changed = {number for number, place in self._last.items() if not place.is_that_of(last.get(number))}
        paths = {of_connection[number] for number in changed}
        paths |= {last[number].path for number in last.keys() - of_connection.keys() | changed & last.keys()}
        for path in paths & self.paths.keys():
            self.paths[path].now = Gauges()
        for line in connections:
            path = of_connection[line.number]
            counts = self.paths[path]
            if line.is_open or counts.open_ns is None:
                counts.open_ns = to_ns
            if line.number in changed:
                _count(counts, line)
            if path in paths and not line.is_past:
                _show(counts.now, line)
        self._out &= {line.number for line in sessions}
        for line in sessions:
            if line.number in self.of_session:
                path = self.of_session[line.number]
                self._add_session(self.paths[path], line, is_shown=path in paths)
        # a clock that was set back makes no path old
        for path, counts in list(self.paths.items()):
            if counts.open_ns is not None and to_ns - counts.open_ns > STAYS_NS:
                del self.paths[path]

    def _places(self, sessions: dict[int, WatchLine], connections: Sequence[WatchLine]) -> dict[int, _Place]:
        """Where each connection counts."""
        found = {}
        for line in connections:
            session, last = sessions.get(line.names["session"]), self._last.get(line.number)
            is_same = last is not None and last.line is line and last.session is session
            named = last.named if last and is_same else _path(line, session.names if session else {})
            found[line.number] = _Place(line, session, named, self._kept(named))
        return found

    def _kept(self, path: PathLabels) -> PathLabels:
        """The path, or OTHER where there is no room for it."""
        if path not in self.paths:
            if self._series + _OF_PATH > self._series_max:
                path = OTHER
            if path not in self.paths:
                self.paths[path] = Counts()
                self._series += _OF_PATH
        return path

    def _count_commands(self, of_connection: dict[int, PathLabels], cycles: Table, waited: Waits) -> None:
        if not len(cycles):
            return
        read, written = throughput.payload(cycles)
        has_lun, has_status = known(cycles, "lun"), known(cycles, "status")
        missing = np.where(waited.is_open & waited.is_lost, _NO_STATUS_CODE, _NOT_CAPTURED_CODE)
        luns, of_lun = np.unique(np.where(has_lun, cycles.raw("lun"), 0), return_inverse=True)
        status = np.where(has_status, cycles.raw("status"), missing).astype(np.int64)
        key = cycles.raw("connection").astype(np.int64)
        for column, size in ((of_lun, len(luns)), (has_lun, 2), (cycles.raw("operation"), 256), (status, 512)):
            key = key * size + column
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        rows = np.split(np.argsort(place, kind="stable"), np.cumsum(np.bincount(place))[:-1])
        operations = cycles.select(first)["operation"]
        groups = zip(
            cycles.raw("connection")[first].tolist(),
            luns[of_lun[first]].tolist(),
            has_lun[first].tolist(),
            operations.tolist(),
            status[first].tolist(),
            rows,
            strict=True,
        )
        for connection, number, is_known, operation, code, own in groups:
            path = of_connection.get(connection) or self._kept(OTHER)
            name = _status(code)
            unit = self._unit(path, str(number) if is_known else "", operation, name)
            unit.read_bytes += int(read[own].sum())
            unit.write_bytes += int(written[own].sum())
            unit.commands[operation, name] += len(own)
            latencies = waited.select(own).latencies_ns
            if len(latencies):
                unit.latencies.setdefault(operation, Latencies()).add(latencies)

    def _unit(self, path: PathLabels, lun: str, operation: str, status: str) -> Unit:
        """The unit that counts such commands; that of OTHER where they would be series too many."""
        unit = self.paths[path].units.get(lun)
        if unit is None or (operation, status) not in unit.commands:
            cost = 2 * (unit is None) + 1 + _OF_OPERATION * (unit is None or operation not in unit.latencies)
            if self._series + cost > self._series_max and path != OTHER:
                path, lun = self._kept(OTHER), ""
            self._series += cost
        return self.paths[path].units.setdefault(lun, Unit())

    def _add_session(self, counts: Counts, line: WatchLine, *, is_shown: bool) -> None:
        if is_shown:
            counts.now.session_count += line.is_open
            counts.now.no_progress_ns = max(counts.now.no_progress_ns, line.hang.no_progress_ns)
        is_out = line.hang.is_shown
        if is_out and line.number not in self._out:
            counts.outages += 1
        # a session that was replaced shows no hang, and the same outage may go on
        goes_on = line.number in self._out and bool(line.budget and line.budget.whole_ns.get("outage"))
        (self._out.add if is_out or goes_on else self._out.discard)(line.number)

    def labelled(self) -> Iterator[tuple[PathLabels, Counts]]:
        """All paths, by name."""
        yield from sorted(self.paths.items())


@dataclass(eq=False)
class _Place:
    """Where a connection counts: with these lines of it and of its session."""

    line: WatchLine
    session: WatchLine | None
    named: PathLabels
    path: PathLabels
    """The same, or OTHER where there was no room for it."""

    def is_that_of(self, other: _Place | None) -> bool:
        """Whether nothing changed since the other."""
        return (
            other is not None and self.line is other.line and self.session is other.session and self.path == other.path
        )


def _count(counts: Counts, line: WatchLine) -> None:
    if line.budget:
        counts.parts_ns.update(line.budget.parts_ns)
    for transport in line.transports.values():
        counts.retransmissions.update({cause: transport.retransmissions[cause] for cause in CAUSES})


def _show(now: Gauges, line: WatchLine) -> None:
    now.connection_count += line.is_open
    now.in_flight += line.open_task_count
    now.oldest_ns = max(now.oldest_ns, line.hang.oldest_ns)
    for transport in line.transports.values():
        now.rtt_smoothed_ns = _most(now.rtt_smoothed_ns, transport.rtt_smoothed_ns)
        now.rtt_min_ns = min(
            (each for each in (now.rtt_min_ns, transport.rtt_min_ns) if each is not None), default=None
        )
    if line.owin_peak_bytes is not None:
        now.owin_peak_bytes = (now.owin_peak_bytes or 0) + line.owin_peak_bytes


def _path(line: WatchLine, own: Mapping[str, Any]) -> PathLabels:
    address = str(line.names["initiator"]).rpartition(":")[0].strip("[]")
    return PathLabels(
        printable(own.get("initiator_name") or address), printable(own.get("target_name") or ""), line.names["target"]
    )


def _status(code: int) -> str:
    names = {_NO_STATUS_CODE: NO_STATUS, _NOT_CAPTURED_CODE: NOT_CAPTURED}
    return names.get(code) or scsi_names.name(scsi_names.statuses(), code).lower().replace(" ", "_")


def _most(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
