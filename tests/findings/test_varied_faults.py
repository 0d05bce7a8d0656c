"""Faults at unusual settings: short sessions, writes, many connections or sessions, deep queues, two faults at once."""

from __future__ import annotations

from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from tests.findings.test_diagnosis_captures import simulate

NEAR = "--one-way-delay 1ms --rate 20Mbit --block-size 16K"
FAR = "--one-way-delay 10ms --rate 50Mbit --block-size 64K --queue-depth 4 --seconds 3"
DEEP = "--one-way-delay 2ms --rate 20Mbit --block-size 4K --queue-depth 64 --seconds 3"

VARIED = {
    # within the first command, or long after the last but one
    "at the start": (f"read {NEAR} --bytes 64K --fault rst,at=0s,on=target", "connection_lost"),
    "at the end": (f"read {NEAR} --seconds 3 --fault rst,at=2.9s,on=target", "connection_lost"),
    "from the start": (f"read {NEAR} --bytes 64K --fault storage-errors,at=0s,for=10s", "command_errors"),
    "writes": (f"write {FAR} --fault target-restart,for=3s", "connection_lost"),
    "two connections": (f"read {FAR} --connections 2 --fault black-out,for=2s", "io_outage"),
    "four connections": (f"read {FAR} --connections 4 --fault rst", "connection_lost"),
    "digests": (
        f"read {NEAR} --set header-digest=crc32c --set data-digest=crc32c --seconds 3 --fault storage-errors,for=1s",
        "command_errors",
    ),
    "a deep queue": (f"read {DEEP} --fault black-out,for=2s", "io_outage"),
    "three sessions": (f"read {NEAR} --sessions 3 --seconds 3 --fault rst,on=target", "connection_lost"),
    # the one that costs more
    "first of two": (
        f"read {NEAR} --seconds 8 --think-time 50ms --fault black-out,at=1s,for=3s --fault rst,at=6s,on=target",
        "io_outage",
    ),
    "second of two": (
        f"read {NEAR} --seconds 9 --think-time 50ms --fault black-out,at=1s,for=1s --fault target-restart,at=5s,for=4s",
        "connection_lost",
    ),
}


@pytest.mark.parametrize("name", VARIED)
def test_the_headline_at_the_initiator_names_the_fault(name: str, tmp_path: Path) -> None:
    line, wanted = VARIED[name]
    simulate(tmp_path / "run", line)
    headline = examine(iscsitrace.read(tmp_path / "run" / "initiator.pcapng", tables=NEEDED).table).headline
    assert headline
    assert headline.name == wanted


def test_a_black_out_whose_timers_have_doubled_is_no_mtu(tmp_path: Path) -> None:
    """Beside the target: its ACKs seem to arrive, because the initiator retransmits only every two seconds."""
    simulate(tmp_path / "run", f"read {FAR} --fault black-out,for=3s,direction=to-initiator")
    diagnosis = examine(iscsitrace.read(tmp_path / "run" / "target.pcapng", tables=NEEDED).table)
    assert "path_mtu" not in diagnosis.found
    assert diagnosis.headline
    assert diagnosis.headline.name == "io_outage"
