"""The connections of a session over time: how many it uses, and what it carries with each number of them.

```text
  connections      |  1  |    4    |      16      |    9    |
  counts             ====  ........  ............   .......    settled: commands from before the change are done
```

A connection is in use from its first command to the end of its last one. A stage is a time with one number in use.
Times of change, in which connections come or go one by one, are not stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from iscsitrace.measure.data_commands import is_whole_transfer
from iscsitrace.measure.intervals import union_lengths
from iscsitrace.tables.nulls import numbers_of
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.table import Array, Table
from iscsitrace.wording import amounts as wording

COMMANDS: Final = 4
"""Commands of each connection, in the mean, that a stage needs: fewer say nothing about a rate."""
MORE: Final = 0.03
"""Share by which a number of connections has to be faster for it to count: two runs of one number differ by less."""
NEAR: Final = 0.05
"""Share within which a rate counts as measured."""
MOSTLY: Final = 0.95
"""Share of the windows that have to be that near."""
WINDOWS: Final = 8
"""Windows that a measuring time needs to be judged by."""
_FINER: Final = 2**0.25


@dataclass(frozen=True)
class Stage:
    """A time with one number of connections in use."""

    connections: tuple[int, ...]
    """Their numbers."""
    first_ns: int
    last_ns: int
    settled_ns: int
    """When the last command from before the change was done: from here on the throughput counts."""
    ends_ns: Array
    """When each command since then was done, in order."""
    sizes: Array
    """Its bytes."""
    lasted_ns: Array
    """Its latency."""
    owners: Array
    """Its connection."""
    active_ns: int
    """The settled time with commands in flight."""

    @property
    def count(self) -> int:
        """Connections in use."""
        return len(self.connections)

    @cached_property
    def bytes(self) -> int:
        """Of the commands since it settled."""
        return int(self.sizes.sum())

    @property
    def bytes_per_s(self) -> float:
        """Throughput."""
        return self.bytes * 1e9 / max(self.active_ns, 1)


@dataclass(frozen=True)
class Count:
    """What a session carried with one number of connections, in all of its stages."""

    connections: int
    stages: tuple[Stage, ...]
    resent_bytes: int | None
    """Payload that was retransmitted in these stages; None where it was not read."""

    @cached_property
    def active_ns(self) -> int:
        """Time with commands in flight."""
        return sum(each.active_ns for each in self.stages)

    @cached_property
    def bytes(self) -> int:
        """Of all commands."""
        return sum(each.bytes for each in self.stages)

    @property
    def bytes_per_s(self) -> float:
        """Throughput."""
        return self.bytes * 1e9 / max(self.active_ns, 1)

    def latency_ns(self, percentile: float) -> int:
        """A percentile of the latencies, by nearest rank."""
        lasted = np.sort(np.concatenate([each.lasted_ns for each in self.stages]))
        return int(lasted[max(0, int(np.ceil(percentile / 100 * len(lasted))) - 1)])

    @property
    def resent_share(self) -> float | None:
        """Payload that was retransmitted / bytes of the commands."""
        return None if self.resent_bytes is None else self.resent_bytes / max(self.bytes, 1)

    @cached_property
    def measuring_ns(self) -> int | None:
        """The shortest time in which nearly every measurement is within NEAR of the throughput; None where even the
        longest that can be judged is too short.
        """
        longest = max(self.stages, key=lambda each: each.last_ns - each.settled_ns)
        return shortest_ns(longest.ends_ns, longest.sizes, longest.settled_ns, longest.last_ns)


@dataclass(frozen=True)
class ConnectionCounts:
    """A session whose number of connections changes."""

    session: int
    stages: tuple[Stage, ...]
    counts: tuple[Count, ...]
    """One for each number, ascending."""

    @cached_property
    def enough(self) -> int | None:
        """The least number that is as fast as any; None where it is the largest one, so that more may be faster."""
        most = max(each.bytes_per_s for each in self.counts)
        found = next(each.connections for each in self.counts if each.bytes_per_s >= (1 - MORE) * most)
        return found if found < self.counts[-1].connections else None

    @property
    def sentence(self) -> str:
        """What more connections bring."""
        number = self.counts[-1].connections if self.enough is None else self.enough
        (best,) = (each for each in self.counts if each.connections == number)
        rate = wording.rate(best.bytes_per_s)
        if self.enough is None:
            return f"The largest number tried is the fastest: {rate} with {number} connections"
        return f"{rate} with {wording.count(number, 'connection')}; more bring nothing"

    @property
    def measuring_ns(self) -> int | None:
        """The shortest time in which each of the numbers is measured; None where one cannot be told."""
        each_ns = [each.measuring_ns for each in self.counts]
        known_ns = [one for one in each_ns if one is not None]
        return max(known_ns) if len(known_ns) == len(each_ns) else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "session": self.session,
            "enough": self.enough,
            "measuring_ns": self.measuring_ns,
            "stages": [
                {
                    "connections": each.count,
                    "time_first_ns": each.first_ns,
                    "time_last_ns": each.last_ns,
                    "bytes_per_s": each.bytes_per_s,
                }
                for each in self.stages
            ],
            "counts": [
                {
                    "connections": each.connections,
                    "active_ns": each.active_ns,
                    "cycle_count": sum(len(stage.ends_ns) for stage in each.stages),
                    "bytes": each.bytes,
                    "bytes_per_s": each.bytes_per_s,
                    "latency_p50_ns": each.latency_ns(50),
                    "latency_p95_ns": each.latency_ns(95),
                    "resent_share": each.resent_share,
                    "measuring_ns": each.measuring_ns,
                }
                for each in self.counts
            ],
        }


def of_cycles(cycles: Table, resent: Table | None = None) -> list[ConnectionCounts]:
    """The sessions of these commands whose number of connections changes, in order; ``resent`` is the table
    retransmissions.
    """
    session, connection = numbers_of(cycles, "session"), cycles.raw("connection").astype(np.int64)
    is_own = cycles.each(is_whole_transfer) & (session >= 0)
    # of ten thousand sessions few have several connections
    pairs = np.unique(np.stack([session[is_own], connection[is_own]]), axis=1)
    numbers, members = np.unique(pairs[0], return_counts=True)
    is_own &= np.isin(session, numbers[members > 1])
    moved = cycles.select(is_own)
    each = sorted(grouped(session[is_own]).items())
    return [found for number, rows in each if (found := of_session(number, moved.select(rows), resent))]


def of_session(session: int, transfers: Table, resent: Table | None = None) -> ConnectionCounts | None:
    """The same of one session, of its complete reads and writes; None where the number does not change."""
    stages = stages_of(transfers)
    by_count: dict[int, list[Stage]] = {}
    for each in stages:
        by_count.setdefault(each.count, []).append(each)
    if len(by_count) < 2:
        return None
    counts = tuple(
        Count(count, tuple(own_stages), None if resent is None else sum(_resent(each, resent) for each in own_stages))
        for count, own_stages in sorted(by_count.items())
    )
    return ConnectionCounts(session, stages, counts)


def stages_of(transfers: Table) -> tuple[Stage, ...]:
    """The stages of the connections of these complete reads and writes, in order."""
    own = transfers.raw("connection").astype(np.int64)
    numbers, place = np.unique(own, return_inverse=True)
    if len(numbers) < 2:
        return ()
    # no command ends before it begins, however its status was dated
    starts = transfers.raw("command_first_ns")
    ends = np.maximum(transfers.raw("status_ns"), starts)
    first, last = np.full(len(numbers), np.iinfo(np.int64).max), np.full(len(numbers), np.iinfo(np.int64).min)
    np.minimum.at(first, place, starts)
    np.maximum.at(last, place, ends)
    sizes = transfers.raw("data_bytes").astype(np.int64)
    order = np.argsort(ends, kind="stable")
    return tuple(_stages(numbers, first, last, starts[order], ends[order], sizes[order], own[order]))


def _stages(
    numbers: Array, first: Array, last: Array, starts: Array, ends: Array, sizes: Array, owners: Array
) -> list[Stage]:
    """The times with one number of connections in use that are long enough, in order; commands by their end."""
    edges = np.unique(np.concatenate([first, last]))
    # begun, but for those that are over
    begun_count = np.searchsorted(np.sort(first), edges[:-1], side="right")
    counts = begun_count - np.searchsorted(np.sort(last), edges[1:], side="left")
    found: list[Stage] = []
    for since, until, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True):
        # commands that end in this time
        low, high = (int(each) for each in np.searchsorted(ends, (since, until), side="right"))
        is_old = starts[low:high] < since
        settled = int(ends[low:high][is_old].max(initial=since))
        low += int(np.searchsorted(ends[low:high], settled, side="right"))
        if not count or high - low < COMMANDS * count:
            continue
        in_use = (first <= since) & (last >= until)
        chosen = slice(low, high)
        begun = np.maximum(starts[chosen], settled)
        order = np.argsort(begun, kind="stable")
        active = union_lengths(begun[order], ends[chosen][order], np.zeros(1, dtype=np.int64))
        found.append(
            Stage(
                connections=tuple(numbers[in_use].tolist()),
                first_ns=since,
                last_ns=until,
                settled_ns=settled,
                ends_ns=ends[chosen],
                sizes=sizes[chosen],
                lasted_ns=ends[chosen] - starts[chosen],
                owners=owners[chosen],
                active_ns=int(active[0]),
            )
        )
    return found


def _resent(stage: Stage, resent: Table) -> int:
    times, own = resent.raw("time_ns"), np.isin(resent.raw("connection"), stage.connections)
    is_own = own & (times > stage.settled_ns) & (times <= stage.last_ns)
    return int(resent.raw("payload_bytes")[is_own].astype(np.int64).sum())


def shortest_ns(ends_ns: Array, sizes: Array, first_ns: int, last_ns: int) -> int | None:
    """The shortest measuring time from which on MOSTLY of the windows of a span have a rate within NEAR of the whole's;
    None where there is none among those that leave WINDOWS of them.
    """
    span_ns = last_ns - first_ns
    whole = float(sizes.sum()) / max(span_ns, 1)
    found: int | None = None
    window_ns = span_ns / WINDOWS
    least_ns = span_ns / max(len(ends_ns), 1)
    while window_ns >= least_ns and whole:
        count = int(span_ns // window_ns)
        edges = first_ns + np.arange(count + 1) * window_ns
        # a command ends in the window after whose beginning it ends
        places = np.searchsorted(edges, ends_ns, side="left") - 1
        is_within = (places >= 0) & (places < count)
        rates = np.bincount(places[is_within], sizes[is_within], count) / window_ns
        if (np.abs(rates / whole - 1) <= NEAR).mean() < MOSTLY:
            break
        found = round(window_ns)
        window_ns /= _FINER
    return found
