//! SCSI command descriptor blocks: operation, service action, LBA, number of blocks.
//!
//! Covers the commands of SPC, SBC, MMC, SSC and SMC that operating systems send. Never decides the data direction (the
//! R and W bits of the SCSI Command PDU do), and never converts blocks to bytes (the block length is the volume's).

mod commands;
#[cfg(test)]
mod tests;

pub use commands::{Access, COMMANDS, Command, DISK, Needs, Operation, Purpose, Support};
use commands::{Layout, STARTS};

/// A decoded CDB, as far as it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb {
    /// The operation, without the length of the CDB.
    pub operation: Operation,
    /// First logical block; `None` for commands without an LBA, such as those of tapes, and when it was not captured.
    pub lba: Option<u64>,
    /// Number of blocks in the field. The meaning of 0 depends on the command (no blocks for READ(10), to the end for
    /// SYNCHRONIZE CACHE and WRITE SAME); in READ(6) and WRITE(6) of a block device 0 means 256 (SBC).
    pub block_count: Option<u32>,
    /// Service action, of operation codes that have one.
    pub service_action: Option<u16>,
    /// Type of the reservation that PERSISTENT RESERVE OUT makes, releases or preempts (SPC-4, PERSISTENT RESERVE OUT).
    pub reservation_type: Option<u8>,
    /// T10's name with the length of the CDB, such as `READ(10)`.
    pub name: &'static str,
}

/// The upper bits of the LBA of a six-byte CDB, in byte 1; above them was the LUN in SCSI-2.
const SIX_LBA_BITS: u8 = 0x1f;
/// Operation code of PERSISTENT RESERVE OUT.
const PERSISTENT_RESERVE_OUT: u8 = 0x5f;

impl Command {
    /// Length of the CDB, by the group code: the upper three bits of the operation code (SPC-4). None if it varies.
    #[must_use]
    pub const fn length(&self) -> Option<usize> {
        match self.code >> 5 {
            0 => Some(6),
            1 | 2 => Some(10),
            4 => Some(16),
            5 => Some(12),
            _ => None,
        }
    }

    /// CDB usage data of REPORT SUPPORTED OPERATION CODES: the operation code, then a mask of the bits that our target
    /// evaluates. As long as the CDB (SPC-4).
    #[must_use]
    pub fn usage(&self) -> Option<Vec<u8>> {
        let mut usage = vec![0; self.length()?];
        let fields = [self.lba_field(), self.block_count_field()];
        for (first, length) in fields.into_iter().flatten() {
            usage.iter_mut().skip(first).take(length).for_each(|byte| *byte = 0xff);
        }
        let (code, rest) = usage.split_first_mut()?;
        *code = self.code;
        if matches!(self.layout, Layout::Six) {
            rest.iter_mut().take(1).for_each(|byte| *byte &= SIX_LBA_BITS);
        }
        rest.iter_mut().zip(self.support?.bits).for_each(|(byte, bits)| *byte |= bits);
        let action = self.service_action.unwrap_or(0) as u8;
        rest.iter_mut().take(1).for_each(|byte| *byte |= action);
        Some(usage)
    }

    /// First byte and length in bytes of the LBA. The upper 3 bits of a 6-byte CDB's are not part of it.
    #[must_use]
    pub const fn lba_field(&self) -> Option<(usize, usize)> {
        match self.layout {
            Layout::None | Layout::TapeSix | Layout::TapeSixteen => None,
            Layout::Six | Layout::SixLba => Some((1, 3)),
            Layout::Lba(first, length) | Layout::Range(first, length, ..) => Some((first, length)),
        }
    }

    /// First byte and length in bytes of the number of blocks. In READ(6) and WRITE(6) of a disk 0 means 256; a tape's
    /// counts blocks only when the FIXED bit is set.
    #[must_use]
    pub const fn block_count_field(&self) -> Option<(usize, usize)> {
        match self.layout {
            Layout::None | Layout::SixLba | Layout::Lba(..) => None,
            Layout::Six => Some((4, 1)),
            Layout::TapeSix => Some((2, 3)),
            Layout::TapeSixteen => Some((12, 3)),
            Layout::Range(_, _, first, length) => Some((first, length)),
        }
    }

