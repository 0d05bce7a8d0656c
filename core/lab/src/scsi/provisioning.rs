//! UNMAP and WRITE SAME (SBC-3). Only a thin medium unmaps blocks.

use super::block::check_protection;
use super::field::number;
use super::logical_unit::LogicalUnit;
use super::sense::Sense;
use super::task::Work;

/// Most block descriptors of UNMAP.
pub(super) const MOST_DESCRIPTORS: u32 = 256;

/// Most bytes that one WRITE SAME stores.
const MOST_SAME_BYTES: u64 = 32 << 20;

impl LogicalUnit {
    /// Most blocks of one WRITE SAME.
    pub(super) fn most_same_blocks(&self) -> u64 {
        MOST_SAME_BYTES / self.block_bytes()
    }

    /// WRITE SAME: takes one block, or none with NDOB, which means zeros.
    pub(super) fn write_same(&mut self, cdb: &[u8; 16]) -> Result<Work, Sense> {
        check_protection(cdb)?;
        // ANCHOR, and the obsolete PBDATA and LBDATA.
        if cdb[1] & 0x16 != 0 {
            return Err(Sense::cdb_bit(1, 4));
        }
        if unmaps(cdb) && !self.medium.is_thin() {
            return Err(Sense::cdb_bit(1, 3));
        }
        let (_, length) = self.extent(cdb)?;
        // WSNZ: "to the end of the medium" is not supported.
        let field = if cdb[0] == 0x41 { 7 } else { 10 };
        if length == 0 || length > MOST_SAME_BYTES {
            return Err(Sense::cdb_field(field));
        }
        if cdb[0] == 0x93 && cdb[1] & 0x01 != 0 {
            self.finish_write_same(cdb, &vec![0; self.block_bytes() as usize])?;
            return Ok(Work::GOOD);
        }
        Ok(Work::Collect { cdb: *cdb, bytes: vec![0; self.block_bytes() as usize] })
    }

    /// Finishes WRITE SAME with its block.
    pub(super) fn finish_write_same(&mut self, cdb: &[u8; 16], block: &[u8]) -> Result<(), Sense> {
        let (first_byte, length) = self.extent(cdb)?;
        // With UNMAP, blocks of zeros may be unmapped: unmapped blocks read as zeros (LBPRZ).
        if unmaps(cdb) && block.iter().all(|byte| *byte == 0) {
            self.medium.unmap(first_byte, length);
            return Ok(());
        }
        Ok(self.medium.fill(first_byte, length, block)?)
    }

    /// UNMAP: header of 8 bytes, descriptors of 16 (SBC-3).
    pub(super) fn finish_unmap(&mut self, list: &[u8]) -> Result<(), Sense> {
        if list.is_empty() {
            return Ok(());
        }
        let Some(descriptors) = list.get(8..) else { return Err(Sense::PARAMETER_LIST_LENGTH) };
        let length = (number(list, 2, 2) as usize).min(descriptors.len());
        let descriptors = descriptors.get(..length).unwrap_or(descriptors).chunks_exact(16);
        if descriptors.len() > MOST_DESCRIPTORS as usize {
            return Err(Sense::parameter_field(2));
        }
        // All ranges are checked before any is unmapped.
        let mut ranges = Vec::new();
        for descriptor in descriptors {
            ranges.push(self.range(number(descriptor, 0, 8), number(descriptor, 8, 4))?);
        }
        ranges.into_iter().for_each(|(first_byte, length)| self.medium.unmap(first_byte, length));
        Ok(())
    }
}

fn unmaps(cdb: &[u8; 16]) -> bool {
    cdb[1] & 0x08 != 0
}
