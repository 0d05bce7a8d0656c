"""The time breakdown of cycles, and by it which cycles are steady and why the others are left out (docs/method.md,
section 6).

The instants between which a cycle pays the path's delays show what k is made of. Between two of them the path explains
one RTT for each answer; the rest of a wait is the host's, also where each of several waits is shorter than the RTT.
Of a wait for an ACK one RTT is the path's; what a delayed ACK adds is the host's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import copy
from typing import Any, Final

import numpy as np

from iscsitrace.measure import budget
from iscsitrace.measure.busy import longest_pause_ns
from iscsitrace.measure.intervals import covered_until
from iscsitrace.measure.spans import Commands, CycleSpans
from iscsitrace.model.setting import Leg
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Array, Table

SEEN_MIN: Final = 0.05
"""One-way delays that make an interval a leg; shorter ones are the processing time of hosts."""

_LEGS: Final = {
    "read": (
        ("command to data", "the command goes out, the first data comes back"),
        ("data", "data waits for other data of the same command"),
        ("data to status", "the data goes out, its ACK comes back, and with it the status"),
        ("status to command", "the status goes out, the next command comes back"),
    ),
    "write": (
        ("command to R2T", "the command goes out, the first R2T comes back"),
        ("R2T to data", "R2Ts go out, data comes back, in rounds"),
        ("data to status", "the last data goes out, the status comes back"),
        ("status to command", "the status goes out, the next command comes back"),
    ),
}


class CycleWaits:
    """The time breakdown of one session."""

    def __init__(self, stretches: Table, to_target_ns: int, to_initiator_ns: int) -> None:
        """The least RTTs from the tap to both sides."""
        self.table = stretches
        self._to_target_ns, self._to_initiator_ns = to_target_ns, to_initiator_ns
        self._path_ns = to_target_ns + to_initiator_ns
        self._propagation = self._stretches("propagation")
        starts, ends = self._stretches("ack_wait")
        self._acks = starts, np.minimum(ends, starts + self._path_ns)

    def _stretches(self, part: str) -> tuple[Array, Array]:
        is_own = self.table.raw("part") == budget.PARTS.index(part)
        return self.table.raw("time_first_ns")[is_own], self.table.raw("time_last_ns")[is_own]

    def parts(self, spans: CycleSpans) -> dict[str, Array]:
        """Nanoseconds of each part in each span."""
        lasted = budget.of_cycles(self.table, spans.starts, spans.ends)
        return {part: lasted[:, place] for place, part in enumerate(budget.PARTS)}

    def path_ns(self, commands: Commands, spans: CycleSpans, *, has_timer: bool = False) -> Array:
        """How much of each interval of each cycle the path's delay explains: a row of intervals for each span.

        A wait for the other side takes the RTT to it at most once for each answer. What else waits in the interval is
        the time of hosts, such as a pause in the data that a write sends with its command. Of a command whose ACK
        ``has_timer`` all waits for ACKs together take one RTT: beside the target there may be two, and the timer of the
        first runs during the RTT of the second.
        """
        edges = np.maximum.accumulate(_instants(commands, spans), axis=1)
        waited = _between(self._propagation, edges)
        acks = _between(self._acks, edges)
        if has_timer:
            over = np.maximum(acks.sum(axis=1) - self.one_rtt_ns(spans), 0)
            for place in range(acks.shape[1]):
                cut = np.minimum(over, acks[:, place])
                acks[:, place] -= cut
                over -= cut
        return np.minimum(waited, self._most_ns(commands, spans)) + acks

    def of_acks_ns(self, spans: CycleSpans) -> Array:
        """The part of the waits for ACKs in each span that the path may explain: one RTT of each."""
        return _between(self._acks, np.column_stack([spans.starts, spans.ends]))[:, 0]

    def one_rtt_ns(self, spans: CycleSpans) -> int:
        """One RTT for each command of a span."""
        return spans.together * self._path_ns

    def _most_ns(self, commands: Commands, spans: CycleSpans) -> Array:
        """The most that the path's delay explains of these intervals, apart from waits for ACKs."""
        first, last = np.full(len(spans.first), self._to_target_ns), np.full(len(spans.first), self._to_initiator_ns)
        # a command that was issued later may wait while data of an earlier one comes
        later_ns = first * 0 + (spans.together - 1) * self._path_ns
        if spans.operation == "read":
            return np.column_stack([first, later_ns, first + last, last])
        r2ts = np.concatenate([[0], np.cumsum(commands.table.raw("r2t_count"), dtype=np.int64)])
        rounds = r2ts[spans.last] - r2ts[spans.first]
        return np.column_stack([first, rounds * self._path_ns + later_ns, first, last])

    @staticmethod
    def legs(operation: str, path_ns: Array, weights: Array, delay_ns: float) -> tuple[Leg, ...]:
        """What k is made of: the path's part of each interval of the cycle, in one-way delays."""
        delays = np.average(path_ns, axis=0, weights=weights) / delay_ns
        return tuple(
            Leg(name, float(count), meaning)
            for (name, meaning), count in zip(_LEGS[operation], delays, strict=True)
            if count >= SEEN_MIN
        )


