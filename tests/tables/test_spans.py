"""No span of any table ends before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import iscsitrace
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import ON_REQUEST, TABLES
from tests.support.recordings import SUFFIXES, recorded_captures

SAMPLES = Path(__file__).parents[2] / "samples"
CAPTURES = [
    *sorted(each for each in SAMPLES.glob("*/capture*") if each.name.endswith(SUFFIXES)),
    *recorded_captures(),
]

# what ends a span, by what begins it
_ENDS = {"first_ns": "last_ns", "request_ns": "response_ns"}


_INSTANTS = {
    # the last of many packets, not the end of a span
    *(("connections", f"{kind}_last_to_{side}_ns") for kind in ("time", "data") for side in ("target", "initiator")),
    # the unsolicited data of a write begins with its command
    ("cycles", "unsolicited_last_ns"),
}


def spans(table: str) -> Iterator[tuple[str, str]]:
    """The columns of a table that are the begin and the end of a span of time."""
    names = [column.name for column in TABLES[table].columns]
    for name in names:
        for begin, end in _ENDS.items():
            last = name.removesuffix(begin) + end
            if name.endswith(begin) and last in names:
                yield name, last


def test_every_table_with_a_last_time_has_its_span() -> None:
    found = {(table, last) for table in TABLES for _, last in spans(table)}
    lasts = {(table, column.name) for table in TABLES for column in TABLES[table].columns}
    assert {each for each in lasts if each[1].endswith("_last_ns")} <= found | _INSTANTS


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: f"{path.parent.name}-{path.name.split('.pcap')[0]}")
def test_no_span_ends_before_it_begins(capture: Path) -> None:
    trace = iscsitrace.read(capture, tables=ON_REQUEST)
    wrong = []
    for name in TABLES:
        table = trace.table(name)
        for first, last in spans(name):
            is_known = known(table, first) & known(table, last)
            if np.any(table.raw(first)[is_known] > table.raw(last)[is_known]):
                wrong.append(f"{name}.{last}")
        if name == "cycles":
            is_known = known(table, "unsolicited_last_ns") & known(table, "command_first_ns")
            if np.any(table.raw("command_first_ns")[is_known] > table.raw("unsolicited_last_ns")[is_known]):
                wrong.append("cycles.unsolicited_last_ns")
    assert wrong == []
