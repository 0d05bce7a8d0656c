"""How TCP connections open and end, against tshark: hand-made handshakes, and every recorded capture."""

from __future__ import annotations

import ipaddress
import struct
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path as FilePath
from typing import Any

import pytest

import iscsitrace
from tests.support import tshark
from tests.support.capture_file import Record, write_pcapng
from tests.support.recordings import captures_folder, recorded_captures
from tests.support.transport import ACK, FIN, RAW, RST, SYN

VECTORS = sorted((FilePath(__file__).parents[1] / "vectors" / "guests").glob("*/*.pcapng.gz"))
START_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000
CLIENT, SERVER = ("192.0.2.1", 50_000), ("192.0.2.2", 3260)

FIELDS = (
    *("frame.number", "frame.time_epoch", "tcp.stream", "ip.src", "ipv6.src", "tcp.srcport", "tcp.flags"),
    *("tcp.seq_raw", "tcp.len", "ip.flags.df"),
)

End = tuple[str, int]


def packet(sender: End, receiver: End, flags: int, sequence: int, acknowledgment: int, payload: bytes = b"") -> bytes:
    """IPv4 with DF, and TCP without options."""
    tcp = struct.pack("!HHIIBBHHH", sender[1], receiver[1], sequence, acknowledgment, 0x50, flags, 65_535, 0, 0)
    addresses = b"".join(ipaddress.ip_address(end[0]).packed for end in (sender, receiver))
    length = 20 + len(tcp) + len(payload)
    return struct.pack("!BBHHHBBH", 0x45, 0, length, 1, 0x4000, 64, 6, 0) + addresses + tcp + payload


def captured(file: FilePath, *packets: tuple[int, bytes]) -> FilePath:
    """A capture of these packets, by second."""
    return write_pcapng(file, [Record(START_NS + s * SECOND_NS, data, len(data)) for s, data in packets], RAW)


def rows(file: FilePath) -> list[dict[str, Any]]:
    """The connections."""
    return list(iscsitrace.read(file).connections.rows())


@dataclass
class Sender:
    """One direction of a connection."""

    fin: int | None = None
    rst: int | None = None
    last_ns: int | None = None
    data_last_ns: int | None = None
    is_dont_fragment: bool = True
    known: set[int] = field(default_factory=set)


def by_tshark(packets: list[dict[str, str]]) -> dict[int, tuple[int | None, dict[End, Sender]]]:
    """By tcp.stream: the frame of the first SYN, and both senders; bytes are counted one by one."""
    syns: dict[int, int] = {}
    senders: dict[int, dict[End, Sender]] = defaultdict(lambda: defaultdict(Sender))
    for row in packets:
        frame, time, stream, v4, v6, port, flags_text, sequence, length, df = (row[name] for name in FIELDS)
        flags, payload, time_ns = int(flags_text, 16), int(length), int(Decimal(time) * SECOND_NS)
        one = senders[int(stream)][v4 or v6, int(port)]
        one.last_ns = max(time_ns, one.last_ns or 0)
        if flags & (SYN | ACK) == SYN:
            syns.setdefault(int(stream), int(frame))
        if flags & FIN and one.fin is None:
            one.fin = int(frame)
        if flags & RST and one.rst is None:
            one.rst = int(frame)
        if payload:
            one.is_dont_fragment &= bool(v6) or df == "1"
            # each segment begins where another did, so its first and last byte tell whether it is new
            ends = {int(sequence), (int(sequence) + payload - 1) & 0xFFFFFFFF}
            if not ends <= one.known:
                one.data_last_ns = max(time_ns, one.data_last_ns or 0)
                one.known |= ends
    return {stream: (syns.get(stream), both) for stream, both in senders.items()}


@pytest.mark.parametrize("file", [*VECTORS, *recorded_captures()], ids=lambda file: f"{file.parent.name}/{file.name}")
def test_the_ends_of_recorded_connections_are_those_that_tshark_shows(
    file: FilePath, tshark_packets: tshark.Packets
) -> None:
    expected = by_tshark(tshark_packets(file))
    found = rows(file)
    assert [row["connection"] for row in found] == sorted(expected)
    for row in found:
        syn, senders = expected[row["connection"]]
        assert row["syn_frame"] == syn
        for direction, role in (("to_target", "initiator"), ("to_initiator", "target")):
            one = senders.get((row[f"{role}_address"], row[f"{role}_port"]), Sender(is_dont_fragment=False))
            assert row[f"fin_{direction}_frame"] == one.fin, direction
            assert row[f"rst_{direction}_frame"] == one.rst, direction
            assert row[f"time_last_{direction}_ns"] == one.last_ns, direction
            if "reorder" not in file.name and "jitter" not in file.name and "drops" not in file.name:
                assert row[f"data_last_{direction}_ns"] == one.data_last_ns, direction
            assert row[f"is_dont_fragment_{direction}"] == (one.data_last_ns is not None and one.is_dont_fragment)
            assert (row[f"fin_{direction}_ns"] is None) == (one.fin is None)
            assert (row[f"rst_{direction}_ns"] is None) == (one.rst is None)


