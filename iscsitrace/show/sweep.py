"""A sweep as tables of text: its points, connections and parameters. A number that says too little is not printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from os.path import commonpath
from pathlib import Path
from typing import Any, Final

from iscsitrace.fit.left_out import apart
from iscsitrace.fit.sweep import POOR, Place, Sweep
from iscsitrace.model.estimate import Estimate
from iscsitrace.plots.model_curves import label_of, text_of
from iscsitrace.show.document import Grid, table
from iscsitrace.wording import amounts, cells

POOR_CELL: Final = "poor"
"""Instead of a number of a model that does not describe a point."""
UNSURE: Final = 1.0
"""Half width of an interval, as a share of the value, from which on the value is not printed."""
_PLURALS: Final = {
    "delay_ns": "one-way delays",
    "block_bytes": "I/O sizes",
    "queue_depth": "queue depths",
    "connections": "numbers of connections",
}
SOURCES: Final = {
    "fit": "differences between points",
    "packets": "packets of the commands",
    "line": "queue of the line",
    "given": "--socket",
    "assumed": "assumption",
}


def verdict(sweep: Sweep) -> str:
    """The result in a few sentences."""
    rates = [place.point.throughput_bytes_per_s for place in sweep.places]
    where = " and ".join(_counted(sweep, name) for name in sweep.varied)
    settings = f" at {where}" if where else ""
    points = amounts.count(len(rates), "point")
    return f"{sweep.operation.capitalize()}s, {points}{settings}: {span(rates)}. {_of_model(sweep)}"


def span(rates: Sequence[float]) -> str:
    """The least and the largest of these throughputs."""
    least, most = amounts.rate(min(rates)), amounts.rate(max(rates))
    return least if least == most else f"{least.removesuffix(' MB/s')} to {most}"


def _counted(sweep: Sweep, name: str) -> str:
    """How many values a setting has: ``4 one-way delays``."""
    amount = len({place.values[name] for place in sweep.places})
    if name in _PLURALS:
        return f"{amount} {_PLURALS[name]}"
    return f"{amount} values of {label_of(name)}"


def _of_model(sweep: Sweep) -> str:
    if sweep.error is None:
        return "With a single setting no error of the model is known."
    errors = [apart(place.left_out.error) for place in sweep.places if place.left_out]
    whose = "each setting predicted from the others" if errors else "residuals, because no others predict a setting"
    text = f"median error {_percent(sweep.error)} ({whose}"
    if errors:
        held = sum(place.left_out.is_held for place in sweep.places if place.left_out)
        text += f"; largest {_percent(max(errors))}; {held} of {len(errors)} within the predicted interval"
    if sweep.is_poor:
        return f"The model does not describe these captures: {text}). Its numbers are not shown."
    return f"Model: {text})."


def points(sweep: Sweep) -> Grid:
    """A row for each point, in order of the settings."""
    columns = (
        *(label_of(name) for name in sweep.varied),
        *("commands", "MB/s", "low", "high", "model MB/s", "vs. model %", "vs. others %", "idle %", "k"),
        *("capture", "session"),
    )
    names = _names(sweep)
    rows = []
    for number, place in enumerate(sweep.places):
        point, left_out = place.point, place.left_out
        is_off = sweep.is_off(number)
        model = sweep.fit.models[number].throughput_bytes_per_s
        rows.append(
            (
                *(text_of(name, place.values[name]) for name in sweep.varied),
                cells.count(point.cycle_count),
                cells.megabytes(point.throughput_bytes_per_s),
                cells.megabytes(point.throughput_low_bytes_per_s),
                cells.megabytes(point.throughput_high_bytes_per_s),
                POOR_CELL if is_off else cells.megabytes(model),
                POOR_CELL if is_off else _signed(sweep.off(number)),
                cells.NOTHING if left_out is None else _left_out(left_out.error),
                cells.percent(point.idle_fraction),
                f"{point.seen.k.value:.2f}" if point.seen.k else cells.NOTHING,
                names[number],
                point.session,
            )
        )
    return replace(table(columns, rows, f"Points of the {sweep.operation}s"), notes=tuple(_notes(sweep)))


def _notes(sweep: Sweep) -> Iterator[str]:
    yield "low, high: 95 % confidence interval of the measured throughput, from batches of its commands"
    yield "vs. model: measured / model throughput, less 1; vs. others: with a model fitted to the other settings"
    yield "idle: share of the time without data on the line; k: one-way delays of a command, from the packets"
    if any(sweep.is_off(number) for number in range(len(sweep.places))):
        yield f"poor: measured and model throughput are more than {_percent(POOR)} apart, so the model says nothing"
    for place in sweep.places:
        for name in place.remarks:
            yield f"{place.point.name}: the packets contradict the named {label_of(name)}: {_seen(place, name)}"


def _seen(place: Place, name: str) -> str:
    if name == "delay_ns":
        return f"half of the least RTT is {amounts.time(place.point.delay_ns.value)}"
    setting = place.point.setting
    shown: dict[str, Any] = {
        "block_bytes": setting.block_bytes,
        "queue_depth": place.point.outstanding,
        "connections": len(place.point.connections) or setting.connections,
    }
    value = shown[name] if name in shown else getattr(setting.solicitation, name)
    return f"they show {text_of(name, value)}"


def connections(sweep: Sweep) -> Grid | None:
    """A row for each connection of the sessions with several; None where there are none."""
    several = [(number, place) for number, place in enumerate(sweep.places) if len(place.point.connections) > 1]
    if not several:
        return None
    names = _names(sweep)
    rows = [
        (
            *(text_of(name, place.values[name]) for name in sweep.varied),
            each.connection,
            cells.megabytes(each.throughput.value),
            cells.megabytes(each.throughput.low),
            cells.megabytes(each.throughput.high),
            cells.percent(each.idle_fraction),
            names[number],
            place.point.session,
        )
        for number, place in several
        for each in place.point.connections
    ]
    columns = (*map(label_of, sweep.varied), "connection", "MB/s", "low", "high", "idle %", "capture", "session")
    return table(columns, rows, f"Connections of the {sweep.operation}s")


def parameters(sweep: Sweep) -> Grid | None:
    """The parameters of the fit; those with too wide an interval as such. None for a poor fit."""
    if sweep.is_poor:
        return None
    fit = sweep.fit
    period_ns = sorted(point.period_ns for point in fit.points)[len(fit.points) // 2]
    rows = [
        _parameter("k", "one-way delays per command", fit.k, 1, "{:.2f}", ""),
        # of a service time that is nearly nothing, the interval says enough where it is short beside the period
        _parameter("s", "service time of target and hosts", fit.s_ns, 1e6, "{:.3f}", "ms", POOR * period_ns),
    ]
    if fit.c_bytes_per_s:
        rows.append(_parameter("C", "TCP throughput of the line", fit.c_bytes_per_s, 1e6, "{:.1f}", "MB/s"))
    if fit.stall_share.source == "fit":
        meaning = "share of the waits for windows that lengthens a command"
        rows.append(_parameter("stalls", meaning, fit.stall_share, 0.01, "{:.0f}", "%"))
    columns = ("parameter", "meaning", "value", "low", "high", "unit", "source")
    return table(columns, rows, f"Parameters of the {sweep.operation}s: period = k * d + s + B / C + stalls")


def _parameter(
    name: str, meaning: str, estimate: Estimate, unit: float, form: str, word: str, enough: float = 0.0
) -> tuple[str, ...]:
    half = (estimate.high - estimate.low) / 2
    ends = [form.format(each / unit) for each in (estimate.low, estimate.high)]
    is_sure = half <= max(UNSURE * estimate.value, enough)
    return (
        *(name, meaning, form.format(estimate.value / unit) if is_sure else "cannot tell", *ends),
        *(word, SOURCES[estimate.source]),
    )


def _names(sweep: Sweep) -> list[str]:
    """The captures of the places, without the folder that all of them are in."""
    names = [place.capture for place in sweep.places]
    try:
        folder = commonpath([Path(name).parent for name in names])
    except ValueError:
        # absolute and relative paths have none
        folder = ""
    return [name.removeprefix(f"{folder}/") if folder else name for name in names]


def _left_out(error: float) -> str:
    return POOR_CELL if apart(error) > POOR else _signed(error)


def _signed(share: float) -> str:
    found = f"{100 * share:+.1f}"
    return found.lstrip("+-") if float(found) == 0 else found


def _percent(share: float) -> str:
    return amounts.percent(share)


def undetermined(sweeps: Sequence[Sweep], missing: Sequence[str]) -> tuple[str, ...]:
    """What the captures do not show, and which sessions have no point."""
    found = [line for sweep in sweeps for line in (() if sweep.is_poor else sweep.fit.undetermined)]
    return (*dict.fromkeys(found), *(f"not fitted: {each}" for each in missing))
