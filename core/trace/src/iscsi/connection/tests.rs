//! How well headers fit a connection with an open read and an open write.

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, RESERVED_TAG};

use super::*;
use crate::iscsi::framer::listener::Fit;
use crate::iscsi::pdu::Stamp;

const READ: u32 = 0x30;
const WRITE: u32 = 0x31;
const UNKNOWN: u32 = 0x99;
const BYTES: u32 = 4096;

fn command(tag: u32, is_read: bool) -> BhsBuilder {
    BhsBuilder::new(Opcode::ScsiCommand)
        .is_final(true)
        .is_read(is_read)
        .is_write(!is_read)
        .initiator_task_tag(tag)
        .expected_data_transfer_length(BYTES)
}

/// A connection with a READ and a WRITE of 4096 bytes in flight, and no numbers so far.
fn connection() -> IscsiConnection {
    let (mut connection, mut context) = (IscsiConnection::new(1), Context::default());
    for (tag, opcode) in [(READ, 0x28), (WRITE, 0x2a)] {
        let header = command(tag, tag == READ).cdb([opcode, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]).build();
        connection.begin(Bhs::new(&header), Stamp { frame: 1, time_ns: 1000 }, &mut context);
    }
    connection
}

fn data_in(tag: u32, offset: u32, bytes: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::DataIn)
        .initiator_task_tag(tag)
        .target_transfer_tag(RESERVED_TAG)
        .buffer_offset(offset)
        .data_segment_length(bytes)
}

fn data_out(tag: u32, offset: u32, bytes: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::DataOut)
        .initiator_task_tag(tag)
        .target_transfer_tag(0x70)
        .buffer_offset(offset)
        .data_segment_length(bytes)
}

fn r2t(tag: u32, offset: u32, bytes: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::ReadyToTransfer)
        .initiator_task_tag(tag)
        .target_transfer_tag(0x70)
        .buffer_offset(offset)
        .desired_data_transfer_length(bytes)
}

fn response(tag: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::ScsiResponse).initiator_task_tag(tag)
}

#[test]
fn a_header_of_the_other_side_or_against_the_rfc_does_not_fit() {
    let connection = connection();
    let fit = |header: BhsBuilder, to_target| connection.judge(Bhs::new(&header.build()), to_target);
    assert_eq!(fit(command(UNKNOWN, true), false), Fit::No);
    assert_eq!(fit(response(READ), true), Fit::No);
    // a Data-In of the reserved tag
    assert_eq!(fit(data_in(RESERVED_TAG, 0, 512), false), Fit::No);
    assert_eq!(connection.judge(Bhs::new(&[0x3d; 48]), false), Fit::No);
    assert_eq!(connection.judge(Bhs::new(&[]), false), Fit::No);
}

#[test]
fn a_pdu_of_an_open_task_fits_certainly_within_its_length() {
    // numbers that are near are of no account here
    let connection = connection();
    for (header, to_target, fit) in [
        (data_in(READ, 1024, 3072), false, Fit::Certain),
        (data_in(READ, 1025, 3072), false, Fit::Possible),
        (data_in(WRITE, 0, 512), false, Fit::Possible),
        (data_in(UNKNOWN, 0, 512), false, Fit::Possible),
        (data_out(WRITE, 1024, 3072), true, Fit::Certain),
        (data_out(WRITE, 1025, 3072), true, Fit::Possible),
        (data_out(READ, 0, 512), true, Fit::Possible),
        (data_out(UNKNOWN, 0, 512), true, Fit::Possible),
        (r2t(WRITE, 1024, 3072), false, Fit::Certain),
        (r2t(WRITE, 1025, 3072), false, Fit::Possible),
        (r2t(READ, 0, 512), false, Fit::Possible),
        (r2t(UNKNOWN, 0, 512), false, Fit::Possible),
        (response(READ), false, Fit::Certain),
        (response(UNKNOWN), false, Fit::Possible),
        (command(READ, true), true, Fit::Possible),
    ] {
        let header = header.build();
        // a Data-In and an R2T have ExpCmdSN and MaxCmdSN 0, which nothing contradicts
        assert_eq!(connection.judge(Bhs::new(&header), to_target), fit, "{header:02x?}");
    }
    // as much of it as was captured
    let header = data_in(READ, 1025, 3072).build();
    assert_eq!(connection.judge(Bhs::new(&header[..40]), false), Fit::Certain);
    assert_eq!(connection.judge(Bhs::new(&header[..44]), false), Fit::Possible);
}

/// The numbers that each side sent last: CmdSN and ExpStatSN; StatSN, ExpCmdSN and MaxCmdSN.
fn numbered(of_initiator: [Option<u32>; 2], of_target: [Option<u32>; 3]) -> IscsiConnection {
    let mut connection = IscsiConnection::new(1);
    [connection.cmd_sn, connection.exp_stat_sn] = of_initiator.map(|number| number.map(SerialNumber));
    [connection.stat_sn, connection.exp_cmd_sn, connection.max_cmd_sn] =
        of_target.map(|number| number.map(SerialNumber));
    connection
}

const NEAR_MAX: u32 = (1 << 14) - 1;

