"""Clean captures of every shape, read exactly: link types, offload, writes, several connections, late packets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as FilePath

import pytest

import iscsitrace
from tests.support.agreement import cycle_differences, digest_differences, pdu_differences
from tests.support.capture_file import write_pcap, write_pcapng
from tests.support.conversation import Capture, Conversation, Session
from tests.support.transport import ETHERNET, LINUX_SLL, LINUX_SLL2, NULL, RAW, Path
from tests.support.truth import observe
from tests.tables.test_conversation import mixed

EVERY_41ST = frozenset((False, place) for place in range(9, 1000, 41))

PATHS = {
    "ethernet": Path(),
    "vlan": Path(vlan=100),
    "cooked": Path(link_type=LINUX_SLL),
    "cooked v2": Path(link_type=LINUX_SLL2),
    "null": Path(link_type=NULL),
    "raw": Path(link_type=RAW),
    "ipv6": Path(initiator_address="2001:db8::1", target_address="2001:db8::2", mss_bytes=1428),
    "super-segments": Path(segment_bytes=16 * 1448),
    "ip length 0": Path(segment_bytes=16 * 1448, is_ip_length_zero=True),
    "aligned": Path(is_pdu_per_segment=True),
    "at the target": Path(one_way_delay_ns=8_000_000, tap=1.0),
    "half way": Path(one_way_delay_ns=8_000_000, tap=0.5),
    "no options": Path(has_timestamps=False, has_sack=False, mss_bytes=1460),
    "late": Path(late=EVERY_41ST),
    "copied": Path(copied=EVERY_41ST),
    "lost": Path(lost_before_tap=EVERY_41ST),
    "lost behind the tap": Path(lost_after_tap=EVERY_41ST, tap=1.0),
}

SETTINGS = {
    "defaults": Session(),
    "responses": Session(is_status_in_data=False, status_delay_ns=300_000),
    "small": Session(
        initiator_max_recv_data_segment_length=8192,
        target_max_recv_data_segment_length=8192,
        max_burst_length=65_536,
        first_burst_length=16_384,
        is_initial_r2t=False,
    ),
    "no immediate data": Session(is_immediate_data=False, max_burst_length=65_536),
    "digests": Session(header_digest=True, data_digest=True),
    "zeros": Session(payload="zeros"),
    "recorded headers": Session(payload="headers"),
    "wrapping numbers": Session(first_cmd_sn=0xFFFFFFF8),
}


def assert_exact(capture: Capture, file: FilePath) -> None:
    """All tables as the truth says."""
    trace = iscsitrace.read(file, tables=("pdus",))
    seen = observe(capture, capture.packets)
    assert pdu_differences(trace, seen) == []
    assert cycle_differences(trace, seen) == []
    assert digest_differences(trace, seen) == []


@pytest.mark.parametrize("name", PATHS)
def test_path(name: str, tmp_path: FilePath) -> None:
    capture = mixed(PATHS[name])
    assert_exact(capture, write_pcap(tmp_path / "capture.pcap", capture.packets, PATHS[name].link_type))


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name: str, tmp_path: FilePath) -> None:
    capture = mixed(Path(), SETTINGS[name])
    assert_exact(capture, write_pcapng(tmp_path / "capture.pcapng", capture.packets, ETHERNET))


def test_times_in_microseconds(tmp_path: FilePath) -> None:
    capture = mixed(Path())
    packets = [replace(packet, time_ns=packet.time_ns // 1000 * 1000) for packet in capture.packets]
    file = write_pcap(tmp_path / "capture.pcap", packets, ETHERNET, is_nanoseconds=False)
    assert_exact(replace(capture, packets=packets), file)


def test_several_connections_and_sessions(tmp_path: FilePath) -> None:
    conversation = Conversation(Path(one_way_delay_ns=2_000_000))
    conversation.session(Session(connection_count=2)).login().read(count=20, queue_depth=8).logout()
    conversation.session().login().write(count=5, block_bytes=524_288).logout()
    capture = conversation.run()
    file = write_pcap(tmp_path / "capture.pcap", capture.packets, ETHERNET)
    assert_exact(capture, file)
    trace = iscsitrace.read(file)
    sessions = list(trace.sessions.rows())
    assert [row["connection_count"] for row in sessions] == [2, 1]
    assert [row["cycle_count"] for row in sessions] == [20, 5]
    assert [row["queue_depth_max"] for row in sessions] == [8, 1]
    assert sessions[0]["read_bytes"] == 20 * 65_536
    assert sessions[1]["write_bytes"] == 5 * 524_288
    assert [row["end"] for row in sessions] == ["logout", "logout"]


def test_round_trips_are_the_paths(tmp_path: FilePath) -> None:
    for tap in (0.0, 0.25, 1.0):
        capture = mixed(Path(one_way_delay_ns=8_000_000, tap=tap))
        row = iscsitrace.read(write_pcap(tmp_path / "capture.pcap", capture.packets, ETHERNET)).connections.row(0)
        # serialization of the packet and of its ACK comes on top: below 25 us together
        assert row["rtt_to_target_min_ns"] == pytest.approx(16_000_000 * (1 - tap), abs=25_000)
        assert row["rtt_to_initiator_min_ns"] == pytest.approx(16_000_000 * tap, abs=25_000)


def test_parameters_are_the_negotiated(tmp_path: FilePath) -> None:
    capture = mixed(Path(), SETTINGS["small"])
    trace = iscsitrace.read(write_pcap(tmp_path / "capture.pcap", capture.packets, ETHERNET))
    rows = {row["key"]: row for row in trace.parameters.rows()}
    assert rows["MaxBurstLength"]["effective_initiator"] == rows["MaxBurstLength"]["effective_target"] == "65536"
    assert rows["InitialR2T"]["effective_initiator"] == "No"
    assert rows["MaxRecvDataSegmentLength"]["effective_initiator"] == "8192"
