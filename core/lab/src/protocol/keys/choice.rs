//! Values of list keys: digests and TaskReporting (RFC 7143 sections 13.1 and 13.23).

use serde::{Deserialize, Serialize};

/// A value of HeaderDigest or DataDigest (RFC 7143 section 13.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Digest {
    /// No digest.
    #[default]
    None,
    /// CRC32C, 4 bytes.
    #[serde(rename = "CRC32C")]
    Crc32c,
}

/// A value of TaskReporting (RFC 7143 section 13.23).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum TaskReporting {
    /// RFC3720: as in RFC 3720.
    #[default]
    #[serde(rename = "RFC3720")]
    Rfc3720,
    /// ResponseFence.
    ResponseFence,
    /// FastAbort.
    FastAbort,
}

impl Digest {
    pub(super) const NAMES: &[(&'static str, Digest)] = &[("None", Digest::None), ("CRC32C", Digest::Crc32c)];
}

impl TaskReporting {
    pub(super) const NAMES: &[(&'static str, TaskReporting)] = &[
        ("RFC3720", TaskReporting::Rfc3720),
        ("ResponseFence", TaskReporting::ResponseFence),
        ("FastAbort", TaskReporting::FastAbort),
    ];
}
