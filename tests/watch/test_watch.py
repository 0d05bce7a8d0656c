"""The live pass and its totals: at the end they equal those of the whole trace, however it was read."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iscsitrace import read
from iscsitrace.show.summary import totals
from iscsitrace.tables.passes import SECOND_NS, Live, Settings
from iscsitrace.watch.watcher import Report, Watcher
from tests.support.capture_file import drops
from tests.support.endless import LATENCY_NS, THINK_NS, endless_capture, many_connections
from tests.support.recordings import recorded_captures

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*/capture.*"))
PATIENT = Settings(clock_after_ns=None)
"""Only the clock of the capture counts: a stall of this machine changes nothing."""
ONLY_LIVE = {
    "kind",
    "schema",
    "tool",
    "input",
    "options",
    "forgotten_connection_count",
    "forgotten_session_count",
    "forgotten_input_count",
    "late_command_count",
    "left_out_packets",
    "ended_because",
}


def sample_of(name: str) -> Path:
    """The capture of a sample."""
    return next(path for path in SAMPLES if path.parent.name == name)


def watch(source: Any, how: Settings = PATIENT, *, is_file: bool = True) -> tuple[list[Report], dict[str, Any]]:
    """Every report of a source, and the totals; a file is read to its current end."""
    live = Live(source, how)
    if is_file:
        live.stop()
    watcher = Watcher(live)
    reports: list[Report] = []
    watcher.run(reports.append)
    return reports, watcher.document()


def summary(path: Path) -> dict[str, Any]:
    """The output of ``summary --json`` without its envelope."""
    return totals(read(path))


def figures(document: dict[str, Any]) -> dict[str, Any]:
    """The totals that ``summary`` has, too."""
    return {name: value for name, value in document.items() if name not in ONLY_LIVE}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name)
def test_totals_of_a_sample_equal_its_summary(path: Path) -> None:
    reports, document = watch(path)
    assert figures(document) == summary(path)
    assert document["late_command_count"] == 0
    _check_sums(reports, document)


# many of them are of a kind: of each kind there is one
@pytest.mark.parametrize("path", recorded_captures()[::3], ids=lambda path: path.name)
def test_totals_of_a_recorded_capture_equal_its_summary(path: Path) -> None:
    reports, document = watch(path, replace(PATIENT, interval_ns=SECOND_NS // 2))
    assert figures(document) == summary(path)
    assert document["late_command_count"] == 0
    _check_sums(reports, document)


def _check_sums(reports: list[Report], document: dict[str, Any]) -> None:
    """Intervals follow each other without a gap, and add up to the totals."""
    for one, other in itertools.pairwise(reports):
        assert one.to_ns == other.from_ns
    whole = document["volumes"][-1]
    for name, total in (("task_count", "cycle_count"), ("read_bytes", "read_bytes"), ("write_bytes", "write_bytes")):
        assert sum(getattr(report.whole, name) for report in reports) == whole[total]
        for volume in document["volumes"][:-1]:
            of_session = [line for report in reports for line in report.sessions if line.number == volume["session"]]
            assert sum(getattr(line.load, name) for line in of_session) == volume[total]
            of_connections = [
                line for report in reports for line in report.connections if line.names["session"] == volume["session"]
            ]
            assert sum(getattr(line.load, name) for line in of_connections) == volume[total]
    assert sum(report.new_packets for report in reports) == document["packet_count"]
    for report in reports:
        for line in (*report.sessions, *report.connections):
            if line.budget:
                # every nanosecond has one owner, and none has two
                assert 0 < line.budget.total_ns <= report.to_ns - report.from_ns


SMALL = next(path for path in SAMPLES if path.parent.name == "two-connections-one-session")
LOSSY = next(path for path in SAMPLES if path.parent.name == "loss-1-percent")


def unpacked(path: Path) -> bytes:
    """The bytes of a capture, decompressed."""
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, Any]]:
    """A capture without compression, and its summary."""
    path = tmp_path_factory.mktemp("watch") / "whole.pcapng"
    path.write_bytes(unpacked(SMALL))
    return path.read_bytes(), summary(path)


@given(interval_ms=st.integers(1, 3000), settle_ms=st.integers(0, 500), keep_ms=st.integers(0, 3000))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_interval_length_changes_no_total(
    whole: tuple[bytes, dict[str, Any]], interval_ms: int, settle_ms: int, keep_ms: int
) -> None:
    content, expected = whole
    how = replace(
        PATIENT,
        interval_ns=interval_ms * 1_000_000,
        settle_ns=settle_ms * 1_000_000,
        keep_ns=keep_ms * 1_000_000,
    )
    reports, document = watch(io.BytesIO(content), how, is_file=False)
    assert figures(document) == expected
    _check_sums(reports, document)


class Pieces(io.RawIOBase):
    """A stream that returns its bytes in pieces of these sizes, repeatedly."""

    def __init__(self, content: bytes, sizes: list[int]) -> None:
        self._content, self._sizes, self._at, self._turn = content, sizes, 0, 0

    def read(self, size: int = -1, /) -> bytes:
        length = min(self._sizes[self._turn % len(self._sizes)], size)
        self._turn += 1
        piece = self._content[self._at : self._at + length]
        self._at += len(piece)
        return piece


@given(sizes=st.lists(st.integers(100, 50_000), min_size=1, max_size=5))
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_pipe_in_pieces_of_any_size_gives_the_same(whole: tuple[bytes, dict[str, Any]], sizes: list[int]) -> None:
    content, expected = whole
    _, document = watch(Pieces(content, sizes), is_file=False)
    assert figures(document) == expected


def test_a_growing_file_is_followed(whole: tuple[bytes, dict[str, Any]], tmp_path: Path) -> None:
    content, expected = whole
    path = tmp_path / "growing.pcapng"
    places = [0, 10, 30_000, 30_001, len(content) // 2, len(content) - 3, len(content)]
    path.touch()
    live = Live(path, PATIENT)
    watcher = Watcher(live)
    for start, end in itertools.pairwise(places):
        with path.open("ab") as stream:
            stream.write(content[start:end])
        for _ in range(3):
            watcher.step(0.01)
        assert not watcher.is_over
    live.stop()
    watcher.run(lambda report: None)
    assert figures(watcher.document()) == expected
    assert watcher.document()["ended_because"] is None


def test_an_incomplete_record_waits_for_its_rest(whole: tuple[bytes, dict[str, Any]], tmp_path: Path) -> None:
    header, packets = _pcapng_blocks(whole[0])
    path = tmp_path / "growing.pcapng"
    path.write_bytes(header + b"".join(packets)[:-10])
    _, document = watch(path)
    assert document["packet_count"] == len(packets) - 1
    # it ended there: as for any file
    assert figures(document) == summary(path)
    assert "record_cut_short" in {row["name"] for row in document["counters"]}


@pytest.mark.parametrize("change", ["cut short", "replaced"])
def test_a_truncated_or_replaced_file_ends_the_watch(
    whole: tuple[bytes, dict[str, Any]], tmp_path: Path, change: str
) -> None:
    path = tmp_path / "growing.pcapng"
    path.write_bytes(whole[0])
    watcher = Watcher(Live(path, PATIENT))
    while watcher.live.pace.waiting_bytes or not watcher.live.inputs:
        watcher.step(0.01)
    if change == "cut short":
        os.truncate(path, 100)
    else:
        other = tmp_path / "other"
        other.write_bytes(whole[0])
        other.rename(path)
    watcher.run(lambda report: None)
    assert watcher.document()["ended_because"] == change
    assert watcher.document()["packet_count"] == whole[1]["packet_count"]


def test_the_files_of_a_ring_are_one_stream(tmp_path: Path) -> None:
    content = unpacked(SMALL)
    header, packets = _pcapng_blocks(content)
    middle = len(packets) // 2
    (tmp_path / "san_00001_20261121120000.pcapng").write_bytes(header + b"".join(packets[:middle]))
    (tmp_path / "san_00002_20261121120100.pcapng").write_bytes(header + b"".join(packets[middle:]))
    live = Live(tmp_path / "san_00001_20261121120000.pcapng", PATIENT)
    watcher = Watcher(live)
    total = summary(SMALL)["packet_count"]
    while watcher.last is None or watcher.last.packet_count < total:
        watcher.step(0.05)
        if len(live.inputs) == 2 and sum(each["packet_count"] for each in live.inputs) == total:
            break
    live.stop()
    watcher.run(lambda report: None)
    assert figures(watcher.document()) == totals(read(*sorted(tmp_path.iterdir())))


def test_old_files_of_a_ring_stay_in_the_totals_alone(tmp_path: Path) -> None:
    content = unpacked(SMALL)
    header, packets = _pcapng_blocks(content)
    count = 100
    for number in range(count):
        part = b"".join(packets[number * len(packets) // count : (number + 1) * len(packets) // count])
        (tmp_path / f"san_{number + 1:05}_20261121120000.pcapng").write_bytes(header + part + drops(2))
    live = Live(tmp_path / "san_00001_20261121120000.pcapng", replace(PATIENT, interval_ns=SECOND_NS // 100))
    watcher = Watcher(live)
    until_s = time.monotonic() + 60
    while not live.inputs or not live.inputs[-1]["name"].endswith(f"_{count:05}_20261121120000.pcapng"):
        watcher.step(0.05)
        assert time.monotonic() < until_s
    live.stop()
    watcher.run(lambda report: None)
    assert watcher.last
    assert watcher.last.dropped == 2 * count
    document = watcher.document()
    # sixty-four, and those since the last interval
    assert document["forgotten_input_count"] > 20
    assert document["forgotten_input_count"] + len(document["input"]) == count
    # the counters have the drops, too
    assert figures(document) | {"counters": None} == summary(SMALL) | {"counters": None}


def _pcapng_blocks(content: bytes) -> tuple[bytes, list[bytes]]:
    """The blocks before the first packet, and every packet block."""
    blocks, at = [], 0
    while at < len(content):
        length = int.from_bytes(content[at + 4 : at + 8], "little")
        blocks.append(content[at : at + length])
        at += length
    kinds = [int.from_bytes(block[:4], "little") for block in blocks]
    first = kinds.index(6)
    return b"".join(blocks[:first]), [block for block, kind in zip(blocks, kinds, strict=True) if kind == 6]


def test_skipped_packets_are_reported(whole: tuple[bytes, dict[str, Any]]) -> None:
    # a view that is behind from the start on leaves out everything, and says so
    content, expected = whole
    reports, document = watch(io.BytesIO(content), replace(PATIENT, lag_max_ns=0), is_file=False)
    assert document["left_out_packets"] == document["packet_count"] == expected["packet_count"]
    found = {row["name"]: row for row in document["counters"]}
    assert found["packets_left_out"]["count"] == expected["packet_count"]
    assert found["packets_left_out"]["severity"] == "data_loss"
    assert all(report.pace.is_leaving_out and report.pace.is_reduced for report in reports)
    assert reports[0].as_dict()["sampled"]["is_leaving_out"]


def test_without_dynamics_the_totals_are_the_same(whole: tuple[bytes, dict[str, Any]]) -> None:
    content, expected = whole
    reports, document = watch(io.BytesIO(content), replace(PATIENT, has_dynamics=False), is_file=False)
    assert figures(document) == expected
    assert all(line.budget is None for report in reports for line in report.sessions)


def test_retransmissions_of_the_intervals_add_up_to_those_of_the_trace() -> None:
    reports, _ = watch(LOSSY)
    senders = read(LOSSY, tables=["senders"]).senders
    for cause in ("fast_retransmit", "timeout", "tail_probe", "unknown_retransmit"):
        found = sum(
            transport.retransmissions[cause]
            for report in reports
            for line in report.connections
            for transport in line.transports.values()
        )
        assert found == int(senders[f"{cause}_count"].sum()), cause
    assert max(line.retransmitted for report in reports for line in report.sessions) > 0


def test_the_breakdown_of_the_intervals_adds_up_to_that_of_the_trace() -> None:
    """Later measurements (minimum RTT, line rate) move a little time between the parts."""
    from iscsitrace.measure import budget

    path = next(path for path in SAMPLES if path.parent.name == "sequential-read-16ms")
    reports, _ = watch(path)
    expected = budget.of_sessions(read(path, tables=["budget"]).budget)[0]
    whole_ns = expected.whole_ns
    found = dict.fromkeys(whole_ns, 0)
    for report in reports:
        for line in report.sessions:
            for part, ns in (line.budget.whole_ns if line.budget else {}).items():
                found[part] += ns
    busy = expected.total_ns - whole_ns["initiator_think"]
    for part, ns in whole_ns.items():
        if part != "initiator_think":
            assert abs(found[part] - ns) < 0.03 * busy, part


def test_findings_appear_during_the_traffic() -> None:
    path = next(path for path in SAMPLES if path.parent.name == "sequential-read-16ms")
    live = Live(path, replace(PATIENT, interval_ns=SECOND_NS // 4))
    live.stop()
    watcher = Watcher(live)
    watcher.findings.every_ns = SECOND_NS
    reports: list[Report] = []
    watcher.run(reports.append)
    found = {found.name for report in reports for found in report.findings}
    assert "queue_depth_low" in found
    assert any("network round trips" in report.headline.text for report in reports if report.headline)


def test_an_invalid_capture_is_refused() -> None:
    from iscsitrace.errors import CaptureUnreadable

    for content, expected in ((b"this is no capture at all", "is not a capture"), (b"", "is empty")):
        watcher = Watcher(Live(io.BytesIO(content), PATIENT))
        with pytest.raises(CaptureUnreadable, match=expected):
            watcher.run(lambda report: None)


def test_a_quiet_source_has_idle_intervals(whole: tuple[bytes, dict[str, Any]]) -> None:
    content, expected = whole
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as stream:
        live = Live(stream, replace(PATIENT, interval_ns=50_000_000, settle_ns=0, clock_after_ns=1))
        watcher = Watcher(live)
        feeder = threading.Thread(target=_write, args=(os.fdopen(writer, "wb"), content))
        feeder.start()
        idle: list[Report] = []
        # until nothing has come for three intervals
        while len(idle) < 3:
            report = watcher.step(0.05)
            if report:
                is_idle = report.packet_count == expected["packet_count"] and not report.new_packets
                idle = [*idle, report] if is_idle else []
        for report in idle:
            for line in report.sessions:
                assert line.load.task_count == 0
        _stop_feeding.set()
        feeder.join()
        watcher.run(lambda report: None)
    assert watcher.document()["volumes"][-1]["cycle_count"] == expected["volumes"][-1]["cycle_count"]


_stop_feeding = threading.Event()


def _write(stream: BinaryIO, content: bytes) -> None:
    with stream:
        stream.write(content)
        stream.flush()
        _stop_feeding.wait(60)


def test_memory_stays_flat_over_many_cycles() -> None:
    """The same conversation repeated at later times: the number of kept rows does not grow."""
    stream, cycle_count = endless_capture(300_000)
    live = Live(stream, replace(PATIENT, interval_ns=20 * SECOND_NS, keep_ns=SECOND_NS))
    watcher = Watcher(live, has_findings=False)
    kept: list[int] = []
    while not watcher.is_over:
        report = watcher.step()
        if report and not report.is_last:
            kept.append(live.row_count)
    document = watcher.document()
    assert document["volumes"][-1]["cycle_count"] == cycle_count
    # without a login, and cut by a snaplen, a digest may follow the first status: when it ended is unknown
    assert document["volumes"][-1]["complete_cycle_count"] == cycle_count - 1
    early, late = max(kept[: len(kept) // 4]), max(kept[len(kept) // 2 :])
    assert late <= 1.2 * early
    latency = document["latency"][0]
    assert latency["operation"] == "read"
    assert latency["latency_ns"]["max"] == LATENCY_NS
    assert abs(latency["latency_ns"]["p50"] - LATENCY_NS) <= LATENCY_NS / 2000
    assert abs(latency["turnaround_ns"]["p50"] - THINK_NS) <= THINK_NS / 2000
    assert latency["turnaround_ns"]["max"] == THINK_NS
    # without a login, and cut by a snaplen, a digest may follow the first data: when it ended is unknown
    assert document["volumes"][-1]["active_ns"] == (cycle_count - 1) * LATENCY_NS
    assert document["queue_depth"]["cycles_by_queue_depth"] == {1: cycle_count}


def test_ended_connections_are_removed_but_stay_in_the_totals() -> None:
    content = many_connections(1500)
    live = Live(io.BytesIO(content), replace(PATIENT, interval_ns=30 * SECOND_NS))
    watcher = Watcher(live, has_findings=False)
    kept: list[int] = []
    while not watcher.is_over:
        report = watcher.step()
        if report and not report.is_last:
            kept.append(live.row_count)
    found, expected = watcher.document(), totals(read(content))
    assert expected["volumes"][-1]["cycle_count"] == 1500
    assert max(kept) < 1300
    assert found["forgotten_connection_count"] == found["forgotten_session_count"] > 200
    assert len(found["connections"]) + found["forgotten_connection_count"] == 1500
    assert [row["session"] for row in found["sessions"]] == [row["session"] for row in found["connections"]]
    assert found["volumes"][-1] == expected["volumes"][-1]
    assert found["coverage"][-1] == expected["coverage"][-1]
    for name in ("latency", "block_sizes", "queue_depth", "packet_count"):
        assert found[name] == expected[name], name
    assert {row["name"]: row["count"] for row in found["counters"]} == {
        row["name"]: row["count"] for row in expected["counters"]
    }
    rows = {row["session"]: row for row in expected["volumes"]}
    assert all(volume == rows[volume["session"]] for volume in found["volumes"])


def test_a_clock_set_back_stops_nothing(whole: tuple[bytes, dict[str, Any]]) -> None:
    header, packets = _pcapng_blocks(whole[0])
    earlier = [_moved(packet, -3600) for packet in packets]
    reports, document = watch(io.BytesIO(header + b"".join(packets + earlier)), is_file=False)
    assert document["packet_count"] == 2 * len(packets)
    assert sum(report.new_packets for report in reports) == 2 * len(packets)
    starts = [report.from_ns for report in reports]
    turn = starts.index(min(starts))
    # both hours have their intervals
    assert turn > 0
    assert all(start > starts[0] - SECOND_NS for start in starts[:turn])
    assert all(start < starts[0] - 3000 * SECOND_NS for start in starts[turn:])


def _moved(packet: bytes, seconds: int) -> bytes:
    """An Enhanced Packet Block with another time; the resolution of its interface is a nanosecond."""
    high, low = (int.from_bytes(packet[at : at + 4], "little") for at in (12, 16))
    ticks = (high << 32 | low) + seconds * SECOND_NS
    return packet[:12] + (ticks >> 32).to_bytes(4, "little") + (ticks & 0xFFFFFFFF).to_bytes(4, "little") + packet[20:]
