"""Captures that tshark dissects wrongly and iscsitrace correctly: each is read by both and compared with the truth.

Losses within Data-In, data PDUs over 256 KiB, digests, short snaplens, other ports. tshark runs with
`-q -z scsi,srt,0` and its defaults; if its count is correct, its times are compared.
"""

from __future__ import annotations

import itertools
from pathlib import Path as FilePath

import pytest

import iscsitrace
from tests.support import tshark
from tests.support.agreement import cycle_differences, digest_differences, false_cycles, false_pdus, pdu_differences
from tests.support.capture_file import cut, write_pcap
from tests.support.conversation import Capture, Conversation, Session
from tests.support.transport import ETHERNET, Packet, Path
from tests.support.truth import Seen, observe

DELAY_NS = 4_000_000


def reads(
    path: Path, settings: Session, *, count: int = 20, block_bytes: int = 65_536, queue_depth: int = 1
) -> Capture:
    """A session with only reads."""
    conversation = Conversation(path)
    session = conversation.session(settings).login()
    session.read(count=count, block_bytes=block_bytes, queue_depth=queue_depth).logout()
    return conversation.run()


def assert_exact(file: FilePath, seen: Seen) -> None:
    """Checks all PDUs, cycles and times."""
    trace = iscsitrace.read(file, tables=("pdus",))
    assert pdu_differences(trace, seen) == []
    assert cycle_differences(trace, seen) == []
    assert digest_differences(trace, seen) == []
    total = trace.coverage[-1]
    assert total.explained_bytes == total.stream_bytes == sum(pdu.pdu.length for pdu in seen.pdus)
    assert total.missing_pdu_count == 0


def latency_sum_ns(seen: Seen) -> int:
    """Sum over all reads, from the command's last byte to the status, as in tshark."""
    return sum(int(c.columns["status_ns"] or 0) - int(c.columns["command_last_ns"] or 0) for c in seen.cycles)


@pytest.mark.parametrize("lost", [0, 44], ids=["header", "before the last"])
def test_one_loss_in_every_data_in(lost: int, tmp_path: FilePath) -> None:
    # the login response is data segment 0; 65,584 bytes are 46 segments of 1448
    losses = frozenset((False, 1 + 46 * place + lost) for place in range(20))
    capture = reads(Path(DELAY_NS, lost_before_tap=losses), Session())
    assert sum(packet.is_retransmission for packet in capture.packets) == 20
    file = write_pcap(tmp_path / "loss.pcap", capture.packets, ETHERNET)
    seen = observe(capture, capture.packets)
    assert all(cycle.columns["has_retransmission"] for cycle in seen.cycles)
    # from 4.6 on tshark finds the next PDU behind a hole in the data of one
    is_found = lost > 0 and tshark.version() >= (4, 6)
    assert ("Read(10)" in tshark.response_times(file)) == is_found
    assert tshark.response_times(file, *tshark.REASSEMBLE)["Read(10)"].task_count == 20
    assert_exact(file, seen)


@pytest.mark.parametrize("lost", [1, 20, 45], ids=["second", "middle", "last"])
@pytest.mark.parametrize("tap", [0.0, 1.0], ids=["at the initiator", "at the target"])
def test_loss_elsewhere(lost: int, tap: float, tmp_path: FilePath) -> None:
    losses = frozenset((False, 1 + 46 * place + lost) for place in range(20))
    kinds = {"lost_before_tap" if tap == 0.0 else "lost_after_tap": losses}
    capture = reads(Path(DELAY_NS, tap=tap, **kinds), Session())  # type: ignore[arg-type]
    file = write_pcap(tmp_path / "loss.pcap", capture.packets, ETHERNET)
    assert_exact(file, observe(capture, capture.packets))


@pytest.mark.parametrize("data_segment_length", [524_288, 1_048_576])
def test_data_pdus_over_256_kib(data_segment_length: int, tmp_path: FilePath) -> None:
    settings = Session(initiator_max_recv_data_segment_length=data_segment_length, max_burst_length=data_segment_length)
    capture = reads(Path(DELAY_NS), settings, count=6, block_bytes=1 << 20)
    file = write_pcap(tmp_path / "large.pcap", capture.packets, ETHERNET)
    assert "Read(10)" not in tshark.response_times(file)
    assert_exact(file, observe(capture, capture.packets))


@pytest.mark.parametrize("has_login", [True, False], ids=["login", "no login"])
@pytest.mark.parametrize(("header", "data"), [(True, True), (True, False), (False, True)])
def test_digests(header: bool, data: bool, has_login: bool, tmp_path: FilePath) -> None:
    capture = reads(Path(DELAY_NS), Session(header_digest=header, data_digest=data))
    packets = capture.packets if has_login else capture.without_login()
    file = write_pcap(tmp_path / "digests.pcap", packets, ETHERNET)
    seen = observe(capture, packets)
    task_count = tshark.response_times(file, *tshark.ISCSI_PORT)["Read(10)"].task_count
    if data:
        assert task_count < 20
    else:
        assert task_count == 20
    trace = iscsitrace.read(file, tables=("pdus",))
    assert pdu_differences(trace, seen) == []
    assert cycle_differences(trace, seen) == []
    assert digest_differences(trace, seen) == []
    row = trace.connections.row(0)
    assert row["header_digest"] == ("crc32c" if header else "none")
    assert row["data_digest"] == ("crc32c" if data else "none")
    assert row["digest_source"] == ("login" if has_login else "inferred")


