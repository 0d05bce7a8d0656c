"""The repeats of a point as one row: means with 95 % confidence intervals, and ratios and differences of two means.

Repeats differ in their seed alone and are taken as independent; so are two places of a grid. One run has no interval.
In the simulated world a place runs once where nothing depends on the seed: beside a repeated one it adds no scatter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any, Final

import numpy as np

from iscsitrace.fit.robust import student_975
from iscsitrace.studies.definition import Definition, Published
from iscsitrace.studies.definition_settings import Place, Written
from iscsitrace.studies.quantities import IDLE_OF_SOCKET, OF_SOCKET, QUANTITIES, SCATTER, PointResult

_NORMAL_975: Final = 1.959964


@dataclass(frozen=True)
class MeasuredValue:
    """A number, and what its repeats say about it."""

    value: float
    count: int = 1
    """Runs; of a ratio or a difference, those of the place with fewer, among places that were repeated."""
    low: float | None = None
    """The ends of the 95 % confidence interval; None for one run."""
    high: float | None = None
    variance: float = 0.0
    """Of the value: the squared standard error."""
    freedom: float = 0.0
    """Degrees of freedom of the variance."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The confidence interval; None for one run."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def spread(self) -> float | None:
        """Standard deviation over the repeats of a mean; None for one run."""
        return sqrt(self.variance * self.count) if self.freedom else None

    def lies(self, low: float, high: float) -> bool | None:
        """Whether the number, with its confidence interval, is between the limits; None where a limit is in it."""
        least, most = self.interval or (self.value, self.value)
        if low <= least and most <= high:
            return True
        return None if most >= low and least <= high else False


def mean(values: Sequence[float]) -> MeasuredValue:
    """The mean of at least one value."""
    count = len(values)
    variance = float(np.var(values, ddof=1)) / count if count > 1 else 0.0
    return _estimate(float(np.mean(values)), count, variance, count - 1)


def variation(values: Sequence[float], scale: float = 1.0) -> MeasuredValue | None:
    """Standard deviation / mean, times ``scale``; None for fewer than two values, or a mean of zero.

    The interval is that of the standard deviation of a normal distribution, with the quantiles of chi-square after
    Wilson and Hilferty (1931), which has none for two values.
    """
    count, middle = len(values), float(np.mean(values)) if values else 0.0
    if count < 2 or not middle:
        return None
    found = scale * float(np.std(values, ddof=1)) / abs(middle)
    least, most = (_chi_square(count - 1, normal) for normal in (-_NORMAL_975, _NORMAL_975))
    if not least:
        return MeasuredValue(found, count)
    return MeasuredValue(found, count, found * sqrt((count - 1) / most), found * sqrt((count - 1) / least))


def ratio(one: MeasuredValue, other: MeasuredValue) -> MeasuredValue:
    """One mean / another that is not zero, by the first terms of its Taylor series."""
    value = one.value / other.value
    return _of_two(value, one, other, one.variance / other.value**2, value**2 * other.variance / other.value**2)


def difference(one: MeasuredValue, other: MeasuredValue) -> MeasuredValue:
    """One mean less another."""
    return _of_two(one.value - other.value, one, other, one.variance, other.variance)


def percent(share: MeasuredValue) -> MeasuredValue:
    """A share in %."""
    low, high = (None if end is None else 100 * end for end in (share.low, share.high))
    return MeasuredValue(100 * share.value, share.count, low, high, 100**2 * share.variance, share.freedom)


def lack(share: MeasuredValue) -> MeasuredValue:
    """What a share lacks to 100 %, in %."""
    low, high = (None if end is None else 100 * (1 - end) for end in (share.high, share.low))
    return MeasuredValue(100 * (1 - share.value), share.count, low, high, 100**2 * share.variance, share.freedom)


def _of_two(value: float, one: MeasuredValue, other: MeasuredValue, first: float, second: float) -> MeasuredValue:
    """The degrees of freedom are Welch's and Satterthwaite's."""
    parts = [(part, each.freedom) for part, each in ((first, one), (second, other)) if part]
    freedom = sum(part for part, _ in parts) ** 2 / sum(part**2 / each for part, each in parts) if parts else 0.0
    count = min((each.count for each in (one, other) if each.count > 1), default=1)
    return _estimate(value, count, first + second, freedom)


def _estimate(value: float, count: int, variance: float, freedom: float) -> MeasuredValue:
    if count < 2:
        return MeasuredValue(value, count)
    half = student_975(max(1, int(freedom))) * sqrt(variance) if variance else 0.0
    return MeasuredValue(value, count, value - half, value + half, variance, freedom)


