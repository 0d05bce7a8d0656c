"""SCSI tasks, iSCSI PDUs and their data for the builder of captures.

Written from the RFC's figures, independent of the program under test. It encodes only data and digests.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from functools import lru_cache

NOP_OUT, SCSI_COMMAND, LOGIN_REQUEST, DATA_OUT, LOGOUT_REQUEST = 0x00, 0x01, 0x03, 0x05, 0x06
NOP_IN, SCSI_RESPONSE, LOGIN_RESPONSE, DATA_IN, LOGOUT_RESPONSE, R2T = 0x20, 0x21, 0x23, 0x25, 0x26, 0x31
RESERVED_TAG = 0xFFFFFFFF
BLOCK_BYTES = 512


OTHERS = {
    "test_unit_ready": (0x00, 0),
    "verify": (0x2F, 0),
    "synchronize_cache": (0x35, 0),
    "unmap": (0x42, 24),
    "persistent_reserve_out": (0x5F, 24),
    "extended_copy": (0x83, 48),
    "compare_and_write": (0x89, 1024),
    "write_same": (0x93, 512),
    "vendor_specific": (0xC1, 0),
    "vendor_specific_write": (0xC1, 512),
}
"""Operation code, and bytes sent with it, of further commands."""


@dataclass(frozen=True)
class Task:
    """One SCSI task to execute."""

    operation: str = "read"
    lba: int = 0
    block_count: int = 128
    lun: int = 0
    status: int = 0
    service_ns: int | None = None
    """What the target takes for it, if it reads; as the settings say where nothing is given."""

    @property
    def cdb(self) -> bytes:
        """The command descriptor block, 16 bytes."""
        if self.operation in ("read", "write"):
            opcode = 0x28 if self.operation == "read" else 0x2A
            cdb = struct.pack("!BBIBHB", opcode, 0, self.lba, 0, self.block_count, 0)
        elif self.operation == "inquiry":
            cdb = struct.pack("!BBBHB", 0x12, 0, 0, 36, 0)
        elif self.operation == "read_capacity":
            cdb = bytes([0x25]) + bytes(9)
        else:
            cdb = bytes([OTHERS[self.operation][0]])
        return cdb.ljust(16, b"\0")

    @property
    def addressed(self) -> tuple[int | None, int | None]:
        """Logical block address and number of blocks in the CDB."""
        return (self.lba, self.block_count) if self.operation in ("read", "write") else (None, None)

    @property
    def is_read(self) -> bool:
        """Whether it transfers data from the target."""
        return self.operation in ("read", "inquiry", "read_capacity")

    @property
    def is_write(self) -> bool:
        """Whether it transfers data to the target."""
        return self.operation == "write" or (self.operation in OTHERS and self.expected_data_transfer_length > 0)

    @property
    def expected_data_transfer_length(self) -> int:
        """Bytes to transfer."""
        if self.operation in ("read", "write"):
            return self.block_count * BLOCK_BYTES
        return OTHERS.get(self.operation, (0, {"inquiry": 36, "read_capacity": 8}.get(self.operation, 0)))[1]


@dataclass(frozen=True)
class Pdu:
    """One PDU that was sent: its position in its stream, and the fields in the tables."""

    connection: int
    to_target: bool
    opcode: int
    initiator_task_tag: int
    stream_offset: int
    length: int
    data_segment_length: int
    has_header_digest: bool
    has_data_digest: bool
    is_final: bool
    task: int | None = None
    """number of the task among all tasks of the conversation."""
    is_solicited: bool = False
    has_status: bool = False
    fields: dict[str, int] = field(default_factory=dict)

    @property
    def header_length(self) -> int:
        """The basic header segment."""
        return 48

    @property
    def data_end(self) -> int:
        """The position in the stream after its last data byte (padding and digest follow)."""
        return self.stream_offset + 48 + 4 * self.has_header_digest + self.data_segment_length


@lru_cache(maxsize=64)
def sectors(kind: str, lun: int, lba: int, block_count: int) -> bytes:
    """The content of these blocks of the logical unit."""
    if kind == "zeros":
        return bytes(block_count * BLOCK_BYTES)
    if kind == "random":
        return random.Random(lun << 40 | lba).randbytes(block_count * BLOCK_BYTES)  # noqa: S311
    if kind == "headers":
        # a file that itself holds recorded iSCSI, of another session: Data-In PDUs of 464 bytes, one a sector
        numbers = (0, 0x40000005, 0x40000084, 0, 0, 0)
        fields = (DATA_IN, 0x80, 0, BLOCK_BYTES - 48, 0, 0x7007, RESERVED_TAG, *numbers)
        header = struct.pack("!BBHIQIIIIIIII", *fields)
        return (header + b"nested ".ljust(BLOCK_BYTES - 48, b".")) * block_count
    assert kind == "sectors"
    text = (f"LUN {lun} LBA {lba + block:012d} " for block in range(block_count))
    return b"".join((sector * (BLOCK_BYTES // len(sector) + 1))[:BLOCK_BYTES].encode() for sector in text)


def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc32c_table()


@lru_cache(maxsize=4096)
def crc32c(data: bytes) -> bytes:
    """The digest of RFC 7143 section 13.1 on the wire (byte order as in its appendix A.4)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return struct.pack("<I", crc ^ 0xFFFFFFFF)
