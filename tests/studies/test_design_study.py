"""The study of initiator designs: programs and worlds of a definition, costs of points, and a few of its points."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from iscsitrace.errors import InputInvalid
from iscsitrace.lab.settings import structs as settings
from iscsitrace.plots import style
from iscsitrace.plots.experiment import draw_bars
from iscsitrace.studies import (
    charts,
    definition,
    expected,
    experiment,
    measured,
    points,
    repeats,
    report,
    results,
    tables,
    verdicts,
)
from iscsitrace.studies.definition import ALL_WORLDS, BudgetFigure, Definition
from iscsitrace.studies.quantities import PointResult
from iscsitrace.studies.repeats import MeasuredValue
from iscsitrace.studies.results import Results
from iscsitrace.tables.schema import TABLES
from tests.support.lab import Truth, judge_run, needs_root

PAYLOAD_SHARE = 1448 / 1538
"""Payload share of a full segment: 1448 bytes, 52 of IP and TCP with timestamps, 14 of Ethernet, 24 not captured."""
SLOWER_LINE = "events, a line as fast as the study's sockets"
SLOWER_SOCKET = "socket, a line as fast as the study's sockets"
MIB_NS = (1048576 + 48) / PAYLOAD_SHARE * 8
"""Time of 1 MiB in one PDU on a line of 1 Gbit/s."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Definition, Results, Path]:
    """A few points of the study in the simulated world, with their figures."""
    folder = tmp_path_factory.mktemp("designs")
    whole = definition.load("design-study").text
    sizes = '["512B", "1K", "2K", "4K", "8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M"]'
    assert sizes in whole
    small = whole.replace(sizes, '["512B", "64K", "128K", "1M"]').replace(
        '["64K", "128K", "256K", "512K", "1M"]', '["64K", "128K", "1M"]'
    )
    # blocks of 512 B are the same after a tenth of them
    small = small.replace('bytes = "16M"', 'bytes = "12M"\nseconds = 0.1')
    (folder / "small.toml").write_text(small)
    found = definition.load(folder / "small.toml")
    made = points.of_experiment(found, "simulated")
    experiment.prepare(found, made, folder / "run", is_forced=False)
    return (
        found,
        experiment.carry_out(found, made, folder / "run", lambda _: False, jobs=1, keep="none"),
        folder / "run",
    )


def point(found: Results, arm: str, rate: str, size: str) -> PointResult:
    (one,) = [
        each
        for each in found.points
        if (each.arm, each.grid["link.rate"], each.grid["workload.block-size"]) == (arm, rate, size)
    ]
    assert one.error is None, one.error
    return one


# ---- definition


def test_each_world_has_its_arms() -> None:
    found = definition.load("design-study")
    arms = {world: {each.arm for each in points.of_experiment(found, world)} for world in ALL_WORLDS}
    ours = {"socket", "events", "events, no copy", "threads"}
    assert arms == {
        "simulated": ours | {SLOWER_LINE, SLOWER_SOCKET},
        "real": ours | {"iscsi-perf"},
        "guests": {"open-iscsi"},
    }


def test_programs_follow_the_settings() -> None:
    found = definition.load("design-study")
    for world in ALL_WORLDS:
        for each in points.of_experiment(found, world):
            programs, rate = each.programs, each.values["link.rate"]
            assert each.capture_at == ("initiator",)
            assert programs.get("is_bypassed", False) == (rate == 10_000_000_000)
            assert programs.get("initiator", "iscsitrace") == (each.arm if "iscsi" in each.arm else "iscsitrace")
            assert programs.get("driver", "events") == ("threads" if each.arm == "threads" else "events")
            assert programs.get("receive", "copy") == ("discard" if "no copy" in each.arm else "copy")
            # none of it reaches the settings of the run
            assert set(each.run_settings) == {"client", "portals", "world"}
            assert "bypass_from" not in str(each.run_settings)
    assert settings.programs_of({}) == {}


def test_an_arm_may_have_settings_for_one_world_only() -> None:
    found = definition.load("design-study")
    for world, wanted in (("simulated", {36_000, 40_000}), ("real", {None})):
        made = [each for each in points.of_experiment(found, world) if each.arm in {"events", "threads"}]
        assert {each.values.get("workload.think-time") for each in made} == wanted


