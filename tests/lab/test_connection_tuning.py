"""The search for the number of connections during a run: simulated, compared with fixed numbers, and over loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.cli.traffic import run_options, simulate
from iscsitrace.errors import InputInvalid
from iscsitrace.lab.settings import structs as settings
from iscsitrace.show import line as bars
from iscsitrace.studies import definition, experiment, from_truth, points, repeats, tables
from iscsitrace.studies.definition import Definition
from iscsitrace.studies.results import Results
from tests.support.runs import Runs
from tests.support.traffic import initiate, our_target

# one connection reads 16 KiB in 4 ms of RTT, 5 to 7 ms of service and 6.7 ms on the line: 8 of them fill the line
PATH = "--rate 20Mbit --one-way-delay 2ms --service-delay 5ms-7ms --block-size 16K"
SEARCH = f"read {PATH} --seconds 14 --set measure-time=500ms"
FIXED = (1, 2, 3, 4, 6, 8, 16)
RULES = ("model", "golden")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def truth_of(runs: Runs, options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((runs(options).folder / "truth.json").read_text())
    assert found["results"]["errors"] == []
    return found


def searched(runs: Runs, rule: str, more: str = "") -> dict[str, Any]:
    results: dict[str, Any] = truth_of(runs, f"{SEARCH} --connections auto:{rule} {more}")["results"]
    return results


def fixed(runs: Runs, number: int) -> float:
    return runs(f"read {PATH} --seconds 3 --connections {number} --queue-depth {number}").throughput


@pytest.mark.parametrize("rule", RULES)
def test_the_search_is_nearly_as_fast_as_the_best_fixed_number(runs: Runs, rule: str) -> None:
    tuning = searched(runs, rule)["tuning"]
    best = max(fixed(runs, number) for number in FIXED)
    assert best > 1.5 * fixed(runs, 1), "there is something to find"
    settled = [step["goodput_bytes_per_s"] for step in tuning["steps"] if step["decision"] == "watch"]
    assert sum(settled) / len(settled) == pytest.approx(best, rel=0.1)
    assert tuning["converged_s"] < 14
    assert 2 <= tuning["settled_connections"] <= 8


def test_the_model_rule_is_quicker(runs: Runs) -> None:
    by_model, golden = (searched(runs, rule)["tuning"]["converged_s"] for rule in RULES)
    assert by_model < golden


@pytest.mark.parametrize("rule", RULES)
def test_the_capture_agrees_with_the_truth_of_added_and_removed_connections(runs: Runs, rule: str) -> None:
    run = runs(f"{SEARCH} --connections auto:{rule}")
    arguments = ["check", "--truth", str(run.folder / "truth.json"), str(run.capture()), "--json"]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stdout
    connections = searched(runs, rule)["connections"]
    tuning = searched(runs, rule)["tuning"]
    at_end = max(each["left_ns"] for each in connections)
    left_early = [each for each in connections if each["left_ns"] < at_end]
    assert len(connections) - len(left_early) == tuning["connections"]
    assert left_early
    assert all(each["joined_ns"] < each["left_ns"] for each in connections)
    assert len({each["cid"] for each in connections}) == len(connections), "each has a unique CID"


def test_a_refused_connection_ends_the_search(runs: Runs) -> None:
    tuning = searched(runs, "golden", "--set max-connections=3")["tuning"]
    assert (tuning["most_connections"], tuning["connections"] <= 3) == (3, True)
    assert "Too many connections" in tuning["refusal"]


def test_the_steps_are_explained(runs: Runs, tmp_path: Path) -> None:
    arguments = ["simulate", *f"{SEARCH} --connections auto --bytes 4M".split(), "-o", str(tmp_path / "run")]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    heading = result.stdout.index("Connections\n")
    shown = result.stdout[heading:]
    assert "1 connection: 1.0 MB/s" in shown
    assert "more connections add up" in shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("65", "write 1 to 64"),
        ("auto:guess", "write 1 to 64, or auto, auto:model, auto:golden"),
        ("0", "write 1 to 64"),
    ],
)
def test_an_invalid_number_is_a_one_line_error(text: str, words: str) -> None:
    result = CliRunner().invoke(main, ["initiator", "read", "iscsi://127.0.0.1/x/0", "--connections", text])
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


# ---- over loopback


def live(url: str, **tuning: Any) -> Any:
    # bytes, not time, end a measurement and the run: a machine that stands still for a while changes nothing
    workload = {"operation": "read", "total_bytes": 24 << 20, "tuning": {"measure_bytes": 1 << 20, **tuning}}
    return initiate(url, workload=workload)


@pytest.mark.parametrize("rule", ["predicted", "golden_section"])
def test_connections_are_added_and_removed_over_loopback(rule: str) -> None:
    delay = {"distribution": "fixed", "delay_ns": 2_000_000}
    with our_target(keys={"max_connections": 6}, read_delay=delay, service_order="one_at_a_time") as target:
        run = live(target.url, rule=rule)
    results = run.results
    assert (results["errors"], results["remarks"]) == ([], [])
    tuning = results["tuning"]
    assert tuning["steps"]
    assert run.connections_seen > 1
    tried = {step["connections"] for step in tuning["steps"]}
    assert len(tried) > 1
    assert max(tried) <= 6
    assert sum(each["bytes"] for each in results["connections"]) == results["read"]["bytes"]
    assert {task["end"] for task in target.log["tasks"]} == {"answered"}
    endings = [each["ending"] for each in target.log["connections"] if each["session"]]
    assert all(ending.startswith("logged out") for ending in endings)


# ---- in experiments

STUDY = """
title = "Small search"
source = "a test"
warm-up-seconds = 0.5

