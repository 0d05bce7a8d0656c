//! Statuses that were sent but not captured: StatSN skips them, or ExpStatSN acknowledges them. Their tasks are in
//! flight no longer.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::{Begun, IscsiConnection};
use crate::context::Context;
use crate::iscsi::lost_statuses::Until;
use crate::iscsi::ranges::COMMANDS;
use crate::iscsi::task::Task;
use crate::tables::{CycleId, ended_by};

/// Among more open tasks none is looked for.
const OPEN_MAX: usize = 256;

impl IscsiConnection {
    /// Bytes are missing from the capture.
    pub fn note_gap(&mut self, to_target: bool) {
        self.has_gap = true;
        self.note_unread();
        self.lost_statuses.is_next_unknown |= !to_target;
    }

    /// A PDU shows that all statuses below `until` were sent.
    #[inline]
    pub(super) fn note_statuses(&mut self, until: SerialNumber, time_ns: i64, context: &mut Context) {
        if self.is_whole {
            return;
        }
        // the first status seen may be any
        let Some(next) = self.stat_sn() else { return };
        if let Some(numbers) = self.lost_statuses.note(next, until) {
            // the command that acknowledges them is none of them
            let own = if let Begun::Command { cycle } = self.begun { Some(cycle) } else { None };
            let cycle = own.unwrap_or_else(|| context.tables.cycles.next_id());
            let until = Until { cycle, exchanges: self.exchanges.opened() };
            self.lost_statuses.push(numbers, time_ns, until);
            self.end_lost_tasks(context);
        }
    }

    /// Ends the tasks whose statuses must be the missing ones.
    #[inline]
    pub(super) fn end_lost_tasks(&mut self, context: &mut Context) {
        if !self.lost_statuses.is_empty() && self.tasks.len() <= OPEN_MAX {
            self.look_for_lost_tasks(context);
        }
    }

    #[cold]
    fn look_for_lost_tasks(&mut self, context: &mut Context) {
        let ended = self.tasks_opened - self.tasks.len() as u64 + self.exchanges.ended();
        let mut statuses = std::mem::take(&mut self.lost_statuses);
        while let Some((time_ns, until)) = statuses.take_known(ended, |until| {
            self.rows_open_until(until, context).count() + self.exchanges.open_until(until.exchanges)
        }) {
            let rows: Vec<usize> = self.rows_open_until(until, context).collect();
            // a status that comes after all sets it again
            rows.into_iter().for_each(|row| context.tables.cycles.end(row, time_ns, ended_by::STATUS));
            self.exchanges.close_until(until.exchanges);
        }
        self.lost_statuses = statuses;
    }

    /// The rows of the tasks in flight among these requests.
    fn rows_open_until(&self, until: Until, context: &Context) -> impl Iterator<Item = usize> {
        let cycles = self.tasks.values().map(|task| task.cycle).filter(move |&cycle| cycle < until.cycle);
        let rows = cycles.map(|cycle| context.tables.cycles.row(cycle));
        rows.filter(|&row| context.tables.cycles.is_in_flight(row))
    }

    /// Whether a status, or a number that a task lacks, may be that of a later task whose command was not captured: its own
    /// status may be missing, and so is a command that came late enough to take its tag.
    pub(super) fn may_be_outlived(&self, task: &Task, bhs: Bhs<'_>, context: &Context) -> bool {
        let is_status = bhs.opcode() == Some(Opcode::ScsiResponse) || bhs.has_status() == Some(true);
        (is_status || task.lacks(bhs))
            && self.may_lack_status(task.cycle, context)
            && self.may_lack_command_after(task, bhs, context)
    }

    /// Whether a command that the target had before it sent a PDU was not captured, and may have the tag of a task.
    fn may_lack_command_after(&self, task: &Task, bhs: Bhs<'_>, context: &Context) -> bool {
        let commands = self.session.and_then(|session| context.sessions.state(session));
        let until = bhs.exp_cmd_sn().or(self.exp_cmd_sn);
        let (Some(state), Some(cmd_sn), Some(until)) = (commands, task.cmd_sn, until) else { return true };
        let from = cmd_sn + state.recent_tags.least_distance();
        state.commands.as_ref().is_some_and(|commands| !commands.has_all(from, until, &COMMANDS))
    }

    /// Whether the status of an open task may have been sent without being captured.
    pub(super) fn may_lack_status(&self, cycle: CycleId, context: &Context) -> bool {
        let row = context.tables.cycles.row(cycle);
        self.lost_statuses.is_next_unknown
            || self.lost_statuses.may_be_of(cycle)
            || context.tables.cycles.ended_by.get(row) == Some(&ended_by::STATUS)
    }
}
