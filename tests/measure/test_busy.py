"""Which time is that of the workload, and how long a pause ends it: stories of programs, and a naive model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.measure import busy
from iscsitrace.measure.busy import BUSY, FLUSH, IDLE, SCAN, longest_pause_ns, longest_pauses_ns
from iscsitrace.tables.table import Table
from tests.support.tables_by_hand import table

MS = 1_000_000
KINDS = ("none", "other", "flush", "data")
Stretch = tuple[str, float]
"""What is in flight, and for how many milliseconds."""

READ: Stretch = ("data", 10)


def budget(*stretches: Stretch, connection: int | None = 0, session: int | None = 0) -> list[dict[str, object]]:
    """Rows of one connection."""
    rows, now = [], 1_000
    for in_flight, length_ms in stretches:
        ends = now + round(length_ms * MS)
        part = "initiator_think" if in_flight == "none" else "propagation"
        scope = {"connection": connection, "session": session}
        rows.append({"time_first_ns": now, "time_last_ns": ends, "part": part, "in_flight": in_flight} | scope)
        now = ends
    return rows


def busy_ms(*stretches: Stretch) -> float:
    rows = busy.rows_of(table("budget", *budget(*stretches)))
    return float((rows.raw("time_last_ns") - rows.raw("time_first_ns")).sum()) / MS


def uses(*stretches: Stretch) -> list[int]:
    found: list[int] = busy.uses(table("budget", *budget(*stretches))).tolist()
    return found


def issued(count: int, think_ms: float) -> list[Stretch]:
    """So many reads, with a pause after each but the last."""
    return [stretch for _ in range(count) for stretch in (READ, ("none", think_ms))][:-1]


def test_one_command_is_busy_for_its_time() -> None:
    assert busy_ms(READ) == 10
    assert busy_ms(("none", 5), READ, ("none", 50)) == 10


def test_two_commands_ten_seconds_apart_have_no_think_time() -> None:
    assert busy_ms(READ, ("none", 10_000), READ) == 20


def test_periodic_commands_are_no_steady_work() -> None:
    assert busy_ms(*issued(60, 990)) == 600
    # a program that sleeps for 100 ms wakes up a little later
    assert busy_ms(*issued(60, 100.1)) == 600


@pytest.mark.parametrize("think_ms", [0.1, 50, 100])
def test_a_slow_but_steady_program_thinks(think_ms: float) -> None:
    assert busy_ms(*issued(60, think_ms)) == pytest.approx(600 + 59 * think_ms)


def test_think_time_needs_eight_pauses() -> None:
    assert busy_ms(*issued(8, 50)) == 80
    assert busy_ms(*issued(9, 50)) == 90 + 8 * 50


def test_where_most_pauses_are_long_the_short_ones_are_chance() -> None:
    now_and_then = [*issued(9, 50), *([("none", 500), READ] * 8)]
    assert busy_ms(*now_and_then) == 90 + 8 * 50 + 80
    assert busy_ms(*now_and_then, ("none", 500), READ) == 180


def test_a_burst_after_the_scan_is_counted_without_the_scan() -> None:
    scan = [("other", 10), ("none", 1)] * 40
    assert busy_ms(*scan, *issued(20, 5)) == 200 + 19 * 5
    assert uses(*scan, READ) == [SCAN] * 80 + [BUSY]
    # the reads begin later
    assert uses(*scan, ("none", 100.1), READ) == [SCAN] * 79 + [IDLE, IDLE, BUSY]


def test_a_scan_alone_is_not_busy() -> None:
    assert uses(*[("other", 10), ("none", 1)] * 2, ("other", 1)) == [SCAN] * 5


def test_a_poll_between_reads_is_part_of_a_short_pause() -> None:
    polled = [*issued(9, 5), ("none", 5), ("other", 10), ("none", 5), READ]
    assert busy_ms(*polled) == 90 + 8 * 5 + 20 + 10
    slow = [*issued(9, 5), ("none", 5), ("other", 100), ("none", 5), READ]
    assert busy_ms(*slow) == 90 + 8 * 5 + 10


def test_a_hung_command_is_busy_however_long() -> None:
    assert busy_ms(READ, ("none", 3_000), ("data", 7_000), ("none", 3_000)) == 7_010


def test_a_flush_among_writes_is_part_of_their_work() -> None:
    assert busy_ms(READ, ("none", 5), ("flush", 600), ("none", 5), READ) == 620
    database = [stretch for _ in range(10) for stretch in (READ, ("none", 1), ("flush", 30), ("none", 1))][:-1]
    assert busy_ms(*database) == 10 * 40 + 19


def test_a_flush_apart_from_the_work_is_counted_apart() -> None:
    assert uses(READ, ("none", 3_000), ("flush", 626)) == [BUSY, IDLE, FLUSH]
    assert uses(
        ("flush", 3),
    ) == [FLUSH]
    # as the last step of a write
    assert uses(READ, ("none", 3), ("flush", 626)) == [BUSY, IDLE, BUSY]


def test_an_empty_breakdown() -> None:
    assert uses() == []


@pytest.mark.parametrize("at_once", [1, 20, 1 << 16])
def test_each_connection_and_session_counts_for_itself(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine reads with eight pauses show steady work, nine reads of two connections do not."""
    monkeypatch.setattr(busy, "_AT_ONCE", at_once)
    steady, five, four = issued(9, 50), issued(5, 50), issued(4, 50)
    many = [
        *budget(*steady, connection=5),
        *budget(*five, connection=6),
        *budget(*four, connection=7),
        *budget(*steady, connection=None, session=6),
        *budget(READ, connection=8, session=None),
    ]
    found = busy.uses(table("budget", *many))
    assert np.split(found, np.cumsum([17, 9, 7, 17]))[0].tolist() == [BUSY] * 17
    assert found[17:33].tolist() == [BUSY, IDLE] * 4 + [BUSY] + [BUSY, IDLE] * 3 + [BUSY]
    assert found[33:].tolist() == [BUSY] * 18
    # rows of scopes may alternate
    order = np.argsort([int(str(row["time_first_ns"])) for row in many], kind="stable")
    mixed = busy.uses(table("budget", *[many[place] for place in order]))
    assert mixed.tolist() == found[order].tolist()


