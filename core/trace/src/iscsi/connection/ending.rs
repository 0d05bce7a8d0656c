//! How the commands of a connection end without a status: by task management, by a Reject, with their connection or session, or
//! with the capture.
//!
//! What ends commands of other connections, too, is noted in their session (`session/endings`), and every connection reads it
//! there. An end without a status is never final as long as the task is kept: a status that comes after all sets it again.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::management::{
    ABORT_TASK, CLOSE_CONNECTION, CLOSE_SESSION, FUNCTION_COMPLETE, TASK_DOES_NOT_EXIST, TASK_REASSIGN,
};
use iscsitrace_wire::opcode::Opcode;

use super::IscsiConnection;
use crate::context::Context;
use crate::counters::Counter;
use crate::iscsi::exchange::Managed;
use crate::iscsi::pdu::Pdu;
use crate::iscsi::session::SessionEnd;
use crate::iscsi::session::endings::{Ending, Reset};
use crate::iscsi::task::Task;
use crate::stream::closing::Closing;
use crate::stream::stamp::Stamp;
use crate::tables::{CycleId, NULL_NS, NULL_U8, ended_by};

/// Tasks that were aborted and are kept: few PDUs are under way for them.
const ABORTED_KEPT: usize = 32;
/// The last commands among which a task that changes its connection is looked for.
const COMMANDS_MAX: usize = 1 << 10;