SEGMENTS = {
    "every PDU in its own": Path(DELAY_NS, is_pdu_per_segment=True),
    "every command in its own": Path(DELAY_NS, is_command_per_segment=True),
    "packed": Path(DELAY_NS),
}


LOADS = ((1, 65_536, 40), (1, 524_288, 20), (8, 65_536, 40), (8, 524_288, 20), (32, 8_192, 40))
"""Queue depth, block size, and how many reads."""
SNAPLENS = [
    (*case, LOADS[place % len(LOADS)])
    for place, case in enumerate(itertools.product((96, 128), (True, False), SEGMENTS))
]
"""Every snaplen with every form of status and segments, each workload with some of them."""


@pytest.mark.parametrize(("snaplen_bytes", "is_status_in_data", "segments", "load"), SNAPLENS, ids=str)
def test_snaplen(
    snaplen_bytes: int, is_status_in_data: bool, segments: str, load: tuple[int, int, int], tmp_path: FilePath
) -> None:
    queue_depth, block_bytes, count = load
    settings = Session(is_status_in_data=is_status_in_data)
    capture = reads(SEGMENTS[segments], settings, count=count, queue_depth=queue_depth, block_bytes=block_bytes)
    packets = cut(capture.packets, snaplen_bytes)
    file = write_pcap(tmp_path / "short.pcap", packets, ETHERNET)
    whole = observe(capture, capture.packets)

    times = tshark.response_times(file).get("Read(10)", tshark.ResponseTimes(0, 0))
    is_wrong_time = abs(times.sum_ns - latency_sum_ns(whole)) > 0.01 * latency_sum_ns(whole)
    # it finds the last Data-In of a short read where that begins a segment
    if block_bytes > 8_192 and (is_status_in_data or snaplen_bytes == 96):
        assert times.task_count < count or is_wrong_time

    trace = iscsitrace.read(file, tables=("pdus",))
    seen = observe(capture, packets)
    assert false_pdus(trace, seen) == []
    assert false_cycles(trace, seen) == []
    found = {row["command_frame"]: row for row in trace.cycles.rows() if row["status_ns"] is not None}
    # a packet takes 12.3 us at 1 Gbit/s; acknowledgements come with every second
    packet_ns = 12_304
    right = 0
    for cycle in whole.cycles:
        row = found.get(cycle.columns["command_frame"])
        if row is not None and row["initiator_task_tag"] == cycle.record.initiator_task_tag:
            instants = [name for name in cycle.columns if name.endswith("_ns") and name != "next_command_ns"]
            right += all(_is_within(row[name], cycle.columns[name], packet_ns) for name in instants)
    # 96 bytes include 30 bytes of each header: opcode, lengths, tag, and the status if there is one
    commands = sum(cycle.pdus[0].header_bytes >= 30 for cycle in seen.cycles)
    if segments != "packed" or queue_depth == 1:
        assert commands == len(whole.cycles)
    # of commands packed many into a segment, as no kernel sends them, not even the tags are in the file
    if commands == len(whole.cycles):
        assert right >= 0.95 * len(whole.cycles)
    else:
        readable = sum(all(pdu.header_bytes >= 30 for pdu in cycle.pdus) for cycle in seen.cycles)
        assert right >= 0.95 * readable


def _is_within(found: int | None, expected: int | str | None, tolerance_ns: int) -> bool:
    if found is None or expected is None:
        return found is None and expected is None
    return abs(found - int(expected)) <= tolerance_ns


def test_another_port(tmp_path: FilePath) -> None:
    capture = reads(Path(DELAY_NS, target_port=5000), Session())
    file = write_pcap(tmp_path / "port.pcap", capture.packets, ETHERNET)
    assert tshark.response_times(file) == {}
    assert tshark.response_times(file, "-d", "tcp.port==5000,iscsi")["Read(10)"].task_count == 20
    assert_exact(file, observe(capture, capture.packets))


def test_another_port_in_mid_session(tmp_path: FilePath) -> None:
    capture = reads(Path(DELAY_NS, target_port=5000), Session())
    packets: list[Packet] = capture.without_login()
    file = write_pcap(tmp_path / "port.pcap", packets, ETHERNET)
    trace = iscsitrace.read(file, tables=("pdus",))
    seen = observe(capture, packets)
    assert pdu_differences(trace, seen) == []
    assert cycle_differences(trace, seen) == []
