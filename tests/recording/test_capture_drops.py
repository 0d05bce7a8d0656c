"""Captures with missing packets: nothing false is found, everything captured is, and the coverage is correct.

Packets are dropped from captures with known truth: built ones, and recorded ones that were read whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path as FilePath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iscsitrace
from tests.support.agreement import connection_numbers, false_cycles, false_pdus
from tests.support.capture_file import Record, read_records, thin, write_pcap
from tests.support.conversation import Capture, Conversation, Session
from tests.support.pdu import Task
from tests.support.recorded import as_built
from tests.support.recordings import recorded_captures
from tests.support.transport import ETHERNET, Packet, Path
from tests.support.truth import Seen, observe

SHARES = [0.01, 0.05, 0.20]


def _built(steps: Callable[[Conversation], None], path: Path | None = None) -> Capture:
    conversation = Conversation(path or Path(one_way_delay_ns=1_000_000))
    steps(conversation)
    return conversation.run()


def _reads_of_4k(conversation: Conversation) -> None:
    conversation.session().login().read(count=500, block_bytes=4096, queue_depth=8).logout()


def _reads_of_64k(conversation: Conversation) -> None:
    conversation.session(Session(initiator_max_recv_data_segment_length=16_384)).login().read(count=60).logout()


def _reads_at_depth_8(conversation: Conversation) -> None:
    conversation.session(Session(is_status_in_data=False)).login().read(count=60, queue_depth=8).logout()


def _writes(conversation: Conversation) -> None:
    session = conversation.session(Session(max_burst_length=65_536, target_max_recv_data_segment_length=8192)).login()
    session.write(count=30, block_bytes=262_144, queue_depth=4).logout()


def _two_connections(conversation: Conversation) -> None:
    session = conversation.session(Session(connection_count=2, initiator_max_recv_data_segment_length=8192)).login()
    session.read(count=300, queue_depth=8).write(count=100, queue_depth=8).logout()


def _digests(conversation: Conversation) -> None:
    session = conversation.session(Session(header_digest=True, data_digest=True)).login()
    session.read(count=120, queue_depth=2).write(count=40).logout()


def _zeros(conversation: Conversation) -> None:
    # a zero byte is the opcode of a NOP-Out
    conversation.session(Session(payload="zeros")).login().read(count=40).write(count=20).logout()


def _nested_headers(conversation: Conversation) -> None:
    conversation.session(Session(payload="headers")).login().read(count=40).write(count=20).logout()


def _random_bytes(conversation: Conversation) -> None:
    conversation.session(Session(payload="random")).login().read(count=180, queue_depth=8).write(count=60).logout()


BUILT: dict[str, Callable[[Conversation], None]] = {
    "reads of 4 KiB": _reads_of_4k,
    "reads of 64 KiB": _reads_of_64k,
    "reads at depth 8": _reads_at_depth_8,
    "writes": _writes,
    "two connections": _two_connections,
    "digests": _digests,
    "zeros": _zeros,
    "recorded headers": _nested_headers,
    "random bytes": _random_bytes,
}


@lru_cache(maxsize=4)
def built(name: str) -> Capture:
    """A built capture, cached."""
    return _built(BUILT[name])


def assert_found(trace: iscsitrace.Trace, seen: Seen, numbers: dict[int, int]) -> None:
    """Nothing false; each command with all headers captured is found, with its counts and times, and complete if its
    status was captured up to its end.
    """
    assert false_pdus(trace, seen, numbers) == []
    assert false_cycles(trace, seen, numbers) == []
    rows = {
        (numbers[row["connection"]], row["command_frame"], row["initiator_task_tag"]): row
        for row in trace.cycles.rows()
    }
    lost = []
    for cycle in seen.cycles:
        if not cycle.has_all_headers:
            continue
        columns = cycle.columns
        row = rows.get((cycle.record.connection, columns["command_frame"], cycle.record.initiator_task_tag))
        names = ["data_pdu_count", "r2t_count", "data_bytes", "status", "status_ns", "data_first_ns"]
        has_end = columns["status_ns"] is not None
        if row is None or row["is_complete"] != has_end or any(row[name] != columns[name] for name in names):
            lost.append((cycle.record.number, row and {name: (row[name], columns[name]) for name in names}))
        elif row["has_capture_gap"] != columns["has_capture_gap"]:
            lost.append((cycle.record.number, {"has_capture_gap": row["has_capture_gap"]}))
    assert lost == []
    # what did not survive is not called complete
    for cycle in seen.cycles:
        row = rows.get((cycle.record.connection, cycle.columns["command_frame"], cycle.record.initiator_task_tag))
        if row is not None and not cycle.has_all_headers:
            assert not row["is_complete"] or row["data_bytes"] == cycle.columns["data_bytes"]


def assert_coverage(trace: iscsitrace.Trace, seen: Seen) -> None:
    """The shares of decoded bytes and of PDUs found equal the truth, within one percent."""
    total = trace.coverage[-1]
    ends = {key: stream.regions[-1].end for key, stream in seen.streams.items() if stream.regions}
    stream_bytes = sum(ends.values())
    explained_bytes = sum(
        max(0, min(pdu.pdu.length, ends[pdu.pdu.connection, pdu.pdu.to_target] - pdu.pdu.stream_offset))
        for pdu in seen.pdus
        if pdu.has_header
    )
    passed_bytes = sum(seen.streams[key].passed_bytes(0, end) for key, end in ends.items())
    found = sum(pdu.has_header for pdu in seen.pdus)
    assert total.explained_bytes_share == pytest.approx(explained_bytes / stream_bytes, abs=0.01)
    assert total.pdu_share == pytest.approx(found / len(seen.pdus), abs=0.01)
    assert total.gap_bytes / total.stream_bytes == pytest.approx(1 - passed_bytes / stream_bytes, abs=0.01)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", BUILT)
def test_built(name: str, share: float, tmp_path: FilePath) -> None:
    capture = built(name)
    packets = thin(capture.packets, share, seed=1)
    trace = iscsitrace.read(write_pcap(tmp_path / "thin.pcap", packets, ETHERNET), tables=("pdus",))
    seen = observe(capture, packets)
    assert_found(trace, seen, connection_numbers(trace))
    assert_coverage(trace, seen)
    names = {row["name"] for row in trace.counters.rows() if row["severity"] == "data_loss"}
    assert names & {"capture_gap", "hole_abandoned"} or not any(pdu.has_capture_gap for pdu in seen.pdus)


@pytest.mark.parametrize(
    ("file", "share"), [(file, SHARES[number % 3]) for number, file in enumerate(recorded_captures())], ids=str
)
def test_recorded(file: FilePath, share: float, tmp_path: FilePath) -> None:
    whole = iscsitrace.read(file, tables=("pdus", "segments"))
    records, link_type = read_records(file)
    ports = {row["initiator_port"]: row["connection"] for row in whole.connections.rows()}
    capture = as_built(whole, records)
    packets: list[Packet | Record] = [*thin(capture.packets, share, seed=1)]
    trace = iscsitrace.read(write_pcap(tmp_path / "thin.pcap", packets, link_type), tables=("pdus",))
    numbers = {row["connection"]: ports[row["initiator_port"]] for row in trace.connections.rows()}
    seen = observe(capture, [packet for packet in packets if isinstance(packet, Packet)])
    assert false_pdus(trace, seen, numbers) == []
    assert false_cycles(trace, seen, numbers) == []


# --- random damage


def _small() -> Capture:
    conversation = Conversation(Path(one_way_delay_ns=500_000))
    session = conversation.session(Session(initiator_max_recv_data_segment_length=4096)).login()
    session.tasks([Task("inquiry"), Task("test_unit_ready")]).read(count=6, block_bytes=16_384, queue_depth=3)
    session.write(count=3, block_bytes=131_072).nop().logout()
    return conversation.run()


SMALL = _small()

MISHAPS = st.lists(
    st.tuples(
        st.sampled_from(["cut", "drop", "drop run", "duplicate", "reorder", "start late", "stop early"]),
        st.integers(0, len(SMALL.packets) - 1),
        st.integers(1, 200),
    ),
    max_size=12,
)


def apply(mishaps: list[tuple[str, int, int]]) -> list[Packet]:
    """The small capture after these changes, in order of time."""
    packets = list(SMALL.packets)
    for kind, wished, amount in mishaps:
        if not packets:
            break
        place = wished % len(packets)
        packet = packets[place]
        if kind == "cut":
            packets[place] = Packet(**{**packet.__dict__, "data": packet.data[: max(14, len(packet.data) - amount)]})
        elif kind == "drop":
            del packets[place]
        elif kind == "drop run":
            del packets[place : place + amount % 40]
        elif kind == "duplicate":
            again = min(len(packets), place + amount % 30)
            packets.insert(again, Packet(**{**packet.__dict__, "is_copy": True}))
        elif kind == "reorder":
            packets.insert(min(len(packets), place + amount % 10), packets.pop(place))
        elif kind == "start late":
            del packets[: place // 2]
        else:
            del packets[len(packets) - place // 2 :]
    times = sorted(packet.time_ns for packet in packets)
    return [Packet(**{**packet.__dict__, "time_ns": time_ns}) for packet, time_ns in zip(packets, times, strict=True)]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mishaps=MISHAPS, missing_bytes=st.integers(0, 3000))
def test_random_damage(mishaps: list[tuple[str, int, int]], missing_bytes: int, tmp_path: FilePath) -> None:
    packets = apply(mishaps)
    file = write_pcap(tmp_path / "mishap.pcap", packets, ETHERNET)
    content = file.read_bytes()
    content = content[: max(24, len(content) - missing_bytes)]
    trace = iscsitrace.read(content, tables=("pdus", "segments"))
    seen = observe(SMALL, packets)
    assert false_pdus(trace, seen) == []
    assert false_cycles(trace, seen) == []
    total = trace.coverage[-1]
    assert total.explained_bytes <= total.stream_bytes
    assert total.captured_bytes + total.gap_bytes == total.stream_bytes


def test_the_small_capture_is_complete(tmp_path: FilePath) -> None:
    """Without damage the capture of the property test is read exactly."""
    trace = iscsitrace.read(write_pcap(tmp_path / "small.pcap", apply([]), ETHERNET), tables=("pdus",))
    seen = observe(SMALL, SMALL.packets)
    assert_found(trace, seen, connection_numbers(trace))
    assert len(trace.cycles) == len(SMALL.tasks)
    assert len(trace.pdus) == len(SMALL.pdus)
