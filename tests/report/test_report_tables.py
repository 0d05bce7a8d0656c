"""Every cell of a report against the JSON of the commands on the same capture, its truth, or hand arithmetic.

The cells are read from the printed Markdown; the page has to have the same tables.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.report import captures
from iscsitrace.show import markdown, page
from tests.cli.test_printed_tables import (
    CONNECTIONS,
    COVERAGE,
    CYCLES,
    HEALTH,
    LEGS,
    MILLION,
    MIRROR,
    MIXED,
    OFFERS,
    POINTS,
    WRITES,
    json_of,
    nearest,
    offered,
    printed,
)
from tests.report.test_report import Page
from tests.support.capture_file import read_records, write_delayed, write_pcapng
from tests.support.conversation import Conversation, Session
from tests.support.printed import UNITS, check, is_amount, label, percentage
from tests.support.runs import Runs
from tests.support.transport import Path as Link

Tables = dict[str, tuple[tuple[str, ...], list[tuple[str, ...]]]]
PHASES = ("request", "grant", "transfer", "service", "status_wait")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("report"))


def report(capture: Path, *options: str) -> str:
    return printed("report", "--format", "md", "-o", "-", *options, capture)


def tables(shown: str) -> Tables:
    """The tables of a Markdown text, by their captions, or the titles above; of several with the same the first."""
    found: Tables = {}
    for block in re.finditer(r"^(?:\*\*|##+ )(.+?)(?:\*\*)?\n\n(?:[^*#|\n].*\n\n)*((?:\|.*\n)+)", shown, re.MULTILINE):
        head, _, *rows = (
            tuple(plain(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]) for line in block[2].splitlines()
        )
        found.setdefault(plain(block[1]), (head, list(rows)))
    return found


def plain(cell: str) -> str:
    """Markdown text as rendered."""
    shown = cell.strip()
    return shown.strip("`").replace("\\|", "|") if shown.startswith("`") else re.sub(r"\\(.)", r"\1", shown)


@pytest.fixture(scope="module")
def mixed(runs: Runs) -> tuple[Path, Tables]:
    capture = runs(MIXED).capture()
    return capture, tables(report(capture))


def lead_of(capture: Path) -> dict[str, Any]:
    """The session of the headline, from `diagnose`; without a problem, the one with most bytes."""
    document = json_of("diagnose", capture)
    sessions: list[dict[str, Any]] = document["sessions"]
    if document["headline"]["name"] not in ("none", "too_short"):
        sessions = [row for row in sessions if row["headline"] == document["headline"]]
    return max(sessions, key=lambda row: row["read_bytes"] + row["write_bytes"])


def words(name: str) -> str:
    return name.replace("_", " ")


# --- the page and the Markdown have the same


def test_the_page_has_what_the_markdown_has(mixed: tuple[Path, Tables]) -> None:
    capture, expected = mixed
    trace = iscsitrace.read(capture, tables=captures.needed(is_large=False, has_pictures=False))
    document = captures.describe(trace, has_pictures=False)
    assert document.section("plots") is None
    assert tables(markdown.render(document)) == expected
    shown = page.render(document, "1")
    found: Tables = {}
    title = ""
    for block in re.findall(r'<h[23][ >].*?</h[23]>|<table(?: class="long")?>.*?</table>', shown, re.DOTALL):
        parsed = Page(block)
        if not block.startswith("<table"):
            title = parsed.elements[0].words
            continue
        rows = [
            tuple(each.words for each in Page(row).elements if each.tag in ("th", "td"))
            for row in re.findall(r"<tr>.*?</tr>", block.partition("<tbody>")[2], re.DOTALL)
        ]
        head = tuple(each.words for each in Page(block.partition("<tbody>")[0]).all("th"))
        found[next((each.words for each in parsed.all("caption")), title)] = head, [] if rows == [("none",)] else rows
    # the bar of the page has what is a table of the Markdown
    assert found == {name: table for name, table in expected.items() if not name.startswith("Time breakdown of ")}
    legend = [each.words for each in Page(shown).all("li") if re.match(r"\w[\w ]* [\d.]+ %", each.words)]
    for name, _, _, share in expected[f"Time breakdown of session {lead_of(capture)['session']}"][1]:
        if float(share.rstrip(" %")) >= 1:
            assert any(line.startswith(f"{name} {share}") for line in legend), (name, legend)


def test_sentences_keep_their_spaces(runs: Runs) -> None:
    """Where code, a bracket or a gain begins: as in the findings of `diagnose`."""
    capture = runs(MIRROR).capture()
    shown = " ".join(plain(line) for line in report(capture).splitlines())
    document = json_of("diagnose", capture)
    for finding in [each for row in document["sessions"] for each in row["findings"]]:
        assert plain(finding["text"])[1:] in shown
        assert "`" not in finding["advice"] or finding["advice"].count("`") % 2 == 0
    assert re.search(r"- Latency: [\d.]+ ms p50 \(p95 [\d.]+ ms, max ", shown)
    assert "`mdadm /dev/mdN --add --write-mostly DEVICE`, or `echo writemostly > " in shown
    assert re.search(r"\. \((?:[a-z ]+; )?model: up to [\d.]+x with ", shown)


# --- chapters


def test_the_time_of_a_session(mixed: tuple[Path, Tables]) -> None:
    capture, found = mixed
    document = json_of("diagnose", capture)
    lead = lead_of(capture)
    checked = 0
    for row in document["sessions"]:
        head, lines = found[f"Time breakdown of session {row['session']}"]
        parts = row["busy_budget"]
        assert sum(parts.values()) == row["jobs_ns"] == sum(row["budget"].values()) - sum(row["excluded_ns"].values())
        columns = {
            "part": lambda part: label(part["part"]),
            "ms": "ns ms",
            "% of I/O time": lambda part: percentage(part["share"]),
        }
        rows = [
            {"part": part, "ns": Decimal(ns) * UNITS["ns"], "share": ns / row["jobs_ns"]}
            for part, ns in parts.items()
            if ns
        ]
        assert head == ("part", "meaning", "ms", "% of I/O time")
        check(tuple(columns), [(part, ms, share) for part, _, ms, share in lines], columns, rows)
        checked += 1
    assert checked == 2
    head, lines = found["Other sessions and connections"]
    connections = [row for row in document["connections"] if row["session"] == lead["session"]]
    others = [(f"connection {row['connection']}", row) for row in connections]
    others += [(f"session {row['session']}", row) for row in document["sessions"] if row is not lead and row != lead]
    target = lead["target_name"]
    assert lines == [(name, target, row["headline"]["text"]) for name, row in others]


def test_the_facts(mixed: tuple[Path, Tables]) -> None:
    capture, _ = mixed
    lead = lead_of(capture)
    facts = dict(re.findall(r"^- ([\w -]+): (.+)$", report(capture), re.MULTILINE))
    summary = json_of("summary", capture)
    (volume,) = [row for row in summary["volumes"] if row["session"] == lead["session"]]
    rates = f"{volume['read_bytes_per_s'] / 1e6:.1f} MB/s read, {volume['write_bytes_per_s'] / 1e6:.1f} MB/s written"
    assert facts["Throughput"].startswith(rates)
    idle = 1 - lead["busy_budget"]["transfer"] / lead["jobs_ns"]
    assert facts["Line idle"].startswith(f"{100 * idle:.0f} %")
    # 2 ms to the target and 3 ms back
    assert facts["RTT"].startswith("5.0 ms")
    cycles = [row for row in json_of("cycles", capture)["cycles"] if row["session"] == lead["session"]]
    moving = [row for row in cycles if row["operation"] in ("read", "write")]
    assert facts["Workload"].startswith("64 KiB I/Os")
    assert f"queue depth 4, medians by bytes; {len(moving)} reads and writes" in facts["Workload"]
    ordered = sorted(row["latency_ns"] for row in moving)
    p50, p95, most = (f"{(nearest(ordered, percent) or 0) / 1e6:.1f} ms" for percent in (50, 95, 100))
    # too few for a 99th percentile
    assert 20 <= len(ordered) < 100
    shown = re.sub(r"[^\w. ]", " ", facts["Latency"]).split()
    assert shown == f"{p50} p50 p95 {p95} max {most} n {len(ordered)}".split()
    own = [row for row in summary["connections"] if row["session"] == lead["session"]]
    ways = ("to_target", "to_initiator")
    again = sum(row[f"retransmitted_packets_{way}"] for row in own for way in ways)
    packets = sum(row[f"packets_{way}"] for row in own for way in ways)
    assert facts["Retransmissions"].startswith(f"{again} packets")
    assert f"{percentage(again / packets)} % of packets" in facts["Retransmissions"]


def test_commands_without_a_status_are_part_of_the_workload() -> None:
    """Two reads of 143 waited for the end of their connection: the report had 141, summary 143."""
    sample = Path(__file__).parents[2] / "samples/black-out-and-relogin/capture.pcapng.gz"
    reads = [row for row in json_of("cycles", sample)["cycles"] if row["operation"] == "read"]
    assert any(row["status"] is None for row in reads)
    assert f"Workload: 16 KiB reads (queue depth 1, medians by bytes; {len(reads)} reads and writes)" in report(sample)


# --- sections


def test_the_slowest_commands(mixed: tuple[Path, Tables]) -> None:
    capture, found = mixed
    number = lead_of(capture)["session"]
    start_ns = min(row["time_first_ns"] for row in json_of("summary", capture)["connections"])
    cycles = json_of("cycles", "--filter", capture)["cycles"]
    own = sorted((row for row in cycles if row["session"] == number), key=lambda row: -row["latency_ns"])
    rows = [row | {"after_ns": row["command_first_ns"] - start_ns} for row in own[:12]]
    head, lines = found[f"Slowest 12 of {len(own)} commands"]
    check(head, lines, CYCLES, rows)
    head, lines = found["Display filters for Wireshark"]
    check(head, lines, {"cycle": "cycle", "display filter": "display_filter"}, rows)


def test_commands_by_operation(mixed: tuple[Path, Tables]) -> None:
    """Percentiles by nearest rank, recomputed from the cycles."""
    capture, found = mixed
    number = lead_of(capture)["session"]
    cycles = [row for row in json_of("cycles", capture)["cycles"] if row["session"] == number]
    head, lines = found["Latency in ms, from the first byte of the command to its status"]
    rows: list[dict[str, Any]] = []
    for operation in [line[0] for line in lines]:
        own = [row for row in cycles if row["operation"] == operation]
        ordered = {
            name: sorted(row[f"{name}_ns"] for row in own if row[f"{name}_ns"] is not None)
            for name in ("latency", *PHASES)
        }
        least = {"p50": 1, "p95": 20, "p99": 100, "max": 1}
        percentiles = {"p50": 50, "p95": 95, "p99": 99, "max": 100}
        rows.append(
            {"operation": operation, "count": len(own), "n": len(ordered["latency"])}
            | {
                f"{name}_ns": nearest(ordered["latency"], percent) if len(ordered["latency"]) >= least[name] else None
                for name, percent in percentiles.items()
            }
            | {f"{phase}_ns": nearest(ordered[phase], 50) for phase in PHASES[:3]}
            # a read waits for its status after the data, a write for the target's service
            | {"rest_ns": nearest(ordered["status_wait"] or ordered["service"], 50)}
        )
    columns = {
        "operation": "operation", "commands": "count", "n": "n",
        **{name: f"{name}_ns ms" for name in ("p50", "p95", "p99", "max")},
        **{f"{phase} p50": f"{phase}_ns ms" for phase in PHASES[:3]}, "service or status wait p50": "rest_ns ms",
    }  # fmt: skip
    check(head, lines, columns, rows)
    assert sum(row["count"] for row in rows) == len(cycles)
    head, lines = found["I/O sizes (Expected Data Transfer Length)"]
    sizes = {(row["operation"], row["bytes"]) for row in cycles if row["bytes"]}
    sized: list[dict[str, Any]] = [
        {"operation": of, "bytes": size, "count": sum((row["operation"], row["bytes"]) == (of, size) for row in cycles)}
        for of, size in sizes
    ]
    operations = list(dict.fromkeys(line[0] for line in lines))
    sized.sort(key=lambda row: (operations.index(row["operation"]), -row["count"], row["bytes"]))
    check(head, lines, {"operation": "operation", "I/O size": "bytes", "commands": "count"}, sized)


def test_parameters_and_connections(mixed: tuple[Path, Tables]) -> None:
    capture, found = mixed
    number = lead_of(capture)["session"]
    summary = json_of("summary", capture)
    keys = [row for row in summary["parameters"] if row["session"] == number and row["source"] != "offered"]
    assert found["Parameters: offered and negotiated"] == (OFFERS, offered(keys))
    head, lines = found["iSCSI connections (RTT: minimum, from the capture point)"]
    check(head, lines, CONNECTIONS, sorted(summary["connections"], key=lambda row: row["session"] != number))


def test_health_and_making(mixed: tuple[Path, Tables], tmp_path: Path) -> None:
    """Only one header of 48 bytes of more than four megabytes is missing: not 100 %."""
    records, link_type = read_records(mixed[0])
    (_, place), *_ = sorted(
        (len(record.data), place) for place, record in enumerate(records) if len(record.data) == 118
    )
    capture = write_pcapng(tmp_path / "gap.pcapng", records[:place] + records[place + 1 :], link_type)
    shown = report(capture)
    found = tables(shown)
    document = json_of("check", capture, exit_code=1)
    head, lines = found["Coverage: decoded and captured shares of the TCP stream bytes"]
    *parts, total = document["coverage"]
    check(head, lines, COVERAGE, [*parts, total])
    assert total["gap_bytes"] == 52
    assert lines[-1][:5] == ("all", "both", str(total["stream_bytes"]), "99.99", "99.99")
    head, lines = found["Counters"]
    check(head, lines, HEALTH, document["counters"])
    assert "The capture is incomplete: capture_gap" in plain(shown)
    (source,) = document["input"]
    span_ns = source["time_last_ns"] - source["time_first_ns"]
    line = f"{source['packet_count']:,} packets, {span_ns / 1e9:.6f} s from 2023-11-14T22:13:20.000000000Z"
    assert f"\n{capture}: pcapng, {line}\n" in plain(shown)
    count = f"{len(records) - 1:,}"
    assert f"from {count} packets ({count} TCP)." in shown
    seconds = f"{(records[-1].time_ns - records[0].time_ns) / 1e9:.1f}"
    sessions, commands = len(json_of("summary", capture)["sessions"]), len(json_of("cycles", capture)["cycles"])
    found_there = f"{count} packets, {sessions} iSCSI sessions, {commands} SCSI commands"
    assert f"\n{seconds} s from 2023-11-14 22:13:20.000 UTC; {found_there}\n" in shown


# --- mirrors


def test_a_mirror_whose_sides_start_apart(runs: Runs, tmp_path: Path) -> None:
    """Packets to the far target are captured 3 ms after they were sent: all sides count from the first command."""
    run = runs(MIRROR)
    capture = write_delayed(tmp_path / "apart.pcapng", run.capture(), bytes([198, 18, 0, 11]), 3 * MILLION)
    found, document = tables(report(capture)), json_of("mirrors", capture)
    (mirror,) = document["mirrors"]
    check(*found["Mirror 0: sessions 0 and 1 are a mirror"], LEGS, mirror["legs"])
    truth = json.loads((run.folder / "truth.json").read_text())["cycles"]
    times: dict[int, dict[int, tuple[int, int]]] = {}
    for operation, lba, target, begun, done in zip(
        *(truth[name] for name in ("operation", "lba", "target")),
        *(truth["initiator"][name] for name in ("command_first_ns", "status_ns")),
        strict=True,
    ):
        if operation == "write":
            times.setdefault(lba, {})[target] = (begun + 3 * MILLION * target, done + 3 * MILLION * target)
    start_ns = read_records(run.capture())[0][0].time_ns
    rows = []
    for row in document["mirrored_writes"]:
        (begun, near), (_, away) = times[row["lba"]][0], times[row["lba"]][1]
        frames = {leg[name] for leg in row["legs"] for name in ("command_frame", "status_frame")}
        truly = {"after_ns": begun - start_ns, "bytes": 65_536, "skew_ns": abs(away - near)}
        rows.append(row | truly | {"done": (near - begun, away - begun), "frames": sorted(frames)})
    rows.sort(key=lambda row: -row["skew_ns"])
    columns = WRITES | {"each side done after": lambda row: " ".join(f"{ns / 1e6:.3f}" for ns in row["done"])}
    check(*found["Writes with the largest skew: time in s, other times in ms"], columns, rows[:8])
    filters = {
        "write": "mirrored_write",
        "display filter": lambda row: f"frame.number in {{{', '.join(map(str, row['frames']))}}}",
    }
    check(*found["Display filters of these writes"], filters, rows[:8])


# --- the model


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reads of three block sizes; the last segment of each block of 128 KiB comes a millisecond late."""
    # the login response is the first segment to the initiator; 64 KiB and a header take 46 of 1448 bytes, 256 KiB 182
    late = frozenset((False, 1 + 46 * 20 + 182 * 20 + 91 * place + 90) for place in range(20))
    conversation = Conversation(Link(one_way_delay_ns=4 * MILLION, late=late, late_ns=MILLION))
    session = conversation.session(Session()).login().read(count=20)
    session.read(count=20, block_bytes=262_144).read(count=20, block_bytes=131_072).logout()
    capture = conversation.run()
    file = tmp_path_factory.mktemp("uneven") / "uneven.pcapng"
    return write_pcapng(file, capture.packets, capture.path.link_type)


