"""Traces for the Perfetto UI, read back with the package's own messages."""

from __future__ import annotations

import gzip
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.errors import ExtraMissing
from iscsitrace.show import perfetto
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from tests.support import hand_timed as by_hand
from tests.support.capture_file import write_pcap
from tests.support.conversation import Conversation, Session
from tests.support.hand_timed import READ, Wire, command, data_in
from tests.support.transport import ETHERNET

VECTORS = Path(__file__).parents[1] / "vectors" / "guests"
PHASES = ("request", "grant", "transfer", "service", "status wait")
SAMPLES = Path(__file__).parents[2] / "samples"


class Slice(NamedTuple):
    track: str
    name: str
    start_ns: int
    end_ns: int
    values: dict[str, int]
    depth: int


class Read:
    """A trace as a person sees it: slices, instants and counters by the path of their track."""

    def __init__(self, data: bytes) -> None:
        messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
        trace = messages.Trace()
        trace.ParseFromString(data)
        self.tracks: dict[int, tuple[int, str]] = {}
        self.units: dict[str, str] = {}
        self.slices: list[Slice] = []
        self.instants: list[tuple[str, str, int]] = []
        self.counters: dict[str, list[tuple[int, int]]] = {}
        names: dict[int, str] = {}
        labels: dict[int, str] = {}
        packets = list(trace.packet)
        for packet in packets:
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                self.tracks[track.uuid] = track.parent_uuid, track.name or track.process.process_name
                self.units[self.path(track.uuid)] = track.counter.unit_name
            names |= {each.iid: each.name for each in packet.interned_data.event_names}
            labels |= {each.iid: each.name for each in packet.interned_data.debug_annotation_names}
        kinds = messages.TrackEvent
        opened: dict[int, list[Any]] = {}
        # by time; at one time in the order of the file
        for packet in sorted(
            (each for each in packets if each.HasField("track_event")), key=lambda each: each.timestamp
        ):
            event, path = packet.track_event, self.path(packet.track_event.track_uuid)
            if event.type == kinds.TYPE_SLICE_BEGIN:
                opened.setdefault(event.track_uuid, []).append(packet)
            elif event.type == kinds.TYPE_SLICE_END:
                begun = opened[event.track_uuid].pop()
                values = {labels[each.name_iid]: each.int_value for each in begun.track_event.debug_annotations}
                self.slices.append(
                    Slice(path, names[begun.track_event.name_iid], begun.timestamp, packet.timestamp, values,
                          len(opened[event.track_uuid]))
                )  # fmt: skip
            elif event.type == kinds.TYPE_INSTANT:
                self.instants.append((path, names[event.name_iid], packet.timestamp))
            else:
                self.counters.setdefault(path, []).append((packet.timestamp, event.counter_value))
        assert not any(opened.values())

    def path(self, uuid: int) -> str:
        parts = []
        while uuid:
            uuid, name = self.tracks[uuid]
            parts.append(name)
        return " / ".join(reversed(parts))


