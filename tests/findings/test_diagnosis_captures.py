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
from iscsitrace.findings import NEEDED
from tests.support.capture_file import write_pcap
from tests.support.conversation import Conversation, Session
from tests.support.examples import assert_is_example
from tests.support.transport import ETHERNET

WAN = "--one-way-delay 4ms --rate 320Mbit --set target-host-delay=20us --set initiator-host-delay=20us"
R2T_ONLY = "--key InitialR2T=Yes --key ImmediateData=No --key FirstBurstLength=65536"
WRITES = f"write --block-size 256K --bytes 4M {R2T_ONLY} {WAN}"

# finding -> options of a run that has it, and of a near miss
CASES: dict[str, tuple[str, str]] = {
    # the same reads, one at a time or sixteen: 128 KiB take 3.3 ms on the line, the RTT is 8 ms
    "queue_depth_low": (
        f"read --block-size 128K --bytes 16M {WAN}",
        f"read --block-size 128K --bytes 16M --queue-depth 16 {WAN}",
    ),
    # in order, or anywhere
    "block_size_small": (
        f"read --block-size 32K --bytes 4M {WAN}",
        f"read --block-size 32K --bytes 4M --random {WAN}",
    ),
    # held by Nagle until the ACK, or sent at once
    "held_for_ack": (
        f"read --block-size 128K --bytes 8M --set status=apart-held {WAN}",
        f"read --block-size 128K --bytes 8M --set status=apart {WAN}",
    ),
    # four R2Ts one after another, or at once
    "r2t_rounds": (
        f"{WRITES} --key MaxBurstLength=65536",
        f"{WRITES} --key MaxBurstLength=65536 --key MaxOutstandingR2T=4 --set target-key=MaxOutstandingR2T=4",
    ),
    # 20 ms late, or 0.5 ms
    "r2t_late": (
        f"{WRITES} --fault late-r2t,every=1,by=20ms",
        f"{WRITES} --fault late-r2t,every=1,by=0.5ms",
    ),
    # the first 64 KiB after an R2T, or with the command
    "unsolicited_data_unused": (
        f"write --block-size 64K --bytes 4M {R2T_ONLY} {WAN}",
        f"write --block-size 64K --bytes 4M --key ImmediateData=Yes --key InitialR2T=No {WAN}",
    ),
    # the bandwidth-delay product is 320 KB
    "receive_window_small": (
        f"read --block-size 1M --bytes 32M --queue-depth 4 --set receive-buffer=128K {WAN}",
        f"read --block-size 1M --bytes 32M --queue-depth 4 --set receive-buffer=2M {WAN}",
    ),
    # an initiator that reads its socket 40 ms late, or at once; without SACK no probe looks like a loss meanwhile
    "receiver_stalled": (
        f"read --block-size 1M --bytes 16M --queue-depth 4 --set receive-buffer=256K --set sack=no {WAN} "
        "--set initiator-host-delay=40ms",
        f"read --block-size 1M --bytes 16M --queue-depth 4 --set receive-buffer=256K --set sack=no {WAN}",
    ),
    # three seconds of thought between two blocks of 1 MiB; the window is halved again and again meanwhile, or kept
    "restart_after_idle": (
        "read --block-size 1M --bytes 16M --think-time 3s --one-way-delay 100ms --rate 320Mbit",
        "read --block-size 1M --bytes 16M --think-time 3s --set slow-start-after-idle=no --one-way-delay 100ms "
        "--rate 320Mbit",
    ),
    # Reno that loses one packet in a hundred, or none; slow start takes 30 ms of either
    "congestion_window_small": (
        f"read --block-size 256K --bytes 32M --queue-depth 8 --loss 1% --congestion-control reno {WAN}",
        f"read --block-size 256K --bytes 32M --queue-depth 8 --congestion-control reno {WAN}",
    ),
    # what fits into 128 KiB, or 6 MiB
    "send_buffer_small": (
        f"read --block-size 1M --bytes 32M --queue-depth 4 --set send-buffer=128K {WAN}",
        f"read --block-size 1M --bytes 32M --queue-depth 4 {WAN}",
    ),
    # lost, or only late
    "loss": (
        f"read --block-size 128K --bytes 8M --queue-depth 4 --set to-initiator-loss=1% {WAN}",
        f"read --block-size 128K --bytes 8M --queue-depth 4 --set reorder=1%,0.2ms {WAN}",
    ),
    # one packet in twenty 3 ms late, or lost
    "reordering": (
        f"read --block-size 256K --bytes 16M --queue-depth 4 --set reorder=5%,3ms {WAN}",
        f"read --block-size 256K --bytes 16M --queue-depth 4 --set to-initiator-loss=1% {WAN}",
    ),
    # ACKs to the target dropped for 700 ms, or data to the initiator
    "ack_loss": (
        f"read --block-size 2M --queue-depth 2 --seconds 3 --fault ack-loss,for=700ms {WAN}",
        f"read --block-size 2M --queue-depth 2 --seconds 3 --fault black-out,for=300ms,direction=to-initiator {WAN}",
    ),
    # a whole flight lost, so that an RTO sends one segment, whose ACK is held back for 40 ms or not at all
    "delayed_ack_in_recovery": (
        f"read --block-size 256K --seconds 1.5 --fault black-out,at=0.5s,for=150ms,direction=to-initiator {WAN}",
        f"read --block-size 256K --seconds 1.5 --fault black-out,at=0.5s,for=150ms,direction=to-initiator "
        f"--set delayed-ack=no {WAN}",
    ),
    # eight reads of 256 KiB take 52 ms on the line, one of 128 KiB takes 3.3 ms; the RTT is 8 ms
    "line_saturated": (
        f"read --block-size 256K --bytes 16M --queue-depth 8 {WAN}",
        f"read --block-size 128K --bytes 16M {WAN}",
    ),
    # two sessions with one target, or one
    "line_shared": (
        f"read --block-size 256K --bytes 32M --queue-depth 8 --sessions 2 {WAN}",
        f"read --block-size 256K --bytes 16M --queue-depth 8 {WAN}",
    ),
    "slow_target": (
        f"read --block-size 64K --bytes 4M --service-delay 5ms {WAN}",
        f"read --block-size 64K --bytes 4M --service-delay 0.2ms {WAN}",
    ),
    "initiator_think_time": (
        f"read --block-size 64K --bytes 4M --think-time 5ms {WAN}",
        f"read --block-size 64K --bytes 4M --think-time 0.2ms {WAN}",
    ),
    # R2Ts that the initiator reads 5 ms after they came
    "slow_initiator": (
        f"{WRITES} --set initiator-host-delay=5ms",
        f"{WRITES} --set initiator-host-delay=0.1ms",
    ),
    "command_window_closed": (
        f"read --block-size 4K --bytes 4M --queue-depth 32 --set command-window=8 {WAN}",
        f"read --block-size 4K --bytes 4M --queue-depth 32 --set command-window=33 {WAN}",
    ),
    "digest_errors": (
        f"read --block-size 64K --bytes 4M --set data-digest=crc32c --fault bad-data-digest,operation=read,nth=5 {WAN}",
        f"read --block-size 64K --bytes 4M --set data-digest=crc32c {WAN}",
    ),
}


