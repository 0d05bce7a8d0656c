//! Offers of one side: a value for each operational key.
//!
//! A key without a value is not sent: the side accepts the RFC's default.

use iscsitrace_wire::key::{OperationalKey, ResultFunction};
use serde::{Deserialize, Serialize};

use super::choice::{Digest, TaskReporting};

/// The offers of a side. `None`: the key is not named, for the default of RFC 7143 section 13.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default = "Offers::usual")]
pub struct Offers {
    /// HeaderDigest, best first.
    pub header_digest: Option<Vec<Digest>>,
    /// DataDigest, best first.
    pub data_digest: Option<Vec<Digest>>,
    /// MaxConnections.
    pub max_connections: Option<u32>,
    /// InitialR2T: whether every write waits for an R2T.
    pub initial_r2t: Option<bool>,
    /// ImmediateData: whether a SCSI Command may carry data.
    pub immediate_data: Option<bool>,
    /// MaxRecvDataSegmentLength, in bytes: the longest data segment that this side accepts.
    pub max_recv_data_segment_length: Option<u32>,
    /// MaxBurstLength, in bytes.
    pub max_burst_length: Option<u32>,
    /// FirstBurstLength, in bytes; at most MaxBurstLength.
    pub first_burst_length: Option<u32>,
    /// DefaultTime2Wait, in seconds.
    pub default_time2wait: Option<u32>,
    /// DefaultTime2Retain, in seconds.
    pub default_time2retain: Option<u32>,
    /// MaxOutstandingR2T, per task.
    pub max_outstanding_r2t: Option<u32>,
    /// DataPDUInOrder.
    pub data_pdu_in_order: Option<bool>,
    /// DataSequenceInOrder.
    pub data_sequence_in_order: Option<bool>,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: Option<u32>,
    /// TaskReporting, best first.
    pub task_reporting: Option<Vec<TaskReporting>>,
    /// iSCSIProtocolLevel.
    pub iscsi_protocol_level: Option<u32>,
}

/// Offers that are not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOffers {
    /// A number outside its bounds.
    #[error("{}={value} is outside {low} to {high} (RFC 7143 section {})", key.name(), key.section())]
    OutOfBounds {
        /// The key.
        key: OperationalKey,
        /// The setting.
        value: u32,
        /// The smallest admissible value.
        low: u32,
        /// The largest admissible value.
        high: u32,
    },
    /// A list that is empty or names a value twice.
    #[error("{} needs a list of different values (RFC 7143 section 6.2.1)", .0.name())]
    BadList(OperationalKey),
    /// FirstBurstLength exceeds MaxBurstLength.
    #[error("FirstBurstLength={first} is more than MaxBurstLength={max} (RFC 7143 section 13.14)")]
    FirstBurstTooLong {
        /// FirstBurstLength, in bytes.
        first: u32,
        /// MaxBurstLength, in bytes.
        max: u32,
    },
}

/// A side's value of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyValue {
    Number(u32),
    Boolean(bool),
    List(Vec<&'static str>),
}

impl KeyValue {
    /// As it is sent.
    pub fn text(&self) -> String {
        match self {
            KeyValue::Number(number) => number.to_string(),
            KeyValue::Boolean(truth) => if *truth { "Yes" } else { "No" }.to_owned(),
            KeyValue::List(names) => names.join(","),
        }
    }
}

