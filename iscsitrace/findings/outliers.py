"""Outliers: a few reads and writes that the target held for many times as long as the others, and their pattern."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings.case import Case
from iscsitrace.findings.finding import LEAST_COST_NS, Advice, Explains, Found, Observation, Problem
from iscsitrace.findings.thresholds import MILLISECOND_NS, WORTH, WORTH_A_CHANGE
from iscsitrace.measure import outliers
from iscsitrace.measure.facts import Facts
from iscsitrace.measure.intervals import ALIKE, step_of
from iscsitrace.measure.outliers import Outliers
from iscsitrace.measure.session import Session
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]


def have_cost(facts: Facts) -> Array:
    """Where outliers cost enough to be worth a change."""
    stalled_ns = facts.once(outliers.stalled_ns)
    return np.asarray((facts.share(stalled_ns) >= WORTH_A_CHANGE) | (stalled_ns >= LEAST_COST_NS))


def in_words(subject: Session) -> str:
    """``10 of 203 reads took 400 ms or more (typically 6.0 ms): every 20th.``; empty where none cost enough."""
    if not subject.fact(have_cost):
        return ""
    found = subject.facts.once(outliers.find).of(subject.place)
    moved = subject.transfers
    words = {"write" if each else "read" for each in moved.raw("is_write").tolist()}
    what = words.pop() + "s" if len(words) == 1 else "reads and writes"
    took = found.ends - found.starts
    pattern = _pattern(subject, found)
    return (
        f"{len(found.row)} of {len(moved):,} {what} took {wording.time(int(took.min()))} or more (typically "
        f"{_typical(found)}){f': {pattern}' if pattern else ''}."
    )


def luns_of(subject: Session) -> tuple[int, ...]:
    """The logical units that have outliers; empty where they cost nothing."""
    if not subject.fact(have_cost):
        return ()
    found = subject.facts.once(outliers.find).of(subject.place)
    luns = subject.transfers.raw("lun")
    return tuple(np.unique(luns[np.isin(subject.transfers.raw("command_first_ns"), found.starts)]).tolist())


def _typical(found: Outliers) -> str:
    # beside a fast target a status follows its command at once
    typical_ns = float(np.median(found.typical_ns))
    return wording.time(typical_ns) if typical_ns >= MILLISECOND_NS else "less than 1 ms"


def _pattern(subject: Session, found: Outliers) -> str:
    """What most outliers have in common; empty where nothing is."""
    moved = subject.transfers
    starts = np.sort(moved.raw("command_first_ns"))
    order = np.searchsorted(starts, found.starts)
    is_one = np.isin(moved.raw("command_first_ns"), found.starts)
    if (step := step_of(np.diff(order), 0)) and step > 1:
        return f"every {wording.ordinal(step)}"
    # those that wait together wait for the same stall
    begins = found.starts[np.insert(found.starts[1:] > np.maximum.accumulate(found.ends)[:-1], 0, True)]
    if step := step_of(np.diff(begins)):
        return f"about every {wording.time(step)}"
    for column, name in (("lun", "LUN {}"), ("is_write", "{}")):
        values, counts = np.unique(moved.raw(column)[is_one], return_counts=True)
        most = values[np.argmax(counts)]
        if counts.max() >= ALIKE * is_one.sum() and (moved.raw(column) != most).sum() >= ALIKE / 2 * len(moved):
            return f"most of them {name.format(('reads', 'writes')[int(most)] if column == 'is_write' else most)}"
    if len(begins) == len(found.row):
        return ""
    return "in one stall" if len(begins) == 1 else f"in {len(begins):,} stalls"


def _tell(case: Case) -> Observation:
    subject = case.subject
    found = subject.facts.once(outliers.find).of(subject.place)
    longest = found.starts[np.argsort(found.starts - found.ends, kind="stable")[:3]]
    rows = np.flatnonzero(np.isin(subject.cycles.raw("command_first_ns"), longest))
    return Observation(in_words(subject), subject.frames_of(rows), luns=luns_of(subject))


LATENCY_OUTLIERS: Final = Problem(
    name="latency_outliers",
    meaning="A few reads or writes take many times as long as the others of their kind, and wait for the target: a "
    "stall of the storage that averages hide.",
    condition=f"At most {wording.percent(outliers.FEW)} of the reads and writes take more than {outliers.TIMES} times "
    f"the median of their operation, size and LUN, and {wording.time(outliers.LEAST_NS)} longer. The time in which the "
    f"target served nothing meanwhile is {WORTH}, or {wording.time(LEAST_COST_NS)}.",
    evidence="The three longest of them. The share is the target's service time while they were in flight, beyond the "
    "median.",
    example="5 of 100 reads took 400.4 ms or more (typically 1.4 ms): every 20th.",
    shown_by="read --block-size 16K --bytes 1600K --one-way-delay 0.5ms "
    "--fault delayed-status,every=20,by=400ms,operation=read",
    near_miss="read --block-size 16K --bytes 1600K --one-way-delay 0.5ms "
    "--fault delayed-status,every=20,by=40ms,operation=read",
    # slow_target says so, too, where the target is slow
    explains=Explains("target_service"),
    severity="warning",
    advice=(
        Advice(
            "Look at the storage at these times: cache flushes, snapshots, rebuilds, garbage collection of flash, "
            "disks that spin up (iostat -x 1 on the target)."
        ),
    ),
    where=lambda facts: Found(facts.once(have_cost), facts.once(outliers.stalled_ns)),
    tell=_tell,
)
