"""Packets of a run as tshark shows them at either tap, and which of them were lost between the taps.

This file uses no result of iscsitrace. A packet is the same at both taps by IP identification, sequence number, length
and timestamp; the number of lost packets must equal the link's log.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_FIELDS = (
    *("frame.time_epoch", "frame.number", "tcp.stream", "tcp.dstport", "ip.id", "tcp.seq_raw", "tcp.len"),
    *("tcp.options.timestamp.tsval", "tcp.flags.syn", "tcp.flags.fin"),
    *("tcp.analysis.retransmission", "tcp.analysis.fast_retransmission", "tcp.analysis.spurious_retransmission"),
    *("tcp.analysis.rto", "tcp.analysis.out_of_order"),
)
_RETRANSMISSIONS = slice(10, 13)
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
    key: tuple[str, ...]
    """Equal at both taps."""
    is_retransmission: bool
    """From tshark."""
    is_out_of_order: bool
    """From tshark."""

    @property
    def end(self) -> int:
        """One past its last byte."""
        return self.sequence + self.payload_bytes


def packets(capture: Path, target_port: int) -> list[Packet]:
    """The packets of the connection to a target's port, in order; there must be only one connection."""
    fields = [word for name in _FIELDS for word in ("-e", name)]
    command = ["tshark", "-n", "-r", str(capture), "-Y", f"tcp.port == {target_port}", "-T", "fields", *fields]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    first: dict[bool, int] = {}
    found = []
    for line in output.splitlines():
        words = line.split("\t")
        to_target = words[3] == str(target_port)
        sequence = int(words[5])
        base = first.setdefault(to_target, sequence)
        found.append(
            Packet(
                int(words[0].replace(".", "")),
                int(words[1]),
                to_target,
                (sequence - base) % _WRAP,
                int(words[6]),
                not {words[8], words[9]} <= {"0", "False"},
                (words[3], words[4], words[5], words[6], words[7]),
                any(words[_RETRANSMISSIONS]),
                bool(words[14]),
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
    """Losses of a direction: one for each lost packet with payload."""
    missing = lost(near, far, to_target=to_target)
    gone = {packet.frame for packet in missing}
    sent = [packet for packet in near if packet.to_target is to_target and packet.payload_bytes]
    arrived = [packet for packet in sent if packet.frame not in gone]
    found = []
    for packet in missing:
        if not packet.payload_bytes:
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
