//! SCSI commands from their header to their status: tags, R2Ts, data and residuals; rules S14 to S17, T1 to T7, D1 to D20.
//!
//! Only commands whose header was seen since the last hole are judged.

use std::collections::hash_map::Entry;

use iscsitrace_wire::bhs::{Bhs, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;
use iscsitrace_wire::status::Status;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::rules::{Rule, Side};
use super::sight::{Command, SETTLED_NS, Sight};
use super::violations::Found;
use crate::iscsi::by_unit::{ByUnit, Unit};
use crate::iscsi::ranges::{DATA, Ranges};
use crate::stream::stamp::Stamp;
use crate::tables::{CycleId, NULL_U64};

/// Open tasks that are judged; no command window is larger in practice.
const OPEN_MAX: usize = 1 << 16;
/// Open R2Ts of one task that are kept.
const ROUNDS_MAX: usize = 256;
/// Ended tasks whose tags are kept: what was under way for them may still come.
const ENDED_KEPT: usize = 64;
/// Bursts without F that are kept.
const UNFINISHED_MAX: usize = 64;
/// Tags of two tasks at a time that are kept.
const DOUBLED_MAX: usize = 64;

/// Statuses that a Data-In may carry: those of commands that ended well (RFC 7143 section 11.7.3).
const STATUSES_OF_DATA_IN: [Status; 4] =
    [Status::Good, Status::ConditionMet, Status::Intermediate, Status::IntermediateConditionMet];

/// An R2T whose burst is not over.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Round {
    target_transfer_tag: u32,
    lun: [u8; 8],
    start: u32,
    length: u32,
    next_data_sn: u32,
    next_offset: u32,
    sent_bytes: u32,
}

impl Round {
    fn end(&self) -> u64 {
        u64::from(self.start) + u64::from(self.length)
    }
}

/// A command without a final response: two lines of a processor's cache.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    cycle: CycleId,
    cmd_sn: SerialNumber,
    lun: [u8; 8],
    /// What its CDB asks for, or the null value.
    asked_bytes: u64,
    expected_bytes: u32,
    is_read: bool,
    is_write: bool,
    /// Whether unsolicited Data-Out may follow the command.
    may_send_unsolicited: bool,
    /// Whether a rule about its data was broken, or its end is in doubt: what follows from that is no violation of its own.
    is_in_doubt: bool,
    /// The doubts before it.
    doubts: u32,
    /// The end of what the initiator sends unsolicited, immediate data included; 0 once that is over.
    due_end: u32,
    unsolicited_bytes: u32,
    next_unsolicited: u32,
    next_data_in: u32,
    next_r2t: u32,
    data_in_count: u32,
    /// Data-In since the last F bit, and where the next one follows.
    sequence_bytes: u32,
    next_offset: u32,
    /// The end of the R2Ts so far.
    asked_end: u32,
    /// The bytes of a read that came, or of a write that were sent.
    bytes: Ranges,
    byte_count: u64,
    /// In the order of their R2Ts.
    rounds: Vec<Round>,
}

/// A burst that is complete but for its F bit.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Unfinished {
    tag: u32,
    cycle: CycleId,
    at: Stamp,
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum End {
    Status,
    /// A task management function may have ended it.
    Doubtful,
}

/// The commands of a connection since the last hole.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Tasks {
    open: FxHashMap<u32, Task>,
    /// What may have ended any task, so far: a task from before is in doubt, which it learns when it is looked at.
    doubts: u32,
    /// The open tasks by logical unit, once a reset asked.
    by_unit: ByUnit,
    /// A ring, once it is full.
    ended: Vec<(u32, End)>,
    /// The place of the next one there.
    next_ended: usize,
    unfinished: Vec<Unfinished>,
    /// Tags that two tasks had at a time: what comes for them may be of either.
    doubled: Vec<u32>,
}

/// An open task, for rules about what ends tasks.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenTask {
    pub(super) tag: u32,
    pub(super) cycle: CycleId,
    pub(super) lun: [u8; 8],
    pub(super) cmd_sn: SerialNumber,
}

/// The overlap of a new part with those that came, after it was added.
fn add(bytes: &mut Ranges, offset: u32, length: u32) -> u64 {
    let start = i64::from(offset);
    u64::from(length) - bytes.add(start, start + i64::from(length), &DATA)
}