def _between(stretches: tuple[Array, Array], edges: Array) -> Array:
    """Time of these stretches between each two of the edges in a row."""
    until = np.column_stack([covered_until(*stretches, instants) for instants in edges.T])
    return np.diff(until, axis=1)


def _instants(commands: Commands, spans: CycleSpans) -> Array:
    """The instants of each span, in a row: command, first data or R2T, last data, status, end."""

    def over(name: str, pick: Any, otherwise: Array) -> Array:
        """The first or last instant of the commands in each span, where all are known."""
        values = commands.table.raw(name)
        bounds = np.column_stack([spans.first, spans.last]).ravel()
        # reduceat takes no index beyond the table
        reach = bounds[:-1] if bounds[-1] == len(values) else bounds
        picked = pick.reduceat(values, reach)[::2]
        are_known = np.logical_and.reduceat(known(commands.table, name), reach)[::2]
        return np.where(are_known, picked, otherwise)

    is_read = spans.operation == "read"
    first = over("data_first_ns" if is_read else "r2t_first_ns", np.minimum, spans.starts)
    sent = over("command_last_ns", np.maximum, spans.starts)
    last = over("data_last_ns", np.maximum, sent)
    status = over("status_ns", np.maximum, last)
    return np.column_stack([spans.starts, first, last, status, spans.ends])


STALLS: Final = ("receive_window", "congestion_window", "send_buffer")
"""Parts of the time breakdown in which data waits for a window."""
STALL_TOLERANCE: Final = 0.02
"""Share of the period by which waits for a window may exceed those of later cycles once the window has grown."""
SCATTER: Final = 3.0
"""The same in median deviations of these waits: two standard deviations where hosts make them scatter."""
WHOLE_WINDOW: Final = 0.1
"""Share of the cycles whose waits for the congestion window stand for those of a window that no loss reduced."""
UNKNOWN_MAX: Final = 0.05
"""Share of a period that may be in the part `unknown`."""

_AFTER_START, _AFTER_LOSS = 1, 2
_LOSSY: Final = ("lossy", "slow_start")
"""Reasons that leave a cycle out of a steady point, and not of one with losses."""


def stalls_ns(parts: Mapping[str, Array]) -> Array:
    """Waits for windows in each cycle, from its parts of the time breakdown."""
    return np.asarray(np.sum([parts[part] for part in STALLS], axis=0))


