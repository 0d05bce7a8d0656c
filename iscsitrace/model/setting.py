"""The input of the model, a setting of workload and path, and its output, a prediction.

The workload may be system calls that a kernel splits into commands:

```text
  call  |== command ==|== command ==|= rest =|     how many at once: MaxCmdSN (RFC 7143, section 4.2.2.1)
```
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from iscsitrace.errors import InputInvalid

_Frozen = TypeVar("_Frozen")

OPERATIONS: Final = ("read", "write")
CONGESTION_CONTROLS: Final = ("reno", "cubic")
BOUNDS: Final = ("cycle", "line", "window", "loss", "slowest_target", "shared_line")
"""What bounds a throughput: the time of a cycle, the line rate, a window per RTT, losses, the farthest target of a
mirror, or the sender's line that several targets or connections share."""


def altered(frozen: _Frozen, **changes: Any) -> _Frozen:
    """The same with other values of its fields, as `dataclasses.replace` makes it, in a tenth of its time.

    A what-if changes one or two of twenty fields, and a diagnosis tries a hundred for a session.
    """
    if not changes.keys() <= frozen.__dict__.keys():
        raise TypeError(f"{type(frozen).__name__} has no {', '.join(changes.keys() - frozen.__dict__.keys())}")
    made = object.__new__(type(frozen))
    made.__dict__.update(frozen.__dict__, **changes)
    return made


@dataclass(frozen=True)
class Solicitation:
    """How a write sends its data: the negotiated parameters that decide its R2T rounds (RFC 7143, section 13)."""

    is_initial_r2t: bool = True
    is_immediate_data: bool = True
    first_burst_bytes: int = 65_536
    max_burst_bytes: int = 262_144
    max_outstanding_r2t: int = 1
    max_recv_data_segment_bytes: int = 8_192
    """The target's MaxRecvDataSegmentLength, which bounds immediate data."""


LOGIN_KEYS: Final = {
    "is_initial_r2t": "InitialR2T",
    "is_immediate_data": "ImmediateData",
    "first_burst_bytes": "FirstBurstLength",
    "max_burst_bytes": "MaxBurstLength",
    "max_outstanding_r2t": "MaxOutstandingR2T",
    "max_recv_data_segment_bytes": "MaxRecvDataSegmentLength",
}
"""The fields of Solicitation by RFC 7143's names of their login keys."""


@dataclass(frozen=True)
class Setting:
    """One workload over one path."""

    operation: str
    """One of OPERATIONS."""
    block_bytes: int
    """I/O size: the Expected Data Transfer Length of each command."""
    delay_ns: float
    """One-way delay of the path, without queues."""
    c_bytes_per_s: float | None = None
    """What TCP can carry: bytes of I/Os, or bytes of the stream if ``data_pdu_bytes`` is set; None: no limit."""
    data_pdu_bytes: int | None = None
    """Largest data PDU, whose header of 48 bytes is counted; None: headers are not counted."""
    service_ns: float = 0.0
    """Time of a cycle that neither path nor line explains: service of the target, the initiator and the hosts."""
    service_spread_ns: float = 0.0
    """How much more or less of it a command may take, evenly distributed: commands then meet on the line by chance and
    do not fall into step.
    """
    queue_depth: int = 1
    call_bytes: int | None = None
    """Size of a system call that is split into I/Os: up to ``queue_depth`` of them are in flight, and the next call
    begins when the last of them is done. None: an I/O begins when another is done."""
    connections: int = 1
    """Connections, each with ``queue_depth`` commands in flight."""
    is_status_held: bool = False
    """Whether a read's status waits for the ACK of its data (Nagle): two more one-way delays."""
    ack_delay_ns: float = 0.0
    """How long the ACK of an I/O's last data is delayed: a held status waits as much longer. 40 ms in Linux where an
    I/O has an odd number of segments, else 0."""
    part_bytes: int | None = None
    """Bytes that the target writes to TCP at a time: a held status of a longer read, alone in flight, waits only for
    the ACK of the first part, which it gets while the rest is sent. None: the whole read."""
    solicitation: Solicitation = field(default_factory=Solicitation)
    """The negotiated parameters of writes."""
    window_bytes: int | None = None
    """The least of receive window and send buffer; None: no limit."""
    start_window_bytes: int | None = None
    """Congestion window at the start of each I/O, which grows by slow start; None: no limit."""
    segment_bytes: int = 1_448
    loss: float = 0.0
    """Probability that a segment is lost."""
    congestion_control: str = "cubic"
    """One of CONGESTION_CONTROLS; it matters under losses."""
    target_delays_ns: tuple[float, ...] = ()
    """One-way delay to each target of a mirror, instead of ``delay_ns``; all share the sender's line."""

    def dealt(self, **changes: Any) -> Setting:
        """The same with its queue depth, that of all connections together, spread evenly over them; and with other
        values of its fields.
        """
        connections = max(1, min(self.connections, self.queue_depth))
        depth = max(1, round(self.queue_depth / connections))
        return altered(self, connections=connections, queue_depth=depth, **changes)


