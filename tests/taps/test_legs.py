"""The legs of each command against the truth of simulated runs, with faults of clocks and captures added."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from iscsitrace.taps.reading import TappedTables, read_taps
from tests.support.capture_file import read_records, write_pcapng
from tests.support.runs import Runs
from tests.support.tap_captures import Fault, TrueLegs, true_legs, with_fault

US = 1_000
MS = 1_000_000

RUNS = {
    "reads": "read --one-way-delay 4ms --block-size 64K --bytes 4M --service-delay exp:2ms",
    "reads with jitter": "read --one-way-delay 1ms --block-size 64K --bytes 8M --queue-depth 4 --set jitter=0.3ms "
    "--service-delay 1ms-3ms",
    "writes with R2T": "write --one-way-delay 4ms --block-size 256K --bytes 8M --service-delay exp:2ms "
    "--key FirstBurstLength=65536 --key InitialR2T=Yes --key ImmediateData=No",
    "writes without R2T": "write --one-way-delay 2ms --block-size 32K --bytes 2M --service-delay 1ms "
    "--set jitter=0.1ms",
    "mixed": "mixed --one-way-delay 5ms --rate 200Mbit --block-size 128K --bytes 8M --queue-depth 3 "
    "--set initiator-host-delay=0.3ms",
    "asymmetric": "read --set to-target-one-way-delay=2ms --set to-initiator-one-way-delay=10ms --block-size 64K "
    "--bytes 4M --service-delay 1ms-3ms",
    "asymmetric rates": "mixed --one-way-delay 3ms --set to-initiator-rate=100Mbit --set to-target-rate=1Gbit "
    "--block-size 64K --bytes 4M --queue-depth 2",
}

LATE = {
    "writes": "write --one-way-delay 5ms --block-size 32K --bytes 4M --queue-depth 1 --loss 2%",
    "reads": "read --one-way-delay 3ms --block-size 32K --bytes 4M --queue-depth 1 --loss 3%",
}
LOSSES = "mixed --one-way-delay 5ms --rate 200Mbit --block-size 128K --bytes 8M --queue-depth 3 --loss 0.3%"
REORDERING = "mixed --one-way-delay 5ms --rate 200Mbit --block-size 64K --bytes 8M --queue-depth 3 --set reorder=1%,3ms"

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
    "snaplen 96 at A, 256 at B": (Fault(snaplen=96), Fault(snaplen=256, shift_ns=MS)),
    "snaplen 256 at A, 96 at B": (Fault(snaplen=256), Fault(snaplen=96, shift_ns=MS)),
    "overlap in part": (Fault(last=0.7), Fault(first=0.3, shift_ns=1_000 * MS)),
    "one inside the other": (Fault(), Fault(first=0.2, last=0.8, shift_ns=1_000 * MS)),
    "any device at A": (Fault(is_doubled=True), Fault(shift_ns=MS)),
    "any device at B": (Fault(), Fault(is_doubled=True, shift_ns=MS)),
    "offload at A": (Fault(is_merged=True), Fault(shift_ns=MS)),
    "offload at B": (Fault(), Fault(is_merged=True, shift_ns=MS)),
    "offload at both": (Fault(is_merged=True), Fault(is_merged=True, shift_ns=MS)),
    "NAT": (Fault(), Fault(is_translated=True, shift_ns=1_000 * MS)),
    "proxy": (Fault(), Fault(is_translated=True, sequence_shift=123_456_789, shift_ns=-7 * MS)),
    "proxy that cuts PDUs anew": (
        Fault(),
        Fault(is_translated=True, sequence_shift=123_456_789, is_recut=True, shift_ns=-7 * MS),
    ),
}
CUT = [name for name in FAULTS if "snaplen" in name]
PAIRS = [
    (run, fault)
    for place, fault in enumerate(FAULTS)
    for number, run in enumerate(RUNS)
    if (number - place) % len(RUNS) in (0, 1, 3)
]
"""Each fault with three of the seven runs; any two runs have three faults in common."""


def tapped(runs: Runs, folder: Path, run: str, fault: str, *, are_synchronised: bool = False) -> TappedTables:
    simulated = runs(RUNS.get(run, run) + " --seed 5")
    near, far = FAULTS[fault]
    return read_taps(
        {
            "far": with_fault(simulated.capture("target"), folder / "far.pcapng", far),
            "near": with_fault(simulated.capture(), folder / "near.pcapng", near),
        },
        are_synchronised=are_synchronised,
    )


KEY = ("cmd_sn", "initiator_task_tag")


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


@lru_cache(maxsize=4)
def truth_of(folder: Path) -> dict[tuple[Any, ...], TrueLegs | None]:
    """Read once for the many faults of a run."""
    whole = iscsitrace.read(folder / "initiator.pcapng", tables=())
    return dict(zip(map(key, whole.cycles.rows(KEY)), true_legs(folder), strict=True))


def with_truth(trace: TappedTables, folder: Path) -> list[tuple[int, TrueLegs]]:
    """Place in the legs, and truth, of each command that has both."""
    truth = truth_of(folder)
    rows = trace.cycles.select(trace.command_legs.rows).rows(KEY)
    found = [(place, truth[key(row)]) for place, row in enumerate(rows)]
    return [(place, legs) for place, legs in found if legs is not None]


def allowed(truth_ns: int) -> float:
    return max(20 * US, 0.01 * truth_ns)


def asymmetry_ns(truth: list[TrueLegs]) -> int:
    """Half of the difference between the least delays of both directions, which no capture can show."""
    return abs(min(each.to_target_ns for each in truth) - min(each.to_initiator_ns for each in truth)) // 2


@pytest.mark.parametrize(("run", "fault"), PAIRS)
def test_legs_are_true_within_1_percent_or_20_microseconds(runs: Runs, tmp_path: Path, run: str, fault: str) -> None:
    trace = tapped(runs, tmp_path, run, fault)
    check(trace, runs(RUNS[run] + " --seed 5").folder)


@pytest.mark.parametrize("fault", FAULTS)
def test_legs_over_a_path_that_loses_packets(runs: Runs, tmp_path: Path, fault: str) -> None:
    """A capture that lacks a packet which the network then lost does not show when it was sent: no legs."""
    # without its headers, which the snaplen cuts in the middle of a packet, the PDU behind a loss is not found
    least = 0.05 if fault in CUT else 0.7
    check(tapped(runs, tmp_path, LOSSES, fault), runs(LOSSES + " --seed 5").folder, least)


@pytest.mark.parametrize("fault", FAULTS)
def test_legs_over_a_path_that_reorders_packets(runs: Runs, tmp_path: Path, fault: str) -> None:
    """SACK blocks show which of the packets that a capture lacks were overtaken, which made them up to 3 ms later."""
    check(tapped(runs, tmp_path, REORDERING, fault), runs(REORDERING + " --seed 5").folder)


@pytest.mark.parametrize("lacking", [0, 1], ids=["A", "B"])
@pytest.mark.parametrize("seed", [24, 25])
@pytest.mark.parametrize("line", LATE)
def test_no_legs_where_neither_tap_saw_the_first_copy(
    runs: Runs, tmp_path: Path, line: str, seed: int, lacking: int
) -> None:
    """A capture lacks the last packet of a burst, and the network loses it: what comes 200 ms later looks new.

    The identifications that the capture skips show that something was sent.
    """
    run = runs(f"{LATE[line]} --seed {seed}")
    for fault_seed in range(1, 5):
        faults = [Fault(), Fault(shift_ns=10 * MS)]
        faults[lacking] = replace(faults[lacking], dropped=0.05, seed=fault_seed)
        taps = {
            name: with_fault(run.capture(tap), tmp_path / f"{name}.pcapng", fault)
            for name, tap, fault in zip(("near", "far"), ("initiator", "target"), faults, strict=True)
        }
        check(read_taps(taps), run.folder, least=0.6)


def check(trace: TappedTables, folder: Path, least: float = 0.5) -> None:
    """Compares the legs with the truth; at least this share of the commands of both captures has some."""
    legs = trace.command_legs
    pairs = with_truth(trace, folder)
    both = len(trace.whole.matched)
    assert len(pairs) >= least * both > 1
    assert (legs.latency_ns == trace.cycles["latency_ns"][legs.rows]).all()
    # the two ways apart: what the least delays differ by is the clock's
    unknowable = asymmetry_ns([truth for _, truth in pairs])
    least_ns = min(each.to_target_ns for _, each in pairs)
    for place, truth in pairs:
        ways = legs.to_target_ns[place], legs.to_initiator_ns[place]
        assert abs(legs.initiator_ns[place] - truth.initiator_ns) <= allowed(truth.initiator_ns)
        assert abs(legs.target_ns[place] - truth.target_ns) <= allowed(truth.target_ns)
        network = truth.to_target_ns + truth.to_initiator_ns
        assert abs(ways[0] + ways[1] - network) <= allowed(network)
        rounds = 1 + (truth.to_target_ns > 1.5 * least_ns)
        for way, true_way in zip(ways, (truth.to_target_ns, truth.to_initiator_ns), strict=True):
            assert abs(way - true_way) <= allowed(true_way) + rounds * unknowable


def test_what_the_faults_do(runs: Runs, tmp_path: Path) -> None:
    """Offload leaves fewer packets, the ``any`` device twice as many; a proxy makes more PDUs of the same commands."""
    run = runs(RUNS["writes with R2T"] + " --seed 5")
    plain, merged, doubled, recut = (
        iscsitrace.read(with_fault(run.capture("target"), tmp_path / "fault.pcapng", fault), tables=("pdus",))
        for fault in (Fault(), Fault(is_merged=True), Fault(is_doubled=True), Fault(is_recut=True))
    )
    packets = [each.connections.raw("packets_to_target").item() for each in (plain, merged, recut)]
    assert 10 * packets[1] < packets[0] < packets[2]
    assert doubled.connections.raw("copied_packets_to_target").item() == pytest.approx(packets[0], rel=0.001)
    # data of 256 KiB in one PDU, behind the proxy in 22 of 12 KiB
    writes = plain.cycles["operation"] == "write"
    assert {each.cycles["data_pdu_count"][writes].max() for each in (plain, merged, doubled)} == {1}
    assert (recut.cycles["data_pdu_count"][writes] == 22).all()
    for each in (merged, doubled, recut):
        for name in ("command_first_ns", "data_last_ns", "status_ns"):
            assert np.abs(each.cycles.raw(name) - plain.cycles.raw(name))[writes].max() <= 10 * US


@pytest.mark.parametrize("fault", [name for name in FAULTS if "device" in name or "offload" in name])
@pytest.mark.parametrize("line", [LOSSES, RUNS["mixed"]])
def test_losses_over_a_path_where_captures_are_cut_anew(runs: Runs, tmp_path: Path, line: str, fault: str) -> None:
    """As many as the links dropped, and none is missing from a capture."""
    trace = tapped(runs, tmp_path, line, fault)
    link = json.loads((runs(line + " --seed 5").folder / "truth.json").read_text())["paths"][0]
    packets = trace.networks[0].packets
    assert packets is not None
    assert packets.count("missing_at_a") + packets.count("missing_at_b") == 0
    for is_to_target, way in ((True, "to_target"), (False, "to_initiator")):
        unclear = packets.count("cannot_tell_empty", to_target=is_to_target)
        lost = link[way]["counters"]["lost"]["count"]
        assert lost - unclear <= packets.count("lost", to_target=is_to_target) <= lost
        assert packets.count("cannot_tell", to_target=is_to_target) == unclear


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
        f"write --one-way-delay 3ms --block-size {size} --bytes {8 * size} --service-delay 2ms --set r2t-order={order} "
        f"--key InitialR2T=Yes --key ImmediateData=No --key MaxBurstLength=65536 --key FirstBurstLength=65536 "
        f"--key MaxOutstandingR2T={outstanding} --set target-key=MaxOutstandingR2T={outstanding} --seed 3"
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


@pytest.mark.parametrize("first_burst_bytes", [65_536, 32_768])
def test_unsolicited_data_and_r2ts_in_one_write(runs: Runs, first_burst_bytes: int) -> None:
    """The target grants the rest when the unsolicited data came: all that it takes itself is the service time."""
    run = runs(
        "write --one-way-delay 4ms --rate 100Mbit --block-size 256K --bytes 8M --service-delay 1ms --seed 5 "
        f"--key InitialR2T=No --key ImmediateData=No --key FirstBurstLength={first_burst_bytes}"
    )
    trace = read_taps({"near": run.capture(), "far": run.capture("target")})
    cycles, legs = trace.cycles, trace.command_legs
    is_both = (cycles["unsolicited_bytes"][legs.rows] > 0) & (cycles["r2t_count"][legs.rows] > 0)
    assert is_both.sum() >= 30
    assert np.abs(legs.target_ns[is_both] - MS).max() <= 20 * US
    assert (legs.latency_ns == cycles["latency_ns"][legs.rows]).all()
    # the way of the command or of its data, that of the R2T, of its data, and of the status
    assert (legs.network_ns[is_both] + legs.initiator_ns[is_both] >= 16 * MS).all()


def test_legs_of_read_and_write_by_hand(runs: Runs, tmp_path: Path) -> None:
    """The share that TCP held is part of its leg: of hosts that take no time, all of it."""
    run = runs("read --one-way-delay 4ms --block-size 512K --bytes 4M --set receive-buffer=64K --seed 2")
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


def taps_with_one_between(runs: Runs, folder: Path, fault: Fault, at: str) -> TappedTables:
    """Three taps, one with a fault. That between has the initiator's packets 1 ms later, the target's 1 ms earlier."""
    run = runs(RUNS["reads"] + " --seed 5")
    records, link_type = read_records(run.capture())
    moved = [
        replace(each, time_ns=each.time_ns + (MS if each.data[30:34] == bytes((198, 18, 0, 10)) else -MS))
        for each in records
    ]
    middle = write_pcapng(folder / "middle.pcapng", sorted(moved, key=lambda each: each.time_ns), link_type)
    files = {"target": run.capture("target"), "middle": middle, "initiator": run.capture()}
    return read_taps(files | {at: with_fault(files[at], folder / "fault.pcapng", fault)})


def test_three_taps_have_the_legs_of_the_outer_two(runs: Runs, tmp_path: Path) -> None:
    trace = taps_with_one_between(runs, tmp_path, Fault(), "middle")
    run = runs(RUNS["reads"] + " --seed 5")
    assert [tap.name for tap in trace.tap_list] == ["initiator", "middle", "target"]
    outer = read_taps({"a": run.capture(), "b": run.capture("target")})
    assert np.array_equal(trace.command_legs.to_target_ns, outer.command_legs.to_target_ns)
    assert [row["delay_a_to_b_p50_ns"] for row in trace.taps.rows()] == [MS, 3 * MS]


@pytest.mark.parametrize("at", ["initiator", "middle", "target"])
@pytest.mark.parametrize(
    "fault",
    [Fault(drift_ppm=150, shift_ns=MS), Fault(step_ns=40 * MS), Fault(step_ns=-40 * MS, step_after=0.3)],
    ids=["drift", "step", "step back"],
)
def test_three_taps_of_which_one_has_a_bad_clock(runs: Runs, tmp_path: Path, fault: Fault, at: str) -> None:
    trace = taps_with_one_between(runs, tmp_path, fault, at)
    assert [tap.name for tap in trace.tap_list] == ["initiator", "middle", "target"]
    check(trace, runs(RUNS["reads"] + " --seed 5").folder)
    steps = [row["clock_steps"] for row in trace.taps.rows()]
    assert steps == [
        int(bool(fault.step_ns)) * (at in ends) for ends in (("initiator", "middle"), ("middle", "target"))
    ]
    for row, delay_ns in zip(trace.taps.rows(), (MS, 3 * MS), strict=True):
        for way in ("delay_a_to_b_p50_ns", "delay_b_to_a_p50_ns"):
            assert abs(row[way] - delay_ns) <= 20 * US
