"""The network between two taps: the clocks at both ends, one-way delays, losses, and what each capture lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.taps.clock import Clock, fit
from iscsitrace.taps.packets import Packets
from iscsitrace.taps.samples import Samples, joined

Array = NDArray[Any]


@dataclass(frozen=True)
class Delays:
    """One-way delays of one direction."""

    time_ns: Array
    """When it passed the first of the two taps, on the clock of A, int64."""
    delay_ns: Array
    """Until it passed the second, int64."""

    def quantile_ns(self, share: float) -> int | None:
        """A delay of the sample that this share of all does not exceed; None without samples."""
        return int(np.quantile(self.delay_ns, share, method="inverted_cdf")) if len(self.delay_ns) else None


@dataclass(frozen=True)
class Network:
    """What lies between tap A and tap B, of which A is nearer to the initiator."""

    command_count: int
    """Commands that both have."""
    clock: Clock
    """B less A."""
    to_target: Delays
    to_initiator: Delays
    packets: Packets | None = None
    """Its packets; None where only commands were compared."""

    def count(self, name: str, *, to_target: bool | None = None) -> int | None:
        """Sum of a column of ``paths``, of one direction or of both; None where only commands were compared."""
        return self.packets.count(name, to_target=to_target) if self.packets else None

    def as_dict(self) -> dict[str, Any]:
        """The columns of the table ``taps``."""
        clock = self.clock
        return {
            "commands": self.command_count,
            "clock_offset_ns": clock.offset_ns,
            "clock_offset_low_ns": clock.low_ns,
            "clock_offset_high_ns": clock.high_ns,
            "clock_time_ns": clock.reference_ns,
            "clock_steps": len(clock.steps_ns),
            "drift_ppm": clock.drift_ppm,
            "delay_a_to_b_p50_ns": self.to_target.quantile_ns(0.5),
            "delay_b_to_a_p50_ns": self.to_initiator.quantile_ns(0.5),
            "lost_a_to_b_packets": self.count("lost", to_target=True),
            "lost_b_to_a_packets": self.count("lost", to_target=False),
            "missing_at_a_packets": self.count("missing_at_a"),
            "missing_at_b_packets": self.count("missing_at_b"),
        }


def between(commands: Samples, clock: Clock, command_count: int, packets: Packets | None) -> Network:
    """The network between two taps, of which A is nearer to the initiator.

    ``clock`` is that of the ``commands``; the packets show it better.
    """
    if packets and not clock.is_assumed:
        clock = _refined(clock, commands, packets)
    samples = packets.transits if packets else commands
    transits = samples.less(clock.offset_at(samples.time_ns))
    out, back = transits.select(transits.is_a_first), transits.select(~transits.is_a_first)
    return Network(
        command_count,
        clock,
        Delays(out.time_ns, out.raw_ns),
        Delays(back.time_ns + back.raw_ns, -back.raw_ns),
        packets,
    )


def _refined(clock: Clock, commands: Samples, packets: Packets) -> Clock:
    """The clock that commands and packets show together; that of the commands where the packets contradict it."""
    if (np.diff(commands.time_ns) < 0).any():
        # A's clock was set back: packets are known by their time alone, and it occurs twice
        return clock
    both = joined([commands, packets.limits], np.concatenate([commands.time_ns, packets.limits.time_ns]))
    return fit(both, len(clock.steps_ns)) or clock