def test_the_model(uneven: Path) -> None:
    shown, document = report(uneven), json_of("model", "fit", uneven)
    found = tables(shown)
    title = f"period = k * d + s + B / C, from {document['cycles_used']} commands at 3 points"
    lines = found[title][1]
    known = {"fit": "differences between points", "packets": "packets of the commands", "line": "queue of the line"}
    for (name, _, *ends, unit, source), key in zip(lines, ("k", "d_ns", "s_ns", "c_bytes_per_s"), strict=True):
        assert (name, source) == (key[0].replace("c", "C"), known[document[key]["source"]])
        for cell, end in zip(ends, ("value", "low", "high"), strict=True):
            assert is_amount(cell, Decimal(document[key][end]) * (UNITS["ns"] if key.endswith("_ns") else 1), unit)
    columns: dict[str, Any] = {"interval": "name", "delays": "delays", "meaning": "meaning"}
    check(*found["Parts of k in one-way delays, measured from the packets"], columns, document["legs"])
    head, lines = found["Points: measured period and period of the model"]
    named = [row | {"point": row["point"].replace(str(uneven), uneven.name)} for row in document["residuals"]]
    check(head, lines, POINTS, named)
    # that which came late took longer than by the model, the others less
    assert [float(line[-2]) > 0 for line in lines] == [False, True, False]
    left = [(why, str(count)) for why, count in document["cycles_left_out"].items()]
    assert [row[:2] for row in found["Commands left out"][1]] == left
    k, d_ns, s_ns, c = (document[key]["value"] for key in ("k", "d_ns", "s_ns", "c_bytes_per_s"))
    passing_us = 65_536 / c * 1e6
    terms = f"{k:.2f} x {d_ns / 1e6:.1f} ms + {s_ns / 1e3:.0f} µs of hosts and pauses"
    sentence = f"= {terms} + {passing_us:.0f} µs for 64 KiB on"
    assert sentence in shown


