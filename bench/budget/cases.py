"""Settings with a known limiter: each with its time breakdown by arithmetic, and the reason for it.

A case is one workload over one link, in either world. The arithmetic is that of a steady period with hosts of zero
service time: ``L`` is the time of a block on the line, ``d`` the one-way delay. Losses have no arithmetic: their truth
comes from the logs (`true_parts`). This file runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import Any

LINE = "transfer"
MS_NS = 1_000_000
RATE_BPS, FAST_RATE_BPS = 320_000_000, 1_000_000_000
SEGMENT_BYTES, HEADERS_BYTES, BASIC_HEADER_BYTES = 1448, 66, 48
EQUAL_POINTS = 5.0
"""Two parts whose shares differ by less are both correct."""
DELAYS_MS = (0.1, 1.0, 4.0, 16.0)
QUEUE_DEPTHS = (1, 8)
OPERATIONS = ("read", "write")
WINDOW_BYTES = 16 << 10
LARGE_WINDOW_BYTES, SEND_BUFFER_BYTES = 12 << 20, 16 << 20
QUEUE_PACKETS = 10_000
DELAYED_ACK_NS = 40 * MS_NS
_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Case:
    """One setting."""

    kind: str
    operation: str
    delay_ms: float
    queue_depth: int
    block_bytes: int
    loss: float = 0.0
    window_bytes: int = LARGE_WINDOW_BYTES
    service_ns: int = 0
    think_ns: int = 0
    initiator_host_ns: int = 0
    status: str = "in_data"
    burst_bytes: int | None = None
    """Each write needs R2Ts of this many bytes."""
    rate_bps: int = RATE_BPS
    initial_window: int = 10
    total_bytes: int | None = None
    """The amount of data, instead of a duration."""
    congestion_control: str = "cubic"
    send_buffer_bytes: int = SEND_BUFFER_BYTES
    queue_packets: int = QUEUE_PACKETS
    parts_ns: dict[str, float] = field(default_factory=dict, hash=False)
    """Time breakdown by arithmetic; empty where there is none."""
    reason: str = ""
    is_real: bool = True
    """Whether the real world can run it."""

    @property
    def name(self) -> str:
        """The name of the case, unique."""
        return f"{self.kind}, {self.operation}, {self.delay_ms:g} ms, QD {self.queue_depth}"

    @property
    def senders(self) -> tuple[str, ...]:
        """The sides that send data."""
        return {"read": ("target",), "write": ("initiator",)}.get(self.operation, ("initiator", "target"))

    @property
    def is_judged(self) -> bool:
        """Whether `true_parts` derives its time breakdown: of one sender, and no host that delays queued commands."""
        return len(self.senders) == 1 and (self.queue_depth == 1 or not self.initiator_host_ns)

    @cached_property
    def limiters(self) -> tuple[str, ...]:
        """The correct limiters by arithmetic, see `limiters`."""
        return limiters(self.parts_ns)

    def settings(self, seed: int = 1, *, is_logging_packets: bool = True) -> dict[str, Any]:
        """Settings for either world."""
        tcp = {
            "receive_buffer_bytes": LARGE_WINDOW_BYTES,
            "send_buffer_bytes": self.send_buffer_bytes,
            "congestion_control": self.congestion_control,
            "nagle": False,
            "initial_window": self.initial_window,
        }
        receiver = tcp | {"receive_buffer_bytes": self.window_bytes}
        initiator, target = (receiver if far in self.senders else tcp for far in ("target", "initiator"))
        direction = {
            "rate_bps": self.rate_bps,
            "delay_ns": round(self.delay_ms * MS_NS),
            "queue_packets": self.queue_packets,
            "loss_probability": self.loss,
        }
        workload = {
            "operation": self.operation,
            "block_size_bytes": self.block_bytes,
            "queue_depth": self.queue_depth,
            "think_time_ns": self.think_ns,
            "total_bytes": self.total_bytes,
            "duration_ns": None if self.total_bytes else round(self.seconds * 1e9),
        }
        portal: dict[str, Any] = {"status": self.status, "seed": seed}
        if self.service_ns:
            served = {"target": "read", "initiator": "write"}
            fixed = {"distribution": "fixed", "delay_ns": self.service_ns}
            portal |= {f"{served[sender]}_delay": fixed for sender in self.senders}
        offers: dict[str, Any] = {}
        if self.burst_bytes:
            burst = {"max_burst_length": self.burst_bytes, "first_burst_length": self.burst_bytes}
            offers = burst | {"initial_r2t": True, "immediate_data": False}
        links = {"to_target": direction, "to_initiator": direction, "seed": seed}
        return {
            "client": {"workload": workload | {"seed": seed}, "login": {"offers": offers}},
            "portals": [portal],
            "world": {
                "initiator_tcp": initiator,
                "target_tcp": target | {"nagle": self.status == "apart_held"},
                "initiator_host_delay_ns": self.initiator_host_ns,
                "paths": [links | {"is_logging_packets": is_logging_packets}],
                "tcp_log": "pipe",
                "seed": seed,
            },
        }

    @property
    def seconds(self) -> float:
        """Long enough for tens of periods, so that discovery and the first slow start matter little."""
        period_ns = sum(self.parts_ns.values()) or 6 * self.delay_ms * MS_NS
        return min(4.0, max(0.6, 30 * period_ns / 1e9, 0.1 * self.delay_ms))


def largest(parts_ns: Mapping[str, float]) -> tuple[str, ...]:
    """The largest part other than the line's, and those smaller by less than EQUAL_POINTS of the whole time."""
    equal = EQUAL_POINTS / 100 * sum(parts_ns.values())
    others = {part: part_ns for part, part_ns in parts_ns.items() if part != LINE}
    most = max(others.values(), default=0)
    ordered = sorted(others, key=lambda part: -others[part])
    return tuple(part for part in ordered if most > 0 and most - others[part] < equal)


