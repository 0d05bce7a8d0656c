//! Statuses that were sent but not captured, and the requests that they may belong to.

use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

use super::exchange::Key;
use crate::tables::CycleId;

/// Sequence numbers within this distance of the expected one fit; others are of another sequence.
pub const NEAR: i32 = 1 << 14;

/// Missing statuses whose tasks are unknown, at most; of more the lists of the oldest are dropped. Each status looks at all of
/// them.
const LOST_MAX: usize = 8;

/// Statuses that are missing, and the requests that were open when that showed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lost {
    /// Number of statuses.
    pub count: usize,
    /// When a PDU showed that they are missing.
    pub time_ns: i64,
    /// Tag and cycle of the open tasks.
    pub tasks: Vec<(u32, CycleId)>,
    /// The other open requests.
    pub exchanges: Vec<Key>,
    /// Its requests cannot be known before so many requests of the connection have ended.
    known_from: u64,
}

impl Lost {
    /// Missing statuses, and the requests that are open.
    pub fn new(count: usize, time_ns: i64, tasks: Vec<(u32, CycleId)>, exchanges: Vec<Key>) -> Self {
        Self { count, time_ns, tasks, exchanges, known_from: 0 }
    }
}

/// The missing statuses of a connection whose tasks are unknown.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct LostStatuses {
    lost: Vec<Lost>,
    /// All statuses below this number were seen, or are known to be missing.
    known: Option<SerialNumber>,
    /// Whether bytes of the target are missing since its last StatSN.
    pub is_next_unknown: bool,
    /// The last missing statuses without a list: they may be those of all tasks that had begun before.
    unlisted_ns: Option<i64>,
}

impl LostStatuses {
    /// How many statuses are newly known to be missing, if `next` was expected and all below `until` were sent.
    #[inline]
    pub fn note(&mut self, next: SerialNumber, until: SerialNumber) -> Option<usize> {
        let known = self.known.filter(|known| known.is_after(next)).unwrap_or(next);
        let count = until.distance(known);
        (1..NEAR).contains(&count).then(|| {
            self.known = Some(until);
            count.unsigned_abs() as usize
        })
    }

    /// Adds missing statuses.
    pub fn push(&mut self, lost: Lost) {
        if self.lost.len() >= LOST_MAX {
            let dropped = self.lost.remove(0);
            self.push_unlisted(dropped.time_ns);
        }
        self.lost.push(lost);
    }

    /// Adds missing statuses without a list of the requests that were open at `time_ns`.
    pub fn push_unlisted(&mut self, time_ns: i64) {
        self.unlisted_ns = self.unlisted_ns.max(Some(time_ns));
    }

