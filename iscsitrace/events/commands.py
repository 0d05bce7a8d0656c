"""Events of commands: statuses other than GOOD with their sense data in words, and commands without a status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.events.batch import Batch, texts
from iscsitrace.events.capture import LONG_NS, EventSource
from iscsitrace.measure.data_commands import is_operation
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table
from iscsitrace.wording import command_status
from iscsitrace.wording.scsi_names import CHECK_CONDITION, operation_name

Array = NDArray[Any]

_KINDS: Final = {CHECK_CONDITION: "check_condition", 0x08: "busy", 0x18: "reservation_conflict", 0x28: "task_set_full"}
"""By status; all others are command_failed."""
_CODES: Final = CATEGORIES["ended_by"]
_CAPTURE_END: Final = _CODES.index("capture_end")


def events(capture: EventSource) -> Iterator[Batch]:
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
        **_own(rows),
    )
