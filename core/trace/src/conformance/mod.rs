//! Who breaks RFC 7143: a passive judge of one connection.
//!
//! ```text
//! rules       the rules, each declared once
//! sight       what the rules see beside a PDU
//! violations  the rows that come out, bounded
//! agreed      the values of the login that decide what is allowed
//! numbers     CmdSN, StatSN and what acknowledges them
//! tasks       the open SCSI commands: tags, and what ends them
//! task        one of them: data and R2Ts
//! residual    its final response
//! exchanges   logouts, asynchronous messages, Rejects and SNACKs
//! pings       NOPs that ask for an answer
//! management  task management
//! login       stages, unanswered keys and text rounds
//! keys        each key as it comes
//! allegiance  the connection of each open task in a session of several
//! digests     digests that are always wrong
//! ```
//!
//! The judge knows only what it saw itself, in the order of the streams. Behind a hole in a stream, and wherever a header
//! is not certain, it begins anew: then neither a number nor a task from before counts. The pass hands a PDU over after
//! those that its sender had acknowledged, so that an answer is never judged before what it answers. The rest of the pass
//! makes the best of what a capture lacks; the judge must not guess, and so keeps a state of its own.

pub mod agreed;
pub mod allegiance;
pub mod digests;
mod exchanges;
pub mod keys;
mod login;
mod management;
mod numbers;
mod pings;
mod residual;
pub mod rules;
mod sight;
mod task;
mod tasks;
#[cfg(test)]
mod tests;
pub mod violations;

use serde::{Deserialize, Serialize};

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::management::TASK_REASSIGN;
use iscsitrace_wire::opcode::Opcode;

use crate::counters::Counters;
use crate::iscsi;
use crate::iscsi::pdu::Pdu;
use crate::stream::stamp::Stamp;
use crate::tables::Violations;
use agreed::Agreed;
use allegiance::Allegiance;
use digests::{Digests, Pair};
use exchanges::Exchanges;
use login::Login;
use numbers::Numbers;
use rules::{Rule, Side};
use sight::Sight;
pub(crate) use sight::{Command, Ended};
pub(crate) use task::Task;
pub(crate) use tasks::OfPass;
use tasks::{Open, Tasks};
use violations::{Found, Report};

/// The states of the rooms.
struct Parts<'a> {
    numbers: &'a mut Numbers,
    tasks: Open<'a>,
    exchanges: &'a mut Exchanges,
    login: &'a mut Login,
}

/// What the connection tells with a PDU, and where violations go.
#[derive(Debug)]
pub(crate) struct Around<'a> {
    /// Its number.
    pub connection: u32,
    /// Whether the initiator's name is known, which its first Login Request has.
    pub is_named: bool,
    /// Its open tasks.
    pub tasks: &'a mut OfPass,
    /// The rows.
    pub violations: &'a mut Violations,
    /// For what has no room there.
    pub counters: &'a mut Counters,
}

/// The judge of one connection. With many connections its lines are not in the caches: those that every PDU needs are side by
/// side, and what few connections need is elsewhere, as long as they do.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[repr(C, align(64))]
pub(crate) struct Judge {
    /// What was agreed, once the login is over.
    agreed: Agreed,
    /// Whether a PDU was seen.
    has_begun: bool,
    is_whole: bool,
    /// Whether a PDU was seen that recovers from errors, or calls for it.
    has_recovered: bool,
    exchanges: Exchanges,
    tasks: Tasks,
    numbers: Numbers,
    digests: Digests,
    login: Login,
    report: Report,
}

impl Judge {
    /// Whether every PDU of the connection was seen, from the first of its login on.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether its session has no other connection.
    pub(crate) fn is_alone(&self) -> bool {
        self.agreed.is_alone
    }

    /// Prefetches what it needs for a PDU of a command.
    pub(crate) fn prefetch(&self) {
        iscsitrace_sys::prefetch_value(self);
    }

    /// PDUs may have passed that were not seen.
    pub(crate) fn begin_anew(&mut self) {
        self.is_whole = false;
        self.has_begun = true;
        self.numbers = Numbers::default();
        self.tasks.begin_anew();
        self.exchanges = Exchanges::default();
        self.login = Login::default();
    }

    /// The pass ends a task for which the judge may still wait.
    pub(crate) fn keep(&mut self, tag: u32, task: Task) {
        self.tasks.keep(tag, task);
    }

