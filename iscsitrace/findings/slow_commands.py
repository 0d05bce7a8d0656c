"""Slow operations and logical units: commands that take far longer than the others of the same session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings.case import Case, is_worth
from iscsitrace.findings.finding import DATA_AT_RISK, EVERY_INITIATOR, Advice, Explains, Observation, Problem
from iscsitrace.findings.hosts import HEALTHY_NS, SLOW_TARGET, has_commands
from iscsitrace.findings.recipes import LAN
from iscsitrace.findings.statuses import is_read_or_write, spoken
from iscsitrace.findings.thresholds import CONTRAST, MILLISECOND_NS, WARNING, WORTH, WORTH_A_CHANGE
from iscsitrace.measure import intervals
from iscsitrace.measure.data_commands import is_data_command, is_for
from iscsitrace.measure.facts import Facts
from iscsitrace.measure.session import Session
from iscsitrace.measure.workload import MIN_TASKS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]


@dataclass(frozen=True)
class _Timed:
    """The successful commands of a session that read, write, erase or flush."""

    rows: Array
    starts: Array
    answers: Array
    """The first data of reads, or else the status: what the line and its queue do not make longer."""
    ends: Array

    @property
    def latency_ns(self) -> Array:
        """From command to status."""
        return np.asarray(self.ends - self.starts)

    def where(self, which: Array) -> _Timed:
        """Those that a mask picks."""
        return _Timed(self.rows[which], self.starts[which], self.answers[which], self.ends[which])

    def in_words(self) -> str:
        """``typically took 614.0 ms, at most 651.0 ms``."""
        median, most = float(np.median(self.latency_ns)), float(self.latency_ns.max())
        if len(self.rows) == 1:
            return f"took {wording.time(most)}"
        return f"typically took {wording.time(median)}, at most {wording.time(most)}"


def _timed(subject: Session) -> _Timed:
    cycles = subject.cycles
    rows = np.flatnonzero(cycles.each(_is_good) & (subject.is_data | subject.is_flush))
    ends = cycles.raw("status_ns")[rows]
    has_data = cycles.raw("is_read")[rows] & known(cycles, "data_first_ns")[rows]
    answers = np.where(has_data, cycles.raw("data_first_ns")[rows], ends)
    return _Timed(rows, cycles.raw("command_first_ns")[rows], answers, ends)


def _is_good(cycles: Table) -> Array:
    return np.asarray(known(cycles, "status_ns") & (cycles.raw("status") == 0))


# --- slow_operation

SLOW_NS: Final = 100 * MILLISECOND_NS
"""Latency from which on another operation than a read or write is slow. They work on many blocks, or wait for the
medium: what healthy storage promises for reads does not bind them, but a tenth of a second is what users notice."""


@dataclass(frozen=True)
class _SlowOperation:
    name: str
    own: _Timed
    others_ns: float | None
    """The median of reads and writes apart from them; None where there are none."""
    held: Array
    """Latencies of the reads and writes that came in the meantime, and waited."""
    lost_ns: int
    """Time in which they were in flight and nothing was served."""
    has_others: bool
    """Whether there are reads or writes."""
    is_flush: bool


def _is_other(cycles: Table) -> Array:
    """Which successful commands erase or flush."""
    is_timed = cycles.each(is_data_command) | is_for(cycles, "flush")
    return _is_good(cycles) & is_timed & ~is_read_or_write(cycles)


def _slowest(subject: Session) -> _SlowOperation | None:
    """The slow operation that costs most."""
    timed = _timed(subject)
    codes = subject.cycles.raw("operation")[timed.rows]
    is_io = subject.cycles.each(is_read_or_write)[timed.rows]
    found = [
        each for code in np.unique(codes[~is_io]).tolist() if (each := _slow(subject, timed, codes == code, is_io))
    ]
    return max(found, key=lambda each: each.lost_ns, default=None)


def _operation(case: Case) -> Observation | None:
    subject = case.subject
    worst = case.once(_slowest)
    if worst is None:
        return None
    luns = np.unique(subject.cycles.raw("lun")[worst.own.rows]).tolist()
    facts = [f"{worst.name} {worst.own.in_words()}."]
    if worst.others_ns is not None:
        facts.append(f"Reads and writes typically took {wording.time(worst.others_ns)}, {_held(worst)}.")
    elif worst.has_others:
        facts.append(f"Reads and writes were in flight, too, {_held(worst)}.")
    # a flush is no busy time: its share is of both
    whole_ns = subject.jobs_ns + (subject.budget.uses_ns["flush"] if subject.budget and worst.is_flush else 0)
    share = min(1.0, worst.lost_ns / whole_ns) if whole_ns else 0.0
    slowest = np.argsort(-worst.own.latency_ns, kind="stable")[:3]
    return Observation(
        " ".join(facts),
        subject.frames_of(worst.own.rows[slowest]),
        None if worst.is_flush else float(worst.lost_ns),
        share=share,
        severity="warning" if share >= WARNING else "info",
        luns=tuple(luns),
    )


def _held(worst: _SlowOperation) -> str:
    if not len(worst.held):
        return "and none had to wait for it"
    return f"but {len(worst.held):,} issued meanwhile took up to {wording.time(float(worst.held.max()))}"


def _slow(subject: Session, timed: _Timed, which: Array, is_io: Array) -> _SlowOperation | None:
    own, io = timed.where(which), timed.where(is_io)
    median = float(np.median(own.latency_ns))
    if median < SLOW_NS:
        return None
    firsts, lasts = intervals.merged(own.starts, own.ends)
    place = np.searchsorted(firsts, io.ends, side="left") - 1
    # a read that was in flight with one of them may have waited for it
    is_beside = (place >= 0) & (lasts[place.clip(0)] > io.starts)
    apart = io.where(~is_beside)
    others_ns, least_ns = None, float(subject.path_ns or 0)
    if len(apart.rows):
        others_ns, least_ns = float(np.median(apart.latency_ns)), float(np.median(apart.answers - apart.starts))
    stalls = subject.stretches("target_service", "outage")
    lost_ns = stalls.within_ns(firsts, lasts)
    own_ns = intervals.union_length(own.starts, own.ends)
    rest_ns = subject.jobs_ns - own_ns
    # a deep queue makes all commands slow: but stalled is the time in which this one is in flight
    is_stalling = rest_ns >= SLOW_NS and lost_ns * rest_ns > CONTRAST * (stalls.total_ns - lost_ns) * own_ns
    if median < CONTRAST * least_ns and not is_stalling:
        return None
    is_flush = bool(subject.is_flush[own.rows].any())
    if is_flush:
        # no busy time unless reads or writes are in flight, too
        lost_ns = max(lost_ns, own_ns)
    if not is_worth(subject, own_ns):
        return None
    beside = io.latency_ns[is_beside]
    name = spoken(subject.cycles.select(own.rows[:1])["operation"][0])
    held_ns = max(SLOW_NS, CONTRAST * least_ns)
    held = beside[beside >= (min(held_ns, (others_ns or 0) + median / 2) if is_stalling else held_ns)]
    return _SlowOperation(name, own, others_ns, held, lost_ns, len(io.rows) > 0, is_flush)


def _is_flush(case: Case) -> bool:
    worst = case.once(_slowest)
    return worst is not None and worst.is_flush


def _is_no_flush(case: Case) -> bool:
    return not _is_flush(case)


SLOW_OPERATION: Final = Problem(
    name="slow_operation",
    meaning="One operation (UNMAP, WRITE SAME, EXTENDED COPY, SYNCHRONIZE CACHE, COMPARE AND WRITE, ...) is slow "
    "beside the reads and writes, which may have to wait for it.",
    condition=f"The operation, other than a read or write, takes {wording.time(SLOW_NS)} or more (median), and "
    f"{CONTRAST} times as long as writes, or as the first data of reads, apart from it; or the time in which it is in "
    f"flight is stalled {CONTRAST} times as much as the rest. It is in flight for {WORTH}. "
    "Reads against writes are compared by slow_target.",
    evidence="The three slowest such commands. The share is the time in which they were in flight and the target "
    "served nothing; a SYNCHRONIZE CACHE counts as long as it takes.",
    example="UNMAP typically took 902.1 ms, at most 908.6 ms. Reads and writes typically took 8.9 ms, and none had "
    "to wait for it.",
    shown_by=f"read {LAN} --think-time 20ms --fault slow-unmap,by=900ms,count=3",
    near_miss=f"read {LAN} --think-time 20ms --fault slow-unmap,by=20ms,count=3",
    explains=Explains("target_service", 3),
    advice=(
        Advice(
            "Move the operation to quiet hours, or make it smaller. UNMAP: fstrim by timer instead of the mount option "
            "discard, /sys/block/DEVICE/queue/discard_max_bytes. ESXi: esxcli storage vmfs reclaim config set. "
            "Windows: fsutil behavior set DisableDeleteNotify 1.",
            only_if=_is_no_flush,
        ),
        Advice(
            "Check how the target runs it: LIO runs UNMAP and WRITE SAME in the thread that receives the connection, "
            "so that reads wait; emulate_tpu and emulate_tpws switch them off.",
            only_if=_is_no_flush,
            touches=EVERY_INITIATOR,
        ),
        Advice(
            "SYNCHRONIZE CACHE waits for the medium. Behind a write cache with a battery the target need not flush: "
            "emulate_write_cache=0 on LIO.",
            only_if=_is_flush,
            touches=f"{DATA_AT_RISK}: without a protected cache a power failure loses writes",
        ),
    ),
    where=lambda facts: facts.count("cycles", _is_other) > 0,
    tell=_operation,
    accounts_for=(SLOW_TARGET,),
)


# --- slow_lun


def _has_several(facts: Facts) -> Array:
    """Where reads and writes went to several logical units."""
    cycles, places = facts.table("cycles"), facts.places("cycles")
    is_io = cycles.each(is_read_or_write) & known(cycles, "lun") & (places >= 0)
    places, luns = places[is_io], cycles.raw("lun")[is_io]
    first = np.zeros(len(facts), dtype=luns.dtype)
    first[places] = luns
    return (np.bincount(places[luns != first[places]], minlength=len(facts)) > 0) & facts.once(has_commands)


def _lun(case: Case) -> Observation | None:
    subject = case.subject
    cycles = subject.cycles
    timed = case.once(_timed)
    is_io = cycles.each(is_read_or_write)[timed.rows] & known(cycles, "lun")[timed.rows]
    io = timed.where(is_io)
    luns, own = np.unique(cycles.raw("lun")[io.rows], return_inverse=True)
    if len(luns) < 2:
        return None
    order = np.lexsort((io.latency_ns, own))
    counts = np.bincount(own, minlength=len(luns))
    medians = io.latency_ns[order][np.cumsum(counts) - counts + counts // 2].astype(np.float64)
    medians[counts < MIN_TASKS] = np.nan
    if np.isnan(medians).all():
        return None
    slowest = int(np.nanargmax(medians))
    others = own != slowest
    if int(others.sum()) < MIN_TASKS:
        return None
    others_ns = float(np.median(io.latency_ns[others]))
    slow = io.where(own == slowest)
    if medians[slowest] < max(HEALTHY_NS + (subject.path_ns or 0), CONTRAST * others_ns):
        return None
    waits = subject.stretches("target_service")
    is_own = np.zeros(len(cycles), dtype=bool)
    is_own[slow.rows] = True
    lost_ns = waits.where(subject.is_of(waits, is_own)).total_ns
    if not is_worth(subject, lost_ns):
        return None
    lun = int(luns[slowest])
    text = f"LUN {lun} {slow.in_words()}. The other LUNs typically took {wording.time(others_ns)}."
    first = np.argsort(-slow.latency_ns, kind="stable")[:3]
    return Observation(text, subject.frames_of(slow.rows[first]), lost_ns, luns=(lun,), sessions=case.sessions)


SLOW_LUN: Final = Problem(
    name="slow_lun",
    meaning="One logical unit is slow beside the others of the same session: it is its storage, not the path.",
    condition=f"The median read or write of the LUN takes {wording.time(HEALTHY_NS)} or more beyond the RTT, and "
    f"{CONTRAST} times as long as those of the other LUNs, with at least {MIN_TASKS} on each side; target service of "
    f"its commands takes {WORTH}.",
    evidence="The three slowest commands of the LUN. The share is the service time of its commands with every command "
    "in flight stalled.",
    example="LUN 1 typically took 21.0 ms, at most 21.0 ms. The other LUNs typically took 2.0 ms.",
    explains=Explains("target_service", 4, WORTH_A_CHANGE),
    advice=(
        Advice(
            "Check the storage behind this LUN on the target: its disks, pool, snapshots, rebuild or tier (iostat -x). "
            "The other LUNs show that target and path are healthy."
        ),
        Advice(
            "Move the busiest volumes apart, or limit their rate: cgroup io.max, ESXi IOPS limits, the array's QoS."
        ),
    ),
    where=_has_several,
    tell=_lun,
    scope="session",
    accounts_for=(SLOW_TARGET,),
)
