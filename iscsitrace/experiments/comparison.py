"""Results beside each other: repeats as one row, published figures and ours, a fit for every line over distance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from iscsitrace.analysis.fit import regression as fit
from iscsitrace.analysis.fit.points import Point as SteadyPoint
from iscsitrace.errors import InputInvalid
from iscsitrace.experiments.definition import QUANTITIES, Definition, Published
from iscsitrace.experiments.points import Point
from iscsitrace.experiments.results import ArmFit, Beside, PointResult

DELAY: Final = "link.one-way-delay"
_FITTED_LEAST: Final = 2
HOSTS: Final = ("initiator_think", "initiator_service", "target_service")
"""Parts of the time budget in which neither the path nor TCP is waited for."""


@dataclass(frozen=True)
class Row:
    """The repeats of a point as one."""

    arm: str
    grid: dict[str, str]
    """Settings as they are written."""
    values: dict[str, Any]
    """All settings, as a run takes them."""
    run_count: int
    """That did not fail."""
    failed_count: int
    means: dict[str, float]
    """Of each quantity that is known, in its unit."""
    spreads: dict[str, float]
    """Standard deviations over repeats; of one run there is none."""
    model: dict[str, float]
    """What the model says of throughput, period, idle_fraction and k."""
    limiter: str | None
    """The most frequent."""
    shares: dict[str, float] = field(default_factory=dict)
    """Of each part of the time budget, in %: the mean over repeats."""
    stream_count: int = 0
    """Connections beside each other."""


def quantity(point: PointResult, name: str) -> float | None:
    """One of `definition.QUANTITIES`, in its unit; a model's error without its sign."""
    found = {
        "throughput": (point.steady_throughput_bytes_per_s, 1e-6),
        "idle_fraction": (point.idle_fraction, 100),
        "model_error": (None if point.model_error is None else abs(point.model_error), 100),
        "period": (point.period_ns, 1e-6),
        "k": (point.k, 1),
        "connections": (point.connections, 1),
        "converge": (point.converged_s, 1),
        "goodput_lost": (point.goodput_lost, 100),
        "latency_cv": (point.latency_cv, 100),
        "connection_spread": (point.connection_spread, 100),
        "cwnd_spread": (point.cwnd_spread, 100),
        "efficiency": (point.efficiency, 100),
        "cpu": (point.cpu_s_per_gigabyte, 1),
        "target_cpu": (point.target_cpu_s_per_gigabyte, 1),
        "host_share": (_share(point.parts_ns, HOSTS), 100),
        "jain": (point.jain, 1),
        "spread": (point.spread_s, 1),
        "spread_ratio": (point.spread_ratio, 1),
        "retransmission_rate": (point.retransmission_rate, 100),
        "utilisation": (point.utilisation, 100),
        "timeouts": (point.timeout_count, 1),
        "slow_start_rank": (point.slow_start_rank, 1),
        # of repeats, not of a point
        "scatter": (None, 1),
    }
    value, factor = found[name]
    return None if value is None else value * factor


def _share(parts_ns: Mapping[str, float], names: Iterable[str]) -> float | None:
    total_ns = sum(parts_ns.values())
    return sum(parts_ns[name] for name in names) / total_ns if total_ns else None


def rows(points: Iterable[PointResult]) -> list[Row]:
    """The repeats of each point as one row, in their order."""
    groups: dict[tuple[str, ...], list[PointResult]] = {}
    for point in points:
        groups.setdefault((point.arm, *point.grid.values()), []).append(point)
    return [_row(group) for group in groups.values()]


def _row(group: Sequence[PointResult]) -> Row:
    good = [point for point in group if point.error is None and point.not_run is None]
    first = (good or list(group))[0]
    found = {name: [value for point in good if (value := quantity(point, name)) is not None] for name in QUANTITIES}
    limiters = [point.limiter for point in good if point.limiter]
    model = first.model or {}
    means = {name: float(np.mean(values)) for name, values in found.items() if values}
    spreads = {name: float(np.std(values, ddof=1)) for name, values in found.items() if len(values) > 1}
    if "throughput" in spreads:
        means["scatter"] = 100 * spreads["throughput"] / means["throughput"]
    return Row(
        arm=first.arm,
        grid=first.grid,
        values=first.values,
        run_count=len(good),
        failed_count=sum(point.error is not None for point in group),
        means=means,
        spreads=spreads,
        model={
            "throughput": model["throughput_bytes_per_s"] * 1e-6,
            "period": model["period_ns"] * 1e-6,
            "idle_fraction": model["idle_fraction"] * 100,
            "k": model["k"],
        }
        if model
        else {},
        limiter=max(limiters, key=limiters.count) if limiters else None,
        shares=_shares(good),
        stream_count=max((len(point.streams) for point in good), default=0),
    )


def _shares(points: Sequence[PointResult]) -> dict[str, float]:
    budgets = [point.parts_ns for point in points if sum(point.parts_ns.values())]
    return {
        part: 100 * float(np.mean([parts[part] / sum(parts.values()) for parts in budgets]))
        for part in (budgets[0] if budgets else ())
    }


def beside(definition: Definition, results: Sequence[PointResult]) -> list[Beside]:
    """Every published figure of an arm that was run, with ours; ours is None where no point gave it."""
    made = rows(results)
    return [each for published in definition.published for each in _beside(published, made, definition)]


def _beside(published: Published, made: Sequence[Row], definition: Definition) -> Iterable[Beside]:
    run = {row.arm for row in made}
    for arm in published.arms or [arm.name for arm in definition.arms]:
        for written, figure in published.values if arm in run else ():
            wanted = {name: each.value for name, each in published.where.items()} | {published.x: written.value}
            row = row_at(made, arm, wanted)
            yield Beside(
                quantity=published.quantity,
                unit=QUANTITIES[published.quantity],
                source=published.source or definition.source,
                arm=arm,
                where={name: each.text for name, each in published.where.items()},
                x=published.x,
                at=written.text,
                published=figure,
                ours=row.means.get(published.quantity) if row else None,
                spread=row.spreads.get(published.quantity) if row else None,
            )


def row_at(rows: Iterable[Row], arm: str, wanted: Mapping[str, Any]) -> Row | None:
    """The first row of an arm with these settings; None where there is none."""
    for row in rows:
        if row.arm == arm and all(name in row.values and row.values[name] == value for name, value in wanted.items()):
            return row
    return None


def fits(points: Sequence[Point], results: Sequence[PointResult]) -> list[ArmFit]:
    """The model, fitted to the points of each arm that differ in nothing but delay; where there is enough to fit."""
    by_name = {result.name: result for result in results}
    groups: dict[tuple[str, ...], tuple[dict[str, str], list[SteadyPoint]]] = {}
    for point in points:
        where = {name: each.text for name, each in point.grid.items() if name != DELAY}
        _, found = groups.setdefault((point.arm, *where.values()), (where, []))
        result = by_name.get(point.name)
        # without a delay there are no delays to count
        found += result.steady if result and point.values.get(DELAY) else ()
    made = []
    for (arm, *_), (where, found) in groups.items():
        if len({each.setting.delay_ns for each in found}) < _FITTED_LEAST:
            continue
        try:
            # as it is read back
            made.append(ArmFit(arm, where, json.loads(json.dumps(fit.fit(found).as_dict()))))
        except InputInvalid:
            continue
    return made
