"""Packets of a run at either tap, by their headers, and which of them were lost between the taps.

This file uses no result of iscsitrace, and follows no connection. A packet is the same at both taps by its IP
identification and its TCP header without the checksum; the number of lost packets must equal the link's log.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.support.capture_file import read_records

_ETHERNET_BYTES = 14
_IPV4, _TCP = b"\x08\x00", 6
_FIN, _SYN = 0x01, 0x02
_WRAP = 1 << 32
ANSWER_NS = 1_000_000
"""A host answers a packet within this time; a timer sent any later packet."""


@dataclass(frozen=True)
class Packet:
    """One TCP packet at a tap."""

    time_ns: int
    frame: int
    to_target: bool
    sequence: int
    """Relative to the first packet of its direction."""
    payload_bytes: int
    is_control: bool
    """SYN or FIN."""
    key: bytes
    """Equal at both taps."""

    @property
    def end(self) -> int:
        """One past its last byte."""
        return self.sequence + self.payload_bytes


def packets(capture: Path, target_port: int, initiator_port: int | None = None) -> list[Packet]:
    """The packets of the connection to a target's port over IPv4, in order; of several, that of an initiator's port."""
    first: dict[bool, int] = {}
    found = []
    for frame, record in enumerate(read_records(capture)[0], 1):
        if record.data[12:_ETHERNET_BYTES] != _IPV4 or record.data[23] != _TCP:
            continue
        tcp = _ETHERNET_BYTES + 4 * (record.data[_ETHERNET_BYTES] & 0xF)
        _, peer_port, sequence = struct.unpack_from(">HHI", record.data, tcp)
        header_bytes, flags = 4 * (record.data[tcp + 12] >> 4), record.data[tcp + 13]
        ports = struct.unpack_from(">HH", record.data, tcp)
        if target_port not in ports or initiator_port not in (None, *ports):
            continue
        to_target = peer_port == target_port
        payload_bytes = struct.unpack_from(">H", record.data, 16)[0] + _ETHERNET_BYTES - tcp - header_bytes
        found.append(
            Packet(
                record.time_ns,
                frame,
                to_target,
                (sequence - first.setdefault(to_target, sequence)) % _WRAP,
                payload_bytes,
                bool(flags & (_SYN | _FIN)),
                record.data[18:20] + record.data[tcp : tcp + 16] + record.data[tcp + 20 : tcp + header_bytes],
            )
        )
    return found


def resent(sent: Iterable[Packet]) -> list[Packet]:
    """Retransmissions of a sender, at its own tap: packets with payload that repeat bytes."""
    highest: dict[bool, int] = {}
    found = []
    for packet in sent:
        if packet.payload_bytes and packet.sequence < highest.get(packet.to_target, 0):
            found.append(packet)
        highest[packet.to_target] = max(highest.get(packet.to_target, 0), packet.end)
    return found


def lost(near: Iterable[Packet], far: Iterable[Packet], *, to_target: bool) -> list[Packet]:
    """Packets of a direction that passed the tap near their sender, and never the far one."""
    arrived = Counter(packet.key for packet in far if packet.to_target is to_target)
    found = []
    for packet in near:
        if packet.to_target is not to_target:
            continue
        if arrived[packet.key]:
            arrived[packet.key] -= 1
        else:
            found.append(packet)
    return found


def timer_waits(near: list[Packet], *, to_target: bool) -> list[tuple[int, int]]:
    """Waits of a sender for its timer, at its tap: from the packet before the retransmission to the retransmission.

    Data that arrived is retransmitted too, if its ACK was lost.
    """
    retransmitted = {packet.frame for packet in resent(near) if packet.to_target is to_target}
    return [
        (before.time_ns, packet.time_ns)
        for before, packet in pairwise(near)
        if packet.frame in retransmitted and packet.time_ns - before.time_ns > ANSWER_NS
    ]


@dataclass(frozen=True)
class Repair:
    """A loss of payload: from the lost packet to the retransmission that arrived, as seen at the tap of the sender."""

    first_ns: int
    last_ns: int
    """The end of the capture for a loss without recovery."""
    is_hidden: bool
    """Whether no later packet arrived meanwhile, so that the far side could not see the loss."""


def repairs(near: list[Packet], far: list[Packet], *, to_target: bool) -> list[Repair]:
    """Losses of a direction: one for each lost packet with payload that had not arrived before."""
    missing = lost(near, far, to_target=to_target)
    gone = {packet.frame for packet in missing}
    sent = [packet for packet in near if packet.to_target is to_target and packet.payload_bytes]
    arrived = [packet for packet in sent if packet.frame not in gone]
    found = []
    for packet in missing:
        if not packet.payload_bytes or any(_had_arrived(packet, copy) for copy in arrived):
            continue
        cursor, last_ns, is_hidden = packet.sequence, near[-1].time_ns, True
        for copy in arrived:
            if copy.frame <= packet.frame:
                continue
            if copy.sequence <= cursor < copy.end:
                cursor = copy.end
            else:
                is_hidden = False
            if cursor >= packet.end:
                last_ns = copy.time_ns
                break
        found.append(Repair(packet.time_ns, last_ns, is_hidden))
    return found


def _had_arrived(packet: Packet, copy: Packet) -> bool:
    """Whether an earlier copy brought all of it: then its loss costs nothing."""
    return copy.frame < packet.frame and copy.sequence <= packet.sequence and copy.end >= packet.end
