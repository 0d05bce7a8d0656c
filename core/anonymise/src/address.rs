//! IP and MAC addresses -> others.
//!
//! Crypto-PAn's construction (Xu, Fan, Ammar, Moon: "Prefix-Preserving IP Address Anonymization", ICNP 2002) over digits
//! instead of bits: each part of an address is permuted, by a permutation that depends on all parts before it. So two
//! addresses have as long a prefix in common as before. Parts are the numbers of an IPv4 address, each replaced by one of
//! as many digits, and the hexadecimal digits of an IPv6 address, without leading zeros: the text of an address, which
//! login text contains, keeps its length.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use rustc_hash::FxHashMap;

use crate::key::Key;

/// Addresses that are remembered: more are computed again.
const REMEMBERED_MAX: usize = 1 << 16;

/// The mapping of addresses.
pub struct Addresses {
    key: Key,
    remembered: RefCell<FxHashMap<IpAddr, IpAddr>>,
}

impl Addresses {
    /// The mapping by a key.
    pub fn new(key: &Key) -> Self {
        Self { key: key.clone(), remembered: RefCell::default() }
    }

    /// The address in the place of an IP address.
    pub fn ip(&self, address: IpAddr) -> IpAddr {
        if let Some(&known) = self.remembered.borrow().get(&address) {
            return known;
        }
        let mapped = match address {
            IpAddr::V4(address) => IpAddr::V4(self.v4(address.octets())),
            IpAddr::V6(address) => IpAddr::V6(self.v6(address.octets())),
        };
        let mut remembered = self.remembered.borrow_mut();
        if remembered.len() < REMEMBERED_MAX {
            remembered.insert(address, mapped);
        }
        mapped
    }

    fn v4(&self, octets: [u8; 4]) -> Ipv4Addr {
        let mut mapped = octets;
        for (place, (&octet, mapped)) in octets.iter().zip(&mut mapped).enumerate() {
            *mapped = self.key.permuted("IPv4", &octets[..place], octet, alike(octet, place == 0));
        }
        mapped.into()
    }

    fn v6(&self, octets: [u8; 16]) -> Ipv6Addr {
        let digits: Vec<u8> = octets.iter().flat_map(|octet| [octet >> 4, octet & 0x0f]).collect();
        let is_special = digits[0] == 0x0f;
        let mut mapped = digits.clone();
        for (place, &digit) in digits.iter().enumerate() {
            let is_leading = digits[place - place % 4..place].iter().all(|&before| before == 0);
            let choices = match (place, digit) {
                // link-local, unique local and multicast addresses stay such
                (0, 0x0f) => continue,
                (1, _) if is_special => continue,
                (0, 1..) => 1..=0x0e,
                (_, 0) if is_leading => continue,
                _ if is_leading => 1..=0x0f,
                _ => 0..=0x0f,
            };
            mapped[place] = self.key.permuted("IPv6", &digits[..place], digit, choices);
        }
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(mapped.chunks_exact(2)).for_each(|(byte, pair)| *byte = pair[0] << 4 | pair[1]);
        bytes.into()
    }

    /// The address in the place of a MAC address: locally administered; group addresses stay such. Broadcast and none stay.
    pub fn mac(&self, address: [u8; 6]) -> [u8; 6] {
        if address == [0xff; 6] || address == [0; 6] {
            return address;
        }
        let [a, b, c, d, e, f, ..] = self.key.digest("MAC", &[&address]);
        [a & 0xfc | 0x02 | address[0] & 0x01, b, c, d, e, f]
    }
}

/// The numbers that may take the place of one in an IPv4 address. Special addresses stay such: none, loopback, multicast.
fn alike(octet: u8, is_first: bool) -> RangeInclusive<u8> {
    match (octet, is_first) {
        (0, true) => 0..=0,
        (127, true) => 127..=127,
        (224.., true) => octet..=octet,
        (1..=9, true) => 1..=9,
        (100..=126, true) => 100..=126,
        (128..=223, true) => 128..=223,
        (0..=9, _) => 0..=9,
        (10..=99, _) => 10..=99,
        (100.., _) => 100..=255,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KEY_BYTES;
    use proptest::prelude::*;

    fn addresses() -> Addresses {
        Addresses::new(&Key::new(&[3; KEY_BYTES]))
    }

    /// Parts that two addresses have in common at their beginning.
    fn common<T: PartialEq>(one: &[T], other: &[T]) -> usize {
        one.iter().zip(other).take_while(|(one, other)| one == other).count()
    }

    fn digits(address: [u8; 16]) -> Vec<u8> {
        address.iter().flat_map(|octet| [octet >> 4, octet & 0x0f]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn prefixes_and_lengths_stay(one: [u8; 4], other: [u8; 4], shared in 0_usize..=4) {
            let mut other = other;
            other[..shared].copy_from_slice(&one[..shared]);
            let map = addresses();
            let [a, b] = [one, other].map(|octets| map.v4(octets));
            prop_assert_eq!(common(&a.octets(), &b.octets()), common(&one, &other));
            prop_assert_eq!(a.to_string().len(), Ipv4Addr::from(one).to_string().len());
        }

        #[test]
        fn prefixes_and_lengths_stay_in_ipv6(one: [u8; 16], zeros: [bool; 16], shared in 0_usize..=16) {
            let mut one = one;
            one.iter_mut().zip(zeros).filter(|(_, is_zero)| *is_zero).for_each(|(octet, _)| *octet = 0);
            let mut other = [0x5a; 16];
            other[..shared].copy_from_slice(&one[..shared]);
            let map = addresses();
            let [a, b] = [one, other].map(|octets| map.v6(octets));
            prop_assert_eq!(
                common(&digits(a.octets()), &digits(b.octets())), common(&digits(one), &digits(other)));
            // not Ipv4 within Ipv6, whose text is another one
            if one[..10] != [0; 10] {
                prop_assert_eq!(a.to_string().len(), Ipv6Addr::from(one).to_string().len());
            }
        }
    }

    #[test]
    fn special_addresses_stay_special_and_others_change() {
        let map = addresses();
        for text in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "ff02::1", "fe80::1", "fd00::1"] {
            let address: IpAddr = text.parse().unwrap();
            let mapped = map.ip(address);
            match (address, mapped) {
                (IpAddr::V4(address), IpAddr::V4(mapped)) => assert_eq!(address.octets()[0], mapped.octets()[0]),
                (IpAddr::V6(address), IpAddr::V6(mapped)) => assert_eq!(address.octets()[0], mapped.octets()[0]),
                _ => panic!("another version"),
            }
        }
        let changed = |text: &str| {
            let address: IpAddr = text.parse().unwrap();
            map.ip(address) != address
        };
        assert!(["10.20.30.40", "192.168.100.200", "2001:db8::1"].into_iter().all(changed));
        assert_eq!(map.mac([0xff; 6]), [0xff; 6]);
        assert_eq!(map.mac([0x01, 0, 0x5e, 0, 0, 1])[0] & 0x03, 0x03);
        assert_eq!(map.mac([0x52, 0x54, 0, 1, 2, 3])[0] & 0x03, 0x02);
        assert_ne!(map.mac([0x52, 0x54, 0, 1, 2, 3]), map.mac([0x52, 0x54, 0, 1, 2, 4]));
    }
}
