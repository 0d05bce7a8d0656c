//! SCSI commands: their rows, their rounds, and the rows of their PDUs.

use crate::conformance::rules::Rule;
use iscsitrace_wire::cdb::Operation;

use super::*;
use crate::tables::{CycleRow, Cycles, NULL_U32, PduRow, Pdus, Round, Rounds, WriteStart, WriteStarts, ended_by};

/// Payload bytes before the first command, headers and padding included.
const LOGIN_TO_TARGET: i64 = 48 + 72;
const LOGIN_TO_INITIATOR: i64 = 48 + 76;

/// A read of two Data-In and a SCSI Response, then one with the status in its short Data-In: frames 8 to 19.
fn reads() -> Talk {
    let mut talk = Talk::login();
    talk.send(true, read(0x30, 100), &[]);
    talk.send(false, numbered(data_in(0x30, 0, 0), None, 101), &[1; 3072]);
    talk.send(false, numbered(data_in(0x30, 1, 3072).is_final(true), None, 101), &[2; 1024]);
    talk.send(false, response(0x30, 501, 101, 2), &[]);
    talk.send(true, read(0x31, 101), &[]);
    let header = data_in(0x31, 0, 0).is_final(true).has_status(true).is_underflow(true).residual_count(3072);
    talk.send(false, numbered(header, Some(502), 102), &[3; 1024]);
    talk.packet(true, 0x10, &[]);
    talk
}

fn read_row() -> CycleRow {
    CycleRow {
        cycle: 0,
        session: 0,
        connection: CONNECTION,
        lun: 3,
        initiator_task_tag: 0x30,
        cmd_sn: 100,
        // ExpCmdSN 101, and 32 commands from there on
        max_cmd_sn: 132,
        operation: Operation::Read as u8,
        cdb_opcode: 0x28,
        is_read: true,
        lba: 0x1234,
        block_count: 8,
        bytes: 4096,
        data_bytes: 4096,
        command_first_ns: at(8),
        command_last_ns: at(9),
        data_first_ns: at(10),
        data_last_ns: at(13),
        data_acked_ns: at(16),
        status_ns: at(15),
        end_ns: at(15),
        ended_by: ended_by::STATUS,
        next_command_ns: at(16),
        // a microsecond apart, all packets are one burst
        idle_ns: 0,
        queue_depth: 1,
        data_pdu_count: 2,
        data_pdu_bytes_min: 1024,
        data_pdu_bytes_max: 3072,
        // the first packet of each PDU ends in its header
        data_packet_count: 2,
        status: 0,
        response: 0,
        residual_bytes: 0,
        command_frame: 8,
        data_first_frame: 10,
        data_last_frame: 13,
        status_frame: 15,
        is_complete: true,
        ..CycleRow::default()
    }
}

#[test]
fn a_read_has_its_data_and_its_status() {
    let short = CycleRow {
        cycle: 1,
        initiator_task_tag: 0x31,
        cmd_sn: 101,
        max_cmd_sn: 133,
        data_bytes: 1024,
        command_first_ns: at(16),
        command_last_ns: at(17),
        data_first_ns: at(18),
        data_last_ns: at(19),
        data_acked_ns: at(20),
        status_ns: at(19),
        end_ns: at(19),
        next_command_ns: i64::MIN,
        data_pdu_count: 1,
        data_pdu_bytes_max: 1024,
        data_packet_count: 1,
        residual_bytes: -3072,
        command_frame: 16,
        data_first_frame: 18,
        data_last_frame: 19,
        status_frame: 19,
        is_status_in_data: true,
        ..read_row()
    };
    let tables = reads().finish();
    assert_eq!(tables.cycles, Cycles::of([read_row(), short]));
    let sessions = &tables.sessions;
    assert_eq!((sessions.cycle_count[0], sessions.read_bytes[0], sessions.write_bytes[0]), (2, 5120, 0));
    assert_eq!(sessions.queue_depth_max, [1]);
}

