"""Task time-outs: commands without an answer, and what the initiator did about it, as one story."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings import breaches
from iscsitrace.findings.connection_loss import CONNECTION_LOST
from iscsitrace.findings.failures import NOP_TIMEOUT, TASK_ABORTS
from iscsitrace.findings.finding import Advice, Observation, Problem
from iscsitrace.findings.history import History, listed
from iscsitrace.findings.outages import IO_OUTAGE
from iscsitrace.findings.session_loss import SessionLoss, losses
from iscsitrace.findings.statuses import in_words
from iscsitrace.findings.thresholds import MILLISECOND_NS
from iscsitrace.measure.violations import Violated
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital, joined

Array = NDArray[Any]

STUCK_NS: Final = 1_000 * MILLISECOND_NS
"""Least wait of a command that counts as stuck when the initiator aborts it. The shortest time-outs are seconds; a
reset by an administrator, or of a cluster, finds commands in flight that wait for milliseconds."""

_ABORT_TASK: Final = 1
_OF_A_LUN: Final = (2, 4, 5)
"""ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET (RFC 7143 section 11.5.1)."""
_OF_A_TARGET: Final = (6, 7)
"""TARGET WARM RESET, TARGET COLD RESET."""
_NAMED: Final = 4
_RETRANSMISSIONS: Final = 2
"""Fewer are too few to be sure."""


@dataclass(frozen=True)
class Request:
    """A task management request about commands that were stuck."""

    row: dict[str, Any]
    about: Array
    """Rows of the story's commands."""

    def words(self, history: History) -> str:
        """``ABORT TASK at 12.55 s (function complete, 0.3 s later)``."""
        when = history.since_start(self.row["request_ns"])
        if self.row["response_ns"] is None:
            return f"{self.row['function_text']} at {when} (no response)"
        later = wording.time(self.row["response_ns"] - self.row["request_ns"])
        return f"{self.row['function_text']} at {when} ({self.row['response_text']}, {later} later)"


@dataclass(frozen=True)
class Episode:
    """Commands that were stuck at the same time, and the requests about them."""

    requests: tuple[Request, ...]
    from_ns: int
    """When the first of the commands was sent."""
    stuck_ns: int
    """When the last of them had a status, was aborted, or lost its connection."""
    until_ns: int
    """When I/O went on: the end of the outage, or of the last command where there was none."""
    outage_ns: int
    """The time without any progress in it; 0 where other commands progressed."""
    longest_ns: int
    is_over: bool

    @property
    def cost_ns(self) -> int:
        """The time without progress; where others progressed, that of the command that waited longest."""
        return self.outage_ns or self.longest_ns


def _episodes(history: History) -> list[Episode]:
    cycles = history.cycles
    ends = _ends(history)
    waited = _Waited(history, ends)
    requests = [found for row in _management(history) if len((found := waited.request(row)).about)]
    groups: list[list[Request]] = []
    last_ns = 0
    for request in sorted(requests, key=lambda each: int(cycles.raw("command_first_ns")[each.about].min())):
        own_ns = _last_ns(request, ends)
        if groups and cycles.raw("command_first_ns")[request.about].min() < last_ns:
            groups[-1].append(request)
            last_ns = max(last_ns, own_ns)
        else:
            groups.append([request])
            last_ns = own_ns
    return [each for group in groups if not _is_path(history, each := _episode(history, group, ends), ends)]


def _management(history: History) -> list[dict[str, Any]]:
    functions = (_ABORT_TASK, *_OF_A_LUN, *_OF_A_TARGET)
    table = history.rows("task_management")
    return list(table.select(np.isin(table.raw("function"), functions) & known(table, "request_ns")).rows())


