//! MODE SENSE and MODE SELECT (SPC-4).

use super::field::number;
use super::logical_unit::LogicalUnit;
use super::sense::Sense;
use super::task::Work;

impl LogicalUnit {
    /// MODE SENSE(6) and (10).
    pub(super) fn mode_sense(&self, cdb: &[u8; 16]) -> Result<Work, Sense> {
        let (control, code, subpage_code) = (cdb[2] >> 6, cdb[2] & 0x3f, cdb[3]);
        let pages = self.mode.sense(control, code, subpage_code)?;
        let has_descriptor = cdb[1] & 0x08 == 0;
        let descriptor = if has_descriptor { self.block_descriptor().to_vec() } else { Vec::new() };
        // WP and DPOFUA.
        let is_protected = self.settings.is_write_protected || self.mode.is_software_write_protected();
        let device_specific = if is_protected { 0x90 } else { 0x10 };
        let length = descriptor.len() + pages.len();
        let (mut data_in, allocation_length) = if cdb[0] == 0x1a {
            let header = vec![(length + 3) as u8, 0, device_specific, descriptor.len() as u8];
            (header, u64::from(cdb[4]))
        } else {
            let header = vec![0, (length + 6) as u8, 0, device_specific, 0, 0, 0, descriptor.len() as u8];
            (header, number(cdb, 7, 2))
        };
        data_in.extend_from_slice(&descriptor);
        data_in.extend_from_slice(&pages);
        Ok(Work::data_in(data_in, allocation_length))
    }

    /// MODE SELECT(6) and (10); returns whether a value changed.
    pub(super) fn mode_select(&mut self, cdb: &[u8; 16], list: &[u8]) -> Result<bool, Sense> {
        if list.is_empty() {
            return Ok(false);
        }
        // PF must be set: other formats are vendor specific. SP: saving is not supported.
        if cdb[1] & 0x10 == 0 {
            return Err(Sense::cdb_bit(1, 4));
        }
        if cdb[1] & 0x01 != 0 {
            return Err(Sense::cdb_bit(1, 0));
        }
        let (header, descriptor_length) =
            if cdb[0] == 0x15 { (4, number(list, 3, 1)) } else { (8, number(list, 6, 2)) };
        if list.len() < header {
            return Err(Sense::PARAMETER_LIST_LENGTH);
        }
        let first = match descriptor_length {
            0 => header,
            8 => header + 8,
            _ => return Err(Sense::parameter_field(if header == 4 { 3 } else { 6 })),
        };
        let Some(pages) = list.get(first..) else { return Err(Sense::PARAMETER_LIST_LENGTH) };
        if descriptor_length == 8 {
            self.check_block_descriptor(&list[header..first], header)?;
        }
        let before = self.mode.clone();
        self.mode.select(pages, first)?;
        Ok(self.mode != before)
    }

    /// The short LBA mode parameter block descriptor (SBC-3).
    fn block_descriptor(&self) -> [u8; 8] {
        let mut descriptor = [0; 8];
        descriptor[..4].copy_from_slice(&u32::try_from(self.block_count()).unwrap_or(u32::MAX).to_be_bytes());
        descriptor[4..].copy_from_slice(&self.settings.block_bytes.to_be_bytes());
        descriptor
    }

    /// Neither capacity nor block length can be changed. A block count of 0 keeps the capacity, all ones requests the
    /// maximum.
    fn check_block_descriptor(&self, descriptor: &[u8], first: usize) -> Result<(), Sense> {
        let here = self.block_descriptor();
        if descriptor.get(5..8) != Some(&here[5..8]) {
            return Err(Sense::parameter_field(first as u16 + 5));
        }
        let count = number(descriptor, 0, 4);
        let is_same = count == 0 || count == u64::from(u32::MAX) || count == number(&here, 0, 4);
        if is_same { Ok(()) } else { Err(Sense::parameter_field(first as u16)) }
    }
}
