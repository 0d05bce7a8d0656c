"""The runs of all connections at once, against one connection after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from iscsitrace.measure.intervals import merged, union_length
from iscsitrace.measure.line import times_by_line
from iscsitrace.relate.jobs import runs
from tests.support.tables_by_hand import MS, table

Row = dict[str, Any]

COMMAND = st.fixed_dictionaries(
    {
        # connection 2 carries no iSCSI, and there is no connection 4
        "connection": st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
        "begin_ms": st.integers(0, 60).map(lambda each: 10 * each),
        "length_ms": st.sampled_from([0, 1, 10, 10, 25, 120]),
        "data_bytes": st.sampled_from([0, 1, 2, 4, 4, 4, 16]),
        "is_write": st.booleans(),
        "has_status": st.sampled_from([True, True, True, True, False]),
        "is_complete": st.sampled_from([True, True, True, True, False]),
    }
)


def command(begin_ms: int, length_ms: int, connection: int = 0, data_bytes: int = 4) -> Row:
    whole = {"is_write": False, "has_status": True, "is_complete": True}
    return {"connection": connection, "begin_ms": begin_ms, "length_ms": length_ms, "data_bytes": data_bytes} | whole


@given(st.lists(COMMAND, max_size=40))
# a command without a length, at the instant at which the next run begins, or the next connection
@example([command(0, 10), command(500, 0), command(500, 10)])
@example([command(0, 10), command(500, 10), command(500, 0)])
@example([command(0, 10), command(0, 0, 1), command(0, 10, 1), command(300, 0, 1), command(300, 10, 1)])
# and one between two runs
@example([command(0, 10), command(200, 0), command(500, 10)])
# two sizes with as many bytes
@example([command(0, 10), command(10, 10, data_bytes=2), command(20, 10, data_bytes=2)])
def test_runs_of_all_connections_against_a_loop(drawn: list[Row]) -> None:
    rows = [
        {
            "cycle": number,
            "connection": each["connection"],
            "session": each["connection"],
            "operation": "write" if each["is_write"] else "read",
            "is_write": each["is_write"],
            "data_bytes": each["data_bytes"],
            "is_complete": each["is_complete"],
            "command_first_ns": each["begin_ms"] * MS,
            "status_ns": (each["begin_ms"] + each["length_ms"]) * MS if each["has_status"] else None,
        }
        for number, each in enumerate(drawn)
    ]
    connections = [{"connection": number, "session": number, "is_iscsi": number != 2} for number in range(4)]
    made = {
        "cycles": table("cycles", *rows),
        "connections": table("connections", *connections),
        "sessions": table("sessions"),
        "senders": table("senders", *({"connection": number, "line": number % 2} for number in range(4))),
    }
    found = [
        (
            *(run.connection, run.operation, run.block_bytes, run.bytes, run.busy_ns),
            *(run.first_ns, run.last_ns, run.last_row),
        )
        for run in runs.of_trace(made.__getitem__)
    ]
    assert found == [each for number in (0, 1, 3) for each in naive(rows, number)]
    assert times_by_line(made.__getitem__) == {line: naive_times(rows, line) for line in (0, 1)}


def naive(rows: list[Row], connection: int) -> Iterator[tuple[Any, ...]]:
    own = [row for row in rows if row["connection"] == connection and row["is_complete"] and row["data_bytes"]]
    own = sorted(own, key=lambda row: row["command_first_ns"])
    null = np.iinfo(np.int64).min
    begins = np.array([row["command_first_ns"] for row in own], dtype=np.int64)
    ends = np.array([null if row["status_ns"] is None else row["status_ns"] for row in own], dtype=np.int64)
    starts, stops = merged(begins, ends)
    if not len(starts):
        return
    gaps = starts[1:] - stops[:-1]
    usual = float(np.percentile(gaps, 75, method="lower")) if len(gaps) >= 3 else 0.0
    breaks = starts[1:][gaps > max(100 * MS, 10 * usual)]
    for part in np.split(np.arange(len(own)), np.searchsorted(begins, breaks)):
        run = [own[place] for place in part]
        by_operation = {word: [row for row in run if row["operation"] == word] for word in ("read", "write")}
        moved = {word: sum(row["data_bytes"] for row in of) for word, of in by_operation.items()}
        operation = "write" if moved["write"] > moved["read"] else "read"
        of_size: dict[int, int] = {}
        for row in by_operation[operation]:
            of_size[row["data_bytes"]] = of_size.get(row["data_bytes"], 0) + row["data_bytes"]
        block = min(size for size in of_size if of_size[size] == max(of_size.values()))
        work = [row for row in by_operation[operation] if 4 * row["data_bytes"] >= block]
        work_ends = [null if row["status_ns"] is None else row["status_ns"] for row in work]
        work_begins = [row["command_first_ns"] for row in work]
        yield (
            *(connection, operation, block, sum(row["data_bytes"] for row in work)),
            union_length(np.array(work_begins), np.array(work_ends)),
            *(min(work_begins), max(work_ends), work[work_ends.index(max(work_ends))]["cycle"]),
        )


def naive_times(rows: list[Row], line: int) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for session in (line, line + 2):
        own = [row for row in rows if row["session"] == session and row["data_bytes"] and row["status_ns"] is not None]
        if own:
            times = [(row["command_first_ns"], row["status_ns"]) for row in own]
            found[session] = min(first for first, _ in times), max(last for _, last in times)
    return found
