//! Encoding of `key=value` pairs of Login and Text PDUs (RFC 7143 section 6.1); `iscsitrace_wire::text` parses them.
//!
//! It joins and splits text over PDUs (the C bit), within limits, and never interprets keys.

/// Longest text of one negotiation step, over all its PDUs: twice what every side must accept (RFC 7143 section 6.1),
/// in bytes.
pub const TEXT_LENGTH_MAX_BYTES: usize = 16 << 10;

/// Longest data segment of a login PDU: the default, before a declaration (RFC 7143 section 13.12), in bytes.
pub const LOGIN_DATA_SEGMENT_MAX_BYTES: usize = 8192;

/// A text that is being written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TextWriter {
    bytes: Vec<u8>,
}

impl TextWriter {
    /// Appends `key=value` and its NUL.
    pub fn pair(&mut self, key: &str, value: &str) {
        self.bytes.extend_from_slice(key.as_bytes());
        self.bytes.push(b'=');
        // a NUL in the value would start another pair
        self.bytes.extend(value.bytes().filter(|byte| *byte != 0));
        self.bytes.push(0);
    }

    /// Appends another text.
    pub fn append(&mut self, other: TextWriter) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The text.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Text that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than 16384 bytes of text in one negotiation step")]
pub struct TooLong;

/// Joins the parts of a received text.
#[derive(Default, Clone)]
pub struct Joiner {
    bytes: Vec<u8>,
}

impl Joiner {
    /// Takes a part; returns the complete text after a part without `is_continue`. A pair may span two parts.
    ///
    /// # Errors
    /// [`TooLong`] if the text is longer than [`TEXT_LENGTH_MAX_BYTES`].
    pub fn take(&mut self, part: &[u8], is_continue: bool) -> Result<Option<Vec<u8>>, TooLong> {
        if self.bytes.len() + part.len() > TEXT_LENGTH_MAX_BYTES {
            self.bytes = Vec::new();
            return Err(TooLong);
        }
        self.bytes.extend_from_slice(part);
        Ok((!is_continue).then(|| std::mem::take(&mut self.bytes)))
    }

    /// Whether parts are missing.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.bytes.is_empty()
    }
}

/// Splits a text into parts to be sent.
#[derive(Clone)]
pub struct Splitter {
    bytes: Vec<u8>,
    part_bytes: usize,
}

impl Splitter {
    /// Splits into parts of at most `part_bytes`.
    #[must_use]
    pub fn new(part_bytes: usize) -> Splitter {
        Splitter { bytes: Vec::new(), part_bytes: part_bytes.clamp(1, LOGIN_DATA_SEGMENT_MAX_BYTES) }
    }

    /// Sets the text to be sent.
    pub fn put(&mut self, text: Vec<u8>) {
        self.bytes = text;
    }

    /// The next part, and whether others follow it.
    pub fn next_part(&mut self) -> (Vec<u8>, bool) {
        let rest = self.bytes.split_off(self.part_bytes.min(self.bytes.len()));
        let part = std::mem::replace(&mut self.bytes, rest);
        (part, !self.bytes.is_empty())
    }

    /// Whether parts are left to send.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsitrace_wire::text::pairs;
    use proptest::prelude::*;

    #[test]
    fn encoded_pairs_are_parsed() {
        let mut text = TextWriter::default();
        text.pair("InitiatorName", "iqn.2026-01.example:a");
        text.pair("TargetAlias", "");
        let bytes = text.into_bytes();
        assert_eq!(bytes, b"InitiatorName=iqn.2026-01.example:a\0TargetAlias=\0");
        let read: Vec<_> = pairs(&bytes).map(|pair| pair.map(|(key, value)| (key, value.into_owned()))).collect();
        assert_eq!(
            read,
            [Ok(("InitiatorName", "iqn.2026-01.example:a".to_owned())), Ok(("TargetAlias", String::new()))]
        );
    }

    #[test]
    fn a_nul_in_a_value_never_starts_another_pair() {
        let mut text = TextWriter::default();
        text.pair("TargetAlias", "a\0SessionType=Discovery");
        assert_eq!(pairs(&text.into_bytes()).count(), 1);
    }

    #[test]
    fn text_beyond_the_limit_is_refused() {
        let mut joiner = Joiner::default();
        assert_eq!(joiner.take(&vec![b'a'; TEXT_LENGTH_MAX_BYTES], true), Ok(None));
        assert_eq!(joiner.take(b"a", false), Err(TooLong));
        let mut joiner = Joiner::default();
        assert!(joiner.take(&vec![b'a'; TEXT_LENGTH_MAX_BYTES], false).is_ok());
    }

    proptest! {
        #[test]
        fn split_text_is_joined(
            text in proptest::collection::vec(any::<u8>(), 0..600), part_bytes in 0_usize..100,
        ) {
            let (mut splitter, mut joiner) = (Splitter::new(part_bytes), Joiner::default());
            splitter.put(text.clone());
            loop {
                let (part, is_continue) = splitter.next_part();
                prop_assert!(part.len() <= part_bytes.max(1));
                if let Some(whole) = joiner.take(&part, is_continue).unwrap() {
                    prop_assert_eq!(whole, text);
                    break;
                }
            }
        }
    }
}