def test_a_design_matters_only_in_the_real_world(tmp_path: Path) -> None:
    text = 'title = "t"\nsource = "s"\nworkload.calls = 9\n[[arms]]\nname = "one"\n[[arms]]\nname = "two"\n'
    (tmp_path / "two.toml").write_text(text + 'initiator.driver = "threads"\n')
    found = definition.load(tmp_path / "two.toml")
    for world, count in (("simulated", 1), ("real", 2)):
        assert len({each.digest for each in points.of_experiment(found, world)}) == count


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ('tables = ["costs"]', "tables: 'costs' is none of efficiency, budget"),
        (
            '[[arms]]\nname = "a"\nworlds = ["virtual"]',
            "worlds: 'virtual' is none of simulated, real, guests - at `$.arms[0]`",
        ),
        ('[[arms]]\nname = "a"\nreal.workload.speed = 1', "workload.speed: there is no such setting"),
        ('[[arms]]\nname = "a"\nreal.speed = 1', "unknown field `speed` - at `$.arms[0].real`"),
        ('[[arms]]\nname = "a"\ninitiator.program = "open"', "'open' is not one of iscsitrace, iscsi-perf, open-iscsi"),
    ],
)
def test_a_mistake_is_a_one_line_error(tmp_path: Path, more: str, line: str) -> None:
    (tmp_path / "wrong.toml").write_text(f'title = "t"\nsource = "s"\nworkload.calls = 9\n{more}\n')
    with pytest.raises(InputInvalid) as caught:
        definition.load(tmp_path / "wrong.toml")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


# ---- costs of points


def test_efficiency_is_that_of_the_line_in_the_direction_of_the_data() -> None:
    values: dict[str, Any] = {"link.rate": 10**9, "link.to-initiator.rate": 10**8, "workload.operation": "read"}
    assert experiment.efficiency(values, 10e6) == pytest.approx(0.8)
    assert experiment.efficiency(values | {"workload.operation": "write"}, 10e6) == pytest.approx(0.08)
    assert experiment.efficiency({"workload.operation": "read"}, 10e6) is None
    assert experiment.efficiency(values, None) is None


def test_cpu_time_is_per_gigabyte_by_the_program_that_counts_it() -> None:
    taken = {"user_ns": 10**9, "system_ns": 3 * 10**9}
    truth = {"results": {"cpu": taken, "bytes": 2 * 10**9}, "target_logs": [{"cpu": taken}, {"cpu": taken}]}
    found = experiment.costs_of_run(truth, {}, None, 0)
    assert (found["cpu_s_per_gigabyte"], found["target_cpu_s_per_gigabyte"]) == (2, 4)
    # another's initiator says nothing of bytes, another's target nothing at all
    other = experiment.costs_of_run({"results": {"cpu": taken}, "target_logs": [None]}, {}, None, 10**9)
    assert (other["cpu_s_per_gigabyte"], other["target_cpu_s_per_gigabyte"]) == (4, None)
    assert experiment.costs_of_run({"results": {"bytes": 5}}, {}, None, 0)["cpu_s_per_gigabyte"] is None


def cycles(rows: list[tuple[str | None, int | None, int, int]]) -> Any:
    """A table with the columns of cycles that are used: operation, status_ns, bytes, status."""
    names = ("operation", "status_ns", "bytes", "status")
    assert {each.name for each in TABLES["cycles"].columns} >= set(names)

    class Cycles:
        def rows(self) -> Any:
            return (dict(zip(names, row, strict=True)) for row in rows)

    return Cycles()


def test_the_measured_time_of_another_initiator_comes_from_its_capture() -> None:
    # an INQUIRY, one that failed, one whose status was not captured, and four reads out of order
    made: list[tuple[str | None, int | None, int, int]]
    made = [("other", 1, 36, 0), ("read", 90, 500, 2), ("read", None, 500, 0)]
    made += [("read", each, 500, 0) for each in (300, 100, 200, 400)]
    stretch, byte_count = measured.captured_stretch(cycles(made), 2)
    assert (stretch.start_ns, stretch.end_ns, stretch.call_count, stretch.byte_count) == (200, 400, 2, 1000)
    assert byte_count == 2000
    # without a warm-up it starts at the end of the first command, whose submission time is unknown
    assert measured.captured_stretch(cycles(made), 0)[0].start_ns == 100
    with pytest.raises(InputInvalid, match="4 commands are too few"):
        measured.captured_stretch(cycles(made), 3)


