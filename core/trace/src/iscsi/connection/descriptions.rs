//! Parameter data that describes a logical unit, where it spans several Data-In PDUs.

use crate::iscsi::pdu::Pdu;
use crate::tables::CycleId;
use serde::{Deserialize, Serialize};

/// Maximum parameter data of one command that is read: a page with all its designators, or some hundred ports.
pub(super) const PARAMETER_DATA_MAX: usize = 4096;
/// Maximum commands of a connection whose data is incomplete; of more the oldest are forgotten.
const INCOMPLETE_MAX: usize = 16;

/// The parameter data that spans several Data-In.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Descriptions {
    /// Cycle of the command, and its data from the first byte on.
    incomplete: Vec<(CycleId, Vec<u8>)>,
    /// The data that was completed last.
    complete: Vec<u8>,
}

impl Descriptions {
    /// Takes a Data-In of a cycle. Returns the data so far from its first byte on, if this PDU continues it.
    pub(super) fn take<'a>(&'a mut self, cycle: CycleId, pdu: &'a Pdu<'_>) -> Option<&'a [u8]> {
        if pdu.data.is_empty() || pdu.data_digest_ok == Some(false) {
            return None;
        }
        let is_last = pdu.bhs().is_final() == Some(true);
        let offset = pdu.bhs().buffer_offset()? as usize;
        let begun = self.incomplete.iter().position(|(number, _)| *number == cycle);
        if offset == 0 && is_last {
            return Some(pdu.data);
        }
        let mut data = begun.map(|place| self.incomplete.remove(place).1).unwrap_or_default();
        if data.len() != offset {
            return None;
        }
        let room = PARAMETER_DATA_MAX.saturating_sub(offset);
        data.extend_from_slice(&pdu.data[..pdu.data.len().min(room)]);
        if is_last {
            self.complete = data;
            return Some(&self.complete);
        }
        if self.incomplete.len() >= INCOMPLETE_MAX {
            self.incomplete.remove(0);
        }
        self.incomplete.push((cycle, data));
        self.incomplete.last().map(|(_, data)| data.as_slice())
    }
}
