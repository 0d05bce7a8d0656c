"""The cycle of one task: legs, time on the line, and stalls; of a mirrored write that of the slowest target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from iscsitrace.analysis.model import block
from iscsitrace.analysis.model.bounds import loss_window_bytes
from iscsitrace.analysis.model.legs import legs
from iscsitrace.analysis.model.line import Burst, ends_ns
from iscsitrace.analysis.model.setting import Leg, Setting
from iscsitrace.analysis.model.transfer import Sender


@dataclass(frozen=True)
class Cycle:
    """One task with no others beside it."""

    legs: tuple[Leg, ...]
    ways_ns: float
    transfer_ns: float
    stall_ns: float
    loss_stall_ns: float
    """What of the stalls losses make."""

    def period_ns(self, setting: Setting) -> float:
        """Command to next command."""
        return self.ways_ns + setting.service_ns + self.transfer_ns + self.stall_ns


def cycle_of(setting: Setting, k_factor: float = 1.0) -> Cycle:
    """That of a setting; ``k_factor``: how many times the delays of its legs it really pays."""
    cycle = _mirrored(setting, k_factor) if setting.target_delays_ns else _alone(setting, k_factor)
    return _riding(setting, cycle) if setting.is_status_held and setting.queue_depth > 1 else cycle


def _alone(setting: Setting, k_factor: float) -> Cycle:
    sender = Sender.of(setting, loss_window_bytes(setting))
    flow = block.flow_of(setting, sender, k_factor)
    stall_ns = block.stall_ns(setting, flow, sender)
    loss_stall_ns = 0.0
    if setting.loss:
        unhurt = Sender.of(setting)
        loss_stall_ns = stall_ns - block.stall_ns(setting, block.flow_of(setting, unhurt, k_factor), unhurt)
        repairs_ns = sum(_repair_ns(setting, sender, each) for each in (flow.first, *flow.solicited))
        stall_ns, loss_stall_ns = stall_ns + repairs_ns, loss_stall_ns + repairs_ns
    if setting.is_status_held:
        stall_ns += setting.ack_delay_ns
    paid = tuple(replace(leg, delays=leg.delays * k_factor) for leg in legs(setting))
    ways_ns = sum(leg.delays for leg in paid) * setting.delay_ns
    return Cycle(paid, ways_ns, block.line_ns(flow), stall_ns, loss_stall_ns)


def _mirrored(setting: Setting, k_factor: float) -> Cycle:
    """That of the target whose status comes last; what its data waits for other copies on the line is transfer."""
    delays_ns = setting.target_delays_ns
    each = [replace(setting, delay_ns=delay_ns, target_delays_ns=()) for delay_ns in delays_ns]
    flows = [block.flow_of(one, Sender.of(one, loss_window_bytes(one)), k_factor) for one in each]
    done_ns = [end_ns + flow.round_trip_ns for end_ns, flow in zip(ends_ns(flows), flows, strict=True)]
    last = max(range(len(each)), key=lambda number: done_ns[number])
    alone = _alone(each[last], k_factor)
    transfer_ns = alone.transfer_ns + max(0.0, done_ns[last] - alone.ways_ns - alone.transfer_ns - alone.stall_ns)
    return replace(alone, transfer_ns=transfer_ns)


def _riding(setting: Setting, cycle: Cycle) -> Cycle:
    """A cycle whose held status goes along with the data of another task, where that comes before the ACK.

    Tasks follow each other evenly, so a status waits for the next data as long as the line is free: period / depth -
    transfer. With this wait, period = (what else it takes, but for the transfer) * depth / (depth - 1).
    """
    command, *_, status = cycle.legs
    way_ns = command.delays * setting.delay_ns
    held_ns = 2 * way_ns + setting.ack_delay_ns
    rest_ns = cycle.period_ns(setting) - held_ns
    riding_ns = (rest_ns - cycle.transfer_ns) * setting.queue_depth / (setting.queue_depth - 1) - rest_ns
    wait_ns = min(held_ns, max(0.0, riding_ns))
    ways_ns = min(wait_ns, 2 * way_ns)
    wait = Leg(
        "status_wait",
        ways_ns / setting.delay_ns if setting.delay_ns else 0.0,
        "the status waits for data of another task to go along with, or for the ACK of its own",
    )
    return replace(
        cycle,
        legs=(command, wait, status),
        ways_ns=2 * way_ns + ways_ns,
        stall_ns=cycle.stall_ns - setting.ack_delay_ns + wait_ns - ways_ns,
    )


def _repair_ns(setting: Setting, sender: Sender, burst: Burst) -> float:
    """What losses in the last window of a burst cost on average: a round trip, if there is one. Earlier ones are
    repaired while new data goes on.
    """
    burst_bytes = burst.line_ns / sender.byte_ns if sender.byte_ns else inf
    segments = min(sender.usable_bytes(inf), burst_bytes, setting.block_bytes) / setting.segment_bytes
    return float(2 * setting.delay_ns * (1 - (1 - setting.loss) ** segments))
