//! The open SCSI commands: their tags, what ends them, and bursts without F; rules T1 to T3, D4, D15 and D16. Each is a `task`.
//!
//! Only commands whose header was seen since the last hole are judged. What the judge has of one rides in the pass's own entry
//! for its tag. The pass also ends tasks for which the judge still waits: aborted ones, and those whose status must be missing.
//! These are kept apart.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::status::Status;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::rules::{Rule, Side};
use super::sight::{Command, SETTLED_NS, Sight};
use super::task::{New, OpenTask, Task};
use super::violations::Found;
use crate::iscsi;
use crate::iscsi::by_unit::ByUnit;
use crate::stream::stamp::Stamp;
use crate::tables::CycleId;

/// Open tasks that are judged; no command window is larger in practice.
const OPEN_MAX: u32 = 1 << 16;
/// Ended tasks whose tags are kept: what was under way for them may still come.
const ENDED_KEPT: usize = 64;
/// As many as most connections that are soon over have.
const ENDED_FIRST: usize = 4;
/// Bursts without F that are kept.
const UNFINISHED_MAX: usize = 64;
/// Tags of two tasks at a time that are kept.
const DOUBLED_MAX: usize = 64;

/// Statuses that a Data-In may carry: those of commands that ended well (RFC 7143 section 11.7.3).
const STATUSES_OF_DATA_IN: [Status; 4] =
    [Status::Good, Status::ConditionMet, Status::Intermediate, Status::IntermediateConditionMet];

/// The open tasks of the pass, by tag.
pub(crate) type OfPass = FxHashMap<u32, Box<iscsi::task::Task>>;

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
    /// The holes so far: a task from before one is not known here.
    epoch: u32,
    /// What may have ended any task, so far: a task from before is in doubt, which it learns when it is looked at.
    doubts: u32,
    open_count: u32,
    /// The place of the next one in `ended`.
    next_ended: u32,
    /// A ring, once it is full.
    ended: Vec<(u32, End)>,
    unusual: Option<Box<Unusual>>,
}

/// What few connections have.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Unusual {
    /// Open tasks that the pass does not have.
    apart: FxHashMap<u32, Option<Task>>,
    /// The open tasks by logical unit, once a reset asked.
    by_unit: ByUnit,
    unfinished: Vec<Unfinished>,
    /// Tags that two tasks had at a time: what comes for them may be of either.
    doubled: Vec<u32>,
}

/// The commands of a connection, with the tasks of the pass.
pub(super) struct Open<'a> {
    pub(super) tasks: &'a mut Tasks,
    pub(super) of_pass: &'a mut OfPass,
}

impl Unusual {
    /// Bursts that lack their F bit for so long lack it for good.
    fn settle(&mut self, now_ns: i64, is_asked: impl Fn(&Unfinished) -> bool, sight: &mut Sight<'_>) {
        self.unfinished.retain(|burst| {
            let is_over = is_asked(burst) && now_ns.saturating_sub(burst.at.time_ns) >= SETTLED_NS;
            if is_over {
                sight.report(Found::new(Rule::D4, Side::Initiator, burst.at).of(burst.tag, burst.cycle));
            }
            !is_over
        });
    }
}

impl Tasks {
    /// Whether no task is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open_count == 0
    }

    /// Tasks may have begun and ended that were not seen.
    pub(super) fn begin_anew(&mut self) {
        *self = Self { epoch: self.epoch.wrapping_add(1), ..Self::default() };
    }

    /// The pass ends a task: the judge may still wait for it.
    #[cold]
    pub(super) fn keep(&mut self, tag: u32, task: Task) {
        if task.epoch == self.epoch {
            self.unusual.get_or_insert_default().apart.insert(tag, Some(task));
        }
    }

    fn doubt_all(&mut self) {
        self.doubts = self.doubts.wrapping_add(1);
    }

    #[inline]
    fn note_ended(&mut self, tag: u32, end: End) {
        match self.ended.get_mut(self.next_ended as usize) {
            Some(oldest) => *oldest = (tag, end),
            None => {
                if self.ended.len() == ENDED_FIRST {
                    self.ended.reserve_exact(ENDED_KEPT - ENDED_FIRST);
                }
                self.ended.push((tag, end));
            }
        }
        self.next_ended = (self.next_ended + 1) % ENDED_KEPT as u32;
    }

    /// T2 and T3: a PDU of the target that answers no open task.
    #[cold]
    fn unclaimed(&self, tag: u32, is_final: bool, at: Stamp, sight: &mut Sight<'_>) {
        let (new, old) = self.ended.split_at_checked(self.next_ended as usize).unwrap_or_default();
        let end = new.iter().rev().chain(old.iter().rev()).find(|(ended, _)| *ended == tag).map(|&(_, end)| end);
        let rule = match end {
            None if sight.is_whole && sight.agreed.is_alone => Rule::T2,
            Some(End::Status) if is_final && !sight.is_recovering => Rule::T3,
            _ => return,
        };
        sight.report(Found::new(rule, Side::Target, at).only_seen(tag));
    }
}