def check(data: bytes) -> Counter[str]:
    """Checks what Perfetto's importer relies on, packet by packet in the order of the file; returns what there is.

    docs: perfetto.dev/docs/reference/synthetic-track-event, and track_descriptor.proto.
    """
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    kinds, clocks = messages.TrackEvent, messages.TracePacket
    packets = messages.Trace.FromString(data).packet
    parents: dict[int, int] = {0: 0}
    siblings: set[tuple[int, str]] = set()
    counters: set[int] = set()
    pids: set[int] = set()
    words: dict[tuple[str, int], str] = {}
    events: list[tuple[int, Any]] = []
    for place, packet in enumerate(packets):
        assert packet.trusted_packet_sequence_id == 1
        # names by number are known from the first packet on
        assert packet.sequence_flags == (
            clocks.SEQ_INCREMENTAL_STATE_CLEARED if place == 0 else clocks.SEQ_NEEDS_INCREMENTAL_STATE
        )
        for field in ("event_names", "debug_annotation_names"):
            for each in getattr(packet.interned_data, field):
                assert each.iid, "0 is no number"
                assert each.name.isprintable()
                assert words.setdefault((field, each.iid), each.name) == each.name
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            name = track.process.process_name or track.name
            assert track.uuid not in parents, "declared once"
            assert track.parent_uuid in parents, "after its parent"
            # the UI shows siblings of one name as one track
            assert name.isprintable()
            assert name
            assert (track.parent_uuid, name) not in siblings
            parents[track.uuid] = track.parent_uuid
            siblings.add((track.parent_uuid, name))
            assert track.HasField("process") == (not track.parent_uuid)
            if track.HasField("process"):
                assert 0 < track.process.pid < 2**31
                assert track.process.pid not in pids
                pids.add(track.process.pid)
            if track.HasField("counter"):
                assert track.counter.unit_name
                counters.add(track.uuid)
        elif packet.HasField("track_event"):
            event = packet.track_event
            assert packet.timestamp >= packets[0].timestamp, "no time before the first packet of the capture"
            assert event.track_uuid in parents
            assert event.track_uuid != 0
            assert (event.type == kinds.TYPE_COUNTER) == (event.track_uuid in counters)
            if event.type in (kinds.TYPE_SLICE_BEGIN, kinds.TYPE_INSTANT):
                assert ("event_names", event.name_iid) in words
            assert all(("debug_annotation_names", each.name_iid) in words for each in event.debug_annotations)
            events.append((packet.timestamp, event))
    assert all(words[key] for key in words)
    return Counter(tracks=len(parents) - 1) + replayed(
        messages.TrackEvent, events, {number for (_, number), word in words.items() if word in PHASES}
    )


def replayed(kinds: Any, events: list[tuple[int, Any]], phases: set[int]) -> Counter[str]:
    """Checks slices and counters as the importer takes them; returns their numbers. ``phases`` are names of slices
    within others.
    """
    opened: dict[int, list[int]] = {}
    counted: dict[int, int] = {}
    found: Counter[str] = Counter()
    # the importer sorts by time, and keeps the order of the file within one time
    for time_ns, event in sorted(events, key=lambda each: each[0]):
        own = opened.setdefault(event.track_uuid, [])
        if event.type == kinds.TYPE_SLICE_BEGIN:
            # commands, R2T rounds and events do not overlap; phases are within a command, one after another
            assert len(own) == (event.name_iid in phases), time_ns
            own.append(time_ns)
        elif event.type == kinds.TYPE_SLICE_END:
            assert own.pop() <= time_ns
            found["slices"] += 1
        elif event.type == kinds.TYPE_COUNTER:
            assert counted.get(event.track_uuid, -1) < time_ns, "one value at a time"
            assert event.counter_value >= 0
            counted[event.track_uuid] = time_ns
            found["values"] += 1
        else:
            found["instants"] += 1
    assert not any(opened.values()), "every slice ends"
    return found


@pytest.mark.parametrize(
    "folder",
    [
        VECTORS / "target-restart-lio",
        VECTORS / "stuck-command-tgt",
        *(SAMPLES / name for name in ("loss-1-percent", "write-r2t-rounds")),
    ],
    ids=lambda folder: folder.name,
)
def test_a_trace_holds_what_the_importer_relies_on(folder: Path) -> None:
    capture = next(each for each in sorted(folder.iterdir()) if re.match(r"(initiator|capture)\.pcap", each.name))
    trace = iscsitrace.read(capture, tables=perfetto.needed())
    pytest.importorskip("perfetto")
    stream = io.BytesIO()
    written = perfetto.write(trace, stream, has_packets=True)
    found = check(stream.getvalue())
    assert found["slices"] >= len(trace.cycles) + len(trace.rounds)
    assert found["instants"] >= len(trace.segments.select(iscsi(trace, trace.segments)))
    assert found["values"] > 0
    assert written > found["slices"] * 2 + found["values"] + found["instants"] + found["tracks"]


def iscsi(trace: TraceTables, segments: Table) -> Any:
    own = [row["connection"] for row in trace.connections.rows() if row["is_iscsi"]]
    return np.isin(segments.raw("connection"), own)


def exported(trace: TraceTables, **options: Any) -> Read:
    pytest.importorskip("perfetto")
    stream = io.BytesIO()
    perfetto.write(trace, stream, **options)
    return Read(stream.getvalue())


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TraceTables:
    conversation = Conversation()
    conversation.session(Session()).login().read(count=20, queue_depth=4).write(count=3).logout()
    capture = write_pcap(tmp_path_factory.mktemp("perfetto") / "a.pcap", conversation.run().packets, 1)
    return iscsitrace.read(capture, tables=perfetto.needed())