[link]
rate = "20Mbit"
one-way-delay = "2ms"

[target]
service-delay = "5ms-7ms"

[workload]
operation = "read"
block-size = "16K"
connection-depth = 1

[capture]
is-untapped = true

[[arms]]
name = "fixed"
workload.seconds = 3
grid.workload.connections = [1, 8]

[[arms]]
name = "search"
workload = { connections-rule = "model", measure-time = "0.5s", seconds = 8 }

[[arms]]
name = "change"
workload.connections-rule = "measured"
workload.measure-time = "0.5s"
workload.seconds = 5
workload.start-connections = 2
workload.change-to = 4
workload.change-after = 3

[[arms]]
name = "plain search"
workload.connections-rule = "plain-golden"
workload.measure-time = "0.5s"
workload.seconds = 8
workload.start-connections = 1
workload.most-connections = 8

[[figures]]
name = "course"
kind = "courses"
title = "Connections"
courses = ["connections"]
arms = ["search"]

[[figures]]
name = "peak"
kind = "lines"
title = "Peak"
x = "workload.connections"
y = "throughput"
arms = ["fixed"]
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    folder = tmp_path_factory.mktemp("study")
    made = written(folder, STUDY)
    planned = points.of_experiment(made, "simulated")
    out = folder / "out"
    experiment.prepare(made, planned, out, is_forced=False)
    return out, experiment.carry_out(made, planned, out, lambda _: False, jobs=1, keep="none")


def written(folder: Path, text: str) -> Definition:
    (folder / "search.toml").write_text(text)
    return definition.load(folder / "search.toml")


def test_a_search_in_an_experiment_reports_its_result_and_cost(study: tuple[Path, Results]) -> None:
    out, results = study
    assert results.failed == ()
    one, eight, search, *_ = repeats.rows(results.points)
    assert (search.means["connections"] <= 8, search.means["converge"] < 8) == (True, True)
    # it began with one connection: less than the best, more than one
    assert one.means["throughput"] < search.means["throughput"] < eight.means["throughput"]
    (point,) = (point for point in results.points if point.arm == "search")
    (course_of,) = (each for each in point.courses if each.name == from_truth.CONNECTIONS)
    assert course_of.values[0] == 1
    assert course_of.values[-1] == search.means["connections"]
    whole, lost = point.steady_throughput_bytes_per_s, point.goodput_lost
    assert whole
    assert lost
    assert whole / (1 - lost) == pytest.approx(1e6 * eight.means["throughput"], rel=0.1)
    assert {figure.file for figure in results.figures} == {"course.svg", "peak.svg"}
    assert not list(out.rglob("*.pcapng"))
    (table,) = (grid for grid in tables.of(results) if grid.caption == "The number of connections")
    assert len(table.rows) == 5


def test_a_number_can_change_at_a_given_time(study: tuple[Path, Results]) -> None:
    (point,) = (point for point in study[1].points if point.arm == "change")
    (course,) = (each for each in point.courses if each.name == from_truth.CONNECTIONS)
    assert [*dict.fromkeys(course.values)] == [2, 4]
    changed_s = course.times_s[course.values.index(4)]
    # three measurements of half a second, from when each connection had completed a command
    assert changed_s == pytest.approx(1.5, abs=0.2)
    assert point.connections is None
    assert point.measuring_s == pytest.approx(0.5, abs=0.1)


def test_the_plain_search_doubles(study: tuple[Path, Results]) -> None:
    (point,) = (point for point in study[1].points if point.arm == "plain search")
    (course,) = (each for each in point.courses if each.name == from_truth.CONNECTIONS)
    assert [*dict.fromkeys(course.values)][:3] == [1, 2, 4]
    assert point.connections is not None


