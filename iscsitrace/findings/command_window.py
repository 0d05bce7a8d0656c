"""The command window (RFC 7143 section 4.2.2.1): commands that waited for it to open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings import breaches
from iscsitrace.findings.case import Case
from iscsitrace.findings.finding import NEXT_LOGIN, Advice, Found, Observation, Problem
from iscsitrace.findings.hosts import has_commands
from iscsitrace.findings.recipes import WAN
from iscsitrace.findings.thresholds import MILLISECOND_NS
from iscsitrace.measure import by_subject
from iscsitrace.measure.facts import Facts, commands, rtt_ns
from iscsitrace.measure.session import frames_in
from iscsitrace.measure.workload import MIN_TASKS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import first_rows, serial_distances
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]

COMMAND_WINDOW_TASKS: Final = 0.1
"""Least share of the commands that waited for the command window to open: one in ten delays the others."""

PROMPT_NS: Final = MILLISECOND_NS
"""Longest time from the opening of the window to a command that waited for it: a thread that the PDU wakes needs
less."""


def _may_close(facts: Facts, rtts_ns: Array) -> Array:
    """Where a command may have waited: where no glance shows that the window was open for each of them before.

    It was open if the command that is a window older had a status by then which allows this one; and so it always was
    for the first ones, which every status allows.
    """
    cycles = facts.table("cycles")
    rows, place, times = commands(facts)
    starts = first_rows(place)
    numbers, has_window = cycles.raw("cmd_sn")[rows].astype(np.int64), _has_window(cycles)[rows]
    first, window, least = (np.zeros(len(facts), dtype=np.int64) for _ in range(3))
    first[place[starts]] = numbers[starts]
    number, allowed = (serial_distances(each, first[place]) for each in (numbers, cycles.raw("max_cmd_sn")[rows]))
    ahead = np.where(has_window, allowed, 1 << 32)
    least[place[starts]] = np.minimum.reduceat(ahead, starts) if len(starts) else []
    window[place[starts]] = np.minimum.reduceat(ahead - number, starts) if len(starts) else []
    beyond = np.flatnonzero(number > least[place])
    own = place[beyond]
    older = (beyond - window[own]).clip(0, len(rows) - 1)
    is_open = (place[older] == own) & has_window[older] & (allowed[older] >= number[beyond])
    is_open &= cycles.raw("status_ns")[rows[older]] <= times[beyond] - PROMPT_NS - rtts_ns[own]
    # a command whose CmdSN is missing from the capture tells nothing
    in_doubt = (own[~is_open], place[~known(cycles, "cmd_sn")[rows]])
    return (np.bincount(np.concatenate(in_doubt), minlength=len(facts)) > 0) & facts.once(has_commands)


def _has_window(cycles: Table) -> Array:
    """Which commands have a status with a MaxCmdSN."""
    return known(cycles, "max_cmd_sn") & known(cycles, "status_ns")


@dataclass(frozen=True)
class _Window:
    """The commands and statuses of sessions, each session's in order of time, and the command window."""

    commands: Array
    """Rows of commands with a CmdSN."""
    place: Array
    """The session of each."""
    number: Array
    """The CmdSN of each, as a distance from the first one of its session."""
    waited: Array
    """Which waited for the window to open."""
    statuses: Array
    """Rows of statuses with a MaxCmdSN."""
    allowed: Array
    """The highest MaxCmdSN up to each, as the same distance."""


