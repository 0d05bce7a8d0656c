"""The curves of a sweep: measured throughput and the model over one setting, a line for each value of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.errors import InputInvalid
from iscsitrace.fit.points import Fit, Paid
from iscsitrace.fit.sweep import Sweep
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Setting
from iscsitrace.model.uncertainty import predict_with
from iscsitrace.plots.model_curves import Curve, MeasuredMarks, ModelCurves, axis_of, label_of, text_of

Array = NDArray[np.float64]

Steps = Callable[[float, float], Array]

LINES_MOST: Final = 8
"""Lines of one plot; as many looks are told apart."""
BETWEEN: Final = 3
"""Places between two points for which the model is computed, so that its line shows the shape of the formula."""
CAPTURE: Final = "capture"
"""The axis of captures that differ in no setting."""


def plots(sweep: Sweep) -> list[ModelCurves]:
    """A plot for each combination of the third setting and the further ones, and for each LINES_MOST lines of one."""
    along = sweep.varied[0] if sweep.varied else CAPTURE
    lines_by = sweep.varied[1:2]
    panels: dict[tuple[Any, ...], dict[tuple[Any, ...], list[int]]] = {}
    for number, place in enumerate(sweep.places):
        panel = tuple(place.values[name] for name in sweep.varied[2:])
        line = tuple(place.values[name] for name in lines_by)
        panels.setdefault(panel, {}).setdefault(line, []).append(number)
    found = []
    for panel, lines in panels.items():
        whole = [*zip(sweep.varied[2:], panel, strict=True), *sweep.constants.items()]
        constants = tuple(f"{label_of(name)} {text_of(name, value)}" for name, value in whole)
        keys = list(lines)
        for first in range(0, len(keys), LINES_MOST):
            shown = {key: lines[key] for key in keys[first : first + LINES_MOST]}
            found.append(_plot(sweep, along, lines_by, shown, constants))
    return found


def _plot(
    sweep: Sweep,
    along: str,
    lines_by: Sequence[str],
    lines: dict[tuple[Any, ...], list[int]],
    constants: tuple[str, ...],
) -> ModelCurves:
    numbers = sorted({number for line in lines.values() for number in line})
    if along == CAPTURE:
        names = [sweep.places[number].capture.rpartition("/")[2] for number in numbers]
        axis = axis_of(CAPTURE, names)
        at = {number: float(place) for place, number in enumerate(numbers)}
    else:
        values = list(dict.fromkeys(sweep.places[number].values[along] for number in numbers))
        values.sort(key=lambda value: (isinstance(value, str), value if isinstance(value, int | float) else 0))
        axis = axis_of(along, values)
        where = dict(zip(values, axis.positions.tolist(), strict=True))
        at = {number: where[sweep.places[number].values[along]] for number in numbers}
    steps = None if along not in ("delay_ns", "block_bytes", "queue_depth") else _shares(axis.is_logarithmic)
    curves = []
    for key, line in lines.items():
        words = ", ".join(f"{label_of(name)} {text_of(name, value)}" for name, value in zip(lines_by, key, strict=True))
        curves.append(_curve(sweep, words or sweep.operation, line, at, steps))
    return ModelCurves(axis, tuple(curves), (sweep.operation, *constants))


def _curve(sweep: Sweep, label: str, line: Sequence[int], at: dict[int, float], steps: Steps | None) -> Curve:
    """A line of a plot; ``steps`` are None where there is nothing between two places."""
    points = [sweep.places[number].point for number in line]
    models = [sweep.fit.models[number] for number in line]
    positions = np.array([at[number] for number in line])
    marks = MeasuredMarks(
        positions,
        np.array([point.throughput_bytes_per_s for point in points]),
        _known([point.throughput_low_bytes_per_s for point in points]),
        _known([point.throughput_high_bytes_per_s for point in points]),
        np.array(
            [
                np.nan if sweep.is_off(number) else model.throughput_bytes_per_s
                for number, model in zip(line, models, strict=True)
            ]
        ),
    )
    nothing = np.full(len(line), np.nan)
    if sweep.is_poor:
        return Curve(label, nothing, positions=positions, marks=marks)
    if steps is None:
        rates = np.array([model.throughput_bytes_per_s for model in models])
        return Curve(label, rates, positions=positions, marks=marks)
    where, settings = _between(sweep.fit, line, positions, steps)
    answers = [_answer(sweep.fit, number, setting) for number, setting in settings]
    model, low, high = (np.array(each) for each in zip(*answers, strict=True))
    return Curve(label, model, low, high, positions=where, marks=marks)


def _shares(is_logarithmic: bool) -> Steps:
    """How far each place between two points is on the way from one to the other: at even steps of the axis."""

    def shares(left: float, right: float) -> Array:
        if not is_logarithmic:
            return np.arange(BETWEEN + 1) / (BETWEEN + 1)
        return (np.geomspace(left, right, BETWEEN + 2)[:-1] - left) / (right - left)

    return shares


def _between(fit: Fit, line: Sequence[int], positions: Array, steps: Steps) -> tuple[Array, list[tuple[int, Setting]]]:
    """Positions along a line, and the setting at each: those of the points, and between two of them mixtures.

    The number of the nearer point, whose other properties the setting has, comes with it.
    """
    # repeats have one place
    firsts = [place for place, position in enumerate(positions) if position not in positions[:place]]
    where, found = [], []
    for left, right in pairwise(firsts):
        for share in steps(positions[left], positions[right]).tolist():
            one, two = fit.models[line[left]].setting, fit.models[line[right]].setting
            near = left if share <= 0.5 else right
            mixed = {
                name: getattr(one, name) + share * (getattr(two, name) - getattr(one, name))
                for name in ("delay_ns", "block_bytes", "queue_depth")
            }
            whole = {name: max(1, round(mixed[name])) for name in ("block_bytes", "queue_depth")}
            if one.queue_depth != two.queue_depth and whole["queue_depth"] != mixed["queue_depth"]:
                # there is no part of a command
                continue
            if one.c_bytes_per_s and two.c_bytes_per_s:
                mixed["c_bytes_per_s"] = one.c_bytes_per_s + share * (two.c_bytes_per_s - one.c_bytes_per_s)
            where.append(positions[left] + share * (positions[right] - positions[left]))
            found.append((line[near], replace(fit.models[line[near]].setting, **mixed | whole)))
    where.append(positions[firsts[-1]])
    found.append((line[firsts[-1]], fit.models[line[firsts[-1]]].setting))
    return np.array(where), found


def _answer(fit: Fit, number: int, setting: Setting) -> tuple[float, float, float]:
    """The model's throughput with the bounds for one more run; NaN where it does not describe the setting."""
    paid = Paid.of(fit.points[number])
    factor = fit.k.value / fit.k_of_legs * paid.delays / paid.of_setting
    try:
        model = predict(setting, k_factor=factor, stall_share=fit.stall_share.value).throughput_bytes_per_s
        bounds = predict_with(setting, fit, {"delay_ns", "block_bytes", "queue_depth", "is_status_held"})
    except InputInvalid:
        return np.nan, np.nan, np.nan
    return model, bounds.low_bytes_per_s, bounds.high_bytes_per_s


def _known(values: Sequence[float | None]) -> Array:
    return np.array([np.nan if each is None else each for each in values], dtype=np.float64)
