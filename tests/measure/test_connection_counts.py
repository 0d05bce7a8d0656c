"""The connections of a session over time: by hand, and of a session that tunes their number, whose truth has each."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from iscsitrace.measure.connection_counts import ConnectionCounts, of_cycles, shortest_ns
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import read
from tests.support.runs import Run, Runs
from tests.support.tables_by_hand import MS, table

KIB = 1 << 10


def reads(*connections: tuple[int, int, int, int], session: int = 0) -> Table:
    """Of each connection: number, first and last ms, and ms of a read of 1000 bytes; one after another."""
    return table("cycles", *rows_of(*connections, session=session))


def rows_of(*connections: tuple[int, int, int, int], session: int = 0) -> list[dict[str, Any]]:
    rows = [
        {"session": session, "connection": number, "operation": "read", "is_read": True, "is_complete": True}
        | {"command_first_ns": at * MS, "status_ns": (at + each) * MS, "data_bytes": 1_000}
        for number, first, last, each in connections
        for at in range(first, last - each + 1, each)
    ]
    return sorted(rows, key=lambda row: row["status_ns"])


def one(cycles: Table, resent: Table | None = None) -> ConnectionCounts:
    (found,) = of_cycles(cycles, resent)
    return found


# --- by hand


def test_a_number_of_connections_has_a_stage_with_its_throughput() -> None:
    """One, then three: each read takes 10 ms alone, and 30 ms of three."""
    found = one(reads((0, 0, 1_000, 10), (0, 1_000, 2_200, 30), (1, 1_000, 2_200, 30), (2, 1_000, 2_200, 30)))
    assert [(each.count, each.first_ns, each.last_ns) for each in found.stages] == [
        (1, 0, 1_000 * MS),
        (3, 1_000 * MS, 2_200 * MS),
    ]
    assert [(each.connections, round(each.bytes_per_s)) for each in found.counts] == [(1, 100_000), (3, 100_000)]
    assert [each.latency_ns(50) // MS for each in found.counts] == [10, 30]
    assert found.enough == 1


def test_a_change_settles_until_the_commands_from_before_are_done() -> None:
    """A read of 50 ms is in flight when the second connection comes."""
    found = one(reads((0, 0, 50, 10), (0, 50, 100, 50), (0, 100, 200, 10), (1, 60, 200, 10)))
    assert [each.settled_ns // MS for each in found.stages] == [0, 100]
    assert [each.bytes for each in found.stages] == [5_000, 20_000]


def test_a_status_that_a_damaged_capture_dates_before_its_command_took_no_time() -> None:
    rows = rows_of((0, 0, 1_000, 10), (0, 1_000, 2_000, 20), (1, 1_000, 2_000, 20))
    for row in rows[110:]:
        row["status_ns"] -= 90 * MS
    assert [each.latency_ns(50) for each in one(table("cycles", *rows)).counts] == [10 * MS, 0]


def test_a_pause_of_the_program_is_not_counted() -> None:
    found = one(reads((0, 0, 100, 10), (0, 500, 600, 10), (1, 600, 700, 10), (0, 600, 700, 10)))
    assert [each.active_ns // MS for each in found.counts] == [200, 100]
    assert [round(each.bytes_per_s) for each in found.counts] == [100_000, 200_000]


def test_of_a_number_that_is_the_largest_more_may_be_faster() -> None:
    assert one(reads((0, 0, 200, 10), (1, 100, 200, 10))).enough is None


def test_numbers_that_differ_by_less_than_runs_do_are_equal() -> None:
    """Two carry two reads in 65 ms, one of them in 33 or 34: 1.5 or 4.4 % less."""
    for first_ms, enough in ((33, 1), (34, None)):
        whole = reads((0, 0, 40 * first_ms, first_ms), (0, 2_000, 3_300, 65), (1, 2_000, 3_300, 65))
        assert one(whole).enough == enough, first_ms


@pytest.mark.parametrize(
    "connections",
    [
        # all the time
        ((0, 0, 500, 10), (1, 0, 500, 10)),
        # one alone for three reads only
        ((0, 0, 500, 10), (1, 30, 500, 10)),
        ((0, 0, 500, 10),),
    ],
)
def test_a_session_whose_number_does_not_change_has_none(connections: tuple[tuple[int, int, int, int], ...]) -> None:
    assert of_cycles(reads(*connections)) == []
    assert of_cycles(table("cycles")) == []


def test_each_session_is_on_its_own() -> None:
    rows = [*rows_of((0, 0, 200, 10), (1, 100, 200, 10), session=7), *rows_of((5, 0, 400, 10), session=8)]
    assert [each.session for each in of_cycles(table("cycles", *rows))] == [7]
    unknown = [row | {"session": None} for row in rows_of((0, 0, 200, 10), (1, 100, 200, 10))]
    assert of_cycles(table("cycles", *unknown)) == []


def test_retransmissions_belong_to_the_stage_in_which_they_were() -> None:
    cycles = reads((0, 0, 200, 10), (1, 100, 200, 10))
    rows: list[dict[str, Any]] = [
        {"connection": connection, "time_ns": at * MS, "payload_bytes": 500}
        for connection, at in ((0, 50), (0, 150), (1, 160), (9, 150))
    ]
    found = one(cycles, table("retransmissions", *rows))
    assert [each.resent_share for each in found.counts] == [500 / 10_000, 1_000 / 20_000]
    assert one(cycles).counts[0].resent_share is None


# --- how long to measure


def test_even_commands_are_measured_as_soon_as_a_window_has_enough_of_them() -> None:
    """A read of each 10 ms: twenty windows of 200 ms differ by one read at most, which is 5 % of 20."""
    ends = np.arange(1, 401) * 10 * MS
    found = shortest_ns(ends, np.full(400, 1_000), 0, 4_000 * MS)
    assert found is not None
    assert 10 * MS <= found <= 230 * MS


def test_commands_in_clumps_take_longer() -> None:
    """Twenty reads at once each 400 ms: no window is even until it has many clumps."""
    ends = np.repeat(np.arange(1, 11) * 400 * MS, 20)
    assert shortest_ns(ends, np.full(200, 1_000), 0, 4_000 * MS) is None
    many = np.repeat(np.arange(1, 1_001) * 400 * MS, 20)
    found = shortest_ns(many, np.full(20_000, 1_000), 0, 400_000 * MS)
    assert found is not None
    # one clump of twenty is 5 %, unless a window is a multiple of their distance
    assert found >= 3_000 * MS


def test_nothing_moved_shows_no_time() -> None:
    assert shortest_ns(np.zeros(0), np.zeros(0), 0, 1) is None


# --- a session that tunes itself


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Run:
    options = "read --connections auto:golden --seconds 24 --one-way-delay 5ms --rate 20Mbit --block-size 16K"
    return Runs(tmp_path_factory.mktemp("runs"))(f"{options} --service-delay 30ms")


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_the_capture_shows_what_the_search_measured(tuned: Run, tap: str) -> None:
    truth = json.loads((tuned.folder / "truth.json").read_text())["results"]["tuning"]
    found = one(read(str(tuned.capture(tap))).cycles)
    measured: dict[int, list[float]] = {}
    for step in truth["steps"]:
        measured.setdefault(step["connections"], []).append(step["goodput_bytes_per_s"])
    changes = [number for number, _ in groupby(step["connections"] for step in truth["steps"])]
    assert [each.count for each in found.stages][: len(changes)] == changes
    for each in found.counts:
        if each.connections in measured:
            rates = measured[each.connections]
            assert each.bytes_per_s == pytest.approx(sum(rates) / len(rates), rel=0.04), each.connections
    # a read takes 40 ms and its time on the line, alone; the others fill it
    line = 20e6 / 8 * 1448 / 1514 * 16_384 / (16_384 + 48)
    alone = 16_384 / (40e-3 + 16_384 / line)
    assert found.enough == min(each.connections for each in found.counts if each.connections * alone >= 0.97 * line)