class Judgement:
    """Which cycles of one kind count, and why the others do not."""

    def __init__(self, commands: Commands, spans: CycleSpans, waits: CycleWaits) -> None:
        self.left_out = Counter[str]()
        self.has_losses = False
        """Whether the cycles that count are those with losses, too."""
        has_end = spans.has_end
        self._leave("no_period", int((~has_end).sum()), spans)
        self.spans = spans.where(has_end)
        self.parts = waits.parts(self.spans)
        self.lengths = self.spans.ends - self.spans.starts
        self.whole = np.zeros(0, dtype=bool)
        """Cycles that the capture shows whole, without a pause of the program: with losses and growing windows, too."""
        self.counts = self._judge(commands) if len(self.lengths) else np.zeros(0, dtype=bool)

    def with_losses(self) -> Judgement:
        """The same, with cycles that waited for losses, or for a window that was growing after them, among those that
        count.
        """
        other = copy(self)
        other.counts, other.has_losses = self.whole, True
        other.left_out = Counter({name: count for name, count in self.left_out.items() if name not in _LOSSY})
        return other

    def _leave(self, reason: str, count: int, spans: CycleSpans) -> None:
        if count:
            self.left_out[reason] += count * spans.tasks_in_each

    def _judge(self, commands: Commands) -> Array:
        of_tasks = commands.table
        whole = of_tasks.raw("is_complete") & ~of_tasks.raw("has_capture_gap") & ~of_tasks.raw("is_aborted")
        is_incomplete = self._any(~whole) | (self.parts["unknown"] > UNKNOWN_MAX * self.lengths)
        # a retransmission that nothing waited for delays no command, but may have reduced the window
        is_lossy = (self.parts["loss_recovery"] + self.parts["outage"] > 0) & ~is_incomplete
        has_reduced = self._any(of_tasks.raw("has_retransmission"))
        think = self.parts["initiator_think"]
        has_pause = (think > longest_pause_ns(think)) & ~is_incomplete & ~is_lossy
        # a loss at the end of a cycle lengthens what follows it: that is no pause of the program
        self.whole = ~(is_incomplete | has_pause)
        fine = self.whole & ~is_lossy
        growing = self._growing(fine, is_lossy, has_pause, has_reduced)
        for reason, which in (
            ("incomplete", is_incomplete),
            ("lossy", is_lossy | (growing == _AFTER_LOSS)),
            ("pause", has_pause),
            ("slow_start", growing == _AFTER_START),
        ):
            self._leave(reason, int(which.sum()), self.spans)
        return np.asarray(fine & (growing == 0))

    def _any(self, of_tasks: Array) -> Array:
        """Whether it holds for some command of each span."""
        sums = np.concatenate([[0], np.cumsum(of_tasks)])
        return np.asarray(sums[self.spans.last] > sums[self.spans.first])

    def _growing(self, fine: Array, is_lossy: Array, has_pause: Array, has_reduced: Array) -> Array:
        """Cycles whose window is still growing: from the start of a burst of I/O, or from a loss or retransmission, as
        long as they wait more for windows than later ones do.
        """
        found = np.zeros(len(fine), dtype=np.int8)
        if not fine.any():
            return found
        tolerance_ns = STALL_TOLERANCE * float(np.median(self.lengths[fine]))
        congestion, stalls = self.parts["congestion_window"], stalls_ns(self.parts)
        later = stalls[fine][fine.sum() // 2 :]
        grown_ns = float(np.median(later))
        scatter_ns = SCATTER * float(np.median(np.abs(later - grown_ns)))
        # under many losses half of the cycles may suffer from one: only few have an unreduced window
        whole_ns = float(np.quantile(congestion[fine], WHOLE_WINDOW))
        since = _AFTER_START
        for place in range(len(fine)):
            if is_lossy[place] or has_reduced[place]:
                since = _AFTER_LOSS
            elif has_pause[place]:
                since = _AFTER_START
            if fine[place] and since:
                is_small = stalls[place] > grown_ns + max(tolerance_ns, scatter_ns)
                if since == _AFTER_LOSS:
                    is_small = congestion[place] > whole_ns + tolerance_ns
                found[place] = since if is_small else 0
                # the window shrinks at the retransmission: the next cycle may be the first to wait
                since = since if is_small or has_reduced[place] else 0
        return found