/// The open task with a tag, in its place.
#[inline(always)]
fn find<'a>(
    of_pass: &'a mut OfPass,
    unusual: &'a mut Option<Box<Unusual>>,
    epoch: u32,
    tag: u32,
) -> Option<&'a mut Option<Task>> {
    if let Some(task) = of_pass.get_mut(&tag)
        && task.judged.as_ref().is_some_and(|judged| judged.epoch == epoch)
    {
        return Some(&mut task.judged);
    }
    unusual.as_mut()?.apart.get_mut(&tag)
}

impl Open<'_> {
    #[inline]
    fn place(&mut self, tag: u32) -> Option<&mut Option<Task>> {
        find(self.of_pass, &mut self.tasks.unusual, self.tasks.epoch, tag)
    }

    #[inline]
    fn get_mut(&mut self, tag: u32) -> Option<&mut Task> {
        let doubts = self.tasks.doubts;
        let task = self.place(tag)?.as_mut()?;
        task.learn(doubts);
        Some(task)
    }

    fn get(&self, tag: u32) -> Option<&Task> {
        let judged = self.of_pass.get(&tag).and_then(|task| task.judged.as_ref());
        let judged = judged.filter(|task| task.epoch == self.tasks.epoch);
        judged.or_else(|| self.tasks.unusual.as_ref()?.apart.get(&tag)?.as_ref())
    }

    /// The open task with this tag.
    pub(super) fn task(&self, tag: u32) -> Option<OpenTask> {
        self.get(tag).map(|task| task.named(tag))
    }

    /// The open tasks that a reset ends, of this logical unit or of all, and that no reset ended before.
    pub(super) fn reset(&mut self, lun: Option<[u8; 8]>, ends: impl Fn(&OpenTask) -> bool) -> Vec<OpenTask> {
        let mut by_unit = std::mem::take(&mut self.tasks.unusual.get_or_insert_default().by_unit);
        let open = || {
            let of_pass = self.of_pass.keys();
            let apart = self.tasks.unusual.iter().flat_map(|unusual| unusual.apart.keys());
            let apart = apart.filter(|&tag| !self.of_pass.contains_key(tag));
            of_pass.chain(apart).filter_map(|&tag| Some((tag, self.get(tag)?.unit())))
        };
        let of = |tag, cycle| self.get(tag).filter(|task| task.cycle == cycle);
        let of = |tag, cycle| of(tag, cycle).map(|task| ends(&task.named(tag)));
        let tags = by_unit.covered(lun.map(u64::from_be_bytes), open, of);
        let covered = tags.into_iter().filter_map(|tag| self.task(tag)).collect();
        self.tasks.unusual.get_or_insert_default().by_unit = by_unit;
        covered
    }

    /// Whether a tag is that of a task that is open, or was lately.
    pub(super) fn knows(&self, tag: u32) -> bool {
        self.get(tag).is_some() || self.tasks.ended.iter().any(|&(ended, _)| ended == tag)
    }

    /// The header of a SCSI Command. Where another task has its tag, the pass has put that apart.
    #[inline]
    pub(super) fn command(&mut self, bhs: Bhs<'_>, at: Stamp, command: Command, sight: &mut Sight<'_>) {
        let (Some(tag), Some(cmd_sn)) = (bhs.initiator_task_tag(), bhs.cmd_sn()) else { return };
        let Tasks { epoch, doubts, open_count, unusual, .. } = &mut *self.tasks;
        let mut is_in_doubt = false;
        let mut is_new = true;
        if let Some(unusual) = unusual {
            if let Some(open) = unusual.apart.get(&tag).and_then(Option::as_ref) {
                if open.cmd_sn == cmd_sn {
                    // a retry
                    return;
                }
                is_new = false;
                if !open.is_in_doubt && open.doubts == *doubts {
                    sight.report(Found::new(Rule::T1, Side::Initiator, at).of(tag, command.cycle).only_seen(tag));
                    is_in_doubt = true;
                    if unusual.doubled.len() < DOUBLED_MAX {
                        unusual.doubled.push(tag);
                    }
                }
            }
            is_in_doubt |= unusual.doubled.contains(&tag);
        }
        if is_new && *open_count >= OPEN_MAX {
            return;
        }
        let new = New { command, cmd_sn, epoch: *epoch, doubts: *doubts, is_in_doubt };
        if let Some(unusual) = unusual {
            unusual.by_unit.note(tag, (command.cycle, Some(u64::from_be_bytes(command.lun))), *open_count as usize);
            unusual.apart.remove(&tag);
        }
        *open_count += u32::from(is_new);
        let place = match self.of_pass.get_mut(&tag) {
            Some(task) => &mut task.judged,
            None => unusual.get_or_insert_default().apart.entry(tag).or_default(),
        };
        // built in its place, where nothing is to be dropped
        *place = None;
        *place = Some(Task::new(bhs, new, sight));
        if let Some(task) = place {
            task.judge_immediate(tag, at, sight);
        }
    }

    /// A PDU of either side, after its numbers.
    #[inline]
    pub(super) fn take(&mut self, bhs: Bhs<'_>, opcode: Opcode, at: Stamp, sight: &mut Sight<'_>) {
        length(bhs, opcode, at, sight);
        match opcode {
            Opcode::DataIn | Opcode::ScsiResponse => self.answer(bhs, opcode, at, sight),
            Opcode::DataOut => self.data_out(bhs, at, sight),
            Opcode::ReadyToTransfer => self.ready_to_transfer(bhs, at, sight),
            Opcode::TaskManagementRequest => self.managed(bhs, at, sight),
            // it may end any task
            Opcode::AsyncMessage => self.tasks.doubt_all(),
            _ => {}
        }
        if let Some(unusual) = &mut self.tasks.unusual {
            unusual.settle(at.time_ns, |_| true, sight);
        }
    }

    /// A Reject of the PDU with this header: it may end any task. Upon a header alone it may come before the rest of the PDU.
    pub(super) fn reject(&mut self, rejected: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        if rejected.opcode() == Some(Opcode::DataOut) {
            let open = rejected.initiator_task_tag().and_then(|tag| self.get(tag));
            if open.is_some_and(|task| task.awaits(rejected)) {
                self.data_out(rejected, at, sight);
            }
        }
        self.tasks.doubt_all();
    }

    /// A Data-In or the final response.
    #[inline]
    fn answer(&mut self, bhs: Bhs<'_>, opcode: Opcode, at: Stamp, sight: &mut Sight<'_>) {
        let is_data = opcode == Opcode::DataIn;
        let is_final = !is_data || bhs.has_status() == Some(true);
        if is_data
            && is_final
            && let Some(status) = bhs.status()
        {
            let is_good = STATUSES_OF_DATA_IN.iter().any(|&good| good as u8 == status);
            if !is_good || bhs.is_final() == Some(false) {
                sight.report(Found::new(Rule::D15, Side::Target, at).only_seen(status));
            }
        }
        let Some(tag) = bhs.initiator_task_tag() else { return };
        let doubts = self.tasks.doubts;
        let Some(place) = self.place(tag) else { return self.tasks.unclaimed(tag, is_final, at, sight) };
        let Some(task) = place else { return };
        task.learn(doubts);
        if is_data {
            task.data_in(bhs, tag, at, sight);
        }
        if is_final {
            task.judge_end(bhs, tag, at, sight);
            let end = if task.is_in_doubt { End::Doubtful } else { End::Status };
            *place = None;
            self.note_ended(tag, end, sight);
        }
    }

    #[inline]
    fn ready_to_transfer(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let Some(tag) = bhs.initiator_task_tag() else { return };
        let Some(task) = self.get_mut(tag) else { return self.tasks.unclaimed(tag, false, at, sight) };
        task.ready_to_transfer(bhs, tag, at, sight);
    }

    #[inline]
    fn data_out(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let Some(tag) = bhs.initiator_task_tag() else { return };
        let Some(task) = self.get_mut(tag) else { return };
        let (is_complete, cycle) = (task.data_out(bhs, tag, at, sight), task.cycle);
        let unusual = &mut self.tasks.unusual;
        if let Some(unusual) = unusual {
            unusual.unfinished.retain(|burst| burst.tag != tag);
        }
        if is_complete && bhs.is_final() == Some(false) {
            let unfinished = &mut unusual.get_or_insert_default().unfinished;
            if unfinished.len() < UNFINISHED_MAX {
                unfinished.push(Unfinished { tag, cycle, at });
            }
        }
    }

    /// A task ended by its final response.
    #[inline]
    fn note_ended(&mut self, tag: u32, end: End, sight: &mut Sight<'_>) {
        self.tasks.open_count = self.tasks.open_count.saturating_sub(1);
        self.tasks.note_ended(tag, end);
        let Some(unusual) = &mut self.tasks.unusual else { return };
        unusual.apart.remove(&tag);
        if let Some(place) = unusual.unfinished.iter().position(|burst| burst.tag == tag) {
            // the target did without the F bit
            let burst = unusual.unfinished.swap_remove(place);
            sight.report(Found::new(Rule::D4, Side::Initiator, burst.at).of(tag, burst.cycle));
        }
    }

    /// A Task Management Function Request: which tasks it ends is not known before its response, nor what comes for them.
    fn managed(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let referenced = (bhs.function() == Some(1)).then(|| bhs.referenced_task_tag()).flatten();
        match referenced {
            Some(tag) => {
                if let Some(Some(task)) = self.place(tag) {
                    task.is_in_doubt = true;
                }
            }
            None => self.tasks.doubt_all(),
        }
        let is_referenced = |burst: &Unfinished| referenced.is_none_or(|referenced| referenced == burst.tag);
        if let Some(unusual) = &mut self.tasks.unusual {
            unusual.settle(at.time_ns, is_referenced, sight);
        }
    }
}

