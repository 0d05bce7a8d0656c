//! Requests that are no SCSI commands, and single PDUs.

use super::*;
use crate::tables::{
    Async, Asyncs, Logout, Logouts, NULL_U8, NULL_U32, Nop, Nops, Reject, Rejects, Snack, Snacks, TaskManagement,
    TaskManagements, TextRow, Texts,
};

const LUN_3: [u8; 8] = [0, 3, 0, 0, 0, 0, 0, 0];

fn nop(is_from_initiator: bool, initiator_task_tag: u32, target_transfer_tag: u32) -> BhsBuilder {
    if is_from_initiator {
        BhsBuilder::new(Opcode::NopOut).cmd_sn(SerialNumber(100)).exp_stat_sn(SerialNumber(501))
    } else {
        numbered(BhsBuilder::new(Opcode::NopIn), Some(501), 100)
    }
    .initiator_task_tag(initiator_task_tag)
    .target_transfer_tag(target_transfer_tag)
}

#[test]
fn a_nop_and_its_answer_are_one_row() {
    let mut talk = Talk::login();
    talk.send(true, nop(true, 0x20, RESERVED_TAG), &[]);
    talk.send(false, nop(false, 0x20, RESERVED_TAG), &[]);
    talk.send(false, nop(false, RESERVED_TAG, 0x55), &[]);
    talk.send(true, nop(true, RESERVED_TAG, 0x55), &[]);
    // no answer is requested
    talk.send(true, nop(true, RESERVED_TAG, RESERVED_TAG), &[]);
    // answers to requests that were not captured
    talk.send(false, nop(false, 0x21, RESERVED_TAG), &[]);
    talk.send(true, nop(true, RESERVED_TAG, 0x56), &[]);
    // a request without an answer
    talk.send(false, nop(false, RESERVED_TAG, 0x57), &[]);
    let none = Nop { connection: CONNECTION, ..Nop::default() };
    let request = |frame| Nop { request_ns: at(frame), request_frame: frame, ..none.clone() };
    let response = |frame, nop| Nop { response_ns: at(frame), response_frame: frame, is_ping: true, ..nop };
    assert_eq!(
        talk.finish().nops,
        Nops::of([
            response(11, Nop { is_from_initiator: true, initiator_task_tag: 0x20, ..request(9) }),
            response(15, Nop { target_transfer_tag: 0x55, ..request(13) }),
            Nop { is_from_initiator: true, ..request(17) },
            response(19, Nop { is_from_initiator: true, initiator_task_tag: 0x21, ..none.clone() }),
            response(21, Nop { target_transfer_tag: 0x56, ..none.clone() }),
            Nop { is_ping: true, target_transfer_tag: 0x57, ..request(23) },
        ])
    );
}

fn task_management(function: u8, tag: u32, referenced: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::TaskManagementRequest)
        .function(function)
        .lun(LUN_3)
        .initiator_task_tag(tag)
        .referenced_task_tag(referenced)
        .cmd_sn(SerialNumber(103))
        .exp_stat_sn(SerialNumber(501))
}

fn task_management_response(tag: u32, stat_sn: u32, response: u8) -> BhsBuilder {
    let header = BhsBuilder::new(Opcode::TaskManagementResponse).initiator_task_tag(tag).response(response);
    numbered(header, Some(stat_sn), 102)
}

#[test]
fn abort_task_aborts_the_referenced_command_alone() {
    let mut talk = Talk::login();
    talk.send(true, read(0x30, 100), &[]);
    talk.send(true, read(0x31, 101), &[]);
    talk.send(true, task_management(1, 0x40, 0x31), &[]);
    talk.send(false, task_management_response(0x40, 501, 0), &[]);
    // refused: a target cold reset is not supported
    talk.send(true, task_management(7, 0x41, RESERVED_TAG), &[]);
    talk.send(false, task_management_response(0x41, 502, 5), &[]);
    let tables = talk.finish();
    assert_eq!(
        tables.task_management,
        TaskManagements::of([
            TaskManagement {
                connection: CONNECTION,
                request_ns: at(13),
                response_ns: at(15),
                request_frame: 13,
                response_frame: 15,
                function: 1,
                function_text: "ABORT TASK".into(),
                initiator_task_tag: 0x40,
                referenced_task_tag: 0x31,
                referenced_cycle: 1,
                lun: 3,
                response: 0,
                response_text: "function complete".into(),
            },
            TaskManagement {
                connection: CONNECTION,
                request_ns: at(17),
                response_ns: at(19),
                request_frame: 17,
                response_frame: 19,
                function: 7,
                function_text: "TARGET COLD RESET".into(),
                initiator_task_tag: 0x41,
                referenced_task_tag: RESERVED_TAG,
                referenced_cycle: NULL_U32,
                // a target reset addresses no logical unit
                lun: u64::MAX,
                response: 5,
                response_text: "task management function not supported".into(),
            },
        ])
    );
    assert_eq!(tables.cycles.is_aborted, [false, true]);
}

