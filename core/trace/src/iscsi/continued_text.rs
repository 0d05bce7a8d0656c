//! Text that continues over several Login or Text PDUs (the C bit).

use crate::context::Context;
use crate::counters::Counter;
use crate::iscsi::pdu::{KEPT_DATA_MAX, Pdu};
use serde::{Deserialize, Serialize};

/// Maximum text over several PDUs.
const TEXT_MAX: usize = 64 << 10;

/// Text that may continue over several PDUs.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct ContinuedText {
    text: Vec<u8>,
}

impl ContinuedText {
    /// Adds a PDU's data. Returns the whole text with its last part.
    pub fn take(&mut self, pdu: &Pdu<'_>, connection: u32, context: &mut Context) -> Option<Vec<u8>> {
        let bhs = pdu.bhs();
        let length = bhs.data_segment_length().unwrap_or(0) as usize;
        if pdu.data.len() < length && pdu.data.len() == KEPT_DATA_MAX || self.text.len() + pdu.data.len() > TEXT_MAX {
            context.counters.add(Counter::LoginTextTooLong, Some(connection), pdu.first.frame);
        } else {
            // a truncated key=value pair is ignored
            let whole = if pdu.data.len() < length {
                pdu.data.iter().rposition(|&byte| byte == 0).unwrap_or(0)
            } else {
                length
            };
            self.text.extend_from_slice(pdu.data.get(..whole).unwrap_or(pdu.data));
        }
        (bhs.is_continue() != Some(true)).then(|| std::mem::take(&mut self.text))
    }
}