@pytest.fixture(scope="module")
def found(trace: TraceTables) -> Read:
    return exported(trace, has_packets=True)


def commands(found: Read) -> Iterator[Slice]:
    return (each for each in found.slices if " / slot " in each.track and each.depth == 0)


def test_every_command_is_a_slice_from_command_to_status(trace: TraceTables, found: Read) -> None:
    rows = {row["cycle"]: row for row in trace.cycles.rows()}
    shown = {each.values["cycle"]: each for each in commands(found)}
    assert shown.keys() == rows.keys()
    for number, row in rows.items():
        each = shown[number]
        assert (each.start_ns, each.end_ns) == (row["command_first_ns"], row["status_ns"])
        assert each.name == row["operation"].replace("_", " ").upper()
        assert each.values.get("lba") == row["lba"]
        assert each.values["command_frame"] == row["command_frame"]
        assert each.track.startswith(
            f"session 0: {next(trace.sessions.rows())['target_name']} / LUN {row['lun']} / slot "
        )


def test_the_phases_of_a_command_are_within_it_and_add_up_to_it(trace: TraceTables, found: Read) -> None:
    inner = [each for each in found.slices if each.depth == 1]
    for each in commands(found):
        own = sorted(
            (one for one in inner if one.track == each.track and each.start_ns <= one.start_ns < each.end_ns),
            key=lambda one: one.start_ns,
        )
        row = next(row for row in trace.cycles.rows() if row["cycle"] == each.values["cycle"])
        phases = ("request", "grant", "transfer", "service", "status_wait")
        lengths = {name.replace("_", " "): row[f"{name}_ns"] for name in phases if row[f"{name}_ns"]}
        assert {one.name: one.end_ns - one.start_ns for one in own} == lengths
        assert [one.end_ns for one in own[:-1]] == [one.start_ns for one in own[1:]]


def test_the_queue_depth_is_the_number_of_commands_in_flight(trace: TraceTables, found: Read) -> None:
    (path,) = [path for path in found.counters if path.endswith("/ queue depth")]
    starts, ends = trace.cycles.raw("command_first_ns"), np.ma.getdata(trace.cycles["status_ns"])
    for at, value in found.counters[path]:
        assert value == int(((starts <= at) & (ends > at)).sum())
    assert max(value for _, value in found.counters[path]) == 4


def test_counters_and_packets_of_a_connection(trace: TraceTables, found: Read) -> None:
    segments = trace.segments
    ways = {True: "to target", False: "to initiator"}
    for to_target, way in ways.items():
        own = segments.select(segments.raw("to_target") == to_target)
        (rates,) = [each for path, each in found.counters.items() if path.endswith(f"throughput {way}")]
        held = sum(value * (later - at) / 1e9 for (at, value), (later, _) in pairwise(rates))
        assert held == pytest.approx(int(own.raw("payload_bytes").sum()), rel=0.01)
        times = [at for path, _, at in found.instants if path.endswith(f"packets {way}")]
        assert times == sorted(own.raw("time_ns").tolist())
        (flight,) = [each for path, each in found.counters.items() if path.endswith(f"bytes in flight {way}")]
        window = trace.window.select(trace.window.raw("to_target") == to_target)
        # of the changes at one time the last one
        assert {value for _, value in flight} == set(
            dict(zip(window.raw("time_ns").tolist(), window.raw("owin_bytes").tolist(), strict=True)).values()
        )
    assert {unit for path, unit in found.units.items() if "throughput" in path} == {"bytes/s"}
    without = exported(trace)
    assert [path for path, _, _ in without.instants if "packets" in path] == []


def test_r2t_rounds_have_their_own_tracks(trace: TraceTables, found: Read) -> None:
    shown = [each for each in found.slices if " / R2T rounds " in each.track]
    assert len(shown) == len(trace.rounds)
    assert {each.values["cycle"] for each in shown} == set(trace.rounds.raw("cycle").tolist())


