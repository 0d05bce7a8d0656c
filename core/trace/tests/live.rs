//! The live pass over whole captures: its intervals, and the recent past that it keeps.

mod conversation;

use std::io::Cursor;
use std::time::Duration;

use conversation::{Conversation, Frame, Script, Settings as ScriptSettings, frame};
use iscsitrace_trace::live::view::View;
use iscsitrace_trace::live::{Live, Origin, Settings, Step};
use iscsitrace_trace::pass::{self, Selection};
use iscsitrace_trace::reader::sequence::Input;
use iscsitrace_trace::tables::budget_part as part;
use iscsitrace_trace::tables::{Budget, NULL_NS, NULL_U32, Tables, Wanted};
use iscsitrace_wire::capture_writer::PcapngWriter;
use iscsitrace_wire::frame::LinkType;

const SECOND_NS: i64 = 1_000_000_000;
const START_NS: i64 = 1_700_000_000 * SECOND_NS;

/// A pcapng file of these frames at these times after the start.
fn pcapng<'a>(packets: impl Iterator<Item = (i64, &'a [u8])>) -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new(), "test").expect("a vector can be written");
    let interface = writer.add_interface(LinkType::ETHERNET, 0, "eth0").expect("a vector can be written");
    for (time_ns, frame) in packets {
        writer.packet(interface, START_NS + time_ns, frame.len() as u32, frame, None).expect("a packet");
    }
    writer.finish().expect("a vector can be written")
}

fn start(file: Vec<u8>) -> Live {
    let settings = Settings { clock_after: None, ..Settings::default() };
    Live::start(Origin::Reader("test".to_owned(), Box::new(Cursor::new(file))), settings).expect("a capture")
}

/// Looks until the end; the views and the pass after the last look.
fn views(mut live: Live) -> (Vec<View>, Live) {
    let mut views = Vec::new();
    loop {
        match live.advance(Duration::from_secs(10)).expect("a capture") {
            Step::Look => views.push(live.look()),
            Step::End => return (views, live),
            Step::Nothing => {}
        }
    }
}

/// The tables of one pass over all of it.
fn whole(file: Vec<u8>) -> Tables {
    let wanted = Wanted { senders: true, budget: true, recoveries: true, retransmissions: true, ..Wanted::default() };
    let input = Input::Reader { name: "test".to_owned(), reader: Box::new(Cursor::new(file)) };
    let pass = pass::run::<()>(vec![input], &Selection::default(), wanted, |_| Ok(()));
    pass.unwrap_or_else(|_| panic!("a capture")).tables
}

/// A login on one connection.
fn logged_in() -> Script {
    let mut script =
        Script::new(ScriptSettings { has_header_digest: false, has_data_digest: false, connection_count: 1 });
    script.connect();
    script
}

/// The frames of a conversation, one each us.
fn frames(conversation: &Conversation) -> Vec<(i64, &[u8])> {
    (0..).map(|place| place * 1000).zip(conversation.packets.iter().map(|packet| &packet.frame[..])).collect()
}

#[test]
fn a_long_pause_is_one_interval_and_a_shorter_one_many() {
    for (pause_s, first_interval_s) in [(50, 1), (100, 99)] {
        let frames = [(0, &[0; 60][..]), (pause_s * SECOND_NS, &[0; 60][..])];
        let (views, _) = views(start(pcapng(frames.into_iter())));
        // the packet at 100 s ends everything up to 99.75 s: the first interval and 98 more as one
        assert_eq!(views[0].to_ns - views[0].from_ns, first_interval_s * SECOND_NS, "a pause of {pause_s} s");
        assert_eq!(views[0].from_ns, START_NS);
        assert!(views.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
    }
}

#[test]
fn only_a_whole_interval_is_looked_at_before_the_end() {
    for (last_ns, count) in [(SECOND_NS / 2, 0), (SECOND_NS - 1, 0), (SECOND_NS, 1)] {
        let frames = [(0, &[0; 60][..]), (last_ns, &[0; 60][..])];
        let (views, _) = views(start(pcapng(frames.into_iter())));
        assert_eq!(views.len(), count, "the last packet at {last_ns} ns");
    }
}

#[test]
fn bytes_read_ahead_wait_until_they_are_processed() {
    let file = pcapng([(0, &[0; 60][..]), (1, &[0; 60][..])].into_iter());
    let length = file.len();
    let live = start(file);
    let is_read_ahead = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        live.pace().waiting_bytes == length
    });
    assert!(is_read_ahead, "{:?}", live.pace());
    let (_, live) = views(live);
    assert_eq!((live.pace().waiting_bytes, live.packet_count()), (0, 2));
}

