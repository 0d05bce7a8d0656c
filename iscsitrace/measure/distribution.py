"""Distributions of a column: percentiles and counts per value, without nulls.

A percentile is a value that occurred (nearest rank), never an average of two: every figure has a cycle to look at.
Each distribution has its number of values, ``n``. A percentile that would be the maximum has no value of its own.

Values that are only known to be above all others (of commands without a status) rank last; ``open_count`` of ``n`` are
such, and a percentile at one of them is a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.ranks import PERCENTILES, is_meaningful

NO_VALUES: Final[dict[str, int | None]] = {"n": 0, **dict.fromkeys(PERCENTILES)}
_NONE: Final = np.zeros(0, dtype=np.int64)


def percentiles(values: NDArray[Any], bounds: NDArray[Any] = _NONE) -> dict[str, int | None]:
    """``n p50 p95 p99 max`` of the values that are not null, by nearest rank; None where there are too few.

    ``bounds`` are lower bounds of values above all these: then ``open_count`` is their number.
    """
    known = _known(values)
    count = len(known) + len(bounds)
    if not count:
        return dict(NO_VALUES)
    if len(bounds):
        # what ranks higher took longer than all below it
        known = np.maximum.accumulate(np.concatenate([np.sort(known), np.sort(bounds)]))
    places = [rank(count, percent) for percent in PERCENTILES.values()]
    found = named(count, np.partition(known, places)[places].tolist())
    return found | {"open_count": len(bounds)} if len(bounds) else found


def is_bound(found: Mapping[str, int | None], name: str) -> bool:
    """Whether a percentile is a lower bound; one that too few values have is none."""
    if found[name] is None:
        return False
    count, open_count = found["n"] or 0, found.get("open_count") or 0
    return bool(open_count) and rank(count, PERCENTILES[name]) >= count - open_count


def rank(count: int, percent: float) -> int:
    """The place of a percentile in sorted values, as NumPy's ``inverted_cdf`` defines it."""
    return math.ceil(count * (percent / 100) - 1)


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
