"""A recorded capture as if it had been built: its PDUs, tasks and packets, taken from the whole capture's tables.

test_captures.py checks the tables of the whole capture; here they are the truth for captures thinned from it.
Connections keep the numbers of the whole capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.support.capture_file import Record
from tests.support.conversation import Capture, TaskRecord
from tests.support.pdu import DATA_OUT, RESERVED_TAG, SCSI_COMMAND, Pdu, Task
from tests.support.transport import ACK, Packet, Path

if TYPE_CHECKING:
    from iscsitrace import Trace


class RecordedTask(Task):
    """A task from its row of the table of cycles."""

    row: dict[str, Any]

    @classmethod
    def of(cls, row: dict[str, Any]) -> RecordedTask:
        """The task of that row."""
        task = cls(row["operation"], row["lba"] or 0, row["block_count"] or 0, row["lun"] or 0, row["status"] or 0)
        object.__setattr__(task, "row", row)
        return task

    @property
    def cdb(self) -> bytes:
        """The known part: its first byte."""
        return bytes([self.row["cdb_opcode"]]).ljust(16, b"\0")

    @property
    def addressed(self) -> tuple[int | None, int | None]:
        """Logical block address and number of blocks in the CDB."""
        return self.row["lba"], self.row["block_count"]

    @property
    def is_read(self) -> bool:
        """The R bit."""
        return bool(self.row["is_read"])

    @property
    def is_write(self) -> bool:
        """The W bit."""
        return bool(self.row["is_write"])

    @property
    def expected_data_transfer_length(self) -> int:
        """Bytes to transfer."""
        return int(self.row["bytes"] or 0)


def as_built(trace: Trace, records: Sequence[Record]) -> Capture:
    """A capture like the builder's from the tables `pdus` and `segments` of the whole one, and its records."""
    tasks = {
        row["cycle"]: TaskRecord(
            row["cycle"], row["session"] or 0, row["connection"], row["initiator_task_tag"], RecordedTask.of(row)
        )
        for row in trace.cycles.rows()
    }
    has_digest = {
        row["connection"]: (row["header_digest"] == "crc32c", row["data_digest"] == "crc32c")
        for row in trace.connections.rows()
    }
    pdus = []
    for row in trace.pdus.rows():
        header_digest, data_digest = has_digest[row["connection"]]
        # digests begin after the login; no task does before
        header_digest &= row["header_digest_ok"] is not None
        data_digest &= row["data_digest_ok"] is not None
        length = 48 + 4 * header_digest + -(-row["data_segment_length"] // 4) * 4 + 4 * data_digest
        pdu = Pdu(
            row["connection"],
            bool(row["to_target"]),
            row["opcode"],
            row["initiator_task_tag"],
            row["stream_offset_bytes"],
            length,
            row["data_segment_length"],
            header_digest,
            data_digest,
            bool(row["is_final"]),
            row["cycle"],
            row["opcode"] == DATA_OUT and row["target_transfer_tag"] != RESERVED_TAG,
            bool(row["has_status"]),
        )
        pdus.append(pdu)
        if row["cycle"] is not None and row["opcode"] <= 0x31:
            tasks[row["cycle"]].pdus.append(pdu)
    packets = {}
    for row in trace.segments.rows():
        record = records[row["frame"] - 1]
        packets[row["frame"]] = Packet(
            record.time_ns,
            record.data,
            record.original_length,
            row["connection"],
            bool(row["to_target"]),
            row["stream_offset_bytes"],
            row["payload_bytes"],
            record.original_length - row["payload_bytes"],
            row["ack_offset_bytes"] if row["flags"] & ACK else None,
            row["flags"],
            row["segment_class"] == "retransmission",
            row["segment_class"] == "copy",
        )
    # frames of no iSCSI connection stand where they stood, so that frame numbers agree
    whole = [
        packets.get(frame) or Packet(record.time_ns, record.data, record.original_length, -1, True, 0, 0, 0, None, 0)
        for frame, record in enumerate(records, 1)
    ]
    commanded = [task for task in tasks.values() if any(pdu.opcode == SCSI_COMMAND for pdu in task.pdus)]
    return Capture(Path(), whole, pdus, commanded, 0)
