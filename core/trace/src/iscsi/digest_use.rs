//! Whether PDUs have digests (RFC 7143 section 13.1): agreed in the login, or inferred from the stream.

use iscsitrace_wire::bhs::Bhs;
use serde::{Deserialize, Serialize};

/// The digests of the full feature phase; none if a hole in the login leaves them unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digests {
    /// HeaderDigest=CRC32C.
    pub header: Option<bool>,
    /// DataDigest=CRC32C.
    pub data: Option<bool>,
}

/// Whether a digest is in use.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DigestUse {
    /// The login shows whether it is.
    Known(bool),
    /// Inferred: the login was not captured.
    Inferred(bool),
    /// It seems to be, by the lengths of PDUs: none has matched so far.
    ByLength,
    /// Not known yet.
    #[default]
    Unknown,
}

impl DigestUse {
    /// Whether it was inferred.
    pub fn is_inferred(self) -> bool {
        matches!(self, Self::Inferred(_) | Self::ByLength)
    }

    /// Whether PDUs may have this digest (`has`), or may lack it: only a login is certain of it.
    pub fn may_be(self, has: bool) -> bool {
        !matches!(self, Self::Known(is_used) if is_used != has)
    }

    /// Whether PDUs are read with this digest.
    pub fn is_used(self) -> bool {
        matches!(self, Self::Known(true) | Self::Inferred(true) | Self::ByLength)
    }
}

/// The lengths of a PDU with each possible use of header digests and data digests.
pub fn lengths(header: Bhs<'_>, [of_header, of_data]: [DigestUse; 2]) -> impl Iterator<Item = u64> {
    let uses = [(false, false), (true, false), (false, true), (true, true)];
    let possible = move |&(header, data): &(bool, bool)| of_header.may_be(header) && of_data.may_be(data);
    uses.into_iter()
        .filter(possible)
        .filter_map(move |(has_header, has_data)| header.total_length(has_header, has_data))
}