def test_times_at_the_end_of_their_type() -> None:
    last = np.iinfo(np.int64).max
    rows = budget(*issued(9, 50))
    shift = last - int(str(rows[-1]["time_last_ns"]))
    moved = [row | {name: int(str(row[name])) + shift for name in ("time_first_ns", "time_last_ns")} for row in rows]
    assert (busy.uses(table("budget", *moved)) == BUSY).all()


def naive(stretches: Sequence[Stretch]) -> list[int]:
    """The rule of docs/method.md, stretch by stretch."""
    kinds = [kind for kind, _ in stretches]
    work = [place for place, kind in enumerate(kinds) if kind in ("data", "flush")]
    pauses = [(a, b) for a, b in pairwise(work) if b - a > 1]

    def length(first: int, last: int) -> float:
        return sum(stretches[place][1] for place in range(first + 1, last))

    short = [pause for pause in pauses if length(*pause) <= 100]
    is_steady = len(short) >= 8 and 2 * len(short) >= len(pauses)
    long = [pause for pause in pauses if pause not in short]
    found = [{"none": IDLE, "other": SCAN, "flush": FLUSH, "data": BUSY}[kind] for kind in kinds]
    bursts = [
        [place for _, place in group]
        for _, group in groupby(((sum(place >= b for _, b in long), place) for place in work), lambda each: each[0])
    ]
    for burst in bursts:
        if any(kinds[place] == "data" for place in burst):
            for place in burst:
                found[place] = BUSY
            if is_steady:
                for place in range(burst[0], burst[-1]):
                    found[place] = BUSY
    asked = [place for place, kind in enumerate(kinds) if kind != "none"]
    for first, last in pairwise(asked):
        if length(first, last) <= 100 and SCAN in (found[first], found[last]):
            for place in range(first + 1, last):
                found[place] = SCAN if found[place] == IDLE else found[place]
    return found


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([1, 10, 40, 99, 100, 101, 2_000])), max_size=60))
def test_uses_against_a_naive_model(stretches: list[Stretch]) -> None:
    assert uses(*stretches) == naive(stretches)


@given(st.lists(st.sampled_from([1, 40, 100, 101]), min_size=7, max_size=24))
def test_think_time_against_a_naive_model(pauses_ms: list[int]) -> None:
    stretches = [READ, *(stretch for pause in pauses_ms for stretch in (("none", pause), READ))]
    assert uses(*stretches) == naive(stretches)


def test_rows_are_kept_where_all_are_busy() -> None:
    whole: Table = table("budget", *budget(READ))
    assert busy.rows_of(whole) is whole


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
