"""The plugin for Wireshark, run by tshark: its fields against the table of cycles, its statistics, its sidecar.

If tshark dissects a capture correctly, every field of every command is there and equal; otherwise none is wrong.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path as FilePath

import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.measure import waits
from iscsitrace.measure.throughput import measure
from iscsitrace.measure.workload import latencies
from iscsitrace.show.loads import percentile
from tests.support import wireshark_plugin
from tests.support.breaches import BYTES, immediate_data
from tests.support.capture_file import cut, write_pcap
from tests.support.conversation import Capture, Conversation, Session
from tests.support.pdu import Task
from tests.support.transport import ETHERNET, Path
from tests.support.tshark import version
from tests.support.wireshark_plugin import differences, expected, shown, tshark

SAMPLES = FilePath(__file__).resolve().parents[2] / "samples"
EDITCAP = shutil.which("editcap") or "editcap"
NOT_WHOLE = {
    "capture-drops": "packets are missing from the capture",
    "header-and-data-digests": "tshark does not expect data digests",
    "snaplen-128": "tshark cannot reassemble truncated segments",
}
if version() >= (4, 2):
    NOT_WHOLE["reordering"] = "tshark does not put segments in order where copies of others arrive in between"
ALONE = ("cycle", "phase", "latency", "first_data_time", "queue_depth", "owin", "command_frame", "status_frame")
NAMES = sorted(folder.name for folder in SAMPLES.iterdir() if folder.is_dir())


def sample(name: str) -> FilePath:
    (file,) = (SAMPLES / name).glob("capture.pcap*")
    return file


@cache
def read(file: FilePath) -> iscsitrace.Trace:
    return iscsitrace.read(file, tables=("segments",))


def written(folder: FilePath, capture: Capture) -> FilePath:
    return write_pcap(folder / "capture.pcap", capture.packets, ETHERNET)


def assert_equal(file: FilePath) -> wireshark_plugin.Shown:
    found = shown(file)
    assert list(differences(found, read(file), is_whole=True)) == []
    return found


@pytest.mark.parametrize("name", NAMES)
def test_samples(name: str) -> None:
    found = shown(sample(name))
    is_whole = name not in NOT_WHOLE
    assert list(differences(found, read(sample(name)), is_whole=is_whole)) == []
    assert found.cycles or not is_whole or not len(read(sample(name)).cycles)


@pytest.mark.parametrize("is_immediate", [False, True])
@pytest.mark.parametrize("is_status_in_data", [False, True])
def test_queues_of_several_connections(is_immediate: bool, is_status_in_data: bool, tmp_path: FilePath) -> None:
    """Commands with immediate data take several packets; other commands start and end in between."""
    conversation = Conversation(Path(2_000_000, rate_bits_per_s=50_000_000))
    settings = Session(
        connection_count=2,
        is_immediate_data=is_immediate,
        is_initial_r2t=not is_immediate,
        is_status_in_data=is_status_in_data,
        initiator_max_recv_data_segment_length=8192,
        target_max_recv_data_segment_length=32_768,
    )
    for _ in range(2):
        session = conversation.session(settings).login()
        session.read(count=12, block_bytes=20_480, queue_depth=4).write(count=12, block_bytes=20_480, queue_depth=4)
        session.read(count=3, block_bytes=512).write(count=3, block_bytes=512).logout()
    found = assert_equal(written(tmp_path, conversation.run()))
    depths = {row["queue_depth"] for row in found.cycles.values()}
    assert len(found.cycles) == 60
    assert len(depths) > 3
    assert any("idle_time" in row for row in found.cycles.values())


@pytest.mark.parametrize("lost", [0, 20, 44])
def test_losses_before_the_tap(lost: int, tmp_path: FilePath) -> None:
    losses = frozenset((False, 1 + 46 * place + lost) for place in range(10))
    conversation = Conversation(Path(4_000_000, lost_before_tap=losses))
    conversation.session(Session()).login().read(count=10, block_bytes=65_536).logout()
    assert_equal(written(tmp_path, conversation.run()))


@dataclass(frozen=True)
class AnyCommand(Task):
    """A command of any operation code and service action, without data."""

    code: int = 0
    action: int = 0

    @property
    def cdb(self) -> bytes:
        return bytes([self.code, self.action, 0, 0, 0, 0, 0, 0, 0, self.action]).ljust(16, b"\0")

    @property
    def addressed(self) -> tuple[int | None, int | None]:
        return None, None


def test_operations_have_the_names_of_the_core(tmp_path: FilePath) -> None:
    commands: list[Task] = [AnyCommand("test_unit_ready", code=code) for code in range(256)]
    for code in (0x7F, 0x83, 0x84, 0x9E, 0x9F, 0xA3, 0xA4):
        commands += [AnyCommand("test_unit_ready", code=code, action=action) for action in range(1, 32)]
    conversation = Conversation()
    conversation.session(Session()).login().tasks(commands).logout()
    found = assert_equal(written(tmp_path, conversation.run()))
    assert len(found.cycles) == len(commands)
    assert len({row["operation"] for row in found.cycles.values()}) > 60


def test_every_pdu_of_a_cycle_has_its_phase(tmp_path: FilePath) -> None:
    conversation = Conversation()
    settings = Session(is_immediate_data=False, max_burst_length=32_768, target_max_recv_data_segment_length=16_384)
    conversation.session(settings).login().write(count=2, block_bytes=65_536).logout()
    file = written(tmp_path, conversation.run())
    trace = iscsitrace.read(file, tables=("pdus",))
    phases = {0x01: "command", 0x05: "transfer", 0x21: "service"}
    right = []
    for row in trace.pdus.rows():
        if row["cycle"] is not None:
            r2t = "grant" if row["data_sn"] == 0 else "transfer"
            right.append((row["frame_last"], row["cycle"], r2t if row["opcode"] == 0x31 else phases[row["opcode"]]))
    assert sorted(shown(file).pdus) == sorted(right)
    assert {phase for _, _, phase in right} == {"command", "grant", "transfer", "service"}


@pytest.mark.parametrize("name", ["two-connections-one-session", "write-r2t-rounds"])
def test_one_pass_shows_what_two_passes_show(name: str) -> None:
    once, twice = shown(sample(name)), shown(sample(name), "-2")
    assert once.cycles
    assert (once.cycles, once.pdus) == (twice.cycles, twice.pdus)


def test_display_filters_and_columns() -> None:
    file = sample("sequential-read-4ms")
    rows = [row for row in read(file).cycles.rows() if row["latency_ns"] is not None]
    slow = sorted(row["status_frame"] for row in rows if row["latency_ns"] > 50_000_000)
    assert 0 < len(slow) < len(rows)
    frames = tshark(file, "-Y", "iscsitrace.latency > 0.05", "-T", "fields", "-e", "frame.number")
    assert [int(line) for line in frames.split()] == slow
    number = rows[-1]["cycle"]
    one = tshark(file, "-Y", f"iscsitrace.cycle == {number}", "-T", "fields", "-e", "frame.number")
    assert rows[-1]["status_frame"] in [int(line) for line in one.split()]
    columns = 'gui.column.format:"Depth","%Cus:iscsitrace.queue_depth:0:R"'
    depths = tshark(file, "-o", columns, "-Y", "iscsitrace.queue_depth")
    assert [int(line) for line in depths.split()] == [row["queue_depth"] for row in rows]


def columns(file: FilePath, *names: str) -> list[list[str]]:
    """A row a frame."""
    asked = [part for name in names for part in ("-e", f"iscsitrace.{name}")]
    return [line.split("\t") for line in tshark(file, "-T", "fields", *asked).split("\n")[:-1]]


def test_a_field_requested_alone_equals_the_field_among_all() -> None:
    file = sample("write-r2t-rounds")
    of_all = columns(file, *ALONE)
    for number, name in enumerate(ALONE):
        assert columns(file, name) == [[row[number]] for row in of_all]
        assert any(row[number] for row in of_all), name
    # a field that only a filter requests
    frames = tshark(file, "-T", "fields", "-e", "frame.number", "-Y", "iscsitrace.queue_depth").split()
    assert frames == [str(frame) for frame, row in enumerate(of_all, 1) if row[ALONE.index("queue_depth")]]


@pytest.mark.parametrize("options", [["-V"], ["-nV"], ["-O", "tcp,iscsitrace"], ["-T", "pdml"], ["-Tjson"]])
def test_details_are_shown_without_a_request(options: list[str], plain: Capture, tmp_path: FilePath) -> None:
    """Without a request the plugin does nothing; printing whole packets is a request."""
    file = written(tmp_path, plain)
    assert "iscsitrace" in tshark_as_it_is(file, *options)
    assert "iscsitrace" not in tshark_as_it_is(file)


def test_a_column_of_the_profile(plain: Capture, tmp_path: FilePath) -> None:
    file = written(tmp_path, plain)
    column = '"No.", "%m",\n\t"Depth", "%Cus:iscsitrace.queue_depth:0:R"'
    (tmp_path / "preferences").write_text(f"# Columns\ngui.column.format: \n\t{column}\n# Others\n")
    lines = [line.split() for line in tshark_as_it_is(file, folder=tmp_path).splitlines()]
    status_frames = [row["status_frame"] for row in iscsitrace.read(file).cycles.rows()]
    assert [int(words[0]) for words in lines if words[1:] == ["1"]] == status_frames


def tshark_as_it_is(file: FilePath, *options: str, folder: FilePath | None = None) -> str:
    """The output of tshark with the plugin and no other options."""
    command = ["tshark", "-X", f"lua_script:{wireshark_plugin.PLUGIN}", "-r", file.name, *options]
    environment = os.environ | {"WIRESHARK_CONFIG_DIR": str(folder or "/nonexistent")}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=file.parent).stdout


def is_same(shown_ms: str, given_ms: str) -> bool:
    """Whether both are the same, or bounds that differ by what the plugin cannot know.

    A login that reinstates a session ends its commands; the plugin waits for the FIN, which comes 20 ms later.
    """
    if shown_ms[0] == given_ms[0] == ">":
        return 0 <= float(shown_ms[1:]) - float(given_ms[1:]) < 25
    return shown_ms == given_ms


UNANSWERED = {"black-out-and-relogin": 2, "task-abort-storage-hang": 1, "write-r2t-rounds": 0}


@pytest.mark.parametrize("name", UNANSWERED)
def test_the_percentiles_of_the_statistics_are_those_of_summary(name: str) -> None:
    """Of each session, commands without a status included."""
    file, bounds = sample(name), 0
    cycles = read(file).cycles
    sections = tshark(file, "-q", "-z", "iscsitrace,cycles").split("\nsession ")[1:]
    assert len(sections) == len(set(cycles["session"]))
    for number, section in enumerate(sections):
        own = cycles.select(cycles.raw("session") == number)
        # the first table, in which a long name may have a separate line
        table = section.partition("medians ms")[0]
        rows = dict(re.findall(r"^([a-z_]+)\s+(\d+ .*)$", table, re.MULTILINE))
        for right in latencies(own, waits.of(own, read(file).connections)):
            found = right["latency_ns"]
            given = [percentile(found, each) for each in ("p50", "p95", "p99", "max")]
            count, *shown_ms = rows[right["operation"]].split()[:5]
            assert count == str(right["cycle_count"])
            assert all(map(is_same, shown_ms, given))
            bounds += found.get("open_count") or 0
    assert bounds == UNANSWERED[name]


@pytest.mark.parametrize("name", ["two-connections-one-session", "sequential-read-16ms"])
def test_the_rates_of_the_statistics(name: str) -> None:
    file = sample(name)
    text = tshark(file, "-q", "-z", "iscsitrace,cycles")
    trace = read(file)
    total = measure(trace.cycles, waits.of_trace(trace.table))[0]
    (line,) = [line for line in text.splitlines() if line.startswith("all: ")]
    assert f"all: {total.cycle_count} commands, active {total.active_ns / 1e9:.6f} s" in line
    assert f"read {(total.read_bytes_per_s or 0) / 1e6:.3f} MB/s" in line
    assert f"written {(total.write_bytes_per_s or 0) / 1e6:.3f} MB/s" in line


FIRST_NS = 1_700_000_000_000_000_000
REFUSED = ["1\t\t\t\t"]
"""The first frame has a note that the sidecar was refused; none of its facts is shown."""
ROWS = ["1\tinitiator_think\t\t\t", "3\t\t14480\t\t", "4\ttransfer\t28960\tfast\t", "5\t\t\t\tD15: The target did"]


@pytest.fixture(scope="module")
def plain() -> Capture:
    conversation = Conversation()
    conversation.session(Session()).login().read(count=2).logout()
    return conversation.run()


def with_sidecar(folder: FilePath, capture: Capture, **changed: str) -> FilePath:
    """The capture with a sidecar of these parts."""
    file = written(folder, capture)
    said = {
        "name": "iscsitrace-sidecar",
        "version": "1",
        "frames": f"frames={len(capture.packets)}",
        "time": f"first_frame_time={capture.packets[0].time_ns}",
        "length": f"first_frame_length={capture.packets[0].original_length}",
        "size": f"size={file.stat().st_size}",
        "columns": "frame\tbudget_owner\tcwnd_estimate_bytes\tloss_class\tviolation",
        "rows": "\n".join(ROWS),
    } | changed
    head = "\t".join(said[part] for part in ("name", "version", "frames", "time", "length", "size"))
    sidecar = file.with_name(f"{file.name}.iscsitrace")
    sidecar.write_text("\n".join([head, said["columns"], said["rows"]]) + "\n")
    return file


_SHOWN = ("budget_owner", "cwnd_estimate", "loss_class", "violation")


def sidecar_fields(file: FilePath, *options: str) -> tuple[list[str], list[str]]:
    """The sidecar's facts as tshark shows them, and its lines on standard error."""
    names = ("frame.number", *(f"iscsitrace.{name}" for name in _SHOWN))
    wanted = [part for name in names for part in ("-e", name)]
    command = ["tshark", "-n", "-X", f"lua_script:{wireshark_plugin.PLUGIN}", "-r", str(file), *options]
    command += ["-Y", " || ".join(f"iscsitrace.{name}" for name in (*_SHOWN, "sidecar_refused"))]
    done = subprocess.run([*command, "-T", "fields", *wanted], check=True, capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if not line.startswith('Running as user "root"')]
    return done.stdout.splitlines(), complaints


