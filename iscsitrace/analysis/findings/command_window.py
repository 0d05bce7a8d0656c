"""The command window (RFC 7143 section 4.2.2.1): commands that the target had no room for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import COMMAND_WINDOW_TASKS, MIN_TASKS, PROMPT_NS
from iscsitrace.analysis.session.subject import Subject, frames_in, known

Array = NDArray[Any]


def find(subject: Subject) -> Iterator[Finding]:
    """command_window_closed: only of sessions, for all connections of one share CmdSN."""
    cycles = subject.cycles
    if not subject.is_session or len(cycles) < MIN_TASKS:
        return
    commands = _in_order(cycles.raw("command_first_ns"), known(cycles, "cmd_sn"))
    statuses = _in_order(cycles.raw("status_ns"), known(cycles, "max_cmd_sn") & known(cycles, "status_ns"))
    if not len(commands) or not len(statuses):
        return
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
        return
    shown = np.flatnonzero(waited)[:3]
    opened_by = statuses[np.searchsorted(allowed, number[shown]).clip(max=len(statuses) - 1)]
    outstanding = int(cycles.raw("queue_depth").max())
    yield subject.finding(
        "command_window_closed",
        None,
        f"{count} of {len(commands)} commands came only when the target had made room (MaxCmdSN), with at most "
        f"{outstanding} outstanding",
        [*frames_in(cycles, opened_by, "status_frame"), *frames_in(cycles, commands[shown], "command_frame")],
        "warning",
    )


def _in_order(times: Array, which: Array) -> Array:
    """Places of these rows in order of time."""
    places = np.flatnonzero(which)
    return np.asarray(places[np.argsort(times[places], kind="stable")])


def _after(numbers: Array, first: int) -> Array:
    """Serial numbers as distances from one of them, before it negative (RFC 1982)."""
    distance = (numbers.astype(np.int64) - int(first)) & 0xFFFF_FFFF
    return np.where(distance >= 1 << 31, distance - (1 << 32), distance)
