"""Which cycles are steady, and why the others are left out (docs/method.md, section 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import copy
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.fit.cycle_waits import CycleWaits
from iscsitrace.measure.busy import longest_pause_ns
from iscsitrace.measure.spans import Commands, CycleSpans

Array = NDArray[Any]

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