/// Which of three commands a completed function aborts: two of logical unit 3, one of logical unit 4.
fn aborted_by(function: u8) -> [bool; 3] {
    let mut talk = Talk::login();
    talk.send(true, read(0x30, 100), &[]);
    talk.send(true, read(0x31, 101), &[]);
    talk.send(true, read(0x32, 102).lun([0, 4, 0, 0, 0, 0, 0, 0]), &[]);
    talk.send(true, task_management(function, 0x40, 0x31), &[]);
    talk.send(false, task_management_response(0x40, 501, 0), &[]);
    talk.finish().cycles.is_aborted.try_into().expect("three commands")
}

#[test]
fn a_function_aborts_a_task_a_logical_unit_or_the_target() {
    assert_eq!(aborted_by(1), [false, true, false]);
    for of_logical_unit in [2, 4, 5] {
        assert_eq!(aborted_by(of_logical_unit), [true, true, false], "function {of_logical_unit}");
    }
    for of_target in [6, 7] {
        assert_eq!(aborted_by(of_target), [true; 3], "function {of_target}");
    }
    for of_nothing in [3, 8, 9] {
        assert_eq!(aborted_by(of_nothing), [false; 3], "function {of_nothing}");
    }
}

#[test]
fn a_text_exchange_shows_both_sides_keys() {
    let mut talk = Talk::login();
    let request = |tag| {
        BhsBuilder::new(Opcode::TextRequest)
            .is_final(true)
            .initiator_task_tag(tag)
            .target_transfer_tag(RESERVED_TAG)
            .cmd_sn(SerialNumber(100))
            .exp_stat_sn(SerialNumber(501))
    };
    let response =
        BhsBuilder::new(Opcode::TextResponse).is_final(true).initiator_task_tag(0x50).target_transfer_tag(RESERVED_TAG);
    talk.send(true, request(0x50), b"SendTargets=All\0");
    talk.send(false, numbered(response, Some(501), 101), b"TargetName=iqn.t\0TargetAddress=10.0.0.2:3260,4\0");
    talk.send(true, request(0x51), b"CHAP_R=0x12\0X-a=b\0");
    assert_eq!(
        talk.finish().texts,
        Texts::of([
            TextRow {
                connection: CONNECTION,
                request_ns: at(9),
                response_ns: at(11),
                request_frame: 9,
                response_frame: 11,
                initiator_task_tag: 0x50,
                request_text: "SendTargets=All".into(),
                response_text: "TargetName=iqn.t TargetAddress=10.0.0.2:3260,4".into(),
            },
            TextRow {
                connection: CONNECTION,
                request_ns: at(13),
                request_frame: 13,
                initiator_task_tag: 0x51,
                request_text: "CHAP_R=(hidden) X-a=b".into(),
                ..TextRow::default()
            },
        ])
    );
}

fn logged_out(reason: u8, response: u8) -> Tables {
    let mut talk = Talk::login();
    let request = BhsBuilder::new(Opcode::LogoutRequest)
        .logout_reason(reason)
        .initiator_task_tag(0x60)
        .cid(9)
        .cmd_sn(SerialNumber(100))
        .exp_stat_sn(SerialNumber(501));
    talk.send(true, request, &[]);
    let answer = BhsBuilder::new(Opcode::LogoutResponse).initiator_task_tag(0x60).response(response);
    talk.send(false, numbered(answer, Some(501), 100), &[]);
    talk.finish()
}

#[test]
fn only_a_successful_logout_of_the_session_ends_it() {
    // 0 logout, 5 open
    for (reason, response, end) in [(0, 0, 0), (1, 0, 5), (0, 1, 5)] {
        let tables = logged_out(reason, response);
        let row = Logout {
            connection: CONNECTION,
            request_ns: at(9),
            response_ns: at(11),
            request_frame: 9,
            response_frame: 11,
            reason,
            cid: 9,
            response,
        };
        assert_eq!(tables.logouts, Logouts::of([row]));
        assert_eq!(tables.sessions.end, [end], "reason {reason}, response {response}");
    }
}