@pytest.mark.parametrize("passes", [(), ("-2",)], ids=["one pass", "two passes"])
def test_a_sidecar_beside_the_capture(passes: tuple[str, ...], plain: Capture, tmp_path: FilePath) -> None:
    assert sidecar_fields(with_sidecar(tmp_path, plain), *passes) == (ROWS, [])


def test_frames_with_a_violation_are_marked_and_can_be_filtered(tmp_path: FilePath) -> None:
    """Three writes with immediate data that was not agreed on: the frames, and texts with a comma whole."""
    capture = immediate_data(tmp_path, is_agreed=False)
    assert CliRunner().invoke(main, ["export", "--sidecar", str(capture)]).exit_code == 0
    text = f"D1: The initiator sent {BYTES} bytes of immediate data although ImmediateData=No was agreed"
    violations = [row["frame"] for row in iscsitrace.read(capture, tables=["violations"]).violations.rows()]
    assert len(violations) == 3
    command = ["tshark", "-n", "-X", f"lua_script:{wireshark_plugin.PLUGIN}", "-r", str(capture)]
    command += ["-Y", 'iscsitrace.violation contains "D1:"', "-T", "fields", "-e", "frame.number"]
    done = subprocess.run([*command, "-e", "iscsitrace.violation"], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{frame}\t{text}" for frame in violations]


def test_a_text_with_a_comma_is_shown_whole(plain: Capture, tmp_path: FilePath) -> None:
    file = with_sidecar(tmp_path, plain, rows='3\t\t\t\t"S10: The target used it again, ""so"""')
    assert sidecar_fields(file)[0] == ['3\t\t\t\tS10: The target used it again, "so"']


def test_a_sidecar_given_by_name(plain: Capture, tmp_path: FilePath) -> None:
    file = with_sidecar(tmp_path, plain)
    moved = (tmp_path / "capture.pcap.iscsitrace").rename(tmp_path / "elsewhere")
    assert sidecar_fields(file) == ([], [])
    assert sidecar_fields(file, "-o", f"iscsitrace.sidecar:{moved}") == (ROWS, [])
    rows, complaints = sidecar_fields(file, "-o", f"iscsitrace.sidecar:{tmp_path / 'absent'}")
    assert (rows, len(complaints)) == (REFUSED, 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "something"},
        {"version": "2"},
        {"time": f"first_frame_time={FIRST_NS - 2_000}"},
        {"length": "first_frame_length=1"},
        {"size": "size=1"},
        {"columns": "frame\tbudget_owner"},
        {"rows": "\n".join([*ROWS, "4\ttransfer\t\t\t"])},
        {"rows": "\n".join([*ROWS, "1000000\ttransfer\t\t\t"])},
        {"rows": "\n".join([*ROWS, "7\ttransfer"])},
        {"rows": "\n".join([*ROWS, "\0\xff\n"])},
    ],
)
def test_a_sidecar_of_another_capture_is_refused(changed: dict[str, str], plain: Capture, tmp_path: FilePath) -> None:
    rows, complaints = sidecar_fields(with_sidecar(tmp_path, plain, **changed))
    assert rows == REFUSED
    assert len(complaints) == 1
    assert complaints[0].startswith("iscsitrace: sidecar ")


