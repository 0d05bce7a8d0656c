"""The tables that the core stores, as it declares them in ``core/trace/src/tables/``."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Column, Declaration


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
