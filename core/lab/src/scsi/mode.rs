//! Mode pages, shared by all nexuses, and the commands that read and change them (SPC-4). What a
//! page says is heeded elsewhere.

use super::command::number;
use super::logical_unit::LogicalUnit;
use super::sense::Sense;
use super::task::Work;

/// A mode page: its default, and the bits that can be changed.
struct Template {
    default: &'static [u8],
    changeable: &'static [u8],
}

const READ_WRITE_ERROR_RECOVERY: Template = Template {
    default: &[0x01, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    changeable: &[0x01, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
};
/// WCE is clear, for what is written is where it stays; it can be set, without effect.
const CACHING: Template = Template {
    default: &[0x08, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    changeable: &[0x08, 0x12, 0x04, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
};
/// QUEUE ALGORITHM MODIFIER 1; no busy timeout. D_SENSE and SWP can be changed.
const CONTROL: Template = Template {
    default: &[0x0a, 0x0a, 0, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0],
    changeable: &[0x0a, 0x0a, 0x04, 0, 0x08, 0, 0, 0, 0, 0, 0, 0],
};
const CONTROL_EXTENSION: Template = Template {
    default: &[0x4a, 0x01, 0, 0x1c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    changeable: &[
        0x4a, 0x01, 0, 0x1c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ],
};
/// DEXCPT: there are no exceptions.
const INFORMATIONAL_EXCEPTIONS: Template = Template {
    default: &[0x1c, 0x0a, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    changeable: &[0x1c, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// In order of page code and subpage code.
const PAGES: [Template; 5] = [READ_WRITE_ERROR_RECOVERY, CACHING, CONTROL, CONTROL_EXTENSION, INFORMATIONAL_EXCEPTIONS];

/// Place of the control mode page.
const CONTROL_PLACE: usize = 2;

/// PAGE CODE and SUBPAGE CODE that mean all.
const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

impl Template {
    fn code(&self) -> u8 {
        self.default[0] & 0x3f
    }

    fn subpage_code(&self) -> u8 {
        if self.has_subpage_format() { self.default[1] } else { 0 }
    }

    fn has_subpage_format(&self) -> bool {
        self.default[0] & 0x40 != 0
    }

    fn header_length(&self) -> usize {
        if self.has_subpage_format() { 4 } else { 2 }
    }
}

/// Current values of the mode pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModePages {
    current: Vec<Vec<u8>>,
}

impl Default for ModePages {
    fn default() -> ModePages {
        ModePages { current: PAGES.iter().map(|page| page.default.to_vec()).collect() }
    }
}

impl ModePages {
    /// D_SENSE: sense data in descriptor format.
    pub(super) fn has_descriptor_sense(&self) -> bool {
        self.control(2) & 0x04 != 0
    }

    /// SWP.
    pub(super) fn is_software_write_protected(&self) -> bool {
        self.control(4) & 0x08 != 0
    }

    fn control(&self, byte: usize) -> u8 {
        self.current.get(CONTROL_PLACE).and_then(|page| page.get(byte)).copied().unwrap_or(0)
    }

    /// Changes pages to those of a list; all or none. `first` is where the list began, for field pointers.
    fn select(&mut self, mut list: &[u8], first: usize) -> Result<(), Sense> {
        let mut changed = self.current.clone();
        let mut at = first;
        while !list.is_empty() {
            let pointer = |byte: usize| Sense::parameter_field(u16::try_from(at + byte).unwrap_or(u16::MAX));
            let found = PAGES.iter().zip(&mut changed).find(|(page, _)| {
                // PS is reserved here, and ignored.
                list[0] & 0x7f == page.default[0]
                    && (!page.has_subpage_format() || list.get(1) == Some(&page.default[1]))
            });
            let Some((page, current)) = found else { return Err(pointer(0)) };
            let header = page.header_length();
            if list.len() < header {
                return Err(Sense::PARAMETER_LIST_LENGTH);
            }
            if list[1..header] != page.default[1..header] {
                return Err(pointer(header - 1));
            }
            let Some((values, rest)) = list.split_at_checked(page.default.len()) else {
                return Err(Sense::PARAMETER_LIST_LENGTH);
            };
            for byte in header..values.len() {
                if (values[byte] ^ current[byte]) & !page.changeable[byte] != 0 {
                    return Err(pointer(byte));
                }
                current[byte] = values[byte];
            }
            at += values.len();
            list = rest;
        }
        self.current = changed;
        Ok(())
    }
}

impl LogicalUnit {
    /// MODE SENSE(6) and (10).
    pub(super) fn mode_sense(&self, cdb: &[u8; 16]) -> Result<Work, Sense> {
        let (control, code, subpage_code) = (cdb[2] >> 6, cdb[2] & 0x3f, cdb[3]);
        let mut pages = Vec::new();
        for (page, current) in PAGES.iter().zip(&self.mode.current) {
            let is_asked = (code == ALL_PAGES || code == page.code())
                && (subpage_code == ALL_SUBPAGES || subpage_code == page.subpage_code());
            if is_asked {
                pages.extend_from_slice(match control {
                    0 => current,
                    1 => page.changeable,
                    2 => page.default,
                    _ => return Err(Sense::SAVING),
                });
            }
        }
        if pages.is_empty() {
            return Err(if PAGES.iter().any(|page| page.code() == code) {
                Sense::cdb_field(3)
            } else {
                Sense::cdb_bit(2, 5)
            });
        }
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

    /// MODE SELECT(6) and (10): whether anything is another than before.
    pub(super) fn mode_select(&mut self, cdb: &[u8; 16], list: &[u8]) -> Result<bool, Sense> {
        if list.is_empty() {
            return Ok(false);
        }
        // PF must be set: pages of other formats are the vendor's. SP: there is nowhere to save to.
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

    /// Neither capacity nor block length can be changed; 0 blocks leaves them as they are, all ones asks for the most.
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