def _ends(history: History) -> Array:
    """When each command had its status, was aborted, or lost its connection."""
    cycles = history.cycles
    last = {row["connection"]: row["time_last_ns"] for row in history.story.connections}
    numbers, inverse = np.unique(cycles.raw("connection"), return_inverse=True)
    of_connection = np.array([last.get(number, 0) for number in numbers.tolist()], dtype=np.int64)
    open_until = of_connection[inverse] if len(numbers) else np.zeros(0, dtype=np.int64)
    ends = np.where(known(cycles, "status_ns"), cycles.raw("status_ns"), open_until)
    aborted = {row["referenced_cycle"]: row for row in _management(history) if row["response"] == 0}
    rows = np.flatnonzero(np.isin(cycles.raw("cycle"), [number for number in aborted if number is not None]))
    for row, number in zip(rows.tolist(), cycles.raw("cycle")[rows].tolist(), strict=True):
        ends[row] = min(int(ends[row]), aborted[number]["response_ns"] or int(ends[row]))
    return np.asarray(ends)


def _may_have_ended(history: History) -> Array:
    """The commands whose status may only be missing from the capture: an ABORT TASK shows that it did not come."""
    cycles = history.cycles
    aborted = [row["referenced_cycle"] for row in _management(history) if row["function"] == _ABORT_TASK]
    is_unsure = ~known(cycles, "status_ns") & history.may_lack_answers
    is_unsure &= ~np.isin(cycles.raw("cycle"), [number for number in aborted if number is not None])
    return np.asarray(cycles.raw("has_capture_gap") | is_unsure)


class _Waited:
    """The commands that waited long, by what a request may be about: one, those of a LUN, those of a connection."""

    def __init__(self, history: History, ends: Array) -> None:
        cycles = history.cycles
        self._starts, self._ends = cycles.raw("command_first_ns"), ends
        rows = np.flatnonzero((ends - self._starts >= STUCK_NS) & ~_may_have_ended(history))
        connections, luns = cycles.raw("connection")[rows].astype(np.int64), cycles.raw("lun")[rows]
        self._none = rows[:0]
        self._of_cycle = {
            number: rows[place : place + 1] for place, number in enumerate(cycles.raw("cycle")[rows].tolist())
        }
        self._of_connection = {number: rows[own] for number, own in grouped(connections).items()}
        self._of_lun = {
            (number, lun): self._of_connection[number][of_lun]
            for number, own in grouped(connections).items()
            for lun, of_lun in grouped(luns[own]).items()
        }

    def request(self, row: dict[str, Any]) -> Request:
        """A request and the commands that it is about."""
        if row["function"] == _ABORT_TASK:
            rows = self._of_cycle.get(row["referenced_cycle"], self._none)
        elif row["function"] in _OF_A_LUN and row["lun"] is not None:
            rows = self._of_lun.get((row["connection"], row["lun"]), self._none)
        else:
            rows = self._of_connection.get(row["connection"], self._none)
        at_ns = row["request_ns"]
        return Request(row, rows[(self._starts[rows] <= at_ns - STUCK_NS) & (self._ends[rows] >= at_ns)])


def _last_ns(request: Request, ends: Array) -> int:
    """Until when a request belongs to its commands: an initiator escalates after its response, or its time-out."""
    return max(int(ends[request.about].max()), request.row["response_ns"] or 0)


def _episode(history: History, requests: Sequence[Request], ends: Array) -> Episode:
    cycles = history.cycles
    about = np.unique(np.concatenate([each.about for each in requests]))
    starts = cycles.raw("command_first_ns")[about]
    from_ns, stuck_ns = int(starts.min()), int(ends[about].max())
    within = [each for each in history.outages if each.from_ns < stuck_ns and each.to_ns > from_ns]
    until_ns = max((stuck_ns, *(each.to_ns for each in within)))
    is_over = all(each.is_over for each in within) if within else history.progress_after(stuck_ns) is not None
    return Episode(
        tuple(sorted(requests, key=lambda each: each.row["request_ns"])),
        from_ns,
        stuck_ns,
        until_ns,
        sum(each.length_ns for each in within),
        int((ends[about] - starts).max()),
        is_over,
    )