def test_gains_of_changes(uneven: Path) -> None:
    """Those of the findings."""
    head, lines = tables(report(uneven))["Predicted gains of one change"]
    assert head == ("change", "times as fast", "low", "high")
    found = {
        gain["change"]: gain
        for session in json_of("diagnose", uneven)["sessions"]
        for finding in session["findings"]
        for gain in finding["gains"]
    }
    # the finding has "1 MiB I/O"
    named = [(re.sub("I/O size (.*)", r"\1 I/O", change), *numbers) for change, *numbers in lines]
    both = [line for line in named if line[0] in found]
    assert {line[0] for line in both} >= {"1 MiB I/O"}
    for change, *numbers in both:
        names = ("throughput_factor", "low", "high")
        assert numbers == [f"{found[change][name]:.1f}" for name in names]


def test_gains_follow_their_advice(uneven: Path) -> None:
    """With both ends of the interval, if the uncertainty is large."""
    sessions = json_of("diagnose", uneven)["sessions"]
    gains = [gain for row in sessions for finding in row["findings"] for gain in finding["gains"]]
    wide = [gain for gain in gains if gain["high"] > 1.1 * gain["low"]]
    assert wide
    shown, page_text = printed("diagnose", "-v", uneven), plain(report(uneven))
    for finding in [finding for row in sessions for finding in row["findings"] if finding["gains"]]:
        said = [
            (
                f"about {gain['throughput_factor']:.1f}x ({gain['low']:.1f}x to {gain['high']:.1f}x)"
                if gain in wide
                else f"up to {gain['throughput_factor']:.1f}x"
            )
            + f" with {gain['change']}"
            for gain in finding["gains"]
        ]
        assert {gain["advice"] for gain in finding["gains"]} == {0}
        words = f"model: {', '.join(said)})\n"
        assert words in shown
        assert words in page_text


