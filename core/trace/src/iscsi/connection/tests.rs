//! How well headers fit a connection with an open read and an open write.

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, RESERVED_TAG};

use super::listener::ConnectionListener;
use super::*;
use crate::iscsi::framer::listener::Listener;
use crate::iscsi::pdu::DataPackets;
use crate::iscsi::session::missing_commands::DataCarriers;
use crate::iscsi::synchroniser::Fit;
use crate::stream::stamp::Stamp;
use crate::tables::NULL_U64;

const READ: u32 = 0x30;
const WRITE: u32 = 0x31;
const UNKNOWN: u32 = 0x99;
const BYTES: u32 = 4096;

pub(super) fn command(tag: u32, is_read: bool) -> BhsBuilder {
    BhsBuilder::new(Opcode::ScsiCommand)
        .is_final(true)
        .is_read(is_read)
        .is_write(!is_read)
        .initiator_task_tag(tag)
        .expected_data_transfer_length(BYTES)
}

/// A connection with a READ and a WRITE of 4096 bytes in flight, and no numbers so far.
fn connection() -> IscsiConnection {
    opened(&[(READ, 0x28), (WRITE, 0x2a)]).0
}

/// A connection with these commands in flight: tags and operation codes.
pub(super) fn opened(commands: &[(u32, u8)]) -> (IscsiConnection, Context) {
    let (mut connection, mut context) = (IscsiConnection::new(1), Context::default());
    for &(tag, opcode) in commands {
        let cdb = [opcode, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
        let header = command(tag, opcode == 0x28).cdb(cdb).build();
        connection.begin(Bhs::new(&header), Stamp { frame: 1, time_ns: 1000 }, &mut context);
    }
    (connection, context)
}

pub(super) fn data_in(tag: u32, offset: u32, bytes: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::DataIn)
        .initiator_task_tag(tag)
        .target_transfer_tag(RESERVED_TAG)
        .buffer_offset(offset)
        .data_segment_length(bytes)
}

pub(super) fn data_out(tag: u32, offset: u32, bytes: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::DataOut)
        .initiator_task_tag(tag)
        .target_transfer_tag(0x70)
        .buffer_offset(offset)
        .data_segment_length(bytes)
}

pub(super) fn r2t(tag: u32, offset: u32, bytes: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::ReadyToTransfer)
        .initiator_task_tag(tag)
        .target_transfer_tag(0x70)
        .buffer_offset(offset)
        .desired_data_transfer_length(bytes)
}

