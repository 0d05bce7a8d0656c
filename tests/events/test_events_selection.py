"""Selection of events, runs of equal events against a naive model, and display filters."""

from __future__ import annotations

import random
from typing import Any

import pytest

from iscsitrace.events import derived
from iscsitrace.events.selection import display_filter, runs
from iscsitrace.tables.table import Table
from iscsitrace.wording.event_kinds import EVENT_KINDS
from tests.support.histories import Told


def mixed(seed: int, count: int = 60) -> Table:
    """Commands of two sessions and two logical units with three statuses, in any order."""
    chance = random.Random(seed)  # noqa: S311
    told = Told()
    for first in (0, 0):
        told.session(first, 99)
    statuses: list[dict[str, Any]] = [{"status": 0x08}, {"status": 0x18}, {"status": 0x18, "operation": "inquiry"}]
    for number in range(count):
        sense = chance.choice(statuses)
        told.read(chance.randrange(2), 1.0 + number, 1.5 + number, lun=chance.randrange(2), **sense)
    return derived.make("events", told.source())


def naive(events: Table) -> list[tuple[int, int, int]]:
    """First row, last row and number of each run, by one loop over the rows."""
    last: dict[tuple[Any, Any], list[Any]] = {}
    found = []
    for place, row in enumerate(events.rows()):
        what = (row["kind"], row["severity"], row["text"])
        current = last.get((row["session"], row["lun"]))
        if current is None or current[0] != what:
            current = last[row["session"], row["lun"]] = [what, place, place, 0]
            found.append(current)
        current[2], current[3] = place, current[3] + 1
    return [(first, end, count) for _, first, end, count in found]


@pytest.mark.parametrize("seed", range(20))
def test_runs_are_those_of_a_naive_model(seed: int) -> None:
    events = mixed(seed)
    made = [tuple(each) for each in zip(*(column.tolist() for column in runs(events)), strict=True)]
    assert made == naive(events)
    assert sum(count for _, _, count in made) == len(events)
    assert 2 < len(made) < len(events)


def test_no_events_have_no_runs() -> None:
    assert [len(column) for column in runs(mixed(0).select([]))] == [0, 0, 0]


def test_the_filter_of_an_event_is_its_frame_or_its_time() -> None:
    row = {"frame": 7, "connection": 3, "time_ns": 5_000_000_000, "end_ns": 6_500_000_000}
    assert display_filter(row, [], 0) == "frame.number in {7}"
    bare = row | {"frame": None}
    time = "frame.time_relative >= 4.000000000 && frame.time_relative <= 5.500000000"
    assert display_filter(bare, [1], 1_000_000_000) == f"tcp.stream in {{3}} && {time}"
    assert display_filter(bare | {"connection": None}, [2, 1], 1_000_000_000) == f"tcp.stream in {{1, 2}} && {time}"
    last = bare | {"connection": None, "end_ns": None}
    assert display_filter(last, [], 1_000_000_000) == "frame.time_relative >= 4.000000000"


def test_every_kind_has_a_name_a_severity_and_a_meaning() -> None:
    assert len({kind.name for kind in EVENT_KINDS}) == len(EVENT_KINDS)
    for kind in EVENT_KINDS:
        assert kind.severity in ("info", "warning", "error", "data_loss")
        assert kind.meaning
        assert not kind.meaning.endswith(".")
