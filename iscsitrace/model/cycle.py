"""The cycle of one command: its legs, the one-way delays that it pays one after the other, time on the line and stalls;
for a mirrored write those of the slowest target.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Final

from iscsitrace.model.bounds import growth_and_decrease, loss_window_bytes
from iscsitrace.model.setting import Leg, Setting, altered
from iscsitrace.model.transfer import (
    Pipeline,
    Service,
    Way,
    alone_ns,
    block_of,
    byte_ns,
    first_burst_bytes,
    line_ns,
    open_way,
    solicited_bytes,
    way_of,
)


def legs(setting: Setting) -> tuple[Leg, ...]:
    """The legs of one command, without regard to others in flight: a read pays 2 delays, or 4 if its status is held; a
    write pays 2, and 2 for each R2T round that no other hides.
    """
    return _read(setting) if setting.operation == "read" else _write(setting)


def _read(setting: Setting) -> tuple[Leg, ...]:
    command = Leg("command", 1, "the target waits for the command")
    if not setting.is_status_held:
        return command, Leg("data", 1, "the initiator waits for the data, and for the status with them")
    return (
        command,
        Leg("data", 1, "the initiator waits for the data"),
        Leg("ack", 1, "the status waits for the ACK of the data (Nagle)"),
        Leg("status", 1, "the initiator waits for the status"),
    )


def _write(setting: Setting) -> tuple[Leg, ...]:
    unasked = " and its unsolicited data" if first_burst_bytes(setting) else ""
    command = Leg("command", 1, f"the target waits for the command{unasked}")
    status = Leg("status", 1, "the initiator waits for the status")
    rounds = rounds_paid(setting)
    if not rounds:
        return command, status
    return (
        command,
        Leg("r2t", rounds, "the initiator waits for R2Ts"),
        Leg("data", rounds, "the target waits for the solicited data"),
        status,
    )


def rounds_paid(setting: Setting) -> float:
    """RTTs that a write pays for its R2Ts: their number, or fewer where several R2Ts are outstanding. Time in which the
    line is busy with other bursts is no wait, so this need not be a whole number.
    """
    bursts, outstanding = solicited_bytes(setting), setting.solicitation.max_outstanding_r2t
    if outstanding == 1 or not bursts:
        return len(bursts)
    most = ceil(len(bursts) / outstanding)
    if not setting.delay_ns:
        return most
    waited_ns = alone_ns(setting, open_way(setting)) - line_ns(setting)
    # the first R2Ts are always waited for; the rounding of a much longer line time may be more than a tiny delay
    return min(most, max(1.0, waited_ns / (2 * setting.delay_ns) - 1))


_ROUNDS_LEAST, _ROUNDS_MOST, _BURSTS_MOST = 6, 24, 4_000
"""Cycles simulated in each place of the queue; the first third does not count."""
_LONGER: Final = 3
"""Factor for uneven service times: commands that begin together get out of step one by one."""


@dataclass(frozen=True)
class Cycle:
    """The cycle of one command with no others in flight."""

    legs: tuple[Leg, ...]
    ways_ns: float
    transfer_ns: float
    stall_ns: float
    loss_stall_ns: float
    """The part of the stalls that losses cause."""

    def period_ns(self, setting: Setting) -> float:
        """Time from a command to the next."""
        return self.ways_ns + setting.service_ns + self.transfer_ns + self.stall_ns


def cycle_of(setting: Setting, k_factor: float = 1.0, stall_share: float = 1.0) -> Cycle:
    """The cycle of a setting; ``k_factor`` multiplies the delays of its legs, ``stall_share`` its waits for windows."""
    if setting.target_delays_ns:
        cycle = _mirrored(setting, k_factor, stall_share)
    elif _is_in_parts(setting):
        return _in_parts(setting, k_factor, stall_share)
    else:
        cycle = _alone(setting, k_factor, stall_share)
    return _riding(setting, cycle) if setting.is_status_held and setting.queue_depth > 1 else cycle


def bytes_per_s(setting: Setting, cycle: Cycle, k_factor: float = 1.0) -> float:
    """Throughput of all commands in flight, each of which starts again when it is done."""
    outstanding = setting.queue_depth * setting.connections
    if outstanding == 1 or setting.is_status_held or _is_simple(setting):
        period_ns = cycle.period_ns(setting)
        return outstanding * setting.block_bytes / period_ns * 1e9 if period_ns else inf
    ways = _ways(altered(setting, start_window_bytes=None), k_factor)
    targets = range(len(ways) // setting.connections)
    block, service = block_of(setting), Service(setting.service_ns, setting.service_spread_ns)
    if setting.call_bytes:
        # only the system call waits for all copies: a nearer target gets its commands sooner
        count = max(1, setting.call_bytes // setting.block_bytes)
        alone = [[number] for number in range(len(ways)) for _ in range(setting.queue_depth)]
        kinds = [number // setting.connections for (number,) in alone]
        call_ns = Pipeline(block, ways, alone, byte_ns(setting), service).call(count, kinds)
        return count * setting.block_bytes / call_ns * 1e9 if call_ns else inf
    tasks = [
        [target * setting.connections + connection for target in targets]
        for _ in range(setting.queue_depth)
        for connection in range(setting.connections)
    ]
    bursts = outstanding * len(targets) * (1 + len(block.solicited_bytes))
    rounds = min(_ROUNDS_MOST, max(_ROUNDS_LEAST, _BURSTS_MOST // bursts))
    if service.spread_ns:
        rounds *= _LONGER
    done_ns = Pipeline(block, ways, tasks, byte_ns(setting), service).run(rounds * outstanding)
    first = rounds // 3 * outstanding - 1
    elapsed_ns = done_ns[-1] - done_ns[first]
    return (len(done_ns) - 1 - first) * setting.block_bytes / elapsed_ns * 1e9 if elapsed_ns else inf


def _alone(setting: Setting, k_factor: float, stall_share: float) -> Cycle:
    way = way_of(setting, loss_window_bytes(setting), k_factor)
    open_ns = alone_ns(setting, open_way(setting, k_factor))
    stall_ns, loss_stall_ns = stall_share * (alone_ns(setting, way) - open_ns), 0.0
    if setting.loss:
        repairs_ns = _repairs_ns(setting, way)
        window_ns = stall_share * (alone_ns(setting, way_of(setting, k_factor=k_factor)) - open_ns)
        loss_stall_ns = stall_ns - window_ns + repairs_ns
        stall_ns += repairs_ns
    if setting.is_status_held:
        stall_ns += setting.ack_delay_ns
    paid = tuple(Leg(leg.name, leg.delays * k_factor, leg.meaning) for leg in legs(setting))
    ways_ns = sum(leg.delays for leg in paid) * setting.delay_ns
    return Cycle(paid, ways_ns, line_ns(setting), stall_ns, loss_stall_ns)


def _mirrored(setting: Setting, k_factor: float, stall_share: float) -> Cycle:
    """The cycle of the farthest target; waits for the other copies on the line count as transfer."""
    farthest = replace(setting, delay_ns=max(setting.target_delays_ns), target_delays_ns=())
    whole = _alone(farthest, k_factor, 1.0)
    both_ns = alone_ns(setting, *_ways(replace(setting, connections=1), k_factor))
    copies_ns = max(0.0, both_ns - whole.ways_ns - whole.transfer_ns - whole.stall_ns)
    alone = _alone(farthest, k_factor, stall_share)
    return replace(alone, transfer_ns=alone.transfer_ns + copies_ns)


def _is_in_parts(setting: Setting) -> bool:
    """Whether the status of a read alone in flight is held, and its data is written to TCP in several parts."""
    is_alone = setting.queue_depth * setting.connections == 1
    is_long = setting.part_bytes is not None and setting.part_bytes < setting.block_bytes
    return setting.operation == "read" and setting.is_status_held and is_alone and is_long


def _in_parts(setting: Setting, k_factor: float, stall_share: float) -> Cycle:
    """A cycle whose data is written in parts: the end of the last one waits for the ACK of the first.

    The small segment at the end of the first part goes out at once, and holds back that of the second, which goes out
    with the data of the third, and so on (Nagle's algorithm). The ACK of the first part comes 2 d after its end: the
    wait is what is left of this when the rest has been sent.
    """
    cycle = _alone(replace(setting, is_status_held=False), k_factor, stall_share)
    first_ns = cycle.transfer_ns * (setting.part_bytes or 0) / setting.block_bytes
    wait_ns = max(0.0, 2 * setting.delay_ns * k_factor + first_ns - cycle.transfer_ns - cycle.stall_ns)
    delays = wait_ns / setting.delay_ns if setting.delay_ns else 0.0
    leg = Leg("ack", delays, "the end of the data waits for the ACK of its first part (Nagle)")
    return replace(cycle, legs=(*cycle.legs, leg), ways_ns=cycle.ways_ns + wait_ns)


def _is_simple(setting: Setting) -> bool:
    """Whether line and cycle alone decide: reads of even service times whose windows hold everything in flight, and of
    which none waits for the end of a system call.
    """
    if setting.service_spread_ns or setting.call_bytes:
        return False
    way = way_of(setting, loss_window_bytes(setting))
    asked_bytes = setting.queue_depth * block_of(setting).first_bytes
    return setting.operation == "read" and asked_bytes <= way.window_bytes and not setting.start_window_bytes


def _ways(setting: Setting, k_factor: float = 1.0) -> list[Way]:
    """The connections of a setting; for a mirror those to each target, target by target."""
    delays_ns = setting.target_delays_ns or (setting.delay_ns,)
    each = [altered(setting, delay_ns=delay_ns) for delay_ns in delays_ns]
    return [way_of(one, loss_window_bytes(one), k_factor) for one in each for _ in range(setting.connections)]


def _riding(setting: Setting, cycle: Cycle) -> Cycle:
    """A cycle whose held status rides with the data of another command, where that comes before the ACK.

    Commands follow each other evenly, so a status waits for the next data as long as the line is free: period / depth -
    transfer. With this wait, period = (the rest of the period - transfer) * depth / (depth - 1).
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
        "the status waits for data of another command to ride with, or for the ACK of its data",
    )
    return replace(
        cycle,
        legs=(command, wait, status),
        ways_ns=2 * way_ns + ways_ns,
        stall_ns=cycle.stall_ns - setting.ack_delay_ns + wait_ns - ways_ns,
    )


def _repairs_ns(setting: Setting, way: Way) -> float:
    """Average cost of losses in the last window of each burst: an RTT if there is one. Recovery from earlier losses
    goes on beside new data.

    Of a command alone in flight, whose burst fits into the window, the next bursts need an RTT more, too, until the
    window has grown to a burst again. It does not grow beyond one: what is not used does not grow (RFC 7661).
    """
    block, repairs_ns = block_of(setting), 0.0
    growth, decrease = growth_and_decrease(setting)
    for size in (block.first_bytes, *block.solicited_bytes):
        segments = min(way.window_bytes, size) / setting.segment_bytes
        met = 1 - float((1 - setting.loss) ** segments)
        shrunk = segments * (1 - decrease) / growth if setting.queue_depth == 1 and size <= way.window_bytes else 0.0
        repairs_ns += 2 * setting.delay_ns * met * (1 + shrunk)
    return repairs_ns
