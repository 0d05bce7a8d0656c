"""System calls behind commands: thresholds, which commands continue one another, and which were issued at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iscsitrace.measure import system_calls
from iscsitrace.measure.system_calls import is_at_once
from iscsitrace.tables.table import Table
from tests.support.tables_by_hand import table


def read(number: int, lba: int | None, blocks: int, **columns: Any) -> dict[str, Any]:
    row = {"cycle": number, "session": 0, "lun": 0, "operation": "read", "lba": lba, "block_count": blocks}
    return row | {"bytes": blocks * 512, "data_bytes": blocks * 512, "queue_depth": 1} | columns


def reads(*runs: tuple[int, ...]) -> Table:
    """Each run of sizes in blocks begins elsewhere, and its commands follow one another."""
    rows: list[dict[str, Any]] = []
    for place, run in enumerate(runs):
        lba = place << 24
        for blocks in run:
            rows.append(read(len(rows), lba, blocks))
            lba += blocks
    return table("cycles", *rows)


def test_a_command_continues_the_one_before_it_at_its_end() -> None:
    rows = [
        read(0, 0, 8),
        read(1, 8, 8),
        read(2, 17, 8),
        read(3, 24, 8),
        read(4, 33, 8),
        read(5, 41, 8, lun=1),
        read(6, 49, 8, lun=1, operation="write"),
        read(7, 57, 8, lun=1, operation="write", session=1),
        read(8, None, 8, lun=1, operation="write", session=1),
        read(9, 65, 8, lun=1, operation="write", session=1),
        read(10, 73, 8, lun=1, operation="write", session=1),
    ]
    found = system_calls.is_continued(table("cycles", *rows))
    assert found.nonzero()[0].tolist() == [1, 10]
    assert system_calls.is_continued(table("cycles", *rows[:2])).tolist() == [False, True]
    assert system_calls.is_continued(table("cycles", *rows[:1])).tolist() == [False]


def sequential_share(*rows: dict[str, Any]) -> float:
    return float(system_calls.sequential_shares(table("cycles", *rows), np.zeros(len(rows), dtype=np.int64), 1)[0])


def test_the_sequential_share_asks_for_an_end_anywhere() -> None:
    rows = [read(0, 16, 8), read(1, 100, 8), read(2, 8, 8), read(3, 0, 8), read(4, None, 8), read(5, 7, 1)]
    # 16 and 8 are ends, 100, 0 and 7 are not
    assert sequential_share(*rows) == 2 / 5
    assert sequential_share(read(0, None, 8)) == 0
    assert sequential_share() == 0
    # an address at which the end does not fit into 64 bits with a sign
    assert sequential_share(read(0, (1 << 63) - 1, 8)) == 0


@pytest.mark.parametrize(("others", "is_call"), [(2, True), (3, False)])
def test_four_fifths_of_the_groups_have_the_size_of_the_call(others: int, is_call: bool) -> None:
    call = system_calls.infer(reads(*[(100, 40)] * 8, *[(7,)] * others))
    assert (call is not None) is is_call
    if call:
        assert (call.bytes, call.pieces, call.count, call.rows) == (140 * 512, (51_200, 20_480), 8, (0, 1))


@pytest.mark.parametrize(("blocks", "is_call"), [(60 << 10, True), ((60 << 10) + 1, False)])
def test_a_call_has_at_most_64_mib(blocks: int, is_call: bool) -> None:
    assert (system_calls.infer(reads(*[(68 << 10, blocks)] * 4)) is not None) is is_call


@pytest.mark.parametrize(("others", "is_call"), [(8, True), (9, False)])
def test_a_quarter_of_the_commands_have_the_size_of_a_full_piece(others: int, is_call: bool) -> None:
    """Four calls with one full piece each, and one run of larger commands of which no two are alike."""
    run = tuple(range(101, 101 + others))
    assert (system_calls.infer(reads(*[(100, 40)] * 4, run)) is not None) is is_call


def test_three_calls_are_too_few() -> None:
    assert system_calls.infer(reads(*[(100, 40)] * 4)) is not None
    assert system_calls.infer(reads(*[(100, 40)] * 3, (100,))) is None
    assert system_calls.infer(reads()) is None


def in_calls(*calls: tuple[int, ...], blocks: int = 100) -> Table:
    """One stream of equal commands, call by call with these queue depths."""
    depths = [depth for call in calls for depth in call]
    return table("cycles", *(read(n, blocks * n, blocks, queue_depth=depth) for n, depth in enumerate(depths)))


def test_calls_of_full_pieces_show_by_the_moment_at_which_none_is_in_flight() -> None:
    call = system_calls.infer(in_calls(*[(1, 2, 3)] * 4))
    assert call
    assert (call.bytes, call.pieces, call.count, call.rows) == (300 * 512, (51_200,) * 3, 4, (0, 1, 2))
    assert call.is_at_once
    # a call of another length first, which is no example
    call = system_calls.infer(in_calls((1, 2), *[(1, 2, 3)] * 4))
    assert call
    assert (call.count, call.rows) == (4, (2, 3, 4))


@pytest.mark.parametrize(("gap_ns", "is_call"), [(10, True), (11, False)])
def test_pieces_are_issued_at_once(gap_ns: int, is_call: bool) -> None:
    """In a tenth of the 100 ns that the call takes; reads that wait for their own answers overlap, too."""
    rows = [
        read(2 * call + piece, 200 * call + 100 * piece, 100, queue_depth=1 + piece)
        | {"command_first_ns": 1000 * call + piece * gap_ns, "status_ns": 1000 * call + 100}
        for call in range(4)
        for piece in range(2)
    ]
    assert (system_calls.infer(table("cycles", *rows)) is not None) is is_call


@pytest.mark.parametrize("calls", [[(1, 2, 3)] * 3, [(1, 2, 2)] * 4, [(1,)] * 12, [(1, 2, 3)] * 4 + [(1,)] * 2])
def test_no_call_shows_where_the_pattern_does_not_repeat(calls: list[tuple[int, ...]]) -> None:
    assert system_calls.infer(in_calls(*calls)) is None


def test_pieces_one_after_another_are_not_at_once() -> None:
    call = system_calls.infer(reads((60, 30), *[(100, 40)] * 8))
    assert call
    assert (call.rows, call.pieces, call.is_at_once) == ((2, 3), (51_200, 20_480), False)


def test_of_as_many_calls_of_two_sizes_neither_repeats() -> None:
    assert system_calls.infer(reads(*[(100, 40)] * 4, *[(100, 50)] * 4)) is None
    assert system_calls.infer(reads(*[(100, 40)] * 16, *[(100, 50)] * 4))


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
