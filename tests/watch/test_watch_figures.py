"""Every figure of a live view against the truth of a conversation, and every output against the report.

The truth is computed here in plain Python from the PDUs sent; the JSON of an interval is compared with it, and gauges,
board and lines with that JSON.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import iscsitrace
from iscsitrace.tables.passes import SECOND_NS, Live, Pace
from iscsitrace.watch.board import SORTS, Choice, lines_of, render, sorted_lines
from iscsitrace.watch.exposition import Exposition
from iscsitrace.watch.meters import Meters
from iscsitrace.watch.watcher import Report, Watcher
from tests.support.capture_file import read_records, write_pcapng
from tests.support.conversation import Conversation, Session
from tests.support.printed import amounts, is_amount, percentage
from tests.support.runs import Runs
from tests.support.transport import Path as Link
from tests.support.truth import SeenCycle, observe
from tests.watch.test_watch import PATIENT

QUANTILES = {"p50": 50, "p95": 95, "p99": 99, "max": 100}
CAUSES = ("fast_retransmit", "timeout", "tail_probe", "unknown_retransmit")
DIRECTIONS = ("to_target", "to_initiator")
WORDS = {
    "transfer": "T", "propagation": "P", "target_service": "S", "initiator_think": "i", "initiator_service": "I",
    "ack_wait": "A", "receive_window": "R", "congestion_window": "C", "loss_recovery": "L", "unknown": "?",
}  # fmt: skip


def opened(source: Path, interval_ns: int) -> Watcher:
    """A view of a file to its end, with findings at every look."""
    live = Live(source, replace(PATIENT, interval_ns=interval_ns))
    live.stop()
    watcher = Watcher(live)
    watcher.findings.every_ns = interval_ns
    return watcher


def watched(source: Path, interval_ns: int) -> tuple[Watcher, list[Report]]:
    """A view at its end, and all of its reports."""
    watcher = opened(source, interval_ns)
    reports: list[Report] = []
    watcher.run(reports.append)
    return watcher, reports


# --- the JSON of an interval against the truth


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[SeenCycle]]:
    """Reads, then after three seconds writes of two sessions at once, then a few small ones."""
    conversation = Conversation(Link(one_way_delay_ns=4_000_000))
    first = conversation.session(Session(connection_count=2)).login().read(count=10).pause(3 * SECOND_NS)
    first.write(count=6, block_bytes=131_072, queue_depth=3).read(count=3, queue_depth=3)
    first.pause(3 * SECOND_NS).read(count=3, block_bytes=4096).logout()
    other = conversation.session(Session(is_initial_r2t=False)).login().pause(3 * SECOND_NS)
    other.write(count=2, block_bytes=32_768).logout()
    capture = conversation.run()
    file = tmp_path_factory.mktemp("phases") / "phases.pcapng"
    write_pcapng(file, capture.packets, capture.path.link_type)
    return file, observe(capture, capture.packets).cycles


def load(cycles: list[SeenCycle], length_ns: int) -> dict[str, Any]:
    """Figures of tasks, by the definitions of method.md."""
    latencies = sorted(int(c.columns["status_ns"] or 0) - int(c.columns["command_first_ns"] or 0) for c in cycles)
    depths = [int(c.columns["queue_depth"] or 0) for c in cycles]
    moved = {
        operation: sum(
            c.record.task.expected_data_transfer_length for c in cycles if c.columns["operation"] == operation
        )
        for operation in ("read", "write")
    }
    sizes = Counter(c.record.task.expected_data_transfer_length for c in cycles)
    common = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:3]
    return {
        "task_count": len(cycles),
        "read_bytes": moved["read"],
        "write_bytes": moved["write"],
        "iops": len(cycles) * 1e9 / length_ns,
        "read_bytes_per_s": moved["read"] * 1e9 / length_ns,
        "write_bytes_per_s": moved["write"] * 1e9 / length_ns,
        "latency_ns": percentiles(latencies),
        "queue_depth": {
            "mean": pytest.approx(sum(depths) / len(depths)) if depths else None,
            "max": max(depths, default=None),
        },
        "block_sizes": [{"bytes": size, "task_count": count} for size, count in common],
    }


def nearest(ordered: list[int], percent: int) -> int | None:
    """The percentile by nearest rank."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None


