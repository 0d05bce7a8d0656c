"""Rows that are made when they are looked at: those of the table, whatever the order, and few at a time."""

from __future__ import annotations

import numpy as np
import pytest

from iscsitrace.tables.partition import NumberedRows, Rows
from tests.support.tables_by_hand import table

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
