//! Writes: immediate, unsolicited and solicited data, and invalid data.

use iscsitrace_lab::protocol::keys::Offers;
use iscsitrace_lab::protocol::target::{PortalSettings, R2tOrder};
use iscsitrace_wire::bhs::RESERVED_TAG;
use iscsitrace_wire::opcode::Opcode;

use crate::conversation::{Conversation, Pdu, opcodes, pattern, sense, settings};

const KEYS: &[(&str, &str)] = &[
    ("InitialR2T", "No"),
    ("ImmediateData", "Yes"),
    ("FirstBurstLength", "4096"),
    ("MaxBurstLength", "8192"),
    ("MaxRecvDataSegmentLength", "262144"),
];

const R2T_ONLY: &[(&str, &str)] = &[
    ("InitialR2T", "Yes"),
    ("ImmediateData", "No"),
    ("MaxBurstLength", "8192"),
    ("MaxRecvDataSegmentLength", "262144"),
];

/// R2TSN, Buffer Offset, Desired Data Transfer Length.
fn r2t(pdu: &Pdu) -> (u32, u32, u32) {
    let bhs = pdu.bhs();
    assert_eq!(bhs.opcode(), Some(Opcode::ReadyToTransfer), "{pdu:?}");
    (bhs.r2t_sn().unwrap().0, bhs.buffer_offset().unwrap(), bhs.desired_data_transfer_length().unwrap())
}

fn transfer_tag(pdu: &Pdu) -> u32 {
    pdu.bhs().target_transfer_tag().unwrap()
}

#[test]
fn a_write_with_immediate_unsolicited_and_solicited_data() {
    let mut talk = Conversation::logged_in(settings(), KEYS);
    let data = pattern(16_384, 3);
    let write = talk.write(9, 40, 32).is_final(false);
    talk.send(0, write, &data[..1024]);
    talk.receive_nothing(0);
    talk.send(0, talk.data_out(9, RESERVED_TAG, 0, 1024, false), &data[1024..2048]);
    talk.receive_nothing(0);
    talk.send(0, talk.data_out(9, RESERVED_TAG, 1, 2048, true), &data[2048..4096]);
    let first = talk.receive_one(0);
    assert_eq!(r2t(&first), (0, 4096, 8192));
    talk.send(0, talk.data_out(9, transfer_tag(&first), 0, 4096, false), &data[4096..8192]);
    talk.send(0, talk.data_out(9, transfer_tag(&first), 1, 8192, true), &data[8192..12_288]);
    let second = talk.receive_one(0);
    assert_eq!(r2t(&second), (1, 12_288, 4096));
    assert_ne!(transfer_tag(&first), transfer_tag(&second));
    talk.send(0, talk.data_out(9, transfer_tag(&second), 0, 12_288, true), &data[12_288..]);
    let response = talk.receive_one(0);
    assert_eq!((response.bhs().opcode(), response.bhs().status()), (Some(Opcode::ScsiResponse), Some(0)));
    assert_eq!(response.bhs().residual_count(), Some(0));
    assert_eq!(talk.load(40, 32), data);
    let task = &talk.portal.log().tasks[0];
    assert_eq!((task.transferred_bytes, task.r2t_count, task.command), (16_384, 2, "WRITE(10)"));
}

#[test]
fn several_r2ts_are_sent_in_the_set_order() {
    let keys = Offers { data_sequence_in_order: Some(false), max_outstanding_r2t: Some(4), ..settings().keys };
    let pairs = [R2T_ONLY, &[("MaxOutstandingR2T", "3"), ("DataSequenceInOrder", "No")]].concat();
    for (r2t_order, offsets) in [(R2tOrder::InOrder, [0, 8192, 16_384]), (R2tOrder::Reverse, [24_576, 16_384, 8192])] {
        let mut talk = Conversation::logged_in(PortalSettings { keys: keys.clone(), r2t_order, ..settings() }, &pairs);
        let data = pattern(32_768, 5);
        let write = talk.write(9, 0, 64);
        talk.send(0, write, &[]);
        let mut open = talk.receive(0);
        let found: Vec<_> = open.iter().map(|pdu| r2t(pdu).1).collect();
        assert_eq!(found, offsets, "{r2t_order:?}");
        let mut answered = 0;
        // the last R2T is answered first
        while let Some(pdu) = open.pop() {
            let (_, offset, length) = r2t(&pdu);
            let range = offset as usize..(offset + length) as usize;
            talk.send(0, talk.data_out(9, transfer_tag(&pdu), 0, offset, true), &data[range]);
            answered += 1;
            if answered < 4 {
                open.extend(talk.receive(0));
            }
        }
        assert_eq!(answered, 4);
        assert_eq!(talk.receive_one(0).bhs().status(), Some(0));
        assert_eq!(talk.load(0, 64), data);
    }
}

