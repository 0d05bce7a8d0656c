//! How commands end, with a status and without one: each way, and what is nearly one.

use super::*;
use crate::tables::{Cycles, NULL_NS, NULL_U8, ended_by::*};

const TAG: u32 = 0x30;
const OTHER: u32 = 0x31;
const LUN_3: [u8; 8] = [0, 3, 0, 0, 0, 0, 0, 0];
const LUN_4: [u8; 8] = [0, 4, 0, 0, 0, 0, 0, 0];
const FIN: u8 = 0x11;
const RST: u8 = 0x14;
const ABORT_TASK: u8 = 1;
const LOGICAL_UNIT_RESET: u8 = 5;
const TASK_REASSIGN: u8 = 8;
const COMPLETE: u8 = 0;
const DOES_NOT_EXIST: u8 = 1;
const REJECTED_FUNCTION: u8 = 255;
const SECOND_PORT: u16 = 50_001;

/// A read with CmdSN 100 in frames 8 and 9.
fn one_in_flight() -> Talk {
    let mut talk = Talk::login();
    talk.send(true, read(TAG, 100), &[]);
    talk
}

/// The same, and another with CmdSN 101 in frames 10 and 11.
fn two_in_flight() -> Talk {
    let mut talk = one_in_flight();
    talk.send(true, read(OTHER, 101), &[]);
    talk
}

/// Task management about a task, and its response with this ExpCmdSN.
fn manage(talk: &mut Talk, function: u8, lun: [u8; 8], referenced: u32, response: u8, exp_cmd_sn: u32) {
    request(talk, function, lun, referenced);
    respond(talk, response, exp_cmd_sn);
}

fn request(talk: &mut Talk, function: u8, lun: [u8; 8], referenced: u32) {
    let header = BhsBuilder::new(Opcode::TaskManagementRequest).is_immediate(true).function(function).lun(lun);
    let header = header.initiator_task_tag(0x40).referenced_task_tag(referenced);
    talk.send(true, header.cmd_sn(SerialNumber(102)).exp_stat_sn(SerialNumber(501)), &[]);
}

fn respond(talk: &mut Talk, response: u8, exp_cmd_sn: u32) {
    let header = BhsBuilder::new(Opcode::TaskManagementResponse).initiator_task_tag(0x40).response(response);
    talk.send(false, numbered(header, Some(501), exp_cmd_sn), &[]);
}

fn log_out(talk: &mut Talk, reason: u8, cid: u16, response: u8) {
    let header = BhsBuilder::new(Opcode::LogoutRequest).logout_reason(reason).initiator_task_tag(0x60).cid(cid);
    talk.send(true, header.cmd_sn(SerialNumber(102)).exp_stat_sn(SerialNumber(501)), &[]);
    let header = BhsBuilder::new(Opcode::LogoutResponse).initiator_task_tag(0x60).response(response);
    talk.send(false, numbered(header, Some(501), 102), &[]);
}

/// Goes on with another connection, whose handshake takes three frames and whose login four; returns the first one.
fn second_connection(talk: &mut Talk, login: BhsBuilder) -> (u16, [u32; 2]) {
    let first = (std::mem::replace(&mut talk.port, SECOND_PORT), std::mem::take(&mut talk.sent));
    talk.packet(true, 0x02, &[]);
    talk.packet(false, 0x12, &[]);
    talk.packet(true, 0x10, &[]);
    talk.send(true, login, REQUESTED.as_bytes());
    talk.send(false, login_response(1, 3), ANSWERED.as_bytes());
    first
}

fn join(cid: u16) -> BhsBuilder {
    login_request(1, 3).tsih(0x0102).cid(cid)
}

/// End (its frame), what it was, and whether the command is lost: of each command.
fn ends(cycles: &Cycles) -> Vec<(i64, u8, bool)> {
    for row in 0..cycles.end_ns.len() {
        assert_eq!(cycles.is_aborted[row], matches!(cycles.ended_by[row], ABORT | RESET));
    }
    let ends = cycles.end_ns.iter().map(|end_ns| end_ns / 1000);
    ends.zip(&cycles.ended_by).zip(&cycles.is_lost).map(|((end, &by), &is_lost)| (end, by, is_lost)).collect()
}

