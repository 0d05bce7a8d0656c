"""Findings, events and the time breakdown of a dataset against the diagnosis of the whole ring in one capture."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from iscsitrace import Trace
from iscsitrace.diagnosis.examination import examine
from iscsitrace.errors import InputInvalid
from iscsitrace.findings import NEEDED
from iscsitrace.fleet.captures import Tap
from iscsitrace.fleet.run import TABLES, run
from iscsitrace.fleet.sql import Database
from iscsitrace.fleet.top import losses
from tests.support import rings
from tests.support.capture_file import read_records, write_pcapng

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
NAMES = (
    *("black-out-and-relogin", "capture-drops", "header-and-data-digests", "loss-1-percent", "medium-error"),
    *("mid-session", "reordering", "snaplen-128", "task-abort-storage-hang", "two-connections-one-session"),
)
"""Ten rings: a session lost and rebuilt, holes, digests, losses, errors, no login, disorder, cut packets, a hang,
and two connections.
"""
OF_PERIODS = ("findings", "events", "time_breakdown")


def cut(folder: Path, name: str, pieces: int, *, has_holes: bool = False) -> Trace:
    """A sample as a ring of pieces; one pass over all of it. With holes a packet is missing behind each border."""
    capture = next((SAMPLES / name).glob("capture.*"))
    records, link_type = read_records(capture)
    (folder / name).mkdir(parents=True)
    borders = sorted(random.Random(5).sample(range(1, len(records)), pieces - 1))  # noqa: S311 -- repeatable
    if has_holes:
        records = [record for place, record in enumerate(records) if place not in borders]
        borders = [border - number for number, border in enumerate(borders)]
    places = [0, *borders, len(records)]
    for number, (first, last) in enumerate(pairwise(places), 1):
        path = folder / name / f"ring_{number:05}_20260101000000.pcapng"
        write_pcapng(path, records[first:last], link_type)
    return iscsitrace.read(write_pcapng(folder / f"{name}.pcapng", records, link_type), tables=(*NEEDED, "pdus"))


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Trace]]:
    folder = tmp_path_factory.mktemp("rings")
    return folder, {name: cut(folder, name, 9) for name in NAMES}


@pytest.fixture(scope="module")
def dataset(traces: tuple[Path, dict[str, Trace]]) -> Path:
    folder, _ = traces
    for name in NAMES:
        rings.read_ring(folder / "data", folder / name, tap=name, tables=TABLES)
    return folder / "data"


def found_in(trace: Trace) -> list[tuple[Any, ...]]:
    """Name, severity, cost and frames of each finding of a diagnosis; those of a story once."""
    diagnosis = examine(trace.table)
    of_stories = [finding for story in diagnosis.stories for finding in story.findings]
    names = {id(finding.problem) for finding in of_stories}
    found = of_stories + [
        finding
        for opinion in diagnosis.sessions.values()
        for finding in opinion.findings
        if id(finding.problem) not in names
    ]
    return sorted(
        (
            each.name,
            each.severity,
            None if each.cost_ns is None else round(each.cost_ns),
            " ".join(map(str, each.frames)),
        )
        for each in found
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_findings_are_those_of_a_diagnosis_of_the_whole_ring(
    name: str, dataset: Path, traces: tuple[Path, dict[str, Trace]]
) -> None:
    with Database(dataset) as database:
        rows = database.query("SELECT name, severity, cost_ns, frames FROM findings WHERE tap = ? ", [name]).rows
    assert rows
    assert sorted(rows, key=str) == sorted(found_in(traces[1][name]), key=str)


@pytest.mark.parametrize("name", NAMES)
def test_the_time_of_each_session_is_that_of_its_time_breakdown(
    name: str, dataset: Path, traces: tuple[Path, dict[str, Trace]]
) -> None:
    with Database(dataset) as database:
        rows = database.query(
            "SELECT session, part, sum(duration_ns)::BIGINT, sum(duration_ns) FILTER (is_busy)::BIGINT "
            "FROM time_breakdown WHERE tap = ? GROUP BY ALL",
            [name],
        ).rows
    sessions = examine(traces[1][name].table).sessions
    expected = {
        (number, part, ns, opinion.time.parts_ns[part])
        for number, opinion in sessions.items()
        if opinion.time
        for part, ns in opinion.time.whole_ns.items()
        if ns
    }
    assert {(session, part, whole, busy or 0) for session, part, whole, busy in rows} == expected


@pytest.mark.parametrize("name", NAMES)
def test_the_events_are_those_of_the_whole_ring(
    name: str, dataset: Path, traces: tuple[Path, dict[str, Trace]]
) -> None:
    with Database(dataset) as database:
        rows = database.query("SELECT time_ns, kind, frame, cycle, text FROM events WHERE tap = ?", [name]).rows
    expected = [
        tuple(row[column] for column in ("time_ns", "kind", "frame", "cycle", "text"))
        for row in traces[1][name].events.rows()
    ]
    assert Counter(rows) == Counter(expected)


def test_time_lost_by_volume_and_hour_is_that_of_the_time_breakdown(
    dataset: Path, traces: tuple[Path, dict[str, Trace]]
) -> None:
    name = "black-out-and-relogin"
    sessions = examine(traces[1][name].table).sessions
    outage_ns = sum(opinion.time.parts_ns["outage"] for opinion in sessions.values() if opinion.time)
    assert outage_ns > 1_000_000_000
    with Database(dataset) as database:
        for by in ("volume", "initiator", "target", "hour", "session", "tap", "lun"):
            found, count = losses(database, by, "outage", limit=99, tap=name)
            assert sum(each.cost_ns for each in found) == outage_ns, by
            assert count == len(found)
        every, _ = losses(database, "tap", "outage", limit=1)
        assert every[0].label in NAMES
        (lost,), _ = losses(database, "tap", "io_outage", limit=9, tap=name)
        assert (lost.label, lost.tap_count) == (name, 1)
        assert lost.cost_ns > 0
        assert losses(database, "tap", "path_mtu", limit=9) == ([], 0)


@pytest.mark.parametrize("name", NAMES)
def test_the_other_tables_are_those_of_one_pass(
    name: str, dataset: Path, traces: tuple[Path, dict[str, Trace]]
) -> None:
    rings.assert_equal(dataset, name, traces[1][name])


def test_packets_that_are_missing_at_every_border_change_nothing_else(tmp_path: Path) -> None:
    name = "two-connections-one-session"
    trace = cut(tmp_path, name, 25, has_holes=True)
    assert int(trace.connections.raw("gap_bytes_to_initiator").sum()) > 0
    rings.read_ring(tmp_path / "data", tmp_path / name, tables=TABLES)
    rings.assert_equal(tmp_path / "data", "a", trace)
    with Database(tmp_path / "data") as database:
        rows = database.query("SELECT name, severity, cost_ns, frames FROM findings").rows
    assert sorted(rows, key=str) == sorted(found_in(trace), key=str)


@pytest.mark.parametrize(("worker_count", "pieces"), [(1, 2), (3, 40)])
def test_the_rows_do_not_depend_on_workers_and_pieces(
    worker_count: int, pieces: int, dataset: Path, tmp_path: Path
) -> None:
    for name in NAMES:
        cut(tmp_path, name, pieces)
    taps = [Tap(name, (str(tmp_path / name),)) for name in NAMES]
    run(tmp_path / "data", taps, worker_count=worker_count, task_bytes=200_000)
    for tap in NAMES:
        for table in TABLES:
            assert rings.rows_of(tmp_path / "data", table, tap) == rings.rows_of(dataset, table, tap), (tap, table)


def test_an_hour_ends_a_period_and_rows_of_older_ones_stay(tmp_path: Path) -> None:
    """Of a ring that is read while it grows: the rows of a period that is over are never written again."""
    start_ns = rings.MIDNIGHT_NS - 8_000_000
    packets = rings.traffic(1, start_ns=start_ns)
    before = next(place for place, packet in enumerate(packets) if packet.time_ns >= rings.MIDNIGHT_NS)
    borders = [before // 2, before + 10, before + 20]
    files = rings.cut(tmp_path / "a", packets, borders)
    later = files[2:]
    aside = [path.rename(tmp_path / path.name) for path in later]
    rings.read_ring(tmp_path / "data", tmp_path / "a", tables=TABLES)
    first = rings.rows_of(tmp_path / "data", "time_breakdown", "a")
    for path in aside:
        path.rename(tmp_path / "a" / path.name)
    rings.read_ring(tmp_path / "data", tmp_path / "a", "second", tables=TABLES)
    both = rings.rows_of(tmp_path / "data", "time_breakdown", "a")
    rings.cut(tmp_path / "b", packets, [])
    rings.read_ring(tmp_path / "whole", tmp_path / "b", tables=TABLES)
    for table in OF_PERIODS:
        assert rings.rows_of(tmp_path / "data", table, "a") == rings.rows_of(tmp_path / "whole", table, "a"), table
    with Database(tmp_path / "data") as database:
        hours = database.query("SELECT DISTINCT time_first_ns // 3600000000000 FROM time_breakdown").rows
        assert len(hours) == 2
        # no span is over the full hour
        assert not database.query(
            "SELECT * FROM time_breakdown WHERE time_first_ns < $hour AND time_last_ns > $hour",
            {"hour": rings.MIDNIGHT_NS},
        ).rows
    is_older = [
        row
        for row in first
        if dict(zip(_columns(tmp_path / "data"), row, strict=True))["time_last_ns"] <= rings.MIDNIGHT_NS
    ]
    assert is_older
    assert set(is_older) <= set(both)


def _columns(dataset: Path) -> list[str]:
    from pyarrow import parquet

    path = next((dataset / "time_breakdown").glob("tap=*/day=*/*.parquet"))
    return [name for name in parquet.ParquetFile(path).schema_arrow.names if name != "capture"]


def test_tables_of_periods_go_with_none_of_whole_connections(tmp_path: Path) -> None:
    with pytest.raises(InputInvalid, match="senders are tables of whole connections"):
        run(tmp_path / "data", [], tables=("findings", "senders"))
    assert np.all(np.isin(OF_PERIODS, TABLES))
