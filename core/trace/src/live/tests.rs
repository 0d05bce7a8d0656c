//! The clock of a live pass, its waits, and what it stops when it lags.

use std::io::{self, Read, Write};
use std::sync::mpsc::{self, Receiver, Sender};

use iscsitrace_wire::capture_writer::PcapngWriter;
use iscsitrace_wire::frame::LinkType;

use super::*;
use crate::tables::Columns;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const SECOND_NS: i64 = 1_000_000_000;
const START_NS: i64 = 1_700_000_000 * SECOND_NS;

/// A source that delivers what is sent to it, and waits for more until its sender is dropped.
struct Fed {
    receiver: Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Read for Fed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            self.rest = self.receiver.recv().unwrap_or_default();
        }
        let count = self.rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}

fn settings() -> Settings {
    Settings { clock_after: None, settle_ns: 0, ..Settings::default() }
}

/// A pass over a source that delivered these bytes so far.
fn fed(bytes: &[u8], settings: Settings) -> (Live, Sender<Vec<u8>>) {
    let (sender, receiver) = mpsc::channel();
    let source = Box::new(Fed { receiver, rest: Vec::new() });
    let live = Live::start(Origin::Reader("test".to_owned(), source), settings).unwrap();
    if !bytes.is_empty() {
        sender.send(bytes.to_vec()).unwrap();
    }
    let has_arrived = (0..10_000).any(|_| {
        std::thread::sleep(MS);
        live.pace().waiting_bytes == bytes.len()
    });
    assert!(has_arrived);
    (live, sender)
}

/// Packets at these times after the start.
fn pcapng(times_ns: impl IntoIterator<Item = i64>) -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new(), "test").unwrap();
    let interface = writer.add_interface(LinkType::ETHERNET, 0, "eth0").unwrap();
    for time_ns in times_ns {
        writer.packet(interface, START_NS + time_ns, 60, &[0; 60], None).unwrap();
    }
    writer.finish().unwrap()
}

/// A pass whose clock is at a time of its first interval, which ends at 1 s.
fn at_time(now_ns: i64, settings: Settings) -> Live {
    let (mut live, _) = fed(&[], settings);
    (live.interval, live.now_ns, live.last_ns) = (Some((0, SECOND_NS)), now_ns, now_ns);
    live
}

#[test]
fn more_than_60_intervals_without_a_look_are_one() {
    for (more, to_s) in [(0, 1), (60, 1), (61, 62)] {
        let settle_ns = SECOND_NS / 4;
        for part_ns in [0, SECOND_NS - 1] {
            let mut live = at_time((1 + more) * SECOND_NS + settle_ns + part_ns, Settings { settle_ns, ..settings() });
            assert_eq!(live.close_interval(false), (0, to_s * SECOND_NS), "{more} more intervals");
            assert_eq!(live.interval, Some((to_s * SECOND_NS, (to_s + 1) * SECOND_NS)));
        }
    }
}

#[test]
fn the_last_interval_ends_with_the_last_packet() {
    assert_eq!(at_time(SECOND_NS / 3, settings()).close_interval(true), (0, SECOND_NS / 3));
    assert_eq!(at_time(-5, settings()).close_interval(true), (0, 0));
    let (mut live, _) = fed(&[], settings());
    assert_eq!(live.close_interval(true), (0, 0));
}

#[test]
fn an_interval_is_due_when_its_packets_had_time_to_arrive() {
    let live = at_time(0, Settings { settle_ns: 250, ..settings() });
    assert!(!live.is_due(SECOND_NS + 249));
    assert!(live.is_due(SECOND_NS + 250));
    let (live, _) = fed(&[], settings());
    assert!(!live.is_due(i64::MAX), "no packet was read");
}

