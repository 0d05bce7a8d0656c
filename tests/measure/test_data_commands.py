"""Which commands read, write or erase data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.measure import grouping
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.tables import schema
from tests.support import tables_by_hand
from tests.support.capture_file import write_pcap
from tests.support.conversation import Conversation
from tests.support.pdu import Task
from tests.support.tables_by_hand import table

DATA = ("verify", "unmap", "extended_copy", "compare_and_write", "write_same", "vendor_specific_write")
NO_DATA = ("test_unit_ready", "synchronize_cache", "persistent_reserve_out", "vendor_specific")


def test_a_command_that_was_cut_off_or_is_unknown_counts_by_what_it_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tables_by_hand.WORDS, "operation", (*tables_by_hand.OPERATIONS, "other"))
    rows: list[dict[str, Any]] = [
        {"operation": "read", "bytes": 4096, "is_read": True},
        {"operation": "write", "bytes": None, "is_write": True},
        {"operation": None},
        {"operation": "other", "bytes": 512, "is_write": True},
        {"operation": "other", "bytes": None, "is_read": True},
        {"operation": "other", "bytes": 0, "is_read": True},
        {"operation": "other", "bytes": 512},
        {"operation": "inquiry", "bytes": 36, "is_read": True},
        {"operation": "test_unit_ready"},
    ]
    assert is_data_command(table("cycles", *rows)).tolist() == [*[True] * 5, *[False] * 4]


def test_data_commands_are_those_of_the_time_breakdown(tmp_path: Path) -> None:
    """At queue depth 1 the breakdown has a stretch of its own for each command."""
    operations = ("read", "write", "inquiry", "read_capacity", *DATA, *NO_DATA)
    conversation = Conversation()
    conversation.session().login().tasks([Task(operation, block_count=8) for operation in operations]).logout()
    capture = write_pcap(tmp_path / "variety.pcap", conversation.run().packets, 1)
    trace = iscsitrace.read(capture, tables=grouping.TABLES)
    found = dict(zip(operations, is_data_command(trace.cycles).tolist(), strict=True))
    assert found == {each: each in {"read", "write", *DATA} for each in operations}
    stretches, columns = list(trace.budget.rows()), ("command_first_ns", "status_ns")
    for operation, row in zip(operations, trace.cycles.rows(columns), strict=True):
        uses = {
            each["in_flight"]
            for each in stretches
            if each["time_first_ns"] < row["status_ns"] and each["time_last_ns"] > row["command_first_ns"]
        }
        assert ("data" in uses) == found[operation], operation
    session = grouping.sessions_of(trace.table)[0]
    assert session.is_data.tolist() == list(found.values())


def test_the_purpose_of_every_operation_is_known() -> None:
    words = set(schema.CATEGORIES["in_flight"])
    assert set(schema.PURPOSES.values()) <= words
    assert {"data", "flush", "other"} == set(schema.PURPOSES.values())
