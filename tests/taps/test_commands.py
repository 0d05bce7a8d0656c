"""Equal keys of commands are found as comparing each with each finds them; steps as their definition has them."""

from __future__ import annotations

import numpy as np
import pytest

from iscsitrace.taps.commands import _SEEN_IN_MOST, _equal, _single
from iscsitrace.taps.envelope import _AROUND, _jumps

SEEDS = range(20)


def keys(seed: int, most: int) -> tuple[list[int], list[int]]:
    """Two lists of keys below ``most``, with both ends of their range."""
    random = np.random.default_rng(seed)
    first, second = (random.integers(0, most, size).tolist() for size in random.integers(0, 60, 2))
    ends = [0, (1 << 64) - 1]
    return [*first, *ends], [*ends, *second]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("most", [5, 100, 1 << 62])
def test_equal_keys(seed: int, most: int) -> None:
    first, second = keys(seed, most)
    for one, other in ((first, second), (first, sorted(set(second))), (first, []), ([], second)):
        expected = [
            (place, at)
            for place, key in enumerate(one)
            for at in [at for at, each in enumerate(other) if each == key][:_SEEN_IN_MOST]
        ]
        found = _equal(np.array(one, dtype=np.uint64), np.array(other, dtype=np.uint64))
        assert list(zip(*(each.tolist() for each in found), strict=True)) == expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("most", [2, 30, 1 << 62])
def test_commands_that_their_connection_has_once(seed: int, most: int) -> None:
    own = keys(seed, most)[0]
    connections = np.random.default_rng(seed).integers(0, 3, len(own)).tolist()
    # keys are mixed over all their bits, as those of commands are
    mixed = [key * 0xD1342543DE82EF95 % (1 << 64) for key in own]
    both = list(zip(mixed, connections, strict=True))
    expected = [place for place, each in enumerate(both) if both.count(each) == 1]
    found = _single(np.array(mixed, dtype=np.uint64), np.array(connections, dtype=np.int64))
    assert found.tolist() == expected


@pytest.mark.parametrize("count", [2 * _AROUND, 2 * _AROUND + 1, 100])
def test_jumps(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    places = range(_AROUND, count - _AROUND + 1)
    expected = [values[place : place + _AROUND].min() - values[place - _AROUND : place].min() for place in places]
    assert _jumps(values).tolist() == expected
