"""How long a pause has to be to end a run of commands."""

from __future__ import annotations

import numpy as np
import pytest

from iscsitrace.analysis.measures import pauses

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
    assert pauses.longest_ns(np.array([*lengths_ms]) * MS) == longest_ms * MS
