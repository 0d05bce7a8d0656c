"""The mirrored-write study: pairs of targets, the penalty of a queue that drops, and the depth that hides a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iscsitrace.lab import simulation
from iscsitrace.lab.settings import structs as settings
from iscsitrace.studies import definition, measured, records, verdicts
from iscsitrace.studies.points import DesignPoint, of_experiment
from iscsitrace.studies.repeats import MeasuredValue, Row

LINE = 100e6 / 8
MS = 1_000_000
STUDY = definition.load("mirror-study")
POINTS = of_experiment(STUDY, "simulated")


def at(arm: str, **where: Any) -> DesignPoint:
    wanted = {name.replace("__", ".").replace("_", "-"): value for name, value in where.items()}
    (found,) = [
        point
        for point in POINTS
        if point.arm == arm and all(point.values[name] == value for name, value in wanted.items())
    ]
    return found


def throughput(folder: Path, point: DesignPoint, calls: int) -> float:
    """Bytes per second of a run with so many calls, after the first three."""
    values = point.values | {"workload.calls": calls}
    truth = simulation.run(settings.of_run(values, 1), folder, lambda *_: False, capture_at=())
    return measured.steady_stretch(truth, values, 3).throughput_bytes_per_s


def test_pairs_of_unequal_targets_have_tcp_and_iscsi_tuned_and_one_queue() -> None:
    tuned = next(point for point in POINTS if point.arm == "mirror, TCP and iSCSI tuned")
    pairs = [point for point in POINTS if point.arm.startswith(("equal", "unequal")) and "standard" not in point.arm]
    assert len(pairs) == 5 * 11 + 7
    for point in pairs:
        for name in ("keys.InitialR2T", "keys.FirstBurstLength", "keys.MaxBurstLength"):
            assert point.values[f"initiator.{name}"] == tuned.values[f"initiator.{name}"]
        assert point.values["tcp.window"] == 16 << 20
        assert point.values["tcp.congestion-control"] == "reno"
    assert tuned.values["initiator.keys.InitialR2T"] is False
    # the study's 20 writes, through the queue of Linux
    queued = [point for point in pairs if point.arm != "unequal, nothing dropped"]
    assert {(point.values["link.access-queue-packets"], point.values["workload.calls"]) for point in queued} == {
        (1000, 23)
    }


def test_losses_are_those_of_figure_5() -> None:
    """TCP and iSCSI tuned, one target and a mirror."""
    lossy = [point for point in POINTS if point.values["link.loss"]]
    assert {point.arm for point in lossy} == {"one target, TCP and iSCSI tuned", "mirror, TCP and iSCSI tuned"}
    assert {point.repeat for point in lossy} == set(range(1, 9))
    for claim in STUDY.claims:
        losses = {
            place["link.loss"].value for spot in claim.spots.values() if "link.loss" in (place := claim.place(spot))
        }
        if claim.name.startswith("e, ") and claim.name != "e, loss":
            assert losses == {0.0001}
    (against,) = [claim for claim in STUDY.claims if claim.name == "e, loss"]
    for check in against.checks:
        # a loss beside no loss, at the same distance
        assert check.over is not None
        of, over = ({name: each.value for name, each in spot.settings.items()} for spot in (check.of, check.over))
        assert (of.pop("link.loss"), over.pop("link.loss")) == (0.0001, 0)
        assert (check.of.arm, of) == (check.over.arm, over)


def test_every_pair_of_figure_6_is_in_the_queue_of_all() -> None:
    """No check takes its two places from different queues."""
    for claim in STUDY.claims:
        if claim.is_own:
            continue
        queues = {
            point.values["link.access-queue-packets"]
            for spot in claim.spots.values()
            for point in POINTS
            if point.arm == spot.arm and "link.target-delays" in spot.settings
        }
        assert queues <= {1000}


def verdicts_with(change: Callable[[Row], float | None]) -> dict[str, str]:
    """The verdicts on the recorded run, with other throughputs where ``change`` has one."""
    run = records.of_world("mirror-study", "simulated")
    assert run is not None
    rows = []
    for row in records.rows_of(STUDY, run):
        value = change(row)
        rows.append(row if value is None else replace(row, estimates={"throughput": MeasuredValue(value)}))
    return {each.name: each.verdict for each in verdicts.judge(STUDY.claims, rows)}


def test_claims_on_pairs_fail_where_the_second_copy_alone_decides() -> None:
    """What a queue that drops nothing makes of them: 5.97 MB/s less what the RTT to target 2 costs."""

    def change(row: Row) -> float | None:
        delays = row.values.get("link.target-delays")
        return 5.97 - 0.0064 * delays[1] / MS if delays and row.arm.startswith(("equal", "unequal, ")) else None

    recorded, changed = verdicts_with(lambda _: None), verdicts_with(change)
    for name in ("f, the farther target", "g"):
        assert recorded[name] == "reproduced"
        assert changed[name] in {"partly", "not reproduced"}


def test_the_claim_on_losses_fails_where_the_distance_alone_lowers_the_rate() -> None:
    run = records.of_world("mirror-study", "simulated")
    assert run is not None
    rates = {
        (row.arm, row.values["link.one-way-delay"]): row.means["throughput"]
        for row in records.rows_of(STUDY, run)
        if row.values["link.loss"] == 0
    }
    lossless = verdicts_with(
        lambda row: rates[row.arm, row.values["link.one-way-delay"]] if row.values["link.loss"] else None
    )
    # that TCP is the bottleneck is not tested
    assert verdicts_with(lambda _: None)["e, loss"] == "partly"
    assert lossless["e, loss"] == "not reproduced"


def test_a_queue_that_drops_makes_an_unequal_pair_slower(tmp_path: Path) -> None:
    arm = "unequal, 100 ms and another"
    near, far = (
        throughput(tmp_path / str(other), at(arm, link__target_delays=[50 * MS, other * MS]), 8) for other in (0, 50)
    )
    # of the first writes more than of twenty; without drops the near copy leaves the line to the far one
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
