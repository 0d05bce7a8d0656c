//! The values of a login that decide what is allowed.

use iscsitrace_wire::key::{OperationalKey, Scope};
use iscsitrace_wire::text;
use serde::{Deserialize, Serialize};

use crate::iscsi::keys::effective;

/// What was agreed; `None` where it is not known.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// Whether the session has one connection: MaxConnections=1.
    pub is_alone: bool,
    /// ImmediateData.
    pub immediate_data: Option<bool>,
    /// InitialR2T.
    pub initial_r2t: Option<bool>,
    /// FirstBurstLength.
    pub first_burst_bytes: Option<u32>,
    /// MaxBurstLength.
    pub max_burst_bytes: Option<u32>,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: Option<u32>,
    /// DataPDUInOrder.
    pub data_pdu_in_order: Option<bool>,
    /// DataSequenceInOrder.
    pub data_sequence_in_order: Option<bool>,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: Option<u32>,
    /// MaxRecvDataSegmentLength of the target and of the initiator: the longest data segment to the target, to the initiator.
    pub longest_data_bytes: [Option<u32>; 2],
}

impl Agreed {
    /// The values of a login of which no text is missing, by what the initiator and the target said of a key. A further
    /// connection has the values of its session, which are not known here.
    pub(super) fn of<'a>(said: impl Fn(OperationalKey) -> [Option<&'a str>; 2], is_further: bool) -> Self {
        let of_both = |key: OperationalKey| {
            let values @ [initiator, target] = said(key);
            let is_of_session = is_further && key.row().scope == Scope::Session && values == [None, None];
            (!is_of_session).then(|| effective(Some(key.row()), initiator, target))
        };
        let number = |value: &str| text::numeric(value).and_then(|number| u32::try_from(number).ok());
        let count = |key| number(&of_both(key)?.target);
        let truth = |key| text::boolean(&of_both(key)?.target);
        let longest = of_both(OperationalKey::MaxRecvDataSegmentLength);
        Self {
            is_alone: count(OperationalKey::MaxConnections) == Some(1),
            immediate_data: truth(OperationalKey::ImmediateData),
            initial_r2t: truth(OperationalKey::InitialR2T),
            first_burst_bytes: count(OperationalKey::FirstBurstLength),
            max_burst_bytes: count(OperationalKey::MaxBurstLength),
            max_outstanding_r2t: count(OperationalKey::MaxOutstandingR2T),
            data_pdu_in_order: truth(OperationalKey::DataPduInOrder),
            data_sequence_in_order: truth(OperationalKey::DataSequenceInOrder),
            error_recovery_level: count(OperationalKey::ErrorRecoveryLevel),
            longest_data_bytes: longest
                .map_or([None; 2], |longest| [number(&longest.target), number(&longest.initiator)]),
        }
    }
}