#[test]
fn a_reject_names_the_rejected_header() {
    let mut talk = Talk::login();
    let rejected = BhsBuilder::new(Opcode::SnackRequest).initiator_task_tag(0x77).build();
    talk.send(false, numbered(BhsBuilder::new(Opcode::Reject).reject_reason(3), Some(501), 100), &rejected);
    talk.send(false, numbered(BhsBuilder::new(Opcode::Reject).reject_reason(9), Some(502), 100), &[]);
    let row = Reject {
        connection: CONNECTION,
        time_ns: at(9),
        frame: 9,
        reason: 3,
        reason_text: "SNACK reject".into(),
        rejected_opcode: 0x10,
        rejected_initiator_task_tag: 0x77,
    };
    let without_header = Reject {
        connection: CONNECTION,
        time_ns: at(11),
        frame: 11,
        reason: 9,
        reason_text: "invalid PDU field".into(),
        rejected_opcode: NULL_U8,
        rejected_initiator_task_tag: NULL_U32,
    };
    assert_eq!(talk.finish().rejects, Rejects::of([row, without_header]));
}

#[test]
fn an_asynchronous_message_has_its_parameters() {
    let mut talk = Talk::login();
    let message = |event| {
        BhsBuilder::new(Opcode::AsyncMessage)
            .lun(LUN_3)
            .async_event(event)
            .async_vcode(7)
            .parameter1(11)
            .parameter2(12)
            .parameter3(13)
    };
    let texts = [
        (0, "SCSI asynchronous event", 3),
        (1, "target requests logout", u64::MAX),
        (2, "target will drop the connection", u64::MAX),
        (3, "target will drop all connections of the session", u64::MAX),
        (4, "target requests parameter negotiation", u64::MAX),
        (5, "all active tasks of a logical unit are being terminated", 3),
        (248, "vendor specific", u64::MAX),
        (255, "vendor specific", u64::MAX),
    ];
    for (stat_sn, (event, ..)) in (501..).zip(texts) {
        talk.send(false, numbered(message(event), Some(stat_sn), 100), &[]);
    }
    let rows = (0..).zip(texts).map(|(number, (event, event_text, lun))| Async {
        connection: CONNECTION,
        time_ns: at(9 + 2 * number),
        frame: 9 + 2 * number,
        event,
        event_text: event_text.into(),
        vendor_code: 7,
        parameter1: 11,
        parameter2: 12,
        parameter3: 13,
        lun,
    });
    assert_eq!(talk.finish().asyncs, Asyncs::of(rows));
}

#[test]
fn a_snack_has_its_run() {
    let mut talk = Talk::login();
    let request = BhsBuilder::new(Opcode::SnackRequest)
        .snack_type(2)
        .initiator_task_tag(RESERVED_TAG)
        .target_transfer_tag(0x99)
        .exp_stat_sn(SerialNumber(501))
        .beg_run(SerialNumber(6))
        .run_length(2);
    talk.send(true, request, &[]);
    let row = Snack {
        connection: CONNECTION,
        time_ns: at(9),
        frame: 9,
        snack_type: 2,
        initiator_task_tag: RESERVED_TAG,
        target_transfer_tag: 0x99,
        begin_run: 6,
        run_length: 2,
    };
    assert_eq!(talk.finish().snacks, Snacks::of([row]));
}

#[test]
fn every_function_has_its_name() {
    // RFC 7143 section 11.5.1, RFC 7144 section 6.3
    let names = [
        "ABORT TASK",
        "ABORT TASK SET",
        "CLEAR ACA",
        "CLEAR TASK SET",
        "LOGICAL UNIT RESET",
        "TARGET WARM RESET",
        "TARGET COLD RESET",
        "TASK REASSIGN",
        "QUERY TASK",
        "QUERY TASK SET",
        "I_T NEXUS RESET",
        "QUERY ASYNCHRONOUS EVENT",
    ];
    let mut talk = Talk::login();
    (1..).zip(names).for_each(|(function, _)| {
        talk.send(true, task_management(function, 0x40 + u32::from(function), RESERVED_TAG), &[]);
    });
    assert_eq!(talk.finish().task_management.function_text, names);
}

#[test]
fn each_response_of_a_task_management_function_has_its_meaning() {
    let mut talk = Talk::login();
    // RFC 7143 section 11.6.1, RFC 7144 section 6.4; the last request has no response
    let responses = [0, 1, 2, 3, 4, 5, 6, 7, 255];
    for (number, response) in (0..).zip(responses) {
        talk.send(true, task_management(1, 0x40 + number, 0x31), &[]);
        talk.send(false, task_management_response(0x40 + number, 501 + number, response), &[]);
    }
    talk.send(true, task_management(1, 0x60, 0x31), &[]);
    let table = talk.finish().task_management;
    assert_eq!(table.response, [0, 1, 2, 3, 4, 5, 6, 7, 255, NULL_U8]);
    assert_eq!(
        table.response_text,
        [
            "function complete",
            "task does not exist",
            "LUN does not exist",
            "task still allegiant",
            "task allegiance reassignment not supported",
            "task management function not supported",
            "function authorization failed",
            "function succeeded",
            "function rejected",
            "",
        ]
    );
}
