//! CmdSN over all connections: order of delivery, the window, immediate commands, duplicates.

use iscsitrace_lab::protocol::target::{Limits, PortalSettings};
use iscsitrace_wire::bhs::RESERVED_TAG;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use crate::conversation::{Conversation, opcodes, pattern, settings};

fn two_connections() -> Conversation {
    let mut talk = Conversation::logged_in(
        settings(),
        &[("MaxConnections", "2"), ("InitialR2T", "No"), ("FirstBurstLength", "4096")],
    );
    talk.connect();
    talk.log_in(1, &[]);
    talk
}

#[test]
fn commands_are_delivered_by_cmd_sn_over_all_connections() {
    let mut talk = two_connections();
    let first = talk.write(1, 0, 1);
    let second = talk.read(2, 0, 1);
    talk.send(1, second, &[]);
    talk.receive_nothing(1);
    talk.send(0, first, &pattern(512, 9));
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0));
    assert_eq!(talk.receive_one(1).data, pattern(512, 9), "the read comes after the write");
}

#[test]
fn a_command_that_waits_keeps_its_unsolicited_data() {
    let mut talk = two_connections();
    let data = pattern(4096, 4);
    let first = talk.test_unit_ready(1);
    let second = talk.write(2, 8, 8).is_final(false);
    talk.send(1, second, &data[..512]);
    // the first command comes in the middle of the data
    let bytes = talk.bytes_of(1, talk.data_out(2, RESERVED_TAG, 0, 512, false), &data[512..2048]);
    talk.send_bytes(1, &bytes[..600]);
    talk.send(0, first, &[]);
    talk.send_bytes(1, &bytes[600..]);
    talk.receive_nothing(1);
    talk.send(1, talk.data_out(2, RESERVED_TAG, 1, 2048, true), &data[2048..]);
    assert_eq!(talk.receive_one(1).bhs().status(), Some(0));
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0));
    assert_eq!(talk.load(8, 8), data);
}

#[test]
fn duplicates_and_commands_outside_the_window_are_ignored() {
    let depth = 4;
    let mut talk = Conversation::logged_in(PortalSettings { command_window_count: depth, ..settings() }, &[]);
    let first = talk.cmd_sn;
    for (offset, is_answered) in [(0, true), (0, false), (u32::MAX, false), (5, false), (1, true)] {
        let ready = talk.test_unit_ready(offset).cmd_sn(SerialNumber(first.wrapping_add(offset)));
        talk.send(0, ready, &[]);
        assert_eq!(talk.receive(0).len(), usize::from(is_answered), "{offset}");
    }
    // two were answered, and so the window is from 2 to 5
    for offset in [5, 6, 4, 3] {
        let ready = talk.test_unit_ready(offset).cmd_sn(SerialNumber(first + offset));
        talk.send(0, ready, &[]);
        talk.receive_nothing(0);
    }
    let ready = talk.test_unit_ready(2).cmd_sn(SerialNumber(first + 2));
    talk.send(0, ready, &[]);
    let tags: Vec<_> = talk.receive(0).iter().map(|pdu| pdu.bhs().initiator_task_tag().unwrap()).collect();
    assert_eq!(tags, [2, 3, 4, 5]);
    assert_eq!(talk.portal.log().counters.ignored_cmd_sns, 4);
}

#[test]
fn max_cmd_sn_follows_completed_commands() {
    let mut talk = Conversation::logged_in(
        PortalSettings { command_window_count: 2, ..settings() },
        &[("InitialR2T", "Yes"), ("ImmediateData", "No")],
    );
    let first = talk.cmd_sn;
    let one = talk.write(1, 0, 1);
    talk.send(0, one, &[]);
    let two = talk.write(2, 0, 1);
    talk.send(0, two, &[]);
    let r2ts = talk.receive(0);
    let window = |pdu: &crate::conversation::Pdu| {
        let bhs = pdu.bhs();
        (bhs.exp_cmd_sn().unwrap().0 - first, bhs.max_cmd_sn().unwrap().0.wrapping_sub(first).cast_signed())
    };
    assert_eq!(r2ts.iter().map(window).collect::<Vec<_>>(), [(2, 1), (2, 1)], "closed");
    let three = talk.test_unit_ready(3);
    talk.send(0, three, &[]);
    talk.receive_nothing(0);
    let tag = r2ts[0].bhs().target_transfer_tag().unwrap();
    talk.send(0, talk.data_out(1, tag, 0, 0, true), &pattern(512, 0));
    assert_eq!(window(&talk.receive_one(0)), (2, 2), "room for one");
}

