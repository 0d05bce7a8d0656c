"""How the data of one I/O is sent: its bursts with their headers, the line time of a byte, and the windows of the
connection; and I/Os on a shared line: when the bursts of commands leave it, and when the commands are done.

```text
  0        immediate     unsolicited        R2T          R2T     block
  |----------------|-----------------|-------------|-------------|       the bursts of a write (RFC 7143, section 13)
                      up to FirstBurstLength   each up to MaxBurstLength

  sent  |====      ====      ==        a window, then nothing until the ACK of its first bytes is back
        |<- round ->|
  sent  |=         ==        ====      slow start: each round twice the one before, until one fills the round
```

```text
  line     |first|      |b1|      |b2|             MaxOutstandingR2T=1: a round trip between any two
  line     |first|      |b1|b2|   |b3|b4|          2: the second is sent while the first travels
  line     |===    |===    |==                     a window, then nothing until the ACK of its first bytes is back
```

The burst that is ready first is sent first. On one connection nothing overtakes, so a command waits for the bursts
before it. Time is computed per burst or part of one, not per packet: a line has one rate, and windows follow from what
was sent.

Commands whose service takes equal times fall into step, and fill a line without a gap. Where the target takes now more
and now less for a command, they come together by chance. The pipeline follows them one by one, with service times drawn
evenly; without following them, mean value analysis of a closed queue counts how many get done.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from math import ceil, inf
from typing import Final

import numpy as np

from iscsitrace.model.setting import Setting

UNEVEN: Final = 0.25
"""Service times that scatter by this share of a block's time on the line put commands out of step."""
_SEED: Final = 1


@dataclass(frozen=True)
class Service:
    """What neither path nor line explains of a command."""

    mean_ns: float = 0.0
    spread_ns: float = 0.0
    """On either side of the mean."""

    def drawn(self) -> Iterator[float]:
        """The service times of one command after the other; the same in every run."""
        if not self.spread_ns:
            yield from repeat(self.mean_ns)
        chance = np.random.default_rng(_SEED)
        while True:
            yield chance.uniform(self.mean_ns - self.spread_ns, self.mean_ns + self.spread_ns)


def is_uneven(deviation_ns: float, line_ns: float) -> bool:
    """Whether service times with this standard deviation put commands out of step; ``line_ns``: a block's line time."""
    return bool(deviation_ns) and deviation_ns >= UNEVEN * line_ns


@lru_cache(maxsize=4096)
def commands_per_ns(count: int, period_ns: float, line_ns: float) -> float:
    """What so many commands in flight get done; alone each takes ``period_ns``, ``line_ns`` of it on the line.

    They are added one after the other, each to the queue that those before it make; of the command that is on the line
    already half is left (mean value analysis).
    """
    waiting = busy = rate = 0.0
    for number in range(1, count + 1):
        on_line_ns = line_ns * (1 + waiting - busy / 2)
        rate = number / (period_ns - line_ns + on_line_ns)
        waiting, busy = rate * on_line_ns, min(1.0, rate * line_ns)
    return min(rate, 1 / line_ns) if line_ns else rate


_GAP_NS: Final = 1e-3
"""Pieces closer than this are one: arithmetic is not exact."""


@dataclass(frozen=True)
class Block:
    """The data of one command, in bytes of the stream."""

    first_bytes: float
    """Sent with the command; for a read all its data."""
    solicited_bytes: Sequence[float] = ()
    """One burst for each R2T."""
    outstanding: int = 1
    """MaxOutstandingR2T."""


@dataclass(frozen=True)
class Way:
    """A connection: its path and its windows."""

    round_trip_ns: float
    """From the end of a burst to the answer."""
    acknowledged_ns: float = 0.0
    """From a byte to the byte that its ACK allows."""
    window_bytes: float = inf
    start_bytes: float = inf
    """Initial window of slow start, which grows by the bytes acknowledged up to ``window_bytes``."""

    def holds(self, count: float) -> bool:
        """Whether so many bytes are sent without waiting for an ACK."""
        return count <= min(self.window_bytes, self.start_bytes)

    def needed(self, position: float) -> tuple[float, float]:
        """Which byte has to be acknowledged before the one at ``position`` is sent; and for how many bytes from there
        the rule holds that each needs the ACK of one more byte (in slow start, of half a byte).
        """
        grown = 2 * self.window_bytes - self.start_bytes
        if position >= grown or self.start_bytes == inf:
            return position - self.window_bytes, inf
        return (position - self.start_bytes) / 2, grown - position


@dataclass
class _Burst:
    """Bytes of a command that wait for their turn."""

    task: int
    place: int
    """0: with the command; then 1 for the first R2T, and so on."""
    left_bytes: float
    ready_ns: float


