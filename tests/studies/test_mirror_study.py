"""The mirrored-write study: pairs of targets, the penalty of a queue that drops, and the depth that hides a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iscsitrace.lab import simulation
from iscsitrace.lab.settings import structs as settings
from iscsitrace.studies import definition, measured
from iscsitrace.studies.points import Point, of_experiment

LINE = 100e6 / 8
MS = 1_000_000
POINTS = of_experiment(definition.load("mirror-study"), "simulated")


def at(arm: str, **where: Any) -> Point:
    wanted = {name.replace("__", ".").replace("_", "-"): value for name, value in where.items()}
    (found,) = [
        point
        for point in POINTS
        if point.arm == arm and all(point.values[name] == value for name, value in wanted.items())
    ]
    return found


def throughput(folder: Path, point: Point, calls: int) -> float:
    """Bytes per second of a run with so many calls, after the first three."""
    values = point.values | {"workload.calls": calls}
    truth = simulation.run(settings.of_run(values, 1), folder, lambda *_: False, capture_at=())
    return measured.steady_stretch(truth, values, 3).throughput_bytes_per_s


def test_pairs_of_unequal_targets_have_tcp_and_iscsi_tuned() -> None:
    tuned = next(point for point in POINTS if point.arm == "mirror, TCP and iSCSI tuned")
    pairs = [point for point in POINTS if point.arm.startswith("unequal") and "standard" not in point.arm]
    assert len(pairs) == 4 * 11 + 6 + 11 + 4
    for point in pairs:
        for name in ("keys.InitialR2T", "keys.FirstBurstLength", "keys.MaxBurstLength"):
            assert point.values[f"initiator.{name}"] == tuned.values[f"initiator.{name}"]
        assert point.values["tcp.window"] == 16 << 20
        assert point.values["tcp.congestion-control"] == "reno"
    assert tuned.values["initiator.keys.InitialR2T"] is False


def test_points_with_losses_are_repeated_as_in_the_study() -> None:
    lossy = [point for point in POINTS if point.values["link.loss"]]
    assert {point.repeat for point in lossy} == set(range(1, 21))


def test_a_queue_that_drops_makes_an_unequal_pair_slower(tmp_path: Path) -> None:
    arm = "unequal, 100 ms and another, queue of 1000 packets"
    near, far = (
        throughput(tmp_path / str(other), at(arm, link__target_delays=[50 * MS, other * MS]), 8) for other in (0, 50)
    )
    # the claim's limit; without drops the near copy leaves the line to the far one
    assert near / far < 0.8


def test_eight_commands_leave_room_for_the_second_copy(tmp_path: Path) -> None:
    one, two = (
        throughput(
            tmp_path / arm,
            at(f"{arm}, TCP tuned, eight commands", link__one_way_delay=50 * MS, link__loss=0.0),
            5,
        )
        for arm in ("one target", "mirror")
    )
    # eight commands take three round trips: the command, and an R2T for each half of its data
    assert one == pytest.approx(8 * (128 << 10) / 0.3, rel=0.06)
    assert one < LINE / 2
    assert one / two == pytest.approx(1, abs=0.05)