#[test]
fn the_recent_past_has_the_kept_length() {
    let mut script = logged_in();
    for _ in 0..20 {
        script.read(0, 1, 2, 1000, false);
    }
    let conversation = script.finish();
    let frames = conversation.packets.iter().map(|packet| &packet.frame[..]);
    let (views, live) = views(start(pcapng((0..).map(|packet| packet * SECOND_NS / 5).zip(frames))));
    let last_ns = views.last().expect("the capture has more than one interval").to_ns;
    let recent = live.recent().tables.budget;
    // ten seconds are kept by default
    assert_eq!(recent.time_first_ns.iter().min(), Some(&(last_ns - 10 * SECOND_NS)));
    assert_eq!(recent.time_last_ns.iter().max(), Some(&last_ns));
    // the commands of that time have their parts
    assert!(recent.part.contains(&part::PROPAGATION), "{:?}", recent.part);
}

#[test]
fn a_removed_connection_keeps_its_missing_commands() {
    let mut script = logged_in();
    for _ in 0..3 {
        script.read(0, 1, 2, 1000, false);
    }
    let conversation = script.finish();
    // the second read is missing from the capture: one command, two Data-In and a SCSI Response
    let second = &conversation.cycles[1];
    let pdus = second.data.iter().copied().chain([second.command, second.status]);
    let lost: Vec<usize> = pdus.flat_map(|pdu| conversation.pdus[pdu].packets.clone()).collect();
    let kept = (0..conversation.packets.len()).filter(|packet| !lost.contains(packet));
    let mut frames: Vec<(i64, Vec<u8>)> =
        kept.map(|packet| (packet as i64 * 1000, conversation.packets[packet].frame.clone())).collect();
    let reset = |client_port: u16| {
        let (identification, sequence_number, acknowledgment_number) = (1, 1, 1);
        let flags = 0x14;
        frame(&Frame {
            to_target: true,
            client_port,
            identification,
            sequence_number,
            acknowledgment_number,
            flags,
            payload: &[],
        })
    };
    // the connection ends, and more others than are kept follow it
    frames.push((SECOND_NS, reset(50_000)));
    frames.extend((0..1100).map(|port| (SECOND_NS + 1000 * i64::from(port), reset(1000 + port))));
    // after two minutes of silence all of them are closed
    frames.push((200 * SECOND_NS, vec![0; 60]));
    let (views, _) = views(start(pcapng(frames.iter().map(|(time_ns, frame)| (*time_ns, &frame[..])))));
    let forgotten: Vec<_> =
        views.iter().map(|view| &view.forgotten).filter(|rows| !rows.connection.is_empty()).collect();
    let rows = forgotten.first().expect("rows that are no longer kept");
    assert_eq!((rows.connection[0], rows.is_iscsi[0]), (0, true));
    assert_eq!((rows.missing_pdu_count_to_target[0], rows.missing_pdu_count_to_initiator[0]), (1, 3));
}

/// The columns of a table as text, so that they can be compared.
fn columns(tables: &mut Tables, name: &str) -> Vec<String> {
    let columns = tables.take_columns(name).expect("a table of that name");
    columns.into_iter().map(|(name, column)| format!("{name}: {column:?}")).collect()
}

#[test]
fn a_look_after_all_packets_shows_what_the_end_of_a_pass_shows() {
    let mut script = logged_in();
    script.read(0, 4, 2, 1000, false);
    script.write(0, 2, 0);
    let again = script.reconnect(0);
    script.read(again, 1, 2, 1000, true);
    let conversation = script.finish();
    let mut packets = frames(&conversation);
    // no TCP: the clock goes on
    packets.push((2 * SECOND_NS, &[0; 60]));
    let file = pcapng(packets.iter().copied());
    let mut pass = whole(file.clone());
    // the idle time of commands is made at the end of a pass, when live they have left
    (0..pass.cycles.cycle.len()).for_each(|row| pass.cycles.idle_ns.set(row, NULL_NS));
    let (views, mut live) = views(start(file));
    let mut look = views.into_iter().next().expect("an interval").outcome.tables;
    let mut end = live.finish().outcome.tables;
    assert_eq!(look.sessions.replaces, [NULL_U32, 0]);
    for name in [
        "connections",
        "sessions",
        "logical_units",
        "alua_states",
        "icmp_errors",
        "cycles",
        "senders",
        "recoveries",
        "retransmissions",
        "counters",
    ] {
        let expected = columns(&mut pass, name);
        assert_eq!(columns(&mut look, name), expected, "{name}");
        // the last interval has no command
        assert!(name == "cycles" || columns(&mut end, name) == expected, "{name} at the end");
    }
    // the breakdown of an interval lasts until its end, that of a pass until the last status
    let parts = |budget: &Budget| -> Vec<_> {
        let times = budget.time_first_ns.iter().zip(&budget.time_last_ns).zip(&budget.part);
        times.map(|((&first_ns, &last_ns), &part)| (first_ns, last_ns, part)).collect()
    };
    let (of_look, of_pass) = (parts(&look.budget), parts(&pass.budget));
    assert!(!of_pass.is_empty() && of_pass.iter().all(|part| of_look.contains(part)), "{of_look:?}, {of_pass:?}");
}

