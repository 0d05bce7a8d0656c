"""Models of TCP under losses beside each other, as tables of text."""

from __future__ import annotations

from math import isfinite

from iscsitrace.fit.points import Losses
from iscsitrace.fit.rivalry import Rivalry
from iscsitrace.show.document import Section, table
from iscsitrace.wording import amounts, cells


def section(rivalry: Rivalry) -> Section:
    """Which model fits best, the measured throughput of each point under losses, and the error of each model."""
    names = [each.rival.name for each in rivalry.candidates]
    rows = [
        (
            point.name,
            point.losses.loss_count,
            f"{100 * point.losses.setting.loss:.3f}",
            cells.megabytes(point.losses.throughput.value),
            cells.megabytes(point.losses.throughput.low),
            cells.megabytes(point.losses.throughput.high),
            *(_off(each.predicted_bytes_per_s[place], point.losses) for each in rivalry.candidates),
        )
        for place, point in enumerate(rivalry.points)
        if point.losses
    ]
    columns = ("point", "losses", "loss %", "MB/s", "low", "high", *(f"{name} %" for name in names))
    models = [
        (
            each.rival.name,
            f"{100 * each.error:.1f}" if isfinite(each.error) else cells.NOTHING,
            len(each.errors),
            each.rival.source,
        )
        for each in sorted(rivalry.candidates, key=lambda each: each.error)
    ]
    return Section(
        "Throughput under losses: models beside each other",
        (_verdict(rivalry),),
        (
            table(
                columns, rows, "All commands, also those that waited for losses; model / measured throughput, less 1"
            ),
            table(("model", "median error %", "parts", "source"), models, "Cross-validation over parts of the time"),
        ),
        "losses",
    )


def _verdict(rivalry: Rivalry) -> str:
    first, *others = rivalry.best
    parts = amounts.count(len(first.errors), "part")
    if not isfinite(first.error):
        return "No model has a throughput for these settings."
    text = f"Least error: {first.rival.name}, median {amounts.percent(first.error)} over {parts} of the time."
    if others:
        names = ", ".join(each.rival.name for each in others)
        text += f" These parts cannot tell it from {names}."
    return text


def _off(predicted: float | None, losses: Losses) -> str:
    return cells.NOTHING if predicted is None else f"{100 * (predicted / losses.throughput.value - 1):+.1f}"
