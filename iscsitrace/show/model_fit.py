"""A fit of the model as text, of one capture or of a sweep; :meth:`Fit.as_dict` is its JSON document.

A number that says too little is not printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from iscsitrace.fit.points import REASONS, throughput_of_each
from iscsitrace.fit.sweep import POOR, Sweep, SweptPoint, apart
from iscsitrace.plots.model_curves import label_of, text_of
from iscsitrace.show import inputs as captures
from iscsitrace.show.document import Block, Grid, Heading, Section, table
from iscsitrace.wording import amounts, cells

if TYPE_CHECKING:
    from iscsitrace.fit.points import Fit, Losses
    from iscsitrace.fit.rivalry import Rivalry
    from iscsitrace.model.uncertainty import Estimate

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


def sections(
    inputs: Iterable[Mapping[str, Any]],
    result: Fit,
    missing: Sequence[str],
    swept: Sweep | None = None,
    rivalry: Rivalry | None = None,
) -> Iterator[Section]:
    """What the captures are, and the fit; of a sweep the points are in order of its settings."""
    yield captures.section(inputs)
    points = (_points(result),) if swept is None else (Heading("Points"), verdict(swept), points_of(swept))
    compared = section_of_rivals(rivalry) if rivalry else None
    more = (Heading(compared.title), *compared.blocks) if compared else ()
    yield Section("", tuple(blocks(result, (*points, *more), missing)))


def blocks(result: Fit, points: Iterable[Block] = (), missing: Sequence[str] = ()) -> Iterator[Block]:
    """The parameters, the parts of k, the points with their residuals, and what was left out."""
    count = amounts.count(len(result.points), "point")
    yield parameters(result, f"period = k * d + s + B / C, from {result.cycles_used:,} commands at {count}")
    yield "low to high: 95 % confidence interval"
    yield f"scatter of the period from run to run: {amounts.percent(result.scatter)}"
    rows = [(leg.name, f"{leg.delays:.2f}", leg.meaning) for leg in result.legs]
    yield table(("interval", "delays", "meaning"), rows, "Parts of k in one-way delays, measured from the packets")
    yield from points or (_points(result),)
    if result.cycles_left_out:
        reasons = [(reason, count, REASONS[reason]) for reason, count in result.cycles_left_out.items()]
        yield table(("reason", "commands", "meaning"), reasons, "Commands left out")
    for heading, lines in (("Not determined by these captures", result.undetermined), ("Not fitted", missing)):
        if lines:
            yield Heading(heading)
            yield from (f"- {line}" for line in lines)


def parameters(result: Fit, caption: str, *, is_guarded: bool = False) -> Grid:
    """The parameters with their intervals; with ``is_guarded`` those with too wide an interval as such."""
    period_ns = sorted(point.period_ns for point in result.points)[len(result.points) // 2] if result.points else 0.0

    def row(
        name: str, meaning: str, remark: str, estimate: Estimate, unit: float, form: str, word: str, enough: float = 0.0
    ) -> tuple[str, ...]:
        value, *ends = (form.format(each / unit) for each in (estimate.value, estimate.low, estimate.high))
        is_wide = (estimate.high - estimate.low) / 2 > max(UNSURE * estimate.value, enough)
        shown = "cannot tell" if is_guarded and is_wide else value
        return (name, "; ".join(filter(None, (meaning, remark))), shown, *ends, word, SOURCES[estimate.source])

    of_legs = f"{result.k_of_legs:g} from its parts"
    rows = [
        row("k", "one-way delays per command", of_legs, result.k, 1, "{:.2f}", ""),
        row("d", "one-way delay", _delays(result), result.d_ns, 1e6, "{:.3f}", "ms"),
        # of a service time that is nearly nothing, the interval says enough where it is short beside the period
        row("s", "time of target, hosts and pauses", "", result.s_ns, 1e6, "{:.3f}", "ms", POOR * period_ns),
    ]
    if c := result.c_bytes_per_s:
        rows.append(row("C", "TCP throughput of the line", _stretches(result), c, 1e6, "{:.2f}", "MB/s"))
    if delay := result.ack_delay_ns:
        count = sum(point.seen.ack_delay is not None for point in result.points)
        points = f"at {count} of {amounts.count(len(result.points), 'point')}"
        rows.append(row("ACK", "delay of the ACK that a status waits for", points, delay, 1e6, "{:.3f}", "ms"))
    if result.stall_share.source == "fit":
        meaning = "share of the waits for windows that makes commands longer; during the rest the hosts work"
        rows.append(row("stalls", meaning, "", result.stall_share, 0.01, "{:.0f}", "%"))
    return table(("parameter", "meaning", "value", "low", "high", "unit", "source"), rows, caption)


def _points(result: Fit) -> Grid:
    columns = (
        *("one-way ms", "I/O size", "QD", "commands", "left out", "steady MB/s", "period ms", "model ms", "residual %"),
        "point",
    )
    rows = [
        (
            cells.milliseconds(point.delay_ns.value),
            cells.size(point.setting.block_bytes),
            point.setting.queue_depth * point.setting.connections,
            point.cycle_count,
            sum(point.left_out.values()),
            cells.megabytes(point.throughput_bytes_per_s),
            cells.milliseconds(point.period_ns),
            cells.milliseconds(model_ns),
            f"{100 * residual:.2f}",
            point.name,
        )
        for point, model_ns, residual in zip(result.points, result.models_ns, result.residuals, strict=True)
    ]
    note = "steady MB/s: of these commands alone, by their period; not the session's throughput"
    return table(columns, rows, "Points: measured period and period of the model", notes=(note,))


def _stretches(result: Fit) -> str:
    """Of how many stretches a line rate is the median."""
    seen = [point.seen for point in result.points]
    count = sum(line.stretch_count for each in seen if (line := each.own_line))
    is_line = result.c_bytes_per_s is not None and result.c_bytes_per_s.source == "line"
    return f"median of {amounts.count(count, 'stretch', 'stretches')}" if is_line else ""


def _delays(result: Fit) -> str:
    """The range of the delays, where the points have several; d is their median."""
    delays = sorted({round(point.delay_ns.value / 1e6, 3) for point in result.points})
    return f"median of {delays[0]:g} to {delays[-1]:g} ms" if len(delays) > 1 else ""


# --- a sweep


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
    text = f"median error {amounts.percent(sweep.error)} ({whose}"
    if errors:
        held = sum(place.left_out.is_held for place in sweep.places if place.left_out)
        text += f"; largest {amounts.percent(max(errors))}; {held} of {len(errors)} within the predicted interval"
    if sweep.is_poor:
        return f"The model does not describe these captures: {text}). Its numbers are not shown."
    return f"Model: {text})."


def points_of(sweep: Sweep) -> Grid:
    """A row for each point, in order of the settings."""
    compared = sweep.places[0].shares if sweep.places else {}
    columns = (
        *(label_of(name) for name in sweep.varied),
        *("commands", "MB/s", "low", "high"),
        *(f"% of {name}" for name in compared),
        *("model MB/s", "vs. model %", "vs. others %", "idle %", "k"),
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
                *(cells.percent(place.shares[name]) for name in compared),
                POOR_CELL if is_off else cells.megabytes(model),
                POOR_CELL if is_off else _signed(sweep.off(number)),
                cells.NOTHING if left_out is None else _left_out(left_out.error),
                cells.percent(point.idle_fraction),
                f"{point.seen.k.value:.2f}" if point.seen.k else cells.NOTHING,
                names[number],
                point.session,
            )
        )
    return table(columns, rows, f"Points of the {sweep.operation}s", notes=_notes(sweep))


def _notes(sweep: Sweep) -> Iterator[str]:
    yield "low, high: 95 % confidence interval of the measured throughput, from batches of its commands"
    yield "vs. model: measured / model throughput, minus 1; vs. others: with a model fitted to the other settings"
    yield "idle: share of the time without data on the line; k: one-way delays of a command, from the packets"
    if any(sweep.is_off(number) for number in range(len(sweep.places))):
        apart_by = amounts.percent(POOR)
        yield f"poor: measured and model throughput are more than {apart_by} apart, so the model says nothing"
    for place in sweep.places:
        for name in place.remarks:
            yield f"{place.point.name}: the packets contradict the named {label_of(name)}: {_seen(place, name)}"


def _seen(place: SweptPoint, name: str) -> str:
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


def connections_of(sweep: Sweep) -> Grid | None:
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
            POOR_CELL if sweep.is_off(number) else cells.megabytes(model),
            cells.milliseconds(None if each.delay_ns is None else round(each.delay_ns)),
            cells.percent(each.idle_fraction),
            names[number],
            place.point.session,
        )
        for number, place in several
        for each, model in zip(place.point.connections, throughput_of_each(sweep.fit, number), strict=True)
    ]
    columns = (
        *(*map(label_of, sweep.varied), "connection", "MB/s", "low", "high", "model MB/s", "delay ms", "idle %"),
        *("capture", "session"),
    )
    return table(columns, rows, f"Connections of the {sweep.operation}s")


def parameters_of(sweep: Sweep) -> Grid | None:
    """The parameters of the fit; None for a poor one."""
    caption = f"Parameters of the {sweep.operation}s: period = k * d + s + B / C + stalls"
    return None if sweep.is_poor else parameters(sweep.fit, caption, is_guarded=True)


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


def undetermined(sweeps: Sequence[Sweep], missing: Sequence[str]) -> tuple[str, ...]:
    """What the captures do not show, and which sessions have no point."""
    found = [line for sweep in sweeps for line in (() if sweep.is_poor else sweep.fit.undetermined)]
    return (*dict.fromkeys(found), *(f"not fitted: {each}" for each in missing))


# --- models of TCP under losses


def section_of_rivals(rivalry: Rivalry) -> Section:
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
            *(_beside(each.predicted_bytes_per_s[place], point.losses) for each in rivalry.candidates),
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
        "Throughput under losses: the models compared",
        (
            _of_rivals(rivalry),
            table(
                columns, rows, "All commands, also those that waited for losses; model / measured throughput, minus 1"
            ),
            table(("model", "median error %", "parts", "source"), models, "Cross-validation over parts of the time"),
        ),
        "losses",
    )


def _of_rivals(rivalry: Rivalry) -> str:
    first, *others = rivalry.best
    parts = amounts.count(len(first.errors), "part")
    if not isfinite(first.error):
        return "No model has a throughput for these settings."
    text = f"Least error: {first.rival.name}, median {amounts.percent(first.error)} over {parts} of the time."
    if others:
        names = ", ".join(each.rival.name for each in others)
        text += f" These parts cannot tell it apart from {names}."
    return text


def _beside(predicted: float | None, losses: Losses) -> str:
    return cells.NOTHING if predicted is None else f"{100 * (predicted / losses.throughput.value - 1):+.1f}"