#[test]
fn sessions_without_a_login_are_replaced_also_after_others_were_removed() {
    let conversation = |script: Script| script.finish();
    let first = conversation(logged_in());
    let mut script = logged_in();
    let login = script.packet_count();
    script.read(0, 1, 2, 1000, false);
    script.reconnect(0);
    let second = conversation(script);
    let reset = |client_port: u16| {
        let (identification, sequence_number, acknowledgment_number) = (1, 1, 1);
        let (to_target, flags, payload) = (true, 0x14, &[][..]);
        frame(&Frame { to_target, client_port, identification, sequence_number, acknowledgment_number, flags, payload })
    };
    // the first session ends, and is removed with its connection behind more others than are kept
    let ends: Vec<Vec<u8>> = (0..1100).map(|number| reset(if number == 0 { 50_000 } else { 1000 + number })).collect();
    let mut packets = frames(&first);
    packets.extend(ends.iter().map(|end| (SECOND_NS, &end[..])));
    packets.push((200 * SECOND_NS, &[0; 60]));
    packets.push((300 * SECOND_NS, &[0; 60]));
    packets.extend(
        frames(&second).split_off(login).into_iter().map(|(time_ns, packet)| (time_ns + 400 * SECOND_NS, packet)),
    );
    packets.push((410 * SECOND_NS, &[0; 60]));
    let (views, _) = views(start(pcapng(packets.into_iter())));
    let sessions = &views.last().expect("intervals").outcome.tables.sessions;
    assert_eq!((&sessions.session[..], &sessions.replaces[..]), (&[1, 2][..], &[NULL_U32, 1][..]));
}

#[test]
fn a_quiet_connection_is_closed_after_a_day_or_after_two_minutes_if_it_ended() {
    let mut script = logged_in();
    script.read(0, 1, 2, 1000, false);
    let conversation = script.finish();
    let last = conversation.packets.last().expect("packets");
    let end = frame(&Frame {
        to_target: true,
        client_port: 50_000,
        identification: 1,
        sequence_number: 1,
        acknowledgment_number: 1,
        flags: 0x14,
        payload: &[],
    });
    assert_eq!(last.connection, 0);
    for (silence_s, has_ended, open_count) in
        [(118, true, 1), (123, true, 0), (1000, false, 1), (86_398, false, 1), (86_403, false, 0)]
    {
        let mut packets = frames(&conversation);
        if has_ended {
            packets.push((SECOND_NS / 2, &end));
        }
        // the second interval after the silence shows what the first one closed
        for more_s in 0..4 {
            packets.push(((silence_s + more_s) * SECOND_NS, &[0; 60]));
        }
        let (views, _) = views(start(pcapng(packets.into_iter())));
        let last = views.last().expect("intervals");
        assert_eq!(last.now.len(), open_count, "after {silence_s} s");
    }
}

/// A session is over once all its connections are closed, with nothing in flight.
#[test]
fn a_session_that_is_over_is_current_for_ten_more_seconds() {
    for (connection_count, closed_count, has_command_in_flight, later_count) in
        [(1, 1, false, 0), (1, 0, false, 1), (1, 1, true, 1), (2, 1, false, 2), (2, 2, false, 0)]
    {
        let mut script = logged_in();
        (1..connection_count).for_each(|_| {
            script.connect();
        });
        script.read(0, 1, 2, 1000, false);
        if has_command_in_flight {
            script.command(0, true, 512, &[]);
        }
        (0..closed_count).for_each(|connection| {
            script.close(connection);
        });
        let conversation = script.finish();
        let mut packets = frames(&conversation);
        packets.extend((1..20).map(|second| (second * SECOND_NS, &[0; 60][..])));
        // a copy of the last ACK comes late
        let (_, late) = *packets.iter().rev().find(|(_, packet)| packet.len() != 60).expect("packets");
        packets.push((20 * SECOND_NS, late));
        packets.push((22 * SECOND_NS, &[0; 60]));
        let file = pcapng(packets.into_iter());
        let whole = whole(file.clone());
        let (views, mut live) = views(start(file));
        let counts: Vec<usize> = views.iter().map(|view| view.now.len()).collect();
        assert_eq!((counts[8], counts[14]), (connection_count, later_count), "{closed_count} closed");
        let senders: Vec<usize> = views.iter().map(|view| view.outcome.tables.senders.connection.len()).collect();
        assert_eq!((senders[8], senders[14]), (2 * connection_count, 2 * later_count), "{closed_count} closed");
        // what is known of it stays, and so do the counts
        let recent = live.recent().tables.parameters;
        let last = live.finish().outcome.tables;
        assert_eq!((&recent.key, &recent.target_value), (&last.parameters.key, &last.parameters.target_value));
        assert_eq!((&last.parameters.key, &last.parameters.source), (&whole.parameters.key, &whole.parameters.source));
        assert_eq!(last.connections.packets_to_target, whole.connections.packets_to_target);
    }
}

