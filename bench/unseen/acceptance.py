"""Which headlines are right for a run, by its truth: the rule, in one table. This file reads no capture.

A share is that of a part of `truth`. What follows by either share, of the I/O time or of the lives of all commands, is
right. Verdicts are H (healthy), L (limited), P (problem).

| cause | it is there | right headlines | |
|---|---|---|---|
| black-out | its losses and timers take 1 s, or 5 % of the I/O time | io_outage, loss, ack_loss, connection_lost | P |
| outliers | few (a) commands wait for storage, for 5 % in all | latency_outliers, slow_target; from 1 s io_outage | P |
| loss | 1 s in recovery, or 5 % with the window after a loss | loss, ack_loss, (b) | P |
| reordering | 1 % of a direction is overtaken, and as above | reordering; with lost packets as loss, too | P |
| line | it is busy for 90 % of the I/O time | line_saturated, line_shared; with a queue standing_queue | L P |
| queue | large packets wait 5 ms and half of the least RTT (median) | standing_queue, and the line's | L P |
| receive_window | its share | receive_window_small, receiver_stalled | L P |
| send_buffer | its share | send_buffer_small | L P |
| congestion_window | its share before the first loss | congestion_window_small, restart_after_idle (c) | L P |
| ack_wait | its share | held_for_ack | L P |
| slow target | the share of target_service, if it takes 10 ms (d) | slow_target; with R2Ts r2t_late | P |
| slow initiator | the share of initiator_service, if an R2T takes 4 ms | slow_initiator | P |
| distance | the share of propagation, if the RTT is 5 ms | none, queue_depth_low, block_size_small (e) | L |
| distance | the same of writes with R2Ts, at any RTT | unsolicited_data_unused, r2t_rounds (e) | L P |
| transfer | the share of the line, if it is not busy for 90 % | none; the largest wait, if it takes 5 % | H L |
| thinking | no command is in flight for half of the time | none, initiator_think_time | H L |
| nothing | the shares of all else | none | H L |

(a) At most a tenth of the commands, each ten times the median, and 50 ms longer. (b) congestion_window_small, if the
window takes as much as the recovery; verdicts L and P. (c) If the program paused long enough. (d) In the median; both
sides are right where the mean says otherwise, and where a target with a queue serves a thousand commands a second. (e)
Of sequential I/O below 1 MiB; if a write has several R2Ts.

1. A black-out leads. It is the only cause from 1.25 times its threshold on, and one of several from 0.8 times on.
2. Otherwise the cause with the largest share leads, and those within EQUAL_POINTS of it are right, too.
3. Where the largest is no problem, a problem of 20 % is right, too, and `none` is wrong; from 5 % on both are right. A
   loss forbids `none` from 5 % on; a slow start never does. A loss is right beside any other cause but a black-out, as
   it is there from 5 % or 1 s on. Thinking is right beside all that is no problem.
4. At a threshold (0.8 to 1.25 times; of the line 80 to 90 %, or commands wait so long for it, or with the pauses of the
   program it is busy for less) both sides are right.
5. Where the snaplen cut the headers of 2 % of the PDUs, `capture_poor` is right, too; with fewer than 8 commands
   `too_short` is.

Nothing defines whether a window, a buffer, a held status or a full line is a limit or a problem: so both count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from bench.unseen.drawing import MS
from bench.unseen.truth import Facts

EQUAL_POINTS: Final = 5.0
"""Causes whose shares differ by less are both right."""
HEALTHY, LIMITED, PROBLEM, UNKNOWN = "healthy", "limited", "problem", "unknown"
NONE: Final = "none"
_BLACK_OUT_NS, _BLACK_OUT_SHARE = 1_000_000_000, 0.05
_OUTLIERS_SHARE, _FEW = 0.05, 0.1
_LOSS_NS, _LOSS_SHARE = 1_000_000_000, 0.05
_WARNING, _WORTH = 0.20, 0.05
_OVERTAKEN: Final = 0.01
_FULL: Final = 0.90
_QUEUE_NS, _QUEUE_OF_RTT = 5 * MS, 0.5
_SLOW_TARGET_NS, _SLOW_INITIATOR_NS = 10 * MS, 4 * MS
_BUSY_TARGET_NS: Final = MS
_FAR_NS: Final = 5 * MS
_THINKING: Final = 0.5
_IDLE, _TRANSFER = "thinking", "transfer"
_LEAST_COMMANDS: Final = 8
_CUT: Final = 0.02
_NEARLY: Final = 0.8
_LARGE_BYTES: Final = 1 << 20

_TUNABLE = frozenset({LIMITED, PROBLEM})
_WRONG = frozenset({PROBLEM})
_FAR = frozenset({LIMITED})
_FINE = frozenset({HEALTHY, LIMITED})
_UNKNOWN = frozenset({UNKNOWN, PROBLEM})
Verdicts = frozenset[str]


@dataclass(frozen=True)
class Cause:
    """One cause, as the table has it."""

    label: str
    share: float
    names: dict[str, Verdicts]
    is_problem: bool = False
    is_loss: bool = False
    is_mild: bool = False
    """Whether `none` may stand beside it."""
    is_sure: bool = True
    """Whether it is beyond its threshold, and not at it."""


@dataclass(frozen=True)
class Accepted:
    """The headlines that are right."""

    label: str
    """The class of the run: the cause with the largest share."""
    names: dict[str, Verdicts]
    causes: tuple[Cause, ...]
    """Those that are right."""

    def is_right(self, name: str, verdict: str) -> bool:
        """Whether this headline is."""
        return verdict in self.names.get(name, frozenset())

    def labels(self, name: str) -> frozenset[str]:
        """The causes that a headline names."""
        return frozenset(each.label for each in self.causes if name in each.names)


def accepted(facts: Facts) -> Accepted:
    """The headlines that are right for a run."""
    found = _accepted(facts)
    by_life = _accepted(replace(facts, shares=facts.life_shares, after_loss=facts.life_after_loss))
    merged = _of([*found.causes, *by_life.causes], found.causes[0])
    names = {name: own for name, own in merged.names.items() if name in found.names | by_life.names}
    return Accepted(found.label, names, merged.causes)


def _accepted(facts: Facts) -> Accepted:
    causes = sorted(_causes(facts), key=lambda each: -each.share)
    black_out = next((each for each in causes if each.label == "black-out"), None)
    if black_out and black_out.is_sure:
        return _of([black_out, *_capture(facts)], black_out)
    right = _largest(causes)
    if any(each.label == _TRANSFER for each in right):
        # a line that is not full is no limit: the largest wait is right, too
        waits = [each for each in causes if each.label not in {_TRANSFER, "line", "queue"}]
        right += [each for each in _largest(waits) if each.share >= _WORTH and each not in right]
    problems = [each for each in causes if each.is_problem and each not in right]
    lead = next((each for each in right if each.is_sure), right[0])
    is_fine = not any(each.is_problem and each.is_sure for each in right)
    strict = [each for each in problems if each.is_sure and not each.is_mild and each.share >= _least(each)]
    right += [
        each
        for each in problems
        if each.label == "loss" or (is_fine and (each.share >= _NEARLY * _WORTH or each.is_loss))
    ]
    if black_out and black_out not in right:
        right.append(black_out)
    if is_fine:
        right += _thinking(facts)
    found = _of([*right, *_capture(facts)], right[-1] if right[-1].label == _IDLE else lead)
    return _without_none(found) if is_fine and strict else found


def _thinking(facts: Facts) -> list[Cause]:
    is_there = facts.think_share >= _NEARLY * _THINKING
    return [Cause(_IDLE, facts.think_share, dict.fromkeys((NONE, "initiator_think_time"), _FINE))] if is_there else []


def _capture(facts: Facts) -> list[Cause]:
    found = []
    if facts.cut_share >= _CUT:
        found.append(Cause("capture", facts.cut_share, {"capture_poor": _UNKNOWN}))
    if facts.command_count < _LEAST_COMMANDS:
        found.append(Cause("capture", 0.0, {"too_short": _UNKNOWN | _FINE}))
    return found


def _least(cause: Cause) -> float:
    return _LOSS_SHARE if cause.is_loss else _WARNING


def _largest(causes: list[Cause]) -> list[Cause]:
    return [each for each in causes if causes[0].share - each.share < EQUAL_POINTS / 100]


def _of(causes: list[Cause], lead: Cause) -> Accepted:
    names: dict[str, Verdicts] = {}
    for cause in causes:
        for name, verdicts in cause.names.items():
            names[name] = names.get(name, frozenset()) | verdicts
    return Accepted(lead.label, names, tuple(causes))


def _without_none(found: Accepted) -> Accepted:
    names = {name: verdicts for name, verdicts in found.names.items() if name != NONE}
    return Accepted(found.label, names, found.causes)


def _above(value: float, threshold: float) -> bool | None:
    """Whether a value is above its threshold; None where both are right."""
    if value >= threshold / _NEARLY:
        return True
    return None if value >= threshold * _NEARLY else False


def _causes(facts: Facts) -> Iterator[Cause]:
    yield from _failures(facts)
    yield from _losses(facts)
    yield from _path(facts)
    yield from _hosts(facts)


def _failures(facts: Facts) -> Iterator[Cause]:
    share = facts.black_out_ns / max(1, facts.io_ns)
    by_time, by_share = _above(facts.black_out_ns, _BLACK_OUT_NS), _above(share, _BLACK_OUT_SHARE)
    if by_time is not False or by_share is not False:
        names = dict.fromkeys(("io_outage", "loss", "ack_loss", "connection_lost"), _WRONG)
        yield Cause("black-out", share, names, is_problem=True, is_sure=bool(by_time or by_share))
    is_few = 0 < facts.storage_outlier_count <= _FEW * facts.command_count
    is_worth = _above(facts.outlier_share, _OUTLIERS_SHARE)
    if is_few and is_worth is not False:
        names = {"latency_outliers": _WRONG, "slow_target": _WRONG}
        if facts.stall_ns >= _NEARLY * _BLACK_OUT_NS:
            names["io_outage"] = _WRONG
        yield Cause("outliers", facts.outlier_share, names, is_problem=True, is_sure=bool(is_worth))


def _losses(facts: Facts) -> Iterator[Cause]:
    window, recovery = facts.after_loss, facts.shares["loss_recovery"]
    share = window + recovery
    is_overtaken = _above(facts.overtaken_share, _OVERTAKEN)
    if not _may_reduce(facts):
        return
    by_time, by_share = _above(facts.loss_ns, _LOSS_NS), _above(share, _LOSS_SHARE)
    if by_time is False and by_share is False:
        return
    names: dict[str, Verdicts] = {}
    if facts.loss_count or recovery:
        names |= dict.fromkeys(("loss", "ack_loss"), _WRONG)
    if window >= recovery * _NEARLY:
        names["congestion_window_small"] = _TUNABLE
    if is_overtaken is not False:
        names["reordering"] = _WRONG
        if not facts.loss_count:
            names = {"reordering": _WRONG}
    label = "loss" if facts.loss_count else "reordering"
    yield Cause(label, share, names, is_problem=True, is_loss=True, is_sure=bool(by_time or by_share))


def _may_reduce(facts: Facts) -> bool:
    """Whether losses or overtaken packets are there to make a congestion window small.

    A retransmission alone, of what only lacked its ACK, is no cause of its own.
    """
    is_overtaken = _above(facts.overtaken_share, _OVERTAKEN) is not False
    return facts.has_losses or is_overtaken


def _path(facts: Facts) -> Iterator[Cause]:
    shares = facts.shares
    on_line = shares["transfer"] + shares["foreign_queue"]
    # of reads and writes at once each way may be the limit in turn
    is_nearly = max(facts.line_share, on_line) >= _NEARLY
    is_surely = facts.line_share * (1 - facts.think_share) >= _FULL
    is_full = True if is_surely else None if is_nearly else False
    waits = max(_QUEUE_NS, _QUEUE_OF_RTT * facts.least_rtt_ns)
    is_standing = _above(facts.queue_ns, waits)
    if is_full is not False:
        names = dict.fromkeys(("line_saturated", "line_shared"), _TUNABLE)
        if is_standing is not False:
            names["standing_queue"] = _TUNABLE
        yield Cause("line", on_line, names, is_problem=True, is_sure=bool(is_full))
    elif is_standing is not False:
        names = dict.fromkeys(("standing_queue", "line_saturated", "line_shared"), _TUNABLE)
        yield Cause("queue", on_line, names, is_problem=True, is_sure=False)
    if is_full is not True:
        yield Cause(_TRANSFER, on_line, {NONE: _FINE})
    windows = {
        "receive_window": ("receive_window_small", "receiver_stalled"),
        "send_buffer": ("send_buffer_small",),
        "ack_wait": ("held_for_ack",),
    }
    for part, told in windows.items():
        yield Cause(part, shares[part], dict.fromkeys(told, _TUNABLE), is_problem=True)
    # until the first loss, or without any: slow start
    names = {"congestion_window_small": _TUNABLE}
    if facts.restarts:
        names["restart_after_idle"] = _TUNABLE
    share = shares["congestion_window"] - (facts.after_loss if _may_reduce(facts) else 0.0)
    yield Cause("congestion_window", share, names, is_problem=True, is_mild=True)


def _hosts(facts: Facts) -> Iterator[Cause]:
    shares = facts.shares
    service = shares["target_service"] - (facts.outlier_share if facts.storage_outlier_count else 0)
    yield from _either("slow target", service, _is_slow(facts), _rounds(facts, "slow_target", "r2t_late"))
    answers = shares["initiator_service"]
    yield from _either(
        "slow initiator", answers, _above(facts.answer_ns, _SLOW_INITIATOR_NS), {"slow_initiator": _WRONG}
    )
    is_far = _above(facts.rtt_ns, _FAR_NS)
    if is_far is not False:
        names: dict[str, Verdicts] = dict.fromkeys((NONE, "queue_depth_low"), _FAR)
        if facts.is_sequential and facts.block_bytes < _LARGE_BYTES:
            names["block_size_small"] = _FAR
        yield Cause("distance", shares["propagation"], names | _of_rounds(facts))
    if is_far is not True:
        yield Cause("nothing", shares["propagation"], {NONE: _FINE} | _of_rounds(facts))


def _of_rounds(facts: Facts) -> dict[str, Verdicts]:
    found = {"unsolicited_data_unused": _TUNABLE} if facts.round_count else {}
    return found | ({"r2t_rounds": _TUNABLE} if facts.round_count > 1 else {})


def _is_slow(facts: Facts) -> bool | None:
    """Whether storage is: both are right where the median and the mean are at different sides of the threshold, and
    where a target with a queue is fast.
    """
    is_busy = facts.service_ns < facts.depth * _BUSY_TARGET_NS
    if _above(facts.service_ns, _SLOW_TARGET_NS):
        return None if is_busy else True
    return None if _above(facts.mean_service_ns, _SLOW_TARGET_NS) is not False else False


def _rounds(facts: Facts, *names: str) -> dict[str, Verdicts]:
    return dict.fromkeys(names if facts.round_count else names[:1], _WRONG)


def _either(label: str, share: float, is_slow: bool | None, names: dict[str, Verdicts]) -> Iterator[Cause]:
    """A host that is slow, or takes a time that is nothing to worry about."""
    if is_slow is not False:
        yield Cause(label, share, names, is_problem=True, is_sure=bool(is_slow))
    if is_slow is not True:
        yield Cause("nothing", share, {NONE: _FINE})
