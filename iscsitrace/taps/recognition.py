"""Whether two captures show the same traffic at two taps, the same packets twice, or different traffic.

The same commands are no proof: a host that logs in again, or a run that is repeated, sends the same commands. What
shows the same traffic is time: one clock, set at most a few times, puts every command behind its copy at the tap that
it passed first, in both directions. Different runs differ by milliseconds from command to command, and no clock follows
that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import Partition
from iscsitrace.tables.table import Array, Source, Table
from iscsitrace.taps.clock import Clock, fit, synchronised
from iscsitrace.taps.commands import ConnectionPair, Matched, complete, match, samples_of
from iscsitrace.taps.envelope import Samples, drifts_together

RESOLUTION_NS: Final = 1_000
"""Stamps of one packet differ by less, in microseconds or nanoseconds; no two taps are as regular."""

LEAST_COMMANDS: Final = 8
LEAST_WITHOUT_LOGIN: Final = 64
"""Fewer commands in common may agree by chance where the addresses differ.

Without the login, most logins' first ones do.
"""

_LEAST_LATENCIES: Final = 4
"""And so may those that were all in flight at once: they span at least this number of latencies."""

MOST_STEPS: Final = 8
_COMMANDS_PER_STEP: Final = 256
"""A clock that is set more often can follow any other run; with equal addresses it may be set once more."""

_LEAST_SHARE: Final = 0.9
"""Share of the commands of one capture that the other has as well, while both captured the connection."""


class Relation(Enum):
    """What two captures have to do with each other."""

    TAPS = "taps of the same traffic"
    COPY = "the same packets"
    OTHER = "different traffic"


@dataclass(frozen=True)
class Recognition:
    """Two captures compared."""

    relation: Relation
    matched: Matched
    """The commands that both have, with the capture nearer to the initiator as A; none of different traffic."""
    complete: Matched
    """Of these, for taps, the commands that both have from the command to its answer."""
    samples: Samples | None = None
    """What they show of the clocks; of taps only."""
    clock: Clock | None = None
    """The clock of the capture nearer to the target less that of the other; of taps only."""
    is_first_nearer: bool = True
    """Whether the first capture is nearer to the initiator."""

    @property
    def is_translated(self) -> bool:
        """Whether addresses differ between the taps: NAT, or a proxy."""
        return any(not pair.has_same_addresses for pair in self.matched.connections)


def recognise(first: Source, second: Source, *, are_synchronised: bool = False) -> Recognition:
    """The relation of two captures, and, if they are taps, the connections and commands they share and their clocks."""
    matched = match(first, second)
    cycles = first("cycles"), second("cycles")
    if not len(matched):
        return Recognition(Relation.OTHER, matched, matched)
    offset_ns = _constant_offset(matched, *cycles)
    if offset_ns is not None and _shared(matched, cycles, offset_ns, 0) >= _LEAST_SHARE:
        return Recognition(Relation.COPY, matched, matched)
    for pairs in _trusted(matched, cycles[0]):
        kept = _only(matched, pairs, cycles[0])
        whole = complete(kept, *cycles)
        # of the others a status may be that of another command
        is_first_nearer = _is_nearer(whole if len(whole) else kept, *cycles)
        near_to_far, ordered = kept, cycles
        if not is_first_nearer:
            near_to_far, whole, ordered = kept.turned(), whole.turned(), cycles[::-1]
        samples = samples_of(whole, *ordered)
        clock = fit(samples, _steps_allowed(near_to_far))
        if clock is None or drifts_together(samples.less(clock.offset_at(samples.time_ns))):
            continue
        jumps_ns = sum(abs(size) for _, size in clock.steps_ns)
        if _shared(near_to_far, ordered, clock.offset_ns, jumps_ns) < _LEAST_SHARE:
            continue
        clock = synchronised() if are_synchronised else clock
        return Recognition(Relation.TAPS, near_to_far, whole, samples, clock, is_first_nearer)
    none = matched.where(np.zeros(len(matched), dtype=bool))
    return Recognition(Relation.OTHER, none, none)


def _steps_allowed(matched: Matched) -> int:
    """How often a clock may be set so that the commands still show it."""
    is_same = all(pair.has_same_addresses for pair in matched.connections)
    return min(MOST_STEPS, int(is_same) + len(matched) // _COMMANDS_PER_STEP)


def _shared(matched: Matched, cycles: tuple[Table, Table], offset_ns: int, jumps_ns: int) -> float:
    """Share of the commands that both have, while both captured the connection: the larger of the two captures' shares.

    A capture may lack packets or bytes of packets, so that one of the two shares is smaller.
    """
    starts = [table.raw("command_first_ns").astype(np.int64) for table in cycles]
    starts[1] = starts[1] - offset_ns
    sides = [np.array([getattr(pair, side) for pair in matched.connections]) for side in ("at_a", "at_b")]
    place = [_places(table.raw("connection"), numbers) for table, numbers in zip(cycles, sides, strict=True)]
    bounds = np.iinfo(np.int64)
    from_ns = np.full(len(matched.connections), bounds.min)
    to_ns = np.full(len(matched.connections), bounds.max)
    for start, where in zip(starts, place, strict=True):
        first, last = np.full(len(from_ns), bounds.max), np.full(len(to_ns), bounds.min)
        np.minimum.at(first, where[where >= 0], start[where >= 0])
        np.maximum.at(last, where[where >= 0], start[where >= 0])
        from_ns, to_ns = np.maximum(from_ns, first), np.minimum(to_ns, last)
    counts = [
        int(((where >= 0) & (start >= from_ns[where] - jumps_ns) & (start <= to_ns[where] + jumps_ns)).sum())
        for start, where in zip(starts, place, strict=True)
    ]
    return len(matched) / max(min(counts), 1)


def _places(connections: Array, numbers: Array) -> Array:
    """Place of each connection in ``numbers``; -1 for none."""
    place = np.full(max(int(connections.max(initial=0)), int(numbers.max(initial=0))) + 1, -1, dtype=np.int64)
    place[numbers] = np.arange(len(numbers))
    return place[connections]


def _constant_offset(matched: Matched, cycles_a: Table, cycles_b: Table) -> int | None:
    """By how much every time of every command differs; None where they differ unequally.

    Between two taps the times of either direction may differ by the same, but not those of both.
    """
    apart = []
    for name in ("command_first_ns", "data_last_ns", "status_ns"):
        both = known(cycles_a, name)[matched.rows_a] & known(cycles_b, name)[matched.rows_b]
        rows_a, rows_b = matched.rows_a[both], matched.rows_b[both]
        apart.append(cycles_b.raw(name)[rows_b].astype(np.int64) - cycles_a.raw(name)[rows_a].astype(np.int64))
    # a capture that lacks packets has some times of retransmissions, or of other packets
    least, middle, most = np.quantile(np.concatenate(apart), [0.1, 0.5, 0.9], method="nearest").tolist()
    # where a snaplen cuts statuses, few are left
    typical = [middle, *(int(np.median(each)) for each in apart if len(each))]
    is_constant = most - least <= RESOLUTION_NS and max(typical) - min(typical) <= RESOLUTION_NS
    return int(middle) if is_constant else None


def _trusted(matched: Matched, cycles_a: Table) -> list[tuple[ConnectionPair, ...]]:
    """Sets of pairs of connections that may be the same traffic.

    All with equal addresses, else each with enough commands.
    """
    same = tuple(pair for pair in matched.connections if pair.has_same_addresses)
    others = []
    of_pair = Partition(cycles_a.select(matched.rows_a), cycles_a.raw("connection")[matched.rows_a].astype(np.int64))
    for pair in matched.connections:
        rows = of_pair.rows(pair.at_a)
        first, last = rows.raw("command_first_ns"), rows.raw("status_ns")
        is_answered = known(rows, "status_ns")
        if len(rows) < (LEAST_COMMANDS if pair.has_same_login else LEAST_WITHOUT_LOGIN) or not is_answered.any():
            continue
        latency = int(np.median(last[is_answered] - first[is_answered]))
        if int(first.max()) - int(first.min()) >= _LEAST_LATENCIES * latency:
            others.append(pair)
    found = [same] if same else []
    if others and tuple(others) != same:
        found.append(tuple(others))
    return found


def _only(matched: Matched, pairs: tuple[ConnectionPair, ...], cycles_a: Table) -> Matched:
    """The commands on these connections."""
    numbers = np.array([pair.at_a for pair in pairs], dtype=np.int64)
    kept = matched.where(np.isin(cycles_a.raw("connection")[matched.rows_a], numbers))
    return Matched(kept.rows_a, kept.rows_b, pairs)


def _is_nearer(matched: Matched, cycles_a: Table, cycles_b: Table) -> bool:
    """Whether A is nearer to the initiator: there a command takes longer."""
    both = known(cycles_a, "status_ns")[matched.rows_a] & known(cycles_b, "status_ns")[matched.rows_b]
    rows_a, rows_b = matched.rows_a[both], matched.rows_b[both]
    if not len(rows_a):
        return True
    latencies = [
        cycles.raw("status_ns")[rows].astype(np.int64) - cycles.raw("command_first_ns")[rows].astype(np.int64)
        for cycles, rows in ((cycles_a, rows_a), (cycles_b, rows_b))
    ]
    return bool(np.median(latencies[0] - latencies[1]) >= 0)
