"""What a change would bring: the pace that the model predicts for a measured session with one change, relative to that
without it. Findings and report ask here (docs/method.md, section 8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from typing import Final

from iscsitrace.fit.situation import Measured, Situation, measure
from iscsitrace.measure import workload
from iscsitrace.measure.session import Session

MODEL: Final = 0.25
"""Largest relative error of the model against the measured pace for gains to be shown. Beyond that, something that the
model does not know limits the session."""
GAIN_MAX: Final = 20.0
"""Larger gains are not believed: so far from what was measured, something else limits first."""
MORE: Final = 1.02
"""Least improvement of a further step in the same direction over the step before it."""
LINE: Final = 0.02
"""Relative uncertainty of the estimated line rate."""

# parts of the time breakdown in which one command waits: others in flight could go on
OF_A_COMMAND: Final = ("propagation", "target_service", "initiator_think", "initiator_service", "ack_wait")
OF_R2TS: Final = ("propagation", "target_service", "initiator_service")
OF_A_WINDOW: Final = ("receive_window", "congestion_window", "send_buffer")
# those in which one connection waits
OF_A_CONNECTION: Final = (*OF_A_COMMAND, *OF_A_WINDOW, "loss_recovery")


@dataclass(frozen=True)
class Change:
    """One change of a what-if."""

    words: str
    """Such as ``queue depth 8``."""
    apply: Callable[[Situation], Situation]
    """The situation with this change."""
    removes: tuple[str, ...]
    """The parts of the time breakdown that it can take away: it gains no more than these cost."""


@dataclass(frozen=True)
class Gain:
    """The throughput that the model predicts for a change."""

    change: str
    """Such as ``queue depth 8``."""
    throughput_factor: float
    """Throughput after / before."""
    low: float
    high: float
    """The range that the packets leave open."""


@dataclass(frozen=True)
class WhatIf:
    """What the model predicts for changes of one measured session."""

    measured: Measured
    readings: Sequence[Situation]
    """The measured situation, and those that the packets cannot tell from it."""

    def gain(self, change: Change) -> Gain | None:
        """The gain of a change; None for one smaller than the error of the model, or larger than is believed."""
        changed = [change.apply(reading) for reading in self.readings]
        factor = changed[0].throughput() / self.readings[0].throughput()
        # a rough prediction shows the spread of the readings as well, and is fast
        rough = [
            after.throughput(is_rough=True) / reading.throughput(is_rough=True)
            for after, reading in zip(changed, self.readings, strict=True)
        ]
        bound = self._bound(change)
        factor, low, high = (
            min(each, bound) for each in (factor, factor * (min(rough) / rough[0]), factor * (max(rough) / rough[0]))
        )
        if log(factor) <= abs(log(self.measured.remainder)) or factor > GAIN_MAX:
            return None
        return Gain(change.words, factor, low, high)

    def _bound(self, change: Change) -> float:
        left_ns = self.measured.busy_ns - sum(self.measured.parts_ns[part] for part in change.removes)
        return self.measured.busy_ns / left_ns if left_ns > 0 else inf

    def gains(self, changes: Iterable[Change]) -> Iterator[Gain]:
        """The gains of steps in the same direction, as long as each gains more than the one before."""
        before = 0.0
        for change in changes:
            gain = self.gain(change)
            if gain and gain.throughput_factor > MORE * before:
                yield gain
                before = gain.throughput_factor


def of_session(session: Session) -> WhatIf | None:
    """None where the model does not describe the session."""
    asked = session.workload
    if asked is None or asked.word == workload.MIXED:
        return None
    measured = measure(session)
    if measured is None or abs(log(measured.remainder)) > log(1 + MODEL):
        return None
    return WhatIf(measured, readings(measured))


def readings(measured: Measured) -> list[Situation]:
    """The measured situation, and others with the same throughput that the packets cannot tell from it.

    Time that the model misses can be a wait of each command or a stall of all. The target may serve commands in
    parallel, each in the same time, or one after another in proportion to their bytes. The line rate is known to LINE.
    """
    plain = measured.situation
    line = plain.setting.c_bytes_per_s
    found = [plain]
    setting = plain.setting
    tasks_bytes = setting.block_bytes * setting.queue_depth
    missed_ns_per_byte = 1e9 / measured.pace_bytes_per_s - 1e9 / plain.throughput()
    if missed_ns_per_byte > 0:
        found += [
            replace(plain, waits_ns={**plain.waits_ns, "missed": missed_ns_per_byte * tasks_bytes}),
            replace(plain, stalls_ns_per_byte={**plain.stalls_ns_per_byte, "missed": missed_ns_per_byte}),
        ]
    elif missed_ns_per_byte < 0:
        found.append(plain.with_setting(delay_ns=plain.setting.delay_ns / measured.remainder))
    service_ns = plain.waits_ns.get("target_service", 0.0)
    if service_ns:
        stalls = {**plain.stalls_ns_per_byte, "target_service": service_ns / tasks_bytes}
        found.append(replace(plain.without("target_service"), stalls_ns_per_byte=stalls))
    if line:
        found += [plain.with_setting(c_bytes_per_s=line * factor) for factor in (1 - LINE, 1 + LINE)]
    return found
