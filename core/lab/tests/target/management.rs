//! Task management: aborted tasks, responses, and their order.

use iscsitrace_lab::application::{Application, Closed};
use iscsitrace_lab::protocol::target::{PortalSettings, ServiceDelay, TaskEnd};
use iscsitrace_wire::bhs::{BhsBuilder, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use crate::conversation::{Conversation, MILLISECOND, opcodes, pattern, sense, settings};

const R2T_ONLY: &[(&str, &str)] = &[("InitialR2T", "Yes"), ("ImmediateData", "No"), ("MaxConnections", "2")];

fn slow() -> PortalSettings {
    PortalSettings { read_delay: ServiceDelay::Fixed { delay_ns: 10 * MILLISECOND }, ..settings() }
}

fn response(talk: &mut Conversation, place: usize) -> Option<u8> {
    let pdu = talk.receive_one(place);
    assert_eq!(pdu.bhs().opcode(), Some(Opcode::TaskManagementResponse));
    pdu.bhs().response()
}

#[test]
fn abort_task_ends_a_task_without_an_answer() {
    let mut talk = Conversation::logged_in(slow(), &[]);
    for tag in 1..3 {
        let read = talk.read(tag, 0, 1);
        talk.send(0, read, &[]);
    }
    let abort = talk.management(9, 1).referenced_task_tag(1);
    talk.send(0, abort, &[]);
    assert_eq!(response(&mut talk, 0), Some(0));
    talk.pass(20 * MILLISECOND);
    assert_eq!(talk.receive_one(0).bhs().initiator_task_tag(), Some(2));
    assert_eq!(talk.portal.log().tasks[0].end, TaskEnd::Aborted);
    // a completed task cannot be aborted
    let abort = talk.management(10, 1).referenced_task_tag(2).ref_cmd_sn(SerialNumber(talk.cmd_sn - 1));
    talk.send(0, abort, &[]);
    assert_eq!(response(&mut talk, 0), Some(1), "task does not exist");
}

#[test]
fn abort_task_ends_a_read_that_is_being_sent() {
    let mut talk = Conversation::logged_in(settings(), &[("MaxRecvDataSegmentLength", "512")]);
    let read = talk.read(1, 0, 64);
    talk.send(0, read, &[]);
    let abort = talk.management(9, 1).referenced_task_tag(1);
    talk.send(0, abort, &[]);
    assert_eq!(response(&mut talk, 0), Some(0));
    talk.receive_nothing(0);
}

#[test]
fn a_command_that_has_not_arrived_is_aborted_by_its_cmd_sn() {
    let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
    talk.connect();
    talk.log_in(1, &[]);
    let missing = talk.test_unit_ready(1);
    let ref_cmd_sn = SerialNumber(talk.cmd_sn - 1);
    let second = talk.test_unit_ready(2);
    talk.send(1, second, &[]);
    talk.receive_nothing(1);
    let abort = talk.management(9, 1).referenced_task_tag(1).ref_cmd_sn(ref_cmd_sn);
    talk.send(0, abort, &[]);
    assert_eq!(response(&mut talk, 0), Some(0));
    // its CmdSN is considered received (RFC 7143 section 11.6.1)
    let third = talk.test_unit_ready(3);
    talk.send(0, third, &[]);
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0));
    assert_eq!(talk.receive_one(1).bhs().status(), Some(0));
    talk.send(0, missing, &[]);
    talk.receive_nothing(0);
}

#[test]
fn abort_task_set_waits_for_requested_data() {
    let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
    let write = talk.write(1, 0, 16);
    talk.send(0, write, &[]);
    let r2t = talk.receive_one(0);
    let abort = talk.management(9, 2);
    talk.send(0, abort, &[]);
    talk.receive_nothing(0);
    let tag = r2t.bhs().target_transfer_tag().unwrap();
    talk.send(0, talk.data_out(1, tag, 0, 0, false), &pattern(4096, 3));
    talk.receive_nothing(0);
    talk.send(0, talk.data_out(1, tag, 1, 4096, true), &pattern(4096, 3));
    assert_eq!(response(&mut talk, 0), Some(0));
    assert_eq!(talk.load(0, 16), vec![0; 8192], "the data of an aborted task is dropped");
    assert_eq!(talk.portal.log().counters.stray_data_outs, 2);
}

