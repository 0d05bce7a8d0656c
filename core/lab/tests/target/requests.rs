//! NOP, Text, Logout, SNACK and Asynchronous Messages.

use iscsitrace_lab::application::Application;
use iscsitrace_lab::protocol::target::PortalSettings;
use iscsitrace_lab::scsi::DeviceSettings;
use iscsitrace_wire::bhs::{BhsBuilder, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use crate::conversation::{Conversation, INITIATOR, LOCAL, SECOND, TARGET, opcodes, pattern, settings, text};

fn nop_out(tag: u32, transfer_tag: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::NopOut).is_immediate(true).initiator_task_tag(tag).target_transfer_tag(transfer_tag)
}

#[test]
fn a_ping_is_answered_with_its_data() {
    let mut talk = Conversation::logged_in(settings(), &[("MaxRecvDataSegmentLength", "512")]);
    talk.send(0, nop_out(5, RESERVED_TAG), &pattern(700, 1));
    let answer = talk.receive_one(0);
    assert_eq!(answer.bhs().opcode(), Some(Opcode::NopIn));
    assert_eq!(answer.bhs().initiator_task_tag(), Some(5));
    assert_eq!(answer.data, pattern(700, 1)[..512], "as much as the initiator takes");
    let cmd_sn = talk.next_cmd_sn();
    talk.send(0, nop_out(6, RESERVED_TAG).is_immediate(false).cmd_sn(cmd_sn), &[]);
    let answer = talk.receive_one(0);
    assert_eq!(answer.bhs().exp_cmd_sn(), Some(cmd_sn.next()));
    talk.send(0, nop_out(RESERVED_TAG, RESERVED_TAG), &[]);
    talk.receive_nothing(0);
}

#[test]
fn a_quiet_connection_is_pinged() {
    let pinged = PortalSettings { nop_in_interval_ns: 10 * SECOND, ..settings() };
    let mut talk = Conversation::logged_in(pinged, &[]);
    talk.pass(9 * SECOND);
    let ready = talk.test_unit_ready(1);
    talk.send(0, ready, &[]);
    talk.receive_one(0);
    talk.pass(19 * SECOND - 1);
    talk.receive_nothing(0);
    talk.pass(19 * SECOND);
    let ping = talk.receive_one(0);
    assert_eq!(ping.bhs().opcode(), Some(Opcode::NopIn));
    assert_eq!(ping.bhs().initiator_task_tag(), Some(RESERVED_TAG));
    let tag = ping.bhs().target_transfer_tag().unwrap();
    assert_ne!(tag, RESERVED_TAG);
    talk.pass(23 * SECOND);
    talk.send(0, nop_out(RESERVED_TAG, tag), &[]);
    talk.receive_nothing(0);
    talk.pass(33 * SECOND);
    assert_eq!(talk.receive_one(0).bhs().opcode(), Some(Opcode::NopIn));
    talk.pass(38 * SECOND - 1);
    assert!(talk.is_open(0));
    talk.pass(38 * SECOND);
    assert_eq!(talk.ending(0).unwrap(), "NOP-In ping not answered for 5 s (RFC 7143 section 11.19)");
}

fn text_request(talk: &mut Conversation, tag: u32, transfer_tag: u32, pairs: &[(&str, &str)]) -> (BhsBuilder, Vec<u8>) {
    let cmd_sn = talk.next_cmd_sn();
    let header = BhsBuilder::new(Opcode::TextRequest)
        .is_final(true)
        .initiator_task_tag(tag)
        .target_transfer_tag(transfer_tag)
        .cmd_sn(cmd_sn);
    (header, text(pairs))
}

fn discovery(settings: PortalSettings, local: &str) -> Conversation {
    let mut talk = Conversation::new(settings);
    talk.try_connect(local).unwrap();
    let pairs = [("InitiatorName", INITIATOR), ("SessionType", "Discovery"), ("MaxRecvDataSegmentLength", "512")];
    let response = talk.try_log_in(0, 0, &pairs);
    assert_eq!(response.bhs().status_class(), Some(0));
    talk
}

