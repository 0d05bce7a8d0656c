"""The legs of a cycle: the one-way delays that it pays one after the other, and who waits for what."""

from __future__ import annotations

from math import ceil

from iscsitrace.model.bursts import first_burst_bytes, solicited_bytes
from iscsitrace.model.setting import Leg, Setting
from iscsitrace.model.transfer import alone_ns, line_ns, open_way


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
