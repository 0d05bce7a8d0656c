"""Parallel streams: which connections belong together, how even they are, and why one is slow. On tables made by hand,
and on captures of the lab, whose truth has the state of each sender's TCP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.diagnosis.examination import examine
from iscsitrace.events import derived
from iscsitrace.findings import NEEDED
from iscsitrace.plots import kinds
from iscsitrace.plots.marks import Detail
from iscsitrace.relate.jobs import streams
from iscsitrace.relate.jobs.streams import Job, jain
from iscsitrace.report import captures, figures
from iscsitrace.studies import from_truth as by_truth
from iscsitrace.tables.schema import DERIVED_TABLES
from iscsitrace.tables.table import Table
from tests.support.runs import Run, Runs
from tests.support.streams_by_hand import SECOND, Work, connections
from tests.support.tables_by_hand import MS

KB = 1_000


def test_jains_index() -> None:
    assert jain([5, 5, 5, 5]) == 1
    assert jain([5, 0, 0, 0]) == 0.25
    # (1 + 2 + 3)^2 / (3 * (1 + 4 + 9))
    assert jain([1, 2, 3]) == pytest.approx(36 / 42)


def test_figures_of_parallel_streams() -> None:
    work = Work()
    for length in (1_000, 700, 800):
        work.stream(length)
    job = work.job()
    # the first to finish first
    assert connections(job) == [1, 2, 0]
    assert not job.is_certain
    assert job.whole_ns == 1_000 * MS
    assert job.first_to_last_ns == 300 * MS
    assert [stream.behind_ns for stream in job.streams] == [0, 100 * MS, 300 * MS]
    # alone from 800 to 1000; 0.3 and 0.2 of the whole unused on two of three
    assert job.alone_share == pytest.approx(0.2)
    assert job.unused_share == pytest.approx(0.5 / 3)
    # the same bytes: throughputs are as 1/700, 1/800, 1/1000
    rates = [1 / 700, 1 / 800, 1 / 1_000]
    assert job.jain == pytest.approx(sum(rates) ** 2 / (3 * sum(rate**2 for rate in rates)))
    assert [stream.is_slow for stream in job.streams] == [False, True, True]


def test_connections_one_after_another_are_not_parallel() -> None:
    work = Work()
    work.stream(500, target="iqn.a")
    work.stream(500, target="iqn.a", start_ms=500)
    assert work.jobs() == []
    work.stream(500, session=1, start_ms=740)
    # half of the shorter one's time
    assert [connections(job) for job in work.jobs()] == [[1, 2]]


def test_sessions_of_different_targets_are_parallel_if_alike() -> None:
    def is_job(**other: Any) -> bool:
        work = Work()
        work.stream(1_000)
        work.stream(**({"length_ms": 1_000} | other))
        return bool(work.jobs())

    assert is_job()
    assert is_job(host="iqn.another")
    assert is_job(start_ms=100)
    assert not is_job(start_ms=101)
    assert is_job(size=131_072)
    assert not is_job(size=262_144)
    assert not is_job(operation="write")
    # what has a name in common needs no likeness
    work = Work()
    work.stream(1_000, target="iqn.a")
    work.stream(500, target="iqn.a", start_ms=400, operation="write", size=4_096)
    assert work.job().is_certain


def test_a_pause_separates_groups_of_streams() -> None:
    work = Work()
    for session in (None, 0):
        work.stream(500, session=session)
    for connection in (0, 1):
        for row in [each for each in work.rows["cycles"] if each["connection"] == connection]:
            later = {name: row[name] + 10 * SECOND for name in ("command_first_ns", "status_ns")}
            work.rows["cycles"].append(row | later | {"cycle": len(work.rows["cycles"])})
    assert [connections(job) for job in work.jobs()] == [[0, 1]] * 2


def cause_of_slow(prepare: Callable[[Work, int], object], **slow: Any) -> tuple[str | None, int | None]:
    """The cause for a stream that takes twice as long as the other, and the frame that shows it."""
    work = Work()
    work.stream(1_000)
    number = work.stream(2_000, **slow)
    prepare(work, number)
    stream = work.job().slowest
    assert stream.run.connection == number
    return (stream.cause.name, stream.cause.frame) if stream.cause else (None, None)


def test_no_cause_without_losses_and_windows() -> None:
    assert cause_of_slow(lambda work, number: None) == (None, None)


def test_a_loss_in_slow_start_as_the_cause() -> None:
    def one(work: Work, number: int) -> object:
        return work.lost(number, (100, "fast", 100 * KB), exit_bytes=100 * KB)

    assert cause_of_slow(one) == ("slow_start_exit", 1_100)
    # the different RTT may be the cause, unless the stream waited for its window
    assert cause_of_slow(one, rtt_ms=20) == (None, None)
    waits = lambda work, number: one(work, number) and work.waited(number, "congestion_window", 200, 300)  # noqa: E731
    assert cause_of_slow(waits, rtt_ms=20) == ("slow_start_exit", 1_100)

    def again(count: int, pipe: int) -> Callable[[Work, int], object]:
        later = [(400 + 200 * place, "fast", pipe) for place in range(count)]
        return lambda work, number: work.lost(number, (100, "fast", 100 * KB), *later, exit_bytes=100 * KB)

    # two losses of a window that has not doubled change nothing; of one that has, they do, and so do many
    assert cause_of_slow(again(2, 199 * KB))[0] == "slow_start_exit"
    assert cause_of_slow(again(2, 200 * KB)) == ("low_equilibrium", 1_400)
    assert cause_of_slow(again(5, 110 * KB))[0] == "low_equilibrium"


def test_losses_after_slow_start() -> None:
    assert cause_of_slow(lambda work, number: work.lost(number, (500, "fast", 50 * KB))) == ("low_equilibrium", 1_500)


def test_a_timeout() -> None:
    losses: list[tuple[int, str, int]] = [(100, "fast", 100 * KB), (300, "timeout", 80 * KB), (1_900, "fast", 40 * KB)]
    assert cause_of_slow(lambda work, number: work.lost(number, *losses, exit_bytes=100 * KB)) == ("timeout", 1_300)


def test_a_window() -> None:
    assert cause_of_slow(lambda work, number: work.waited(number, "receive_window", 0, 100)) == ("window", 7)
    assert cause_of_slow(lambda work, number: work.waited(number, "receive_window", 0, 99)) == (None, None)


# --- captures of the lab


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("streams"))


FOUR = "read --targets 4 --set access-rate=200Mbit --rate 1Gbit --one-way-delay 20ms --block-size 1M --queue-depth 2"
RUNS = {
    # two of four lose packets in slow start, at windows of a tenth of the others'
    "slow start": f"{FOUR} --bytes 32M --set to-initiator-burst-loss=0.01%,20%,100% --seed 5",
    "losses": (
        "read --targets 2 --rate 400Mbit --one-way-delay 10ms --bytes 16M --block-size 1M --queue-depth 2 "
        "--set to-initiator-loss=0.3% --seed 2"
    ),
    "timeout": (
        "read --targets 2 --rate 100Mbit --one-way-delay 10ms --bytes 4M --block-size 256K --set receive-buffer=64K "
        "--set to-initiator-burst-loss=0.15%,3%,100% --seed 4"
    ),
    "even": "read --targets 3 --rate 100Mbit --one-way-delay 5ms --bytes 6M --block-size 256K --queue-depth 2",
    "far": (
        "read --target-delay 2ms --target-delay 2ms --target-delay 20ms --rate 100Mbit --bytes 6M --block-size 256K"
    ),
    "one session": (
        "read --connections 3 --rate 100Mbit --one-way-delay 5ms --bytes 6M --block-size 256K --queue-depth 6"
    ),
}  # fmt: skip


def traced(run: Run) -> iscsitrace.Trace:
    return iscsitrace.read(run.capture(), tables=NEEDED)


def found(run: Run) -> Job:
    (job,) = streams.find(traced(run).table)
    return job


def truth_of(run: Run) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((run.folder / "truth.json").read_text())
    return truth


def true_streams(run: Run) -> dict[int, tuple[int, int, int]]:
    """By the initiator's port: the first command, the last status and the bytes of each connection's reads."""
    cycles = truth_of(run)["cycles"]
    seen = cycles["initiator"]
    of: dict[int, list[tuple[int, int, int]]] = {}
    columns = (cycles["connection"], cycles["operation"], cycles["bytes"], seen["command_first_ns"], seen["status_ns"])
    for connection, operation, moved, begin, end in zip(*columns, strict=True):
        if operation == "read":
            of.setdefault(40_000 + connection, []).append((begin, end, moved))
    return {
        port: (min(each[0] for each in rows), max(each[1] for each in rows), sum(each[2] for each in rows))
        for port, rows in of.items()
    }


@pytest.mark.parametrize("name", RUNS)
def test_figures_equal_the_truth(runs: Runs, name: str) -> None:
    run = runs(RUNS[name])
    job, truth = found(run), true_streams(run)
    ports = dict(
        zip(*(traced(run).connections[column].tolist() for column in ("connection", "initiator_port")), strict=True)
    )
    assert job.is_certain == (name == "one session")
    assert {ports[number] for number in connections(job)} == set(truth)
    for stream in job.runs:
        assert (stream.first_ns, stream.last_ns, stream.bytes) == truth[ports[stream.connection]]
    rates = [moved / (end - begin) for begin, end, moved in truth.values()]
    assert job.jain == pytest.approx(sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates)))
    ends = sorted(end for _, end, _ in truth.values())
    assert job.first_to_last_ns == ends[-1] - ends[0]


@pytest.mark.parametrize(("name", "exits"), [("slow start", 2), ("losses", 0), ("even", 0)])
def test_an_experiment_computes_the_same_from_the_truth(runs: Runs, name: str, exits: int) -> None:
    run = runs(RUNS[name])
    job, truth = found(run), truth_of(run)
    measured = by_truth.of_truth(truth, truth["results"]["started_ns"], None, is_read=True)
    assert job.jain == pytest.approx(by_truth.jain(measured), rel=0.005)
    ends = [stream.ended_s for stream in measured]
    assert job.first_to_last_ns / 1e9 == pytest.approx(max(ends) - min(ends))
    found_exits = [
        (stream.run.connection, stream.cause.time_ns)
        for stream in job.streams
        if stream.cause and stream.cause.name == "slow_start_exit"
    ]
    assert len(found_exits) == exits
    for connection, time_ns in found_exits:
        (of,) = [each for each in measured if each.connection == connection]
        assert of.slow_start_ended_s is not None
        left_ns = truth["results"]["started_ns"] + of.slow_start_ended_s * 1e9
        # the tap beside the receiver sees the hole; its ACKs take 20 ms to the sender, which waits for the third,
        # behind two more segments of 60 us and what the other streams have between them
        assert 20 * MS < left_ns - time_ns < 20.5 * MS


def windows(run: Run, port: int) -> tuple[list[int], list[int]]:
    """Times and congestion windows (segments) of the target's end of a connection."""
    ends = [end for target in truth_of(run)["target_ends"] for end in target if end["initiator_port"] == port]
    return ends[0]["windows"]["time_ns"], ends[0]["windows"]["cwnd"]


