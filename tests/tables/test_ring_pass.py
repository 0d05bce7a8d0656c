"""The captures of a ring, read one by one with the state handed on, against one pass over all packets.

core/trace/tests/ring.rs does the same with damaged conversations; here with samples and with captures of real hosts.
"""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import iscsitrace
from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.tables.passes import PERIOD_TABLES, Period, RingPass
from iscsitrace.tables.schema import ON_REQUEST, TABLES
from iscsitrace.tables.table import Table
from tests.support.capture_file import Record, read_records, write_pcapng
from tests.support.recordings import recorded_captures

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*/*.pcap*"))
RECORDED = recorded_captures()
HOUR_NS = 3_600_000_000_000
FILLED = [name for name in TABLES if name not in ON_REQUEST or name == "pdus"]


def rows(table: Table) -> list[tuple[str, ...]]:
    """Every row as text, with the bytes that nulls are made of."""
    return list(zip(*(map(str, np.asarray(table.raw(name)).tolist()) for name in table), strict=True))


def in_parts(parts: list[Path]) -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {name: [] for name in FILLED}
    state = None
    for part in parts:
        ring = RingPass(state)
        ring.read(part)
        for name, table in ring.take().items():
            found[name] += rows(table)
        state = ring.state()
    for name, table in RingPass(state).finish().items():
        found[name] += rows(table)
    return found


@pytest.mark.parametrize("capture", [*SAMPLES, *RECORDED], ids=str)
def test_the_rows_are_those_of_one_pass(capture: Path, tmp_path: Path) -> None:
    records, link_type = read_records(capture)
    chance = random.Random(capture.name)  # noqa: S311
    places = sorted(chance.sample(range(1, len(records)), min(len(records) - 1, chance.choice([1, 8, 40]))))
    borders = [0, *places, len(records)]
    parts = [
        write_pcapng(tmp_path / f"{first:06}.pcapng", records[first:end], link_type) for first, end in pairwise(borders)
    ]
    one = iscsitrace.read(write_pcapng(tmp_path / "whole.pcapng", records, link_type))
    found = in_parts(parts)
    for name in FILLED:
        assert sorted(found[name]) == sorted(rows(one.table(name))), name


def periods_of(parts: list[Path]) -> tuple[list[Period], dict[str, list[tuple[str, ...]]]]:
    """The periods of a ring with its state handed on, and the rows beside them."""
    found: list[Period] = []
    beside: dict[str, list[tuple[str, ...]]] = {name: [] for name in FILLED}
    state = None
    for part in parts:
        ring = RingPass(state, has_periods=True)
        ring.read(part)
        # a state has periods that were not taken
        if len(found) % 2:
            found += ring.take_periods()
        for name, table in ring.take().items():
            beside[name] += rows(table)
        state = ring.state()
    ring = RingPass(state)
    found += ring.take_periods()
    if (last := ring.open_period()) is not None:
        found.append(last)
    for name, table in ring.finish().items():
        beside[name] += rows(table)
    return found, beside


def tables_in(period: Period) -> dict[str, list[tuple[str, ...]]]:
    return {name: rows(period.trace.table(name)) for name in TABLES if name not in ON_REQUEST or name in PERIOD_TABLES}


def moved(capture: Path, into_hour_ns: int) -> tuple[list[Record], int]:
    """The packets of a capture, so much later that the middle one is that far into an hour, and the link type."""
    records, link_type = read_records(capture)
    later_ns = -records[len(records) // 2].time_ns % HOUR_NS + into_hour_ns
    return [replace(record, time_ns=record.time_ns + later_ns) for record in records], link_type


@pytest.mark.parametrize("capture", [*SAMPLES, *RECORDED[::2]], ids=str)
def test_a_ring_within_an_hour_is_one_period_with_the_tables_of_one_pass(capture: Path, tmp_path: Path) -> None:
    records, link_type = moved(capture, HOUR_NS // 2)
    one = iscsitrace.read(write_pcapng(tmp_path / "whole.pcapng", records, link_type), tables=PERIOD_TABLES)
    middle = len(records) // 3
    parts = [
        write_pcapng(tmp_path / "a.pcapng", records[:middle], link_type),
        write_pcapng(tmp_path / "b.pcapng", records[middle:], link_type),
    ]
    (period,), _ = periods_of(parts)
    assert list(period.cycle_numbers) == list(range(len(one.cycles)))
    for name, found in tables_in(period).items():
        if name != "pdus":
            assert found == rows(one.table(name)), name


@pytest.mark.parametrize("capture", [*SAMPLES, *RECORDED[1::2]], ids=str)
def test_periods_end_at_full_hours_wherever_captures_end(capture: Path, tmp_path: Path) -> None:
    records, link_type = moved(capture, 0)
    whole = write_pcapng(tmp_path / "whole.pcapng", records, link_type)
    chance = random.Random(capture.name)  # noqa: S311
    places = sorted(chance.sample(range(1, len(records)), min(len(records) - 1, 12)))
    parts = [
        write_pcapng(tmp_path / f"{first:06}.pcapng", records[first:end], link_type)
        for first, end in pairwise([0, *places, len(records)])
    ]
    found, beside = periods_of(parts)
    expected, _ = periods_of([whole])
    assert [period.from_ns for period in found] == [period.from_ns for period in expected]
    assert len(found) == 2
    assert found[1].from_ns % HOUR_NS == 0
    for period, one in zip(found, expected, strict=True):
        assert tables_in(period) == tables_in(one)
        assert list(period.cycle_numbers) == list(one.cycle_numbers)
    # beside the periods there are the rows of one pass
    one_pass = iscsitrace.read(whole)
    for name in FILLED:
        assert sorted(beside[name]) == sorted(rows(one_pass.table(name))), name
    # what is counted is counted once, and every command is in one period, or in both while it was open
    for column in ("packets_to_target", "packets_to_initiator", "retransmitted_packets_to_initiator"):
        counted = sum(int(period.trace.connections.raw(column).sum()) for period in found)
        assert counted == int(one_pass.connections.raw(column).sum()), column
    numbers = {int(number) for period in found for number in period.cycle_numbers}
    assert numbers >= set(range(len(one_pass.cycles)))


def test_a_capture_that_is_empty_or_unreadable_is_counted(tmp_path: Path) -> None:
    records, link_type = read_records(SAMPLES[0])
    first = write_pcapng(tmp_path / "a.pcapng", records[:50], link_type)
    rest = write_pcapng(tmp_path / "b.pcapng", records[50:], link_type)
    junk = tmp_path / "junk"
    junk.write_bytes(b"this is no capture at all")
    empty = tmp_path / "empty"
    empty.touch()
    ring = RingPass()
    # before the first packet nothing is known to be a ring
    with pytest.raises(CaptureUnreadable, match="junk is not a capture"):
        ring.read(junk)
    assert ring.read(first).first_frame == 1
    assert ring.read(empty).info["format"] == "empty"
    assert ring.read(junk).info["format"] == "unreadable"
    read = ring.read(rest)
    assert (read.first_frame, read.info["packet_count"]) == (51, len(records) - 50)
    tables = ring.finish()
    assert len(tables["cycles"]) == len(iscsitrace.read(SAMPLES[0]).cycles)
    names = list(tables["counters"]["name"])
    assert {"input_empty", "input_unreadable"} <= set(names)


def test_a_state_in_a_file_is_the_state(tmp_path: Path) -> None:
    records, link_type = read_records(SAMPLES[0])
    ring = RingPass()
    ring.read(write_pcapng(tmp_path / "a.pcapng", records[:50], link_type))
    ring.write_state(tmp_path / "state")
    assert (tmp_path / "state").read_bytes() == ring.state()
    with pytest.raises(OSError, match="No space left on device") as full:
        ring.write_state("/dev/full")
    assert full.value.errno == errno.ENOSPC


def test_what_cannot_be_continued_is_refused() -> None:
    with pytest.raises(InputInvalid, match="the state of the pass is damaged"):
        RingPass(b"")
    with pytest.raises(InputInvalid, match="is of version 9"):
        RingPass(b"\x019")
    with pytest.raises(InputInvalid, match="unknown table on request nothing"):
        RingPass(tables=["nothing"])
    with pytest.raises(InputInvalid, match="periods go with none of senders"):
        RingPass(tables=["pdus", "senders"], has_periods=True)