class _Connection:
    """One connection: the bursts that wait, and what was sent when."""

    def __init__(self, way: Way, byte_ns: float) -> None:
        self.way = way
        self.queue: deque[_Burst] = deque()
        self._byte_ns = byte_ns
        self._position = 0.0
        # first byte, end, and when the first byte was sent; what was sent without a gap is one entry
        self._sent: deque[list[float]] = deque()

    def allowed(self) -> tuple[float, float]:
        """When the window allows the next byte, and how many bytes without a pause."""
        needed, most = self.way.needed(self._position)
        per_byte = 1.0 if most == inf else 2.0
        if needed < 0:
            return 0.0, min(most, -needed * per_byte)
        while self._sent[0][1] <= needed:
            self._sent.popleft()
        first, end, time_ns = self._sent[0]
        acknowledged_ns = time_ns + (needed - first) * self._byte_ns + self.way.acknowledged_ns
        return acknowledged_ns, max(1.0, min(most, (end - needed) * per_byte))

    def send(self, count: float, start_ns: float) -> None:
        """Sends bytes."""
        end = self._position + count
        if self._sent and start_ns - self._end_ns() < _GAP_NS:
            self._sent[-1][1] = end
        elif count:
            self._sent.append([self._position, end, start_ns])
        self._position = end

    def _end_ns(self) -> float:
        first, end, time_ns = self._sent[-1]
        return time_ns + (end - first) * self._byte_ns


class Pipeline:
    """A line, the connections over it, and commands that start again when they are done."""

    def __init__(
        self,
        block: Block,
        ways: Sequence[Way],
        tasks: Sequence[Sequence[int]],
        byte_ns: float,
        service: Service | None = None,
    ) -> None:
        """``tasks``: the ways over which each command sends its data; it is done when all of them have it."""
        self._block = block
        self._tasks = tasks
        self._byte_ns = byte_ns
        self._service_ns = (service or Service()).drawn()
        self._connections = [_Connection(way, byte_ns) for way in ways]
        self._free_ns = 0.0
        self._events: list[tuple[float, int, int, _Burst | None]] = []
        self._order = itertools.count()
        self._bursts_left: dict[int, int] = {}
        self._done_ns: dict[int, float] = {}
        self._kinds: Sequence[int] = [0] * len(tasks)
        self._to_begin = [inf]

    def call(self, count: int, kinds: Sequence[int]) -> float:
        """Time until ``count`` commands of each kind are done, after which none starts; ``kinds``: the kind of each
        place in the queue, counted from 0.
        """
        self._kinds, self._to_begin = kinds, [float(count)] * (max(kinds) + 1)
        return self.run(count * len(self._to_begin))[-1]

    def run(self, count: int) -> list[float]:
        """When each of the first ``count`` commands was done, in order; all places of the queue start at 0."""
        for task in range(len(self._tasks)):
            self._begin(task, 0.0)
        done: list[float] = []
        while len(done) < count:
            time_ns, _, number, burst = heapq.heappop(self._events)
            connection = self._connections[number]
            if burst:
                connection.queue.append(burst)
                if len(connection.queue) == 1:
                    self._try(number, time_ns)
                continue
            ended = self._send(connection, time_ns)
            if connection.queue:
                self._try(number, connection.queue[0].ready_ns)
            if ended:
                self._go_on(number, ended, done)
        return sorted(done)

    def _begin(self, task: int, time_ns: float) -> None:
        kind = self._kinds[task]
        if not self._to_begin[kind]:
            return
        self._to_begin[kind] -= 1
        ways, self._done_ns[task] = self._tasks[task], time_ns
        self._bursts_left[task] = len(ways) * (1 + len(self._block.solicited_bytes))
        for number in ways:
            self._put(number, _Burst(task, 0, self._block.first_bytes, time_ns))

    def _put(self, number: int, burst: _Burst) -> None:
        heapq.heappush(self._events, (burst.ready_ns, next(self._order), number, burst))

    def _try(self, number: int, ready_ns: float) -> None:
        """Schedules the next bytes of a connection for when its window allows them."""
        allowed_ns, _ = self._connections[number].allowed()
        heapq.heappush(self._events, (max(ready_ns, allowed_ns), next(self._order), number, None))

    def _send(self, connection: _Connection, time_ns: float) -> _Burst | None:
        """Puts bytes on the line; returns the burst if it ended with them."""
        burst = connection.queue[0]
        _, most = connection.allowed()
        count, start_ns = min(burst.left_bytes, most), max(time_ns, self._free_ns)
        connection.send(count, start_ns)
        self._free_ns = start_ns + count * self._byte_ns
        burst.left_bytes -= count
        if burst.left_bytes:
            return None
        return connection.queue.popleft()

    def _go_on(self, number: int, burst: _Burst, done: list[float]) -> None:
        """Continues after a burst has left the line: with R2Ts, or the status and the next command."""
        block, task = self._block, burst.task
        answer_ns = self._free_ns + self._connections[number].way.round_trip_ns
        asked = range(1, block.outstanding + 1) if burst.place == 0 else (burst.place + block.outstanding,)
        for place in asked:
            if place <= len(block.solicited_bytes):
                self._put(number, _Burst(task, place, block.solicited_bytes[place - 1], answer_ns))
        self._bursts_left[task] -= 1
        self._done_ns[task] = max(self._done_ns[task], answer_ns)
        if not self._bursts_left[task]:
            done_ns = self._done_ns[task] + next(self._service_ns)
            done.append(done_ns)
            self._begin(task, done_ns)


