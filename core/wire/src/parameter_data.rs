//! What a logical unit says of itself: the parameter data of INQUIRY, READ CAPACITY and REPORT TARGET PORT GROUPS
//! (SPC-4, SBC-3).
//!
//! Data may be cut anywhere: a field counts only if all of it is there. Nothing is decided here, and nothing kept.

use serde::{Deserialize, Serialize};
/// Parameter data that describes a logical unit, by the CDB that requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParameterData {
    /// Standard INQUIRY data.
    StandardInquiry,
    /// VPD page 80h.
    UnitSerialNumber,
    /// VPD page 83h.
    DeviceIdentification,
    /// VPD page B0h.
    BlockLimits,
    /// READ CAPACITY(10).
    Capacity10,
    /// READ CAPACITY(16).
    Capacity16,
    /// REPORT TARGET PORT GROUPS.
    TargetPortGroups,
}

impl ParameterData {
    /// What a command with this CDB returns, if it is one of these.
    #[must_use]
    pub fn of(cdb: &[u8; 16]) -> Option<Self> {
        match (cdb[0], cdb[1] & 0x1f) {
            // EVPD, and the page code
            (0x12, flags) if flags & 0x01 == 0 => (flags & 0x02 == 0).then_some(Self::StandardInquiry),
            (0x12, _) => match cdb[2] {
                UNIT_SERIAL_NUMBER => Some(Self::UnitSerialNumber),
                DEVICE_IDENTIFICATION => Some(Self::DeviceIdentification),
                BLOCK_LIMITS => Some(Self::BlockLimits),
                _ => None,
            },
            (0x25, _) => Some(Self::Capacity10),
            (0x9e, 0x10) => Some(Self::Capacity16),
            (0xa3, 0x0a) => Some(Self::TargetPortGroups),
            _ => None,
        }
    }
}

const UNIT_SERIAL_NUMBER: u8 = 0x80;
const DEVICE_IDENTIFICATION: u8 = 0x83;
const BLOCK_LIMITS: u8 = 0xb0;

/// Standard INQUIRY data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandardInquiry {
    /// 0: a logical unit is there; 1: none is now; 3: none can be.
    pub peripheral_qualifier: u8,
    /// Peripheral device type: 0 disk, 1 tape, 5 CD, 8 medium changer ...; 31 without a logical unit.
    pub device_type: u8,
    /// Target port groups: 0 none, 1 implicit, 2 explicit, 3 both kinds of asymmetric access.
    pub tpgs: Option<u8>,
    /// T10 vendor identification.
    pub vendor: Option<String>,
    /// Product identification.
    pub product: Option<String>,
    /// Product revision level.
    pub revision: Option<String>,
}

/// Reads standard INQUIRY data; none without its first byte.
#[must_use]
pub fn standard_inquiry(data: &[u8]) -> Option<StandardInquiry> {
    let field = |from: usize, to: usize| data.get(from..to).map(text);
    let first = data.first()?;
    Some(StandardInquiry {
        peripheral_qualifier: first >> 5,
        device_type: first & 0x1f,
        tpgs: data.get(5).map(|byte| byte >> 4 & 0x03),
        vendor: field(8, 16),
        product: field(16, 32),
        revision: field(32, 36),
    })
}

/// The body of a VPD page, as far as it is there, and whether that is all of it; none for another page.
fn page(code: u8, data: &[u8]) -> Option<(&[u8], bool)> {
    let ([_, found, high, low], body) = data.split_first_chunk::<4>()?;
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    (*found == code).then(|| (body.get(..length).unwrap_or(body), body.len() >= length))
}

/// Reads VPD page 80h; none if it is cut.
#[must_use]
pub fn unit_serial_number(data: &[u8]) -> Option<String> {
    let (body, is_complete) = page(UNIT_SERIAL_NUMBER, data)?;
    Some(text(body)).filter(|serial| is_complete && !serial.is_empty())
}

/// Kinds of designators of a logical unit, the least reliable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DesignatorKind {
    /// Vendor specific.
    VendorSpecific,
    /// T10 vendor identification.
    T10Vendor,
    /// SCSI name string.
    NameString,
    /// EUI-64 based.
    Eui64,
    /// NAA, other than 6.
    Naa,
    /// NAA 6: IEEE Registered Extended.
    Naa6,
}

