"""Predicted gains of the diagnosis, compared with runs in which the change is made."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import AdviceGain, Finding
from tests.support.runs import Runs
from tests.support.story import Story
from tests.support.tables_by_hand import MS

PATH = "--one-way-delay 4ms --rate 320Mbit"
READ = f"read --block-size 64K --bytes 8M {PATH}"
# one command in flight shows no program that has others to issue
TWO_READS = f"{READ} --queue-depth 2"
SOLICITED = f"--key InitialR2T=Yes --key ImmediateData=No --key FirstBurstLength=65536 {PATH}"
WRITE = f"write --block-size 256K --bytes 8M --key MaxBurstLength=65536 {SOLICITED}"
SMALL_WRITE = f"write --block-size 64K --bytes 8M {SOLICITED}"
SMALL_WINDOW = f"read --block-size 1M --bytes 24M {PATH}"
HIDING = "queue depth 6, which hides 90 % of the delay"
"""A read takes 8 ms and 1.7 ms on the line: six carry 38 MB/s, five 34."""

# finding, change -> the run that has it, and options that make the change
CHANGES: dict[tuple[str, str], tuple[str, str]] = {
    ("queue_depth_low", HIDING): (TWO_READS, "--queue-depth 6 --bytes 24M"),
    ("block_size_small", "256 KiB I/O"): (READ, "--block-size 256K --bytes 16M"),
    ("block_size_small", "1 MiB I/O"): (READ, "--block-size 1M --bytes 24M"),
    ("held_for_ack", "status in the last Data-In"): (f"{READ} --set status=apart-held", "--set status=in-data"),
    ("r2t_rounds", "MaxBurstLength=16776192"): (WRITE, "--key MaxBurstLength=16776192"),
    ("r2t_rounds", "MaxOutstandingR2T=8"): (WRITE, "--key MaxOutstandingR2T=8 --set target-key=MaxOutstandingR2T=8"),
    # far from what fills the line, near which writes in rounds are in each other's way
    ("r2t_rounds", "queue depth 8"): (f"{WRITE} --one-way-delay 16ms --queue-depth 2", "--queue-depth 8 --bytes 24M"),
    ("unsolicited_data_unused", "ImmediateData=Yes and InitialR2T=No"): (
        SMALL_WRITE,
        "--key InitialR2T=No --key ImmediateData=Yes",
    ),
    ("receive_window_small", "receive window 598 KiB"): (
        f"{SMALL_WINDOW} --set receive-buffer=64K",
        "--set receive-buffer=598K",
    ),
    ("slow_target", "zero target service time"): (f"{READ} --service-delay 5ms", "--service-delay 0ms"),
    ("slow_target", "queue depth 8"): (f"{TWO_READS} --service-delay 5ms", "--queue-depth 8 --bytes 24M"),
    ("initiator_think_time", "no pauses of the initiator"): (f"{READ} --think-time 5ms", "--think-time 0ms"),
    ("loss", "no losses"): (f"{READ} --set to-initiator-loss=0.5%", "--set to-initiator-loss=0"),
}

UNSEEN_AT_THE_TARGET = {("r2t_rounds", "queue depth 8"), ("slow_target", "queue depth 8")}
"""Of two commands, one after the other is at the target: its tap shows no application that issues I/O in parallel."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def finding_of(capture: Path, name: str) -> Finding:
    (session,) = examine(iscsitrace.read(capture, tables=NEEDED).table).sessions.values()
    (found,) = (finding for finding in session.findings if finding.name == name)
    return found


def gain_of(capture: Path, name: str, change: str) -> AdviceGain:
    gains = {gain.change: gain for gain in finding_of(capture, name).gains}
    return gains[change]


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize(("name", "change"), CHANGES, ids=lambda word: word.replace(" ", "-"))
def test_a_predicted_gain_equals_that_of_the_run_with_the_change(runs: Runs, name: str, change: str, tap: str) -> None:
    options, others = CHANGES[name, change]
    before, after = runs(options), runs(f"{options} {others}")
    if tap == "target" and (name, change) in UNSEEN_AT_THE_TARGET:
        assert change not in {gain.change for gain in finding_of(before.capture(tap), name).gains}
        return
    gain = gain_of(before.capture(tap), name, change)
    assert gain.throughput_factor == pytest.approx(after.throughput / before.throughput, rel=0.1)
    assert gain.low <= gain.throughput_factor <= gain.high