impl Task {
    fn named(&self, tag: u32) -> OpenTask {
        OpenTask { tag, cycle: self.cycle, lun: self.lun, cmd_sn: self.cmd_sn }
    }

    fn unit(&self) -> Unit {
        (self.cycle, Some(u64::from_be_bytes(self.lun)))
    }
}

impl Tasks {
    /// Whether no task is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The open task with this tag.
    pub(super) fn open_task(&self, tag: u32) -> Option<OpenTask> {
        self.open.get(&tag).map(|task| task.named(tag))
    }

    /// The open tasks that a reset ends, of this logical unit or of all, and that no reset ended before.
    pub(super) fn reset(&mut self, lun: Option<[u8; 8]>, ends: impl Fn(&OpenTask) -> bool) -> Vec<OpenTask> {
        let open = || self.open.iter().map(|(&tag, task)| (tag, task.unit()));
        let of = |tag, cycle| self.open.get(&tag).filter(|task| task.cycle == cycle);
        let of = |tag, cycle| of(tag, cycle).map(|task| ends(&task.named(tag)));
        let tags = self.by_unit.covered(lun.map(u64::from_be_bytes), open, of);
        tags.into_iter().filter_map(|tag| self.open_task(tag)).collect()
    }

    /// Whether a tag is that of a task that is open, or was lately.
    pub(super) fn knows(&self, tag: u32) -> bool {
        self.open.contains_key(&tag) || self.ended.iter().any(|&(ended, _)| ended == tag)
    }

    /// The header of a SCSI Command.
    pub(super) fn command(
        &mut self,
        bhs: Bhs<'_>,
        at: Stamp,
        Command { cycle, asked_bytes }: Command,
        sight: &mut Sight<'_>,
    ) {
        let (Some(tag), Some(expected_bytes), Some(lun), Some(cmd_sn)) =
            (bhs.initiator_task_tag(), bhs.expected_data_transfer_length(), bhs.lun(), bhs.cmd_sn())
        else {
            return;
        };
        let found = |rule| Found::new(rule, Side::Initiator, at).of(tag, cycle);
        let open_count = self.open.len();
        let entry = self.open.entry(tag);
        let mut is_again = false;
        if let Entry::Occupied(open) = &entry {
            let open = open.get();
            if open.cmd_sn == cmd_sn {
                // a retry
                return;
            }
            is_again = !open.is_in_doubt && open.doubts == self.doubts;
            if is_again {
                sight.report(found(Rule::T1).only_seen(tag));
                if self.doubled.len() < DOUBLED_MAX {
                    self.doubled.push(tag);
                }
            }
        }
        let (is_read, is_write) = (bhs.is_read() == Some(true), bhs.is_write() == Some(true));
        let immediate = bhs.data_segment_length().unwrap_or(0);
        let may_send_unsolicited = bhs.is_final() == Some(false);
        let first_burst = sight.agreed.first_burst_bytes.filter(|_| may_send_unsolicited && is_write);
        let mut task = Task {
            cycle,
            cmd_sn,
            lun,
            asked_bytes: asked_bytes.unwrap_or(NULL_U64),
            expected_bytes,
            is_read,
            is_write,
            may_send_unsolicited,
            // its answers may be those of another
            is_in_doubt: is_again || self.doubled.contains(&tag),
            doubts: self.doubts,
            due_end: first_burst.map_or(0, |bytes| bytes.min(expected_bytes)),
            unsolicited_bytes: immediate,
            next_unsolicited: 0,
            next_data_in: 0,
            next_r2t: 0,
            data_in_count: 0,
            sequence_bytes: 0,
            next_offset: 0,
            asked_end: 0,
            bytes: Ranges::default(),
            byte_count: u64::from(immediate),
            rounds: Vec::new(),
        };
        if immediate > 0 && is_write {
            task.bytes.add(0, i64::from(immediate), &DATA);
            if sight.agreed.immediate_data == Some(false) {
                sight.report(found(Rule::D1).only_seen(immediate));
            }
        }
        task.judge_first_burst(tag, at, sight);
        self.by_unit.note(tag, task.unit(), open_count);
        match entry {
            Entry::Occupied(mut open) => *open.get_mut() = task,
            Entry::Vacant(place) if open_count < OPEN_MAX => {
                place.insert(task);
            }
            Entry::Vacant(_) => {}
        }
    }

