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
use crate::iscsi::task::Task;
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

    /// A task leaves the open ones: the judge keeps what it has of it, if it still waits for its status.
    pub(super) fn remove_task(&mut self, tag: u32) -> Option<Box<Task>> {
        let mut task = self.tasks.remove(&tag)?;
        self.keep_judged(tag, &mut task);
        Some(task)
    }

    /// The same for a task that another one replaced.
    pub(super) fn keep_judged(&mut self, tag: u32, task: &mut Task) {
        if let Some((judge, judged)) = self.judge.as_mut().zip(task.judged.take()) {
            judge.keep(tag, judged);
        }
    }

    /// Whether the initiator's name is known to a judge that is not made yet.
    #[inline]
    fn is_named(&self) -> bool {
        self.judge.is_none() && !self.has_gap && self.login.negotiation.initiator("InitiatorName").is_some()
    }

    /// What a READ or WRITE of a disk asks for: its blocks, of the size that the target said.
    #[inline]
    fn asked_bytes(&self, header: Bhs<'_>, cycle: CycleId, lun: [u8; 8], context: &Context) -> Option<u64> {
        let (cycles, row) = (&context.tables.cycles, context.tables.cycles.row(cycle));
        let operation = Operation::ALL.get(usize::from(*cycles.operation.get(row)?))?;
        let block_count =
            cycles.block_count.get(row).filter(|&&count| operation.moves_blocks() && count != NULL_U32)?;
        let units = &context.sessions.state(self.session?)?.units;
        let block_bytes = units.block_bytes(lun::number(lun))?;
        let cdb = header.cdb()?;
        // with protection information blocks are longer
        let is_plain = cdb[0] != VARIABLE_LENGTH && cdb[1] >> PROTECT_SHIFT == 0;
        is_plain.then_some(u64::from(*block_count) * u64::from(block_bytes))
    }

    /// The judge gets the header of a SCSI Command; without a cycle nothing certain is known of it.
    #[inline]
    pub(super) fn judge_command(
        &mut self,
        header: Bhs<'_>,
        first: Stamp,
        cycle: Option<CycleId>,
        context: &mut Context,
    ) {
        let is_named = self.is_named();
        let command = match (cycle, header.lun()) {
            (Some(cycle), Some(lun)) => {
                Some(Command { cycle, lun, asked_bytes: self.asked_bytes(header, cycle, lun, context) })
            }
            _ => None,
        };
        let judge = self.judge.get_or_insert_with(new_judge);
        match command {
            Some(command) => {
                let (connection, tasks) = (self.number, &mut self.tasks);
                let (violations, counters) = (&mut context.tables.violations, &mut context.counters);
                judge.command(header, first, command, Around { connection, is_named, tasks, violations, counters });
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

    /// The judge gets a PDU: after the pass took the keys of a login, and before it ends tasks.
    #[inline]
    pub(super) fn judge_pdu(&mut self, pdu: &Pdu<'_>, opcode: Opcode, context: &mut Context) {
        let (is_named, connection, session) = (self.is_named(), self.number, self.session);
        let judge = self.judge.get_or_insert_with(new_judge);
        if pdu.header_digest_ok.is_some() || pdu.data_digest_ok.is_some() {
            let rows = &context.sessions.rows;
            let row = session.map(|session| context.sessions.row(session));
            let pair = || Some((rows.initiator_name.get(row?)?.to_owned(), rows.target_name.get(row?)?.to_owned()));
            judge.digests(pdu, opcode, connection, pair, &mut context.digests);
        }
        if !judge.is_alone()
            && judge.is_whole()
            && let Some(state) = session.and_then(|session| context.sessions.state_mut(session))
        {
            let (tasks, counters) = (&mut self.tasks, &mut context.counters);
            let around = Around { connection, is_named, tasks, violations: &mut context.tables.violations, counters };
            judge.allegiance(pdu, opcode, &mut state.allegiance, around);
        }
        if !context.sessions.rivals.is_empty()
            && judge.is_whole()
            && !matches!(opcode, Opcode::LoginRequest | Opcode::LogoutRequest)
            && let Some(rival) =
                session.and_then(|session| context.sessions.rivals.note(session, connection, pdu.bhs(), pdu.first))
        {
            let found = Found::new(Rule::L5, Side::Initiator, rival.at);
            Report::default().add(found, rival.connection, &mut context.tables.violations, &mut context.counters);
        }
        let (tasks, counters) = (&mut self.tasks, &mut context.counters);
        let around = Around { connection, is_named, tasks, violations: &mut context.tables.violations, counters };
        judge.take(pdu, opcode, &self.login, around);
    }

    /// The connection is over; `closed_ns` is when the initiator, and the target closed it in order, if they did.
    pub(crate) fn judge_end(&mut self, closed_ns: [Option<i64>; 2], context: &mut Context) {
        if let Some(judge) = &mut self.judge {
            let (connection, tasks) = (self.number, &mut self.tasks);
            let (violations, counters) = (&mut context.tables.violations, &mut context.counters);
            let around = Around { connection, is_named: false, tasks, violations, counters };
            judge.finish(Ended { closed_ns }, around);
        }
    }
}
