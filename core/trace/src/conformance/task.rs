//! One SCSI command from its header to its final response: data, R2Ts and Data-Out; rules S14 to S16, T4 to T7, D1 to D14.
//! Its end is `residual`.

use iscsitrace_wire::bhs::{Bhs, RESERVED_TAG};
use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

use super::rules::{Rule, Side};
use super::sight::{Command, Sight};
use super::violations::Found;
use crate::iscsi::by_unit::Unit;
use crate::iscsi::ranges::{DATA, Ranges};
use crate::stream::stamp::Stamp;
use crate::tables::{CycleId, NULL_U64};

/// Open R2Ts of one task that are kept.
const ROUNDS_MAX: usize = 256;

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

/// What the judge has of a command without a final response.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(super) cycle: CycleId,
    pub(super) cmd_sn: SerialNumber,
    /// The holes before it.
    pub(super) epoch: u32,
    lun: [u8; 8],
    /// What its CDB asks for, or the null value.
    pub(super) asked_bytes: u64,
    pub(super) expected_bytes: u32,
    pub(super) is_read: bool,
    pub(super) is_write: bool,
    /// Whether unsolicited Data-Out may follow the command.
    may_send_unsolicited: bool,
    /// Whether a rule about its data was broken, or its end is in doubt: what follows from that is no violation of its own.
    pub(super) is_in_doubt: bool,
    /// The doubts before it.
    pub(super) doubts: u32,
    /// The end of what the initiator sends unsolicited, immediate data included; 0 once that is over.
    due_end: u32,
    unsolicited_bytes: u32,
    next_unsolicited: u32,
    next_data_in: u32,
    pub(super) next_r2t: u32,
    pub(super) data_in_count: u32,
    /// Data-In since the last F bit, and where the next one follows.
    sequence_bytes: u32,
    next_offset: u32,
    /// The end of the R2Ts so far.
    asked_end: u32,
    /// The bytes of a read that came, or of a write that were sent.
    bytes: Ranges,
    pub(super) byte_count: u64,
    /// In the order of their R2Ts.
    rounds: Vec<Round>,
}

/// What is known of a new command beside its header.
#[derive(Debug, Clone, Copy)]
pub(super) struct New {
    pub(super) command: Command,
    pub(super) cmd_sn: SerialNumber,
    pub(super) epoch: u32,
    pub(super) doubts: u32,
    /// Whether its answers may be those of another.
    pub(super) is_in_doubt: bool,
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
    /// That of the header of a SCSI Command.
    #[inline]
    pub(super) fn new(bhs: Bhs<'_>, new: New, sight: &Sight<'_>) -> Self {
        let New { command: Command { cycle, lun, asked_bytes }, cmd_sn, epoch, doubts, is_in_doubt } = new;
        let expected_bytes = bhs.expected_data_transfer_length().unwrap_or(0);
        let (is_read, is_write) = (bhs.is_read() == Some(true), bhs.is_write() == Some(true));
        let immediate = bhs.data_segment_length().unwrap_or(0);
        let may_send_unsolicited = bhs.is_final() == Some(false);
        let first_burst = sight.agreed.first_burst_bytes.filter(|_| may_send_unsolicited && is_write);
        Task {
            cycle,
            cmd_sn,
            epoch,
            lun,
            asked_bytes: asked_bytes.unwrap_or(NULL_U64),
            expected_bytes,
            is_read,
            is_write,
            may_send_unsolicited,
            is_in_doubt,
            doubts,
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
        }
    }

    /// D1 and D3: the immediate data of its command.
    #[inline]
    pub(super) fn judge_immediate(&mut self, tag: u32, at: Stamp, sight: &mut Sight<'_>) {
        let immediate = self.unsolicited_bytes;
        if immediate > 0 && self.is_write {
            self.bytes.add(0, i64::from(immediate), &DATA);
            if sight.agreed.immediate_data == Some(false) {
                sight.report(Found::new(Rule::D1, Side::Initiator, at).of(tag, self.cycle).only_seen(immediate));
            }
        }
        self.judge_first_burst(tag, at, sight);
    }

    pub(super) fn named(&self, tag: u32) -> OpenTask {
        OpenTask { tag, cycle: self.cycle, lun: self.lun, cmd_sn: self.cmd_sn }
    }

    pub(super) fn unit(&self) -> Unit {
        (self.cycle, Some(u64::from_be_bytes(self.lun)))
    }

    /// What may have ended any task, so far.
    pub(super) fn learn(&mut self, doubts: u32) {
        self.is_in_doubt |= self.doubts != doubts;
    }

    pub(super) fn is_bidirectional(&self) -> bool {
        self.is_read && self.is_write
    }

    /// D3 and D4's other half: what came unsolicited so far.
    #[inline]
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

    #[inline]
    pub(super) fn data_in(&mut self, bhs: Bhs<'_>, tag: u32, at: Stamp, sight: &mut Sight<'_>) {
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

    #[inline]
    pub(super) fn ready_to_transfer(&mut self, bhs: Bhs<'_>, tag: u32, at: Stamp, sight: &mut Sight<'_>) {
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
    #[inline]
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
    pub(super) fn awaits(&self, bhs: Bhs<'_>) -> bool {
        let round = self.rounds.iter().find(|round| bhs.target_transfer_tag() == Some(round.target_transfer_tag));
        round.zip(bhs.data_sn()).is_some_and(|(round, data_sn)| data_sn.0 >= round.next_data_sn)
    }

    /// A Data-Out. Returns whether its burst is complete with it.
    #[inline]
    pub(super) fn data_out(&mut self, bhs: Bhs<'_>, tag: u32, at: Stamp, sight: &mut Sight<'_>) -> bool {
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
}