fn nop_out(cmd_sn: u32, exp_stat_sn: u32) -> [u8; 48] {
    let header = BhsBuilder::new(Opcode::NopOut).initiator_task_tag(UNKNOWN).target_transfer_tag(RESERVED_TAG);
    header.cmd_sn(SerialNumber(cmd_sn)).exp_stat_sn(SerialNumber(exp_stat_sn)).build()
}

fn nop_in(stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32) -> [u8; 48] {
    let header = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(UNKNOWN).target_transfer_tag(RESERVED_TAG);
    let header = header.stat_sn(SerialNumber(stat_sn)).exp_cmd_sn(SerialNumber(exp_cmd_sn));
    header.max_cmd_sn(SerialNumber(max_cmd_sn)).build()
}

#[test]
fn two_near_numbers_of_the_initiator_fit_certainly() {
    let fit = |connection: &IscsiConnection, cmd_sn, exp_stat_sn| {
        connection.judge(Bhs::new(&nop_out(cmd_sn, exp_stat_sn)), true)
    };
    let both = numbered([Some(100_000), Some(500_000)], [None; 3]);
    assert_eq!(fit(&both, 100_000, 500_000), Fit::Certain);
    assert_eq!(fit(&both, 100_000 + NEAR_MAX, 500_000 - NEAR_MAX), Fit::Certain);
    assert_eq!(fit(&both, 100_001 + NEAR_MAX, 500_000), Fit::Unlikely);
    assert_eq!(fit(&both, 100_000, 499_999 - NEAR_MAX), Fit::Unlikely);
    // a CmdSN does not go back
    assert_eq!(fit(&both, 99_999, 500_000), Fit::Unlikely);
    // one number alone, and none
    for (of_initiator, expected) in
        [([Some(100_000), None], Fit::Possible), ([None, Some(500_000)], Fit::Possible), ([None; 2], Fit::Possible)]
    {
        assert_eq!(fit(&numbered(of_initiator, [None; 3]), 100_000, 500_000), expected);
    }
    // without its own numbers, those of the target are a hint, which cannot contradict
    let hinted = numbered([None; 2], [Some(500_000), Some(100_000), None]);
    assert_eq!(fit(&hinted, 100_000, 500_000), Fit::Certain);
    assert_eq!(fit(&hinted, 99_999, 500_000), Fit::Certain);
    assert_eq!(fit(&hinted, 200_000, 500_000), Fit::Possible);
    assert_eq!(fit(&hinted, 100_000, 600_000), Fit::Possible);
    // its own numbers count, whatever the hint
    let contradicted = numbered([Some(100_000), Some(500_000)], [Some(900_000), Some(900_000), None]);
    assert_eq!(fit(&contradicted, 100_000, 500_000), Fit::Certain);
}

#[test]
fn two_near_numbers_of_the_target_fit_certainly() {
    let fit = |connection: &IscsiConnection, numbers: [u32; 3]| {
        connection.judge(Bhs::new(&nop_in(numbers[0], numbers[1], numbers[2])), false)
    };
    let all = numbered([None; 2], [Some(500_000), Some(100_000), Some(100_031)]);
    assert_eq!(fit(&all, [500_000, 100_000, 100_031]), Fit::Certain);
    // all of them may go back
    assert_eq!(fit(&all, [499_999, 99_999, 100_030]), Fit::Certain);
    for far in 0..3 {
        let mut numbers = [500_000, 100_000, 100_031];
        numbers[far] += NEAR_MAX + 1;
        assert_eq!(fit(&all, numbers), Fit::Unlikely, "number {far}");
    }
    for (of_target, expected) in [
        ([Some(500_000), None, None], Fit::Possible),
        ([None, Some(100_000), None], Fit::Possible),
        ([None, None, Some(100_031)], Fit::Possible),
        ([Some(500_000), Some(100_000), None], Fit::Certain),
        ([None, Some(100_000), Some(100_031)], Fit::Certain),
    ] {
        assert_eq!(fit(&numbered([None; 2], of_target), [500_000, 100_000, 100_031]), expected, "{of_target:?}");
    }
    // hints: ExpStatSN for StatSN, CmdSN for the others
    let hinted = |of_initiator| fit(&numbered(of_initiator, [None; 3]), [500_000, 100_000, 100_031]);
    assert_eq!(hinted([Some(100_000), None]), Fit::Certain);
    assert_eq!(hinted([None, Some(500_000)]), Fit::Possible);
    assert_eq!(hinted([Some(900_000), Some(500_000)]), Fit::Possible);
}

#[test]
fn one_near_number_is_enough_only_for_a_data_out() {
    let mut connection = connection();
    connection.exp_stat_sn = Some(SerialNumber(500));
    let near = data_out(UNKNOWN, 0, 512).exp_stat_sn(SerialNumber(501)).build();
    assert_eq!(connection.judge(Bhs::new(&near), true), Fit::Certain);
    let far = data_out(WRITE, 0, 512).exp_stat_sn(SerialNumber(1 << 20)).build();
    assert_eq!(connection.judge(Bhs::new(&far), true), Fit::Unlikely, "although it is of an open task");
    let other = command(UNKNOWN, true).exp_stat_sn(SerialNumber(501)).build();
    assert_eq!(connection.judge(Bhs::new(&other), true), Fit::Possible);
}