pub(super) fn response(tag: u32) -> BhsBuilder {
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
    connection.statuses = of_target[0].map(|number| SerialNumber(number).into());
    [_, connection.exp_cmd_sn, connection.max_cmd_sn] = of_target.map(|number| number.map(SerialNumber));
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

/// The ends of the PDUs that must come from offset 0 on, without digests: if statuses come apart, and if not.
fn expected_ends(connection: &IscsiConnection, to_target: bool, context: &Context) -> [Vec<i64>; 2] {
    let after = |after| connection.due(to_target, (0, after), [false; 2], &context.tables.cycles);
    [0, 1].map(|reading| std::iter::successors(after(0)[reading], |&end| after(end)[reading]).collect())
}

#[test]
fn the_status_of_a_read_is_expected_apart_or_with_its_data() {
    for (is_in_data, expected) in [
        (None, [vec![1048, 1096], vec![1048]]),
        (Some(true), [vec![], vec![1048]]),
        (Some(false), [vec![1048, 1096], vec![]]),
    ] {
        let (mut connection, mut context) = opened(&[(READ, 0x28)]);
        connection.is_status_in_data = is_in_data;
        context.tables.cycles.data_bytes[0] = BYTES - 1000;
        connection.expected[1].note_data(READ, BYTES - 1000, 1000);
        assert_eq!(expected_ends(&connection, false, &context), expected);
    }
}

#[test]
fn a_digest_makes_an_expected_pdu_longer() {
    let (mut connection, mut context) = opened(&[(READ, 0x28)]);
    context.tables.cycles.data_bytes[0] = BYTES - 1001;
    connection.expected[1].note_data(READ, BYTES - 1001, 1001);
    for (digests, ends) in [
        ([true, false], [1052 + 4, 1052 + 4 + 52]),
        ([false, true], [1052 + 4, 1052 + 4 + 48]),
        ([true, true], [1052 + 8, 1052 + 8 + 52]),
    ] {
        let due = |after| connection.due(false, (0, after), digests, &context.tables.cycles)[0];
        assert_eq!([due(0), due(ends[0])], ends.map(Some), "{digests:?}");
    }
}

#[test]
fn the_oldest_reads_without_data_come_next() {
    let (mut connection, mut context) = opened(&[(9, 0x2a), (7, 0x28), (5, 0x28), (6, 0x28)]);
    context.tables.cycles.data_bytes[1] = BYTES;
    connection.is_status_in_data = Some(true);
    // after the last data of the first read, in PDUs of at most 3072 bytes
    connection.expected[1].note_data(7, 3072, 0);
    let ends = [3120, 3120 + 1072, 2 * 3120 + 1072, 2 * (3120 + 1072)];
    assert_eq!(expected_ends(&connection, false, &context), [vec![], ends.to_vec()]);
}

#[test]
fn an_initiator_sends_no_status_and_its_next_burst_is_unknown() {
    let (mut connection, context) = opened(&[(WRITE, 0x2a), (READ, 0x28)]);
    connection.expected[0].note_data(WRITE, 1024, 1500);
    assert_eq!(expected_ends(&connection, true, &context), [vec![], vec![1072, 1072 + 48 + 476]]);
}

#[test]
fn nothing_is_expected_of_a_sender_whose_data_were_never_seen() {
    let (connection, context) = opened(&[(READ, 0x28)]);
    assert_eq!(expected_ends(&connection, false, &context), [vec![], vec![]]);
}

#[test]
fn a_header_with_its_length_but_without_its_tag_is_of_the_task_that_comes_next() {
    // the length, the rest of the read, and whether its header has the status
    for (bytes, has_status, is_assumed) in [(1000, false, true), (1000, true, true), (996, false, false)] {
        let (mut connection, mut context) = opened(&[(READ, 0x28)]);
        context.tables.cycles.data_bytes[0] = BYTES - 1000;
        connection.expected[1].note_data(READ, BYTES - 1000, 1000);
        let header = data_in(READ, BYTES - 1000, bytes).has_status(has_status).build();
        let end = 48 + i64::from(bytes);
        let pdu = Pdu { header: &header[..19], end, data_end: end, ..captured(&header, 2) };
        connection.take(&pdu, false, &mut context);
        let cycles = &context.tables.cycles;
        assert_eq!(cycles.data_bytes[0], if is_assumed { BYTES } else { BYTES - 1000 });
        assert_eq!(cycles.status_frame.get(0), if has_status { 2 } else { NULL_U64 });
        assert_eq!(connection.has_open_tasks(), !has_status);
        // it is a missing PDU in any case
        assert_eq!((connection.pdu_count, connection.missing.count), ([0, 0], [0, 1]));
    }
}

/// A PDU in one packet.
fn captured(header: &[u8], frame: u64) -> Pdu<'_> {
    let first = Stamp { frame, time_ns: frame as i64 * 1000 };
    let end = 48 + i64::from(Bhs::new(header).data_segment_length().unwrap());
    Pdu {
        header,
        data: &[],
        offset: 0,
        end,
        data_end: end,
        data_last_ns: first.time_ns,
        data_packets: DataPackets::default(),
        first,
        last: Some(first),
        latest: first,
        has_capture_gap: false,
        is_unfinished: false,
        is_late: false,
        header_digest_ok: None,
        data_digest_ok: None,
    }
}

