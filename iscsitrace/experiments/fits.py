"""The model, fitted to the points of each arm that differ only in delay."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from iscsitrace.analysis.fit import regression
from iscsitrace.analysis.fit.points import Point as SteadyPoint
from iscsitrace.errors import InputInvalid
from iscsitrace.experiments.points import Point
from iscsitrace.experiments.quantities import PointResult
from iscsitrace.experiments.results import ArmFit

DELAY: Final = "link.one-way-delay"
_LEAST_DELAYS: Final = 2


def of(points: Sequence[Point], results: Sequence[PointResult]) -> Iterator[ArmFit]:
    """A fit for each arm, and for each place of the rest of its grid, where at least two delays were measured."""
    by_name = {result.name: result for result in results}
    groups: dict[tuple[str, ...], tuple[dict[str, str], list[SteadyPoint]]] = {}
    for point in points:
        where = {name: each.text for name, each in point.grid.items() if name != DELAY}
        _, found = groups.setdefault((point.arm, *where.values()), (where, []))
        result = by_name.get(point.name)
        # without a delay, k cannot be determined
        found += result.steady if result and point.values.get(DELAY) else ()
    for (arm, *_), (where, found) in groups.items():
        if len({each.setting.delay_ns for each in found}) < _LEAST_DELAYS:
            continue
        try:
            # through JSON, so that it equals what is read back
            yield ArmFit(arm, where, json.loads(json.dumps(regression.fit(found).as_dict())))
        except InputInvalid:
            continue
