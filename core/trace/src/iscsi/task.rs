//! One SCSI task: its PDUs -> one row of `cycles`, and a row of `rounds` for each R2T.
//!
//! A task starts with its command and ends with its status, by task management, when its tag is reused, or with its
//! connection. It gets only its own PDUs, never the TCP stream.

use iscsitrace_wire::bhs::{Bhs, RESERVED_TAG};
use iscsitrace_wire::cdb::{Cdb, Operation};
use iscsitrace_wire::lun;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::parameter_data::ParameterData;
use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

use super::by_unit::Unit;
use super::cycle_row::{DataOutBurst, note_data_last, note_flags, sense, set_some};
use super::data_numbers::{Counted, DataNumbers, at_once};
use super::pdu::Pdu;
use super::ranges::{self, Ranges};
use crate::conformance;
use crate::stream::stamp::Stamp;
use crate::tables::{CycleId, Cycles, NULL_NS, NULL_U32, NULL_U64, Round, RoundId, Rounds};

/// The write buffer of a bidirectional command lies behind every offset of its read buffer.
const WRITE_BUFFER_AT: i64 = 1 << 40;
/// Maximum open R2Ts of one task; MaxOutstandingR2T is at most 65535, and in practice at most 8.
const OPEN_ROUNDS_MAX: usize = 256;

/// Data-Out whose R2T was not read so far: it is missing from the capture, or was captured after them.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Unannounced {
    target_transfer_tag: Option<u32>,
    next_data_sn: SerialNumber,
    bytes: u32,
}

/// An R2T whose burst is not complete.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OpenRound {
    target_transfer_tag: u32,
    round: RoundId,
    data_out: Ranges,
    remaining: u32,
}

/// A task without a status so far.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Task {
    /// Its row in `cycles`.
    pub cycle: CycleId,
    /// Its logical unit number.
    pub lun: Option<u64>,
    /// Whether the command reads (R bit).
    pub is_read: bool,
    /// Whether the command writes (W bit).
    pub is_write: bool,
    /// Expected Data Transfer Length; none if that part of the header was not captured.
    pub expected_data_transfer_length: Option<u32>,
    /// CmdSN of its command; none if it is immediate, which takes no number, or if that part was not captured.
    pub cmd_sn: Option<SerialNumber>,
    /// What its data says of the logical unit, if it does.
    pub describes: Option<ParameterData>,
    /// Whether data may come in any order: the first PDU is then recognised by its number, not by its offset.
    pub is_data_in_any_order: bool,
    operation: Option<Operation>,
    numbers: DataNumbers,
    /// The bytes of its buffer that were transferred: one that comes again does not count again.
    buffer: Ranges,
    open_rounds: Vec<OpenRound>,
    /// Whether PDUs or bytes of it are known to be missing, beside those counted so far.
    pub has_missing_pdus: bool,
    /// Missing data PDUs and R2Ts counted so far.
    missing_data: i64,
    missing_r2t: i64,
    /// Bursts without an R2T so far.
    unannounced: Vec<Unannounced>,
    /// Target Transfer Tag of the last Data-Out.
    current_burst: Option<u32>,
    is_last_data_unknown: bool,
    /// What the judge has of it.
    pub(crate) judged: Option<conformance::Task>,
}

/// What a PDU shows to be missing; less than 0 if it was missing so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// Data-Out.
    pub data_out: i64,
    /// Data-In.
    pub data_in: i64,
    /// R2Ts.
    pub r2t: i64,
    /// Whether a number was repeated or late.
    pub is_out_of_order: bool,
}

impl Task {
    /// Starts the task of a SCSI Command PDU whose header was read; [`open_row`](super::cycle_row::open_row) and
    /// [`complete_command`](super::cycle_row::complete_command) follow.
    pub fn open(bhs: Bhs<'_>, cycle: CycleId, decoded: Option<&Cdb>, is_data_in_any_order: bool) -> Task {
        let operation = decoded.map(|decoded| decoded.operation);
        let describes = match operation {
            Some(Operation::Inquiry | Operation::ReadCapacity | Operation::ReportTargetPortGroups) => {
                bhs.cdb().and_then(|cdb| ParameterData::of(&cdb))
            }
            _ => None,
        };
        let is_bidirectional = bhs.is_read() == Some(true) && bhs.is_write() == Some(true);
        let mut buffer = Ranges::default();
        add_bytes(&mut buffer, is_bidirectional, 0, bhs.data_segment_length().unwrap_or(0));
        Task {
            cycle,
            lun: bhs.lun().map(lun::number),
            is_read: bhs.is_read().unwrap_or(false),
            is_write: bhs.is_write().unwrap_or(false),
            expected_data_transfer_length: bhs.expected_data_transfer_length(),
            cmd_sn: bhs.cmd_sn().filter(|_| bhs.is_immediate() != Some(true)),
            describes,
            is_data_in_any_order,
            operation,
            buffer,
            ..Task::default()
        }
    }