    /// A PDU of either side, after its numbers.
    pub(super) fn take(&mut self, bhs: Bhs<'_>, opcode: Opcode, at: Stamp, sight: &mut Sight<'_>) {
        self.length(bhs, opcode, at, sight);
        match opcode {
            Opcode::DataIn => self.data_in(bhs, at, sight),
            Opcode::DataOut => self.data_out(bhs, at, sight),
            Opcode::ReadyToTransfer => self.ready_to_transfer(bhs, at, sight),
            Opcode::ScsiResponse => self.response(bhs, at, sight),
            Opcode::TaskManagementRequest => self.managed(bhs, at, sight),
            // it may end any task
            Opcode::AsyncMessage => self.doubt_all(),
            _ => {}
        }
        self.settle(at.time_ns, sight);
    }

    /// A Reject of the PDU with this header: it may end any task. Upon a header alone it may come before the rest of the PDU.
    pub(super) fn reject(&mut self, rejected: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        if rejected.opcode() == Some(Opcode::DataOut) {
            let open = rejected.initiator_task_tag().and_then(|tag| self.open.get(&tag));
            if open.is_some_and(|task| task.awaits(rejected)) {
                self.data_out(rejected, at, sight);
            }
        }
        self.doubt_all();
    }

    fn doubt_all(&mut self) {
        self.doubts = self.doubts.wrapping_add(1);
    }

    fn open_mut(&mut self, tag: u32) -> Option<&mut Task> {
        let task = self.open.get_mut(&tag)?;
        task.learn(self.doubts);
        Some(task)
    }

    /// D16: the longest data segment that the receiver takes.
    fn length(&self, bhs: Bhs<'_>, opcode: Opcode, at: Stamp, sight: &mut Sight<'_>) {
        if matches!(opcode, Opcode::LoginRequest | Opcode::LoginResponse) {
            return;
        }
        let side = if opcode.is_initiator() { Side::Initiator } else { Side::Target };
        let length = bhs.data_segment_length().unwrap_or(0);
        if let Some(longest) = sight.agreed.longest_data_bytes[side as usize]
            && length > longest
        {
            sight.report(Found::new(Rule::D16, side, at).seen(length, longest));
        }
    }

    /// T2 and T3: a PDU of the target that answers no open task.
    #[cold]
    fn unclaimed(&self, tag: u32, is_final: bool, at: Stamp, sight: &mut Sight<'_>) {
        let (new, old) = self.ended.split_at_checked(self.next_ended).unwrap_or_default();
        let end = new.iter().rev().chain(old.iter().rev()).find(|(ended, _)| *ended == tag).map(|&(_, end)| end);
        let rule = match end {
            None if sight.is_whole && sight.agreed.is_alone => Rule::T2,
            Some(End::Status) if is_final && !sight.is_recovering => Rule::T3,
            _ => return,
        };
        sight.report(Found::new(rule, Side::Target, at).only_seen(tag));
    }

    fn data_in(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let has_status = bhs.has_status() == Some(true);
        let found = |rule| Found::new(rule, Side::Target, at);
        if let Some(status) = bhs.status().filter(|_| has_status) {
            let is_good = STATUSES_OF_DATA_IN.iter().any(|&good| good as u8 == status);
            if !is_good || bhs.is_final() == Some(false) {
                sight.report(found(Rule::D15).only_seen(status));
            }
        }
        let Some(tag) = bhs.initiator_task_tag() else { return };
        let Entry::Occupied(mut open) = self.open.entry(tag) else {
            return self.unclaimed(tag, has_status, at, sight);
        };
        open.get_mut().learn(self.doubts);
        open.get_mut().data_in(bhs, tag, at, sight);
        if has_status {
            let task = open.remove();
            self.end(&task, bhs, tag, at, sight);
        }
    }

    fn ready_to_transfer(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let Some(tag) = bhs.initiator_task_tag() else { return };
        let Some(task) = self.open_mut(tag) else { return self.unclaimed(tag, false, at, sight) };
        task.ready_to_transfer(bhs, tag, at, sight);
    }

