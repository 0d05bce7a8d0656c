"""Names of SCSI codes, as the standards have them: status, service response, reservations, asymmetric access states.

Sense keys and additional sense codes are in sense.py; which status is a problem, in command_status.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

GOOD: Final = 0x00
CHECK_CONDITION: Final = 0x02


@cache
def statuses() -> Mapping[int, str]:
    """Name of each SCSI status (SAM-5 table of status codes), from core/wire; 10h, 14h and 22h are obsolete."""
    from iscsitrace import _core

    return _core.STATUSES


SERVICE_RESPONSES: Final = {0x00: "command completed at target", 0x01: "target failure"}
"""iSCSI service response of a SCSI Response (RFC 7143 section 11.4.3); 80h to FFh are vendor specific. The status is
valid only with 0."""

RESERVE_ACTIONS: Final = {
    0x00: "REGISTER",
    0x01: "RESERVE",
    0x02: "RELEASE",
    0x03: "CLEAR",
    0x04: "PREEMPT",
    0x05: "PREEMPT AND ABORT",
    0x06: "REGISTER AND IGNORE EXISTING KEY",
    0x07: "REGISTER AND MOVE",
    0x08: "REPLACE LOST RESERVATION",
}
"""Service actions of PERSISTENT RESERVE OUT (SPC-5)."""

RESERVATION_TYPES: Final = {
    0x1: "Write Exclusive",
    0x3: "Exclusive Access",
    0x5: "Write Exclusive - Registrants Only",
    0x6: "Exclusive Access - Registrants Only",
    0x7: "Write Exclusive - All Registrants",
    0x8: "Exclusive Access - All Registrants",
}
"""Types of a persistent reservation (SPC-5)."""

ACCESS_STATES: Final = {
    0x0: "active/optimized",
    0x1: "active/non-optimized",
    0x2: "standby",
    0x3: "unavailable",
    0x4: "logical block dependent",
    0xE: "offline",
    0xF: "transitioning",
}
"""Asymmetric access states of a target port group (ALUA; SPC-5, REPORT TARGET PORT GROUPS)."""


def name(names: Mapping[int, str], code: int) -> str:
    """The name of a code, or the code in hexadecimal: ``BUSY``, ``0x23``."""
    return names.get(code, f"{code:#04x}")


def operation_name(operation: str | None, opcode: int | None = None) -> str:
    """An operation of the table ``cycles`` as the standards spell it: ``WRITE SAME``; else by its CDB's first byte."""
    if operation is not None and operation != "other":
        return operation.replace("_", " ").upper()
    return "a command" if opcode is None or operation is None else f"command {opcode:02X}h"