#[test]
fn send_targets_lists_every_target_and_address() {
    let mut settings = settings();
    settings.addresses = vec!["192.0.2.7:3260".parse().unwrap(), "[2001:db8::1]:3260".parse().unwrap()];
    for place in 0..20 {
        let target_name = format!("iqn.2025-01.org.iscsitrace:target{place}");
        settings.targets.push(DeviceSettings { target_name, logical_units: vec![], ..DeviceSettings::default() });
    }
    let names: Vec<String> = settings.targets.iter().map(|target| target.target_name.clone()).collect();
    let expected: String = names
        .iter()
        .map(|name| format!("TargetName={name}\0TargetAddress=192.0.2.7:3260,1\0TargetAddress=[2001:db8::1]:3260,1\0"))
        .collect();
    let mut talk = discovery(settings, LOCAL);
    let (header, data) = text_request(&mut talk, 5, RESERVED_TAG, &[("SendTargets", "All")]);
    talk.send(0, header, &data);
    let mut found = Vec::new();
    loop {
        let answer = talk.receive_one(0);
        let bhs = answer.bhs();
        assert_eq!(bhs.opcode(), Some(Opcode::TextResponse));
        assert!(answer.data.len() <= 512);
        found.extend_from_slice(&answer.data);
        if bhs.is_final() == Some(true) {
            assert_eq!(bhs.target_transfer_tag(), Some(RESERVED_TAG));
            break;
        }
        assert_eq!(bhs.is_continue(), Some(true));
        let tag = bhs.target_transfer_tag().unwrap();
        let (header, _) = text_request(&mut talk, 5, tag, &[]);
        talk.send(0, header, &[]);
    }
    assert_eq!(String::from_utf8(found).unwrap(), expected);
    // a discovery session is for this only
    let read = talk.read(6, 0, 1);
    talk.send(0, read, &[]);
    assert_eq!(talk.receive_one(0).bhs().reject_reason(), Some(0x04));
}

#[test]
fn without_addresses_the_address_of_the_connection_is_returned() {
    for (local, expected) in [
        ("192.0.2.2:3260", "192.0.2.2:3260"),
        ("[2001:db8::2]:860", "[2001:db8::2]:860"),
        // an IPv4-mapped address, and a scope, which is valid on one host only
        ("[::ffff:192.0.2.2]:3260", "192.0.2.2:3260"),
        ("[fe80::2%7]:3260", "[fe80::2]:3260"),
    ] {
        let mut talk = discovery(settings(), local);
        let (header, data) = text_request(&mut talk, 5, RESERVED_TAG, &[("SendTargets", "All")]);
        talk.send(0, header, &data);
        let expected = format!("TargetName={TARGET}\0TargetAddress={expected},1\0");
        assert_eq!(String::from_utf8(talk.receive_one(0).data).unwrap(), expected);
    }
}

#[test]
fn a_normal_session_lists_only_its_target() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    let own = format!("TargetName={TARGET}\0TargetAddress={LOCAL},1\0");
    for (value, expected) in [
        ("", own.clone()),
        (TARGET, own),
        ("All", "SendTargets=Reject\0".to_owned()),
        ("iqn.2025-01.org.iscsitrace:none", String::new()),
    ] {
        let (header, data) = text_request(&mut talk, 5, RESERVED_TAG, &[("SendTargets", value)]);
        talk.send(0, header, &data);
        assert_eq!(String::from_utf8(talk.receive_one(0).data).unwrap(), expected);
    }
}

#[test]
fn other_keys_are_declared_refused_or_not_understood() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    let pairs = [("MaxRecvDataSegmentLength", "1024"), ("MaxBurstLength", "1024"), ("X-org.example.a", "1")];
    let (header, data) = text_request(&mut talk, 5, RESERVED_TAG, &pairs);
    talk.send(0, header, &data);
    let expected = text(&[("MaxBurstLength", "Reject"), ("X-org.example.a", "NotUnderstood")]);
    assert_eq!(talk.receive_one(0).data, expected);
    let read = talk.read(6, 0, 4);
    talk.send(0, read, &[]);
    let lengths: Vec<_> = talk.receive(0).iter().map(|pdu| pdu.data.len()).collect();
    assert_eq!(lengths, [1024, 1024]);
    let (header, data) = text_request(&mut talk, 7, 0x77, &[("SendTargets", "")]);
    talk.send(0, header, &data);
    assert_eq!(talk.receive_one(0).bhs().reject_reason(), Some(0x09), "a tag that was never given out");
}

#[test]
fn text_over_several_requests_is_bounded() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    let mut transfer_tag = RESERVED_TAG;
    for round in 0.. {
        let (header, _) = text_request(&mut talk, 5, transfer_tag, &[]);
        talk.send(0, header.is_final(false).is_continue(true), &[b'a'; 4096]);
        let answer = talk.receive_one(0);
        if answer.bhs().opcode() == Some(Opcode::Reject) {
            assert_eq!((answer.bhs().reject_reason(), round), (Some(0x0a), 4), "16 KiB are kept");
            break;
        }
        transfer_tag = answer.bhs().target_transfer_tag().unwrap();
    }
}

