"""Diseases of writes that ask for leave: R2Ts in rounds, R2Ts that come late, and data that could have gone unasked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import LATE_R2T_NS, MIN_TASKS, MOST
from iscsitrace.analysis.session.subject import Subject, frames_in, known
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


def find(subject: Subject) -> Iterator[Finding]:
    """r2t_rounds, r2t_late and unsolicited_data_unused."""
    grants = _grants(subject)
    if grants is None:
        return
    yield from _rounds(subject, grants)
    yield from _late(subject, grants)
    yield from _unused(subject, grants)


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


def _rounds(subject: Subject, grants: _Grant) -> Iterator[Finding]:
    further = grants.is_whole & ~grants.is_first
    if further.sum() < MIN_TASKS:
        return
    lost_ns = subject.claimed_ns(grants.asked[further], grants.data_first[further], "propagation")
    if not subject.is_worth(lost_ns):
        return
    per_task = np.bincount(grants.row[further], minlength=len(subject.cycles)) + 1
    most = int(np.argmax(per_task))
    bursts = grants.table.raw("desired_data_transfer_length")[further]
    size = int(subject.cycles.raw("bytes")[most])
    frames = frames_in(grants.table, np.flatnonzero(grants.row == most), "r2t_frame", "data_last_frame")
    yield subject.finding(
        "r2t_rounds",
        lost_ns,
        f"a write of {wording.size(size)} asks {per_task[most]} times for leave to send, one R2T after another, for "
        f"bursts of {wording.size(int(np.median(bursts)))}{_in_force(subject, 'MaxBurstLength', 'MaxOutstandingR2T')}",
        frames,
    )


def _late(subject: Subject, grants: _Grant) -> Iterator[Finding]:
    path_ns = subject.rtt_ns("target")
    if path_ns is None:
        return
    late = grants.is_whole & (grants.granted - grants.asked > path_ns + LATE_R2T_NS)
    if late.sum() < MIN_TASKS:
        return
    lost_ns = subject.claimed_ns(grants.asked[late] + path_ns, grants.granted[late], "target_service")
    if not subject.is_worth(lost_ns):
        return
    by_how_much = np.where(late, grants.granted - grants.asked - path_ns, 0)
    latest = np.argsort(-by_how_much, kind="stable")[:3]
    commands = frames_in(subject.cycles, grants.row[latest], "command_frame")
    yield subject.finding(
        "r2t_late",
        lost_ns,
        f"{int(late.sum())} of {wording.count(len(late), 'R2T')} came late, half of them by over "
        f"{wording.time(float(np.median(by_how_much[late])))} beyond the path, the last by "
        f"{wording.time(by_how_much.max())}",
        [*commands, *frames_in(grants.table, latest, "r2t_frame")],
    )


def _unused(subject: Subject, grants: _Grant) -> Iterator[Finding]:
    cycles = subject.cycles
    is_write = cycles.raw("is_write") & (cycles.raw("data_bytes") > 0)
    asks_first = is_write & (cycles.raw("immediate_bytes") == 0) & (cycles.raw("unsolicited_bytes") == 0)
    waits = grants.is_whole & grants.is_first & asks_first[grants.row]
    if waits.sum() < MIN_TASKS or asks_first.sum() < MOST * is_write.sum():
        return
    starts, ends = cycles.raw("command_first_ns")[grants.row[waits]], grants.data_first[waits]
    lost_ns = subject.claimed_ns(starts, ends, "propagation")
    if not subject.is_worth(lost_ns):
        return
    rows = np.flatnonzero(waits)[np.argsort(starts - ends, kind="stable")[:3]]
    commands = frames_in(cycles, grants.row[rows], "command_frame")
    yield subject.finding(
        "unsolicited_data_unused",
        lost_ns,
        f"{int(asks_first.sum())} of {wording.count(int(is_write.sum()), 'write')} sent nothing before their first R2T"
        + _in_force(subject, "InitialR2T", "ImmediateData", "FirstBurstLength"),
        [*commands, *frames_in(grants.table, rows, "r2t_frame", "data_first_frame")],
    )


def _in_force(subject: Subject, *keys: str) -> str:
    """`` (InitialR2T=Yes, ...)``: the keys as agreed, where they are known."""
    rows = subject.tables["parameters"].rows(("key", "effective_target"))
    values = {row["key"]: row["effective_target"] for row in rows}
    known_keys = [f"{key}={values[key]}" for key in keys if values.get(key) is not None]
    return f" ({', '.join(known_keys)})" if known_keys else ""
