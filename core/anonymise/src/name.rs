//! Names, serial numbers and designators -> others of the same length: the same name is always replaced by the same.

use crate::key::Key;

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// How an iSCSI name of type `iqn.` begins that is long enough for a date.
const IQN: &[u8] = b"iqn.2000-01.";
/// Letters that make a replacement unlike any other, behind the date.
const OWN_LETTERS_MIN: usize = 8;

/// The name in the place of another. Its type stays: `iqn.`, `eui.`, `naa.`.
pub fn name(key: &Key, original: &[u8]) -> Vec<u8> {
    let (start, letters): (&[u8], &[u8]) = match original {
        [b'i', b'q', b'n', b'.', ..] if original.len() >= IQN.len() + OWN_LETTERS_MIN => (IQN, LETTERS),
        [b'i', b'q', b'n', b'.', ..] => (&IQN[..4], LETTERS),
        [b'e', b'u', b'i', b'.', ..] | [b'n', b'a', b'a', b'.', ..] => (&original[..4], DIGITS),
        _ => (&[], LETTERS),
    };
    let own = original.len() - start.len();
    let random = key.bytes("name", original).map(|byte| letters[usize::from(byte) % letters.len()]);
    let replaced: Vec<u8> = start.iter().copied().chain(random.take(own)).collect();
    // a short one can meet itself
    if replaced == original && own > 0 {
        return replaced
            .iter()
            .enumerate()
            .map(|(place, &byte)| if place < start.len() { byte } else { next(byte) })
            .collect();
    }
    replaced
}

fn next(letter: u8) -> u8 {
    if letter == b'a' { b'b' } else { b'a' }
}

/// A text field with padding of spaces or NUL on both sides, which stays.
pub fn padded(key: &Key, field: &[u8]) -> Vec<u8> {
    let is_padding = |byte: &u8| matches!(byte, b' ' | 0);
    let Some(first) = field.iter().position(|byte| !is_padding(byte)) else { return field.to_vec() };
    let end = field.iter().rposition(|byte| !is_padding(byte)).map_or(first, |last| last + 1);
    [&field[..first], &name(key, &field[first..end]), &field[end..]].concat()
}

/// The number in the place of another, as bytes; the upper `kept_bits` of the first byte stay.
pub fn number(key: &Key, original: &[u8], kept_bits: u32) -> Vec<u8> {
    let kept = !(0xff_u8.checked_shr(kept_bits).unwrap_or(0));
    let mut replaced: Vec<u8> = key.bytes("number", original).take(original.len()).collect();
    if let (Some(first), Some(original)) = (replaced.first_mut(), original.first()) {
        *first = original & kept | *first & !kept;
    }
    replaced
}

/// Hexadecimal digits in the place of others; the first stays.
pub fn digits(key: &Key, original: &[u8]) -> Vec<u8> {
    let random = key.bytes("digits", &original.to_ascii_lowercase()).map(|byte| DIGITS[usize::from(byte & 0x0f)]);
    original.iter().copied().take(1).chain(random.take(original.len().saturating_sub(1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KEY_BYTES;
    use proptest::prelude::*;

    fn key() -> Key {
        Key::new(&[5; KEY_BYTES])
    }

    proptest! {
        #[test]
        fn a_name_keeps_its_length_and_nothing_else(original in prop::collection::vec(any::<u8>(), 1..300)) {
            let replaced = name(&key(), &original);
            prop_assert_eq!(replaced.len(), original.len());
            prop_assert_ne!(&replaced, &original);
            prop_assert_eq!(replaced, name(&key(), &original));
        }

        #[test]
        fn padding_stays(left in 0_usize..4, own in "[a-z0-9]{0,12}", right in 0_usize..9) {
            let field = [&b"  \0 "[..left], own.as_bytes(), &b"   \0\0    "[..right]].concat();
            let replaced = padded(&key(), &field);
            prop_assert_eq!(replaced.len(), field.len());
            prop_assert_eq!(&replaced[..left], &field[..left]);
            prop_assert_eq!(&replaced[left + own.len()..], &field[left + own.len()..]);
            prop_assert_eq!(&replaced[left..left + own.len()] == own.as_bytes(), own.is_empty());
        }
    }

    #[test]
    fn the_type_of_a_name_stays() {
        let replaced = |text: &str| String::from_utf8(name(&key(), text.as_bytes())).unwrap();
        assert!(replaced("iqn.2003-01.org.example:disk").starts_with("iqn.2000-01."));
        assert!(replaced("iqn.1991-05.a").starts_with("iqn."));
        assert!(replaced("naa.6001405").starts_with("naa."));
        assert_eq!(replaced("eui.02004567A425678D").len(), 20);
    }

    #[test]
    fn a_number_keeps_the_bits_that_say_what_it_is() {
        let original = [0x60, 0x01, 0x40, 0x5a];
        let replaced = number(&key(), &original, 4);
        assert_eq!(replaced[0] >> 4, 6);
        assert_ne!(replaced[1..], original[1..]);
        assert_eq!(digits(&key(), b"6001405A"), digits(&key(), b"6001405a"));
        assert_eq!(digits(&key(), b"6001405a")[0], b'6');
        assert!(number(&key(), &[], 4).is_empty());
    }
}