@dataclass(frozen=True)
class Leg:
    """One of the delays that a cycle pays, one after the other."""

    name: str
    """Such as ``command``, ``r2t``, ``data``, ``ack``, ``status``."""
    delays: float
    """Number of one-way delays."""
    meaning: str
    """Who waits for what, in a sentence."""


@dataclass(frozen=True)
class Prediction:
    """The model's result for a setting."""

    setting: Setting
    period_ns: float
    """Command to next command in one place of the queue, at this throughput."""
    throughput_bytes_per_s: float
    bound: str
    """One of BOUNDS."""
    legs: tuple[Leg, ...]
    transfer_ns: float
    """Time of one I/O on the line: B / C."""
    stall_ns: float
    """Waits within one I/O: for the ACKs of a full window, and for rounds of slow start."""
    idle_fraction: float
    """Share of the time in which the line carries no payload of this workload."""
    is_in_range: bool = True
    """Whether the formulas hold for this setting; they do not for losses that end in timeouts, for instance."""

    @property
    def k(self) -> float:
        """One-way delays that a cycle pays."""
        return sum(leg.delays for leg in self.legs)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: names as in ``model predict --json``."""
        return {
            "period_ns": self.period_ns,
            "throughput_bytes_per_s": self.throughput_bytes_per_s,
            "bound": self.bound,
            "k": self.k,
            "transfer_ns": self.transfer_ns,
            "stall_ns": self.stall_ns,
            "idle_fraction": self.idle_fraction,
            "is_in_range": self.is_in_range,
        }


def in_commands(setting: Setting, call_bytes: int | None, command_window: int | None) -> Setting:
    """The setting of system calls of ``call_bytes``, split into commands of its block size, with at most
    ``command_window`` commands of the session in flight; None for either: no calls, no limit.

    The queue depth of ``setting`` counts calls. InputInvalid for reads with held statuses of which a part is in flight:
    which of them find data to ride with depends on when each command is sent.
    """
    calls = setting.queue_depth * setting.connections
    return in_commands_of_session(replace(setting, queue_depth=calls), call_bytes, command_window)


def in_commands_of_session(setting: Setting, call_bytes: int | None, command_window: int | None) -> Setting:
    """The same where the queue depth of ``setting`` counts the calls of all its connections together.

    Commands in flight are spread evenly over the connections: the nearest whole number on each, and none on
    connections beyond the commands.
    """
    calls = setting.queue_depth
    commands = 1 if call_bytes is None else -(-call_bytes // setting.block_bytes)
    in_flight = min(calls * commands, command_window or calls * commands)
    if call_bytes is None or commands == 1:
        block = setting.block_bytes if call_bytes is None else call_bytes
        return replace(setting, block_bytes=block, queue_depth=in_flight).dealt()
    is_read = setting.operation == "read"
    data_pdu = setting.data_pdu_bytes and min(setting.data_pdu_bytes, setting.block_bytes)
    if is_read and in_flight == calls * commands:
        # the commands of a call are sent together, and their data arrive as one block in parts
        part = min(setting.block_bytes, setting.part_bytes or setting.block_bytes)
        whole = replace(setting, block_bytes=call_bytes, queue_depth=calls, part_bytes=part, data_pdu_bytes=data_pdu)
        return whole.dealt()
    if is_read and setting.is_status_held and in_flight > 1:
        raise InputInvalid(
            f"a command window of {in_flight} of {calls * commands} commands is not covered where statuses are held"
        )
    return replace(
        setting,
        # of commands of unequal sizes the mean
        block_bytes=call_bytes // commands,
        queue_depth=in_flight,
        # the commands of several calls overlap, so that none waits for the end of a call
        call_bytes=call_bytes if calls == 1 else None,
        data_pdu_bytes=data_pdu,
    ).dealt()