def percentiles(ordered: list[int]) -> dict[str, int | None]:
    """With their n; those that have at least one value above them, else None."""
    least = {"p50": 1, "p95": 20, "p99": 100, "max": 1}
    found = {
        name: nearest(ordered, share) if len(ordered) >= least[name] else None for name, share in QUANTILES.items()
    }
    return {"n": len(ordered)} | found


def session_of(cycle: SeenCycle, document: dict[str, Any]) -> int:
    """The number of a session in the capture, by the name of its target."""
    name = f"iqn.2024-01.example.target:{cycle.record.session}"
    (found,) = [row["session"] for row in document["sessions"] if row["target_name"] == name]
    return int(found)


def test_an_interval_equals_the_traffic_in_it(phases: tuple[Path, list[SeenCycle]]) -> None:
    file, cycles = phases
    watcher, reports = watched(file, SECOND_NS)
    document = watcher.document()
    busy = 0
    for report in reports:
        shown = report.as_dict()
        assert (shown["from_ns"], shown["to_ns"]) == (report.from_ns, report.to_ns)
        length_ns = report.to_ns - report.from_ns
        own = [c for c in cycles if report.from_ns < int(c.columns["status_ns"] or 0) <= report.to_ns]
        busy += bool(own)
        assert {name: shown["all"][name] for name in load(own, length_ns)} == load(own, length_ns)
        for kind, number_of in (("session", session_of), ("connection", connection_of)):
            for row in shown[f"{kind}s"]:
                part = load([cycle for cycle in own if number_of(cycle, document) == row[kind]], length_ns)
                assert {name: row[name] for name in part} == part, (kind, row[kind])
            assert sum(row["task_count"] for row in shown[f"{kind}s"]) == len(own)
        so_far = [c for c in cycles if int(c.columns["status_ns"] or 0) <= report.to_ns]
        assert shown["all"]["latency_total_ns"] == load(so_far, length_ns)["latency_ns"]
        for row in shown["sessions"]:
            mine = [cycle for cycle in so_far if session_of(cycle, document) == row["session"]]
            assert row["latency_total_ns"] == load(mine, length_ns)["latency_ns"]
    # the three parts of the conversation
    assert busy == 3


def connection_of(cycle: SeenCycle, document: dict[str, Any]) -> int:
    port = 40_000 + cycle.record.connection
    (found,) = [row["connection"] for row in document["connections"] if row["initiator_port"] == port]
    return int(found)


