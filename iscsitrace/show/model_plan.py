"""A plan as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from iscsitrace import __version__
from iscsitrace.model.plan import DELAY_MOST_NS, Plan, Planned, burst_packets
from iscsitrace.model.setting import Prediction
from iscsitrace.model.uncertainty import Interval, predict_with
from iscsitrace.model.what_if import PARAMETERS
from iscsitrace.plots.model_curves import text_of
from iscsitrace.show.document import Section, table
from iscsitrace.tables.schema import SCHEMA_VERSION
from iscsitrace.wording import amounts, cells

if TYPE_CHECKING:
    from iscsitrace.model.uncertainty import Fitting


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


def as_dict(asked: Asked, found: Planned, fit_file: str | None) -> dict[str, Any]:
    """What ``model plan --json`` prints."""
    return {
        "schema": SCHEMA_VERSION,
        "tool": {"name": "iscsitrace", "version": __version__},
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


def sections(asked: Asked, found: Planned) -> Iterator[Section]:
    """What is wanted, and a row for each change."""
    intervals = [asked.interval(each) for each in found.plans]
    bounds = ("low", "high") if asked.fit else ()
    columns = ("change", "set", "MB/s", *bounds, "period ms", "idle %", "burst", "limited by")
    rows = (_row(each, interval) for each, interval in zip(found.plans, intervals, strict=True))
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


def _row(plan: Plan, interval: Interval | None) -> tuple[object, ...]:
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
