"""Events of exchanges: NOPs without an answer, task management, Reject, Asynchronous Message, and broken rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.events.batch import Batch, texts
from iscsitrace.events.capture import ENDS, EventSource
from iscsitrace.measure.capture_health import may_lack_pdus
from iscsitrace.measure.nops import awaited_until, is_late
from iscsitrace.measure.violations import Violated, violated
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table, null_value
from iscsitrace.wording import amounts
from iscsitrace.wording.rules import pdu_type
from iscsitrace.wording.scsi_names import operation_name

Array = NDArray[Any]

ABORTING: Final = (1, 2, 4, 5, 6, 7)
"""Functions of task management that end commands (RFC 7143 section 11.5.1)."""
_ASYNC_SEVERITIES: Final = {0: "warning", 1: "warning", 2: "error", 3: "error", 4: "info", 255: "info"}
"""By AsyncEvent (RFC 7143 section 11.9.1)."""


def events(capture: EventSource) -> Iterator[Batch]:
    """All of them."""
    yield _nops(capture)
    yield _task_management(capture)
    yield _rejects(capture)
    yield _messages(capture)
    yield _violations(capture)


def _own(capture: EventSource, table: Table) -> dict[str, Array]:
    connections = table.raw("connection")
    return {"session": capture.session_of(connections), "connection": connections}


def _nops(capture: EventSource) -> Batch:
    nops = capture.table("nops")
    nops = nops.select(nops.raw("is_ping"))
    connections = nops.raw("connection")
    is_lacking = may_lack_pdus(lambda name: capture.of_connection(name, connections))
    last = np.where(is_lacking, 0, capture.of_connection("time_last_ns", connections))
    late = nops.select(is_late(nops, last))
    whole = capture.of_connection("time_last_ns", late.raw("connection"))
    until = awaited_until(late, whole, _closed_ns(capture, late))
    # what is sent with the FIN has no time to be answered
    had_time = (until > late.raw("request_ns")) | known(late, "response_ns")
    late, whole, until = late.select(had_time), whole[had_time], until[had_time]
    has_answer = known(late, "response_ns")

    def word(is_from_initiator: bool, has_answer: bool, is_closed: bool) -> str:
        what, sender = ("NOP-Out", "initiator") if is_from_initiator else ("NOP-In", "target")
        if has_answer:
            return f"{what} answered too late"
        return f"{what} without an answer" + (f" until the {sender} closed the connection" if is_closed else "")

    return Batch(
        "nop_timeout",
        late.raw("request_ns"),
        texts(word, late.raw("is_from_initiator"), has_answer, until < whole),
        frame=late.raw("request_frame"),
        end_ns=np.where(has_answer, late.raw("response_ns"), until),
        **_own(capture, late),
    )


def _closed_ns(capture: EventSource, nops: Table) -> Array:
    """The first FIN or RST of the sender of each NOP; the largest int64 where there is none."""
    rows = capture.connections.select(capture.row_of(nops.raw("connection")))
    closed = {
        direction: np.minimum.reduce(
            [np.where(known(rows, name), rows.raw(name), _NEVER) for name in ENDS if name.endswith(f"{direction}_ns")]
        )
        for direction in ("to_target", "to_initiator")
    }
    return np.asarray(np.where(nops.raw("is_from_initiator"), closed["to_target"], closed["to_initiator"]))


_NEVER: Final = np.iinfo(np.int64).max


def _task_management(capture: EventSource) -> Batch:
    rows, cycles = capture.table("task_management"), capture.table("cycles")
    rows = rows.select(known(rows, "request_ns"))
    has_cycle = known(rows, "referenced_cycle")
    places = np.searchsorted(cycles.raw("cycle"), rows.raw("referenced_cycle")[has_cycle])
    operations = np.full(len(rows), "", dtype=object)
    operations[has_cycle] = [operation_name(name) for name in cycles.select(places)["operation"].tolist()]
    # how long the command had waited, in tenths of a second, so that commands of one batch have one text
    waits = np.full(len(rows), -1, dtype=np.int64)
    waits[has_cycle] = (rows.raw("request_ns")[has_cycle] - cycles.raw("command_first_ns")[places]) // 100_000_000
    has_answer = known(rows, "response_ns")

    def word(function: str, operation: str, wait: int, has_response: bool, response: str) -> str:
        text = function
        if operation:
            text += f" of {operation}"
            text += f" after {amounts.time(wait * 1e8)}" if wait > 0 else ""
        return f"{text}: {response or 'function rejected'}" if has_response else f"{text}: no response"

    return Batch(
        "task_management",
        rows.raw("request_ns"),
        texts(word, rows.raw("function_text"), operations, waits, has_answer, rows.raw("response_text")),
        frame=rows.raw("request_frame"),
        end_ns=rows.raw("response_ns"),
        lun=rows.raw("lun"),
        cycle=rows.raw("referenced_cycle"),
        severity=np.where(np.isin(rows.raw("function"), ABORTING), "error", "warning"),
        **_own(capture, rows),
    )


def _rejects(capture: EventSource) -> Batch:
    rows = capture.table("rejects")
    rows = rows.select(known(rows, "time_ns"))
    no_opcode = null_value("uint8")

    def word(opcode: int, reason: str) -> str:
        what = "PDU" if opcode == no_opcode else pdu_type(opcode)
        return f"the target rejected a {what}: {reason}"

    return Batch(
        "reject",
        rows.raw("time_ns"),
        texts(word, rows.raw("rejected_opcode"), rows.raw("reason_text")),
        frame=rows.raw("frame"),
        **_own(capture, rows),
    )


def _messages(capture: EventSource) -> Batch:
    rows = capture.table("asyncs")
    rows = rows.select(known(rows, "time_ns"))
    return Batch(
        "async_message",
        rows.raw("time_ns"),
        texts(lambda text: f"Asynchronous Message: {text}", rows.raw("event_text")),
        frame=rows.raw("frame"),
        lun=rows.raw("lun"),
        severity=np.array([_ASYNC_SEVERITIES.get(code, "info") for code in rows.raw("event").tolist()], dtype=object),
        **_own(capture, rows),
    )


def _violations(capture: EventSource) -> Batch:
    """One event of each rule, side and connection."""
    found = [each for each in violated(capture.table("violations"), {}) if each.time_ns is not None]
    columns = ("time_ns", "until_ns", "frame", "connection", "cycle")
    rows = [
        (each.time_ns, each.until_ns, (*each.frames, None)[0], each.connection, (*each.cycles, None)[0])
        for each in found
    ]
    values = dict(zip(columns, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(columns, ())
    connections = _numbers(values["connection"], "uint32")
    return Batch(
        "protocol_violation",
        _numbers(values["time_ns"], "int64"),
        np.array([_broken(each) for each in found], dtype=object),
        frame=_numbers(values["frame"], "uint64"),
        end_ns=_numbers(values["until_ns"], "int64"),
        session=capture.session_of(connections),
        connection=connections,
        cycle=_numbers(values["cycle"], "uint32"),
        severity=np.array([each.rule.severity for each in found], dtype=object),
    )


def _numbers(values: Iterable[int | None], dtype: str) -> Array:
    null = null_value(dtype)
    return np.array([null if each is None else each for each in values], dtype=dtype)


def _broken(each: Violated) -> str:
    often = f", {each.count:,} times" if each.count > 1 else ""
    return f"{each.what[0].lower()}{each.what[1:]} (rule {each.rule.name}{often})"