def test_delays_of_real_hosts_come_only_from_the_capture() -> None:
    values: dict[str, Any] = {"workload.operation": "read", "target.host-delay": 5_000, "initiator.host-delay": 7_000}
    values["workload.think-time"] = 40_000
    simulated, real = (
        expected.setting_of(values, {}, expected.Environment(100.0, has_host_delays=each)) for each in (True, False)
    )
    assert simulated is not None
    assert real is not None
    assert (simulated.service_ns, real.service_ns) == (52_100, 100)


# ---- a few points


def test_no_point_fails(study: tuple[Definition, Results, Path]) -> None:
    assert [(each.name, each.error) for each in study[1].failed] == []
    assert study[1].is_complete


@pytest.mark.parametrize("rate", ["1Gbit", "10Gbit"])
def test_a_socket_has_the_payload_rate_of_the_line(study: tuple[Definition, Results, Path], rate: str) -> None:
    assert point(study[1], "socket", rate, "1M").efficiency == pytest.approx(PAYLOAD_SHARE, rel=0.001)


def test_a_large_block_takes_the_time_of_line_and_hosts(study: tuple[Definition, Results, Path]) -> None:
    found = study[1]
    # without a delay nothing else takes time but the command, 150 bytes and more on the line
    for arm, rate, factor in (("events", "1Gbit", 1.0), (SLOWER_LINE, "7.92Gbit", 7.92)):
        period_ns = MIB_NS / factor + 54_000
        one = point(found, arm, rate, "1M")
        assert one.period_ns == pytest.approx(period_ns, rel=0.002)
        assert one.efficiency == pytest.approx(MIB_NS / factor * PAYLOAD_SHARE / period_ns, rel=0.002)
        assert one.cpu_s_per_gigabyte is None
    for arm, hosts_ns in (("events", 18_000 + 36_000), ("threads", 18_000 + 40_000)):
        one = point(found, arm, "10Gbit", "1M")
        assert one.period_ns == pytest.approx(MIB_NS / 10 + hosts_ns, rel=0.001)
        assert one.model_error == pytest.approx(0, abs=0.005)


def test_hosts_limit_small_blocks_and_the_line_limits_large_ones(
    study: tuple[Definition, Results, Path],
) -> None:
    small = point(study[1], "events", "10Gbit", "512B")
    # 54 us of hosts; 0.1 us of line for the command, 0.5 for its data
    assert small.period_ns == pytest.approx(54_600, rel=0.02)
    rows = {
        (row.arm, row.grid["link.rate"], row.grid["workload.block-size"]): row for row in repeats.rows(study[1].points)
    }
    assert rows["events", "10Gbit", "512B"].means["host_share"] == pytest.approx(100 * 54 / 54.6, abs=1.5)
    assert rows["events", "1Gbit", "1M"].means["host_share"] < 1
    assert sum(rows["events", "1Gbit", "1M"].shares.values()) == pytest.approx(100)


def test_claims_are_checked_in_the_world_in_which_they_can_be(study: tuple[Definition, Results, Path]) -> None:
    judged = {each.name: each for each in study[1].claims}
    assert judged["a"].verdict == verdicts.REPRODUCED
    assert judged["h"].verdict == judged["i"].verdict == verdicts.NOT_TESTABLE
    # 64 KiB and a header on a line of 7.92 Gbit/s, and 54 us of hosts: 42.1 % of 10 Gbit/s, where 41.2 were printed
    hosts, of_socket, *larger = judged["e"].checks
    # and 56.5 % of the socket of such a line, where 55.3 were printed
    assert of_socket.value == pytest.approx(100 * (hosts.value or 0) * 1e6 / (7.92e9 / 8 * PAYLOAD_SHARE), rel=0.005)
    assert of_socket.is_met
    assert hosts.value == pytest.approx(65_536 / ((65_536 + 48) / (7920 / 8 * PAYLOAD_SHARE) + 54), rel=0.005)
    assert (judged["e"].verdict, [each.is_met for each in larger]) == (verdicts.REPRODUCED, [True, True])
    # the study's most is 41.2 % with 64 KB; a cost per read makes larger blocks faster
    assert judged["b, the most"].verdict == judged["d"].verdict == verdicts.NOT_REPRODUCED
    # there is a note for whatever is not as the study says
    assert all(each.why for each in judged.values() if each.verdict not in {verdicts.REPRODUCED, verdicts.NOT_RUN})
    real = {each.name: each for each in verdicts.judge(study[0].claims, [], "real")}
    assert (real["e"].verdict, real["h"].verdict) == (verdicts.NOT_TESTABLE, verdicts.NOT_RUN)
    rows = [replace(row, estimates={"efficiency": MeasuredValue(70.0)}) for row in repeats.rows(study[1].points)]
    worse = {each.name: each for each in verdicts.judge(study[0].claims, rows, "real")}
    assert "too few processors" in worse["a"].why
    assert "too few processors" not in next(verdicts.judge(study[0].claims, rows)).why