def limiters(parts_ns: Mapping[str, float]) -> tuple[str, ...]:
    """The correct limiters: the line, if it takes more than half of the time, else the largest part."""
    total = sum(parts_ns.values())
    if not total:
        return ()
    half, equal = 0.5 * total, EQUAL_POINTS / 100 * total
    line = (LINE,) if parts_ns.get(LINE, 0) > half - equal / 2 else ()
    return line + (largest(parts_ns) if parts_ns.get(LINE, 0) <= half + equal / 2 else ())


def line_ns(payload_bytes: int, rate_bps: int = RATE_BPS) -> float:
    """Time on the line of a PDU with this many bytes of data."""
    stream_bytes = payload_bytes + BASIC_HEADER_BYTES
    frames_bytes = stream_bytes + HEADERS_BYTES * ceil(stream_bytes / SEGMENT_BYTES)
    return frames_bytes * 8e9 / rate_bps


def _queued(busy_ns: float, ways_ns: float, depth: int, **others_ns: float) -> dict[str, float]:
    """Parts of a period of `depth` commands: time on the line hides other parts, the one-way delays first."""
    work_ns = depth * busy_ns
    hidden_ns = work_ns - busy_ns
    parts_ns = {"transfer": work_ns}
    for part, part_ns in {"propagation": ways_ns, **others_ns}.items():
        parts_ns[part] = max(0.0, part_ns - hidden_ns)
        hidden_ns = max(0.0, hidden_ns - part_ns)
    return parts_ns


def _small(depth: int) -> int:
    """Block size in bytes: eight small blocks take as long on the line as two of the larger blocks."""
    return 64 * _KIB if depth == 1 else 16 * _KIB


def _rest_ns(delay_ms: float) -> int:
    """A service or think time larger than both one-way delays and eight blocks."""
    return max(20 * MS_NS, round(10 * delay_ms * MS_NS))


def _plain(operation: str, delay_ms: float, depth: int) -> Case:
    block_bytes, ways_ns = _small(depth), 2 * delay_ms * MS_NS
    return Case(
        *("plain", operation, delay_ms, depth, block_bytes),
        parts_ns=_queued(line_ns(block_bytes), ways_ns, depth),
        reason="a command takes L + 2d, and the line carries the other commands meanwhile: propagation, if 2d > QD * L",
    )