/// A write of 1024 immediate, 1024 unsolicited, 4096 and 6144 solicited bytes, which fails: frames 8 to 23.
fn write() -> Talk {
    let mut talk = Talk::login();
    let command = command(0x32, 100, 12_288, &[0x2a, 0, 0, 0, 0, 9, 0, 0, 24, 0]).is_write(true).is_final(false);
    talk.send(true, command, &[1; 1024]);
    let data_out = |target_transfer_tag, data_sn, buffer_offset| {
        BhsBuilder::new(Opcode::DataOut)
            .initiator_task_tag(0x32)
            .target_transfer_tag(target_transfer_tag)
            .exp_stat_sn(SerialNumber(501))
            .data_sn(SerialNumber(data_sn))
            .buffer_offset(buffer_offset)
    };
    let r2t = |target_transfer_tag, r2t_sn, buffer_offset, bytes| {
        let header = BhsBuilder::new(Opcode::ReadyToTransfer)
            .lun([0, 3, 0, 0, 0, 0, 0, 0])
            .initiator_task_tag(0x32)
            .target_transfer_tag(target_transfer_tag)
            .r2t_sn(SerialNumber(r2t_sn))
            .buffer_offset(buffer_offset)
            .desired_data_transfer_length(bytes);
        numbered(header, Some(501), 101)
    };
    talk.send(true, data_out(RESERVED_TAG, 0, 1024).is_final(true), &[2; 1024]);
    talk.send(false, r2t(0x70, 0, 2048, 4096), &[]);
    talk.send(true, data_out(0x70, 0, 2048).lun([0, 3, 0, 0, 0, 0, 0, 0]), &[3; 2048]);
    talk.send(true, data_out(0x70, 1, 4096).is_final(true), &[4; 2048]);
    talk.send(false, r2t(0x71, 1, 6144, 6144), &[]);
    talk.send(true, data_out(0x71, 0, 6144).is_final(true), &[5; 6144]);
    // SenseLength 18; fixed format, MEDIUM ERROR, WRITE ERROR - AUTO REALLOCATION FAILED (0x0c, 2)
    let mut sense = [0; 20];
    (sense[1], sense[2], sense[4], sense[14], sense[15]) = (18, 0x70, 3, 0x0c, 2);
    talk.send(false, response(0x32, 501, 101, 2).status(2).is_overflow(true).residual_count(512), &sense);
    talk
}

#[test]
fn a_write_has_its_immediate_unsolicited_and_solicited_data() {
    let row = CycleRow {
        cycle: 0,
        session: 0,
        connection: CONNECTION,
        lun: 3,
        initiator_task_tag: 0x32,
        cmd_sn: 100,
        max_cmd_sn: 132,
        operation: Operation::Write as u8,
        cdb_opcode: 0x2a,
        is_write: true,
        lba: 9,
        block_count: 24,
        bytes: 12_288,
        data_bytes: 12_288,
        command_first_ns: at(8),
        command_last_ns: at(9),
        r2t_first_ns: at(13),
        data_first_ns: at(10),
        data_last_ns: at(21),
        unsolicited_last_ns: at(11),
        data_acked_ns: at(22),
        status_ns: at(23),
        end_ns: at(23),
        ended_by: ended_by::STATUS,
        idle_ns: 0,
        queue_depth: 1,
        data_pdu_count: 4,
        data_pdu_bytes_min: 1024,
        data_pdu_bytes_max: 6144,
        data_packet_count: 5,
        r2t_count: 2,
        immediate_bytes: 1024,
        unsolicited_bytes: 1024,
        solicited_bytes: 10_240,
        status: 2,
        response: 0,
        residual_bytes: 512,
        sense_key: 3,
        asc: 0x0c,
        ascq: 2,
        command_frame: 8,
        data_first_frame: 10,
        data_last_frame: 21,
        status_frame: 23,
        is_complete: true,
        ..CycleRow::default()
    };
    let tables = write().finish();
    assert_eq!(tables.cycles, Cycles::of([row]));
    assert_eq!((tables.sessions.read_bytes[0], tables.sessions.write_bytes[0]), (0, 12_288));
    let check_conditions = tables.counters.name.iter().filter(|name| *name == "check_condition");
    assert_eq!(check_conditions.count(), 1);
}