    /// The task of a command that was sent on another connection, from its row: its data and its status come here.
    pub fn moved(row: usize, cycles: &Cycles) -> Task {
        let (is_read, is_write) = (cycles.is_read[row], cycles.is_write[row]);
        let mut numbers = DataNumbers::default();
        if is_read {
            numbers.pass(Counted::DataIn, cycles.data_pdu_count[row]);
        }
        let mut buffer = Ranges::default();
        buffer.pass(cycles.data_bytes[row]);
        Task {
            cycle: CycleId::new(cycles.cycle[row]),
            lun: Some(cycles.lun.get(row)).filter(|&lun| lun != NULL_U64),
            is_read,
            is_write,
            expected_data_transfer_length: Some(cycles.bytes[row]).filter(|&bytes| bytes != NULL_U32),
            cmd_sn: Some(SerialNumber(cycles.cmd_sn[row])),
            operation: Operation::ALL.get(usize::from(cycles.operation[row])).copied(),
            numbers,
            buffer,
            ..Task::default()
        }
    }

    /// Its command and logical unit.
    pub fn unit(&self) -> Unit {
        (self.cycle, self.lun)
    }

    /// Whether it reads and writes.
    fn is_bidirectional(&self) -> bool {
        self.is_read && self.is_write
    }

    /// The bytes of all its Data-In, if known: those of a bidirectional command are in an AHS, which is not read.
    pub fn expected_data_in_bytes(&self) -> Option<u32> {
        self.expected_data_transfer_length.filter(|_| !self.is_write)
    }

    /// Whether a part of the read buffer (`is_data_in`) or of the write buffer lies within its expected length.
    pub fn has_room_for(&self, is_data_in: bool, buffer_offset: u32, length: u32) -> bool {
        let expected = if is_data_in { self.expected_data_in_bytes() } else { self.expected_data_transfer_length };
        expected.is_none_or(|expected| u64::from(buffer_offset) + u64::from(length) <= u64::from(expected))
    }

    /// Whether the target had its command when it sent a PDU with its tag, by ExpCmdSN: else the PDU belongs to an earlier
    /// task.
    pub fn is_known_to(&self, bhs: Bhs<'_>) -> bool {
        bhs.exp_cmd_sn().zip(self.cmd_sn).is_none_or(|(exp_cmd_sn, cmd_sn)| exp_cmd_sn.is_after(cmd_sn))
    }

    /// Whether a PDU with its tag must belong to a later task whose command was not captured: a number is repeated, or
    /// there would be more data than expected.
    pub fn is_outlived_by(&self, bhs: Bhs<'_>, cycles: &Cycles) -> bool {
        let row = cycles.row(self.cycle);
        let data_bytes = if self.is_bidirectional() { written_bytes(row, cycles) } else { cycles.data_bytes[row] };
        let is_data_in = bhs.opcode() == Some(Opcode::DataIn);
        let is_data = is_data_in || bhs.opcode() == Some(Opcode::DataOut);
        (is_data && !self.has_room_for(is_data_in, data_bytes, bhs.data_segment_length().unwrap_or(0)))
            || counted(bhs).is_some_and(|(counted, number)| self.numbers.is_again(counted, number))
    }

    /// Whether a PDU with its tag has a number that is missing so far: it is late, or of a later task.
    pub fn lacks(&self, bhs: Bhs<'_>) -> bool {
        counted(bhs).is_some_and(|(counted, number)| self.numbers.lacks(counted, number))
    }

