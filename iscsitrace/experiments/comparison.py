"""Results side by side: the repeats of a point as one row, and published values beside the measured ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from iscsitrace.experiments import scatter, verdicts
from iscsitrace.experiments.definition import Definition
from iscsitrace.experiments.definition_claims import Published
from iscsitrace.experiments.definition_settings import Written
from iscsitrace.experiments.quantities import IDLE_OF_SOCKET, QUANTITIES, PointResult
from iscsitrace.experiments.results import Beside
from iscsitrace.experiments.scatter import Estimate


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
    estimates: dict[str, Estimate]
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
    def means(self) -> dict[str, float]:
        """Each known quantity, in its unit: the mean over repeats."""
        return {name: each.value for name, each in self.estimates.items()}


def rows(points: Iterable[PointResult]) -> list[Row]:
    """The repeats of each point as one row, in the order of the points."""
    groups: dict[tuple[str, ...], list[PointResult]] = {}
    for point in points:
        groups.setdefault((point.arm, *point.grid.values()), []).append(point)
    return _beside_sockets([_row(group) for group in groups.values()])


def _beside_sockets(found: Sequence[Row]) -> list[Row]:
    """The rows, with the idle fraction of those for which a socket ran over the same link with the same TCP."""
    sockets = {_path(row): row for row in found if _is_socket(row) and "throughput" in row.estimates}
    return [_beside_socket(row, sockets.get(_path(row))) for row in found]


def _beside_socket(row: Row, socket: Row | None) -> Row:
    ours, model = row.estimates.get("throughput"), row.model.get("throughput")
    if socket is None or _is_socket(row) or ours is None:
        return row
    of_socket = socket.model.get("throughput")
    share = scatter.ratio(ours, socket.estimates["throughput"])
    return replace(
        row,
        estimates=row.estimates | {IDLE_OF_SOCKET: scatter.lack(share)},
        model=row.model | ({IDLE_OF_SOCKET: 100 * (1 - model / of_socket)} if model and of_socket else {}),
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


def _over_repeats(points: Sequence[PointResult]) -> dict[str, Estimate]:
    """What is known, by quantity."""
    values = {
        name: [value for point in points if (value := each.measured(point)) is not None]
        for name, each in QUANTITIES.items()
    }
    known = {name: found for name, found in values.items() if found}
    estimates = {name: scatter.mean(found) for name, found in known.items()}
    for name, each in QUANTITIES.items():
        of_repeats = each.of_repeats(known) if each.of_repeats else None
        if of_repeats is not None:
            estimates[name] = of_repeats
    return estimates


def _shares(points: Sequence[PointResult]) -> dict[str, float]:
    budgets = [point.parts_ns for point in points if sum(point.parts_ns.values())]
    return {
        part: 100 * float(np.mean([parts[part] / sum(parts.values()) for parts in budgets]))
        for part in (budgets[0] if budgets else ())
    }


def beside(definition: Definition, made: Sequence[Row], *, is_whole: bool = False) -> list[Beside]:
    """Every published value of the arms that ran (``is_whole``: of all arms), with the measured one; None where no row
    has it.
    """
    run = {row.arm for row in made}
    found = (each for published in definition.published for each in _beside(published, made, definition))
    return [each for each in found if is_whole or each.arm in run]


def _beside(published: Published, made: Sequence[Row], definition: Definition) -> Iterator[Beside]:
    unit = QUANTITIES[published.quantity].unit
    for row, arm, written, value in places(published, made, definition):
        ours = row.estimates.get(published.quantity) if row else None
        verdict = verdicts.of_printed(published.quantity, unit, value, ours)
        note = published.note or (verdicts.OTHER_MODEL if verdict == verdicts.NOT_COMPARED else "")
        yield Beside(
            quantity=published.quantity,
            unit=unit,
            source=published.source or definition.source,
            arm=arm,
            where={name: each.text for name, each in published.where.settings.items()},
            x=published.x,
            at=written.text,
            published=value,
            ours=ours.value if ours else None,
            spread=ours.spread if ours else None,
            run_count=ours.count if ours else 0,
            interval=ours.interval if ours else None,
            verdict=verdict,
            why=note if verdict not in {verdicts.REPRODUCED, verdicts.NOT_RUN} else "",
            is_computed=published.is_computed,
        )


def places(
    published: Published, made: Sequence[Row], definition: Definition
) -> Iterator[tuple[Row | None, str, Written, float]]:
    """Each published value: its row (None where there is none), its arm, the value of ``x``, and the value."""
    where = {name: each.value for name, each in published.where.settings.items()}
    for arm in published.arms or [arm.name for arm in definition.arms]:
        for written, value in published.pairs:
            yield row_at(made, arm, where | {published.x: written.value}), arm, written, value


def row_at(rows: Iterable[Row], arm: str, wanted: Mapping[str, Any]) -> Row | None:
    """The first row of an arm with these settings; None when there is none."""
    for row in rows:
        if row.arm == arm and all(name in row.values and row.values[name] == value for name, value in wanted.items()):
            return row
    return None
