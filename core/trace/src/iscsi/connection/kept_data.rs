//! How much of a PDU's data segment is kept.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::opcode::Opcode;

use super::descriptions::PARAMETER_DATA_MAX;
use crate::iscsi::pdu::KEPT_DATA_MAX;

/// Data kept of a SCSI Response: SenseLength and the longest sense data.
const SENSE_BYTES_MAX: usize = 2 + 252;
/// Data kept of the start of a write, to recognise the same write on another session: one cache line, and as much of a
/// file system's block or a RAID superblock as differs between blocks (identities, counts).
pub(super) const WRITE_START_BYTES_MAX: usize = 64;

/// Bytes of data to keep of the PDU with this header, beside the start of a write.
#[inline]
pub(super) fn kept_bytes(header: Bhs<'_>, describes_unit: impl FnOnce() -> bool) -> usize {
    match header.opcode() {
        Some(Opcode::DataIn) => usize::from(describes_unit()) * PARAMETER_DATA_MAX,
        Some(Opcode::LoginRequest | Opcode::LoginResponse | Opcode::TextRequest | Opcode::TextResponse) => {
            KEPT_DATA_MAX
        }
        Some(Opcode::ScsiResponse) => SENSE_BYTES_MAX,
        Some(Opcode::Reject) => LENGTH_BYTES,
        _ => 0,
    }
}

/// Whether the PDU can carry the first data of a write.
#[inline]
pub(super) fn begins_write(header: Bhs<'_>) -> bool {
    match header.opcode() {
        Some(Opcode::ScsiCommand) => true,
        Some(Opcode::DataOut) => header.buffer_offset() == Some(0),
        _ => false,
    }
}