fn of(talk: Talk) -> Vec<(i64, u8, bool)> {
    let tables = talk.finish();
    let ends = ends(&tables.cycles);
    // the capture lacks nothing of a command that something else ended
    let is_lacking = ends
        .iter()
        .zip(&tables.cycles.status_ns)
        .filter(|&(&(_, by, _), &status_ns)| by == CAPTURE_END || (by == STATUS && status_ns == NULL_NS));
    assert_eq!(counted(&tables, "cycle_incomplete"), is_lacking.count() as u64);
    ends
}

#[test]
fn a_status_ends_its_command_and_no_other() {
    let mut talk = two_in_flight();
    talk.send(false, response(TAG, 501, 102, 0), &[]);
    assert_eq!(of(talk), [(13, STATUS, false), (13, CAPTURE_END, false)]);
}

#[test]
fn what_is_in_flight_at_the_end_ends_with_the_last_packet_of_its_connection() {
    let mut talk = one_in_flight();
    talk.packet(false, 0x10, &[]);
    second_connection(&mut talk, login_request(1, 3).isid([9; 6]));
    assert_eq!(of(talk), [(10, CAPTURE_END, false)]);
}

#[test]
fn a_live_pass_knows_no_end_of_what_is_in_flight() {
    let talk = one_in_flight();
    let cycles = talk.pipeline.cycles();
    assert_eq!((cycles.is_in_flight(0), cycles.end_ns[0], cycles.ended_by[0]), (true, i64::MIN, NULL_U8));
}

#[test]
fn an_abort_that_is_completed_ends_its_task() {
    let mut talk = two_in_flight();
    manage(&mut talk, ABORT_TASK, LUN_3, OTHER, COMPLETE, 102);
    talk.packet(true, 0x10, &[]);
    let tables = talk.finish();
    assert_eq!(ends(&tables.cycles), [(16, CAPTURE_END, false), (15, ABORT, true)]);
    assert_eq!(counted(&tables, "task_aborted"), 1);
    for response in 2..=REJECTED_FUNCTION {
        let mut talk = two_in_flight();
        manage(&mut talk, ABORT_TASK, LUN_3, OTHER, response, 102);
        assert_eq!(of(talk), [(15, CAPTURE_END, false); 2], "response {response}");
    }
    let mut without_response = two_in_flight();
    request(&mut without_response, ABORT_TASK, LUN_3, OTHER);
    assert_eq!(of(without_response), [(13, CAPTURE_END, false); 2]);
}

#[test]
fn a_task_that_does_not_exist_ends_if_the_target_never_had_it() {
    // ExpCmdSN is 101: the target had the first command, and not the second
    for (tag, expected) in [(TAG, [CAPTURE_END; 2]), (OTHER, [CAPTURE_END, ABORT])] {
        let mut talk = two_in_flight();
        manage(&mut talk, ABORT_TASK, LUN_3, tag, DOES_NOT_EXIST, 101);
        let expected = expected.map(|by| (15, by, by == ABORT));
        assert_eq!(of(talk), expected);
    }
    // an immediate command has the number of the next one
    let mut immediate = Talk::login();
    immediate.send(true, read(TAG, 100).is_immediate(true), &[]);
    manage(&mut immediate, ABORT_TASK, LUN_3, TAG, DOES_NOT_EXIST, 100);
    assert_eq!(of(immediate), [(13, CAPTURE_END, false)]);
    // its status was there
    let mut answered = one_in_flight();
    answered.send(false, response(TAG, 501, 101, 0), &[]);
    manage(&mut answered, ABORT_TASK, LUN_3, TAG, DOES_NOT_EXIST, 101);
    assert_eq!(of(answered), [(11, STATUS, false)]);
}

#[test]
fn a_status_after_a_task_that_does_not_exist_is_its_end() {
    let mut talk = one_in_flight();
    manage(&mut talk, ABORT_TASK, LUN_3, TAG, DOES_NOT_EXIST, 100);
    talk.send(false, response(TAG, 502, 101, 0), &[]);
    let tables = talk.finish();
    assert_eq!(ends(&tables.cycles), [(15, STATUS, false)]);
    assert_eq!(counted(&tables, "task_aborted"), 0);
}

