//! Who breaks RFC 7143: a passive judge of one connection.
//!
//! ```text
//! rules       the rules, each declared once
//! violations  the rows that come out, bounded
//! agreed      the values of the login that decide what is allowed
//! numbers     CmdSN, StatSN and what acknowledges them
//! tasks       SCSI commands: tags, data, R2Ts, statuses, residuals
//! ```
//!
//! The judge knows only what it saw itself, in the order of the streams. Behind a hole in a stream, and wherever a header
//! is not certain, it begins anew: then neither a number nor a task from before counts. The pass hands a PDU over after
//! those that its sender had acknowledged, so that an answer is never judged before what it answers. The rest of the pass
//! makes the best of what a capture lacks; the judge must not guess, and so keeps a state of its own.

pub mod agreed;
mod numbers;
pub mod rules;
mod tasks;
pub mod violations;

use serde::{Deserialize, Serialize};

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::opcode::Opcode;

use crate::counters::Counters;
use crate::iscsi::pdu::Pdu;
use crate::stream::stamp::Stamp;
use crate::tables::{CycleId, Violations};
use agreed::Agreed;
use numbers::Numbers;
use tasks::Tasks;
use violations::{Found, Report};

/// What is known of a PDU's surroundings, and where violations go.
pub(crate) struct Sight<'a> {
    /// Whether every PDU of the connection was seen, from the first of its login on.
    is_whole: bool,
    /// Whether numbers and data may come again: ErrorRecoveryLevel is above 0, or something called for a recovery.
    is_recovering: bool,
    agreed: Agreed,
    connection: u32,
    report: &'a mut Report,
    violations: &'a mut Violations,
    counters: &'a mut Counters,
}

impl Sight<'_> {
    #[cold]
    fn report(&mut self, found: Found) {
        self.report.add(found, self.connection, self.violations, self.counters);
    }
}

/// What the connection tells with a PDU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around {
    /// Its number.
    pub connection: u32,
    /// Whether the initiator's name is known, which its first Login Request has.
    pub is_named: bool,
}

/// The judge of one connection.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Judge {
    /// Whether a PDU was seen.
    has_begun: bool,
    is_whole: bool,
    /// What was agreed, once the login is over.
    agreed: Agreed,
    /// Whether a PDU was seen that recovers from errors, or calls for it.
    has_recovered: bool,
    numbers: Numbers,
    tasks: Tasks,
    report: Report,
}

impl Judge {
    /// Whether every PDU of the connection was seen, from the first of its login on.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The login is over, and no text of it is missing.
    pub(crate) fn agree(&mut self, agreed: Agreed) {
        self.agreed = agreed;
    }

    /// PDUs may have passed that were not seen.
    pub(crate) fn begin_anew(&mut self) {
        self.is_whole = false;
        self.has_begun = true;
        self.numbers = Numbers::default();
        self.tasks = Tasks::default();
    }

    fn parts<'a>(
        &'a mut self,
        around: Around,
        violations: &'a mut Violations,
        counters: &'a mut Counters,
    ) -> (Sight<'a>, &'a mut Numbers, &'a mut Tasks) {
        let Self { is_whole, agreed, has_recovered, report, numbers, tasks, .. } = self;
        let is_recovering = *has_recovered || agreed.error_recovery_level.is_some_and(|level| level > 0);
        let sight = Sight {
            is_whole: *is_whole,
            is_recovering,
            agreed: *agreed,
            connection: around.connection,
            report,
            violations,
            counters,
        };
        (sight, numbers, tasks)
    }

    /// A header of the target: its PDU follows with [`Judge::take`], possibly behind what the initiator does upon it.
    #[inline]
    pub(crate) fn said(&mut self, bhs: Bhs<'_>) {
        self.numbers.said(bhs);
    }

    /// The header of a SCSI Command: its answers may come before its last bytes.
    pub(crate) fn command(
        &mut self,
        bhs: Bhs<'_>,
        first: Stamp,
        cycle: CycleId,
        around: Around,
        violations: &mut Violations,
        counters: &mut Counters,
    ) {
        if bhs.as_bytes().len() < LENGTH_BYTES {
            self.begin_anew();
            return;
        }
        let (mut sight, _, tasks) = self.parts(around, violations, counters);
        tasks.command(bhs, first, cycle, &mut sight);
    }

    /// A PDU, complete or as far as it will ever be.
    #[inline]
    pub(crate) fn take(
        &mut self,
        pdu: &Pdu<'_>,
        opcode: Opcode,
        around: Around,
        violations: &mut Violations,
        counters: &mut Counters,
    ) {
        if !self.has_begun {
            self.has_begun = true;
            self.is_whole = opcode == Opcode::LoginRequest && around.is_named;
        }
        let has_wrong_digest = [pdu.header_digest_ok, pdu.data_digest_ok].contains(&Some(false));
        self.has_recovered |= has_wrong_digest || opcode == Opcode::SnackRequest;
        if pdu.header.len() < LENGTH_BYTES || pdu.header_digest_ok == Some(false) || pdu.is_unfinished {
            self.begin_anew();
            return;
        }
        let bhs = pdu.bhs();
        let (mut sight, numbers, tasks) = self.parts(around, violations, counters);
        if opcode.is_initiator() {
            numbers.of_initiator(bhs, opcode, pdu.first, &mut sight);
        } else {
            numbers.of_target(bhs, opcode, pdu.first, &mut sight);
        }
        tasks.take(bhs, opcode, pdu.first, &mut sight);
    }
}