def test_a_stream_whose_slow_start_ended_in_a_loss(runs: Runs) -> None:
    run = runs(RUNS["slow start"])
    job = found(run)
    slow = [stream for stream in job.streams if stream.is_slow]
    assert [stream.cause.name for stream in slow if stream.cause] == ["slow_start_exit"] * 2
    # it says where: what was the largest window until then was fixed at a fraction of the others'
    for stream in slow:
        assert stream.cause
        times, cwnd = windows(run, 40_000 + stream.run.connection)
        before = max(each for at, each in zip(times, cwnd, strict=True) if at <= stream.cause.time_ns)
        later = [each for at, each in zip(times, cwnd, strict=True) if at > stream.cause.time_ns + 200 * MS]
        assert max(later) < 2 * before
    fast = job.streams[0]
    assert max(windows(run, 40_000 + fast.run.connection)[1]) > 4 * max(
        max(windows(run, 40_000 + stream.run.connection)[1]) for stream in slow
    )


def test_a_stream_with_timeouts(runs: Runs) -> None:
    """At the initiator's tap all retransmissions look alike, except for the silence before a timeout."""
    run = runs(RUNS["timeout"])
    (slow,) = [stream for stream in found(run).streams if stream.is_slow]
    assert slow.cause
    assert slow.cause.name == "timeout"
    times, cwnd = windows(run, 40_000 + slow.run.connection)
    # a timeout leaves a window of one segment
    collapses = [at for at, each, before in zip(times[1:], cwnd[1:], cwnd, strict=False) if each == 1 < before]
    assert slow.evidence.timeout_count == len(collapses) == 2
    # the second cost most: from the silence before it on
    assert collapses[0] < slow.cause.time_ns < collapses[1]
    assert slow.cause.frame


