"""The command window (RFC 7143 section 4.2.2.1): commands that the target had no room for."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.findings.case import Case
from iscsitrace.analysis.findings.finding import Advice, Observation, Problem
from iscsitrace.analysis.findings.thresholds import MILLISECOND_NS
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.session.subject import frames_in
from iscsitrace.analysis.session.workload import MIN_TASKS
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]

COMMAND_WINDOW_TASKS: Final = 0.1
"""Share of the commands that came only once the target had opened its command window: one in ten has waited for it."""

PROMPT_NS: Final = MILLISECOND_NS
"""How long before a command its window has to have been closed for the command to have waited: a thread that is woken
by the PDU that makes room needs less."""


def _closed(case: Case) -> Observation | None:
    subject, cycles = case.subject, case.subject.cycles
    if len(cycles) < MIN_TASKS:
        return None
    commands = _in_order(cycles.raw("command_first_ns"), known(cycles, "cmd_sn"))
    statuses = _in_order(cycles.raw("status_ns"), known(cycles, "max_cmd_sn") & known(cycles, "status_ns"))
    if not len(commands) or not len(statuses):
        return None
    sent_at, answered_at = cycles.raw("command_first_ns")[commands], cycles.raw("status_ns")[statuses]
    first = cycles.raw("cmd_sn")[commands[0]]
    number = _after(cycles.raw("cmd_sn")[commands], first)
    asked = np.maximum.accumulate(number)
    allowed = np.maximum.accumulate(_after(cycles.raw("max_cmd_sn")[statuses], first))
    # what the initiator had sent and knew a moment before each command; at the tap it answers a round trip later
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
        f"{count} of {len(commands)} commands came only when the target had made room (MaxCmdSN), with at most "
        f"{outstanding} outstanding",
        [*frames_in(cycles, opened_by, "status_frame"), *frames_in(cycles, commands[shown], "command_frame")],
    )


def _in_order(times: Array, which: Array) -> Array:
    """Places of these rows in order of time."""
    places = np.flatnonzero(which)
    return np.asarray(places[np.argsort(times[places], kind="stable")])


def _after(numbers: Array, first: int) -> Array:
    """Serial numbers as distances from one of them, before it negative (RFC 1982)."""
    distance = (numbers.astype(np.int64) - int(first)) & 0xFFFF_FFFF
    return np.where(distance >= 1 << 31, distance - (1 << 32), distance)


COMMAND_WINDOW_CLOSED: Final = Problem(
    name="command_window_closed",
    meaning="The target takes no more commands (MaxCmdSN): the initiator has more to ask for and has to wait.",
    condition=f"{wording.percent(COMMAND_WINDOW_TASKS)} of the commands or more, and {MIN_TASKS} at least, came after "
    f"the window had been closed until {PROMPT_NS / MILLISECOND_NS:g} ms before.",
    evidence="The statuses that made room, and the commands that followed. It has no share: what is outstanding "
    "meanwhile may keep the line busy.",
    severity="warning",
    # all connections of a session share CmdSN
    is_session_only=True,
    advice=(
        Advice(
            "`targetcli /iscsi/IQN/tpg1 set attribute default_cmdsn_depth=128` on LIO (64 is its default; log in "
            "again)."
        ),
        Advice(
            "If latency matters more than throughput, ask for less instead: node.session.queue_depth below the window."
        ),
    ),
    observe=_closed,
)

PROBLEMS: Final = (COMMAND_WINDOW_CLOSED,)