    fn data_out(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let Some(tag) = bhs.initiator_task_tag() else { return };
        let Some(task) = self.open_mut(tag) else { return };
        let (is_complete, cycle) = (task.data_out(bhs, tag, at, sight), task.cycle);
        if !self.unfinished.is_empty() {
            self.unfinished.retain(|burst| burst.tag != tag);
        }
        if is_complete && bhs.is_final() == Some(false) && self.unfinished.len() < UNFINISHED_MAX {
            self.unfinished.push(Unfinished { tag, cycle, at });
        }
    }

    fn response(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let Some(tag) = bhs.initiator_task_tag() else { return };
        match self.open.remove(&tag) {
            Some(mut task) => {
                task.learn(self.doubts);
                self.end(&task, bhs, tag, at, sight);
            }
            None => self.unclaimed(tag, true, at, sight),
        }
    }

    /// The final response of a task.
    fn end(&mut self, task: &Task, bhs: Bhs<'_>, tag: u32, at: Stamp, sight: &mut Sight<'_>) {
        task.judge_end(bhs, tag, at, sight);
        self.note_ended(tag, if task.is_in_doubt { End::Doubtful } else { End::Status });
        if let Some(place) = self.unfinished.iter().position(|burst| burst.tag == tag) {
            // the target did without the F bit
            let burst = self.unfinished.swap_remove(place);
            sight.report(Found::new(Rule::D4, Side::Initiator, burst.at).of(tag, burst.cycle));
        }
    }

    fn note_ended(&mut self, tag: u32, end: End) {
        match self.ended.get_mut(self.next_ended) {
            Some(oldest) => *oldest = (tag, end),
            None => self.ended.push((tag, end)),
        }
        self.next_ended = (self.next_ended + 1) % ENDED_KEPT;
    }

    /// A Task Management Function Request: which tasks it ends is not known before its response, nor what comes for them.
    fn managed(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let referenced = (bhs.function() == Some(1)).then(|| bhs.referenced_task_tag()).flatten();
        match referenced {
            Some(tag) => {
                if let Some(task) = self.open.get_mut(&tag) {
                    task.is_in_doubt = true;
                }
            }
            None => self.doubt_all(),
        }
        let is_referenced = |burst: &Unfinished| referenced.is_none_or(|referenced| referenced == burst.tag);
        self.unfinished.retain(|burst| {
            let is_over = is_referenced(burst) && at.time_ns.saturating_sub(burst.at.time_ns) >= SETTLED_NS;
            if is_over {
                sight.report(Found::new(Rule::D4, Side::Initiator, burst.at).of(burst.tag, burst.cycle));
            }
            !is_over
        });
    }

    /// Bursts that lack their F bit for so long lack it for good.
    fn settle(&mut self, now_ns: i64, sight: &mut Sight<'_>) {
        if self.unfinished.is_empty() {
            return;
        }
        self.unfinished.retain(|burst| {
            let is_over = now_ns.saturating_sub(burst.at.time_ns) >= SETTLED_NS;
            if is_over {
                sight.report(Found::new(Rule::D4, Side::Initiator, burst.at).of(burst.tag, burst.cycle));
            }
            !is_over
        });
    }
}

impl Task {
    /// What may have ended any task, so far.
    fn learn(&mut self, doubts: u32) {
        self.is_in_doubt |= self.doubts != doubts;
    }

    fn is_bidirectional(&self) -> bool {
        self.is_read && self.is_write
    }

    /// D3 and D4's other half: what came unsolicited so far.
    fn judge_first_burst(&mut self, tag: u32, at: Stamp, sight: &mut Sight<'_>) {
        if let Some(first_burst) = sight.agreed.first_burst_bytes
            && self.is_write
            && self.unsolicited_bytes > first_burst
            && !self.is_in_doubt
        {
            let found = Found::new(Rule::D3, Side::Initiator, at).of(tag, self.cycle);
            sight.report(found.seen(self.unsolicited_bytes, first_burst));
            self.is_in_doubt = true;
        }
    }

