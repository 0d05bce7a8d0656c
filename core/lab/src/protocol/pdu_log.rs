//! A logged PDU: its stream offset and main fields.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES, RESERVED_TAG};
use serde::{Deserialize, Serialize};

/// A PDU of either direction, for the truth file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PduRecord {
    /// Connection, counted from 0 by the caller.
    pub connection: usize,
    /// Direction.
    pub to_target: bool,
    /// Offset of its first byte in the stream of its direction.
    pub stream_offset: u64,
    /// Length in bytes, with padding and digests.
    pub length: u64,
    /// Opcode without the I bit.
    pub opcode: u8,
    /// Initiator Task Tag.
    pub initiator_task_tag: u32,
    /// DataSegmentLength.
    pub data_segment_length: u32,
    /// Operation code of the CDB, for a SCSI Command.
    pub operation_code: Option<u8>,
}

impl PduRecord {
    pub(super) fn new(
        connection: usize,
        to_target: bool,
        stream_offset: u64,
        length: u64,
        header: &[u8; LENGTH_BYTES],
    ) -> Self {
        let header = Bhs::new(header);
        Self {
            connection,
            to_target,
            stream_offset,
            length,
            opcode: header.opcode_byte().unwrap_or(0) & 0x3f,
            initiator_task_tag: header.initiator_task_tag().unwrap_or(RESERVED_TAG),
            data_segment_length: header.data_segment_length().unwrap_or(0),
            operation_code: header.cdb().map(|cdb| cdb[0]),
        }
    }
}