/// VPD page 83h: the best name of the logical unit, and the port that answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identification {
    /// The best designator of the logical unit as text, such as `naa.6001405...`; of the best kind the first.
    pub designator: Option<(DesignatorKind, String)>,
    /// Relative target port identifier.
    pub relative_target_port: Option<u16>,
    /// Target port group of this port.
    pub target_port_group: Option<u16>,
    /// Whether the page is complete.
    pub is_complete: bool,
}

/// Reads VPD page 83h; designators that are cut are left out.
#[must_use]
pub fn identification(data: &[u8]) -> Option<Identification> {
    let (mut body, is_complete) = page(DEVICE_IDENTIFICATION, data)?;
    let mut found = Identification { is_complete, ..Identification::default() };
    while let Some(([code_set, kind, _, length], rest)) = body.split_first_chunk::<4>() {
        let Some((designator, following)) = rest.split_at_checked(usize::from(*length)) else { break };
        body = following;
        // association, type
        match (kind >> 4 & 0x03, kind & 0x0f, designator) {
            (0, kind, [_, ..]) => {
                if let Some(named) = name(kind, code_set & 0x0f, designator)
                    && found.designator.as_ref().is_none_or(|(best, _)| named.0 > *best)
                {
                    found.designator = Some(named);
                }
            }
            (1, 4, &[_, _, high, low]) => found.relative_target_port = Some(u16::from_be_bytes([high, low])),
            (1, 5, &[_, _, high, low]) => found.target_port_group = Some(u16::from_be_bytes([high, low])),
            _ => {}
        }
    }
    Some(found)
}

/// A designator of a logical unit as text; none for types that name no logical unit.
fn name(designator_type: u8, code_set: u8, designator: &[u8]) -> Option<(DesignatorKind, String)> {
    const BINARY: u8 = 1;
    let number = |bytes: &[u8]| {
        if code_set == BINARY {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        } else {
            text(bytes).to_ascii_lowercase()
        }
    };
    let own = |bytes: &[u8]| if code_set == BINARY { number(bytes) } else { text(bytes) };
    let (kind, prefix, own) = match designator_type {
        0 => (DesignatorKind::VendorSpecific, "vendor.", own(designator)),
        1 => (DesignatorKind::T10Vendor, "t10.", text(designator)),
        2 => (DesignatorKind::Eui64, "eui.", number(designator)),
        3 => {
            let digits = number(designator);
            let kind = if digits.starts_with('6') { DesignatorKind::Naa6 } else { DesignatorKind::Naa };
            (kind, "naa.", digits)
        }
        // it begins with its own prefix: eui., naa., iqn.
        8 => (DesignatorKind::NameString, "", text(designator)),
        _ => return None,
    };
    (!own.is_empty()).then(|| (kind, format!("{prefix}{own}")))
}

/// VPD page B0h: sizes that a logical unit prefers. 0, which stands for none, is none here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Optimal transfer length granularity.
    pub optimal_granularity_blocks: Option<u16>,
    /// Maximum transfer length.
    pub maximum_transfer_blocks: Option<u32>,
    /// Optimal transfer length.
    pub optimal_transfer_blocks: Option<u32>,
    /// Optimal unmap granularity.
    pub unmap_granularity_blocks: Option<u32>,
}

/// Reads VPD page B0h.
#[must_use]
pub fn block_limits(data: &[u8]) -> Option<BlockLimits> {
    // so that offsets are those of SBC-3
    let whole = page(BLOCK_LIMITS, data).map(|(body, _)| &data[..4 + body.len()])?;
    Some(BlockLimits {
        optimal_granularity_blocks: bytes(whole, 6).map(u16::from_be_bytes).filter(|&blocks| blocks != 0),
        maximum_transfer_blocks: bytes(whole, 8).map(u32::from_be_bytes).filter(|&blocks| blocks != 0),
        optimal_transfer_blocks: bytes(whole, 12).map(u32::from_be_bytes).filter(|&blocks| blocks != 0),
        unmap_granularity_blocks: bytes(whole, 28).map(u32::from_be_bytes).filter(|&blocks| blocks != 0),
    })
}

/// Capacity of a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Number of logical blocks; none if the field of READ CAPACITY(10) is too small for it.
    pub block_count: Option<u64>,
    /// Length of a logical block.
    pub block_bytes: u32,
    /// Length of a physical block; only READ CAPACITY(16) has it.
    pub physical_block_bytes: Option<u32>,
    /// First logical block at the start of a physical one; only READ CAPACITY(16) has it.
    pub lowest_aligned_lba: Option<u16>,
}

