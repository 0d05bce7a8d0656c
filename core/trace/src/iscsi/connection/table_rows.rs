//! The rows that a connection refers to, while rows are removed from the tables.

use super::{Begun, IscsiConnection};
use crate::iscsi::cycle_row::DataOutBurst;
use crate::iscsi::exchange::Dropped;

impl IscsiConnection {
    /// The rows of cycles that may still change: tasks without status, incomplete PDUs, data without its ACK.
    pub(crate) fn awaited_cycles(&self) -> impl Iterator<Item = u32> + '_ {
        let begun = match self.begun {
            Begun::Nothing => None,
            Begun::Command { cycle } | Begun::DataOut { cycle, .. } => Some(cycle),
        };
        let tasks = self.tasks.values().map(|task| task.cycle);
        begun.into_iter().chain(tasks).chain(self.spans.iter().flat_map(|spans| spans.unacknowledged()))
    }

    /// Rows of cycles that bytes read from now on can still change, were they the latest that TCP allows.
    pub(crate) fn named_cycles(&self) -> impl Iterator<Item = u32> + '_ {
        self.awaited_cycles().chain(self.spans.iter().flat_map(|spans| spans.cycles()))
    }

    /// Number of tasks without status.
    pub(crate) fn open_task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Renumbers the rows of `cycles` and `rounds`.
    pub(crate) fn renumber(
        &mut self,
        cycle: impl Fn(u32) -> Option<u32> + Copy,
        round: impl Fn(usize) -> Option<usize> + Copy,
    ) {
        // a task whose status is missing may have been handed over
        self.tasks.retain(|_, task| task.renumber(cycle, round));
        self.lost_statuses.renumber(cycle);
        self.descriptions.renumber(cycle);
        self.spans.iter_mut().for_each(|spans| spans.renumber(cycle));
        self.begun = match self.begun {
            Begun::Nothing => Begun::Nothing,
            Begun::Command { cycle: row } => cycle(row).map_or(Begun::Nothing, |cycle| Begun::Command { cycle }),
            Begun::DataOut { cycle: row, burst } => {
                let burst = match burst {
                    DataOutBurst::Round(row) => round(row).map_or(DataOutBurst::Unknown, DataOutBurst::Round),
                    burst => burst,
                };
                cycle(row).map_or(Begun::Nothing, |cycle| Begun::DataOut { cycle, burst })
            }
        };
    }

    /// The first rows of the tables of exchanges and logins were removed.
    pub(crate) fn forget(&mut self, dropped: Dropped, logins: usize) {
        self.exchanges.forget(dropped);
        self.login.forget(logins);
    }
}
