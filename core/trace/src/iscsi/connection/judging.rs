//! What the judge of the protocol gets of a connection.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::opcode::Opcode;

use super::IscsiConnection;
use crate::conformance::{Around, Ended};
use crate::context::Context;
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

    /// The judge gets a PDU, after the pass.
    pub(super) fn judge_pdu(&mut self, pdu: &Pdu<'_>, opcode: Opcode, context: &mut Context) {
        let (around, session) = (self.around(), self.session);
        let judge = self.judge.get_or_insert_default();
        if pdu.header_digest_ok.is_some() || pdu.data_digest_ok.is_some() {
            let rows = &context.sessions.rows;
            let row = session.map(|session| context.sessions.row(session));
            let pair = || Some((rows.initiator_name.get(row?)?.to_owned(), rows.target_name.get(row?)?.to_owned()));
            judge.digests(pdu, opcode, self.number, pair, &mut context.digests);
        }
        if !judge.is_alone()
            && judge.is_whole()
            && let Some(state) = session.and_then(|session| context.sessions.state_mut(session))
        {
            let allegiance = &mut state.allegiance;
            judge.allegiance(pdu, opcode, allegiance, around, &mut context.tables.violations, &mut context.counters);
        }
        judge.take(pdu, opcode, around, &mut context.tables.violations, &mut context.counters);
    }

    /// The connection is over; the target closed it in order at `closed_by_target_ns`, if it did.
    pub(crate) fn judge_end(&mut self, closed_by_target_ns: Option<i64>, context: &mut Context) {
        let around = self.around();
        if let Some(judge) = &mut self.judge {
            let ended = Ended { closed_by_target_ns };
            judge.finish(ended, around, &mut context.tables.violations, &mut context.counters);
        }
    }
}
