//! Connections that are added and removed while the session runs.

use super::*;

/// Opens the next connection and answers its login; returns the Login Request.
fn join(play: &mut Play, connection: usize) -> Sent {
    let request = begin_login(play, connection);
    play.answer(connection, login_response(&request), b"");
    request
}

fn begin_login(play: &mut Play, connection: usize) -> Sent {
    assert_eq!(play.session.poll_connect(0), Some(connection));
    play.decoders.push(Decoder::new(1 << 24));
    play.stat_sn.push(500);
    play.session.opened(0, connection);
    play.sent(connection).remove(0)
}

fn login_response(request: &Sent) -> BhsBuilder {
    BhsBuilder::new(Opcode::LoginResponse)
        .is_transit(true)
        .current_stage(1)
        .next_stage(3)
        .isid([0x80, 0, 0, 1, 0, 0])
        .tsih(7)
        .initiator_task_tag(request.tag())
}

fn logout_response(tag: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::LogoutResponse).initiator_task_tag(tag)
}

#[test]
fn a_connection_joins_while_commands_are_in_flight() {
    let mut play = Play::with(2, Parameters::default());
    play.open_window();
    let tags: Vec<u32> = (0..2).map(|connection| play.command(connection, Direction::None, 0)).collect();
    let first = play.sent(0).remove(0).bhs().cmd_sn().unwrap();
    assert_eq!(play.session.add_connection(), Some(2));
    let request = begin_login(&mut play, 2);
    let bhs = request.bhs();
    assert_eq!((bhs.tsih(), bhs.cid(), bhs.is_immediate()), (Some(7), Some(2), Some(true)));
    assert_eq!(bhs.cmd_sn(), Some(first.next()), "the next of the command stream (RFC 7143 section 11.12.8)");
    assert!(!tags.contains(&request.tag()), "a new tag");
    assert!(!play.session.is_usable(2));
    // meanwhile the answer to a command arrives
    play.exp_cmd_sn = play.exp_cmd_sn.wrapping_add(1);
    play.answer(0, response(tags[0]), &[]);
    play.answer(2, login_response(&request), b"");
    assert_eq!(play.events()[1..], [Event::Joined(2)], "and not Ready again");
    assert!(play.session.is_usable(2) && play.session.parameters(2).is_some());
    let new = play.command(2, Direction::None, 0);
    // CmdSN is assigned in the order of sending, over all connections
    let numbers = [2, 1].map(|connection| play.sent(connection).remove(0).bhs().cmd_sn().unwrap());
    assert_eq!(numbers, [first.next(), first.next().next()]);
    play.answer(2, response(new), &[]);
    assert_eq!(play.ends(), [(new, Outcome::Status(0))]);
    play.answer(2, response(tags[1]), &[]);
    assert!(play.error().contains("connection allegiance"));
}

#[test]
fn a_refused_connection_does_not_change_the_session() {
    let mut play = Play::new();
    play.open_window();
    let tag = play.command(0, Direction::None, 0);
    play.sent(0);
    // by the login
    play.session.add_connection().unwrap();
    let request = begin_login(&mut play, 1);
    let refused =
        BhsBuilder::new(Opcode::LoginResponse).initiator_task_tag(request.tag()).status_class(2).status_detail(6);
    play.send(1, refused, &[]);
    let reason = "login refused: Too many connections (0x0206) (RFC 7143 section 11.13.5)".to_owned();
    assert_eq!(play.events(), [Event::Close(1), Event::Refused { connection: 1, reason }]);
    assert_eq!(play.session.parameters(1), None);
    // by TCP: before the connection is open, and during its login
    for number in 2..4 {
        play.session.add_connection().unwrap();
        if number == 2 {
            assert_eq!(play.session.poll_connect(0), Some(2));
            play.decoders.push(Decoder::new(1 << 24));
            play.stat_sn.push(0);
        } else {
            begin_login(&mut play, number);
        }
        play.session.closed(0, number, &Closed::ByPeer);
        let events = play.events();
        assert!(matches!(events[..], [Event::Refused { connection, .. }] if connection == number), "{events:?}");
    }
    // by a timeout
    play.session.add_connection().unwrap();
    begin_login(&mut play, 4);
    play.session.connections[0].is_probed = true;
    play.session.handle_timeout(Timeouts::default().login_ns);
    let reason = "no end of the login within 15 s".to_owned();
    assert_eq!(play.events(), [Event::Close(4), Event::Refused { connection: 4, reason }]);
    // by bytes that cannot be decoded
    play.session.add_connection().unwrap();
    let request = begin_login(&mut play, 5);
    play.send(5, response(request.tag()), &[]);
    assert!(matches!(play.events()[..], [Event::Close(5), Event::Refused { connection: 5, .. }]));
    play.answer(0, response(tag), &[]);
    assert_eq!(play.ends(), [(tag, Outcome::Status(0))]);
}