/// D16: the longest data segment that the receiver takes.
#[inline]
fn length(bhs: Bhs<'_>, opcode: Opcode, at: Stamp, sight: &mut Sight<'_>) {
    let side = if opcode.is_initiator() { Side::Initiator } else { Side::Target };
    let length = bhs.data_segment_length().unwrap_or(0);
    if let Some(longest) = sight.agreed.longest_data_bytes[side as usize]
        && length > longest
        && !matches!(opcode, Opcode::LoginRequest | Opcode::LoginResponse)
    {
        sight.report(Found::new(Rule::D16, side, at).seen(length, longest));
    }
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::{BhsBuilder, RESERVED_TAG};
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

    #[test]
    fn a_task_that_the_pass_ends_is_judged_until_its_status() {
        let read = command(5, 100, 500).is_read(true).expected_data_transfer_length(4096);
        let begun = || Talk::logged_in(0).all([read]).ends(5);
        let without_data = [status(5, 0, 500, 101)];
        let lacking = (Rule::D17, Side::Target, 4);
        assert_eq!(begun().all(without_data).found(), [lacking]);
        // once
        assert_eq!(
            begun().all(without_data).all([status(5, 0, 501, 101)]).found(),
            [lacking, (Rule::T3, Side::Target, 5)]
        );
        // a hole before, or after
        assert_eq!(begun().hole().all(without_data).found(), []);
        assert_eq!(Talk::logged_in(0).all([read]).hole().ends(5).all(without_data).found(), []);
        // another task has its tag
        let again = begun().all([command(5, 101, 500), status(5, 0, 500, 102)]);
        assert_eq!(again.found(), [(Rule::T1, Side::Initiator, 4)]);
    }

    #[test]
    fn a_retry_is_the_same_task() {
        let read = command(5, 100, 500).is_read(true).expected_data_transfer_length(4096);
        let retried = Talk::logged_in(0).all([read, read, status(5, 0, 500, 101)]);
        assert_eq!(retried.found(), [(Rule::D17, Side::Target, 5)]);
    }
}
