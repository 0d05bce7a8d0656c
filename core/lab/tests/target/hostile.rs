//! Peers that violate the protocol: the portal ends their connection or rejects the PDU, within its memory limits.

use iscsitrace_lab::application::Application;
use iscsitrace_lab::protocol::target::{Limits, PortalSettings};
use iscsitrace_wire::bhs::{BhsBuilder, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;
use proptest::prelude::*;

use crate::conversation::{Conversation, INITIATOR, TARGET, cdb10, settings, text};

#[test]
fn an_initiator_that_takes_no_answers_is_closed() {
    let limits = Limits { waiting_pdu_count: 50, immediate_count: 20, ..Limits::default() };
    let mut talk = Conversation::logged_in(PortalSettings { limits, ..settings() }, &[]);
    for tag in 0..100 {
        talk.send(0, BhsBuilder::new(Opcode::NopOut).is_immediate(true).initiator_task_tag(tag), &[7; 512]);
    }
    assert_eq!(talk.ending(0).unwrap(), "more than 50 PDUs wait to be sent");
    let mut talk = Conversation::logged_in(settings(), &[]);
    for _ in 0..5000 {
        talk.send(0, BhsBuilder::new(Opcode::SnackRequest), &[]);
    }
    assert!(!talk.is_open(0), "Rejects are answers, too");
}

#[test]
fn a_data_segment_longer_than_declared_closes_the_connection() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    let write = talk.write(1, 0, 1).data_segment_length(262_145).build();
    talk.send_bytes(0, &write);
    let ending = talk.ending(0).unwrap();
    assert!(ending.contains("262145") && ending.contains("section 13.12"), "{ending}");
    let mut talk = Conversation::new(settings());
    talk.connect();
    let login = talk.login_request(0, 1, 3).data_segment_length(8193).build();
    talk.send_bytes(0, &login);
    assert!(!talk.is_open(0), "before the login it is 8192");
}

#[test]
fn a_bad_header_digest_closes_the_connection() {
    let mut talk = Conversation::logged_in(settings(), &[("HeaderDigest", "CRC32C")]);
    let ready = talk.test_unit_ready(1);
    let mut bytes = talk.bytes_of(0, ready, &[]);
    bytes[50] ^= 1;
    talk.send_bytes(0, &bytes);
    assert!(talk.ending(0).unwrap().starts_with("header digest error"));
}

#[test]
fn opcodes_of_targets_are_rejected() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    for opcode in (0..64u8).filter(|opcode| ![0, 1, 2, 4, 5, 6, 0x10].contains(opcode)) {
        let mut header = BhsBuilder::new(Opcode::NopOut).is_immediate(true).build();
        header[0] = 0x40 | opcode;
        talk.send_bytes(0, &header);
        let reject = talk.receive_one(0);
        let reason = if Opcode::from_u8(opcode).is_some() { 0x04 } else { 0x05 };
        assert_eq!((reject.bhs().reject_reason(), &reject.data[..]), (Some(reason), &header[..]), "{opcode:#x}");
    }
    let ready = talk.test_unit_ready(1);
    talk.send(0, ready, &[]);
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0), "the session goes on");
}

#[test]
fn commands_that_contradict_themselves_are_rejected() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    let read_and_write = talk.read(1, 0, 1).is_write(true);
    let read_with_data = talk.read(2, 0, 1);
    let read_that_goes_on = talk.read(3, 0, 1).is_final(false);
    let no_tag = talk.read(RESERVED_TAG, 0, 1);
    let with_ahs = BhsBuilder::new(Opcode::NopOut).is_immediate(true).initiator_task_tag(4).total_ahs_length_words(1);
    for (header, data, reason) in [
        (read_and_write, &[][..], 0x05),
        (read_with_data, &[0; 4][..], 0x09),
        (read_that_goes_on, &[][..], 0x09),
        (no_tag, &[][..], 0x09),
    ] {
        talk.send(0, header, data);
        assert_eq!(talk.receive_one(0).bhs().reject_reason(), Some(reason));
    }
    talk.send_bytes(0, &with_ahs.build());
    talk.send_bytes(0, &[0; 4]);
    assert_eq!(talk.receive_one(0).bhs().reject_reason(), Some(0x09));
    let ready = talk.test_unit_ready(1);
    talk.send(0, ready, &[]);
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0), "each had its CmdSN");
}

#[test]
fn a_tag_in_use_is_rejected() {
    let mut talk = Conversation::logged_in(settings(), &[("InitialR2T", "Yes"), ("ImmediateData", "No")]);
    for _ in 0..2 {
        let write = talk.write(5, 0, 1);
        talk.send(0, write, &[]);
    }
    let pdus = talk.receive(0);
    assert_eq!(pdus[0].bhs().opcode(), Some(Opcode::ReadyToTransfer));
    assert_eq!(pdus[1].bhs().reject_reason(), Some(0x07), "Task in progress");
}

