"""A sweep of points whose period is known: 2 d + 1 ms + B / C. Order, settings that differ, and what is predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iscsitrace.fit.points import OfConnection, Point, Seen
from iscsitrace.fit.sweep import Sweep, SweptCapture, apart, sweeps
from iscsitrace.model.setting import Setting, Solicitation
from iscsitrace.model.uncertainty import Estimate
from iscsitrace.plots import sweep as sweep_curves
from iscsitrace.show import model_fit as tables
from iscsitrace.show.document import Grid
from tests.support.tables_by_hand import MS

C = 40e6
KIB = 1 << 10


def point(delay_ms: float, block_kib: int = 64, *, off: float = 0.0, session: int = 0, **values: Any) -> Point:
    """A read of the formula; ``off`` is how much longer its period is, as a share."""
    block = block_kib * KIB
    period_ns = (2 * delay_ms * MS + MS + block / C * 1e9) * (1 + off)
    rate = block / period_ns * 1e9
    made = Point(
        session=session,
        name=f"{delay_ms} ms, {block_kib} KiB",
        setting=Setting("read", block, delay_ms * MS, C),
        period_ns=period_ns,
        period_spread_ns=0.001 * period_ns,
        throughput_bytes_per_s=rate,
        cycle_count=30,
        left_out={},
        parts_ns={},
        delay_ns=Estimate(delay_ms * MS, delay_ms * MS, delay_ms * MS, "packets"),
        seen=Seen(
            "cycle", Estimate(2.0, 1.98, 2.02, "packets"), Estimate(MS, 0.9 * MS, 1.1 * MS, "packets"),
            Estimate(block / C * 1e9, 0.99 * block / C * 1e9, 1.01 * block / C * 1e9, "packets"), 0.0, (),
        ),
        throughput_low_bytes_per_s=0.99 * rate,
        throughput_high_bytes_per_s=1.01 * rate,
        idle_fraction=1 - block / C * 1e9 / period_ns,
    )  # fmt: skip
    return replace(made, **values)


def captures(*points: Point, **named: Any) -> list[SweptCapture]:
    return [SweptCapture(f"dir/{number}.pcap", (each,), named) for number, each in enumerate(points)]


def one(found: list[Sweep]) -> Sweep:
    (sweep,) = found
    return sweep


def column(grid: Grid, name: str) -> list[str]:
    place = grid.columns.index(name)
    return [row[place] for row in grid.rows]


GRID = [point(delay, block) for delay in (8, 1, 16, 4) for block in (1024, 64, 256)]


def test_points_are_in_order_of_their_settings_and_not_of_the_command_line() -> None:
    sweep = one(sweeps(captures(*GRID)))
    # the setting with most values is the axis; the other makes the lines
    assert sweep.varied == ("delay_ns", "block_bytes")
    assert sweep.constants == {"queue_depth": 1, "connections": 1}
    order = [(place.values["block_bytes"] // KIB, place.values["delay_ns"] / MS) for place in sweep.places]
    assert order == [(block, delay) for block in (64, 256, 1024) for delay in (1, 4, 8, 16)]
    assert [place.point for place in sweep.places] == list(sweep.fit.points)
    # each is of its capture
    assert {place.capture for place in sweep.places if place.point == GRID[0]} == {"dir/0.pcap"}


def test_a_setting_that_was_left_out_is_predicted_by_the_others() -> None:
    sweep = one(sweeps(captures(*GRID)))
    for place in sweep.places:
        assert place.left_out is not None
        assert place.left_out.error == pytest.approx(0, abs=1e-3)
        assert place.left_out.is_held
    assert sweep.error == pytest.approx(0, abs=1e-3)
    assert sweep.fit.k.value == pytest.approx(2, rel=1e-3)


def test_repeats_do_not_tell_each_other() -> None:
    """Two runs at 16 ms take a fifth longer than the formula: their twin would predict them, the others do not."""
    far = [point(16, off=0.2), point(16, off=0.2)]
    sweep = one(sweeps(captures(*(point(delay) for delay in (1, 2, 4, 8)), *far)))
    errors = [place.left_out.error for place in sweep.places[-2:] if place.left_out]
    assert errors == pytest.approx([1 / 1.2 - 1] * 2, abs=0.02)
    # a fit to all of them follows half way
    assert all(residual < 0.19 for residual in sweep.fit.residuals[-2:])


def test_delays_of_one_path_are_one_setting_and_others_are_not() -> None:
    near = [point(4.0), point(4.3), point(4.6), point(5.2), point(0.30), point(0.34)]
    sweep = one(sweeps(captures(*near)))
    # within a tenth, or 50 us, of the next: three digits of their median
    assert [place.values["delay_ns"] / MS for place in sweep.places] == [0.32, 0.32, 4.3, 4.3, 4.3, 5.2]


def test_a_named_setting_is_the_place_of_its_point() -> None:
    made = [SweptCapture(f"{name}.pcap", (point(delay),), {"delay_ns": named * MS, "target": name})
            for delay, named, name in ((4.4, 4, "tgt"), (8.5, 8, "lio"), (4.5, 4, "lio"))]  # fmt: skip
    sweep = one(sweeps(made))
    assert sweep.varied == ("delay_ns", "target")
    assert [(place.values["delay_ns"] / MS, place.values["target"]) for place in sweep.places] == [
        (4, "lio"),
        (8, "lio"),
        (4, "tgt"),
    ]
    # the model uses what the packets show
    assert [each.setting.delay_ns / MS for each in sweep.fit.models] == [4.5, 8.5, 4.4]
    assert all(not place.remarks for place in sweep.places)


def test_the_packets_contradict_a_wrong_name() -> None:
    sweep = one(
        sweeps([SweptCapture("a.pcap", (point(4.0),), {"delay_ns": 8 * MS, "block_bytes": 64 * KIB, "queue_depth": 2})])
    )
    assert sweep.places[0].remarks == ("delay_ns", "queue_depth")
    notes = "\n".join(tables.points_of(sweep).notes)
    assert "4.0 ms, 64 KiB: the packets contradict the named one-way delay: half of the least RTT is 4.0 ms" in notes
    assert "the packets contradict the named queue depth: they show 1" in notes


def test_reads_and_writes_are_sweeps_of_their_own_and_keys_are_settings_of_writes() -> None:
    written = replace(point(4.0).setting, operation="write")
    keys = [Solicitation(is_initial_r2t=is_initial_r2t) for is_initial_r2t in (True, False)]
    writes = [point(4.0, setting=replace(written, solicitation=each)) for each in keys]
    reads = [point(4.0, setting=replace(point(4.0).setting, solicitation=each)) for each in keys]
    found = sweeps(captures(*reads, *writes))
    assert [(sweep.operation, sweep.varied) for sweep in found] == [("read", ()), ("write", ("is_initial_r2t",))]
    assert [place.values for place in found[1].places] == [{"is_initial_r2t": False}, {"is_initial_r2t": True}]


def test_two_sessions_of_a_capture_are_two_points() -> None:
    sweep = one(sweeps([SweptCapture("a.pcap", (point(1.0), point(8.0, session=1)), {})]))
    assert [(place.capture, place.point.session) for place in sweep.places] == [("a.pcap", 0), ("a.pcap", 1)]


def test_no_point_is_no_sweep_and_one_point_has_no_error() -> None:
    assert sweeps([SweptCapture("a.pcap", (), {})]) == []
    sweep = one(sweeps(captures(point(4.0))))
    assert (sweep.varied, sweep.error, sweep.is_poor) == ((), None, False)
    assert "no error of the model is known" in tables.verdict(sweep)
    assert column(tables.points_of(sweep), "vs. others %") == ["-"]


# --- poor fits


def chaotic() -> Sweep:
    """Periods that have nothing to do with the delay."""
    off = dict(zip((1, 2, 4, 8, 16), (6.0, 0.1, 2.0, -0.5, -0.7), strict=True))
    return one(sweeps(captures(*(point(delay, off=each) for delay, each in off.items()))))


def test_a_poor_fit_is_said_and_its_numbers_are_not_printed() -> None:
    sweep = chaotic()
    assert sweep.is_poor
    assert "The model does not describe these captures: median error " in tables.verdict(sweep)
    grid = tables.points_of(sweep)
    assert column(grid, "model MB/s") == column(grid, "vs. model %") == ["poor"] * 5
    # the measurements are there
    assert column(grid, "MB/s") == [f"{place.point.throughput_bytes_per_s / 1e6:.3f}" for place in sweep.places]
    assert tables.parameters_of(sweep) is None
    (plot,) = sweep_curves.plots(sweep)
    assert [str(each.model) for each in plot.curves] == ["[nan nan nan nan nan]"]
    assert plot.curves[0].marks is not None
    assert len(plot.curves[0].marks.measured) == 5


def test_one_poor_point_is_poor_alone() -> None:
    sweep = one(sweeps(captures(*(point(delay) for delay in (1, 2, 4, 8, 16, 32)), point(12, off=0.6))))
    grid = tables.points_of(sweep)
    by_delay = dict(zip(column(grid, "one-way delay"), column(grid, "vs. others %"), strict=True))
    assert by_delay.pop("12 ms") == "poor"
    assert "poor" not in by_delay.values()
    assert tables.parameters_of(sweep) is not None


def test_a_parameter_with_too_wide_an_interval_cannot_be_told() -> None:
    found = one(sweeps(captures(*GRID)))
    wide = replace(found, fit=replace(found.fit, k=Estimate(2.0, 0.0, 4.1, "fit")))
    grid = tables.parameters_of(wide)
    assert grid is not None
    rows = {row[0]: row[2:5] for row in grid.rows}
    assert rows["k"] == ("cannot tell", "0.00", "4.10")
    assert float(rows["s"][0]) == pytest.approx(1, rel=0.05)
    # nearly no service time is known to be little
    little = replace(found, fit=replace(found.fit, s_ns=Estimate(0.0, 0.0, 0.5 * MS, "fit")))
    grid = tables.parameters_of(little)
    assert grid is not None
    assert {row[0]: row[2] for row in grid.rows}["s"] == "0.000"


# --- tables and curves


def test_the_table_has_measured_and_model_side_by_side() -> None:
    sweep = one(sweeps(captures(point(1.0), point(4.0, off=0.02), point(8.0))))
    grid = tables.points_of(sweep)
    for place, model, row in zip(sweep.places, sweep.fit.models, grid.rows, strict=True):
        cells = dict(zip(grid.columns, row, strict=True))
        rate = place.point.throughput_bytes_per_s
        assert cells["MB/s"] == f"{rate / 1e6:.3f}"
        assert (cells["low"], cells["high"]) == (f"{0.99 * rate / 1e6:.3f}", f"{1.01 * rate / 1e6:.3f}")
        assert cells["model MB/s"] == f"{model.throughput_bytes_per_s / 1e6:.3f}"
        assert float(cells["vs. model %"]) == pytest.approx(100 * (rate / model.throughput_bytes_per_s - 1), abs=0.05)
        assert (cells["k"], cells["session"]) == ("2.00", "0")
    # the folder that all captures are in is not repeated
    assert column(grid, "capture") == ["0.pcap", "1.pcap", "2.pcap"]
    idle = [1 - 64 * KIB / C * 1e9 / place.point.period_ns for place in sweep.places]
    assert [float(each) for each in column(grid, "idle %")] == pytest.approx([100 * each for each in idle], abs=0.5)


def test_connections_are_rows_where_a_session_has_several() -> None:
    assert tables.connections_of(one(sweeps(captures(point(1.0))))) is None
    each = tuple(OfConnection(number, Estimate(number * 1e6, 0.0, 9e6, "packets"), 0.5) for number in (1, 2))
    grid = tables.connections_of(one(sweeps(captures(point(1.0, connections=each), point(8.0)))))
    assert grid is not None
    assert column(grid, "connection") == ["1", "2"]
    assert column(grid, "MB/s") == ["1.000", "2.000"]
    assert column(grid, "model MB/s") == column(grid, "delay ms") == ["-", "-"], "their delays are unknown"
    assert column(grid, "one-way delay") == ["1 ms"] * 2


def test_the_curve_passes_the_model_of_each_point_and_follows_the_formula_between() -> None:
    sweep = one(sweeps(captures(*GRID)))
    (plot,) = sweep_curves.plots(sweep)
    assert plot.axis.ticks == ("1", "4", "8", "16")
    assert [curve.label for curve in plot.curves] == ["I/O size 64K", "I/O size 256K", "I/O size 1M"]
    for curve, block in zip(plot.curves, (64 * KIB, 256 * KIB, 1024 * KIB), strict=True):
        assert curve.positions is not None
        assert len(curve.positions) == 3 * (sweep_curves.BETWEEN + 1) + 1
        # the formula, at all of them: with an axis of a factor of 16, at even steps of its logarithm
        expected = [block / (2 * delay * 1e-3 + 1e-3 + block / C) for delay in curve.positions]
        assert curve.model == pytest.approx(expected, rel=2e-3)
        assert curve.low is not None
        assert curve.high is not None
        assert (curve.low <= curve.model).all()
        assert (curve.model <= curve.high).all()
        assert curve.marks is not None
        assert curve.marks.positions.tolist() == [1, 4, 8, 16]
    first = plot.curves[0].positions
    assert first is not None
    assert first[1] / first[0] == pytest.approx(4 ** (1 / (sweep_curves.BETWEEN + 1)))


def test_queue_depths_have_no_parts_of_commands_between() -> None:
    alone = point(4.0)
    deep = [
        replace(alone, setting=replace(alone.setting, queue_depth=depth),
                throughput_bytes_per_s=depth * alone.throughput_bytes_per_s)
        for depth in (1, 2, 4)
    ]  # fmt: skip
    (plot,) = sweep_curves.plots(one(sweeps(captures(*deep))))
    (curve,) = plot.curves
    assert curve.positions is not None
    assert curve.positions.tolist() == [1, 2, 3, 4]


def test_a_third_setting_is_another_plot_and_so_are_too_many_lines() -> None:
    every = [
        point(delay, block, setting=replace(point(delay, block).setting, connections=number))
        for delay in (1, 2, 4)
        for block in (64, 128)
        for number in (1, 2)
    ]
    found = sweep_curves.plots(one(sweeps(captures(*every))))
    assert len(found) == 2 * 1
    assert all("connections" in " ".join(plot.constants) or "queue depth" in " ".join(plot.constants) for plot in found)
    many = [point(delay, 64 + 4 * number) for delay in range(1, 12) for number in range(sweep_curves.LINES_MOST + 1)]
    assert [len(plot.curves) for plot in sweep_curves.plots(one(sweeps(captures(*many))))] == [
        sweep_curves.LINES_MOST,
        1,
    ]


def test_captures_that_differ_in_nothing_stand_side_by_side() -> None:
    (plot,) = sweep_curves.plots(one(sweeps(captures(point(4.0), point(4.0, off=0.01)))))
    assert (plot.axis.label, plot.axis.ticks) == ("capture", ("0.pcap", "1.pcap"))


def test_half_and_twice_the_throughput_are_equally_far_from_the_model() -> None:
    assert apart(1.0) == apart(-0.5) == 1.0
    assert apart(0.0) == 0.0
    sweep = one(sweeps(captures(*(point(delay) for delay in (1, 2, 4, 8, 16, 32)))))
    # a quarter more is not poor, a quarter less is: four fifths are a quarter apart
    for factor, is_off in ((1.24, False), (1.26, True), (0.81, False), (0.79, True)):
        rate = factor * sweep.fit.models[0].throughput_bytes_per_s
        other = replace(sweep.places[0], point=replace(sweep.places[0].point, throughput_bytes_per_s=rate))
        assert replace(sweep, places=(other, *sweep.places[1:])).is_off(0) is is_off, factor


def test_connections_count_also_where_commands_take_turns() -> None:
    each = tuple(OfConnection(number, Estimate(1e6, 0.0, 9e6, "packets"), 0.5) for number in (1, 2))
    sweep = one(sweeps(captures(point(1.0, connections=each), point(8.0, connections=each))))
    assert (sweep.varied, sweep.constants["connections"]) == (("delay_ns",), 2)


def test_a_setting_that_is_named_for_some_captures_only_has_places_all_the_same() -> None:
    made = [SweptCapture("a.pcap", (point(4.0),), {"loss": 0.01}), SweptCapture("b.pcap", (point(4.0, off=0.01),), {})]
    sweep = one(sweeps(made))
    assert sweep.varied == ("loss",)
    (plot,) = sweep_curves.plots(sweep)
    assert (plot.axis.ticks, plot.axis.positions.tolist()) == (("not named", "1"), [0, 1])
    assert column(tables.points_of(sweep), "loss") == ["not named", "1 %"]