def _chi_square(freedom: int, normal: float) -> float:
    """The quantile of chi-square at a quantile of the normal distribution; 0 where the formula has none."""
    part = 2 / (9 * freedom)
    return freedom * max(0.0, 1 - part + normal * sqrt(part)) ** 3


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
    estimates: dict[str, MeasuredValue]
    """Each known quantity, in its unit, over the repeats."""
    model: dict[str, float]
    """The quantities that the model predicts, in their units."""
    limiter: str | None
    """The most frequent one."""
    shares: dict[str, float] = field(default_factory=dict)
    """Each part of the time breakdown, in %: the mean over repeats."""
    stream_count: int = 0
    """Connections that carry data at the same time."""

    @property
    def name(self) -> str:
        """Its arm and its place in the grid, for people."""
        return place_name(self.arm, self.grid)

    @property
    def model_error(self) -> float | None:
        """Throughput of the model / the measured one, less 1."""
        model, measured = self.model.get("throughput"), self.means.get("throughput")
        return model / measured - 1 if model and measured else None

    @property
    def means(self) -> dict[str, float]:
        """Each known quantity, in its unit: the mean over repeats."""
        return {name: each.value for name, each in self.estimates.items()}


def place_name(arm: str, texts: Mapping[str, str]) -> str:
    """An arm and settings, for people."""
    return ", ".join((arm, *(f"{name.rpartition('.')[2]} {text}" for name, text in texts.items())))


def rows(points: Iterable[PointResult]) -> list[Row]:
    """The repeats of each point as one row, in the order of the points."""
    groups: dict[tuple[str, ...], list[PointResult]] = {}
    for point in points:
        groups.setdefault((point.arm, *point.grid.values()), []).append(point)
    return _beside_sockets([_row(group) for group in groups.values()])


def _beside_sockets(found: Sequence[Row]) -> list[Row]:
    """The rows, beside a socket that ran over the same link with the same TCP, where there is one."""
    sockets = {_path(row): row for row in found if _is_socket(row) and "throughput" in row.estimates}
    return [_beside_socket(row, sockets.get(_path(row))) for row in found]


def _beside_socket(row: Row, socket: Row | None) -> Row:
    ours, model = row.estimates.get("throughput"), row.model.get("throughput")
    if socket is None or _is_socket(row) or ours is None:
        return row
    of_socket = socket.model.get("throughput")
    share = ratio(ours, socket.estimates["throughput"])
    return replace(
        row,
        estimates=row.estimates | {OF_SOCKET: percent(share), IDLE_OF_SOCKET: lack(share)},
        model=row.model
        | (
            {OF_SOCKET: 100 * model / of_socket, IDLE_OF_SOCKET: 100 * (1 - model / of_socket)}
            if model and of_socket
            else {}
        ),
    )


def _is_socket(row: Row) -> bool:
    return str(row.values.get("workload.operation")).startswith("socket")


def _path(row: Row) -> tuple[str, ...]:
    """The settings of link and TCP, and the direction of the data."""
    found = {name: value for name, value in row.values.items() if name.startswith("link.") or "tcp." in name}
    direction = str(row.values.get("workload.operation", "read")).rpartition("_")[2]
    return (direction, *(f"{name} {found[name]!r}" for name in sorted(found)))


def _row(group: Sequence[PointResult]) -> Row:
    good = [point for point in group if point.error is None]
    first = (good or list(group))[0]
    limiters = [point.limiter for point in good if point.limiter]
    return Row(
        arm=first.arm,
        grid=first.grid,
        values=first.values,
        run_count=len(good),
        failed_count=sum(point.error is not None for point in group),
        estimates=_over_repeats(good),
        model={
            name: first.model[each.in_model] * each.scale
            for name, each in QUANTITIES.items()
            if first.model and each.in_model
        },
        limiter=max(limiters, key=limiters.count) if limiters else None,
        shares=_shares(good),
        stream_count=max((len(point.streams) for point in good), default=0),
    )


def _over_repeats(points: Sequence[PointResult]) -> dict[str, MeasuredValue]:
    """What is known, by quantity."""
    values = {
        name: [value for point in points if (value := each.measured(point)) is not None]
        for name, each in QUANTITIES.items()
    }
    known = {name: found for name, found in values.items() if found}
    estimates = {name: mean(found) for name, found in known.items()}
    scatter = variation(known["throughput"], 100) if "throughput" in known else None
    return estimates if scatter is None else estimates | {SCATTER: scatter}


def _shares(points: Sequence[PointResult]) -> dict[str, float]:
    budgets = [point.parts_ns for point in points if sum(point.parts_ns.values())]
    return {
        part: 100 * float(np.mean([parts[part] / sum(parts.values()) for parts in budgets]))
        for part in (budgets[0] if budgets else ())
    }


def places(
    published: Published, made: Sequence[Row], definition: Definition
) -> Iterator[tuple[Row | None, str, Written, float]]:
    """Each published value: its row (None where there is none), its arm, the value of ``x``, and the printed value."""
    for arm in published.arms or [arm.name for arm in definition.arms]:
        for written, value in published.pairs:
            yield row_at(made, arm, {**published.where.settings, published.x: written}), arm, written, value


def row_at(rows: Iterable[Row], arm: str, place: Place) -> Row | None:
    """The first row of an arm with these settings; None when there is none."""
    for row in rows:
        if row.arm == arm and all(
            name in row.values and row.values[name] == each.value for name, each in place.items()
        ):
            return row
    return None