    /// Whether none is missing whose task is unknown.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty()
    }

    /// Whether one of them may be the status of a cycle that began at `begun_ns`.
    pub fn may_be_of(&self, cycle: CycleId, begun_ns: i64) -> bool {
        self.unlisted_ns.is_some_and(|unlisted_ns| begun_ns < unlisted_ns)
            || self.lost.iter().any(|lost| lost.tasks.iter().any(|&(_, number)| number == cycle))
    }

    /// Takes out those whose requests are known: no more requests of that time are open than statuses are missing. `ended`
    /// counts the requests of the connection that ended so far: until enough did, their lists are not looked at, so that
    /// long lists cost no more than a look for each end.
    pub fn take_known(
        &mut self,
        ended: u64,
        is_task_open: impl Fn(u32, CycleId) -> bool,
        is_exchange_open: impl Fn(&Key) -> bool,
    ) -> Vec<Lost> {
        let is_known = |lost: &mut Lost| {
            if ended < lost.known_from {
                return false;
            }
            lost.tasks.retain(|&(tag, cycle)| is_task_open(tag, cycle));
            lost.exchanges.retain(&is_exchange_open);
            let excess = (lost.tasks.len() + lost.exchanges.len()).saturating_sub(lost.count);
            lost.known_from = ended + excess as u64;
            excess == 0
        };
        let known: Vec<Lost> = self.lost.extract_if(.., is_known).collect();
        if !known.is_empty() {
            // their requests are candidates of the others no longer
            self.lost.iter_mut().for_each(|lost| lost.known_from = 0);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::iscsi::exchange::Kind;

    const PING: Key = (Kind::InitiatorPing, 9);

    fn lost(count: usize, tasks: &[u32], exchanges: &[Key]) -> Lost {
        Lost::new(count, 5, tasks.iter().map(|&tag| (tag, CycleId::new(tag))).collect(), exchanges.to_vec())
    }

    #[test]
    fn each_missing_status_counts_once() {
        let mut statuses = LostStatuses::default();
        let mut note = |next, until| statuses.note(SerialNumber(next), SerialNumber(until));
        assert_eq!(note(10, 10), None);
        // ExpStatSN acknowledges two that were not seen, then StatSN skips them and one more
        assert_eq!(
            (note(10, 12), note(10, 12), note(10, 13), note(14, 14), note(14, 15)),
            (Some(2), None, Some(1), None, Some(1))
        );
        assert_eq!(note(20, 20 + (1 << 14)), None);
        let mut wrapped = LostStatuses::default();
        assert_eq!(wrapped.note(SerialNumber(u32::MAX), SerialNumber(0)), Some(1));
    }

    #[test]
    fn the_tasks_are_known_when_no_more_requests_are_open_than_statuses_are_missing() {
        let mut statuses = LostStatuses::default();
        statuses.push(lost(1, &[1, 2, 3], &[PING]));
        let mut known = |open: &[u32], has_ping: bool| {
            let ended = 4 - open.len() as u64 - u64::from(has_ping);
            let found = statuses.take_known(ended, |tag, _| open.contains(&tag), |_| has_ping);
            found.iter().map(|lost| (lost.tasks.len(), lost.exchanges.len())).collect::<Vec<_>>()
        };
        assert_eq!(known(&[1, 2, 3], true), []);
        assert_eq!(known(&[2], true), []);
        assert_eq!(known(&[2], false), [(1, 0)]);
        assert_eq!(known(&[2], false), []);
    }

    proptest! {
        /// The same requests are found as by a look at all lists after each end, whatever ends and is lost.
        #[test]
        fn lists_that_are_not_looked_at_hide_nothing(steps in proptest::collection::vec((0u8..4, 0u32..24), 0..200)) {
            let (mut statuses, mut naive) = (LostStatuses::default(), Vec::new());
            let mut open: Vec<(u32, CycleId)> = Vec::new();
            let (mut opened, mut over) = (0, Vec::new());
            for (step, number) in steps {
                match step {
                    // a tag that is used again ends the request before
                    0 | 1 => {
                        open.retain(|&(tag, _)| tag != number);
                        open.push((number, CycleId::new(opened)));
                        opened += 1;
                    }
                    2 => open.retain(|&(tag, _)| tag != number),
                    _ => {
                        let count = 1 + number as usize % 3;
                        statuses.push(Lost::new(count, 5, open.clone(), Vec::new()));
                        naive.push((count, open.clone()));
                        naive.drain(..naive.len().saturating_sub(LOST_MAX));
                    }
                }
                let ended = u64::from(opened) - open.len() as u64;
                let is_open = |tag, cycle| open.contains(&(tag, cycle)) && !over.contains(&cycle);
                let found = statuses.take_known(ended, is_open, |_| false);
                naive.iter_mut().for_each(|(_, tasks)| tasks.retain(|&(tag, cycle)| is_open(tag, cycle)));
                let expected: Vec<_> = naive.extract_if(.., |(count, tasks)| tasks.len() <= *count).collect();
                let tasks_of_found: Vec<_> = found.iter().map(|lost| (lost.count, lost.tasks.clone())).collect();
                prop_assert_eq!(&tasks_of_found, &expected);
                over.extend(expected.iter().flat_map(|(_, tasks)| tasks.iter().map(|&(_, cycle)| cycle)));
            }
        }
    }

    #[test]
    fn of_more_than_eight_the_oldest_may_be_of_any_task_that_had_begun() {
        let mut statuses = LostStatuses::default();
        let may_be_of = |statuses: &LostStatuses, number, begun_ns| statuses.may_be_of(CycleId::new(number), begun_ns);
        (0..8).for_each(|tag| statuses.push(lost(1, &[tag], &[])));
        assert!(may_be_of(&statuses, 0, 4) && may_be_of(&statuses, 7, 4) && !may_be_of(&statuses, 9, 4));
        // the first was missing at 5 ns
        statuses.push(lost(1, &[8], &[]));
        assert!(may_be_of(&statuses, 0, 4) && may_be_of(&statuses, 9, 4) && !may_be_of(&statuses, 9, 5));
        assert!(may_be_of(&statuses, 8, 5));
    }
}