#[test]
fn data_of_an_aborted_write_does_not_reach_the_next() {
    let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
    talk.connect();
    talk.log_in(1, &[]);
    let first = talk.write(1, 0, 16);
    talk.send(0, first, &[]);
    let tag = talk.receive_one(0).bhs().target_transfer_tag().unwrap();
    let bytes = talk.bytes_of(0, talk.data_out(1, tag, 0, 0, true), &[0xaa; 8192]);
    talk.send_bytes(0, &bytes[..1000]);
    let abort = talk.management(9, 1).referenced_task_tag(1);
    talk.send(1, abort, &[]);
    assert_eq!(response(&mut talk, 1), Some(0));
    // the next write is half done when the rest of the first one's data comes
    let data = pattern(8192, 6);
    let second = talk.write(2, 100, 16);
    talk.send(1, second, &[]);
    let tag = talk.receive_one(1).bhs().target_transfer_tag().unwrap();
    talk.send(1, talk.data_out(2, tag, 0, 0, false), &data[..6000]);
    talk.send_bytes(0, &bytes[1000..]);
    talk.send(1, talk.data_out(2, tag, 1, 6000, true), &data[6000..]);
    assert_eq!(talk.receive_one(1).bhs().status(), Some(0));
    assert_eq!(talk.load(100, 16), data);
}

#[test]
fn a_function_does_not_wait_forever_for_data() {
    let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
    let write = talk.write(1, 0, 16);
    talk.send(0, write, &[]);
    talk.receive_one(0);
    let reset = talk.management(9, 5);
    talk.send(0, reset, &[]);
    talk.pass(200 * MILLISECOND - 1);
    talk.receive_nothing(0);
    talk.pass(200 * MILLISECOND);
    assert_eq!(response(&mut talk, 0), Some(0));
    // the reset is reported once (UNIT ATTENTION)
    let ready = talk.test_unit_ready(2);
    talk.send(0, ready, &[]);
    assert_eq!(sense(&talk.receive_one(0))[0], 6);
}

#[test]
fn several_functions_are_answered_in_time() {
    let mut settings = settings();
    settings.targets[0].logical_units.push(Default::default());
    let mut talk = Conversation::logged_in(settings, R2T_ONLY);
    let mut tags = Vec::new();
    for lun in 0..2 {
        let write = talk.write(lun.into(), 0, 1).lun([0, lun, 0, 0, 0, 0, 0, 0]);
        talk.send(0, write, &[]);
        tags.push(talk.receive_one(0).bhs().target_transfer_tag().unwrap());
    }
    for lun in 0..2 {
        let abort = talk.management(9 + u32::from(lun), 2).lun([0, lun, 0, 0, 0, 0, 0, 0]);
        talk.send(0, abort, &[]);
    }
    talk.send(0, talk.data_out(0, tags[0], 0, 0, true), &pattern(512, 3));
    assert_eq!(response(&mut talk, 0), Some(0));
    // the data of the second never arrives
    talk.pass(200 * MILLISECOND - 1);
    talk.receive_nothing(0);
    talk.pass(200 * MILLISECOND);
    assert_eq!(response(&mut talk, 0), Some(0));
}

/// A status on the second of two connections that the initiator has not acknowledged, and a reset on the first.
fn fenced() -> Conversation {
    let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
    talk.connect();
    talk.log_in(1, &[]);
    let ready = talk.test_unit_ready(1);
    talk.send(1, ready, &[]);
    assert_eq!(talk.receive_one(1).bhs().status(), Some(0));
    let reset = talk.management(9, 5);
    talk.send(0, reset, &[]);
    talk.receive_nothing(0);
    talk
}