#[test]
fn a_status_after_a_completed_abort_is_of_its_task() {
    let mut talk = one_in_flight();
    manage(&mut talk, ABORT_TASK, LUN_3, TAG, COMPLETE, 101);
    talk.send(false, response(TAG, 502, 101, 0), &[]);
    let tables = talk.finish();
    assert_eq!(ends(&tables.cycles), [(15, STATUS, false)]);
    // nothing is missing, and nothing was aborted
    assert_eq!([counted(&tables, "pdu_without_task"), counted(&tables, "task_aborted")], [0, 0]);
}

#[test]
fn a_reset_ends_what_it_covers() {
    // RFC 7143 section 11.5.1, RFC 7144 section 6.3: of a logical unit, and of all
    let (unit, every) = ([2, 4, 5], [6, 7, 11]);
    for function in 1..=12 {
        let mut talk = Talk::login();
        talk.send(true, read(TAG, 100), &[]);
        talk.send(true, read(OTHER, 101).lun(LUN_4), &[]);
        manage(&mut talk, function, LUN_3, RESERVED_TAG, COMPLETE, 102);
        let is_covered = [unit.contains(&function) || every.contains(&function), every.contains(&function)];
        let by = |is_covered| if is_covered { (15, RESET, true) } else { (15, CAPTURE_END, false) };
        assert_eq!(of(talk), is_covered.map(by), "function {function}");
    }
}

#[test]
fn a_reset_does_not_cover_what_was_sent_after_it() {
    let mut talk = two_in_flight();
    request(&mut talk, LOGICAL_UNIT_RESET, LUN_3, RESERVED_TAG);
    // CmdSN 102 is that of the request, which is immediate
    talk.send(true, read(0x32, 102), &[]);
    respond(&mut talk, COMPLETE, 103);
    talk.send(false, response(0x32, 502, 103, 0), &[]);
    assert_eq!(of(talk), [(17, RESET, true), (17, RESET, true), (19, STATUS, false)]);
}

#[test]
fn a_reject_of_the_command_ends_it() {
    let rejected = |header: BhsBuilder| {
        let mut talk = one_in_flight();
        let reject = BhsBuilder::new(Opcode::Reject).reject_reason(4);
        talk.send(false, numbered(reject, Some(501), 101), &header.build());
        talk
    };
    assert_eq!(of(rejected(read(TAG, 100))), [(11, REJECTED, true)]);
    // of another command, of an earlier one with the tag, of data: the status follows
    for header in [read(OTHER, 100), read(TAG, 99), BhsBuilder::new(Opcode::DataOut).initiator_task_tag(TAG)] {
        assert_eq!(of(rejected(header)), [(11, CAPTURE_END, false)]);
    }
    let mut answered = rejected(read(TAG, 100));
    answered.send(false, response(TAG, 502, 101, 0), &[]);
    assert_eq!(of(answered), [(13, STATUS, false)]);
}

#[test]
fn the_first_fin_or_rst_since_a_command_ends_it() {
    for (flags, to_target) in [(FIN, true), (FIN, false), (RST, true), (RST, false)] {
        let mut talk = one_in_flight();
        talk.packet(to_target, flags, &[]);
        talk.packet(!to_target, FIN, &[]);
        talk.packet(to_target, RST, &[]);
        assert_eq!(of(talk), [(10, CONNECTION_END, true)]);
    }
    // the target closed its side before
    let mut half_closed = Talk::login();
    half_closed.packet(false, FIN, &[]);
    half_closed.send(true, read(TAG, 100), &[]);
    half_closed.packet(true, 0x10, &[]);
    half_closed.packet(true, RST, &[]);
    assert_eq!(of(half_closed), [(12, CONNECTION_END, true)]);
    // the initiator's side is closed, and the target answers
    let mut answered = one_in_flight();
    answered.packet(true, FIN, &[]);
    answered.send(false, response(TAG, 501, 101, 0), &[]);
    assert_eq!(of(answered), [(12, STATUS, false)]);
}