#[test]
fn immediate_commands_are_not_ordered_but_limited() {
    let limits = Limits { immediate_count: 2, ..Limits::default() };
    let mut talk = Conversation::logged_in(
        PortalSettings { limits, ..settings() },
        &[("InitialR2T", "Yes"), ("ImmediateData", "No")],
    );
    for tag in 1..4 {
        // CmdSN is that of the next command, and is not consumed
        let write = talk.write(tag, 0, 1).is_immediate(true);
        talk.cmd_sn -= 1;
        talk.send(0, write, &[]);
    }
    let pdus = talk.receive(0);
    assert_eq!(opcodes(&pdus), [Opcode::ReadyToTransfer, Opcode::ReadyToTransfer, Opcode::Reject]);
    assert_eq!(pdus[2].bhs().reject_reason(), Some(0x06), "Immediate command reject");
    assert_eq!(pdus[2].bhs().exp_cmd_sn().unwrap().0, talk.cmd_sn);
    let tag = pdus[0].bhs().target_transfer_tag().unwrap();
    talk.send(0, talk.data_out(1, tag, 0, 0, true), &pattern(512, 0));
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0));
    let ready = talk.test_unit_ready(4).is_immediate(true);
    talk.send(0, ready, &[]);
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0), "there is room again");
}

#[test]
fn data_of_commands_that_wait_is_bounded() {
    let limits = Limits { early_data_bytes: 10_000, ..Limits::default() };
    let mut talk = Conversation::logged_in(PortalSettings { limits, ..settings() }, &[]);
    let missing = talk.test_unit_ready(0);
    for tag in 1..=2 {
        let write = talk.write(tag, 0, 16);
        talk.send(0, write, &pattern(8192, 0));
    }
    talk.send(0, missing, &[]);
    assert!(!talk.is_open(0));
    let ending = talk.ending(0).unwrap();
    assert!(ending.contains("10000 bytes") && ending.contains("section 4.2.2.1"), "{ending}");
}

#[test]
fn data_of_commands_that_wait_is_bounded_for_the_whole_target() {
    let limits = Limits { waiting_bytes: 10_000, ..Limits::default() };
    let mut talk = Conversation::logged_in(PortalSettings { limits, ..settings() }, &[]);
    let _missing = talk.test_unit_ready(0);
    for tag in 1..=2 {
        let write = talk.write(tag, 0, 16);
        talk.send(0, write, &pattern(8192, 0));
        assert_eq!(talk.is_open(0), tag == 1);
    }
    assert!(talk.ending(0).unwrap().contains("10000 bytes"));
}

#[test]
fn data_of_delivered_commands_does_not_count() {
    let limits = Limits { early_data_bytes: 10_000, ..Limits::default() };
    let mut talk = Conversation::logged_in(PortalSettings { limits, ..settings() }, &[]);
    for _ in 0..10 {
        let first = talk.test_unit_ready(1);
        let write = talk.write(2, 0, 16);
        talk.send(0, write, &pattern(8192, 0));
        talk.receive_nothing(0);
        talk.send(0, first, &[]);
        assert_eq!(talk.receive(0).len(), 2);
    }
}

#[test]
fn a_lost_connection_returns_its_credit() {
    use iscsitrace_lab::application::{Application, Closed};
    // with a command that waits for its data, or a status that was not sent
    for is_answered in [false, true] {
        let mut talk = Conversation::logged_in(
            PortalSettings { command_window_count: 1, ..settings() },
            &[("MaxConnections", "2"), ("InitialR2T", "Yes"), ("ImmediateData", "No")],
        );
        talk.connect();
        talk.log_in(1, &[]);
        if is_answered {
            let ready = talk.test_unit_ready(1);
            talk.send(1, ready, &[]);
        } else {
            let write = talk.write(1, 0, 1);
            talk.send(1, write, &[]);
            assert_eq!(opcodes(&talk.receive(1)), [Opcode::ReadyToTransfer]);
        }
        let number = talk.number(1);
        talk.portal.closed(0, number, Closed::ByPeer);
        // nothing else would advertise the open window
        let nop = talk.receive_one(0);
        assert_eq!(nop.bhs().opcode(), Some(Opcode::NopIn));
        assert_eq!(nop.bhs().max_cmd_sn().unwrap().0, talk.cmd_sn);
        let ready = talk.test_unit_ready(2);
        talk.send(0, ready, &[]);
        assert_eq!(talk.receive_one(0).bhs().status(), Some(0));
    }
}
