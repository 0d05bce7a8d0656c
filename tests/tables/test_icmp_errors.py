"""ICMP errors against tshark: about both directions, over VLAN and IPv6, and about nothing that is in the capture."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path

import iscsitrace
from tests.support import tshark
from tests.support.capture_file import Record, write_pcapng
from tests.support.transport import ACK, ETHERNET, SYN

START_NS = 1_700_000_000_000_000_000
V4 = (("192.0.2.1", 50_000), ("192.0.2.2", 3260))
V6 = (("2001:db8::1", 50_001), ("2001:db8::2", 3260))
ROUTER = {4: "192.0.2.254", 6: "2001:db8::fe"}

End = tuple[str, int]


def ip(source: str, destination: str, protocol: int, payload: bytes) -> bytes:
    """An IPv4 packet with DF, or an IPv6 packet."""
    ends = [ipaddress.ip_address(address) for address in (source, destination)]
    addresses = b"".join(end.packed for end in ends)
    if ends[0].version == 6:
        return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + addresses + payload
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0x4000, 64, protocol, 0) + addresses + payload


def tcp(sender: End, receiver: End, flags: int) -> bytes:
    """A TCP packet without payload."""
    header = struct.pack("!HHIIBBHHH", sender[1], receiver[1], 1000, 2000, 0x50, flags, 65_535, 0, 0)
    return ip(sender[0], receiver[0], 6, header)


def error(quoted: bytes, kind: int, code: int, rest: bytes) -> bytes:
    """An error of the router to the sender of a packet: as much of it as RFC 792 requires."""
    version = quoted[0] >> 4
    source = quoted[12:16] if version == 4 else quoted[8:24]
    kept = quoted[: (20 if version == 4 else 40) + 8]
    message = struct.pack("!BBH", kind, code, 0) + rest + kept
    return ip(ROUTER[version], str(ipaddress.ip_address(source)), 1 if version == 4 else 58, message)


def ethernet(packet: bytes, vlan: int | None = None) -> bytes:
    """An Ethernet frame."""
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    return bytes(12) + tag + (b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd") + packet


def test_errors_about_connections_are_those_that_tshark_shows(tmp_path: Path) -> None:
    (client, server), (client6, server6) = V4, V6
    unreachable, mtu = bytes(4), struct.pack("!HH", 0, 1400)
    frames = [
        ethernet(tcp(client, server, SYN)),
        ethernet(tcp(client6, server6, SYN)),
        ethernet(error(tcp(client, server, SYN), 3, 1, unreachable)),
        ethernet(error(tcp(client, server, SYN), 3, 13, unreachable), vlan=100),
        ethernet(error(tcp(server, client, ACK), 3, 4, mtu)),
        ethernet(error(tcp(client6, server6, ACK), 2, 0, struct.pack("!I", 1280))),
        ethernet(error(tcp(server6, client6, ACK), 1, 4, unreachable)),
        # about no connection of the capture, and an echo
        ethernet(error(tcp((client[0], 1), server, ACK), 3, 1, unreachable)),
        ethernet(ip(client[0], server[0], 1, struct.pack("!BBHHH", 8, 0, 0, 1, 1))),
    ]
    records = [Record(START_NS + place, frame, len(frame)) for place, frame in enumerate(frames)]
    file = write_pcapng(tmp_path / "errors.pcapng", records, ETHERNET)
    trace = iscsitrace.read(file, tables=())
    found = [tuple(row.values()) for row in trace.icmp_errors.rows()]
    assert found == [
        (0, True, 3, START_NS + 2, "unreachable", 1, None, ROUTER[4]),
        (0, True, 4, START_NS + 3, "unreachable", 13, None, ROUTER[4]),
        (0, False, 5, START_NS + 4, "too_big", 4, 1400, ROUTER[4]),
        (1, True, 6, START_NS + 5, "too_big", 0, 1280, ROUTER[6]),
        (1, False, 7, START_NS + 6, "unreachable", 4, None, ROUTER[6]),
    ]
    fields = ("frame.number", "icmp.code", "icmp.mtu", "icmpv6.code", "icmpv6.mtu")
    options = [word for name in fields for word in ("-e", name)]
    lines = tshark.run(file, "-Y", "(icmp || icmpv6) && tcp", "-T", "fields", *options).splitlines()
    shown = {}
    for line in lines:
        frame, code4, mtu4, code6, mtu6 = line.split("\t")
        shown[int(frame)] = (int(code4 or code6), int(mtu4 or mtu6 or 0) or None)
    assert {frame: (code, mtu) for _, _, frame, _, _, code, mtu, _ in found} == {
        frame: values for frame, values in shown.items() if frame != 8
    }
    assert {row["name"]: row["count"] for row in trace.table("counters").rows()}["not_tcp"] == 2
    # an error is no packet of its connection
    assert [row["frame_last"] for row in trace.connections.rows()] == [1, 2]
