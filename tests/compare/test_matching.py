"""Ties and thresholds of the choice of two sessions to compare."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.compare.sides import Side, match, why_not
from tests.compare.test_diff import numbers, side


def test_a_session_with_a_tenth_of_the_bytes_may_be_picked() -> None:
    reader = numbers(side(0, "read"))
    assert match(numbers(side(0, "write", moved=1_000), side(1, "read", moved=100)), reader)[0].session == 1
    assert match(numbers(side(0, "write", moved=1_000), side(1, "read", moved=99)), reader)[0].session == 0


def test_among_equals_the_first_is_picked() -> None:
    both = numbers(side(4), side(2), side(3))
    assert [each.session for each in match(both, both)] == [2, 2]


def test_unknown_targets_are_not_the_same() -> None:
    a = numbers(side(0, target=None, moved=900), side(1, target="disk", moved=800))
    b = numbers(side(5, target=None, moved=900), side(6, target="disk", moved=800))
    assert [each.session for each in match(a, b)] == [1, 6]


def test_an_operation_counts_more_than_a_target_and_a_target_more_than_bytes() -> None:
    a = numbers(side(0, "read", "disk", 500), side(1, "write", "other", 900))
    assert match(a, numbers(side(7, "write", "disk")))[0].session == 1
    assert match(a | numbers(side(2, "read", "other", 900)), numbers(side(7, "read")))[0].session == 0


SESSIONS = st.lists(
    st.builds(
        side,
        st.integers(0, 99),
        st.sampled_from(["read", "write", "block"]),
        st.sampled_from(["disk", "other", "", None]),
        st.sampled_from([99, 100, 900, 1_000]),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda each: each.session,
)


@given(SESSIONS, SESSIONS)
def test_no_pair_of_all_is_more_alike(a: list[Side], b: list[Side]) -> None:
    def likeness(one: Side, other: Side) -> tuple[bool, bool, int, int, int]:
        is_same_target = one.target_name is not None and one.target_name == other.target_name
        return (
            *(one.operation == other.operation, is_same_target),
            *(one.bytes * other.bytes, -one.session, -other.session),
        )

    busy = [[one for one in sides if one.bytes * 10 >= max(each.bytes for each in sides)] for sides in (a, b)]
    best = max(itertools.product(*busy), key=lambda pair: likeness(*pair))
    assert match(numbers(*a), numbers(*b)) == best


def test_sessions_are_not_compared_each_with_each() -> None:
    class Counted(int):
        products = 0

        def __mul__(self, other: int) -> int:
            Counted.products += 1
            return int(self) * other

    sessions = numbers(*(side(number, target=f"target {number}", moved=Counted(1_000)) for number in range(100)))
    match(sessions, sessions)
    assert Counted.products <= len(sessions)


@pytest.mark.parametrize(("unknown", "which"), [(0, "first"), (1, "second")])
def test_which_capture_lacks_the_rtt_or_the_commands(unknown: int, which: str) -> None:
    pair = [side(3), side(4)]
    pair[unknown] = replace(pair[unknown], path_ns=None)
    # the first capture is asked for both before the second
    reason = why_not(*pair) or ""
    if unknown == 0:
        assert reason == f"the {which} capture does not show the RTT of session 3"
    else:
        assert reason == "session 3 of the first capture has only 7 complete reads: too few to be sure"
    assert why_not(side(0, "block"), side(1)) == (
        "session 0 of the first capture mixes reads and writes, and the model covers one operation"
    )


def test_the_requested_sessions_are_compared_however_little_they_moved() -> None:
    a = numbers(side(0, moved=1_000), side(1, moved=1))
    assert [each.session for each in match(a, a, 1, None)] == [1, 0]
    assert [each.session for each in match(a, a, None, 1)] == [0, 1]


def test_sessions_that_both_read_and_have_commands_can_be_compared() -> None:
    measured = replace(side(3), task_count=8, measured=object())  # type: ignore[arg-type]
    assert why_not(measured, replace(measured, session=4)) is None
    reason = why_not(measured, replace(side(4), path_ns=None))
    assert reason == "the second capture does not show the RTT of session 4"
    few = "session 4 of the second capture has only 7 complete reads: too few to be sure"
    assert why_not(measured, side(4)) == few
    single = replace(side(4, "write"), task_count=1)
    assert "has only 1 complete write:" in (why_not(replace(measured, operation="write"), single) or "")
    # eight show a pattern
    enough = replace(side(4), task_count=8, measured=measured.measured)
    assert why_not(measured, enough) is None
