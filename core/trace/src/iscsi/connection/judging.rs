//! What the judge of the protocol gets of a connection.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::opcode::Opcode;

use super::IscsiConnection;
use crate::conformance::agreed::Agreed;
use crate::conformance::{Around, Judge};
use crate::context::Context;
use crate::iscsi::keys::Defaults;
use crate::iscsi::pdu::Pdu;
use crate::stream::stamp::Stamp;
use crate::tables::CycleId;

impl IscsiConnection {
    /// PDUs may have passed that were not read.
    #[cold]
    pub(crate) fn note_unread(&mut self) {
        self.is_whole = false;
        if let Some(judge) = &mut self.judge {
            judge.begin_anew();
        }
    }

    fn around(&self) -> Around {
        let is_named =
            self.judge.is_none() && !self.has_gap && self.login.negotiation.initiator("InitiatorName").is_some();
        Around { connection: self.number, is_named }
    }

    /// The judge gets the header of a SCSI Command; without a cycle nothing certain is known of it.
    pub(super) fn judge_command(
        &mut self,
        header: Bhs<'_>,
        first: Stamp,
        cycle: Option<CycleId>,
        context: &mut Context,
    ) {
        let around = self.around();
        let judge = self.judge.get_or_insert_default();
        match cycle {
            Some(cycle) => {
                judge.command(header, first, cycle, around, &mut context.tables.violations, &mut context.counters);
            }
            None => judge.begin_anew(),
        }
    }

    /// The judge gets a header of the target: its initiator may act on it before the PDU is complete.
    #[inline]
    pub(super) fn judge_said(&mut self, header: Bhs<'_>) {
        if let Some(judge) = &mut self.judge {
            judge.said(header);
        }
    }

    /// The judge gets a PDU, after the pass; `is_login_end` if it ends the login.
    pub(super) fn judge_pdu(&mut self, pdu: &Pdu<'_>, opcode: Opcode, is_login_end: bool, context: &mut Context) {
        let around = self.around();
        let judge: &mut Judge = self.judge.get_or_insert_default();
        judge.take(pdu, opcode, around, &mut context.tables.violations, &mut context.counters);
        if is_login_end && judge.is_whole() && !self.login.has_gap {
            let defaults = if self.login.is_further { Defaults::OfConnection } else { Defaults::All };
            judge.agree(Agreed::of(&self.login.negotiation, defaults));
        }
    }
}