pub(super) fn names_of<T: Copy + PartialEq>(names: &[(&'static str, T)], values: &[T]) -> Vec<&'static str> {
    let name = |value: &T| names.iter().find(|(_, named)| named == value).map(|(name, _)| *name);
    values.iter().filter_map(name).collect()
}

impl Offers {
    /// Offers of current initiators: large bursts, no digests, unsolicited data.
    #[must_use]
    pub fn usual() -> Offers {
        Offers {
            header_digest: Some(vec![Digest::None]),
            data_digest: Some(vec![Digest::None]),
            max_connections: Some(1),
            initial_r2t: Some(false),
            immediate_data: Some(true),
            max_recv_data_segment_length: Some(262_144),
            max_burst_length: Some(16_776_192),
            first_burst_length: Some(262_144),
            default_time2wait: Some(2),
            default_time2retain: Some(0),
            max_outstanding_r2t: Some(1),
            data_pdu_in_order: Some(true),
            data_sequence_in_order: Some(true),
            error_recovery_level: Some(0),
            task_reporting: None,
            iscsi_protocol_level: None,
        }
    }

    /// The value offered for a key, if any.
    pub(super) fn offered_value(&self, key: OperationalKey) -> Option<KeyValue> {
        let number = |value: Option<u32>| value.map(KeyValue::Number);
        let truth = |value: Option<bool>| value.map(KeyValue::Boolean);
        let digests =
            |value: &Option<Vec<Digest>>| value.as_ref().map(|values| KeyValue::List(names_of(Digest::NAMES, values)));
        match key {
            OperationalKey::HeaderDigest => digests(&self.header_digest),
            OperationalKey::DataDigest => digests(&self.data_digest),
            OperationalKey::MaxConnections => number(self.max_connections),
            OperationalKey::InitialR2T => truth(self.initial_r2t),
            OperationalKey::ImmediateData => truth(self.immediate_data),
            OperationalKey::MaxRecvDataSegmentLength => number(self.max_recv_data_segment_length),
            OperationalKey::MaxBurstLength => number(self.max_burst_length),
            OperationalKey::FirstBurstLength => number(self.first_burst_length),
            OperationalKey::DefaultTime2Wait => number(self.default_time2wait),
            OperationalKey::DefaultTime2Retain => number(self.default_time2retain),
            OperationalKey::MaxOutstandingR2T => number(self.max_outstanding_r2t),
            OperationalKey::DataPduInOrder => truth(self.data_pdu_in_order),
            OperationalKey::DataSequenceInOrder => truth(self.data_sequence_in_order),
            OperationalKey::ErrorRecoveryLevel => number(self.error_recovery_level),
            OperationalKey::TaskReporting => {
                self.task_reporting.as_ref().map(|values| KeyValue::List(names_of(TaskReporting::NAMES, values)))
            }
            OperationalKey::IscsiProtocolLevel => number(self.iscsi_protocol_level),
        }
    }

    /// Checks all offers.
    ///
    /// # Errors
    /// The first offer that RFC 7143 does not allow.
    pub fn validate(&self) -> Result<(), InvalidOffers> {
        for key in OperationalKey::ALL.iter().copied() {
            match self.offered_value(key) {
                Some(KeyValue::Number(value)) if key.admits(u64::from(value)).is_none() => {
                    let (low, high) = key.bounds();
                    return Err(InvalidOffers::OutOfBounds { key, value, low, high });
                }
                Some(KeyValue::List(names)) if key.result_function() == ResultFunction::Choose => {
                    let is_repeated = |(place, name)| names.iter().take(place).any(|earlier| earlier == name);
                    if names.is_empty() || names.iter().enumerate().any(is_repeated) {
                        return Err(InvalidOffers::BadList(key));
                    }
                }
                _ => {}
            }
        }
        match (self.first_burst_length, self.max_burst_length) {
            (Some(first), Some(max)) if first > max => Err(InvalidOffers::FirstBurstTooLong { first, max }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_as_json() {
        let offers: Offers = serde_json::from_str(
            r#"{"header_digest": ["CRC32C", "None"], "max_burst_length": 65536, "first_burst_length": null}"#,
        )
        .unwrap();
        assert_eq!(offers.header_digest, Some(vec![Digest::Crc32c, Digest::None]));
        assert_eq!((offers.max_burst_length, offers.first_burst_length), (Some(65_536), None));
        assert_eq!(offers.max_connections, Some(1));
        assert!(serde_json::from_str::<Offers>(r#"{"max_burst": 1}"#).is_err());
        assert_eq!(Offers::usual().validate(), Ok(()));
    }

    #[test]
    fn settings_have_the_names_of_the_table() {
        let serde_json::Value::Object(settings) = serde_json::to_value(Offers::usual()).unwrap() else { panic!() };
        let mut names: Vec<_> = OperationalKey::ALL.iter().map(|key| key.setting()).collect();
        names.sort_unstable();
        assert_eq!(settings.keys().map(String::as_str).collect::<Vec<_>>(), names);
    }

    #[test]
    fn invalid_offers_are_reported() {
        let message = |offers: Offers| offers.validate().unwrap_err().to_string();
        assert_eq!(
            message(Offers { max_burst_length: Some(511), ..Offers::default() }),
            "MaxBurstLength=511 is outside 512 to 16777215 (RFC 7143 section 13.13)"
        );
        assert_eq!(
            message(Offers { header_digest: Some(vec![]), ..Offers::default() }),
            "HeaderDigest needs a list of different values (RFC 7143 section 6.2.1)"
        );
        assert_eq!(
            message(Offers { data_digest: Some(vec![Digest::None, Digest::None]), ..Offers::default() }),
            "DataDigest needs a list of different values (RFC 7143 section 6.2.1)"
        );
        assert_eq!(
            message(Offers { max_burst_length: Some(512), first_burst_length: Some(1024), ..Offers::default() }),
            "FirstBurstLength=1024 is more than MaxBurstLength=512 (RFC 7143 section 13.14)"
        );
    }
}
