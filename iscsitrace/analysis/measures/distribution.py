"""Distributions of a column: percentiles and counts per value, without nulls.

A percentile is a value that occurred (nearest rank), never an average of two: every figure has a cycle to look at.
Each distribution has its number of values, ``n``. A percentile that would be the maximum has no value of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures.ranks import is_meaningful

PERCENTILES: Final = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}
NO_VALUES: Final[dict[str, int | None]] = {"n": 0, **dict.fromkeys(PERCENTILES)}


def percentiles(values: NDArray[Any]) -> dict[str, int | None]:
    """``n p50 p95 p99 max`` of the values that are not null, by nearest rank; None where there are too few."""
    known = _known(values)
    if not len(known):
        return dict(NO_VALUES)
    return named(len(known), np.percentile(known, list(PERCENTILES.values()), method="inverted_cdf").tolist())


def named(count: int, ranked: Sequence[float]) -> dict[str, int | None]:
    """``n p50 p95 p99 max`` of that many values, from the values at those ranks."""
    found = zip(PERCENTILES, ranked, strict=True)
    return {"n": count, **{name: int(value) if is_meaningful(name, count) else None for name, value in found}}


def counts(values: NDArray[Any]) -> dict[int, int]:
    """How often each value occurs, by value."""
    each, count = np.unique(_known(values), return_counts=True)
    return dict(zip(each.tolist(), count.tolist(), strict=True))


def _known(values: NDArray[Any]) -> NDArray[Any]:
    return values.compressed() if isinstance(values, np.ma.MaskedArray) else values