/// Processes a PDU in one packet.
pub(super) fn take(connection: &mut IscsiConnection, context: &mut Context, frame: u64, header: BhsBuilder) {
    let header = header.build();
    let bhs = Bhs::new(&header);
    let to_target = bhs.opcode().unwrap().is_initiator();
    let first = Stamp { frame, time_ns: frame as i64 * 1000 };
    if to_target {
        connection.begin(bhs, first, context);
    }
    let pdu = captured(&header, frame);
    connection.take(&pdu, to_target, context);
}

/// The totals after PDUs of commands in flight: a READ and a WRITE.
fn totals(pdus: &[BhsBuilder]) -> PduTotals {
    let (mut connection, mut context) = opened(&[(READ, 0x28), (WRITE, 0x2a)]);
    for (frame, &header) in (2..).zip(pdus) {
        take(&mut connection, &mut context, frame, header);
    }
    connection.totals
}

#[test]
fn an_r2t_without_its_command_is_an_orphan() {
    let orphans = |header| totals(&[header]).orphan_r2ts;
    assert_eq!((orphans(r2t(UNKNOWN, 0, 512)), orphans(r2t(WRITE, 0, 512))), (1, 0));
    assert_eq!((orphans(data_in(UNKNOWN, 0, 512)), orphans(response(UNKNOWN))), (0, 0));
}

#[test]
fn pdus_with_data_and_the_r2ts_of_ended_commands_are_counted() {
    let first = data_in(READ, 0, 2048);
    let second = data_in(READ, 2048, 2048).data_sn(SerialNumber(1)).is_final(true);
    let carriers = |count, bytes, uncounted| DataCarriers { count, bytes, longest_bytes: bytes / count, uncounted };
    let apart = [first, second, response(READ).exp_data_sn(SerialNumber(2))];
    let none = DataCarriers::default();
    assert_eq!(totals(&apart), PduTotals { tasks: 1, carriers: [none, carriers(2, 4096, 2)], ..PduTotals::default() });
    // the last Data-In has the status, whose number counts it
    let together = [first, second.has_status(true)];
    assert_eq!(totals(&together).carriers[1], carriers(2, 4096, 1));
    let out = |place: u32| data_out(WRITE, place * 1024, 1024).data_sn(SerialNumber(place % 2));
    let again = |header: BhsBuilder| header.r2t_sn(SerialNumber(1)).target_transfer_tag(0x71);
    let write = [
        r2t(WRITE, 0, 2048),
        out(0),
        out(1).is_final(true),
        again(r2t(WRITE, 2048, 2048)),
        out(2).target_transfer_tag(0x71),
        out(3).target_transfer_tag(0x71).is_final(true),
        response(WRITE),
    ];
    let expected = PduTotals { tasks: 1, r2ts: 2, carriers: [carriers(4, 4096, 4), none], ..PduTotals::default() };
    assert_eq!(totals(&write), expected);
    let both = totals(&[&write[..], &apart].concat());
    assert_eq!(both, expected.with(&totals(&apart)));
}

#[test]
fn answers_that_were_read_before_their_command_count() {
    // the status of an earlier command with the same tag comes before, that of its own after it
    for (frame, status_frame) in [(2, NULL_U64), (7, 7)] {
        let (mut connection, mut context) = opened(&[]);
        take(&mut connection, &mut context, frame - 1, data_in(READ, 0, BYTES).data_sn(SerialNumber(0)));
        take(&mut connection, &mut context, frame, response(READ).exp_data_sn(SerialNumber(1)));
        let header = command(READ, true).cdb([0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]).build();
        connection.begin(Bhs::new(&header), Stamp { frame: 5, time_ns: 5000 }, &mut context);
        let cycles = &context.tables.cycles;
        assert_eq!((cycles.status_frame.get(0), cycles.is_complete[0]), (status_frame, frame > 5));
        assert_eq!(cycles.data_bytes[0], if frame > 5 { BYTES } else { 0 });
        assert_eq!(connection.tasks.len(), usize::from(frame < 5));
    }
    // as many as fit, the newest
    let (mut connection, mut context) = opened(&[]);
    (1..=65).for_each(|tag| take(&mut connection, &mut context, 9, response(tag)));
    for (tag, open_count) in [(1, 1), (2, 1), (65, 1)] {
        let header = command(tag, true).build();
        connection.begin(Bhs::new(&header), Stamp { frame: 5, time_ns: 5000 }, &mut context);
        assert_eq!(connection.tasks.len(), open_count, "tag {tag}");
    }
}