    #[inline]
    fn parts<'a>(&'a mut self, around: Around<'a>) -> (Sight<'a>, Parts<'a>) {
        let Self { is_whole, agreed, has_recovered, report, numbers, tasks, exchanges, login, .. } = self;
        let is_recovering = *has_recovered || agreed.can_recover == Some(true);
        let sight = Sight {
            is_whole: *is_whole,
            is_recovering,
            is_idle: tasks.is_empty(),
            agreed,
            connection: around.connection,
            report,
            violations: around.violations,
            counters: around.counters,
        };
        (sight, Parts { numbers, tasks: Open { tasks, of_pass: around.tasks }, exchanges, login })
    }

    /// A header of the target: its PDU follows with [`Judge::take`], possibly behind what the initiator does upon it.
    #[inline]
    pub(crate) fn said(&mut self, bhs: Bhs<'_>) {
        self.numbers.said(bhs);
    }

    /// The header of a SCSI Command: its answers may come before its last bytes.
    #[inline]
    pub(crate) fn command(&mut self, bhs: Bhs<'_>, first: Stamp, command: Command, around: Around<'_>) {
        if bhs.as_bytes().len() < LENGTH_BYTES {
            self.begin_anew();
            return;
        }
        let (mut sight, mut parts) = self.parts(around);
        parts.exchanges.command(bhs, first, &mut sight);
        parts.tasks.command(bhs, first, command, &mut sight);
    }

    /// A PDU, complete or as far as it will ever be.
    #[inline]
    pub(crate) fn take(&mut self, pdu: &Pdu<'_>, opcode: Opcode, login_keys: &iscsi::login::Login, around: Around<'_>) {
        if !self.has_begun {
            self.has_begun = true;
            self.is_whole = opcode == Opcode::LoginRequest && around.is_named;
        }
        let has_wrong_digest = pdu.header_digest_ok == Some(false) || pdu.data_digest_ok == Some(false);
        self.has_recovered |= has_wrong_digest || opcode == Opcode::SnackRequest;
        if pdu.header.len() < LENGTH_BYTES || pdu.header_digest_ok == Some(false) || pdu.is_unfinished {
            self.begin_anew();
            return;
        }
        let bhs = pdu.bhs();
        let (mut sight, Parts { numbers, mut tasks, exchanges, login }) = self.parts(around);
        if opcode.is_initiator() {
            numbers.of_initiator(bhs, opcode, pdu.first, &mut sight);
        } else {
            numbers.of_target(bhs, opcode, pdu.first, &mut sight);
        }
        exchanges.take(bhs, pdu.data, opcode, pdu.first, (numbers, &mut tasks), &mut sight);
        if opcode == Opcode::Reject {
            tasks.reject(Bhs::new(pdu.data), pdu.first, &mut sight);
        }
        tasks.take(bhs, opcode, pdu.first, &mut sight);
        if matches!(opcode, Opcode::LoginRequest | Opcode::LoginResponse | Opcode::TextRequest | Opcode::TextResponse)
            && let Some(agreed) = login.take(pdu, opcode, login_keys, &mut sight)
        {
            self.agreed = agreed;
        }
    }

    /// A PDU of a task, in a session of several connections, before [`Judge::take`].
    pub(crate) fn allegiance(
        &mut self,
        pdu: &Pdu<'_>,
        opcode: Opcode,
        allegiance: &mut Allegiance,
        around: Around<'_>,
    ) {
        let bhs = pdu.bhs();
        let Some(tag) = bhs.initiator_task_tag().filter(|_| self.is_whole) else { return };
        let connection = around.connection;
        match opcode {
            Opcode::ScsiCommand => allegiance.command(tag, connection),
            Opcode::TaskManagementRequest if bhs.function() == Some(TASK_REASSIGN) => allegiance.give_up(),
            Opcode::DataOut | Opcode::DataIn | Opcode::ReadyToTransfer | Opcode::ScsiResponse => {
                let (mut sight, Parts { tasks, .. }) = self.parts(around);
                if !tasks.knows(tag) && allegiance.other(tag, connection).is_some() {
                    let side = if opcode.is_initiator() { Side::Initiator } else { Side::Target };
                    sight.report(Found::new(Rule::T8, side, pdu.first).only_seen(tag));
                }
                if opcode == Opcode::ScsiResponse || bhs.has_status() == Some(true) {
                    allegiance.end(tag, connection);
                }
            }
            _ => {}
        }
    }

    /// The digests of a PDU, where it has any; `pair` is that of the session.
    #[inline]
    pub(crate) fn digests(
        &mut self,
        pdu: &Pdu<'_>,
        opcode: Opcode,
        connection: u32,
        pair: impl FnOnce() -> Option<Pair>,
        totals: &mut digests::Totals,
    ) {
        if self.is_whole && !pdu.is_late {
            self.digests.take(pdu, opcode, connection, pair, totals);
        }
    }

    /// The end of the connection, behind its last PDU.
    pub(crate) fn finish(&mut self, ended: Ended, around: Around<'_>) {
        let (mut sight, parts) = self.parts(around);
        parts.exchanges.finish(ended, &mut sight);
    }
}