/// Reads the parameter data of READ CAPACITY(10).
#[must_use]
pub fn capacity_10(data: &[u8]) -> Option<Capacity> {
    let last = u32::from_be_bytes(bytes(data, 0)?);
    Some(Capacity {
        block_count: (last != u32::MAX).then_some(u64::from(last) + 1),
        block_bytes: u32::from_be_bytes(bytes(data, 4)?),
        physical_block_bytes: None,
        lowest_aligned_lba: None,
    })
}

/// Reads the parameter data of READ CAPACITY(16).
#[must_use]
pub fn capacity_16(data: &[u8]) -> Option<Capacity> {
    let block_bytes = u32::from_be_bytes(bytes(data, 8)?);
    let exponent = data.get(13).map(|byte| byte & 0x0f);
    Some(Capacity {
        block_count: u64::from_be_bytes(bytes(data, 0)?).checked_add(1),
        block_bytes,
        physical_block_bytes: exponent.and_then(|exponent| block_bytes.checked_mul(1 << exponent)),
        lowest_aligned_lba: bytes(data, 14).map(|field| u16::from_be_bytes(field) & 0x3fff),
    })
}

/// Asymmetric access state of a target port group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortGroup {
    /// Its number.
    pub target_port_group: u16,
    /// State: 0 active/optimized, 1 active/non-optimized, 2 standby, 3 unavailable, 4 LBA dependent, 14 offline,
    /// 15 transitioning.
    pub state: u8,
    /// Whether it is the preferred group.
    pub is_preferred: bool,
}

/// Reads the parameter data of REPORT TARGET PORT GROUPS, in either format, as far as it is there.
pub fn port_groups(data: &[u8]) -> impl Iterator<Item = PortGroup> + '_ {
    let length = bytes(data, 0).map_or(0, |field| u32::from_be_bytes(field) as usize);
    // format type of the extended header; in the other format these bits of a descriptor are reserved
    let header = if data.get(4).is_some_and(|byte| byte & 0x70 == 0x10) { 8 } else { 4 };
    let end = length.saturating_add(4).min(data.len());
    let mut rest = data.get(header..end).unwrap_or_default();
    std::iter::from_fn(move || {
        let descriptor: [u8; 8] = bytes(rest, 0)?;
        rest = rest.get(8 + 4 * usize::from(descriptor[7])..).unwrap_or_default();
        Some(PortGroup {
            target_port_group: u16::from_be_bytes([descriptor[2], descriptor[3]]),
            state: descriptor[0] & 0x0f,
            is_preferred: descriptor[0] & 0x80 != 0,
        })
    })
}

fn bytes<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..)?.first_chunk().copied()
}