    /// Whether an R2T has a number that was there before.
    pub fn had_ready_to_transfer(&self, bhs: Bhs<'_>) -> bool {
        bhs.r2t_sn().is_some_and(|number| self.numbers.is_again(Counted::R2t, number))
    }

    /// Processes an R2T.
    pub fn ready_to_transfer(&mut self, pdu: &Pdu<'_>, cycles: &mut Cycles, rounds: &mut Rounds) -> Missing {
        let bhs = pdu.bhs();
        let row = cycles.row(self.cycle);
        let mut missing = Missing::default();
        note_flags(pdu, row, cycles);
        let r2t_sn = bhs.r2t_sn().map(|number| number.0);
        if let Some(number) = bhs.r2t_sn() {
            missing.r2t = self.advance(Counted::R2t, number, &mut missing.is_out_of_order);
            self.missing_r2t += missing.r2t;
        }
        if cycles.r2t_count[row] == 0 {
            let is_first = if self.is_bidirectional() {
                self.numbers.missing_of_either() == 0
            } else {
                r2t_sn.is_none_or(|number| number == 0)
            };
            if is_first {
                cycles.r2t_first_ns[row] = pdu.last.map_or(NULL_NS, |last| last.time_ns);
            }
        }
        cycles.r2t_count[row] += 1;
        let desired = bhs.desired_data_transfer_length().unwrap_or(NULL_U32);
        let round = rounds.next_id();
        rounds.push(Round {
            cycle: self.cycle.number(),
            r2t_sn: r2t_sn.unwrap_or(NULL_U32),
            target_transfer_tag: bhs.target_transfer_tag().unwrap_or(NULL_U32),
            buffer_offset: bhs.buffer_offset().unwrap_or(NULL_U32),
            desired_data_transfer_length: desired,
            r2t_ns: pdu.last.map_or(NULL_NS, |last| last.time_ns),
            r2t_frame: pdu.last.map_or(NULL_U64, |last| last.frame),
            ..Round::default()
        });
        if let Some(target_transfer_tag) = bhs.target_transfer_tag() {
            if self.open_rounds.len() >= OPEN_ROUNDS_MAX {
                self.open_rounds.remove(0);
            }
            // an R2T that was captured after its data; not the next one with the same tag
            let before =
                self.unannounced.iter().position(|burst| burst.target_transfer_tag == Some(target_transfer_tag));
            let before = before.filter(|_| missing.r2t <= 0).map(|place| self.unannounced.remove(place));
            self.open_rounds.push(OpenRound {
                target_transfer_tag,
                round,
                data_out: before.as_ref().map_or_else(Ranges::default, |burst| burst.next_data_sn.into()),
                remaining: desired.saturating_sub(before.map_or(0, |burst| burst.bytes)),
            });
        }
        missing
    }

    /// Processes a Data-In; [`Task::status`] handles its status.
    pub fn data_in(&mut self, pdu: &Pdu<'_>, cycles: &mut Cycles) -> Missing {
        let bhs = pdu.bhs();
        let mut missing = Missing::default();
        if let Some(number) = bhs.data_sn() {
            missing.data_in = self.advance(Counted::DataIn, number, &mut missing.is_out_of_order);
            self.missing_data += missing.data_in;
        }
        self.note_data(bhs, pdu.first, 0, cycles);
        if bhs.data_segment_length().unwrap_or(0) > 0 {
            self.is_last_data_unknown = pdu.last.is_none();
        }
        let row = cycles.row(self.cycle);
        note_flags(pdu, row, cycles);
        note_data_last(pdu, row, cycles);
        missing
    }

