"""The builder of captures against tshark and a naive reassembly: what the truth is worth.

Here the program under test is never asked; these tests fail when the builder makes wrong packets or a wrong truth.
"""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path as FilePath

import numpy as np
import pytest

from tests.support import tshark
from tests.support.capture_file import cut, read_records, write_pcap, write_pcapng
from tests.support.conversation import Capture, Conversation, Session
from tests.support.pdu import DATA_IN, R2T, Task, crc32c
from tests.support.transport import ETHERNET, LINUX_SLL, LINUX_SLL2, NULL, RAW, Path
from tests.support.truth import observe

# RFC 7143 appendix A.4
CRC32C_VECTORS = [
    (bytes(32), "aa36918a"),
    (b"\xff" * 32, "43aba862"),
    (bytes(range(32)), "4e79dd46"),
    (bytes(range(31, -1, -1)), "5cdb3f11"),
]


def mixed(path: Path, settings: Session | None = None, *, reads: tuple[int, int] = (4, 8)) -> Capture:
    """Every kind of step once; so many reads one after the other, and eight at a time."""
    conversation = Conversation(path)
    session = conversation.session(settings)
    session.login().tasks([Task("inquiry"), Task("test_unit_ready"), Task("read_capacity"), Task("read", status=2)])
    session.read(count=reads[0]).read(count=reads[1], queue_depth=8).write(count=1, block_bytes=524_288).nop().logout()
    return conversation.run()


@pytest.mark.parametrize(("data", "digest"), CRC32C_VECTORS)
def test_crc32c_is_the_standards(data: bytes, digest: str) -> None:
    assert crc32c(data).hex() == digest


@pytest.mark.parametrize(
    "path",
    [
        Path(),
        Path(vlan=100),
        Path(link_type=LINUX_SLL),
        Path(link_type=LINUX_SLL2),
        Path(link_type=NULL),
        Path(link_type=RAW),
        Path(initiator_address="2001:db8::1", target_address="2001:db8::2", mss_bytes=1428),
        Path(segment_bytes=16 * 1448),
        Path(segment_bytes=16 * 1448, is_ip_length_zero=True),
        Path(is_pdu_per_segment=True, tap=1.0),
        Path(has_timestamps=False, has_sack=False, mss_bytes=1460, tap=0.5),
    ],
    ids=lambda path: f"{path.link_type}-{path.vlan}-{path.target_address}-{path.segment_bytes}-{path.tap}",
)
def test_tshark_sees_a_clean_capture(path: Path, tmp_path: FilePath) -> None:
    capture = mixed(path)
    file = write_pcap(tmp_path / "capture.pcap", capture.packets, path.link_type)
    assert tshark.pdu_counts(file) == Counter(pdu.opcode for pdu in capture.pdus)
    checksums = "ip.checksum.status == 0 || tcp.checksum.status == 0"
    problems = (checksums, "tcp.analysis.flags && !tcp.analysis.window_update")
    check = ("-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-o", "ip.tso_support:TRUE")
    assert tshark.frames_of(file, problems, *check) == {each: [] for each in problems}


def test_truth_times_are_tsharks(tmp_path: FilePath) -> None:
    capture = mixed(Path(one_way_delay_ns=3_000_000))
    file = write_pcap(tmp_path / "capture.pcap", capture.packets, ETHERNET)
    seen = observe(capture, capture.packets)
    times = tshark.response_times(file)
    for name, operation in (("Read(10)", "read"), ("Write(10)", "write")):
        latencies = [
            int(cycle.columns["status_ns"] or 0) - int(cycle.columns["command_last_ns"] or 0)
            for cycle in seen.cycles
            # tshark times no task that ended in CHECK CONDITION
            if cycle.columns["operation"] == operation and cycle.columns["status"] == 0
        ]
        assert times[name].task_count == len(latencies)
        assert times[name].sum_ns == pytest.approx(sum(latencies), abs=1000 * len(latencies))


