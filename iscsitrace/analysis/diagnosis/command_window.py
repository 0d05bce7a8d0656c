"""The command window (RFC 7143 section 4.2.2.1): commands that the target had no room for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.diagnosis.finding import Finding
from iscsitrace.analysis.diagnosis.subject import Subject
from iscsitrace.analysis.diagnosis.thresholds import COMMAND_WINDOW_TASKS, MIN_TASKS, PROMPT_NS

Array = NDArray[Any]

_SCSI_COMMAND = 0x01


def find(subject: Subject) -> Iterator[Finding]:
    """command_window_closed: only of sessions, for all connections of one share CmdSN."""
    if not subject.is_session:
        return
    pdus = subject.tables["pdus"]
    no_number = pdus.mask("cmd_sn")
    no_limit = pdus.mask("max_cmd_sn")
    if not len(pdus) or no_number is None or no_limit is None:
        return
    is_command = (pdus.raw("opcode") == _SCSI_COMMAND) & ~pdus.raw("is_immediate") & ~no_number & pdus.raw("to_target")
    is_limit = ~no_limit & ~pdus.raw("to_target")
    commands, limits = np.flatnonzero(is_command), np.flatnonzero(is_limit)
    if len(commands) < MIN_TASKS or not len(limits):
        return
    times = pdus.raw("time_first_ns")
    limits = limits[np.argsort(times[limits], kind="stable")]
    commands = commands[np.argsort(times[commands], kind="stable")]
    first = pdus.raw("cmd_sn")[commands[0]]
    number = _after(pdus.raw("cmd_sn")[commands], first)
    asked = np.maximum.accumulate(number)
    allowed = np.maximum.accumulate(_after(pdus.raw("max_cmd_sn")[limits], first))
    # what the initiator had sent and knew a moment before each command; at the tap it answers a round trip later
    before = times[commands] - PROMPT_NS
    sent = np.searchsorted(times[commands], before, side="right")
    known = np.searchsorted(times[limits], before - (subject.rtt_ns("initiator") or 0), side="right")
    waited = (sent > 0) & (known > 0) & (allowed[known - 1] <= asked[sent - 1]) & (allowed[known - 1] < number)
    count = int(waited.sum())
    if count < max(MIN_TASKS, COMMAND_WINDOW_TASKS * len(commands)):
        return
    opened_by = np.searchsorted(allowed, number).clip(max=len(limits) - 1)
    shown = np.flatnonzero(waited)[:3]
    frames = pdus.raw("frame_first")
    pairs = [int(frames[place]) for each in shown for place in (limits[opened_by[each]], commands[each])]
    outstanding = int(subject.cycles.raw("queue_depth").max(initial=0))
    yield subject.finding(
        "command_window_closed",
        None,
        f"{count} of {len(commands)} commands came only when the target had made room (MaxCmdSN), with at most "
        f"{outstanding} outstanding",
        pairs,
        "warning",
    )


def _after(numbers: Array, first: int) -> Array:
    """Serial numbers as distances from one of them, before it negative (RFC 1982)."""
    distance = (numbers.astype(np.int64) - int(first)) & 0xFFFF_FFFF
    return np.where(distance >= 1 << 31, distance - (1 << 32), distance)
