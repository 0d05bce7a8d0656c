"""The model over one parameter: a line for each setting, a confidence band, marks for measured values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from iscsitrace.plots import style
from iscsitrace.plots.model_curves import Axis, Curve, ModelCurves
from iscsitrace.plots.style import ByteAxis

_LOOKS: tuple[tuple[str, str, Any], ...] = (
    (style.BLUE, "o", "solid"),
    (style.ORANGE, "s", "dashed"),
    (style.GREEN, "^", "dashdot"),
    (style.PURPLE, "D", "dotted"),
    (style.VERMILLION, "v", (0, (5, 1, 1, 1, 1, 1))),
    (style.BLACK, "P", (0, (8, 2))),
    (style.SKY, "X", (0, (3, 1))),
    (style.GREY, "*", (0, (1, 3))),
)
_CROWDED = 12


def draw(figure: Figure, model: ModelCurves) -> None:
    """Draws the throughput, and below it the residuals of measured values."""
    if any(curve.marks is not None and np.isfinite(curve.marks.model).any() for curve in model.curves):
        rates, residuals = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        _draw_residuals(residuals, model)
        rates.tick_params(labelbottom=False)
        _apply(model.axis, residuals)
    else:
        rates = figure.subplots()
        _apply(model.axis, rates)
    drawn = [each for curve in model.curves for each in (curve.model, curve.high) if each is not None]
    drawn += [each for curve in model.curves if curve.marks for each in (curve.marks.measured, curve.marks.high)]
    amounts = ByteAxis(max((float(np.nanmax(each)) for each in drawn if np.isfinite(each).any()), default=0.0))
    for number, curve in enumerate(model.curves):
        _draw_curve(rates, model.axis, curve, amounts, number)
    rates.set_ylabel(f"throughput, {amounts.unit}/s")
    style.from_zero(rates)
    style.legend(rates, columns=4)


def title(model: ModelCurves) -> str:
    """Names what the plot shows."""
    return f"Model: throughput over {model.axis.label.split(',')[0]}"


def notes(model: ModelCurves) -> list[str]:
    """Lists constants, confidence and the range of the formulas."""
    found = ["; ".join(model.constants)] if model.constants else []
    if any(curve.low is not None for curve in model.curves):
        found.append("bands: 95 % confidence for one more run, from the intervals and residuals of the fit")
    if any(curve.marks is not None and np.isfinite(curve.marks.low).any() for curve in model.curves):
        found.append("error bars: 95 % confidence intervals of the measured throughput")
    if any(curve.is_in_range is not None and not curve.is_in_range.all() for curve in model.curves):
        found.append("x: too few segments between losses, so timeouts dominate; the formulas do not cover them")
    return found


def write_notes(figure: Figure, model: ModelCurves, more: Iterable[str] = ()) -> None:
    """Writes the title above the axes, and the notes below."""
    figure.suptitle(title(model), x=0.01, ha="left", fontsize=11, fontweight="bold", parse_math=False)
    lines = [*notes(model), *more]
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7.5, color=style.GREY, parse_math=False)


def _look(number: int) -> tuple[str, str, Any]:
    return _LOOKS[number % len(_LOOKS)]


def _draw_curve(axes: Axes, axis: Axis, curve: Curve, amounts: ByteAxis, number: int) -> None:
    color, marker, dashes = _look(number)
    places = axis.positions if curve.positions is None else curve.positions
    if curve.low is not None and curve.high is not None:
        axes.fill_between(places, amounts.of(curve.low), amounts.of(curve.high), color=color, alpha=0.18, linewidth=0)
    marks = curve.marks
    if np.isfinite(curve.model).any():
        axes.plot(
            places, amounts.of(curve.model), color=color, linestyle=dashes, marker="" if marks else marker,
            markersize=4.5, label=f"{curve.label}, model" if marks else curve.label,
        )  # fmt: skip
    if marks is not None:
        # an interval that is unknown has no bar
        off = np.stack([marks.measured - marks.low, marks.high - marks.measured])
        axes.errorbar(
            marks.positions, amounts.of(marks.measured), yerr=amounts.of(np.nan_to_num(off)), color=color,
            linestyle="none", marker=marker, markersize=5, capsize=3, label=f"{curve.label}, measured",
        )  # fmt: skip
    if curve.is_in_range is not None and not curve.is_in_range.all():
        is_out = ~curve.is_in_range
        axes.plot(
            places[is_out], amounts.of(curve.model[is_out]), color=style.VERMILLION, linestyle="none",
            marker="x", markersize=9, label="outside the range of the formulas",
        )  # fmt: skip


def _draw_residuals(axes: Axes, model: ModelCurves) -> None:
    axes.axhline(0, color=style.GREY, linewidth=0.8)
    for number, curve in enumerate(model.curves):
        if curve.marks is not None:
            color, marker, _ = _look(number)
            off = 100 * (curve.marks.measured / curve.marks.model - 1)
            axes.plot(curve.marks.positions, off, color=color, linestyle="none", marker=marker, markersize=5)
    # less than a percent is the noise of a measurement, or that of floating point
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, -1.0), max(high, 1.0))
    axes.set_ylabel("measured vs.\nmodel, %")


def _apply(axis: Axis, axes: Axes) -> None:
    if axis.is_logarithmic:
        axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(axis.positions, list(axis.ticks), rotation=30 if len(axis.ticks) > _CROWDED else 0)
    axes.set_xlabel(axis.label)