def _window_limited(operation: str, delay_ms: float, depth: int) -> Case:
    block_bytes, ways_ns = 256 * _KIB, 2 * delay_ms * MS_NS
    full_ns, window_ns = line_ns(block_bytes), WINDOW_BYTES * line_ns(256 * _KIB) / (256 * _KIB)
    waits = block_bytes / WINDOW_BYTES - (depth == 1)
    stalled_ns = waits * max(0.0, ways_ns - window_ns)
    parts_ns = {"transfer": full_ns, "receive_window": stalled_ns, "propagation": ways_ns if depth == 1 else 0.0}
    return Case(
        *("window-limited", operation, delay_ms, depth, block_bytes),
        window_bytes=WINDOW_BYTES,
        parts_ns=parts_ns,
        reason="sixteen windows of 16 KiB per block; each but the last waits 2d minus its time on the line; at 0.1 ms "
        "the window exceeds the bandwidth-delay product, and the line is the limit",
    )


def _lossy(operation: str, delay_ms: float, depth: int, loss: float) -> Case:
    return Case(
        *(f"loss {loss:.1%}", operation, delay_ms, depth, 64 * _KIB),
        loss=loss,
        reason="the recovery time depends on which packets were lost: a lost last segment waits for a timeout, any "
        "other for an RTT; losses keep the congestion window small",
    )


def _slow_target(operation: str, delay_ms: float, depth: int) -> Case:
    block_bytes, service_ns = _small(depth), _rest_ns(delay_ms)
    parts_ns = _queued(line_ns(block_bytes), 2 * delay_ms * MS_NS, depth, target_service=service_ns)
    return Case(
        *("slow target", operation, delay_ms, depth, block_bytes),
        service_ns=service_ns,
        parts_ns=parts_ns,
        reason="the service time is five RTTs, and the target serves all commands in parallel",
    )


def _held(delay_ms: float, depth: int, block_bytes: int, kind: str) -> Case:
    ways_ns, parts_ns = 2 * delay_ms * MS_NS, {}
    is_odd = ceil((block_bytes + BASIC_HEADER_BYTES) / SEGMENT_BYTES) % 2 == 1
    if depth == 1:
        held_ns = ways_ns + is_odd * DELAYED_ACK_NS
        parts_ns = {"transfer": line_ns(block_bytes), "propagation": ways_ns, "ack_wait": held_ns}
    return Case(
        *(kind, "read", delay_ms, depth, block_bytes),
        status="apart_held",
        parts_ns=parts_ns,
        reason="the status waits 2d for the ACK, as the data waited 2d for the command: 4d, half of it ack_wait; "
        "an odd last segment is acknowledged 40 ms later; with queued commands, data carries the status of others",
    )


def _solicited(operation: str, delay_ms: float, depth: int) -> Case:
    block_bytes, burst_bytes = 256 * _KIB, 64 * _KIB
    bursts = block_bytes // burst_bytes
    ways_ns = 2 * (bursts + 1) * delay_ms * MS_NS
    return Case(
        *("R2T rounds", operation, delay_ms, depth, block_bytes),
        burst_bytes=burst_bytes,
        parts_ns=_queued(bursts * line_ns(burst_bytes), ways_ns, depth),
        reason="each of four R2Ts and the status takes an RTT (2d); no host adds service time",
    )


def _slow_initiator(operation: str, delay_ms: float, depth: int) -> Case:
    block_bytes, burst_bytes = 256 * _KIB, 64 * _KIB
    bursts = block_bytes // burst_bytes
    host_ns = max(5 * MS_NS, round(5 * delay_ms * MS_NS))
    parts_ns = {
        "transfer": bursts * line_ns(burst_bytes),
        "propagation": 2 * (bursts + 1) * delay_ms * MS_NS,
        "initiator_service": float(bursts * host_ns),
        "initiator_think": float(host_ns),
    }
    return Case(
        *("slow initiator", operation, delay_ms, depth, block_bytes),
        burst_bytes=burst_bytes,
        initiator_host_ns=host_ns,
        parts_ns=parts_ns,
        reason="the initiator delays its answer to each of four R2Ts per block, and the next command",
        is_real=False,
    )


