//! Statuses that were sent but not captured: StatSN skips them, or ExpStatSN acknowledges them.
//!
//! Their tasks are in flight no longer. Which tasks they are is known once no more requests of that time are open than
//! statuses are missing; until then, the packets do not tell.

use iscsitrace_wire::serial::SerialNumber;

use super::{Begun, IscsiConnection, NEAR};
use crate::iscsi::context::Context;
use crate::iscsi::exchange::Key;

/// Missing statuses whose tasks are unknown, at most; of more the oldest are forgotten.
const LOST_MAX: usize = 64;
/// Among more open tasks nothing is looked for.
const OPEN_MAX: usize = 1024;

/// Statuses that are missing, and the requests that were open when that showed.
#[derive(Debug)]
struct Lost {
    count: usize,
    time_ns: i64,
    /// Tag and cycle.
    tasks: Vec<(u32, u32)>,
    exchanges: Vec<Key>,
}

/// The missing statuses of a connection whose tasks are unknown.
#[derive(Debug, Default)]
pub(super) struct LostStatuses {
    lost: Vec<Lost>,
    /// All statuses below this number were seen, or are known to be missing.
    known: Option<SerialNumber>,
    /// Whether bytes of the target are missing since its last StatSN.
    is_next_unknown: bool,
}

impl IscsiConnection {
    /// Bytes are missing from the capture.
    pub fn note_gap(&mut self, to_target: bool) {
        self.has_gap = true;
        self.lost_statuses.is_next_unknown |= !to_target;
    }

    /// The target sent a number: what is missing before it is known.
    #[inline]
    pub(super) fn note_stat_sn(&mut self) {
        self.lost_statuses.is_next_unknown = false;
    }

    /// A PDU shows that all statuses below `until` were sent.
    #[inline]
    pub(super) fn note_statuses(&mut self, until: SerialNumber, time_ns: i64, context: &mut Context) {
        let known = match (self.stat_sn, self.lost_statuses.known) {
            (Some(next), Some(known)) if known.is_after(next) => known,
            (Some(next), _) => next,
            // the first status seen may be any
            (None, _) => return,
        };
        let count = until.distance(known);
        if (1..NEAR).contains(&count) {
            self.lose_statuses(until, count.unsigned_abs() as usize, time_ns, context);
        }
    }

    #[cold]
    fn lose_statuses(&mut self, until: SerialNumber, count: usize, time_ns: i64, context: &mut Context) {
        self.lost_statuses.known = Some(until);
        if self.tasks.len() > OPEN_MAX {
            return;
        }
        // the command that acknowledges them is none of them
        let own = if let Begun::Command { cycle } = self.begun { Some(cycle) } else { None };
        let tasks = self.tasks.iter().map(|(&tag, task)| (tag, task.cycle)).filter(|&(_, cycle)| Some(cycle) != own);
        let lost = Lost { count, time_ns, tasks: tasks.collect(), exchanges: self.exchanges.open().collect() };
        if self.lost_statuses.lost.len() >= LOST_MAX {
            self.lost_statuses.lost.remove(0);
        }
        self.lost_statuses.lost.push(lost);
        self.end_lost_tasks(context);
    }

    /// Ends the tasks whose statuses must be the missing ones.
    #[inline]
    pub(super) fn end_lost_tasks(&mut self, context: &mut Context) {
        if !self.lost_statuses.lost.is_empty() {
            self.look_for_lost_tasks(context);
        }
    }

    #[cold]
    fn look_for_lost_tasks(&mut self, context: &mut Context) {
        let mut all = std::mem::take(&mut self.lost_statuses.lost);
        all.retain_mut(|lost| {
            lost.tasks.retain(|&(tag, cycle)| {
                self.tasks.get(&tag).is_some_and(|task| task.cycle == cycle)
                    && context.cycle_ends_ns.get(cycle as usize) == Some(&i64::MAX)
            });
            lost.exchanges.retain(|key| self.exchanges.is_open(key));
            if lost.tasks.len() + lost.exchanges.len() > lost.count {
                return true;
            }
            for &(_, cycle) in &lost.tasks {
                // a status that comes after all sets it again
                context.cycle_ends_ns[cycle as usize] = lost.time_ns;
            }
            lost.exchanges.iter().for_each(|key| self.exchanges.close(key));
            false
        });
        self.lost_statuses.lost = all;
    }

    /// Whether the status of an open task may have been sent without being captured.
    pub(super) fn may_lack_status(&self, cycle: u32, context: &Context) -> bool {
        self.lost_statuses.is_next_unknown
            || self.lost_statuses.lost.iter().any(|lost| lost.tasks.iter().any(|&(_, number)| number == cycle))
            || context.cycle_ends_ns.get(cycle as usize).is_some_and(|&end_ns| end_ns != i64::MAX)
    }

    /// Rows of `cycles` were renumbered.
    pub(super) fn renumber_lost(&mut self, number: impl Fn(u32) -> Option<u32>) {
        for lost in &mut self.lost_statuses.lost {
            lost.tasks.retain_mut(|(_, cycle)| number(*cycle).map(|kept| *cycle = kept).is_some());
        }
    }
}
