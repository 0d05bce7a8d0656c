//! Which values of a serial number were seen, and how many are missing between them.

use serde::{Deserialize, Serialize};
use std::ops::Range;

use iscsitrace_wire::serial::SerialNumber;

/// A longer jump is another sequence, not a loss: no command window is larger.
const JUMP_MAX: i32 = 1 << 16;
/// The last runs, between which a late value is searched.
const OPEN_RUNS_MAX: usize = 1024;

/// The values of a serial number that were seen, in any order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CommandNumbers {
    /// Runs of unwrapped values, ordered and not touching. The first is empty if the start of the sequence was not
    /// seen.
    runs: Vec<Range<i64>>,
    /// Missing values of earlier sequences.
    given_up: u64,
}

/// The order of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The next value, one ahead of it, or a late one that was missing.
    Ahead,
    /// Seen or given up before, or of another sequence.
    Behind,
}

impl CommandNumbers {
    /// Expects this value next, if none is expected yet.
    pub fn start(&mut self, value: SerialNumber) {
        if self.runs.is_empty() {
            let at = i64::from(value.0);
            self.runs.push(at..at);
        }
    }

    /// Adds a value.
    pub fn take(&mut self, value: SerialNumber) -> Order {
        self.start(value);
        let Some(last) = self.runs.last_mut() else { return Order::Behind };
        let distance = value.distance(SerialNumber(last.end as u32));
        let at = last.end + i64::from(distance);
        match distance {
            ..0 => return self.take_late(at),
            0 => last.end += 1,
            1..=JUMP_MAX => self.runs.push(at..at + 1),
            _ => {
                self.given_up = self.missing();
                self.runs.clear();
                self.runs.push(at..at + 1);
                return Order::Behind;
            }
        }
        Order::Ahead
    }

    /// All values below this one were sent, as the other side says; none is expected before the first was seen.
    pub fn reach(&mut self, value: SerialNumber) {
        let Some(last) = self.runs.last() else { return };
        let distance = value.distance(SerialNumber(last.end as u32));
        if (1..=JUMP_MAX).contains(&distance) {
            let at = last.end + i64::from(distance);
            self.runs.push(at..at);
        }
    }

    /// Adds a value before the end of the last run.
    fn take_late(&mut self, at: i64) -> Order {
        let open = self.runs.len().saturating_sub(OPEN_RUNS_MAX);
        let after = open + self.runs.get(open..).unwrap_or_default().partition_point(|run| run.start <= at);
        let before = after.wrapping_sub(1);
        match self.runs.get(before) {
            Some(run) if after > open && run.end <= at => {}
            _ => return Order::Behind,
        }
        let end = match self.runs.get(after) {
            Some(next) if next.start == at + 1 => self.runs.remove(after).end,
            _ => at + 1,
        };
        match self.runs.get_mut(before) {
            Some(run) if run.end == at => run.end = end,
            _ => self.runs.insert(after, at..end),
        }
        Order::Ahead
    }

    /// Keeps only the last runs; what is missing before them stays missing.
    pub fn forget(&mut self, kept: usize) {
        if self.runs.len() > 2 * kept.max(1) {
            let missing = self.missing();
            self.runs.drain(..self.runs.len() - kept);
            self.given_up = 0;
            self.given_up = missing - self.missing();
        }
    }

    /// Whether this value was seen.
    pub fn has(&self, value: SerialNumber) -> bool {
        let Some(last) = self.runs.last() else { return false };
        let at = last.end + i64::from(value.distance(SerialNumber(last.end as u32)));
        let place = self.runs.partition_point(|run| run.end <= at);
        self.runs.get(place).is_some_and(|run| run.start <= at)
    }

    /// Whether all values from one on and before another were seen, or are too old to know, or of another sequence.
    pub fn has_all(&self, from: SerialNumber, to: SerialNumber) -> bool {
        let (Some(first), Some(last)) = (self.runs.first(), self.runs.last()) else { return true };
        let end = SerialNumber(last.end as u32);
        let [from, to] = [from, to].map(|value| last.end + i64::from(value.distance(end)));
        let at = self.runs.partition_point(|run| run.end < to);
        let is_other = to > last.end + i64::from(JUMP_MAX);
        from >= to || from < first.start || is_other || self.runs.get(at).is_some_and(|run| run.start <= from)
    }

    /// The number of missing values between those that were seen.
    pub fn missing(&self) -> u64 {
        let ends = self.runs.iter().map(|run| run.end);
        let holes = self.runs.iter().skip(1).zip(ends).map(|(next, end)| (next.start - end) as u64);
        self.given_up + holes.sum::<u64>()
    }

