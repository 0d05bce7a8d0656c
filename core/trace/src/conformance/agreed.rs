//! The values of a login that decide what is allowed.

use std::sync::LazyLock;

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
    /// Whether ErrorRecoveryLevel is above 0.
    pub can_recover: Option<bool>,
    /// MaxRecvDataSegmentLength of the target and of the initiator: the longest data segment to the target, to the initiator.
    pub longest_data_bytes: [Option<u32>; 2],
}

/// The values without a key in the login: of a connection that leads its session, and of a further one. A further one has the
/// values of its session, which are not known here.
static DEFAULTS: LazyLock<[Agreed; 2]> = LazyLock::new(|| {
    [false, true].map(|is_further| {
        let mut agreed = Agreed::default();
        for &key in OperationalKey::ALL {
            if !is_further || key.row().scope == Scope::Connection {
                agreed.set(key, None, None);
            }
        }
        agreed
    })
});

impl Agreed {
    /// Those of a login without keys.
    pub(super) fn without_keys(is_further: bool) -> Self {
        DEFAULTS[usize::from(is_further)]
    }

    /// Sets the value of a key by what the initiator and the target said of it.
    pub(super) fn set(&mut self, key: OperationalKey, initiator: Option<&str>, target: Option<&str>) {
        let value = || effective(Some(key.row()), initiator, target);
        let number = |value: &str| text::numeric(value).and_then(|number| u32::try_from(number).ok());
        let count = || number(&value().target);
        let truth = || text::boolean(&value().target);
        match key {
            OperationalKey::MaxConnections => self.is_alone = count() == Some(1),
            OperationalKey::ImmediateData => self.immediate_data = truth(),
            OperationalKey::InitialR2T => self.initial_r2t = truth(),
            OperationalKey::FirstBurstLength => self.first_burst_bytes = count(),
            OperationalKey::MaxBurstLength => self.max_burst_bytes = count(),
            OperationalKey::MaxOutstandingR2T => self.max_outstanding_r2t = count(),
            OperationalKey::DataPduInOrder => self.data_pdu_in_order = truth(),
            OperationalKey::DataSequenceInOrder => self.data_sequence_in_order = truth(),
            OperationalKey::ErrorRecoveryLevel => self.can_recover = count().map(|level| level > 0),
            OperationalKey::MaxRecvDataSegmentLength => {
                let longest = value();
                self.longest_data_bytes = [number(&longest.target), number(&longest.initiator)];
            }
            _ => {}
        }
    }
}