fn logout(talk: &mut Conversation, reason: u8, cid: u16) -> BhsBuilder {
    let cmd_sn = SerialNumber(talk.cmd_sn);
    BhsBuilder::new(Opcode::LogoutRequest)
        .is_immediate(true)
        .logout_reason(reason)
        .cid(cid)
        .initiator_task_tag(77)
        .cmd_sn(cmd_sn)
}

fn three_connections() -> Conversation {
    let mut talk = Conversation::logged_in(settings(), &[("MaxConnections", "3")]);
    for place in 1..3 {
        talk.connect();
        talk.log_in(place, &[]);
    }
    talk
}

#[test]
fn logout_closes_the_session_a_connection_or_another() {
    let mut talk = three_connections();
    let out = logout(&mut talk, 1, 1);
    talk.send(0, out, &[]);
    assert_eq!(talk.receive_one(0).bhs().response(), Some(0));
    assert_eq!([0, 1, 2].map(|place| talk.is_open(place)), [true, false, true]);
    let out = logout(&mut talk, 1, 2);
    talk.send(2, out, &[]);
    assert!(talk.is_open(2), "until the response is handed out");
    assert_eq!(talk.receive_one(2).bhs().response(), Some(0));
    assert_eq!([0, 1, 2].map(|place| talk.is_open(place)), [true, false, false]);
    let out = logout(&mut talk, 1, 2);
    talk.send(0, out, &[]);
    assert_eq!(talk.receive_one(0).bhs().response(), Some(1), "CID not found");
    let out = logout(&mut talk, 2, 0);
    talk.send(0, out, &[]);
    assert_eq!(talk.receive_one(0).bhs().response(), Some(2), "recovery is not supported");
    let mut talk = three_connections();
    let out = logout(&mut talk, 0, 0);
    talk.send(1, out, &[]);
    assert_eq!(talk.receive_one(1).bhs().response(), Some(0));
    assert_eq!([0, 1, 2].map(|place| talk.is_open(place)), [false; 3]);
    assert_eq!(talk.ending(2).unwrap(), "logged out (RFC 7143 section 11.14)");
    assert_eq!(talk.portal.session_count(), 0);
    let mut closed: Vec<_> = std::iter::from_fn(|| talk.portal.poll_close()).collect();
    closed.sort_unstable();
    assert_eq!(closed, [0, 1, 2]);
}

#[test]
fn a_logout_that_is_not_immediate_comes_after_the_commands_before_it() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    let ready = talk.test_unit_ready(1);
    let out = logout(&mut talk, 0, 0).is_immediate(false);
    talk.send(0, out, &[]);
    talk.receive_nothing(0);
    talk.send(0, ready, &[]);
    assert_eq!(opcodes(&talk.receive(0)), [Opcode::ScsiResponse, Opcode::LogoutResponse]);
    assert!(!talk.is_open(0));
}

#[test]
fn snack_is_rejected() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    let snack = BhsBuilder::new(Opcode::SnackRequest).snack_type(1).initiator_task_tag(RESERVED_TAG).run_length(1);
    let snack = snack.exp_stat_sn(SerialNumber(2));
    talk.send(0, snack, &[]);
    let reject = talk.receive_one(0);
    assert_eq!(reject.bhs().reject_reason(), Some(0x03));
    assert_eq!(reject.data, snack.build());
}

#[test]
fn a_late_ping_answer_does_not_extend_the_logout_time() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    let number = talk.number(0);
    talk.portal.ping(0, number);
    let tag = talk.receive_one(0).bhs().target_transfer_tag().unwrap();
    talk.portal.request_logout(0, number, 3);
    talk.send(0, nop_out(RESERVED_TAG, tag), &[]);
    talk.pass(3 * SECOND);
    assert!(talk.ending(0).unwrap().starts_with("not logged out 3 s after"));
}

#[test]
fn a_logout_can_be_requested() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    let number = talk.number(0);
    talk.portal.request_logout(0, number, 3);
    let message = talk.receive_one(0);
    let bhs = message.bhs();
    assert_eq!((bhs.opcode(), bhs.async_event(), bhs.parameter3()), (Some(Opcode::AsyncMessage), Some(1), Some(3)));
    let read = talk.read(6, 0, 1);
    talk.send(0, read, &[]);
    assert_eq!(talk.receive_one(0).bhs().reject_reason(), Some(0x0c), "Waiting for Logout");
    talk.pass(3 * SECOND);
    assert!(!talk.is_open(0));
    let ending = talk.ending(0).unwrap();
    assert!(ending.starts_with("not logged out 3 s after") && ending.contains("11.9.1"), "{ending}");
}
