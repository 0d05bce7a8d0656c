//! Conversations with a target that is played by hand.

use std::collections::BTreeMap;

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;
use proptest::prelude::*;

use super::*;
use crate::application::Closed;
use crate::protocol::keys::{Digest, Offers, Parameters};
use crate::protocol::login::InitiatorLoginSettings;
use crate::protocol::pdu::{Decoder, Piece, encode};

const LUN: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

/// Data of all tasks: what came, by tag; what goes is the low byte of its offset.
#[derive(Default)]
struct Memory(BTreeMap<u32, Vec<u8>>);

impl TaskData for Memory {
    fn take(&mut self, tag: u32, offset: u32, bytes: &[u8]) {
        let place = self.0.entry(tag).or_default();
        let end = offset as usize + bytes.len();
        place.resize(place.len().max(end), 0);
        place[offset as usize..end].copy_from_slice(bytes);
    }

    fn fill(&mut self, _tag: u32, offset: u32, out: &mut [u8]) {
        out.iter_mut().zip(offset..).for_each(|(byte, offset)| *byte = offset as u8);
    }
}

/// A PDU that the initiator sent.
struct Sent {
    header: [u8; 48],
    data: Vec<u8>,
}

impl Sent {
    fn bhs(&self) -> Bhs<'_> {
        Bhs::new(&self.header)
    }

    fn tag(&self) -> u32 {
        self.bhs().initiator_task_tag().unwrap()
    }

    fn opcode(&self) -> Opcode {
        self.bhs().opcode().unwrap()
    }
}

/// A session, and the target's numbers.
struct Play {
    session: Session,
    memory: Memory,
    decoders: Vec<Decoder>,
    stat_sn: Vec<u32>,
    exp_cmd_sn: u32,
    max_cmd_sn: u32,
}

impl Play {
    /// A session whose connections are in the full feature phase with these parameters.
    fn with(connections: u16, parameters: Parameters) -> Play {
        let login = InitiatorLoginSettings {
            target_name: Some("iqn.2026-01.test:disk".to_owned()),
            offers: Offers { max_connections: Some(u32::from(connections)), ..Offers::silent() },
            is_security_skipped: true,
            ..InitiatorLoginSettings::default()
        };
        let session = Session::new(SessionSettings {
            login,
            isid: [0x80, 0, 0, 1, 0, 0],
            connections,
            timeouts: Timeouts::default(),
            initial_cmd_sn: u32::MAX - 1,
            challenge_seed: 1,
            is_pdu_log_wanted: true,
        });
        let mut play = Play {
            session,
            memory: Memory::default(),
            decoders: (0..connections).map(|_| Decoder::new(1 << 24)).collect(),
            stat_sn: vec![100; usize::from(connections)],
            exp_cmd_sn: u32::MAX - 1,
            max_cmd_sn: u32::MAX - 1,
        };
        while let Some(connection) = play.session.poll_connect(0) {
            play.session.opened(0, connection);
            let request = play.sent(connection).remove(0);
            assert_eq!((request.opcode(), request.bhs().cid()), (Opcode::LoginRequest, Some(connection as u16)));
            assert_eq!(request.bhs().tsih(), Some(if connection == 0 { 0 } else { 7 }));
            let text = if connection == 0 {
                format!("TargetPortalGroupTag=1\0MaxConnections={connections}\0")
            } else {
                String::new()
            };
            let response = BhsBuilder::new(Opcode::LoginResponse)
                .is_transit(true)
                .current_stage(1)
                .next_stage(3)
                .isid([0x80, 0, 0, 1, 0, 0])
                .tsih(7)
                .initiator_task_tag(request.tag());
            play.answer(connection, response, text.as_bytes());
            assert!(!play.session.is_over(), "{:?}", play.events());
        }
        assert_eq!(play.events(), [Event::Ready]);
        for index in 0..usize::from(connections) {
            play.session.connections[index].agree(parameters.clone());
            let digests = play.session.connections[index].digests;
            play.decoders[index].agree(digests, 1 << 24);
        }
        play.max_cmd_sn = play.max_cmd_sn.wrapping_add(32);
        play
    }

    fn new() -> Play {
        Play::with(1, Parameters::default())
    }

    /// What the initiator sends now.
    fn sent(&mut self, connection: usize) -> Vec<Sent> {
        let (mut sent, mut data) = (Vec::new(), Vec::new());
        loop {
            let mut out = Vec::new();
            self.session.poll_transmit(0, connection, &mut out, &mut self.memory);
            if out.is_empty() {
                return sent;
            }
            let mut input = &out[..];
            let decoder = &mut self.decoders[connection];
            while let Some(piece) = decoder.next(&mut input).unwrap() {
                match piece {
                    Piece::Header => data.clear(),
                    Piece::Data(bytes) => data.extend_from_slice(bytes),
                    Piece::End { is_data_digest_good } => {
                        assert!(is_data_digest_good);
                        let header = decoder.bhs().as_bytes().try_into().unwrap();
                        sent.push(Sent { header, data: data.clone() });
                    }
                }
            }
        }
    }

