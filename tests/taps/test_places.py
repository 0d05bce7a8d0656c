"""The verdict by place, of simulated runs whose slow place is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iscsitrace.taps import places
from iscsitrace.taps.reading import TappedTables, read_taps
from tests.support.runs import Runs
from tests.support.tap_captures import Fault, with_fault

MS = 1_000_000


def tapped(runs: Runs, line: str) -> TappedTables:
    run = runs(line)
    return read_taps({"near": run.capture(), "far": run.capture("target")})


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("read --one-way-delay 1ms --block-size 16K --bytes 1M --service-delay 20ms", "target"),
        ("write --one-way-delay 1ms --block-size 16K --bytes 1M --service-delay 20ms", "target"),
        ("read --one-way-delay 10ms --block-size 16K --bytes 1M --service-delay 1ms", "network"),
        ("read --one-way-delay 1ms --block-size 256K --bytes 8M --rate 20Mbit --queue-depth 4", "network"),
        ("read --one-way-delay 8ms --block-size 512K --bytes 4M --set receive-buffer=64K", "network"),
        ("read --one-way-delay 4ms --block-size 256K --bytes 8M --set to-initiator-loss=2%", "network"),
    ],
)
def test_most_of_the_time_is_where_it_was_put(runs: Runs, line: str, place: str) -> None:
    trace = tapped(runs, line)
    (verdict,) = places.verdicts(trace)
    assert max(verdict.shares, key=lambda each: verdict.shares[each]) == place
    assert verdict.shares[place] > 0.75
    assert sum(verdict.shares.values()) == pytest.approx(1)
    assert sum(verdict.parts_ns.values()) == verdict.latency_ns
    slow = {each.place for each in places.findings(trace) if each.name.startswith("slow_at_")}
    assert slow == ({place} if place != "network" else set())


def test_a_part_of_the_time_has_its_own_verdict(runs: Runs) -> None:
    trace = tapped(runs, "read --one-way-delay 10ms --block-size 16K --bytes 1M --service-delay 1ms")
    starts = trace.cycles.raw("command_first_ns")[trace.command_legs.rows]
    middle = int(starts[len(starts) // 2])
    parts = [places.verdicts(trace, span) for span in ((0, middle - 1), (middle, 1 << 62))]
    (whole,) = places.verdicts(trace)
    assert [len(each) for each in parts] == [1, 1]
    assert sum(each.command_count for (each,) in parts) == whole.command_count
    assert places.verdicts(trace, (0, 1)) == []


def test_a_slow_initiator_by_arithmetic(runs: Runs) -> None:
    """Each R2T waits 20 ms for the host; the write has one R2T, and no other host takes time."""
    trace = tapped(
        runs,
        "write --one-way-delay 1ms --block-size 64K --bytes 1M --set initiator-host-delay=20ms "
        "--key InitialR2T=Yes --key ImmediateData=No",
    )
    (verdict,) = places.verdicts(trace)
    assert verdict.parts_ns["initiator"] == pytest.approx(20 * MS, rel=0.02)
    assert [each.name for each in places.findings(trace)] == ["slow_at_initiator"]


@pytest.mark.parametrize("tap", ["near", "far"])
def test_packets_that_a_capture_lacks_are_no_losses(runs: Runs, tmp_path: Path, tap: str) -> None:
    run = runs("read --one-way-delay 4ms --block-size 64K --bytes 4M --seed 5")
    files = {"near": run.capture(), "far": run.capture("target")}
    files[tap] = with_fault(files[tap], tmp_path / "thin.pcapng", Fault(dropped=0.05))
    found = {each.name: each for each in places.findings(read_taps(files))}
    assert "lost_between_taps" not in found
    assert found["capture_lacks_packets"].place == tap


@pytest.mark.parametrize("direction", ["to-target", "to-initiator"])
def test_losses_of_one_direction(runs: Runs, direction: str) -> None:
    line = f"mixed --one-way-delay 4ms --block-size 64K --bytes 8M --set {direction}-loss=1% --seed 5"
    trace = tapped(runs, line)
    row = trace.taps.row(0)
    link = json.loads((runs(line).folder / "truth.json").read_text())["paths"][0]
    lost = [link[way]["counters"]["lost"]["count"] for way in ("to_target", "to_initiator")]
    assert sum(lost) > 0
    # nothing says where an ACK went that a later one replaced
    packets = trace.networks[0].packets
    assert packets is not None
    unclear = [packets.count("cannot_tell_empty", to_target=way) for way in (True, False)]
    sure = [row["lost_a_to_b_packets"], row["lost_b_to_a_packets"]]
    assert [one + other for one, other in zip(sure, unclear, strict=True)] == lost
    assert max(sure) > 0.5 * sum(lost)
    assert (row["missing_at_a_packets"], row["missing_at_b_packets"]) == (0, 0)
    (found,) = (each for each in places.findings(trace) if each.name == "lost_between_taps")
    assert direction.replace("-", " the ") in found.text


def test_each_direction_names_the_tap_beside_its_sender(runs: Runs) -> None:
    run = runs("read --one-way-delay 1ms --block-size 16K --bytes 1M --service-delay 20ms")
    both = {"near": run.capture(), "far": run.capture("target")}
    whole = read_taps(both, tables=("senders", "window"))
    assert [whole.tap_of(0, to_target=each) for each in (True, False)] == ["tap near", "tap far"]