    fn data_in(&mut self, bhs: Bhs<'_>, tag: u32, at: Stamp, sight: &mut Sight<'_>) {
        let found = |rule| Found::new(rule, Side::Target, at).of(tag, self.cycle);
        let length = bhs.data_segment_length().unwrap_or(0);
        let (Some(data_sn), Some(offset)) = (bhs.data_sn(), bhs.buffer_offset()) else { return };
        self.data_in_count += 1;
        if self.is_bidirectional() || self.is_in_doubt {
            return;
        }
        if data_sn.0 != self.next_data_in && !sight.is_recovering {
            sight.report(found(Rule::S14).seen(data_sn.0, self.next_data_in));
        }
        self.next_data_in = data_sn.0.wrapping_add(1);
        if length == 0 {
            return;
        }
        let end = u64::from(offset) + u64::from(length);
        if end > u64::from(self.expected_bytes) {
            sight.report(found(Rule::D13).seen(end, self.expected_bytes));
            self.is_in_doubt = true;
            return;
        }
        let twice = add(&mut self.bytes, offset, length);
        self.byte_count += u64::from(length) - twice;
        if twice > 0 && !sight.is_recovering {
            sight.report(found(Rule::D12).only_seen(twice));
        } else if !sight.is_recovering {
            // within a sequence addresses rise continuously
            let is_within = self.sequence_bytes > 0;
            let (rule, is_agreed, is_in_order) = if is_within {
                (Rule::D10, sight.agreed.data_pdu_in_order, offset == self.next_offset)
            } else {
                (Rule::D11, sight.agreed.data_sequence_in_order, offset >= self.next_offset)
            };
            if is_agreed == Some(true) && !is_in_order {
                sight.report(found(rule).seen(offset, self.next_offset));
            }
        }
        self.next_offset = u32::try_from(end).unwrap_or(u32::MAX);
        self.sequence_bytes = self.sequence_bytes.saturating_add(length);
        if let Some(max_burst) = sight.agreed.max_burst_bytes
            && self.sequence_bytes > max_burst
        {
            sight.report(found(Rule::D14).seen(self.sequence_bytes, max_burst));
            self.sequence_bytes = 0;
        }
        if bhs.is_final() == Some(true) {
            self.sequence_bytes = 0;
        }
    }

    fn ready_to_transfer(&mut self, bhs: Bhs<'_>, tag: u32, at: Stamp, sight: &mut Sight<'_>) {
        let found = |rule| Found::new(rule, Side::Target, at).of(tag, self.cycle);
        let (Some(ttt), Some(start), Some(length)) =
            (bhs.target_transfer_tag(), bhs.buffer_offset(), bhs.desired_data_transfer_length())
        else {
            return;
        };
        let (Some(r2t_sn), Some(lun)) = (bhs.r2t_sn(), bhs.lun()) else { return };
        if ttt == RESERVED_TAG || self.rounds.iter().any(|round| round.target_transfer_tag == ttt) {
            sight.report(found(Rule::T4).only_seen(ttt));
        }
        if self.is_in_doubt {
            return;
        }
        if r2t_sn.0 != self.next_r2t && !self.is_bidirectional() && !sight.is_recovering {
            sight.report(found(Rule::S16).seen(r2t_sn.0, self.next_r2t));
        }
        self.next_r2t = r2t_sn.0.wrapping_add(1);
        if lun != self.lun {
            sight.report(found(Rule::T7));
        }
        if let Some(max_burst) = sight.agreed.max_burst_bytes
            && length > max_burst
        {
            sight.report(found(Rule::D5).seen(length, max_burst));
        }
        let end = start.saturating_add(length);
        if end > self.expected_bytes {
            sight.report(found(Rule::D6).seen(u64::from(start) + u64::from(length), self.expected_bytes));
            self.is_in_doubt = true;
            return;
        }
        self.judge_again(start, length, &found, sight);
        // consecutive R2Ts are for continuous ranges, which begin where the unsolicited data end
        let next = self.asked_end.max(self.due_end).max(self.unsolicited_bytes);
        let is_in_order = (self.asked_end..=next).contains(&start);
        if !is_in_order && !sight.is_recovering && sight.agreed.data_sequence_in_order == Some(true) {
            sight.report(found(Rule::D11).seen(start, next));
        }
        self.asked_end = self.asked_end.max(end);
        if self.rounds.len() < ROUNDS_MAX {
            self.rounds.push(Round {
                target_transfer_tag: ttt,
                lun,
                start,
                length,
                next_data_sn: 0,
                next_offset: start,
                sent_bytes: 0,
            });
        }
        if let Some(most) = sight.agreed.max_outstanding_r2t
            && self.rounds.len() as u64 > u64::from(most)
        {
            sight.report(found(Rule::D8).seen(self.rounds.len() as u64, most));
        }
    }

