"""Counts by initiator, target, portal and LUN, against the commands that were sent; room, and what goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import iscsitrace
from iscsitrace.measure import waits
from iscsitrace.tables.passes import SECOND_NS, Live
from iscsitrace.watch.exposition import Exposition
from iscsitrace.watch.figures import NO_LOAD, Hang, WatchLine
from iscsitrace.watch.meters import LATENCY_BOUNDS_NS, OTHER, STAYS_NS, Latencies, Meters, PathLabels
from iscsitrace.watch.watcher import Report, Watcher
from tests.support.capture_file import write_pcapng
from tests.support.conversation import Conversation, Session
from tests.support.pdu import Task
from tests.support.transport import Path as Link
from tests.support.truth import SeenCycle, observe
from tests.watch.test_watch import PATIENT, sample_of

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def served(source: FilePath, interval_ns: int = SECOND_NS) -> list[Samples]:
    """What is served after each interval."""
    live = Live(source, replace(PATIENT, interval_ns=interval_ns))
    live.stop()
    watcher = Watcher(live)
    exposition, registry = Exposition(), CollectorRegistry()
    registry.register(exposition)
    found: list[Samples] = []

    def take(report: Report) -> None:
        exposition.update(report, watcher)
        found.append(samples(generate_latest(registry).decode()))

    watcher.run(take)
    return found


def samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labels(**names: str) -> frozenset[tuple[str, str]]:
    return frozenset(names.items())


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[FilePath, list[SeenCycle]]:
    """Two sessions to two targets, over five seconds: reads and writes of several sizes and speeds, two LUNs."""
    conversation = Conversation(Link(one_way_delay_ns=2_000_000))
    first = conversation.session().login().read(count=30).pause(2 * SECOND_NS).write(count=7, block_bytes=32_768)
    first.tasks([Task("read", block_count=16, lun=1)] * 3)
    first.pause(2 * SECOND_NS).read(count=5, queue_depth=4).logout()
    slow = conversation.session(Session(service_ns=30_000_000)).login().read(count=4).pause(SECOND_NS)
    slow.write(count=3).logout()
    capture = conversation.run()
    file = tmp_path_factory.mktemp("meters") / "two.pcapng"
    write_pcapng(file, capture.packets, capture.path.link_type)
    return file, observe(capture, capture.packets).cycles


def test_counts_are_those_of_the_commands_sent(two: tuple[FilePath, list[SeenCycle]]) -> None:
    file, cycles = two
    last = served(file)[-1]
    rows = {row["connection"]: row for row in iscsitrace.read(file).connections.rows()}
    names = {row["session"]: row for row in iscsitrace.read(file).sessions.rows()}
    commands: Counter[frozenset[tuple[str, str]]] = Counter()
    moved: Counter[tuple[str, frozenset[tuple[str, str]]]] = Counter()
    latencies: dict[frozenset[tuple[str, str]], list[int]] = {}
    for cycle in cycles:
        (row,) = [
            row
            for row in rows.values()
            if names[row["session"]]["target_name"] == f"iqn.2024-01.example.target:{cycle.record.session}"
        ]
        unit = {
            "initiator": names[row["session"]]["initiator_name"],
            "target": names[row["session"]]["target_name"],
            "portal": f"{row['target_address']}:{row['target_port']}",
            "lun": str(cycle.columns["lun"]),
        }
        operation = str(cycle.columns["operation"])
        commands[labels(**unit, operation=operation, status="good")] += 1
        kind = {"read": "iscsitrace_read_bytes_total", "write": "iscsitrace_written_bytes_total"}[operation]
        moved[kind, labels(**unit)] += cycle.record.task.expected_data_transfer_length
        latency = int(cycle.columns["status_ns"] or 0) - int(cycle.columns["command_first_ns"] or 0)
        latencies.setdefault(labels(**unit, operation=operation), []).append(latency)
    assert {key: value for (name, key), value in last.items() if name == "iscsitrace_commands_total"} == commands
    for (name, key), amount in moved.items():
        assert last[name, key] == amount
    for key, values in latencies.items():
        base = "iscsitrace_command_latency_seconds"
        assert last[f"{base}_count", key] == len(values)
        assert last[f"{base}_sum", key] == pytest.approx(sum(values) / 1e9)
        for bound in (*(each / 1e9 for each in LATENCY_BOUNDS_NS), float("inf")):
            le = "+Inf" if bound == float("inf") else str(bound)
            below = sum(value <= bound * 1e9 for value in values)
            assert last[f"{base}_bucket", key | {("le", le)}] == below
    assert len(commands) >= 4
    # not all in one class, and not in the same ones
    assert max(map(max, latencies.values())) > 20_000_000 > min(map(min, latencies.values()))


def test_counters_never_go_back(two: tuple[FilePath, list[SeenCycle]]) -> None:
    reports = served(two[0], SECOND_NS // 4)
    assert len(reports) > 10
    counters = [key for key in reports[-1] if key[0].endswith(("_total", "_bucket", "_count", "_sum"))]
    assert len(counters) > 60
    for key in counters:
        values = [report[key] for report in reports if key in report]
        assert values == sorted(values)


def test_a_latency_is_in_the_class_whose_bound_it_has() -> None:
    bound = LATENCY_BOUNDS_NS[3]
    found = Latencies()
    found.add(np.array([bound - 1, bound, bound + 1, LATENCY_BOUNDS_NS[-1] + 1]))
    assert found.counts.nonzero()[0].tolist() == [3, 4, len(LATENCY_BOUNDS_NS)]
    assert (found.counts[3], found.sum_ns) == (2, 3 * bound + LATENCY_BOUNDS_NS[-1] + 1)


@pytest.mark.parametrize(
    ("name", "status", "count"),
    [
        ("medium-error", "check_condition", 32),
        ("task-abort-storage-hang", "none", 1),
        ("capture-drops", "not_captured", 1),
    ],
)
def test_commands_that_failed_have_their_status(name: str, status: str, count: int) -> None:
    """The samples' truth: reads of a bad medium, an aborted read, a status that the capture dropped."""
    last = served(sample_of(name))[-1]
    of_status = [
        value
        for (metric, own), value in last.items()
        if metric == "iscsitrace_commands_total" and {("operation", "read"), ("status", status)} <= own
    ]
    assert of_status == [count]