def _is_path(history: History, episode: Episode, ends: Array) -> bool:
    """Whether TCP got nothing through, either: retransmissions to the end, and no other command that progressed."""
    table = history.rows("retransmissions")
    times = table.raw("time_ns")[~table.raw("is_spurious")]
    times = times[(times > episode.from_ns) & (times <= episode.stuck_ns)]
    half_ns = (episode.from_ns + episode.stuck_ns) // 2
    if len(times) < _RETRANSMISSIONS or times.max() < half_ns:
        return False
    responses = [each.row["response_ns"] or episode.stuck_ns for each in episode.requests]
    return not len(_others(history, episode, ends, int(times.max()))) and min(responses) >= times.max()


def _others(history: History, episode: Episode, ends: Array, until_ns: int) -> Table:
    """Other commands with a status from STUCK_NS after the first that was stuck on."""
    cycles = history.cycles
    is_other = known(cycles, "status_ns") & (ends > episode.from_ns + STUCK_NS) & (ends < until_ns)
    for request in episode.requests:
        is_other[request.about] = False
    return cycles.select(is_other)


def _timeouts(history: History) -> Observation | None:
    if not len(history.rows("task_management")):
        return None
    found = _episodes(history)
    if not found:
        return None
    worst = max(found, key=lambda each: each.cost_ns)
    cycles = history.cycles
    stuck = cycles.select(np.unique(np.concatenate([each.about for each in worst.requests])))
    luns = tuple(np.unique(stuck.raw("lun")[known(stuck, "lun")]).tolist())
    where = f" to LUN {listed(luns)}" if luns else ""
    times = f" (the longest of {len(found):,} time-outs)" if len(found) > 1 else ""
    text = (
        f"{history.label}: {in_words(stuck)}{where} had no answer for {wording.time(worst.longest_ns)}, "
        f"from {history.since_start(worst.from_ns)} on{times}"
    )
    if not worst.is_over:
        text += ", and I/O did not resume in the capture"
    cause = _cause(history, worst)
    # what a headline leaves out comes last
    rest = [_asked(history, worst), *_ending(history, worst)]
    if cause:
        facts = [breaches.told(history, cause), f"{capital(text)}.", *rest]
        side = f"the {cause.side}"
    else:
        alive, side = _alive(history, worst, luns)
        facts = [f"{capital(text)}.", alive, *rest]
    frames = [row["command_frame"] for row in stuck.select(slice(0, 3)).rows(("command_frame",))]
    frames += [each.row[name] for each in worst.requests for name in ("request_frame", "response_frame")]
    if cause:
        frames = [*cause.frames[:2], *frames]
    return Observation(
        " ".join(facts),
        frames,
        float(sum(each.cost_ns for each in found)),
        spans=tuple((each.from_ns, each.until_ns) for each in found),
        luns=luns,
        is_final=not worst.is_over,
        advice=(breaches.advice(cause),) if cause else None,
        points_to=side,
    )


def _cause(history: History, episode: Episode) -> Violated | None:
    """The violation of RFC 7143 that left the commands without an answer."""
    stuck = history.cycles.select(np.unique(np.concatenate([each.about for each in episode.requests])))
    numbers, connections = (np.unique(stuck.raw(name)).tolist() for name in ("cycle", "connection"))
    return breaches.of_commands(history, numbers, connections, episode.from_ns, episode.stuck_ns)


def _asked(history: History, episode: Episode) -> str:
    """What the initiator sent, in order."""
    answered = groupby(episode.requests, lambda each: (each.row["function_text"], each.row["response_text"]))
    words = []
    for (function, response), same in answered:
        first, *others = same
        if not others:
            words.append(first.words(history))
            continue
        since, until = (history.since_start(each.row["request_ns"]) for each in (first, others[-1]))
        words.append(f"{function} {len(others) + 1} times from {since} to {until} ({response or 'no response'})")
    if len(words) > _NAMED:
        words = [*words[: _NAMED - 1], f"{len(words) - _NAMED} more", words[-1]]
    return f"The initiator sent {', then '.join(words)}."


