//! INQUIRY, vital product data, and the target port group. Changes nothing.

use super::field::number;
use super::logical_unit::LogicalUnit;
use super::provisioning::MOST_DESCRIPTORS;
use super::sense::Sense;
use super::sparse::PAGE_BYTES;
use super::task::Work;

/// Version descriptors: SAM-5, SPC-4, SBC-3, iSCSI (SPC-4).
const VERSION_DESCRIPTORS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, 0x0960];

/// Vital product data pages, in order.
const PAGES: [u8; 7] = [0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2];

/// The one target port.
const RELATIVE_TARGET_PORT: u16 = 1;

/// The one target port group.
const TARGET_PORT_GROUP: u16 = 1;

impl LogicalUnit {
    /// INQUIRY (SPC-4).
    pub(super) fn inquiry(&self, cdb: &[u8; 16]) -> Result<Work, Sense> {
        let allocation_length = number(cdb, 3, 2);
        let (has_evpd, page) = (cdb[1] & 0x01 != 0, cdb[2]);
        // CMDDT of SPC-2.
        if cdb[1] & 0x02 != 0 {
            return Err(Sense::cdb_bit(1, 1));
        }
        if !has_evpd {
            return if page == 0 {
                Ok(Work::data_in(self.standard(), allocation_length))
            } else {
                Err(Sense::cdb_field(2))
            };
        }
        let body = match page {
            0x00 => PAGES.to_vec(),
            0x80 => self.identity.serial.clone().into_bytes(),
            0x83 => self.designators(),
            0x86 => extended_inquiry(),
            0xb0 => self.block_limits(),
            0xb1 => block_characteristics(),
            0xb2 => self.provisioning(),
            _ => return Err(Sense::cdb_field(2)),
        };
        let mut data_in = vec![0, page];
        data_in.extend_from_slice(&(body.len() as u16).to_be_bytes());
        data_in.extend_from_slice(&body);
        Ok(Work::data_in(data_in, allocation_length))
    }

    /// Standard INQUIRY data: 96 bytes.
    fn standard(&self) -> Vec<u8> {
        let mut data = vec![0; 96];
        data[1] = if self.settings.is_removable { 0x80 } else { 0 };
        data[2] = 0x06;
        // HISUP, response data format 2.
        data[3] = 0x12;
        data[4] = 91;
        data[5] = if self.has_target_port_groups { 0x10 } else { 0 };
        // CMDQUE
        data[7] = 0x02;
        data[8..16].copy_from_slice(&self.identity.vendor);
        data[16..32].copy_from_slice(&self.identity.product);
        data[32..36].copy_from_slice(b"1.0 ");
        for (place, version) in data[58..74].chunks_exact_mut(2).zip(VERSION_DESCRIPTORS) {
            place.copy_from_slice(&version.to_be_bytes());
        }
        data
    }

    /// Device identification (SPC-4): of the logical unit, the target port, and the device.
    fn designators(&self) -> Vec<u8> {
        let identity = &self.identity;
        let mut out = Vec::new();
        let mut add = |code_set: u8, association_and_type: u8, designator: &[u8]| {
            // iSCSI names have at most 223 bytes, so the length always fits.
            let length = u8::try_from(designator.len()).unwrap_or(u8::MAX);
            out.extend_from_slice(&[code_set, association_and_type, 0, length]);
            out.extend(designator.iter().take(usize::from(length)));
        };
        const BINARY: u8 = 0x01;
        const ASCII: u8 = 0x02;
        const ISCSI_UTF_8: u8 = 0x53;
        const ISCSI_BINARY: u8 = 0x51;
        add(BINARY, 0x03, &identity.naa);
        let mut vendor_id = identity.vendor.to_vec();
        vendor_id.extend_from_slice(identity.serial.as_bytes());
        add(ASCII, 0x01, &vendor_id);
        add(ISCSI_BINARY, 0x94, &number_designator(RELATIVE_TARGET_PORT));
        if self.has_target_port_groups {
            add(ISCSI_BINARY, 0x95, &number_designator(TARGET_PORT_GROUP));
        }
        let port_name = format!("{},t,0x{:04x}", identity.target_name, identity.target_portal_group_tag);
        add(ISCSI_UTF_8, 0x98, &scsi_name(&port_name));
        add(ISCSI_UTF_8, 0xa8, &scsi_name(&identity.target_name));
        out
    }

    /// Block limits (SBC-3), without the header.
    fn block_limits(&self) -> Vec<u8> {
        let mut page = vec![0; 60];
        // WSNZ
        page[0] = 0x01;
        page[1] = self.most_compared_blocks();
        if self.medium.is_thin() {
            page[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
            page[20..24].copy_from_slice(&MOST_DESCRIPTORS.to_be_bytes());
            // Less than a page can be unmapped, too, but frees no memory.
            page[24..28].copy_from_slice(&((PAGE_BYTES / self.block_bytes()) as u32).to_be_bytes());
            // UGAVALID, alignment 0
            page[28] = 0x80;
        }
        page[32..40].copy_from_slice(&self.most_same_blocks().to_be_bytes());
        page
    }

    /// Logical block provisioning (SBC-3), without the header.
    fn provisioning(&self) -> Vec<u8> {
        // LBPU, LBPWS, LBPWS10, LBPRZ; thin.
        if self.medium.is_thin() { vec![0, 0xe4, 0x02, 0] } else { vec![0; 4] }
    }
}

/// Extended INQUIRY data (SPC-4), without the header: SIMPLE, ORDERED and HEAD OF QUEUE tasks.
fn extended_inquiry() -> Vec<u8> {
    let mut page = vec![0; 60];
    page[1] = 0x07;
    page
}

/// Block device characteristics (SBC-3), without the header: non-rotating medium.
fn block_characteristics() -> Vec<u8> {
    let mut page = vec![0; 60];
    page[1] = 0x01;
    page
}

fn number_designator(number: u16) -> [u8; 4] {
    let [high, low] = number.to_be_bytes();
    [0, 0, high, low]
}

/// A SCSI name string ends with a null and fills a multiple of 4 bytes (SPC-4).
fn scsi_name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Standard INQUIRY data of a LUN without a logical unit (SPC-4): peripheral qualifier 3, device type unknown.
pub(super) fn no_device() -> Vec<u8> {
    let mut data = vec![0; 36];
    data[..5].copy_from_slice(&[0x7f, 0, 0x06, 0x12, 31]);
    data[8..36].fill(b' ');
    data
}

/// REPORT TARGET PORT GROUPS (SPC-4): one group of one port, always active/optimized.
pub(super) fn report_target_port_groups(cdb: &[u8; 16]) -> Work {
    let [group_high, group_low] = TARGET_PORT_GROUP.to_be_bytes();
    let [port_high, port_low] = RELATIVE_TARGET_PORT.to_be_bytes();
    // Supported: active/optimized. No status code; one port.
    let group = [0x00, 0x01, group_high, group_low, 0, 0, 0, 1, 0, 0, port_high, port_low];
    let mut data_in = (group.len() as u32).to_be_bytes().to_vec();
    // PARAMETER DATA FORMAT 1 has an extended header.
    if cdb[1] >> 5 == 1 {
        data_in = (group.len() as u32 + 4).to_be_bytes().to_vec();
        data_in.extend_from_slice(&[0x10, 0, 0, 0]);
    }
    data_in.extend_from_slice(&group);
    Work::data_in(data_in, number(cdb, 6, 4))
}