def test_streams_with_losses_throughout(runs: Runs) -> None:
    job = found(runs(RUNS["losses"]))
    assert [(stream.is_slow, stream.cause and stream.cause.name) for stream in job.streams] == [
        (False, None), (True, "low_equilibrium"),
    ]  # fmt: skip
    # retransmissions as TCP counted them
    ends = [end for target in truth_of(runs(RUNS["losses"]))["target_ends"] for end in target]
    again = {end["initiator_port"]: end["retransmitted_segment_count"] for end in ends}
    for stream in job.streams:
        assert stream.evidence.retransmitted_packets == again[40_000 + stream.run.connection]


def test_a_longer_rtt_is_no_loss(runs: Runs) -> None:
    job = found(runs(RUNS["far"]))
    assert [(stream.is_slow, stream.cause) for stream in job.streams] == [(False, None), (False, None), (True, None)]


def test_even_streams(runs: Runs) -> None:
    job = found(runs(RUNS["even"]))
    assert job.jain == pytest.approx(1, abs=0.001)
    assert not any(stream.is_slow for stream in job.streams)
    assert "uneven_connections" not in examine(traced(runs(RUNS["even"])).table).found


def test_the_finding_reports_the_cause(runs: Runs) -> None:
    diagnosis = examine(traced(runs(RUNS["slow start"])).table)
    findings = [each for each in diagnosis.sessions[0].findings if each.name == "uneven_connections"]
    assert [finding.severity for finding in findings] == ["info"]
    text = findings[0].text
    assert "4 connections worked in parallel (Jain's fairness index 0.7" in text
    assert "is slowest because a loss in slow start left its congestion window small" in text
    assert diagnosis.jobs[0].slowest.cause
    assert diagnosis.jobs[0].slowest.cause.frame in findings[0].frames