    /// D7: bytes that came already, or are due unsolicited.
    fn judge_again(&self, start: u32, length: u32, found: &impl Fn(Rule) -> Found, sight: &mut Sight<'_>) {
        if sight.is_recovering {
            return;
        }
        let mut bytes = self.bytes.clone();
        if self.due_end > 0 {
            bytes.add(0, i64::from(self.due_end), &DATA);
        }
        let again = add(&mut bytes, start, length);
        if again > 0 {
            sight.report(found(Rule::D7).only_seen(again));
        }
    }

    /// Whether a Data-Out for an R2T comes behind all that came for it.
    fn awaits(&self, bhs: Bhs<'_>) -> bool {
        let round = self.rounds.iter().find(|round| bhs.target_transfer_tag() == Some(round.target_transfer_tag));
        round.zip(bhs.data_sn()).is_some_and(|(round, data_sn)| data_sn.0 >= round.next_data_sn)
    }

    /// A Data-Out. Returns whether its burst is complete with it.
    fn data_out(&mut self, bhs: Bhs<'_>, tag: u32, at: Stamp, sight: &mut Sight<'_>) -> bool {
        let found = |rule| Found::new(rule, Side::Initiator, at).of(tag, self.cycle);
        let length = bhs.data_segment_length().unwrap_or(0);
        let (Some(ttt), Some(data_sn), Some(offset)) = (bhs.target_transfer_tag(), bhs.data_sn(), bhs.buffer_offset())
        else {
            return false;
        };
        if self.is_in_doubt {
            return false;
        }
        let end = u64::from(offset) + u64::from(length);
        let is_final = bhs.is_final() == Some(true);
        let twice = add(&mut self.bytes, offset, length);
        self.byte_count += u64::from(length) - twice;
        if ttt == RESERVED_TAG {
            if sight.agreed.initial_r2t == Some(true) || !self.may_send_unsolicited {
                sight.report(found(Rule::D2).only_seen(length));
            }
            if data_sn.0 != self.next_unsolicited && !sight.is_recovering {
                sight.report(found(Rule::S15).seen(data_sn.0, self.next_unsolicited));
            }
            self.next_unsolicited = data_sn.0.wrapping_add(1);
            self.unsolicited_bytes = self.unsolicited_bytes.saturating_add(length);
            self.judge_first_burst(tag, at, sight);
            let is_complete = self.due_end > 0 && end >= u64::from(self.due_end);
            if is_final {
                self.due_end = 0;
            }
            return is_complete;
        }
        let Some(place) = self.rounds.iter().position(|round| round.target_transfer_tag == ttt) else {
            if !sight.is_recovering {
                sight.report(found(Rule::T5).only_seen(ttt));
                self.is_in_doubt = true;
            }
            return false;
        };
        if place > 0
            && self.rounds[place].sent_bytes == 0
            && sight.agreed.data_sequence_in_order == Some(true)
            && !sight.is_recovering
        {
            sight.report(found(Rule::D11).seen(offset, self.rounds[0].next_offset));
        }
        let round = &mut self.rounds[place];
        if bhs.lun().is_some_and(|lun| lun != round.lun && lun != self.lun) {
            sight.report(found(Rule::T6));
        }
        if data_sn.0 != round.next_data_sn && !sight.is_recovering {
            sight.report(found(Rule::S15).seen(data_sn.0, round.next_data_sn));
        }
        round.next_data_sn = data_sn.0.wrapping_add(1);
        round.sent_bytes = round.sent_bytes.saturating_add(length);
        let is_complete = round.sent_bytes >= round.length;
        let is_outside = offset < round.start || end > round.end();
        if is_outside || (is_final && !is_complete && !sight.is_recovering) {
            sight.report(found(Rule::D9).seen(end, round.end()));
            self.is_in_doubt = true;
            return false;
        }
        if offset != round.next_offset && sight.agreed.data_pdu_in_order == Some(true) && !sight.is_recovering {
            sight.report(found(Rule::D10).seen(offset, round.next_offset));
        }
        round.next_offset = u32::try_from(end).unwrap_or(u32::MAX);
        if is_final {
            self.rounds.remove(place);
        }
        is_complete
    }

