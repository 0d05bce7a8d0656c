//! Capacity, mapped blocks, and an empty defect list. Changes nothing.

use super::field::number;
use super::logical_unit::LogicalUnit;
use super::sense::Sense;
use super::task::Work;

/// Most descriptors of GET LBA STATUS.
const MOST_STATUS_DESCRIPTORS: usize = 1024;

impl LogicalUnit {
    /// READ CAPACITY(10) and (16) (SBC-3).
    pub(super) fn read_capacity(&self, cdb: &[u8; 16]) -> Result<Work, Sense> {
        let last = self.block_count() - 1;
        let mut data_in = Vec::with_capacity(32);
        if cdb[0] == 0x25 {
            // An address is only valid with PMI.
            if cdb[8] & 0x01 == 0 && number(cdb, 2, 4) != 0 {
                return Err(Sense::cdb_field(2));
            }
            if number(cdb, 2, 4) > last {
                return Err(Sense::OUT_OF_RANGE);
            }
            // Too many blocks for the field: the initiator uses READ CAPACITY(16).
            data_in.extend_from_slice(&u32::try_from(last).unwrap_or(u32::MAX).to_be_bytes());
            data_in.extend_from_slice(&self.settings.block_bytes.to_be_bytes());
            return Ok(Work::data_in(data_in, 8));
        }
        data_in.extend_from_slice(&last.to_be_bytes());
        data_in.extend_from_slice(&self.settings.block_bytes.to_be_bytes());
        // No protection; one logical block per physical block; LBPME and LBPRZ of a thin medium.
        let provisioning = if self.medium.is_thin() { 0xc0 } else { 0 };
        data_in.extend_from_slice(&[0, 0, provisioning, 0]);
        data_in.resize(32, 0);
        Ok(Work::data_in(data_in, number(cdb, 10, 4)))
    }

    /// GET LBA STATUS (SBC-3): as many descriptors as fit, one at least.
    pub(super) fn get_lba_status(&self, cdb: &[u8; 16]) -> Result<Work, Sense> {
        let first = number(cdb, 2, 8);
        if first >= self.block_count() {
            return Err(Sense::OUT_OF_RANGE);
        }
        let allocation_length = number(cdb, 10, 4);
        if allocation_length < 24 {
            return Err(Sense::cdb_field(10));
        }
        let most = (allocation_length.saturating_sub(8) / 16).min(MOST_STATUS_DESCRIPTORS as u64) as usize;
        let mut descriptors: Vec<u8> = Vec::new();
        let mut byte = first * self.block_bytes();
        while byte < self.settings.size_bytes && descriptors.len() < 16 * most {
            // The count of a descriptor has 32 bits.
            let end = byte.saturating_add(u64::from(u32::MAX) * self.block_bytes()).min(self.settings.size_bytes);
            let (is_mapped, end) = self.medium.run(byte, end);
            let count = (end - byte) / self.block_bytes();
            descriptors.extend_from_slice(&(byte / self.block_bytes()).to_be_bytes());
            descriptors.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
            descriptors.extend_from_slice(&[u8::from(!is_mapped), 0, 0, 0]);
            byte = end;
        }
        let mut data_in = (descriptors.len() as u32 + 4).to_be_bytes().to_vec();
        data_in.extend_from_slice(&[0; 4]);
        data_in.extend_from_slice(&descriptors);
        Ok(Work::data_in(data_in, allocation_length))
    }
}

/// READ DEFECT DATA(10) and (12): an empty list, in the requested format (SBC-3).
pub(super) fn read_defect_data(cdb: &[u8; 16]) -> Work {
    if cdb[0] == 0x37 {
        return Work::data_in(vec![0, cdb[2] & 0x1f, 0, 0], number(cdb, 7, 2));
    }
    Work::data_in(vec![0, cdb[1] & 0x1f, 0, 0, 0, 0, 0, 0], number(cdb, 6, 4))
}