#[test]
fn another_order_needs_data_sequence_in_order_no() {
    let mut talk = Conversation::logged_in(PortalSettings { r2t_order: R2tOrder::Reverse, ..settings() }, R2T_ONLY);
    let write = talk.write(9, 0, 64);
    talk.send(0, write, &[]);
    assert_eq!(r2t(&talk.receive_one(0)), (0, 0, 8192));
}

#[test]
fn excess_write_data_is_a_residual() {
    // WRITE(10) of one block
    for (expected, asked, overflow, underflow) in [(512, 512, 0, 0), (2048, 512, 0, 1536), (256, 256, 256, 0)] {
        let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
        let write = talk.write(9, 0, 1).expected_data_transfer_length(expected);
        talk.send(0, write, &[]);
        let pdu = talk.receive_one(0);
        assert_eq!(r2t(&pdu), (0, 0, asked));
        talk.send(0, talk.data_out(9, transfer_tag(&pdu), 0, 0, true), &pattern(asked as usize, 0));
        let response = talk.receive_one(0);
        let bhs = response.bhs();
        assert_eq!((bhs.is_overflow(), bhs.is_underflow()), (Some(overflow > 0), Some(underflow > 0)), "{expected}");
        assert_eq!((bhs.status(), bhs.residual_count()), (Some(0), Some(overflow + underflow)));
        assert_eq!(bhs.exp_data_sn().unwrap().0, 0, "no Data-In (RFC 7143 section 11.4.8)");
    }
}

/// COMPARE AND WRITE takes each block twice. 256 blocks do not fit its one byte, which then says 0.
#[test]
fn compare_and_write_with_a_wrong_length_is_refused() {
    for (blocks, expected) in [(1, 512), (1, 2048), (0, 262_144)] {
        let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
        let mut cdb = [0; 16];
        (cdb[0], cdb[13]) = (0x89, blocks);
        let command = talk.command(9, cdb, expected).is_write(true);
        talk.send(0, command, &[]);
        assert_eq!(sense(&talk.receive_one(0)), [5, 0x24, 0], "{blocks} blocks, {expected} bytes");
    }
}

#[test]
fn a_refused_write_takes_the_unsolicited_data_first() {
    let mut talk = Conversation::logged_in(settings(), KEYS);
    let write = talk.write(9, 131_072, 32).is_final(false);
    talk.send(0, write, &[]);
    talk.receive_nothing(0);
    talk.send(0, talk.data_out(9, RESERVED_TAG, 0, 0, true), &pattern(4096, 0));
    assert_eq!(sense(&talk.receive_one(0)), [5, 0x21, 0], "LOGICAL BLOCK ADDRESS OUT OF RANGE");
}

#[test]
fn unsolicited_data_that_is_not_allowed_ends_in_check_condition() {
    // ABORTED COMMAND, WRITE ERROR - UNEXPECTED UNSOLICITED DATA (RFC 7143 section 11.4.7.2)
    let unexpected = [0x0b, 0x0c, 0x0c];
    let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
    let write = talk.write(9, 0, 1);
    talk.send(0, write, &pattern(512, 1));
    assert_eq!(sense(&talk.receive_one(0)), unexpected);
    let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
    let write = talk.write(9, 0, 1).is_final(false);
    talk.send(0, write, &[]);
    talk.receive_nothing(0);
    talk.send(0, talk.data_out(9, RESERVED_TAG, 0, 0, true), &pattern(512, 1));
    assert_eq!(sense(&talk.receive_one(0)), unexpected);
    let mut talk = Conversation::logged_in(settings(), KEYS);
    let write = talk.write(9, 0, 16);
    talk.send(0, write, &pattern(4608, 1));
    assert_eq!(sense(&talk.receive_one(0)), unexpected, "more than FirstBurstLength");
}

#[test]
fn sense_data_is_in_the_format_that_the_initiator_chose() {
    let mut talk = Conversation::logged_in(settings(), &[("ImmediateData", "Yes"), ("FirstBurstLength", "512")]);
    // MODE SELECT(6) of the control mode page with D_SENSE (SPC-4)
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[4]) = (0x15, 0x10, 16);
    let select = talk.command(1, cdb, 16).is_write(true);
    talk.send(0, select, &[0, 0, 0, 0, 0x0a, 0x0a, 0x04, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0]);
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0));
    let write = talk.write(2, 0, 2);
    talk.send(0, write, &pattern(1024, 0));
    let response = talk.receive_one(0);
    assert_eq!(response.bhs().status(), Some(2));
    // descriptor format, ABORTED COMMAND, UNEXPECTED UNSOLICITED DATA (RFC 7143 section 11.4.7.2)
    assert_eq!(response.data[2..6], [0x72, 0x0b, 0x0c, 0x0c]);
}

