//! What targets say of logical units, and sense data: the fields that tables read, names replaced; all else is zero.

use iscsitrace_wire::parameter_data::ParameterData;

use crate::key::Key;
use crate::name::{digits, number, padded};

/// The parameter data in the place of another, as far as it is there.
pub fn parameter_data(key: &Key, kind: ParameterData, original: &[u8], keeps_models: bool) -> Vec<u8> {
    let mut fields = Fields { original, replaced: vec![0; original.len()] };
    match kind {
        ParameterData::StandardInquiry => {
            // type, version, format and length; flags, with the groups of ports
            fields.keep(0, 8);
            for (from, to) in [(8, 16), (16, 32), (32, 36)] {
                fields.replace(from, to, |field| if keeps_models { field.to_vec() } else { padded(key, field) });
            }
        }
        ParameterData::UnitSerialNumber => {
            fields.keep(0, 4);
            let end = fields.page_end();
            fields.replace(4, end, |serial| padded(key, serial));
        }
        ParameterData::DeviceIdentification => {
            fields.keep(0, 4);
            designators(key, &mut fields);
        }
        ParameterData::BlockLimits => [(0, 4), (6, 16), (28, 32)].iter().for_each(|&(from, to)| fields.keep(from, to)),
        ParameterData::Capacity10 => fields.keep(0, 8),
        ParameterData::Capacity16 => fields.keep(0, 16),
        ParameterData::TargetPortGroups => port_groups(&mut fields),
    }
    fields.replaced
}

/// Sense data behind its length, as a SCSI Response has it: key and codes, and the structure around them.
pub fn sense(original: &[u8]) -> Vec<u8> {
    let mut fields = Fields { original, replaced: vec![0; original.len()] };
    fields.keep(0, 2);
    match original.get(2).map(|code| code & 0x7f) {
        // fixed format: response code, key, length, codes
        Some(0x70 | 0x71) => [(2, 3), (4, 5), (9, 10), (14, 16)].iter().for_each(|&(from, to)| fields.keep(from, to)),
        // descriptors: response code, key, codes, length; of each its type and length
        Some(0x72 | 0x73) => {
            [(2, 6), (9, 10)].iter().for_each(|&(from, to)| fields.keep(from, to));
            let mut at = 10;
            while let Some(&length) = original.get(at + 1) {
                fields.keep(at, at + 2);
                at += 2 + usize::from(length);
            }
        }
        _ => {}
    }
    fields.replaced
}

struct Fields<'a> {
    original: &'a [u8],
    replaced: Vec<u8>,
}

impl Fields<'_> {
    /// Keeps what is there of these bytes.
    fn keep(&mut self, from: usize, to: usize) {
        self.replace(from, to, <[u8]>::to_vec);
    }

    /// Replaces what is there of these bytes by as many.
    fn replace(&mut self, from: usize, to: usize, by: impl FnOnce(&[u8]) -> Vec<u8>) {
        let to = to.min(self.original.len());
        if from < to {
            self.replaced[from..to].copy_from_slice(&by(&self.original[from..to]));
        }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.original.get(at).copied()
    }

    /// Where a VPD page ends, as far as it is there.
    fn page_end(&self) -> usize {
        let length = u16::from_be_bytes([self.byte(2).unwrap_or(0), self.byte(3).unwrap_or(0)]);
        (4 + usize::from(length)).min(self.original.len())
    }
}

