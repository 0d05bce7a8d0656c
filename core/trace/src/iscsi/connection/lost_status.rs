//! Statuses that were sent but not captured: StatSN skips them, or ExpStatSN acknowledges them. Their tasks are in
//! flight no longer.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::{Begun, IscsiConnection};
use crate::context::Context;
use crate::iscsi::lost_statuses::Lost;
use crate::iscsi::task::Task;
use crate::tables::{CycleId, NULL_NS, ended_by};

/// More open tasks are not listed.
const OPEN_MAX: usize = 256;

impl IscsiConnection {
    /// Bytes are missing from the capture.
    pub fn note_gap(&mut self, to_target: bool) {
        self.has_gap = true;
        self.lost_statuses.is_next_unknown |= !to_target;
    }

    /// A PDU shows that all statuses below `until` were sent.
    #[inline]
    pub(super) fn note_statuses(&mut self, until: SerialNumber, time_ns: i64, context: &mut Context) {
        // the first status seen may be any
        let Some(next) = self.stat_sn else { return };
        if let Some(count) = self.lost_statuses.note(next, until) {
            self.lose_statuses(count, time_ns, context);
        }
    }

    #[cold]
    fn lose_statuses(&mut self, count: usize, time_ns: i64, context: &mut Context) {
        if self.tasks.len() > OPEN_MAX {
            self.lost_statuses.push_unlisted(time_ns);
            return;
        }
        // the command that acknowledges them is none of them
        let own = if let Begun::Command { cycle } = self.begun { Some(cycle) } else { None };
        let tasks = self.tasks.iter().map(|(&tag, task)| (tag, task.cycle)).filter(|&(_, cycle)| Some(cycle) != own);
        let (tasks, exchanges) = (tasks.collect(), self.exchanges.open().collect());
        self.lost_statuses.push(Lost::new(count, time_ns, tasks, exchanges));
        self.end_lost_tasks(context);
    }

    /// Ends the tasks whose statuses must be the missing ones.
    #[inline]
    pub(super) fn end_lost_tasks(&mut self, context: &mut Context) {
        if !self.lost_statuses.is_empty() {
            self.look_for_lost_tasks(context);
        }
    }

    #[cold]
    fn look_for_lost_tasks(&mut self, context: &mut Context) {
        let is_task_open = |tag: u32, cycle: CycleId| {
            self.tasks.get(&tag).is_some_and(|task| task.cycle == cycle)
                && context.tables.cycles.is_in_flight(context.tables.cycles.row(cycle))
        };
        let ended = self.tasks_opened - self.tasks.len() as u64 + self.exchanges.ended();
        for lost in self.lost_statuses.take_known(ended, is_task_open, |key| self.exchanges.is_open(key)) {
            for &(_, cycle) in &lost.tasks {
                // a status that comes after all sets it again
                let row = context.tables.cycles.row(cycle);
                context.tables.cycles.end(row, lost.time_ns, ended_by::STATUS);
            }
            lost.exchanges.iter().for_each(|key| self.exchanges.close(key));
        }
    }

    /// Whether a status may be that of a later task whose command was not captured: its own may be missing, and so is a
    /// command that came late enough to take its tag.
    pub(super) fn may_be_outlived(&self, task: &Task, bhs: Bhs<'_>, context: &Context) -> bool {
        let is_status = bhs.opcode() == Some(Opcode::ScsiResponse) || bhs.has_status() == Some(true);
        is_status && self.may_lack_status(task.cycle, context) && self.may_lack_command_after(task, bhs, context)
    }

    /// Whether a command that the target had before it sent a PDU was not captured, and may have the tag of a task.
    fn may_lack_command_after(&self, task: &Task, bhs: Bhs<'_>, context: &Context) -> bool {
        let commands = self.session.and_then(|session| context.sessions.state(session));
        let until = bhs.exp_cmd_sn().or(self.exp_cmd_sn);
        let (Some(state), Some(cmd_sn), Some(until)) = (commands, task.cmd_sn, until) else { return true };
        !state.commands.has_all(cmd_sn + state.recent_tags.least_distance(), until)
    }

    /// Whether the status of an open task may have been sent without being captured.
    pub(super) fn may_lack_status(&self, cycle: CycleId, context: &Context) -> bool {
        let row = context.tables.cycles.row(cycle);
        let begun_ns = context.tables.cycles.command_first_ns.get(row).copied().unwrap_or(NULL_NS);
        self.lost_statuses.is_next_unknown
            || self.lost_statuses.may_be_of(cycle, begun_ns)
            || context.tables.cycles.ended_by.get(row) == Some(&ended_by::STATUS)
    }
}
