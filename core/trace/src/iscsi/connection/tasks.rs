//! The open tasks of a connection, and the PDUs that change them.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::cdb;
use iscsitrace_wire::lun;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::status::Status;

use super::data_packets::LastDataPacket;
use super::unclaimed::{UNCLAIMED_MAX, Unclaimed};
use super::{Begun, IscsiConnection};
use crate::context::Context;
use crate::counters::Counter;
use crate::iscsi::cycle_row;
use crate::iscsi::pdu::Pdu;
use crate::iscsi::task::{Missing, Task};
use crate::stream::stamp::Stamp;
use crate::tables::{CycleId, Cycles, ended_by, in_flight};

/// Maximum open tasks of one connection that are tracked; no command window is larger in practice.
const TASKS_MAX: usize = 1 << 16;

impl IscsiConnection {
    /// Processes a header from the initiator: a command starts a task, a Data-Out counts for its task.
    pub(super) fn begin(&mut self, header: Bhs<'_>, first: Stamp, context: &mut Context) {
        self.begun = match header.opcode() {
            Some(Opcode::ScsiCommand) => {
                let cycle = self.command(header, first, context);
                if context.tables.wanted.violations {
                    self.judge_command(header, first, cycle, context);
                }
                cycle.map_or(Begun::Nothing, |cycle| Begun::Command { cycle })
            }
            Some(Opcode::DataOut) if header.initiator_task_tag().is_some() => self.data_out(header, first, context),
            _ => Begun::Nothing,
        };
    }

    fn command(&mut self, bhs: Bhs<'_>, first: Stamp, context: &mut Context) -> Option<CycleId> {
        let session = self.session(context);
        let mut state = context.sessions.state_mut(session);
        let lun = bhs.lun().map(lun::number);
        let device_type = match (&mut state, lun) {
            (Some(state), Some(lun)) => state.units.command(lun, first).unwrap_or_else(|_| {
                context.counters.add(Counter::LogicalUnitsNotListed, Some(self.number), first.frame);
                None
            }),
            _ => None,
        };
        let is_data_in_any_order = state.as_ref().is_some_and(|state| state.is_data_in_any_order);
        let Some(tag) = bhs.initiator_task_tag() else {
            self.note_without_task(first.frame, context);
            return None;
        };
        if let Some(state) = state {
            state.recent_tags.note(tag, self.tasks_opened > self.tasks.len() as u64);
        }
        let decoded = bhs.cdb().map(|cdb| cdb::decode(&cdb, device_type));
        let cycle = context.tables.cycles.next_id();
        if self.tasks.len() >= TASKS_MAX && !self.tasks.contains_key(&tag) {
            context.counters.add(Counter::TasksNotTracked, Some(self.number), first.frame);
        } else {
            let task = Task::open(bhs, cycle, decoded.as_ref(), is_data_in_any_order);
            self.tasks_opened += 1;
            self.by_unit.note(tag, task.unit(), self.tasks.len());
            if let Some(mut earlier) = self.tasks.insert(tag, Box::new(task)) {
                self.keep_judged(tag, &mut earlier);
                context.counters.add(Counter::TaskTagReused, Some(self.number), first.frame);
                self.end_unseen(*earlier, first, context);
            }
        }
        // after the task was stored: moving a new value would wait for the writes to every column
        cycle_row::open_row(bhs, tag, first, self.number, session, decoded.as_ref(), &mut context.tables.cycles);
        if let Some(state) = context.sessions.state_mut(session) {
            state.note_command(context.tables.cycles.row(cycle), &context.tables.cycles);
        }
        self.aborted.retain(|&(aborted, _)| aborted != tag);
        if !self.unclaimed.is_empty() {
            self.claim(tag, first, context);
        }
        Some(cycle)
    }

    /// Bytes in [start, end) of a direction came after they were given up: the instants of their cycles may be wrong.
    pub(crate) fn note_late(&mut self, direction: usize, start: i64, end: i64, cycles: &mut Cycles) {
        for cycle in self.spans[direction].cycles_of(start, end) {
            let row = cycles.row(cycle);
            let Some(&tag) = cycles.initiator_task_tag.get(row) else { continue };
            cycles.is_complete[row] = false;
            if let Some(task) = self.tasks.get_mut(&tag).filter(|task| task.cycle == cycle) {
                task.has_missing_pdus = true;
            }
        }
    }

    /// Closes a task that another one with its tag followed, or may have followed before a status.
    fn close_outlived(&mut self, bhs: Bhs<'_>, first: Stamp, context: &mut Context) {
        let Some(tag) = bhs.initiator_task_tag().filter(|_| self.has_gap) else { return };
        let Some(task) = self.tasks.get(&tag).filter(|task| task.is_known_to(bhs)) else { return };
        if (task.is_outlived_by(bhs, &context.tables.cycles) || self.may_be_outlived(task, bhs, context))
            && let Some(task) = self.remove_task(tag)
        {
            context.counters.add(Counter::TaskTagReused, Some(self.number), first.frame);
            self.end_unseen(*task, first, context);
        }
    }

