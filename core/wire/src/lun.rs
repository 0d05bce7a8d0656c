//! Logical unit numbers: the 8 bytes of SAM-5 section 4.7 <-> the number that users know.

/// The number of a single level LUN, in peripheral device addressing on bus 0 or in flat space addressing; none for
/// other methods or more levels.
#[inline]
#[must_use]
pub fn single_level(lun: [u8; 8]) -> Option<u16> {
    let [first, second, rest @ ..] = lun;
    if rest != [0; 6] {
        return None;
    }
    match first >> 6 {
        0b00 if first == 0 => Some(u16::from(second)),
        0b01 => Some(u16::from_be_bytes([first & 0x3f, second])),
        _ => None,
    }
}

/// The number as in tshark's `scsi.lun`: that of a single level LUN, otherwise the eight bytes as one number.
#[inline]
#[must_use]
pub fn number(lun: [u8; 8]) -> u64 {
    single_level(lun).map_or(u64::from_be_bytes(lun), u64::from)
}

/// The LUN of a number below 16384: in peripheral device addressing if possible, otherwise in flat space addressing.
#[must_use]
pub fn encode(number: u16) -> [u8; 8] {
    let method = if number < 256 { 0 } else { 0x40 };
    let [high, low] = number.to_be_bytes();
    [method | high & 0x3f, low, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::{encode, number, single_level};

    #[test]
    fn single_level_addresses_are_small_numbers() {
        assert_eq!(number([0, 5, 0, 0, 0, 0, 0, 0]), 5);
        assert_eq!(number([0x41, 0x02, 0, 0, 0, 0, 0, 0]), 0x102);
        assert_eq!(single_level([0x40, 0x05, 0, 0, 0, 0, 0, 0]), Some(5), "in flat space, too");
    }

    #[test]
    fn others_are_all_of_their_bytes() {
        for (lun, expected) in [
            ([0xc1, 0x01, 0, 0, 0, 0, 0, 0], 0xc101 << 48),
            ([0x01, 0x05, 0, 0, 0, 0, 0, 0], 0x0105 << 48),
            ([0, 1, 0, 2, 0, 0, 0, 0], 0x0001_0002 << 32),
        ] {
            assert_eq!((single_level(lun), number(lun)), (None, expected));
        }
    }

    #[test]
    fn numbers_are_encoded_by_the_method_that_reaches_them() {
        assert_eq!(encode(255), [0, 255, 0, 0, 0, 0, 0, 0]);
        assert_eq!(encode(256), [0x41, 0, 0, 0, 0, 0, 0, 0]);
        assert!((0..16_384).all(|number| single_level(encode(number)) == Some(number)));
    }
}
