"""Distributions of a column: percentiles and counts per value. Nulls are left out, and how many were is said.

A percentile is a value that occurred (nearest rank), never an average of two: there is a cycle to look at behind
every figure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}


def percentiles(values: NDArray[Any]) -> dict[str, int | None]:
    """``p50 p95 p99 max`` of the values that are not null, by nearest rank; None when there is none."""
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
