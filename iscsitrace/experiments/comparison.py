"""Results side by side: the repeats of a point as one row, and published values beside the measured ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from iscsitrace.experiments.definition import Definition
from iscsitrace.experiments.definition_claims import Published
from iscsitrace.experiments.quantities import QUANTITIES, PointResult
from iscsitrace.experiments.results import Beside


@dataclass(frozen=True)
class Row:
    """The repeats of a point as one."""

    arm: str
    grid: dict[str, str]
    """Settings as the definition writes them."""
    values: dict[str, Any]
    """All settings, in the units of a run."""
    run_count: int
    """Repeats that did not fail."""
    failed_count: int
    means: dict[str, float]
    """Each known quantity, in its unit."""
    spreads: dict[str, float]
    """Standard deviations over repeats; none for a single run."""
    model: dict[str, float]
    """The quantities that the model predicts, in their units."""
    limiter: str | None
    """The most frequent one."""
    shares: dict[str, float] = field(default_factory=dict)
    """Each part of the time breakdown, in %: the mean over repeats."""
    stream_count: int = 0
    """Connections that carry data at the same time."""


def rows(points: Iterable[PointResult]) -> list[Row]:
    """The repeats of each point as one row, in the order of the points."""
    groups: dict[tuple[str, ...], list[PointResult]] = {}
    for point in points:
        groups.setdefault((point.arm, *point.grid.values()), []).append(point)
    return [_row(group) for group in groups.values()]


def _row(group: Sequence[PointResult]) -> Row:
    good = [point for point in group if point.error is None]
    first = (good or list(group))[0]
    limiters = [point.limiter for point in good if point.limiter]
    means, spreads = _over_repeats(good)
    return Row(
        arm=first.arm,
        grid=first.grid,
        values=first.values,
        run_count=len(good),
        failed_count=sum(point.error is not None for point in group),
        means=means,
        spreads=spreads,
        model={
            name: first.model[each.in_model] * each.scale
            for name, each in QUANTITIES.items()
            if first.model and each.in_model
        },
        limiter=max(limiters, key=limiters.count) if limiters else None,
        shares=_shares(good),
        stream_count=max((len(point.streams) for point in good), default=0),
    )


def _over_repeats(points: Sequence[PointResult]) -> tuple[dict[str, float], dict[str, float]]:
    """Means and standard deviations by quantity."""
    found = {
        name: [value for point in points if (value := each.measured(point)) is not None]
        for name, each in QUANTITIES.items()
    }
    means = {name: float(np.mean(values)) for name, values in found.items() if values}
    spreads = {name: float(np.std(values, ddof=1)) for name, values in found.items() if len(values) > 1}
    for name, each in QUANTITIES.items():
        value = each.of_repeats(means, spreads) if each.of_repeats else None
        if value is not None:
            means[name] = value
    return means, spreads


def _shares(points: Sequence[PointResult]) -> dict[str, float]:
    budgets = [point.parts_ns for point in points if sum(point.parts_ns.values())]
    return {
        part: 100 * float(np.mean([parts[part] / sum(parts.values()) for parts in budgets]))
        for part in (budgets[0] if budgets else ())
    }


def beside(definition: Definition, results: Sequence[PointResult]) -> list[Beside]:
    """Every published value of the arms that ran, with the measured one; None where no point has it."""
    made = rows(results)
    return [each for published in definition.published for each in _beside(published, made, definition)]


def _beside(published: Published, made: Sequence[Row], definition: Definition) -> Iterator[Beside]:
    run, where = {row.arm for row in made}, published.where.settings
    for arm in published.arms or [arm.name for arm in definition.arms]:
        for written, value in published.pairs if arm in run else ():
            wanted = {name: each.value for name, each in where.items()} | {published.x: written.value}
            row = row_at(made, arm, wanted)
            yield Beside(
                quantity=published.quantity,
                unit=QUANTITIES[published.quantity].unit,
                source=published.source or definition.source,
                arm=arm,
                where={name: each.text for name, each in where.items()},
                x=published.x,
                at=written.text,
                published=value,
                ours=row.means.get(published.quantity) if row else None,
                spread=row.spreads.get(published.quantity) if row else None,
            )


def row_at(rows: Iterable[Row], arm: str, wanted: Mapping[str, Any]) -> Row | None:
    """The first row of an arm with these settings; None when there is none."""
    for row in rows:
        if row.arm == arm and all(name in row.values and row.values[name] == value for name, value in wanted.items()):
            return row
    return None
