//! The values of a login that decide what is allowed.

use serde::{Deserialize, Serialize};

use crate::iscsi::keys::{Defaults, Negotiation};

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
    /// The values of a login of which no text is missing.
    pub fn of(negotiation: &Negotiation, defaults: Defaults) -> Self {
        let mut agreed = Self::default();
        for (offer, effective) in negotiation.effective(defaults) {
            let number =
                |value: &str| iscsitrace_wire::text::numeric(value).and_then(|number| u32::try_from(number).ok());
            let truth = iscsitrace_wire::text::boolean(&effective.target);
            match offer.key {
                "MaxConnections" => agreed.is_alone = number(&effective.target) == Some(1),
                "ImmediateData" => agreed.immediate_data = truth,
                "InitialR2T" => agreed.initial_r2t = truth,
                "FirstBurstLength" => agreed.first_burst_bytes = number(&effective.target),
                "MaxBurstLength" => agreed.max_burst_bytes = number(&effective.target),
                "MaxOutstandingR2T" => agreed.max_outstanding_r2t = number(&effective.target),
                "DataPDUInOrder" => agreed.data_pdu_in_order = truth,
                "DataSequenceInOrder" => agreed.data_sequence_in_order = truth,
                "ErrorRecoveryLevel" => agreed.error_recovery_level = number(&effective.target),
                "MaxRecvDataSegmentLength" => {
                    agreed.longest_data_bytes = [number(&effective.target), number(&effective.initiator)];
                }
                _ => {}
            }
        }
        agreed
    }
}