#[test]
fn each_r2t_and_its_burst_are_one_round() {
    let first = Round {
        cycle: 0,
        r2t_sn: 0,
        target_transfer_tag: 0x70,
        buffer_offset: 2048,
        desired_data_transfer_length: 4096,
        bytes: 4096,
        data_pdu_count: 2,
        r2t_ns: at(13),
        data_first_ns: at(14),
        data_last_ns: at(17),
        r2t_frame: 13,
        data_first_frame: 14,
        data_last_frame: 17,
    };
    let second = Round {
        cycle: 0,
        r2t_sn: 1,
        target_transfer_tag: 0x71,
        buffer_offset: 6144,
        desired_data_transfer_length: 6144,
        bytes: 6144,
        data_pdu_count: 1,
        r2t_ns: at(19),
        data_first_ns: at(20),
        data_last_ns: at(21),
        r2t_frame: 19,
        data_first_frame: 20,
        data_last_frame: 21,
    };
    assert_eq!(write().finish().rounds, Rounds::of([first, second]));
}

#[test]
fn the_start_of_a_write_is_the_first_64_bytes_of_its_immediate_data() {
    let row = WriteStart { cycle: 0, bytes: 64, crc32c: iscsitrace_wire::digest::crc32c(&[1; 64]) };
    assert_eq!(write().finish().write_starts, WriteStarts::of([row]));
}

fn pdu(frame_first: u64, to_target: bool, stream_offset_bytes: i64, opcode: Opcode) -> PduRow {
    PduRow {
        connection: CONNECTION,
        to_target,
        frame_first,
        frame_last: frame_first + 1,
        time_first_ns: at(frame_first),
        time_last_ns: at(frame_first + 1),
        stream_offset_bytes,
        opcode: opcode.as_u8(),
        ..PduRow::default()
    }
}

/// The rows of the PDUs whose first frame is one of these.
fn rows(pdus: &Pdus, frames: &[u64]) -> Pdus {
    let places = frames.iter().map(|frame| pdus.frame_first.iter().position(|first| first == frame).expect("a PDU"));
    let mut rows = Pdus::default();
    rows.copy_rows(pdus, &places.collect::<Vec<_>>());
    rows
}

#[test]
fn the_row_of_a_pdu_has_the_fields_of_its_header() {
    let pdus = write().finish().pdus;
    let login = PduRow {
        is_immediate: true,
        initiator_task_tag: 1,
        cmd_sn: 100,
        data_segment_length: 70,
        ..pdu(4, true, 0, Opcode::LoginRequest)
    };
    let command = PduRow {
        lun: 3,
        initiator_task_tag: 0x32,
        cmd_sn: 100,
        exp_stat_sn: 501,
        data_segment_length: 1024,
        expected_data_transfer_length: 12_288,
        cycle: 0,
        ..pdu(8, true, LOGIN_TO_TARGET, Opcode::ScsiCommand)
    };
    let unsolicited = PduRow {
        is_final: true,
        initiator_task_tag: 0x32,
        target_transfer_tag: RESERVED_TAG,
        exp_stat_sn: 501,
        data_sn: 0,
        buffer_offset: 1024,
        data_segment_length: 1024,
        cycle: 0,
        ..pdu(10, true, LOGIN_TO_TARGET + 48 + 1024, Opcode::DataOut)
    };
    let r2t = PduRow {
        is_final: true,
        lun: 3,
        initiator_task_tag: 0x32,
        target_transfer_tag: 0x71,
        stat_sn: 501,
        exp_cmd_sn: 101,
        max_cmd_sn: 132,
        data_sn: 1,
        buffer_offset: 6144,
        expected_data_transfer_length: 6144,
        cycle: 0,
        ..pdu(18, false, LOGIN_TO_INITIATOR + 48, Opcode::ReadyToTransfer)
    };
    let response = PduRow {
        is_final: true,
        has_status: true,
        initiator_task_tag: 0x32,
        stat_sn: 501,
        exp_cmd_sn: 101,
        max_cmd_sn: 132,
        data_segment_length: 20,
        status: 2,
        cycle: 0,
        ..pdu(22, false, LOGIN_TO_INITIATOR + 2 * 48, Opcode::ScsiResponse)
    };
    assert_eq!(rows(&pdus, &[4, 8, 10, 18, 22]), Pdus::of([login, command, unsolicited, r2t, response]));
}