impl IscsiConnection {
    /// What ended each command in flight so far, by code and time: none if nothing did.
    fn ends<'a>(
        &'a self,
        closing: &'a Closing,
        context: &'a Context,
    ) -> impl Iterator<Item = (CycleId, Option<(i64, u8)>)> + 'a {
        let session = self.session.and_then(|session| context.sessions.state(session));
        let cycles = &context.tables.cycles;
        let is_open = |row: usize| cycles.is_in_flight(row) || cycles.ended_by.get(row) == Some(&ended_by::CAPTURE_END);
        // those of another connection are its own
        let is_own = move |tag: u32| session.is_none_or(|state| !state.endings.is_moved(tag, self.number));
        let open = self.tasks.iter().filter(move |&(&tag, task)| is_open(cycles.row(task.cycle)) && is_own(tag));
        open.map(move |(_, task)| {
            let begun_ns = cycles.command_first_ns[cycles.row(task.cycle)];
            let closed = closing.of(begun_ns).map(|close_ns| (close_ns, ended_by::CONNECTION_END));
            let ended = session.and_then(|state| state.endings.of(task, begun_ns, self.login.cid, self.number));
            (task.cycle, closed.into_iter().chain(ended).min())
        })
    }

    /// The first instant at which a command in flight may have ended, as far as this is known: with the last packet, if nothing
    /// else shows.
    pub(crate) fn may_have_ended_ns(&self, closing: &Closing, context: &Context) -> i64 {
        let ends = self.ends(closing, context).filter_map(|(_, end)| end);
        ends.map(|(end_ns, _)| end_ns).min().map_or(closing.last_ns, |end_ns| end_ns.min(closing.last_ns))
    }

    /// Ends the commands in flight that something ended; the others with the last packet, if the capture is over for them.
    pub(crate) fn end_in_flight(&self, closing: &Closing, is_over: bool, context: &mut Context) {
        for cycle in self.end_open(closing, is_over, context) {
            context.note_ended(cycle);
        }
    }

    /// The same, without a note of it; returns the rows.
    fn end_open(&self, closing: &Closing, is_over: bool, context: &mut Context) -> Vec<CycleId> {
        let last = is_over.then_some((closing.last_ns, ended_by::CAPTURE_END));
        if last.is_none() && !self.has_endings(closing, context) {
            return Vec::new();
        }
        let ends = self.ends(closing, context).filter_map(|(cycle, end)| Some((cycle, end.or(last)?)));
        let ends: Vec<_> = ends.collect();
        let cycles = &mut context.tables.cycles;
        for &(cycle, (end_ns, by)) in &ends {
            let row = cycles.row(cycle);
            cycles.end(row, end_ns, by);
        }
        ends.into_iter().map(|(cycle, _)| cycle).collect()
    }

    /// Whether anything but task management may have ended its commands.
    fn has_endings(&self, closing: &Closing, context: &Context) -> bool {
        let session = self.session.and_then(|session| context.sessions.state(session));
        closing.closes_ns.iter().any(Option::is_some) || session.is_some_and(|state| !state.endings.is_empty())
    }

    /// Ends a task whose status is missing: its tag was used again, so that its status had come. It is in flight no longer than
    /// until `place`.
    pub(super) fn end_unseen(&mut self, task: Task, place: Stamp, context: &mut Context) {
        self.note_unseen(task.cycle, context);
        let row = context.tables.cycles.row(task.cycle);
        if context.tables.cycles.in_flight_until_ns(row) > place.time_ns {
            context.tables.cycles.end(row, place.time_ns, ended_by::STATUS);
        }
        self.abandon(task, place.frame, context);
    }

    /// Ends all tasks at the end of the connection.
    pub(super) fn end_tasks(&mut self, closing: &Closing, context: &mut Context) {
        let session = self.session.and_then(|session| context.sessions.state(session));
        if let Some(state) = session {
            // those of another connection are its own
            let number = self.number;
            self.tasks.retain(|&tag, _| !state.endings.is_moved(tag, number));
        }
        let cycles: Vec<CycleId> = self.tasks.values().map(|task| task.cycle).collect();
        cycles.into_iter().for_each(|cycle| self.note_unseen(cycle, context));
        self.end_open(closing, true, context);
        let mut open: Vec<Box<Task>> = self.tasks.drain().map(|(_, task)| task).collect();
        open.sort_unstable_by_key(|task| task.cycle);
        for task in open {
            let row = context.tables.cycles.row(task.cycle);
            context.tables.cycles.note_ended(row);
            self.abandon(*task, context.tables.cycles.command_frame.get(row), context);
        }
    }

    /// Notes that the capture may lack the status of a task that ends without one.
    fn note_unseen(&self, cycle: CycleId, context: &mut Context) {
        let may_lack_status = self.has_gap && self.may_lack_status(cycle, context);
        let row = context.tables.cycles.row(cycle);
        context.tables.cycles.has_capture_gap[row] |= may_lack_status;
    }

    /// Closes a task without status.
    fn abandon(&mut self, mut task: Task, frame: u64, context: &mut Context) {
        let cycles = &context.tables.cycles;
        let row = cycles.row(task.cycle);
        // what ended it without a status, and not the capture, is no fault of the capture
        if !cycles.is_aborted[row] && !cycles.is_lost[row] {
            context.counters.add(Counter::CycleIncomplete, Some(self.number), frame);
        }
        let size = task.missing_size(&context.tables.cycles);
        self.note_missing(task.missing_numbers(), size, frame, context);
        let lacking = task.abandon(&mut context.tables.cycles);
        if self.has_gap {
            // the last Data-In of a read may already count as a missing status
            let is_told = self.is_status_in_data == Some(true) && task.is_read;
            let direction = usize::from(!task.is_write);
            self.missing.add_data(direction, (lacking - i64::from(is_told)).max(0));
            self.missing.add_data_bytes(direction, task.lacking_bytes(&context.tables.cycles));
        }
        self.note_taken(&task, context);
    }

    /// A response of task management: what it ends (RFC 7143 section 11.5.1).
    pub(super) fn managed(&mut self, managed: Managed, pdu: &Pdu<'_>, context: &mut Context) {
        let time_ns = pdu.completion().time_ns;
        match (managed.function, managed.response) {
            (TASK_REASSIGN, FUNCTION_COMPLETE) => self.take_over_task(managed.referenced_task_tag, context),
            (ABORT_TASK, FUNCTION_COMPLETE) => {
                self.abort(managed.referenced_task_tag, ended_by::ABORT, pdu, context);
            }
            (ABORT_TASK, TASK_DOES_NOT_EXIST) => {
                // the target had it, and sent its status before; or it never had it
                let task = self.tasks.get(&managed.referenced_task_tag);
                let unknown = task.filter(|task| {
                    let numbers = self.exp_cmd_sn.zip(task.cmd_sn);
                    numbers.is_some_and(|(exp_cmd_sn, cmd_sn)| !exp_cmd_sn.is_after(cmd_sn))
                });
                if let Some(cycle) = unknown.map(|task| task.cycle) {
                    self.end_without_status(cycle, ended_by::ABORT, pdu, context);
                }
            }
            (function, FUNCTION_COMPLETE) => {
                let Some(reset) = Reset::of(function, managed.lun, managed.cmd_sn) else { return };
                let open = || self.tasks.iter().map(|(&tag, task)| (tag, task.unit()));
                let covers = |tag, cycle| self.tasks.get(&tag).filter(|task| task.cycle == cycle);
                let covers = |tag, cycle| covers(tag, cycle).map(|task| reset.covers(task));
                let covered = self.by_unit.covered(reset.lun(), open, covers);
                covered.into_iter().for_each(|tag| self.abort(tag, ended_by::RESET, pdu, context));
                self.note_ending(time_ns, Ending::Reset { reset, from: self.number }, context);
            }
            _ => {}
        }
    }

    /// Ends a task that the target aborted. No status of it may follow; if one does, and no PDU is missing, it is its own.
    fn abort(&mut self, tag: u32, by: u8, pdu: &Pdu<'_>, context: &mut Context) {
        let Some(task) = self.remove_task(tag) else { return };
        context.end_cycle(task.cycle, pdu.completion().time_ns, by);
        context.counters.add(Counter::TaskAborted, Some(self.number), pdu.first.frame);
        if self.is_whole {
            if self.aborted.len() == ABORTED_KEPT {
                self.aborted.pop_front();
            }
            self.aborted.push_back((tag, task.clone()));
        }
        self.abandon(*task, pdu.first.frame, context);
    }

    /// A PDU for a tag that no task has: that of a task that was aborted is open again.
    #[cold]
    pub(super) fn reopen(&mut self, answer: Bhs<'_>) {
        let Some(tag) = answer.initiator_task_tag().filter(|tag| self.is_whole && !self.tasks.contains_key(tag)) else {
            return;
        };
        let place = self.aborted.iter().position(|&(aborted, _)| aborted == tag);
        if let Some((tag, task)) = place.and_then(|place| self.aborted.remove(place)) {
            self.by_unit.note(tag, task.unit(), self.tasks.len());
            self.tasks.insert(tag, task);
        }
    }

    /// A command in flight ends without a status, unless that comes after all.
    fn end_without_status(&self, cycle: CycleId, by: u8, pdu: &Pdu<'_>, context: &mut Context) {
        if context.tables.cycles.is_in_flight(context.tables.cycles.row(cycle)) {
            context.end_cycle(cycle, pdu.completion().time_ns, by);
            let is_aborted = u64::from(by == ended_by::ABORT);
            context.counters.add_many(Counter::TaskAborted, Some(self.number), pdu.first.frame, is_aborted);
        }
    }

    /// A Reject of a SCSI Command PDU ends its command; of another PDU of a task the status follows (RFC 7143 section 11.17.1).
    pub(super) fn rejected(&self, pdu: &Pdu<'_>, context: &mut Context) {
        let rejected = Bhs::new(pdu.data);
        let Some(tag) = rejected.initiator_task_tag().filter(|_| rejected.opcode() == Some(Opcode::ScsiCommand)) else {
            return;
        };
        let Some(cycle) = self.tasks.get(&tag).map(|task| task.cycle) else { return };
        let cycles = &context.tables.cycles;
        if rejected.cmd_sn().map(|number| number.0) == cycles.cmd_sn.get(cycles.row(cycle)).copied() {
            self.end_without_status(cycle, ended_by::REJECTED, pdu, context);
        }
    }

    /// A logout succeeded: of the session, or of a connection. One for recovery ends nothing: its tasks are reassigned.
    pub(super) fn logged_out(&self, reason: u8, cid: u16, time_ns: i64, context: &mut Context) {
        match reason {
            CLOSE_SESSION => {
                if let Some(session) = self.session {
                    context.sessions.end(session, SessionEnd::Logout);
                }
                self.note_ending(time_ns, Ending::Session, context);
            }
            CLOSE_CONNECTION => self.note_ending(time_ns, Ending::Connection { cid, before: u32::MAX }, context),
            _ => {}
        }
    }

    fn note_ending(&self, time_ns: i64, ending: Ending, context: &mut Context) {
        let session = self.session.and_then(|session| context.sessions.state_mut(session));
        if let Some(state) = session {
            state.endings.note(time_ns, ending);
        }
    }

    /// A task of another connection goes on here (RFC 7143 section 7.2.2).
    fn take_over_task(&mut self, tag: u32, context: &mut Context) {
        let cycles = &mut context.tables.cycles;
        let own = (0..cycles.session.len()).rev().take(COMMANDS_MAX);
        let Some(row) = own
            .into_iter()
            .find(|&row| Some(cycles.session[row]) == self.session && cycles.initiator_task_tag[row] == tag)
        else {
            return;
        };
        if cycles.connection[row] == self.number || cycles.ended_by[row] == ended_by::STATUS {
            return;
        }
        cycles.end(row, NULL_NS, NULL_U8);
        let task = Box::new(Task::moved(row, cycles));
        self.by_unit.note(tag, task.unit(), self.tasks.len());
        if let Some(mut earlier) = self.tasks.insert(tag, task) {
            self.keep_judged(tag, &mut earlier);
        }
        self.tasks_opened += 1;
        self.note_ending(NULL_NS, Ending::Moved { tag, to: self.number }, context);
    }
}
