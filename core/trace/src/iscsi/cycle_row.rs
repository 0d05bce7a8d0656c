//! What single PDUs and the end of a command write into the rows of `cycles` and `rounds`.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::cdb::Cdb;
use iscsitrace_wire::lun;
use iscsitrace_wire::sense::SenseCodes;
use serde::{Deserialize, Serialize};

use super::pdu::Pdu;
use crate::stream::stamp::Stamp;
use crate::tables::{CycleId, CycleRow, Cycles, NULL_NS, NULL_U8, NULL_U64, RoundId, Rounds, ended_by};

/// The burst of a Data-Out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataOutBurst {
    /// Unsolicited: without R2T.
    Unsolicited,
    /// For this R2T.
    Round(RoundId),
    /// For an R2T that was not captured.
    Unknown,
}

impl Cycles {
    /// Notes when a command ended, and what ended it: a code of `ended_by`. No command ends before it begins, though several
    /// capture queues may date its status so.
    #[inline]
    pub(crate) fn end(&mut self, row: usize, end_ns: i64, by: u8) {
        let (Some(own_ns), Some(own_by)) = (self.end_ns.get_mut(row), self.ended_by.get_mut(row)) else { return };
        let had_ended = *own_by != NULL_U8;
        let begun_ns = self.command_first_ns[row];
        (*own_ns, *own_by) = (if end_ns == NULL_NS { NULL_NS } else { end_ns.max(begun_ns) }, by);
        if had_ended || by != ended_by::STATUS {
            self.note_ended(row);
        }
    }

    /// Sets what of a row follows from the way in which its command ended.
    pub(super) fn note_ended(&mut self, row: usize) {
        let by = self.ended_by[row];
        let has_no_status = !matches!(by, ended_by::STATUS | ended_by::CAPTURE_END | NULL_U8);
        self.is_aborted[row] = matches!(by, ended_by::ABORT | ended_by::RESET);
        self.is_lost[row] = has_no_status && !self.has_capture_gap[row];
    }

    /// Whether a command is in flight, as far as was read.
    #[inline]
    pub fn is_in_flight(&self, row: usize) -> bool {
        self.end_ns.get(row) == Some(&NULL_NS)
    }

    /// Until when a command is in flight: for ever, while its end is not known.
    #[inline]
    pub(crate) fn in_flight_until_ns(&self, row: usize) -> i64 {
        self.end_ns.get(row).copied().filter(|&end_ns| end_ns != NULL_NS).unwrap_or(i64::MAX)
    }
}

/// Adds the row of a command, from its header.
pub(super) fn open_row(
    bhs: Bhs<'_>,
    tag: u32,
    first: Stamp,
    connection: u32,
    session: u32,
    decoded: Option<&Cdb>,
    cycles: &mut Cycles,
) {
    let immediate_bytes = bhs.data_segment_length().unwrap_or(0);
    let mut row = CycleRow {
        cycle: cycles.next_id().number(),
        session,
        connection,
        initiator_task_tag: tag,
        is_read: bhs.is_read().unwrap_or(false),
        is_write: bhs.is_write().unwrap_or(false),
        data_bytes: immediate_bytes,
        command_first_ns: first.time_ns,
        immediate_bytes,
        command_frame: first.frame,
        ..CycleRow::default()
    };
    set_some(&mut row.lun, bhs.lun().map(lun::number));
    set_some(&mut row.cmd_sn, bhs.cmd_sn().map(|number| number.0));
    set_some(&mut row.bytes, bhs.expected_data_transfer_length());
    set_some(&mut row.cdb_opcode, bhs.cdb().map(|cdb| cdb[0]));
    set_some(&mut row.operation, decoded.map(|decoded| decoded.operation as u8));
    set_some(&mut row.service_action, decoded.and_then(|decoded| decoded.service_action));
    set_some(&mut row.reservation_type, decoded.and_then(|decoded| decoded.reservation_type));
    set_some(&mut row.lba, decoded.and_then(|decoded| decoded.lba));
    set_some(&mut row.block_count, decoded.and_then(|decoded| decoded.block_count));
    cycles.push(row);
}

/// Notes that the SCSI Command PDU is complete; its task may have ended already.
pub(super) fn complete_command(pdu: &Pdu<'_>, cycle: CycleId, cycles: &mut Cycles) {
    let row = cycles.row(cycle);
    note_flags(pdu, row, cycles);
    cycles.command_last_ns[row] = pdu.last.map_or(NULL_NS, |last| last.time_ns);
}

/// Notes that the Data-Out PDU is complete; its task may have ended already.
pub(super) fn complete_data_out(
    pdu: &Pdu<'_>,
    cycle: CycleId,
    burst: DataOutBurst,
    cycles: &mut Cycles,
    rounds: &mut Rounds,
) {
    let row = cycles.row(cycle);
    note_flags(pdu, row, cycles);
    note_data_last(pdu, row, cycles);
    let last_ns = pdu.last.map_or(NULL_NS, |last| last.time_ns);
    match burst {
        DataOutBurst::Round(round) => {
            let round = rounds.row(round);
            rounds.data_last_ns[round] = last_ns;
            rounds.data_last_frame[round] = pdu.last.map_or(NULL_U64, |last| last.frame);
        }
        DataOutBurst::Unsolicited => {
            let latest_ns = &mut cycles.unsolicited_last_ns[row];
            *latest_ns = if last_ns == NULL_NS { NULL_NS } else { last_ns.max(*latest_ns) };
        }
        DataOutBurst::Unknown => {}
    }
}

/// The last data is the latest to be complete; unknown if the end of the last PDU is.
pub(super) fn note_data_last(pdu: &Pdu<'_>, row: usize, cycles: &mut Cycles) {
    if pdu.bhs().data_segment_length().unwrap_or(0) == 0 {
        return;
    }
    match pdu.last {
        Some(last) if last.time_ns >= cycles.data_last_ns[row] => {
            cycles.data_last_ns[row] = last.time_ns;
            cycles.data_last_frame.set(row, last.frame);
        }
        Some(_) => {}
        None => {
            cycles.data_last_ns[row] = NULL_NS;
            cycles.data_last_frame.set(row, NULL_U64);
        }
    }
}

pub(super) fn note_flags(pdu: &Pdu<'_>, row: usize, cycles: &mut Cycles) {
    cycles.has_capture_gap[row] |= pdu.has_capture_gap;
    cycles.has_retransmission[row] |= pdu.is_late;
}

pub(super) fn set_some<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// Sense key, additional sense code and qualifier from the data of a SCSI Response: SenseLength, then fixed or
/// descriptor format (RFC 7143 section 11.4.7.2, SPC-4 section 4.5). Code and qualifier are null where the sense data, or
/// what was captured of it, ends before them.
pub(super) fn sense(data: &[u8]) -> Option<(u8, u8, u8)> {
    let length = u16::from_be_bytes([*data.first()?, *data.get(1)?]);
    let sense = data.get(2..)?;
    let sense = sense.get(..usize::from(length)).unwrap_or(sense);
    let codes = SenseCodes::read(sense)?;
    Some((codes.key as u8, codes.code.unwrap_or(NULL_U8), codes.qualifier.unwrap_or(NULL_U8)))
}
