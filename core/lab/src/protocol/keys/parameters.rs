//! The negotiated parameters of a connection.
//!
//! `negotiation` produces them.

use iscsitrace_wire::key::OperationalKey;
use iscsitrace_wire::text;
use serde::{Deserialize, Serialize};

use super::choice::{Digest, TaskReporting};
use super::offers::{KeyValue, names_of};
use crate::protocol::pdu::Digests;

/// Negotiated parameters; by default those of RFC 7143 section 13.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parameters {
    /// HeaderDigest of this connection.
    pub header_digest: Digest,
    /// DataDigest of this connection.
    pub data_digest: Digest,
    /// MaxConnections.
    pub max_connections: u32,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength that the initiator declared on this connection, in bytes: bounds the target's sending.
    pub initiator_max_recv_data_segment_length: u32,
    /// MaxRecvDataSegmentLength that the target declared on this connection, in bytes: bounds the initiator's sending.
    pub target_max_recv_data_segment_length: u32,
    /// MaxBurstLength, in bytes.
    pub max_burst_length: u32,
    /// FirstBurstLength, in bytes; never more than MaxBurstLength.
    pub first_burst_length: u32,
    /// DefaultTime2Wait, in seconds.
    pub default_time2wait: u32,
    /// DefaultTime2Retain, in seconds.
    pub default_time2retain: u32,
    /// MaxOutstandingR2T, per task.
    pub max_outstanding_r2t: u32,
    /// DataPDUInOrder.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder.
    pub data_sequence_in_order: bool,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u32,
    /// TaskReporting.
    pub task_reporting: TaskReporting,
    /// iSCSIProtocolLevel.
    pub iscsi_protocol_level: u32,
}

impl Default for Parameters {
    fn default() -> Parameters {
        let default = |key: OperationalKey| key.row().default.unwrap_or_default();
        let number = |key| text::numeric(default(key)).and_then(|number| key.admits(number)).unwrap_or_default();
        let truth = |key| text::boolean(default(key)).unwrap_or_default();
        Parameters {
            header_digest: Digest::default(),
            data_digest: Digest::default(),
            max_connections: number(OperationalKey::MaxConnections),
            initial_r2t: truth(OperationalKey::InitialR2T),
            immediate_data: truth(OperationalKey::ImmediateData),
            initiator_max_recv_data_segment_length: number(OperationalKey::MaxRecvDataSegmentLength),
            target_max_recv_data_segment_length: number(OperationalKey::MaxRecvDataSegmentLength),
            max_burst_length: number(OperationalKey::MaxBurstLength),
            first_burst_length: number(OperationalKey::FirstBurstLength),
            default_time2wait: number(OperationalKey::DefaultTime2Wait),
            default_time2retain: number(OperationalKey::DefaultTime2Retain),
            max_outstanding_r2t: number(OperationalKey::MaxOutstandingR2T),
            data_pdu_in_order: truth(OperationalKey::DataPduInOrder),
            data_sequence_in_order: truth(OperationalKey::DataSequenceInOrder),
            error_recovery_level: number(OperationalKey::ErrorRecoveryLevel),
            task_reporting: TaskReporting::default(),
            iscsi_protocol_level: number(OperationalKey::IscsiProtocolLevel),
        }
    }
}

impl Parameters {
    /// The initial parameters of a further connection: those of the session, and defaults for keys of a connection.
    #[must_use]
    pub fn for_further_connection(&self) -> Parameters {
        let Parameters {
            header_digest,
            data_digest,
            initiator_max_recv_data_segment_length,
            target_max_recv_data_segment_length,
            ..
        } = Parameters::default();
        Parameters {
            header_digest,
            data_digest,
            initiator_max_recv_data_segment_length,
            target_max_recv_data_segment_length,
            ..self.clone()
        }
    }

    /// The digests in force once the login is done.
    #[must_use]
    pub fn digests(&self) -> Digests {
        Digests { header: self.header_digest == Digest::Crc32c, data: self.data_digest == Digest::Crc32c }
    }

    /// Whether FirstBurstLength is irrelevant, because there is no unsolicited data (RFC 7143 section 13.14).
    #[must_use]
    pub fn is_first_burst_irrelevant(&self) -> bool {
        self.initial_r2t && !self.immediate_data
    }

