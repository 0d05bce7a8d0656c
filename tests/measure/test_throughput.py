"""Throughput by session against a naive one, command by command."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.measure import throughput
from tests.support.tables_by_hand import with_waits

GIB = 1 << 30

COMMANDS = st.fixed_dictionaries(
    {
        "session": st.sampled_from([0, 3, 7, None]),
        "operation": st.sampled_from(["read", "write", "inquiry", None]),
        "command_first_ns": st.integers(0, 50),
        "status_ns": st.one_of(st.none(), st.integers(0, 80)),
        "is_read": st.booleans(),
        "is_write": st.booleans(),
        "is_complete": st.booleans(),
        "end_ns": st.one_of(st.none(), st.integers(0, 80)),
        "has_capture_gap": st.booleans(),
        "data_bytes": st.sampled_from([0, 512, 4096, 3 * GIB]),
        "immediate_bytes": st.sampled_from([0, 512]),
        "unsolicited_bytes": st.sampled_from([0, 1024]),
        "solicited_bytes": st.sampled_from([0, 2048]),
        "queue_depth": st.integers(1, 9),
    }
)


def naive(session: int | None, rows: list[dict[str, Any]]) -> throughput.Throughput:
    own = [row for row in rows if row["operation"] in ("read", "write", None)]
    spans = [(row["command_first_ns"], end_of(row)) for row in own]
    active_ns = len({instant for first, last in spans for instant in range(first, last)})
    answered = sum(row["status_ns"] is not None for row in own)
    (read, written), (own_read, own_written) = payload_of(rows), payload_of(own)
    iops, read_rate, write_rate = (
        amount * 10**9 / active_ns if active_ns else None for amount in (answered, own_read, own_written)
    )
    return throughput.Throughput(
        session,
        len(rows),
        sum(row["is_complete"] for row in rows),
        sum(row["is_read"] and row["data_bytes"] > 0 for row in rows),
        sum(row["is_write"] and row["data_bytes"] > 0 for row in rows),
        read,
        written,
        active_ns,
        iops,
        read_rate,
        write_rate,
        max((row["queue_depth"] for row in rows), default=None),
    )


def end_of(row: dict[str, Any]) -> int:
    """With its status; without one at its end, unless packets of it are missing."""
    if row["status_ns"] is not None:
        return int(row["status_ns"])
    is_known = row["end_ns"] is not None and not row["is_complete"] and not row["has_capture_gap"]
    return int(row["end_ns"] if is_known else row["command_first_ns"])


def payload_of(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """Bytes read and written."""
    read = written = 0
    for row in rows:
        sent = row["immediate_bytes"] + row["unsolicited_bytes"] + row["solicited_bytes"]
        own = 0
        if row["is_write"]:
            own = min(sent, row["data_bytes"]) if row["is_read"] else row["data_bytes"]
        written += own
        read += row["data_bytes"] - own if row["is_read"] else 0
    return read, written


@given(st.lists(COMMANDS, max_size=12))
def test_throughput_is_that_of_the_commands_one_by_one(rows: list[dict[str, Any]]) -> None:
    numbers = sorted({row["session"] for row in rows if row["session"] is not None})
    expected = [naive(number, [row for row in rows if row["session"] == number]) for number in numbers]
    assert throughput.measure(*with_waits(rows)) == [*expected, naive(None, rows)]