/// VPD page 83h: the kind and length of each designator; that of the port, and a replacement of that of the logical unit.
fn designators(key: &Key, fields: &mut Fields<'_>) {
    const BINARY: u8 = 1;
    let end = fields.page_end();
    let mut at = 4;
    while at + 4 <= end {
        let (Some(code_set), Some(kind), Some(length)) = (fields.byte(at), fields.byte(at + 1), fields.byte(at + 3))
        else {
            return;
        };
        fields.keep(at, at + 4);
        let (from, to) = (at + 4, (at + 4 + usize::from(length)).min(end));
        let is_binary = code_set & 0x0f == BINARY;
        // association, type
        match (kind >> 4 & 0x03, kind & 0x0f) {
            (1, 4 | 5) => fields.keep(from, to),
            (0, 1 | 8) => fields.replace(from, to, |own| padded(key, own)),
            // the first digit of an NAA designator says which kind it is
            (0, 3) if is_binary => fields.replace(from, to, |own| number(key, own, 4)),
            (0, 3) => fields.replace(from, to, |own| digits(key, own)),
            (0, 0 | 2) if is_binary => fields.replace(from, to, |own| number(key, own, 0)),
            (0, 0 | 2) => fields.replace(from, to, |own| padded(key, own)),
            _ => {}
        }
        at = to.max(at + 4);
    }
}