#[test]
fn an_r2t_that_was_captured_after_its_data_is_not_missing() {
    let out = |place: u32| data_out(WRITE, place * 2048, 2048).data_sn(SerialNumber(place));
    let asked = r2t(WRITE, 0, BYTES);
    let answered = response(WRITE);
    // before, between and after its data
    for (place, missing) in [(0, 0), (1, 0), (2, 0), (3, 1)] {
        let mut pdus = vec![out(0), out(1), answered];
        if place < 3 {
            pdus.insert(place, asked);
        }
        let (mut connection, mut context) = opened(&[(WRITE, 0x2a)]);
        for (frame, &header) in (2..).zip(&pdus) {
            take(&mut connection, &mut context, frame, header);
        }
        assert_eq!(connection.missing.count, [0, missing], "R2T at {place}");
        assert_eq!(context.tables.cycles.is_complete, [place == 0]);
    }
    // the next R2T with the same tag is another one
    let (mut connection, mut context) = opened(&[(WRITE, 0x2a)]);
    let next = r2t(WRITE, 2048, 2048).r2t_sn(SerialNumber(1));
    for (frame, header) in (2..).zip([out(0), next, data_out(WRITE, 2048, 2048), answered]) {
        take(&mut connection, &mut context, frame, header);
    }
    assert_eq!(connection.missing.count, [0, 1]);
}

#[test]
fn an_r2t_does_not_use_its_stat_sn() {
    let (mut connection, mut context) = opened(&[(WRITE, 0x2a)]);
    take(&mut connection, &mut context, 2, r2t(WRITE, 0, 512).stat_sn(SerialNumber(500)));
    assert_eq!(connection.stat_sn(), Some(SerialNumber(500)));
    take(&mut connection, &mut context, 3, response(WRITE).stat_sn(SerialNumber(500)));
    assert_eq!(connection.stat_sn(), Some(SerialNumber(501)));
    // nor does a NOP-In that the target sends by itself
    for (tag, next) in [(RESERVED_TAG, 501), (UNKNOWN, 502)] {
        let nop = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(tag).target_transfer_tag(0x55);
        take(&mut connection, &mut context, 4, nop.stat_sn(SerialNumber(501)));
        assert_eq!(connection.stat_sn(), Some(SerialNumber(next)));
    }
    assert_eq!(connection.missing.count[1], 0, "no status is missing");
}

#[test]
fn an_answer_finds_its_row_after_earlier_ones_were_removed() {
    let (mut connection, mut context) = opened(&[]);
    let ping = |tag| BhsBuilder::new(Opcode::NopOut).initiator_task_tag(tag).target_transfer_tag(RESERVED_TAG);
    take(&mut connection, &mut context, 2, ping(1));
    take(&mut connection, &mut context, 3, ping(2));
    context.tables.nops.drop_first(1);
    connection.forget(&context.tables);
    let echo = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(2).target_transfer_tag(RESERVED_TAG);
    take(&mut connection, &mut context, 4, echo);
    let nops = &context.tables.nops;
    assert_eq!((&nops.initiator_task_tag[..], &nops.response_frame[..]), (&[2][..], &[4][..]));
}

#[test]
fn a_listener_waits_in_its_direction() {
    for to_target in [true, false] {
        let (mut connection, mut context) = opened(&[]);
        connection.spans.iter_mut().for_each(|spans| spans.is_waiting = true);
        let (connection, context) = (&mut connection, &mut context);
        ConnectionListener::new(connection, context, to_target, false).wait(false);
        assert_eq!(connection.spans.each_ref().map(|spans| spans.is_waiting), [!to_target, to_target]);
    }
}