def test_without_captures_fixed_numbers_still_have_model_values(study: tuple[Path, Results]) -> None:
    one, eight, search, *_ = repeats.rows(study[1].points)
    assert one.model["throughput"] == pytest.approx(one.means["throughput"], rel=0.05)
    assert eight.model["throughput"] == pytest.approx(eight.means["throughput"], rel=0.05)
    assert search.model == {}
    # uniform from 5 to 7 ms; 4 ms of RTT, and 16 KiB with headers on the line
    latency_ms = 4 + 6 + (16_384 + 48) * 1514 / 1448 * 8 / 20e3
    assert one.means["period"] == pytest.approx(latency_ms, rel=0.02)
    assert 100 * (1 / 12**0.5 * 2) / latency_ms == pytest.approx(one.means["latency_cv"], rel=0.1)


def test_the_settings_of_a_search_are_those_of_the_options() -> None:
    values: dict[str, Any] = {
        "workload.operation": "read",
        "workload.connections-rule": "golden",
        "workload.measure-time": 2_000_000_000,
        "workload.measure-bytes": 8 << 20,
        "workload.measure-at-once": True,
        "workload.start-connections": 2,
        "workload.most-connections": 40,
        "workload.path-rate": 100_000_000,
        "workload.connection-depth": 3,
    }
    options = "--connections auto:golden --set measure-time=2s --set measure-bytes=8M --set measure-at-once=yes"
    more = "--set start-connections=2 --set most-connections=40 --set path-rate=100Mbit --queue-depth 3"
    arguments = ["read", "-o", "DIR", *options.split(), *more.split()]
    context = simulate.command.make_context("simulate", arguments)
    by_options = run_options.run_settings("read", 1, dict(context.params))["client"]["workload"]
    by_definition = settings.of_run(values, 1)["client"]["workload"]
    for name in ("tuning", "queue_depth"):
        assert by_definition[name] == by_options[name]


def test_a_service_time_may_be_uniform(tmp_path: Path) -> None:
    made = written(tmp_path, STUDY)
    (portal,) = points.of_experiment(made, "simulated")[0].run_settings["portals"]
    assert portal["read_delay"] == {"distribution": "uniform", "low_ns": 5_000_000, "high_ns": 7_000_000}
    for wrong in ("7ms-5ms", "5ms-", "a-b", "1ms-2ms-3ms"):
        with pytest.raises(InputInvalid, match="two like"):
            written(tmp_path, STUDY.replace("5ms-7ms", wrong))


def test_the_studies_of_connections_can_be_read() -> None:
    made = definition.load("connection-study")
    planned = points.of_experiment(made, "simulated")
    assert {point.arm for point in planned} >= {"fixed", "search, T_m 5 s", "32 to 47"}
    depths = {
        (point.values.get("workload.connections"), point.run_settings["client"]["workload"]["queue_depth"])
        for point in planned
        if point.arm == "fixed"
    }
    assert all(number == depth for number, depth in depths), "a command on each connection"


# ---- on a terminal


def test_each_step_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(bars, "_PATIENCE_S", 0.0)
    progress = bars.ProgressBar("read")
    step = {"time_s": 3.25, "why": "4 connections: 15.4 MB/s; more connections add up", "next_connections": 6}
    seen = {"is_running": True, "bytes": 10**7, "total_bytes": None, "elapsed_ns": 4, "duration_ns": 10}
    for count in (0, 1, 1):
        tuning = {"connections": 4 + count, "step_count": count, "step": step if count else None}
        progress.show_workload(seen | {"tuning": tuning})
    progress.close()
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("3.2 s: 4 connections: 15.4 MB/s; more connections add up; next 6") == 1


def test_without_captures_a_run_is_the_same_and_writes_only_its_truth(tmp_path: Path) -> None:
    options = f"read {PATH} --connections 4 --queue-depth 8 --bytes 2M"
    truths = []
    for name, more in (("captured", ""), ("alone", "--set=no-capture=yes")):
        arguments = ["simulate", *options.split(), *more.split(), "-o", str(tmp_path / name)]
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert result.exit_code == 0
        truths.append(json.loads((tmp_path / name / "truth.json").read_text()))
    captured, alone = truths
    assert captured["results"] == alone["results"]
    assert [each.name for each in (tmp_path / "alone").iterdir()] == ["truth.json"]
    assert alone["captures"] == {"initiator": None, "targets": [None]}
    assert alone["packet_counts"] == captured["packet_counts"]
    reads = [number for number, operation in enumerate(captured["cycles"]["operation"]) if operation]
    assert len(alone["cycles"]["bytes"]) == len(reads) == alone["results"]["read"]["commands"]
    # what the initiator sees when a status comes is what its tap sees: hosts take no time
    at_tap = sorted(captured["cycles"]["initiator"]["status_ns"][number] for number in reads)
    assert sorted(alone["cycles"]["by_initiator"]["completed_ns"]) == at_tap
    lines = [path["to_initiator"]["line"] for truth in truths for path in truth["paths"]]
    assert lines[0]["busy_ns"] == lines[1]["busy_ns"]
    assert lines[1]["busy_times"] == {"from_ns": [], "to_ns": []}