/// A text field without its padding; control characters become `?`.
fn text(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(field);
    let text = text.trim_matches(|character| character == ' ' || character == '\0');
    text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cdb(bytes: &[u8]) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        cdb
    }

    #[test]
    fn the_cdb_tells_which_data_comes() {
        for (bytes, expected) in [
            (&[0x12, 0, 0, 0, 36][..], Some(ParameterData::StandardInquiry)),
            (&[0x12, 1, 0x80], Some(ParameterData::UnitSerialNumber)),
            (&[0x12, 1, 0x83], Some(ParameterData::DeviceIdentification)),
            (&[0x12, 1, 0xb0], Some(ParameterData::BlockLimits)),
            // the list of pages; the command data of SPC-2
            (&[0x12, 1, 0x00], None),
            (&[0x12, 2, 0x83], None),
            (&[0x25], Some(ParameterData::Capacity10)),
            (&[0x9e, 0x10], Some(ParameterData::Capacity16)),
            (&[0x9e, 0x12], None),
            (&[0xa3, 0x2a], Some(ParameterData::TargetPortGroups)),
            (&[0xa3, 0x0c], None),
            (&[0x28], None),
        ] {
            assert_eq!(ParameterData::of(&cdb(bytes)), expected, "{bytes:02x?}");
        }
    }

    #[test]
    fn fields_of_an_inquiry_count_where_they_are_complete() {
        let mut data = vec![0x05, 0x80, 0x06, 0x12, 31, 0x30, 0, 2];
        data.extend_from_slice(b"LIO-ORG disk\x07one        4.0 ");
        let found = standard_inquiry(&data).unwrap();
        assert_eq!((found.peripheral_qualifier, found.device_type, found.tpgs), (0, 5, Some(3)));
        let texts = [&found.vendor, &found.product, &found.revision].map(|text| text.as_deref().unwrap());
        assert_eq!(texts, ["LIO-ORG", "disk?one", "4.0"]);
        let cut = standard_inquiry(&data[..31]).unwrap();
        assert_eq!((cut.vendor.as_deref(), cut.product, cut.revision), (Some("LIO-ORG"), None, None));
        let absent = standard_inquiry(&[0x7f]).unwrap();
        assert_eq!((absent.peripheral_qualifier, absent.device_type, absent.tpgs), (3, 31, None));
        assert_eq!(standard_inquiry(&[]), None);
    }

    #[test]
    fn a_serial_number_is_whole_or_none() {
        assert_eq!(unit_serial_number(b"\x00\x80\x00\x06  ab12").as_deref(), Some("ab12"));
        assert_eq!(unit_serial_number(b"\x00\x80\x00\x06  ab12 padding").as_deref(), Some("ab12"));
        assert_eq!(unit_serial_number(b"\x00\x80\x00\x07  ab12"), None);
        assert_eq!(unit_serial_number(b"\x00\x83\x00\x02ab"), None, "another page");
        assert_eq!(unit_serial_number(b"\x00\x80\x00\x02  "), None, "nothing but padding");
    }

    /// VPD page 83h with these designators: code set, association and type, bytes.
    fn page_83(designators: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (code_set, kind, designator) in designators {
            body.extend_from_slice(&[*code_set, *kind, 0, designator.len() as u8]);
            body.extend_from_slice(designator);
        }
        let mut page = vec![0, 0x83];
        page.extend_from_slice(&(body.len() as u16).to_be_bytes());
        [page, body].concat()
    }

    const NAA_6: [u8; 16] = [0x60, 0x01, 0x40, 0x5a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    const NAA_3: [u8; 8] = [0x3a, 0xbc, 0, 0, 0, 0, 0, 1];

    #[test]
    fn the_best_designator_is_independent_of_its_place() {
        let all: [(u8, u8, &[u8]); 6] = [
            (1, 0x00, &[0xca, 0xfe]),
            (2, 0x01, b"LIO-ORG disk:1   "),
            (3, 0x08, b"iqn.2026-01.example:lu\0\0"),
            (1, 0x02, &[0, 0x17, 0x38, 0, 0, 1, 2, 3]),
            (1, 0x03, &NAA_3),
            (1, 0x03, &NAA_6),
        ];
        let names = [
            "vendor.cafe",
            "t10.LIO-ORG disk:1",
            "iqn.2026-01.example:lu",
            "eui.0017380000010203",
            "naa.3abc000000000001",
            "naa.6001405a0102030405060708090a0b0c",
        ];
        for (count, expected) in (1..).zip(names) {
            let mut some = all[..count].to_vec();
            for _ in 0..count {
                some.rotate_left(1);
                let found = identification(&page_83(&some)).unwrap();
                assert!(found.is_complete);
                assert_eq!(found.designator.unwrap().1, expected);
            }
        }
    }

    #[test]
    fn only_designators_of_the_logical_unit_name_it() {
        let page = page_83(&[
            (0x51, 0x94, &[0, 0, 0, 7]),
            (0x51, 0x95, &[0, 0, 0x12, 0x34]),
            (0x53, 0x98, b"iqn.2026-01.example:target,t,0x0001\0"),
            (0x51, 0xa3, &NAA_6),
            // a logical unit group, and one without bytes
            (1, 0x06, &[0, 0, 0, 1]),
            (1, 0x03, &[]),
            (2, 0x03, b"6001405ABC"),
        ]);
        let found = identification(&page).unwrap();
        assert_eq!((found.relative_target_port, found.target_port_group), (Some(7), Some(0x1234)));
        // some write the digits as text
        assert_eq!(found.designator, Some((DesignatorKind::Naa6, "naa.6001405abc".to_owned())));
    }

    #[test]
    fn a_cut_page_has_the_designators_before_the_cut() {
        let page = page_83(&[(2, 1, b"VENDOR"), (1, 3, &NAA_6), (0x51, 0x94, &[0, 0, 0, 7])]);
        let of = |length: usize| identification(&page[..length]).unwrap();
        assert_eq!(of(4), Identification::default());
        assert_eq!(of(13).designator, None);
        assert_eq!(of(14).designator.unwrap().1, "t10.VENDOR");
        assert_eq!(of(33).designator.unwrap().1, "t10.VENDOR");
        assert_eq!(of(34).designator.unwrap().0, DesignatorKind::Naa6);
        assert_eq!((of(41).relative_target_port, of(41).is_complete), (None, false));
        assert_eq!((of(42).relative_target_port, of(42).is_complete), (Some(7), true));
        assert_eq!(identification(&page[..3]), None);
    }

    #[test]
    fn block_limits_of_zero_are_none() {
        let mut page = vec![0, 0xb0, 0, 60];
        page.resize(64, 0);
        let none = BlockLimits {
            optimal_granularity_blocks: None,
            maximum_transfer_blocks: None,
            optimal_transfer_blocks: None,
            unmap_granularity_blocks: None,
        };
        assert_eq!(block_limits(&page), Some(none));
        page[7] = 8;
        (page[10], page[15]) = (1, 128);
        page[29] = 1;
        let some = BlockLimits {
            optimal_granularity_blocks: Some(8),
            maximum_transfer_blocks: Some(256),
            optimal_transfer_blocks: Some(128),
            unmap_granularity_blocks: Some(65_536),
        };
        assert_eq!(block_limits(&page), Some(some));
        assert_eq!(block_limits(&page[..31]), Some(BlockLimits { unmap_granularity_blocks: None, ..some }));
        // the 16 bytes of SBC-2
        page[3] = 12;
        assert_eq!(block_limits(&page), Some(BlockLimits { unmap_granularity_blocks: None, ..some }));
    }

    #[test]
    fn capacities_have_one_block_more_than_the_last() {
        let small = capacity_10(&[0, 0, 0x0f, 0xff, 0, 0, 2, 0]).unwrap();
        assert_eq!((small.block_count, small.block_bytes, small.physical_block_bytes), (Some(4096), 512, None));
        let too_small = capacity_10(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0]).unwrap();
        assert_eq!((too_small.block_count, too_small.block_bytes), (None, 4096));
        assert_eq!(capacity_10(&[0; 7]), None);
        let mut data = vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0x23, 0xc0, 0x07];
        data.resize(32, 0);
        let expected = Capacity {
            block_count: Some((1 << 32) + 1),
            block_bytes: 512,
            physical_block_bytes: Some(4096),
            lowest_aligned_lba: Some(7),
        };
        assert_eq!(capacity_16(&data), Some(expected));
        let cut = Capacity { physical_block_bytes: None, lowest_aligned_lba: None, ..expected };
        assert_eq!((capacity_16(&data[..12]), capacity_16(&data[..11])), (Some(cut), None));
        let most = capacity_16(&[0xff; 32]).unwrap();
        assert_eq!((most.block_count, most.physical_block_bytes), (None, None));
    }

    #[test]
    fn port_groups_are_read_in_both_formats() {
        let groups = [
            [0x80, 0xff, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2].to_vec(),
            [0x0f, 0xff, 0x12, 0x34, 0, 2, 0, 0].to_vec(),
        ]
        .concat();
        let expected = [
            PortGroup { target_port_group: 1, state: 0, is_preferred: true },
            PortGroup { target_port_group: 0x1234, state: 15, is_preferred: false },
        ];
        let short = [&[0, 0, 0, 24][..], &groups, &[0xee; 9]].concat();
        let extended = [&[0, 0, 0, 28, 0x10, 5, 0, 0][..], &groups, &[0xee; 9]].concat();
        for data in [&short, &extended] {
            assert_eq!(port_groups(data).collect::<Vec<_>>(), expected);
        }
        assert_eq!(port_groups(&short[..27]).count(), 1);
        // the first group is there without its ports
        assert_eq!(port_groups(&short[..12]).count(), 1);
        assert_eq!(port_groups(&[0, 0, 0]).count(), 0);
    }

    proptest! {
        #[test]
        fn any_data_is_read(data in proptest::collection::vec(any::<u8>(), 0..300), code in any::<u8>()) {
            let mut of_page = data.clone();
            if let Some(place) = of_page.get_mut(1) {
                *place = [0x80, 0x83, 0xb0][usize::from(code) % 3];
            }
            for data in [&data, &of_page] {
                prop_assert_eq!(standard_inquiry(data).is_none(), data.is_empty());
                prop_assert_eq!(capacity_10(data).is_some(), data.len() >= 8);
                prop_assert_eq!(capacity_16(data).is_some(), data.len() >= 12);
                let pages = [
                    unit_serial_number(data).is_some(),
                    identification(data).is_some(),
                    block_limits(data).is_some(),
                ];
                prop_assert!(pages.iter().filter(|&&is_page| is_page).count() <= 1);
                prop_assert!(port_groups(data).count() <= data.len() / 8);
            }
        }
    }
}