    fn receive(&mut self, connection: usize, header: &[u8; 48], data: &[u8]) {
        let mut stream = Vec::new();
        let digests = self.session.connections[connection].digests;
        encode(&mut stream, header, &[], digests, |place| place.copy_from_slice(data));
        self.session.receive(1, connection, &stream, &mut self.memory);
    }

    fn build(&self, connection: usize, builder: BhsBuilder, data: &[u8]) -> [u8; 48] {
        let builder = builder.stat_sn(SerialNumber(self.stat_sn[connection]));
        let builder = builder.exp_cmd_sn(SerialNumber(self.exp_cmd_sn)).max_cmd_sn(SerialNumber(self.max_cmd_sn));
        builder.data_segment_length(data.len() as u32).build()
    }

    /// The target sends a PDU that has no status.
    fn say(&mut self, connection: usize, builder: BhsBuilder, data: &[u8]) {
        let header = self.build(connection, builder, data);
        self.receive(connection, &header, data);
    }

    /// The target sends a PDU with the next StatSN.
    fn answer(&mut self, connection: usize, builder: BhsBuilder, data: &[u8]) {
        self.say(connection, builder, data);
        self.stat_sn[connection] = self.stat_sn[connection].wrapping_add(1);
    }

    fn open_window(&mut self) {
        self.say(
            0,
            BhsBuilder::new(Opcode::NopIn).initiator_task_tag(RESERVED_TAG).target_transfer_tag(RESERVED_TAG),
            &[],
        );
    }

    fn command(&mut self, connection: usize, direction: Direction, length_bytes: u32) -> u32 {
        let command = Command { lun: LUN, cdb: [0; 16], direction, length_bytes };
        self.session.submit(0, connection, command).unwrap()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    fn ends(&mut self) -> Vec<(u32, Outcome)> {
        let done = |event| match event {
            Event::Done(completion) => (completion.initiator_task_tag, completion.outcome),
            other => panic!("{other:?}"),
        };
        self.events().into_iter().map(done).collect()
    }

    /// Why the session ended.
    fn error(&mut self) -> String {
        let ended = self.events().into_iter().find_map(|event| match event {
            Event::Ended(result) => Some(result),
            _ => None,
        });
        ended.expect("the session goes on").expect_err("it ended well").to_string()
    }
}

fn data_in(tag: u32, data_sn: u32, offset: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::DataIn)
        .initiator_task_tag(tag)
        .target_transfer_tag(RESERVED_TAG)
        .data_sn(SerialNumber(data_sn))
        .buffer_offset(offset)
}

fn with_status(builder: BhsBuilder) -> BhsBuilder {
    builder.is_final(true).has_status(true)
}

fn response(tag: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::ScsiResponse).initiator_task_tag(tag)
}

fn r2t(tag: u32, r2t_sn: u32, offset: u32, length: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::ReadyToTransfer)
        .initiator_task_tag(tag)
        .lun(LUN)
        .target_transfer_tag(1000 + r2t_sn)
        .r2t_sn(SerialNumber(r2t_sn))
        .buffer_offset(offset)
        .desired_data_transfer_length(length)
}

fn task_management(tag: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::TaskManagementResponse).initiator_task_tag(tag)
}

#[test]
fn a_read_with_its_status_in_the_last_data_in() {
    let mut play = Play::new();
    play.open_window();
    let tag = play.command(0, Direction::Read, 6);
    let sent = play.sent(0);
    assert_eq!((sent.len(), sent[0].opcode(), sent[0].tag()), (1, Opcode::ScsiCommand, tag));
    assert_eq!((sent[0].bhs().is_read(), sent[0].bhs().is_final()), (Some(true), Some(true)));
    assert_eq!(sent[0].bhs().cmd_sn(), Some(SerialNumber(u32::MAX - 1)), "the login's, for that was immediate");
    assert_eq!(sent[0].bhs().exp_stat_sn(), Some(SerialNumber(101)));
    play.say(0, data_in(tag, 0, 0), b"abcd");
    play.answer(0, with_status(data_in(tag, 1, 4)), b"ef");
    assert_eq!(play.ends(), [(tag, Outcome::Status(0))]);
    assert_eq!(play.memory.0[&tag], b"abcdef");
    let next = play.command(0, Direction::Read, 6);
    assert_eq!(next, tag, "the tag is free again");
    assert_eq!(play.sent(0)[0].bhs().exp_stat_sn(), Some(SerialNumber(102)));
}

