"""Slow hosts: target service time, and the few commands that it holds far longer than the others; initiator think time,
initiator service time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings.case import Case
from iscsitrace.findings.concurrency import issues_in_parallel, next_queue_depth
from iscsitrace.findings.finding import (
    LEAST_COST_NS,
    NEXT_LOGIN,
    Advice,
    Basis,
    Explains,
    Found,
    Observation,
    Problem,
)
from iscsitrace.findings.recipes import WAN, WRITES
from iscsitrace.findings.thresholds import CONTRAST, MILLISECOND_NS, WORTH, WORTH_A_CHANGE
from iscsitrace.findings.transport import behind_its_buffer
from iscsitrace.fit.gain import Change
from iscsitrace.fit.situation import Situation
from iscsitrace.measure import all_waits, by_subject, line, outliers
from iscsitrace.measure.all_waits import WaitsOfAll
from iscsitrace.measure.facts import Facts, rtt_ns, workloads
from iscsitrace.measure.intervals import ALIKE, step_of
from iscsitrace.measure.outliers import Outliers
from iscsitrace.measure.session import Session, frames_in
from iscsitrace.measure.workload import MIN_TASKS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital

Array = NDArray[Any]


def have_outliers(facts: Facts) -> Array:
    """Where outliers cost enough to be worth a change."""
    stalled_ns = facts.once(outliers.stalled_ns)
    return np.asarray((facts.share(stalled_ns) >= WORTH_A_CHANGE) | (stalled_ns >= LEAST_COST_NS))


def _outliers_in_words(subject: Session) -> str:
    """``10 of 203 reads took 400 ms or more (typically 6.0 ms): every 20th.``; empty where none cost enough."""
    if not subject.fact(have_outliers):
        return ""
    found = subject.facts.once(outliers.find).of(subject.place)
    moved = subject.transfers
    words = {"write" if each else "read" for each in moved.raw("is_write").tolist()}
    what = words.pop() + "s" if len(words) == 1 else "reads and writes"
    took = found.ends - found.starts
    pattern = _pattern_of_outliers(subject, found)
    return (
        f"{len(found.row)} of {len(moved):,} {what} took {wording.time(int(took.min()))} or more (typically "
        f"{_typical_of_outliers(found)}){f': {pattern}' if pattern else ''}."
    )


def _luns_of_outliers(subject: Session) -> tuple[int, ...]:
    """The logical units that have outliers; empty where they cost nothing."""
    if not subject.fact(have_outliers):
        return ()
    found = subject.facts.once(outliers.find).of(subject.place)
    luns = subject.transfers.raw("lun")
    return tuple(np.unique(luns[np.isin(subject.transfers.raw("command_first_ns"), found.starts)]).tolist())


def _typical_of_outliers(found: Outliers) -> str:
    # beside a fast target a status follows its command at once
    typical_ns = float(np.median(found.typical_ns))
    return wording.time(typical_ns) if typical_ns >= MILLISECOND_NS else "less than 1 ms"


def _pattern_of_outliers(subject: Session, found: Outliers) -> str:
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


def _outliers(case: Case) -> Observation:
    subject = case.subject
    found = subject.facts.once(outliers.find).of(subject.place)
    longest = found.starts[np.argsort(found.starts - found.ends, kind="stable")[:3]]
    rows = np.flatnonzero(np.isin(subject.cycles.raw("command_first_ns"), longest))
    return Observation(_outliers_in_words(subject), subject.frames_of(rows), luns=_luns_of_outliers(subject))


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
    where=lambda facts: Found(facts.once(have_outliers), facts.once(outliers.stalled_ns)),
    tell=_outliers,
)


def _without(part: str, change: str) -> Callable[[Basis], Iterator[Change]]:
    """The what-if of no time in this part."""
    return lambda _: iter([Change(change, partial(Situation.without, name=part), (part,))])


# --- slow_target

HEALTHY_NS: Final = 10 * MILLISECOND_NS
"""Service time below which storage is healthy, also where it is the limiter: service levels promise 10 ms or less for
reads and writes, a disk needs about that long, and hypervisors warn above it."""

BUSY_NS: Final = MILLISECOND_NS
"""What a command adds to the wait for a target with many in flight: one that serves a thousand a second is no disk that
is slow, but storage at work."""


def has_commands(facts: Facts) -> Array:
    """Where there are enough commands to show a pattern."""
    return facts.count("cycles") >= MIN_TASKS


def _served_slowly(facts: Facts) -> Found:
    """Where enough commands waited for the target, and where that is slow."""
    found = all_waits.of_parts(facts, "target_service")
    places = facts.places("cycles")
    waited = np.zeros(len(places), dtype=bool)
    waited[found.row[(found.row >= 0) & (found.lengths > 0)]] = True
    # of several in flight the oldest is known to wait
    asked, depths = facts.once(workloads), np.ones(len(facts))
    depths[asked.numbers] = np.maximum(asked.queue_depths, 1)
    is_found = depths * np.bincount(places[waited & (places >= 0)], minlength=len(facts)) >= MIN_TASKS
    cost_ns = found.sums_ns(facts)
    is_found &= facts.share(cost_ns) >= WORTH_A_CHANGE
    is_slow = _is_slow(facts, found, is_found) | facts.once(have_outliers)
    return Found(is_found, cost_ns, {"note": ~is_slow})


def _is_slow(facts: Facts, found: WaitsOfAll, which: Array) -> Array:
    """Whether half of the time passed in stalls of HEALTHY_NS or more, and not by chance; or commands in flight at once
    take that long on average: of these sessions.

    Each of several takes as many times what it adds to the wait as there are. A target that adds less than BUSY_NS a
    command is busy, and not slow: a healthy one has a queue, too. Behind a queue that stands before the target, what
    is shorter than the wait there may be the queue's.
    """
    count = len(facts)
    is_away = rtt_ns(facts, "target") > 0
    least_ns = np.maximum(np.where(is_away, facts.once(line.standing_ns), 0), HEALTHY_NS)
    is_long = found.lengths >= least_ns[found.place]
    long_ns = facts.sums(found.place[is_long], found.lengths[is_long])
    is_many = (np.bincount(found.place[is_long], minlength=count) >= MIN_TASKS) | (long_ns >= LEAST_COST_NS)
    # the shorter stalls are less than half of the time
    total_ns = found.sums_ns(facts)
    is_half = (long_ns > 0) & (2 * (total_ns - long_ns) < total_ns)
    asked = facts.once(workloads)
    each_ns = total_ns[asked.numbers] / np.maximum(asked.task_counts, 1)
    takes_long = np.zeros(count, dtype=bool)
    takes_long[asked.numbers] = (
        (asked.queue_depths > 1) & (each_ns >= BUSY_NS) & (each_ns * asked.queue_depths >= least_ns[asked.numbers])
    )
    return np.asarray((is_half & is_many) | (takes_long & which))


def _target(case: Case) -> Observation | None:
    subject = case.subject
    waits = subject.stretches("target_service")
    total, longest = wording.time(waits.total_ns), wording.time(float(waits.lengths.max()))
    typical = typical_service(subject)
    rare = _outliers_in_words(subject)
    return Observation(
        f"The initiator waited {total} for the target in total, at most {longest} at a time."
        + (f" {rare}" if rare else "")
        + (f" The target typically takes {typical}." if typical and not rare else "")
        + _contrast(_served(subject)),
        subject.frames_of(subject.longest_rows(waits)),
        luns=_slow_luns(subject),
    )


def _slow_luns(subject: Session) -> tuple[int, ...]:
    """The logical units that were slow: half of their waits were stalls of HEALTHY_NS or more, or they have outliers;
    empty where there is one alone, or none can be told from the others.
    """
    if len(subject.luns) < 2:
        return ()
    waits = subject.stretches("target_service")
    waits = waits.where(waits.cycle >= 0)
    luns, own = np.unique(subject.cycles.raw("lun")[subject.rows_of(waits.cycle)], return_inverse=True)
    whole_ns = np.bincount(own, weights=waits.lengths, minlength=len(luns))
    is_long = waits.lengths >= HEALTHY_NS
    long_ns = np.bincount(own[is_long], weights=waits.lengths[is_long], minlength=len(luns))
    is_many = np.bincount(own[is_long], minlength=len(luns)) >= MIN_TASKS
    slow = luns[(2 * long_ns > whole_ns) & (is_many | (long_ns >= LEAST_COST_NS))].tolist()
    return tuple(sorted({*slow, *_luns_of_outliers(subject)}))


def _service_ns(moved: Table, word: str, path_ns: Array | int) -> Array:
    """What each of these reads, or writes, waited for the target beyond the RTT to it."""
    phases = ("request_ns", "status_wait_ns") if word == "read" else ("grant_ns", "service_ns")
    # the status of a read follows its data; all else answers a PDU of the initiator, an RTT later
    waits = [np.where(known(moved, phase), moved.raw(phase), 0) for phase in phases]
    return np.asarray(np.maximum(waits[0] - path_ns, 0) + np.maximum(waits[1] - (path_ns if word == "write" else 0), 0))


def _served(subject: Session) -> dict[str, Array]:
    """What each of the reads, and of the writes, waited for the target."""
    rtt = subject.rtt_ns("target") or 0
    moved = {word: subject.transfers.select(subject.transfers.raw(f"is_{word}")) for word in ("read", "write")}
    return {word: _service_ns(each, word, rtt) for word, each in moved.items()}


def typical_service(subject: Session) -> str:
    """``3.4 ms per read``; empty at a queue depth above 1, where commands wait for each other."""
    asked = subject.workload
    if asked is None or asked.queue_depth > 1:
        return ""
    return " and ".join(
        f"{wording.time(float(np.median(each)))} per {word}" for word, each in _served(subject).items() if len(each)
    )


def _contrast(served: Mapping[str, Array]) -> str:
    """That only the reads, or only the writes, are slow; empty where both are, or none."""
    if min(len(each) for each in served.values()) < MIN_TASKS:
        return ""
    (fast, fast_ns), (slow, slow_ns) = sorted(
        ((word, float(np.median(each))) for word, each in served.items()), key=lambda each: each[1]
    )
    if slow_ns < HEALTHY_NS or slow_ns < CONTRAST * fast_ns:
        return ""
    typical = f"typically {wording.time(slow_ns)} against {wording.time(fast_ns)}"
    return f" {capital(slow)}s are slow, {fast}s are not: {typical}."


SLOW_TARGET: Final = Problem(
    name="slow_target",
    meaning="The target is slow: first data, R2T or status arrive later than the RTT explains.",
    condition=f"Target service takes {WORTH}, in at least {MIN_TASKS} commands. A warning only from a service time "
    f"of {wording.time(HEALTHY_NS)} on, which healthy storage stays below (behind a standing queue, "
    "away from the target, from the time in the queue on): half of the time passed in stalls of at "
    f"least that ({MIN_TASKS} of them, or 1 s in total), or several commands in flight (median queue depth) take "
    f"that long at the time that each adds to the wait, {wording.time(BUSY_NS)} or more; or outliers cost enough "
    "(finding latency_outliers).",
    evidence="The three commands with the longest service time, from command to status. The share is the service time "
    "with every command in flight stalled.",
    example="The initiator waited 321.3 ms for the target in total, at most 5.0 ms at a time. The target typically "
    "takes 5.1 ms per read.",
    shown_by=f"read --block-size 64K --bytes 4M --service-delay 5ms {WAN}",
    near_miss=f"read --block-size 64K --bytes 4M --service-delay 0.2ms {WAN}",
    explains=Explains("target_service", 1, WORTH_A_CHANGE),
    advice=(
        Advice(
            "Check the target: its disks (iostat -x), write cache, controller and CPU.",
            _without("target_service", "zero target service time"),
        ),
        Advice(
            "Keep more commands in flight. This helps only if several disks or flash back the LUN.",
            next_queue_depth,
            only_if=issues_in_parallel,
        ),
    ),
    where=_served_slowly,
    tell=_target,
)


# --- initiator_think_time


def _thought(facts: Facts) -> Found:
    found = all_waits.of_parts(facts, "initiator_think")
    return Found(np.bincount(found.place, minlength=len(facts)) >= MIN_TASKS, found.sums_ns(facts))


def _think_time(case: Case) -> Observation | None:
    subject = case.subject
    waits = subject.stretches("initiator_think")
    return Observation(
        f"The initiator paused {len(waits.lengths):,} times between I/Os, typically for "
        f"{wording.time(float(np.median(waits.lengths)))}.",
        frames_in(subject.cycles, subject.next_rows(waits.longest()), "command_frame"),
    )


INITIATOR_THINK_TIME: Final = Problem(
    name="initiator_think_time",
    meaning="The initiator is idle between commands that follow one another steadily: no commands in flight. A program "
    "that sleeps does not count.",
    condition=f"Initiator idle takes {WORTH}, in at least {MIN_TASKS} idle periods. Always a note: an application may "
    "ask for less than it could get.",
    evidence="The commands after the three longest idle periods. The share is the idle time.",
    example="The initiator paused 63 times between I/Os, typically for 5.0 ms.",
    shown_by=f"read --block-size 64K --bytes 4M --think-time 5ms {WAN}",
    near_miss=f"read --block-size 64K --bytes 4M --think-time 0.2ms {WAN}",
    explains=Explains("initiator_think", least=WORTH_A_CHANGE),
    rank="note",
    advice=(
        Advice(
            "Issue I/O ahead: asynchronous I/O (io_uring, libaio) or more threads in the application; for buffered "
            "reads /sys/block/DEVICE/queue/read_ahead_kb.",
            _without("initiator_think", "no pauses of the initiator"),
        ),
    ),
    where=_thought,
    tell=_think_time,
)


# --- slow_initiator


PROMPT_NS: Final = 4 * MILLISECOND_NS
"""Time below which an initiator answers R2Ts promptly, also where it is the limiter: the answer needs only CPU, and a
scheduler lets another task of a busy CPU finish its time slice of 3 to 4 ms first."""


def _answers(facts: Facts) -> Array:
    """From each R2T to its first Data-Out; -1 where one of them is unknown."""
    rounds = facts.table("rounds")
    is_known = known(rounds, "r2t_ns") & known(rounds, "data_first_ns")
    return np.where(is_known, rounds.raw("data_first_ns") - rounds.raw("r2t_ns"), -1)


def _is_behind_its_buffer(facts: Facts) -> Array:
    """Whether the initiator waited longer for room in its send buffer: it is woken late, when much of that is free."""
    row = facts.once(behind_its_buffer)
    is_own = np.append(facts.table("senders").raw("to_target"), False)[row] & (row >= 0)
    return np.asarray(is_own & (facts.part_ns("send_buffer") >= facts.part_ns("initiator_service")))


def _answers_late(facts: Facts) -> Found:
    took, places = facts.once(_answers), facts.places("rounds")
    own = np.flatnonzero((took >= 0) & (places >= 0))
    medians_ns = by_subject.medians(places[own], took[own], len(facts))
    has_any = np.bincount(places[own], minlength=len(facts)) > 0
    is_prompt = has_any & (medians_ns - np.maximum(rtt_ns(facts, "initiator"), 0) < PROMPT_NS)
    return Found(~_is_behind_its_buffer(facts), facts.part_ns("initiator_service"), {"note": is_prompt})


def _initiator(case: Case) -> Observation:
    subject = case.subject
    own = subject.facts.places("rounds") == subject.place
    rounds, took = subject.facts.table("rounds").select(own), subject.facts.once(_answers)[own]
    answered = took[took >= 0]
    text = "The initiator answered R2Ts late."
    if len(answered):
        median, count = wording.time(float(np.median(answered))), wording.count(len(answered), "R2T")
        text = f"The initiator answered R2Ts late: typically {median} from R2T to first Data-Out ({count})."
    frames = frames_in(rounds, np.argsort(-took, kind="stable")[:3], "r2t_frame", "data_first_frame")
    return Observation(text, frames or subject.evidence(subject.stretches("initiator_service")))


SLOW_INITIATOR: Final = Problem(
    name="slow_initiator",
    meaning="The initiator sends solicited data late: the time from R2T to first Data-Out.",
    condition=f"Initiator service takes {WORTH}, and more than the initiator waits for its send buffer. A warning only "
    f"where the median time from R2T to first Data-Out is {wording.time(PROMPT_NS)} or more beyond the RTT.",
    evidence="R2T and first data of the three latest bursts. The share is the time waited.",
    example="The initiator answered R2Ts late: typically 5.0 ms from R2T to first Data-Out (16 R2Ts).",
    # R2Ts that the initiator reads 5 ms after they came
    shown_by=f"{WRITES} --set initiator-host-delay=5ms",
    near_miss=f"{WRITES} --set initiator-host-delay=0.1ms",
    explains=Explains("initiator_service", least=WORTH_A_CHANGE),
    advice=(
        Advice(
            "Check the initiator's CPU and its iscsi_q or kworker threads; node.session.xmit_thread_priority = -20.",
            _without("initiator_service", "zero initiator service time"),
            touches=NEXT_LOGIN,
        ),
    ),
    where=_answers_late,
    tell=_initiator,
)
