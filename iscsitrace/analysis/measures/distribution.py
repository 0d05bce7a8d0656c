"""Distributions of a column: percentiles and counts per value, without nulls.

A percentile is a value that occurred (nearest rank), never an average of two: every figure has a cycle to look at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}


def percentiles(values: NDArray[Any]) -> dict[str, int | None]:
    """``p50 p95 p99 max`` of the values that are not null, by nearest rank; None where there are none."""
    known = _known(values)
    if not len(known):
        return dict.fromkeys(PERCENTILES)
    found = np.percentile(known, list(PERCENTILES.values()), method="inverted_cdf")
    return {name: int(value) for name, value in zip(PERCENTILES, found, strict=True)}


def counts(values: NDArray[Any]) -> dict[int, int]:
    """How often each value occurs, by value."""
    each, count = np.unique(_known(values), return_counts=True)
    return dict(zip(each.tolist(), count.tolist(), strict=True))


def _known(values: NDArray[Any]) -> NDArray[Any]:
    return values.compressed() if isinstance(values, np.ma.MaskedArray) else values
