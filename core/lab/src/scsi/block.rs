//! Commands on ranges of blocks: read, write, verify, compare and write, OR, synchronize, pre-fetch (SBC-3). Checks
//! ranges and flags; the device transfers the data.

use iscsitrace_wire::cdb::{self, DISK, Operation};
use iscsitrace_wire::status::Status;

use super::logical_unit::LogicalUnit;
use super::medium::NoSpace;
use super::sense::Sense;
use super::task::Work;

impl From<NoSpace> for Sense {
    fn from(_: NoSpace) -> Sense {
        Sense::NO_SPACE
    }
}

impl LogicalUnit {
    /// Number of logical blocks.
    pub(super) fn block_count(&self) -> u64 {
        self.settings.size_bytes / self.block_bytes()
    }

    /// Logical block length.
    pub(super) fn block_bytes(&self) -> u64 {
        u64::from(self.settings.block_bytes)
    }

    /// Most blocks that COMPARE AND WRITE compares.
    pub(super) fn most_compared_blocks(&self) -> u8 {
        (65_536 / self.block_bytes()).min(128) as u8
    }

    /// First byte and length of the blocks of a CDB, all of them on the medium.
    pub(super) fn extent(&self, cdb: &[u8; 16]) -> Result<(u64, u64), Sense> {
        let decoded = cdb::decode(cdb, Some(DISK));
        let (Some(lba), Some(count)) = (decoded.lba, decoded.block_count) else { return Err(Sense::OPERATION_CODE) };
        self.range(lba, u64::from(count))
    }

    /// First byte and length of these blocks, all of them on the medium.
    pub(super) fn range(&self, lba: u64, count: u64) -> Result<(u64, u64), Sense> {
        let end = lba.checked_add(count).filter(|end| *end <= self.block_count());
        if end.is_none() {
            return Err(Sense::OUT_OF_RANGE);
        }
        Ok((lba * self.block_bytes(), count * self.block_bytes()))
    }

    /// Commands on one range of blocks.
    pub(super) fn block_command(&mut self, operation: Operation, cdb: &[u8; 16]) -> Result<Work, Sense> {
        let byte_check = (cdb[1] >> 1) & 0x03;
        match operation {
            Operation::Read => {
                check_protection(cdb)?;
                let (first_byte, length) = self.extent(cdb)?;
                Ok(Work::Read { first_byte, length })
            }
            Operation::Write => {
                check_protection(cdb)?;
                let (first_byte, length) = self.extent(cdb)?;
                Ok(Work::Write { first_byte, length })
            }
            // Data just stored in memory compares equal, so BYTCHK has no effect (SBC-3).
            Operation::WriteVerify => {
                check_protection(cdb)?;
                if byte_check > 1 {
                    return Err(Sense::cdb_bit(1, 2));
                }
                let (first_byte, length) = self.extent(cdb)?;
                Ok(Work::Write { first_byte, length })
            }
            Operation::Verify => {
                check_protection(cdb)?;
                let (first_byte, length) = self.extent(cdb)?;
                match byte_check {
                    0 => Ok(Work::GOOD),
                    1 => Ok(Work::Verify { first_byte, length, miscompare: None }),
                    _ => Err(Sense::cdb_bit(1, 2)),
                }
            }
            Operation::OrWrite => {
                check_protection(cdb)?;
                let (first_byte, length) = self.extent(cdb)?;
                Ok(Work::Or { first_byte, length })
            }
            Operation::CompareAndWrite => {
                check_protection(cdb)?;
                let (_, length) = self.extent(cdb)?;
                if cdb[13] > self.most_compared_blocks() {
                    return Err(Sense::cdb_field(13));
                }
                Ok(Work::Collect { cdb: *cdb, bytes: vec![0; 2 * length as usize] })
            }
            Operation::SynchronizeCache => {
                self.extent(cdb)?;
                Ok(Work::GOOD)
            }
            // All blocks are in memory already: CONDITION MET (SBC-3).
            Operation::PreFetch => {
                self.extent(cdb)?;
                Ok(Work::Done { status: Status::ConditionMet, data_in: Vec::new() })
            }
            _ => Err(Sense::OPERATION_CODE),
        }
    }

    /// COMPARE AND WRITE: blocks to compare, then as many to write if all are equal (SBC-3).
    pub(super) fn finish_compare_and_write(&mut self, cdb: &[u8; 16], bytes: &[u8]) -> Result<(), Sense> {
        let (first_byte, length) = self.extent(cdb)?;
        let (compared, written) = bytes.split_at_checked(length as usize).unwrap_or((bytes, &[]));
        if let Some(place) = self.medium.difference(first_byte, compared) {
            return Err(Sense::miscompare(place as u64));
        }
        Ok(self.medium.write(first_byte, written)?)
    }
}

/// There is no protection information (RDPROTECT, WRPROTECT, VRPROTECT, ORPROTECT). READ(6) and WRITE(6) have no such
/// field; the bits were the LUN in SCSI-2.
pub(super) fn check_protection(cdb: &[u8; 16]) -> Result<(), Sense> {
    let has_field = cdb[0] >> 5 != 0;
    if has_field && cdb[1] & 0xe0 != 0 { Err(Sense::cdb_bit(1, 7)) } else { Ok(()) }
}
