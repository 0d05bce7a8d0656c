//! The last PDU of each direction: upon it a connection may have been closed.

use iscsitrace_wire::opcode::Opcode;
use serde::{Deserialize, Serialize};

use crate::stream::stamp::Stamp;

/// The last PDU of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastPdu {
    /// Its opcode.
    pub opcode: u8,
    /// Its first byte.
    pub at: Stamp,
    /// Whether no PDU of its type came before it.
    pub is_first: bool,
}

/// Those of both directions.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct LastPdus {
    /// To the target, to the initiator.
    pub of: [Option<LastPdu>; 2],
    /// Types that came: bit n stands for opcode n.
    types: u64,
}

impl LastPdus {
    /// Notes a PDU.
    #[inline]
    pub fn note(&mut self, opcode: Opcode, at: Stamp) {
        let bit = 1 << opcode.as_u8();
        let is_first = self.types & bit == 0;
        self.types |= bit;
        self.of[usize::from(!opcode.is_initiator())] = Some(LastPdu { opcode: opcode.as_u8(), at, is_first });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pdu_of_a_direction_knows_whether_others_of_its_type_came() {
        let mut last = LastPdus::default();
        let at = |frame| Stamp { time_ns: 0, frame };
        for (opcode, frame) in [(Opcode::ScsiCommand, 1), (Opcode::DataIn, 2), (Opcode::ScsiCommand, 3)] {
            last.note(opcode, at(frame));
        }
        let found = last.of.map(|pdu| pdu.map(|pdu| (pdu.opcode, pdu.at.frame, pdu.is_first)));
        assert_eq!(found, [Some((0x01, 3, false)), Some((0x25, 2, true))]);
    }
}
