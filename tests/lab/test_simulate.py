"""Simulated runs, read back: the analysis of each tap equals the truth."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.compare.agreement import Agreement, Tables, compare
from iscsitrace.errors import TrafficImpossible
from iscsitrace.lab import simulation
from iscsitrace.lab.run_files import capture_names
from tests.support.programs import running

LINK = "--one-way-delay 2ms --rate 100Mbit"
WHOLE = {"read": 32, "write": 32}

# name -> options, and how many reads, writes, or of both together they make
CASES: dict[str, tuple[str, dict[str, int]]] = {
    "reads": (f"read {LINK}", {"read": 32}),
    "reads, queued": (f"read --queue-depth 8 --random {LINK}", {"read": 32}),
    "both digests": (f"read --set header-digest=crc32c --set data-digest=crc32c --queue-depth 4 {LINK}", {"read": 32}),
    "status apart": (f"read --set status=apart {LINK}", {"read": 32}),
    "status held by Nagle": (f"read --set status=apart-held --service-delay 1ms-3ms {LINK}", {"read": 32}),
    "writes": (f"write {LINK}", {"write": 32}),
    "writes with R2Ts": (
        "write --block-size 256K --key InitialR2T=Yes --key ImmediateData=No --key MaxBurstLength=65536 "
        "--key FirstBurstLength=65536 --set target-key=MaxRecvDataSegmentLength=16384 --one-way-delay 2ms",
        {"write": 8},
    ),
    "several R2Ts at once": (
        "write --block-size 256K --key MaxBurstLength=32768 --key FirstBurstLength=16384 --queue-depth 4 "
        "--key MaxOutstandingR2T=4 --set target-key=MaxOutstandingR2T=4 "
        "--set header-digest=crc32c --set data-digest=crc32c " + LINK,
        {"write": 8},
    ),
    "data in any order": (
        "write --block-size 256K --key DataSequenceInOrder=No --key InitialR2T=Yes --key ImmediateData=No "
        f"--key MaxBurstLength=65536 --key FirstBurstLength=65536 --set r2t-order=reverse {LINK}",
        {"write": 8},
    ),
    "no link at all": ("mixed --queue-depth 4", {"mixed": 32}),
    "late R2T": (
        f"write --key InitialR2T=Yes --key ImmediateData=No --fault late-r2t,nth=3,by=20ms {LINK}",
        {"write": 32},
    ),
    "mixed": (f"mixed --queue-depth 8 --random {LINK}", {"mixed": 32}),
    "eight connections": (f"mixed --queue-depth 32 --connections 8 --block-size 16K {LINK}", {"mixed": 128}),
    "64 connections": (f"read --queue-depth 64 --connections 64 --block-size 4K {LINK}", {"read": 512}),
    "sessions": (f"write --sessions 4 --connections 2 --queue-depth 4 {LINK}", {"write": 32}),
    "mirror": (f"write --targets 2 --target-delay 1ms --target-delay 10ms --set mirror=yes {LINK}", {"write": 64}),
    "stripe": (f"mixed --targets 3 --queue-depth 6 --set access-rate=50Mbit {LINK}", {"mixed": 32}),
    "IPv6": (f"mixed --set ipv6=yes --queue-depth 4 --connections 2 {LINK}", {"mixed": 32}),
    "CHAP": (f"read --set chap=joe%first-secret-1 --set mutual-chap=disk%other-secret-2 {LINK}", {"read": 32}),
    "system calls": (f"read --set system-call-size=1M --set max-transfer=128K --queue-depth 2 {LINK}", {"read": 16}),
    "blocks of 4096": (f"read --set block-length=4096 --block-size 16K {LINK}", {"read": 128}),
    "largest PDU block": ("write --block-size 16M --bytes 32M --rate 1Gbit --one-way-delay 1ms", {"write": 2}),
    "Reno, small windows": (
        f"read --congestion-control reno --set receive-buffer=64K --set delayed-ack=no --set mss=536 {LINK}",
        {"read": 32},
    ),
    "no options of TCP": (
        f"write --set window-scaling=no --set timestamps=no --set sack=no --set nagle=yes {LINK}",
        {"write": 32},
    ),
    # 32 blocks, and of 36 commands every eighth is to come again
    "BUSY": (f"read --fault busy,every=8 {LINK}", {"read": 36}),
    "delayed status": (f"read --fault delayed-status,nth=4,by=20ms {LINK}", {"read": 32}),
}
LOSSY = {
    "reads": f"read --queue-depth 4 --loss 1% {LINK}",
    "writes": f"write --queue-depth 4 --loss 1% --block-size 128K {LINK}",
    "mixed": f"mixed --queue-depth 16 --connections 4 --loss 2% --block-size 32K --set data-digest=crc32c {LINK}",
    "bursts": f"read --set burst-loss=0.5%,25% --queue-depth 4 {LINK}",
    "without SACK": f"read --set sack=no --set timestamps=no --loss 1% {LINK}",
    "Reno": f"write --congestion-control reno --loss 0.5% {LINK}",
    "queue": "read --queue 10 --queue-depth 8 --rate 20Mbit --one-way-delay 5ms",
    "one way": f"mixed --set to-target-loss=2% --queue-depth 8 {LINK}",
    "several targets": f"write --targets 2 --set mirror=yes --loss 1% --queue-depth 4 {LINK}",
}


def simulate(directory: Path, line: str, *more: str) -> Result:
    size = [] if "--bytes" in line else ["--bytes", "2M"]
    arguments = ["simulate", *line.split(), *size, *more, "-o", str(directory)]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def truth_of(directory: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((directory / "truth.json").read_text())
    return truth


def agreement(directory: Path, truth: dict[str, Any], name: str) -> Agreement:
    trace = iscsitrace.read(directory / name)
    tables = Tables(trace.connections, trace.cycles, trace.parameters, trace.packet_count)
    return compare(tables, truth, name.removesuffix(".pcapng"))


def captures(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.pcapng"))


@pytest.mark.parametrize("name", CASES, ids=str)
def test_everything_simulated_is_found(tmp_path: Path, name: str) -> None:
    line, expected = CASES[name]
    result = simulate(tmp_path, line)
    assert (result.exit_code, result.stderr) == (0, "")
    truth = truth_of(tmp_path)
    target_count = {"mirror": 2, "stripe": 3}.get(name, 1)
    assert captures(tmp_path) == sorted(capture_names(target_count))
    for file in captures(tmp_path):
        found = agreement(tmp_path, truth, file)
        assert found.differences == []
        assert found.cycle_count > len(truth["results"]["connections"]) / target_count
        assert found.parameter_count >= 14
    # the requested settings are known without the truth
    trace = iscsitrace.read(tmp_path / "initiator.pcapng")
    operations = Counter(trace.cycles["operation"].tolist())
    workload = {operation: operations[operation] for operation in ("read", "write") if operations[operation]}
    assert (len(workload) == 2) == ("mixed" in expected)
    assert expected == ({"mixed": sum(workload.values())} if len(workload) == 2 else workload)
    assert len(trace.counters) == 0


@pytest.mark.parametrize("name", LOSSY, ids=str)
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_all_losses_are_found(tmp_path: Path, name: str, seed: str) -> None:
    """Retransmissions are counted by their sender, at whose tap each of them is captured."""
    result = simulate(tmp_path, LOSSY[name], "--seed", seed)
    assert (result.exit_code, result.stderr) == (0, "")
    truth = truth_of(tmp_path)
    lost = [path[direction]["counters"] for path in truth["paths"] for direction in ("to_target", "to_initiator")]
    assert sum(one["lost"]["count"] + one["lost_in_burst"]["count"] + one["queue_full"]["count"] for one in lost) > 0
    for file in captures(tmp_path):
        found = agreement(tmp_path, truth, file)
        assert found.differences == []
        assert found.loss_count > 0
    ends = [*truth["initiator_ends"], *(end for ends in truth["target_ends"] for end in ends)]
    assert sum(end["retransmitted_segment_count"] for end in ends) > 0


@pytest.mark.parametrize(
    "line", [f"read --set reorder=2%,3ms {LINK}", f"mixed --set jitter=3ms --set jitter-reorders=yes {LINK}"]
)
def test_reordered_packets_change_nothing(tmp_path: Path, line: str) -> None:
    assert simulate(tmp_path, line, "--queue-depth", "4").exit_code == 0
    truth = truth_of(tmp_path)
    assert truth["paths"][0]["to_initiator"]["counters"]["overtaken"]["count"] > 0
    for file in captures(tmp_path):
        assert agreement(tmp_path, truth, file).differences == []


def test_the_latency_of_a_read_by_hand_arithmetic(tmp_path: Path) -> None:
    line = "read --block-size 128K --bytes 16M --one-way-delay 8ms --rate 320Mbit --service-delay 3ms"
    assert simulate(tmp_path, line).exit_code == 0
    trace = iscsitrace.read(tmp_path / "initiator.pcapng")
    cycles = trace.cycles.select(trace.cycles["operation"] == "read")
    # the window has grown to a block by then; 91 segments of at most 1448 bytes, 66 bytes of headers each
    line_ns = (131_072 + 48 + 91 * 66 + 48 + 66) * 25
    assert set(cycles["latency_ns"].tolist()[64:]) == {16_000_000 + 3_000_000 + line_ns}
    assert set(cycles["bytes"].tolist()) == {131_072}
    assert len(cycles) == 128


def test_writes_have_the_expected_r2t_rounds(tmp_path: Path) -> None:
    assert simulate(tmp_path, CASES["several R2Ts at once"][0]).exit_code == 0
    trace = iscsitrace.read(tmp_path / "initiator.pcapng")
    writes = trace.cycles.select(trace.cycles["operation"] == "write")
    # 16 KiB go with the command; the other 240 KiB in bursts of 32 KiB
    assert set(writes["immediate_bytes"].tolist()) == {16_384}
    assert set(writes["r2t_count"].tolist()) == {8}
    assert set(writes["solicited_bytes"].tolist()) == {262_144 - 16_384}
    assert set(trace.connections["data_digest"].tolist()) == {"crc32c"}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    line = f"mixed --loss 1% --set jitter=1ms --service-delay exp:2ms --random --queue-depth 8 {LINK}"
    line += " --set chap=joe%secret-of-12"
    for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        assert simulate(tmp_path / name, line, "--seed", seed).exit_code == 0
    for name in (*capture_names(1), "truth.json"):
        first, again, other = ((tmp_path / folder / name).read_bytes() for folder in "abc")
        assert first == again
        assert first != other
    assert "secret-of-12" not in (tmp_path / "a" / "truth.json").read_text()


def test_snaplen_cuts_packets_but_not_times(tmp_path: Path) -> None:
    assert simulate(tmp_path, f"read --set snaplen=96 --block-size 4K --bytes 256K {LINK}").exit_code == 0
    assert agreement(tmp_path, truth_of(tmp_path), "initiator.pcapng").cycle_count > 0
    trace = iscsitrace.read(tmp_path / "initiator.pcapng")
    # of a full segment 96 - 66 bytes of headers are left
    assert sum(trace.connections["cut_bytes_to_initiator"]) > 0.9 * (256 << 10)
    assert sum(trace.connections["gap_bytes_to_initiator"]) == 0


def test_files_are_not_overwritten_without_force(tmp_path: Path) -> None:
    assert simulate(tmp_path, f"read {LINK}").exit_code == 0
    before = {name: (tmp_path / name).read_bytes() for name in (*capture_names(1), "truth.json")}
    result = simulate(tmp_path, f"write {LINK}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"iscsitrace: {tmp_path / 'initiator.pcapng'} exists; --force overwrites it\n"
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert simulate(tmp_path, f"write {LINK}", "--force").exit_code == 0
    assert (tmp_path / "truth.json").read_bytes() != before["truth.json"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "read --block-size 1000",
            "block_size_bytes is 1000; it has to be a multiple of 512 from 512 to 16777216 bytes",
        ),
        ("read --key MaxBurstLength=100", "MaxBurstLength=100 is outside 512 to 16777215 (RFC 7143 section 13.13)"),
        ("read --set receive-buffer=1000", "receive_buffer_bytes is 1000 bytes; it has to be from 1460 to 1073725440"),
        ("read --lun 1000", "LUN 0: a size of 1000 bytes is not a positive multiple of the block length 512"),
        ("write --set verify=yes --set zeros=yes", "verify needs the pattern as contents of what is written"),
        (
            "read --one-way-delay 7200s",
            "link setting to_target.delay_ns is 7200000000000; it has to be at most an hour",
        ),
    ],
)
def test_invalid_settings_are_a_one_line_error_and_write_nothing(tmp_path: Path, line: str, words: str) -> None:
    result = simulate(tmp_path / "out", line)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"iscsitrace: {words}\n" or (words in result.stderr and result.stderr.count("\n") == 1)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--congestion-control bbr",
            "Invalid value for '--congestion-control': 'bbr' is not one of 'reno', 'cubic', 'tahoe'.",
        ),
        (
            "--set initiator-tcp=congestion-control=bbr",
            "--set initiator-tcp: congestion-control: 'bbr' is not one of reno, cubic, tahoe",
        ),
        (
            "--set target-tcp=congestion-control=x",
            "--set target-tcp: congestion-control: 'x' is not one of reno, cubic, tahoe",
        ),
    ],
)
def test_congestion_control_that_is_not_simulated_is_a_usage_error(tmp_path: Path, options: str, message: str) -> None:
    result = simulate(tmp_path / "out", f"read {options}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: ")
    assert result.stderr.endswith(f"Error: {message}\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("control", ["reno", "cubic", "tahoe"])
def test_both_hosts_have_the_congestion_control_that_is_asked_for(tmp_path: Path, control: str) -> None:
    for options in (f"--congestion-control {control}", f"--set target-tcp=congestion-control={control}"):
        assert simulate(tmp_path, f"read --bytes 64K {options}", "--force").exit_code == 0
        assert truth_of(tmp_path)["settings"]["world"]["target_tcp"]["congestion_control"] == control


def test_a_definition_with_another_congestion_control_is_reported(tmp_path: Path) -> None:
    assert simulate(tmp_path, "read --bytes 64K").exit_code == 0
    settings = deepcopy(truth_of(tmp_path)["settings"])
    settings["world"]["initiator_tcp"]["congestion_control"] = "bbr"
    message = "^initiator.tcp.congestion-control: simulated hosts have no bbr; there are reno, cubic, tahoe$"
    with pytest.raises(TrafficImpossible, match=message):
        simulation.run(settings, tmp_path, lambda *_: False, is_forced=True)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        # the sender gave up, and its RST was lost, too: the reader waits forever
        ("socket-read --one-way-delay 5ms --rate 20Mbit --seconds 3 --loss 0.7 --seed 1", "nothing_left"),
        ("read --one-way-delay 5ms --rate 20Mbit --seconds 3 --fault mtu-hole,at=1s,for=4000s", "time_limit"),
    ],
)
def test_a_run_without_an_end_keeps_its_captures(tmp_path: Path, line: str, why: str) -> None:
    result = simulate(tmp_path, line)
    assert result.exit_code == 1
    (said,) = [text for text in result.stderr.splitlines() if "ended early" in text]
    truth = truth_of(tmp_path)
    assert truth["unfinished"] == why
    assert said == f"iscsitrace: {simulation.why_unfinished(truth)}"
    for name, count in zip(capture_names(1), truth["packet_counts"], strict=True):
        rows = iscsitrace.read(tmp_path / name).connections.rows()
        assert sum(row[f"packets_{direction}"] for row in rows for direction in ("to_target", "to_initiator")) == count
    lasted_ns = truth["ended_ns"] - truth["started_ns"]
    limit_ns = truth["settings"]["world"]["limit_ns"]
    assert (lasted_ns == limit_ns) if why == "time_limit" else (3_000_000_000 < lasted_ns < limit_ns)
    # others, such as experiments, measure no run that did not end
    with pytest.raises(TrafficImpossible, match="ended early"):
        simulation.run(truth["settings"], tmp_path / "again", lambda *_: False)
    assert list((tmp_path / "again").iterdir()) == []


def test_a_folder_that_cannot_be_created_is_a_one_line_error() -> None:
    result = simulate(Path("/proc/nowhere"), f"read {LINK}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("iscsitrace: cannot make /proc/nowhere: ")


def wait_for_its_capture(process: subprocess.Popen[str], folder: Path) -> Path:
    """The folder with the files of a run that is not complete, once its capture is there; at most a minute."""
    end = time.monotonic() + 60
    while not (found := list(folder.glob(".run.*.partial/initiator.pcapng"))):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    return found[0].parent


def test_a_killed_run_leaves_no_capture_and_the_next_run_removes_the_rest(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "iscsitrace", "simulate", *f"read --bytes 1G {LINK} -o {tmp_path}".split()]
    with running(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)) as process:
        try:
            aside = wait_for_its_capture(process, tmp_path)
            # the files of a run that goes on are not touched
            assert simulate(tmp_path, f"read --bytes 64K {LINK}").exit_code == 0
            assert aside.exists()
        finally:
            process.kill()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        aside.name, "initiator.pcapng", "target.pcapng", "truth.json"
    ]  # fmt: skip
    assert simulate(tmp_path, f"read --bytes 64K {LINK}", "--force").exit_code == 0
    assert not aside.exists()


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "iscsitrace: interrupted\n"),
        (signal.SIGTERM, 128 + signal.SIGTERM, ""),
        (signal.SIGHUP, 128 + signal.SIGHUP, ""),
    ],
)
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, number: signal.Signals, code: int, said: str) -> None:
    line = f"simulate read --bytes 64G {LINK} -o {tmp_path / 'out'}"
    # under nohup, or in the background of a script, signals are ignored, and programs inherit that
    reset = ["env", "--default-signal=INT,TERM,HUP"]
    command = [*reset, sys.executable, "-m", "iscsitrace", *line.split()]
    with running(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)) as process:
        try:
            wait_for_its_capture(process, tmp_path / "out")
            process.send_signal(number)
            # a limit only for a run that never ends, however loaded the machine is
            output, errors = process.communicate(timeout=120)
        finally:
            # else it would fill the disk
            process.kill()
    assert (process.returncode, output, errors) == (code, "", said)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_failed_workload_has_exit_code_1(tmp_path: Path) -> None:
    result = simulate(tmp_path, f"read --fault check-condition,operation=read,nth=5 --json {LINK}")
    assert result.exit_code == 1
    assert "CHECK CONDITION: MEDIUM ERROR, unrecovered read error (3/11/00)" in result.stderr
    assert json.loads(result.stdout)["calls"] == 4
    assert agreement(tmp_path, truth_of(tmp_path), "target.pcapng").differences == []


def test_the_summary_and_the_document_have_the_same_figures(tmp_path: Path) -> None:
    # 128 reads: enough for a p99
    line = f"read --bytes 1M --block-size 8K {LINK}"
    document = json.loads(simulate(tmp_path / "a", line, "--json").stdout)
    assert (document["schema"], document["kind"], document["bytes"]) == (1, "simulation", 1 << 20)
    text = simulate(tmp_path / "b", line).stdout
    assert f"1.049 MB in {document['seconds']:.6f} s" in text
    assert f"{document['latency_ns']['p99'] / 1e6:.3f}" in text
    assert str(document["packet_counts"][0]) in text
    assert str(tmp_path / "b" / "target.pcapng") in text


# --- check --truth


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    assert (
        simulate(
            directory,
            f"mixed --loss 1% --queue-depth 4 --connections 2 --key InitialR2T=Yes --key ImmediateData=No {LINK}",
        ).exit_code
        == 0
    )
    return directory


def check(run: Path, name: str, truth: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["check", "--truth", str(truth), *more, str(run / name)], catch_exceptions=False)


def test_check_agrees_with_the_truth(run: Path) -> None:
    for name in captures(run):
        result = check(run, name, run / "truth.json")
        assert result.exit_code == 0
        assert "differences: 0" in result.stdout
        document = json.loads(check(run, name, run / "truth.json", "--json").stdout)["against_truth"]
        assert document["tap"] == name.removesuffix(".pcapng")
        assert (document["differences"], document["loss_count"]) == ([], 2)


CYCLE_COLUMNS = (
    "initiator_task_tag",
    "operation",
    "lba",
    "block_count",
    "bytes",
    "status",
    "data_pdu_count",
    "r2t_count",
)
INSTANTS = (
    *("command_first_ns", "command_last_ns", "r2t_first_ns", "data_first_ns", "data_last_ns", "data_acked_ns"),
    "status_ns",
)


@pytest.mark.parametrize("column", CYCLE_COLUMNS)
def test_every_different_column_is_reported(run: Path, column: str) -> None:
    truth = truth_of(run)
    values = truth["cycles"][column]
    place = next(place for place, value in enumerate(truth["cycles"]["operation"]) if value)
    values[place] = "verify" if column == "operation" else values[place] + 1
    found = agreement(run, truth, "target.pcapng").differences
    assert found
    assert {each.subject for each in found} == {"cycle"}
    assert column == "initiator_task_tag" or len(found) <= 2


@pytest.mark.parametrize("column", INSTANTS)
def test_a_time_that_is_off_by_a_nanosecond_is_reported(run: Path, column: str) -> None:
    truth = truth_of(run)
    times = truth["cycles"]["initiator"][column]
    place = next(
        place for place, value in enumerate(times) if value is not None and truth["cycles"]["operation"][place]
    )
    times[place] += 1
    (difference,) = agreement(run, truth, "initiator.pcapng").differences
    assert f"{column} is {times[place] - 1}, the truth has {times[place]}" in difference.text
    # the other tap has different times
    assert agreement(run, truth, "target.pcapng").differences == []


@pytest.mark.parametrize(
    "key", ["max_burst_length", "header_digest", "initial_r2t", "target_max_recv_data_segment_length"]
)
def test_a_different_parameter_is_reported(run: Path, key: str) -> None:
    truth = truth_of(run)
    truth["results"]["connections"][0]["parameters"][key] = "other"
    found = agreement(run, truth, "initiator.pcapng").differences
    assert found
    assert {(each.subject, each.connection) for each in found} == {("parameter", 0)}


def test_a_missing_and_an_extra_packet_are_reported(run: Path) -> None:
    truth = truth_of(run)
    truth["target_ends"][0][0]["retransmitted_segment_count"] += 1
    truth["packet_counts"][1] += 1
    assert {each.subject for each in agreement(run, truth, "target.pcapng").differences} == {"loss", "capture"}
    assert agreement(run, truth, "initiator.pcapng").differences == []


def test_a_cycle_missing_on_either_side_is_reported(run: Path) -> None:
    truth = truth_of(run)
    longer = deepcopy(truth)
    for column in _columns(longer):
        column.append(column[-1])
    longer["cycles"]["initiator"]["command_first_ns"][-1] += 1_000
    (difference,) = agreement(run, longer, "initiator.pcapng").differences
    assert "not in the capture" in difference.text
    for column in _columns(truth):
        column.pop()
    (difference,) = agreement(run, truth, "initiator.pcapng").differences
    assert "not in the truth" in difference.text


def _columns(truth: dict[str, Any]) -> list[list[Any]]:
    cycles = truth["cycles"]
    taps = [cycles["initiator"], cycles["at_target"]]
    return [column for table in (cycles, *taps) for column in table.values() if isinstance(column, list)]


def test_check_prints_every_difference_and_exits_with_1(run: Path, tmp_path: Path) -> None:
    truth = truth_of(run)
    truth["cycles"]["initiator"]["status_ns"] = [
        time and time + 1 for time in truth["cycles"]["initiator"]["status_ns"]
    ]
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    result = check(run, "initiator.pcapng", tmp_path / "truth.json")
    assert result.exit_code == 1
    assert result.stdout.count("status_ns is") == len(truth["cycles"]["lba"])
    assert check(run, "initiator.pcapng", tmp_path / "truth.json", "--tap", "target").exit_code == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[]", "not the truth file of a run"),
        ("{}", "not a truth of schema 1"),
        ('{"schema": 2, "kind": "simulation"}', "schema 2"),
        ('{"schema": 1, "kind": "simulation", "captures": {"initiator": "initiator.pcapng"}}', "the truth is damaged"),
    ],
)
def test_an_invalid_truth_is_a_one_line_error(run: Path, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "truth.json").write_text(text)
    result = check(run, "initiator.pcapng", tmp_path / "truth.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_capture_with_another_name_needs_the_tap_option(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.pcapng").write_bytes((run / "target.pcapng").read_bytes())
    result = check(tmp_path, "mine.pcapng", run / "truth.json")
    assert result.exit_code == 2
    assert "--tap" in result.stderr
    assert check(tmp_path, "mine.pcapng", run / "truth.json", "--tap", "target").exit_code == 0
    result = check(run, "target.pcapng", run / "truth.json", "--tap", "nowhere")
    assert (result.exit_code, result.stderr) == (
        2,
        "iscsitrace: unknown tap nowhere; the truth has initiator, target\n",
    )
    assert check(run, "missing.pcapng", run / "truth.json", "--tap", "target").exit_code == 2
    assert "--tap goes with --truth" in CliRunner().invoke(main, ["check", "--tap", "target", "x"]).stderr