def test_totals_equal_the_traffic(phases: tuple[Path, list[SeenCycle]]) -> None:
    file, cycles = phases
    document = watched(file, SECOND_NS // 3)[0].document()
    for volume in document["volumes"]:
        number = volume["session"]
        own = [cycle for cycle in cycles if number is None or session_of(cycle, document) == number]
        active_ns = union_ns([(int(c.columns["command_first_ns"] or 0), int(c.columns["status_ns"] or 0)) for c in own])
        expected = load(own, active_ns)
        for name in ("read_bytes", "write_bytes", "iops", "read_bytes_per_s", "write_bytes_per_s"):
            assert volume[name] == pytest.approx(expected[name]), name
        assert volume["active_ns"] == active_ns
        assert volume["cycle_count"] == volume["complete_cycle_count"] == len(own)
        assert volume["queue_depth_max"] == expected["queue_depth"]["max"]
    assert [volume["cycle_count"] for volume in document["volumes"]] in ([2, 22, 24], [22, 2, 24])
    for row in document["latency"]:
        own = [cycle for cycle in cycles if cycle.columns["operation"] == row["operation"]]
        assert row["cycle_count"] == len(own)
        assert row["latency_ns"] == load(own, 1)["latency_ns"]
    sizes = Counter((c.columns["operation"], c.record.task.expected_data_transfer_length) for c in cycles)
    assert {(row["operation"], row["bytes"]): row["cycle_count"] for row in document["block_sizes"]} == sizes
    depths = sorted(int(cycle.columns["queue_depth"] or 0) for cycle in cycles)
    assert {name: document["queue_depth"][name] for name in ("n", *QUANTILES)} == percentiles(depths)


def union_ns(spans: list[tuple[int, int]]) -> int:
    """The time in at least one interval."""
    total, until = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


# --- gauges, board and lines against the JSON

REORDERED = (
    "mixed --set reorder=3%,20ms --set jitter=500us --bytes 4M --queue-depth 4 --one-way-delay 2ms --rate 100Mbit "
    "--seed 3 --targets 2 --connections 2"
)
INTERVAL_NS = SECOND_NS // 10


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions that read and write, with many spurious retransmissions; one packet and the end are missing from the
    capture.
    """
    folder = tmp_path_factory.mktemp("watched")
    records, link_type = read_records(Runs(folder)(REORDERED).capture())
    return write_pcapng(folder / "watched.pcapng", records[:2000] + records[2001:4400], link_type)


@pytest.fixture(scope="module")
def seen(capture: Path) -> tuple[list[tuple[Report, dict[tuple[str, ...], float]]], list[Report]]:
    """Every report with the gauges that were served with it."""
    watcher = opened(capture, INTERVAL_NS)
    exposition = Exposition()
    registry = CollectorRegistry()
    registry.register(exposition)
    found = []

    def take(report: Report) -> None:
        exposition.update(report, watcher)
        found.append((report, gauges(generate_latest(registry).decode())))

    watcher.run(take)
    return found, [report for report, _ in found]


def served_with(report: Report) -> dict[tuple[str, ...], float]:
    """The gauges of one report alone."""
    exposition, registry = Exposition(), CollectorRegistry()
    exposition.update(report, cast(Watcher, SimpleNamespace(meters=Meters())))
    registry.register(exposition)
    return gauges(generate_latest(registry).decode())


def gauges(text: str) -> dict[tuple[str, ...], float]:
    """The value of each name and set of labels."""
    return {
        (sample.name, *(f"{name}={sample.labels[name]}" for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def expected_gauges(shown: list[dict[str, Any]]) -> Iterator[tuple[tuple[str, ...], float]]:
    """The expected gauges after these intervals, the last one the newest. Each session has a target of its own."""
    last = shown[-1]
    yield ("iscsitrace_build_info", f"version={version('iscsitrace')}"), 1
    yield ("iscsitrace_packets_total",), sum(each["packet_count"] for each in shown)
    yield ("iscsitrace_lag_seconds",), last["lag_s"]
    yield ("iscsitrace_left_out_packets_total",), last["sampled"]["left_out_packets"]
    yield ("iscsitrace_is_reduced",), int(last["sampled"]["is_without_dynamics"])
    for row in last["counters"]:
        yield ("iscsitrace_oddities_total", f"name={row['name']}", f"severity={row['severity']}"), row["count"]
    if last["headline"]:
        labels = (f"name={last['headline']['name']}", f"severity={last['headline']['severity']}")
        yield ("iscsitrace_headline_cost_seconds", *labels), (last["headline"]["cost_ns"] or 0) / 1e9
    paths = {row["session"]: path_of(row, last["connections"]) for row in last["sessions"]}
    for found in last["findings"]:
        if found["session"] in paths:
            initiator, portal, target = paths[found["session"]]
            marks = (initiator, f"name={found['name']}", portal, f"severity={found['severity']}", target)
            yield ("iscsitrace_finding_share", *marks), found["share"] or 0
    for row in last["sessions"]:
        connections = [each for each in last["connections"] if each["session"] == row["session"]]
        own = [each["transport"] for each in connections if each["transport"]]
        values = {
            "sessions": int(row["is_open"]),
            "connections": sum(each["is_open"] for each in connections),
            "commands_in_flight": row["open_task_count"],
            "oldest_command_seconds": row["oldest_command_ns"] / 1e9,
            "no_progress_seconds": row["no_progress_ns"] / 1e9,
            "rtt_seconds": seconds(max((each["rtt_smoothed_ns"] for each in own), default=None)),
            "rtt_min_seconds": seconds(min((each["rtt_min_ns"] for each in own), default=None)),
            "in_flight_peak_bytes": sum(max(each["owin_peak_bytes"].values()) for each in own) if own else None,
            "outages_total": 0,
        }
        for name, value in values.items():
            if value is not None:
                yield (f"iscsitrace_{name}", *paths[row["session"]]), value
    every = {row["session"]: row for each in shown for row in each["sessions"]}
    for row in every.values():
        initiator, portal, target = path_of(row, last["connections"])
        whole = [each for report in shown for each in report["connections"] if each["session"] == row["session"]]
        for part in {part for each in whole for part in each["busy_budget"] or {}}:
            ns = sum((each["busy_budget"] or {}).get(part, 0) for each in whole)
            yield ("iscsitrace_time_seconds_total", initiator, f"part={part}", portal, target), ns / 1e9
        again = [each["transport"]["retransmissions"] for each in whole if each["transport"]]
        for cause in CAUSES if again else ():
            amount = sum(each[cause] for each in again)
            yield ("iscsitrace_retransmissions_total", f"cause={cause}", initiator, portal, target), amount


def path_of(row: dict[str, Any], connections: list[dict[str, Any]]) -> tuple[str, str, str]:
    portal = next(each["target"] for each in connections if each["session"] == row["session"])
    return f"initiator={row['initiator_name']}", f"portal={portal}", f"target={row['target_name']}"


def is_of_units(key: tuple[str, ...]) -> bool:
    """Whether the meters of logical units have it: test_meters.py compares those with the commands."""
    return any(label.startswith("lun=") for label in key[1:])


def most_outstanding(transports: list[dict[str, Any]]) -> int | None:
    sums = [sum(each["owin_peak_bytes"][direction] for each in transports) for direction in DIRECTIONS]
    return max(sums) if transports else None


Seen = tuple[list[tuple[Report, dict[tuple[str, ...], float]]], list[Report]]


def test_every_gauge_is_a_figure_of_the_report(seen: Seen) -> None:
    shown: list[dict[str, Any]] = []
    for report, served in seen[0]:
        shown.append(report.as_dict())
        own = {key: value for key, value in served.items() if not is_of_units(key)}
        assert own == pytest.approx(dict(expected_gauges(shown)))
    names = {name for _, served in seen[0] for name, *_ in served}
    # of each kind there was one that is not zero
    values = {
        name: {value for _, served in seen[0] for key, value in served.items() if key[0] == name} for name in names
    }
    never = {"no_progress_seconds", "left_out_packets_total", "is_reduced", "outages_total"}
    # how far behind it is depends on the machine
    assert {name for name in names if values[name] == {0}} - {"iscsitrace_lag_seconds"} == {
        f"iscsitrace_{name}" for name in never
    }
    assert {"iscsitrace_oddities_total", "iscsitrace_finding_share"} < names
    assert values["iscsitrace_read_bytes_total"] != values["iscsitrace_written_bytes_total"]


def test_the_rtt_is_that_of_the_path(capture: Path) -> None:
    """2 ms each way, up to half of that more, and the time of up to 1000 packets on a line of 100 Mbit/s."""
    _, reports = watched(capture, 4 * SECOND_NS)
    for report in reports:
        for row in report.as_dict()["connections"]:
            assert 4_000_000 < row["transport"]["rtt_min_ns"] < 5_200_000
            assert row["transport"]["rtt_min_ns"] <= row["transport"]["rtt_smoothed_ns"] < 130_000_000


def test_spurious_retransmissions_are_not_counted_twice(capture: Path, seen: Seen) -> None:
    senders = list(iscsitrace.read(capture, tables=["senders"]).senders.rows())
    assert all(row["spurious_count"] for row in senders)
    sums: Counter[str] = Counter()
    for report in seen[1]:
        for row in report.as_dict()["connections"]:
            sums.update(row["transport"]["retransmissions"])
    # those that an ACK would show that is still on its way to the sender at the end are not known to a view
    assert 0 < sums["spurious"] <= sum(row["spurious_count"] for row in senders)
    for cause in CAUSES:
        assert sums[cause] == sum(row[f"{cause}_count"] for row in senders)
    for row in seen[1][-1].as_dict()["connections"]:
        total = sum(
            each[f"{cause}_count"] for cause in CAUSES for each in senders if each["connection"] == row["connection"]
        )
        assert row["transport"]["retransmitted_total"] == total


def shares(row: dict[str, Any]) -> dict[str, Decimal]:
    total_ns = sum((row["busy_budget"] or {}).values())
    return {part: Decimal(ns) / total_ns for part, ns in (row["busy_budget"] or {}).items() if ns}


def is_shown(cell: str, value: float | None, unit: str) -> bool:
    return cell == "-" if value is None else is_amount(cell, Decimal(value), unit)


def seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / 1e9


def columns(row: dict[str, Any], transports: list[dict[str, Any]]) -> dict[str, tuple[float | None, str]]:
    """The expected columns of the board for a session or connection: amount and unit."""
    round_trips = [each["rtt_smoothed_ns"] for each in transports if each["rtt_smoothed_ns"] is not None]
    return {
        "MB/s R": (row["read_bytes_per_s"], "MB/s"),
        "MB/s W": (row["write_bytes_per_s"], "MB/s"),
        "IOPS": (row["iops"], ""),
        "p50 ms": (seconds(row["latency_ns"]["p50"]), "ms"),
        "p95": (seconds(row["latency_ns"]["p95"]), "ms"),
        "p99": (seconds(row["latency_ns"]["p99"]), "ms"),
        "max": (seconds(row["latency_ns"]["max"]), "ms"),
        "QD": (row["queue_depth"]["max"], ""),
        "idle%": (row["idle_fraction"], "%"),
        "rtx": (sum(each["retransmissions"][cause] for each in transports for cause in CAUSES), ""),
        "RTT ms": (seconds(max(round_trips, default=None)), "ms"),
        "owin": (most_outstanding(transports), ""),
        "I/O": (row["block_sizes"][0]["bytes"] if row["block_sizes"] else None, ""),
    }


def transports_of(shown: dict[str, Any], session: int) -> list[dict[str, Any]]:
    return [each["transport"] for each in shown["connections"] if each["session"] == session and each["transport"]]


@pytest.mark.parametrize("width", [80, 130])
def test_the_board_shows_the_report(capture: Path, seen: Seen, width: int) -> None:
    checked = 0
    # of one interval of many tasks, too, of which percentiles differ
    for report in (*seen[1], *watched(capture, 4 * SECOND_NS)[1]):
        shown = report.as_dict()
        for session in (None, 0, 1):
            choice = Choice(source="eth0", session=session, row=1)
            board = "\n".join(line.plain.rstrip() for line in render(report, choice, width, 60))
            rows = shown["sessions"] if session is None else [
                row for row in shown["connections"] if row["session"] == session
            ]  # fmt: skip
            if not rows:
                continue
            kind = "session" if session is None else "connection"
            for row in rows:
                own = transports_of(shown, row["session"]) if session is None else [row["transport"]]
                check_line(board, row[kind], columns(row, own), width)
                checked += 1
            chosen = rows[min(1, len(rows) - 1)]
            own = transports_of(shown, chosen["session"]) if session is None else [chosen["transport"]]
            check_detail(board, kind, chosen, own)
            check_head(board, shown, report.packet_count)
    assert checked > 10


def check_line(board: str, number: int, told: dict[str, tuple[float | None, str]], width: int) -> None:
    lines = board.splitlines()
    (head,) = [line for line in lines if line.startswith("session") and "MB/s R" in line]
    names = [name for name in told if re.search(rf"(?<= ){re.escape(name)}(?= |$)", head)]
    assert " ".join(head.split()).endswith(" ".join(names))
    assert len(names) == (13 if width >= 122 else 8)
    # the table ends with an empty line: a finding's second line may begin with a number, too
    table = lines[lines.index(head) : lines.index("", lines.index(head))]
    (line,) = [line for line in table if re.match(rf"[> ] ?{number} ", line)]
    for name, cell in zip(names, line.split()[-len(names) :], strict=True):
        value, unit = told[name]
        assert is_shown(cell, value, unit), (name, cell, value)


def check_detail(board: str, kind: str, row: dict[str, Any], own: list[dict[str, Any]]) -> None:
    start = rf"{kind} {row[kind]}  idle (\S+) %  limiter (.+?)  in flight (\d+)  QD mean (\S+)"
    idle, limiter, opened, depth = amounts(board, start)
    assert is_shown(idle, row["idle_fraction"], "%")
    assert opened == str(row["open_task_count"])
    assert is_shown(depth, row["queue_depth"]["mean"], "")
    parts = shares(row)
    if parts:
        # the limiter is the largest part but transfer; the legend has it first of these
        legend = re.findall(r"([A-Zi?]) ([A-Za-z][A-Za-z ]+?) ([\d.]+) %", board)
        assert {letter: told for letter, _, told in legend if letter in WORDS.values()} == {
            WORDS[part]: percentage(share) for part, share in parts.items()
        }
        largest = max((part for part in parts if part != "transfer"), key=lambda part: parts[part], default=None)
        if largest and row["limiter"] == largest:
            assert (WORDS[largest], limiter) in [(letter, words) for letter, words, _ in legend]
        bar = next(line for line in board.splitlines() if re.fullmatch(r"[TPSiIARCL?]{40,}", line))
        for part, letter in WORDS.items():
            assert abs(bar.count(letter) / len(bar) - float(parts.get(part, 0))) <= 1 / len(bar)
    rtt, least, owin, blocks = amounts(board, r"RTT (\S+) ms \(min (\S+)\)  owin (\S+)  I/O sizes (.+)")
    told = columns(row, own)
    assert is_shown(rtt, *told["RTT ms"])
    assert is_shown(least, seconds(min(each["rtt_min_ns"] for each in own if each["rtt_min_ns"] is not None)), "ms")
    assert is_shown(owin, *told["owin"])
    found = [each.split(" x") for each in blocks.split("  ")] if blocks != "-" else []
    assert [int(count) for _, count in found] == [each["task_count"] for each in row["block_sizes"]]
    assert all(is_amount(cell, each["bytes"]) for (cell, _), each in zip(found, row["block_sizes"], strict=True))
    if any(each["retransmitted_total"] for each in own):
        again, total = amounts(board, r"retransmissions: (.+?)  \((\d+) so far\)")
        assert int(total) == sum(each["retransmitted_total"] for each in own)
        counts = {cause: sum(each["retransmissions"][cause] for each in own) for cause in CAUSES}
        said = "  ".join(f"{cause.replace('_', ' ')} {count}" for cause, count in counts.items() if count)
        assert again == (said or "0")


def check_head(board: str, shown: dict[str, Any], packets: int) -> None:
    start = r"eth0  live  (\d\d:\d\d:\d\d)Z  (\S+) s  ([\d,]+) packets  lag (\S+) s"
    clock, length, count, lag = amounts(board, start)
    second = shown["to_ns"] // SECOND_NS % 86_400
    assert clock == f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    assert float(length) == pytest.approx((shown["to_ns"] - shown["from_ns"]) / 1e9, rel=0.01)
    assert (int(count.replace(",", "")), is_amount(lag, Decimal(shown["lag_s"]))) == (packets, True)
    line = r"all  read (\S+) MB/s  write (\S+) MB/s  (\S+) IOPS  p50 (\S+) ms, (max|p99) (\S+) ms \(n (\d+)\)"
    check_all(amounts(board, line), shown)
    total = amounts(board, r"since the start  p50 (\S+)  p95 (\S+)  p99 (\S+)  max (\S+) ms \(n (\d+)\)")
    assert int(total[-1]) == shown["all"]["latency_total_ns"]["n"]
    for cell, name in zip(total[:-1], QUANTILES, strict=True):
        assert is_shown(cell, seconds(shown["all"]["latency_total_ns"][name]), "ms")


def check_all(cells: tuple[str, ...], shown: dict[str, Any]) -> None:
    whole = shown["all"]
    values = (whole["read_bytes_per_s"], whole["write_bytes_per_s"], whole["iops"])
    *amounts_of, tail, last, n = cells
    assert (tail, int(n)) == ("max" if whole["latency_ns"]["n"] < 100 else "p99", whole["latency_ns"]["n"])
    latencies = [seconds(whole["latency_ns"][name]) for name in ("p50", tail)]
    units = ("MB/s", "MB/s", "", "ms", "ms")
    for cell, value, unit in zip((*amounts_of, last), (*values, *latencies), units, strict=True):
        assert is_shown(cell, value, unit)


def test_lag_and_skipped_packets_are_shown_everywhere(seen: Seen) -> None:
    pace = Pace(1_500_000_000, 4096, is_reduced=True, is_leaving_out=True, left_out_packets=7)
    report = replace(seen[1][0], pace=pace, dropped=9)
    shown = report.as_dict()
    assert (shown["lag_s"], shown["waiting_bytes"], shown["capture_dropped_packets"]) == (1.5, 4096, 9)
    assert shown["sampled"] == {"is_without_dynamics": True, "is_leaving_out": True, "left_out_packets": 7}
    served = served_with(report)
    assert served["iscsitrace_lag_seconds",] == 1.5
    assert served["iscsitrace_capture_dropped_packets_total",] == 9
    assert (served["iscsitrace_left_out_packets_total",], served["iscsitrace_is_reduced",]) == (7, 1)
    board = "\n".join(line.plain.rstrip() for line in render(report, Choice(source="eth0"), 130, 60))
    assert "  lag 1.5 s\n" in board
    assert "\n! cannot keep up: is skipping packets, 7 so far\n" in board
    assert "\n! the capture dropped 9 packets so far\n" in board
    said = lines_of(report)
    assert said[1] == "  cannot keep up: lag 1.5 s, no time breakdown, RTT and owin, 7 packets skipped so far"
    assert said[2] == "  the capture dropped 9 packets so far"


def test_counters_are_new_once(seen: Seen) -> None:
    last = {row["name"]: row["count"] for row in seen[1][-1].as_dict()["counters"]}
    assert last["capture_gap"] > 0
    for name, count in last.items():
        rows = [row for report in seen[1] for row in report.as_dict()["counters"] if row["name"] == name]
        assert sum(row["new"] for row in rows) == count


def test_findings_are_worded_as_in_diagnose(seen: Seen) -> None:
    shares, new = set(), 0
    for report in seen[1]:
        board = "\n".join(line.plain for line in render(report, Choice(source="eth0"), 200, 200))
        lines = lines_of(report)
        for row in report.as_dict()["findings"]:
            share = f", {percentage(row['share'])} %" if row["share"] else ""
            head = f"session {row['session']}: {row['name']} ({row['severity']}{share}): "
            assert f"\n{head}" in board
            is_new = row["since_ns"] == report.to_ns
            assert (f"  {head}{row['text']}" in lines) == is_new
            shares.add(share)
            new += is_new
    assert new > 1
    assert len(shares) > 2


def test_plain_lines_show_the_report(seen: Seen) -> None:
    start = r"\S+ all: read (\S+) MB/s, write (\S+) MB/s, (\S+) IOPS, "
    start += r"p50 (\S+) ms, (max|p99) (\S+) ms \(n (\d+)\), ([\d,]+) packets"
    one = r"  session {} \((\S+)\): read (\S+) MB/s, write (\S+) MB/s, (\S+) IOPS, "
    one += r"p50 (\S+) ms, (max|p99) (\S+) ms \(n (\d+)\)(.*)"
    checked = 0
    for report in seen[1]:
        shown, text = report.as_dict(), "\n".join(lines_of(report))
        *cells, packets = amounts(text, start)
        check_all(tuple(cells), shown)
        assert packets == f"{shown['packet_count']:,}"
        for row in shown["sessions"]:
            name, *cells, rest = amounts(text, one.format(row["session"]))
            assert name == row["target_name"]
            check_all(tuple(cells), {"all": row})
            told = columns(row, transports_of(shown, row["session"]))
            found = dict(re.findall(r", (QD|idle|RTT|owin) ([^ ,]+)", rest))
            for word, name in (("QD", "QD"), ("idle", "idle%"), ("RTT", "RTT ms"), ("owin", "owin")):
                assert is_shown(found.get(word, "-"), *told[name]), (word, rest)
            again = re.search(r", (\d+) retransmissions?\b", rest)
            assert (int(again[1]) if again else 0) == told["rtx"][0]
            checked += bool(again)
    assert checked > 1


def test_lines_are_sorted_by_the_requested_column(capture: Path) -> None:
    keys: dict[str, Callable[[Any, Any], Any]] = {
        "number": lambda row, own: row["session"],
        "throughput": lambda row, own: -(row["read_bytes_per_s"] + row["write_bytes_per_s"]),
        "IOPS": lambda row, own: -row["iops"],
        # where there are too few commands for a p99
        "p99": lambda row, own: -(row["latency_ns"]["p99"] or row["latency_ns"]["max"] or 0),
        "queue depth": lambda row, own: -(row["queue_depth"]["max"] or 0),
        "idle": lambda row, own: -(row["idle_fraction"] or 0),
        "retransmissions": lambda row, own: -(columns(row, own)["rtx"][0] or 0),
    }
    assert tuple(keys) == SORTS
    report = watched(capture, 4 * SECOND_NS)[1][0]
    one, other = report.sessions
    # and each with the other's figures
    swapped = [replace(other, number=one.number), replace(one, number=other.number)]
    orders: dict[str, set[tuple[int, ...]]] = {sort: set() for sort in SORTS}
    for lines in ([one, other], swapped):
        for sort, key in keys.items():
            rows = [(line.as_dict(), [each.as_dict() for each in line.transports.values()]) for line in lines]
            expected = tuple(row["session"] for row, own in sorted(rows, key=lambda each: key(*each)))
            found = sorted_lines(replace(report, sessions=lines), Choice(sort=sort))
            assert tuple(line.number for line in found) == expected
            orders[sort].add(expected)
    # the queue depth is 4 for both
    assert [sort for sort, found in orders.items() if len(found) < 2] == ["number", "queue depth"]
