"""Problems of writes that ask for leave: R2Ts in rounds, R2Ts that come late, and data that could have gone unasked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.findings.case import Case, is_worth
from iscsitrace.analysis.findings.concurrency import next_queue_depth
from iscsitrace.analysis.findings.finding import Advice, Basis, Change, Explains, Observation, Problem
from iscsitrace.analysis.findings.thresholds import MILLISECOND_NS, WORTH
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.session.situation import Situation
from iscsitrace.analysis.session.subject import Subject, frames_in
from iscsitrace.analysis.session.workload import MIN_TASKS, MOST
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]


@dataclass(frozen=True)
class _Grant:
    """R2Ts with what the target could have granted them at, in the order of their tasks."""

    table: Table
    row: Array
    """Place of the task in ``cycles``."""
    asked: Array
    """When the target could have sent it, had it been next door: the command, or the end of the burst before."""
    granted: Array
    data_first: Array
    is_first: Array
    is_whole: Array
    """All of these moments are known, and the R2T came after what it had to wait for."""


def _grants(subject: Subject) -> _Grant | None:
    rounds = subject.tables["rounds"]
    if not len(rounds) or not len(subject.cycles):
        return None
    rounds = rounds.select(np.lexsort((rounds.raw("r2t_sn"), rounds.raw("cycle"))))
    row = subject.rows_of(rounds.raw("cycle"))
    is_first = np.ones(len(row), dtype=bool)
    is_first[1:] = row[1:] != row[:-1]
    command, has_command = subject.cycles.raw("command_last_ns"), known(subject.cycles, "command_last_ns")
    before, has_before = np.roll(rounds.raw("data_last_ns"), 1), np.roll(known(rounds, "data_last_ns"), 1)
    asked = np.where(is_first, command[row], before)
    granted, data_first = rounds.raw("r2t_ns"), rounds.raw("data_first_ns")
    is_whole = np.where(is_first, has_command[row], has_before)
    is_whole &= known(rounds, "r2t_ns") & known(rounds, "data_first_ns")
    is_whole &= (granted >= asked) & (~is_first | (rounds.raw("r2t_sn") == 0))
    return _Grant(rounds, row, asked, granted, data_first, is_first, is_whole)


def _in_force(subject: Subject, *keys: str) -> str:
    """`` (InitialR2T=Yes, ...)``: the keys as agreed, where they are known."""
    rows = subject.tables["parameters"].rows(("key", "effective_target"))
    values = {row["key"]: row["effective_target"] for row in rows}
    known_keys = [f"{key}={values[key]}" for key in keys if values.get(key) is not None]
    return f" ({', '.join(known_keys)})" if known_keys else ""


# --- r2t_rounds

MAX_BURST_BYTES: Final = 16_776_192
"""The MaxBurstLength that is advised: the largest that LIO takes."""
OUTSTANDING_R2TS: Final = 8
"""The MaxOutstandingR2T that is advised."""


def _rounds(case: Case) -> Observation | None:
    subject, grants = case.subject, case.once(_grants)
    if grants is None:
        return None
    further = grants.is_whole & ~grants.is_first
    if further.sum() < MIN_TASKS:
        return None
    lost_ns = subject.claimed_ns(grants.asked[further], grants.data_first[further], "propagation")
    if not is_worth(subject, lost_ns):
        return None
    per_task = np.bincount(grants.row[further], minlength=len(subject.cycles)) + 1
    most = int(np.argmax(per_task))
    bursts = grants.table.raw("desired_data_transfer_length")[further]
    size = int(subject.cycles.raw("bytes")[most])
    return Observation(
        f"a write of {wording.size(size)} asks {per_task[most]} times for leave to send, one R2T after another, for "
        f"bursts of {wording.size(int(np.median(bursts)))}{_in_force(subject, 'MaxBurstLength', 'MaxOutstandingR2T')}",
        frames_in(grants.table, np.flatnonzero(grants.row == most), "r2t_frame", "data_last_frame"),
        lost_ns,
    )


def _larger_bursts(basis: Basis) -> Iterator[Change]:
    change = partial(Situation.with_keys, max_burst_bytes=MAX_BURST_BYTES)
    yield Change(f"MaxBurstLength={MAX_BURST_BYTES}", change)


def _more_r2ts(basis: Basis) -> Iterator[Change]:
    outstanding = max(OUTSTANDING_R2TS, basis.measured.situation.setting.solicitation.max_outstanding_r2t)
    yield Change(f"MaxOutstandingR2T={outstanding}", partial(Situation.with_keys, max_outstanding_r2t=outstanding))


R2T_ROUNDS: Final = Problem(
    name="r2t_rounds",
    meaning="Writes ask for leave several times, one after another: each R2T costs a round trip in which nothing is "
    "sent.",
    condition=f"The time between the end of a burst and the next R2T's own first data takes {WORTH} in `propagation`, "
    f"over {MIN_TASKS} further R2Ts or more. R2Ts that come before the burst before them has ended cost nothing.",
    evidence="The R2Ts and bursts of the write with most rounds. The share is that waiting.",
    explains=Explains("propagation", 3),
    advice=(
        Advice(
            "Fewer, larger bursts: node.session.iscsi.MaxBurstLength in open-iscsi and "
            f"`targetcli /iscsi/IQN/tpg1 set parameter MaxBurstLength={MAX_BURST_BYTES}` on LIO; the smaller of both "
            "is in force.",
            _larger_bursts,
        ),
        Advice(
            f"More R2Ts at once: `targetcli /iscsi/IQN/tpg1 set parameter MaxOutstandingR2T={OUTSTANDING_R2TS}` "
            "(open-iscsi asks for 1: node.session.iscsi.MaxOutstandingR2T).",
            _more_r2ts,
        ),
        Advice("More writes outstanding hide the rounds of each: node.session.queue_depth.", next_queue_depth),
    ),
    observe=_rounds,
)


# --- r2t_late

LATE_R2T_NS: Final = MILLISECOND_NS
"""What a target may take to grant, beyond the path, without being late: memory is free at once, and a scheduler's time
slice is milliseconds."""


def _late(case: Case) -> Observation | None:
    subject, grants = case.subject, case.once(_grants)
    path_ns = subject.rtt_ns("target")
    if grants is None or path_ns is None:
        return None
    late = grants.is_whole & (grants.granted - grants.asked > path_ns + LATE_R2T_NS)
    if late.sum() < MIN_TASKS:
        return None
    lost_ns = subject.claimed_ns(grants.asked[late] + path_ns, grants.granted[late], "target_service")
    if not is_worth(subject, lost_ns):
        return None
    by_how_much = np.where(late, grants.granted - grants.asked - path_ns, 0)
    latest = np.argsort(-by_how_much, kind="stable")[:3]
    commands = frames_in(subject.cycles, grants.row[latest], "command_frame")
    return Observation(
        f"{int(late.sum())} of {wording.count(len(late), 'R2T')} came late, half of them by over "
        f"{wording.time(float(np.median(by_how_much[late])))} beyond the path, the last by "
        f"{wording.time(by_how_much.max())}",
        [*commands, *frames_in(grants.table, latest, "r2t_frame")],
        lost_ns,
    )


def _in_time(basis: Basis) -> Iterator[Change]:
    late = (basis.finding.cost_ns or 0) / max(1, basis.measured.parts_ns["target_service"])
    yield Change("R2Ts in time", partial(Situation.without, name="target_service", share=min(1.0, late)))


R2T_LATE: Final = Problem(
    name="r2t_late",
    meaning="The target grants late: writes wait for their R2T longer than the path explains, often because the "
    "target is still busy with data that others sent unasked.",
    condition=f"Waits for an R2T beyond the round trip to the target take {WORTH} in `target_service`, and "
    f"{MIN_TASKS} R2Ts or more are over {LATE_R2T_NS / MILLISECOND_NS:g} ms late.",
    evidence="Command and R2T of the three latest. The share is that waiting.",
    explains=Explains("target_service", 1),
    advice=(
        Advice(
            "Look at the target: its memory for write buffers, its backing device (iostat there), other initiators.",
            _in_time,
        ),
        Advice(
            "Send less unasked: node.session.iscsi.FirstBurstLength smaller, or node.session.iscsi.ImmediateData = "
            "No; grants then come in the order in which the target can take the data."
        ),
        Advice("Fewer writes at once if the target is the narrow place: node.session.queue_depth."),
    ),
    observe=_late,
)


# --- unsolicited_data_unused


def _unused(case: Case) -> Observation | None:
    subject, grants = case.subject, case.once(_grants)
    if grants is None:
        return None
    cycles = subject.cycles
    is_write = cycles.raw("is_write") & (cycles.raw("data_bytes") > 0)
    asks_first = is_write & (cycles.raw("immediate_bytes") == 0) & (cycles.raw("unsolicited_bytes") == 0)
    waits = grants.is_whole & grants.is_first & asks_first[grants.row]
    if waits.sum() < MIN_TASKS or asks_first.sum() < MOST * is_write.sum():
        return None
    starts, ends = cycles.raw("command_first_ns")[grants.row[waits]], grants.data_first[waits]
    lost_ns = subject.claimed_ns(starts, ends, "propagation")
    if not is_worth(subject, lost_ns):
        return None
    rows = np.flatnonzero(waits)[np.argsort(starts - ends, kind="stable")[:3]]
    commands = frames_in(cycles, grants.row[rows], "command_frame")
    return Observation(
        f"{int(asks_first.sum())} of {wording.count(int(is_write.sum()), 'write')} sent nothing before their first R2T"
        + _in_force(subject, "InitialR2T", "ImmediateData", "FirstBurstLength"),
        [*commands, *frames_in(grants.table, rows, "r2t_frame", "data_first_frame")],
        lost_ns,
    )


def _unsolicited(basis: Basis) -> Iterator[Change]:
    yield Change("ImmediateData=Yes and InitialR2T=No", _with_unsolicited)


def _larger_first_burst(basis: Basis) -> Iterator[Change]:
    setting, asked = basis.measured.situation.setting, basis.case.subject.workload
    # of blocks of several sizes the one that carries most
    block = asked.block_bytes if asked else setting.block_bytes
    if block > setting.solicitation.first_burst_bytes:
        burst = max(block, setting.solicitation.max_burst_bytes)
        yield Change(
            f"FirstBurstLength={block} beside that",
            lambda situation: _with_unsolicited(situation).with_keys(first_burst_bytes=block, max_burst_bytes=burst),
        )


def _with_unsolicited(situation: Situation) -> Situation:
    return situation.with_keys(is_initial_r2t=False, is_immediate_data=True)


UNSOLICITED_DATA_UNUSED: Final = Problem(
    name="unsolicited_data_unused",
    meaning="Writes send nothing before their first R2T, and pay a round trip for leave, because InitialR2T and "
    "ImmediateData (or a target that asks for all) do not let data go with the command.",
    condition=f"{wording.percent(MOST)} of the writes or more sent no immediate and no unsolicited data, and their "
    f"waits for the first R2T take {WORTH} in `propagation`, over {MIN_TASKS} writes or more.",
    evidence="Command, R2T and first data of the three longest waits. The share is that waiting.",
    explains=Explains("propagation", 2),
    advice=(
        Advice(
            "Let data go with the command: node.session.iscsi.ImmediateData = Yes and node.session.iscsi.InitialR2T "
            "= No in open-iscsi, `targetcli /iscsi/IQN/tpg1 set parameter ImmediateData=Yes` and `InitialR2T=No` on "
            "LIO.",
            _unsolicited,
        ),
        Advice(
            "How much: node.session.iscsi.FirstBurstLength and FirstBurstLength of the target; immediate data is "
            "bounded by the target's MaxRecvDataSegmentLength, too.",
            _larger_first_burst,
        ),
    ),
    observe=_unused,
)

PROBLEMS: Final = (R2T_ROUNDS, R2T_LATE, UNSOLICITED_DATA_UNUSED)
