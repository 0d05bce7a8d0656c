//! PDUs whose header was cut away, on a connection: which must come next, and what they were once confirmed.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::IscsiConnection;
use crate::context::Context;
use crate::counters::Counter;
use crate::iscsi::assumption::{Assumed, Assumption};
use crate::tables::Cycles;

impl IscsiConnection {
    /// Counts a PDU as found, or as missing if its header was cut before the task tag: its type and length are known, but
    /// not its command.
    #[inline]
    pub(super) fn count_pdu(&mut self, bhs: Bhs<'_>, opcode: Opcode) {
        let direction = usize::from(!opcode.is_initiator());
        if bhs.initiator_task_tag().is_some() {
            self.pdu_count[direction] += 1;
        } else if opcode != Opcode::ScsiCommand || self.cmd_sn.is_none() {
            // a command is counted by its number, once others were read
            self.missing.add_explained(direction);
        }
    }

    /// The data bytes of the next PDU of a direction whose header was cut away.
    pub(super) fn assume(&mut self, to_target: bool, rest_of_segment: u32, context: &Context) -> Option<u32> {
        let cycles = &context.tables.cycles;
        // the oldest read without data so far
        let next = |pending: &[Assumption]| {
            let is_pending = |tag: u32| {
                pending
                    .iter()
                    .any(|assumption| matches!(*assumption, Assumption::Data { tag: other, .. } if other == tag))
            };
            self.tasks
                .iter()
                .filter(|(tag, task)| {
                    !to_target && task.is_read && cycles.data_bytes[cycles.row(task.cycle)] == 0 && !is_pending(**tag)
                })
                .min_by_key(|(_, task)| task.cycle)
                .and_then(|(&tag, task)| Some((tag, task.expected_data_in_bytes()?)))
        };
        // before the first status of a target: whether the rest of the segment is as long as one
        let is_as_long_as_status = rest_of_segment == LENGTH_BYTES as u32 || rest_of_segment == LENGTH_BYTES as u32 + 4;
        let is_status_apart =
            if to_target { Some(false) } else { self.is_status_in_data.map(|is_in_data| !is_in_data) };
        let direction = usize::from(!to_target);
        let assumption = self.assumptions[direction].assume(is_status_apart, is_as_long_as_status, next)?;
        self.spans[direction].is_waiting = true;
        match assumption {
            Assumption::Data { bytes, .. } => Some(bytes),
            Assumption::Status { .. } => Some(0),
        }
    }

    /// Drops the assumptions of a direction.
    pub(super) fn discard(&mut self, to_target: bool) {
        let direction = usize::from(!to_target);
        self.assumptions[direction].discard();
        self.spans[direction].is_waiting = false;
    }

    /// Whether the assumptions of a direction could be made otherwise.
    pub(super) fn is_ambiguous(&self, to_target: bool) -> bool {
        !to_target && self.is_status_in_data.is_none()
    }

    /// Confirms the assumptions of a direction, because `header` follows them.
    pub(super) fn confirm(&mut self, to_target: bool, assumed: &[Assumed], header: Bhs<'_>, context: &mut Context) {
        let direction = usize::from(!to_target);
        let is_response_to =
            |tag| header.opcode() == Some(Opcode::ScsiResponse) && header.initiator_task_tag() == Some(tag);
        let assumptions = self.assumptions[direction].confirm();
        self.spans[direction].is_waiting = false;
        for (place, (&assumption, assumed)) in assumptions.iter().zip(assumed).enumerate() {
            context.counters.add(Counter::HeaderAssumed, Some(self.number), assumed.first.frame);
            let (Assumption::Data { tag, .. } | Assumption::Status { tag }) = assumption;
            let Some(task) = self.tasks.get_mut(&tag) else {
                // what a task lacked was counted when it ended
                let data_bytes = if let Assumption::Data { bytes, .. } = assumption { Some(bytes) } else { None };
                self.missing.explain(direction, data_bytes);
                continue;
            };
            self.missing.add_explained(direction);
            let cycle = task.cycle;
            let mut is_over = matches!(assumption, Assumption::Status { .. });
            if let Assumption::Data { bytes, .. } = assumption {
                let is_last = task.assume_data(bytes, assumed, &mut context.tables.cycles);
                self.spans[direction].push(
                    (assumed.offset, assumed.end),
                    Some((assumed.end, assumed.last.unwrap_or(assumed.first).time_ns)),
                    cycle,
                    &mut context.tables.cycles,
                );
                // the status came with the last data, unless it follows
                let is_followed = assumptions[place + 1..].contains(&Assumption::Status { tag }) || is_response_to(tag);
                is_over =
                    is_last && !to_target && task.is_read && self.is_status_in_data != Some(false) && !is_followed;
            }
            if is_over && let Some(task) = self.tasks.remove(&tag) {
                context.cycle_ends_ns[context.tables.cycles.row(cycle)] = assumed.last.unwrap_or(assumed.first).time_ns;
                // it counts as an unread PDU, and not again as a missing number
                self.stat_sn = self.stat_sn.map(SerialNumber::next);
                let is_in_data = matches!(assumption, Assumption::Data { .. });
                task.assume_status(assumed.last, is_in_data, &mut context.tables.cycles);
                // the target's habit is known from now on
                self.is_status_in_data.get_or_insert(is_in_data);
                context.counters.add(Counter::CycleIncomplete, Some(self.number), assumed.first.frame);
            }
        }
    }

    /// Notes what a data PDU or a status implies for the next PDU of its direction.
    #[inline]
    pub(super) fn note_next(&mut self, bhs: Bhs<'_>, opcode: Opcode, cycles: &Cycles) {
        match opcode {
            Opcode::DataIn if bhs.has_status() != Some(true) => {
                let (Some(tag), Some(bytes)) = (bhs.initiator_task_tag(), bhs.data_segment_length()) else { return };
                let task = self.tasks.get(&tag);
                let Some((task, expected)) = task.and_then(|task| Some((task, task.expected_data_in_bytes()?))) else {
                    self.assumptions[1].note_status();
                    return;
                };
                // without the Buffer Offset: the bytes so far
                let moved = bhs
                    .buffer_offset()
                    .map_or(cycles.data_bytes[cycles.row(task.cycle)], |offset| offset.saturating_add(bytes));
                self.assumptions[1].note_data(tag, bytes, expected.saturating_sub(moved));
            }
            Opcode::DataIn | Opcode::ScsiResponse => {
                if let (Opcode::DataIn, Some(bytes)) = (opcode, bhs.data_segment_length()) {
                    self.assumptions[1].note_data(0, bytes, 0);
                }
                self.assumptions[1].note_status();
            }
            Opcode::DataOut => {
                let (Some(tag), Some(bytes)) = (bhs.initiator_task_tag(), bhs.data_segment_length()) else { return };
                match self.tasks.get(&tag).and_then(|task| task.remaining_of_burst(bhs.target_transfer_tag())) {
                    Some(remaining) => self.assumptions[0].note_data(tag, bytes, remaining),
                    None => self.assumptions[0].note_status(),
                }
            }
            _ => {}
        }
    }
}
