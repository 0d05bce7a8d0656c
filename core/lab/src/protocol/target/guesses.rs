//! Failed authentications by address, so that a secret cannot be guessed at full speed.

use std::net::{IpAddr, Ipv6Addr};

use rustc_hash::FxHashMap;

/// Failed authentications of an address within [`WAIT_NS`] before its connections are refused.
const GUESSES: u32 = 16;
/// Time from the first of them until the address may try again.
const WAIT_NS: i64 = 10_000_000_000;
/// Addresses that are remembered.
const ADDRESSES: usize = 4096;

/// Failed authentications by address.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    /// How many, and the time of the first.
    by_address: FxHashMap<IpAddr, (u32, i64)>,
}

impl Guesses {
    /// Notes a failed authentication.
    pub fn note(&mut self, now_ns: i64, address: IpAddr) {
        if self.by_address.len() >= ADDRESSES {
            self.by_address.retain(|_, (_, since_ns)| now_ns.saturating_sub(*since_ns) < WAIT_NS);
        }
        if self.by_address.len() >= ADDRESSES
            && let Some((&oldest, _)) = self.by_address.iter().min_by_key(|(_, (_, since_ns))| *since_ns)
        {
            self.by_address.remove(&oldest);
        }
        let (count, since_ns) = self.by_address.entry(site(address)).or_insert((0, now_ns));
        if now_ns.saturating_sub(*since_ns) >= WAIT_NS {
            (*count, *since_ns) = (0, now_ns);
        }
        *count = count.saturating_add(1);
    }

    /// Whether an address has to wait.
    pub fn has_to_wait(&self, now_ns: i64, address: IpAddr) -> bool {
        let found = self.by_address.get(&site(address));
        found.is_some_and(|&(count, since_ns)| count >= GUESSES && now_ns.saturating_sub(since_ns) < WAIT_NS)
    }
}

/// An IPv4 address; of an IPv6 address its network, in which a host may have any address.
pub(super) fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn an_address_that_guesses_has_to_wait_and_others_do_not() {
        let mut guesses = Guesses::default();
        for guess in 0..i64::from(GUESSES) {
            assert!(!guesses.has_to_wait(guess, address(1)));
            guesses.note(guess, address(1));
        }
        assert!(guesses.has_to_wait(9 * SECOND_NS, address(1)));
        assert!(!guesses.has_to_wait(9 * SECOND_NS, address(2)));
        assert!(!guesses.has_to_wait(10 * SECOND_NS, address(1)));
        guesses.note(10 * SECOND_NS, address(1));
        assert!(!guesses.has_to_wait(10 * SECOND_NS, address(1)));
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one() {
        let mut guesses = Guesses::default();
        for host in 0..GUESSES {
            guesses.note(0, format!("2001:db8::{host:x}").parse().unwrap());
        }
        assert!(guesses.has_to_wait(1, "2001:db8::ffff".parse().unwrap()));
        assert!(!guesses.has_to_wait(1, "2001:db8:0:1::1".parse().unwrap()));
    }

    #[test]
    fn few_addresses_are_remembered() {
        let mut guesses = Guesses::default();
        for number in 0..3 * ADDRESSES as u32 {
            guesses.note(i64::from(number), IpAddr::from(number.to_be_bytes()));
        }
        assert!(guesses.by_address.len() <= ADDRESSES);
    }
}
