"""Two TCP endpoints over a path with a tap, in virtual time: bytes written become captured frames.

A small TCP, sufficient for captures: segments of at most one MSS, a fixed window, delayed ACKs, SACK, fast
retransmission and a retransmission timer. It has no congestion control and never reads a clock or an unseeded random
number. Its packets are correct: sequence numbers, options, IP identification, checksums.
"""

from __future__ import annotations

import heapq
import ipaddress
import struct
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
ETHERNET, NULL, RAW, LINUX_SLL, LINUX_SLL2 = 1, 0, 101, 113, 276


@dataclass(frozen=True)
class Packet:
    """One frame at the tap, and the position of its payload in its stream (the first byte after the SYN is 0)."""

    time_ns: int
    data: bytes
    original_length: int
    connection: int
    to_target: bool
    stream_offset: int
    payload_bytes: int
    header_bytes: int
    """link, IP and TCP headers: where the payload starts in the frame."""
    ack_offset: int | None
    flags: int
    is_retransmission: bool = False
    is_copy: bool = False

    @property
    def captured_payload_bytes(self) -> int:
        """Captured payload bytes (fewer than payload_bytes if a snaplen cut the frame)."""
        return max(0, min(self.payload_bytes, len(self.data) - self.header_bytes))


@dataclass(frozen=True)
class Path:
    """The network between the two hosts, and its effects on chosen data segments (numbered from 0 per direction)."""

    one_way_delay_ns: int = 500_000
    rate_bits_per_s: int = 1_000_000_000
    tap: float = 0.0
    """0 at the initiator, 1 at the target, 0.5 half way."""
    link_type: int = ETHERNET
    vlan: int | None = None
    initiator_address: str = "192.0.2.1"
    target_address: str = "192.0.2.2"
    target_port: int = 3260
    mss_bytes: int = 1448
    """payload of a full packet; the MSS option announces 12 more when timestamps are on."""
    segment_bytes: int | None = None
    """more than the MSS: super-segments, as a host with segmentation offload captures them."""
    is_ip_length_zero: bool = False
    """IPv4 total length 0 in super-segments, as some hosts with segmentation offload write it."""
    window_bytes: int = 1 << 20
    window_scale: int = 7
    has_timestamps: bool = True
    has_sack: bool = True
    ack_every: int = 2
    delayed_ack_ns: int = 40_000_000
    is_pdu_per_segment: bool = False
    """every PDU starts a new segment."""
    is_command_per_segment: bool = False
    """every PDU of the initiator starts a new segment: it sends each with a separate call and TCP_NODELAY."""
    lost_before_tap: frozenset[tuple[bool, int]] = frozenset()
    lost_after_tap: frozenset[tuple[bool, int]] = frozenset()
    late: frozenset[tuple[bool, int]] = frozenset()
    """delayed by `late_ns` before the tap, so that later segments overtake them."""
    late_ns: int = 40_000
    copied: frozenset[tuple[bool, int]] = frozenset()
    """captured twice (the same packet: the same IP identification)."""


