//! What the judge of the protocol gets of a connection.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::cdb::Operation;
use iscsitrace_wire::lun;
use iscsitrace_wire::opcode::Opcode;

use super::IscsiConnection;
use crate::conformance::rules::{Rule, Side};
use crate::conformance::violations::{Found, Report};
use crate::conformance::{Around, Command, Ended, Judge};
use crate::context::Context;
use crate::iscsi::pdu::Pdu;
use crate::stream::stamp::Stamp;
use crate::tables::{CycleId, NULL_U32};

/// Operation code of READ(32) and WRITE(32), which have more bytes than the header has room for.
const VARIABLE_LENGTH: u8 = 0x7f;
/// RDPROTECT and WRPROTECT: the upper bits of byte 1.
const PROTECT_SHIFT: u32 = 5;

#[cold]
fn new_judge() -> Box<Judge> {
    Box::default()
}

impl IscsiConnection {
    /// PDUs may have passed that were not read.
    #[cold]
    pub(crate) fn note_unread(&mut self) {
        self.is_whole = false;
        if let Some(judge) = &mut self.judge {
            judge.begin_anew();
        }
    }

    /// Prefetches what the judge needs for a PDU.
    pub(crate) fn prefetch_judge(&self) {
        if let Some(judge) = &self.judge {
            judge.prefetch();
        }
    }

    fn around(&self) -> Around {
        let is_named =
            self.judge.is_none() && !self.has_gap && self.login.negotiation.initiator("InitiatorName").is_some();
        Around { connection: self.number, is_named }
    }

    /// What a READ or WRITE of a disk asks for: its blocks, of the size that the target said.
    fn asked_bytes(&self, header: Bhs<'_>, cycle: CycleId, context: &Context) -> Option<u64> {
        let (cycles, row) = (&context.tables.cycles, context.tables.cycles.row(cycle));
        let operation = Operation::ALL.get(usize::from(*cycles.operation.get(row)?))?;
        let block_count =
            cycles.block_count.get(row).filter(|&&count| operation.moves_blocks() && count != NULL_U32)?;
        let units = &context.sessions.state(self.session?)?.units;
        let block_bytes = units.block_bytes(header.lun().map(lun::number)?)?;
        let cdb = header.cdb()?;
        // with protection information blocks are longer
        let is_plain = cdb[0] != VARIABLE_LENGTH && cdb[1] >> PROTECT_SHIFT == 0;
        is_plain.then_some(u64::from(*block_count) * u64::from(block_bytes))
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
        let asked_bytes = cycle.and_then(|cycle| self.asked_bytes(header, cycle, context));
        let judge = self.judge.get_or_insert_with(new_judge);
        match cycle {
            Some(cycle) => {
                let command = Command { cycle, asked_bytes };
                judge.command(header, first, command, around, &mut context.tables.violations, &mut context.counters);
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
        let judge = self.judge.get_or_insert_with(new_judge);
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
        if !context.sessions.rivals.is_empty()
            && judge.is_whole()
            && !matches!(opcode, Opcode::LoginRequest | Opcode::LogoutRequest)
            && let Some(rival) =
                session.and_then(|session| context.sessions.rivals.note(session, self.number, pdu.bhs(), pdu.first))
        {
            let found = Found::new(Rule::L5, Side::Initiator, rival.at);
            let (violations, counters) = (&mut context.tables.violations, &mut context.counters);
            Report::default().add(found, rival.connection, violations, counters);
        }
        judge.take(pdu, opcode, around, &self.login, &mut context.tables.violations, &mut context.counters);
    }

    /// The connection is over; `closed_ns` is when the initiator, and the target closed it in order, if they did.
    pub(crate) fn judge_end(&mut self, closed_ns: [Option<i64>; 2], context: &mut Context) {
        let around = self.around();
        if let Some(judge) = &mut self.judge {
            let ended = Ended { closed_ns };
            judge.finish(ended, around, &mut context.tables.violations, &mut context.counters);
        }
    }
}
