"""The sidecar: its facts equal the tables, its frame numbers are Wireshark's, and it identifies its capture."""

from __future__ import annotations

import io
import random
import subprocess
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.show import sidecar
from iscsitrace.show.sidecar import facts
from iscsitrace.tables import trace as trace_module
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from tests.support.calls import calls_of, rows_of
from tests.support.capture_file import Record, read_records, write_pcapng
from tests.support.runs import Run, Runs
from tests.support.tables_by_hand import table

LOSSY = "read --one-way-delay 8ms --rate 320Mbit --loss 1/512 --block-size 256K --queue-depth 4 --bytes 4M --seed 3"
Facts = dict[int, tuple[str | None, int | None, str | None, str | None]]


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Runs(tmp_path_factory.mktemp("runs"))(LOSSY)


def parts_by_hand(segments: Table, budget: Table) -> dict[int, str]:
    """The part with most of the time since the previous packet; the first one if several are equal."""
    before: dict[int, int] = {}
    found = {}
    for packet in sorted(segments.rows(), key=lambda row: row["frame"]):
        connection, until_ns = packet["connection"], packet["time_ns"]
        from_ns = before.get(connection, until_ns)
        before[connection] = until_ns
        shares = dict.fromkeys(CATEGORIES["budget_part"], 0)
        for row in budget.rows():
            if row["connection"] == connection:
                overlap = min(row["time_last_ns"], until_ns) - max(row["time_first_ns"], from_ns)
                shares[row["part"]] += max(0, overlap)
        owner = max(shares, key=shares.__getitem__)
        if shares[owner] > 0:
            found[packet["frame"]] = owner
    return found


def facts_by_hand(segments: Table, budget: Table, window: Table, retransmissions: Table, violations: Table) -> Facts:
    """The same by a loop over rows, as the sidecar's columns are described."""
    parts = parts_by_hand(segments, budget)
    windows: dict[int, int] = {}
    for row in window.rows():
        if row["is_valid"] and row["cwnd_estimate_bytes"] is not None:
            windows[row["frame"]] = max(windows.get(row["frame"], 0), row["cwnd_estimate_bytes"])
    causes = {row["frame"]: row["cause"] for row in retransmissions.rows()}
    broken: dict[int, str] = {}
    for row in violations.rows():
        text = f"S17: The target said ExpDataSN {row['seen']} after {row['expected']} Data-In and R2Ts"
        before = broken.get(row["frame"], "")
        broken[row["frame"]] = f"{before}; {text}" if before else text
    found: Facts = {}
    for frame in sorted({*parts, *windows, *causes, *broken}):
        found[frame] = (parts.get(frame), windows.get(frame), causes.get(frame), broken.get(frame))
    return found


def facts_of(rows: Table) -> Facts:
    names = ("budget_owner", "cwnd_estimate_bytes", "loss_class", "violation")
    return {row["frame"]: (row[names[0]], row[names[1]], row[names[2]], row[names[3]]) for row in rows.rows()}


