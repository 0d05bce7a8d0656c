"""Events of commands: statuses other than GOOD with their sense data in words, and commands without a status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.events.batch import Batch, texts
from iscsitrace.events.capture import LONG_NS, Capture
from iscsitrace.measure.data_commands import is_operation
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.table import Table
from iscsitrace.wording import command_status
from iscsitrace.wording.scsi_names import CHECK_CONDITION, operation_name

Array = NDArray[Any]

_KINDS: Final = {CHECK_CONDITION: "check_condition", 0x08: "busy", 0x18: "reservation_conflict", 0x28: "task_set_full"}
"""By status; all others are command_failed."""
_NEVER: Final = np.iinfo(np.int64).max


def events(capture: Capture) -> Iterator[Batch]:
    """All of them."""
    yield from _statuses(capture.table("cycles"))
    yield _without_status(capture)


def _own(cycles: Table) -> dict[str, Array]:
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
            **_own(part),
        )


_ABORTED, _CLOSED, _RESET, _REPLACED, _UNTIL_END = range(5)
_HOW: Final = (
    "until it was aborted",
    "when its connection was closed",
    "when its connection was reset",
    "when its session was replaced",
    "until the capture ended",
)


def _without_status(capture: Capture) -> Batch:
    cycles = capture.table("cycles")
    rows = cycles.select(capture.is_open)
    first = rows.raw("command_first_ns")
    until = np.full(len(rows), capture.end_ns, dtype=np.int64)
    how = np.full(len(rows), _UNTIL_END, dtype=np.int8)
    connections = rows.raw("connection")
    if len(rows):
        for code, names in (
            (_CLOSED, ("fin_to_target", "fin_to_initiator")),
            (_RESET, ("rst_to_target", "rst_to_initiator")),
        ):
            for name in names:
                _earlier(until, how, capture.of_connection(f"{name}_ns", connections), first, code)
        _earlier(until, how, _replaced_ns(capture, rows.raw("session")), first, _REPLACED)
        is_aborted = rows.raw("is_aborted")
        aborts = _aborts_ns(capture, rows)
        until = np.where(is_aborted & (aborts != _NEVER), aborts, until)
        how = np.where(is_aborted, _ABORTED, how)
    which = np.flatnonzero((how != _UNTIL_END) | (until - first >= LONG_NS))
    rows = rows.select(which)
    words = cycles.words_by_code("operation")

    def word(operation: int, opcode: int, end: int) -> str:
        return f"{operation_name(words[operation], opcode)} had no status {_HOW[end]}"

    return Batch(
        "no_status",
        rows.raw("command_first_ns"),
        texts(word, rows.raw("operation"), rows.raw("cdb_opcode"), how[which]),
        frame=rows.raw("command_frame"),
        end_ns=until[which],
        **_own(rows),
    )


def _earlier(until: Array, how: Array, ends: Array, first: Array, code: int) -> None:
    """Let these ends count where they are known, after the command, and earlier than those so far."""
    is_earlier = (ends >= first) & (ends < until)
    is_earlier &= ends != _NEVER
    until[is_earlier] = ends[is_earlier]
    how[is_earlier] = code


def _replaced_ns(capture: Capture, numbers: Array) -> Array:
    """When another session took the place of each session: its first packet."""
    sessions = capture.table("sessions")
    after = sessions.select(known(sessions, "replaces"))
    ends = np.full(len(numbers), _NEVER, dtype=np.int64)
    order = np.argsort(after.raw("replaces"), kind="stable")
    replaced, firsts = after.raw("replaces")[order], after.raw("time_first_ns")[order]
    has = np.isin(numbers, replaced)
    ends[has] = firsts[np.searchsorted(replaced, numbers[has])]
    return ends


def _aborts_ns(capture: Capture, rows: Table) -> Array:
    """When each of these commands was aborted: the response to the request, or the request if there is none."""
    requests = capture.table("task_management")
    requests = requests.select(known(requests, "request_ns"))
    answered = np.where(known(requests, "response_ns"), requests.raw("response_ns"), requests.raw("request_ns"))
    ends = np.full(len(rows), _NEVER, dtype=np.int64)
    own = requests.raw("referenced_cycle")
    order = np.lexsort((answered, own))
    has = np.isin(rows.raw("cycle"), own)
    ends[has] = answered[order][np.searchsorted(own[order], rows.raw("cycle")[has])]
    # a reset refers to no command: the first of the session after it was issued
    is_reset = ~known(requests, "referenced_cycle")
    resets, issued = capture.session_of(requests.raw("connection"))[is_reset], grouped(rows.raw("session"))
    for session, own in grouped(resets).items():
        of_session = np.sort(answered[is_reset][own])
        which = issued.get(session, own[:0])
        which = which[ends[which] == _NEVER]
        later = np.searchsorted(of_session, rows.raw("command_first_ns")[which])
        is_known = later < len(of_session)
        ends[which[is_known]] = of_session[later[is_known]]
    return ends
