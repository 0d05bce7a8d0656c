"""Nagle's algorithm and delayed ACKs beside the sender, of which a busy host shows the end a little late."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from tests.support.recordings import captures_folder
from tests.support.runs import Runs

RECORDED: Final = captures_folder() / "slow" / "55_tgt_nagle.json"


@pytest.mark.skipif(not RECORDED.exists(), reason="no recorded captures")
@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_each_hold_of_a_kernel_is_found(tap: str) -> None:
    """120 reads, in each of which tgtd's last segment of 560 bytes waited for an ACK."""
    capture = RECORDED.with_name(f"{RECORDED.stem}.{tap}.pcap.gz")
    opinion = examine(iscsitrace.read(capture, tables=NEEDED).table).sessions[0]
    text = next(each.text for each in opinion.findings if each.name == "held_for_ack")
    found = re.match(r"(\d+) commands waited while the target's TCP held data back", text)
    assert found
    assert int(found[1]) in (119, 120)
    assert opinion.time
    assert opinion.time.shares["target_service"] <= 0.06
    assert "slow_target" not in {each.name for each in opinion.findings if each.severity != "info"}


@pytest.mark.parametrize(
    "options",
    [
        # an answer that follows the ACK of the one before, which is held back for 40 ms, by chance
        "read --block-size 4K --bytes 400K --queue-depth 2 --serial --service-delay 42ms",
        "read --block-size 4K --bytes 400K --queue-depth 2 --serial --service-delay 45ms",
        # a target that is steady and fast
        "read --block-size 4K --bytes 400K --service-delay 1ms",
        "write --block-size 4K --bytes 400K --queue-depth 2 --serial --service-delay 42ms",
    ],
)
@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_a_steady_target_is_not_taken_for_a_hold(options: str, tap: str, tmp_path: Path) -> None:
    made = Runs(tmp_path)(f"{options} --one-way-delay 2ms --rate 1Gbit")
    opinion = examine(iscsitrace.read(made.capture(tap), tables=NEEDED).table).sessions[0]
    assert "held_for_ack" not in {each.name for each in opinion.findings}