#[test]
fn a_syn_without_an_answer_is_seen_while_it_waits() {
    let packet = |to_target, client_port, flags| {
        let numbers = if to_target { (1000, 0) } else { (0, 1001) };
        let (sequence_number, acknowledgment_number) = numbers;
        let identification = client_port;
        frame(&Frame {
            to_target,
            client_port,
            identification,
            sequence_number,
            acknowledgment_number,
            flags,
            payload: &[],
        })
    };
    let (silent, opened, answer) =
        (packet(true, 50_000, 0x02), packet(true, 50_001, 0x02), packet(false, 50_001, 0x12));
    let packets: [(i64, &[u8]); 4] = [(0, &silent), (1000, &opened), (2000, &answer), (3 * SECOND_NS, &[0; 60])];
    let (views, _) = views(start(pcapng(packets.into_iter())));
    let found = &views.first().expect("an interval").outcome.tables.connections;
    assert_eq!(found.initiator_port, [50_000]);
    assert_eq!((found.syn_ns[0], found.is_refused[0]), (START_NS, false));
}

#[test]
fn rows_are_held_while_they_are_recent() {
    let mut script = logged_in();
    (0..5).for_each(|_| script.read(0, 1, 2, 1000, false));
    (0..2).for_each(|_| script.write(0, 2, 0));
    let conversation = script.finish();
    let settings = Settings { clock_after: None, has_dynamics: false, ..Settings::default() };
    for (silence_s, row_count) in [(2, 7 + 4 + 1 + 2), (30, 1 + 2)] {
        let mut packets = frames(&conversation);
        packets.push((silence_s * SECOND_NS, &[0; 60]));
        packets.push(((silence_s + 3) * SECOND_NS, &[0; 60]));
        let source = Box::new(Cursor::new(pcapng(packets.into_iter())));
        let live = Live::start(Origin::Reader("test".to_owned(), source), settings.clone()).expect("a capture");
        // seven commands, four R2Ts, a login, and two violations: keys that stayed unanswered. Later the last write, which
        // waits for the next command, and its R2Ts
        assert_eq!(views(live).1.row_count(), row_count, "after {silence_s} s");
    }
}

#[test]
fn the_parameters_of_an_open_connection_are_those_of_its_end() {
    let mut script = logged_in();
    script.read(0, 1, 2, 1000, false);
    let conversation = script.finish();
    let mut packets = frames(&conversation);
    packets.push((3 * SECOND_NS, &[0; 60]));
    let (_, mut live) = views(start(pcapng(packets.into_iter())));
    let (open, closed) = (live.recent().tables.parameters, live.finish().outcome.tables.parameters);
    assert_eq!((&open.key, &open.target_value, &open.source), (&closed.key, &closed.target_value, &closed.source));
    assert!(open.key.iter().any(|key| key == "HeaderDigest"));
}

#[test]
fn a_command_waits_for_the_ack_of_its_data() {
    let mut script = logged_in();
    script.read(0, 1, 1, 1000, true);
    let first = script.packet_count();
    script.read(0, 1, 1, 1000, true);
    let conversation = script.finish();
    let mut packets = Vec::new();
    for (place, packet) in conversation.packets.iter().enumerate() {
        let is_of_second = place >= first;
        // the initiator acknowledges the data of the first read only with the second, five seconds later
        let is_ack = packet.to_target && packet.payload_bytes == 0 && !packet.is_handshake;
        if is_ack && place + 1 == first {
            continue;
        }
        let time_ns = place as i64 * 1000 + if is_of_second { 5 * SECOND_NS } else { 0 };
        packets.push((time_ns, &packet.frame[..]));
    }
    // looks before the second read
    packets.extend([2, 4, 9].map(|second| (second * SECOND_NS, &[0; 60][..])));
    packets.sort_by_key(|&(time_ns, _)| time_ns);
    let (views, _) = views(start(pcapng(packets.into_iter())));
    let handed_over: Vec<usize> = views.iter().map(|view| view.outcome.tables.cycles.cycle.len()).collect();
    // the packet of the fifth second comes before the look at the fourth
    assert_eq!(handed_over[..6], [0, 0, 0, 1, 0, 1]);
}