    /// Processes the header of a Data-Out; [`complete_data_out`](super::cycle_row::complete_data_out) follows.
    pub fn data_out(
        &mut self,
        bhs: Bhs<'_>,
        first: Stamp,
        cycles: &mut Cycles,
        rounds: &mut Rounds,
    ) -> (DataOutBurst, Missing) {
        let row = cycles.row(self.cycle);
        let mut missing = Missing::default();
        let mut burst_of = DataOutBurst::Unknown;
        let length = bhs.data_segment_length().unwrap_or(0);
        let number = bhs.data_sn();
        self.current_burst = bhs.target_transfer_tag();
        match bhs.target_transfer_tag() {
            Some(RESERVED_TAG) => {
                burst_of = DataOutBurst::Unsolicited;
                cycles.unsolicited_bytes[row] = cycles.unsolicited_bytes[row].saturating_add(length);
                if let Some(number) = number {
                    missing.data_out = self.advance(Counted::Unsolicited, number, &mut missing.is_out_of_order);
                }
            }
            tag => {
                cycles.solicited_bytes[row] = cycles.solicited_bytes[row].saturating_add(length);
                let place = self.open_rounds.iter().rposition(|burst| Some(burst.target_transfer_tag) == tag);
                if let Some(place) = place {
                    let burst = &mut self.open_rounds[place];
                    let round = burst.round;
                    burst_of = DataOutBurst::Round(round);
                    let round = rounds.row(round);
                    if let Some(number) = number {
                        let order = burst.data_out.note(number, &ranges::DATA);
                        missing.is_out_of_order = order.is_behind();
                        missing.data_out = at_once(order.missing());
                        if number.0 == 0 {
                            rounds.data_first_ns[round] = first.time_ns;
                            rounds.data_first_frame[round] = first.frame;
                        }
                    }
                    rounds.bytes[round] = rounds.bytes[round].saturating_add(length);
                    rounds.data_pdu_count[round] += 1;
                    burst.remaining = burst.remaining.saturating_sub(length);
                    if bhs.is_final() == Some(true) || burst.remaining == 0 {
                        self.open_rounds.remove(place);
                    }
                } else {
                    self.note_unannounced(tag, number, length);
                }
            }
        }
        self.note_data(bhs, first, cycles.immediate_bytes[row], cycles);
        self.missing_data += missing.data_out;
        (burst_of, missing)
    }

    /// Notes a Data-Out whose R2T was not read so far.
    fn note_unannounced(&mut self, target_transfer_tag: Option<u32>, number: Option<SerialNumber>, bytes: u32) {
        self.has_missing_pdus = true;
        let next_data_sn = number.unwrap_or_default().next();
        let has_room = self.unannounced.len() < OPEN_ROUNDS_MAX;
        match self.unannounced.iter_mut().find(|burst| burst.target_transfer_tag == target_transfer_tag) {
            Some(burst) => {
                burst.next_data_sn = next_data_sn;
                burst.bytes = burst.bytes.saturating_add(bytes);
            }
            None if has_room => {
                self.unannounced.push(Unannounced { target_transfer_tag, next_data_sn, bytes });
            }
            None => {}
        }
    }

    /// Adds the header of a data PDU to the row; the first must start at `first_offset` of the buffer.
    fn note_data(&mut self, bhs: Bhs<'_>, first: Stamp, first_offset: u32, cycles: &mut Cycles) {
        let row = cycles.row(self.cycle);
        let length = bhs.data_segment_length().unwrap_or(0);
        if length == 0 {
            return;
        }
        if cycles.data_pdu_count[row] == 0 {
            cycles.data_pdu_bytes_min[row] = length;
            cycles.data_pdu_bytes_max[row] = length;
            let is_in_place = bhs.buffer_offset().is_none_or(|offset| offset == first_offset);
            let is_first = if self.is_bidirectional() {
                self.numbers.missing_of_either() == 0 && (is_in_place || self.is_data_in_any_order)
            } else {
                is_in_place || (self.is_data_in_any_order && bhs.data_sn() == Some(SerialNumber(0)))
            };
            if is_first {
                cycles.data_first_ns[row] = first.time_ns;
                cycles.data_first_frame.set(row, first.frame);
            } else {
                self.has_missing_pdus = true;
            }
        } else {
            cycles.data_pdu_bytes_min[row] = cycles.data_pdu_bytes_min[row].min(length);
            cycles.data_pdu_bytes_max[row] = cycles.data_pdu_bytes_max[row].max(length);
        }
        cycles.data_pdu_count[row] += 1;
        let is_second = self.is_bidirectional() && bhs.opcode() == Some(Opcode::DataOut);
        let new = bhs.buffer_offset().map_or(length, |offset| add_bytes(&mut self.buffer, is_second, offset, length));
        cycles.data_bytes[row] = cycles.data_bytes[row].saturating_add(new);
    }

    /// Whether its data came in too many parts to know which bytes came again.
    pub fn has_unknown_parts(&self) -> bool {
        self.buffer.has_given_up()
    }