@pytest.mark.parametrize("seed", range(20))
def test_facts_equal_those_of_a_loop_over_rows(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 -- a test's draws
    frames = range(1, 12)

    def drawn(count: int, **columns: Any) -> list[dict[str, Any]]:
        return [{name: draw() for name, draw in columns.items()} for _ in range(chance.randrange(count))]

    # packets of two connections in order of time, and stretches that follow each other
    clock = accumulate(chance.randrange(4) for _ in frames)
    packets = [
        {"connection": chance.choice([0, 1]), "frame": frame, "time_ns": time}
        for frame, time in zip(frames, clock, strict=True)
    ]
    chance.shuffle(packets)
    budget = []
    for connection in (0, 1, None):
        ends = sorted(chance.sample(range(20), chance.randrange(8)))
        budget += [
            {
                "connection": connection,
                "time_first_ns": first,
                "time_last_ns": last,
                "part": chance.choice(CATEGORIES["budget_part"]),
            }
            for first, last in pairwise(ends)
        ]
    window = drawn(
        30,
        frame=lambda: chance.choice(frames),
        is_valid=lambda: chance.random() < 0.7,
        cwnd_estimate_bytes=lambda: chance.choice([None, 1460, 14_600, 29_200]),
    )
    # a retransmitted packet is one row
    again = [
        {"frame": frame, "cause": chance.choice(CATEGORIES["retransmission_cause"])}
        for frame in chance.sample(frames, chance.randrange(6))
    ]
    # no two of one frame are equal
    broken = [
        {"rule": "S17", "side": "target", "connection": 0, "frame": chance.choice(frames), "seen": place, "expected": 9}
        for place in range(chance.randrange(5))
    ]
    made = (
        table("segments", *packets),
        table("budget", *budget),
        table("window", *window),
        table("retransmissions", *again),
        table("violations", *broken),
    )
    assert facts_of(facts(*made)) == facts_by_hand(*made)


def test_without_facts_there_are_no_rows() -> None:
    assert len(facts(*(table(name) for name in sidecar.TABLES))) == 0


def test_the_rows_of_a_connection_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 300
    packets = [{"connection": number % count, "frame": number, "time_ns": number} for number in range(2 * count)]
    stretch = {"time_first_ns": 0, "time_last_ns": 2 * count, "part": "transfer"}
    budget = [stretch | {"connection": each} for each in range(count)]
    made = table("segments", *packets), table("budget", *budget), *(table(name) for name in sidecar.TABLES[2:])
    selections = calls_of(monkeypatch, Table, "select")
    assert len(facts(*made)) == count
    assert rows_of(selections) <= 2 * count


def export(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["export", "--sidecar", *map(str, arguments)])


@pytest.fixture(scope="module")
def written(lossy: Run) -> list[list[str]]:
    """The lines of a sidecar, by their cells."""
    result = export(lossy.capture())
    assert result.exit_code == 0, result.output
    path = lossy.folder / "initiator.pcapng.iscsitrace"
    assert result.output == f"{path}: {len(path.read_text().splitlines()) - 2:,} frames\n"
    return [line.split("\t") for line in path.read_text().splitlines()]


def tshark(capture: Path, *arguments: str) -> list[list[str]]:
    command = ["tshark", "-n", "-r", str(capture), "-T", "fields", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_the_first_line_identifies_the_capture_as_tshark_shows_it(lossy: Run, written: list[list[str]]) -> None:
    frames = tshark(lossy.capture(), "-e", "frame.number", "-e", "frame.time_epoch", "-e", "frame.len")
    seconds, _, fraction = frames[0][1].partition(".")
    assert written[0] == [
        "iscsitrace-sidecar",
        "1",
        f"frames={frames[-1][0]}",
        f"first_frame_time={int(seconds) * 10**9 + int(fraction.ljust(9, '0'))}",
        f"first_frame_length={frames[0][2]}",
        f"size={len(lossy.capture().read_bytes())}",
    ]
    assert written[1] == ["frame", "budget_owner", "cwnd_estimate_bytes", "loss_class", "violation"]


def test_the_lines_equal_the_tables(lossy: Run, written: list[list[str]]) -> None:
    trace = iscsitrace.read(lossy.capture(), tables=sidecar.TABLES)
    expected = facts_by_hand(*(trace.table(name) for name in sidecar.TABLES))
    assert [int(line[0]) for line in written[2:]] == sorted(expected)
    lines = {int(line[0]): tuple(line[1:]) for line in written[2:]}
    for frame, known in expected.items():
        assert lines[frame] == tuple("" if value is None else str(value) for value in known)
    # the run has all three kinds
    assert all(any(known[place] is not None for known in expected.values()) for place in range(3))


def test_the_frames_are_wiresharks_retransmissions(lossy: Run, written: list[list[str]]) -> None:
    again = "tcp.analysis.retransmission || tcp.analysis.fast_retransmission || tcp.analysis.out_of_order"
    shown = {int(line[0]) for line in tshark(lossy.capture(), "-Y", again, "-e", "frame.number")}
    told = {int(line[0]) for line in written[2:] if line[3]}
    assert told
    assert told <= shown


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["a.pcap", "b.pcap"], "takes one capture file"),
        (["-"], "takes one capture file"),
        (["-f", "tcp", "a.pcap"], "without -f, --from and --to"),
        (["-c", "5", "a.pcap"], "omit -c"),
        (["--tables", "cycles", "a.pcap"], "omit --tables and --format"),
        (["--format", "csv", "a.pcap"], "omit --tables and --format"),
        (["nowhere.pcap"], "cannot read nowhere.pcap: No such file"),
    ],
)
def test_refusals(arguments: list[str], complaint: str) -> None:
    result = export(*arguments)
    assert result.exit_code == 2
    assert complaint in result.output


