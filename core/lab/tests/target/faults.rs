//! Injected faults, without side effects.

use iscsitrace_lab::protocol::target::{FaultSettings, PortalSettings};
use iscsitrace_wire::opcode::Opcode;

use crate::conversation::{Conversation, MILLISECOND, opcodes, pattern, sense, settings};

fn talk_with(rule: &str, keys: &[(&str, &str)]) -> Conversation {
    let rule: FaultSettings = serde_json::from_str(rule).unwrap();
    Conversation::logged_in(PortalSettings { faults: vec![rule], ..settings() }, keys)
}

const DIGESTS: &[(&str, &str)] =
    &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C"), ("MaxRecvDataSegmentLength", "512")];

#[test]
fn a_bad_data_digest_hits_one_data_in() {
    let mut talk = talk_with(r#"{"fault": "bad_data_digest", "nth": 2, "operation": "read"}"#, DIGESTS);
    let mut found = Vec::new();
    for tag in 0..3 {
        let ready = talk.test_unit_ready(10 + tag);
        talk.send(0, ready, &[]);
        let read = talk.read(tag, 0, 2);
        talk.send(0, read, &[]);
        found.extend(talk.receive(0).iter().map(|pdu| pdu.is_data_digest_good));
    }
    // answer and two Data-In each time
    assert_eq!(found, [true, true, true, true, false, true, true, true, true]);
}

#[test]
fn a_bad_header_digest_hits_the_first_answer() {
    use iscsitrace_lab::application::Application;
    use iscsitrace_lab::protocol::pdu::{Decoder, Digests, Unreadable};
    for operation in ["read", "write"] {
        let rule = format!(r#"{{"fault": "bad_header_digest", "operation": "{operation}"}}"#);
        let keys = [DIGESTS, &[("InitialR2T", "Yes"), ("ImmediateData", "No")]].concat();
        let mut talk = talk_with(&rule, &keys);
        let command = if operation == "read" { talk.read(1, 0, 1) } else { talk.write(1, 0, 1) };
        talk.send(0, command, &[]);
        let mut out = Vec::new();
        talk.portal.poll_transmit(0, talk.number(0), &mut out);
        let mut decoder = Decoder::new(512);
        decoder.agree(Digests { header: true, data: true }, 512);
        assert_eq!(decoder.next(&mut &out[..]), Err(Unreadable::HeaderDigest), "{operation}");
    }
}

#[test]
fn a_swallowed_command_is_never_answered_but_can_be_aborted() {
    let mut talk = talk_with(r#"{"fault": "swallowed_pdu"}"#, &[]);
    let read = talk.read(1, 0, 1);
    talk.send(0, read, &[]);
    talk.receive_nothing(0);
    assert_eq!(talk.portal.log().tasks[0].fault.map(|fault| format!("{fault:?}")), Some("SwallowedPdu".into()));
    let ready = talk.test_unit_ready(2);
    talk.send(0, ready, &[]);
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0));
    let abort = talk.management(9, 1).referenced_task_tag(1);
    talk.send(0, abort, &[]);
    assert_eq!(talk.receive_one(0).bhs().response(), Some(0));
}

#[test]
fn an_r2t_is_delayed_by_the_set_time() {
    let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
    let mut talk = talk_with(r#"{"fault": "late_r2t", "by_ns": 7000000}"#, &keys);
    for tag in 1..3 {
        let write = talk.write(tag, 0, 1);
        talk.send(0, write, &[]);
    }
    assert_eq!(talk.receive_one(0).bhs().initiator_task_tag(), Some(2));
    talk.pass(7 * MILLISECOND - 1);
    talk.receive_nothing(0);
    talk.pass(7 * MILLISECOND);
    let r2t = talk.receive_one(0);
    assert_eq!(r2t.bhs().initiator_task_tag(), Some(1));
    let tag = r2t.bhs().target_transfer_tag().unwrap();
    talk.send(0, talk.data_out(1, tag, 0, 0, true), &pattern(512, 0));
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0));
}

#[test]
fn a_status_can_be_another() {
    for (fault, status) in [("busy", 0x08), ("task_set_full", 0x28)] {
        let mut talk = talk_with(&format!(r#"{{"fault": "{fault}"}}"#), &[]);
        for (tag, status) in [(1, status), (2, 0)] {
            let read = talk.read(tag, 0, 1);
            talk.send(0, read, &[]);
            let pdu = talk.receive_one(0);
            assert_eq!(pdu.bhs().status(), Some(status), "{fault}");
            assert_eq!(pdu.bhs().residual_count(), Some(if status == 0 { 0 } else { 512 }));
        }
    }
    let mut talk = talk_with(r#"{"fault": "check_condition", "sense": [4, 1, 2], "operation": "write"}"#, &[]);
    let write = talk.write(1, 0, 1);
    talk.send(0, write, &pattern(512, 1));
    assert_eq!(sense(&talk.receive_one(0)), [4, 1, 2]);
    assert_eq!(talk.load(0, 1), vec![0; 512], "nothing was written");
}

#[test]
fn a_status_is_delayed_by_the_set_time() {
    for operation in ["read", "write"] {
        let rule = format!(r#"{{"fault": "delayed_status", "by_ns": 9000000, "operation": "{operation}"}}"#);
        let mut talk = talk_with(&rule, &[]);
        let (command, data) = match operation {
            "read" => (talk.read(1, 0, 1), vec![]),
            _ => (talk.write(1, 0, 1), pattern(512, 1)),
        };
        talk.send(0, command, &data);
        let expected: &[Opcode] = if operation == "read" { &[Opcode::DataIn] } else { &[] };
        assert_eq!(opcodes(&talk.receive(0)), expected);
        talk.pass(9 * MILLISECOND - 1);
        talk.receive_nothing(0);
        talk.pass(9 * MILLISECOND);
        let response = talk.receive_one(0);
        assert_eq!(response.bhs().opcode(), Some(Opcode::ScsiResponse));
        assert_eq!(response.bhs().status(), Some(0));
    }
}

#[test]
fn a_command_can_be_rejected() {
    let mut talk = talk_with(r#"{"fault": "reject", "reason": 9}"#, &[]);
    let write = talk.write(1, 0, 1);
    let sent = talk.bytes_of(0, write, &pattern(512, 1));
    talk.send_bytes(0, &sent);
    let reject = talk.receive_one(0);
    assert_eq!((reject.bhs().reject_reason(), &reject.data[..]), (Some(9), &sent[..48]));
    let ready = talk.test_unit_ready(1);
    talk.send(0, ready, &[]);
    let response = talk.receive_one(0);
    assert_eq!(response.bhs().status(), Some(0));
    // both CmdSN are consumed, and both credits returned
    let (exp, max) = (response.bhs().exp_cmd_sn().unwrap().0, response.bhs().max_cmd_sn().unwrap().0);
    assert_eq!((exp, max), (talk.cmd_sn, talk.cmd_sn + 127));
}

#[test]
fn a_connection_can_be_closed() {
    let mut talk = talk_with(r#"{"fault": "closed_connection", "nth": 2}"#, &[]);
    for tag in 1..3 {
        let read = talk.read(tag, 0, 1);
        talk.send(0, read, &[]);
        assert_eq!(talk.is_open(0), tag == 1);
    }
    assert_eq!(talk.ending(0).unwrap(), "closed on request");
}