    /// The final response: residuals, and whether all bytes were transferred.
    fn judge_end(&self, bhs: Bhs<'_>, tag: u32, at: Stamp, sight: &mut Sight<'_>) {
        let found = |rule| Found::new(rule, Side::Target, at).of(tag, self.cycle);
        let (is_over, is_under) = (bhs.is_overflow() == Some(true), bhs.is_underflow() == Some(true));
        let residual = bhs.residual_count().unwrap_or(0);
        if (is_over && is_under) || ((is_over || is_under) && residual == 0) {
            sight.report(found(Rule::D20).only_seen(residual));
        }
        let counted = self.data_in_count + self.next_r2t;
        if let Some(exp_data_sn) = bhs.exp_data_sn().map(|number| number.0)
            && !sight.is_recovering
            && exp_data_sn != 0
            && exp_data_sn != self.data_in_count
            && exp_data_sn != self.next_r2t
            && exp_data_sn != counted
        {
            sight.report(found(Rule::S17).seen(exp_data_sn, counted));
        }
        let is_good = bhs.status() == Some(Status::Good as u8);
        if !is_good || self.is_in_doubt || self.is_bidirectional() || (is_over && is_under) {
            return;
        }
        let expected = u64::from(self.expected_bytes).saturating_sub(if is_under { residual.into() } else { 0 });
        if self.byte_count < expected {
            let rule = if self.is_write { Rule::D18 } else { Rule::D17 };
            if self.is_read || self.is_write {
                sight.report(found(rule).seen(self.byte_count, expected));
            }
        } else {
            // the field counts with its bit alone
            let residual = if is_over || is_under { u64::from(residual) } else { 0 };
            if let Some(right) = self.right_residual(residual, is_over, is_under) {
                sight.report(found(Rule::D19).seen(residual, right));
            }
        }
    }

    /// The residual that the final response must have instead of its own: by what the command asks for, or else by the data
    /// of one that ended early. None if it is right by either, or if neither is known.
    fn right_residual(&self, residual: u64, is_over: bool, is_under: bool) -> Option<u64> {
        let expected = u64::from(self.expected_bytes);
        let is_contrary = |asked: u64| (is_over && asked < expected) || (is_under && asked > expected);
        let asked = Some(self.asked_bytes).filter(|&asked| asked != NULL_U64 && !is_contrary(asked));
        let by_cdb = asked.map(|asked| asked.abs_diff(expected));
        let by_data = is_under.then(|| expected - self.byte_count.min(expected));
        let is_right = by_cdb == Some(residual) || by_data == Some(residual);
        by_cdb.or(by_data).filter(|_| !is_right)
    }
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::BhsBuilder;
    use iscsitrace_wire::serial::SerialNumber;

    use super::super::tests::*;
    use super::*;

    /// A write of 8192 bytes without immediate data: frame 3, and one R2T for all of them: frame 4.
    fn asked() -> Talk {
        let write = command(5, 100, 500).is_write(true).expected_data_transfer_length(8192);
        let r2t = BhsBuilder::new(Opcode::ReadyToTransfer).lun(LUN).initiator_task_tag(5).target_transfer_tag(9);
        Talk::logged_in(0).all([write, of_target(r2t.desired_data_transfer_length(8192), 500, 101)])
    }

    fn data_out(data_sn: u32, offset: u32) -> BhsBuilder {
        let header = BhsBuilder::new(Opcode::DataOut).lun(LUN).initiator_task_tag(5).target_transfer_tag(9);
        header.data_sn(SerialNumber(data_sn)).buffer_offset(offset).exp_stat_sn(SerialNumber(500))
    }

    fn reject(talk: &mut Talk, rejected: BhsBuilder) {
        let header = BhsBuilder::new(Opcode::Reject).is_final(true).initiator_task_tag(RESERVED_TAG);
        let rejected = rejected.data_segment_length(2048).build();
        talk.send(of_target(header.reject_reason(9), 500, 101), &rejected);
    }

