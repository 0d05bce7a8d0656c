"""Events that no recorded capture has, from packets by hand: redirects, portals, Reject, Asynchronous Message.

PDUs are written from the figures of RFC 7143, sections 11.12, 11.13, 11.17 and 11.9.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import iscsitrace
from tests.support import tshark
from tests.support.transport import ACK, SYN
from tests.tables.test_connection_ends import CLIENT, SERVER, captured, packet

OTHER = ("192.0.2.9", 4000)
LOGIN_KEYS = b"InitiatorName=iqn.i\0TargetName=iqn.t\0SessionType=Normal\0"


def pdu(header: bytes, data: bytes = b"") -> bytes:
    """A PDU of 48 bytes of header, whose DataSegmentLength is set here, and padded data."""
    return header[:4] + struct.pack("!I", len(data)) + header[8:48].ljust(40, b"\0") + data + bytes(-len(data) % 4)


def login_request() -> bytes:
    """From the operational stage to the full feature phase, with T."""
    return pdu(struct.pack("!BBBBI6sHIHHII", 0x43, 0x87, 0, 0, 0, b"\x80\0\0\0\0\1", 0, 1, 0, 0, 1, 0), LOGIN_KEYS)


def login_response(status: int, detail: int, keys: bytes) -> bytes:
    flags = 0x87 if status == 0 else 0x04
    header = struct.pack(
        "!BBBBI6sHIIIIIBB", 0x23, flags, 0, 0, 0, b"\x80\0\0\0\0\1", 5 * (not status), 1, 0, 1, 1, 9, status, detail
    )
    return pdu(header, keys)


def conversation(*payloads: tuple[bool, bytes]) -> list[bytes]:
    """A handshake, then the payloads: whether the target sends it, and its bytes."""
    sequence = {CLIENT: 1001, SERVER: 5001}
    packets = [
        packet(CLIENT, SERVER, SYN, 1000, 0),
        packet(SERVER, CLIENT, SYN | ACK, 5000, 1001),
        packet(CLIENT, SERVER, ACK, 1001, 5001),
    ]
    for is_from_target, payload in payloads:
        sender, receiver = (SERVER, CLIENT) if is_from_target else (CLIENT, SERVER)
        packets.append(packet(sender, receiver, ACK, sequence[sender], sequence[receiver], payload))
        sequence[sender] += len(payload)
    return packets


def events(file: Path) -> list[dict[str, Any]]:
    return list(iscsitrace.read(file, tables=["events"]).events.rows())


def test_a_redirect_says_where_to_and_makes_a_portal_of_it(tmp_path: Path) -> None:
    answer = login_response(1, 1, b"TargetAddress=192.0.2.9:4000,1\0")
    packets = conversation((False, login_request()), (True, answer))
    # two SYNs to the new portal, and two to another port: only the first is a portal
    for port in (OTHER, ("192.0.2.9", 4001)):
        packets += [packet(("192.0.2.1", 50_001), port, SYN, 1, 0)] * 2
    file = captured(tmp_path / "redirect.pcapng", *enumerate(packets))
    assert [(row["kind"], row["severity"], row["frame"], row["text"]) for row in events(file)] == [
        ("tcp_open", "info", 1, "192.0.2.1 opened a connection to 192.0.2.2:3260"),
        ("login_redirected", "info", 5, "login to iqn.t redirected to 192.0.2.9:4000,1: target moved temporarily"),
        ("tcp_unanswered", "error", 6, "192.0.2.9:4000 did not answer 2 SYNs from 192.0.2.1"),
    ]
    assert tshark.frame_numbers(file, "iscsi.login.status == 0x0101") == [5]


def test_reject_and_asynchronous_message(tmp_path: Path) -> None:
    # reason 4: protocol error; the data is the header that is rejected, a Text Request with ITT 7
    rejected = struct.pack("!BBHIQI", 0x04, 0x80, 0, 0, 0, 7).ljust(48, b"\0")
    reject = pdu(struct.pack("!BBBBIQIIIIII", 0x3F, 0x80, 4, 0, 0, 0, 0xFFFFFFFF, 0, 2, 1, 9, 0), rejected)
    # AsyncEvent 1: the target requests a logout
    header = struct.pack("!BBHIQIIIIIBBHHHI", 0x32, 0x80, 0, 0, 0, 0xFFFFFFFF, 0, 3, 1, 9, 1, 0, 0, 0, 3, 0)
    packets = conversation(
        (False, login_request()),
        (True, login_response(0, 0, b"TargetPortalGroupTag=1\0")),
        (True, reject),
        (True, pdu(header)),
    )
    file = captured(tmp_path / "reject.pcapng", *enumerate(packets))
    found = [row for row in events(file) if row["kind"] not in ("tcp_open", "login")]
    assert [(row["kind"], row["severity"], row["frame"]) for row in found] == [
        ("reject", "warning", 6),
        ("async_message", "warning", 7),
    ]
    assert found[0]["text"].startswith("the target rejected a Text Request: protocol error")
    assert "logout" in found[1]["text"]
    assert tshark.frame_numbers(file, "iscsi.opcode == 0x3f") == [6]
    assert tshark.frame_numbers(file, "iscsi.opcode == 0x32") == [7]
