"""Predictions of the model, and plans, which are predictions searched backwards, as a JSON document, as text and as a
chart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from iscsitrace import __version__
from iscsitrace.model.setting import Prediction
from iscsitrace.model.uncertainty import Interval, predict_with
from iscsitrace.model.what_if import DELAY_MOST_NS, PARAMETERS, Plan, Planned, burst_packets
from iscsitrace.plots.model_curves import ModelCurves, of_answers, text_of
from iscsitrace.show import files
from iscsitrace.show.document import Section, table
from iscsitrace.tables.schema import SCHEMA_VERSION
from iscsitrace.wording import amounts, cells

if TYPE_CHECKING:
    from iscsitrace.fit.points import FittedModel
    from iscsitrace.model.setting import Setting
    from iscsitrace.model.uncertainty import Fitting
    from iscsitrace.model.what_if import Alternative


_HEAD: Final = {"schema": SCHEMA_VERSION, "tool": {"name": "iscsitrace", "version": __version__}}


def as_dict(base: Setting, fit_file: str | None, answers: Sequence[Alternative]) -> dict[str, Any]:
    """What ``model predict --json`` prints."""
    return _HEAD | {
        "fit": fit_file,
        "setting": asdict(base),
        "predictions": [answer.as_dict() | {"setting": asdict(answer.prediction.setting)} for answer in answers],
    }


def sections(
    base: Setting, fit: FittedModel | None, lists: Mapping[str, Sequence[Any]], answers: Sequence[Alternative]
) -> Iterator[Section]:
    """One row for each combination of values."""
    varied = [name for name, values in lists.items() if len(values) > 1]
    fixed = [
        f"{PARAMETERS[name].label} {text_of(name, values[0])}" for name, values in lists.items() if len(values) == 1
    ]
    columns = (
        *(PARAMETERS[name].label for name in varied),
        "MB/s",
        *(("low", "high", "gain %") if fit else ()),
        *("period ms", "k", "line ms", "stalls ms", "idle %", "bound"),
    )
    yield Section(
        f"{base.operation}: period = k * d + s + B / C + stalls",
        (*([", ".join(fixed)] if fixed else []), table(columns, (_row(varied, answer) for answer in answers))),
    )
    if fit:
        yield Section(
            "", ("low and high: 95 % confidence interval of one more run; gain: relative to the fit's own setting",)
        )
    doubts = list(dict.fromkeys(doubt for answer in answers for doubt in answer.doubts))
    if doubts:
        yield Section("Intervals that are wider than at the fitted settings", tuple(f"- {doubt}" for doubt in doubts))
    if not all(answer.prediction.is_in_range for answer in answers):
        text = "out of range: losses are so frequent that timeouts dominate, which the formulas leave out"
        yield Section("", (text,))


def _row(varied: Sequence[str], answer: Alternative) -> tuple[object, ...]:
    found = answer.prediction
    of_fit = () if answer.gain is None else (
        cells.megabytes(answer.low_bytes_per_s),
        cells.megabytes(answer.high_bytes_per_s),
        f"{100 * answer.gain:.1f}",
    )  # fmt: skip
    return (
        *(text_of(name, answer.values[name]) for name in varied),
        cells.megabytes(found.throughput_bytes_per_s),
        *of_fit,
        cells.milliseconds(round(found.period_ns)),
        f"{found.k:.2f}",
        cells.milliseconds(round(found.transfer_ns)),
        cells.milliseconds(round(found.stall_ns)),
        f"{100 * found.idle_fraction:.1f}",
        found.bound + ("" if found.is_in_range else " (out of range)"),
    )


def write_chart(
    path: Path,
    base: Setting,
    fit: FittedModel | None,
    lists: Mapping[str, Sequence[Any]],
    answers: Sequence[Alternative],
) -> None:
    """Throughput over the first parameter with several values, a line for each combination of the others; beside them
    what was measured where the fit was made.
    """
    curves = of_answers(answers, lists, fit.places if fit and fit.setting.operation == base.operation else ())
    draw(path, curves, has_hosts=False)


def draw(path: Path, curves: ModelCurves, *, has_hosts: bool = True) -> None:
    """A chart as a file, whose format is that of its name; ``has_hosts`` as for `files.written_aside`."""
    from iscsitrace.plots import model, style

    with files.written_aside(path, has_hosts=has_hosts) as partial, style.applied(), partial.open("wb") as stream:
        figure = style.new_figure()
        model.draw(figure, curves)
        model.write_notes(figure, curves)
        style.write(figure, stream, path.suffix.removeprefix("."))


@dataclass(frozen=True)
class Asked:
    """What was asked."""

    captures: Sequence[str]
    fit: Fitting | None
    given: Mapping[str, Any]
    """Values that were set, by names of PARAMETERS."""

    def interval(self, plan: Plan) -> Interval | None:
        """The confidence interval of a plan; None without a fit."""
        if self.fit is None:
            return None
        return predict_with(plan.prediction.setting, self.fit, {*self.given, *plan.values})


_OF_SEVERAL: Final = {"keys": "negotiated parameters", "delay_ns": "distance"}
"""Changes of several parameters at once."""


def plan_as_dict(asked: Asked, found: Planned, fit_file: str | None) -> dict[str, Any]:
    """What ``model plan --json`` prints."""
    return _HEAD | {
        "captures": list(asked.captures),
        "fit": fit_file,
        "setting": asdict(found.now.setting),
        "now": found.now.as_dict(),
        "without_delay": found.near and found.near.as_dict(),
        "wanted_bytes_per_s": found.wanted_bytes_per_s,
        "plans": [each.as_dict() | _bounds(asked.interval(each)) for each in found.plans],
    }


def _bounds(found: Interval | None) -> dict[str, Any]:
    return {
        "throughput_low_bytes_per_s": found and found.low_bytes_per_s,
        "throughput_high_bytes_per_s": found and found.high_bytes_per_s,
        "doubts": list(found.doubts) if found else [],
    }


def plan_sections(asked: Asked, found: Planned) -> Iterator[Section]:
    """What is wanted, and a row for each change."""
    intervals = [asked.interval(each) for each in found.plans]
    bounds = ("low", "high") if asked.fit else ()
    columns = ("change", "set", "MB/s", *bounds, "period ms", "idle %", "burst", "limited by")
    rows = (_row_of_plan(each, interval) for each, interval in zip(found.plans, intervals, strict=True))
    yield Section(
        f"{found.now.setting.operation}: what {amounts.rate(found.wanted_bytes_per_s)} needs",
        (_wanted(found), table(columns, rows, notes=_notes(asked, found))),
    )
    doubts = dict.fromkeys(doubt for interval in intervals if interval for doubt in interval.doubts)
    if doubts:
        yield Section("Intervals that are wider than at the fitted settings", tuple(f"- {doubt}" for doubt in doubts))


def _wanted(found: Planned) -> str:
    now = found.now.throughput_bytes_per_s
    enough = ", which is enough" if now >= found.wanted_bytes_per_s else ""
    text = f"The load as it is carries {amounts.rate(now)}{enough}, limited by {_limit(found.now)}."
    if found.near is None:
        return text
    near = found.near.throughput_bytes_per_s
    share = amounts.percent(found.wanted_bytes_per_s / near)
    return f"{text} Without the delay it would carry {amounts.rate(near)}; {share} of that is wanted."


def _row_of_plan(plan: Plan, interval: Interval | None) -> tuple[object, ...]:
    prediction = plan.prediction
    ends = (interval.low_bytes_per_s, interval.high_bytes_per_s) if interval else ()
    return (
        # the least value that is enough may be less than now
        _OF_SEVERAL.get(plan.name) or PARAMETERS[plan.name].label,
        _settings(plan) if plan.is_enough else "not enough",
        cells.megabytes(prediction.throughput_bytes_per_s),
        *map(cells.megabytes, ends),
        cells.milliseconds(round(prediction.period_ns)) if plan.is_enough else "-",
        f"{100 * prediction.idle_fraction:.1f}",
        burst_packets(prediction.setting) if plan.is_enough else "-",
        _limit(prediction) + ("" if prediction.is_in_range else " (out of range)"),
    )


def _settings(plan: Plan) -> str:
    """Such as ``queue depth 12, window 1M``; a distance is the greatest one."""
    if plan.prediction.setting.delay_ns >= DELAY_MOST_NS:
        return "any up to a second"
    return ", ".join(
        f"{PARAMETERS[name].label} {'at most ' if name in _DISTANCES else ''}{text_of(name, value)}"
        for name, value in plan.values.items()
    )


_DISTANCES: Final = ("delay_ns", "target_delays_ns")


_LIMITS: Final = {
    "cycle": "round trips",
    "line": "the line",
    "window": "the window",
    "loss": "losses",
    "slowest_target": "the farthest target",
    "shared_line": "the line",
}


def _limit(prediction: Prediction) -> str:
    """What limits it; without much distance the cycle is the time of the hosts."""
    setting = prediction.setting
    ways_ns = prediction.k * setting.delay_ns
    if prediction.bound == "cycle" and setting.service_ns > ways_ns:
        return "service time"
    return _LIMITS[prediction.bound]


def _notes(asked: Asked, found: Planned) -> Iterator[str]:
    yield "burst: packets that may come to the line at once, at most; a shorter queue of the line can lose some."
    if not all(each.is_enough for each in found.plans):
        yield "not enough: the throughput is the most that this change brings."
    more = next((each for each in found.plans if each.is_enough and each.name == "connections"), None)
    if more:
        yield f"connections: each has {amounts.count(more.prediction.setting.queue_depth, 'command')} in flight."
    if asked.captures and found.now.setting.queue_depth * found.now.setting.connections == 1:
        yield (
            "The program of these captures has one command in flight. More in flight and more connections help only if "
            "it can issue I/O in parallel."
        )