def test_tables_and_bars_show_the_limiting_part(study: tuple[Definition, Results, Path]) -> None:
    made, found, folder = study
    grids = {grid.caption: grid for grid in tables.of(found)}
    budget = grids["Time breakdown of a call, %"]
    decides = {(row[0], row[1], row[2]): row[-1] for row in budget.rows}
    assert decides["events", "10Gbit", "512B"] == "initiator think"
    assert decides[SLOWER_LINE, "7.92Gbit", "1M"] == "transfer"
    assert ("socket", "1Gbit", "1M") not in decides
    efficiency = {row[:3]: row[3] for row in grids["Efficiency and CPU time"].rows}
    assert efficiency["socket", "1Gbit", "1M"] == "94.1"
    (figure,) = [each for each in made.figures if each.name == "budget-10g"]
    assert isinstance(figure, BudgetFigure)
    bars = charts.of_budgets(figure, made, repeats.rows(found.points))
    assert [(name, [text for text, _ in places]) for name, places in bars.panels] == [
        ("events", ["512B", "64K", "128K", "1M"]),
        ("threads", ["512B", "64K", "128K", "1M"]),
    ]
    drawn = Figure()
    with style.applied():
        draw_bars(drawn, bars)
    tops = [
        max(patch.get_y() + patch.get_height() for patch in axes.patches if isinstance(patch, Rectangle))
        for axes in drawn.axes
    ]
    assert np.allclose(tops, 100)
    names = {"efficiency-1g", "efficiency-10g", "of-socket-10g", "budget-1g", "budget-10g"}
    assert {each.name for each in found.figures} == names
    assert (folder / "budget-10g.svg").read_text().startswith("<?xml")
    assert results.load(folder) == found
    assert "Efficiency and CPU time" in str(report.describe(folder, has_pictures=False))


@needs_root
def test_another_initiator_is_measured_by_its_capture(tmp_path: Path) -> None:
    text = """
title = "others"
source = "a test"
warm-up-calls = 2
[link]
rate = "1Gbit"
bypass-from = "1Gbit"
[workload]
operation = "read"
block-size = "64K"
seconds = 1
[capture]
snaplen = 160
at = "initiator"
[initiator]
program = "iscsi-perf"
"""
    (tmp_path / "others.toml").write_text(text)
    found = definition.load(tmp_path / "others.toml")
    (made,) = points.of_experiment(found, "real")
    runs = itertools.count()

    def run() -> tuple[Truth, PointResult]:
        (one,) = experiment.run([made], tmp_path / f"run{next(runs)}", lambda _: False, kept=lambda _: False)
        return {}, one

    def judge(_: Truth, one: PointResult) -> None:
        # dropped packets are a separate error, on a machine that was too busy
        assert one.error is None
        assert one.throughput_bytes_per_s is not None
        assert one.steady_throughput_bytes_per_s is not None
        # its own word and the capture's: of a thousand reads in the second they count all but the first two alike
        assert one.steady_throughput_bytes_per_s == pytest.approx(one.throughput_bytes_per_s, rel=0.05)
        assert one.cpu_s_per_gigabyte is not None
        assert 0 < one.cpu_s_per_gigabyte < 50
        assert one.parts_ns
        assert one.model is None

    judge_run(run, judge)
