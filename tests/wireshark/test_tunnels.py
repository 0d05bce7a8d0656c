"""A conversation inside tunnels and over PPP: the same tables as without, and tshark shows the same PDUs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.compare.second_opinion import compare
from iscsitrace.wireshark import dissect as wireshark
from tests.support.capture_file import cut, write_pcap
from tests.support.conversation import Capture, Conversation, Session
from tests.support.transport import ETHERNET, Packet

PPP = 9
LINK_BYTES = 14
OUTER = bytes(6) + b"\x02" + bytes(5)


def outer_ip(protocol: int, carried: bytes) -> bytes:
    """An Ethernet frame with an IPv4 packet of other hosts."""
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(carried), 7, 0, 64, protocol, 0)
    return OUTER + b"\x08\x00" + header + bytes([192, 0, 2, 1, 192, 0, 2, 2]) + carried


def udp(port: int, carried: bytes) -> bytes:
    return outer_ip(17, struct.pack("!HHHH", 50_000, port, 8 + len(carried), 0) + carried)


def ppp(frame: bytes) -> bytes:
    return b"\x00\x21" + frame[LINK_BYTES:]


TUNNELS: dict[str, Callable[[bytes], bytes]] = {
    "VXLAN": lambda frame: udp(4789, b"\x08\0\0\0\0\0\x2a\0" + frame),
    "GENEVE": lambda frame: udp(6081, b"\x01\0\x65\x58\0\0\x2a\0" + bytes(4) + frame),
    "GRE": lambda frame: outer_ip(47, b"\0\0\x08\0" + frame[LINK_BYTES:]),
    "GRE with key and sequence number": lambda frame: outer_ip(47, b"\x30\0\x08\0" + bytes(8) + frame[LINK_BYTES:]),
    "NVGRE": lambda frame: outer_ip(47, b"\x20\0\x65\x58\0\0\x2a\x01" + frame),
    "IP in IP": lambda frame: outer_ip(4, frame[LINK_BYTES:]),
    "PPPoE": lambda frame: OUTER + b"\x88\x64\x11\0\0\x01" + struct.pack("!H", len(ppp(frame))) + ppp(frame),
    "ERSPAN": lambda frame: outer_ip(47, b"\x10\0\x88\xbe\0\0\0\x01\x10\x01\0\x07\0\0\0\x02" + frame),
}


@pytest.fixture(scope="module")
def plain() -> Capture:
    conversation = Conversation()
    conversation.session(Session(is_initial_r2t=False)).login().read(count=4).write(count=3).logout()
    return conversation.run()


def wrapped(packets: list[Packet], wrap: Callable[[bytes], bytes]) -> list[Packet]:
    """Each packet whole in a tunnel."""
    found = [(packet, wrap(packet.data)) for packet in packets]
    return [replace(packet, data=data, original_length=len(data)) for packet, data in found]


def check(file: Path, expected: iscsitrace.Trace) -> None:
    found = iscsitrace.read(file, tables=("pdus", "segments"))
    assert list(found.cycles.rows()) == list(expected.cycles.rows())
    assert list(found.pdus.rows()) == list(expected.pdus.rows())
    assert list(found.segments.rows()) == list(expected.segments.rows())
    assert len(found.counters) == len(expected.counters) == 0
    agreed = compare(found.pdus, found.segments, wireshark.dissect(str(file), [3260]))
    assert (agreed.matched_pdu_count, agreed.differences) == (len(expected.pdus), [])


def read_plain(folder: Path, capture: Capture) -> iscsitrace.Trace:
    file = write_pcap(folder / "plain.pcap", capture.packets, ETHERNET)
    return iscsitrace.read(file, tables=("pdus", "segments"))


@pytest.mark.parametrize("name", TUNNELS)
def test_a_tunnel_changes_nothing_and_tshark_agrees(tmp_path: Path, plain: Capture, name: str) -> None:
    packets = wrapped(plain.packets, TUNNELS[name])
    check(write_pcap(tmp_path / "tunnel.pcap", packets, ETHERNET), read_plain(tmp_path, plain))


@pytest.mark.parametrize("address", [b"", b"\xff\x03"], ids=["bare", "with address and control"])
def test_ppp_changes_nothing_and_tshark_agrees(tmp_path: Path, plain: Capture, address: bytes) -> None:
    packets = wrapped(plain.packets, lambda frame: address + ppp(frame))
    check(write_pcap(tmp_path / "ppp.pcap", packets, PPP), read_plain(tmp_path, plain))


def test_a_snaplen_keeps_the_lengths_inside_a_tunnel(tmp_path: Path, plain: Capture) -> None:
    """As a snaplen that is shorter by the outer headers does without the tunnel."""
    wrap = TUNNELS["VXLAN"]
    outer_bytes = len(wrap(b""))
    inside = cut(wrapped(plain.packets, wrap), 128 + outer_bytes)
    found = iscsitrace.read(write_pcap(tmp_path / "tunnel.pcap", inside, ETHERNET))
    expected = iscsitrace.read(write_pcap(tmp_path / "plain.pcap", cut(plain.packets, 128), ETHERNET))
    assert len(expected.cycles) == 7
    assert list(found.cycles.rows()) == list(expected.cycles.rows())
    assert [row["stream_bytes_to_target"] for row in found.connections.rows()] == [
        row["stream_bytes_to_target"] for row in expected.connections.rows()
    ]
