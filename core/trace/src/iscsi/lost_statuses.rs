//! Statuses that were sent but not captured, and the requests that they may belong to.

use iscsitrace_wire::serial::SerialNumber;

use super::exchange::Key;

/// Sequence numbers within this distance of the expected one fit; others are of another sequence.
pub const NEAR: i32 = 1 << 14;

/// Missing statuses whose tasks are unknown, at most; of more the oldest are forgotten. Each status looks at all of them.
const LOST_MAX: usize = 8;

/// Statuses that are missing, and the requests that were open when that showed.
#[derive(Debug)]
pub struct Lost {
    /// Number of statuses.
    pub count: usize,
    /// When a PDU showed that they are missing.
    pub time_ns: i64,
    /// Tag and cycle of the open tasks.
    pub tasks: Vec<(u32, u32)>,
    /// The other open requests.
    pub exchanges: Vec<Key>,
}

/// The missing statuses of a connection whose tasks are unknown.
#[derive(Debug, Default)]
pub struct LostStatuses {
    lost: Vec<Lost>,
    /// All statuses below this number were seen, or are known to be missing.
    known: Option<SerialNumber>,
    /// Whether bytes of the target are missing since its last StatSN.
    pub is_next_unknown: bool,
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
            self.lost.remove(0);
        }
        self.lost.push(lost);
    }

    /// Whether none is missing whose task is unknown.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty()
    }

    /// Whether one of them may be the status of a cycle.
    pub fn may_be_of(&self, cycle: u32) -> bool {
        self.lost.iter().any(|lost| lost.tasks.iter().any(|&(_, number)| number == cycle))
    }

    /// Takes out those whose requests are known: no more requests of that time are open than statuses are missing.
    pub fn take_known(
        &mut self,
        is_task_open: impl Fn(u32, u32) -> bool,
        is_exchange_open: impl Fn(&Key) -> bool,
    ) -> Vec<Lost> {
        let is_known = |lost: &mut Lost| {
            lost.tasks.retain(|&(tag, cycle)| is_task_open(tag, cycle));
            lost.exchanges.retain(&is_exchange_open);
            lost.tasks.len() + lost.exchanges.len() <= lost.count
        };
        self.lost.extract_if(.., is_known).collect()
    }

    /// Rows of `cycles` were renumbered; `number` returns none for removed ones.
    pub fn renumber(&mut self, number: impl Fn(u32) -> Option<u32>) {
        for lost in &mut self.lost {
            lost.tasks.retain_mut(|(_, cycle)| number(*cycle).map(|kept| *cycle = kept).is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iscsi::exchange::Kind;

    const PING: Key = (Kind::InitiatorPing, 9);

    fn lost(count: usize, tasks: &[u32], exchanges: &[Key]) -> Lost {
        Lost { count, time_ns: 5, tasks: tasks.iter().map(|&tag| (tag, tag)).collect(), exchanges: exchanges.to_vec() }
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
            let found = statuses.take_known(|tag, _| open.contains(&tag), |_| has_ping);
            found.iter().map(|lost| (lost.tasks.len(), lost.exchanges.len())).collect::<Vec<_>>()
        };
        assert_eq!(known(&[1, 2, 3], true), []);
        assert_eq!(known(&[2], true), []);
        assert_eq!(known(&[2], false), [(1, 0)]);
        assert_eq!(known(&[2], false), []);
    }

    #[test]
    fn removed_rows_are_no_candidates() {
        let mut statuses = LostStatuses::default();
        statuses.push(lost(1, &[1, 2], &[]));
        statuses.renumber(|cycle| cycle.checked_sub(2));
        assert!(statuses.may_be_of(0) && !statuses.may_be_of(1));
    }

    #[test]
    fn of_more_than_eight_the_oldest_are_forgotten() {
        let mut statuses = LostStatuses::default();
        (0..9).for_each(|tag| statuses.push(lost(1, &[tag], &[])));
        assert!(!statuses.may_be_of(0) && statuses.may_be_of(1) && statuses.may_be_of(8));
    }
}