    /// Notes a number; returns how many more PDUs of its kind are missing. Which kind a bidirectional command lacks is
    /// known at its end.
    fn advance(&mut self, counted: Counted, number: SerialNumber, is_out_of_order: &mut bool) -> i64 {
        let order = self.numbers.note(counted, number);
        *is_out_of_order = order.is_behind();
        let is_either = self.is_bidirectional() && !matches!(counted, Counted::Unsolicited);
        if is_either { 0 } else { at_once(order.missing()) }
    }

    /// Whether missing PDUs are counted.
    fn lacks_counted(&self) -> bool {
        self.missing_data > 0 || self.missing_r2t > 0
    }

    /// At its end, the numbers that a bidirectional command lacks: as many R2Ts as Data-Out show, the others Data-In.
    pub fn missing_numbers(&mut self) -> Missing {
        let count = if self.is_bidirectional() { self.numbers.missing_of_either() } else { 0 };
        let r2t = (self.unannounced.len() as i64 - self.missing_r2t).clamp(0, count);
        self.missing_r2t += r2t;
        self.missing_data += count - r2t;
        Missing { data_in: count - r2t, r2t, ..Missing::default() }
    }

    /// Processes the status, in a SCSI Response or the last Data-In: ends the task.
    pub fn status(&mut self, pdu: &Pdu<'_>, cycles: &mut Cycles) -> Missing {
        let bhs = pdu.bhs();
        let row = cycles.row(self.cycle);
        let is_in_data = bhs.opcode() == Some(Opcode::DataIn);
        note_flags(pdu, row, cycles);
        set_some(&mut cycles.status[row], bhs.status());
        set_some(&mut cycles.max_cmd_sn[row], bhs.max_cmd_sn().map(|number| number.0));
        set_some(&mut cycles.response[row], if is_in_data { Some(0) } else { bhs.response() });
        cycles.status_ns[row] = pdu.last.map_or(NULL_NS, |last| last.time_ns);
        cycles.status_frame.set(row, pdu.last.map_or(NULL_U64, |last| last.frame));
        cycles.is_status_in_data[row] = is_in_data;
        let residual = i64::from(bhs.residual_count().unwrap_or(0));
        if bhs.is_underflow() == Some(true) {
            cycles.residual_bytes.set(row, -residual);
        } else if bhs.is_overflow() == Some(true) {
            cycles.residual_bytes.set(row, residual);
        }
        if !is_in_data && let Some((sense_key, asc, ascq)) = sense(pdu.data) {
            cycles.sense_key.set(row, sense_key);
            cycles.asc.set(row, asc);
            cycles.ascq.set(row, ascq);
        }
        let is_good = bhs.status() == Some(0) && (is_in_data || bhs.response() == Some(0));
        // numbers after the last one seen, in a SCSI Response
        let counted = bhs.exp_data_sn().unwrap_or_default();
        let further = (is_good && !is_in_data).then(|| self.numbers.end_at(counted, self.is_bidirectional()));
        let numbers = self.missing_numbers();
        let at_end = self.missing_at_end(row, is_good, further, cycles);
        self.missing_data += at_end.data_in + at_end.data_out;
        if at_end.data_in + at_end.data_out > 0
            || further.unwrap_or(0).min(numbers.data_in) > 0
            || self.is_last_data_unknown
        {
            cycles.data_last_ns[row] = NULL_NS;
            cycles.data_last_frame.set(row, NULL_U64);
            cycles.data_acked_ns[row] = NULL_NS;
        }
        let missing = Missing { data_in: numbers.data_in + at_end.data_in, r2t: numbers.r2t + at_end.r2t, ..at_end };
        self.has_missing_pdus |= at_end.r2t > 0 || self.lacks_counted();
        cycles.has_capture_gap[row] |= self.has_missing_pdus;
        cycles.is_complete[row] = !self.has_missing_pdus && pdu.last.is_some();
        self.forget_uncertain_first(cycles);
        missing
    }