#[test]
fn a_tag_rests_until_its_end_was_told() {
    let mut play = Play::new();
    play.open_window();
    let tags = [play.command(0, Direction::None, 0), play.command(0, Direction::None, 0)];
    play.sent(0);
    play.answer(0, response(tags[0]), &[]);
    play.answer(0, response(tags[1]), &[]);
    let first = play.session.poll_event();
    let new = play.command(0, Direction::None, 0);
    assert_eq!(new, tags[0]);
    assert_eq!(play.ends(), [(tags[1], Outcome::Status(0))], "after {first:?}");
}

#[test]
fn a_write_with_immediate_unsolicited_and_solicited_data() {
    let keys = Parameters {
        initial_r2t: false,
        first_burst_length: 1024,
        target_max_recv_data_segment_length: 512,
        max_outstanding_r2t: 2,
        ..Parameters::default()
    };
    let mut play = Play::with(1, keys);
    play.open_window();
    let tag = play.command(0, Direction::Write, 2560);
    let shape = |sent: &[Sent]| -> Vec<(Opcode, Option<u32>, usize, bool)> {
        let one = |pdu: &Sent| {
            let is_final = pdu.bhs().is_final() == Some(true);
            (pdu.opcode(), pdu.bhs().buffer_offset(), pdu.data.len(), is_final)
        };
        sent.iter().map(one).collect()
    };
    let sent = play.sent(0);
    let data_out = Opcode::DataOut;
    assert_eq!(shape(&sent), [(Opcode::ScsiCommand, None, 512, false), (data_out, Some(512), 512, true)]);
    assert_eq!(sent[1].bhs().target_transfer_tag(), Some(RESERVED_TAG));
    play.say(0, r2t(tag, 0, 1024, 1024), &[]);
    play.say(0, r2t(tag, 1, 2048, 512), &[]);
    let sent = play.sent(0);
    let expected =
        [(data_out, Some(1024), 512, false), (data_out, Some(1536), 512, true), (data_out, Some(2048), 512, true)];
    assert_eq!(shape(&sent), expected);
    let numbers: Vec<_> = sent.iter().map(|pdu| (pdu.bhs().target_transfer_tag(), pdu.bhs().data_sn())).collect();
    let number = |tag, sn| (Some(tag), Some(SerialNumber(sn)));
    assert_eq!(numbers, [number(1000, 0), number(1000, 1), number(1001, 0)]);
    assert!(sent.iter().all(|pdu| pdu.bhs().lun() == Some(LUN)));
    assert_eq!(sent[2].data[..3], [0, 1, 2], "byte 2048 on");
    play.answer(0, response(tag), &[]);
    assert_eq!(play.ends(), [(tag, Outcome::Status(0))]);
}

