//! The rows that a connection refers to, while rows leave the tables.

use super::{Begun, IscsiConnection};
use crate::tables::{CycleId, Tables};

impl IscsiConnection {
    /// The commands of tasks without a status.
    pub(crate) fn task_cycles(&self) -> impl Iterator<Item = CycleId> + '_ {
        self.tasks.values().map(|task| task.cycle)
    }

    /// The commands whose rows may still change: tasks without status, incomplete PDUs, data without its ACK.
    pub(crate) fn awaited_cycles(&self) -> impl Iterator<Item = CycleId> + '_ {
        self.begun
            .cycle()
            .into_iter()
            .chain(self.task_cycles())
            .chain(self.spans.iter().flat_map(|spans| spans.unacknowledged()))
    }

    /// Commands whose rows bytes read from now on can still change, were they the latest that TCP allows.
    pub(crate) fn named_cycles(&self) -> impl Iterator<Item = CycleId> + '_ {
        self.awaited_cycles().chain(self.spans.iter().flat_map(|spans| spans.cycles()))
    }

    /// Number of tasks without status.
    pub(crate) fn open_task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Rows left the tables: drops what is under way of them. The row of a task whose status is missing may leave.
    pub(crate) fn forget(&mut self, tables: &Tables) {
        let judge = &mut self.judge;
        self.tasks.retain(|&tag, task| {
            let stays = tables.cycles.has(task.cycle);
            if !stays && let Some((judge, judged)) = judge.as_mut().zip(task.judged.take()) {
                judge.keep(tag, judged);
            }
            stays
        });
        self.aborted.retain(|(_, task)| tables.cycles.has(task.cycle));
        if self.begun.cycle().is_some_and(|cycle| !tables.cycles.has(cycle)) {
            self.begun = Begun::Nothing;
        }
        self.exchanges.forget(tables);
        self.login.forget(&tables.logins);
    }
}

impl Begun {
    fn cycle(self) -> Option<CycleId> {
        match self {
            Self::Nothing => None,
            Self::Command { cycle } | Self::DataOut { cycle, .. } => Some(cycle),
        }
    }
}
