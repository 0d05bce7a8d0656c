//! Logical unit numbers: the 8 bytes of SAM-5 section 4.7 <-> the number that people know.

/// The number as tshark's `scsi.lun` shows it: the peripheral or flat address, or the eight bytes as one number when
/// they are of another or more than one level.
pub fn number(lun: [u8; 8]) -> u64 {
    let [first, second, rest @ ..] = lun;
    if rest != [0; 6] {
        return u64::from_be_bytes(lun);
    }
    match first >> 6 {
        // peripheral device addressing on bus 0, flat space addressing
        0b00 if first == 0 => u64::from(second),
        0b01 => u64::from(first & 0x3f) << 8 | u64::from(second),
        _ => u64::from_be_bytes(lun),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn simple_addresses_are_small_numbers() {
        assert_eq!(number([0, 5, 0, 0, 0, 0, 0, 0]), 5);
        assert_eq!(number([0x41, 0x02, 0, 0, 0, 0, 0, 0]), 0x102);
        assert_eq!(number([0xc1, 0x01, 0, 0, 0, 0, 0, 0]), 0xc101 << 48);
        assert_eq!(number([0, 1, 0, 2, 0, 0, 0, 0]), 0x0001_0002 << 32);
    }
}