def test_events_are_instants_and_slices_of_their_session() -> None:
    capture = next((VECTORS / "black-out-lio").glob("initiator.pcapng*"))
    trace = iscsitrace.read(capture, tables=perfetto.needed())
    found = exported(trace)
    rows = list(trace.events.rows())
    lasting = [row for row in rows if row["end_ns"] is not None and row["end_ns"] > row["time_ns"]]
    shown = [each for each in found.slices if " / events / " in each.track]
    assert sorted((each.start_ns, each.end_ns, each.name) for each in shown) == sorted(
        (row["time_ns"], row["end_ns"], row["text"]) for row in lasting
    )
    assert any(each.name.startswith("outage") for each in shown)
    points = [(name, at) for path, name, at in found.instants if path.endswith("/ events")]
    assert len(points) + len(shown) == len(rows)


def test_a_capture_of_months_has_its_throughput(tmp_path: Path) -> None:
    """2000 steps of 90 days, multiplied, exceed an int64."""
    wire, days_ms = Wire(), 90 * 86_400_000
    for start_ms in (0, days_ms):
        wire.send(start_ms, command(0, READ, cmd_sn=1, read=40_000))
        wire.receive(start_ms + 1, data_in(0, 0, 0, 40_000, stat_sn=1))
    found = exported(iscsitrace.read(by_hand.capture(tmp_path, wire), tables=perfetto.needed()))
    (values,) = (each for name, each in found.counters.items() if name.endswith("throughput to initiator"))
    start_ns, length_ns = by_hand.START_NS + by_hand.MS, days_ms * by_hand.MS + 1
    # 40,048 bytes in a step of 3888 s
    assert values == [
        (start_ns, 10),
        (start_ns + length_ns // 2000, 0),
        (start_ns + 1999 * length_ns // 2000, 10),
        (start_ns + length_ns, 0),
    ]


def test_a_damaged_file_without_packets_has_a_trace(tmp_path: Path) -> None:
    """Its only event is of no connection, and has no end."""
    file = tmp_path / "cut.pcap.gz"
    file.write_bytes(gzip.compress(write_pcap(tmp_path / "none.pcap", [], ETHERNET).read_bytes())[:-4])
    trace = iscsitrace.read(file, tables=perfetto.needed())
    assert [row["kind"] for row in trace.events.rows()] == ["capture_incomplete"]
    assert len(exported(trace).instants) == 1


def test_what_a_damaged_capture_dates_before_1970_is_at_its_beginning() -> None:
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = iscsitrace.read(next((SAMPLES / "loss-1-percent").glob("*.pcap*")), tables=perfetto.needed())
    window = trace.window.raw("time_ns")
    window -= window[0] + 5
    stream = io.BytesIO()
    perfetto.write(trace, stream)
    assert min(packet.timestamp for packet in messages.Trace.FromString(stream.getvalue()).packet) == 0


def test_packets_are_written_as_they_are_made() -> None:
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    parts: list[int] = []

    class Stream(io.BytesIO):
        def write(self, part: Any) -> int:
            parts.append(len(messages.Trace.FromString(part).packet))
            return super().write(part)

    trace = iscsitrace.read(next((SAMPLES / "loss-1-percent").glob("*.pcap*")), tables=perfetto.needed())
    assert perfetto.write(trace, Stream(), has_packets=True) == sum(parts)
    assert len(parts) > 3
    assert max(parts) <= 1000


def test_without_the_package_the_way_to_install_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(ExtraMissing, match=r"needs perfetto: pip install 'iscsitrace\[perfetto\]'"):
        perfetto.require()


def test_the_command_writes_one_file_and_refuses_what_does_not_fit(tmp_path: Path) -> None:
    run = CliRunner()
    capture = str(next((VECTORS / "black-out-lio").glob("initiator.pcapng*")))
    out = str(tmp_path / "a.pftrace")
    for wrong in (["--packets", "-o", out], ["--format", "perfetto", "--tables", "cycles", "-o", out]):
        assert run.invoke(main, ["export", *wrong, capture]).exit_code == 2
    pytest.importorskip("perfetto")
    done = run.invoke(main, ["export", "--format", "perfetto", "-o", out, capture])
    assert (done.exit_code, done.output.startswith(f"{out}: ")) == (0, True), done.output
    assert Read(Path(out).read_bytes()).slices
    assert run.invoke(main, ["export", "--format", "perfetto", "-o", out, capture]).exit_code != 0
