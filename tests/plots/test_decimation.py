"""Decimation of curves: fewer marks with the same extremes, for any chunk size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.plots import marks
from iscsitrace.plots.marks import Bars, BarsMaker, Detail, SeriesMaker

SPAN_NS = 1000
rows = st.lists(st.tuples(st.integers(0, SPAN_NS - 1), st.integers(-50, 50)), max_size=300).map(
    lambda pairs: sorted(pairs, key=lambda pair: pair[0])
)
cuts = st.lists(st.integers(0, 300), max_size=4).map(sorted)


def columns(pairs: list[tuple[int, int]], width_ns: int) -> dict[int, list[int]]:
    """The values of each pixel column, by counting."""
    found: dict[int, list[int]] = {}
    for time_ns, value in pairs:
        found.setdefault(time_ns // width_ns, []).append(value)
    return found


def feed(maker: Any, cut: list[int], *arrays: np.ndarray[Any, Any]) -> None:
    for low, high in zip([0, *cut], [*cut, len(arrays[0])], strict=True):
        maker.add(*(array[low:high] for array in arrays))


@given(rows, cuts, st.sampled_from([10, 50, 250]))
def test_a_line_keeps_first_least_greatest_and_last_of_each_column(
    pairs: list[tuple[int, int]], cut: list[int], width_ns: int
) -> None:
    edges = np.arange(0, SPAN_NS + 1, width_ns)
    maker = SeriesMaker(0, SPAN_NS - 1, edges)
    feed(
        maker,
        cut,
        np.array([time for time, _ in pairs], dtype=np.int64),
        np.array([v for _, v in pairs], dtype=np.int64),
    )
    points = maker.points()
    kept = list(zip(points.times_ns.tolist(), points.values.tolist(), strict=True))
    assert set(kept) <= set(pairs)
    expected, found = columns(pairs, width_ns), columns(kept, width_ns)
    assert expected.keys() == found.keys()
    for column, values in expected.items():
        assert (min(values), max(values)) == (min(found[column]), max(found[column]))
        assert (values[0], values[-1]) == (found[column][0], found[column][-1])
        assert len(found[column]) <= 4


@given(st.lists(st.tuples(st.integers(0, SPAN_NS - 1), st.integers(0, 90), st.integers(1, 9)), max_size=200), cuts)
def test_bars_of_a_column_become_one_from_the_lowest_to_the_highest(
    triples: list[tuple[int, int, int]], cut: list[int]
) -> None:
    triples = sorted(triples, key=lambda triple: triple[0])
    maker = BarsMaker(np.arange(0, SPAN_NS + 1, 100))
    low = np.array([each[1] for each in triples], dtype=np.int64)
    length = np.array([each[2] for each in triples], dtype=np.int64)
    feed(maker, cut, np.array([each[0] for each in triples], dtype=np.int64), low, low + length)
    bars = maker.bars()
    expected: dict[int, list[tuple[int, int, int]]] = {}
    for triple in triples:
        expected.setdefault(triple[0] // 100, []).append(triple)
    assert [
        (of_column[0][0], min(each[1] for each in of_column), max(each[1] + each[2] for each in of_column))
        for of_column in expected.values()
    ] == list(zip(bars.times_ns.tolist(), bars.lows.tolist(), bars.highs.tolist(), strict=True))


@given(rows, cuts, st.integers(0, SPAN_NS), st.integers(0, SPAN_NS))
def test_a_view_starts_with_the_value_before_it_and_ends_with_its_last(
    pairs: list[tuple[int, int]], cut: list[int], one: int, other: int
) -> None:
    start, end = min(one, other), max(one, other)
    maker = SeriesMaker(start, end, None)
    feed(
        maker,
        cut,
        np.array([time for time, _ in pairs], dtype=np.int64),
        np.array([v for _, v in pairs], dtype=np.int64),
    )
    line = maker.line()
    before = [value for time, value in pairs if time < start]
    inside = [(time, value) for time, value in pairs if start <= time <= end]
    expected = [(start, value) for value in before[-1:]] + inside
    expected += [(end, value) for _, value in expected[-1:]]
    assert list(zip(line.times_ns.tolist(), line.values.tolist(), strict=True)) == expected


def test_all_rows_are_drawn_up_to_the_limit() -> None:
    detail = Detail(limit=10, columns=4)
    assert detail.edges(10, 0, 99) is None
    edges = detail.edges(11, 0, 99)
    assert edges is not None
    assert edges.tolist() == [0, 25, 50, 75, 100]


def test_a_plot_has_20000_rows_or_2000_columns() -> None:
    assert Detail().edges(20_000, 0, 9_999) is None
    edges = Detail().edges(20_001, 0, 9_999)
    assert edges is not None
    assert (len(edges), edges[1], edges[-1]) == (2_001, 5, 10_000)


def test_a_view_of_few_nanoseconds_has_no_more_columns_than_these() -> None:
    edges = Detail(limit=0, columns=2000).edges(1, 5, 8)
    assert edges is not None
    assert len(set(edges.tolist())) == len(edges)
    assert (edges[0], edges[-1]) == (5, 9)


def test_a_clock_that_steps_back_loses_no_row() -> None:
    times, values = np.array([0, 60, 20, 70]), np.array([1, 9, -9, 2])
    kept = marks.extremes(times, values, np.array([0, 50, 100]))
    assert kept.tolist() == [0, 1, 2, 3]


def test_an_empty_curve_stays_empty() -> None:
    assert len(SeriesMaker(0, 9, None).line()) == 0
    assert len(SeriesMaker(0, 9, np.array([0, 10])).line()) == 0
    assert len(BarsMaker(None).bars()) == 0
    assert len(marks.join(Bars(), np.array([0, 10]))) == 0


def test_chunks_cover_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "CHUNK_ROWS", 7)
    covered = [place for rows in marks.chunks(30) for place in range(30)[rows]]
    assert covered == list(range(30))


def test_edges_are_exact_for_times_of_today() -> None:
    """A float cannot represent nanoseconds of today's times."""
    start = 1_795_173_189_573_643_191
    edges = marks.even_edges(start, start + 1001, 10)
    assert (int(edges[0]), int(edges[-1])) == (start, start + 1001)
    assert set(np.diff(edges).tolist()) == {100, 101}
