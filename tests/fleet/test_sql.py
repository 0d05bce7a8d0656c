"""The dataset as DuckDB, pandas and Polars read it; what is asked of it against NumPy over the one pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace import Trace
from iscsitrace.cli import main
from iscsitrace.errors import InputInvalid
from iscsitrace.fleet import top
from iscsitrace.fleet.sql import Database
from iscsitrace.measure import waits
from iscsitrace.wording.command_status import command_status
from iscsitrace.wording.status_classes import INFO
from tests.support import rings
from tests.support.transport import Packet

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fleet.md"
QUESTIONS = re.findall(r"^([A-Z][^\n]*\?)\n\n```sql\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
SAMPLES = PAGE.parents[1] / "samples"
BROKEN = ("black-out-and-relogin", "loss-1-percent", "medium-error", "task-abort-storage-hang")
CUT_OFF = 1000
"""Packets, of about two thousand."""
EMPTY = "eth0_00009_20231115000001.pcapng"
ERROR = "ILLEGAL REQUEST, logical block address out of range (5/21/00)"
"""What the target of the conversation answers out of range."""


@pytest.fixture(scope="module")
def traffic() -> dict[str, list[Packet]]:
    """Two taps."""
    return {"a": rings.traffic(1), "b": rings.traffic(2, sessions=3)}


@pytest.fixture(scope="module")
def dataset(traffic: dict[str, list[Packet]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    for tap, packets in traffic.items():
        rings.cut(folder / tap, packets, rings.random_borders(packets, 5, 1))
        rings.read_ring(folder / "it's data", folder / tap, tap=tap)
    return folder / "it's data"


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    """Captures in which something broke, and one that ends while commands are in flight: nothing broke there."""
    cut_off = rings.whole(tmp_path_factory.mktemp("cut-off"), rings.traffic(4)[:CUT_OFF])
    assert waits.of_trace(cut_off.table).is_open.any()
    return {"cut-off": cut_off} | {
        name: iscsitrace.read(next((SAMPLES / name).glob("capture.*")), tables=("pdus",)) for name in BROKEN
    }


@pytest.fixture(scope="module")
def broken(traffic: dict[str, list[Packet]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset with the samples as further taps, and an empty file at one."""
    folder = tmp_path_factory.mktemp("broken")
    for tap, packets in traffic.items():
        rings.cut(folder / tap, packets, rings.random_borders(packets, 5, 1))
    (folder / "a" / EMPTY).touch()
    for name in BROKEN:
        (folder / name).mkdir()
        sample = next((SAMPLES / name).glob("capture.*"))
        (folder / name / sample.name).symlink_to(sample)
    rings.cut(folder / "cut-off", rings.traffic(4)[:CUT_OFF], [])
    for tap in (*traffic, *BROKEN, "cut-off"):
        rings.read_ring(folder / "data", folder / tap, tap=tap)
    return folder / "data"


