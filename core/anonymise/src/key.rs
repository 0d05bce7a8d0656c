//! A secret -> numbers that only its owner can repeat: HMAC-SHA-256 (RFC 2104) over a purpose and bytes.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Length of a secret.
pub const KEY_BYTES: usize = 32;

/// The secret, ready for use.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl Key {
    /// The secret of these bytes.
    pub fn new(secret: &[u8; KEY_BYTES]) -> Self {
        // a shorter key than a block is filled with zeros (RFC 2104 section 2)
        let mut block = [0; 64];
        block[..KEY_BYTES].copy_from_slice(secret);
        Self(<Hmac<Sha256> as KeyInit>::new(&block.into()))
    }

    /// 32 bytes that look random without the secret; the same for the same purpose and parts.
    pub fn digest(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.0.clone();
        for part in [purpose.as_bytes()].iter().chain(parts) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// Any number of such bytes.
    pub fn bytes(&self, purpose: &str, of: &[u8]) -> impl Iterator<Item = u8> + '_ {
        let (purpose, of) = (purpose.to_owned(), of.to_owned());
        (0_u64..).flat_map(move |block| self.digest(&purpose, &[&block.to_be_bytes(), &of]))
    }

    /// One of `choices` numbers in the place of another: a permutation that depends on purpose and context. The numbers are
    /// put in the order of their digests.
    pub fn permuted(&self, purpose: &str, context: &[u8], number: u8, choices: std::ops::RangeInclusive<u8>) -> u8 {
        let mut order: Vec<([u8; 32], u8)> =
            choices.clone().map(|choice| (self.digest(purpose, &[context, &[choice]]), choice)).collect();
        order.sort_unstable();
        let place = usize::from(number.wrapping_sub(*choices.start()));
        order.get(place).map_or(number, |&(_, choice)| choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let key = Key::new(&[7; KEY_BYTES]);
        assert_ne!(key.digest("a", &[b"bc", b"d"]), key.digest("a", &[b"b", b"cd"]));
        assert_ne!(key.digest("a", &[b"b"]), key.digest("ab", &[]));
        assert_ne!(key.digest("a", &[]), Key::new(&[8; KEY_BYTES]).digest("a", &[]));
    }

    /// RFC 4231 has no 32-byte key, so the vector is of Python's hmac: `hmac.new(b"\x07" * 32, (1).to_bytes(8, "big") + b"a",
    /// "sha256")`.
    #[test]
    fn it_is_hmac_sha_256() {
        let found = Key::new(&[7; KEY_BYTES]).digest("a", &[]);
        let hexadecimal: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hexadecimal, "0eff5865c6601ac7c16849c20a20547c55637abc83d589476c630c8fb6394be6");
    }

    #[test]
    fn a_permutation_reaches_every_number_once() {
        let key = Key::new(&[7; KEY_BYTES]);
        let mut found: Vec<u8> = (100..=255).map(|number| key.permuted("p", b"c", number, 100..=255)).collect();
        assert_ne!(found, (100..=255).collect::<Vec<u8>>());
        found.sort_unstable();
        assert_eq!(found, (100..=255).collect::<Vec<u8>>());
        assert_eq!(key.permuted("p", b"c", 5, 10..=20), 5, "not one of the choices");
    }
}