#[test]
fn a_connection_logs_out_when_its_commands_are_done() {
    let mut play = Play::with(3, Parameters::default());
    play.open_window();
    let tags = [play.command(1, Direction::Read, 4), play.command(1, Direction::None, 0)];
    assert!(play.session.remove_connection(0, 1));
    assert!(!play.session.is_usable(1) && !play.session.remove_connection(0, 1));
    let command = Command { lun: LUN, cdb: [0; 16], direction: Direction::None, length_bytes: 0 };
    assert_eq!(play.session.submit(0, 1, command), None, "it takes no more");
    assert_eq!(play.sent(1).len(), 2, "what it had is sent");
    play.answer(1, with_status(data_in(tags[0], 0, 0)), b"abcd");
    assert!(play.sent(1).is_empty(), "a command is still under way");
    play.answer(1, response(tags[1]), &[]);
    let logout = play.sent(1).remove(0);
    let bhs = logout.bhs();
    assert_eq!((bhs.opcode(), bhs.logout_reason(), bhs.cid()), (Some(Opcode::LogoutRequest), Some(1), Some(1)));
    assert_eq!(play.ends(), [(tags[0], Outcome::Status(0)), (tags[1], Outcome::Status(0))]);
    play.answer(1, logout_response(logout.tag()), &[]);
    assert_eq!(play.events(), [Event::Close(1)]);
    // the leading connection may be removed, too (RFC 7143 section 11.14.1), but not the last one
    assert!(play.session.remove_connection(0, 0));
    let logout = play.sent(0).remove(0);
    play.answer(0, logout_response(logout.tag()), &[]);
    assert_eq!(play.events(), [Event::Close(0)]);
    assert!(!play.session.remove_connection(0, 2));
    play.session.add_connection().unwrap();
    let request = join(&mut play, 3);
    assert_eq!((request.bhs().cid(), request.bhs().tsih()), (Some(3), Some(7)));
    assert_eq!(play.events(), [Event::Joined(3)]);
    play.session.logout(0);
    let logout = play.sent(2).remove(0);
    assert_eq!(logout.bhs().logout_reason(), Some(0));
    play.answer(2, logout_response(logout.tag()), &[]);
    assert_eq!(play.events(), [Event::Close(2), Event::Close(3), Event::Ended(Ok(()))]);
}

#[test]
fn a_connection_without_a_logout_response_does_not_end_the_session() {
    let mut play = Play::with(3, Parameters::default());
    for connection in [1, 2] {
        assert!(play.session.remove_connection(0, connection));
    }
    play.sent(1);
    play.session.closed(0, 1, &Closed::ByPeer);
    let logout = play.sent(2).remove(0);
    play.answer(2, logout_response(logout.tag()).response(3), &[]);
    assert_eq!(play.events(), [Event::Close(2)]);
    let remarks = [
        "connection 1 ended without a Logout Response: closed by the target (RFC 7143 section 11.15)",
        "connection 2: logout refused with response 3 (RFC 7143 section 11.15.1)",
    ];
    assert_eq!(play.session.remarks()[play.session.remarks().len() - 2..], remarks);
    assert!(play.session.is_usable(0) && !play.session.is_over());
}

#[test]
fn an_ending_session_waits_for_logouts_but_not_for_logins() {
    let mut play = Play::with(2, Parameters::default());
    play.session.add_connection().unwrap();
    begin_login(&mut play, 2);
    assert!(play.session.remove_connection(0, 1));
    play.session.logout(0);
    assert!(play.sent(0).is_empty(), "one Logout Request after the other");
    play.sent(1);
    play.session.closed(0, 1, &Closed::ByPeer);
    let logout = play.sent(0).remove(0);
    assert_eq!(play.session.add_connection(), None);
    play.answer(0, logout_response(logout.tag()), &[]);
    assert_eq!(play.events(), [Event::Close(0), Event::Close(2), Event::Ended(Ok(()))]);
}

#[test]
fn any_lost_connection_ends_the_session() {
    let mut play = Play::with(2, Parameters::default());
    play.session.add_connection().unwrap();
    join(&mut play, 2);
    play.session.closed(0, 2, &Closed::ByPeer);
    assert!(play.error().starts_with("connection 2 lost"));
    let mut play = Play::with(2, Parameters::default());
    play.open_window();
    play.command(1, Direction::None, 0);
    play.sent(1);
    play.session.remove_connection(0, 1);
    play.session.closed(0, 1, &Closed::ByPeer);
    assert!(play.error().starts_with("connection 1 lost"));
}