def first_burst_bytes(setting: Setting) -> int:
    """Bytes sent with the command: immediate data (section 13.11) and, with InitialR2T=No, the rest of the first burst
    (section 13.10).
    """
    keys = setting.solicitation
    limit = min(setting.block_bytes, keys.first_burst_bytes)
    if not keys.is_initial_r2t:
        return limit
    return min(limit, keys.max_recv_data_segment_bytes) if keys.is_immediate_data else 0


def solicited_bytes(setting: Setting) -> tuple[int, ...]:
    """Bytes that each R2T requests, in order: MaxBurstLength (section 13.13), and the remainder in the last."""
    left, most = setting.block_bytes - first_burst_bytes(setting), setting.solicitation.max_burst_bytes
    whole, rest = divmod(left, most)
    return (most,) * whole + ((rest,) if rest else ())


BASIC_HEADER_BYTES = 48
FRAME_HEADERS_BYTES = 66
"""Headers of a segment as captured: Ethernet, IPv4, and TCP with timestamps."""
_SEGMENTS_PER_ACK = 2
"""RFC 9293, section 3.8.6.3."""


def rate_of_line(rate_bps: float, segment_bytes: int) -> float:
    """Bytes of the stream that a line carries per second, in full segments with their headers."""
    return rate_bps / 8 * segment_bytes / (segment_bytes + FRAME_HEADERS_BYTES)


def stream_bytes(payload_bytes: float, data_pdu_bytes: int | None) -> float:
    """Bytes of a burst, with the headers of its data PDUs if these are counted."""
    return payload_bytes + (BASIC_HEADER_BYTES * ceil(payload_bytes / data_pdu_bytes) if data_pdu_bytes else 0)


def byte_ns(setting: Setting) -> float:
    """Line time of a byte of the stream."""
    return 1e9 / setting.c_bytes_per_s if setting.c_bytes_per_s else 0.0


def block_of(setting: Setting) -> Block:
    """The data of one command: all of a read; of a write the unsolicited data and a burst for each R2T."""
    if setting.operation == "read":
        return Block(stream_bytes(setting.block_bytes, setting.data_pdu_bytes))
    first, *solicited = (
        stream_bytes(size, setting.data_pdu_bytes) for size in (first_burst_bytes(setting), *solicited_bytes(setting))
    )
    return Block(first, solicited, setting.solicitation.max_outstanding_r2t)


def usable_bytes(window_bytes: float, segment_bytes: int) -> float:
    """Bytes of a window that are sent in every RTT: full segments, because a sender avoids shorter ones (RFC 9293,
    section 3.8.6.2.1), and an even number, because an odd last one is acknowledged with the next.
    """
    if window_bytes == inf:
        return inf
    segments = max(1, int(window_bytes // segment_bytes))
    return (segments - segments % _SEGMENTS_PER_ACK if segments > _SEGMENTS_PER_ACK else segments) * segment_bytes


def way_of(setting: Setting, average_bytes: float = inf, k_factor: float = 1.0) -> Way:
    """The path with the setting's window, or with a smaller one that varies about an average, which need not be full
    segments; sending continues with the ACK of the second segment.
    """
    round_trip_ns = 2 * setting.delay_ns
    return Way(
        round_trip_ns=round_trip_ns * k_factor,
        acknowledged_ns=round_trip_ns + _SEGMENTS_PER_ACK * setting.segment_bytes * byte_ns(setting),
        window_bytes=min(usable_bytes(setting.window_bytes or inf, setting.segment_bytes), average_bytes),
        start_bytes=setting.start_window_bytes or inf,
    )


def open_way(setting: Setting, k_factor: float = 1.0) -> Way:
    """The path without window limits."""
    return Way(2 * setting.delay_ns * k_factor)


def alone_ns(setting: Setting, *ways: Way) -> float:
    """Time of one I/O with nothing else in flight; over several ways, until all of them have it."""
    block = block_of(setting)
    if len(ways) == 1 and not block.solicited_bytes and ways[0].holds(block.first_bytes):
        # nothing waits for anything: no need to follow it
        return block.first_bytes * byte_ns(setting) + ways[0].round_trip_ns
    return Pipeline(block, ways, [range(len(ways))], byte_ns(setting)).run(1)[0]


def line_ns(setting: Setting) -> float:
    """Line time of one I/O."""
    block = block_of(setting)
    return (block.first_bytes + sum(block.solicited_bytes)) * byte_ns(setting)