@pytest.mark.parametrize(
    ("name", "count"),
    [("black-out-and-relogin", 1), ("task-abort-storage-hang", 1), ("loss-1-percent", 0), ("medium-error", 0)],
)
def test_an_outage_counts_once_however_many_intervals_and_sessions_it_takes(name: str, count: int) -> None:
    for interval_ns in (SECOND_NS // 2, SECOND_NS):
        last = served(sample_of(name), interval_ns)[-1]
        assert sum(value for (metric, _), value in last.items() if metric == "iscsitrace_outages_total") == count


def test_retransmissions_are_those_of_the_senders() -> None:
    source = sample_of("loss-1-percent")
    last = served(source)[-1]
    rows = list(iscsitrace.read(source, tables=["senders"]).senders.rows())
    for cause in ("fast_retransmit", "timeout", "tail_probe", "unknown_retransmit"):
        found = [value for (_, own), value in last.items() if ("cause", cause) in own]
        assert found == [sum(row[f"{cause}_count"] for row in rows)]


# --- room, and what goes: lines made by hand


def lines(
    number: int, initiator: str | None = "host", *, is_open: bool = True, **more: Any
) -> tuple[WatchLine, WatchLine]:
    """A session with its connection."""
    names = {"session_type": "normal", "initiator_name": initiator, "target_name": f"disk{number}"}
    ends = {"session": number, "initiator": "[fd00::1]:4000", "target": "10.0.0.9:3260"}
    connection = WatchLine("connection", number, NO_LOAD, None, 2, names=ends, is_open=is_open, **more)
    return WatchLine("session", number, NO_LOAD, None, 2, names=names, connections=(number,), **more), connection


def add(meters: Meters, each: list[tuple[WatchLine, WatchLine]], to_ns: int = 0, commands: int = 0) -> None:
    trace = iscsitrace.read(sample_of("medium-error"))
    cycles = trace.cycles.select(slice(0, commands))
    waited = waits.of_trace(trace.table).select(np.arange(commands))
    meters.add([session for session, _ in each], [connection for _, connection in each], cycles, waited, to_ns)


def test_a_path_without_an_open_connection_goes_after_a_while() -> None:
    meters = Meters()
    add(meters, [lines(0), lines(1)], 0, commands=5)
    assert len(meters.paths) == 2
    closed = lines(0, is_open=False)
    add(meters, [closed, lines(1)], STAYS_NS)
    assert [path.target for path in meters.paths] == ["disk0", "disk1"]
    add(meters, [lines(1)], STAYS_NS + 1)
    assert [path.target for path in meters.paths] == ["disk1"]
    # one that comes back begins anew, as Prometheus expects of a counter
    add(meters, [lines(0), lines(1)], STAYS_NS + 2)
    assert not meters.paths[PathLabels("host", "disk0", "10.0.0.9:3260")].units


def test_beyond_its_room_everything_counts_under_other() -> None:
    whole, narrow = Meters(), Meters(series_max=100)
    for meters in (whole, narrow):
        add(meters, [lines(number) for number in range(50)], commands=20)
    assert len(whole.paths) == 50
    assert OTHER in narrow.paths
    assert sum(counts.series for counts in narrow.paths.values()) < 300
    for meters in (whole, narrow):
        units = [unit for counts in meters.paths.values() for unit in counts.units.values()]
        assert sum(sum(unit.commands.values()) for unit in units) == 20
        assert sum(counts.now.connection_count for counts in meters.paths.values()) == 50
        assert sum(counts.now.in_flight for counts in meters.paths.values()) == 100


def test_a_session_whose_login_was_not_captured_has_its_address() -> None:
    meters = Meters()
    add(meters, [lines(0, None)])
    ((path, _),) = meters.labelled()
    assert path == ("fd00::1", "disk0", "10.0.0.9:3260")


def test_sessions_of_a_path_are_added_up_and_the_worst_is_shown() -> None:
    meters = Meters()
    one, other = lines(0, hang=Hang(5 * SECOND_NS, 4 * SECOND_NS)), lines(1, hang=Hang(3 * SECOND_NS, 2 * SECOND_NS))
    other = tuple(replace(line, names=line.names | {"target_name": "disk0"}) for line in other)  # type: ignore[assignment]
    add(meters, [one, other])
    ((_, counts),) = meters.labelled()
    now = counts.now
    assert (now.session_count, now.connection_count, now.in_flight) == (2, 2, 4)
    assert (now.oldest_ns, now.no_progress_ns, counts.outages) == (5 * SECOND_NS, 4 * SECOND_NS, 2)


def test_a_hostile_name_is_one_label(tmp_path: FilePath) -> None:
    hostile = 'x"} 1\niscsitrace_packets_total 9\\\x00\ud800'
    meters = Meters()
    add(meters, [lines(0, hostile)], commands=3)
    live: Any = type("Watched", (), {"meters": meters})
    exposition, registry = Exposition(), CollectorRegistry()
    registry.register(exposition)
    from tests.watch.test_board import report

    exposition.update(report(), live)
    found = samples(generate_latest(registry).decode())
    assert found["iscsitrace_packets_total", frozenset()] == 9
    assert sum(name == "iscsitrace_sessions" for name, _ in found) == 1
    (shown,) = {dict(own)["initiator"] for _, own in found if dict(own).get("initiator")}
    assert shown == r'x"} 1\niscsitrace_packets_total 9\\x00\ud800'