    /// Missing PDUs after the last one seen, according to the status; `further` numbers are those of its ExpDataSN, none
    /// without a SCSI Response of a command that went well.
    fn missing_at_end(&self, row: usize, is_good: bool, further: Option<i64>, cycles: &Cycles) -> Missing {
        let unannounced = self.unannounced.len() as i64;
        let mut missing = Missing { r2t: (unannounced - self.missing_r2t).max(0), ..Missing::default() };
        if is_good && self.is_bidirectional() {
            missing.data_out = self.missing_of_bursts(row, cycles);
        }
        let (Some(expected), Some(further)) = (self.expected_data_transfer_length, further) else { return missing };
        let underflow = if cycles.residual_bytes[row] < 0 { cycles.residual_bytes[row].unsigned_abs() } else { 0 };
        let lacking = u64::from(expected).saturating_sub(underflow).saturating_sub(u64::from(cycles.data_bytes[row]));
        let lacking_pdus = || (self.data_pdus(lacking, row, cycles) - self.missing_data).max(0);
        if self.is_read && !self.is_write {
            // ExpDataSN counts the Data-In PDUs (RFC 7143 section 11.4.8); for targets that leave it 0, the bytes count
            if further > 0 && lacking > 0 {
                missing.data_in = further;
            } else if lacking > 0 && self.transfers_all() {
                missing.data_in = lacking_pdus();
            }
        } else if self.is_write && lacking > 0 && self.transfers_all() {
            missing.data_out = lacking_pdus();
        }
        missing
    }

    /// Where data of a bidirectional command is missing, it may have been the first: no number orders Data-In and
    /// Data-Out.
    fn forget_uncertain_first(&self, cycles: &mut Cycles) {
        let is_uncertain = self.has_missing_pdus || self.lacks_counted() || !self.open_rounds.is_empty();
        if self.is_bidirectional() && is_uncertain {
            let row = cycles.row(self.cycle);
            cycles.data_first_ns[row] = NULL_NS;
            cycles.data_first_frame.set(row, NULL_U64);
        }
    }

    /// Data-Out that the bursts of its R2Ts lack.
    fn missing_of_bursts(&self, row: usize, cycles: &Cycles) -> i64 {
        let lacking = self.open_rounds.iter().map(|round| round.remaining);
        lacking
            .filter(|&bytes| bytes != NULL_U32 && bytes != 0)
            .map(|bytes| self.data_pdus(u64::from(bytes), row, cycles))
            .sum()
    }

    /// Whether a good status means that all bytes were transferred: other operations may have less to say. A command
    /// that was cut off before its operation is taken for a read or write. A bidirectional command has another length.
    fn transfers_all(&self) -> bool {
        !self.is_bidirectional() && matches!(self.operation, None | Some(Operation::Read | Operation::Write))
    }

    /// The number of data PDUs for that many bytes, by the largest size seen.
    fn data_pdus(&self, bytes: u64, row: usize, cycles: &Cycles) -> i64 {
        match cycles.data_pdu_bytes_max[row] {
            NULL_U32 | 0 => 1,
            size => bytes.div_ceil(u64::from(size)) as i64,
        }
    }

    /// Remaining bytes of the burst of an R2T; none if it is complete or unknown.
    pub fn remaining_of_burst(&self, target_transfer_tag: Option<u32>) -> Option<u32> {
        let round = self.open_rounds.iter().rfind(|round| Some(round.target_transfer_tag) == target_transfer_tag)?;
        Some(round.remaining)
    }

    /// The same for the burst of its last Data-Out.
    pub fn left_of_burst(&self) -> Option<u32> {
        self.remaining_of_burst(self.current_burst)
    }

    /// Notes a data PDU whose header was cut away. True if it was the last that the command expects.
    pub fn assume_data(&mut self, bytes: u32, first: Stamp, last: Stamp, cycles: &mut Cycles) -> bool {
        let row = cycles.row(self.cycle);
        if cycles.data_pdu_count[row] == 0 {
            cycles.data_first_ns[row] = first.time_ns;
            cycles.data_first_frame.set(row, first.frame);
        }
        if self.is_read && !self.is_write {
            self.numbers.pass(Counted::DataIn, 1);
        } else if self.current_burst == Some(RESERVED_TAG) {
            self.numbers.pass(Counted::Unsolicited, 1);
        } else if let Some(place) =
            self.open_rounds.iter().rposition(|burst| Some(burst.target_transfer_tag) == self.current_burst)
        {
            let burst = &mut self.open_rounds[place];
            burst.data_out.pass(1);
            burst.remaining = burst.remaining.saturating_sub(bytes);
            if burst.remaining == 0 {
                self.open_rounds.remove(place);
            }
        }
        cycles.data_pdu_count[row] += 1;
        self.buffer.pass(bytes);
        cycles.data_bytes[row] = cycles.data_bytes[row].saturating_add(bytes);
        cycles.data_last_ns[row] = last.time_ns;
        cycles.data_last_frame.set(row, last.frame);
        cycles.has_capture_gap[row] = true;
        self.is_last_data_unknown = false;
        self.has_missing_pdus = true;
        !self.has_room_for(false, cycles.data_bytes[row], 1)
    }

