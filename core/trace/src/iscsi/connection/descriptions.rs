//! Parameter data that describes a logical unit, where it spans several Data-In PDUs.

use crate::iscsi::pdu::Pdu;
use crate::tables::CycleId;
use serde::{Deserialize, Serialize};

/// Maximum parameter data of one command that is read: a page with all its designators, or some hundred ports.
pub(super) const PARAMETER_DATA_MAX: usize = 4096;
/// Data-In of a command after each of which its data is read: of more, only as it becomes twice as much.
const READ_EACH: usize = 8;
/// Maximum commands of a connection whose data is incomplete; of more the oldest are forgotten.
const INCOMPLETE_MAX: usize = 16;

/// The parameter data of a command so far.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Incomplete {
    cycle: CycleId,
    /// From the first byte on.
    data: Vec<u8>,
    /// Data-In that it came in.
    parts: usize,
    /// How much of it was read when it was read last.
    read_bytes: usize,
}

/// The parameter data that spans several Data-In.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Descriptions {
    incomplete: Vec<Incomplete>,
    /// The data that was completed last.
    complete: Vec<u8>,
}

impl Descriptions {
    /// Takes a Data-In of a cycle. Returns the data so far from its first byte on, if this PDU continues it, unless it came in
    /// many and is little more than was returned last: a target may send byte by byte.
    pub(super) fn take<'a>(&'a mut self, cycle: CycleId, pdu: &'a Pdu<'_>) -> Option<&'a [u8]> {
        if pdu.data.is_empty() || pdu.data_digest_ok == Some(false) {
            return None;
        }
        let is_last = pdu.bhs().is_final() == Some(true);
        let offset = pdu.bhs().buffer_offset()? as usize;
        let begun = self.incomplete.iter().position(|begun| begun.cycle == cycle);
        if offset == 0 && is_last {
            return Some(pdu.data);
        }
        let begun = begun.map(|place| self.incomplete.remove(place));
        let Incomplete { mut data, mut parts, mut read_bytes, .. } = begun.unwrap_or_default();
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
        parts += 1;
        let is_read = parts <= READ_EACH || data.len() >= 2 * read_bytes;
        if is_read {
            read_bytes = data.len();
        }
        self.incomplete.push(Incomplete { cycle, data, parts, read_bytes });
        self.incomplete.last().map(|begun| begun.data.as_slice()).filter(|_| is_read)
    }
}