SHOWN_AT = {"send_buffer_small": "target"}
"""The tap at which a finding is as in its example, where it is not that of the initiator."""


def simulate(directory: Path, line: str) -> Result:
    arguments = ["simulate", *line.split(), "-o", str(directory)]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def diagnose(file: Path) -> Diagnosis:
    return examine(iscsitrace.read(file, tables=NEEDED).table)


def found(diagnosis: Diagnosis) -> set[str]:
    return {finding.name for opinion in diagnosis.sessions.values() for finding in opinion.findings}


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize("name", CASES)
def test_a_problem_is_found_and_a_near_miss_is_not(tmp_path: Path, name: str, tap: str) -> None:
    sick, well = CASES[name]
    assert simulate(tmp_path / "sick", sick).exit_code == (1 if name == "digest_errors" else 0)
    assert simulate(tmp_path / "well", well).exit_code == 0
    if (name, tap) != ("send_buffer_small", "initiator"):
        # far from the sender a level is not exact
        diagnosis = diagnose(tmp_path / "sick" / f"{tap}.pcapng")
        assert name in found(diagnosis)
        if tap == SHOWN_AT.get(name, "initiator"):
            assert_is_example(diagnosis, name)
    assert name not in found(diagnose(tmp_path / "well" / f"{tap}.pcapng"))


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
    assert simulate(tmp_path, CASES["queue_depth_low"][0]).exit_code == 0
    arguments = ["diagnose", "--json", "--fail-on", "queue_depth_low", str(tmp_path / "initiator.pcapng")]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 1
    document: dict[str, Any] = json.loads(result.stdout)
    (session,) = document["sessions"]
    assert session["limiter"] == "propagation"
    assert "one 128 KiB read at a time (queue depth 1)" in session["verdict"]
    assert sum(session["budget"].values()) == sum(document["budget"].values()) > 0


def test_frames_of_a_finding_are_those_of_the_waiting_command(tmp_path: Path) -> None:
    assert simulate(tmp_path, CASES["slow_target"][0]).exit_code == 0
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
