"""Which latencies are shown, in how many bins, and which operations and I/O sizes have a curve of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iscsitrace.plots import style
from iscsitrace.plots.kind import CommandGroups
from iscsitrace.plots.kinds import latency
from iscsitrace.plots.marks import Detail
from iscsitrace.plots.view import View
from tests.support.tables_by_hand import with_waits

VIEW = View(origin_ns=0, start_ns=1_000, end_ns=1_999, connections=(0,))

CONNECTIONS = {"connection": 0, "time_last_ns": 2_500}, {"connection": 1, "time_last_ns": 9_000}


def command(number: int, start_ns: int = 1_000, lasted_ns: int | None = 64, **columns: Any) -> dict[str, Any]:
    row = {"cycle": number, "connection": 0, "operation": "read", "bytes": 512, "command_first_ns": start_ns}
    return row | {"status_ns": None if lasted_ns is None else start_ns + lasted_ns} | columns


def curves(*rows: dict[str, Any], detail: Detail | None = None) -> latency.Latency:
    return latency.compute(*with_waits(rows, *CONNECTIONS), VIEW, detail)


@pytest.mark.parametrize(("count", "latencies", "times"), [(29, 10, 10), (72, 12, 24), (300, 40, 80)])
def test_more_commands_make_more_bins(count: int, latencies: int, times: int) -> None:
    """One of latency per 6 commands, from 10 to 40; one of time per 3, from 10 to 80."""
    found = curves(*(command(number, lasted_ns=64 + number) for number in range(count)))
    assert found.heat.shape == (latencies, times)
    assert (len(found.latency_edges_ns), len(found.time_edges_ns)) == (latencies + 1, times + 1)
    assert (found.time_edges_ns[0], found.time_edges_ns[-1]) == (1_000, 2_000)


def test_commands_that_begin_in_the_view_and_have_a_status_are_counted() -> None:
    outside = [command(4, 999), command(5, 2_000), command(6, 1_500, connection=1)]
    open_ones = [command(2, 1_400, lasted_ns=None), command(3, lasted_ns=None)]
    found = curves(command(0), command(1, 1_999, 128), *open_ones, *outside)
    assert (found.task_count, found.unsure_count) == (2, 0)
    # those without a status, in order of time: until the last packet of their connection, at 2500
    assert found.without_status.times_ns.tolist() == [1_000, 1_400]
    assert found.without_status.values.tolist() == [1_500, 1_100]
    # the first at the lower left, the last at the upper right
    assert (found.heat[0, 0], found.heat[-1, -1], found.heat.sum()) == (1, 1, 2)
    assert (found.over_time["read"].times_ns.tolist(), found.over_time["read"].values.tolist()) == (
        [1_000, 1_999],
        [64, 128],
    )


@pytest.mark.parametrize(
    ("values", "edges"),
    [
        # each twice the one before it
        ([100, 800], [100, 200, 400, 800]),
        ([100, 200], [100, 126, 159, 200]),
        # of nearly equal ones from half of the least to twice the greatest
        ([100, 199], [50, 100, 199, 398]),
        ([2, 2], [1, 2, 3, 4]),
        ([0, 8], [0, 2, 4, 8]),
        ([0, 0], [0, 1, 2, 2]),
    ],
)
def test_latency_bins_grow_by_a_factor(values: list[int], edges: list[int]) -> None:
    assert np.round(latency._latency_edges(np.array(values), 3)).tolist() == edges


def test_five_operations_have_a_curve_of_their_own_the_most_frequent_first() -> None:
    words = [*["write"] * 3, *["read"] * 2, None, "inquiry", "test_unit_ready"]
    rows = [command(number, operation=word) for number, word in enumerate(words)]
    assert list(curves(*rows).over_time) == ["write", "read", "test_unit_ready", "inquiry", "unknown"]


def test_the_rarest_operations_are_one_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "GROUPS", 2)
    words = ["read"] * 3 + ["write"] * 2 + ["inquiry", "test_unit_ready"]
    found = curves(*(command(number, operation=word) for number, word in enumerate(words)))
    assert {name: len(line) for name, line in found.over_time.items()} == {"read": 3, "write": 2, "other": 2}


def test_the_curves_have_the_same_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the most frequent operation has hardly a latency."""
    monkeypatch.setattr(latency, "GROUPS", 1)
    rows = [command(number, operation="write", lasted_ns=None) for number in range(3)]
    found = curves(command(0, operation="write"), *rows, *(command(number) for number in range(4, 6)))
    assert list(found.over_time) == list(found.distribution) == ["write", "other"]


def test_a_distribution_has_at_most_1000_points_with_both_ends() -> None:
    values, shares = latency._cumulative(np.arange(2_000)[::-1])
    assert (len(values), values[0], values[-1], shares[0], shares[-1]) == (1_000, 0, 1_999, 1 / 2_000, 1)
    assert latency._cumulative(np.arange(1_000))[0].tolist() == list(range(1_000))
    values, shares = latency._cumulative(np.array([7, 5, 5, 9]))
    assert (values.tolist(), shares.tolist()) == ([5, 5, 7, 9], [0.25, 0.5, 0.75, 1])


