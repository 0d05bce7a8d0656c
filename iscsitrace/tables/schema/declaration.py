"""Columns and tables of the schema, the words of category codes, and the tables that the core stores, as it declares them
in ``core/trace/src/tables/``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from iscsitrace.wording.event_kinds import EVENT_KINDS
from iscsitrace.wording.parts import PARTS


@dataclass(frozen=True)
class Column:
    """One column of one table."""

    name: str
    dtype: str
    """NumPy dtype name (``int64``, ``uint32``, ``bool``, ``str``), or ``category:NAME`` for a uint8 code into CATEGORIES[NAME]."""
    meaning: str
    unit: str = ""
    nullable: bool = False
    source: str = ""
    """Source of the definition: a section of an RFC or of docs/method.md."""


@dataclass(frozen=True)
class Declaration:
    """One table: the meaning of a row, and its columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> Column:
        """The column with this name; KeyError if there is none."""
        if name not in self._by_name:
            raise KeyError(f"table {self.name} has no column {name}")
        return self._by_name[name]


CATEGORIES: Final[dict[str, tuple[str, ...]]] = {
    # a code is the index into the tuple; 255 is null
    "roles_from": ("syn", "login", "opcodes", "port", "first_packet"),
    "digest": ("none", "crc32c", "unknown"),
    "digest_source": ("login", "inferred", "unknown"),
    "session_type": ("normal", "discovery", "unknown"),
    "session_end": ("logout", "closed", "reset", "reinstated", "refused", "open"),
    "ended_by": ("status", "abort", "reset", "connection_end", "session_end", "capture_end", "rejected"),
    "question_kind": ("neighbor", "echo"),
    "icmp_kind": ("unreachable", "too_big", "time_exceeded", "parameter_problem"),
    "alua_state": (
        "active_optimized",
        "active_non_optimized",
        "standby",
        "unavailable",
        "lba_dependent",
        "offline",
        "transitioning",
    ),
    "parameter_source": ("negotiated", "declared", "default", "offered"),
    "side": ("initiator", "target"),
    "severity": ("info", "warning", "data_loss", "error"),
    "segment_class": ("new", "retransmission", "reordered", "copy", "probe", "empty", "outside"),
    "budget_part": tuple(part.name for part in PARTS),
    "in_flight": ("none", "other", "flush", "data"),
    "retransmission_cause": ("fast", "timeout", "tail_probe", "unknown"),
    "ack_loss": ("before_tap", "beyond_tap"),
    "congestion_control": ("reno", "cubic"),
    "release": ("acknowledgment", "window_update", "request", "own_time", "unknown"),
    "mirror_cause": (
        "round_trip",
        "r2t_rounds",
        "target_service",
        "sent_later",
        "line",
        "loss",
        "congestion_window",
        "receive_window",
        "send_buffer",
        "initiator_service",
        "ack_wait",
        "outage",
        "unknown",
    ),
    "path_verdict": ("lost_in_network", "missing_at_a", "missing_at_b", "cannot_tell"),
    "event_kind": tuple(kind.name for kind in EVENT_KINDS),
    "finding_rank": ("failure", "slowness", "note", "limit"),
    "stream_cause": ("slow_start_exit", "timeout", "low_equilibrium", "window"),
    # words of the core's tables, core/wire/src/cdb/commands.rs and core/trace/src/conformance/rules.rs: see stored.WORDS
    "operation": (),
    "rule": (),
}


def column(name: str, dtype: str, meaning: str, unit: str = "", *, null: bool = False, source: str = "") -> Column:
    """A column, nullable or not."""
    return Column(name, dtype, meaning, unit, null, source)


def _purposes() -> dict[str, str]:
    try:
        from iscsitrace import _core
    except ImportError:
        return {}
    return {row["operation"]: row["purpose"] for row in _core.scsi_commands()}


PURPOSES: Final = _purposes()
"""What each SCSI operation does for the user's data, in words of the category ``in_flight``: ``data`` reads, writes or
erases it, ``flush`` makes it permanent, ``other`` inspects or sets up the device."""


def _words() -> dict[str, tuple[str, ...]]:
    try:
        from iscsitrace import _core
    except ImportError:
        return {}
    return {"operation": tuple(_core.OPERATIONS), "rule": tuple(rule["rule"] for rule in _core.conformance_rules())}


WORDS: Final = _words()
"""The words of the categories that the core has a table of: a code is the index into the tuple."""


def _declared(of_taps: bool) -> list[tuple[Declaration, bool]]:
    """Every table of a pass, or about two taps, and whether it is filled only on request."""
    try:
        from iscsitrace import _core
    except ImportError:  # a source tree without the compiled core; reading says so, all else works
        return []
    declarations = _core.tap_table_declarations() if of_taps else _core.table_declarations()
    return [
        (Declaration(name, row, tuple(Column(*column) for column in columns)), is_on_request)
        for name, row, is_on_request, columns in declarations
    ]


_DECLARED: Final = _declared(of_taps=False)

TABLES: Final[dict[str, Declaration]] = {table.name: table for table, _ in _DECLARED}
"""Every table of a pass by name, in the order of the docs."""

ON_REQUEST: Final = frozenset(table.name for table, is_on_request in _DECLARED if is_on_request)
"""Tables that the pass fills only on request: they grow with packets or PDUs, or cost time."""

DEFAULT_TABLES: Final = tuple(name for name in TABLES if name == "pdus" or name not in ON_REQUEST)
"""The tables that are written when none are named; those on TCP and time must be named."""

TAP_TABLES: Final[dict[str, Declaration]] = {table.name: table for table, _ in _declared(of_taps=True)}
"""Every table about two captures of the same traffic (tap_join.py) by name, in the order of the docs."""