# finding, change -> how the advice that the gain belongs to begins
ADVICE = {
    ("queue_depth_low", HIDING): "Keep more commands in flight: ",
    ("block_size_small", "256 KiB I/O"): "Use larger I/O",
    ("block_size_small", "1 MiB I/O"): "Use larger I/O",
    ("held_for_ack", "status in the last Data-In"): "Have the target send the status",
    ("r2t_rounds", "MaxBurstLength=16776192"): "Use fewer, larger bursts",
    ("r2t_rounds", "MaxOutstandingR2T=8"): "Allow more R2Ts at once",
    ("r2t_rounds", "queue depth 8"): "Keep more commands in flight: ",
    ("unsolicited_data_unused", "ImmediateData=Yes and InitialR2T=No"): "Send data with the command",
    ("receive_window_small", "receive window 598 KiB"): "On the receiver",
    ("slow_target", "zero target service time"): "Check the target: its disks",
    ("slow_target", "queue depth 8"): "Keep more commands in flight. ",
    ("initiator_think_time", "no pauses of the initiator"): "Issue I/O ahead",
    ("loss", "no losses"): "Fix the packet loss first",
}


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=lambda word: word.replace(" ", "-"))
def test_every_gain_belongs_to_its_advice(runs: Runs, name: str, change: str) -> None:
    found = finding_of(runs(CHANGES[name, change][0]).capture(), name)
    (gain,) = [gain for gain in found.gains if gain.change == change]
    assert gain.advice in found.problem.advice
    assert gain.advice.text.startswith(ADVICE[name, change])


def test_the_low_gain_assumes_a_target_that_serves_one_command_at_a_time(runs: Runs) -> None:
    gain = gain_of(runs(f"{TWO_READS} --service-delay 5ms").capture(), "slow_target", "queue depth 8")
    # side by side four times as much, or no more than a task in 5 ms: two in 14.7 ms before, or a little more
    assert 14.7 / 2 / 5 < gain.low < 2
    assert gain.high > 3.5


def test_a_queue_that_fills_the_line_gains_nothing(runs: Runs) -> None:
    finding = finding_of(runs(TWO_READS).capture(), "queue_depth_low")
    assert [gain.change for gain in finding.gains] == [HIDING], "8 and 32 fill the line no better"


def test_no_gain_if_the_model_does_not_fit_the_session() -> None:
    # ten times the RTT, without any known cause
    tale = Story(rtt_to_target_ns=2 * MS).tasks(20, ("propagation", 20 * MS))
    found = tale.found("block_size_small")
    assert found
    assert (found.gains, found.as_dict()["gain"], found.as_dict()["gains"]) == ((), None, [])
    # the same with a model that fits
    found = Story(rtt_to_target_ns=20 * MS).tasks(20, ("propagation", 20 * MS)).found("block_size_small")
    assert found
    gain = found.as_dict()["gain"]
    assert gain == {
        "change": "256 KiB I/O",
        "throughput_factor": 2,
        "low": 2,
        "high": 2,
        "advice": 0,
    }


def test_gains_follow_their_advice(runs: Runs) -> None:
    result = CliRunner().invoke(main, ["diagnose", "-v", str(runs(TWO_READS).capture())], catch_exceptions=False)
    said = [line.split(" (model: ")[1] for line in result.stdout.splitlines() if "(model: " in line]
    depth, small, large = (
        gain_of(runs(TWO_READS).capture(), name, change).throughput_factor
        for name, change in CHANGES
        if name in ("queue_depth_low", "block_size_small")
    )
    # what to do, then the findings of the session before those of its connection
    assert said[:3] == [
        *[f"up to {depth:.1f}x with {HIDING})"] * 2,
        f"up to {small:.1f}x with 256 KiB I/O, up to {large:.1f}x with 1 MiB I/O)",
    ]