#[test]
fn a_data_in_has_a_status_only_with_the_s_bit() {
    let pdus = reads().finish().pdus;
    let data = PduRow {
        is_final: true,
        initiator_task_tag: 0x30,
        target_transfer_tag: RESERVED_TAG,
        exp_cmd_sn: 101,
        max_cmd_sn: 132,
        data_sn: 1,
        buffer_offset: 3072,
        data_segment_length: 1024,
        cycle: 0,
        ..pdu(12, false, LOGIN_TO_INITIATOR + 48 + 3072, Opcode::DataIn)
    };
    let with_status = PduRow {
        has_status: true,
        initiator_task_tag: 0x31,
        stat_sn: 502,
        exp_cmd_sn: 102,
        max_cmd_sn: 133,
        data_sn: 0,
        buffer_offset: 0,
        status: 0,
        cycle: 1,
        ..data.clone()
    };
    let place = pdu(18, false, LOGIN_TO_INITIATOR + 3 * 48 + 4096, Opcode::DataIn);
    let with_status = PduRow {
        frame_first: place.frame_first,
        frame_last: place.frame_last,
        time_first_ns: place.time_first_ns,
        time_last_ns: place.time_last_ns,
        stream_offset_bytes: place.stream_offset_bytes,
        ..with_status
    };
    assert_eq!(rows(&pdus, &[12, 18]), Pdus::of([data, with_status]));
}

#[test]
fn a_pdu_of_no_command_breaks_a_rule_and_has_no_row_of_a_cycle() {
    let mut talk = Talk::login();
    talk.send(false, numbered(data_in(0x99, 0, 0).is_final(true), None, 100), &[1; 512]);
    let tables = talk.finish();
    assert_eq!(tables.cycles, Cycles::default());
    assert_eq!(tables.pdus.cycle, [NULL_U32; 3]);
    // nothing is missing: no command has its tag
    assert!(!tables.counters.name.iter().any(|name| name == "pdu_without_task"));
    assert_eq!(tables.violations.rule, [Rule::T2 as u8]);
}

#[test]
fn an_r2t_belongs_to_its_command_among_several() {
    let mut talk = Talk::login();
    talk.send(true, read(0x30, 100), &[]);
    talk.send(true, command(0x32, 101, 4096, &[0x2a, 0, 0, 0, 0, 9, 0, 0, 8, 0]).is_write(true), &[7; 512]);
    let r2t = BhsBuilder::new(Opcode::ReadyToTransfer)
        .initiator_task_tag(0x32)
        .target_transfer_tag(0x70)
        .buffer_offset(512)
        .desired_data_transfer_length(3584);
    talk.send(false, numbered(r2t, Some(501), 102), &[]);
    let tables = talk.finish();
    let round = Round {
        cycle: 1,
        r2t_sn: 0,
        target_transfer_tag: 0x70,
        buffer_offset: 512,
        desired_data_transfer_length: 3584,
        r2t_ns: at(13),
        r2t_frame: 13,
        ..Round::default()
    };
    assert_eq!(tables.rounds, Rounds::of([round]));
    assert_eq!((&tables.cycles.cycle[..], &tables.cycles.r2t_count[..]), (&[0, 1][..], &[0, 1][..]));
    assert_eq!((&tables.write_starts.cycle[..], &tables.pdus.cycle[2..]), (&[1][..], &[0, 1, 1][..]));
    assert_eq!(tables.cycles.queue_depth, [1, 2]);
    // both are in flight at the end of the capture
    assert_eq!(counted(&tables, "cycle_incomplete"), 2);
}

#[test]
fn a_data_segment_longer_than_declared_is_counted() {
    for (declared, is_too_long) in [(3072, 0), (3071, 1)] {
        let mut talk = Talk::connect();
        let text = format!("{REQUESTED}MaxRecvDataSegmentLength={declared}\0");
        talk.send(true, login_request(1, 3), text.as_bytes());
        talk.send(false, login_response(1, 3), ANSWERED.as_bytes());
        talk.send(true, read(0x30, 100), &[]);
        talk.send(false, numbered(data_in(0x30, 0, 0), None, 101), &[1; 3072]);
        assert_eq!(counted(&talk.finish(), "data_segment_too_long"), is_too_long, "declared {declared}");
    }
}

#[test]
fn a_connection_without_pdus_makes_no_session() {
    assert_eq!(Talk::connect().finish().sessions.session, []);
}
