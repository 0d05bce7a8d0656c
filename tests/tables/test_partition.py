"""The rows of tables by number, against selections from the whole table; and rows made when they are looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from iscsitrace.tables.numbers import ByConnection, NumberedRows, Partition, Rows
from iscsitrace.tables.table import Table
from tests.support.tables_by_hand import MS, table

LARGE = 1 << 40


def commands(count: int) -> Table:
    """Commands whose phases differ from row to row; every third has no status."""
    return table(
        "cycles",
        *(
            {"cycle": row, "command_first_ns": row * MS, "status_ns": None if row % 3 == 2 else row * MS + row * row}
            for row in range(count)
        ),
    )


@given(st.lists(st.sampled_from([-1, 0, 1, 5, LARGE]), max_size=12), st.booleans())
def test_the_rows_of_a_number_are_those_that_a_mask_selects(numbers: list[int], is_sorted: bool) -> None:
    of_row = np.array(sorted(numbers) if is_sorted else numbers, dtype=np.int64)
    whole = commands(len(of_row))
    parts = Partition(whole, of_row)
    assert list(parts) == sorted({*numbers} - {-1})
    for number in (0, 1, 5, 7, LARGE):
        own, naive = parts.rows(number), whole.select(np.flatnonzero(of_row == number))
        assert list(own.rows()) == list(naive.rows())
        assert own["latency_ns"].tolist() == naive["latency_ns"].tolist()
        # a selection of a part, too
        assert list(own.select(slice(1, None)).rows()) == list(naive.rows())[1:]
        assert list(own.select(np.arange(len(own))[::-1].copy()).rows()) == list(naive.rows())[::-1]


@given(st.lists(st.sampled_from([-1, 0, 1, 5]), max_size=12), st.sets(st.sampled_from([0, 1, 5, 7])))
def test_the_rows_of_several_numbers_are_in_the_order_of_the_table(numbers: list[int], wanted: set[int]) -> None:
    of_row = np.array(numbers, dtype=np.int64)
    found = Partition(commands(len(of_row)), of_row).rows_of_several(wanted)
    assert found.raw("cycle").tolist() == np.flatnonzero(np.isin(of_row, [*wanted])).tolist()


@pytest.mark.parametrize("base", [0, (1 << 15) - 3, (1 << 15) - 2, (1 << 16) - 3, LARGE])
def test_numbers_are_sorted_whatever_their_size(base: int) -> None:
    parts = Partition(commands(6), np.array([base + 2, -1, base, base + 2, base + 1, base]))
    assert {number: parts.rows(number).raw("cycle").tolist() for number in parts} == {
        base: [2, 5],
        base + 1: [4],
        base + 2: [0, 3],
    }


@pytest.mark.parametrize("number", [1, (1 << 15) - 1, 1 << 15, 1 << 16, (1 << 32) - 2])
def test_a_null_of_an_unsigned_column_is_a_number_of_its_own(number: int) -> None:
    """Stretches of a session are of no connection: their null is the largest number."""
    null = (1 << 32) - 1
    parts = Partition(commands(5), np.array([null, number, 0, null, number], dtype=np.uint32))
    assert {each: parts.rows(each).raw("cycle").tolist() for each in parts} == {0: [2], number: [1, 4], null: [0, 3]}
    assert parts.rows_of_several([number, 0]).raw("cycle").tolist() == [1, 2, 4]


def test_a_table_of_one_number_is_not_copied() -> None:
    whole = commands(6)
    parts = Partition(whole, np.full(6, 4))
    assert parts.rows(4) is whole
    assert parts.rows_of_several([4, 5]) is whole
    assert len(parts.rows(-1)) == len(parts.rows(5)) == 0
    assert list(Partition(whole, np.full(6, -1))) == []


def test_all_numbers_together_are_the_table() -> None:
    whole = commands(6)
    assert Partition(whole, np.array([1, 0, 1, 0, 1, 0])).rows_of_several([0, 1]) is whole


def test_what_was_computed_of_a_table_is_not_computed_again_for_its_parts() -> None:
    seen: list[int] = []

    def doubled(cycles: Table) -> NDArray[Any]:
        seen.append(len(cycles))
        return cycles.raw("cycle") * 2

    whole = commands(6)
    parts = Partition(whole, np.array([1, 0, 1, 0, 1, 0]))
    assert parts.rows(0).each(doubled).tolist() == [2, 6, 10]
    assert whole.select([5, 1]).each(doubled).tolist() == [10, 2]
    assert seen == [3, 2]
    assert whole.each(doubled).tolist() == whole.each(doubled).tolist() == [0, 2, 4, 6, 8, 10]
    assert parts.rows(1).each(doubled).tolist() == [0, 4, 8]
    assert parts.rows(1).select([2, 0]).each(doubled).tolist() == [8, 0]
    assert seen == [3, 2, 6]


def test_a_part_has_no_column_of_the_whole() -> None:
    """Of ten thousand sessions twenty are looked at: no column is put in order for them."""
    whole = commands(600)
    part = Partition(whole, np.arange(600) % 100).rows(3)
    times = part.raw("command_first_ns")
    assert (times if times.base is None else times.base).nbytes == times.nbytes == 6 * 8


def test_tables_by_connection() -> None:
    made = {name: table(name, *({"connection": number} for number in (3, 0, 3, 1))) for name in ("nops", "senders")}
    tables = ByConnection(made.__getitem__)
    assert tables("nops") is made["nops"]
    assert tables.rows("senders", [3, 1]).raw("connection").tolist() == [3, 3, 1]
    assert tables.rows("nops", (number for number in (0, 9))).raw("connection").tolist() == [0]
    with pytest.raises(KeyError):
        tables.rows("budget", [0])


def test_phases_of_parts() -> None:
    parts = Partition(commands(9), np.arange(9) % 2)
    odd, even = parts.rows(1), parts.rows(0).select([3, 1])
    assert odd["latency_ns"].tolist() == [1, 9, None, 49]
    assert even["latency_ns"].tolist() == [36, None]
    assert even.raw("latency_ns").tolist()[0] == 36
    assert even.mask("latency_ns").tolist() == [False, True]  # type: ignore[union-attr]
    assert [row["latency_ns"] for row in odd.select(slice(1, 3)).rows()] == [9, None]


COUNT = 3_000


def test_rows_in_any_order_are_those_of_the_table() -> None:
    every = table("nops", *({"connection": place % 7, "request_ns": place or None} for place in range(COUNT)))
    expected, rows = list(every.rows()), Rows(every)
    order = np.random.default_rng(1).permutation(COUNT)
    assert [rows[place] for place in order.tolist()] == [expected[place] for place in order]
    named = Rows(every, ("request_ns",))
    assert [named[place] for place in (COUNT - 1, 0)] == [{"request_ns": COUNT - 1}, {"request_ns": None}]


def test_few_rows_are_python_values_at_a_time() -> None:
    rows = Rows(table("nops", *({"request_ns": place} for place in range(COUNT))))
    first = rows[0]
    assert rows[1] is not first
    assert rows[0] is first
    for place in range(COUNT):
        rows[place]
    assert sum(map(len, rows._blocks.values())) < COUNT
    assert rows[0] is not first
    assert rows[0] == first


def test_rows_by_their_numbers() -> None:
    rows = NumberedRows(table("sessions", {"session": 9, "end": "closed"}, {"session": 4}), "session", ("end",))
    assert rows[9] == {"end": "closed"}
    with pytest.raises(KeyError):
        rows[0]