#[test]
fn another_connection_with_its_ports_ends_it() {
    let mut talk = one_in_flight();
    talk.packet(false, 0x10, &[]);
    talk.sent = [1 << 20, 1 << 21];
    talk.packet(true, 0x02, &[]);
    assert_eq!(of(talk), [(11, CONNECTION_END, true)]);
}

#[test]
fn a_command_whose_status_may_be_missing_from_the_capture_is_not_lost() {
    let mut talk = one_in_flight();
    talk.lose(false, response(TAG, 501, 101, 0), &[]);
    let ping = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(RESERVED_TAG).target_transfer_tag(RESERVED_TAG);
    talk.packet(true, 0x10, &[]);
    talk.send(false, numbered(ping, Some(502), 101), &[]);
    talk.packet(true, FIN, &[]);
    let tables = talk.finish();
    assert_eq!(ends(&tables.cycles), [(15, CONNECTION_END, false)]);
    assert_eq!(tables.cycles.has_capture_gap, [true]);
}

#[test]
fn a_status_that_comes_late_is_not_missing_and_ends_no_other_command() {
    let ping = |number| BhsBuilder::new(Opcode::NopIn).initiator_task_tag(number).target_transfer_tag(RESERVED_TAG);
    // the target sends it again, for a SNACK; or the tap has the PDU that acknowledges it first
    for is_acknowledged in [false, true] {
        let mut talk = two_in_flight();
        if is_acknowledged {
            let query =
                BhsBuilder::new(Opcode::NopOut).initiator_task_tag(RESERVED_TAG).target_transfer_tag(RESERVED_TAG);
            talk.send(true, query.cmd_sn(SerialNumber(102)).exp_stat_sn(SerialNumber(502)), &[]);
        } else {
            talk.send(false, numbered(ping(7), Some(502), 102), &[]);
        }
        talk.send(false, response(TAG, 501, 102, 0), &[]);
        talk.send(false, numbered(ping(8), Some(if is_acknowledged { 502 } else { 503 }), 102), &[]);
        let tables = talk.finish();
        assert_eq!(ends(&tables.cycles), [(15, STATUS, false), (17, CAPTURE_END, false)], "{is_acknowledged}");
        let counts = ["status_missing", "stat_sn_out_of_order"].map(|name| counted(&tables, name));
        assert_eq!((counts, tables.connections.missing_pdu_count_to_initiator[1]), ([0, 0], 0));
    }
}

#[test]
fn a_tag_that_is_taken_again_shows_that_the_status_came() {
    let mut talk = one_in_flight();
    talk.send(true, read(TAG, 101), &[]);
    talk.send(false, response(TAG, 501, 102, 0), &[]);
    assert_eq!(of(talk), [(10, STATUS, false), (13, STATUS, false)]);
}

#[test]
fn a_logout_of_its_connection_or_session_ends_it() {
    // reason, CID, response
    for (logout, by) in [
        ((0, 9, 0), SESSION_END),
        ((1, 9, 0), CONNECTION_END),
        // of another connection; for recovery; refused
        ((1, 8, 0), CAPTURE_END),
        ((2, 9, 0), CAPTURE_END),
        ((0, 9, 1), CAPTURE_END),
        ((1, 9, 1), CAPTURE_END),
    ] {
        let mut talk = one_in_flight();
        log_out(&mut talk, logout.0, logout.1, logout.2);
        assert_eq!(of(talk), [(13, by, by != CAPTURE_END)], "{logout:?}");
    }
}

#[test]
fn a_login_that_reinstates_its_session_ends_it() {
    let reinstated = |login: BhsBuilder| {
        let mut talk = one_in_flight();
        second_connection(&mut talk, login);
        of(talk)
    };
    // frames 10 to 12, and the login in 13 and 14
    assert_eq!(reinstated(login_request(1, 3)), [(14, SESSION_END, true)]);
    assert_eq!(reinstated(login_request(1, 3).isid([9; 6])), [(9, CAPTURE_END, false)]);
    // of the same connection, and beside it
    assert_eq!(reinstated(join(9)), [(14, CONNECTION_END, true)]);
    assert_eq!(reinstated(join(10)), [(9, CAPTURE_END, false)]);
}

