//! CHAP: authentication by a shared secret that is never sent (RFC 1994, RFC 7143 section 12.1.3).
//!
//! It never generates challenges: their bytes come from a seeded generator in the simulated world and from the
//! operating system in the real one. It never shows a secret, and compares in constant time.

use std::borrow::Cow;

use data_encoding::{BASE64_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Digest as _;
use subtle::ConstantTimeEq as _;

/// Longest binary-value (RFC 7143 section 12.1.3), in bytes: bounds challenges and responses.
pub const BINARY_LENGTH_MAX_BYTES: usize = 1024;

/// A CHAP algorithm, by its number in PPP's registry (RFC 1994 section 3; RFC 7143 section 12.1.3 has 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// 5.
    #[serde(rename = "MD5")]
    Md5 = 5,
    /// 7.
    #[serde(rename = "SHA-256")]
    Sha256 = 7,
}

impl Algorithm {
    /// The algorithm of a number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Algorithm> {
        match number {
            5 => Some(Algorithm::Md5),
            7 => Some(Algorithm::Sha256),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The digest of the identifier, the secret and the challenge, in this order (RFC 1994 section 4.1).
    fn digest(self, identifier: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
        #[cfg(test)]
        DIGESTS.with(|count| count.set(count.get() + 1));
        let parts: [&[u8]; 3] = [&[identifier], &secret.0, challenge];
        match self {
            Algorithm::Md5 => {
                let hash = parts.iter().fold(md5::Md5::new(), |hash, part| hash.chain_update(part));
                hash.finalize().to_vec()
            }
            Algorithm::Sha256 => {
                let hash = parts.iter().fold(sha2::Sha256::new(), |hash, part| hash.chain_update(part));
                hash.finalize().to_vec()
            }
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Digests of this thread: the work of an answer.
    pub(crate) static DIGESTS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A secret. It is compared in constant time, and neither shown nor written anywhere.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// Replacement of a secret in output.
const HIDDEN: &str = "(hidden)";

impl Secret {
    /// Takes a secret.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Secret {
        Secret(bytes.into())
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        let text: Cow<'de, str> = Cow::deserialize(deserializer)?;
        Ok(Secret::new(text.as_bytes()))
    }
}

/// Name and secret of one side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// CHAP_N.
    pub name: String,
    /// The secret that both sides know.
    pub secret: Secret,
}

/// A challenge of this side; 16 random bytes or more.
#[derive(Clone, PartialEq, Eq)]
pub struct Challenge {
    /// CHAP_I.
    pub identifier: u8,
    /// CHAP_C.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Challenge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Challenge of {} bytes", self.bytes.len())
    }
}

impl Challenge {
    /// Whether the peer reflects this side's challenge: this side would compute the response for it (RFC 7143 section
    /// 9.2.1).
    #[must_use]
    pub fn is_reflected_by(&self, peers: &Challenge) -> bool {
        self.bytes.ct_eq(&peers.bytes).into()
    }

    /// CHAP_R to this challenge.
    #[must_use]
    pub fn response(&self, algorithm: Algorithm, secret: &Secret) -> Vec<u8> {
        algorithm.digest(self.identifier, secret, &self.bytes)
    }