def run_of(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_table_and_the_document(runs: Runs) -> None:
    run = runs(RUNS["slow start"])
    made: Table = derived.make("streams", traced(run).table)
    assert list(made) == [column.name for column in DERIVED_TABLES["streams"].columns]
    rows = list(made.rows())
    assert [row["cause"] for row in rows] == [None, None, "slow_start_exit", "slow_start_exit"]
    (job,) = json.loads(run_of("diagnose", "--json", run.capture()))["jobs"]
    assert [each["connection"] for each in job["streams"]] == [row["connection"] for row in rows]
    assert job["jain"] == pytest.approx(found(run).jain)
    text = run_of("diagnose", run.capture())
    assert f"Parallel connections: Jain's fairness index {found(run).jain:.3f}" in text
    assert text.count("slow_start_exit") == 2


def texts(svg: str) -> Sequence[str]:
    """The texts of a plot: matplotlib writes each one as a comment beside its paths."""
    return [line.strip()[5:-4] for line in svg.splitlines() if line.strip().startswith("<!-- ")]


def test_the_plot_names_causes_and_the_index(runs: Runs, tmp_path: Path) -> None:
    run = runs(RUNS["slow start"])
    run_of("plot", "streams", "-o", tmp_path / "streams.svg", run.capture())
    said = texts((tmp_path / "streams.svg").read_text())
    assert f"4 in parallel, Jain's fairness index {found(run).jain:.3f}" in " ".join(said).replace("&#39;", "'")
    assert sum("(slow: loss in slow start)" in each for each in said) == 2
    assert any("slow start exit" in each for each in said)


@pytest.mark.parametrize(("name", "picture"), [("slow start", "Streams of the job"), ("one session", "Connections")])
def test_the_report_draws_the_streams_of_all_sessions(runs: Runs, name: str, picture: str) -> None:
    run = runs(RUNS[name])
    trace = iscsitrace.read(run.capture(), tables=captures.needed(is_large=False))
    (job,) = examine(trace.table).jobs
    pictures = figures.wanted(trace, job.runs[0].session or 0, [job])
    ((kind, zoom),) = ((kind, zoom) for each, kind, zoom in pictures if each == picture)
    drawing = kinds.load(kind).drawing(trace, zoom, job.first_ns, Detail(limit=2_000, columns=500))
    assert f"{len(job.streams)} in parallel" in drawing.title
