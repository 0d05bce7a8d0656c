//! What the rules see beside a PDU, and where violations go.

use super::agreed::Agreed;
use super::rules::Side;
use super::violations::{Found, Report};
use crate::counters::Counters;
use crate::tables::{CycleId, Violations};

/// What is skipped, closed or unanswered is judged after this time: what is under way has arrived by then.
pub(super) const SETTLED_NS: i64 = 1_000_000_000;

/// What its receiver did not answer for so long, while it did other things, is not answered.
pub(super) const UNANSWERED_NS: i64 = 5_000_000_000;

/// What is known of a PDU's surroundings, and where violations go.
pub(super) struct Sight<'a> {
    /// Whether every PDU of the connection was seen, from the first of its login on.
    pub(super) is_whole: bool,
    /// Whether numbers and data may come again: ErrorRecoveryLevel is above 0, or something called for a recovery.
    pub(super) is_recovering: bool,
    /// Whether no task of the connection is open.
    pub(super) is_idle: bool,
    pub(super) agreed: &'a Agreed,
    pub(super) connection: u32,
    pub(super) report: &'a mut Report,
    pub(super) violations: &'a mut Violations,
    pub(super) counters: &'a mut Counters,
}

impl Sight<'_> {
    #[cold]
    pub(super) fn report(&mut self, found: Found) {
        self.report.add(found, self.connection, self.violations, self.counters);
    }

    /// Whether a side broke any rule on the connection.
    pub(super) fn has_accused(&self, side: Side) -> bool {
        self.report.has_accused(side)
    }
}

/// What the pass knows of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Command {
    /// Its row.
    pub cycle: CycleId,
    /// Its LUN.
    pub lun: [u8; 8],
    /// What its CDB asks for, where that is known.
    pub asked_bytes: Option<u64>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// When the initiator, and the target closed it: a FIN behind all that they sent.
    pub closed_ns: [Option<i64>; 2],
}

impl Ended {
    /// How long after an instant a side closed it.
    pub(super) fn waited_ns(&self, side: Side, since_ns: i64) -> Option<i64> {
        self.closed_ns[side as usize].map(|closed_ns| closed_ns.saturating_sub(since_ns))
    }
}