def _ending(history: History, episode: Episode) -> Iterator[str]:
    """Whether the session was lost over it, and when I/O went on."""
    lost: SessionLoss | None = next(
        (e for e in losses(history) if episode.from_ns < e.lost_ns <= episode.until_ns), None
    )
    if lost:
        yield lost.how(history)
        if lost.login_ns is not None:
            yield f"It logged in again at {history.since_start(lost.login_ns)}."
    if episode.is_over and episode.outage_ns:
        yield f"I/O resumed at {history.since_start(episode.until_ns)}."


def _alive(history: History, episode: Episode, luns: tuple[int, ...]) -> tuple[str, str]:
    """Whether the target lived in the meantime, as a sentence, and whose side that points to."""
    nops = history.rows("nops")
    is_answered = nops.raw("is_ping") & nops.raw("is_from_initiator") & known(nops, "response_ns")
    is_answered &= known(nops, "request_ns") & (nops.raw("request_ns") > episode.from_ns)
    is_answered &= nops.raw("response_ns") < episode.stuck_ns
    others = _others(history, episode, _ends(history), episode.stuck_ns)
    elsewhere = others.select(~np.isin(others.raw("lun"), luns))
    did = []
    if is_answered.any():
        did.append(wording.count(int(is_answered.sum()), "NOP-Out"))
    if len(elsewhere):
        did.append(f"{wording.count(len(elsewhere), 'command')} to other LUNs")
    if len(others) > len(elsewhere):
        did.append(f"{wording.count(len(others) - len(elsewhere), 'other command')} to the same LUN")
    behind = f"the storage behind LUN {listed(luns)}" if luns else "its storage"
    if did:
        return f"Meanwhile the target answered {joined(did)}: this points to {behind}.", behind
    side = f"the target, or {behind}"
    return f"TCP retransmitted too little for a path fault: this points to {side}.", side


TASK_TIMEOUT: Final = Problem(
    name="task_timeout",
    scope="story",
    meaning="Commands had no answer, and the initiator's time-out expired: it aborted them, reset the logical unit or "
    "the target, or logged in again.",
    condition="ABORT TASK or a reset of the logical unit or target, about a command that had waited for "
    f"{wording.time(STUCK_NS)} or more. Not where TCP retransmitted until the end and nothing else progressed: then it "
    "is the path.",
    evidence="The commands, the requests and their responses. The cost is the time without progress; where other "
    "commands progressed, that of the command that waited longest. Where a side broke RFC 7143 "
    "(iscsitrace docs conformance), and the commands waited for that, the text begins with it.",
    example="Sessions 1 and 2: 1 READ command to LUN 0 had no answer for 14.1 s, from 12.64 s on. "
    "Meanwhile the target answered 2 NOP-Outs: this points to the storage behind LUN 0. The initiator sent ABORT TASK "
    "at 23.72 s (no response).",
    severity="error",
    rank="failure",
    advice=(
        Advice(
            "Find out why the storage behind this LUN did not answer: the target's kernel log, its disks and RAID "
            "(iostat -x, smartctl -a), a pool or snapshot that is suspended or full, a controller that failed over."
        ),
        Advice(
            "Check the time-outs: /sys/block/DEVICE/device/timeout until Linux aborts a command (30 s), then "
            "node.session.err_timeo.abort_timeout, lu_reset_timeout and tgt_reset_timeout of open-iscsi. ESXi: "
            "vmkernel.log has the aborts. Windows: TimeOutValue of the disk (60 s), event 129."
        ),
    ),
    where=lambda columns: columns.count("task_management") > 0,
    tell=_timeouts,
    accounts_for=(IO_OUTAGE, TASK_ABORTS, CONNECTION_LOST, NOP_TIMEOUT),
)
