"""How long a pause has to be to end a run of commands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.measure.busy import longest_pause_ns, longest_pauses_ns

MS = 1_000_000


@pytest.mark.parametrize(
    ("lengths_ms", "longest_ms"),
    [
        # alone 100 ms; beside others ten times what three quarters of them do not exceed
        ([100], 100),
        ([101], 100),
        ([20, 20, 20, 200], 200),
        ([20, 20, 20, 20, 30, 201], 200),
        ([20, 20, 30, 30, 300], 300),
        # two are not steady, three are
        ([150, 150], 100),
        ([150, 150, 150], 1_500),
        ([14, 14, 141], 140),
        # of 0 to 100 ms three quarters are no longer than 75
        (range(101), 750),
        ([], 100),
    ],
)
def test_the_longest_pause_within_a_run(lengths_ms: list[int], longest_ms: int) -> None:
    assert longest_pause_ns(np.array([*lengths_ms]) * MS) == longest_ms * MS


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0, 5, 9, 10, 11, 30, 99, 101, 500])), max_size=40))
def test_many_sets_of_pauses_against_a_percentile_of_each(drawn: list[tuple[int, int]]) -> None:
    place, pauses_ns = (np.array([each[column] for each in drawn], dtype=np.int64) for column in (0, 1))
    expected = []
    for number in range(6):
        own = pauses_ns[place == number] * MS
        usual = float(np.percentile(own, 75, method="lower")) if len(own) >= 3 else 0.0
        expected.append(max(100.0 * MS, 10 * usual))
    assert longest_pauses_ns(pauses_ns * MS, place, 6).tolist() == expected
