"""The legs of each command against the truth of simulated runs, with faults of clocks and captures added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from iscsitrace.analysis.taps.reading import TappedTrace, read_taps
from tests.support.capture_file import read_records, write_pcapng
from tests.support.runs import Runs
from tests.support.tap_captures import Fault, TrueLegs, true_legs, with_fault

US = 1_000
MS = 1_000_000

RUNS = {
    "reads": "read --one-way-delay 4ms --block-size 64K --bytes 4M --service-delay exp:2ms",
    "reads with jitter": "read --one-way-delay 1ms --block-size 64K --bytes 8M --queue-depth 4 --jitter 0.3ms "
    "--service-delay 1ms-3ms",
    "writes with R2T": "write --one-way-delay 4ms --block-size 256K --bytes 8M --service-delay exp:2ms "
    "--key FirstBurstLength=65536 --key InitialR2T=Yes --key ImmediateData=No",
    "writes without R2T": "write --one-way-delay 2ms --block-size 32K --bytes 2M --service-delay 1ms --jitter 0.1ms",
    "mixed": "mixed --one-way-delay 5ms --rate 200Mbit --block-size 128K --bytes 8M --queue-depth 3 "
    "--initiator-host-delay 0.3ms",
    "asymmetric": "read --to-target-one-way-delay 2ms --to-initiator-one-way-delay 10ms --block-size 64K --bytes 4M "
    "--service-delay 1ms-3ms",
    "asymmetric rates": "mixed --one-way-delay 3ms --to-initiator-rate 100Mbit --to-target-rate 1Gbit "
    "--block-size 64K --bytes 4M --queue-depth 2",
}

LOSSES = "mixed --one-way-delay 5ms --rate 200Mbit --block-size 128K --bytes 8M --queue-depth 3 --loss 0.3%"
REORDERING = "mixed --one-way-delay 5ms --rate 200Mbit --block-size 64K --bytes 8M --queue-depth 3 --reorder 1%,3ms"

FAULTS: dict[str, tuple[Fault, Fault]] = {
    "one clock": (Fault(), Fault()),
    "an hour apart": (Fault(), Fault(shift_ns=3_600_000 * MS)),
    "drift of 120 ppm": (Fault(), Fault(shift_ns=-5 * MS, drift_ppm=120)),
    "drift of -200 ppm at A": (Fault(drift_ppm=-200), Fault(shift_ns=50 * MS)),
    "step at B": (Fault(), Fault(shift_ns=MS, step_ns=50 * MS)),
    "step back at A": (Fault(step_ns=-30 * MS, step_after=0.7), Fault()),
    "A lacks 5 %": (Fault(dropped=0.05), Fault(shift_ns=10 * MS)),
    "B lacks 5 %": (Fault(), Fault(shift_ns=10 * MS, dropped=0.05)),
    "snaplen 128 at B": (Fault(), Fault(snaplen=128, shift_ns=1_000 * MS)),
    "overlap in part": (Fault(last=0.7), Fault(first=0.3, shift_ns=1_000 * MS)),
    "NAT": (Fault(), Fault(is_translated=True, shift_ns=1_000 * MS)),
    "proxy": (Fault(), Fault(is_translated=True, sequence_shift=123_456_789, shift_ns=-7 * MS)),
}


def tapped(runs: Runs, folder: Path, run: str, fault: str, *, are_synchronised: bool = False) -> TappedTrace:
    simulated = runs(RUNS.get(run, run) + " --seed 5")
    near, far = FAULTS[fault]
    return read_taps(
        {
            "far": with_fault(simulated.capture("target"), folder / "far.pcapng", far),
            "near": with_fault(simulated.capture(), folder / "near.pcapng", near),
        },
        are_synchronised=are_synchronised,
    )


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("cmd_sn", "initiator_task_tag", "lba"))


def with_truth(trace: TappedTrace, folder: Path) -> list[tuple[int, TrueLegs]]:
    """Place in the legs, and truth, of each command that has both."""
    whole = iscsitrace.read(folder / "initiator.pcapng", tables=())
    truth = dict(zip(map(key, whole.cycles.rows()), true_legs(folder), strict=True))
    rows = [trace.cycles.row(row) for row in trace.command_legs.rows.tolist()]
    found = [(place, truth[key(row)]) for place, row in enumerate(rows)]
    return [(place, legs) for place, legs in found if legs is not None]


def allowed(truth_ns: int) -> float:
    return max(20 * US, 0.01 * truth_ns)


def asymmetry_ns(truth: list[TrueLegs]) -> int:
    """Half of the difference between the least delays of both directions, which no capture can show."""
    return abs(min(each.to_target_ns for each in truth) - min(each.to_initiator_ns for each in truth)) // 2


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("run", RUNS)
def test_legs_are_true_within_1_percent_or_20_microseconds(runs: Runs, tmp_path: Path, run: str, fault: str) -> None:
    trace = tapped(runs, tmp_path, run, fault)
    check(trace, runs(RUNS[run] + " --seed 5").folder)


@pytest.mark.parametrize("fault", [name for name in FAULTS if "lacks" not in name and name != "snaplen 128 at B"])
@pytest.mark.parametrize("line", [LOSSES, REORDERING])
def test_legs_over_a_bad_path(runs: Runs, tmp_path: Path, line: str, fault: str) -> None:
    """A capture that lacks a packet which the network then lost shows nobody when it was sent."""
    check(tapped(runs, tmp_path, line, fault), runs(line + " --seed 5").folder)


def check(trace: TappedTrace, folder: Path) -> None:
    """Compares the legs with the truth."""
    legs = trace.command_legs
    pairs = with_truth(trace, folder)
    both = len(trace.whole.matched)
    assert len(pairs) >= 0.5 * both > 5
    assert (legs.latency_ns == trace.cycles["latency_ns"][legs.rows]).all()
    # the two ways apart: what the least delays differ by is the clock's
    unknowable = asymmetry_ns([truth for _, truth in pairs])
    for place, truth in pairs:
        ways = legs.to_target_ns[place], legs.to_initiator_ns[place]
        assert abs(legs.initiator_ns[place] - truth.initiator_ns) <= allowed(truth.initiator_ns)
        assert abs(legs.target_ns[place] - truth.target_ns) <= allowed(truth.target_ns)
        network = truth.to_target_ns + truth.to_initiator_ns
        assert abs(ways[0] + ways[1] - network) <= allowed(network)
        rounds = 1 + (truth.to_target_ns > 1.5 * min(each.to_target_ns for _, each in pairs))
        for way, true_way in zip(ways, (truth.to_target_ns, truth.to_initiator_ns), strict=True):
            assert abs(way - true_way) <= allowed(true_way) + rounds * unknowable


@pytest.mark.parametrize("run", RUNS)
def test_with_synchronised_clocks_every_leg_is_exact(runs: Runs, tmp_path: Path, run: str) -> None:
    trace = tapped(runs, tmp_path, run, "one clock", are_synchronised=True)
    legs = trace.command_legs
    pairs = with_truth(trace, runs(RUNS[run] + " --seed 5").folder)
    assert len(pairs) == len(trace.cycles)
    for place, truth in pairs:
        found = [legs.initiator_ns, legs.to_target_ns, legs.target_ns, legs.to_initiator_ns]
        assert [int(leg[place]) for leg in found] == [
            truth.initiator_ns,
            truth.to_target_ns,
            truth.target_ns,
            truth.to_initiator_ns,
        ]


@pytest.mark.parametrize("bursts", [2, 4, 8])
@pytest.mark.parametrize("order", ["in-order", "reverse"])
@pytest.mark.parametrize("outstanding", [1, 4])
def test_each_r2t_that_is_waited_for_pays_both_ways(runs: Runs, bursts: int, order: str, outstanding: int) -> None:
    """By arithmetic: without line rate, jitter and loss every way takes 3 ms, and each round has two of them."""
    size = 65_536 * bursts
    run = runs(
        f"write --one-way-delay 3ms --block-size {size} --bytes {8 * size} --service-delay 2ms --r2t-order {order} "
        f"--key InitialR2T=Yes --key ImmediateData=No --key MaxBurstLength=65536 --key FirstBurstLength=65536 "
        f"--key MaxOutstandingR2T={outstanding} --target-key MaxOutstandingR2T={outstanding} --seed 3"
    )
    trace = read_taps({"a": run.capture(), "b": run.capture("target")})
    legs = trace.command_legs
    is_write = trace.cycles["operation"][legs.rows] == "write"
    assert is_write.sum() == 8
    ways = legs.to_target_ns[is_write] // (3 * MS)
    assert (legs.to_target_ns[is_write] == ways * 3 * MS).all()
    assert (legs.to_initiator_ns[is_write] == legs.to_target_ns[is_write]).all()
    # the command and at least one round; with one R2T at a time every round
    assert ((ways >= 2) & (ways <= 1 + bursts)).all()
    if outstanding == 1:
        assert (ways == 1 + bursts).all()
    assert (legs.target_ns[is_write] == 2 * MS).all()


def test_legs_of_read_and_write_by_hand(runs: Runs, tmp_path: Path) -> None:
    """The share that TCP held is part of its leg: of hosts that take no time, all of it."""
    run = runs("read --one-way-delay 4ms --block-size 512K --bytes 4M --receive-buffer 64K --seed 2")
    legs = read_taps({"a": run.capture(), "b": run.capture("target")}).command_legs
    assert (legs.target_held_ns <= legs.target_ns).all()
    # a window of 64 KiB needs eight RTTs for 512 KiB: the target's host itself takes nothing
    large = legs.latency_ns > 50 * MS
    assert large.sum() >= 7
    assert (legs.target_held_ns[large] >= 0.99 * legs.target_ns[large]).all()
    assert (legs.network_ns[large] >= 0.99 * legs.latency_ns[large]).all()


def test_a_slow_target_holds_nothing(runs: Runs) -> None:
    run = runs("read --one-way-delay 1ms --block-size 16K --bytes 1M --service-delay 20ms --seed 2")
    trace = read_taps({"a": run.capture(), "b": run.capture("target")})
    legs = trace.command_legs
    is_read = trace.cycles["operation"][legs.rows] == "read"
    # the first reads also wait for the first congestion window, 10 segments
    own = legs.target_ns[is_read] - legs.target_held_ns[is_read]
    assert np.abs(own - 20 * MS).max() <= 20 * US


def test_three_taps_have_the_legs_of_the_outer_two(runs: Runs, tmp_path: Path) -> None:
    """A tap between: it has the initiator's packets 1 ms later, and the target's 1 ms earlier."""
    run = runs(RUNS["reads"] + " --seed 5")
    records, link_type = read_records(run.capture())
    moved = [
        type(each)(
            each.time_ns + (MS if each.data[30:34] == bytes((198, 18, 0, 10)) else -MS), each.data, each.original_length
        )
        for each in records
    ]
    middle = write_pcapng(tmp_path / "middle.pcapng", sorted(moved, key=lambda each: each.time_ns), link_type)
    trace = read_taps({"target": run.capture("target"), "middle": middle, "initiator": run.capture()})
    assert [tap.name for tap in trace.tap_list] == ["initiator", "middle", "target"]
    outer = read_taps({"a": run.capture(), "b": run.capture("target")})
    assert np.array_equal(trace.command_legs.to_target_ns, outer.command_legs.to_target_ns)
    assert [row["delay_a_to_b_p50_ns"] for row in trace.taps.rows()] == [MS, 3 * MS]
