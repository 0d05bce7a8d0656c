//! PDUs whose header a snaplen cut away before the task tag, on a connection: the open tasks tell which must come next.
//!
//! ```text
//!   Data-In 256 KiB of 512 | (cut away)         | next header, read
//!                          | 256 KiB: the rest  | <- it ends where the header is: so it was there
//! ```
//!
//! Of a header with its length, length and type must be the expected ones. Of PDUs without even that, all between two known
//! headers must be expected, to the byte. They add no PDU row, because no header was read; their cycles get the times, which
//! are those of captured packets.

use std::ops::Range;

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::opcode::Opcode;

use super::IscsiConnection;
use super::expected::{Expected, Tail};
use crate::context::Context;
use crate::counters::Counter;
use crate::iscsi::noted::Note;
use crate::iscsi::pdu::Pdu;
use crate::iscsi::synchroniser::{HEADER_TAG_BYTES, Kept};
use crate::iscsi::task::Task;
use crate::stream::stamp::Stamp;
use crate::tables::{CycleId, Cycles, ended_by};

/// PDUs without a header between two headers, at most.
const ASSUMED_MAX: usize = 256;

/// A PDU that must come: data of a task, or its SCSI Response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Next {
    tag: u32,
    /// None of a SCSI Response.
    data_bytes: Option<u32>,
    /// Its end in the stream.
    end: i64,
}

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

    /// The PDUs that must come in a direction from `start` on, and then the state behind each. The status of a read comes
    /// apart, or with its last data.
    fn next_pdus(
        &self,
        to_target: bool,
        is_status_apart: bool,
        start: i64,
        [has_header_digest, has_data_digest]: [bool; 2],
        cycles: &Cycles,
    ) -> impl Iterator<Item = (Next, Option<Tail>)> {
        let Expected { mut tail, longest_bytes } = self.expected[usize::from(!to_target)];
        let mut reads = None;
        let mut end = start;
        let next = move || {
            let (tag, data_bytes) = match tail {
                Some(Tail { tag, remaining_bytes: 0 }) if is_status_apart => (tag, None),
                Some(Tail { tag, remaining_bytes }) if remaining_bytes > 0 => (tag, Some(remaining_bytes)),
                _ => {
                    let reads = reads.get_or_insert_with(|| self.reads_without_data(to_target, cycles).into_iter());
                    reads.next().map(|(tag, bytes)| (tag, Some(bytes)))?
                }
            };
            let remaining_bytes = data_bytes.unwrap_or(0);
            let bytes = remaining_bytes.min(longest_bytes);
            if data_bytes.is_some() && bytes == 0 {
                return None;
            }
            tail = data_bytes.map(|_| Tail { tag, remaining_bytes: remaining_bytes - bytes });
            let digests = 4 * (i64::from(has_header_digest) + i64::from(has_data_digest && bytes > 0));
            end += LENGTH_BYTES as i64 + i64::from(bytes.next_multiple_of(4)) + digests;
            Some((Next { tag, data_bytes: data_bytes.map(|_| bytes), end }, tail))
        };
        std::iter::from_fn(next).take(ASSUMED_MAX)
    }

    /// Tag and expected data of the reads without data so far, the oldest first.
    fn reads_without_data(&self, to_target: bool, cycles: &Cycles) -> Vec<(u32, u32)> {
        let is_next = |task: &Task| !to_target && task.is_read && cycles.data_bytes[cycles.row(task.cycle)] == 0;
        let mut reads: Vec<_> = self.tasks.iter().filter(|(_, task)| is_next(task)).collect();
        reads.sort_unstable_by_key(|(_, task)| task.cycle);
        reads.into_iter().map_while(|(&tag, task)| Some((tag, task.expected_data_in_bytes()?))).collect()
    }

    /// Whether the status of a read may come apart, and whether with its data.
    fn status_habits(&self, to_target: bool) -> [bool; 2] {
        [!to_target && self.is_status_in_data != Some(true), to_target || self.is_status_in_data != Some(false)]
    }

    /// The end behind `after` of one of the PDUs that must come from `start` on, if statuses come apart, and if not.
    pub(super) fn due(
        &self,
        to_target: bool,
        (start, after): (i64, i64),
        digests: [bool; 2],
        cycles: &Cycles,
    ) -> [Option<i64>; 2] {
        let [apart, in_data] = self.status_habits(to_target);
        [(apart, true), (in_data, false)].map(|(may_be, is_apart)| {
            let mut pdus = self.next_pdus(to_target, is_apart, start, digests, cycles).filter(|_| may_be);
            pdus.find(|(next, _)| next.end > after).map(|(next, _)| next.end)
        })
    }

    /// PDUs of a direction may be explained later, so that ACKs of them are kept; or none will be.
    pub(super) fn wait(&mut self, to_target: bool, is_waiting: bool) {
        let direction = usize::from(!to_target);
        self.spans[direction].is_waiting = is_waiting;
        if !is_waiting {
            self.expected[direction].tail = None;
        }
    }

    /// Counts the PDUs that fill these bytes before `header`, if the tasks expect any that do; returns whether the last one had
    /// data.
    pub(super) fn explain(
        &mut self,
        to_target: bool,
        bytes: Range<i64>,
        digests: [bool; 2],
        header: Bhs<'_>,
        kept: &Kept,
        context: &mut Context,
    ) -> Option<bool> {
        let [apart, in_data] = self.status_habits(to_target);
        let plan =
            [(apart, true), (in_data, false)].into_iter().filter(|(may_be, _)| *may_be).find_map(|(_, is_apart)| {
                let pdus = self.next_pdus(to_target, is_apart, bytes.start, digests, &context.tables.cycles);
                let plan: Vec<_> = pdus.take_while(|(next, _)| next.end <= bytes.end).collect();
                plan.last().is_some_and(|(last, _)| last.end == bytes.end).then_some(plan)
            });
        let plan = plan.filter(|_| kept.stamps(bytes.clone()).is_some())?;
        self.wait(to_target, false);
        let answered = header.initiator_task_tag().filter(|_| header.opcode() == Some(Opcode::ScsiResponse));
        let mut offset = bytes.start;
        for (place, &(next, tail)) in plan.iter().enumerate() {
            let Some(stamps) = kept.stamps(offset..next.end) else { continue };
            // the status came with the last data, unless it follows
            let is_followed = match plan.get(place + 1) {
                Some((after, _)) => after.tag == next.tag && after.data_bytes.is_none(),
                None => answered == Some(next.tag),
            };
            let (connection, header) = (self.number, kept.captured_at(offset, HEADER_TAG_BYTES));
            context.note(|| Note::Assumed { connection, to_target, offset, header: header.into() });
            let direction = usize::from(!to_target);
            if let Some(task) = self.tasks.get(&next.tag) {
                self.missing.add_explained(direction);
                let (cycle, data) = (task.cycle, next.data_bytes.map(|_| (next.end, stamps.1.time_ns)));
                if let Some(bytes) = next.data_bytes {
                    let start = offset + LENGTH_BYTES as i64 + if digests[0] { 4 } else { 0 };
                    let packets = kept.packets(start..start + i64::from(bytes));
                    self.data_packets[direction].count(packets, cycle, &mut context.tables.cycles);
                    self.spans[direction].push((offset, next.end), data, cycle, &mut context.tables.cycles);
                }
            } else {
                // what a task lacked was counted when it ended
                self.missing.explain(direction, next.data_bytes);
            }
            if self.assume(to_target, next, stamps, !is_followed, context) {
                // it counts as an unread PDU, and not again as a missing number
                self.pass_status();
            }
            self.expected[direction].tail = tail;
            offset = next.end;
        }
        plan.last().map(|(last, _)| last.data_bytes.is_some())
    }

    /// Assigns a PDU whose header was cut before its tag to the task that must come next; returns its cycle.
    #[cold]
    pub(super) fn of_next_task(&mut self, pdu: &Pdu<'_>, opcode: Opcode, context: &mut Context) -> Option<CycleId> {
        let to_target = opcode.is_initiator();
        let is_status = opcode == Opcode::ScsiResponse;
        let bytes = pdu.bhs().data_segment_length()?;
        let mut pdus = self.next_pdus(to_target, is_status, pdu.offset, [false; 2], &context.tables.cycles);
        let (next, tail) = pdus.next().filter(|(next, _)| next.data_bytes.unwrap_or(0) == bytes)?;
        drop(pdus);
        if next.data_bytes.is_none() != is_status {
            return None;
        }
        let cycle = self.tasks.get(&next.tag)?.cycle;
        self.expected[usize::from(!to_target)].tail = tail;
        let has_status = pdu.bhs().has_status() == Some(true);
        self.assume(to_target, next, (pdu.first, pdu.completion()), has_status, context);
        Some(cycle)
    }

    /// Counts a PDU without a header for its task; whether it had its status.
    fn assume(
        &mut self,
        to_target: bool,
        next: Next,
        (first, last): (Stamp, Stamp),
        may_end: bool,
        context: &mut Context,
    ) -> bool {
        context.counters.add(Counter::HeaderAssumed, Some(self.number), first.frame);
        let Some(task) = self.tasks.get_mut(&next.tag) else { return false };
        let cycle = task.cycle;
        let mut is_over = true;
        if let Some(bytes) = next.data_bytes {
            let is_last = task.assume_data(bytes, first, last, &mut context.tables.cycles);
            is_over = is_last && !to_target && task.is_read && self.is_status_in_data != Some(false) && may_end;
        }
        if !is_over {
            return false;
        }
        let Some(task) = self.remove_task(next.tag) else { return false };
        let row = context.tables.cycles.row(cycle);
        context.tables.cycles.end(row, last.time_ns, ended_by::STATUS);
        let is_in_data = next.data_bytes.is_some();
        task.assume_status(Some(last), is_in_data, &mut context.tables.cycles);
        // the target's habit is known from now on
        self.is_status_in_data.get_or_insert(is_in_data);
        context.counters.add(Counter::CycleIncomplete, Some(self.number), first.frame);
        true
    }

    /// Notes what a data PDU or a status implies for the next PDU of its direction.
    #[inline]
    pub(super) fn note_next(&mut self, bhs: Bhs<'_>, opcode: Opcode, cycles: &Cycles) {
        match opcode {
            Opcode::DataIn if bhs.has_status() != Some(true) => {
                let (Some(tag), Some(bytes)) = (bhs.initiator_task_tag(), bhs.data_segment_length()) else { return };
                let task = self.tasks.get(&tag);
                let Some((task, expected)) = task.and_then(|task| Some((task, task.expected_data_in_bytes()?))) else {
                    self.expected[1].tail = None;
                    return;
                };
                // without the Buffer Offset: the bytes so far
                let moved = bhs
                    .buffer_offset()
                    .map_or(cycles.data_bytes[cycles.row(task.cycle)], |offset| offset.saturating_add(bytes));
                self.expected[1].note_data(tag, bytes, expected.saturating_sub(moved));
            }
            Opcode::DataIn | Opcode::ScsiResponse => {
                if let (Opcode::DataIn, Some(bytes)) = (opcode, bhs.data_segment_length()) {
                    self.expected[1].note_data(0, bytes, 0);
                }
                self.expected[1].tail = None;
            }
            Opcode::DataOut => {
                let (Some(tag), Some(bytes)) = (bhs.initiator_task_tag(), bhs.data_segment_length()) else { return };
                match self.tasks.get(&tag).and_then(|task| task.remaining_of_burst(bhs.target_transfer_tag())) {
                    Some(remaining) => self.expected[0].note_data(tag, bytes, remaining),
                    None => self.expected[0].tail = None,
                }
            }
            _ => {}
        }
    }
}
