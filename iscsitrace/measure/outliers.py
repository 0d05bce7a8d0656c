"""Outliers: the few reads and writes that take many times as long as the others of their kind, and wait for the target.

A kind is the operation, the size to the next power of two, and the logical unit, in one session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import all_waits, by_subject
from iscsitrace.measure.facts import Facts, transfers
from iscsitrace.measure.workload import MIN_TASKS
from iscsitrace.tables.nulls import known

Array = NDArray[Any]

TIMES: Final = 10
"""An outlier takes more than this many times the median of its kind,"""
LEAST_NS: Final = 50_000_000
"""and this much longer: what a person notices."""
FEW: Final = 0.1
"""Largest share of the commands: more of them are the usual."""


@dataclass(frozen=True)
class Outliers:
    """Those of all subjects, in order of subject and start."""

    place: Array
    """The subject of each."""
    row: Array
    """Its row in the complete reads and writes (`transfers`) of all subjects."""
    starts: Array
    ends: Array
    """From its command to its status, ns since 1970."""
    typical_ns: Array
    """The median latency of its kind."""

    def of(self, place: int) -> Outliers:
        """Those of one subject."""
        which = slice(*np.searchsorted(self.place, [place, place + 1]))
        return Outliers(*(each[which] for each in vars(self).values()))


def find(facts: Facts) -> Outliers:
    """The outliers of each subject, where they are few."""
    moved, places = facts.once(transfers)
    starts, ends = moved.raw("command_first_ns"), moved.raw("status_ns")
    took = ends - starts
    # of most sessions no command takes that long
    slow = np.unique(places[took >= LEAST_NS])
    rows = np.flatnonzero(np.isin(places, slow))
    rows = rows[by_subject.in_order(places[rows], starts[rows])]
    sizes = np.log2(np.maximum(moved.raw("bytes")[rows], 1)).round().astype(np.int64)
    kinds = np.stack([places[rows], moved.raw("is_write")[rows], sizes, moved.raw("lun")[rows].astype(np.int64)])
    _, kind, counts = np.unique(kinds, axis=1, return_inverse=True, return_counts=True)
    kind = kind.ravel()
    typical_ns = by_subject.medians(kind, took[rows], len(counts))[kind]
    beyond_ns = took[rows] - typical_ns
    is_out = (took[rows] > TIMES * typical_ns) & (beyond_ns >= LEAST_NS) & (counts[kind] >= MIN_TASKS)
    # what TCP recovered meanwhile, or its small window after that, made it wait for the network
    out = np.flatnonzero(is_out)
    is_out[out] = ~_is_beside_recovery(facts, places[rows[out]], starts[rows[out]], ends[rows[out]])
    own = places[rows]
    every, out = (np.bincount(each, minlength=len(facts)) for each in (own, own[is_out]))
    is_out &= (out <= FEW * every)[own]
    found = rows[is_out]
    return Outliers(places[found], found, starts[found], ends[found], typical_ns[is_out])


def _is_beside_recovery(facts: Facts, place: Array, starts: Array, ends: Array) -> Array:
    """Whether a recovery of the same subject was in progress within each interval."""
    recoveries, own = facts.table("recoveries"), facts.places("recoveries")
    has_end = known(recoveries, "time_last_ns")
    firsts = recoveries.raw("time_first_ns").astype(np.int64)
    lasts = np.where(has_end, recoveries.raw("time_last_ns"), np.iinfo(np.int64).max // 2).astype(np.int64)
    place = place.astype(np.int64)

    def count(values: Array, instants: Array, side: Literal["left", "right"]) -> Array:
        order = by_subject.rows_in_order(own, values)
        return by_subject.search(own[order].astype(np.int64), values[order], place, instants, side)

    return np.asarray(count(firsts, ends, "right") > count(lasts, starts, "left"))


def stalled_ns(facts: Facts) -> Array:
    """The time of each subject in which an outlier waited for the target, beyond what is typical."""
    found = facts.once(find)
    waits = all_waits.of_parts(facts, "target_service")
    return all_waits.claimed_ns(facts, waits, found.place, found.starts + found.typical_ns, found.ends)
