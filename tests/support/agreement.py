"""Compares the tables of a trace with the truth and lists every difference; an empty list means agreement.

Rows are matched by position, never by compared values: a PDU by connection, direction and stream offset, a cycle by the
frame of its command. Connections are matched by the initiator's port.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.support.pdu import LOGIN_REQUEST, LOGIN_RESPONSE
from tests.support.truth import Seen, SeenPdu

if TYPE_CHECKING:
    from iscsitrace import Trace

FIRST_PORT = 40_000
Row = dict[str, Any]
Place = tuple[int, bool, int]


def connection_numbers(trace: Trace) -> dict[int, int]:
    """The number of a connection in the trace -> its number in a conversation."""
    return {row["connection"]: row["initiator_port"] - FIRST_PORT for row in trace.connections.rows()}


def pdu_rows(trace: Trace, seen: Seen, numbers: dict[int, int]) -> dict[Place, Row]:
    """The rows of the table of PDUs by their position in the conversation.

    A stream without a captured SYN has no known start: its offsets are shifted by the most frequent difference of its
    rows, so that one wrong row stays wrong.
    """
    known = {
        (pdu.pdu.connection, pdu.pdu.to_target, pdu.frame_first, pdu.pdu.opcode): pdu.pdu.stream_offset
        for pdu in reversed(seen.pdus)
    }
    shifts: dict[tuple[int, bool], Counter[int]] = {}
    rows = list(trace.pdus.rows())
    for row in rows:
        stream = (numbers.get(row["connection"], -1), bool(row["to_target"]))
        offset = known.get((*stream, row["frame_first"], row["opcode"]))
        if offset is not None:
            shifts.setdefault(stream, Counter())[offset - row["stream_offset_bytes"]] += 1
    by_place: dict[Place, Row] = {}
    for row in rows:
        stream = (numbers.get(row["connection"], -1), bool(row["to_target"]))
        shift = shifts[stream].most_common(1)[0][0] if stream in shifts else 0
        place = (*stream, row["stream_offset_bytes"] + shift)
        assert place not in by_place, f"two PDUs at {place}"
        by_place[place] = row
    return by_place


def false_pdus(trace: Trace, seen: Seen, numbers: dict[int, int] | None = None) -> list[str]:
    """PDUs of the trace that were never sent: wrong position, or another opcode, tag or length there."""
    truth = {_place(pdu): pdu.pdu for pdu in seen.pdus}
    numbers = connection_numbers(trace) if numbers is None else numbers
    wrong = []
    for place, row in pdu_rows(trace, seen, numbers).items():
        pdu = truth.get(place)
        if pdu is None:
            wrong.append(f"no PDU at {place}: opcode {row['opcode']:#x} frame {row['frame_first']}")
            continue
        if row["opcode"] != pdu.opcode or row["data_segment_length"] != pdu.data_segment_length:
            wrong.append(f"PDU at {place} is {pdu.opcode:#x}/{pdu.data_segment_length}: {row['opcode']:#x}")
        if row["initiator_task_tag"] not in (None, pdu.initiator_task_tag):
            wrong.append(f"tag at {place} is {pdu.initiator_task_tag}, not {row['initiator_task_tag']}")
    return wrong


def false_cycles(trace: Trace, seen: Seen, numbers: dict[int, int] | None = None) -> list[str]:
    """Cycles of the trace whose command was never sent, or was sent elsewhere."""
    numbers = connection_numbers(trace) if numbers is None else numbers
    truth = {
        (
            cycle.columns["connection"],
            cycle.columns["command_frame"],
            cycle.columns["initiator_task_tag"],
        ): cycle.columns
        for cycle in seen.cycles
    }
    wrong = []
    for row in trace.cycles.rows():
        key = (numbers.get(row["connection"]), row["command_frame"], row["initiator_task_tag"])
        if key not in truth:
            wrong.append(f"no command at {key}")
            continue
        for name in ("lun", "bytes", "lba", "status", "operation", "is_read", "is_write"):
            # what was not captured may be unknown, but not different
            if row[name] is not None and row[name] != truth[key][name]:
                wrong.append(f"{name} of {key} is {truth[key][name]}, not {row[name]}")
    return wrong


def pdu_differences(trace: Trace, seen: Seen) -> list[str]:
    """Every difference between the table of PDUs and a capture that has all of them."""
    rows = pdu_rows(trace, seen, connection_numbers(trace))
    differences = [f"missing: {pdu.pdu}" for pdu in seen.pdus if pdu.has_header and _place(pdu) not in rows]
    differences += false_pdus(trace, seen)
    for pdu in seen.pdus:
        row = rows.get(_place(pdu))
        if row is None:
            continue
        sent = pdu.pdu
        expected: Row = {
            "frame_first": pdu.frame_first,
            "frame_last": pdu.frame_last,
            "time_first_ns": pdu.time_first_ns,
            "time_last_ns": pdu.time_last_ns,
            "is_final": sent.is_final,
            "has_status": sent.has_status,
            "has_capture_gap": pdu.has_capture_gap,
            **sent.fields,
        }
        if pdu.has_header and sent.opcode not in (LOGIN_REQUEST, LOGIN_RESPONSE):
            expected["initiator_task_tag"] = sent.initiator_task_tag
        for name, value in expected.items():
            if row[name] != value:
                differences.append(f"{name} of {sent.opcode:#x} at {_place(pdu)} is {value}, not {row[name]}")
    return differences


def digest_differences(trace: Trace, seen: Seen) -> list[str]:
    """Every PDU whose digests are not reported as sent (all correct), in a capture that has all bytes."""
    rows = pdu_rows(trace, seen, connection_numbers(trace))
    differences = []
    for pdu in seen.pdus:
        row = rows.get(_place(pdu))
        if row is None:
            continue
        expected = (1 if pdu.pdu.has_header_digest else None, 1 if pdu.pdu.has_data_digest else None)
        found = (row["header_digest_ok"], row["data_digest_ok"])
        if found != expected:
            differences.append(f"digests at {_place(pdu)} are {expected}, not {found}")
    return differences


def cycle_differences(trace: Trace, seen: Seen, *, without: frozenset[str] = frozenset()) -> list[str]:
    """Every difference between the table of cycles and the captured commands."""
    numbers = connection_numbers(trace)
    truth = [cycle for cycle in seen.cycles if cycle.columns["command_frame"] is not None]
    truth.sort(key=lambda cycle: (cycle.columns["command_frame"], cycle.record.number))
    rows = list(trace.cycles.rows())
    differences = [] if len(rows) == len(truth) else [f"{len(truth)} tasks, not {len(rows)}"]
    found = {(numbers[row["connection"]], row["command_frame"], row["initiator_task_tag"]): row for row in rows}
    for cycle in truth:
        key = (cycle.record.connection, cycle.columns["command_frame"], cycle.record.initiator_task_tag)
        row = found.get(key)
        if row is None:
            differences.append(f"missing: task {cycle.record.number} {key}")
            continue
        for name, value in cycle.columns.items():
            if name not in without | {"connection"} and row[name] != value:
                differences.append(f"{name} of task {cycle.record.number} is {value}, not {row[name]}")
    return differences


def _place(pdu: SeenPdu) -> Place:
    return (pdu.pdu.connection, pdu.pdu.to_target, pdu.pdu.stream_offset)
