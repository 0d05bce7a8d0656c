"""The figures of one interval for all traffic, each session and each connection; and the commands in flight at its end.

Pure functions of tables. Of thousands of open connections most are idle, and an interval must cost what happened in it:
the lines of quiet connections stay as they were. A connection is quiet if its time breakdown is that of the interval
before, and in both it had no packets, no commands in flight or gone, and was neither opened nor closed.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import throughput
from iscsitrace.measure.budget import Budget, Budgets
from iscsitrace.measure.busy import BUSY
from iscsitrace.measure.distribution import NO_VALUES, named, percentiles, rank
from iscsitrace.measure.ranks import PERCENTILES
from iscsitrace.measure.throughput import NANOSECONDS
from iscsitrace.measure.waits import UNKNOWN, Waits, slowest
from iscsitrace.relate.outages import OUTAGE_MIN_NS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import grouped, places_of, sums_of
from iscsitrace.tables.passes import PassView
from iscsitrace.tables.table import Array, Table
from iscsitrace.wording import amounts as wording


@dataclass(frozen=True)
class Hang:
    """What waits in a session or connection."""

    oldest_ns: int = 0
    """Age of the oldest command in flight; 0 without one."""
    no_progress_ns: int = 0
    """How long reads, writes or flushes have been in flight without progress (docs/method.md, section 4)."""
    old_ns: tuple[int, ...] = ()
    """Age of each command that has been in flight for as long as an outage takes."""

    @property
    def is_shown(self) -> bool:
        """Whether the time without progress is an outage by now."""
        return self.no_progress_ns >= OUTAGE_MIN_NS

    @property
    def is_old(self) -> bool:
        """Whether a command has been in flight for as long as an outage takes."""
        return self.oldest_ns >= OUTAGE_MIN_NS


NO_HANG: Final = Hang()


def hang_of(now: Iterable[Mapping[str, Any]], at_ns: int) -> Hang:
    """The hang of a connection, or of the connections of a session, from their rows of ``PassView.now``."""
    rows = list(now)
    if not any(len(row["begun_ns"]) for row in rows) and all(row["oldest_io_ns"] is None for row in rows):
        return NO_HANG
    ages_ns = at_ns - np.concatenate([np.zeros(0, dtype=np.int64), *(row["begun_ns"] for row in rows)])
    waits_ns = min((row["oldest_io_ns"] for row in rows if row["oldest_io_ns"] is not None), default=at_ns)
    # later progress was before the clock was set back
    known = [row["progress_ns"] for row in rows if row["progress_ns"] is not None]
    progress_ns = max((time_ns for time_ns in known if time_ns < at_ns + OUTAGE_MIN_NS), default=waits_ns)
    old_ns = tuple(ages_ns[ages_ns >= OUTAGE_MIN_NS].tolist())
    return Hang(int(ages_ns.max(initial=0)), max(at_ns - max(waits_ns, progress_ns), 0), old_ns)


def hang_sentence(number: int, hang: Hang, open_task_count: int) -> str:
    """``session 0: no progress for 4.3 s, 3 commands in flight, the oldest for 4.4 s``."""
    lead = f"session {number}: no progress for {wording.time(hang.no_progress_ns)}, "
    if not open_task_count:
        return f"{lead}its connection was closed"
    return f"{lead}{wording.count(open_task_count, 'command')} in flight, the oldest for {wording.time(hang.oldest_ns)}"


SIZES_SHOWN = 3
SHOWN_MAX: Final = 256
"""Sessions of an interval in text and JSON, and connections, and sessions with findings."""
CAUSES = ("fast_retransmit", "timeout", "tail_probe", "unknown_retransmit")
"""Causes of retransmissions: columns of ``senders``, without ``_count``."""


@dataclass(frozen=True)
class IntervalLoad:
    """The commands of an interval; a command counts in the interval in which its last packet was read."""

    task_count: int
    read_bytes: int
    write_bytes: int
    length_ns: int
    latency_ns: dict[str, int | None]
    """``n p50 p95 p99 max`` from command to status; ``open_count`` of these have none (waits.py)."""
    queue_depth_mean: float | None
    """At issue."""
    queue_depth_max: int | None
    block_sizes: list[dict[str, int]]
    """The most frequent I/O sizes: ``bytes task_count``."""

    @property
    def iops(self) -> float:
        """Commands per second."""
        return self._per_s(self.task_count)

    @property
    def read_bytes_per_s(self) -> float:
        """Payload to the initiator."""
        return self._per_s(self.read_bytes)

    @property
    def write_bytes_per_s(self) -> float:
        """Payload to the target."""
        return self._per_s(self.write_bytes)

    def _per_s(self, amount: int) -> float:
        return amount * NANOSECONDS / self.length_ns if self.length_ns > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "task_count": self.task_count,
            "read_bytes": self.read_bytes,
            "write_bytes": self.write_bytes,
            "iops": self.iops,
            "read_bytes_per_s": self.read_bytes_per_s,
            "write_bytes_per_s": self.write_bytes_per_s,
            "latency_ns": self.latency_ns,
            "queue_depth": {"mean": self.queue_depth_mean, "max": self.queue_depth_max},
            "block_sizes": self.block_sizes,
        }


@dataclass(frozen=True)
class Transport:
    """The senders of one connection."""

    owin_peak_bytes: dict[str, int]
    """Most bytes in flight in the interval, ``to_target`` and ``to_initiator``."""
    owin_bytes: dict[str, int]
    rwnd_bytes: dict[str, int | None]
    rtt_smoothed_ns: int | None
    """Both sides of the tap."""
    rtt_min_ns: int | None
    retransmissions: dict[str, int]
    """Retransmissions in the interval, by cause; they include the ``spurious`` ones."""
    retransmitted_total: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class WatchLine:
    """One session or connection in one interval."""

    kind: str
    number: int
    load: IntervalLoad
    budget: Budget | None
    open_task_count: int
    total_latency_ns: dict[str, int | None] = field(default_factory=dict)
    """Since the start."""
    names: dict[str, Any] = field(default_factory=dict)
    """For a session ``initiator_name target_name``, for a connection ``session initiator target``."""
    connections: tuple[int, ...] = ()
    transports: dict[int, Transport] = field(default_factory=dict)
    is_open: bool = True
    hang: Hang = NO_HANG
    is_past: bool = False
    """Closed before the interval, and without packets or commands in it."""

    @property
    def retransmitted(self) -> int:
        """Retransmissions in the interval."""
        return sum(sum(each.retransmissions[cause] for cause in CAUSES) for each in self.transports.values())

    @property
    def rtt_smoothed_ns(self) -> int | None:
        """The longest RTT of its connections."""
        known = [each.rtt_smoothed_ns for each in self.transports.values() if each.rtt_smoothed_ns is not None]
        return max(known, default=None)

    @property
    def owin_peak_bytes(self) -> int | None:
        """Sum over its connections, of the direction with more."""
        if not self.transports:
            return None
        by_direction = [
            sum(each.owin_peak_bytes[direction] for each in self.transports.values())
            for direction in ("to_target", "to_initiator")
        ]
        return max(by_direction)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        budget = self.budget
        document = {
            self.kind: self.number,
            **self.names,
            "is_open": self.is_open,
            **self.load.as_dict(),
            "latency_total_ns": self.total_latency_ns,
            "open_task_count": self.open_task_count,
            "oldest_command_ns": self.hang.oldest_ns,
            "no_progress_ns": self.hang.no_progress_ns,
            "idle_fraction": budget.idle_fraction if budget else None,
            "limiter": budget.limiter if budget else None,
            "time_breakdown": budget.whole_ns if budget else None,
            # its old name
            "budget": budget.whole_ns if budget else None,
            "jobs_ns": budget.jobs_ns if budget else None,
            "busy_budget": budget.parts_ns if budget else None,
            "shares": budget.shares if budget else None,
        }
        if self.kind == "session":
            return document | {"connections": list(self.connections)}
        transport = self.transports.get(self.number)
        return document | {"transport": transport.as_dict() if transport else None}


NOTHING: Final = np.zeros(0, dtype=np.int64)
NO_LOAD: Final = IntervalLoad(0, 0, 0, 0, NO_VALUES, None, None, [])


def loads_of(
    cycles: Table,
    waited: Waits,
    groups: NDArray[Any],
    length_ns: int,
    in_flight: Mapping[int, NDArray[Any]] | None = None,
) -> dict[int, IntervalLoad]:
    """The loads of an interval of this length, by group; ``in_flight`` are times for which commands have hung.

    A group has a load if commands of it ended, or one hangs.
    """
    numbers, place = np.unique(groups, return_inverse=True)
    count = len(numbers)
    read, written = throughput.payload(cycles)
    depths = cycles.raw("queue_depth")
    most = np.zeros(count, dtype=depths.dtype)
    np.maximum.at(most, place, depths)

    def sums(values: NDArray[Any]) -> list[int]:
        return list(sums_of(place, values, count).tolist())

    counts = sums(np.ones(len(cycles), dtype=np.int64))
    columns = zip(numbers.tolist(), counts, sums(read), sums(written), sums(depths), most.tolist(), strict=True)
    latencies, sizes = _latencies(waited, place, count), _sizes(cycles, place, count)
    found = {
        number: IntervalLoad(
            task_count=task_count,
            read_bytes=read_bytes,
            write_bytes=write_bytes,
            length_ns=length_ns,
            latency_ns=latency,
            queue_depth_mean=depth_sum / task_count,
            queue_depth_max=depth_max,
            block_sizes=size,
        )
        for (number, task_count, read_bytes, write_bytes, depth_sum, depth_max), latency, size in zip(
            columns, latencies, sizes, strict=True
        )
    }
    hung = in_flight or {}
    if not hung and not waited.is_lost.any():
        return found
    rows, none = grouped(groups), np.zeros(0, dtype=np.intp)
    for number in {*hung, *groups[waited.is_lost].tolist()}:
        own = waited.select(rows.get(number, none))
        tail = slowest(own.latencies_ns, own.lost_ns, hung.get(number, NOTHING))
        load = found.get(number, replace(NO_LOAD, length_ns=length_ns))
        found[number] = replace(load, latency_ns=percentiles(own.latencies_ns, tail))
    return found


def _latencies(waited: Waits, place: NDArray[Any], count: int) -> list[dict[str, int | None]]:
    """Percentiles of each group with a status, by nearest rank."""
    is_known = ~waited.is_open & (waited.least_ns != UNKNOWN)
    values, of = waited.least_ns[is_known], place[is_known]
    values = values[np.lexsort((values, of))]
    ends = np.cumsum(np.bincount(of, minlength=count)).tolist()
    found = []
    for start, end in itertools.pairwise([0, *ends]):
        amount = end - start
        ranked = [int(values[start + rank(amount, share)]) for share in PERCENTILES.values()] if amount else []
        found.append(named(amount, ranked) if amount else dict(NO_VALUES))
    return found


def _sizes(cycles: Table, place: NDArray[Any], count: int) -> list[list[dict[str, int]]]:
    """The most frequent I/O sizes of each group."""
    size = cycles.raw("bytes").astype(np.int64)
    is_known = (size > 0) & ~np.ma.getmaskarray(cycles["bytes"])
    pairs, amounts = np.unique(np.stack([place[is_known], size[is_known]]), axis=1, return_counts=True)
    found: list[list[dict[str, int]]] = [[] for _ in range(count)]
    for at in np.lexsort((pairs[1], -amounts)).tolist():
        of_group = found[pairs[0, at]]
        if len(of_group) < SIZES_SHOWN:
            of_group.append({"bytes": int(pairs[1, at]), "task_count": int(amounts[at])})
    return found


def busiest(lines: Sequence[WatchLine]) -> list[WatchLine]:
    """At most SHOWN_MAX of them, in their order: those that hang, those with the most commands, the newest."""
    if len(lines) <= SHOWN_MAX:
        return list(lines)
    return sorted(heapq.nlargest(SHOWN_MAX, lines, key=_importance), key=lambda line: line.number)


def _importance(line: WatchLine) -> tuple[int, int, int, int]:
    hang_ns = line.hang.no_progress_ns if line.hang.is_shown else 0
    return hang_ns, line.load.task_count, line.open_task_count, line.number


def load_of(cycles: Table, waited: Waits, length_ns: int, in_flight: NDArray[Any] = NOTHING) -> IntervalLoad:
    """The load of all commands of an interval."""
    hung = {0: in_flight} if len(in_flight) else {}
    found = loads_of(cycles, waited, np.zeros(len(cycles), dtype=np.int64), length_ns, hung)
    return found.get(0, replace(NO_LOAD, length_ns=length_ns))


def transports_of(
    now: Iterable[dict[str, Any]],
    senders: Table,
    before: dict[tuple[int, bool], dict[str, int]],
    quiet: Set[int] = frozenset(),
) -> dict[int, Transport]:
    """The senders of every connection but those that are ``quiet``; ``before`` holds their counts at the end of the
    last interval and is updated.
    """
    if quiet:
        senders = senders.select(~np.isin(senders.raw("connection"), [*quiet]))
    names = [*(f"{cause}_count" for cause in CAUSES), "spurious_count"]
    rows = {
        (row["connection"], row["to_target"]): row
        for row in senders.rows(["connection", "to_target", "rtt_min_ns", *names])
    }
    found = {}
    for connection in now:
        number = connection["connection"]
        if "to_target" not in connection or number in quiet:
            continue
        own = [rows.get((number, to_target)) for to_target in (True, False)]
        since = dict.fromkeys(names, 0)
        total = 0
        for to_target, row in zip((True, False), own, strict=True):
            if row is None:
                continue
            last = before.get((number, to_target), {})
            for name in names:
                since[name] += max(row[name] - last.get(name, 0), 0)
            total += sum(row[name] for name in names[:-1])
            before[number, to_target] = {name: row[name] for name in names}
        sides = [connection["to_target"], connection["to_initiator"]]
        found[number] = Transport(
            owin_peak_bytes=dict(zip(_DIRECTIONS, (side["owin_peak_bytes"] for side in sides), strict=True)),
            owin_bytes=dict(zip(_DIRECTIONS, (side["owin_bytes"] for side in sides), strict=True)),
            rwnd_bytes=dict(zip(_DIRECTIONS, (side["rwnd_bytes"] for side in sides), strict=True)),
            rtt_smoothed_ns=_sum(side["rtt_smoothed_ns"] for side in sides),
            rtt_min_ns=_sum(row["rtt_min_ns"] if row else None for row in own),
            retransmissions={name.removesuffix("_count"): amount for name, amount in since.items()},
            retransmitted_total=total,
        )
    for key in before.keys() - rows.keys():
        if key[0] not in quiet:
            del before[key]
    return found


_DIRECTIONS = ("to_target", "to_initiator")


def _sum(times: Iterable[int | None]) -> int | None:
    known = list(times)
    return None if None in known else sum(time for time in known if time is not None)


@dataclass
class _Interval:
    """What the connections of an interval show, in order of their numbers."""

    kind: Hashable
    numbers: Array
    figures: Array
    """Numbers of packets and the like; a row for each."""
    sums_ns: Array
    """Their time breakdowns, likewise."""
    is_active: Array
    """Commands are in flight or gone, or it was closed."""
    still: frozenset[int] = frozenset()
    """Those to which nothing happened."""


class Quiet:
    """The quiet connections, interval by interval."""

    def __init__(self) -> None:
        self._last: _Interval | None = None

    def update(self, view: PassView, budgets: Budgets, kind: Hashable) -> frozenset[int]:
        """Those of this interval; ``budgets`` are of its connections. None are where its ``kind`` is a new one."""
        last, now = self._last, _interval(view, budgets, kind)
        self._last = now
        if last is None or last.kind != now.kind:
            return frozenset()
        place = places_of(now.numbers, last.numbers)
        is_still = (place >= 0) & ~now.is_active
        is_still &= (now.figures == last.figures[place]).all(axis=1) if len(last.numbers) else False
        now.still = frozenset(now.numbers[is_still].tolist())
        place, numbers = place[is_still], now.numbers[is_still]
        is_same = (now.sums_ns[is_still] == last.sums_ns[place]).all(axis=(1, 2))
        return last.still.intersection(numbers[is_same].tolist())


def is_closed(connections: Table) -> Array:
    """Whether both sides closed each connection, or one of them reset it."""
    fins, resets = (
        [known(connections, f"{flag}_to_{side}_ns") for side in ("target", "initiator")] for flag in ("fin", "rst")
    )
    found: Array = np.logical_and.reduce(fins) | np.logical_or.reduce(resets)
    return found


def _interval(view: PassView, budgets: Budgets, kind: Hashable) -> _Interval:
    connections = view.trace.connections
    order = np.argsort(connections.raw("connection"), kind="stable")
    numbers = connections.raw("connection")[order].astype(np.int64)
    is_open = np.isin(numbers, [row["connection"] for row in view.now])
    place = places_of(numbers, budgets.numbers)
    has_budget = place >= 0
    sums_ns = np.zeros((len(numbers), *budgets.sums_ns.shape[1:]), dtype=np.int64)
    sums_ns[has_budget] = budgets.sums_ns[place[has_budget]]
    packets = [connections.raw(name)[order] for name in ("packets_to_target", "packets_to_initiator", "session")]
    columns = [*packets, is_open, has_budget]
    figures = np.column_stack([column.astype(np.int64) for column in columns])
    in_flight = [row["connection"] for row in view.now if row["open_task_count"] or len(row["begun_ns"])]
    is_active = np.isin(
        numbers, np.concatenate([np.array(in_flight, dtype=np.int64), view.trace.cycles.raw("connection")])
    )
    is_active |= is_closed(connections)[order] | sums_ns[:, BUSY].any(axis=1)
    return _Interval(kind, numbers, figures, sums_ns, is_active)