def _thinking(operation: str, delay_ms: float, depth: int) -> Case:
    block_bytes, think_ns = _small(depth), _rest_ns(delay_ms)
    busy_ns, ways_ns = line_ns(block_bytes), 2 * delay_ms * MS_NS
    parts_ns = {
        "transfer": depth * busy_ns,
        "propagation": ways_ns,
        "initiator_think": think_ns - (depth - 1) * busy_ns,
    }
    return Case(
        *("think time", operation, delay_ms, depth, block_bytes),
        think_ns=think_ns,
        # the first blocks start together; otherwise they would stay one RTT apart
        initial_window=10 if depth == 1 else 128,
        parts_ns=parts_ns,
        reason="no command is in flight for five RTTs; commands that begin together end one block after the other, and "
        "stay that far apart",
    )


def _saturated(operation: str, delay_ms: float, depth: int) -> Case:
    block_bytes = 256 * _KIB
    return Case(
        *("saturated", operation, delay_ms, depth, block_bytes),
        parts_ns=_queued(line_ns(block_bytes), 2 * delay_ms * MS_NS, depth),
        reason="the requested data exceeds the bandwidth-delay product: the line is never idle",
    )


def _slow_start(operation: str, delay_ms: float, depth: int) -> Case:
    total_bytes = round(delay_ms * 0.75 * _MIB)
    segment_ns = (SEGMENT_BYTES + HEADERS_BYTES) * 8e9 / FAST_RATE_BPS
    ways_ns, window, stalled_ns, sent = 2 * delay_ms * MS_NS, 2, 0.0, 0
    while sent + window < total_bytes / SEGMENT_BYTES and window * segment_ns < ways_ns:
        stalled_ns += ways_ns - window * segment_ns
        sent, window = sent + window, 2 * window
    parts_ns = {
        "transfer": line_ns(total_bytes, FAST_RATE_BPS),
        "congestion_window": stalled_ns,
        # before the block come the INQUIRY and similar commands
        "propagation": 4 * ways_ns,
    }
    return Case(
        *("slow start", operation, delay_ms, depth, total_bytes),
        rate_bps=FAST_RATE_BPS,
        initial_window=2,
        total_bytes=total_bytes,
        parts_ns=parts_ns,
        reason="one block, sent from an initial window of two segments: 2, 4, 8 ... segments per RTT",
    )


def _restarting(operation: str, delay_ms: float, depth: int) -> Case:
    block_bytes, think_ns = 512 * _KIB, 1_500 * MS_NS
    ways_ns = 2 * delay_ms * MS_NS
    segment_ns = (SEGMENT_BYTES + HEADERS_BYTES) * 8e9 / RATE_BPS
    windows, sent = [10], 10
    while sent < block_bytes / SEGMENT_BYTES:
        windows.append(2 * windows[-1])
        sent += windows[-1]
    parts_ns = {
        "transfer": line_ns(block_bytes),
        "propagation": ways_ns,
        "initiator_think": float(think_ns),
        "congestion_window": sum(max(0.0, ways_ns - window * segment_ns) for window in windows[:-1]),
    }
    return Case(
        *("slow start after idle", operation, delay_ms, depth, block_bytes),
        think_ns=think_ns,
        total_bytes=4 * block_bytes,
        parts_ns=parts_ns,
        reason="the think time is the largest part; after it, cwnd of every block starts at ten segments again",
    )


def _made() -> Iterator[Case]:
    for delay_ms in DELAYS_MS:
        for operation in OPERATIONS:
            for depth in QUEUE_DEPTHS:
                for make in (_plain, _window_limited, _slow_target, _thinking):
                    yield make(operation, delay_ms, depth)
                for loss in (0.01, 0.001):
                    yield _lossy(operation, delay_ms, depth, loss)
            yield _saturated(operation, delay_ms, 8)
            if delay_ms >= 4:
                yield _slow_start(operation, delay_ms, 1)
                yield _restarting(operation, delay_ms, 1)
        for depth in QUEUE_DEPTHS:
            yield _held(delay_ms, depth, _small(depth), "status held")
            yield _solicited("write", delay_ms, depth)
        yield _held(delay_ms, 1, 128 * _KIB, "status held, odd")
        yield _slow_initiator("write", delay_ms, 1)


CASES = {case.name: case for case in _made()}