@pytest.fixture(scope="module")
def traces(traffic: dict[str, list[Packet]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    folder = tmp_path_factory.mktemp("whole")
    return {tap: rings.whole(folder / tap, packets) for tap, packets in traffic.items()}


def every(traces: dict[str, Trace], name: str) -> list[dict[str, Any]]:
    """The rows of a table of all taps."""
    return [{"tap": tap, **row} for tap, trace in traces.items() for row in trace.table(name).rows()]


def nearest_rank(values: list[int], share: float) -> int:
    return int(np.sort(values)[int(np.ceil(share * len(values))) - 1])


def groups(rows: list[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return dict(sorted(found.items()))


def targets(traces: dict[str, Trace]) -> dict[tuple[str, int], str]:
    return {(row["tap"], row["session"]): row["target_name"] for row in every(traces, "sessions")}


def _by_day(traces: dict[str, Trace]) -> list[tuple[Any, ...]]:
    rows = every(traces, "cycles")
    for row in rows:
        row["day"] = str(np.datetime64(row["command_first_ns"], "ns").astype("M8[D]"))
    return [
        (*key, len(each), sum(row["data_bytes"] for row in each)) for key, each in groups(rows, "tap", "day").items()
    ]


def _slowest(traces: dict[str, Trace]) -> list[tuple[Any, ...]]:
    rows = [row for row in every(traces, "cycles") if row["latency_ns"] is not None]
    return [(row["tap"], row["latency_ns"]) for row in sorted(rows, key=lambda row: -row["latency_ns"])[:5]]


def _errors(traces: dict[str, Trace]) -> list[tuple[Any, ...]]:
    names, counts = targets(traces), Counter[tuple[str, str]]()
    for row in every(traces, "cycles"):
        codes = (row[name] for name in ("status", "sense_key", "asc", "ascq"))
        is_data = row["operation"] in ("read", "write")
        found = command_status(*codes, response=row["response"], is_read_or_write=is_data)
        if found is not None and found.severity != INFO:
            counts[names[row["tap"], row["session"]], found.text] += 1
    assert {text for _, text in counts} >= {ERROR, "MEDIUM ERROR, unrecovered read error (3/11/00)"}
    return sorted((*key, count) for key, count in counts.items())


def _lost(traces: dict[str, Trace]) -> list[tuple[Any, ...]]:
    rows = []
    for tap, trace in traces.items():
        is_lost = waits.of_trace(trace.table).is_lost
        rows += [{"tap": tap, **row} for row in trace.cycles.select(is_lost).rows()]
    assert rows
    return [(*key, len(each)) for key, each in groups(rows, "tap", "session", "lun").items()]


def _ends(traces: dict[str, Trace]) -> list[tuple[Any, ...]]:
    rows = [row for row in every(traces, "sessions") if row["end"] not in ("logout", "open")]
    assert rows
    return sorted((row["tap"], row["session"], row["end"]) for row in rows)


def _logins(traces: dict[str, Trace]) -> list[tuple[Any, ...]]:
    rows = [row for row in every(traces, "sessions") if row["is_login_captured"]]
    return sorted(Counter(row["initiator_name"] for row in rows).items())


def _p99(traces: dict[str, Trace]) -> list[tuple[Any, ...]]:
    found = []
    for key, each in groups(every(traces, "cycles"), "operation", "bytes").items():
        latencies = [row["latency_ns"] for row in each if row["latency_ns"] is not None]
        found.append((*key, nearest_rank(latencies, 0.99) if latencies else None))
    return found


def _depths(traces: dict[str, Trace]) -> list[tuple[Any, ...]]:
    return sorted(Counter(row["queue_depth"] for row in every(traces, "cycles")).items())


def _retransmissions(traces: dict[str, Trace]) -> list[tuple[Any, ...]]:
    names = ("retransmitted_packets_to_target", "retransmitted_packets_to_initiator")
    rows = [(row["tap"], row["connection"], sum(row[name] for name in names)) for row in every(traces, "connections")]
    return sorted((row for row in rows if row[2]), key=lambda row: (-row[2], *row))


ANSWERS: list[Callable[[dict[str, Trace]], list[tuple[Any, ...]]]] = [
    *(_by_day, _slowest, _errors, _lost, _ends, _logins, _p99, _depths, _retransmissions),
    lambda _: [("a", EMPTY, "empty")],
]
"""Of each question of the page, from the rows of the one pass and by other functions than the dataset's."""


@pytest.mark.parametrize("number", range(10))
def test_the_questions_of_the_page_have_the_answers_of_the_one_pass(
    number: int, broken: Path, traces: dict[str, Trace], samples: dict[str, Trace]
) -> None:
    assert len(QUESTIONS) == len(ANSWERS)
    _, query = QUESTIONS[number]
    with Database(broken) as database:
        rows = [tuple(row.values()) for row in database.query(query).records]
    expected = ANSWERS[number](traces | samples)
    assert expected
    if ANSWERS[number] is _slowest:
        for tap, capture, frame, latency_ns in rows:
            # the frame is that of the file of this name
            (path,) = broken.parent.glob(f"{tap}/{capture}")
            cycles = iscsitrace.read(path).cycles
            assert cycles.raw("latency_ns")[cycles.raw("command_frame") == frame] == latency_ns
        rows = [(row[0], row[3]) for row in rows]
    assert rows == expected


@pytest.mark.parametrize("by", ["operation", "target", "tap"])
@pytest.mark.parametrize("cost", top.COSTS)
def test_the_greatest_costs_are_those_of_numpy(dataset: Path, traces: dict[str, Trace], by: str, cost: str) -> None:
    rows, names = every(traces, "cycles"), targets(traces)
    for row in rows:
        row["target"] = names[row["tap"], row["session"]]
    expected = {}
    for (label,), each in groups(rows, by).items():
        latencies = [row["latency_ns"] for row in each]
        # each nanosecond with a command in flight, once
        instants = sorted({row[name] for row in each for name in ("command_first_ns", "status_ns")})
        busy_ns = sum(
            after - before
            for before, after in pairwise(instants)
            if any(row["command_first_ns"] <= before and after <= row["status_ns"] for row in each)
        )
        expected[label] = top.Cost(
            label,
            len({row["tap"] for row in each}),
            len(each),
            sum(row["data_bytes"] for row in each),
            busy_ns,
            sum(latencies),
            nearest_rank(latencies, 0.5),
            # of fewer values they are the maximum
            nearest_rank(latencies, 0.95) if len(latencies) >= 20 else None,
            nearest_rank(latencies, 0.99) if len(latencies) >= 100 else None,
            max(latencies),
            len(latencies),
            0,
            0,
            # two commands of each session have one
            2 * len({(row["tap"], row["session"]) for row in each}),
        )
    found, count = top.top(dataset, by, cost, limit=2)
    assert count == len(expected)
    if by == "operation":
        expected = {
            label: replace(each, error_count=sum(row["status"] == 2 for row in rows if row[by] == label))
            for label, each in expected.items()
        }
    assert found == sorted(expected.values(), key=lambda each: (-(getattr(each, top.COSTS[cost]) or 0), each.label))[:2]
    if by == "tap":
        only, _ = top.top(dataset, "operation", cost, limit=9, tap="b")
        assert sum(each.command_count for each in only) == expected["b"].command_count


def test_pandas_polars_and_duckdb_open_it_as_it_is(dataset: Path, traces: dict[str, Trace]) -> None:
    rows = groups(every(traces, "cycles"), "tap")
    counts = {tap: (len(each), sum(row["data_bytes"] for row in each)) for (tap,), each in rows.items()}
    frame = pd.read_parquet(dataset / "cycles")
    assert {tap: (len(each), each["data_bytes"].sum()) for tap, each in frame.groupby("tap", observed=True)} == counts
    assert set(frame["operation"]) == {"read", "write"}
    scanned = pl.scan_parquet(dataset / "cycles", hive_partitioning=True).group_by("tap")
    summed = scanned.agg(pl.len(), pl.col("data_bytes").sum()).collect()
    assert {row[0]: row[1:] for row in summed.rows()} == counts
    path = str(dataset / "cycles").replace("'", "''")
    asked = duckdb.execute(f"SELECT tap, count(*), sum(data_bytes) FROM '{path}/*/*/*.parquet' GROUP BY tap")  # noqa: S608
    assert {row[0]: row[1:] for row in asked.fetchall()} == counts


def test_each_format_has_the_same_rows_and_an_error_is_one_line(dataset: Path) -> None:
    def printed(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["fleet", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    query = "SELECT tap, day, max(is_error), NULL AS nothing FROM commands GROUP BY ALL ORDER BY ALL LIMIT 1"
    assert printed("sql", str(dataset), query).split() == [
        *("tap", "day", "max(is_error)", "nothing", "a", "2023-11-14", "yes", "-"),
    ]
    assert printed("sql", str(dataset), query, "--format", "csv") == (
        "tap,day,max(is_error),nothing\na,2023-11-14,True,\n"
    )
    assert '"max(is_error)": true,\n      "nothing": null' in printed("sql", str(dataset), query, "--format", "json")
    assert "LUN 0 of" in printed("top", str(dataset))
    assert '"p99_ns": ' in printed("top", str(dataset), "--json")
    wrong = CliRunner().invoke(main, ["fleet", "sql", str(dataset), "SELECT\nnothing"])
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)
    with pytest.raises(InputInvalid, match="is not a dataset"):
        Database(dataset / "cycles")


def test_the_command_can_read_and_nothing_else(dataset: Path, tmp_path: Path) -> None:
    def asked(query: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "iscsitrace", "fleet", "sql", str(dataset), query, "--format", "csv"]
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    assert asked("SELECT count(*) > 0 AS is_full FROM cycles").stdout.splitlines() == ["is_full", "True"]
    refused = asked("COPY (SELECT 1) TO 'written.csv'")
    assert refused.returncode == 2
    assert "written.csv" in refused.stderr
    assert asked("SELECT * FROM read_csv('https://127.0.0.1:9/x.csv')").returncode == 2
    assert [file.name for file in tmp_path.rglob("*")] == ["cache", "iscsitrace"]
