"""docs/lab.md describes exactly the fields of each kind of truth file."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from tests.support.lab import needs_root
from tests.support.programs import running

SECTION = (Path(__file__).resolve().parents[2] / "docs/lab.md").read_text().split("\n## The truth\n")[1]
NAMES, COLUMNS, LINK, PROCESS, SOCKET, END = (
    [line for line in table.splitlines() if line.startswith("| `")] for table in SECTION.split("\n|---|")[1:]
)
KINDS = ("simulation", "run", "initiator", "target")
ENVELOPE = {"schema", "tool", "kind"}
OPTIONS = (
    "--targets",
    "2",
    "--rate",
    "200Mbit",
    "--set",
    "access-rate=100Mbit",
    "--one-way-delay",
    "1ms",
    "--bytes",
    "1M",
)


def documented(rows: list[str], kind: str | None = None) -> set[str]:
    """The names in the first column of a table, in the rows of this kind."""
    names: list[str] = []
    for row in rows:
        first, kinds, *_ = (cell.strip() for cell in row.strip("|").split("|"))
        if kind is None or kinds == "all" or kind in kinds.split(", "):
            names += re.findall(r"`(\w+)`", first)
    assert len(names) == len(set(names))
    return set(names)


def within(rows: list[str], name: str) -> set[str]:
    """The fields that a table describes within a field."""
    (row,) = (row for row in rows if row.startswith(f"| `{name}` "))
    return set(re.findall(r"`(\w+)`", row.split("|")[2]))


def run(*arguments: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output


def truth_of(kind: str, folder: Path) -> dict[str, Any]:
    if kind == "simulation":
        run("simulate", "mixed", *OPTIONS, "-o", str(folder))
    elif kind == "run":
        run("lab", "run", "mixed", *OPTIONS, "-o", str(folder))
    else:
        of_target, of_initiator = folder / "target.json", folder / "initiator.json"
        command = [sys.executable, "-m", "iscsitrace", "target", "--listen", "127.0.0.1:0", "--truth", str(of_target)]
        with running(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as target:
            assert target.stdout is not None
            url = target.stdout.readline().split()[-1]
            run("initiator", "mixed", url, "--bytes", "1M", "--truth", str(of_initiator))
            target.send_signal(signal.SIGINT)
        (folder / f"{kind}.json").rename(folder / "truth.json")
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    assert truth["kind"] == kind
    return truth


@pytest.fixture(
    scope="module", params=[*(each for each in KINDS if each != "run"), pytest.param("run", marks=needs_root)]
)
def truth(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return truth_of(request.param, tmp_path_factory.mktemp(request.param))


def test_a_truth_has_exactly_the_documented_fields(truth: dict[str, Any]) -> None:
    kind = truth["kind"]
    assert set(truth) - ENVELOPE == documented(NAMES, kind)
    assert set(truth["cycles"]) == documented(COLUMNS, kind)
    instants = documented([row for row in COLUMNS if "`submitted_ns`" in row])
    if kind == "run":
        assert set(truth["cycles"]["by_initiator"]) == instants
    if "captures" in truth:
        assert set(truth["captures"]) == {"initiator", "targets"}
    for each in truth.get("target_logs", ()):
        assert set(each) == {"counters", "connections", "cycles", "cpu"}
        assert set(each["cycles"]) == documented(COLUMNS, "target")
    for each in truth.get("ends", ()):
        (row,) = (row for row in NAMES if row.startswith("| `ends`"))
        not_seen = {"own_address", "own_port"} if kind == "target" else set()
        explained = set(re.findall(r"`(\w+)`", row.split("|")[3]))
        assert explained - not_seen <= set(each) <= explained


def test_results_over_a_plain_socket_have_the_documented_fields(tmp_path: Path) -> None:
    run("simulate", "socket-read", "--bytes", "100K", "--rate", "100Mbit", "-o", str(tmp_path))
    results = json.loads((tmp_path / "truth.json").read_text())["results"]
    assert set(results) - {"mode"} == documented(SOCKET)
    assert set(results["connections"][0]) == within(SOCKET, "connections")


def links_of(truth: dict[str, Any]) -> list[dict[str, Any]]:
    return [direction for link in (truth["access"], *truth["paths"]) for direction in link.values()]


def test_parts_of_a_truth_have_exactly_the_documented_fields(truth: dict[str, Any]) -> None:
    if "paths" not in truth:
        assert truth["kind"] in {"initiator", "target"}
        return
    assert len(truth["paths"]) == 2
    for log in links_of(truth):
        assert set(log) == documented(LINK)
        tallies = {name for each in log["counters"].values() for name in each}
        assert set(log["counters"]) | tallies == within(LINK, "counters")
        assert set(log["line"]) | set(log["line"]["busy_times"]) == within(LINK, "line")
    for process in (truth.get("access_process"), *truth.get("path_process", ())):
        if process is not None:
            assert set(process) == documented(PROCESS)
            assert set(process["lateness"]) == within(PROCESS, "lateness")
            assert set(process["refused"]) == within(PROCESS, "refused")
    for is_initiator, end in ends_of(truth):
        left_out = {"timeout_count"} if truth["kind"] == "run" else {"congestion_control", "tcp_info"}
        if truth["kind"] != "run" or not is_initiator:
            left_out |= {"target"}
        assert set(end) == documented(END) - left_out
        assert set(end["windows"]) == within(END, "windows")


def ends_of(truth: dict[str, Any]) -> Iterator[tuple[bool, dict[str, Any]]]:
    yield from ((True, end) for end in truth["initiator_ends"])
    yield from ((False, end) for ends in truth["target_ends"] for end in ends)


def test_lists_have_an_entry_for_each_target_or_capture(truth: dict[str, Any]) -> None:
    for name in ("paths", "path_process", "target_ends", "target_logs"):
        assert len(truth.get(name, "12")) == 2
    for name in ("packet_counts", "capture_dropped_counts", "tcp_info_missed_counts"):
        assert len(truth.get(name, "123")) == 3
    columns = truth["cycles"].values()
    lengths = {len(each) for column in columns for each in (column.values() if isinstance(column, dict) else [column])}
    assert len(lengths) == 1
    assert lengths != {0}
