"""The diagnosis on captures: every problem is found in a run that has it, and not in a near miss.

The settings of a run decide which problem it has. Runs are simulated, so they are the same every time. All other
problems are in test_every_finding.py.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.findings import NEEDED
from iscsitrace.findings.recipes import WAN
from tests.support.capture_file import write_pcap
from tests.support.conversation import Conversation, Session
from tests.support.examples import all_findings, assert_is_example
from tests.support.transport import ETHERNET

NEAR_AS_A_NOTE = {"login_failed", "target_busy"}
"""Whose near misses have it as a note."""
NOT_SHOWN_AT = {("send_buffer_small", "initiator"), ("mirror_waits_for_farthest", "target")}
"""Far from the sender a level is not exact, and one target sees no mirror."""
SHOWN_AT = {"send_buffer_small": "target"}
"""The tap at which a finding is as in its example, where it is not that of the initiator."""


def simulate(directory: Path, line: str) -> Result:
    arguments = ["simulate", *line.split(), "-o", str(directory)]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def diagnose(file: Path) -> Diagnosis:
    return examine(iscsitrace.read(file, tables=NEEDED).table)


def found(diagnosis: Diagnosis) -> set[str]:
    return {finding.name for opinion in diagnosis.sessions.values() for finding in opinion.findings}


@pytest.mark.parametrize("name", [each.name for each in PROBLEMS.values() if each.shown_by])
def test_a_problem_is_found_at_both_taps_and_a_near_miss_is_not(tmp_path: Path, name: str) -> None:
    problem = PROBLEMS[name]
    for folder, line in (("sick", problem.shown_by), ("well", problem.near_miss)):
        # its exit code is that of the workload, which may have failed
        simulate(tmp_path / folder, line)
    for tap in ("initiator", "target"):
        if (name, tap) not in NOT_SHOWN_AT:
            diagnosis = diagnose(tmp_path / "sick" / f"{tap}.pcapng")
            assert name in {each.name for each in all_findings(diagnosis)}, tap
            if tap == SHOWN_AT.get(name, "initiator"):
                assert_is_example(diagnosis, name)
        near = [each for each in all_findings(diagnose(tmp_path / "well" / f"{tap}.pcapng")) if each.name == name]
        assert not [each for each in near if each.severity != "info" or name not in NEAR_AS_A_NOTE], tap


@pytest.mark.parametrize("changed", [(0x05,), (0x25,), (0x05, 0x25)])
def test_digest_errors_point_to_the_sender_of_the_changed_bytes(changed: tuple[int, ...], tmp_path: Path) -> None:
    """A byte of the data of one Data-Out, of one Data-In, or of both is changed in the capture."""
    conversation = Conversation()
    conversation.session(Session(data_digest=True, is_immediate_data=False)).login().read(count=3).write(
        count=3
    ).logout()
    packets = conversation.run().packets
    pdus = iscsitrace.read(write_pcap(tmp_path / "whole.pcap", packets, ETHERNET), tables=("pdus",)).pdus
    for opcode in changed:
        frame = next(row["frame_last"] for row in pdus.rows() if row["opcode"] == opcode)
        data = packets[frame - 1].data
        # the last bytes of the packet are the digest
        packets[frame - 1] = replace(packets[frame - 1], data=data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
    diagnosis = diagnose(write_pcap(tmp_path / "changed.pcap", packets, ETHERNET))
    (found,) = [each for each in diagnosis.sessions[0].findings if each.name == "digest_errors"]
    senders = {0x05: "the initiator", 0x25: "the target"}
    side = f"{senders[changed[0]]}, or the path between it and the capture point" if len(changed) == 1 else None
    assert found.points_to == side
    assert found.text.startswith(f"{len(changed)} data digest error")


# --- samples

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def sample(name: str) -> Path:
    (file,) = (SAMPLES / name).glob("capture.*")
    return file


def test_aborts_of_a_recording() -> None:
    file = sample("task-abort-storage-hang")
    (finding,) = [each for each in diagnose(file).sessions[0].findings if each.name == "task_timeout"]
    abort_frame = iscsitrace.read(file).task_management["request_frame"][0]
    assert abort_frame in finding.frames
    before = iscsitrace.read(file, tables=NEEDED, packet_limit=int(abort_frame) - 1)
    assert not {"task_aborts", "task_timeout"} & found(examine(before.table))


# --- recordings of real hosts

# sample recipes and the findings that must follow
SAID: dict[str, tuple[set[str], set[str]]] = {
    # sample -> findings that have to be there, findings that must not
    "write-r2t-rounds": (
        {"r2t_rounds", "unsolicited_data_unused", "queue_depth_low"},
        {"loss", "receive_window_small"},
    ),
    "sequential-read-16ms": ({"queue_depth_low"}, {"loss", "r2t_rounds", "unsolicited_data_unused"}),
    "loss-1-percent": ({"loss"}, {"r2t_rounds", "digest_errors"}),
    "capture-drops": ({"capture_poor"}, {"loss", "r2t_rounds"}),
    "header-and-data-digests": (set(), {"digest_errors", "capture_poor", "loss"}),
    "task-abort-storage-hang": ({"task_timeout"}, {"task_aborts", "io_outage", "nop_timeout", "loss", "slow_target"}),
    "two-connections-one-session": (set(), {"uneven_connections", "loss", "capture_poor"}),
}


@pytest.mark.parametrize("name", SAID)
def test_recordings_have_the_findings_of_their_recipes(name: str) -> None:
    present, absent = SAID[name]
    names = found(diagnose(sample(name)))
    assert present <= names
    assert not absent & names


# --- the command, end to end


def test_the_command_on_a_simulated_run(tmp_path: Path) -> None:
    assert simulate(tmp_path, PROBLEMS["queue_depth_low"].shown_by).exit_code == 0
    arguments = ["diagnose", "--json", "--fail-on", "queue_depth_low", str(tmp_path / "initiator.pcapng")]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 1
    document: dict[str, Any] = json.loads(result.stdout)
    (session,) = document["sessions"]
    assert session["limiter"] == "propagation"
    assert session["verdict"] == "limited"
    assert "The initiator issues one 128 KiB read at a time" in session["headline"]["text"]
    assert sum(session["budget"].values()) == sum(document["budget"].values()) > 0


def test_frames_of_a_finding_are_those_of_the_waiting_command(tmp_path: Path) -> None:
    assert simulate(tmp_path, PROBLEMS["slow_target"].shown_by).exit_code == 0
    trace = iscsitrace.read(tmp_path / "initiator.pcapng", tables=NEEDED)
    (finding,) = [each for each in examine(trace.table).sessions[0].findings if each.name == "slow_target"]
    commands = {row["command_frame"]: row for row in trace.cycles.rows()}
    shown = [commands[frame] for frame in finding.frames if frame in commands]
    assert len(shown) == 3
    # the service time is 5 ms, the RTT 8 ms
    assert all(row["request_ns"] >= 13_000_000 for row in shown)
    assert all({row["data_first_frame"], row["status_frame"]} <= set(finding.frames) for row in shown)


# --- system calls

CALLS: dict[str, tuple[str, tuple[int, ...] | None]] = {
    # 500 KiB in tasks of 127.5 KiB at most, as in the study of reads
    "with a rest": (
        "--set system-call-size=500K --set max-transfer=130560 --bytes 5000K",
        (130_560, 130_560, 130_560, 120_320),
    ),
    "at once": ("--set system-call-size=512K --set max-transfer=128K --bytes 8M", (131_072,) * 4),
    "whole": ("--block-size 128K --bytes 8M", None),
    "two at a time": ("--set system-call-size=512K --set max-transfer=128K --bytes 8M --queue-depth 2", None),
}


@pytest.mark.parametrize("name", CALLS)
def test_system_calls_are_inferred_from_the_pieces(tmp_path: Path, name: str) -> None:
    options, pieces = CALLS[name]
    assert simulate(tmp_path, f"read {options} {WAN}").exit_code == 0
    call = diagnose(tmp_path / "initiator.pcapng").sessions[0].system_call
    assert (call.pieces if call else None) == pieces
    assert call is None or call.bytes == sum(pieces or ())