#[test]
fn data_beyond_the_r2t_is_rejected_and_ends_in_check_condition() {
    // WRITE ERROR - NOT ENOUGH UNSOLICITED DATA, for each other amount than agreed
    let amount = [0x0b, 0x0c, 0x0d];
    // offset and length of the one Data-Out, as the answer to an R2T of 8192 from 0
    for (offset, length) in [(0, 8704), (8192, 512), (512, 512), (0xffff_fe00, 512)] {
        let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
        let before = talk.load(0, 32);
        let write = talk.write(9, 0, 32);
        talk.send(0, write, &[]);
        let pdu = talk.receive_one(0);
        let data_out = talk.data_out(9, transfer_tag(&pdu), 0, offset, true);
        let sent = talk.bytes_of(0, data_out, &pattern(length, 7));
        talk.send_bytes(0, &sent);
        let pdus = talk.receive(0);
        assert_eq!(opcodes(&pdus), [Opcode::Reject, Opcode::ScsiResponse], "{offset} {length}");
        assert_eq!(pdus[0].bhs().reject_reason(), Some(0x09), "Invalid PDU field");
        assert_eq!(pdus[0].data, sent[..48], "the header comes back");
        assert_eq!(sense(&pdus[1]), amount);
        assert_eq!(talk.load(0, 32), before, "nothing was written");
    }
    let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
    let write = talk.write(9, 0, 32);
    talk.send(0, write, &[]);
    let pdu = talk.receive_one(0);
    talk.send(0, talk.data_out(9, transfer_tag(&pdu), 0, 0, true), &pattern(512, 7));
    assert_eq!(sense(&talk.receive_one(0)), amount, "less than asked for");
}

#[test]
fn a_missing_data_out_is_a_crc_error() {
    let mut talk = Conversation::logged_in(settings(), R2T_ONLY);
    let write = talk.write(9, 0, 32);
    talk.send(0, write, &[]);
    let pdu = talk.receive_one(0);
    talk.send(0, talk.data_out(9, transfer_tag(&pdu), 0, 0, false), &pattern(512, 7));
    talk.send(0, talk.data_out(9, transfer_tag(&pdu), 2, 1024, false), &pattern(512, 7));
    talk.receive_nothing(0);
    talk.send(0, talk.data_out(9, transfer_tag(&pdu), 3, 1536, true), &pattern(6656, 7));
    // ABORTED COMMAND, PROTOCOL SERVICE CRC ERROR
    assert_eq!(sense(&talk.receive_one(0)), [0x0b, 0x47, 0x05]);
}

#[test]
fn a_bad_data_digest_is_rejected_and_ends_in_check_condition() {
    let keys = [R2T_ONLY, &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]].concat();
    let mut talk = Conversation::logged_in(settings(), &keys);
    let write = talk.write(9, 0, 32);
    talk.send(0, write, &[]);
    let pdu = talk.receive_one(0);
    let mut bytes = talk.bytes_of(0, talk.data_out(9, transfer_tag(&pdu), 0, 0, false), &pattern(512, 7));
    bytes[60] ^= 1;
    talk.send_bytes(0, &bytes);
    let reject = talk.receive_one(0);
    assert_eq!(reject.bhs().reject_reason(), Some(0x02), "Data (payload) digest error");
    talk.send(0, talk.data_out(9, transfer_tag(&pdu), 1, 512, true), &pattern(7680, 7));
    assert_eq!(sense(&talk.receive_one(0)), [0x0b, 0x47, 0x05]);
    // a command with damaged immediate data is dropped
    let keys = [KEYS, &[("DataDigest", "CRC32C")]].concat();
    let mut talk = Conversation::logged_in(settings(), &keys);
    let write = talk.write(9, 0, 1);
    let mut bytes = talk.bytes_of(0, write, &pattern(512, 7));
    bytes[60] ^= 1;
    talk.send_bytes(0, &bytes);
    assert_eq!(talk.receive_one(0).bhs().reject_reason(), Some(0x02));
    talk.cmd_sn -= 1;
    let write = talk.write(9, 0, 1);
    talk.send(0, write, &pattern(512, 7));
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0), "its CmdSN is still free");
}

#[test]
fn data_without_a_task_is_rejected() {
    let mut talk = Conversation::logged_in(settings(), KEYS);
    for (tag, transfer) in [(9, RESERVED_TAG), (9, 0x0001_0000), (9, 0x1234_5678)] {
        talk.send(0, talk.data_out(tag, transfer, 0, 0, true), &pattern(512, 7));
        assert_eq!(talk.receive_one(0).bhs().reject_reason(), Some(0x09));
    }
}

#[test]
fn data_on_another_connection_than_the_command_is_rejected() {
    let mut talk = Conversation::logged_in(settings(), &[R2T_ONLY, &[("MaxConnections", "2")]].concat());
    talk.connect();
    talk.log_in(1, &[]);
    let write = talk.write(9, 0, 1);
    talk.send(0, write, &[]);
    let pdu = talk.receive_one(0);
    talk.send(1, talk.data_out(9, transfer_tag(&pdu), 0, 0, true), &pattern(512, 7));
    assert_eq!(talk.receive_one(1).bhs().reject_reason(), Some(0x09));
    talk.send(0, talk.data_out(9, transfer_tag(&pdu), 0, 0, true), &pattern(512, 7));
    assert_eq!(talk.receive_one(0).bhs().status(), Some(0));
}
