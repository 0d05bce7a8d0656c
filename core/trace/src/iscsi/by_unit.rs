//! The open tasks by logical unit, for the resets that end them: each reset looks at no task that it leaves alone.
//!
//! Built for the first reset. Ended tasks stay in it until a reset comes across them. Once they outnumber the open ones, it is
//! dropped, and the next reset builds it anew.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use crate::tables::CycleId;

/// Entries for which nothing is built again.
const SMALL: usize = 64;

/// A command and its logical unit, if that was captured.
pub type Unit = (CycleId, Option<u64>);

/// Tag and command of tasks, in the order of their commands.
type Opened = VecDeque<(u32, CycleId)>;

/// The tasks of each logical unit, and under `None` all tasks, each in the order of their commands: tag and command, because
/// another task may have the tag since.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct ByUnit {
    units: Option<FxHashMap<Option<u64>, Opened>>,
    /// Tasks that were noted.
    noted: usize,
}

impl ByUnit {
    /// Notes a task that was opened, beside `open` others.
    #[inline]
    pub fn note(&mut self, tag: u32, unit: Unit, open: usize) {
        if self.units.is_some() {
            self.note_built(tag, unit, open);
        }
    }

    #[cold]
    fn note_built(&mut self, tag: u32, (cycle, lun): Unit, open: usize) {
        if self.noted > 2 * open + SMALL {
            *self = Self::default();
        }
        if let Some(units) = &mut self.units {
            self.noted += 1;
            for unit in std::iter::once(None).chain(lun.map(Some)) {
                units.entry(unit).or_default().push_back((tag, cycle));
            }
        }
    }

    /// The tags of the tasks that a reset of a logical unit, or of all, covers, in the order of their commands; `covers` tells
    /// for a task that is still open whether it does. Numbers ascend on a connection (RFC 7143 section 4.2.2.1): none is covered
    /// after the first that was sent later than the reset. A task is found once.
    pub fn covered<I: Iterator<Item = (u32, Unit)>>(
        &mut self,
        lun: Option<u64>,
        open: impl Fn() -> I,
        covers: impl Fn(u32, CycleId) -> Option<bool>,
    ) -> Vec<u32> {
        if self.units.is_none() {
            self.units = Some(FxHashMap::default());
            let mut open: Vec<(u32, Unit)> = open().collect();
            open.sort_unstable_by_key(|&(_, (cycle, _))| cycle);
            let count = open.len();
            open.into_iter().for_each(|(tag, unit)| self.note_built(tag, unit, count));
        }
        let mut covered = Vec::new();
        let Some(of_unit) = self.units.as_mut().and_then(|units| units.get_mut(&lun)) else { return covered };
        while let Some(&(tag, cycle)) = of_unit.front() {
            match covers(tag, cycle) {
                Some(false) => break,
                Some(true) => covered.push(tag),
                None => {}
            }
            of_unit.pop_front();
        }
        covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Open tasks whose tag is the number of their command.
    #[derive(Default)]
    struct Open {
        tasks: FxHashMap<u32, Unit>,
        by_unit: ByUnit,
        looked_at: std::cell::Cell<usize>,
    }

    impl Open {
        fn task(&mut self, cycle: u32, lun: Option<u64>) {
            let unit = (CycleId::new(cycle), lun);
            self.by_unit.note(cycle, unit, self.tasks.len());
            self.tasks.insert(cycle, unit);
        }

        /// Ends the tasks before a command that a reset covers.
        fn reset(&mut self, lun: Option<u64>, before: u32) -> Vec<u32> {
            let open = || self.tasks.iter().map(|(&tag, &unit)| (tag, unit));
            let covered = self.by_unit.covered(lun, open, |tag, cycle| {
                self.looked_at.set(self.looked_at.get() + 1);
                let is_open = self.tasks.get(&tag).is_some_and(|&(own, _)| own == cycle);
                is_open.then(|| cycle < CycleId::new(before))
            });
            self.tasks.retain(|tag, _| !covered.contains(tag));
            covered
        }

        fn noted(&self) -> usize {
            self.by_unit.units.as_ref().map_or(0, |units| units.values().map(VecDeque::len).sum())
        }
    }

    fn open(luns: &[u64]) -> Open {
        let mut open = Open::default();
        (0..).zip(luns).for_each(|(cycle, &lun)| open.task(cycle, Some(lun)));
        open
    }

    #[test]
    fn a_reset_covers_the_tasks_of_its_unit_that_were_sent_before() {
        let mut open = open(&[1, 2, 1, 2, 1]);
        assert_eq!(open.reset(Some(1), 3), [0, 2]);
        assert_eq!(open.reset(Some(3), 9), []);
        open.task(5, Some(1));
        // no unit: only a reset of all covers it
        open.task(6, None);
        assert_eq!(open.reset(Some(1), 9), [4, 5]);
        assert_eq!(open.reset(None, 9), [1, 3, 6]);
        assert_eq!(open.reset(None, 9), []);
    }

    #[test]
    fn a_tag_that_another_task_has_now_is_that_task() {
        let mut open = open(&[1]);
        assert_eq!(open.reset(Some(2), 9), []);
        open.tasks.insert(0, (CycleId::new(7), Some(2)));
        assert_eq!(open.reset(Some(1), 9), []);
    }

    #[test]
    fn a_reset_looks_at_no_task_that_it_leaves_alone() {
        let mut open = open(&[1; 1000]);
        for cycle in 1000..2000 {
            open.task(cycle, Some(u64::from(cycle)));
            assert_eq!(open.reset(Some(u64::from(cycle)), cycle + 1), [cycle]);
            assert_eq!(open.reset(Some(3), 9999), []);
            assert_eq!(open.reset(Some(1), 0), []);
        }
        assert_eq!(open.looked_at.get(), 2000);
    }

    #[test]
    fn what_ended_is_forgotten() {
        let mut open = open(&[1; 10]);
        assert_eq!(open.reset(Some(2), 9), []);
        for cycle in 10..10_000 {
            open.task(cycle, Some(1));
            open.tasks.remove(&(cycle - 5));
            assert!(open.noted() <= 4 * (open.tasks.len() + SMALL), "{}", open.noted());
            if cycle % 100 == 0 {
                assert_eq!(open.reset(Some(2), 9), []);
            }
        }
    }
}