#[test]
fn the_time_limit_is_checked_every_1024_packets() {
    let (mut live, sender) = fed(&pcapng(0..1500), settings());
    drop(sender);
    assert_eq!(live.advance(Duration::ZERO).unwrap(), Step::Nothing);
    assert_eq!(live.packet_count(), 1024);
    assert_eq!(live.advance(HOUR).unwrap(), Step::End);
    assert_eq!(live.packet_count(), 1500);
    // a due interval comes first
    let times_ns = (0..1024).map(|packet| if packet == 1023 { SECOND_NS } else { 0 });
    let (mut live, _sender) = fed(&pcapng(times_ns), settings());
    assert_eq!(live.advance(Duration::ZERO).unwrap(), Step::Look);
}

#[test]
fn a_limit_of_packets_ends_the_pass() {
    for limit in [1, 3] {
        let (mut live, _sender) = fed(&pcapng(0..5), Settings { packet_limit: Some(limit), ..settings() });
        assert_eq!(live.advance(HOUR).unwrap(), Step::End);
        assert_eq!(live.packet_count(), limit);
    }
}

#[test]
fn an_abandoned_source_ends_with_what_arrived() {
    let (mut live, _sender) = fed(&[], settings());
    assert_eq!(live.advance(MS).unwrap(), Step::Nothing);
    live.abandon();
    assert_eq!(live.advance(10 * MS).unwrap(), Step::End);
    // in its file header, and in its third packet
    let file = pcapng([0, 1, 2]);
    let (mut live, _sender) = fed(&file[..23], settings());
    live.abandon();
    assert_eq!(live.advance(10 * MS).unwrap(), Step::End);
    let (mut live, _sender) = fed(&file[..file.len() - 20], settings());
    assert_eq!(live.advance(MS).unwrap(), Step::Nothing);
    live.abandon();
    assert_eq!(live.advance(10 * MS).unwrap(), Step::End);
    assert_eq!((live.packet_count(), live.infos()[0].is_cut_short), (2, true));
}

#[test]
fn a_stopped_source_may_still_deliver_its_end() {
    let file = pcapng([0, 1, 2]);
    let (mut live, sender) = fed(&file[..200], settings());
    live.stop();
    assert_eq!(live.advance(MS).unwrap(), Step::Nothing);
    sender.send(file[200..].to_vec()).unwrap();
    drop(sender);
    assert_eq!(live.advance(HOUR).unwrap(), Step::End);
    assert_eq!((live.packet_count(), live.change()), (3, None));
}

#[test]
fn the_clock_of_a_quiet_source_continues_after_a_while() {
    let look = |clock_after| {
        let settings = Settings { clock_after, interval_ns: 1_000_000, ..settings() };
        let (mut live, _sender) = fed(&pcapng([0]), settings);
        let steps = [live.advance(30 * MS).unwrap(), live.advance(30 * MS).unwrap()];
        (steps, live.now_ns - START_NS)
    };
    assert_eq!(look(None), ([Step::Nothing; 2], 0));
    assert_eq!(look(Some(HOUR)), ([Step::Nothing; 2], 0));
    let (steps, now_ns) = look(Some(20 * MS));
    assert_eq!(steps, [Step::Nothing, Step::Look]);
    assert!(now_ns >= 20_000_000, "{now_ns}");
}

#[test]
fn a_packet_after_a_pause_is_read_at_once() {
    let file = pcapng([0, 1]);
    let (mut live, sender) = fed(&file[..file.len() - 20], settings());
    // the rest, and the end of the source
    std::thread::spawn(move || {
        std::thread::sleep(20 * MS);
        sender.send(file[file.len() - 20..].to_vec()).unwrap();
    });
    // it waits for the bytes, not for its time limit
    assert_eq!(live.advance(HOUR).unwrap(), Step::End);
    assert_eq!(live.packet_count(), 2);
}

