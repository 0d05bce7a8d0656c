//! The keys of a peer in one negotiation step, checked for syntax, length and repetition (RFC 7143 sections 6.1 and
//! 6.3).
//!
//! It classifies keys, and never validates the values of known keys. It is never shown: values can be secrets.

use std::collections::BTreeSet;

use iscsitrace_wire::key::{Group, Key, OperationalKey, RESERVED_VALUES};
use iscsitrace_wire::text;

use crate::protocol::keys::Violation;
use crate::protocol::text::TextWriter;

/// Most keys of one side in a login.
pub(super) const KEYS_MAX: usize = 256;

/// Longest value (RFC 7143 section 6.1) of a list element or simple value, in bytes.
const VALUE_LENGTH_MAX_BYTES: usize = 255;
/// Longest binary-value (RFC 7143 section 12.1.3) in hexadecimal, in bytes.
const BINARY_LENGTH_MAX_BYTES: usize = 2 + 2 * 1024;

/// The class of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Naming,
    Security,
    Operational(OperationalKey),
    Unknown,
}

impl Purpose {
    fn of(key: &str) -> Purpose {
        match Key::from_name(key).map(|key| key.group) {
            Some(Group::Naming) => Purpose::Naming,
            Some(Group::Authentication | Group::Chap) => Purpose::Security,
            _ => OperationalKey::from_name(key).map_or(Purpose::Unknown, Purpose::Operational),
        }
    }
}

/// Keys that the peer has used; each may be used once.
#[derive(Debug, Default, Clone)]
pub(super) struct Used {
    names: BTreeSet<String>,
}

/// The pairs of one step.
#[derive(Default, Clone)]
pub(super) struct ReceivedKeys {
    pairs: Vec<(String, String, Purpose)>,
}

impl ReceivedKeys {
    /// Parses a complete text.
    pub fn read(data: &[u8], used: &mut Used) -> Result<ReceivedKeys, Violation> {
        let mut pairs = Vec::new();
        for pair in text::pairs(data) {
            let (key, value) = pair.map_err(|malformed| Violation::new(malformed.to_string(), "6.1"))?;
            let purpose = Purpose::of(key);
            let longest = match purpose {
                Purpose::Security => BINARY_LENGTH_MAX_BYTES,
                _ => VALUE_LENGTH_MAX_BYTES,
            };
            if value.split(',').any(|element| element.len() > longest) {
                return Err(Violation::new(format!("the value of {key} is longer than {longest} bytes"), "6.1"));
            }
            // only TargetAddress may be repeated
            if key != "TargetAddress" && !used.names.insert(key.to_owned()) {
                return Err(Violation::new(format!("{key} is repeated in a login"), "6.3"));
            }
            if used.names.len() > KEYS_MAX || pairs.len() > KEYS_MAX {
                return Err(Violation::new(format!("more than {KEYS_MAX} keys in a login"), "6.1"));
            }
            pairs.push((key.to_owned(), value.into_owned(), purpose));
        }
        Ok(ReceivedKeys { pairs })
    }

    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, ..)| name == key).map(|(_, value, _)| value.as_str())
    }

    /// All values of a key that may be repeated.
    pub fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(move |(name, ..)| name == key).map(|(_, value, _)| value.as_str())
    }

    /// The first key for which `is_wrong` is true.
    pub fn find(&self, is_wrong: impl Fn(&str, Purpose) -> bool) -> Option<&str> {
        self.pairs.iter().find(|(name, _, purpose)| is_wrong(name, *purpose)).map(|(name, ..)| name.as_str())
    }

    /// The operational keys.
    pub fn operational(&self) -> Vec<(OperationalKey, &str)> {
        let operational = self.pairs.iter().map(|(_, value, purpose)| match purpose {
            Purpose::Operational(key) => Some((*key, value.as_str())),
            _ => None,
        });
        operational.flatten().collect()
    }

    /// Answers unknown keys (RFC 7143 sections 6.2 and 13.25).
    pub fn answer_unknown(&self, out: &mut TextWriter) -> Result<(), Violation> {
        for (name, value, _) in self.pairs.iter().filter(|(.., purpose)| *purpose == Purpose::Unknown) {
            match name.as_str() {
                "SendTargets" => {
                    return Err(Violation::new("SendTargets belongs to the full feature phase", "13.3"));
                }
                // "NotUnderstood" is forbidden for the obsolete keys; No is allowed, and initiators understand it
                "IFMarker" | "OFMarker" => out.pair(name, "No"),
                "IFMarkInt" | "OFMarkInt" => out.pair(name, "Reject"),
                // an answer to an offer that was not made needs no answer
                _ if RESERVED_VALUES.contains(&value.as_str()) => {}
                _ => out.pair(name, "NotUnderstood"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ReceivedKeys, Violation> {
        ReceivedKeys::read(text.replace('|', "\0").as_bytes(), &mut Used::default())
    }

    fn refusal(text: &str) -> String {
        read(text).err().expect(text).to_string()
    }

    #[test]
    fn keys_are_sorted_by_purpose() {
        let received = read("InitiatorName=iqn.a|AuthMethod=None|MaxBurstLength=512|X-com.example=1|").unwrap();
        assert_eq!(received.value("InitiatorName"), Some("iqn.a"));
        assert_eq!(received.operational(), [(OperationalKey::MaxBurstLength, "512")]);
        assert_eq!(received.find(|_, purpose| purpose == Purpose::Security), Some("AuthMethod"));
    }

    #[test]
    fn unknown_keys_get_the_answers_of_the_rfc() {
        let received = read("X-com.example.a=1|X#b=Yes|IFMarker=No|OFMarkInt=2048|Zap=|Y=NotUnderstood").unwrap();
        let mut out = TextWriter::default();
        received.answer_unknown(&mut out).unwrap();
        let answers = String::from_utf8(out.into_bytes()).unwrap();
        assert_eq!(
            answers,
            "X-com.example.a=NotUnderstood\0X#b=NotUnderstood\0IFMarker=No\0OFMarkInt=Reject\0Zap=NotUnderstood\0"
        );
    }

    #[test]
    fn malformed_text_is_refused() {
        assert_eq!(refusal("garbage|"), "text without '=' (RFC 7143 section 6.1)");
        assert_eq!(refusal("=1|"), "text with an empty key (RFC 7143 section 6.1)");
        assert_eq!(
            refusal(&format!("{}=1|", "K".repeat(64))),
            "text with a key of more than 63 bytes (RFC 7143 section 6.1)"
        );
        assert_eq!(
            refusal(&format!("TargetAlias={}|", "a".repeat(256))),
            "the value of TargetAlias is longer than 255 bytes (RFC 7143 section 6.1)"
        );
        assert_eq!(
            refusal("MaxBurstLength=512|MaxBurstLength=512|"),
            "MaxBurstLength is repeated in a login (RFC 7143 section 6.3)"
        );
    }

    #[test]
    fn a_key_may_not_be_repeated_in_a_later_step() {
        let mut used = Used::default();
        assert!(ReceivedKeys::read(b"A=1\0", &mut used).is_ok());
        assert!(ReceivedKeys::read(b"A=1\0", &mut used).is_err());
    }

    #[test]
    fn keys_are_bounded() {
        let keys = |count: usize| (0..count).map(|number| format!("X{number}=|")).collect::<String>();
        assert!(read(&keys(KEYS_MAX)).is_ok());
        assert_eq!(refusal(&keys(KEYS_MAX + 1)), "more than 256 keys in a login (RFC 7143 section 6.1)");
        assert!(read(&"TargetAddress=a|".repeat(KEYS_MAX + 2)).is_err());
    }
}