@pytest.mark.parametrize(
    "path",
    [
        Path(),
        Path(lost_before_tap=frozenset((False, place) for place in range(9, 400, 31))),
        Path(lost_after_tap=frozenset((False, place) for place in range(9, 400, 31)), tap=1.0),
        Path(lost_before_tap=frozenset((True, place) for place in range(9, 400, 31)), tap=1.0),
        Path(late=frozenset((False, place) for place in range(9, 400, 31))),
        Path(copied=frozenset((False, place) for place in range(9, 400, 31))),
    ],
    ids=["clean", "lost before the tap", "lost after the tap", "lost to target", "late", "copied"],
)
def test_first_copies_make_up_the_streams(path: Path) -> None:
    """Naive reassembly of the frames alone, the first copy of each byte, gives the PDUs at their places and times."""
    capture = mixed(path, Session(header_digest=True, data_digest=True))
    length = max(packet.stream_offset + packet.payload_bytes for packet in capture.packets)
    stream, owner = np.zeros((2, length), np.uint8), np.zeros((2, length), np.int64)
    for frame, packet in enumerate(capture.packets, 1):
        payload = np.frombuffer(packet.data[packet.header_bytes :], np.uint8)
        assert len(payload) == packet.payload_bytes
        place = slice(packet.stream_offset, packet.stream_offset + len(payload))
        is_new = owner[int(packet.to_target), place] == 0
        stream[int(packet.to_target), place][is_new] = payload[is_new]
        owner[int(packet.to_target), place][is_new] = frame
    for seen in observe(capture, capture.packets).pdus:
        pdu = seen.pdu
        place = slice(pdu.stream_offset, pdu.stream_offset + pdu.length)
        header, frames = stream[int(pdu.to_target), place][:48].tobytes(), owner[int(pdu.to_target), place]
        assert header[0] & 0x3F == pdu.opcode
        assert int.from_bytes(header[5:8], "big") == pdu.data_segment_length
        assert struct.unpack_from("!I", header, 16)[0] == pdu.initiator_task_tag
        assert frames.min() > 0
        assert seen.frame_first == frames[0]
        assert seen.frame_last == frames.max()
        assert seen.has_header
        assert not seen.has_capture_gap
    assert all(cycle.columns["is_complete"] for cycle in observe(capture, capture.packets).cycles)


def test_losses_are_repaired_as_tcp_does(tmp_path: FilePath) -> None:
    lost = frozenset((False, place) for place in range(30, 300, 40))
    capture = mixed(Path(one_way_delay_ns=2_000_000, lost_after_tap=lost, tap=1.0), reads=(6, 16))
    file = write_pcap(tmp_path / "capture.pcap", capture.packets, ETHERNET)
    sent_again = [frame for frame, packet in enumerate(capture.packets, 1) if packet.is_retransmission]
    assert len(sent_again) == len(lost)
    assert tshark.frame_numbers(file, "tcp.analysis.retransmission || tcp.analysis.fast_retransmission") == sent_again
    assert tshark.frame_numbers(file, "tcp.options.sack_le")


def test_limits_are_kept() -> None:
    settings = Session(
        initiator_max_recv_data_segment_length=8192,
        target_max_recv_data_segment_length=16_384,
        max_burst_length=65_536,
        first_burst_length=32_768,
        is_initial_r2t=False,
        is_immediate_data=True,
        is_status_in_data=False,
    )
    conversation = Conversation()
    conversation.session(settings).login().read(count=2, block_bytes=131_072).write(
        count=2, block_bytes=131_072
    ).logout()
    capture = conversation.run()
    sizes = Counter((pdu.opcode, pdu.data_segment_length) for pdu in capture.pdus if pdu.task is not None)
    assert sizes[DATA_IN, 8192] == 32
    assert sizes[R2T, 0] == 4  # two rounds of 64 KiB and 32 KiB after a first burst of 32 KiB
    columns = observe(capture, capture.packets).cycles[-1].columns
    assert (columns["immediate_bytes"], columns["unsolicited_bytes"], columns["solicited_bytes"]) == (
        16_384,
        16_384,
        98_304,
    )


def test_connections_share_the_session() -> None:
    conversation = Conversation()
    conversation.session(Session(connection_count=2)).login().read(count=10, queue_depth=4).logout()
    capture = conversation.run()
    numbers = [pdu.fields["cmd_sn"] for pdu in capture.pdus if "cmd_sn" in pdu.fields]
    assert numbers == list(range(1, 11))
    assert Counter(record.connection for record in capture.tasks) == {0: 5, 1: 5}


def test_a_snaplen_keeps_times_and_lengths() -> None:
    capture = mixed(Path(is_pdu_per_segment=True))
    whole, short = (observe(capture, packets) for packets in (capture.packets, cut(capture.packets, 114)))
    # 14 + 20 + 32 bytes of link, IP and TCP headers leave 48: a header at the start of its segment
    assert [pdu.time_last_ns for pdu in short.pdus] == [pdu.time_last_ns for pdu in whole.pdus]
    assert all(pdu.header_bytes == 48 for pdu in short.pdus)
    assert all(pdu.header_bytes < 48 for pdu in observe(capture, cut(capture.packets, 113)).pdus)


def test_files_read_back(tmp_path: FilePath) -> None:
    capture = mixed(Path())
    for file in (
        write_pcap(tmp_path / "ns.pcap", capture.packets, ETHERNET),
        write_pcapng(tmp_path / "capture.pcapng", capture.packets, ETHERNET),
    ):
        records, link_type = read_records(file)
        assert link_type == ETHERNET
        assert [(r.time_ns, r.data, r.original_length) for r in records] == [
            (p.time_ns, p.data, p.original_length) for p in capture.packets
        ]


def test_same_seed_same_bytes() -> None:
    assert mixed(Path()).packets == mixed(Path()).packets
