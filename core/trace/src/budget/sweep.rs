//! Events in time order -> spans, one part each.
//!
//! At any time the first part that applies counts:
//!
//! ```text
//! nothing progresses         outage
//! the line is busy           transfer
//! only statuses are missing  loss_recovery: they were sent, and wait for a retransmission
//! a sender is limited        unknown, loss_recovery, receive_window, congestion_window, send_buffer, ack_wait
//! most commands in flight    an R2T waits for data: initiator_service, after the RTT to the initiator; propagation within a
//!                            PDU; it waits for the target: target_service, after the RTT to it; an RTT is not known: unknown;
//!                            within one of these RTTs: propagation
//! no command is in flight    propagation for one RTT to the initiator, then initiator_think; unknown without that RTT
//! ```
//!
//! [`Sweep::part`] is this table.

use super::change::Change;
use super::waiting::{Allowance, Commands, Kinds, Waiting};
use crate::senders::held::LIMITING_PARTS;
use crate::tables::{BudgetRow, NULL_U32, NULL_U64, budget_part as part, in_flight};

/// The sweep over one scope.
#[derive(Debug)]
pub(super) struct Sweep<'a> {
    /// Rows of `cycles`, by index in the scope.
    cycles: &'a [u32],
    now_ns: i64,
    /// Time for which the line was not busy.
    waited_ns: i64,
    /// Whether nothing progresses.
    is_out: bool,
    busy_count: u32,
    limited_counts: [u32; LIMITING_PARTS.len()],
    commands: Commands,
    /// Commands and statuses that were sent and did not arrive so far, of each kind of command.
    resent: Kinds,
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
            is_out: false,
            busy_count: 0,
            limited_counts: [0; LIMITING_PARTS.len()],
            commands: Commands::new(cycles.len()),
            resent: Kinds::default(),
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
            let length_ns = until_ns.saturating_sub(self.now_ns).min(left_ns).min(self.answered_left_ns());
            let is_of_many = self.is_busy() && self.commands.count() != 1;
            let command = if is_of_many { None } else { self.commands.oldest() };
            let cycle = command.and_then(|place| self.cycles.get(place as usize)).copied();
            let to_ns = self.now_ns + length_ns;
            let frame = if to_ns == until_ns { frame } else { NULL_U64 };
            self.stretch(to_ns, part, cycle.unwrap_or(NULL_U32), frame, emit);
            if !self.is_busy() {
                self.waited_ns = self.waited_ns.saturating_add(length_ns);
            }
            self.now_ns = to_ns;
        }
    }

    /// Whether payload is on the line.
    fn is_busy(&self) -> bool {
        self.busy_count > 0
    }

    /// The part that applies now, and for how long at most.
    fn part(&mut self) -> (u8, i64) {
        const OPEN: i64 = i64::MAX;
        if self.is_out {
            return (part::OUTAGE, OPEN);
        }
        if self.is_busy() {
            return (part::TRANSFER, OPEN);
        }
        if self.commands.count() == 0 && self.resent.strongest() != in_flight::NONE {
            return (part::LOSS_RECOVERY, OPEN);
        }
        let limited = LIMITING_PARTS.iter().zip(&self.limited_counts).find(|(_, count)| **count > 0);
        let limited = limited.map(|(&limited, _)| limited);
        if let Some(limited) = limited.filter(|&limited| limited != part::INITIATOR_SERVICE) {
            return (limited, OPEN);
        }
        let waited_ns = self.waited_ns;
        let left_ns = |deadline: i64| deadline.saturating_sub(waited_ns);
        let (waiting, next) = self.commands.waiting(waited_ns);
        let next_ns = left_ns(next);
        match (waiting, self.think_deadline) {
            // it sends the data of another R2T, or of this one
            (Waiting::Initiator, _) if limited.is_some() => (part::PROPAGATION, next_ns),
            (Waiting::Initiator, _) => (part::INITIATOR_SERVICE, next_ns),
            (Waiting::Target, _) => (part::TARGET_SERVICE, next_ns),
            (Waiting::Unmeasured, _) => (part::UNKNOWN, next_ns),
            (Waiting::Nobody, None) => (part::UNKNOWN, OPEN),
            (Waiting::Path, _) => (part::PROPAGATION, next_ns),
            (Waiting::Nobody, Some(deadline)) if left_ns(deadline) > 0 => (part::PROPAGATION, left_ns(deadline)),
            (Waiting::Nobody, Some(_)) => (part::INITIATOR_THINK, OPEN),
        }
    }

    /// The strongest kind of command in flight. For the initiator a command is in flight until its status arrives, after
    /// the data that is queued before the line: at a tap beside a fast target that is all of its time.
    fn in_flight(&self) -> u8 {
        if self.commands.count() > 0 { self.commands.in_flight() } else { self.answered().max(self.resent.strongest()) }
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
    fn answered_left_ns(&self) -> i64 {
        let is_counted = !self.is_busy() && self.commands.count() == 0 && self.answered() != in_flight::NONE;
        match self.think_deadline {
            Some(deadline) if is_counted => deadline.saturating_sub(self.waited_ns),
            _ => i64::MAX,
        }
    }

    /// Adds a span up to `to_ns`, or extends the current one.
    fn stretch(&mut self, to_ns: i64, part: u8, cycle: u32, frame: u64, emit: &mut impl FnMut(BudgetRow)) {
        let mut in_flight = self.in_flight();
        if part == part::OUTAGE && in_flight == in_flight::NONE {
            // what was sent while no command waited may be a status, which the program waits for
            in_flight = in_flight::DATA;
        }
        match &mut self.row {
            Some(row) if [row.part, part] == [part::OUTAGE; 2] => {
                row.time_last_ns = to_ns;
                row.frame = frame;
                row.in_flight = row.in_flight.max(in_flight);
            }
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
            Change::Command(place, is_whole) => {
                self.commands.begin(place, kind(place), is_whole, waited_ns, allowance(place));
            }
            Change::Requested(place) => self.commands.request(place, waited_ns, allowance(place)),
            Change::R2t(place) => self.commands.r2t(place, waited_ns, allowance(place)),
            Change::BurstSent(place) => self.commands.burst_sent(place, waited_ns, allowance(place)),
            Change::Ended(place) => {
                self.answered = self.answered().max(kind(place));
                // within the least RTT: a queue would count the pause of the initiator as network time
                let allowance = allowance(place);
                self.commands.end(place, waited_ns, allowance);
                let allowed_ns = allowance.answer_ns;
                self.think_deadline = allowed_ns.map(|allowed_ns| waited_ns.saturating_add(allowed_ns));
            }
            Change::Resent(place, is_missing) => {
                self.resent.count(kind(place), is_missing);
                if !is_missing {
                    // its ACK shows that it has arrived
                    self.think_deadline = Some(waited_ns);
                }
            }
            Change::Out(is_out) => self.is_out = is_out,
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

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_time_within_outages_is_theirs_and_all_other_time_stays(
            busy in prop::collection::btree_set(0..1000_i64, 0..40),
            out in prop::collection::btree_set(0..1000_i64, 0..12),
        ) {
            let pairs = |cuts: &std::collections::BTreeSet<i64>| -> Vec<(i64, i64)> {
                let cuts: Vec<i64> = cuts.iter().copied().collect();
                cuts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
            };
            let (busy, out) = (pairs(&busy), pairs(&out));
            let changes = busy.iter().flat_map(|&(from_ns, to_ns)| {
                [(from_ns, Change::Busy(true)), (to_ns, Change::Busy(false))]
            });
            let mut changes: Vec<(i64, Change)> = changes
                .chain(out.iter().flat_map(|&(from_ns, to_ns)| [(from_ns, Change::Out(true)), (to_ns, Change::Out(false))]))
                .collect();
            changes.sort_unstable();
            let mut rows = Vec::new();
            let mut sweep = Sweep::new(0, BudgetRow::default(), &[]);
            for (time_ns, change) in changes {
                sweep.advance(time_ns, NULL_U64, &mut |row| rows.push(row));
                sweep.change(change, |_| in_flight::NONE, |_| Allowance::default());
            }
            sweep.advance(1000, NULL_U64, &mut |row| rows.push(row));
            sweep.finish(&mut |row| rows.push(row));
            let covers = |spans: &[(i64, i64)], instant: i64| spans.iter().any(|&(from, to)| from <= instant && instant < to);
            for instant in 0..1000 {
                let expected = match (covers(&out, instant), covers(&busy, instant)) {
                    (true, _) => part::OUTAGE,
                    (false, true) => part::TRANSFER,
                    (false, false) => part::INITIATOR_THINK,
                };
                let row = rows.iter().find(|row| row.time_first_ns <= instant && instant < row.time_last_ns);
                prop_assert_eq!(row.map(|row| row.part), Some(expected));
            }
            prop_assert!(rows.windows(2).all(|pair| pair[0].time_last_ns == pair[1].time_first_ns));
        }
    }
}
