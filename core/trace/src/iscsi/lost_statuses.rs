//! Statuses that were sent but not captured: how many, and which requests came before. Whose they are shows only when no more
//! of these requests are open than statuses are missing; until then each of them may be one of these.

use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

use super::ranges::NEAR;
use crate::tables::CycleId;

/// Losses whose requests are unknown, at most; of more the oldest two count as one. Each status looks at all of them.
const LOST_MAX: usize = 8;

/// The requests of a connection until some PDU: commands before this one, and as many others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Until {
    /// The first command that is none of them.
    pub cycle: CycleId,
    /// The number of other requests.
    pub exchanges: u64,
}

/// Statuses that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Lost {
    /// Their StatSN: the first, and the one after the last.
    numbers: [SerialNumber; 2],
    /// Number of statuses: some of these numbers were found, or are of other losses.
    count: usize,
    /// When a PDU showed that they are missing.
    time_ns: i64,
    /// Their requests are among these.
    until: Until,
    /// Its requests cannot be known before so many requests of the connection have ended.
    known_from: u64,
}

/// The missing statuses of a connection whose requests are unknown.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct LostStatuses {
    lost: Vec<Lost>,
    /// All statuses below this number were seen, or are known to be missing.
    known: Option<SerialNumber>,
    /// Whether bytes of the target are missing since its last StatSN.
    pub is_next_unknown: bool,
}

impl LostStatuses {
    /// The first number and the one after the last of statuses that are newly known to be missing, if `next` was expected
    /// and all below `until` were sent.
    #[inline]
    pub fn note(&mut self, next: SerialNumber, until: SerialNumber) -> Option<[SerialNumber; 2]> {
        let known = self.known.filter(|known| known.is_after(next)).unwrap_or(next);
        (1..NEAR).contains(&until.distance(known)).then(|| {
            self.known = Some(until);
            [known, until]
        })
    }

    /// A status came: it is missing no longer.
    #[inline]
    pub fn found(&mut self, number: SerialNumber) {
        let is_of = |lost: &&mut Lost| !number.is_before(lost.numbers[0]) && number.is_before(lost.numbers[1]);
        if let Some(lost) = self.lost.iter_mut().find(is_of) {
            lost.count -= 1;
            self.lost.retain(|lost| lost.count > 0);
        }
    }

    /// Adds missing statuses, of requests until then.
    pub fn push(&mut self, numbers: [SerialNumber; 2], time_ns: i64, until: Until) {
        let count = numbers[1].distance(numbers[0]).unsigned_abs() as usize;
        if self.lost.len() >= LOST_MAX {
            let oldest = self.lost.remove(0);
            if let Some(next) = self.lost.first_mut() {
                next.count += oldest.count;
                next.numbers[0] = oldest.numbers[0];
                next.known_from = 0;
            }
        }
        self.lost.push(Lost { numbers, count, time_ns, until, known_from: 0 });
    }

