"""Every table and line of figures that a command prints, against its JSON, its truth, or hand arithmetic.

Columns are found by their headings, and amounts are read with their units: a figure under a wrong heading, in a wrong
unit or of the other direction fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from decimal import Decimal
from functools import partial
from math import log, prod
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.lab import traffic
from iscsitrace.show import run_results
from tests.support.capture_file import read_records, write_delayed, write_pcapng
from tests.support.conversation import Conversation, Session
from tests.support.printed import UNITS, amounts, check_table, is_amount, label, percentage, shows, table
from tests.support.runs import Runs
from tests.support.transport import Path as Link

MIXED = (
    "mixed --connections 2 --sessions 2 --block-size 64K --bytes 4M --queue-depth 4 --one-way-delay 2ms --loss 1% "
    "--set to-initiator-one-way-delay=3ms --rate 100Mbit --set header-digest=crc32c --seed 3"
)
MIRROR = "write --set mirror=yes --target-delay 1ms --target-delay 12ms --bytes 2M --rate 100Mbit --loss 0.3% --seed 2"
SLOW = (
    "read --bytes 4M --one-way-delay 4ms --rate 320Mbit --set receive-buffer=128K --queue-depth 2 --loss 0.4% "
    "--key MaxRecvDataSegmentLength=8192 --seed 5"
)
FAST = "read --block-size 128K --bytes 4M --one-way-delay 4ms --rate 320Mbit --queue-depth 4"
SERVED = "read --bytes 4M --one-way-delay 4ms --rate 320Mbit --service-delay 1ms-2ms --loss 0.1% --seed 2"
FAR = "read --block-size 128K --bytes 4M --one-way-delay 8ms --rate 320Mbit --service-delay 1ms-2ms"
MILLION = 1_000_000


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("printed"))


def printed(*arguments: object, exit_code: int = 0) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result.output


def json_of(*arguments: object, exit_code: int = 0) -> dict[str, Any]:
    """The JSON of the same command."""
    result = CliRunner().invoke(main, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def endpoint(row: dict[str, Any], side: str) -> str:
    return f"{row[f'{side}_address']}:{row[f'{side}_port']}"


def in_force(row: dict[str, Any]) -> str:
    """The value of each side; only one if both are equal."""
    each = {side: row[f"effective_{side}"] for side in ("initiator", "target")}
    if each["initiator"] == each["target"]:
        return each["initiator"] or "-"
    return ", ".join(f"{side} {value}" for side, value in each.items() if value is not None)


def text(key: str) -> Any:
    """A JSON value as text."""
    return lambda row: "-" if row[key] is None else str(row[key])


def nearest(ordered: Sequence[int], percent: int) -> int | None:
    """The percentile by nearest rank."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None


# --- the reader of tables


def test_a_table_ends_where_its_columns_do() -> None:
    shown = "\nHeading\n  a  b c     d\n  1  x y z  10\n 22         -\nand 3 more, to 1\n\nother"
    assert table(shown, "a", "b c", "d") == [("1", "x y z", "10"), ("22", "", "-")]
    with pytest.raises(AssertionError, match="0 tables"):
        table(shown, "a", "b", "d")


@pytest.mark.parametrize(
    ("cell", "value", "unit", "is_right"),
    [
        ("1.235", "0.001234567", "ms", True),
        ("1.234", "0.001234567", "ms", False),
        ("1.235", "1.234567", "ms", False),
        ("64K", "65536", "", True),
        ("64 KiB", "65536", "", True),
        ("99.99", "0.99999", "%", True),
        ("-0.5 %", "0.005", "", False),
        ("1,234", "1234", "", True),
        ("-", "0", "", False),
    ],
)
def test_an_amount_is_right_to_its_last_digit(cell: str, value: str, unit: str, is_right: bool) -> None:
    assert is_amount(cell, Decimal(value), unit) is is_right


# --- what was captured: summary, watch at its end, check, cycles

SESSIONS = {
    "session": "session", "type": "session_type", "initiator": "initiator_name", "target": "target_name",
    "ISID": text("isid"), "TSIH": "tsih", "auth": lambda row: str(row["auth_method"]),
    "connections": "connection_count", "commands": "cycle_count", "end": "end",
}  # fmt: skip
CONNECTIONS = {
    "stream": "connection", "session": "session", "CID": "cid",
    "initiator": partial(endpoint, side="initiator"), "target": partial(endpoint, side="target"),
    "digests (header/data)": lambda row: f"{row['header_digest']}/{row['data_digest']} ({row['digest_source']})",
    "RTT to target ms": "rtt_to_target_min_ns", "RTT to initiator ms": "rtt_to_initiator_min_ns",
    "retransmissions to target": "retransmitted_packets_to_target",
    "to initiator": "retransmitted_packets_to_initiator",
}  # fmt: skip
QUANTILES = ("p50", "p95", "p99", "max")
VOLUMES = {
    "session": lambda row: "all" if row["session"] is None else str(row["session"]),
    "commands": "cycle_count", "complete": "complete_cycle_count", "read MB": "read_bytes", "written MB": "write_bytes",
    "in flight s": "active_ns", "IOPS": "iops", "read MB/s": "read_bytes_per_s", "written MB/s": "write_bytes_per_s",
    "queue depth max": "queue_depth_max",
}  # fmt: skip
SIZES = {"operation": "operation", "I/O size": "bytes", "commands": "cycle_count"}
LATENCIES = {
    "operation": "operation", "commands": "cycle_count", "n": lambda row: str(row["latency_ns"]["n"]),
    **{name: f"latency_ns.{name} ms" for name in ("p50", "p95", "p99", "max")},
    **{f"{name} p50": f"{name}_ns.p50 ms" for name in ("request", "grant", "transfer")},
    # a read waits for its status after the data, a write for the target's service
    "service or status wait p50": lambda row: milliseconds(row["service_ns"]["p50"], row["status_wait_ns"]["p50"]),
}  # fmt: skip
COVERAGE = {
    "stream": lambda row: "all" if row["connection"] is None else str(row["connection"]),
    "direction": lambda row: {"to_target": "to target", "to_initiator": "to initiator", None: "both"}[row["direction"]],
    "stream bytes": "stream_bytes", "decoded %": "explained_bytes_share", "captured %": "captured_bytes_share",
    "PDUs": "pdu_count", "missing PDUs": "missing_pdu_count", "PDUs %": "pdu_share",
}  # fmt: skip
HEALTH = {
    "severity": lambda row: row["severity"].replace("_", " "),
    "counter": "name", "count": "count", "first frame": "first_frame",
    "meaning": "meaning", "advice": "advice",
}  # fmt: skip