# --- sessions of which one moved more with fewer commands, that paused, and did not end


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty small reads of one session; of the other six large ones, half a second of nothing, and seven of which the
    capture ends before the last has its status.
    """
    conversation = Conversation(Link(one_way_delay_ns=4 * MILLION))
    conversation.session().login().read(count=20, block_bytes=4096).logout()
    busy = conversation.session().login().read(count=6, block_bytes=262_144).pause(500 * MILLION)
    busy.read(count=7, block_bytes=262_144)
    capture = conversation.run()
    last = max(task.pdus[-1].stream_offset for task in capture.tasks if task.task.block_count == 512)
    kept = [
        packet
        for packet in capture.packets
        if packet.connection != 1 or packet.to_target or packet.stream_offset < last
    ]
    file = tmp_path_factory.mktemp("odd") / "odd.pcapng"
    return write_pcapng(file, kept, capture.path.link_type)


def test_commands_without_status_have_no_rank_and_gaps_are_not_idle(odd: Path) -> None:
    sessions = json_of("diagnose", odd)["sessions"]
    lead = max(sessions, key=lambda row: row["read_bytes"] + row["write_bytes"])
    shown = report(odd, "--session", str(lead["session"]))
    assert (lead["cycle_count"], f"## Diagnosis of session {lead['session']}\n" in shown) == (13, True)
    found = tables(shown)
    assert len(found["Slowest 12 of 12 commands"][1]) == 12
    assert "\nThe latency of 1 command is unknown: packets are missing from the capture.\n" in shown
    idle = 1 - lead["busy_budget"]["transfer"] / lead["jobs_ns"]
    facts = dict(re.findall(r"^- ([\w -]+): (.+)$", shown, re.MULTILINE))
    assert facts["Line idle"].startswith(f"{percentage(idle)} % (")
    # with the pause it would be more
    whole = 1 - lead["budget"]["transfer"] / sum(lead["budget"].values())
    assert percentage(idle) == percentage(lead["idle_fraction"]) != percentage(whole)
    parts = found[f"Time breakdown of session {lead['session']}"][1]
    assert sum(float(row[3].rstrip(" %")) for row in parts) == pytest.approx(100, abs=1.5)
