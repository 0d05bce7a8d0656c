"""The diagnosis on captures: every disease is found in a run that has it, and not in one that nearly has it.

What a run has is known from its settings alone. Runs are simulated, so they are the same every time; what the simulated
hosts cannot do (pings, aborts) is taken from a conversation by hand or a recording.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.analysis.diagnosis.examination import NEEDED, Diagnosis, examine
from iscsitrace.cli import main

WAN = "--one-way-delay 4ms --rate 320Mbit --target-host-delay 20us --initiator-host-delay 20us"
R2T_ONLY = "--key InitialR2T=Yes --key ImmediateData=No --key FirstBurstLength=65536"
WRITES = f"write --block-size 256K --bytes 4M {R2T_ONLY} {WAN}"

# finding -> options of a run that has it, and of one that nearly has it
CASES: dict[str, tuple[str, str]] = {
    # the same reads, one at a time or sixteen: 128 KiB take 3.3 ms on the line, the path 8 ms
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
        f"read --block-size 128K --bytes 8M --status apart-held {WAN}",
        f"read --block-size 128K --bytes 8M --status apart {WAN}",
    ),
    # four R2Ts one after another, or at once
    "r2t_rounds": (
        f"{WRITES} --key MaxBurstLength=65536",
        f"{WRITES} --key MaxBurstLength=65536 --key MaxOutstandingR2T=4 --target-key MaxOutstandingR2T=4",
    ),
    # 20 ms late, or half a millisecond
    "r2t_late": (
        f"{WRITES} --fault late-r2t,every=1,by=20ms",
        f"{WRITES} --fault late-r2t,every=1,by=0.5ms",
    ),
    # the first 64 KiB after leave, or with the command
    "unsolicited_data_unused": (
        f"write --block-size 64K --bytes 4M {R2T_ONLY} {WAN}",
        f"write --block-size 64K --bytes 4M --key ImmediateData=Yes --key InitialR2T=No {WAN}",
    ),
    # the path holds 320 KB
    "receive_window_small": (
        f"read --block-size 1M --bytes 32M --queue-depth 4 --window 128K {WAN}",
        f"read --block-size 1M --bytes 32M --queue-depth 4 --window 2M {WAN}",
    ),
    # an initiator that reads its socket 40 ms late, or at once; without SACK no probe looks like a loss meanwhile
    "receiver_stalled": (
        f"read --block-size 1M --bytes 16M --queue-depth 4 --window 256K --no-sack {WAN} --initiator-host-delay 40ms",
        f"read --block-size 1M --bytes 16M --queue-depth 4 --window 256K --no-sack {WAN}",
    ),
    # three seconds of thought between two blocks of 1 MiB; the window is halved again and again meanwhile, or kept
    "restart_after_idle": (
        "read --block-size 1M --bytes 16M --think-time 3s --one-way-delay 100ms --rate 320Mbit",
        "read --block-size 1M --bytes 16M --think-time 3s --no-slow-start-after-idle --one-way-delay 100ms "
        "--rate 320Mbit",
    ),
    # Reno that loses one packet in a hundred, or none; slow start takes 30 ms of either
    "congestion_window_small": (
        f"read --block-size 256K --bytes 32M --queue-depth 8 --loss 1% --congestion-control reno {WAN}",
        f"read --block-size 256K --bytes 32M --queue-depth 8 --congestion-control reno {WAN}",
    ),
    # lost, or only late
    "loss": (
        f"read --block-size 128K --bytes 8M --queue-depth 4 --to-initiator-loss 1% {WAN}",
        f"read --block-size 128K --bytes 8M --queue-depth 4 --reorder 1%,0.2ms {WAN}",
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
        f"{WRITES} --initiator-host-delay 5ms",
        f"{WRITES} --initiator-host-delay 0.1ms",
    ),
    "command_window_closed": (
        f"read --block-size 4K --bytes 4M --queue-depth 32 --command-window 8 {WAN}",
        f"read --block-size 4K --bytes 4M --queue-depth 32 --command-window 33 {WAN}",
    ),
    "digest_errors": (
        f"read --block-size 64K --bytes 4M --data-digest crc32c --fault bad-data-digest,operation=read,nth=5 {WAN}",
        f"read --block-size 64K --bytes 4M --data-digest crc32c {WAN}",
    ),
}


def simulate(directory: Path, line: str) -> Result:
    arguments = ["simulate", *line.split(), "-o", str(directory)]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def diagnose(file: Path) -> Diagnosis:
    return examine(iscsitrace.read(file, tables=NEEDED).table)


def found(diagnosis: Diagnosis) -> set[str]:
    return {finding.name for opinion in diagnosis.sessions.values() for finding in opinion.findings}


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize("name", CASES)
def test_a_disease_is_found_and_a_near_miss_is_not(tmp_path: Path, name: str, tap: str) -> None:
    sick, well = CASES[name]
    assert simulate(tmp_path / "sick", sick).exit_code == (1 if name == "digest_errors" else 0)
    assert simulate(tmp_path / "well", well).exit_code == 0
    assert name in found(diagnose(tmp_path / "sick" / f"{tap}.pcapng"))
    assert name not in found(diagnose(tmp_path / "well" / f"{tap}.pcapng"))
