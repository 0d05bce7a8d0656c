"""Which sides of a host may be copies of each other, without a comparison of every pair of them.

A host issues a write to all sides of a mirror one after the other. So a copy is near in order of time, always as far
apart on the logical units; and near among the writes that begin at the same address, if the sides have the same
addresses. Hundreds of volumes of one host do not cost the square of their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.groups.mirrors.sides import MirrorSide
from iscsitrace.tables.numbers import distinct, order_of

Array = NDArray[Any]

PAIRED_MAX: Final = 16
"""Sides up to which each may be a copy of each other: so few pairs are compared as quickly."""
SAMPLE: Final = 64
"""Writes of each side whose neighbors are looked at."""
NEIGHBORS: Final = 4
"""Neighbors before and after each of them: a write and its copies on up to five sides are together."""
SHARE: Final = 0.25
"""Least share of these writes that have a neighbor on the other side, for either of both: one may have been written for
long before the other was. Each of many unrelated volumes is a neighbor of few writes."""
COUNT_MIN: Final = 2
"""Least number of them: any two writes are some distance apart."""


def of_host(sides: Sequence[MirrorSide]) -> list[list[int]]:
    """For each side of a host the places of those after it that may be its copies, in order."""
    count = len(sides)
    if count <= PAIRED_MAX:
        return [list(range(place + 1, count)) for place in range(count)]
    found: list[list[int]] = [[] for _ in sides]
    for place, other in _pairs(sides):
        found[place].append(other)
    return found


def _pairs(sides: Sequence[MirrorSide]) -> list[tuple[int, int]]:
    """Places of two sides that may be copies of each other, in order."""
    firsts, begins = (np.concatenate([getattr(side.writes, name) for side in sides]) for name in ("firsts", "begins"))
    sizes = [len(side.writes) for side in sides]
    place = np.repeat(np.arange(len(sides)), sizes)
    picked = [np.arange(size) if size <= SAMPLE else np.linspace(0, size - 1, SAMPLE).astype(np.intp) for size in sizes]
    rows = np.concatenate([each + base for each, base in zip(picked, np.cumsum([0, *sizes[:-1]]), strict=True)])
    least = np.maximum(SHARE * np.array([len(each) for each in picked]), COUNT_MIN)
    found = set()
    for order, is_by_address in ((np.lexsort((begins, firsts)), True), (np.argsort(begins, kind="stable"), False)):
        row, near = _neighbors(order, rows)
        one, other, apart = place[row], place[near], firsts[near] - firsts[row]
        is_wanted = (one != other) & ((apart == 0) | (not is_by_address))
        one, other, apart = (each[is_wanted] for each in (one, other, apart))
        # few sides are neighbors that often, at any distance
        _, pair = distinct(one * len(sides) + other)
        often = np.flatnonzero(np.bincount(pair)[pair] >= least[one])
        sort = often[np.argsort(apart[often])]
        sort = sort[order_of(pair[sort])]
        one, other, apart = (each[sort] for each in (one, other, apart))
        is_next = np.ones(len(one), dtype=bool)
        is_next[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1]) | (apart[1:] != apart[:-1])
        starts = np.flatnonzero(is_next)
        enough = starts[np.diff(starts, append=len(one)) >= least[one[starts]]]
        found |= {(min(pair), max(pair)) for pair in zip(one[enough].tolist(), other[enough].tolist(), strict=True)}
    return sorted(found)


def _neighbors(order: Array, rows: Array) -> tuple[Array, Array]:
    """Pairs of each of these rows with its neighbors in this order of all rows."""
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    steps = np.array([step for step in range(-NEIGHBORS, NEIGHBORS + 1) if step])
    near = place[rows][:, None] + steps
    is_there = (near >= 0) & (near < len(order))
    return rows[np.nonzero(is_there)[0]], order[near[is_there]]