#[test]
fn the_first_of_several_ends_counts() {
    let mut talk = one_in_flight();
    talk.packet(true, FIN, &[]);
    second_connection(&mut talk, login_request(1, 3));
    assert_eq!(of(talk), [(10, CONNECTION_END, true)]);
}

#[test]
fn what_ends_a_session_or_a_unit_ends_commands_of_all_connections() {
    let after = |act: fn(&mut Talk)| {
        let mut talk = two_in_flight();
        second_connection(&mut talk, join(10));
        // the second connection has frames 12 to 18, and what follows
        act(&mut talk);
        of(talk)
    };
    let open = [(11, CAPTURE_END, false); 2];
    assert_eq!(
        after(|talk| manage(talk, LOGICAL_UNIT_RESET, LUN_3, RESERVED_TAG, COMPLETE, 102)),
        [(22, RESET, true); 2]
    );
    assert_eq!(after(|talk| manage(talk, LOGICAL_UNIT_RESET, LUN_4, RESERVED_TAG, COMPLETE, 102)), open);
    assert_eq!(after(|talk| log_out(talk, 0, 10, 0)), [(22, SESSION_END, true); 2]);
    assert_eq!(after(|talk| log_out(talk, 1, 9, 0)), [(22, CONNECTION_END, true); 2]);
    assert_eq!(after(|talk| log_out(talk, 1, 10, 0)), open);
    assert_eq!(after(|talk| log_out(talk, 2, 9, 0)), open);
    assert_eq!(after(|talk| talk.packet(true, FIN, &[])), open);
}

#[test]
fn a_task_that_is_reassigned_goes_on_on_the_other_connection() {
    let reassigned = |response_code: u8, has_status: bool| {
        let mut talk = one_in_flight();
        talk.packet(true, RST, &[]);
        second_connection(&mut talk, join(10));
        // frames 11 to 17
        manage(&mut talk, TASK_REASSIGN, LUN_3, TAG, response_code, 101);
        if has_status {
            talk.send(false, response(TAG, 502, 101, 0), &[]);
        }
        of(talk)
    };
    assert_eq!(reassigned(COMPLETE, true), [(23, STATUS, false)]);
    assert_eq!(reassigned(COMPLETE, false), [(21, CAPTURE_END, false)]);
    // task allegiance reassignment not supported
    assert_eq!(reassigned(4, true), [(10, CONNECTION_END, true)]);
}

#[test]
fn data_that_is_repeated_counts_once() {
    let mut talk = one_in_flight();
    for (data_sn, offset, length) in [(0, 0, 1024), (1, 1024, 1024), (1, 1024, 1024), (2, 1536, 1024)] {
        talk.send(false, numbered(data_in(TAG, data_sn, offset), None, 101), &vec![7; length]);
    }
    let cycles = talk.finish().cycles;
    assert_eq!((cycles.data_bytes[0], cycles.data_pdu_count[0]), (2560, 4));
}

#[test]
fn a_write_has_its_immediate_data_and_what_was_sent_again_once() {
    let mut talk = Talk::login();
    let write = command(TAG, 100, 4096, &[0x2a, 0, 0, 0, 0x12, 0x34, 0, 0, 8, 0]).is_write(true).is_final(false);
    talk.send(true, write, &[7; 512]);
    let data_out = |offset, data_sn| {
        BhsBuilder::new(Opcode::DataOut)
            .initiator_task_tag(TAG)
            .target_transfer_tag(RESERVED_TAG)
            .exp_stat_sn(SerialNumber(501))
            .data_sn(SerialNumber(data_sn))
            .buffer_offset(offset)
    };
    // half of the first is immediate data again
    talk.send(true, data_out(256, 0), &[7; 512]);
    talk.send(true, data_out(768, 1), &[7; 512]);
    let cycles = talk.finish().cycles;
    assert_eq!((cycles.data_bytes[0], cycles.unsolicited_bytes[0]), (1280, 1024));
}
