"""Writes that wait for R2Ts: several R2Ts one after another, late R2Ts, and unused unsolicited data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings.case import Case
from iscsitrace.findings.concurrency import RAISE_QUEUE_DEPTH, issues_in_parallel, next_queue_depth
from iscsitrace.findings.distance import NEAR_NS
from iscsitrace.findings.finding import NEXT_LOGIN, Advice, Basis, Explains, Found, Observation, Problem, Rank
from iscsitrace.findings.recipes import R2T_ONLY, WAN, WRITES
from iscsitrace.findings.thresholds import MILLISECOND_NS, WORTH, WORTH_A_CHANGE
from iscsitrace.fit.gain import OF_R2TS, Change
from iscsitrace.fit.situation import Situation
from iscsitrace.measure import all_waits, by_subject
from iscsitrace.measure.facts import Facts, path_ns, rtt_ns
from iscsitrace.measure.session import Session, frames_in
from iscsitrace.measure.workload import MIN_TASKS, MOST
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]


@dataclass(frozen=True)
class _Grant:
    """R2Ts in the order of their commands, each with the earliest time at which the target could have sent it."""

    table: Table
    row: Array
    """Row of the command in ``cycles``."""
    asked: Array
    """Earliest time for the R2T with no RTT: the command, or the end of the preceding burst."""
    granted: Array
    data_first: Array
    is_first: Array
    is_whole: Array
    """Whether all these times are known, and the R2T came after what it had to wait for."""


def _grants(subject: Session) -> _Grant:
    rounds = _ordered(subject.tables["rounds"])
    return _granted(rounds, subject.cycles, subject.rows_of(rounds.raw("cycle")))


def _all_grants(facts: Facts) -> tuple[_Grant, Array]:
    """Those of all sessions, and the session of each."""
    rounds, cycles = _ordered(facts.table("rounds")), facts.table("cycles")
    row = rounds.raw("cycle").astype(np.intp)
    place = facts.places("cycles")[row]
    if not (place >= 0).all():
        rounds, row, place = rounds.select(place >= 0), row[place >= 0], place[place >= 0]
    return _granted(rounds, cycles, row), place


def _ordered(rounds: Table) -> Table:
    order = by_subject.in_order(*(rounds.raw(name).astype(np.int64) for name in ("cycle", "r2t_sn")))
    return rounds.select(order)


def _granted(rounds: Table, cycles: Table, row: Array) -> _Grant:
    """The R2Ts in the order of their commands, whose rows in ``cycles`` these are."""
    is_first = np.ones(len(row), dtype=bool)
    is_first[1:] = row[1:] != row[:-1]
    command, has_command = cycles.raw("command_last_ns"), known(cycles, "command_last_ns")
    before, has_before = np.roll(rounds.raw("data_last_ns"), 1), np.roll(known(rounds, "data_last_ns"), 1)
    asked = np.where(is_first, command[row], before)
    granted, data_first = rounds.raw("r2t_ns"), rounds.raw("data_first_ns")
    is_whole = np.where(is_first, has_command[row], has_before)
    is_whole &= known(rounds, "r2t_ns") & known(rounds, "data_first_ns")
    is_whole &= (granted >= asked) & (~is_first | (rounds.raw("r2t_sn") == 0))
    return _Grant(rounds, row, asked, granted, data_first, is_first, is_whole)


def _negotiated(subject: Session, *keys: str) -> str:
    """`` (InitialR2T=Yes, ...)``: the negotiated parameters, where they are known."""
    rows = subject.tables["parameters"].rows(("key", "effective_target"))
    values = {row["key"]: row["effective_target"] for row in rows}
    known_keys = [f"{key}={values[key]}" for key in keys if values.get(key) is not None]
    return f" ({', '.join(known_keys)})" if known_keys else ""


# --- r2t_rounds

MAX_BURST_BYTES: Final = 16_776_192
"""Advised MaxBurstLength: the largest that LIO accepts."""
OUTSTANDING_R2TS: Final = 8
"""Advised MaxOutstandingR2T: enough for a write of eight bursts without a wait."""


def _claimed(facts: Facts, place: Array, starts: Array, ends: Array, part: str) -> Found:
    """The time in this part within these intervals of each session, where there are enough of them."""
    may_be = np.bincount(place, minlength=len(facts)) >= MIN_TASKS
    may_be &= facts.share(facts.part_ns(part)) >= WORTH_A_CHANGE
    if not may_be.any():
        return Found(may_be, np.zeros(len(facts)))
    waits = all_waits.of_parts(facts, part)
    cost_ns = all_waits.claimed_ns(facts, waits, place, starts, ends)
    ranks: dict[Rank, Array] = {"note": facts.once(path_ns) < NEAR_NS} if part == "propagation" else {}
    return Found(may_be & (facts.share(cost_ns) >= WORTH_A_CHANGE), cost_ns, ranks)


def _further(facts: Facts) -> Found:
    grants, place = facts.once(_all_grants)
    which = grants.is_whole & ~grants.is_first
    return _claimed(facts, place[which], grants.asked[which], grants.data_first[which], "propagation")


def _rounds(case: Case) -> Observation | None:
    subject, grants = case.subject, case.once(_grants)
    further = grants.is_whole & ~grants.is_first
    per_task = np.bincount(grants.row[further], minlength=len(subject.cycles)) + 1
    most = int(np.argmax(per_task))
    bursts = grants.table.raw("desired_data_transfer_length")[further]
    size = int(subject.cycles.raw("bytes")[most])
    return Observation(
        f"A {wording.size(size)} write needs {per_task[most]} R2Ts, one after another, for bursts of "
        f"{wording.size(int(np.median(bursts)))}{_negotiated(subject, 'MaxBurstLength', 'MaxOutstandingR2T')}.",
        frames_in(grants.table, np.flatnonzero(grants.row == most), "r2t_frame", "data_last_frame"),
    )


def _larger_bursts(basis: Basis) -> Iterator[Change]:
    change = partial(Situation.with_keys, max_burst_bytes=MAX_BURST_BYTES)
    yield Change(f"MaxBurstLength={MAX_BURST_BYTES}", change, OF_R2TS)


def _more_r2ts(basis: Basis) -> Iterator[Change]:
    outstanding = max(OUTSTANDING_R2TS, basis.measured.situation.setting.solicitation.max_outstanding_r2t)
    yield Change(
        f"MaxOutstandingR2T={outstanding}", partial(Situation.with_keys, max_outstanding_r2t=outstanding), OF_R2TS
    )


R2T_ROUNDS: Final = Problem(
    name="r2t_rounds",
    meaning="Writes need several R2Ts, one after another: each further R2T costs one RTT in which no data is sent.",
    condition=f"The time from the end of a burst to the first data of the next R2T takes {WORTH} in network RTT, for "
    f"at least {MIN_TASKS} further R2Ts. An R2T that arrives before the preceding burst has ended costs nothing.",
    evidence="The R2Ts and bursts of the write with the most R2Ts. The share is the time waited.",
    example="A 256 KiB write needs 4 R2Ts, one after another, for bursts of 64 KiB (MaxBurstLength=65536, "
    "MaxOutstandingR2T=1).",
    # four R2Ts one after another, or at once
    shown_by=f"{WRITES} --key MaxBurstLength=65536",
    near_miss=f"{WRITES} --key MaxBurstLength=65536 --key MaxOutstandingR2T=4 --set target-key=MaxOutstandingR2T=4",
    explains=Explains("propagation", 3, WORTH_A_CHANGE),
    rank="limit",
    limited_by="round trips for R2Ts",
    advice=(
        Advice(
            "Use fewer, larger bursts: node.session.iscsi.MaxBurstLength in open-iscsi and "
            f"`targetcli /iscsi/IQN/tpg1 set parameter MaxBurstLength={MAX_BURST_BYTES}` on LIO; the smaller value "
            "applies.",
            _larger_bursts,
            touches=NEXT_LOGIN,
        ),
        Advice(
            f"Allow more R2Ts at once: `targetcli /iscsi/IQN/tpg1 set parameter MaxOutstandingR2T={OUTSTANDING_R2TS}` "
            "(open-iscsi offers 1: node.session.iscsi.MaxOutstandingR2T).",
            _more_r2ts,
            touches=NEXT_LOGIN,
        ),
        Advice(RAISE_QUEUE_DEPTH, next_queue_depth, only_if=issues_in_parallel),
    ),
    where=_further,
    tell=_rounds,
)


# --- r2t_late

LATE_R2T_NS: Final = MILLISECOND_NS
"""Time beyond the RTT from which an R2T is late: a target with free buffers answers at once, and a time slice of its
scheduler is milliseconds."""


def _granted_late(facts: Facts) -> Found:
    grants, place = facts.once(_all_grants)
    path_ns = rtt_ns(facts, "target")[place]
    which = (path_ns >= 0) & _is_late(grants, path_ns)
    asked_ns = grants.asked + path_ns
    return _claimed(facts, place[which], asked_ns[which], grants.granted[which], "target_service")


def _is_late(grants: _Grant, path_ns: Array | int) -> Array:
    return np.asarray(grants.is_whole & (grants.granted - grants.asked > path_ns + LATE_R2T_NS))


def _sends_unasked(case: Case) -> bool:
    """Whether data went out before an R2T asked for it."""
    cycles = case.subject.cycles
    return bool((cycles.each(_is_write) & ~cycles.each(_asks_first)).any())


def _late(case: Case) -> Observation | None:
    subject, grants = case.subject, case.once(_grants)
    path_ns = subject.rtt_ns("target") or 0
    late = _is_late(grants, path_ns)
    by_how_much = np.where(late, grants.granted - grants.asked - path_ns, 0)
    latest = np.argsort(-by_how_much, kind="stable")[:3]
    commands = frames_in(subject.cycles, grants.row[latest], "command_frame")
    return Observation(
        f"The target sent {int(late.sum())} of {wording.count(len(late), 'R2T')} late: typically "
        f"{wording.time(float(np.median(by_how_much[late])))} after they were due, at most "
        f"{wording.time(by_how_much.max())}.",
        [*commands, *frames_in(grants.table, latest, "r2t_frame")],
    )


def _in_time(basis: Basis) -> Iterator[Change]:
    late = (basis.finding.cost_ns or 0) / max(1, basis.measured.parts_ns["target_service"])
    yield Change(
        "no late R2Ts", partial(Situation.without, name="target_service", share=min(1.0, late)), ("target_service",)
    )


R2T_LATE: Final = Problem(
    name="r2t_late",
    meaning="The target sends R2Ts late: writes wait for an R2T longer than the RTT, often because the target is busy "
    "with unsolicited data of other writes.",
    condition=f"Waits for an R2T beyond the RTT to the target take {WORTH} in target service, and at least {MIN_TASKS} "
    f"R2Ts are more than {LATE_R2T_NS / MILLISECOND_NS:g} ms late.",
    evidence="Command and R2T of the three latest R2Ts. The share is the time waited.",
    example="The target sent 16 of 16 R2Ts late: typically 20.0 ms after they were due, at most 20.0 ms.",
    # 20 ms late, or 0.5 ms
    shown_by=f"{WRITES} --fault late-r2t,every=1,by=20ms",
    near_miss=f"{WRITES} --fault late-r2t,every=1,by=0.5ms",
    explains=Explains("target_service", 2, WORTH_A_CHANGE),
    advice=(
        Advice(
            "Check the target: memory for write buffers, the backing device (iostat), other initiators.",
            _in_time,
        ),
        Advice(
            "Send less unsolicited data: a smaller node.session.iscsi.FirstBurstLength, or "
            "node.session.iscsi.ImmediateData = No. The target then receives data only as fast as it sends R2Ts.",
            only_if=_sends_unasked,
            touches=NEXT_LOGIN,
        ),
        Advice(
            "If the target is the bottleneck, keep fewer writes in flight: node.session.queue_depth.",
            only_if=issues_in_parallel,
            touches=NEXT_LOGIN,
        ),
    ),
    where=_granted_late,
    tell=_late,
)


# --- unsolicited_data_unused


def _is_write(cycles: Table) -> Array:
    return np.asarray(cycles.raw("is_write") & (cycles.raw("data_bytes") > 0))


def _asks_first(cycles: Table) -> Array:
    """Which writes sent no data before the first R2T."""
    is_without = (cycles.raw("immediate_bytes") == 0) & (cycles.raw("unsolicited_bytes") == 0)
    return np.asarray(cycles.each(_is_write) & is_without)


def _waits_for_first(grants: _Grant, cycles: Table) -> tuple[Array, Array, Array]:
    """Which R2Ts such a write waited for, from when until when."""
    which = grants.is_whole & grants.is_first & cycles.each(_asks_first)[grants.row]
    return which, cycles.raw("command_first_ns")[grants.row[which]], grants.data_first[which]


def _asked_first(facts: Facts) -> Found:
    without, writes = (facts.count("cycles", which) for which in (_asks_first, _is_write))
    is_usual = (without > 0) & (without >= MOST * writes)
    if not is_usual.any():
        return Found(is_usual)
    grants, place = facts.once(_all_grants)
    which, starts, ends = _waits_for_first(grants, facts.table("cycles"))
    found = _claimed(facts, place[which], starts, ends, "propagation")
    return replace(found, is_found=found.is_found & is_usual)


def _unused(case: Case) -> Observation | None:
    subject, grants = case.subject, case.once(_grants)
    cycles = subject.cycles
    is_write, asks_first = cycles.each(_is_write), cycles.each(_asks_first)
    waits, starts, ends = _waits_for_first(grants, cycles)
    rows = np.flatnonzero(waits)[np.argsort(starts - ends, kind="stable")[:3]]
    commands = frames_in(cycles, grants.row[rows], "command_frame")
    return Observation(
        f"{int(asks_first.sum())} of {wording.count(int(is_write.sum()), 'write')} waited for an R2T before they sent "
        f"data{_negotiated(subject, 'InitialR2T', 'ImmediateData', 'FirstBurstLength')}.",
        [*commands, *frames_in(grants.table, rows, "r2t_frame", "data_first_frame")],
    )


def _unsolicited(basis: Basis) -> Iterator[Change]:
    yield Change("ImmediateData=Yes and InitialR2T=No", _with_unsolicited, OF_R2TS)


def _larger_first_burst(basis: Basis) -> Iterator[Change]:
    setting, asked = basis.measured.situation.setting, basis.case.subject.workload
    # where sizes are mixed, the one that moved most bytes
    block = asked.block_bytes if asked else setting.block_bytes
    if block > setting.solicitation.first_burst_bytes:
        burst = max(block, setting.solicitation.max_burst_bytes)
        yield Change(
            f"ImmediateData=Yes, InitialR2T=No and FirstBurstLength={block}",
            lambda situation: _with_unsolicited(situation).with_keys(first_burst_bytes=block, max_burst_bytes=burst),
            OF_R2TS,
        )


def _with_unsolicited(situation: Situation) -> Situation:
    return situation.with_keys(is_initial_r2t=False, is_immediate_data=True)


UNSOLICITED_DATA_UNUSED: Final = Problem(
    name="unsolicited_data_unused",
    meaning="Writes send no data before the first R2T and wait one RTT for it, because InitialR2T and ImmediateData "
    "(or a target that solicits all data) do not allow unsolicited data.",
    condition=f"At least {wording.percent(MOST)} of the writes sent no immediate and no unsolicited data, and the "
    f"waits for the first R2T take {WORTH} in network RTT, in at least {MIN_TASKS} writes.",
    evidence="Command, R2T and first data of the three longest waits. The share is the time waited.",
    example="64 of 64 writes waited for an R2T before they sent data (InitialR2T=Yes, ImmediateData=No, "
    "FirstBurstLength=65536).",
    # the first 64 KiB after an R2T, or with the command
    shown_by=f"write --block-size 64K --bytes 4M {R2T_ONLY} {WAN}",
    near_miss=f"write --block-size 64K --bytes 4M --key ImmediateData=Yes --key InitialR2T=No {WAN}",
    explains=Explains("propagation", 2, WORTH_A_CHANGE),
    rank="limit",
    limited_by="round trips for R2Ts",
    advice=(
        Advice(
            "Send data with the command: node.session.iscsi.ImmediateData = Yes and node.session.iscsi.InitialR2T "
            "= No in open-iscsi, `targetcli /iscsi/IQN/tpg1 set parameter ImmediateData=Yes` and `InitialR2T=No` on "
            "LIO.",
            _unsolicited,
            touches=NEXT_LOGIN,
        ),
        Advice(
            "Raise the limit of unsolicited data: node.session.iscsi.FirstBurstLength and FirstBurstLength of the "
            "target. The target's MaxRecvDataSegmentLength also limits immediate data.",
            _larger_first_burst,
            touches=NEXT_LOGIN,
        ),
    ),
    where=_asked_first,
    tell=_unused,
)
