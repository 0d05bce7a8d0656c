"""Events of exchanges: NOPs without an answer, task management, Reject, Asynchronous Message, and broken rules.

Of commands, statuses other than GOOD with their sense data in words, and those without a status. Findings have the same
rule for a NOP whose answer is too late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.events.capture import ENDS, LONG_NS, Batch, EventSource, texts
from iscsitrace.measure.capture_health import may_lack_pdus
from iscsitrace.measure.data_commands import is_operation
from iscsitrace.measure.violations import Violated, violated
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Array, Table, null_value
from iscsitrace.wording import amounts, command_status
from iscsitrace.wording.rules import pdu_type
from iscsitrace.wording.scsi_names import CHECK_CONDITION, operation_name

NOP_TIMEOUT_NS: Final = 5_000_000_000
"""Longest time to the answer of a NOP: open-iscsi's default of node.conn[0].timeo.noop_out_timeout."""


def awaited_until(nops: Table, last_packet_ns: NDArray[Any], closed_ns: NDArray[Any]) -> NDArray[np.int64]:
    """Until when the answer of each NOP was awaited: the last packet, or before it the FIN or RST of the NOP's sender.

    ``closed_ns`` is the time of that FIN or RST, the largest int64 where there is none.
    """
    is_after = known(nops, "request_ns") & (closed_ns >= nops.raw("request_ns"))
    return np.where(is_after, np.minimum(last_packet_ns, closed_ns), last_packet_ns)


def is_late(nops: Table, last_packet_ns: NDArray[Any]) -> NDArray[np.bool_]:
    """Which NOPs that request an answer had none for this time.

    ``last_packet_ns`` is, for each NOP, the last packet of its connection, or the end of :func:`awaited_until`; 0 where
    packets are missing from the capture: the answer can be among them.
    """
    is_ping = nops.raw("is_ping") & known(nops, "request_ns")
    until = np.where(known(nops, "response_ns"), nops.raw("response_ns"), last_packet_ns)
    # a null is the smallest int64: the difference to it would overflow
    requests = np.where(is_ping, nops.raw("request_ns"), 0)
    return np.asarray(is_ping & (until - requests >= NOP_TIMEOUT_NS))


_ABORTING: Final = (1, 2, 4, 5, 6, 7)
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
    yield from _statuses(capture.table("cycles"))
    yield _without_status(capture)


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
    waited_ns = rows.raw("request_ns")[has_cycle] - cycles.raw("command_first_ns")[places]
    waits[has_cycle] = (waited_ns + 50_000_000) // 100_000_000
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
        severity=np.where(np.isin(rows.raw("function"), _ABORTING), "error", "warning"),
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
    often = f", {each.rule.often(each.count)}" if each.count > 1 else ""
    return f"{each.what[0].lower()}{each.what[1:]} (rule {each.rule.name}{often})"


_KINDS: Final = {CHECK_CONDITION: "check_condition", 0x08: "busy", 0x18: "reservation_conflict", 0x28: "task_set_full"}
"""By status; all others are command_failed."""
_CODES: Final = CATEGORIES["ended_by"]
_CAPTURE_END: Final = _CODES.index("capture_end")


def _of_command(cycles: Table) -> dict[str, Array]:
    return {name: cycles.raw(name) for name in ("session", "connection", "lun", "cycle")}


def _statuses(cycles: Table) -> Iterator[Batch]:
    found, places = command_status.of_columns(
        *(cycles.raw(name) for name in ("status", "sense_key", "asc", "ascq")),
        response=cycles.raw("response"),
        is_read_or_write=is_operation(cycles, "read", "write"),
    )
    which = np.flatnonzero((places >= 0) & known(cycles, "status_ns"))
    if not len(which):
        return
    rows, places = cycles.select(which), places[which]
    words = cycles.words_by_code("operation")

    def word(operation: int, opcode: int, place: int) -> str:
        status = found[place]
        label = status.status_class.label
        # BUSY and the like say it themselves
        is_named = any(each in status.text.lower() for each in (label, label.removeprefix("target ")))
        return f"{operation_name(words[operation], opcode)}: {status.text}" + ("" if is_named else f", {label}")

    text = texts(word, rows.raw("operation"), rows.raw("cdb_opcode"), places)
    severities = np.array([each.severity for each in found], dtype=object)[places]
    has_response = (rows.raw("response") != 0) & known(rows, "response")
    of_row = np.full(len(rows), "command_failed", dtype=object)
    for status, kind in _KINDS.items():
        of_row[(rows.raw("status") == status) & ~has_response] = kind
    for kind in dict.fromkeys(of_row.tolist()):
        own = np.flatnonzero(of_row == kind)
        part = rows.select(own)
        yield Batch(
            kind,
            part.raw("status_ns"),
            text[own],
            frame=part.raw("status_frame"),
            severity=severities[own],
            **_of_command(part),
        )


_HOW: Final = {
    "abort": "until it was aborted",
    "reset": "until it was aborted",
    "connection_end": "when its connection ended",
    "session_end": "when its session ended",
    "capture_end": "until the capture ended",
    "rejected": "until it was rejected",
}
"""By ``ended_by``."""


def _without_status(capture: EventSource) -> Batch:
    cycles = capture.table("cycles")
    rows = cycles.select(capture.is_open & (cycles.raw("ended_by") != _CODES.index("status")))
    # a live pass has not seen the end of those in flight
    has_end = known(rows, "end_ns")
    until = np.where(has_end, rows.raw("end_ns"), capture.end_ns)
    by = np.where(has_end, rows.raw("ended_by"), _CAPTURE_END)
    which = np.flatnonzero((by != _CAPTURE_END) | (until - rows.raw("command_first_ns") >= LONG_NS))
    rows = rows.select(which)
    words = cycles.words_by_code("operation")

    def word(operation: int, opcode: int, ended_by: int) -> str:
        return f"{operation_name(words[operation], opcode)} had no status {_HOW[_CODES[ended_by]]}"

    return Batch(
        "no_status",
        rows.raw("command_first_ns"),
        texts(word, rows.raw("operation"), rows.raw("cdb_opcode"), by[which]),
        frame=rows.raw("command_frame"),
        end_ns=until[which],
        **_of_command(rows),
    )
