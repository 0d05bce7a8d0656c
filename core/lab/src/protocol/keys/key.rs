//! The operational keys of RFC 7143 section 13, declared once: name, section, bounds, and how the value comes about.
//!
//! It never holds a value.

use iscsitrace_wire::key::ResultFunction;
use serde::{Deserialize, Serialize};

/// What an operational key is.
#[derive(Debug)]
pub(super) struct Rules {
    pub name: &'static str,
    pub section: &'static str,
    pub result: ResultFunction,
    /// The smallest and largest admissible number; for keys without numbers both are 0.
    pub bounds: (u32, u32),
    /// LO of section 13: spoken of on the leading connection only.
    pub is_leading_only: bool,
    pub is_irrelevant_in_discovery: bool,
}

macro_rules! keys {
    ($($name:ident = $text:literal $section:literal
        $result:ident $low:literal..=$high:literal $leading:literal $discovery:literal;)*) => {
        /// An operational key of RFC 7143 section 13, by the RFC's spelling.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Key { $(#[doc = concat!($text, " (RFC 7143 section ", $section, ").")] $name,)* }

        impl Key {
            /// Every operational key, in the RFC's order; FirstBurstLength follows the keys that bound it.
            pub const ALL: &[Key] = &[$(Key::$name,)*];

            pub(super) fn rules(self) -> &'static Rules {
                match self {
                    $(Key::$name => &Rules {
                        name: $text,
                        section: $section,
                        result: ResultFunction::$result,
                        bounds: ($low, $high),
                        is_leading_only: $leading,
                        is_irrelevant_in_discovery: $discovery,
                    },)*
                }
            }
        }
    };
}

keys! {
    // name, section, result function, bounds, whether for leading connections only, whether irrelevant in discovery
    HeaderDigest = "HeaderDigest" "13.1" Choose 0..=0 false false;
    DataDigest = "DataDigest" "13.1" Choose 0..=0 false false;
    MaxConnections = "MaxConnections" "13.2" Minimum 1..=65_535 true true;
    InitialR2T = "InitialR2T" "13.10" Or 0..=0 true true;
    ImmediateData = "ImmediateData" "13.11" And 0..=0 true true;
    MaxRecvDataSegmentLength = "MaxRecvDataSegmentLength" "13.12" Declare 512..=16_777_215 false false;
    MaxBurstLength = "MaxBurstLength" "13.13" Minimum 512..=16_777_215 true true;
    FirstBurstLength = "FirstBurstLength" "13.14" Minimum 512..=16_777_215 true true;
    DefaultTime2Wait = "DefaultTime2Wait" "13.15" Maximum 0..=3_600 true false;
    DefaultTime2Retain = "DefaultTime2Retain" "13.16" Minimum 0..=3_600 true false;
    MaxOutstandingR2T = "MaxOutstandingR2T" "13.17" Minimum 1..=65_535 true true;
    DataPduInOrder = "DataPDUInOrder" "13.18" Or 0..=0 true true;
    DataSequenceInOrder = "DataSequenceInOrder" "13.19" Or 0..=0 true true;
    ErrorRecoveryLevel = "ErrorRecoveryLevel" "13.20" Minimum 0..=2 true false;
    TaskReporting = "TaskReporting" "13.23" Choose 0..=0 true true;
    IscsiProtocolLevel = "iSCSIProtocolLevel" "13.24" Minimum 0..=31 true true;
}

impl Key {
    /// The key of a name as it is spelled on the wire.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Key> {
        Key::ALL.iter().copied().find(|key| key.name() == name)
    }

    /// The RFC's spelling.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.rules().name
    }

    /// Its section of RFC 7143.
    #[must_use]
    pub fn section(self) -> &'static str {
        self.rules().section
    }

    /// How its value comes about.
    #[must_use]
    pub fn result_function(self) -> ResultFunction {
        self.rules().result
    }

    /// Whether a number is one that the key can have.
    pub(super) fn admits(self, number: u64) -> Option<u32> {
        let (low, high) = self.rules().bounds;
        u32::try_from(number).ok().filter(|number| (low..=high).contains(number))
    }
}

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
    /// As RFC 3720 has it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_keys() {
        for key in Key::ALL {
            assert_eq!(Key::from_name(key.name()), Some(*key));
        }
        assert_eq!(Key::from_name("maxburstlength"), None);
        assert_eq!(Key::from_name("SendTargets"), None);
    }

    #[test]
    fn bounds_are_those_of_section_13() {
        assert_eq!(Key::MaxBurstLength.admits(511), None);
        assert_eq!(Key::MaxBurstLength.admits(512), Some(512));
        assert_eq!(Key::MaxBurstLength.admits((1 << 24) - 1), Some((1 << 24) - 1));
        assert_eq!(Key::MaxBurstLength.admits(1 << 24), None);
        assert_eq!(Key::MaxConnections.admits(0), None);
        assert_eq!(Key::DefaultTime2Wait.admits(3601), None);
        assert_eq!(Key::ErrorRecoveryLevel.admits(3), None);
        assert_eq!(Key::MaxOutstandingR2T.admits(1 << 32), None);
    }
}
