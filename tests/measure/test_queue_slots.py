"""Slots of a queue: against the definition, by brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.show.perfetto import slots

STRETCHES = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), max_size=40)


@given(STRETCHES)
def test_no_two_stretches_of_a_slot_overlap_and_no_slot_is_needless(stretches: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in stretches], dtype=np.int64)
    ends = starts + np.array([length for _, length in stretches], dtype=np.int64)
    found = slots(starts, ends)
    for first in range(len(stretches)):
        for second in range(first):
            if found[first] == found[second]:
                assert ends[first] <= starts[second] or ends[second] <= starts[first]
    most = max((int(((starts <= at) & (ends > at)).sum()) for at in range(45)), default=0)
    assert set(found.tolist()) == set(range(most))


def test_one_after_another_is_one_slot() -> None:
    assert slots(np.array([5, 0, 3]), np.array([9, 3, 5])).tolist() == [0, 0, 0]
    assert slots(np.array([0, 1, 2, 3]), np.array([3, 9, 3, 4])).tolist()[:3] == [0, 1, 2]
