//! The checksum of IP, ICMP and TCP (RFC 1071).

/// The checksum of the bytes of several parts; all but the last have an even length.
pub fn of(parts: &[&[u8]]) -> [u8; 2] {
    let mut sum = 0_u64;
    for part in parts {
        let pairs = part.chunks(2).map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low)));
        sum += pairs.sum::<u64>();
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    /// The example of RFC 1071 section 3, whose sum is ddf2.
    #[test]
    fn it_is_that_of_the_rfc() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(super::of(&[&bytes]), (!0xddf2_u16).to_be_bytes());
        assert_eq!(super::of(&[&bytes[..4], &bytes[4..]]), (!0xddf2_u16).to_be_bytes());
        assert_eq!(super::of(&[&[0xff]]), (!0xff00_u16).to_be_bytes());
    }
}
