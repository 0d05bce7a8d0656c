//! PDUs of the target that belong to no task. Where the start of a capture shows no header of the initiator, commands are
//! read later than their answers: these are kept until then.

use crate::iscsi::pdu::Pdu;
use serde::{Deserialize, Serialize};

/// PDUs that are kept; of more the oldest are forgotten.
pub(super) const UNCLAIMED_MAX: usize = 64;

/// A PDU without a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Unclaimed {
    pub(super) tag: u32,
    pub(super) header: Vec<u8>,
    pub(super) data: Vec<u8>,
    pub(super) pdu: Pdu<'static>,
}