#[test]
fn a_function_is_answered_after_earlier_responses_on_other_connections() {
    let mut talk = fenced();
    // the initiator is silent there, and is pinged (RFC 7143 section 4.2.2.3.3)
    let ping = talk.receive_one(1);
    let tag = ping.bhs().target_transfer_tag().unwrap();
    assert_eq!((ping.bhs().opcode(), tag == RESERVED_TAG), (Some(Opcode::NopIn), false));
    talk.receive_nothing(0);
    let answer = BhsBuilder::new(Opcode::NopOut)
        .is_immediate(true)
        .initiator_task_tag(RESERVED_TAG)
        .target_transfer_tag(tag)
        .cmd_sn(SerialNumber(talk.cmd_sn));
    talk.send(1, answer, &[]);
    assert_eq!(response(&mut talk, 0), Some(0));
    // any other PDU acknowledges as well
    let mut talk = fenced();
    let ready = talk.test_unit_ready(2);
    talk.send(1, ready, &[]);
    assert_eq!(response(&mut talk, 0), Some(0));
}

#[test]
fn a_function_does_not_wait_forever_for_acknowledgments() {
    let mut talk = fenced();
    talk.pass(200 * MILLISECOND - 1);
    talk.receive_nothing(0);
    talk.pass(200 * MILLISECOND);
    assert_eq!(response(&mut talk, 0), Some(0));
}

#[test]
fn closed_connections_need_no_acknowledgment() {
    let mut talk = fenced();
    let number = talk.number(1);
    talk.portal.closed(0, number, Closed::ByPeer);
    assert_eq!(response(&mut talk, 0), Some(0));
}

#[test]
fn a_function_of_a_closed_connection_returns_its_credit() {
    let mut talk = Conversation::logged_in(PortalSettings { command_window_count: 4, ..settings() }, R2T_ONLY);
    talk.connect();
    talk.log_in(1, &[]);
    let write = talk.write(1, 0, 1);
    talk.send(0, write, &[]);
    let tag = talk.receive_one(0).bhs().target_transfer_tag().unwrap();
    // not immediate, and waits for the data of the write
    let cmd_sn = talk.next_cmd_sn();
    let abort = talk.management(9, 2).is_immediate(false).cmd_sn(cmd_sn);
    talk.send(1, abort, &[]);
    talk.receive_nothing(1);
    let number = talk.number(1);
    talk.portal.closed(0, number, Closed::ByPeer);
    talk.send(0, talk.data_out(1, tag, 0, 0, true), &pattern(512, 1));
    let ready = talk.test_unit_ready(2);
    talk.send(0, ready, &[]);
    let answer = talk.receive_one(0);
    let (exp_cmd_sn, max_cmd_sn) = (answer.bhs().exp_cmd_sn().unwrap(), answer.bhs().max_cmd_sn().unwrap());
    assert_eq!((exp_cmd_sn.0, max_cmd_sn.0), (talk.cmd_sn, talk.cmd_sn + 3), "four commands, as before");
}

#[test]
fn clear_task_set_notifies_initiators_with_cleared_tasks() {
    let mut talk = Conversation::logged_in(slow(), &[]);
    for place in 1..3 {
        (talk.tsih, talk.isid[5]) = (0, place as u8 + 1);
        talk.connect();
        talk.log_in(place, &[]);
    }
    talk.cmd_sn = 100;
    let read = talk.read(1, 0, 1);
    talk.send(1, read, &[]);
    talk.cmd_sn = 100;
    let clear = talk.management(9, 4);
    talk.send(0, clear, &[]);
    assert_eq!(response(&mut talk, 0), Some(0));
    let mut ready = |place: usize, cmd_sn| {
        talk.cmd_sn = cmd_sn;
        let ready = talk.test_unit_ready(2);
        talk.send(place, ready, &[]);
        talk.receive_one(place)
    };
    assert_eq!(sense(&ready(1, 101)), [6, 0x2f, 0x00], "COMMANDS CLEARED BY ANOTHER INITIATOR");
    assert_eq!(ready(2, 100).bhs().status(), Some(0), "it had no tasks");
    assert_eq!(ready(0, 100).bhs().status(), Some(0), "it asked for it");
}