    #[test]
    fn a_reject_shows_the_header_of_a_pdu_whose_rest_comes_later() {
        // behind the target's tap: it rejects upon the header
        let mut talk = asked();
        talk.send(data_out(0, 0), &[1; 2048]);
        reject(&mut talk, data_out(1, 4096));
        talk.send(data_out(1, 4096), &[1; 2048]);
        assert_eq!(talk.found(), [(Rule::D10, Side::Initiator, 6)]);
        // the initiator's: all was sent before
        let mut talk = asked();
        talk.send(data_out(0, 0), &[1; 2048]);
        talk.send(data_out(1, 4096), &[1; 2048]);
        reject(&mut talk, data_out(1, 4096));
        assert_eq!(talk.found(), [(Rule::D10, Side::Initiator, 6)]);
        // a Reject of what is right, and of what no R2T of the task asked for
        for rejected in [data_out(1, 2048), data_out(1, 4096).target_transfer_tag(8)] {
            let mut talk = asked();
            talk.send(data_out(0, 0), &[1; 2048]);
            reject(&mut talk, rejected);
            assert_eq!(talk.found(), []);
        }
    }

    #[test]
    fn answers_for_a_tag_of_two_tasks_may_be_of_either() {
        let twice = || Talk::logged_in(0).all([command(5, 100, 500), command(5, 101, 500)]);
        let t1 = (Rule::T1, Side::Initiator, 4);
        let again = [status(5, 0, 500, 102), command(5, 102, 501), status(5, 0, 501, 103), status(5, 0, 502, 103)];
        assert_eq!(twice().all(again).found(), [t1]);
        // another tag
        let other = [command(6, 102, 500), status(6, 0, 500, 103), status(6, 0, 501, 103)];
        assert_eq!(twice().all(other).found(), [t1, (Rule::T3, Side::Target, 7)]);
    }

    /// A read of this Expected Data Transfer Length that ends GOOD, after so many bytes of data.
    fn ended(talk: Talk, expected_bytes: u32, data_bytes: usize, end: impl Fn(BhsBuilder) -> BhsBuilder) -> bool {
        let read = command(5, 100, 500).is_read(true).expected_data_transfer_length(expected_bytes);
        let mut talk = talk.all([read]);
        let data = BhsBuilder::new(Opcode::DataIn).initiator_task_tag(5).target_transfer_tag(RESERVED_TAG);
        talk.send(of_target(data.is_final(true), 0, 101), &vec![1; data_bytes]);
        let talk = talk.all([end(status(5, 0, 500, 101))]);
        assert!(
            talk.found().iter().all(|&(rule, side, _)| (rule, side) == (Rule::D19, Side::Target)),
            "{:?}",
            talk.found()
        );
        !talk.found().is_empty()
    }

    #[test]
    fn the_residual_is_that_of_the_command_or_of_its_data() {
        let asking = |bytes| Talk::logged_in(0).asks(bytes);
        let over = |count: u32| move |end: BhsBuilder| end.is_overflow(true).residual_count(count);
        let under = |count: u32| move |end: BhsBuilder| end.is_underflow(true).residual_count(count);
        let none = |end: BhsBuilder| end;
        // the command has more than the initiator expects
        assert!(!ended(asking(8192), 4096, 4096, over(4096)));
        assert!(ended(asking(8192), 4096, 4096, over(512)));
        assert!(ended(asking(8192), 4096, 4096, none));
        assert!(ended(asking(4096), 4096, 4096, over(512)));
        // less, by the command or by what the device had
        assert!(!ended(asking(4096), 8192, 4096, under(4096)));
        assert!(!ended(asking(8192), 8192, 4096, under(4096)));
        assert!(ended(asking(4096), 8192, 4096, under(8192)));
        assert!(!ended(asking(4096), 4096, 4096, none));
        // what it asks for is not known: a hole, an unknown size of blocks
        assert!(!ended(Talk::logged_in(0), 4096, 4096, over(512)));
        assert!(ended(Talk::logged_in(0), 8192, 4096, under(8192)));
    }
}
