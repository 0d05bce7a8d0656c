"""Sums of the time breakdown, against a model that counts nanoseconds one by one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.measure import budget as budgets
from iscsitrace.measure.budget import PARTS, Budget
from iscsitrace.tables.table import Table
from tests.support.tables_by_hand import table


def stretches(lengths: list[tuple[str, int]], start_ns: int = 1_000, **more: int | str | None) -> list[dict[str, Any]]:
    rows = []
    for part, length_ns in lengths:
        row = {
            "time_first_ns": start_ns,
            "time_last_ns": start_ns + length_ns,
            "part": part,
            "cycle": None,
            "frame": None,
        }
        rows.append({**row, "session": 0, "connection": 0, **more})
        start_ns += length_ns
    return rows


def budget_table(rows: list[dict[str, Any]]) -> Table:
    return table("budget", *rows)


MS = 1_000_000


def test_parts_add_up() -> None:
    rows = stretches([("transfer", 50), ("propagation", 30), ("transfer", 10), ("target_service", 10)])
    whole = budgets.of_connections(budget_table(rows))[0]
    assert whole.total_ns == whole.jobs_ns == 100
    parts = dict.fromkeys(PARTS, 0) | {"transfer": 60, "propagation": 30, "target_service": 10}
    assert whole.parts_ns == whole.whole_ns == parts
    assert whole.idle_fraction == pytest.approx(0.4)


def test_shares_and_idle_fraction_are_of_the_busy_time() -> None:
    parts = dict.fromkeys(PARTS, 0) | {"transfer": 30, "propagation": 20, "initiator_think": 10}
    whole = Budget(parts, {"initiator_think": 30, "propagation": 10}, {"idle": 30, "scan": 10, "flush": 0})
    assert {part: share for part, share in whole.shares.items() if share} == {
        "transfer": 30 / 60,
        "propagation": 20 / 60,
        "initiator_think": 10 / 60,
    }
    assert (whole.jobs_ns, whole.total_ns, whole.idle_fraction) == (60, 100, 0.5)
    assert whole.whole_ns == parts | {"propagation": 30, "initiator_think": 40}
    assert (list(whole.whole_ns), list(whole.shares)) == ([*PARTS], [*PARTS])


@pytest.mark.parametrize(
    ("parts", "limiter"),
    [
        # transfer where it takes more than all waits together
        ({"transfer": 49, "propagation": 51}, "propagation"),
        ({"transfer": 50, "propagation": 50}, "propagation"),
        ({"transfer": 51, "propagation": 49}, "transfer"),
        ({"transfer": 40, "propagation": 29, "ack_wait": 31}, "ack_wait"),
        ({"transfer": 51, "propagation": 25, "ack_wait": 24}, "transfer"),
        # a window makes the sender pay the path's delay
        ({"propagation": 50, "receive_window": 40}, "receive_window"),
        ({"propagation": 50, "congestion_window": 39, "send_buffer": 11}, "propagation"),
        ({"propagation": 50, "send_buffer": 45, "target_service": 49}, "send_buffer"),
        ({"propagation": 50, "target_service": 49}, "propagation"),
        ({"propagation": 45, "send_buffer": 44, "target_service": 46}, "target_service"),
        ({"transfer": 1}, "transfer"),
        ({}, None),
    ],
)
def test_the_limiter_is_the_line_or_the_largest_wait(parts: dict[str, int], limiter: str | None) -> None:
    # excluded time does not count
    for excluded in ({}, {"initiator_think": 900, "transfer": 900}):
        assert Budget(dict.fromkeys(PARTS, 0) | parts, excluded).limiter == limiter


def test_an_empty_breakdown_has_no_limiter_and_no_idle_fraction() -> None:
    nothing = Budget(dict.fromkeys(PARTS, 0))
    assert (nothing.limiter, nothing.idle_fraction, set(nothing.shares.values())) == (None, None, {0.0})
    assert budgets.of_connections(budget_table([])) == {}


def test_excluded_time_is_counted_by_its_use() -> None:
    rows = [
        *stretches([("propagation", 3 * MS), ("target_service", 2 * MS)], in_flight="other"),
        *stretches([("initiator_think", 400 * MS)], 1_000 + 5 * MS),
        *stretches([("transfer", 7 * MS), ("propagation", 4 * MS)], 1_000 + 405 * MS),
        *stretches([("initiator_think", 200 * MS)], 1_000 + 416 * MS),
        *stretches([("target_service", 60 * MS)], 1_000 + 616 * MS, in_flight="flush"),
    ]
    whole = budgets.of_connections(budget_table(rows))[0]
    assert (whole.jobs_ns, whole.total_ns) == (11 * MS, 676 * MS)
    assert whole.uses_ns == {"idle": 600 * MS, "scan": 5 * MS, "flush": 60 * MS}
    assert whole.parts_ns == dict.fromkeys(PARTS, 0) | {"transfer": 7 * MS, "propagation": 4 * MS}


def test_a_session_of_several_connections_has_a_separate_breakdown() -> None:
    alone = stretches([("transfer", 10)], session=0, connection=0)
    first, second = (stretches([("transfer", 10)], session=1, connection=number) for number in (1, 2))
    own = stretches([("transfer", 15)], session=1, connection=None)
    unnamed = stretches([("transfer", 7)], session=None, connection=3)
    rows = budget_table([*alone, *first, *second, *own, *unnamed])
    assert {number: each.total_ns for number, each in budgets.of_sessions(rows).items()} == {0: 10, 1: 15}
    assert {number: each.total_ns for number, each in budgets.of_connections(rows).items()} == {
        0: 10,
        1: 10,
        2: 10,
        3: 7,
    }
    # of session 0 the row of its connection, of session 1 its own, and of connection 2 none of these
    first_row = {"session": 0}, {"session": 1}, {"connection": 2}
    assert [budgets.rows_of(rows, **wanted).raw("time_last_ns").tolist() for wanted in first_row] == [
        [1_010],
        [1_015],
        [1_010],
    ]
    assert budgets.rows_of(rows, session=0).raw("connection").tolist() == [0]
    assert len(budgets.rows_of(rows, session=7)) == len(budgets.rows_of(rows, connection=7)) == 0


@given(
    lengths=st.lists(st.tuples(st.sampled_from(PARTS), st.integers(1, 20)), min_size=1, max_size=12),
    edges=st.lists(st.integers(0, 300), min_size=2, max_size=8, unique=True),
)
def test_sums_over_time_against_counting_nanoseconds(lengths: list[tuple[str, int]], edges: list[int]) -> None:
    start_ns = 40
    owners = [part for part, length_ns in lengths for _ in range(length_ns)]
    rows = budget_table(stretches(lengths, start_ns))
    edges_ns = np.array(sorted(edges), dtype=np.int64)
    expected = [
        [
            sum(owners[now - start_ns] == part for now in range(low, high) if 0 <= now - start_ns < len(owners))
            for part in PARTS
        ]
        for low, high in itertools.pairwise(edges_ns)
    ]
    assert budgets.over_time(rows, edges_ns).T.tolist() == expected
    assert budgets.of_cycles(rows, edges_ns[:-1], edges_ns[1:]).tolist() == expected