    fn data_out(&mut self, bhs: Bhs<'_>, first: Stamp, context: &mut Context) -> Begun {
        self.close_outlived(bhs, first, context);
        let Some(task) = bhs.initiator_task_tag().and_then(|tag| self.tasks.get_mut(&tag)) else {
            self.note_without_task(first.frame, context);
            return Begun::Nothing;
        };
        let cycle = task.cycle;
        let (burst, missing) = task.data_out(bhs, first, &mut context.tables.cycles, &mut context.tables.rounds);
        let size = task.missing_size(&context.tables.cycles);
        self.sending = bhs.initiator_task_tag();
        self.note_missing(missing, size, first.frame, context);
        Begun::DataOut { cycle, burst }
    }

    /// Bytes that the burst of an R2T lacks behind the Data-Out that came last: the initiator has them to send.
    #[inline]
    pub fn left_of_burst(&self) -> u32 {
        let task = self.sending.and_then(|tag| self.tasks.get(&tag));
        task.and_then(|task| task.left_of_burst()).unwrap_or(0)
    }

    /// Completes the command or Data-Out, and returns its cycle.
    pub(super) fn complete(&mut self, pdu: &Pdu<'_>, context: &mut Context) -> Option<CycleId> {
        match std::mem::take(&mut self.begun) {
            Begun::Nothing => None,
            Begun::Command { cycle } => {
                cycle_row::complete_command(pdu, cycle, &mut context.tables.cycles);
                Some(cycle)
            }
            Begun::DataOut { cycle, burst } => {
                cycle_row::complete_data_out(pdu, cycle, burst, &mut context.tables.cycles, &mut context.tables.rounds);
                Some(cycle)
            }
        }
    }

    /// Processes a PDU of an open task.
    pub(super) fn of_task(&mut self, pdu: &Pdu<'_>, opcode: Opcode, context: &mut Context) -> Option<CycleId> {
        self.close_outlived(pdu.bhs(), pdu.first, context);
        if !self.aborted.is_empty() {
            self.reopen(pdu.bhs());
        }
        let cycle = self.answer(pdu, opcode, context);
        if cycle.is_none() {
            self.note_without_task(pdu.first.frame, context);
            self.totals.orphan_r2ts += u64::from(opcode == Opcode::ReadyToTransfer);
            self.keep_unclaimed(pdu);
        }
        cycle
    }

    /// Keeps a PDU without a task.
    fn keep_unclaimed(&mut self, pdu: &Pdu<'_>) {
        let Some(tag) = pdu.bhs().initiator_task_tag() else { return };
        if self.unclaimed.len() == UNCLAIMED_MAX {
            self.unclaimed.pop_front();
        }
        self.unclaimed.push_back(Unclaimed {
            tag,
            header: pdu.header.to_vec(),
            data: pdu.data.to_vec(),
            pdu: Pdu { header: &[], data: &[], ..*pdu },
        });
    }

    /// The command of a task was read: takes the answers that were read before it.
    #[cold]
    fn claim(&mut self, tag: u32, command: Stamp, context: &mut Context) {
        let is_answer = |kept: &Unclaimed| kept.tag == tag && kept.pdu.first.frame > command.frame;
        let mut last = LastDataPacket::default();
        while let Some(place) = self.unclaimed.iter().position(is_answer) {
            let Some(Unclaimed { header, data, pdu, .. }) = self.unclaimed.remove(place) else { return };
            if let Some(opcode) = Bhs::new(&header).opcode() {
                let cycle = self.answer(&Pdu { header: &header, data: &data, ..pdu }, opcode, context);
                if let Some(cycle) = cycle.filter(|_| opcode != Opcode::ScsiResponse) {
                    last.count(pdu.data_packets, cycle, &mut context.tables.cycles);
                }
            }
        }
    }

