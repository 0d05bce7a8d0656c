"""Names of SCSI codes, as the standards have them: status and service response; and of operations.

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


def name(names: Mapping[int, str], code: int) -> str:
    """The name of a code, or the code in hexadecimal: ``BUSY``, ``0x23``."""
    return names.get(code, f"{code:#04x}")


def operation_name(operation: str | None, opcode: int | None = None) -> str:
    """An operation of the table ``cycles`` as the standards spell it: ``WRITE SAME``; else by its CDB's first byte."""
    if operation is not None and operation != "other":
        return operation.replace("_", " ").upper()
    return "a command" if opcode is None or operation is None else f"command {opcode:02X}h"