#[test]
fn many_packets_in_a_row_from_long_before_set_the_clock_back() {
    let steps = |back_ns: i64, count: usize| {
        let late = (0..count as i64).map(|packet| 100 * SECOND_NS - back_ns + packet);
        let (mut live, sender) = fed(&pcapng([100 * SECOND_NS].into_iter().chain(late)), settings());
        drop(sender);
        let step = live.advance(HOUR).unwrap();
        (step, live.set_back_to.map(|time_ns| time_ns - START_NS))
    };
    let back_ns = 10 * SECOND_NS;
    // each of the 64 must be more than 10 s earlier than the latest
    assert_eq!(steps(back_ns + 64, 64), (Step::Look, Some(90 * SECOND_NS - 1)));
    assert_eq!(steps(back_ns + 64, 63), (Step::End, None));
    assert_eq!(steps(back_ns + 63, 64), (Step::End, None));
}

#[test]
fn an_interval_begins_where_the_clock_was_set_back_to() {
    let mut live = at_time(50 * SECOND_NS, settings());
    live.set_back_to = Some(7);
    live.turn_clock();
    assert_eq!((live.now_ns, live.last_ns, live.interval), (7, 7, Some((7, 7 + SECOND_NS))));
    (live.now_ns, live.set_back_to) = (9, None);
    live.turn_clock();
    assert_eq!((live.now_ns, live.interval), (9, Some((7, 7 + SECOND_NS))));
}

/// Whether the analysis of the senders stops and packets are skipped, with this much waiting, for so long.
fn governed(waiting_bytes: usize, waited: Duration, lag_max: Option<Duration>) -> (bool, bool) {
    let bytes = vec![0; waiting_bytes];
    let (mut live, _sender) = fed(&bytes, Settings { buffer_bytes: 100, lag_max, ..settings() });
    live.now_ns = 77;
    live.read_ahead.age(waited);
    live.govern();
    let pace = live.pace();
    let wanted = live.pipeline.context.tables.wanted;
    assert_eq!([wanted.senders, wanted.budget, wanted.recoveries], [!pace.is_reduced; 3]);
    let is_behind = lag_max.is_some_and(|lag_max| lag_max.is_zero() || waited > LAG_NONE);
    assert_eq!(live.behind_ns, if is_behind { 77 } else { i64::MIN });
    (pace.is_reduced, pace.is_leaving_out)
}

#[test]
fn a_full_buffer_or_a_long_lag_stops_work() {
    for (bytes, stops) in [(49, (false, false)), (50, (true, false)), (74, (true, false)), (75, (true, true))] {
        assert_eq!(governed(bytes, Duration::ZERO, Some(HOUR)), stops, "{bytes} of 100 bytes wait");
        assert_eq!(governed(bytes, HOUR / 3600, None), (false, false), "a file can wait");
    }
    let second = Duration::from_secs(1);
    for (waited_s, stops) in [(9, (false, false)), (11, (true, false)), (19, (true, false)), (21, (true, true))] {
        assert_eq!(governed(10, waited_s * second, Some(10 * second)), stops, "a lag of {waited_s} s");
    }
    assert_eq!(governed(0, Duration::ZERO, Some(Duration::ZERO)), (true, true));
}

#[test]
fn work_resumes_without_lag_and_the_analysis_of_the_senders_later() {
    let keep_ns = 10 * SECOND_NS;
    let recovered = |since_ns: i64, waiting_bytes: usize, lag_max: Option<Duration>| {
        let (mut live, _sender) = fed(&vec![0; waiting_bytes], Settings { lag_max, keep_ns, ..settings() });
        live.read_ahead.age(10 * MS * 100);
        live.set_dynamics(false);
        (live.is_reduced, live.is_leaving_out) = (true, true);
        (live.behind_ns, live.now_ns) = (1000, 1000 + since_ns);
        live.recover();
        let wanted = live.pipeline.context.tables.wanted;
        assert_eq!([wanted.senders, wanted.budget, wanted.recoveries], [!live.is_reduced; 3]);
        (live.is_reduced, live.is_leaving_out)
    };
    assert_eq!(recovered(keep_ns, 0, Some(HOUR)), (true, false));
    assert_eq!(recovered(keep_ns + 1, 0, Some(HOUR)), (false, false));
    // bytes that have waited for a second
    assert_eq!(recovered(keep_ns + 1, 10, Some(HOUR)), (true, true));
    // what was never reduced by a lag stays
    assert_eq!(recovered(keep_ns + 1, 0, None), (true, true));
    assert_eq!(recovered(keep_ns + 1, 0, Some(Duration::ZERO)), (true, true));
}