/// REPORT TARGET PORT GROUPS: state, number and size of each group, and the numbers of its ports.
fn port_groups(fields: &mut Fields<'_>) {
    let header = if fields.byte(4).is_some_and(|byte| byte & 0x70 == 0x10) { 8 } else { 4 };
    fields.keep(0, header);
    let length = [0, 1, 2, 3].map(|at| fields.byte(at).unwrap_or(0));
    let end = (u32::from_be_bytes(length) as usize).saturating_add(4).min(fields.original.len());
    let mut at = header;
    while at + 8 <= end {
        let ports = usize::from(fields.byte(at + 7).unwrap_or(0));
        for (from, to) in [(0, 4), (5, 6), (7, 8)] {
            fields.keep(at + from, at + to);
        }
        at += 8;
        for _ in 0..ports {
            fields.keep(at + 2, (at + 4).min(end));
            at += 4;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KEY_BYTES;
    use iscsitrace_wire::parameter_data as read;
    use iscsitrace_wire::sense::SenseCodes;
    use proptest::prelude::*;

    fn replaced(kind: ParameterData, original: &[u8]) -> Vec<u8> {
        parameter_data(&Key::new(&[1; KEY_BYTES]), kind, original, false)
    }

    fn contains(bytes: &[u8], part: &[u8]) -> bool {
        bytes.windows(part.len()).any(|window| window == part)
    }

    #[test]
    fn inquiry_keeps_the_type_and_not_the_model_unless_asked() {
        let mut original = vec![0x00, 0x80, 6, 2, 60, 0x10, 0, 2];
        original.extend_from_slice(b"VENDOR  PRODUCT-OF-ONE  1.0 SERIAL12345");
        let kind = ParameterData::StandardInquiry;
        let found = replaced(kind, &original);
        let [before, after] = [&original, &found].map(|data| read::standard_inquiry(data).unwrap());
        assert_eq!((after.device_type, after.tpgs), (before.device_type, before.tpgs));
        let lengths = |read: &read::StandardInquiry| {
            [&read.vendor, &read.product, &read.revision].map(|text| text.as_ref().map(String::len))
        };
        assert_eq!(lengths(&after), lengths(&before));
        for gone in [&b"VENDOR"[..], b"PRODUCT", b"1.0", b"SERIAL"] {
            assert!(!contains(&found, gone));
        }
        let kept = parameter_data(&Key::new(&[1; KEY_BYTES]), kind, &original, true);
        assert_eq!(kept[8..36], original[8..36]);
        assert_eq!(kept[36..], [0; 11]);
        assert_eq!(
            replaced(kind, &original[..20]),
            found[..16].iter().copied().chain(found_prefix(&original)).collect::<Vec<_>>()
        );
    }

    /// The product of a cut page is another name.
    fn found_prefix(original: &[u8]) -> Vec<u8> {
        padded(&Key::new(&[1; KEY_BYTES]), &original[16..20])
    }

    #[test]
    fn a_serial_number_and_its_padding() {
        let original = [&[0, 0x80, 0, 12][..], b"  SER-4711  ", b"beyond the page"].concat();
        let found = replaced(ParameterData::UnitSerialNumber, &original);
        let serial = read::unit_serial_number(&found).unwrap();
        assert_eq!((serial.len(), serial != "SER-4711"), (8, true));
        assert_eq!(found[16..], [0; 15]);
    }

    #[test]
    fn designators_keep_their_kind_and_ports_their_number() {
        let naa = [0x60, 0x01, 0x40, 0x5a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        let mut body = Vec::new();
        for (code_set, kind, own) in [
            (2, 0x01, &b"LIO-ORG serial"[..]),
            (1, 0x03, &naa),
            (1, 0x14, &[0, 0, 0, 7]),
            (1, 0x15, &[0, 0, 0, 3]),
            (3, 0x28, b"iqn.2003-01.org.example,t,0x0001"),
        ] {
            body.extend_from_slice(&[code_set, kind, 0, own.len() as u8]);
            body.extend_from_slice(own);
        }
        let original = [&[0, 0x83, 0, body.len() as u8][..], &body].concat();
        let found = replaced(ParameterData::DeviceIdentification, &original);
        let [before, after] = [&original, &found].map(|data| read::identification(data).unwrap());
        assert_eq!((after.relative_target_port, after.target_port_group, after.is_complete), (Some(7), Some(3), true));
        let (kind, name) = after.designator.unwrap();
        let (own_kind, own_name) = before.designator.unwrap();
        assert_eq!((kind, name.len(), &name[..5]), (own_kind, own_name.len(), "naa.6"));
        assert_ne!(name, own_name);
        for gone in [&b"serial"[..], &naa[1..], b"example"] {
            assert!(!contains(&found, gone));
        }
    }

    proptest! {
        #[test]
        fn what_tables_read_stays(original in prop::collection::vec(any::<u8>(), 0..200)) {
            let found = replaced(ParameterData::BlockLimits, &original);
            prop_assert_eq!(read::block_limits(&found), read::block_limits(&original));
            let found = replaced(ParameterData::Capacity10, &original);
            prop_assert_eq!(read::capacity_10(&found), read::capacity_10(&original));
            let found = replaced(ParameterData::Capacity16, &original);
            prop_assert_eq!(read::capacity_16(&found), read::capacity_16(&original));
            let found = replaced(ParameterData::TargetPortGroups, &original);
            prop_assert!(read::port_groups(&found).eq(read::port_groups(&original)));
            for kind in [ParameterData::DeviceIdentification, ParameterData::UnitSerialNumber] {
                prop_assert_eq!(replaced(kind, &original).len(), original.len());
            }
        }

        #[test]
        fn sense_codes_stay(code in 0x70_u8..0x74, rest in prop::collection::vec(any::<u8>(), 0..80)) {
            let original = [&[0, rest.len() as u8 + 1, code][..], &rest].concat();
            let found = sense(&original);
            prop_assert_eq!(found.len(), original.len());
            prop_assert_eq!(SenseCodes::read(&found[2..]), SenseCodes::read(&original[2..]));
        }
    }

    #[test]
    fn the_information_of_sense_data_is_gone() {
        let fixed = [&[0, 18, 0xf0, 0, 3, 1, 2, 3, 4, 10, 5, 6, 7, 8, 0x11, 0x22, 9, 1, 1, 1][..], b"vendor"].concat();
        let mut expected = vec![0; fixed.len()];
        expected[..3].copy_from_slice(&[0, 18, 0xf0]);
        (expected[4], expected[9], expected[14], expected[15]) = (3, 10, 0x11, 0x22);
        assert_eq!(sense(&fixed), expected);
        let descriptors = [0, 20, 0x72, 3, 0x11, 0x22, 0, 0, 0, 12, 0, 10, 0x80, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let found = sense(&descriptors);
        assert_eq!(found[..12], descriptors[..12]);
        assert_eq!(found[12..], [0; 10]);
    }
}
