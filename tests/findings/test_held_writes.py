"""Writes whose data wait: in a full socket of the initiator, or for an initiator that answers R2Ts late."""

from __future__ import annotations

from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from tests.findings.test_diagnosis_captures import simulate

TAPS = ("initiator", "target")
WRITES = (
    "write --block-size 64K --bytes 8M --queue-depth 8 --key InitialR2T=Yes --key ImmediateData=No "
    "--key MaxRecvDataSegmentLength=8192 --set target-host-delay=20us"
)


def said(folder: Path, tap: str) -> tuple[str, float]:
    """The headline at a tap, and the share of the initiator's service."""
    diagnosis = examine(iscsitrace.read(folder / f"{tap}.pcapng", tables=NEEDED).table)
    assert diagnosis.headline
    (session,) = diagnosis.sessions.values()
    return diagnosis.headline.name, session.as_dict()["shares"]["initiator_service"]


def test_an_r2t_whose_data_wait_in_a_full_socket_does_not_wait_for_the_initiator(tmp_path: Path) -> None:
    """Each host takes 20 us to read an R2T; the jitter hides at the target which ACK a packet answers."""
    path = "--one-way-delay 8ms --rate 320Mbit --set jitter=4ms --set initiator-host-delay=20us"
    simulate(tmp_path / "run", f"{WRITES} {path} --set send-buffer=48K")
    for tap in TAPS:
        name, share = said(tmp_path / "run", tap)
        assert name == "send_buffer_small", tap
        assert share < 0.05, tap


@pytest.mark.parametrize("delay", ["5ms", "20ms"])
def test_an_initiator_that_answers_many_r2ts_late_is_slow(delay: str, tmp_path: Path) -> None:
    path = f"--one-way-delay 0.5ms --rate 1Gbit --set initiator-host-delay={delay}"
    simulate(tmp_path / "run", f"{WRITES} {path}")
    for tap in TAPS:
        name, share = said(tmp_path / "run", tap)
        assert name == "slow_initiator", tap
        assert share > 0.3, tap