    /// The value of a key; none for MaxRecvDataSegmentLength, which has one per side.
    pub(super) fn value(&self, key: OperationalKey) -> Option<KeyValue> {
        Some(match key {
            OperationalKey::HeaderDigest => KeyValue::List(names_of(Digest::NAMES, &[self.header_digest])),
            OperationalKey::DataDigest => KeyValue::List(names_of(Digest::NAMES, &[self.data_digest])),
            OperationalKey::MaxConnections => KeyValue::Number(self.max_connections),
            OperationalKey::InitialR2T => KeyValue::Boolean(self.initial_r2t),
            OperationalKey::ImmediateData => KeyValue::Boolean(self.immediate_data),
            OperationalKey::MaxRecvDataSegmentLength => return None,
            OperationalKey::MaxBurstLength => KeyValue::Number(self.max_burst_length),
            OperationalKey::FirstBurstLength => KeyValue::Number(self.first_burst_length),
            OperationalKey::DefaultTime2Wait => KeyValue::Number(self.default_time2wait),
            OperationalKey::DefaultTime2Retain => KeyValue::Number(self.default_time2retain),
            OperationalKey::MaxOutstandingR2T => KeyValue::Number(self.max_outstanding_r2t),
            OperationalKey::DataPduInOrder => KeyValue::Boolean(self.data_pdu_in_order),
            OperationalKey::DataSequenceInOrder => KeyValue::Boolean(self.data_sequence_in_order),
            OperationalKey::ErrorRecoveryLevel => KeyValue::Number(self.error_recovery_level),
            OperationalKey::TaskReporting => KeyValue::List(names_of(TaskReporting::NAMES, &[self.task_reporting])),
            OperationalKey::IscsiProtocolLevel => KeyValue::Number(self.iscsi_protocol_level),
        })
    }

    /// Sets the negotiated value of a key.
    pub(super) fn set(&mut self, key: OperationalKey, value: &KeyValue) {
        match (key, value) {
            (OperationalKey::HeaderDigest, KeyValue::List(names)) => {
                choose(&mut self.header_digest, Digest::NAMES, names)
            }
            (OperationalKey::DataDigest, KeyValue::List(names)) => choose(&mut self.data_digest, Digest::NAMES, names),
            (OperationalKey::MaxConnections, KeyValue::Number(number)) => self.max_connections = *number,
            (OperationalKey::InitialR2T, KeyValue::Boolean(truth)) => self.initial_r2t = *truth,
            (OperationalKey::ImmediateData, KeyValue::Boolean(truth)) => self.immediate_data = *truth,
            (OperationalKey::MaxBurstLength, KeyValue::Number(number)) => self.max_burst_length = *number,
            (OperationalKey::FirstBurstLength, KeyValue::Number(number)) => self.first_burst_length = *number,
            (OperationalKey::DefaultTime2Wait, KeyValue::Number(number)) => self.default_time2wait = *number,
            (OperationalKey::DefaultTime2Retain, KeyValue::Number(number)) => self.default_time2retain = *number,
            (OperationalKey::MaxOutstandingR2T, KeyValue::Number(number)) => self.max_outstanding_r2t = *number,
            (OperationalKey::DataPduInOrder, KeyValue::Boolean(truth)) => self.data_pdu_in_order = *truth,
            (OperationalKey::DataSequenceInOrder, KeyValue::Boolean(truth)) => self.data_sequence_in_order = *truth,
            (OperationalKey::ErrorRecoveryLevel, KeyValue::Number(number)) => self.error_recovery_level = *number,
            (OperationalKey::TaskReporting, KeyValue::List(names)) => {
                choose(&mut self.task_reporting, TaskReporting::NAMES, names);
            }
            (OperationalKey::IscsiProtocolLevel, KeyValue::Number(number)) => self.iscsi_protocol_level = *number,
            _ => {}
        }
    }
}

/// Sets `place` to the value of the first name, if it is known.
fn choose<T: Copy>(place: &mut T, known: &[(&'static str, T)], names: &[&'static str]) {
    let chosen = known.iter().find(|(name, _)| Some(name) == names.first());
    *place = chosen.map_or(*place, |(_, value)| *value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The defaults that sections 13.1 to 13.24 name.
    #[test]
    fn defaults_are_those_of_section_13() {
        let expected = Parameters {
            header_digest: Digest::None,
            data_digest: Digest::None,
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            initiator_max_recv_data_segment_length: 8192,
            target_max_recv_data_segment_length: 8192,
            max_burst_length: 262_144,
            first_burst_length: 65_536,
            default_time2wait: 2,
            default_time2retain: 20,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            task_reporting: TaskReporting::Rfc3720,
            iscsi_protocol_level: 1,
        };
        assert_eq!(Parameters::default(), expected);
        for key in OperationalKey::ALL {
            let value = expected.value(*key).map(|value| value.text());
            assert!(value.is_none() || value.as_deref() == key.row().default, "{}", key.name());
        }
    }
}
