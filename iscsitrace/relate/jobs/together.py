"""Which runs are streams of one job.

Runs of one session, or between the same initiator and target, are if they are at the same time. Others are if they also
begin together with the same operation and similar I/O sizes: a program striped over several targets, or several hosts
that each do a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.relate.jobs.runs import Runs
from iscsitrace.relate.mirrors.recognition import Mirror
from iscsitrace.tables.numbers import first_rows

Array = NDArray[Any]

TOGETHER: Final = 0.5
"""Least overlap of two connections that are used in parallel, as a share of the shorter one's time."""
BEGIN: Final = 0.1
"""Longest time between the starts of the streams of one job, as a share of the longest one's time: a program starts
them one after the other, but soon."""
ALIKE: Final = 2.0
"""Largest ratio of the I/O sizes of two streams of one job: beyond it they are different programs."""

_PAIRS: Final = 1 << 14
"""Pairs of runs that are compared at once."""


def groups(runs: Runs, mirrors: Sequence[Mirror] = ()) -> Iterator[list[int]]:
    """The places in ``runs`` of the streams of each job: the longest run, and one of each other connection.

    A run is of one job. The sides of a mirror are not streams of one job.
    """
    pairs = _Pairs(runs, mirrors)
    is_left = np.ones(len(runs), dtype=bool)
    places, counts = pairs.longest, pairs.counts
    while len(places):
        is_next = is_left[places]
        places, counts = places[is_next], counts[is_next]
        end = max(1, int(np.searchsorted(np.cumsum(counts), _PAIRS, side="right")))
        longest, shorter = pairs.of(places[:end])
        places, counts = places[end:], counts[end:]
        firsts, others = longest.tolist(), shorter.tolist()
        for start, stop in pairwise([*first_rows(longest).tolist(), len(firsts)]):
            if not is_left[firsts[start]]:
                continue
            members = {pairs.connection[firsts[start]]: firsts[start]}
            for other in others[start:stop]:
                if is_left[other]:
                    # the longest of each connection
                    members.setdefault(pairs.connection[other], other)
            if len(members) > 1:
                own = [*members.values()]
                is_left[own] = False
                yield pairs.order[own].tolist()


def are_related(runs: Runs, places: Sequence[int]) -> bool:
    """Whether all of these runs are of one session, or between the same two nodes."""
    nodes = runs.nodes[places]
    return bool(nodes[0] >= 0 and (nodes == nodes[0]).all())


class _Pairs:
    """Pairs of runs that are of one job. Here runs are in order of length, the longest first."""

    def __init__(self, runs: Runs, mirrors: Sequence[Mirror]) -> None:
        self.order: Array = np.lexsort((runs.connection, runs.first_ns - runs.last_ns))
        columns = (runs.nodes, runs.is_write, runs.block_bytes, runs.first_ns, runs.last_ns)
        self._nodes, self._is_write, self._block_bytes, self._first_ns, self._last_ns = (
            each[self.order] for each in columns
        )
        self.connection: list[int] = runs.connection[self.order].tolist()
        self._length_ns = self._last_ns - self._first_ns
        self._mirror, self._side = _sides(mirrors, runs.session[self.order])
        begin_ns = (BEGIN * self._length_ns).astype(np.int64)
        alike = self._begun(self._is_write, self._first_ns - begin_ns, self._first_ns + begin_ns)
        # no shorter run that overlaps this one began earlier
        related = self._begun(self._nodes, self._first_ns - self._length_ns, self._last_ns)
        self._begun_near = (alike, related)
        counts = np.stack([until - since for _, since, until in self._begun_near])
        self.longest = np.flatnonzero((counts > 1).any(axis=0))
        """The runs that may be the longest of a job."""
        self.counts: Array = counts.sum(axis=0)[self.longest]
        """How many pairs each of them has at most."""

    def _begun(self, group: Array, from_ns: Array, until_ns: Array) -> tuple[Array, Array, Array]:
        """All runs in some order, and for each run the first and the end of those of its group that began then."""
        order = np.lexsort((self._first_ns, group))
        # one key for group and time, with the rank of the time
        instants = np.unique(self._first_ns)
        step = len(instants) + 1
        keys = (group * step + np.searchsorted(instants, self._first_ns))[order]
        since = np.searchsorted(keys, group * step + np.searchsorted(instants, from_ns))
        until = np.searchsorted(keys, group * step + np.searchsorted(instants, until_ns, side="right"))
        return order, since, until

    def of(self, longest: Array) -> tuple[Array, Array]:
        """The pairs of these runs with shorter ones, in order of both."""
        found = []
        for order, since, until in self._begun_near:
            counts = (until - since)[longest]
            one = np.repeat(longest, counts)
            place = np.arange(len(one)) - np.repeat(np.cumsum(counts) - counts - since[longest], counts)
            found.append((one, order[place]))
        one, other = (np.concatenate(each) for each in zip(*found, strict=True))
        is_pair = other > one
        one, other = one[is_pair], other[is_pair]
        is_pair = self._are_together(one, other)
        one, other = one[is_pair], other[is_pair]
        order = np.lexsort((other, one))
        return one[order], other[order]

    def _are_together(self, longest: Array, shorter: Array) -> Array:
        columns = (self._first_ns, self._last_ns, self._block_bytes, self._is_write, self._nodes)
        (first_ns, other_first_ns), (last_ns, other_last_ns), sizes, operations, nodes, mirrors, sides = (
            (each[longest], each[shorter]) for each in (*columns, self._mirror, self._side)
        )
        overlap_ns = np.minimum(last_ns, other_last_ns) - np.maximum(first_ns, other_first_ns)
        is_parallel = overlap_ns >= TOGETHER * np.maximum(other_last_ns - other_first_ns, 1)
        is_related = (nodes[0] == nodes[1]) & (nodes[0] >= 0)
        is_alike = (operations[0] == operations[1]) & (np.maximum(*sizes) <= ALIKE * np.minimum(*sizes))
        begins_near = np.abs(first_ns - other_first_ns) <= BEGIN * (last_ns - first_ns)
        is_mirrored = (mirrors[0] == mirrors[1]) & (mirrors[0] >= 0) & (sides[0] != sides[1])
        return np.asarray(is_parallel & (is_related | (is_alike & begins_near)) & ~is_mirrored)


def _sides(mirrors: Sequence[Mirror], session: Array) -> tuple[Array, Array]:
    """Mirror and side of each of these sessions; -1 for none."""
    found = np.full((2, max(session.max(initial=-1), 0) + 2), -1, dtype=np.int64)
    for number, mirror in enumerate(mirrors):
        for place, side in enumerate(mirror.sides):
            found[:, [each for each in side.sessions if each < found.shape[1] - 1]] = [[number], [place]]
    return found[0][session], found[1][session]