    /// Processes a PDU of the open task with its tag, and returns its cycle.
    #[inline]
    pub(super) fn answer(&mut self, pdu: &Pdu<'_>, opcode: Opcode, context: &mut Context) -> Option<CycleId> {
        let bhs = pdu.bhs();
        let frame = pdu.first.frame;
        let task = bhs.initiator_task_tag().and_then(|tag| self.tasks.get_mut(&tag))?;
        if self.has_gap && !task.is_known_to(bhs) {
            return None;
        }
        let cycle = task.cycle;
        let tables = &mut context.tables;
        let mut missing = match opcode {
            Opcode::ReadyToTransfer => task.ready_to_transfer(pdu, &mut tables.cycles, &mut tables.rounds),
            Opcode::DataIn => {
                if let (Some(kind), Some(lun), Some(session)) = (task.describes, task.lun, self.session)
                    && let Some(data) = self.descriptions.take(cycle, pdu)
                    && let Some(state) = context.sessions.state_mut(session)
                    && state.units.learn(lun, kind, data, pdu.completion()).is_err()
                {
                    context.counters.add(Counter::LogicalUnitsNotListed, Some(self.number), frame);
                }
                task.data_in(pdu, &mut tables.cycles)
            }
            _ => Missing::default(),
        };
        let size = task.missing_size(&tables.cycles);
        // a status counts when its PDU has arrived
        let has_status = (opcode == Opcode::ScsiResponse || bhs.has_status() == Some(true)) && !pdu.is_unfinished;
        if (has_status || opcode == Opcode::ReadyToTransfer)
            && in_flight::kind(&context.tables.cycles, context.tables.cycles.row(cycle)) >= in_flight::FLUSH
        {
            self.note_progress(pdu.completion().time_ns);
        }
        if has_status {
            let before = context.tables.cycles.ended_by.get(context.tables.cycles.row(cycle));
            if before.is_some_and(|by| [ended_by::ABORT, ended_by::RESET].contains(by)) {
                // its status came after all
                context.counters.change(Counter::TaskAborted, Some(self.number), pdu.first.frame, -1);
            }
            context.end_cycle(cycle, pdu.completion().time_ns, ended_by::STATUS);
            if bhs.status() == Some(Status::CheckCondition as u8) {
                context.counters.add(Counter::CheckCondition, Some(self.number), frame);
            }
            if let Some(mut task) = bhs.initiator_task_tag().and_then(|tag| self.remove_task(tag)) {
                let at_status = task.status(pdu, &mut context.tables.cycles);
                self.note_missing(Missing { is_out_of_order: false, ..at_status }, size, frame, context);
                missing.is_out_of_order |= at_status.is_out_of_order;
                if task.is_read && !task.has_missing_pdus {
                    self.is_status_in_data = Some(opcode == Opcode::DataIn);
                }
                self.missing.add_data_bytes(usize::from(!task.is_write), task.lacking_bytes(&context.tables.cycles));
                self.note_taken(&task, context);
            }
        }
        self.note_missing(missing, size, frame, context);
        Some(cycle)
    }

    /// Counts missing PDUs, or those that came late after all; `size` are the data bytes of each.
    #[inline]
    pub(super) fn note_missing(&mut self, missing: Missing, size: i64, frame: u64, context: &mut Context) {
        if missing != Missing::default() {
            self.note_some_missing(missing, size, frame, context);
        }
    }

    /// Counts a PDU whose command was not read, unless every PDU was: then no command has its tag.
    pub(super) fn note_without_task(&mut self, frame: u64, context: &mut Context) {
        if !self.is_whole {
            context.counters.add(Counter::PduWithoutTask, Some(self.number), frame);
        }
    }

    #[cold]
    fn note_some_missing(&mut self, missing: Missing, size: i64, frame: u64, context: &mut Context) {
        if self.is_whole {
            return;
        }
        let data = missing.data_out + missing.data_in;
        self.missing.add_data(0, missing.data_out);
        self.missing.add_data(1, missing.data_in);
        self.missing.add_r2ts(missing.r2t);
        self.missing.add_data_bytes(0, missing.data_out * size);
        self.missing.add_data_bytes(1, missing.data_in * size);
        context.counters.change(Counter::DataMissing, Some(self.number), frame, data);
        context.counters.change(Counter::R2tMissing, Some(self.number), frame, missing.r2t);
        if missing.is_out_of_order {
            context.counters.add(Counter::DataSnOutOfOrder, Some(self.number), frame);
        }
    }

    /// Adds an ended task to the totals.
    pub(super) fn note_taken(&mut self, task: &Task, context: &mut Context) {
        if task.has_unknown_parts() {
            let frame = context.tables.cycles.command_frame.get(context.tables.cycles.row(task.cycle));
            context.counters.add(Counter::DataPartsNotTracked, Some(self.number), frame);
        }
        self.totals.tasks += 1;
        self.totals.r2ts += u64::from(context.tables.cycles.r2t_count[context.tables.cycles.row(task.cycle)]);
    }

    /// Adds a PDU with data to the totals.
    #[inline]
    pub(super) fn note_carrier(&mut self, bhs: Bhs<'_>, opcode: Opcode) {
        let bytes = u64::from(bhs.data_segment_length().unwrap_or(0));
        let carriers = &mut self.totals.carriers[usize::from(!opcode.is_initiator())];
        carriers.longest_bytes = carriers.longest_bytes.max(bytes);
        let is_counted = match opcode {
            Opcode::ScsiCommand => true,
            Opcode::DataOut => false,
            Opcode::DataIn => bhs.has_status() == Some(true),
            _ => return,
        };
        if bytes > 0 {
            carriers.count += 1;
            carriers.bytes += bytes;
            carriers.uncounted += u64::from(!is_counted);
        }
    }

    /// Whether tasks wait for their status.
    pub fn has_open_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }
}
