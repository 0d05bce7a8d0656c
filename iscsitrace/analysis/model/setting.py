"""What the model needs to know of a workload and its path, and what it says of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

OPERATIONS: Final = ("read", "write")
CONGESTION_CONTROLS: Final = ("reno", "cubic")
BOUNDS: Final = ("cycle", "line", "window", "loss", "slowest_target", "shared_line")
"""What decides a throughput: the cycle's own time, the rate of the path, a window per round trip, losses, the farthest
target of a mirror, the sender's line that several targets or connections share."""


@dataclass(frozen=True)
class Solicitation:
    """How a write gets its data across: the keys in force that decide its R2T rounds (RFC 7143, section 13)."""

    is_initial_r2t: bool = True
    is_immediate_data: bool = True
    first_burst_bytes: int = 65_536
    max_burst_bytes: int = 262_144
    max_outstanding_r2t: int = 1
    max_recv_data_segment_bytes: int = 8_192
    """The target's MaxRecvDataSegmentLength: bounds immediate data."""


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
    """PDU block size: Expected Data Transfer Length of each command."""
    delay_ns: float
    """One way, without queues."""
    c_bytes_per_s: float | None = None
    """Bytes that TCP can carry: of blocks, or of its stream where ``data_pdu_bytes`` is given; None: any amount."""
    data_pdu_bytes: int | None = None
    """Most data of one data PDU: its header of 48 bytes is counted with it; None: headers are left out."""
    service_ns: float = 0.0
    """What neither path nor line explains of a cycle: the target's service, and what initiator and hosts take."""
    service_spread_ns: float = 0.0
    """How much more or less of it a task may take, every time between as likely: tasks then meet on the line by chance,
    and do not fall into step.
    """
    queue_depth: int = 1
    call_bytes: int | None = None
    """Of a system call that is cut into blocks: no more than ``queue_depth`` of them are outstanding, and the next call
    begins when the last of them is done. None: a block begins when another is done."""
    connections: int = 1
    """Each with ``queue_depth`` commands outstanding."""
    is_status_held: bool = False
    """Whether a read's status waits for the ACK of its data (Nagle): two more delays."""
    ack_delay_ns: float = 0.0
    """What the ACK of a block's last data waits (delayed ACK): a held status waits so much longer. 40 ms in Linux where
    the segments of a block are odd in number, else 0."""
    solicitation: Solicitation = field(default_factory=Solicitation)
    """Of writes."""
    window_bytes: int | None = None
    """The least of receive window and send buffer; None: never in the way."""
    start_window_bytes: int | None = None
    """Congestion window at the start of each block, in slow start from there on; None: open wide."""
    segment_bytes: int = 1_448
    loss: float = 0.0
    """Probability of a segment."""
    congestion_control: str = "cubic"
    """One of CONGESTION_CONTROLS; decides under losses."""
    target_delays_ns: tuple[float, ...] = ()
    """One way to each target of a mirror, instead of ``delay_ns``; all share the sender's line."""

    def dealt(self) -> Setting:
        """The same where ``queue_depth`` is that of all connections together: its commands dealt over them evenly."""
        connections = max(1, min(self.connections, self.queue_depth))
        return replace(self, connections=connections, queue_depth=max(1, round(self.queue_depth / connections)))


@dataclass(frozen=True)
class Leg:
    """One of the delays that a cycle pays one after the other."""

    name: str
    """Such as ``command``, ``r2t``, ``data``, ``ack``, ``status``."""
    delays: float
    """How many one-way delays."""
    meaning: str
    """Who waits for what, in a sentence."""


@dataclass(frozen=True)
class Prediction:
    """What the model says of a setting."""

    setting: Setting
    period_ns: float
    """Command to next command of one outstanding task, at the throughput below."""
    throughput_bytes_per_s: float
    bound: str
    """One of BOUNDS."""
    legs: tuple[Leg, ...]
    transfer_ns: float
    """Of the block on the line: B / C."""
    stall_ns: float
    """Within the block: windows that wait for their ACKs, rounds of slow start."""
    idle_fraction: float
    """Share of the time in which the line carries none of this payload."""
    is_in_range: bool = True
    """Whether the formulas were made for this; losses that end in timeouts, for instance, are not."""

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