def test_the_recorded_captures_have_every_kind_of_end() -> None:
    if not captures_folder().is_dir():
        pytest.skip("no recorded captures")
    found = [row for file in (*VECTORS, *recorded_captures()) for row in rows(file)]
    for name in ("fin_to_target_ns", "fin_to_initiator_ns", "rst_to_target_ns", "rst_to_initiator_ns"):
        assert any(row[name] is not None for row in found), name
    assert any(row["is_refused"] for row in found)
    for row in found:
        if row["is_refused"]:
            assert row["syn_ack_ns"] is None
            assert row["rst_to_initiator_ns"] > row["syn_ns"]
            assert row["pdu_count_to_target"] == 0


def test_unanswered_and_refused_syns_are_connections_of_their_client(tmp_path: FilePath) -> None:
    def syn(sequence: int, flags: int = SYN) -> bytes:
        return packet(CLIENT, SERVER, flags, sequence, 0)

    def refusal(sequence: int) -> bytes:
        return packet(SERVER, CLIENT, RST | ACK, 0, sequence + 1)

    file = captured(
        tmp_path / "syns.pcapng",
        # retransmitted twice without an answer; then the same port again with a new ISN, refused at once
        (0, syn(1000)),
        (1, syn(1000)),
        (3, syn(1000)),
        (60, syn(9000)),
        (60, refusal(9000)),
        # a new ISN that is answered
        (62, syn(20_000)),
        (62, packet(SERVER, CLIENT, SYN | ACK, 5000, 20_001)),
        (62, packet(CLIENT, SERVER, ACK, 20_001, 5001)),
        (63, packet(SERVER, CLIENT, RST | ACK, 5001, 20_001)),
    )
    found = rows(file)
    streams = [int(word) for word in tshark.run(file, "-T", "fields", "-e", "tcp.stream").split()]
    assert streams == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert [(row["frame_first"], row["frame_last"]) for row in found] == [(1, 3), (4, 5), (6, 9)]
    for row in found:
        assert (row["initiator_address"], row["initiator_port"]) == CLIENT
        assert (row["target_address"], row["target_port"]) == SERVER
        assert row["has_syn"]
    assert [row["syn_frame"] for row in found] == [1, 4, 6]
    assert [row["retransmitted_syns_to_target"] for row in found] == [2, 0, 0]
    assert [row["syn_ack_ns"] for row in found] == [None, None, START_NS + 62 * SECOND_NS]
    assert [row["is_refused"] for row in found] == [False, True, False]
    assert [row["rst_to_initiator_frame"] for row in found] == [None, 5, 9]
    assert found[0]["time_last_to_target_ns"] == START_NS + 3 * SECOND_NS
    assert found[0]["time_last_to_initiator_ns"] is None


def test_a_syn_that_a_client_repeats_after_its_refusal_is_refused_again(tmp_path: FilePath) -> None:
    # Windows does; tshark 4.0 keeps it in the old stream, where the sequence number is the same
    attempts = [
        (second, packet(*ends, flags, sequence, acknowledgment))
        for second in range(3)
        for ends, flags, sequence, acknowledgment in (
            ((CLIENT, SERVER), SYN, 9000, 0),
            ((SERVER, CLIENT), RST | ACK, 0, 9001),
        )
    ]
    found = rows(captured(tmp_path / "windows.pcapng", *attempts))
    assert [row["is_refused"] for row in found] == [True] * 3
    assert [(row["syn_frame"], row["rst_to_initiator_frame"]) for row in found] == [(1, 2), (3, 4), (5, 6)]


def test_a_syn_ack_that_comes_first_has_its_receiver_as_client(tmp_path: FilePath) -> None:
    (row,) = rows(
        captured(
            tmp_path / "late.pcapng",
            (0, packet(SERVER, CLIENT, SYN | ACK, 5000, 20_001)),
            (1, packet(CLIENT, SERVER, RST, 20_001, 0)),
        )
    )
    assert (row["initiator_address"], row["initiator_port"]) == CLIENT
    assert (row["syn_ns"], row["syn_frame"], row["syn_ack_ns"]) == (None, None, START_NS)
    assert (row["rst_to_target_frame"], row["is_refused"]) == (2, False)