def milliseconds(*times_ns: int | None) -> str:
    """The only known time in milliseconds."""
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    assert len(known) < 2
    return f"{known[0] / MILLION:.3f}" if known else "-"


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture between the hosts with missing packets: two sessions with reads and writes, one of two connections."""
    link = Link(one_way_delay_ns=4 * MILLION, tap=0.25, is_pdu_per_segment=True)
    conversation = Conversation(link)
    busy = conversation.session(Session(connection_count=2, data_digest=True, is_status_in_data=False))
    busy.login().read(count=12, queue_depth=3, block_bytes=32_768).write(count=5, block_bytes=524_288).logout()
    other = conversation.session(Session(is_initial_r2t=False))
    other.login().write(count=4, block_bytes=4096).read(count=2).logout()
    capture = conversation.run()
    packets = capture.packets
    kept = [packet for place, packet in enumerate(packets) if place < 60 or place % 97]
    folder = tmp_path_factory.mktemp("late")
    return write_pcapng(folder / "late.pcapng", kept, capture.path.link_type)


@pytest.fixture(scope="module")
def ended(runs: Runs) -> Path:
    """The first part of a run with R2Ts and statuses held by Nagle's algorithm: some commands did not end."""
    run = runs(
        "mixed --block-size 64K --bytes 4M --queue-depth 1 --one-way-delay 2ms --loss 0.3% --rate 100Mbit --seed 5 "
        "--key InitialR2T=Yes --key ImmediateData=No --set status=apart-held --service-delay 1ms-4ms"
    )
    records, link_type = read_records(run.capture())
    return write_pcapng(run.folder / "ended.pcapng", records[: len(records) * 9 // 10], link_type)


@pytest.fixture(params=["mixed", "late", "ended"], scope="module")
def capture(request: pytest.FixtureRequest, runs: Runs) -> Path:
    found: Path = runs(MIXED).capture() if request.param == "mixed" else request.getfixturevalue(request.param)
    return found


def test_summary(capture: Path) -> None:
    shown, document = printed("summary", capture), json_of("summary", capture)
    first = shown.splitlines()[0]
    (source,) = document["input"]
    span = Decimal(source["time_last_ns"] - source["time_first_ns"]) / 10**9
    assert first.startswith(
        f"{capture}: pcapng, {source['packet_count']:,} packets, {span:.6f} s from 2023-11-14T22:13"
    )
    check_table(shown, SESSIONS, document["sessions"])
    check_table(shown, CONNECTIONS, document["connections"])
    keys: dict[tuple[str, str], list[str]] = {}
    for row in document["parameters"]:
        if row["source"] != "offered":
            keys.setdefault((row["key"], in_force(row)), []).append(str(row["connection"]))
    assert table(shown, "key", "value", "stream") == [(*key, " ".join(found)) for key, found in keys.items()]
    sizes = sorted(document["block_sizes"], key=lambda row: -row["cycle_count"])
    order = list(dict.fromkeys(row["operation"] for row in document["block_sizes"]))
    check_table(shown, SIZES, sorted(sizes, key=lambda row: order.index(row["operation"])))
    check_totals(shown, document)
    check_table(shown, COVERAGE, document["coverage"])


def check_totals(shown: str, document: dict[str, Any]) -> None:
    """Checks totals, which a live view prints at its end, too."""
    check_table(shown, VOLUMES, document["volumes"])
    check_table(shown, LATENCIES, document["latency"])
    for row in document["latency"]:
        n, noun = row["latency_ns"]["n"], f"{row['operation']} commands"
        line = f"\nPercentiles of {n} of {row['cycle_count']} {noun}: the others have no status in the capture.\n"
        assert (line in shown) == (n < row["cycle_count"])
    depths = ", ".join(f"{name} {depth}" for name in QUANTILES if (depth := document["queue_depth"][name]))
    assert f"\nqueue depth when a command is issued: {depths}\n" in shown
    if document["counters"]:
        check_table(shown, HEALTH, document["counters"])


def test_volumes_equal_those_of_the_conversation(late: Path) -> None:
    """The first session wrote 4 x 4 KiB and read 2 x 64 KiB; the other wrote 12 x 32 KiB and read 5 x 512 KiB."""
    rows = [row[:5] for row in table(printed("summary", late), *VOLUMES)]
    assert rows[0] == ("0", "6", "6", f"{2 * 65_536 / 1e6:.3f}", f"{4 * 4096 / 1e6:.3f}")
    assert rows[1][:2] == ("1", "17")
    sizes = table(printed("summary", late), *SIZES)
    assert sizes == [("read", "32K", "12"), ("read", "64K", "2"), ("write", "512K", "5"), ("write", "4K", "4")]


def test_bytes_cut_by_a_snaplen_count_as_captured_packets(runs: Runs, tmp_path: Path) -> None:
    records, link_type = read_records(runs(MIXED).capture())
    short = [replace(record, data=record.data[:128]) for record in records]
    file = write_pcapng(tmp_path / "short.pcapng", short, link_type)
    document = json_of("check", "--fail-on", "never", file)
    check_table(printed("check", "--fail-on", "never", file), COVERAGE, document["coverage"])
    total = document["coverage"][-1]
    assert total["cut_bytes"] > total["stream_bytes"] // 2
    assert (total["gap_bytes"], total["captured_bytes_share"]) == (0, 1.0)


def test_the_rest_of_the_sizes_is_summed(tmp_path: Path) -> None:
    conversation = Conversation()
    actors = conversation.session().login()
    for blocks in range(1, 12):
        actors.read(count=12 - blocks, block_bytes=512 * blocks)
    actors.logout()
    made = conversation.run()
    file = write_pcapng(tmp_path / "sizes.pcapng", made.packets, made.path.link_type)
    rows = table(printed("summary", file), *SIZES)
    assert rows[0] == ("read", "512", "11")
    assert rows[1:3] == [("read", "1K", "10"), ("read", "1536", "9")]
    assert len(rows) == 9
    # sizes of 9, 10 and 11 blocks: 3 + 2 + 1
    assert rows[-1] == ("read", "3 other sizes", "6")


def test_keys_with_their_offers(runs: Runs) -> None:
    capture = runs(MIXED).capture()
    keys = offered(json_of("summary", capture)["parameters"])
    assert table(printed("summary", "-v", capture), *OFFERS) == keys


OFFERS = ("key", "value", "initiator sent", "target sent", "source", "stream")


def offered(rows: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A line for each key and its values, with the connections that have them."""
    keys: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        values = (row["key"], in_force(row), row["initiator_value"], row["target_value"], row["source"])
        keys.setdefault(tuple(value or "-" for value in values), []).append(str(row["connection"]))
    return [(*values, " ".join(connections)) for values, connections in keys.items()]


def test_the_totals_of_a_live_view(capture: Path) -> None:
    document = json.loads(printed("watch", "--no-follow", "--json", capture).splitlines()[-1])
    shown = printed("watch", "--no-follow", capture)
    check_totals(shown, document)
    check_table(shown, COVERAGE, document["coverage"][-1:])


def test_check(late: Path, runs: Runs) -> None:
    document, shown = json_of("check", late, exit_code=1), printed("check", late, exit_code=1)
    check_table(shown, COVERAGE, document["coverage"])
    check_table(shown, HEALTH, document["counters"])
    capture = runs(MIXED).capture()
    truth = capture.with_name("truth.json")
    found = json_of("check", "--truth", truth, capture)["against_truth"]
    names = ("cycle_count", "value_count", "parameter_count", "loss_count")
    line = (
        r"compared: ([\d,]+) commands with ([\d,]+) values, ([\d,]+) parameters, losses of ([\d,]+) senders; "
        r"differences: (\d+)"
    )
    assert amounts(printed("check", "--truth", truth, capture), line) == (*(f"{found[name]:,}" for name in names), "0")
    # another run: 64 blocks too, in another order
    other = runs(MIXED.replace("--seed 3", "--seed 4")).folder / "truth.json"
    wrong = json_of("check", "--truth", other, capture, exit_code=1)["against_truth"]["differences"]
    shown = printed("check", "--truth", other, capture, exit_code=1)
    check_table(shown, {"stream": "connection", "subject": "subject", "difference": "text"}, wrong)


def flags(row: dict[str, Any]) -> str:
    words = {
        "is_status_in_data": "S",
        "is_aborted": "aborted",
        "has_capture_gap": "missing",
        "has_retransmission": "rexmt",
    }
    return " ".join([word for name, word in words.items() if row[name]] + ["incomplete"] * (not row["is_complete"]))


CYCLES = {
    "cycle": "cycle", "time": "after_ns s", "stream": "connection", "LUN": "lun", "operation": "operation",
    "LBA": "lba", "I/O size": "bytes", "latency": "latency_ns ms", "request": "request_ns ms",
    "grant": "grant_ns ms", "transfer": "transfer_ns ms", "service": "service_ns ms",
    "status wait": "status_wait_ns ms", "idle": "idle_ns ms", "QD": "queue_depth", "PDUs": "data_pdu_count",
    "packets": "data_packet_count", "R2Ts": "r2t_count",
    "status": lambda row: {0: "good", 2: "check condition", None: "-"}[row["status"]], "frame": "command_frame",
    "flags": flags,
}  # fmt: skip


def test_cycles(capture: Path) -> None:
    summary, document = json_of("summary", capture), json_of("cycles", "--filter", capture)
    start_ns = min(row["time_first_ns"] for row in summary["connections"])
    rows = [row | {"after_ns": row["command_first_ns"] - start_ns} for row in document["cycles"]]
    shown = printed("cycles", "--filter", capture)
    check_table(shown, CYCLES, rows)
    filters = [line for line in shown.splitlines() if line.startswith("cycle ") and ": tcp.stream==" in line]
    assert filters == [f"cycle {row['cycle']}: {row['display_filter']}" for row in rows]


# --- diagnose

BUDGET = {"part": lambda row: label(row["part"]), "ms": "ns ms", "%": lambda row: percentage(row["share"])}
STREAMS = {
    "connection": "connection", "session": "session", "MB": "bytes", "MB/s": "bytes_per_s",
    "finished after s": "after_ns", "retransmitted %": "retransmission_rate", "losses": "loss_count",
    "timeouts": "timeout_count", "cause": lambda row: row["cause"] or "-",
}  # fmt: skip


def test_diagnose(runs: Runs) -> None:
    capture = runs(MIXED).capture()
    shown, document = printed("diagnose", "-v", capture), json_of("diagnose", capture)
    opinions = [("session", row) for row in document["sessions"]] + [
        ("connection", row) for row in document["connections"]
    ]
    lines = shown.splitlines()
    assert lines[2 : 2 + len(opinions)] == [row["headline"]["text"] for _, row in opinions]
    blocks = shown.split("\nTime breakdown of ")[1:]
    assert len(blocks) == len(opinions)
    for (kind, row), block in zip(opinions, blocks, strict=True):
        start = r"(\w+) (\d+): ([\d.]+) s of I/O time"
        name, number, jobs = amounts(block.partition("\n")[0], start)
        assert (name, int(number)) == (kind, row[kind])
        assert is_amount(jobs, row["jobs_ns"] * UNITS["ns"], "s")
        for use, words in (
            ("idle", "idle gaps between bursts of I/O"),
            ("scan", "the device scan and its pauses"),
            ("flush", "SYNCHRONIZE CACHE"),
        ):
            excluded_ns = row["excluded_ns"][use]
            assert (f"{words} {excluded_ns / 1e9:.6f} s" in block) == (excluded_ns > 0)
        rows = [
            {"part": part, "ns": ns * UNITS["ns"], "share": Decimal(ns) / row["jobs_ns"]}
            for part, ns in row["busy_budget"].items()
        ]
        check_table(block, BUDGET, [each for each in rows if each["ns"]])
        for found in row["findings"]:
            share = "" if found["share"] is None else f", {percentage(found['share'])} %"
            severity = found["severity"].replace("_", " ")
            assert f"\n{found['name']} ({severity}{share}): {found['text']}\n" in block
            assert f"\n    {found['display_filter']}\n" in block
    (job,) = document["jobs"]
    assert (
        f"Jain's fairness index {job['jain']:.3f}; the last one finished {job['first_to_last_ns'] / 1e9:.6f} s "
        in shown
    )
    assert f"ran alone for {percentage(job['alone_share'])} % of the time" in shown
    first_ns = min(each["time_first_ns"] for each in job["streams"])
    streams = [each | {"after_ns": each["time_last_ns"] - first_ns} for each in job["streams"]]
    check_table(shown, STREAMS, streams)
    # of many the last to finish
    fewer = printed("diagnose", capture, "--top", "1")
    check_table(fewer, STREAMS, streams[-1:])
    assert f"\n{len(streams) - 1} connection{'s' if len(streams) > 2 else ''} finished before these.\n" in f"{fewer}\n"


def test_diagnose_shows_missing_packets(late: Path) -> None:
    document = json_of("diagnose", late)
    losses = [row for row in document["counters"] if row["severity"] == "data_loss"]
    check_table(printed("diagnose", late), HEALTH, losses)


# --- mirrors

LEGS = {
    "side": "leg", "sessions": lambda row: " ".join(map(str, row["sessions"])), "target": "target", "LUN": "lun",
    "finished last": "last_count", "alone in flight ms": "alone_ns",
    "main cause": lambda row: max(row["causes_ns"], key=row["causes_ns"].get, default="-").replace("_", " "),
}  # fmt: skip
WRITES = {
    "mirror": "mirror", "write": "mirrored_write", "time": "after_ns s", "LBA": "lba", "size": "bytes",
    "skew": "skew_ns ms", "last session": "last_session",
    "cause": lambda row: (row["cause"] or "-").replace("_", " "), "due to cause": "cause_ns ms",
    "each side done after": lambda row: " ".join(
        f"{(leg['end_ns'] - row['begin_ns']) / MILLION:.3f}" for leg in row["legs"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("apart_ns", [0, 3 * MILLION])
def test_mirrors(runs: Runs, tmp_path: Path, apart_ns: int) -> None:
    """``apart_ns``: how much later one side begins."""
    capture = write_delayed(tmp_path / "apart.pcapng", runs(MIRROR).capture(), bytes([198, 18, 0, 11]), apart_ns)
    arguments = ("mirrors", "--top", 5, "--filter", capture)
    shown, document = printed(*arguments), json_of(*arguments)
    (mirror,) = document["mirrors"]
    check_table(shown, LEGS, mirror["legs"])
    line = r"(\d+) mirrored writes, ([\d.]+) MB; skew ms: p50 ([\d.]+), p95 ([\d.]+), max ([\d.]+)"
    count, written, *skews = amounts(shown, line)
    assert (int(count), is_amount(written, Decimal(2 << 20), "MB")) == (32, True)
    for name, skew in zip(("p50", "p95", "max"), skews, strict=True):
        assert is_amount(skew, mirror["skew_ns"][name] * UNITS["ns"], "ms")
    start_ns = min(row["time_first_ns"] for row in json_of("summary", capture)["connections"])
    rows = [row | {"after_ns": row["begin_ns"] - start_ns} for row in document["mirrored_writes"]]
    # all sides count from where the first one begins
    begins = [{leg["begin_ns"] - row["begin_ns"] for leg in row["legs"]} for row in rows]
    assert apart_ns == 0 or all(min(each) == 0 < max(each) for each in begins)
    check_table(shown, WRITES, rows)
    assert [row["skew_ns"] for row in rows] == sorted((row["skew_ns"] for row in rows), reverse=True)
    assert "\nMirrored writes, 5 of 32: " in shown
    filters = [line for line in shown.splitlines() if line.startswith("mirrored write ")]
    assert filters == [f"mirrored write {row['mirrored_write']}: {row['display_filter']}" for row in rows]


# --- diff


def test_diff(runs: Runs) -> None:
    one, other = runs(SLOW).capture(), runs(FAST).capture()
    shown, document = printed("diff", one, other), json_of("diff", one, other)
    a, b, gap = document["a"], document["b"], document["gap"]
    rates = [f"{side['pace_bytes_per_s'] / 1e6:.1f}" for side in (a, b)]
    ratio = f"{b['pace_bytes_per_s'] / a['pace_bytes_per_s']:.2g}"
    assert f"\nB is {ratio} times as fast as A: {rates[1]} MB/s against {rates[0]} MB/s. Causes: " in shown
    # one was lost twice
    assert a["retransmitted_packet_count"] > a["loss_count"] > 0
    # the findings that explain it
    rows = table(shown, "difference", "A", "B", "factor", "share of the gap %")
    last = {"factor": gap["throughput_factor"], "share": 1}
    left = {"factor": gap["unexplained_throughput_factor"], "share": gap["unexplained_share"]}
    for row, expected in zip(rows[-2:], (left, last), strict=True):
        assert is_amount(row[3], Decimal(expected["factor"]))
        assert is_amount(row[4], Decimal(expected["share"]), "%")
    known = [each for each in gap["differences"] if abs(log(each["throughput_factor"])) >= 0.01]
    factors = {"ns": UNITS["ns"], "ns/B": UNITS["ms/MB"]}
    for (_, *cells, factor, share), each in zip(rows[: len(known)], known, strict=True):
        for cell, side in zip(cells, "ab", strict=True):
            assert is_amount(cell, Decimal(each[side]) * factors.get(each["unit"], 1)), (each["name"], cell)
        assert is_amount(factor, Decimal(each["throughput_factor"]))
        assert is_amount(share, Decimal(each["share"]), "%")
    assert {each["unit"] for each in known} == {"tasks", "bytes", "ns", "ns/B"}
    rest = [each for each in gap["differences"] if each not in known]
    (name, _, _, factor, share) = rows[len(known)]
    assert name == "smaller differences"
    assert len(rows) == len(known) + 3
    assert is_amount(factor, Decimal(prod(each["throughput_factor"] for each in rest)))
    assert is_amount(share, Decimal(sum(each["share"] for each in rest)), "%")
    product = 1.0
    for row in rows[:-1]:
        product *= float(row[3])
    assert product == pytest.approx(gap["throughput_factor"], rel=0.01)
    # the settings of both sides
    check_sides(shown, a, b)
    # the time of each
    parts = [
        {
            "part": part, "a": a["budget"][part]["share"], "b": b["budget"][part]["share"],
            "a_ns": a["budget"][part]["ns_per_megabyte"], "b_ns": b["budget"][part]["ns_per_megabyte"],
            "more_ns": b["budget"][part]["ns_per_megabyte"] - a["budget"][part]["ns_per_megabyte"],
        }
        for part in a["budget"]
        if max(a["budget"][part]["share"], b["budget"][part]["share"]) >= 0.01
    ]  # fmt: skip
    columns = {
        "part": lambda row: label(row["part"]), "A %": "a", "B %": "b", "A ms/MB": "a_ns ms", "B ms/MB": "b_ns ms",
        "B - A ms/MB": "more_ns ms",
    }  # fmt: skip
    check_table(shown, columns, parts)
    keys = table(shown, "key", "A negotiated", "initiator", "target", "B negotiated", "initiator", "target")
    names = ("in_force", "initiator", "target")
    assert keys == [(row["key"], *(row[side][name] for side in "ab" for name in names)) for row in document["keys"]]
    assert keys


def check_sides(shown: str, a: dict[str, Any], b: dict[str, Any]) -> None:
    rows = {row[0]: row[1:] for row in table(shown, "", "A", "B")}
    units = {
        "commands": "task_count", "pace (bytes / I/O time)": "pace_bytes_per_s", "queue depth": "queue_depth",
        "connections": "connection_count", "RTT": "round_trip_ns", "line rate": "line_bytes_per_s",
        "largest receive window": "window_bytes", "losses": "loss_count",
        **{f"latency {name}": f"latency_ns.{name}" for name in ("p50", "p95", "p99", "max")},
    }  # fmt: skip
    for heading, path in units.items():
        for cell, side in zip(rows.pop(heading), (a, b), strict=True):
            assert shows(cell, side, path), (heading, cell)
    assert rows.pop("operation") == (a["operation"], b["operation"])
    again = [f"{side['retransmitted_packet_count']:,} of {side['packet_count']:,} packets" for side in (a, b)]
    assert rows.pop("retransmissions") == tuple(again)
    assert rows.pop("I/O sizes") == ("64 of 64K", "32 of 128K")
    assert rows == {}


# --- model


POINTS = {
    "one-way ms": "delay_ns.value", "I/O size": "block_bytes", "QD": "queue_depth", "commands": "cycle_count",
    "left out": lambda row: str(sum(row["left_out"].values())), "steady MB/s": "throughput_bytes_per_s",
    "period ms": "period_ns", "model ms": "model_ns",
    # measured against the model: how much longer than by the model
    "residual %": lambda row: f"{100 * (row['period_ns'] / row['model_ns'] - 1):.2f}",
    "point": "point",
}  # fmt: skip


def test_model_fit(runs: Runs, tmp_path: Path) -> None:
    captures = [runs(options).capture() for options in (SERVED, FAR)]
    shown, document = printed("model", "fit", *captures), json_of("model", "fit", *captures)
    assert f"\nperiod = k * d + s + B / C, from {document['cycles_used']} commands at 2 points\n" in shown
    words = {"fit": "differences between points", "packets": "packets of the commands", "line": "queue of the line"}
    lines = table(shown, "parameter", "meaning", "value", "low", "high", "unit", "source")
    assert f"\nscatter of the period from run to run: {percentage(document['scatter'])} %\n" in shown
    for (name, _, *ends, unit, source), key in zip(lines, ("k", "d_ns", "s_ns", "c_bytes_per_s"), strict=True):
        assert name == key[0].replace("c", "C")
        assert words[document[key]["source"]] == source
        for cell, end in zip(ends, ("value", "low", "high"), strict=True):
            assert is_amount(cell, Decimal(document[key][end]) * (UNITS["ns"] if key.endswith("_ns") else 1), unit)
    check_table(shown, {"interval": "name", "delays": "delays", "meaning": "meaning"}, document["legs"])
    check_table(shown, POINTS, document["residuals"])
    left = [{"why": why, "count": count} for why, count in document["cycles_left_out"].items()]
    assert [row[:2] for row in table(shown, "reason", "commands", "meaning")] == [
        (row["why"], str(row["count"])) for row in left
    ]
    for line in document["undetermined"]:
        assert f"\n- {line}\n" in shown
    # the delays are those of the links, and those of a full line of 1448 of 1514 bytes
    assert [row["delay_ns"]["value"] for row in document["residuals"]] == pytest.approx([4e6, 8e6], rel=0.01)
    assert float(lines[3][2]) == pytest.approx(40 * 1448 / 1514, rel=0.01)


def test_model_predict(runs: Runs, tmp_path: Path) -> None:
    fit = tmp_path / "fit.json"
    fit.write_text(printed("model", "fit", "--json", *(runs(options).capture() for options in (SERVED, FAR))))
    asked = ("model", "predict", "--fit", fit, "--queue-depth", "1,16", "--loss", "0.001%,1%")
    columns = {
        "queue depth": "values.queue_depth", "loss": "values.loss %", "MB/s": "throughput_bytes_per_s",
        "low": "throughput_low_bytes_per_s MB/s", "high": "throughput_high_bytes_per_s MB/s", "gain %": "gain",
        "period ms": "period_ns", "k": "k", "line ms": "transfer_ns", "stalls ms": "stall_ns",
        "idle %": "idle_fraction", "bound": "bound",
    }  # fmt: skip
    rows = json_of(*asked)["predictions"]
    check_table(printed(*asked), columns, rows)
    assert len({row["bound"] for row in rows}) > 1


def test_a_prediction_equals_hand_arithmetic() -> None:
    """Reads of 64 KiB over 4 ms each way, in eight Data-In PDUs, 1448 of 1514 bytes at 100 Mbit/s, 1 ms of service."""
    shown = printed(
        *"model predict read --one-way-delay 4ms --rate 100Mbit --service-time 1ms --queue-depth 1,2".split()
    )
    line_ms = (65_536 + 8 * 48) * 1514 / 1448 * 8 / 100e3
    period_ms = 2 * 4 + 1 + line_ms
    rows = table(shown, "queue depth", "MB/s", "period ms", "k", "line ms", "stalls ms", "idle %", "bound")
    assert rows == [
        (
            str(depth), f"{depth * 65.536 / period_ms:.3f}", f"{period_ms:.3f}", "2.00", f"{line_ms:.3f}", "0.000",
            f"{100 * (1 - depth * line_ms / period_ms):.1f}", "cycle",
        )
        for depth in (1, 2)
    ]  # fmt: skip


# --- runs: initiator, links, files

LOSSY = (
    "mixed --loss 1% --set burst-loss=1%,30% --set reorder=2%,1ms --queue 15 --set access-rate=90Mbit "
    "--targets 2 --connections 2 --bytes 6M --queue-depth 4 --target-delay 2ms --target-delay 3ms --rate 60Mbit"
)
LATENCY = {f"{name} ms": f"latency_ns.{name}" for name in ("p50", "p95", "p99", "max")}
LINKS = {
    "link": "link", "direction": "direction", "packets": "arrived.count", "bytes": "arrived.bytes",
    **{name.replace("_", " "): f"{name}.count" for name in ("queue_full", "lost", "lost_in_burst", "overtaken")},
    "line busy ms": "busy_ns",
}  # fmt: skip


def simulated(folder: Path, options: str, *more: str) -> tuple[str, dict[str, Any]]:
    """The output of a run, and its truth."""
    shown = printed("simulate", *options.split(), *more, "-o", folder, "--force")
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    return shown, truth


def test_a_run_and_its_links(tmp_path: Path) -> None:
    shown, truth = simulated(tmp_path, LOSSY)
    results = truth["results"]
    rows = [
        {"of": "calls", "bytes": results["bytes"], "latency_ns": results["call_latency_ns"]},
        *({"of": f"{name} commands", **results[name]} for name in ("read", "write")),
    ]
    # 96 calls, about as many of each kind: too few for a p99
    assert all(20 <= row["latency_ns"]["count"] < 100 for row in rows)
    rows = [row | {"latency_ns": row["latency_ns"] | {"p99": None}} for row in rows]
    columns = {"latency of": "of", "bytes": "bytes", "count": lambda row: str(row["latency_ns"]["count"]), **LATENCY}
    check_table(shown, columns, rows)
    moved, seconds, rate, iops = amounts(shown, r"([\d.]+) MB in ([\d.]+) s: ([\d.]+) MB/s, ([\d.]+) IOPS")
    elapsed_s = Decimal(results["elapsed_ns"]) * UNITS["ns"]
    assert is_amount(moved, Decimal(6 << 20), "MB")
    assert is_amount(seconds, elapsed_s, "s")
    assert is_amount(rate, (6 << 20) / elapsed_s, "MB/s")
    assert is_amount(iops, 96 / elapsed_s)
    links = [("access", truth["access"]), *((f"target {place}", path) for place, path in enumerate(truth["paths"], 1))]
    rows = [
        {"link": name, "direction": direction.replace("_", " "), "busy_ns": log[direction]["line"]["busy_ns"]}
        | log[direction]["counters"]
        for name, log in links
        for direction in ("to_target", "to_initiator")
    ]
    check_table(shown, LINKS, rows)
    # every fate occurs, so that no column can stand for another
    for fate in ("queue_full", "lost", "lost_in_burst", "overtaken"):
        assert any(row[fate]["count"] for row in rows)
    ends = {"initiator": truth["initiator_ends"]} | {
        f"target {place}": each for place, each in enumerate(truth["target_ends"], 1)
    }
    again = ", ".join(
        f"{name} {sum(end['retransmitted_segment_count'] for end in each)}" for name, each in ends.items()
    )
    assert f"\nretransmitted segments: {again}\n" in shown
    files = [truth["captures"]["initiator"], *truth["captures"]["targets"]]
    counts = [str(count) for count in truth["packet_counts"]]
    written = [(str(tmp_path / name), count) for name, count in zip(files, counts, strict=True)]
    assert table(shown, "file", "packets") == [*written, (str(tmp_path / "truth.json"), "-")]
    # counted by the captures themselves
    assert counts == [str(json_of("summary", tmp_path / name)["packet_count"]) for name in files]


def test_a_run_of_sockets(tmp_path: Path) -> None:
    shown, truth = simulated(tmp_path, "socket-read --connections 2 --targets 2 --bytes 3M --rate 60Mbit")
    results = truth["results"]
    line = r"([\d.]+) MB in ([\d.]+) s: ([\d.]+) MB/s; in the second half ([\d.]+) MB/s"
    moved, seconds, rate, steady = amounts(shown, line)
    elapsed_s = Decimal(results["elapsed_ns"]) * UNITS["ns"]
    assert is_amount(moved, Decimal(3 << 20), "MB")
    assert is_amount(seconds, elapsed_s, "s")
    assert is_amount(rate, (3 << 20) / elapsed_s, "MB/s")
    assert is_amount(steady, Decimal(results["steady_bytes_per_s"]), "MB/s")
    columns = {
        "connection": "connection", "target": lambda row: str(row["target"] + 1), "bytes": "bytes",
        "MB/s in the second half": "steady_bytes_per_s MB/s",
    }  # fmt: skip
    check_table(shown, columns, results["connections"])


def test_a_search_for_the_number_of_connections(tmp_path: Path) -> None:
    options = "read --connections auto:golden --set measure-time=100ms --seconds 1.5 --rate 60Mbit --one-way-delay 2ms"
    shown, truth = simulated(tmp_path, options)
    tuning = truth["results"]["tuning"]
    columns = {
        "time": "time_s", "connections": "connections", "MB/s": "goodput_bytes_per_s", "command ms": "command_s",
        "then": "decision", "next": "next_connections", "why": "why",
    }  # fmt: skip
    check_table(shown, columns, [step for step in tuning["steps"] if step["decision"] != "watch"])
    found = rf"found after ([\d.]+) s; {tuning['connections']} connections at the end"
    (after,) = amounts(shown, found)
    assert is_amount(after, Decimal(tuning["converged_s"]))


# --- capture


def test_the_end_of_a_capture(runs: Runs, tmp_path: Path) -> None:
    trigger = ("--trigger", "latency>80ms", "--after", "5ms")
    arguments = ("capture", "-r", runs(MIXED).capture(), *trigger, "-w", tmp_path / "a.pcapng")
    shown = printed(*arguments)
    result = CliRunner().invoke(main, [*map(str, arguments), "--force", "--json"])
    progress = json.loads(result.stdout)["progress"]
    line = r"iscsitrace: (\d+) packets seen, (\d+) written, (\d+) dropped; (\d+) bytes in files; "
    line += r"(\d+) commands met the trigger"
    names = ("seen_count", "written_count", "dropped_count", "written_bytes", "slow_count")
    assert amounts(shown, line) == tuple(str(progress[name]) for name in names)
    rows = json_of("cycles", arguments[2])["cycles"]
    slow = [row for row in rows if max(row["latency_ns"] or 0, row.get("in_flight_ns") or 0) > 80 * MILLION]
    # a command that is reported while it is in flight, and again when it ends, is one
    assert result.stderr.count("has not ended after") > 0
    assert progress["slow_count"] == len(slow) > 1
    assert progress["seen_count"] > progress["written_count"]
    assert (tmp_path / "a.pcapng").stat().st_size == progress["written_bytes"]


def test_the_advice_of_a_capture(runs: Runs) -> None:
    source = runs("read --bytes 256K --block-size 4K --one-way-delay 1ms").capture()
    shown, found = printed("capture", "-r", source, "-s", "advise"), json_of("capture", "-r", source, "-s", "advise")
    line = r".*: (\d+) packets, ([\d.]+) MB, (\d+) PDUs on (\d+) iSCSI connections"
    packets, size, pdus, connections = amounts(shown, line)
    summary = json_of("summary", source)
    assert (packets, connections) == (str(summary["packet_count"]), "1")
    assert is_amount(size, Decimal(summary["input"][0]["byte_count"]), "MB")
    assert pdus == str(summary["coverage"][-1]["pdu_count"])
    for kind, words in (("headers", "keeps every PDU header"), ("texts", "keeps login texts and sense data, too")):
        snaplen, share = amounts(shown, rf"-s (\d+) {words}: ([\d.]+) % of the bytes")
        assert int(snaplen) == found[f"{kind}_snaplen"]
        assert is_amount(share, Decimal(found[f"{kind}_kept_bytes"]) / found["byte_count"], "%")


# --- runs of the real world: results of the core with a distinct number in every field


def latency(first: int) -> dict[str, Any]:
    names = ("count", "min", "mean", "p50", "p90", "p95", "p99", "p999", "max")
    return {name: first + 1_111_000 * place for place, name in enumerate(names)} | {"count": first // 100_000}


def hand_results(**more: Any) -> dict[str, Any]:
    return {
        "mode": "run", "started_ns": 5, "elapsed_ns": 2_500_000_000, "bytes": 30_000_000, "calls": 500,
        "cpu": {"user_ns": 600_000_000, "system_ns": 1_500_000_000},
        "call_latency_ns": latency(11 * MILLION), "ping_ns": latency(41 * MILLION),
        "read": {"commands": 21, "bytes": 20_000_000, "latency_ns": latency(21 * MILLION)},
        "write": {"commands": 31, "bytes": 10_000_000, "latency_ns": latency(31 * MILLION)},
        "connections": [
            {"connection": number, "session": 0, "cid": number, "target": 0, "parameters": parameters}
            for number, parameters in enumerate(({"max_burst_length": 65_536}, {"max_burst_length": 65_536}, {}))
        ],
        "discovered": [], "tuning": None, "retry_count": 3, "data_digest_error_count": 4, "verify_error_count": 5,
        "error_count": 2, "errors": ["first\nthing"],
        "first_mismatch": {"byte": 512, "found_block": 9, "found_seed": 8}, "remarks": ["so it was"],
    } | more  # fmt: skip


URL = "iscsi://127.0.0.1/iqn.2025-01.org.example:disk/0"


def initiator(monkeypatch: pytest.MonkeyPatch, mode: str, results: dict[str, Any], exit_code: int) -> str:
    monkeypatch.setattr(traffic, "run_initiator", lambda *_, **__: {"results": results})
    return printed("initiator", mode, URL, exit_code=exit_code)


def test_the_results_of_an_initiator(monkeypatch: pytest.MonkeyPatch) -> None:
    results = hand_results()
    shown = initiator(monkeypatch, "read", results, 1)
    assert "\n30.000 MB in 2.500000 s: 12.000 MB/s, 200.0 IOPS\n" in f"\n{shown}"
    # 2.1 s for 0.03 GB
    assert "\nprocessor time 2.100000 s (user 0.600000, system 1.500000): 70.000 s/GB\n" in shown
    columns = {"latency of": "of", "bytes": "bytes", "count": lambda row: str(row["latency_ns"]["count"]), **LATENCY}
    rows = [{"of": "calls", "bytes": 30_000_000, "latency_ns": results["call_latency_ns"]}]
    rows += [{"of": f"{name} commands", **results[name]} for name in ("read", "write")]
    check_table(shown, columns, rows)
    keys = {row[0]: row[1:] for row in table(shown, "key", "connections 0 to 1")}
    assert keys["MaxBurstLength"] == ("65536",)
    lines = shown[shown.index("\nProblems\n") :].splitlines()[2:]
    assert lines == [
        "commands retried after BUSY, TASK SET FULL or UNIT ATTENTION: 3",
        "data digest errors: 4",
        "reads with wrong data: 5",
        "errors: 2",
        "wrong data at byte 512: block 9 of the pattern with seed 8",
        "note: so it was",
        "iscsitrace: first thing",
        "iscsitrace: and 1 more errors",
    ]


@pytest.mark.parametrize(("count", "missing"), [(19, {"p95", "p99"}), (20, {"p99"}), (99, {"p99"}), (100, set())])
def test_percentiles_of_an_initiator_take_enough_values(
    monkeypatch: pytest.MonkeyPatch, count: int, missing: set[str]
) -> None:
    few = latency(11 * MILLION) | {"count": count}
    results = hand_results(call_latency_ns=few, write={"commands": count, "bytes": 9, "latency_ns": few})
    headings = ("latency of", "bytes", "count", *(f"{name} ms" for name in QUANTILES))
    rows = {row[0]: row for row in table(initiator(monkeypatch, "read", results, 1), *headings)}
    for row in (rows["calls"], rows["write commands"]):
        assert {name for name, cell in zip(QUANTILES, row[3:], strict=True) if cell == "-"} == missing
    # the reads are 210
    assert "-" not in rows["read commands"]
    shown = json_of("initiator", "read", URL, exit_code=1)
    for each in (shown["latency_ns"], shown["call_latency_ns"], shown["write"]["latency_ns"]):
        absent = {name for name, value in each.items() if value is None}
        assert absent == missing | {"p999"}
    assert {name for name, value in shown["read"]["latency_ns"].items() if value is None} == {"p999"}


def test_pings_and_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    calm: dict[str, Any] = {"retry_count": 0, "data_digest_error_count": 0, "verify_error_count": 0, "error_count": 0}
    calm |= {"errors": [], "first_mismatch": None, "remarks": []}
    results = hand_results(mode="ping", **calm)
    columns = {"pings": "count", **{f"{name} ms": f"{name}_ns" for name in ("min", "p50", "p95", "p99", "max")}}
    row = {f"{name}_ns": value for name, value in results["ping_ns"].items()} | {"count": results["ping_ns"]["count"]}
    check_table(initiator(monkeypatch, "ping", results, 0), columns, [row])
    found = [{"name": "iqn.a", "addresses": ["10.0.0.1:3260,1", "10.0.0.2:3260,1"]}, {"name": "iqn.b", "addresses": []}]
    shown = initiator(monkeypatch, "discover", hand_results(mode="discover", discovered=found, **calm), 0)
    assert table(shown, "target", "address") == [("iqn.a", "10.0.0.1:3260,1, 10.0.0.2:3260,1"), ("iqn.b", "-")]


def test_what_a_target_served(capsys: pytest.CaptureFixture[str]) -> None:
    """A distinct number of each; reads are Data-In, writes Data-Out."""
    unusual = (
        *("refused_connections", "refused_logins", "rejects", "ignored_cmd_sns", "data_digest_errors"),
        *("stray_data_outs", "wrong_data_outs", "wrong_exp_stat_sns", "faults"),
    )
    served = {"commands": 91, "sessions": 3, "connections": 5, "data_in_bytes": 4096, "data_out_bytes": 512}
    run_results.show_served(served | dict.fromkeys(unusual, 0))
    line = "served 91 commands of 3 sessions over 5 connections: 4096 bytes read, 512 bytes written"
    assert capsys.readouterr().out == f"{line}\n"
    run_results.show_served(served | {name: number for number, name in enumerate(unusual, 11)})
    lines = [f"{name.replace('_', ' ')}: {number}" for number, name in enumerate(unusual, 11)]
    assert capsys.readouterr().out.splitlines() == [line, *lines]


def test_a_link_in_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def carried(first: int) -> dict[str, Any]:
        names = ("arrived", "delivered", "queue_full", "lost", "lost_in_burst", "overtaken")
        counters = {name: {"count": first + place, "bytes": 1000 * (first + place)} for place, name in enumerate(names)}
        return {"counters": counters, "line": {"busy_ns": (first + 9) * MILLION, "busy_times": []}, "packets": None}

    log: dict[str, Any] = {
        "link": {"to_target": carried(10), "to_initiator": carried(50)},
        "lateness": {"count": 100, "median_ns": 1_500_000, "p99_ns": 2_500_000, "max_ns": 4_500_000},
        "refused": {"count": 7, "bytes": 700},
        "failure": None,
    }
    monkeypatch.setattr(traffic, "run_link", lambda *_, **__: deepcopy(log))
    shown = printed("link", "near", "far")
    rows = [
        {"link": "near to far", "direction": words, "busy_ns": log["link"][way]["line"]["busy_ns"]}
        | log["link"][way]["counters"]
        for way, words in (("to_target", "to target"), ("to_initiator", "to initiator"))
    ]
    check_table(shown, LINKS, rows)
    late = table(shown, "link", "late: median ms", "p99 ms", "max ms", "refused by the kernel")
    assert late == [("near to far", "1.500", "2.500", "4.500", "7")]
    # of fewer frames the p99 is the maximum
    log["lateness"]["count"] = 99
    late = table(printed("link", "near", "far"), "link", "late: median ms", "p99 ms", "max ms", "refused by the kernel")
    assert late == [("near to far", "1.500", "-", "4.500", "7")]
