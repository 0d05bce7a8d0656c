"""`iscsitrace lab`: runs over the kernel's TCP leave captures that say what their truth says, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.errors import InputInvalid
from iscsitrace.lab import real
from tests.lab import needs_root
from tests.test_lab_namespaces import of_process

FAST = ("--one-way-delay", "2ms", "--rate", "400Mbit")


def lab(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["lab", *(str(argument) for argument in arguments)])


def truth_of(folder: Path) -> dict[str, Any]:
    truth = json.loads((folder / "truth.json").read_text())
    assert isinstance(truth, dict)
    return truth


def run(folder: Path, *arguments: object) -> dict[str, Any]:
    """A run that ends well, and of which both captures lost nothing."""
    result = lab("run", *arguments, "-o", folder)
    assert result.exit_code == 0, result.output
    truth = truth_of(folder)
    assert truth["capture_dropped_counts"] == [0, 0]
    assert truth["path_process"] == [] or truth["path_process"][0]["failure"] is None
    assert of_process(os.getpid()) == set()
    return truth


def tasks_of(capture: Path) -> list[tuple[Any, ...]]:
    """What every read and write of a capture was, in the order of commands."""
    cycles = iscsitrace.read(str(capture)).cycles
    names = ("initiator_task_tag", "operation", "lba", "block_count", "bytes", "status")
    return [tuple(row[name] for name in names) for row in cycles.rows() if row["operation"] in {"read", "write"}]


def same_as_truth(folder: Path, truth: dict[str, Any], ends: Sequence[str] = real.ENDS) -> None:
    cycles = truth["cycles"]
    names = ("initiator_task_tag", "operation", "lba", "block_count", "bytes", "status")
    expected = sorted(zip(*(cycles[name] for name in names), strict=True))
    assert expected
    for end in ends:
        assert sorted(tasks_of(folder / f"{end}.pcapng")) == expected


@needs_root
@pytest.mark.parametrize("more", [(), ("--ipv6",), ("--bypass",)], ids=["link", "ipv6", "bypass"])
def test_reads(tmp_path: Path, more: tuple[str, ...]) -> None:
    link = () if "--bypass" in more else FAST
    truth = run(tmp_path / "run", "read", *link, *more, "--block-size", "64K", "--bytes", "4M", "--queue-depth", 2)
    assert truth["results"]["bytes"] == 4 << 20
    assert truth["results"]["calls"] == 64
    same_as_truth(tmp_path / "run", truth)
    assert truth["ends"][0]["peer_address"] == ("fd71::2" if "--ipv6" in more else "10.71.0.2")
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
        assert 4_000 <= min(rtts_us) < 30_000
        sampled = end["windows"]
        assert {len(column) for column in sampled.values()} == {len(sampled["time_ns"])}
        assert max(sampled["pipe"]) * end["snd_mss"] > 64 << 10
        assert all(pipe >= 0 for pipe in sampled["pipe"])
    else:
        assert truth["paths"] == []


@needs_root
def test_writes_with_losses(tmp_path: Path) -> None:
    keys = ("--key", "InitialR2T=Yes", "--key", "ImmediateData=No", "--data-digest", "crc32c")
    options = (*FAST, "--to-target-loss", "0.5%", "--congestion-control", "reno", "--seed", 3)
    truth = run(tmp_path, "write", *options, *keys, "--block-size", "128K", "--bytes", "4M")
    same_as_truth(tmp_path, truth)
    lost = truth["paths"][0]["to_target"]["counters"]["lost"]["count"]
    resent = truth["initiator_ends"][0]["retransmitted_segment_count"]
    assert lost > 0
    assert resent > 0
    (seen,) = iscsitrace.read(str(tmp_path / "initiator.pcapng")).connections.rows()
    # what was sent again after the last look at the sockets is in the capture alone: at most the FIN
    assert 0 <= seen["retransmitted_packets_to_target"] - resent <= 1
    # the last look is at the very end: all that was sent is acknowledged, and the SYN, which the kernel counts
    last = truth["initiator_ends"][0]["tcp_info"]["bytes_acked"][-1]
    assert last == seen["stream_bytes_to_target"] + 1


@needs_root
def test_settings_reach_the_kernel(tmp_path: Path) -> None:
    options = ("--mss", 536, "--no-timestamps", "--no-sack", "--window", "64K", "--initial-window", 4)
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
def test_other_targets(tmp_path: Path, program: str) -> None:
    options = (*FAST, "--target-program", program, "--lun", "64M", "--chap", "joe%twelve3456789")
    truth = run(tmp_path, "mixed", *options, "--block-size", "64K", "--bytes", "2M", "--random")
    assert truth["target_log"] is None
    same_as_truth(tmp_path, truth)
    # secrets stay out of the file
    assert "twelve3456789" not in (tmp_path / "truth.json").read_text()


@needs_root
def test_another_initiator(tmp_path: Path) -> None:
    options = ("--initiator-program", "iscsi-perf", "--block-size", "64K", "--queue-depth", 4, "--seconds", 1)
    truth = run(tmp_path, "read", *FAST, *options)
    assert truth["cycles"] is None
    assert truth["results"]["read_bytes"] == 64 << 10
    reads = [task for task in tasks_of(tmp_path / "initiator.pcapng") if task[1] == "read"]
    assert {task[4] for task in reads} == {64 << 10}
    assert len(reads) >= truth["results"]["iops"] > 50
    assert sum(task["command"].startswith("READ(") for task in truth["target_log"]["tasks"]) == len(reads)


@needs_root
def test_captures_agree_with_check(tmp_path: Path) -> None:
    run(tmp_path, "read", *FAST, "--connections", 2, "--bytes", "2M", "--loss", "0.1%")
    for end in real.ENDS:
        words = ["check", "--truth", str(tmp_path / "truth.json"), str(tmp_path / f"{end}.pcapng")]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output


@needs_root
def test_files_are_not_overwritten_and_a_failed_run_leaves_none(tmp_path: Path) -> None:
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


@needs_root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_in_order(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "iscsitrace", "lab", "run", "read", *FAST, "--seconds", "60", "-o", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 20
        while time.monotonic() < end and not (
            (tmp_path / "target.pcapng").exists() and (tmp_path / "target.pcapng").stat().st_size > 1 << 20
        ):
            time.sleep(0.05)
        assert of_process(process.pid)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert of_process(process.pid) == set()
    truth = truth_of(tmp_path)
    assert 0 < truth["results"]["elapsed_ns"] < 30_000_000_000
    same_as_truth(tmp_path, truth)


@needs_root
def test_up_says_how_to_use_it_and_goes_away() -> None:
    command = [sys.executable, "-m", "iscsitrace", "lab", "up", "--one-way-delay", "10ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        rows = [process.stdout.readline().split() for _ in real.ENDS]
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


def test_only_root_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = lab("run", "read", "-o", tmp_path)
    assert result.exit_code == 2
    assert result.output.strip().splitlines()[-1].endswith("network namespaces need root: run this with sudo")


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (("--target-program", "tgt", "--status", "apart"), "--status cannot be told to tgt"),
        (("--target-program", "istgt", "--fault", "busy"), "--fault cannot be told to istgt"),
        (("--initiator-program", "iscsi-perf", "--connections", "2"), "--connections cannot be told to iscsi-perf"),
        (("--initiator-program", "iscsi-perf", "--key", "InitialR2T=Yes"), "--key cannot be told to iscsi-perf"),
    ],
)
def test_what_others_cannot_be_told_is_refused(tmp_path: Path, options: tuple[str, ...], refused: str) -> None:
    result = lab("run", "read", *options, "-o", tmp_path)
    assert result.exit_code == 2
    assert refused in result.output


def test_what_a_namespace_cannot_have_is_refused() -> None:
    with pytest.raises(InputInvalid, match="HyStart"):
        real.end_settings({"hystart": False})
