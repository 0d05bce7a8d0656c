//! How much of a PDU's data segment is kept, and for what.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::opcode::Opcode;

use super::IscsiConnection;

/// Data kept of a login, text or other PDU whose content is looked at.
const KEPT_TEXT_MAX: usize = 64 << 10;
/// Data kept of a SCSI Response: SenseLength and the longest sense data.
const KEPT_SENSE_MAX: usize = 2 + 252;
/// Data kept of a write to tell it from another: what a fast processor looks up at once, and as much of a file system's
/// block or a RAID's superblock as differs from others (identities, counts).
pub(super) const KEPT_START_MAX: usize = 64;

impl IscsiConnection {
    /// Bytes of a PDU's data to keep.
    #[inline]
    pub(super) fn keeps_data(&self, header: Bhs<'_>) -> usize {
        match header.opcode() {
            Some(Opcode::DataIn) => {
                let task = header.initiator_task_tag().and_then(|tag| self.tasks.get(&tag));
                usize::from(task.is_some_and(|task| task.is_standard_inquiry))
            }
            Some(Opcode::LoginRequest | Opcode::LoginResponse | Opcode::TextRequest | Opcode::TextResponse) => {
                KEPT_TEXT_MAX
            }
            Some(Opcode::ScsiResponse) => KEPT_SENSE_MAX,
            Some(Opcode::Reject) => LENGTH_BYTES,
            _ => 0,
        }
    }
}

/// Whether the data of a PDU are the first of a write.
#[inline]
pub(super) fn begins_write(header: Bhs<'_>) -> bool {
    match header.opcode() {
        Some(Opcode::ScsiCommand) => true,
        Some(Opcode::DataOut) => header.buffer_offset() == Some(0),
        _ => false,
    }
}
