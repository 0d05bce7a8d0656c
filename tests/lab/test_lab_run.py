"""`iscsitrace lab`: captures of runs over the kernel's TCP agree with the truth, and no other files are left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.errors import InputInvalid
from iscsitrace.lab import peers, real
from iscsitrace.lab.namespaces import EndSettings, remove_leftovers
from tests.lab.test_lab_namespaces import is_gone, of_process
from tests.support.lab import needs_root
from tests.support.programs import running

FAST = ("--one-way-delay", "2ms", "--rate", "400Mbit")


def lab(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["lab", *(str(argument) for argument in arguments)])


def truth_of(folder: Path) -> dict[str, Any]:
    truth = json.loads((folder / "truth.json").read_text())
    assert isinstance(truth, dict)
    return truth


def run(folder: Path, *arguments: object) -> dict[str, Any]:
    """A successful run without packets missing from its captures."""
    result = lab("run", *arguments, "-o", folder)
    assert result.exit_code == 0, result.output
    truth = truth_of(folder)
    assert set(truth["capture_dropped_counts"]) == {0}
    assert of_process(os.getpid()) == set()
    return truth


def tasks_of(capture: Path) -> list[tuple[Any, ...]]:
    """Every read and write of a capture, in the order of commands."""
    cycles = iscsitrace.read(str(capture)).cycles
    names = ("initiator_task_tag", "operation", "lba", "block_count", "bytes", "status")
    return [tuple(row[name] for name in names) for row in cycles.rows() if row["operation"] in {"read", "write"}]


def same_as_truth(folder: Path, truth: dict[str, Any]) -> None:
    """The initiator's capture has all commands of the truth, and each target's capture those of the target."""
    cycles = truth["cycles"]
    names = ("initiator_task_tag", "operation", "lba", "block_count", "bytes", "status")
    rows = list(zip(*(cycles[name] for name in names), strict=True))
    taps = [(truth["captures"]["initiator"], rows)]
    for number, name in enumerate(truth["captures"]["targets"]):
        its = [row for row, target in zip(rows, cycles["target"], strict=True) if target == number]
        taps.append((name, its))
    for name, expected in taps:
        assert expected
        assert sorted(tasks_of(folder / name)) == sorted(expected)


def check(folder: Path) -> dict[str, str]:
    """The result of `check --truth` for each capture of a run; none has a difference."""
    captures = truth_of(folder)["captures"]
    said = {}
    for name in filter(None, (captures["initiator"], *captures["targets"])):
        result = CliRunner().invoke(main, ["check", "--truth", str(folder / "truth.json"), str(folder / name)])
        assert result.exit_code == 0, result.output
        said[name] = result.output
    assert set(said) == {file.name for file in folder.glob("*.pcapng")} != set()
    return said


@needs_root
@pytest.mark.parametrize("more", [(), ("--set=ipv6=yes",), ("--bypass",)], ids=["link", "ipv6", "bypass"])
def test_reads(tmp_path: Path, more: tuple[str, ...]) -> None:
    link = () if "--bypass" in more else FAST
    truth = run(tmp_path / "run", "read", *link, *more, "--block-size", "64K", "--bytes", "4M", "--queue-depth", 2)
    assert truth["results"]["bytes"] == 4 << 20
    assert truth["results"]["calls"] == 64
    same_as_truth(tmp_path / "run", truth)
    assert truth["ends"][0]["peer_address"] == ("fd71::2" if "--set=ipv6=yes" in more else "10.71.0.2")
    if link:
        (end,) = truth["target_ends"][0]
        assert end["congestion_control"] == "cubic"
        assert end["initiator_port"] == truth["ends"][0]["own_port"] == truth["initiator_ends"][0]["initiator_port"]
        # the log of the link has every byte that was read, and both captures have every frame but a few of IPv6 that
        # the hosts send when the cable is plugged in
        carried = truth["paths"][0]
        assert carried["to_initiator"]["counters"]["delivered"]["bytes"] > 4 << 20
        frames = sum(carried[direction]["counters"]["arrived"]["count"] for direction in carried)
        assert all(frames - 12 <= count <= frames for count in truth["packet_counts"])
        rtts_us = [rtt for rtt in end["windows"]["srtt_us"] if rtt]
        # 2 ms each way, 2.7 ms for two blocks on the line, the hosts, and how late the link let frames go
        late_us = 2 * truth["path_process"][0]["lateness"]["max_ns"] / 1000
        assert 4_000 <= min(rtts_us) < min(8_000 + late_us, 30_000)
        sampled = end["windows"]
        assert {len(column) for column in sampled.values()} == {len(sampled["time_ns"])}
        assert max(sampled["pipe"]) * end["snd_mss"] > 64 << 10
        assert all(pipe >= 0 for pipe in sampled["pipe"])
    else:
        assert truth["paths"] == []


@needs_root
def test_writes_with_losses(tmp_path: Path) -> None:
    keys = ("--key", "InitialR2T=Yes", "--key", "ImmediateData=No", "--set", "data-digest=crc32c")
    options = (*FAST, "--set", "to-target-loss=0.5%", "--congestion-control", "reno", "--seed", 3)
    truth = run(tmp_path, "write", *options, *keys, "--block-size", "128K", "--bytes", "4M")
    same_as_truth(tmp_path, truth)
    lost = truth["paths"][0]["to_target"]["counters"]["lost"]["count"]
    resent = truth["initiator_ends"][0]["retransmitted_segment_count"]
    assert lost > 0
    assert resent > 0
    (seen,) = iscsitrace.read(str(tmp_path / "initiator.pcapng")).connections.rows()
    # a retransmission after the last sample of the sockets is only in the capture: at most the FIN
    assert 0 <= seen["retransmitted_packets_to_target"] - resent <= 1
    # the last look is at the very end: all that was sent is acknowledged, and the SYN, which the kernel counts
    last = truth["initiator_ends"][0]["tcp_info"]["bytes_acked"][-1]
    assert last == seen["stream_bytes_to_target"] + 1


@needs_root
def test_settings_reach_the_kernel(tmp_path: Path) -> None:
    options = (
        "--set",
        "mss=536",
        "--set=timestamps=no",
        "--set=sack=no",
        "--set",
        "receive-buffer=64K",
        "--set",
        "initial-window=4",
    )
    truth = run(tmp_path, "read", *FAST, *options, "--congestion-control", "reno", "--bytes", "1M")
    (end,) = truth["target_ends"][0]
    assert end["snd_mss"] == 536
    assert end["congestion_control"] == "reno"
    # the peer offers half of its buffer, which does not grow
    assert max(window for window in end["tcp_info"]["snd_wnd_bytes"] if window) <= 2 * (64 << 10)
    row = next(iter(iscsitrace.read(str(tmp_path / "target.pcapng")).connections.rows()))
    assert (row["mss_bytes_to_initiator"], row["is_sack_permitted"], row["has_timestamps"]) == (536, False, False)


@needs_root
@pytest.mark.parametrize("program", ["tgt", "istgt"])
def test_third_party_targets(tmp_path: Path, program: str) -> None:
    options = (*FAST, "--set", f"target-program={program}", "--lun", "64M", "--set", "chap=joe%twelve3456789")
    truth = run(tmp_path, "mixed", *options, "--block-size", "64K", "--bytes", "2M", "--random")
    assert truth["target_logs"] == [None]
    same_as_truth(tmp_path, truth)
    # secrets stay out of the file
    assert "twelve3456789" not in (tmp_path / "truth.json").read_text()


@needs_root
def test_a_third_party_initiator(tmp_path: Path) -> None:
    options = ("--set", "initiator-program=iscsi-perf", "--block-size", "64K", "--queue-depth", 4, "--seconds", 1)
    truth = run(tmp_path, "read", *FAST, *options)
    assert truth["cycles"] is None
    assert truth["results"]["read_bytes"] == 64 << 10
    reads = [task for task in tasks_of(tmp_path / "initiator.pcapng") if task[1] == "read"]
    assert {task[4] for task in reads} == {64 << 10}
    assert len(reads) >= truth["results"]["iops"] > 50
    assert sum(command.startswith("READ(") for command in truth["target_logs"][0]["cycles"]["command"]) == len(reads)


@needs_root
def test_captures_agree_with_check(tmp_path: Path) -> None:
    run(tmp_path, "read", *FAST, "--connections", 2, "--bytes", "2M", "--loss", "0.1%")
    assert set(check(tmp_path)) == {"initiator.pcapng", "target.pcapng"}


@needs_root
def test_a_stripe_over_targets_behind_separate_links(tmp_path: Path) -> None:
    delays_ms = (2, 12)
    delays = [word for delay_ms in delays_ms for word in ("--target-delay", f"{delay_ms}ms")]
    loss = ("--set", "to-initiator-loss=0.5%", "--seed", 5)
    truth = run(
        tmp_path, "mixed", *delays, *loss, "--rate", "200Mbit", "--bytes", "4M", "--sessions", 2, "--queue-depth", 4
    )
    same_as_truth(tmp_path, truth)
    assert set(check(tmp_path)) == {"initiator.pcapng", "target.pcapng", "target-2.pcapng"}
    assert (truth["access"], truth["access_process"]) == (None, None)
    # blocks are dealt in turn
    assert [truth["cycles"]["target"].count(target) for target in (0, 1)] == [32, 32]
    names = [target["name"] for target in truth["results"]["targets"]]
    assert len(set(names)) == 2
    # one host: one address, from which it reaches both
    assert {end["own_address"] for end in truth["ends"]} == {"10.71.0.1"}
    assert {end["peer_address"] for end in truth["ends"]} == {"10.71.0.2", "10.71.0.3"}
    rows = list(iscsitrace.read(str(tmp_path / "initiator.pcapng")).connections.rows())
    assert [row["is_iscsi"] for row in rows] == [True] * 4
    carried = [path["to_initiator"]["counters"]["delivered"] for path in truth["paths"]]
    for number, (delay_ms, ends) in enumerate(zip(delays_ms, truth["target_ends"], strict=True)):
        ports = {end["initiator_port"] for end in ends}
        assert ports == {end["initiator_port"] for end in truth["initiator_ends"] if end["target"] == number}
        assert len(ports) == 2
        rtts_us = [rtt for end in ends for rtt in end["windows"]["srtt_us"] if rtt]
        assert 2 * delay_ms * 1000 <= min(rtts_us) < 2 * delay_ms * 1000 + 10_000
        assert len(truth["target_logs"][number]["cycles"]["command"]) > 32
        # each link has the frames of its target alone: at the least those that the capture there has received
        frames = sum(
            truth["paths"][number][way]["counters"]["arrived"]["count"] for way in ("to_target", "to_initiator")
        )
        assert frames - 12 <= truth["packet_counts"][1 + number] <= frames
    assert truth["packet_counts"][0] < sum(truth["packet_counts"][1:]) + 12
    assert min(each["count"] for each in carried) > 32
    lost = [path["to_initiator"]["counters"]["lost"]["count"] for path in truth["paths"]]
    assert sum(lost) > 0


@needs_root
def test_mirrors_behind_a_shared_line(tmp_path: Path) -> None:
    rate_bps, total_bytes = 100_000_000, 4 << 20
    options = (
        "--targets",
        3,
        "--set=mirror=yes",
        "--set",
        "access-rate=100Mbit",
        "--one-way-delay",
        "1ms",
        "--queue-depth",
        4,
    )
    truth = run(tmp_path, "write", *options, "--bytes", total_bytes)
    same_as_truth(tmp_path, truth)
    check(tmp_path)
    # every target has every block
    by_target = [
        sorted(lba for lba, its in zip(truth["cycles"]["lba"], truth["cycles"]["target"], strict=True) if its == target)
        for target in range(3)
    ]
    assert by_target[0] == by_target[1] == by_target[2] == list(range(0, total_bytes // 512, 128))
    # all data passed the shared line, and each path carried a third of it
    access = truth["access"]["to_target"]
    assert access["counters"]["delivered"]["bytes"] > 3 * total_bytes
    assert truth["results"]["elapsed_ns"] > 3 * total_bytes * 8e9 / rate_bps
    assert (
        sum(access["line"]["busy_times"]["to_ns"]) - sum(access["line"]["busy_times"]["from_ns"])
        == (access["line"]["busy_ns"])
    )
    for path in truth["paths"]:
        assert total_bytes < path["to_target"]["counters"]["arrived"]["bytes"] < 1.2 * total_bytes
        assert path["to_target"]["line"] is None
    assert truth["access_process"]["failure"] is None


@needs_root
def test_a_reused_port_for_another_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = real.end_settings

    def with_few_ports(*arguments: Any, **more: Any) -> EndSettings:
        return replace(made(*arguments, **more), sysctls={"net.ipv4.ip_local_port_range": "40000 40001"})

    monkeypatch.setattr(real, "end_settings", with_few_ports)
    truth = run(tmp_path, "read", "--targets", 2, *FAST, "--bytes", "1M")
    assert [end["own_port"] for end in truth["ends"]] == [40_000, 40_000]
    assert all("differences: 0" in said for said in check(tmp_path).values())
    assert "compared: 16 commands" in check(tmp_path)["initiator.pcapng"]
    same_as_truth(tmp_path, truth)


@needs_root
def test_both_worlds_take_the_same_options(tmp_path: Path) -> None:
    options = ("write", "--set=mirror=yes", "--target-delay", "2ms", "--target-delay", "6ms", "--rate", "50Mbit")
    more = ("--set", "access-rate=40Mbit", "--block-size", "32K", "--bytes", "2M", "--seed", 3, "--set=ipv6=yes")
    real_truth = run(tmp_path / "real", *options, *more)
    words = [str(word) for word in ("simulate", *options, *more, "-o", tmp_path / "simulated")]
    assert CliRunner().invoke(main, words).exit_code == 0
    simulated = truth_of(tmp_path / "simulated")
    for name in ("lba", "block_count", "operation"):
        of_workload = [
            value
            for value, operation in zip(simulated["cycles"][name], simulated["cycles"]["operation"], strict=True)
            if operation
        ]
        assert sorted(of_workload) == sorted(real_truth["cycles"][name])
    # a link of the simulation has all defaults filled in
    for mine, its in zip(
        real_truth["settings"]["world"]["paths"], simulated["settings"]["world"]["paths"], strict=True
    ):
        assert mine["seed"] == its["seed"]
        for direction in ("to_target", "to_initiator"):
            assert mine[direction].items() <= its[direction].items()
    # the slower mirror decides: 12 ms and the line, in either world
    for truth in (real_truth, simulated):
        assert 12_000_000 + 2 * 32_768 * 8 * 25 < truth["results"]["call_latency_ns"]["p50"] < 50_000_000


@needs_root
def test_several_third_party_targets(tmp_path: Path) -> None:
    truth = run(
        tmp_path, "write", "--targets", 2, "--set=mirror=yes", "--set", "target-program=istgt", *FAST, "--bytes", "1M"
    )
    same_as_truth(tmp_path, truth)


@needs_root
def test_several_targets_without_links(tmp_path: Path) -> None:
    truth = run(tmp_path, "read", "--targets", 2, "--bypass", "--bytes", "1M")
    same_as_truth(tmp_path, truth)
    assert (truth["paths"], truth["path_process"], truth["access"]) == ([], [], None)


@needs_root
def test_the_next_run_cleans_up_after_a_killed_one(tmp_path: Path) -> None:
    options = (
        "--targets",
        "2",
        "--set",
        "access-rate=100Mbit",
        "--set",
        "target-program=tgt",
        "--lun",
        "64M",
        "--seconds",
        "60",
    )
    command = [sys.executable, "-m", "iscsitrace", "lab", "run", "read", *options, "-o", str(tmp_path)]

    def started_by(process_id: int) -> list[int]:
        listed = Path(f"/proc/{process_id}/task").glob("*/children")
        return [int(child) for children in listed for child in children.read_text().split()]

    children: list[int] = []
    # while namespaces are made, while programs are started, while it runs
    for seconds in (0.4, 1.0, 3.0):
        with running(
            subprocess.Popen([*command, "--force"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        ) as process:
            time.sleep(seconds)
            children += started_by(process.pid)
            process.kill()
        remove_leftovers()
        peers.remove_leftovers()
        assert of_process(process.pid) == set()
        assert all(is_gone(child) for child in children)
        assert list(Path(tempfile.gettempdir()).glob(f"iscsitrace-{process.pid}-*")) == []
    assert len(children) > 3


@needs_root
def test_files_are_not_overwritten_and_a_failed_run_writes_none(tmp_path: Path) -> None:
    run(tmp_path, "read", "--bypass", "--bytes", "64K")
    before = (tmp_path / "truth.json").read_bytes()
    refused = lab("run", "read", "--bytes", "64K", "-o", tmp_path)
    assert refused.exit_code == 2
    assert "exists" in refused.output
    assert (tmp_path / "truth.json").read_bytes() == before
    run(tmp_path, "read", "--bypass", "--bytes", "128K", "--force")
    assert truth_of(tmp_path)["results"]["bytes"] == 128 << 10
    impossible = lab("run", "read", "--loss", "0.1%", "--bytes", "100", "--block-size", "100", "-o", tmp_path / "other")
    assert impossible.exit_code == 2
    assert "block_size_bytes" in impossible.output
    assert list((tmp_path / "other").iterdir()) == []
    assert of_process(os.getpid()) == set()


def await_traffic(folder: Path) -> None:
    """Until a capture has grown, which is in a folder of its own while it is written."""
    end = time.monotonic() + 20
    while not any(capture.stat().st_size > 1 << 20 for capture in folder.rglob("target.pcapng")):
        assert time.monotonic() < end
        time.sleep(0.05)


@needs_root
def test_a_signal_ends_the_run_of_a_third_party_initiator_cleanly(tmp_path: Path) -> None:
    options = (*FAST, "--set", "initiator-program=iscsi-perf", "--seconds", "60", "-o", str(tmp_path))
    with running(
        subprocess.Popen(
            [sys.executable, "-m", "iscsitrace", "lab", "run", "read", *options], stdout=subprocess.DEVNULL
        )
    ) as process:
        await_traffic(tmp_path)
        # its first average comes after a second
        time.sleep(2.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    truth = truth_of(tmp_path)
    assert truth["results"]["iops"] > 10
    assert 1e9 < truth["ended_ns"] - truth["started_ns"] < 30e9
    assert of_process(process.pid) == set()


@needs_root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "iscsitrace", "lab", "run", "read", *FAST, "--seconds", "60", "-o", str(tmp_path)]
    with running(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)) as process:
        await_traffic(tmp_path)
        assert of_process(process.pid)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert of_process(process.pid) == set()
    truth = truth_of(tmp_path)
    assert 0 < truth["results"]["elapsed_ns"] < 30_000_000_000
    same_as_truth(tmp_path, truth)


@needs_root
def test_up_shows_its_usage_and_is_removed_at_the_end() -> None:
    command = [sys.executable, "-m", "iscsitrace", "lab", "up", "--one-way-delay", "10ms"]
    with running(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        rows = [process.stdout.readline().split() for _ in ("initiator", "target")]
        assert "Ctrl-C" in process.stdout.readline()
        enter, address = rows[0][rows[0].index("ip") :], rows[1][1]
        ping = [*enter, "ping", "-n", "-c", "3", "-i", "0.1", address]
        said = subprocess.run(ping, check=True, capture_output=True, text=True, timeout=20).stdout
        times_ms = [float(text.split()[0]) for text in said.split("time=")[1:]]
        assert len(times_ms) == 3
        assert 20 <= min(times_ms) < 25
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=20)
    assert "to target" in rest
    assert process.returncode == 0
    assert of_process(process.pid) == set()


def test_a_run_needs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "truth.json").write_text("of an earlier run")
    result = lab("run", "read", "--force", "-o", tmp_path)
    assert result.exit_code == 2
    assert (tmp_path / "truth.json").read_text() == "of an earlier run"
    why = "network namespaces need root: run this with sudo. simulate makes the same traffic without rights"
    assert result.output.strip().splitlines()[-1] == f"iscsitrace: {why}"


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (("--set", "target-program=tgt", "--set", "status=apart"), "--set status does not work with tgt"),
        (("--set", "target-program=istgt", "--fault", "busy"), "--fault does not work with istgt"),
        (
            ("--set", "initiator-program=iscsi-perf", "--connections", "2"),
            "--connections does not work with iscsi-perf",
        ),
        (("--set", "initiator-program=iscsi-perf", "--key", "InitialR2T=Yes"), "--key does not work with iscsi-perf"),
        (("--set", "initiator-program=iscsi-perf", "--targets", "2"), "iscsi-perf reads from one target"),
        (("--set", "initiator-program=iscsi-perf", "--seconds", "1.5"), "iscsi-perf takes whole seconds"),
        (("--set", "initiator-program=iscsi-perf", "--block-size", "700"), "multiples of 512 bytes"),
        (("--set", "target-program=tgt", "--lun", "1G", "--lun", "2G"), "tgt has one logical unit here"),
        (("--set", "target-program=istgt", "--lun", "null:1G"), "istgt has one logical unit here"),
        (
            ("--set", "target-program=tgt", "--set", "chap=a%secret-of-12-a", "--set", "chap=b%secret-of-12-b"),
            "one initiator",
        ),
        (("--bypass", "--one-way-delay", "8ms"), "--one-way-delay does not work with a bypass"),
        (("--bypass", "--set", "access-rate=1Mbit"), "--set access-rate does not work with a bypass"),
        (("--targets", "3", "--target-delay", "1ms"), "given 1 times for 3 targets"),
    ],
)
def test_settings_that_third_party_programs_lack_are_refused(
    tmp_path: Path, options: tuple[str, ...], refused: str
) -> None:
    result = lab("run", "read", *options, "-o", tmp_path / "run")
    assert result.exit_code == 2
    assert refused in result.output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (("--bypass", "--log", "log.json"), "--log goes with links, not with --bypass"),
        (("--bypass", "--loss", "1%"), "--loss does not work with a bypass"),
        (("--log", "/nowhere/log.json"), "cannot write /nowhere/log.json: there is no folder /nowhere"),
    ],
)
def test_settings_without_meaning_for_up_are_refused(options: tuple[str, ...], refused: str) -> None:
    result = lab("up", *options)
    assert result.exit_code == 2
    assert refused in result.output


def test_paths_and_targets_go_together(tmp_path: Path) -> None:
    settings = {"client": {"workload": {}}, "portals": [{}, {}], "world": {"paths": [{}]}}
    with pytest.raises(InputInvalid, match="1 paths lead to 2 targets"):
        real.run(settings, tmp_path, lambda _: False)


def test_settings_that_a_namespace_lacks_are_refused() -> None:
    with pytest.raises(InputInvalid, match="HyStart"):
        real.end_settings({"hystart": False})
