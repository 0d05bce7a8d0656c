//! The row of a PDU in the table `pdus`.

use iscsitrace_wire::lun;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::pdu::Pdu;
use crate::tables::{NULL_U8, NULL_U32, PduRow};

/// The row of a PDU. Missing header fields are 0, and masked later by opcode and header bytes.
pub(super) fn row(pdu: &Pdu<'_>, opcode: Opcode, connection: u32, to_target: bool, cycle: Option<u32>) -> PduRow {
    let bhs = pdu.bhs();
    let number = |number: Option<SerialNumber>| number.map_or(0, |number| number.0);
    let verdict = |ok: Option<bool>| ok.map_or(NULL_U8, u8::from);
    let has_status = opcode == Opcode::ScsiResponse || bhs.has_status() == Some(true);
    let mut row = PduRow {
        connection,
        to_target,
        frame_first: pdu.first.frame,
        time_first_ns: pdu.first.time_ns,
        stream_offset_bytes: pdu.offset,
        header_bytes: pdu.header.len() as u8,
        opcode: opcode.as_u8(),
        is_immediate: bhs.is_immediate() == Some(true),
        is_final: bhs.is_final() == Some(true),
        has_status,
        has_capture_gap: pdu.has_capture_gap,
        initiator_task_tag: bhs.initiator_task_tag().unwrap_or(0),
        target_transfer_tag: bhs.target_transfer_tag().unwrap_or(0),
        cmd_sn: number(bhs.cmd_sn()),
        stat_sn: number(bhs.stat_sn()),
        exp_stat_sn: number(bhs.exp_stat_sn()),
        exp_cmd_sn: number(bhs.exp_cmd_sn()),
        max_cmd_sn: number(bhs.max_cmd_sn()),
        data_sn: number(bhs.data_sn()),
        buffer_offset: bhs.buffer_offset().unwrap_or(0),
        data_segment_length: bhs.data_segment_length().unwrap_or(0),
        expected_data_transfer_length: bhs
            .expected_data_transfer_length()
            .or(bhs.desired_data_transfer_length())
            .unwrap_or(0),
        status: bhs.status().filter(|_| has_status).unwrap_or(NULL_U8),
        header_digest_ok: verdict(pdu.header_digest_ok),
        data_digest_ok: verdict(pdu.data_digest_ok),
        cycle: cycle.unwrap_or(NULL_U32),
        ..PduRow::default()
    };
    if let Some(lun) = bhs.lun() {
        row.lun = lun::number(lun);
    }
    if let Some(last) = pdu.last {
        row.frame_last = last.frame;
        // no span ends before it begins, even if the clock was set back
        row.time_last_ns = last.time_ns.max(row.time_first_ns);
    }
    row
}
