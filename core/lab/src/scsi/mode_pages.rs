//! Mode pages (SPC-4): their values, shared by all nexuses, and which bits can be changed. Never acts on a value.

use super::sense::Sense;

/// A mode page: its default, and the bits that can be changed.
struct Template {
    default: &'static [u8],
    changeable: &'static [u8],
}

const READ_WRITE_ERROR_RECOVERY: Template = Template {
    default: &[0x01, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    changeable: &[0x01, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
};
/// WCE is clear, because writes go to the medium directly; it can be set, without effect.
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

    /// Changes pages by a list, all or none. `first` is the offset of the list, for field pointers.
    pub(super) fn select(&mut self, mut list: &[u8], first: usize) -> Result<(), Sense> {
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

    /// The pages requested by MODE SENSE: the current, changeable or default values of each.
    pub(super) fn sense(&self, control: u8, code: u8, subpage_code: u8) -> Result<Vec<u8>, Sense> {
        let mut pages = Vec::new();
        for (page, current) in PAGES.iter().zip(&self.current) {
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
        match pages.is_empty() {
            false => Ok(pages),
            true if PAGES.iter().any(|page| page.code() == code) => Err(Sense::cdb_field(3)),
            true => Err(Sense::cdb_bit(2, 5)),
        }
    }
}
