//! Regular conversations, and conversations that end early.

use super::*;

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
    play.send(0, data_in(tag, 0, 0), b"abcd");
    play.answer(0, with_status(data_in(tag, 1, 4)), b"ef");
    assert_eq!(play.ends(), [(tag, Outcome::Status(0))]);
    assert_eq!(play.memory.0[&tag], b"abcdef");
    let next = play.command(0, Direction::Read, 6);
    assert_eq!(next, tag, "the tag is free again");
    assert_eq!(play.sent(0)[0].bhs().exp_stat_sn(), Some(SerialNumber(102)));
}

#[test]
fn a_tag_is_not_reused_before_its_completion_was_returned() {
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
    play.send(0, r2t(tag, 0, 1024, 1024), &[]);
    play.send(0, r2t(tag, 1, 2048, 512), &[]);
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
    play.send(0, data_in(tags[0], 0, 0).is_final(true), &[1; 36]);
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
fn pings_of_both_sides_are_answered() {
    let mut play = Play::new();
    let ping = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(RESERVED_TAG).lun(LUN).target_transfer_tag(9);
    play.send(0, ping, &[]);
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
fn a_silent_target_is_pinged_and_then_the_session_ends() {
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
fn a_connection_logs_out_on_request_of_the_target() {
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
fn a_reject_ends_only_its_task() {
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
    encode(&mut stream, &header, &[], play.session.connections[0].digests, |out| out.extend_from_slice(b"good"));
    stream[48] ^= 1;
    play.session.receive(1, 0, &stream, &mut play.memory);
    assert_eq!(play.session.data_digest_error_count(), 1);
    assert!(play.error().starts_with("connection 0: data digest error in a SCSI Data-In"));
}

#[test]
fn every_pdu_is_logged_with_its_stream_offset() {
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
