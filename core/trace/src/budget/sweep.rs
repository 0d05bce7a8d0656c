//! Events in time order -> spans, one part each.
//!
//! At any time the first part that applies counts:
//!
//! ```text
//! the line is busy           transfer
//! a sender is limited        unknown, loss_recovery, receive_window, congestion_window, ack_wait
//! an R2T waits for data      initiator_service, after the RTT to the initiator
//! a command is in flight     target_service, after the RTT to the target
//! within one of these RTTs   propagation
//! no command is in flight    propagation for one RTT to the initiator, then initiator_think
//! ```

use super::change::Change;
use super::waiting::{Allowance, Commands, Waiting};
use crate::dynamics::held::LIMITING_PARTS;
use crate::tables::{BudgetRow, NULL_U32, NULL_U64, budget_part as part, in_flight};

/// The sweep over one scope.
#[derive(Debug)]
pub(super) struct Sweep<'a> {
    /// Rows of `cycles`, by index in the scope.
    cycles: &'a [u32],
    now_ns: i64,
    /// Time for which the line was not busy.
    waited_ns: i64,
    busy_count: u32,
    limited_counts: [u32; LIMITING_PARTS.len()],
    commands: Commands,
    /// Until when the time without a command counts as propagation; none if the RTT is unknown.
    think_deadline: Option<i64>,
    /// The strongest kind of the commands whose statuses are on their way to the initiator until then.
    answered: u8,
    /// The columns that all rows share.
    blank: BudgetRow,
    /// The current span.
    row: Option<BudgetRow>,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(start_ns: i64, blank: BudgetRow, cycles: &'a [u32]) -> Self {
        Self {
            cycles,
            now_ns: start_ns,
            waited_ns: 0,
            busy_count: 0,
            limited_counts: [0; LIMITING_PARTS.len()],
            commands: Commands::new(cycles.len()),
            think_deadline: Some(0),
            answered: in_flight::NONE,
            blank,
            row: None,
        }
    }

    /// Time passes until `until_ns`, which `frame` ends.
    pub(super) fn advance(&mut self, until_ns: i64, frame: u64, emit: &mut impl FnMut(BudgetRow)) {
        while self.now_ns < until_ns {
            let (part, left_ns) = self.part();
            let length_ns = until_ns.saturating_sub(self.now_ns).min(left_ns).min(self.answered_left_ns(part));
            let command = match part {
                part::TRANSFER if self.commands.count() != 1 => None,
                _ => self.commands.oldest(),
            };
            let cycle = command.and_then(|place| self.cycles.get(place as usize)).copied();
            let to_ns = self.now_ns + length_ns;
            let frame = if to_ns == until_ns { frame } else { NULL_U64 };
            self.stretch(to_ns, part, cycle.unwrap_or(NULL_U32), frame, emit);
            if part != part::TRANSFER {
                self.waited_ns = self.waited_ns.saturating_add(length_ns);
            }
            self.now_ns = to_ns;
        }
    }

    /// The part that applies now, and for how long at most.
    fn part(&mut self) -> (u8, i64) {
        if self.busy_count > 0 {
            return (part::TRANSFER, i64::MAX);
        }
        let limited = LIMITING_PARTS.iter().zip(&self.limited_counts).find(|(_, count)| **count > 0);
        if let Some((&limited, _)) = limited {
            return (limited, i64::MAX);
        }
        match self.commands.waiting(self.waited_ns) {
            Waiting::Target => (part::TARGET_SERVICE, i64::MAX),
            Waiting::Initiator => (part::INITIATOR_SERVICE, i64::MAX),
            Waiting::Unmeasured => (part::UNKNOWN, i64::MAX),
            Waiting::Path(deadline) => (part::PROPAGATION, deadline - self.waited_ns),
            Waiting::Nobody => match self.think_deadline {
                None => (part::UNKNOWN, i64::MAX),
                Some(deadline) if self.waited_ns < deadline => (part::PROPAGATION, deadline - self.waited_ns),
                Some(_) => (part::INITIATOR_THINK, i64::MAX),
            },
        }
    }

    /// The strongest kind of command in flight. For the initiator a command is in flight until its status arrives, after
    /// the data that is queued before the line: at a tap beside a fast target that is all of its time.
    fn in_flight(&self) -> u8 {
        if self.commands.count() > 0 { self.commands.in_flight() } else { self.answered() }
    }

    /// The strongest kind of command whose status is on its way to the initiator.
    fn answered(&self) -> u8 {
        if self.think_deadline.is_some_and(|deadline| self.waited_ns < deadline) {
            self.answered
        } else {
            in_flight::NONE
        }
    }

    /// How long a status is still on its way, where only that keeps a command in flight: a sender may be limited for
    /// longer. While the line is busy that time does not pass.
    fn answered_left_ns(&self, part: u8) -> i64 {
        let is_counted = part != part::TRANSFER && self.commands.count() == 0 && self.answered() != in_flight::NONE;
        match self.think_deadline {
            Some(deadline) if is_counted => deadline.saturating_sub(self.waited_ns),
            _ => i64::MAX,
        }
    }

    /// Adds a span up to `to_ns`, or extends the current one.
    fn stretch(&mut self, to_ns: i64, part: u8, cycle: u32, frame: u64, emit: &mut impl FnMut(BudgetRow)) {
        let in_flight = self.in_flight();
        match &mut self.row {
            Some(row) if row.part == part && row.cycle == cycle && row.in_flight == in_flight => {
                row.time_last_ns = to_ns;
                row.frame = frame;
            }
            row => {
                let next = BudgetRow {
                    time_first_ns: self.now_ns,
                    time_last_ns: to_ns,
                    part,
                    cycle,
                    in_flight,
                    frame,
                    ..self.blank.clone()
                };
                if let Some(ended) = row.replace(next) {
                    emit(ended);
                }
            }
        }
    }

    /// Applies a change.
    pub(super) fn change(&mut self, change: Change, kind: impl Fn(u32) -> u8, allowance: impl Fn(u32) -> Allowance) {
        let waited_ns = self.waited_ns;
        match change {
            Change::Command(place) => self.commands.begin(place, kind(place), waited_ns, allowance(place)),
            Change::Requested(place) => self.commands.request(place, waited_ns, allowance(place)),
            Change::R2t(place) => self.commands.r2t(place, waited_ns, allowance(place)),
            Change::BurstSent(place) => self.commands.burst_sent(place, waited_ns, allowance(place)),
            Change::Ended(place) => {
                self.answered = self.answered().max(kind(place));
                self.commands.end(place);
                self.think_deadline =
                    allowance(place).to_initiator_ns.map(|allowed_ns| waited_ns.saturating_add(allowed_ns));
            }
            Change::Busy(true) => self.busy_count += 1,
            Change::Busy(false) => self.busy_count = self.busy_count.saturating_sub(1),
            Change::Limited(part, is_limited) => {
                let place = LIMITING_PARTS.iter().position(|&limited| limited == part);
                if let Some(count) = place.and_then(|place| self.limited_counts.get_mut(place)) {
                    *count = if is_limited { *count + 1 } else { count.saturating_sub(1) };
                }
            }
        }
    }

    /// Emits the last span.
    pub(super) fn finish(self, emit: &mut impl FnMut(BudgetRow)) {
        if let Some(row) = self.row {
            emit(row);
        }
    }
}
