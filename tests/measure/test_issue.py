"""Which groups of commands were issued at once: by the time in which nothing was sent before the last of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iscsitrace.measure.system_calls import is_at_once
from tests.support.tables_by_hand import table


def write(start: int, status: int | None, **columns: Any) -> dict[str, Any]:
    return {"operation": "write", "command_first_ns": start, "status_ns": status} | columns


def judged(*groups: tuple[dict[str, Any], ...]) -> list[bool]:
    rows = [row | {"cycle": number} for number, row in enumerate(row for group in groups for row in group)]
    firsts = np.cumsum([0, *(len(group) for group in groups[:-1])])
    found: list[bool] = is_at_once(table("cycles", *rows), firsts).tolist()
    return found


def test_a_tenth_of_the_time_may_pass_until_the_last_command() -> None:
    assert judged(
        (write(0, 60), write(10, 100)),
        (write(200, 260), write(211, 300)),
        # the sum of all gaps counts
        (write(400, 460), write(405, 470), write(410, 500)),
        (write(600, 660), write(605, 670), write(611, 700)),
        # a command alone
        (write(800, 900),),
    ) == [True, False, True, False, True]
    assert is_at_once(table("cycles"), np.zeros(0, dtype=np.int64)).tolist() == []


def test_programs_that_wait_for_their_own_answers_do_not_issue_at_once() -> None:
    """Two of them, each 40 ns after its answer; they overlap in pairs, with none in flight between pairs."""
    assert judged(*((write(at, at + 17), write(at + 7, at + 24)) for at in (0, 57, 114))) == [False] * 3


def test_the_time_in_which_data_is_sent_does_not_count() -> None:
    """The first command takes 50 of 100 ns to be sent, with its immediate or its unsolicited data."""
    assert judged((write(0, 90, command_last_ns=50), write(60, 100))) == [True]
    assert judged((write(0, 90, command_last_ns=49), write(60, 100))) == [False]
    unsolicited = {"command_last_ns": 5, "unsolicited_bytes": 512}
    assert judged((write(0, 90, data_last_ns=50, **unsolicited), write(60, 100))) == [True]
    assert judged((write(0, 90, data_last_ns=49, **unsolicited), write(60, 100))) == [False]
    # data that was requested is not sent before the next command
    assert judged((write(0, 90, command_last_ns=5, data_last_ns=50), write(60, 100))) == [False]


def test_where_unsolicited_data_ended_is_unknown_behind_requested_data() -> None:
    columns = {"command_last_ns": 5, "unsolicited_bytes": 512, "r2t_count": 1, "data_last_ns": 80}
    assert judged((write(0, 90, **columns), write(60, 100))) == [True]


@pytest.mark.parametrize(("gap", "is_one"), [(0, True), (1, False)])
def test_without_a_status_only_commands_at_the_same_time_are_at_once(gap: int, is_one: bool) -> None:
    assert judged((write(0, None), write(gap, None))) == [is_one]
