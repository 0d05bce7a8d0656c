//! CRC32C header and data digests (RFC 7143 section 13.1).
//!
//! The caller knows whether a connection uses digests, and which bytes they cover.

/// CRC32C of `bytes`.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC32C of the bytes with CRC `crc`, followed by `bytes`; the CRC of nothing is 0.
#[inline]
#[must_use]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// CRC32C of the bytes with CRC `crc`, followed by so many zeros: as many steps as their number has bits.
#[must_use]
pub fn append_zeros(crc: u32, count: usize) -> u32 {
    // the library moves a remainder behind other bytes; that of a CRC is inverted
    !crc32c::crc32c_combine(!crc, 0, count)
}

/// The four bytes of a digest in the order in which they are sent.
///
/// The CRC's bit order makes it little-endian on the wire, unlike every other number of a PDU.
#[inline]
#[must_use]
pub fn to_wire(crc: u32) -> [u8; 4] {
    crc.to_le_bytes()
}

/// The CRC of four digest bytes on the wire.
#[inline]
#[must_use]
pub fn from_wire(bytes: [u8; 4]) -> u32 {
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::{append, append_zeros, crc32c, from_wire, to_wire};

    /// The SCSI Read (10) Command PDU of RFC 7143 appendix A.4.
    const READ_10: [u8; 48] = [
        0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, //
        0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, //
        0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    ];

    /// The examples of RFC 7143 appendix A.4, digest bytes in the order of the wire.
    fn examples() -> [(Vec<u8>, [u8; 4]); 5] {
        [
            (vec![0x00; 32], [0xaa, 0x36, 0x91, 0x8a]),
            (vec![0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            ((0x00..=0x1f).collect(), [0x4e, 0x79, 0xdd, 0x46]),
            ((0x00..=0x1f).rev().collect(), [0x5c, 0xdb, 0x3f, 0x11]),
            (READ_10.to_vec(), [0x56, 0x3a, 0x96, 0xd9]),
        ]
    }

    #[test]
    fn digests_are_those_of_the_rfc() {
        for (bytes, wire) in examples() {
            assert_eq!(to_wire(crc32c(&bytes)), wire);
            assert_eq!(from_wire(wire), crc32c(&bytes));
        }
    }

    #[test]
    fn a_digest_can_be_taken_piecewise() {
        for (bytes, wire) in examples() {
            let byte_by_byte = bytes.iter().fold(0, |crc, byte| append(crc, &[*byte]));
            assert_eq!(to_wire(byte_by_byte), wire);
            for cut in 0..=bytes.len() {
                let (head, tail) = bytes.split_at(cut);
                assert_eq!(to_wire(append(crc32c(head), tail)), wire);
            }
        }
    }

    #[test]
    fn zeros_need_not_be_there() {
        for count in (0..70).chain([4095, 4096, 4097, 1 << 20, (1 << 20) + 12_345]) {
            let (_, wire) = &examples()[4];
            let crc = crc32c(&READ_10);
            assert_eq!(to_wire(crc), *wire);
            assert_eq!(append_zeros(crc, count), append(crc, &vec![0; count]), "{count}");
        }
        // 16 EiB: the powers of x repeat after 2^31 - 1
        assert_eq!(append_zeros(0, usize::MAX), append(0, &[0; 3]));
    }
}
