"""The captures of a ring, read one by one with the state handed on, against one pass over all packets.

core/trace/tests/ring.rs does the same with damaged conversations; here with samples and with captures of real hosts.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import iscsitrace
from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.tables.ring_pass import RingPass
from iscsitrace.tables.schema import ON_REQUEST, TABLES
from iscsitrace.tables.table import Table
from tests.support.capture_file import read_records, write_pcapng
from tests.support.recordings import recorded_captures

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*/*.pcap*"))
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


@pytest.mark.parametrize("capture", [*SAMPLES, *recorded_captures()], ids=str)
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


def test_what_cannot_be_continued_is_refused() -> None:
    with pytest.raises(InputInvalid, match="the state of the pass is damaged"):
        RingPass(b"")
    with pytest.raises(InputInvalid, match="is of version 9"):
        RingPass(b"\x019")
    with pytest.raises(InputInvalid, match="unknown table on request nothing"):
        RingPass(tables=["nothing"])
