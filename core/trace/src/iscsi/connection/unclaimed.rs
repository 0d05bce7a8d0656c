//! PDUs of the target that belong to no task. Where the start of a capture shows no header of the initiator, commands are
//! read later than their answers: these are kept until then.

use iscsitrace_wire::bhs::Bhs;

use super::IscsiConnection;
use crate::iscsi::context::Context;
use crate::iscsi::pdu::{Pdu, Stamp};

/// PDUs that are kept; of more the oldest are forgotten.
const UNCLAIMED_MAX: usize = 64;

/// A PDU without a task.
#[derive(Debug)]
pub(super) struct Unclaimed {
    tag: u32,
    header: Vec<u8>,
    data: Vec<u8>,
    pdu: Pdu<'static>,
}

impl IscsiConnection {
    /// Keeps a PDU without a task.
    pub(super) fn keep_unclaimed(&mut self, pdu: &Pdu<'_>) {
        let Some(tag) = pdu.bhs().initiator_task_tag() else { return };
        if self.unclaimed.len() == UNCLAIMED_MAX {
            self.unclaimed.pop_front();
        }
        self.unclaimed.push_back(Unclaimed {
            tag,
            header: pdu.header.to_vec(),
            data: pdu.data.to_vec(),
            pdu: Pdu { header: &[], data: &[], ..*pdu },
        });
    }

    /// The command of a task was read: takes the answers that were read before it.
    #[cold]
    pub(super) fn claim(&mut self, tag: u32, command: Stamp, context: &mut Context) {
        let is_answer = |kept: &Unclaimed| kept.tag == tag && kept.pdu.first.frame > command.frame;
        while let Some(place) = self.unclaimed.iter().position(is_answer) {
            let Some(Unclaimed { header, data, pdu, .. }) = self.unclaimed.remove(place) else { return };
            if let Some(opcode) = Bhs::new(&header).opcode() {
                self.answer(&Pdu { header: &header, data: &data, ..pdu }, opcode, context);
            }
        }
    }
}