def _window(cycles: Table, places: Array, rtts_ns: Array) -> _Window:
    """``places`` are the sessions of the commands, -1 for none; ``rtts_ns`` the RTT of each to its initiator."""
    starts, ends = cycles.raw("command_first_ns"), cycles.raw("status_ns")
    sent_rows = by_subject.rows_in_order(places, starts, known(cycles, "cmd_sn"))
    statuses = by_subject.rows_in_order(places, ends, _has_window(cycles))
    place, sent_at, answered_at = places[sent_rows], starts[sent_rows], ends[statuses]
    numbers = cycles.raw("cmd_sn")[sent_rows].astype(np.int64)
    # where the rows of each session begin
    sends, reads = (np.searchsorted(each, np.arange(len(rtts_ns))) for each in (place, places[statuses]))
    firsts = np.concatenate([numbers, [0]])[sends]
    number = serial_distances(numbers, firsts[place])
    asked = _highest(place, number)
    allowed = _highest(places[statuses], serial_distances(cycles.raw("max_cmd_sn")[statuses], firsts[places[statuses]]))
    # what the initiator had sent and knew shortly before each command; at the tap its answer is an RTT later
    before = sent_at - PROMPT_NS
    read = by_subject.search(places[statuses], answered_at, place, before - rtts_ns[place], "right")
    late = np.flatnonzero(read > reads[place])
    late = late[allowed[read[late] - 1] < number[late]]
    sent = by_subject.search(place, sent_at, place[late], before[late], "right")
    is_full = sent > sends[place[late]]
    is_full &= allowed[read[late] - 1] <= asked[sent - 1]
    waited = np.zeros(len(sent_rows), dtype=bool)
    waited[late[is_full]] = True
    return _Window(sent_rows, place, number, waited, statuses, allowed)


def _highest(place: Array, numbers: Array) -> Array:
    """The highest number of the same session up to each; numbers are distances of less than 2^32."""
    return np.asarray(np.maximum.accumulate(numbers + (place << 33)) - (place << 33))


def _has_waited(facts: Facts) -> Found:
    rtts_ns, places = np.maximum(rtt_ns(facts, "initiator"), 0), facts.places("cycles")
    may_close = _may_close(facts, rtts_ns)
    if not may_close.any():
        return Found(may_close)
    found = _window(facts.table("cycles"), np.where(may_close[places], places, -1), rtts_ns)
    sent, waited = (np.bincount(each, minlength=len(facts)) for each in (found.place, found.place[found.waited]))
    return Found((waited >= MIN_TASKS) & (waited >= COMMAND_WINDOW_TASKS * sent))


def _closed(case: Case) -> Observation:
    subject, cycles = case.subject, case.subject.cycles
    rtts_ns = np.array([subject.rtt_ns("initiator") or 0])
    found = _window(cycles, np.zeros(len(cycles), dtype=np.int64), rtts_ns)
    shown = np.flatnonzero(found.waited)[:3]
    opened = np.searchsorted(found.allowed, found.number[shown]).clip(max=len(found.statuses) - 1)
    outstanding = int(cycles.raw("queue_depth").max())
    # numbers that the initiator has to ignore leave the window as it was
    wrong = breaches.of_case(case, *breaches.WINDOW)[:1]
    return Observation(
        "".join(f"{breaches.sentence_of(each, case.groups.start_ns)} " for each in wrong)
        + f"{int(found.waited.sum()):,} of {len(found.commands):,} commands waited until the target accepted more "
        f"(MaxCmdSN). At most {outstanding} were in flight.",
        [
            *(frame for each in wrong for frame in each.frames[:1]),
            *frames_in(cycles, found.statuses[opened], "status_frame"),
            *frames_in(cycles, found.commands[shown], "command_frame"),
        ],
    )


COMMAND_WINDOW_CLOSED: Final = Problem(
    name="command_window_closed",
    meaning="The target accepts no more commands (MaxCmdSN), and the initiator has more to issue: it waits.",
    condition=f"At least {wording.percent(COMMAND_WINDOW_TASKS)} of the commands, and at least {MIN_TASKS}, were sent "
    f"within {PROMPT_NS / MILLISECOND_NS:g} ms after the window opened.",
    evidence="The statuses that opened the window, and the commands that followed. No share: the commands in flight "
    "can keep the line busy meanwhile.",
    example="1016 of 1027 commands waited until the target accepted more (MaxCmdSN). At most 8 were in flight.",
    shown_by=f"read --block-size 4K --bytes 4M --queue-depth 32 --set command-window=8 {WAN}",
    near_miss=f"read --block-size 4K --bytes 4M --queue-depth 32 --set command-window=33 {WAN}",
    severity="warning",
    # all connections of a session share CmdSN
    scope="session",
    advice=(
        Advice(
            "Open the window: `targetcli /iscsi/IQN/tpg1 set attribute default_cmdsn_depth=128` on LIO (default 64).",
            touches=NEXT_LOGIN,
        ),
        Advice(
            "If latency matters more than throughput, set node.session.queue_depth below the window instead.",
            touches=NEXT_LOGIN,
        ),
    ),
    where=_has_waited,
    tell=_closed,
)
