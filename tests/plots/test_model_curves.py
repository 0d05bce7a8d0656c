"""Axes, curves and labels of the model's plot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from iscsitrace.model.setting import Setting
from iscsitrace.model.uncertainty import FittedPlace
from iscsitrace.model.what_if import ask
from iscsitrace.plots.model_curves import axis_of, of_answers, text_of

MS = 1_000_000
READ = Setting("read", 65_536, 4 * MS, 4e7)


@pytest.mark.parametrize(
    ("name", "value", "text", "bare"),
    [
        ("delay_ns", 1_500_000, "1.5 ms", "1.5"),
        ("rate_bps", 100_000_000, "100 Mbit/s", "100"),
        ("loss", 0.005, "0.5 %", "0.5"),
        ("target_delays_ns", (1_000_000, 2_500_000), "1 + 2.5 ms", "1 + 2.5"),
        ("target_delays_ns", (999_999,), "0.999999 ms", "0.999999"),
        ("block_bytes", 2 << 20, "2M", "2M"),
        ("block_bytes", 3 << 10, "3K", "3K"),
        ("block_bytes", 1_500, "1500", "1500"),
        ("is_status_held", True, "yes", "yes"),
        ("is_status_held", False, "no", "no"),
        ("queue_depth", 4, "4", "4"),
        ("congestion_control", "cubic", "cubic", "cubic"),
    ],
)
def test_a_value_is_written_with_its_unit_and_on_an_axis_without(name: str, value: Any, text: str, bare: str) -> None:
    assert (text_of(name, value), axis_of(name, [value]).ticks) == (text, (bare,))


@pytest.mark.parametrize(
    ("name", "values", "label", "positions", "is_logarithmic"),
    [
        ("delay_ns", (1 * MS, 8 * MS), "one-way delay, ms", [1, 8], False),
        ("delay_ns", (1 * MS, 9 * MS), "one-way delay, ms", [1, 9], True),
        ("delay_ns", (0, 9 * MS), "one-way delay, ms", [0, 9], False),
        ("rate_bps", (10_000_000, 20_000_000), "line rate, Mbit/s", [10, 20], False),
        ("loss", (0.01, 0.02), "loss, %", [1, 2], False),
        ("queue_depth", (1, 2), "queue depth", [1, 2], False),
        ("block_bytes", (512, 1_024), "I/O size, bytes (K, M of 1024)", [512, 1_024], False),
        ("operation", ("write", "read", "read"), "operation", [0, 1, 2], False),
        ("is_status_held", (False, True), "status held", [0, 1], False),
        ("target_delays_ns", ((9 * MS,), (1 * MS,)), "one-way delays of the mirror", [0, 1], False),
    ],
)
def test_an_axis_is_logarithmic_beyond_a_ratio_of_eight(
    name: str, values: tuple[Any, ...], label: str, positions: list[float], is_logarithmic: bool
) -> None:
    axis = axis_of(name, values)
    assert (axis.label, axis.positions.tolist()) == (label, positions)
    assert axis.is_logarithmic is is_logarithmic


def test_the_first_parameter_with_several_values_is_the_axis() -> None:
    lists: dict[str, Any] = {"delay_ns": (4.0 * MS,), "queue_depth": (4, 1), "block_bytes": (65_536, 131_072)}
    answers = ask(READ, lists)
    found = of_answers(answers, lists)
    assert (found.axis.label, found.axis.ticks, found.constants) == ("queue depth", ("1", "4"), ("one-way delay 4 ms",))
    assert [curve.label for curve in found.curves] == ["I/O size 64K", "I/O size 128K"]
    rates = {
        (answer.values["queue_depth"], answer.values["block_bytes"]): answer.prediction.throughput_bytes_per_s
        for answer in answers
    }
    for curve, size in zip(found.curves, (65_536, 131_072), strict=True):
        assert curve.model.tolist() == [rates[1, size], rates[4, size]]
        assert (curve.low, curve.high) == (None, None)
        assert curve.is_in_range is not None
        assert curve.is_in_range.tolist() == [True, True]


def test_words_keep_their_order() -> None:
    lists = {"is_status_held": (True, False)}
    answers = ask(READ, lists)
    found = of_answers(answers, lists)
    assert found.axis.ticks == ("yes", "no")
    (curve,) = found.curves
    assert (curve.label, curve.model.tolist()) == (
        "model",
        [answer.prediction.throughput_bytes_per_s for answer in answers],
    )
    # a held status is one more round trip
    assert curve.model[0] < curve.model[1]


def test_one_value_of_each_is_a_curve_of_one_point() -> None:
    lists = {"queue_depth": (2,), "loss": (0.0,)}
    found = of_answers(ask(READ, lists), lists)
    assert (found.axis.label, found.axis.positions.tolist()) == ("queue depth", [2])
    assert found.constants == ("queue depth 2", "loss 0 %")


def place(delay_ms: float, block_bytes: int = 65_536, depth: int = 1, rate: float | None = 5e6) -> FittedPlace:
    found = FittedPlace(block_bytes, delay_ms * MS, depth, False, False, 13.0 * MS, "cycle", model_ns=12.5 * MS)
    return replace(found, throughput_bytes_per_s=rate, throughput_low_bytes_per_s=4e6)


def test_fitted_places_stand_beside_the_curve_of_their_settings() -> None:
    """Of 64 KiB; the delay is along the axis, another size or depth is another curve."""
    lists: dict[str, Any] = {"delay_ns": (4 * MS, 8 * MS)}
    places = [place(4.1), place(20), place(4, 131_072), place(4, depth=2), place(8, rate=None)]
    (curve,) = of_answers(ask(READ, lists), lists, places).curves
    assert curve.marks is not None
    assert curve.marks.positions.tolist() == [4.1, 20]
    assert curve.marks.measured.tolist() == [5e6, 5e6]
    assert (curve.marks.low.tolist(), np.isnan(curve.marks.high).tolist()) == ([4e6, 4e6], [True, True])
    assert curve.marks.model.tolist() == pytest.approx([65_536 / 12.5e-3] * 2)


def test_a_depth_is_that_of_a_connection_along_the_axis() -> None:
    lists: dict[str, Any] = {"queue_depth": (1, 2, 4)}
    (curve,) = of_answers(
        ask(replace(READ, connections=2), lists), lists, [place(4, depth=4), place(8, depth=4)]
    ).curves
    assert curve.marks is not None
    assert curve.marks.positions.tolist() == [2]


@pytest.mark.parametrize("lists", [{"window_bytes": (16_384, 65_536)}, {"delay_ns": (4 * MS,), "service_ns": (0, 1)}])
def test_what_was_measured_with_other_settings_is_not_beside_a_curve(lists: dict[str, Any]) -> None:
    assert [curve.marks for curve in of_answers(ask(READ, lists), lists, [place(4)]).curves] == [None]
