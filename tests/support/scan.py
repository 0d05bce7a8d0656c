"""The scan of a logical unit: what the initiator asks, and what the target says of it (SPC-4)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.pdu import Task

ALUA_CODES = {"active_optimized": 0, "active_non_optimized": 1, "standby": 2, "unavailable": 3}


@dataclass(frozen=True)
class Said(Task):
    """A command without write data, and what the target answers."""

    operation: str = "inquiry"
    command: bytes = b""
    answer: bytes = b""

    @property
    def cdb(self) -> bytes:
        """The command descriptor block, 16 bytes."""
        return self.command.ljust(16, b"\0")

    @property
    def is_read(self) -> bool:
        """Always."""
        return True

    @property
    def expected_data_transfer_length(self) -> int:
        """All of the answer."""
        return len(self.answer)


def scan(
    lun: int = 0, *, naa: str | None = None, serial: str | None = None, group: int = 1, states: Mapping[int, str] = {}
) -> list[Task]:
    """INQUIRY, the VPD pages of these identities, and the ALUA states by target port group."""
    inquiry = bytes([0, 0, 6, 2, 31, 0x10, 0, 2]) + b"ACME    DISK            1.0 "
    found: list[Task] = [Said(lun=lun, command=_inquiry(None), answer=inquiry)]
    if serial is not None:
        found.append(Said(lun=lun, command=_inquiry(0x80), answer=_page(0x80, serial.encode())))
    if naa is not None:
        name = bytes.fromhex(naa.removeprefix("naa."))
        # the name of the logical unit; relative port and group of the target port
        designators = bytes([1, 3, 0, len(name)]) + name
        designators += bytes([1, 0x94, 0, 4, 0, 0, 0, group]) + bytes([1, 0x95, 0, 4, 0, 0, 0, group])
        found.append(Said(lun=lun, command=_inquiry(0x83), answer=_page(0x83, designators)))
    if states:
        groups = b"".join(bytes([ALUA_CODES[state], 0x0F, 0, each, 0, 0, 0, 0]) for each, state in states.items())
        answer = struct.pack("!I", len(groups)) + groups
        command = bytes([0xA3, 0x0A]) + bytes(4) + struct.pack("!I", len(answer)) + bytes(2)
        found.append(Said("report_target_port_groups", lun=lun, command=command, answer=answer))
    return found


def _inquiry(page: int | None) -> bytes:
    return struct.pack("!BBBHB", 0x12, page is not None, page or 0, 255, 0)


def _page(code: int, body: bytes) -> bytes:
    return struct.pack("!BBH", 0, code, len(body)) + body
