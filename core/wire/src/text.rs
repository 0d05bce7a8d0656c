//! `key=value` pairs of a Login or Text data segment (RFC 7143 section 6.1).
//!
//! The caller joins the parts of a text over several PDUs (the C bit) and knows what a key means. Errors never contain
//! a value, which can be a CHAP secret.

use std::borrow::Cow;

use memchr::memchr;

/// Longest key name (RFC 7143 section 6.1), in bytes.
pub const KEY_LENGTH_MAX_BYTES: usize = 63;

/// Why a NUL-terminated string of the data segment is not a `key=value` pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// There is no `=`.
    #[error("text without '='")]
    NoEqualsSign,
    /// There is no key before the `=`.
    #[error("text with an empty key")]
    EmptyKey,
    /// The key is longer than [`KEY_LENGTH_MAX_BYTES`].
    #[error("text with a key of more than 63 bytes")]
    KeyTooLong,
    /// The key has a byte that is not printable ASCII.
    #[error("text with a key that is not printable ASCII")]
    KeyNotAscii,
}

/// The pairs of a complete data segment, without its padding.
///
/// Empty strings (padding counted as data) are skipped, and a last pair without its NUL is accepted.
#[must_use]
pub fn pairs(data: &[u8]) -> Pairs<'_> {
    Pairs { rest: data }
}

/// Iterator over the pairs of a data segment, made by [`pairs`].
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(&'a str, Cow<'a, str>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let (line, rest) = split_at_byte(self.rest, 0).unwrap_or((self.rest, &[]));
            self.rest = rest;
            if !line.is_empty() {
                return Some(pair(line));
            }
        }
        None
    }
}

fn pair(line: &[u8]) -> Result<(&str, Cow<'_, str>), Malformed> {
    let (key, value) = split_at_byte(line, b'=').ok_or(Malformed::NoEqualsSign)?;
    if key.is_empty() {
        return Err(Malformed::EmptyKey);
    }
    if key.len() > KEY_LENGTH_MAX_BYTES {
        return Err(Malformed::KeyTooLong);
    }
    if !key.iter().all(u8::is_ascii_graphic) {
        return Err(Malformed::KeyNotAscii);
    }
    let key = str::from_utf8(key).map_err(|_| Malformed::KeyNotAscii)?;
    Ok((key, String::from_utf8_lossy(value)))
}

/// The parts before and after the first `separator`.
fn split_at_byte(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let place = memchr(separator, bytes)?;
    Some((bytes.get(..place)?, bytes.get(place + 1..)?))
}

/// A boolean-value: `Yes` or `No`.
#[must_use]
pub fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// A numerical-value of at most 64 bits: a decimal-constant, or a hex-constant that starts with `0x` or `0X`.
#[must_use]
pub fn numeric(value: &str) -> Option<u64> {
    match value.as_bytes() {
        // from_str_radix accepts a sign, which no constant of RFC 7143 has
        [b'+', ..] | [b'0', b'x' | b'X', b'+', ..] => None,
        [b'0', b'x' | b'X', ..] => u64::from_str_radix(value.get(2..)?, 16).ok(),
        [b'0', _, ..] => None,
        _ => value.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Malformed, boolean, numeric, pairs};
    use proptest::prelude::*;

    fn owned(data: &[u8]) -> Vec<Result<(String, String), Malformed>> {
        pairs(data).map(|pair| pair.map(|(key, value)| (key.to_owned(), value.into_owned()))).collect()
    }

    fn ok(key: &str, value: &str) -> Result<(String, String), Malformed> {
        Ok((key.to_owned(), value.to_owned()))
    }

    #[test]
    fn pairs_are_separated_by_nul() {
        let data =
            b"InitiatorName=iqn.1993-08.org.debian:01:abc\0TargetName=iqn.2003-01.org:x=y\0MaxBurstLength=262144\0";
        assert_eq!(
            owned(data),
            [
                ok("InitiatorName", "iqn.1993-08.org.debian:01:abc"),
                ok("TargetName", "iqn.2003-01.org:x=y"),
                ok("MaxBurstLength", "262144")
            ]
        );
    }

    #[test]
    fn an_empty_value_padding_and_a_missing_nul_are_no_error() {
        assert_eq!(owned(b"TargetAlias=\0\0\0"), [ok("TargetAlias", "")]);
        assert_eq!(owned(b"\0\0A=1\0\0B=2"), [ok("A", "1"), ok("B", "2")]);
        assert_eq!(owned(b""), []);
        assert_eq!(owned(b"\0"), []);
    }

    #[test]
    fn a_value_that_is_not_utf8_is_shown_lossily() {
        assert_eq!(owned(b"X-a=\xff\0"), [ok("X-a", "\u{fffd}")]);
    }

    #[test]
    fn a_malformed_pair_does_not_stop_the_next() {
        let long = [vec![b'K'; 64], b"=1\0".to_vec()].concat();
        let longest = [vec![b'K'; 63], b"=1\0".to_vec()].concat();
        assert_eq!(owned(b"garbage\0A=1\0"), [Err(Malformed::NoEqualsSign), ok("A", "1")]);
        assert_eq!(owned(b"=1\0"), [Err(Malformed::EmptyKey)]);
        assert_eq!(owned(&long), [Err(Malformed::KeyTooLong)]);
        assert_eq!(owned(&longest), [ok(&"K".repeat(63), "1")]);
        assert_eq!(owned(b"K\xc3\xa9y=1\0"), [Err(Malformed::KeyNotAscii)]);
        assert_eq!(owned(b"K\ny=1\0"), [Err(Malformed::KeyNotAscii)]);
    }

    #[test]
    fn values_are_those_of_section_6_1() {
        assert_eq!((boolean("Yes"), boolean("No"), boolean("yes"), boolean("")), (Some(true), Some(false), None, None));
        assert_eq!(numeric("0"), Some(0));
        assert_eq!(numeric("262144"), Some(262_144));
        assert_eq!(numeric("0x40000"), Some(262_144));
        assert_eq!(numeric("0XfF"), Some(255));
        assert_eq!(numeric("18446744073709551615"), Some(u64::MAX));
        for bad in ["", "0x", "-1", "+1", "0x+1", "007", "1 ", "1k", "18446744073709551616", "0x10000000000000000"] {
            assert_eq!(numeric(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_pairs_or_errors(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let strings = data.split(|byte| *byte == 0).filter(|string| !string.is_empty()).count();
            prop_assert_eq!(pairs(&data).count(), strings);
        }

        #[test]
        fn what_was_joined_is_taken_apart(
            expected in proptest::collection::vec(("[A-Z][A-Za-z0-9.@_+-]{0,62}", "[^\0]{0,40}"), 0..10)
        ) {
            let data: String = expected.iter().map(|(key, value)| format!("{key}={value}\0")).collect();
            let found: Result<Vec<_>, _> = owned(data.as_bytes()).into_iter().collect();
            prop_assert_eq!(found, Ok(expected));
        }
    }
}
