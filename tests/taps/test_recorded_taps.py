"""Captures of both ends of real hosts: clocks and delays against what the hosts measured themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iscsitrace.taps import places
from iscsitrace.taps.reading import TappedTables, read_taps
from tests.support.recordings import captures_folder

US = 1_000
MS = 1_000_000
NEAR = sorted(captures_folder().glob("*.initiator.pcap*"))
pytestmark = pytest.mark.skipif(not NEAR, reason="no recorded captures")


def read_pair(near: Path) -> tuple[TappedTables, dict[str, Any]]:
    far = near.with_name(near.name.replace(".initiator.", ".target."))
    truth = json.loads((near.parent / f"{near.name.partition('.')[0]}.json").read_text())
    return read_taps({"target": far, "initiator": near}), truth


def named(name: str) -> TappedTables:
    return read_pair(next(near for near in NEAR if near.name.startswith(name)))[0]


def test_there_are_ten() -> None:
    assert len(NEAR) >= 10


@pytest.mark.parametrize("near", NEAR, ids=lambda near: near.name.partition(".")[0])
def test_clock_delays_and_legs(near: Path) -> None:
    trace, truth = read_pair(near)
    row = trace.taps.row(0)
    assert (row["tap_a"], row["tap_b"]) == ("initiator", "target")
    # the hosts compared their clocks before and after, each to half the RTT of that
    measured = [truth["clock"][f"target_minus_initiator_us_{when}"] for when in ("before", "after")]
    low = min(each["offset_us"] - each["rtt_us"] / 2 for each in measured) * US
    high = max(each["offset_us"] + each["rtt_us"] / 2 for each in measured) * US
    assert row["clock_offset_low_ns"] <= high
    assert row["clock_offset_high_ns"] >= low
    true_offset = sum(each["offset_us"] for each in measured) / 2 * US
    assert row["clock_offset_low_ns"] <= true_offset <= row["clock_offset_high_ns"]
    delays = truth["measured_one_way_delay_ms"]
    out = delays["initiator_to_target"]
    back = [each for name, each in delays.items() if name.startswith("target_to_initiator")]
    # at most half the least RTT between the taps. The recorded delays took the offset for constant, between the two
    # measured ones; and the least of each direction are not of one round trip
    drifted_ns = abs(measured[0]["offset_us"] - measured[1]["offset_us"]) * US
    least_rtt_ns = (out["min"] + min(each["min"] for each in back)) * MS + drifted_ns
    assert row["clock_offset_high_ns"] - row["clock_offset_low_ns"] <= least_rtt_ns * 1.05
    # the medians, once the error of the offset, which no capture can show, is taken out
    error = row["clock_offset_ns"] - true_offset
    for column, sign, each in (("delay_a_to_b_p50_ns", 1, [out]), ("delay_b_to_a_p50_ns", -1, back)):
        true_p50 = [one["p50"] * MS for one in each]
        found = row[column] + sign * error
        assert min(true_p50) * 0.95 - 0.2 * MS <= found <= max(true_p50) * 1.05 + 0.2 * MS
    legs = trace.command_legs
    assert len(legs) >= 0.9 * len(trace.cycles)
    assert (legs.latency_ns == trace.cycles["latency_ns"][legs.rows]).all()


@pytest.mark.parametrize("name", ["34_shared_line", "19_rate-limited", "04_read_loss1pct", "08_read_rwnd-limited"])
def test_a_limit_of_the_network_is_not_taken_for_a_slow_target(name: str) -> None:
    """A full line, losses, a small window: the storage of none of them was slow."""
    trace = named(name)
    for verdict in places.verdicts(trace):
        assert verdict.shares["network"] > 0.9
        assert sum(verdict.parts_ns.values()) == verdict.latency_ns
    assert not {"slow_at_target", "slow_at_initiator"} & {each.name for each in places.findings(trace)}


def test_losses_have_their_place() -> None:
    """netem dropped packets of the target's host only."""
    lost = [each for each in places.findings(named("04_read_loss1pct")) if each.name == "lost_between_taps"]
    assert len(lost) == 1
    assert "lost 36 of" in lost[0].text
    assert "to the initiator" in lost[0].text


def test_packets_wait_in_one_direction() -> None:
    found = [each.text for each in places.findings(named("34_shared_line")) if each.name == "queue_between_taps"]
    assert len(found) == 1
    assert found[0].endswith(
        "take 102.5 ms to the initiator and 3.9 ms the other way (medians, ± 2.3 ms as the clocks are known)"
    )


def test_clocks_that_are_not_compared_show_no_asymmetry() -> None:
    """2 ms out and 12 ms back, in truth: 7 ms and 7 ms would look alike."""
    assert "queue_between_taps" not in {each.name for each in places.findings(named("19_asymmetric"))}