    /// Notes a status whose header was cut away, with the packet at `stamp`: the task ended, but its result is unknown.
    pub fn assume_status(self, place: Option<Stamp>, is_in_data: bool, cycles: &mut Cycles) {
        let row = cycles.row(self.cycle);
        cycles.status_ns[row] = place.map_or(NULL_NS, |place| place.time_ns);
        cycles.status_frame.set(row, place.map_or(NULL_U64, |place| place.frame));
        cycles.is_status_in_data[row] = is_in_data;
        cycles.has_capture_gap[row] = true;
    }

    /// Ends the task without a status; returns about how many of its data PDUs are missing.
    pub fn abandon(&mut self, cycles: &mut Cycles) -> i64 {
        let row = cycles.row(self.cycle);
        cycles.is_complete[row] = false;
        self.forget_uncertain_first(cycles);
        if self.is_last_data_unknown {
            cycles.data_last_ns[row] = NULL_NS;
            cycles.data_last_frame.set(row, NULL_U64);
        }
        let expected = u64::from(self.expected_data_transfer_length.unwrap_or(0));
        let lacking = expected.saturating_sub(u64::from(cycles.data_bytes[row]));
        if lacking == 0 || !self.transfers_all() {
            return 0;
        }
        let missing = (self.data_pdus(lacking, row, cycles) - self.missing_data).max(0);
        self.missing_data += missing;
        missing
    }

    /// Data bytes of each of its data PDUs that are missing, by the largest one seen, where they do not follow from its
    /// length: [`Task::lacking_bytes`].
    pub fn missing_size(&self, cycles: &Cycles) -> i64 {
        match cycles.data_pdu_bytes_max[cycles.row(self.cycle)] {
            size if size != NULL_U32 && !self.transfers_all() => size.into(),
            _ => 0,
        }
    }

    /// Its data bytes that are missing, after its end; 0 where a good status does not mean that all were transferred.
    pub fn lacking_bytes(&self, cycles: &Cycles) -> i64 {
        let row = cycles.row(self.cycle);
        if !self.transfers_all() {
            return 0;
        }
        let residual = (-cycles.residual_bytes[row]).max(0);
        let expected = i64::from(self.expected_data_transfer_length.unwrap_or(0));
        (expected - residual - i64::from(cycles.data_bytes[row])).max(0)
    }
}

/// The number of a PDU, unless it is numbered in a burst.
fn counted(bhs: Bhs<'_>) -> Option<(Counted, SerialNumber)> {
    match bhs.opcode()? {
        Opcode::DataIn => Some((Counted::DataIn, bhs.data_sn()?)),
        Opcode::ReadyToTransfer => Some((Counted::R2t, bhs.r2t_sn()?)),
        Opcode::DataOut if bhs.target_transfer_tag() == Some(RESERVED_TAG) => {
            Some((Counted::Unsolicited, bhs.data_sn()?))
        }
        _ => None,
    }
}

/// Adds the bytes at an offset of the buffer, of the write buffer of a bidirectional command if `is_second`; returns how many
/// of them are new.
#[inline]
fn add_bytes(buffer: &mut Ranges, is_second: bool, offset: u32, length: u32) -> u32 {
    let start = i64::from(offset) + if is_second { WRITE_BUFFER_AT } else { 0 };
    buffer.add(start, start + i64::from(length), &ranges::DATA) as u32
}

/// The bytes that a bidirectional command wrote so far.
fn written_bytes(row: usize, cycles: &Cycles) -> u32 {
    let parts = [&cycles.immediate_bytes, &cycles.unsolicited_bytes, &cycles.solicited_bytes];
    parts.iter().fold(0_u32, |bytes, part| bytes.saturating_add(part[row]))
}
