"""Rings: one capture cut at packet borders into numbered files, and datasets beside the one pass over it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyarrow import parquet

import iscsitrace
from iscsitrace.fleet.captures import Tap
from iscsitrace.fleet.store import TapStore
from iscsitrace.fleet.task import Destination, TaskOutcome, execute, plan
from iscsitrace.tables.schema import DEFAULT_TABLES
from tests.support.capture_file import write_pcapng
from tests.support.conversation import Conversation, Session
from tests.support.pdu import Task
from tests.support.transport import Packet

MIDNIGHT_NS = 1_700_006_400_000_000_000
"""The start of 15 November 2023, UTC."""
LINK_TYPE = 1


def traffic(
    seed: int = 1,
    *,
    start_ns: int = MIDNIGHT_NS - 8_000_000,
    sessions: int = 2,
    has_open: bool = True,
    has_errors: bool = True,
) -> list[Packet]:
    """Packets of sessions with reads and writes; across midnight by default.

    With ``has_errors`` two commands of each session have an error, with ``has_open`` each second does not log out.
    """
    conversation = Conversation(seed=seed, start_ns=start_ns)
    for number in range(sessions):
        settings = Session(header_digest=number % 2 == 1, connection_count=1 + number % 2)
        tasks = [
            Task(
                ("read", "write")[place % 2], lba=8 * place, block_count=64, status=2 * (has_errors and place % 13 == 7)
            )
            for place in range(30)
        ]
        actors = conversation.session(settings).login().tasks(tasks, queue_depth=3)
        if number % 2 == 0 or not has_open:
            actors.logout()
    return conversation.run().packets


def cut(folder: Path, packets: Sequence[Packet], borders: Iterable[int], ring: str = "eth0") -> list[Path]:
    """The packets as files of a ring, in the folder, which is made; a border is the number of packets before it."""
    folder.mkdir(parents=True, exist_ok=True)
    places = [0, *borders, len(packets)]
    return [
        write_pcapng(folder / f"{ring}_{number:05}_20231114235959.pcapng", packets[first:last], LINK_TYPE)
        for number, (first, last) in enumerate(pairwise(places), 1)
    ]


def random_borders(packets: Sequence[Packet], pieces: int, seed: int) -> list[int]:
    """Borders at random packets."""
    return sorted(random.Random(seed).sample(range(1, len(packets)), pieces - 1))  # noqa: S311 -- repeatable


def whole(folder: Path, packets: Sequence[Packet]) -> iscsitrace.Trace:
    """One pass over all packets in one file."""
    folder.mkdir(parents=True, exist_ok=True)
    return iscsitrace.read(write_pcapng(folder / "whole.pcapng", packets, LINK_TYPE), tables=("pdus",))


def rows_of(dataset: Path, name: str, tap: str) -> list[tuple[Any, ...]]:
    """The sorted rows of a table, without the capture's name, as its files have them."""
    rows: list[tuple[Any, ...]] = []
    for path in sorted((dataset / name / f"tap={tap}").glob("day=*/*.parquet")):
        table = parquet.ParquetFile(path).read()
        names = [each for each in table.column_names if each != "capture"]
        columns = [table.column(each).to_pylist() for each in names]
        rows += zip(*columns, strict=True)
    return sorted(rows, key=repr)


def rows_expected(trace: iscsitrace.Trace, name: str) -> list[tuple[Any, ...]]:
    """The sorted rows of the one pass. Commands leave a ring before the time breakdown is made, without idle time."""
    rows = trace.table(name).rows()
    return sorted((tuple((row | {"idle_ns": None} if "idle_ns" in row else row).values()) for row in rows), key=repr)


def assert_equal(dataset: Path, tap: str, trace: iscsitrace.Trace) -> None:
    """Every table of a tap is that of the one pass, row for row."""
    for name in DEFAULT_TABLES:
        assert rows_of(dataset, name, tap) == rows_expected(trace, name), name


def read_ring(
    dataset: Path, source: Path, run: str = "first", *, tap: str = "a", tables: tuple[str, ...] = DEFAULT_TABLES
) -> list[TaskOutcome]:
    """The tasks that a tap has now, one after another in this process."""
    place = Destination(dataset, run, tables, "1")
    store = TapStore(dataset, tap)
    store.begin(run)
    manifest = store.manifest()
    generation = manifest.generation if manifest else 0
    works = plan(place, Tap(tap, (str(source),))).works
    return [execute(place, tap, generation + number, work) for number, work in enumerate(works, 1)]
