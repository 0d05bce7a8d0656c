//! The live pass over whole captures: its intervals, and the recent past that it keeps.

mod conversation;

use std::io::Cursor;
use std::time::Duration;

use conversation::{Frame, Script, Settings as ScriptSettings, frame};
use iscsitrace_trace::live::view::View;
use iscsitrace_trace::live::{Live, Origin, Settings, Step};
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
    let mut script =
        Script::new(ScriptSettings { has_header_digest: false, has_data_digest: false, connection_count: 1 });
    script.connect();
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
}

#[test]
fn a_removed_connection_keeps_its_missing_commands() {
    let mut script =
        Script::new(ScriptSettings { has_header_digest: false, has_data_digest: false, connection_count: 1 });
    script.connect();
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