#[test]
fn an_extended_cdb_is_read_and_a_malformed_one_rejected() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    // a CDB of 32 bytes: AHSLength 17, type 1, reserved, 16 bytes
    let ahs = [&[0, 17, 1, 0][..], &[0; 16]].concat();
    let mut cdb = cdb10(0x7f, 0, 0);
    cdb[7] = 24;
    let command = talk.command(1, cdb, 0).total_ahs_length_words(5).build();
    talk.send_bytes(0, &command);
    talk.send_bytes(0, &ahs);
    let response = talk.receive_one(0);
    // no logical unit here has variable-length commands
    assert_eq!(crate::conversation::sense(&response), [5, 0x20, 0]);
    let command = talk.command(2, cdb, 0).total_ahs_length_words(1).build();
    talk.send_bytes(0, &command);
    talk.send_bytes(0, &[0, 200, 1, 0]);
    assert_eq!(talk.receive_one(0).bhs().reject_reason(), Some(0x09));
}

/// A PDU of any kind, often a nearly valid one.
fn pdu() -> impl Strategy<Value = Vec<u8>> {
    let small = prop_oneof![Just(0u32), 0..4u32, Just(RESERVED_TAG), any::<u32>()];
    let opcode = prop_oneof![prop::sample::select(vec![0u8, 1, 1, 1, 2, 2, 3, 4, 5, 5, 5, 6, 0x10, 0x3f]), 0..64u8];
    let fields = (small.clone(), small.clone(), small.clone(), small.clone(), small);
    let cdb = (prop::sample::select(vec![0u8, 0x12, 0x28, 0x2a, 0x8a, 0x89, 0x5f, 0xa0]), 0..4u32, 0..80u16);
    (opcode, any::<u8>(), any::<bool>(), fields, cdb, prop::collection::vec(any::<u8>(), 0..600)).prop_map(
        |(opcode, flags, is_immediate, (itt, ttt, sn, data_sn, offset), (code, lba, blocks), data)| {
            let mut header = [0; 48];
            header[0] = opcode | u8::from(is_immediate) << 6;
            header[1] = flags;
            header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
            header[16..20].copy_from_slice(&itt.to_be_bytes());
            header[20..24].copy_from_slice(&ttt.to_be_bytes());
            header[24..28].copy_from_slice(&(100u32.wrapping_add(sn)).to_be_bytes());
            if opcode == 1 {
                header[32..48].copy_from_slice(&cdb10(code, lba, blocks));
            } else {
                header[36..40].copy_from_slice(&data_sn.to_be_bytes());
                header[40..44].copy_from_slice(&offset.to_be_bytes());
            }
            let mut bytes = header.to_vec();
            bytes.extend_from_slice(&data);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Any PDUs after the login are answered with legal PDUs, or end the connection with a reason.
    #[test]
    fn any_pdus_are_survived(pdus in prop::collection::vec((0..2usize, pdu()), 0..60)) {
        let mut talk = Conversation::logged_in(settings(), &[("MaxConnections", "2"), ("InitialR2T", "No")]);
        talk.connect();
        talk.log_in(1, &[]);
        for (place, bytes) in pdus {
            talk.send_bytes(place, &bytes);
            if talk.is_open(place) {
                talk.receive(place);
            }
            talk.pass(talk.now_ns + 1_000_000);
        }
        for place in 0..2 {
            prop_assert!(talk.is_open(place) || talk.ending(place).is_some());
        }
        prop_assert!(talk.portal.session_count() <= 1);
    }

    /// Any bytes instead of a login lead to a refusal, or to nothing.
    #[test]
    fn any_login_is_survived(
        stage in 0..4u8, next in 0..4u8, flags in any::<u8>(), cut in 0..2000usize,
        keys in prop::collection::vec((prop::sample::select(vec![
            "InitiatorName", "TargetName", "SessionType", "AuthMethod", "MaxConnections", "HeaderDigest", "A", "",
        ]), "[a-zA-Z0-9,=.:]{0,30}"), 0..8),
        rounds in 1..4usize
    ) {
        let mut talk = Conversation::new(settings());
        talk.connect();
        let mut pairs = vec![("InitiatorName", INITIATOR), ("TargetName", TARGET)];
        pairs.extend(keys.iter().map(|(key, value)| (*key, value.as_str())));
        for _ in 0..rounds {
            let mut bytes = talk.bytes_of(0, talk.login_request(0, stage, next), &text(&pairs));
            bytes[1] ^= flags & 0xf0;
            bytes.truncate(cut.max(48));
            talk.send_bytes(0, &bytes);
            talk.receive(0);
            pairs.drain(..2);
            if pairs.len() < 2 {
                break;
            }
        }
        prop_assert!(talk.is_open(0) || talk.ending(0).is_some());
    }
}

#[test]
fn an_acknowledgement_of_an_unsent_status_is_counted() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    let ready = talk.test_unit_ready(1).exp_stat_sn(SerialNumber(1000));
    talk.send(0, ready, &[]);
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0));
    assert_eq!(talk.portal.log().counters.wrong_exp_stat_sns, 1);
    assert_eq!(talk.portal.poll_timeout(), None);
}
