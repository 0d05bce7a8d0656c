"""Packets whose time stamp no clock can have shown: counted, and left out of every table, plot and command."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.tables.schema import TABLES
from tests.support.capture_file import Record, block, read_records, write_pcapng

SAMPLE = next((FilePath(__file__).parents[2] / "samples" / "sequential-read-4ms").glob("capture.pcap*"))
INT64_MAX = (1 << 63) - 1
BEYOND_2106_NS = (1 << 32) * 10**9
COMMANDS = (
    ("summary",),
    ("events",),
    ("diagnose",),
    ("cycles",),
    ("check", "--fail-on", "never"),
    ("model", "fit"),
    ("plot", "latency", "-o", "plot.png"),
    ("plot", "sequence", "-o", "sequence.png"),
    ("report", "-o", "report.html"),
    ("export", "-o", "tables"),
)


def rows(file: FilePath, frames_more: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Every table but the counters, with this much subtracted from each frame number."""
    trace = iscsitrace.read(file, tables=tuple(TABLES))
    found = {name: list(trace.table(name).rows()) for name in TABLES if name != "counters"}
    for table in found.values():
        for row in table:
            for name in row:
                if "frame" in name.split("_") and row[name] is not None:
                    row[name] -= frames_more
    return found


def counts(file: FilePath) -> dict[str, int]:
    return {row["name"]: row["count"] for row in iscsitrace.read(file).counters.rows()}


@pytest.mark.parametrize("time_ns", [INT64_MAX, BEYOND_2106_NS], ids=["int64", "2106"])
def test_such_a_packet_changes_no_table(time_ns: int, tmp_path: FilePath) -> None:
    records, link_type = read_records(SAMPLE)
    true = rows(write_pcapng(tmp_path / "true.pcapng", records, link_type))
    for place in (0, len(records)):
        # a copy of a packet with data, of which TCP and iSCSI would know more than its time
        stray = replace(max(records, key=lambda record: len(record.data)), time_ns=time_ns)
        damaged = write_pcapng(tmp_path / "damaged.pcapng", [*records[:place], stray, *records[place:]], link_type)
        assert rows(damaged, frames_more=int(place == 0)) == true
        assert counts(damaged)["time_implausible"] == 1


def with_clock(file: FilePath, records: Sequence[Record], link_type: int, resolution: int, offset_s: int) -> FilePath:
    """A pcapng file with another unit and offset of its time stamps than they were written with."""
    out = bytearray(block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
    options = struct.pack("<HHB3xHHqHH", 9, 1, resolution, 14, 8, offset_s, 0, 0)
    out += block(1, struct.pack("<HHI", link_type, 0, 262_144) + options)
    for record in records:
        time = struct.pack("<II", record.time_ns >> 32, record.time_ns & 0xFFFFFFFF)
        lengths = struct.pack("<II", len(record.data), record.original_length)
        out += block(6, bytes(4) + time + lengths + record.data)
    file.write_bytes(out)
    return file


def damaged_files(folder: FilePath) -> list[FilePath]:
    """Three packets of wrong times, two of which a clock can show; all packets beyond the end of int64."""
    records, link_type = read_records(SAMPLE)
    changed = list(records)
    for quarter, time_ns in ((1, INT64_MAX), (2, 4_102_444_800 * 10**9), (3, 0)):
        place = len(records) * quarter // 4
        changed[place] = replace(records[place], time_ns=time_ns)
    return [
        write_pcapng(folder / "three.pcapng", changed, link_type),
        with_clock(folder / "all.pcapng", records, link_type, 0, 10**11),
    ]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments[:2]))
def test_every_command_ends_in_order(
    arguments: tuple[str, ...], tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an unexpected error, and warnings are errors here."""
    for file in damaged_files(tmp_path):
        folder = tmp_path / file.stem
        folder.mkdir()
        monkeypatch.chdir(folder)
        result = CliRunner().invoke(main, (*arguments, str(file)))
        assert result.exit_code in (0, 1, 2, 4), (file.stem, result.output)
        assert result.stderr.count("\n") <= 1, (file.stem, result.stderr)


def test_a_live_view_ends_in_order(tmp_path: FilePath) -> None:
    for file in damaged_files(tmp_path):
        words = [sys.executable, "-m", "iscsitrace", "watch", "--no-follow", "--json", str(file)]
        result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode in (0, 1), (file.stem, result.stderr)
        *intervals, totals = [json.loads(line) for line in result.stdout.splitlines()]
        # a pause of years is one interval
        assert len(intervals) < 20, file.stem
        found = {row["name"]: row["count"] for row in totals["counters"]}
        assert found["time_implausible"] == {"three": 1, "all": len(read_records(SAMPLE)[0])}[file.stem]
