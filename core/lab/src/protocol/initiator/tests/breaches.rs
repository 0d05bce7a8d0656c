//! Violations by targets, and the error that ends the session.

use super::*;

/// A read of 8 bytes has tag 0, a write of 8 bytes tag 1. Each row: the target's PDU, and the error of the session.
#[test]
fn violations_of_a_target_end_the_session() {
    let cases: Vec<(BhsBuilder, &[u8], &str)> = vec![
        (data_in(0, 1, 0), b"abcd", "DataSN 1 where 0 is next (RFC 7143 section 11.7.5)"),
        (data_in(0, 0, 4), b"abcd", "Buffer Offset 4 where 0 is next (RFC 7143 section 11.7.6"),
        (data_in(0, 0, 0), b"abcdefghi", "ends at byte 9 of a buffer of 8 (Expected Data Transfer Length"),
        (data_in(0, 0, u32::MAX), b"abcd", "ends at byte 4294967299 of a buffer of 8"),
        (data_in(1, 0, 0), b"abcd", "does not transfer data in that direction"),
        (data_in(7, 0, 0), b"abcd", "Initiator Task Tag 0x00000007, but no such task is outstanding"),
        (data_in(0, 0, 0).has_status(true), b"abcd", "has the S bit without the F bit (RFC 7143 section 11.7.3)"),
        (data_in(0, 0, 0).is_acknowledge_requested(true), b"abcd", "requests an acknowledgement"),
        (response(0).is_underflow(true).is_overflow(true), b"", "has both the O and the U bit"),
        (response(0).status(2), &[0, 9, 1], "data segment of 3 bytes where 11 are needed (RFC 7143 section 11.4.7)"),
        (response(9), b"", "SCSI Response for Initiator Task Tag 0x00000009"),
        (r2t(1, 1, 0, 8), b"", "R2TSN 1 where 0 is next"),
        (r2t(1, 0, 0, 9), b"", "requests bytes up to 9 of 8"),
        (r2t(1, 0, 0, 0), b"", "requests no data"),
        (r2t(1, 0, 4, 4), b"", "Buffer Offset 4 where 0 is next (RFC 7143 section 13.19"),
        (r2t(1, 0, 0, 1 << 20), b"", "requests 1048576 bytes where MaxBurstLength is 262144"),
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
fn invalid_sequence_numbers_of_a_target_end_the_session() {
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
    play.send(0, r2t(tag, 0, 8192, 4096), &[]);
    play.send(0, r2t(tag, 1, 12288, 4096), &[]);
    assert!(play.error().contains("more than 1 R2Ts outstanding (MaxOutstandingR2T, RFC 7143 section 13.17)"));
    let mut play = Play::new();
    let header = [0x07; 48];
    play.session.receive(0, 0, &header, &mut play.memory);
    assert!(play.session.is_over());
}

#[test]
fn unanswered_pings_are_bounded() {
    let mut play = Play::new();
    let ping = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(RESERVED_TAG).target_transfer_tag(1);
    (0..257).for_each(|_| play.send(0, ping, &[]));
    assert!(play.error().contains("257 NOP-In that cannot be answered"));
}