def test_numbers_are_left_out_where_commands_are_missing(tmp_path: FilePath) -> None:
    conversation = Conversation()
    conversation.session(Session()).login().read(count=8, block_bytes=4096).logout()
    capture = conversation.run()
    commands = [row["command_frame"] for row in iscsitrace.read(written(tmp_path, capture)).cycles.rows()]
    capture.packets.pop(commands[3] - 1)
    file = written(tmp_path, capture)
    # if it reassembled out-of-order segments, Wireshark would wait for the lost one until the end
    as_they_come = ("-o", "tcp.reassemble_out_of_order:FALSE")
    found = shown(file, *as_they_come)
    assert sorted(found.cycles) == [0, 1, 2]
    assert len(found.unnumbered) == 4
    noted = tshark(file, *as_they_come, "-Y", "iscsitrace.numbers_unknown", "-T", "fields", "-e", "frame.number")
    assert len(noted.split()) == 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["two-connections-one-session", "write-r2t-rounds", "task-abort-storage-hang"])
def test_damaged_captures_raise_no_lua_error(name: str, seed: int, tmp_path: FilePath) -> None:
    whole, damaged = tmp_path / "whole.pcap", tmp_path / "damaged.pcap"
    options = [["-s", "200"], ["-C", "20:-8"], []][seed]
    subprocess.run([EDITCAP, "-F", "pcap", *options, sample(name), whole], check=True)
    share = ["0.002", "0.02", "0.1"][seed]
    subprocess.run([EDITCAP, "-E", share, "--seed", str(seed), whole, damaged], check=True, capture_output=True)
    text = tshark(damaged, "-V", "-O", "iscsitrace", "-2", "-z", "iscsitrace,cycles")
    assert "iSCSI commands by session" in text
    assert "Lua" not in text


@pytest.mark.parametrize("snaplen", [90, 130, 1000])
def test_cut_captures_show_no_wrong_value(snaplen: int, tmp_path: FilePath) -> None:
    conversation = Conversation()
    session = conversation.session(Session(initiator_max_recv_data_segment_length=8192)).login()
    session.read(count=4, block_bytes=20_480, queue_depth=2).write(count=4, block_bytes=20_480).logout()
    capture = conversation.run()
    file = written(tmp_path, capture)
    found = shown(write_pcap(tmp_path / "cut.pcap", cut(capture.packets, snaplen), ETHERNET))
    truth = expected(iscsitrace.read(file, tables=("segments",)))
    for number, row in found.cycles.items():
        same = {name: truth[number][name] for name in row if name in truth[number]}
        assert {name: row[name] for name in same} == same
