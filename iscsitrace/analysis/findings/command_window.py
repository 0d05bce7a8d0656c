"""The command window (RFC 7143 section 4.2.2.1): commands that waited for it to open."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.findings.case import Case
from iscsitrace.analysis.findings.finding import Advice, Observation, Problem
from iscsitrace.analysis.findings.hosts import has_commands
from iscsitrace.analysis.findings.thresholds import MILLISECOND_NS
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.session.columns import Columns
from iscsitrace.analysis.session.session import frames_in
from iscsitrace.analysis.session.workload import MIN_TASKS
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]

COMMAND_WINDOW_TASKS: Final = 0.1
"""Least share of the commands that waited for the command window to open: one in ten delays the others."""

PROMPT_NS: Final = MILLISECOND_NS
"""Longest time from the opening of the window to a command that waited for it: a thread that the PDU wakes needs
less."""


def _may_close(columns: Columns) -> Array:
    """Where a command has a CmdSN beyond the MaxCmdSN of some status."""
    cycles, places = columns.table("cycles"), columns.places("cycles")
    is_sent, has_window = (known(cycles, name) & (places >= 0) for name in ("cmd_sn", "max_cmd_sn"))
    first = np.zeros(len(columns), dtype=np.int64)
    first[places[is_sent][::-1]] = cycles.raw("cmd_sn")[is_sent][::-1]
    limits = np.iinfo(np.int64)
    last, least = np.full(len(columns), limits.min), np.full(len(columns), limits.max)
    np.maximum.at(last, places[is_sent], _after(cycles.raw("cmd_sn")[is_sent], first[places[is_sent]]))
    np.minimum.at(least, places[has_window], _after(cycles.raw("max_cmd_sn")[has_window], first[places[has_window]]))
    return (last > least) & has_commands(columns)


def _closed(case: Case) -> Observation | None:
    subject, cycles = case.subject, case.subject.cycles
    commands = _in_order(cycles.raw("command_first_ns"), known(cycles, "cmd_sn"))
    statuses = _in_order(cycles.raw("status_ns"), known(cycles, "max_cmd_sn") & known(cycles, "status_ns"))
    if not len(commands) or not len(statuses):
        return None
    sent_at, answered_at = cycles.raw("command_first_ns")[commands], cycles.raw("status_ns")[statuses]
    first = int(cycles.raw("cmd_sn")[commands[0]])
    number = _after(cycles.raw("cmd_sn")[commands], first)
    asked = np.maximum.accumulate(number)
    allowed = np.maximum.accumulate(_after(cycles.raw("max_cmd_sn")[statuses], first))
    if asked[-1] <= allowed[0]:
        # the window that the first status left was never full
        return None
    # what the initiator had sent and knew shortly before each command; at the tap its answer is an RTT later
    before = sent_at - PROMPT_NS
    sent = np.searchsorted(sent_at, before, side="right")
    read = np.searchsorted(answered_at, before - (subject.rtt_ns("initiator") or 0), side="right")
    waited = (sent > 0) & (read > 0) & (allowed[read - 1] <= asked[sent - 1]) & (allowed[read - 1] < number)
    count = int(waited.sum())
    if count < max(MIN_TASKS, COMMAND_WINDOW_TASKS * len(commands)):
        return None
    shown = np.flatnonzero(waited)[:3]
    opened_by = statuses[np.searchsorted(allowed, number[shown]).clip(max=len(statuses) - 1)]
    outstanding = int(cycles.raw("queue_depth").max())
    return Observation(
        f"{count} of {len(commands)} commands waited for the command window to open (MaxCmdSN), with at most "
        f"{outstanding} commands in flight",
        [*frames_in(cycles, opened_by, "status_frame"), *frames_in(cycles, commands[shown], "command_frame")],
    )


def _in_order(times: Array, which: Array) -> Array:
    """Row numbers of these rows in order of time."""
    places = np.flatnonzero(which)
    return np.asarray(places[np.argsort(times[places], kind="stable")])


def _after(numbers: Array, first: Array | int) -> Array:
    """Serial numbers as distances from one of them, negative before it (RFC 1982)."""
    distance = (numbers.astype(np.int64) - first) & 0xFFFF_FFFF
    return np.where(distance >= 1 << 31, distance - (1 << 32), distance)


COMMAND_WINDOW_CLOSED: Final = Problem(
    name="command_window_closed",
    meaning="The target accepts no more commands (MaxCmdSN), and the initiator has more to issue: it waits.",
    condition=f"At least {wording.percent(COMMAND_WINDOW_TASKS)} of the commands, and at least {MIN_TASKS}, were sent "
    f"within {PROMPT_NS / MILLISECOND_NS:g} ms after the window opened.",
    evidence="The statuses that opened the window, and the commands that followed. No share: the commands in flight "
    "can keep the line busy meanwhile.",
    severity="warning",
    # all connections of a session share CmdSN
    is_session_only=True,
    advice=(
        Advice(
            "Open the window: `targetcli /iscsi/IQN/tpg1 set attribute default_cmdsn_depth=128` on LIO (default 64; "
            "log in again)."
        ),
        Advice("If latency matters more than throughput, set node.session.queue_depth below the window instead."),
    ),
    observe=_closed,
    needs=_may_close,
)

PROBLEMS: Final = (COMMAND_WINDOW_CLOSED,)