    /// Both as one sequence, if possible: their ranges overlap, and no value was seen by both.
    pub(super) fn joined(&self, other: &CommandNumbers) -> Option<CommandNumbers> {
        let range = self.runs.first()?.start..self.runs.last()?.end;
        let theirs = other.runs.first()?.start..other.runs.last()?.end;
        let distance = SerialNumber(theirs.start as u32).distance(SerialNumber(range.start as u32));
        let shift = range.start + i64::from(distance) - theirs.start;
        if range.start.max(theirs.start + shift) >= range.end.min(theirs.end + shift) {
            return None;
        }
        let mut ours = self.runs.iter().cloned().peekable();
        let mut theirs = other.runs.iter().map(|run| run.start + shift..run.end + shift).peekable();
        let mut runs: Vec<Range<i64>> = Vec::new();
        loop {
            let is_ours_next = match (ours.peek(), theirs.peek()) {
                (Some(our), Some(their)) => our.start <= their.start,
                (our, _) => our.is_some(),
            };
            let Some(run) = (if is_ours_next { ours.next() } else { theirs.next() }) else { break };
            match runs.last_mut() {
                Some(last) if run.start == last.end => last.end = run.end,
                Some(last) if run.start < last.end => {
                    if !run.is_empty() {
                        return None;
                    }
                }
                _ => runs.push(run),
            }
        }
        Some(CommandNumbers { runs, given_up: self.given_up + other.given_up })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_missing_before_removed_runs_stay_missing() {
        let mut tracker = CommandNumbers::default();
        (0..100).for_each(|run| {
            tracker.take(SerialNumber(10 * run));
        });
        let missing = tracker.missing();
        tracker.forget(20);
        assert_eq!((tracker.missing(), tracker.runs.len()), (missing, 20));
        assert_eq!(tracker.take(SerialNumber(985)), Order::Ahead);
        assert_eq!(tracker.missing(), missing - 1);
        assert_eq!(tracker.take(SerialNumber(5)), Order::Behind);
    }

    #[test]
    fn a_late_value_is_no_longer_missing_and_counts_once() {
        let mut tracker = CommandNumbers::default();
        tracker.start(SerialNumber(9));
        for (value, expected, missing) in [
            (10, Order::Ahead, 1),
            (14, Order::Ahead, 4),
            (12, Order::Ahead, 3),
            (12, Order::Behind, 3),
            (13, Order::Ahead, 2),
            (9, Order::Ahead, 1),
            (8, Order::Behind, 1),
            (11, Order::Ahead, 0),
            (15, Order::Ahead, 0),
            // another sequence
            (1 << 20, Order::Behind, 0),
            ((1 << 20) + 2, Order::Ahead, 1),
            (16, Order::Behind, 1),
        ] {
            assert_eq!((tracker.take(SerialNumber(value)), tracker.missing()), (expected, missing), "{value}");
        }
    }

    #[test]
    fn values_that_the_other_side_expects_no_more_were_sent() {
        let mut tracker = CommandNumbers::default();
        tracker.reach(SerialNumber(7));
        assert_eq!(tracker.missing(), 0, "nothing was seen");
        tracker.take(SerialNumber(u32::MAX));
        for (value, missing) in [(0, 0), (u32::MAX, 0), (3, 3), (2, 3), (1 << 17, 3)] {
            tracker.reach(SerialNumber(value));
            assert_eq!(tracker.missing(), missing, "{value}");
        }
        // one of them comes late after all, and others follow
        assert_eq!((tracker.take(SerialNumber(1)), tracker.missing()), (Order::Ahead, 2));
        assert_eq!((tracker.take(SerialNumber(3)), tracker.missing()), (Order::Ahead, 2));
    }

    #[test]
    fn a_value_is_there_once_it_was_seen() {
        let mut tracker = CommandNumbers::default();
        assert!(!tracker.has(SerialNumber(7)));
        for value in [u32::MAX, 0, 3] {
            tracker.take(SerialNumber(value));
        }
        let has = [u32::MAX - 1, u32::MAX, 0, 1, 2, 3, 4].map(|value| tracker.has(SerialNumber(value)));
        assert_eq!(has, [false, true, true, false, false, true, false]);
    }

    #[test]
    fn commands_without_a_hole_between_follow_each_other() {
        let mut tracker = CommandNumbers::default();
        for value in [u32::MAX - 1, u32::MAX, 0, 3, 4, 7] {
            tracker.take(SerialNumber(value));
        }
        let has_all = |from, to| tracker.has_all(SerialNumber(from), SerialNumber(to));
        assert!([(u32::MAX - 1, 1), (u32::MAX, 0), (3, 4), (4, 5), (3, 5)].iter().all(|&(from, to)| has_all(from, to)));
        assert!(![(0, 2), (0, 3), (2, 3), (4, 6), (4, 7), (u32::MAX, 3)].iter().any(|&(from, to)| has_all(from, to)));
        // an immediate command has the number of the next; backwards and before the first there is nothing to miss
        assert!([(3, 3), (2, 2), (4, 3), (u32::MAX - 9, 3)].iter().all(|&(from, to)| has_all(from, to)));
        assert!(CommandNumbers::default().has_all(SerialNumber(1), SerialNumber(9)));
        // those after the last one were not seen
        assert!(has_all(7, 8) && !has_all(7, 9) && !has_all(8, 9) && !has_all(0, 1000) && has_all(7, 1 << 20));
    }

    proptest! {
        /// Counts the missing values between the first and the last, whatever is lost or reordered.
        #[test]
        fn missing_values_are_counted(start: u32, lost in proptest::collection::btree_set(1u32..200, 0..50), seed: u64) {
            let mut values: Vec<u32> = (0..201).filter(|value| !lost.contains(value)).collect();
            // swaps neighbours, except the first
            let mut state = seed;
            for place in 1..values.len() - 1 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if state >> 63 == 1 {
                    values.swap(place, place + 1);
                }
            }
            let mut tracker = CommandNumbers::default();
            for value in values {
                prop_assert_eq!(tracker.take(SerialNumber(start.wrapping_add(value))), Order::Ahead);
            }
            prop_assert_eq!(tracker.missing(), lost.len() as u64);
        }
    }
}