    fn lba(&self, cdb: &[u8]) -> Option<u64> {
        let (first, length) = self.lba_field()?;
        let is_six = matches!(self.layout, Layout::Six | Layout::SixLba);
        number(cdb, first, length).map(|lba| if is_six { lba & 0x1f_ffff } else { lba })
    }

    fn block_count(&self, cdb: &[u8]) -> Option<u32> {
        let (first, length) = self.block_count_field()?;
        let count = number(cdb, first, length).and_then(|count| u32::try_from(count).ok())?;
        match self.layout {
            Layout::Six if count == 0 => Some(256),
            Layout::TapeSix | Layout::TapeSixteen => is_fixed(cdb).then_some(count),
            _ => Some(count),
        }
    }
}

impl Operation {
    /// Whether it only moves blocks: READ or WRITE, of any length of the CDB.
    #[must_use]
    pub const fn moves_blocks(self) -> bool {
        matches!(self, Operation::Read | Operation::Write)
    }
}

/// Decodes a CDB: the 16 bytes of the BHS, fewer if truncated, or more with the extended CDB of the AHS appended.
///
/// `device_type` is the peripheral device type of the volume, if known from an INQUIRY. Without it, an operation code
/// that several device types share has the meaning of the first row.
#[must_use]
pub fn decode(cdb: &[u8], device_type: Option<u8>) -> Cdb {
    let command = command(cdb, device_type);
    let service_action = command.filter(|command| command.has_service_action).and_then(|_| service_action(cdb));
    let is_reservation = cdb.first() == Some(&PERSISTENT_RESERVE_OUT);
    let reservation_type = if is_reservation { cdb.get(2).map(|byte| byte & 0x0f) } else { None };
    Cdb {
        operation: command.map_or(Operation::Other, |command| command.operation),
        lba: command.and_then(|command| command.lba(cdb)),
        block_count: command.and_then(|command| command.block_count(cdb)),
        service_action,
        reservation_type,
        name: command.map_or("other", |command| command.name),
    }
}

/// The row of a CDB's command, by its first bytes and the peripheral device type as in [`decode`].
#[must_use]
pub fn command(cdb: &[u8], device_type: Option<u8>) -> Option<&'static Command> {
    let code = usize::from(*cdb.first()?);
    let rows = COMMANDS.get(usize::from(STARTS[code])..usize::from(STARTS[code + 1]))?;
    let action = service_action(cdb);
    // The rows of the volume's device type, else those of the first row's.
    let device_type = rows.iter().map(|row| row.device_type).find(|row| Some(*row) == device_type);
    let device_type = device_type.or_else(|| rows.first().map(|row| row.device_type))?;
    rows.iter()
        .filter(|row| row.device_type == device_type)
        .find(|row| row.service_action.is_none() || row.service_action == action)
}

/// The service action: bytes 8 and 9 of a variable-length CDB, the low bits of byte 1 in all others.
fn service_action(cdb: &[u8]) -> Option<u16> {
    if cdb.first() == Some(&0x7f) {
        number(cdb, 8, 2).and_then(|action| u16::try_from(action).ok())
    } else {
        cdb.get(1).map(|byte| u16::from(byte & 0x1f))
    }
}

/// FIXED bit of a sequential-access command: the transfer length is in blocks, not bytes.
fn is_fixed(cdb: &[u8]) -> bool {
    cdb.get(1).is_some_and(|byte| byte & 0x01 != 0)
}

/// The big-endian number in `length` bytes from `first`; `None` when not all of them were captured.
#[must_use]
pub fn number(cdb: &[u8], first: usize, length: usize) -> Option<u64> {
    let bytes = cdb.get(first..)?.get(..length)?;
    Some(bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}
