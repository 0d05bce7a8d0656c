"""Sums of the time breakdown, against a model that counts nanoseconds one by one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.analysis.measures import budget as budgets
from iscsitrace.analysis.measures.budget import PARTS, Budget
from iscsitrace.tables.table import Table
from tests.support.tables_by_hand import table


def stretches(lengths: list[tuple[str, int]], start_ns: int = 1_000, **more: int | None) -> list[dict[str, Any]]:
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


def test_parts_add_up_and_the_largest_except_transfer_limits() -> None:
    rows = stretches([("transfer", 50), ("propagation", 30), ("transfer", 10), ("target_service", 10)])
    whole = budgets.of_connections(budget_table(rows))[0]
    assert whole.total_ns == 100
    assert whole.parts_ns == dict.fromkeys(PARTS, 0) | {"transfer": 60, "propagation": 30, "target_service": 10}
    assert whole.idle_fraction == pytest.approx(0.4)
    assert whole.limiter == "propagation"
    assert whole.is_line_bound


def test_shares_are_of_all_time_and_busy_shares_without_the_gaps() -> None:
    parts = {"transfer": 30, "propagation": 20, "initiator_think": 50}
    whole = Budget(dict.fromkeys(PARTS, 0) | parts, between_jobs_ns=40)
    assert {part: share for part, share in whole.shares.items() if share} == {
        "transfer": 0.3,
        "propagation": 0.2,
        "initiator_think": 0.5,
    }
    assert {part: share for part, share in whole.busy_shares.items() if share} == {
        "transfer": 30 / 60,
        "propagation": 20 / 60,
        "initiator_think": 10 / 60,
    }
    assert (whole.limiter, whole.is_line_bound, whole.idle_fraction) == ("propagation", False, 0.7)
    nothing = Budget(dict.fromkeys(PARTS, 0))
    assert set(nothing.shares.values()) == set(nothing.busy_shares.values()) == {0.0}


@pytest.mark.parametrize(("transfer", "is_line_bound"), [(49, False), (50, False), (51, True)])
def test_more_than_half_of_the_busy_time_is_line_bound(transfer: int, is_line_bound: bool) -> None:
    parts = dict.fromkeys(PARTS, 0) | {"transfer": transfer, "propagation": 100 - transfer, "initiator_think": 900}
    assert Budget(parts, between_jobs_ns=900).is_line_bound is is_line_bound


def test_an_empty_breakdown_has_no_limiter_and_no_idle_fraction() -> None:
    nothing = Budget(dict.fromkeys(PARTS, 0))
    assert (nothing.limiter, nothing.idle_fraction, nothing.is_line_bound) == (None, None, False)
    assert budgets.of_connections(budget_table([])) == {}


def test_an_idle_gap_does_not_limit_but_steady_think_time_does() -> None:
    work = [("propagation", 5 * MS), ("initiator_think", 1 * MS)]
    job = budgets.of_connections(budget_table(stretches([*work * 20, ("initiator_think", 3_000 * MS), *work * 20])))[0]
    assert (job.limiter, job.between_jobs_ns) == ("propagation", 3_000 * MS)
    queued = stretches([*[("transfer", MS), ("propagation", MS)] * 20, ("initiator_think", 900 * MS), ("transfer", MS)])
    assert budgets.of_connections(budget_table(queued))[0].between_jobs_ns == 900 * MS
    steady = budgets.of_connections(
        budget_table(stretches([("propagation", 5 * MS), ("initiator_think", 300 * MS)] * 9))
    )
    assert (steady[0].limiter, steady[0].between_jobs_ns) == ("initiator_think", 0)
    # nor after as many commands that came at once
    set_up = [("propagation", 5 * MS), ("initiator_think", MS // 10)]
    mixed = stretches([*set_up * 4, *[("propagation", 5 * MS), ("initiator_think", 1_500 * MS)] * 3])
    assert budgets.of_connections(budget_table(mixed))[0].between_jobs_ns == 0


@pytest.mark.parametrize(
    ("lengths_ms", "pauses_ms"),
    [
        # alone up to 100 ms, beside others up to ten times what three quarters of them do not exceed
        ([100], 0),
        ([101], 101),
        ([20, 20, 20, 200], 0),
        ([20, 20, 20, 201], 201),
        ([20, 20, 30, 30, 300], 0),
        ([20, 20, 20, 20, 30, 201], 201),
        # two are no steady think time, three are
        ([150, 150], 300),
        ([150, 150, 150], 0),
        ([15, 15, 150], 0),
        ([14, 14, 141], 141),
    ],
)
def test_how_long_an_idle_span_has_to_be_for_a_gap(lengths_ms: list[int], pauses_ms: int) -> None:
    assert budgets.between_jobs_ns(np.array(lengths_ms) * MS) == pauses_ms * MS


def test_think_time_is_up_to_ten_upper_quartiles() -> None:
    # of 0 to 100 ms three quarters are no longer than 75
    assert budgets.longest_think_ns(np.arange(101) * MS) == 750 * MS


def test_idle_gaps_do_not_count_for_the_line_limit() -> None:
    work = [("transfer", 51 * MS), ("propagation", 49 * MS)]
    whole = budgets.of_connections(budget_table(stretches([*work, ("initiator_think", 500 * MS), *work])))[0]
    assert (whole.total_ns, whole.jobs_ns, whole.is_line_bound) == (700 * MS, 200 * MS, True)
    assert not Budget(dict.fromkeys(PARTS, 0) | {"transfer": 50, "propagation": 50}).is_line_bound


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