#[test]
fn residuals_and_sense() {
    let mut play = Play::new();
    play.open_window();
    let tags = [play.command(0, Direction::Read, 512), play.command(0, Direction::Read, 512)];
    play.sent(0);
    play.say(0, data_in(tags[0], 0, 0).is_final(true), &[1; 36]);
    play.answer(0, response(tags[0]).is_underflow(true).residual_count(476), &[]);
    play.answer(0, response(tags[1]).status(2), &[0, 3, 0x70, 0, 5, 0]);
    let events = play.events();
    let [Event::Done(first), Event::Done(second)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((first.outcome, first.residual_bytes, first.transferred_bytes), (Outcome::Status(0), -476, 36));
    assert_eq!((second.outcome, &second.sense[..]), (Outcome::Status(2), &[0x70, 0, 5][..]));
}

#[test]
fn commands_go_over_all_connections_and_stay_within_the_window() {
    let mut play = Play::with(3, Parameters::default());
    play.max_cmd_sn = (u32::MAX - 1).wrapping_add(3);
    play.open_window();
    let tags: Vec<u32> = (0..6).map(|index| play.command(index % 3, Direction::None, 0)).collect();
    let mut numbers = Vec::new();
    for connection in [2, 0, 1, 2] {
        numbers.extend(play.sent(connection).iter().map(|pdu| (connection, pdu.bhs().cmd_sn().unwrap().0)));
    }
    assert_eq!(numbers, [(2, u32::MAX - 1), (2, u32::MAX), (0, 0), (0, 1)], "no hole, and no more than MaxCmdSN");
    // an answer on connection 2 opens the window for connection 1
    (play.exp_cmd_sn, play.max_cmd_sn) = (2, 3);
    play.answer(2, response(tags[2]), &[]);
    assert_eq!(play.sent(1).len(), 2);
    assert_eq!(play.ends(), [(tags[2], Outcome::Status(0))]);
    play.answer(1, response(tags[0]), &[]);
    let words =
        "SCSI Response for Initiator Task Tag 0x00000000 on connection 1, but the command was sent on connection 0";
    assert!(play.error().contains(words));
}

#[test]
fn pings_are_answered_and_come_back() {
    let mut play = Play::new();
    let ping = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(RESERVED_TAG).lun(LUN).target_transfer_tag(9);
    play.say(0, ping, &[]);
    let sent = play.sent(0).remove(0);
    assert_eq!((sent.opcode(), sent.tag(), sent.bhs().target_transfer_tag()), (Opcode::NopOut, RESERVED_TAG, Some(9)));
    assert_eq!((sent.bhs().is_immediate(), sent.bhs().lun()), (Some(true), Some(LUN)));
    let tag = play.session.ping(0, 0, 300).unwrap();
    let sent = play.sent(0).remove(0);
    assert_eq!((sent.data.len(), sent.bhs().target_transfer_tag()), (300, Some(RESERVED_TAG)));
    let back = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(tag).target_transfer_tag(RESERVED_TAG);
    play.answer(0, back, &sent.data);
    assert_eq!(play.ends(), [(tag, Outcome::Answered(0))]);
    let tag = play.session.ping(0, 0, 3).unwrap();
    play.sent(0);
    play.answer(0, back.initiator_task_tag(tag), b"xyz");
    assert!(play.error().contains("NOP-In returns other data"));
}

#[test]
fn silence_is_asked_after_and_ends_the_session() {
    let mut play = Play::new();
    let (interval, limit) = (Timeouts::default().nop_interval_ns, Timeouts::default().nop_ns);
    let check = play.session.poll_timeout().unwrap();
    assert!(check <= interval + 1);
    play.session.handle_timeout(interval + 1);
    assert_eq!(play.sent(0)[0].opcode(), Opcode::NopOut);
    play.session.handle_timeout(interval + limit);
    assert!(!play.session.is_over());
    play.session.handle_timeout(interval + 1 + limit);
    assert_eq!(play.error(), "no answer to a NOP-Out within 5 s");
}

#[test]
fn an_aborted_task_may_still_be_answered() {
    let mut play = Play::new();
    play.open_window();
    let tag = play.command(0, Direction::Read, 4);
    play.sent(0);
    play.session.abort_task(0, tag);
    let abort = play.sent(0).remove(0);
    let bhs = abort.bhs();
    assert_eq!((bhs.function(), bhs.referenced_task_tag(), bhs.is_immediate()), (Some(1), Some(tag), Some(true)));
    assert_eq!(bhs.ref_cmd_sn(), Some(SerialNumber(u32::MAX - 1)));
    play.answer(0, task_management(abort.tag()), &[]);
    assert_eq!(play.ends(), [(abort.tag(), Outcome::Answered(0)), (tag, Outcome::Aborted)]);
    play.answer(0, with_status(data_in(tag, 0, 0)), b"late");
    assert_eq!((play.events(), play.memory.0.len()), (vec![], 0));
    assert_ne!(play.command(0, Direction::None, 0), tag, "its tag rests");
}

#[test]
fn a_reset_ends_the_tasks_that_were_sent_before_it() {
    let mut play = Play::new();
    play.open_window();
    let before = play.command(0, Direction::Read, 4);
    play.sent(0);
    let reset = play.session.logical_unit_reset(0, 0, LUN).unwrap();
    assert_eq!(play.sent(0)[0].bhs().function(), Some(5));
    let after = play.command(0, Direction::Read, 4);
    play.sent(0);
    play.answer(0, task_management(reset), &[]);
    assert_eq!(play.ends(), [(reset, Outcome::Answered(0)), (before, Outcome::Aborted)]);
    play.answer(0, with_status(data_in(after, 0, 0)), b"good");
    assert_eq!(play.ends(), [(after, Outcome::Status(0))]);
}

#[test]
fn a_late_task_is_aborted_and_then_the_session_ends() {
    let mut play = Play::new();
    play.open_window();
    play.command(0, Direction::Read, 4);
    play.sent(0);
    let limit = Timeouts::default().task_ns;
    play.session.connections[0].is_probed = true;
    play.session.handle_timeout(limit);
    assert_eq!(play.sent(0)[0].opcode(), Opcode::TaskManagementRequest);
    play.session.handle_timeout(2 * limit);
    assert_eq!(play.error(), "no answer to ABORT TASK within 30 s");
}

#[test]
fn the_logout_waits_for_the_last_task() {
    let mut play = Play::with(2, Parameters::default());
    play.open_window();
    let tag = play.command(1, Direction::None, 0);
    play.sent(1);
    play.session.logout(0);
    assert!(play.sent(0).is_empty());
    play.answer(1, response(tag), &[]);
    let logout = play.sent(0).remove(0);
    assert_eq!((logout.opcode(), logout.bhs().logout_reason()), (Opcode::LogoutRequest, Some(0)));
    play.answer(0, BhsBuilder::new(Opcode::LogoutResponse).initiator_task_tag(logout.tag()), &[]);
    let events = play.events();
    assert!(matches!(events[0], Event::Done(_)));
    assert_eq!(events[1..], [Event::Close(0), Event::Close(1), Event::Ended(Ok(()))]);
}

#[test]
fn a_target_may_count_the_immediate_logout_request() {
    let mut play = Play::new();
    play.session.logout(0);
    let logout = play.sent(0).remove(0);
    play.exp_cmd_sn = play.exp_cmd_sn.wrapping_add(1);
    play.answer(0, BhsBuilder::new(Opcode::LogoutResponse).initiator_task_tag(logout.tag()), &[]);
    assert_eq!(play.events(), [Event::Close(0), Event::Ended(Ok(()))]);
    let remark = "ExpCmdSN 4294967295 after CmdSN 4294967294 counts an immediate request, which takes no CmdSN \
                  (RFC 7143 section 4.2.2.1)";
    assert_eq!(play.session.remarks(), [remark]);
}

#[test]
fn a_target_may_close_connections_before_it_answers_the_logout() {
    let mut play = Play::with(3, Parameters::default());
    play.session.logout(0);
    let logout = play.sent(0).remove(0);
    play.session.closed(0, 1, &Closed::ByPeer);
    assert_eq!(play.events(), []);
    let mut other = Play::with(2, Parameters::default());
    other.session.logout(0);
    other.sent(0);
    other.session.closed(0, 0, &Closed::ByPeer);
    assert_eq!(other.events(), [Event::Close(1), Event::Ended(Ok(()))]);
    let remark = "connection 0 ended without a Logout Response: closed by the target (RFC 7143 section 11.15)";
    assert_eq!(other.session.remarks().last().unwrap(), remark);
    play.answer(0, BhsBuilder::new(Opcode::LogoutResponse).initiator_task_tag(logout.tag()), &[]);
    assert_eq!(play.events(), [Event::Close(0), Event::Close(2), Event::Ended(Ok(()))]);
    assert!(!play.session.remarks().iter().any(|remark| remark.contains("Logout Response")));
}

#[test]
fn a_connection_leaves_when_it_is_asked_to() {
    let mut play = Play::with(2, Parameters::default());
    play.answer(1, BhsBuilder::new(Opcode::AsyncMessage).async_event(1), &[]);
    assert!(!play.session.is_usable(1) && play.session.is_usable(0));
    let logout = play.sent(1).remove(0);
    assert_eq!((logout.bhs().logout_reason(), logout.bhs().cid()), (Some(1), Some(1)));
    play.answer(1, BhsBuilder::new(Opcode::LogoutResponse).initiator_task_tag(logout.tag()), &[]);
    assert_eq!(play.events(), [Event::AsyncMessage { event: 1, vcode: 0 }, Event::Close(1)]);
    assert!(!play.session.is_over());
}

#[test]
fn a_rejected_command_is_one_task_s_end() {
    let mut play = Play::new();
    play.open_window();
    let tag = play.command(0, Direction::Read, 4);
    let sent = play.sent(0).remove(0);
    play.answer(0, BhsBuilder::new(Opcode::Reject).reject_reason(9), &sent.header);
    assert_eq!(play.ends(), [(tag, Outcome::Rejected(9))]);
    play.answer(0, BhsBuilder::new(Opcode::Reject).reject_reason(4), &sent.header);
    assert_eq!(play.events(), [Event::Reject { reason: 4, words: "protocol error" }]);
}

#[test]
fn lost_connections_and_digest_errors_end_the_session() {
    let mut play = Play::with(2, Parameters::default());
    let unsent = play.command(0, Direction::Read, 4);
    play.session.closed(0, 1, &Closed::ByPeer);
    let words =
        "connection 1 lost: closed by the target; ErrorRecoveryLevel 0 ends the session (RFC 7143 section 7.14)";
    assert_eq!(play.error(), words);
    play.session.abort_task(0, unsent);
    assert_eq!(play.events(), [], "nothing follows the end");
    let keys = Parameters { data_digest: Digest::Crc32c, ..Parameters::default() };
    let mut play = Play::with(1, keys);
    play.open_window();
    let tag = play.command(0, Direction::Read, 4);
    play.sent(0);
    let header = play.build(0, with_status(data_in(tag, 0, 0)), b"good");
    let mut stream = Vec::new();
    encode(&mut stream, &header, &[], play.session.connections[0].digests, |place| place.copy_from_slice(b"good"));
    stream[48] ^= 1;
    play.session.receive(1, 0, &stream, &mut play.memory);
    assert_eq!(play.session.data_digest_error_count(), 1);
    assert!(play.error().starts_with("connection 0: data digest error in a SCSI Data-In"));
}

#[test]
fn every_pdu_is_logged_where_it_lies_in_its_stream() {
    let mut play = Play::new();
    play.open_window();
    let tag = play.command(0, Direction::Read, 5);
    play.sent(0);
    play.answer(0, with_status(data_in(tag, 0, 0)), b"abcde");
    let log = play.session.take_pdu_log();
    let shown: Vec<_> = log.iter().map(|pdu| (pdu.to_target, pdu.opcode, pdu.data_segment_length)).collect();
    let login = log[0].data_segment_length;
    let text = log[1].data_segment_length;
    assert_eq!(shown, [(true, 3, login), (false, 0x23, text), (false, 0x20, 0), (true, 1, 0), (false, 0x25, 5)]);
    for to_target in [true, false] {
        let mut offset = 0;
        for pdu in log.iter().filter(|pdu| pdu.to_target == to_target) {
            assert_eq!(pdu.stream_offset, offset);
            offset += pdu.length;
        }
    }
    assert_eq!(log.last().map(|pdu| pdu.length), Some(48 + 8));
}

/// A read of 8 bytes has tag 0, a write of 8 bytes tag 1; the target's PDU, and the words that it ends the session with.
#[test]
fn what_a_target_may_not_do() {
    let cases: Vec<(BhsBuilder, &[u8], &str)> = vec![
        (data_in(0, 1, 0), b"abcd", "DataSN 1 where 0 is next (RFC 7143 section 11.7.5)"),
        (data_in(0, 0, 4), b"abcd", "Buffer Offset 4 where 0 is next (RFC 7143 section 11.7.6"),
        (data_in(0, 0, 0), b"abcdefghi", "ends at byte 9 of a buffer of 8 (Expected Data Transfer Length"),
        (data_in(0, 0, u32::MAX), b"abcd", "ends at byte 4294967299 of a buffer of 8"),
        (data_in(1, 0, 0), b"abcd", "does not transfer data in that direction"),
        (data_in(7, 0, 0), b"abcd", "Initiator Task Tag 0x00000007, of which no such task is outstanding"),
        (data_in(0, 0, 0).has_status(true), b"abcd", "has the S bit without the F bit (RFC 7143 section 11.7.3)"),
        (data_in(0, 0, 0).is_acknowledge_requested(true), b"abcd", "asks for an acknowledgement"),
        (with_status(data_in(0, 0, 0)), b"abcd", "status GOOD after 4 of 8 bytes, with a residual of 0"),
        (response(0).is_underflow(true).is_overflow(true), b"", "has both the O and the U bit"),
        (response(0).status(2), &[0, 9, 1], "data segment of 3 bytes where 11 are needed (RFC 7143 section 11.4.7)"),
        (response(9), b"", "SCSI Response for Initiator Task Tag 0x00000009"),
        (r2t(1, 1, 0, 8), b"", "R2TSN 1 where 0 is next"),
        (r2t(1, 0, 0, 9), b"", "asks for bytes up to 9 of 8"),
        (r2t(1, 0, 0, 0), b"", "asks for no data"),
        (r2t(1, 0, 4, 4), b"", "Buffer Offset 4 where 0 is next (RFC 7143 section 13.19"),
        (r2t(1, 0, 0, 1 << 20), b"", "asks for 1048576 bytes where MaxBurstLength is 262144"),
        (r2t(0, 0, 0, 8), b"", "does not transfer data in that direction (RFC 7143 section 11.8)"),
        (r2t(1, 0, 0, 8).target_transfer_tag(RESERVED_TAG), b"", "reserved Target Transfer Tag"),
        (task_management(0), b"", "Task Management Function Response for Initiator Task Tag 0x00000000"),
        (BhsBuilder::new(Opcode::LogoutResponse).initiator_task_tag(0), b"", "Logout Response for Initiator Task Tag"),
        (BhsBuilder::new(Opcode::TextResponse).initiator_task_tag(0), b"", "Text Response for Initiator Task Tag"),
        (BhsBuilder::new(Opcode::Reject).reject_reason(4), b"short", "data segment of 5 bytes where 48 are needed"),
        (BhsBuilder::new(Opcode::AsyncMessage).async_event(3), b"", "drops all connections of the session"),
        (BhsBuilder::new(Opcode::LoginResponse), b"", "a Login Response in the full feature phase"),
    ];
    for (builder, data, words) in cases {
        let mut play = Play::with(1, Parameters { immediate_data: false, ..Parameters::default() });
        play.open_window();
        let tags = [play.command(0, Direction::Read, 8), play.command(0, Direction::Write, 8)];
        assert_eq!(tags, [0, 1]);
        play.sent(0);
        play.answer(0, builder, data);
        let error = play.error();
        assert!(error.contains(words), "{error}\nwhere this was expected: {words}");
        play.answer(0, response(0), &[]);
        assert_eq!(play.events(), [], "it is over");
        assert!(play.sent(0).is_empty());
    }
}

#[test]
fn numbers_that_a_target_may_not_send() {
    let mut play = Play::new();
    play.exp_cmd_sn = 5;
    play.open_window();
    assert!(play.error().contains("ExpCmdSN 5 acknowledges commands beyond CmdSN 4294967294"));
    let mut play = Play::new();
    play.open_window();
    let tag = play.command(0, Direction::None, 0);
    play.sent(0);
    play.stat_sn[0] += 1;
    play.answer(0, response(tag), &[]);
    assert!(play.error().contains("SCSI Response has StatSN 102 where 101 is next (RFC 7143 section 4.2.2.2)"));
    let mut play = Play::new();
    play.open_window();
    let tag = play.command(0, Direction::Write, 16384);
    play.sent(0);
    play.say(0, r2t(tag, 0, 8192, 4096), &[]);
    play.say(0, r2t(tag, 1, 12288, 4096), &[]);
    assert!(play.error().contains("more than 1 R2Ts outstanding (MaxOutstandingR2T, RFC 7143 section 13.17)"));
    let mut play = Play::new();
    let header = [0x07; 48];
    play.session.receive(0, 0, &header, &mut play.memory);
    assert!(play.session.is_over());
}

#[test]
fn pings_without_end_are_bounded() {
    let mut play = Play::new();
    let ping = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(RESERVED_TAG).target_transfer_tag(1);
    (0..257).for_each(|_| play.say(0, ping, &[]));
    assert!(play.error().contains("257 NOP-In that wait for an answer"));
}

/// What a legal target still has to send for a task.
struct Owed {
    tag: u32,
    connection: usize,
    is_read: bool,
    length: u32,
    sn: u32,
    offset: u32,
    asked: u32,
    got: u32,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    /// A target that does, of all it may do, the next thing by chance: tasks interleaved, data split anywhere, R2Ts of any
    /// length, windows of any width, over up to four connections.
    #[test]
    fn every_task_ends_with_any_legal_target(seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(1..5);
        let keys = Parameters {
            header_digest: *random.choice([Digest::None, Digest::Crc32c].iter()).unwrap(),
            data_digest: *random.choice([Digest::None, Digest::Crc32c].iter()).unwrap(),
            initial_r2t: random.bool(),
            immediate_data: random.bool(),
            first_burst_length: 512 * random.u32(1..5),
            max_burst_length: 512 * random.u32(5..9),
            target_max_recv_data_segment_length: 512 * random.u32(1..4),
            max_outstanding_r2t: random.u32(1..4),
            ..Parameters::default()
        };
        let mut play = Play::with(count as u16, keys.clone());
        play.max_cmd_sn = play.exp_cmd_sn;
        play.open_window();
        let lengths: Vec<(bool, u32)> = (0..30).map(|_| (random.bool(), random.u32(1..9000))).collect();
        let mut wanted: BTreeMap<u32, (bool, u32)> = BTreeMap::new();
        let (mut next, mut done, mut owed) = (0, 0, Vec::<Owed>::new());
        for _ in 0..100_000 {
            if next < lengths.len() && random.u32(0..3) == 0 {
                let (is_read, length) = lengths[next];
                let direction = if is_read { Direction::Read } else { Direction::Write };
                let tag = play.command(random.usize(0..count), direction, length);
                prop_assert!(wanted.insert(tag, (is_read, length)).is_none(), "tag {tag} is in use");
                next += 1;
            }
            let connection = random.usize(0..count);
            for pdu in play.sent(connection) {
                let bhs = pdu.bhs();
                if pdu.opcode() == Opcode::ScsiCommand {
                    prop_assert_eq!(bhs.cmd_sn(), Some(SerialNumber(play.exp_cmd_sn)));
                    prop_assert!(!SerialNumber(play.exp_cmd_sn).is_after(SerialNumber(play.max_cmd_sn)));
                    play.exp_cmd_sn = play.exp_cmd_sn.wrapping_add(1);
                    let length = bhs.expected_data_transfer_length().unwrap();
                    let is_read = bhs.is_read() == Some(true);
                    let first = if keys.initial_r2t { pdu.data.len() as u32 } else { length.min(keys.first_burst_length) };
                    let asked = if is_read { length } else { first };
                    prop_assert!(keys.immediate_data || pdu.data.is_empty());
                    let got = pdu.data.len() as u32;
                    prop_assert!(got <= keys.first_burst_length);
                    owed.push(Owed { tag: pdu.tag(), connection, is_read, length, sn: 0, offset: 0, asked, got });
                } else {
                    prop_assert_eq!(pdu.opcode(), Opcode::DataOut);
                    let task = owed.iter_mut().find(|task| task.tag == pdu.tag()).unwrap();
                    let offset = bhs.buffer_offset().unwrap();
                    prop_assert_eq!((task.connection, task.got), (connection, offset));
                    task.got += pdu.data.len() as u32;
                    prop_assert!(task.got <= task.asked);
                }
                prop_assert!(pdu.data.len() as u32 <= keys.target_max_recv_data_segment_length);
                let first = bhs.buffer_offset().unwrap_or(0);
                prop_assert!(pdu.data.iter().zip(first..).all(|(byte, at)| *byte == at as u8));
            }
            if random.bool() {
                let wider = SerialNumber(play.exp_cmd_sn) + random.u32(0..6);
                if wider.is_after(SerialNumber(play.max_cmd_sn)) {
                    play.max_cmd_sn = wider.0;
                }
                play.open_window();
            }
            if !owed.is_empty() {
                let at = random.usize(0..owed.len());
                let task = &mut owed[at];
                let (tag, connection) = (task.tag, task.connection);
                let mut is_done = false;
                if task.is_read {
                    let length = random.u32(0..=(task.length - task.offset).min(2000));
                    let data: Vec<u8> = (task.offset..task.offset + length).map(|at| (at ^ tag) as u8).collect();
                    let builder = data_in(tag, task.sn, task.offset);
                    (task.sn, task.offset) = (task.sn + 1, task.offset + length);
                    let is_whole = task.offset == task.length;
                    if is_whole && random.bool() {
                        play.answer(connection, with_status(builder), &data);
                        is_done = true;
                    } else {
                        play.say(connection, builder.is_final(random.bool() || is_whole), &data);
                        if is_whole {
                            play.answer(connection, response(tag), &[]);
                            is_done = true;
                        }
                    }
                } else if task.got == task.length {
                    play.answer(connection, response(tag), &[]);
                    is_done = true;
                } else if task.asked < task.length && task.got == task.asked {
                    for _ in 0..random.u32(1..=keys.max_outstanding_r2t) {
                        let left = task.length - task.asked;
                        if left > 0 {
                            let length = random.u32(1..=left.min(keys.max_burst_length));
                            let builder = r2t(tag, task.sn, task.asked, length);
                            (task.sn, task.asked) = (task.sn + 1, task.asked + length);
                            play.say(connection, builder, &[]);
                        }
                    }
                }
                if is_done {
                    owed.swap_remove(at);
                }
            }
            for (tag, outcome) in play.ends() {
                prop_assert_eq!(outcome, Outcome::Status(0));
                let (is_read, length) = wanted.remove(&tag).unwrap();
                if is_read {
                    let expected: Vec<u8> = (0..length).map(|at| (at ^ tag) as u8).collect();
                    prop_assert_eq!(play.memory.0.remove(&tag), Some(expected));
                }
                done += 1;
            }
            if done == lengths.len() {
                return Ok(());
            }
        }
        prop_assert!(false, "{} of {} tasks ended", done, lengths.len());
    }

    /// Any bytes end in an error or in nothing, however they come.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400), opcode in 0x20u8..0x40, step in 1usize..60) {
        let mut play = Play::new();
        play.open_window();
        play.command(0, Direction::Read, 512);
        play.command(0, Direction::Write, 512);
        play.sent(0);
        let mut bytes = bytes;
        if bytes.len() > 8 {
            (bytes[0], bytes[4], bytes[5], bytes[6]) = (opcode, 0, 0, 0);
        }
        for chunk in bytes.chunks(step) {
            play.session.receive(1, 0, chunk, &mut play.memory);
            play.sent(0);
        }
        let ends = play.events().iter().filter(|event| matches!(event, Event::Ended(_))).count();
        prop_assert_eq!(ends, usize::from(play.session.is_over()));
    }
}