def test_tables_need_an_output() -> None:
    result = CliRunner().invoke(main, ["export", "a.pcap"])
    assert result.exit_code == 2
    assert "-o DIR" in result.output


def test_nothing_is_overwritten_and_the_output_may_be_a_folder(
    lossy: Run, written: list[list[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "made" / "for it"
    assert export("-o", folder, lossy.capture()).exit_code == 0
    path = folder / "initiator.pcapng.iscsitrace"
    assert path.read_bytes() == (lossy.folder / "initiator.pcapng.iscsitrace").read_bytes()
    path.write_text("mine")
    result = export("-o", folder, lossy.capture())
    assert result.exit_code == 2
    assert "exists; nothing was written" in result.output
    assert path.read_text() == "mine"
    assert export("--force", "-o", folder, lossy.capture()).exit_code == 0
    assert [file.name for file in folder.iterdir()] == [path.name]


def test_a_capture_that_grows_has_no_sidecar_yet(lossy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = tmp_path / "growing.pcapng"
    growing.write_bytes(lossy.capture().read_bytes())
    read = trace_module.read

    def read_and_grow(*arguments: Any, **options: Any) -> TraceTables:
        trace = read(*arguments, **options)
        with growing.open("ab") as stream:
            stream.write(b"more")
        return trace

    monkeypatch.setattr(trace_module, "read", read_and_grow)
    result = export(growing)
    assert result.exit_code == 2
    assert "grew while it was read" in result.output
    assert [file.name for file in tmp_path.iterdir()] == ["growing.pcapng"]


def test_a_capture_without_a_packet_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    header = bytes.fromhex("d4c3b2a1 02000400 00000000 00000000 ffff0000 01000000")
    empty.write_bytes(header)
    result = export(empty)
    assert result.exit_code == 2
    assert "no packet" in result.output
    assert [file.name for file in tmp_path.iterdir()] == ["empty.pcap"]


def test_frames_that_are_not_tcp_are_counted(lossy: Run, tmp_path: Path) -> None:
    """Two frames of unknown protocols, before and after: the sidecar counts frames as Wireshark does."""
    records, link_type = read_records(lossy.capture())
    odd = [Record(record.time_ns, bytes(60), 60) for record in (records[0], records[-1])]
    capture = write_pcapng(tmp_path / "odd.pcapng", [odd[0], *records, odd[1]], link_type)
    assert export(capture).exit_code == 0
    identity, _, *lines = (tmp_path / "odd.pcapng.iscsitrace").read_text().splitlines()
    assert f"\tframes={len(records) + 2}\t" in identity
    assert f"\tfirst_frame_time={records[0].time_ns}\tfirst_frame_length=60\t" in identity
    trace = iscsitrace.read(lossy.capture(), tables=sidecar.TABLES)
    rows = facts(*(trace.table(name) for name in sidecar.TABLES))
    assert [int(line.split("\t")[0]) for line in lines] == [frame + 1 for frame in rows["frame"].tolist()]


def test_the_same_trace_gives_the_same_bytes(lossy: Run) -> None:
    trace = iscsitrace.read(lossy.capture(), tables=sidecar.TABLES)
    one, two = io.BytesIO(), io.BytesIO()
    assert sidecar.write(trace, one, 1) == sidecar.write(trace, two, 1)
    assert one.getvalue() == two.getvalue()