def test_the_12_commonest_sizes_are_shown_the_smallest_first() -> None:
    sizes = [512 * number for number in range(14, 0, -1)]
    # the smallest two only once, and a command without data
    rows = [command(0, bytes=0), *(command(0, bytes=size) for size in sizes)]
    rows += [command(0, bytes=size, lasted_ns=100) for size in sizes if size > 1_024]
    found = curves(*rows).block_sizes["read"]
    assert list(found) == [512 * number for number in range(3, 15)]
    assert found[1_536] == {"n": 2, "p50": 64, "max": 100}


def test_sizes_are_those_of_reads_and_writes_or_of_all_where_there_are_none() -> None:
    inquiry = command(0, operation="inquiry", bytes=36)
    reads = command(1), command(2, bytes=1), command(3, bytes=0)
    found = curves(inquiry, *reads, command(4, operation="write", bytes=1_024))
    assert {name: list(sizes) for name, sizes in found.block_sizes.items()} == {"read": [1, 512], "write": [1_024]}
    assert list(curves(inquiry).block_sizes) == ["inquiry"]


def test_points_are_decimated_beyond_the_limit() -> None:
    rows = [command(number, 1_000 + number, 10 + number) for number in range(6)]
    assert not curves(*rows, detail=Detail(limit=6, columns=1)).is_decimated
    found = curves(*rows, detail=Detail(limit=5, columns=1))
    assert found.is_decimated
    assert found.over_time["read"].values.tolist() == [10, 15]


def test_luns_are_told_apart_the_slowest_first_and_what_moves_no_data_is_counted() -> None:
    rows = [command(number, lasted_ns=50 if number % 2 else 90, lun=number % 2) for number in range(7)]
    rows.append(command(7, operation="inquiry"))
    told = CommandGroups("lun", ["LUN 0", "LUN 1"], np.array([*(number % 2 for number in range(7)), -1]))
    found = latency.compute(*with_waits(rows, *CONNECTIONS), VIEW, None, told)
    assert {name: line.values.tolist() for name, line in found.over_time.items()} == {
        "LUN 0": [90] * 4,
        "LUN 1": [50] * 3,
    }
    assert {name: sizes[512]["p50"] for name, sizes in found.block_sizes.items()} == {"LUN 0": 90, "LUN 1": 50}
    assert list(found.distribution) == ["LUN 0", "LUN 1"]
    assert latency.title(found) == "Latency of 7 SCSI commands, from command to status, by LUN"
    assert latency.notes(found) == ["not drawn: 1 command without data"]


def test_sessions_beyond_the_slowest_are_one_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "GROUPS", 1)
    rows = [command(number, lasted_ns=10 * number, session=number) for number in (1, 2, 3)]
    told = CommandGroups("session", [f"session {number}" for number in (1, 2, 3)], np.arange(3))
    found = latency.compute(*with_waits(rows, *CONNECTIONS), VIEW, None, told)
    assert {name: line.values.tolist() for name, line in found.over_time.items()} == {
        "session 3": [30],
        "other": [10, 20],
    }


MS = 1_000_000


@pytest.mark.parametrize(
    ("lasted_ms", "is_outlier"),
    # of 6 ms: ten times as long, and 50 ms longer
    [(60, False), (60.001, True), (400, True)],
)
def test_an_outlier_took_ten_times_the_median_of_its_kind(lasted_ms: float, is_outlier: bool) -> None:
    rows = [command(number, lasted_ns=6 * MS) for number in range(20)]
    # as long as others of its size, and of its LUN
    rows += [command(20 + number, lasted_ns=300 * MS, bytes=8192) for number in range(3)]
    rows += [command(30 + number, lasted_ns=300 * MS, lun=1) for number in range(3)]
    found = curves(*rows, command(40, 1_500, int(lasted_ms * MS)))
    expected = (latency.Outlier(40, 1_500, int(lasted_ms * MS)),)
    assert found.outliers == (expected if is_outlier else ())


def test_an_outlier_takes_50_ms_more() -> None:
    rows = [command(number, lasted_ns=1 * MS) for number in range(20)]
    lasted_ns = {20: 51 * MS - 1, 21: 51 * MS, 22: 90 * MS}
    found = curves(*rows, *(command(number, lasted_ns=each) for number, each in lasted_ns.items()))
    assert [each.cycle for each in found.outliers] == [22, 21]


def test_at_most_five_outliers_are_named_where_there_is_room() -> None:
    rows = [command(number, 1_000 + number, lasted_ns=1 * MS) for number in range(60)]
    late = [command(100 + number, 1_010 + 95 * number, lasted_ns=(90 - number) * MS) for number in range(10)]
    found = curves(*rows, *late)
    assert len(found.outliers) == 10
    with style.applied():
        figure = style.new_figure()
        latency.draw(figure, found)
    named = [text.get_text() for text in figure.axes[0].texts]
    assert "100: 90 ms" in named
    assert 2 <= len(named) <= 5
    assert any("10 outliers: more than 10 times the median" in note for note in latency.notes(found))