#[test]
fn abort_task_set_waits_for_commands_before_it() {
    let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
    talk.connect();
    talk.log_in(1, &[]);
    let write = talk.write(1, 0, 1);
    let abort = talk.management(9, 2);
    let after = talk.test_unit_ready(2);
    talk.send(0, abort, &[]);
    talk.send(0, after, &[]);
    talk.receive_nothing(0);
    talk.send(1, write, &[]);
    talk.receive_nothing(1);
    // the write is aborted, what came after the function is not, and is answered in any order
    let mut seen = opcodes(&talk.receive(0));
    seen.sort_by_key(|opcode| opcode.as_u8());
    assert_eq!(seen, [Opcode::ScsiResponse, Opcode::TaskManagementResponse]);
    assert_eq!(talk.portal.log().tasks[1].end, TaskEnd::Aborted);
}

#[test]
fn functions_have_their_scope() {
    use TaskEnd::{Aborted, Open};
    // tasks of the own session at LUN 0 and 1, and of another session at LUN 0
    for (function, ends) in [
        (2, [Aborted, Open, Open]),
        (4, [Aborted, Open, Aborted]),
        (5, [Aborted, Open, Aborted]),
        (6, [Aborted, Aborted, Aborted]),
    ] {
        let mut settings = slow();
        settings.targets[0].logical_units.push(Default::default());
        let mut talk = Conversation::logged_in(settings, &[]);
        for lun in 0..2 {
            let read = talk.read(lun.into(), 0, 1).lun([0, lun, 0, 0, 0, 0, 0, 0]);
            talk.send(0, read, &[]);
        }
        let (tsih, cmd_sn) = (talk.tsih, talk.cmd_sn);
        (talk.tsih, talk.isid[5]) = (0, 2);
        talk.connect();
        talk.log_in(1, &[]);
        let read = talk.read(5, 0, 1);
        talk.send(1, read, &[]);
        (talk.tsih, talk.cmd_sn) = (tsih, cmd_sn);
        let management = talk.management(9, function);
        talk.send(0, management, &[]);
        assert_eq!(response(&mut talk, 0), Some(0), "{function}");
        let found: Vec<_> = talk.portal.log().tasks.iter().map(|task| task.end).collect();
        assert_eq!(found, ends, "{function}");
    }
}

#[test]
fn credit_of_tasks_ended_by_another_session_is_advertised() {
    for function in [4, 5, 6] {
        let mut talk = Conversation::logged_in(PortalSettings { command_window_count: 1, ..slow() }, &[]);
        (talk.tsih, talk.isid[5]) = (0, 2);
        talk.connect();
        talk.log_in(1, &[]);
        let read = talk.read(5, 0, 1);
        talk.send(1, read, &[]);
        let reset = talk.management(9, function).cmd_sn(SerialNumber(talk.cmd_sn - 1));
        talk.send(0, reset, &[]);
        assert_eq!(response(&mut talk, 0), Some(0));
        // nothing else would report it: its command is never answered
        let nop = talk.receive_one(1);
        assert_eq!(nop.bhs().opcode(), Some(Opcode::NopIn));
        assert_eq!(nop.bhs().max_cmd_sn().unwrap().0, talk.cmd_sn);
    }
}

#[test]
fn a_cold_reset_closes_every_connection_of_the_target() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    (talk.tsih, talk.isid[5]) = (0, 2);
    talk.connect();
    talk.log_in(1, &[]);
    let reset = talk.management(9, 7);
    talk.send(1, reset, &[]);
    assert_eq!(response(&mut talk, 1), Some(0));
    assert!(!talk.is_open(0) && !talk.is_open(1));
    assert!(talk.ending(0).unwrap().contains("TARGET COLD RESET"));
}

#[test]
fn unsupported_functions_are_reported() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    // CLEAR ACA, TASK REASSIGN, and an unknown function
    for (function, expected) in [(3, 5), (8, 4), (99, 5)] {
        let management = talk.management(9, function);
        talk.send(0, management, &[]);
        assert_eq!(response(&mut talk, 0), Some(expected), "{function}");
    }
    let reset = talk.management(9, 5).lun([0, 7, 0, 0, 0, 0, 0, 0]);
    talk.send(0, reset, &[]);
    assert_eq!(response(&mut talk, 0), Some(2), "LUN does not exist");
}