class Clock:
    """Virtual time: actions in order of their time, then of their creation."""

    def __init__(self, start_ns: int) -> None:
        self.now_ns = start_ns
        self._actions: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        """Schedules `action` at `time_ns`."""
        assert time_ns >= self.now_ns
        heapq.heappush(self._actions, (time_ns, self._count, action))
        self._count += 1

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Schedules `action` after `delay_ns`."""
        self.at(self.now_ns + delay_ns, action)

    def run(self) -> None:
        """Runs until no action is left."""
        while self._actions:
            self.now_ns, _, action = heapq.heappop(self._actions)
            action()


@dataclass
class _Sent:
    start: int
    end: int
    is_sacked: bool = False
    is_sent_again: bool = False


@dataclass
class Endpoint:
    """One end of a TCP connection: the sender of one stream and the receiver of the other."""

    clock: Clock
    path: Path
    connection: int
    to_target: bool
    initial_sequence_number: int
    identification: int
    port: int
    peer: Endpoint = field(init=False)
    tap: list[Packet] = field(init=False)
    on_bytes: Callable[[int], None] = field(init=False)
    """called with the length of the peer's stream that is in order here."""
    stream: bytearray = field(default_factory=bytearray)
    pdu_starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._write_ends: set[int] = set()
        self._next = self._acked = self._received = 0
        self._sent: list[_Sent] = []
        self._out_of_order: list[tuple[int, int]] = []
        self._link_free_ns = 0
        self._is_pumping = False
        self._unacked_segments = 0
        self._ack_generation = self._timer_generation = 0
        self._duplicate_acks = 0
        self._recover: int | None = None
        self._data_segment_count = 0
        self._timestamp_echo = 0
        self._is_fin_received = self._is_fin_sent = False
        self._on_established: Callable[[], None] | None = None

    # --- the application

    def connect(self, on_established: Callable[[], None]) -> None:
        """The three-way handshake; the caller is the initiator's end."""
        self._on_established = on_established
        self._transmit(SYN, -1, 0)

    def write(self, data: bytes, pdu_starts: list[int]) -> None:
        """One write call: bytes to send, with the positions of PDU starts."""
        self.pdu_starts += [len(self.stream) + start for start in pdu_starts]
        self.stream += data
        self._write_ends.add(len(self.stream))
        self._pump()

    def close(self) -> None:
        """Sends a FIN after all written bytes."""
        self._is_fin_sent = True
        self._transmit(FIN | ACK, len(self.stream), 0)

    # --- sending

    def _pump(self) -> None:
        # one segment whenever the line is free: bytes written meanwhile join the next segments
        if not self._is_pumping and self._next < len(self.stream):
            self._is_pumping = True
            self.clock.at(max(self.clock.now_ns, self._link_free_ns), self._send_next)

    def _send_next(self) -> None:
        self._is_pumping = False
        start = self._next
        end = min(len(self.stream), start + (self.path.segment_bytes or self.path.mss_bytes))
        if self.path.is_pdu_per_segment or (self.path.is_command_per_segment and self.to_target):
            following = bisect_right(self.pdu_starts, start)
            if following < len(self.pdu_starts):
                end = min(end, self.pdu_starts[following])
        if end <= start or end - self._acked > self.path.window_bytes:
            return  # an ACK will open the window
        self._next = end
        self._sent.append(_Sent(start, end))
        number = (self.to_target, self._data_segment_count)
        self._data_segment_count += 1
        self._transmit(ACK | (PSH if end in self._write_ends else 0), start, end - start, number)
        if len(self._sent) == 1:
            self._start_timer(1)
        self._pump()

    def _send_again(self, sent: _Sent) -> None:
        sent.is_sent_again = True
        self._transmit(ACK | PSH, sent.start, sent.end - sent.start, is_retransmission=True)

    def _start_timer(self, backoff: int) -> None:
        self._timer_generation += 1
        generation = self._timer_generation
        wait_ns = backoff * max(200_000_000, 4 * self.path.one_way_delay_ns)

        def expire() -> None:
            if generation == self._timer_generation and self._sent:
                self._recover = self._next
                for sent in self._sent:
                    sent.is_sent_again = False
                self._send_again(self._sent[0])
                self._start_timer(backoff * 2)

        self.clock.after(wait_ns, expire)

    def _on_ack(self, acked: int, sack: list[tuple[int, int]], is_pure: bool) -> None:
        acked = min(acked, self._next)
        for sent in self._sent if sack else ():
            sent.is_sacked |= any(start <= sent.start and sent.end <= end for start, end in sack)
        if acked > self._acked:
            self._acked = acked
            self._sent = [sent for sent in self._sent if sent.end > acked]
            self._duplicate_acks = 0
            self._start_timer(1)
            if self._recover is not None and acked >= self._recover:
                self._recover = None
        elif is_pure and acked == self._acked and self._sent:
            self._duplicate_acks += 1
            if self._duplicate_acks == 3 and self._recover is None:
                self._recover = self._next
        if self._recover is not None:
            sacked_after = sum(sent.is_sacked for sent in self._sent)
            for place, sent in enumerate(self._sent):
                if sent.start >= self._recover:
                    break
                sacked_after -= sent.is_sacked
                # the first hole always; later ones once three segments after them have arrived (RFC 6675)
                if not sent.is_sacked and not sent.is_sent_again and (place == 0 or sacked_after >= 3):
                    self._send_again(sent)
        self._pump()

    # --- receiving

    def _receive(self, packet: Packet, sack: list[tuple[int, int]], timestamp: int) -> None:
        if packet.flags & SYN:
            self._timestamp_echo = timestamp
            self._on_syn(packet)
            return
        if packet.ack_offset is not None:
            self._on_ack(packet.ack_offset, sack, packet.payload_bytes == 0)
        if packet.flags & FIN:
            self._is_fin_received = True
            if self._is_fin_sent:
                self._transmit(ACK, len(self.stream) + 1, 0)
            else:
                self.close()
        if packet.payload_bytes == 0:
            return
        start, end = packet.stream_offset, packet.stream_offset + packet.payload_bytes
        had_hole = bool(self._out_of_order)
        if start <= self._received:
            self._timestamp_echo = timestamp
            self._received = max(self._received, end)
            while self._out_of_order and self._out_of_order[0][0] <= self._received:
                self._received = max(self._received, self._out_of_order.pop(0)[1])
        else:
            self._out_of_order = _merge([*self._out_of_order, (start, end)])
        self._unacked_segments += -(-packet.payload_bytes // self.path.mss_bytes)
        if had_hole or self._out_of_order or self._unacked_segments >= self.path.ack_every:
            latest = [block for block in self._out_of_order if block[0] <= start < block[1]]
            self._transmit(ACK, self._next, 0, sack=latest + [b for b in self._out_of_order if b not in latest])
        else:
            generation = self._ack_generation
            self.clock.after(self.path.delayed_ack_ns, lambda: self._ack_late(generation))
        self.on_bytes(self._received)

    def _on_syn(self, packet: Packet) -> None:
        if not packet.flags & ACK:
            self._transmit(SYN | ACK, -1, 0)
            return
        self._transmit(ACK, 0, 0)
        if self._on_established is not None:
            self._on_established()

    def _ack_late(self, generation: int) -> None:
        if generation == self._ack_generation:
            self._transmit(ACK, self._next, 0)

    # --- frames

    def _transmit(
        self,
        flags: int,
        start: int,
        length: int,
        number: tuple[bool, int] | None = None,
        *,
        is_retransmission: bool = False,
        sack: list[tuple[int, int]] | None = None,
    ) -> None:
        path, clock = self.path, self.clock
        self._unacked_segments = 0
        self._ack_generation += 1
        ack_offset = self._received + self._is_fin_received if flags & ACK else None
        options = self._options(flags, sack or [])
        tcp = struct.pack(
            "!HHIIBBHHH",
            self.port,
            self.peer.port,
            (self.initial_sequence_number + 1 + start) & 0xFFFFFFFF,
            0 if ack_offset is None else (self.peer.initial_sequence_number + 1 + ack_offset) & 0xFFFFFFFF,
            (20 + len(options)) << 2,
            flags,
            min(0xFFFF, path.window_bytes >> (0 if flags & SYN else path.window_scale)),
            0,
            0,
        )
        payload = bytes(self.stream[start : start + length]) if length else b""
        frame, header_bytes = self._frame(tcp + options, payload)
        wire_ns = (len(frame) + 24) * 8 * 1_000_000_000 // path.rate_bits_per_s
        depart_ns = max(clock.now_ns, self._link_free_ns) + wire_ns
        self._link_free_ns = depart_ns
        delay_ns = path.one_way_delay_ns + (path.late_ns if number in path.late else 0)
        before_tap_ns = int(delay_ns * (path.tap if self.to_target else 1 - path.tap))
        if number in path.late and before_tap_ns < path.late_ns:
            before_tap_ns = path.late_ns
        packet = Packet(
            depart_ns + before_tap_ns,
            frame,
            len(frame),
            self.connection,
            self.to_target,
            start,
            length,
            header_bytes,
            ack_offset,
            flags,
            is_retransmission,
        )
        if number not in path.lost_before_tap or number is None:
            clock.at(packet.time_ns, lambda: self.tap.append(packet))
            if number is not None and number in path.copied:
                copy = Packet(**{**packet.__dict__, "time_ns": packet.time_ns + 3_000, "is_copy": True})
                clock.at(copy.time_ns, lambda: self.tap.append(copy))
        if number is None or (number not in path.lost_before_tap and number not in path.lost_after_tap):
            timestamp = depart_ns // 1_000_000
            clock.at(depart_ns + delay_ns, lambda: self.peer._receive(packet, sack or [], timestamp))

    def _options(self, flags: int, sack: list[tuple[int, int]]) -> bytes:
        path = self.path
        options = b""
        if flags & SYN:
            options += struct.pack("!BBH", 2, 4, path.mss_bytes + (12 if path.has_timestamps else 0))
            options += b"\x01\x01\x04\x02" if path.has_sack else b""
        if path.has_timestamps:
            now = self.clock.now_ns // 1_000_000 & 0xFFFFFFFF
            options += b"\x01\x01" + struct.pack("!BBII", 8, 10, now, self._timestamp_echo & 0xFFFFFFFF)
        if flags & SYN:
            options += struct.pack("!BBBB", 1, 3, 3, path.window_scale)
        if sack and path.has_sack:
            blocks = sack[: 3 if path.has_timestamps else 4]
            options += b"\x01\x01" + struct.pack("!BB", 5, 2 + 8 * len(blocks))
            for block in blocks:
                base = self.peer.initial_sequence_number + 1
                options += struct.pack("!II", *((base + place) & 0xFFFFFFFF for place in block))
        return options

    def _frame(self, tcp: bytes, payload: bytes) -> tuple[bytes, int]:
        path = self.path
        ends = [_packed(path.initiator_address), _packed(path.target_address)]
        source, destination = ends if self.to_target else ends[::-1]
        is_v4 = len(source) == 4
        length = len(tcp) + len(payload)
        pseudo = source + destination + struct.pack("!IHH", length, 0, 6)
        checksum = _checksum(pseudo + tcp + payload)
        tcp = tcp[:16] + struct.pack("!H", checksum) + tcp[18:]
        self.identification = self.identification + 1 & 0xFFFF
        if is_v4:
            total = 0 if path.is_ip_length_zero and len(payload) > path.mss_bytes else 20 + length
            ip = struct.pack("!BBHHHBBH", 0x45, 0, total, self.identification, 0x4000, 64, 6, 0)
            ip += source + destination
            ip = ip[:10] + struct.pack("!H", _checksum(ip)) + ip[12:]
        else:
            ip = struct.pack("!IHBB", 0x60000000, length, 6, 64) + source + destination
        header = self._link_header(0x0800 if is_v4 else 0x86DD) + ip + tcp
        return header + payload, len(header)

    def _link_header(self, ether_type: int) -> bytes:
        path = self.path
        macs = [b"\x02\x00\x00\x00\x00\x01", b"\x02\x00\x00\x00\x00\x02"]
        source, destination = macs if self.to_target else macs[::-1]
        if path.link_type == ETHERNET:
            tag = b"" if path.vlan is None else struct.pack("!HH", 0x8100, path.vlan)
            return destination + source + tag + struct.pack("!H", ether_type)
        if path.link_type == LINUX_SLL:
            return (
                struct.pack("!HHH", 4 if self.to_target else 0, 1, 6) + source + b"\0\0" + struct.pack("!H", ether_type)
            )
        if path.link_type == LINUX_SLL2:
            kind = 4 if self.to_target else 0
            return struct.pack("!HHIHBB", ether_type, 0, 2, 1, kind, 6) + source + b"\0\0"
        if path.link_type == NULL:
            return struct.pack("<I", 2 if ether_type == 0x0800 else 24)
        assert path.link_type == RAW
        return b""


def connect_ends(initiator: Endpoint, target: Endpoint, tap: list[Packet]) -> None:
    """Connects two endpoints; `tap` receives every packet."""
    initiator.peer, target.peer = target, initiator
    initiator.tap = target.tap = tap


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


@cache
def _packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def _checksum(data: bytes) -> int:
    # the ones' complement sum of 16-bit words is the number modulo 65535, with 65535 itself for a sum that is not 0
    value = int.from_bytes(data + b"\0" * (len(data) % 2), "big")
    return 0xFFFF - (value % 0xFFFF or (0xFFFF if value else 0))