    /// Whether none is missing whose request is unknown.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty()
    }

    /// Whether one of them may be the status of a command.
    pub fn may_be_of(&self, cycle: CycleId) -> bool {
        self.lost.iter().any(|lost| cycle < lost.until.cycle)
    }

    /// Takes out statuses whose requests are known: all that are open of those that it returns, since a time. `open` counts
    /// these; `ended` the requests of the connection that ended so far: until enough did, they are not counted again.
    pub fn take_known(&mut self, ended: u64, open: impl Fn(Until) -> usize) -> Option<(i64, Until)> {
        let is_known = |lost: &mut Lost| {
            if ended < lost.known_from {
                return false;
            }
            let excess = open(lost.until).saturating_sub(lost.count);
            lost.known_from = ended + excess as u64;
            excess == 0
        };
        let place = self.lost.iter_mut().position(is_known)?;
        let known = self.lost.remove(place);
        // their requests are candidates of the others no longer
        self.lost.iter_mut().for_each(|lost| lost.known_from = 0);
        Some((known.time_ns, known.until))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The commands before this one.
    const fn before(cycle: u32) -> Until {
        Until { cycle: CycleId::new(cycle), exchanges: 0 }
    }

    fn numbers(count: u32) -> [SerialNumber; 2] {
        [SerialNumber(0), SerialNumber(count)]
    }

    fn lost(losses: &[(u32, u32)]) -> LostStatuses {
        let mut statuses = LostStatuses::default();
        losses.iter().for_each(|&(count, cycle)| statuses.push(numbers(count), 5, before(cycle)));
        statuses
    }

    #[test]
    fn each_missing_status_counts_once() {
        let mut statuses = LostStatuses::default();
        let mut note = |next, until| {
            let numbers = statuses.note(SerialNumber(next), SerialNumber(until));
            numbers.map(|[first, end]| end.distance(first))
        };
        assert_eq!(note(10, 10), None);
        // ExpStatSN acknowledges two that were not seen, then StatSN skips them and one more
        assert_eq!(
            (note(10, 12), note(10, 12), note(10, 13), note(14, 14), note(14, 15)),
            (Some(2), None, Some(1), None, Some(1))
        );
        assert_eq!(note(20, 20 + (1 << 14)), None);
        let mut wrapped = LostStatuses::default();
        let last = [SerialNumber(u32::MAX), SerialNumber(0)];
        assert_eq!(wrapped.note(last[0], last[1]), Some(last));
    }

    #[test]
    fn the_requests_are_known_when_no_more_are_open_than_statuses_are_missing() {
        let mut statuses = lost(&[(1, 5)]);
        assert_eq!(statuses.take_known(0, |_| 3), None);
        // two more have to end
        assert_eq!(statuses.take_known(1, |_| 1), None);
        assert_eq!(statuses.take_known(2, |until| usize::from(until == before(5))), Some((5, before(5))));
        assert_eq!(statuses.take_known(2, |_| 0), None);
        assert!(statuses.is_empty());
    }

    #[test]
    fn what_began_before_may_lack_its_status() {
        let statuses = lost(&[(1, 5), (1, 9)]);
        assert_eq!([4, 5, 8, 9].map(|cycle| statuses.may_be_of(CycleId::new(cycle))), [true, true, true, false]);
        assert!(!lost(&[(1, 5)]).may_be_of(CycleId::new(5)));
    }

    #[test]
    fn a_status_that_comes_after_all_is_missing_no_longer() {
        let mut statuses = LostStatuses::default();
        let [ten, twelve, thirteen] = [10, 12, 13].map(SerialNumber);
        statuses.push([ten, twelve], 5, before(5));
        statuses.push([twelve, thirteen], 6, before(9));
        for (number, expected) in [(9, vec![2, 1]), (13, vec![2, 1]), (11, vec![1, 1]), (12, vec![1]), (10, vec![])] {
            statuses.found(SerialNumber(number));
            assert_eq!(statuses.lost.iter().map(|lost| lost.count).collect::<Vec<_>>(), expected, "{number}");
        }
    }

    #[test]
    fn of_more_than_eight_the_oldest_two_count_as_one() {
        let statuses = lost(&(0..9).map(|cycle| (1, cycle)).collect::<Vec<_>>());
        let kept: Vec<_> = statuses.lost.iter().map(|lost| (lost.count, lost.until)).collect();
        assert_eq!((kept.len(), kept[0], kept[7]), (8, (2, before(1)), (1, before(8))));
    }

    proptest! {
        /// The same requests are found as by counting after each end, whatever ends and is lost.
        #[test]
        fn what_is_not_counted_hides_nothing(steps in proptest::collection::vec((0u8..4, 0u32..24), 0..200)) {
            let (mut statuses, mut naive) = (LostStatuses::default(), LostStatuses::default());
            let mut open: Vec<(u32, u32)> = Vec::new();
            let mut ended = 0;
            for (cycle, (step, tag)) in (0..).zip(steps) {
                let were_open = open.len() as u64;
                match step {
                    // a tag that is used again ends the request before
                    0 | 1 => {
                        open.retain(|&(other, _)| other != tag);
                        ended += were_open - open.len() as u64;
                        open.push((tag, cycle));
                    }
                    2 => {
                        open.retain(|&(other, _)| other != tag);
                        ended += were_open - open.len() as u64;
                    }
                    _ => {
                        statuses.push(numbers(1 + tag % 3), 5, before(cycle));
                        naive.push(numbers(1 + tag % 3), 5, before(cycle));
                    }
                }
                loop {
                    let count = |until: Until| open.iter().filter(|&&(_, cycle)| CycleId::new(cycle) < until.cycle).count();
                    naive.lost.iter_mut().for_each(|lost| lost.known_from = 0);
                    let found = statuses.take_known(ended, count);
                    prop_assert_eq!(found, naive.take_known(ended, count));
                    let Some((_, until)) = found else { break };
                    let were_open = open.len() as u64;
                    open.retain(|&(_, cycle)| CycleId::new(cycle) >= until.cycle);
                    ended += were_open - open.len() as u64;
                }
            }
        }
    }
}