    /// Whether a response was made with the secret.
    #[must_use]
    pub fn is_answered_by(&self, response: &[u8], algorithm: Algorithm, secret: &Secret) -> bool {
        self.response(algorithm, secret).ct_eq(response).into()
    }
}

/// A binary-value in hexadecimal (RFC 7143 section 6.1).
#[must_use]
pub fn encode_binary(bytes: &[u8]) -> String {
    format!("0x{}", HEXLOWER.encode(bytes))
}

/// Reads a binary-value: a hex-constant or a base64-constant of at most [`BINARY_LENGTH_MAX_BYTES`] bytes (RFC 7143
/// section 6.1).
#[must_use]
pub fn decode_binary(value: &str) -> Option<Vec<u8>> {
    let bytes = if let Some(digits) = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        // a single digit is the lower half of a byte
        let padded = if digits.len() % 2 == 0 { Cow::Borrowed(digits) } else { Cow::Owned(format!("0{digits}")) };
        HEXLOWER_PERMISSIVE.decode(padded.as_bytes()).ok()?
    } else {
        let digits = value.strip_prefix("0b").or_else(|| value.strip_prefix("0B"))?;
        let unpadded = digits.trim_end_matches('=');
        if digits.len() - unpadded.len() > 2 {
            return None;
        }
        BASE64_NOPAD.decode(unpadded.as_bytes()).ok()?
    };
    (!bytes.is_empty() && bytes.len() <= BINARY_LENGTH_MAX_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn responses_are_the_digests_of_identifier_secret_and_challenge() {
        // RFC 1321 and FIPS 180-4: MD5 and SHA-256 of "abc", which here is identifier, secret and challenge
        let challenge = Challenge { identifier: b'a', bytes: b"c".to_vec() };
        let secret = Secret::new("b");
        let md5 = encode_binary(&challenge.response(Algorithm::Md5, &secret));
        assert_eq!(md5, "0x900150983cd24fb0d6963f7d28e17f72");
        let sha256 = encode_binary(&challenge.response(Algorithm::Sha256, &secret));
        assert_eq!(sha256, "0xba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_response_is_valid_for_one_challenge_and_one_secret() {
        let challenge = Challenge { identifier: 1, bytes: vec![7; 16] };
        let secret = Secret::new("correct horse battery");
        let response = challenge.response(Algorithm::Sha256, &secret);
        assert!(challenge.is_answered_by(&response, Algorithm::Sha256, &secret));
        assert!(!challenge.is_answered_by(&response, Algorithm::Sha256, &Secret::new("another")));
        assert!(!challenge.is_answered_by(&response[..31], Algorithm::Sha256, &secret));
        assert!(!challenge.is_answered_by(&[], Algorithm::Md5, &secret));
        let other = Challenge { identifier: 2, ..challenge.clone() };
        assert!(!other.is_answered_by(&response, Algorithm::Sha256, &secret));
        assert!(challenge.is_reflected_by(&other));
    }

    #[test]
    fn secrets_are_never_shown() {
        let credentials: Credentials = serde_json::from_str(r#"{"name": "joe", "secret": "correct horse"}"#).unwrap();
        assert_eq!(credentials.secret, Secret::new("correct horse"));
        assert_eq!(format!("{credentials:?}"), r#"Credentials { name: "joe", secret: (hidden) }"#);
        assert_eq!(serde_json::to_string(&credentials).unwrap(), r#"{"name":"joe","secret":"(hidden)"}"#);
        let challenge = Challenge { identifier: 1, bytes: vec![0xab; 16] };
        assert_eq!(format!("{challenge:?}"), "Challenge of 16 bytes");
    }

    #[test]
    fn binary_values_are_hexadecimal_or_base64() {
        assert_eq!(decode_binary("0x0aFf"), Some(vec![0x0a, 0xff]));
        assert_eq!(decode_binary("0Xabc"), Some(vec![0x0a, 0xbc]));
        // RFC 4648 section 10
        assert_eq!(decode_binary("0bZm9vYmFy"), Some(b"foobar".to_vec()));
        assert_eq!(decode_binary("0BZm9vYg=="), Some(b"foob".to_vec()));
        for bad in ["", "0x", "0b", "12", "0xgg", "0b!", "0bZm9vYg===", "0x 1", "0x\u{e4}"] {
            assert_eq!(decode_binary(bad), None, "{bad}");
        }
        assert!(decode_binary(&format!("0x{}", "00".repeat(BINARY_LENGTH_MAX_BYTES))).is_some());
        assert!(decode_binary(&format!("0x{}", "00".repeat(BINARY_LENGTH_MAX_BYTES + 1))).is_none());
    }

    proptest! {
        #[test]
        fn encoded_values_are_decoded(bytes in proptest::collection::vec(any::<u8>(), 1..100)) {
            prop_assert_eq!(decode_binary(&encode_binary(&bytes)), Some(bytes.clone()));
            let base64 = format!("0b{}", data_encoding::BASE64.encode(&bytes));
            prop_assert_eq!(decode_binary(&base64), Some(bytes));
        }
    }
}