#[test]
fn skipped_packets_are_counted_and_not_analysed() {
    let (mut live, sender) = fed(&pcapng(0..3), settings());
    drop(sender);
    live.is_leaving_out = true;
    assert_eq!(live.advance(HOUR).unwrap(), Step::End);
    assert_eq!((live.packet_count(), live.pace().left_out_packets), (3, 3));
    let counters = live.finish().outcome.tables.counters;
    assert_eq!(counters.name, ["packets_left_out"]);
    assert_eq!(counters.count, [3]);
}

#[test]
fn a_packet_of_an_implausible_time_does_not_turn_the_clock() {
    let times_ns = [0, SECOND_NS / 2, i64::MAX - START_NS, SECOND_NS, 3 * SECOND_NS];
    let (mut live, sender) = fed(&pcapng(times_ns), settings());
    drop(sender);
    let mut ends = Vec::new();
    while ends.len() < 10 && live.advance(HOUR).unwrap() == Step::Look {
        ends.push(live.look().to_ns - START_NS);
    }
    assert_eq!(ends, [SECOND_NS, 2 * SECOND_NS, 3 * SECOND_NS]);
    assert_eq!(live.packet_count(), 4);
    assert_eq!(live.pipeline.counters().total(Counter::TimeImplausible), 1);
}

#[test]
fn a_compressed_source_names_its_compression() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&pcapng([0, 1])).unwrap();
    let source = io::Cursor::new(encoder.finish().unwrap());
    let mut live = Live::start(Origin::Reader("test".to_owned(), Box::new(source)), settings()).unwrap();
    assert_eq!(live.advance(HOUR).unwrap(), Step::End);
    assert_eq!((live.packet_count(), live.infos()[0].compression.as_deref()), (2, Some("gzip")));
}

/// A packet with RST from this port to port 80.
fn reset(port: u16) -> Vec<u8> {
    let mut frame = vec![0; 54];
    frame[12..16].copy_from_slice(&[0x08, 0, 0x45, 0]);
    // lengths of IP and TCP, addresses, ports, flags
    frame[16..18].copy_from_slice(&40_u16.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 6]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[36..38].copy_from_slice(&80_u16.to_be_bytes());
    frame[46..48].copy_from_slice(&[0x50, 0x04]);
    frame
}

#[test]
fn rows_of_other_connections_make_room_at_each_look() {
    let mut writer = PcapngWriter::new(Vec::new(), "test").unwrap();
    let interface = writer.add_interface(LinkType::ETHERNET, 0, "eth0").unwrap();
    // each is closed two minutes after its RST, two in an interval of a minute
    for place in 0..40_u16 {
        let (time_ns, frame) = (START_NS + i64::from(place) * 30 * SECOND_NS, reset(1000 + place));
        writer.packet(interface, time_ns, 54, &frame, None).unwrap();
    }
    let how = Settings { interval_ns: 60 * SECOND_NS, ..settings() };
    let (mut live, sender) = fed(&writer.finish().unwrap(), how);
    drop(sender);
    live.pipeline.limits.other_rows = 3;
    while live.advance(HOUR).unwrap() == Step::Look {
        live.look();
    }
    assert!(live.pipeline.rows.row_count() > 30);
    assert_eq!(live.pipeline.context.counters.total(Counter::ConnectionsNotListed), 0);
}
