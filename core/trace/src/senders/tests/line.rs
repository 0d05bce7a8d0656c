//! The rate of a line, against a line of known rate: packets of window-limited senders in one queue.

use iscsitrace_wire::frame::Address;
use proptest::prelude::*;

use super::MS;
use crate::senders::acks::Acks;
use crate::senders::deliveries::{Deliveries, Delivery};
use crate::senders::line::fill;
use crate::senders::load::StandingQueue;
use crate::senders::observation::Observation;
use crate::senders::timeline::Hosts;
use crate::senders::timeline::Timeline;
use crate::stream::class::SegmentClass;
use crate::tables::{NULL_NS, NULL_U32, SenderRow, Senders};

const SEGMENT: i64 = 1448;
/// With Ethernet, IPv4, TCP and timestamps.
const FRAME: i64 = 1514;

/// Senders whose data share a line: each keeps a window of packets in flight, over a path of one RTT.
#[derive(Debug, Clone)]
struct Path {
    /// Nanoseconds on the line for a byte; 0 is no line.
    ns_per_byte: f64,
    /// Without queue: half of it before the line, the rest after it.
    rtt_ns: i64,
    /// Packets.
    window: usize,
    sender_count: usize,
    /// How much later each packet than its turn leaves its host.
    host_ns: fn(usize) -> i64,
    /// How stamps are rounded, up.
    stamp_ns: i64,
    is_tap_at_sender: bool,
    has_timestamps: bool,
    /// Packets of each sender,
    count: usize,
    /// and of the last one.
    last_count: usize,
}

const PATH: Path = Path {
    ns_per_byte: 400.0,
    rtt_ns: 8 * MS,
    window: 40,
    sender_count: 1,
    host_ns: |_| 0,
    stamp_ns: 1,
    is_tap_at_sender: true,
    has_timestamps: true,
    count: 1000,
    last_count: usize::MAX,
};

/// A packet of a sender.
#[derive(Debug, Clone, Copy)]
struct Packet {
    sender: usize,
    number: usize,
    sent_ns: i64,
    arrived_ns: i64,
    acknowledged_ns: i64,
}

impl Path {
    /// The packets, in the order of the line.
    fn packets(&self) -> Vec<Packet> {
        let mut packets: Vec<Packet> = Vec::new();
        let mut next: Vec<(i64, usize)> = vec![(0, 0); self.sender_count];
        let mut acknowledged: Vec<Vec<i64>> = vec![Vec::new(); self.sender_count];
        let mut free_ns = 0;
        loop {
            let sender = (0..self.sender_count).min_by_key(|&sender| next[sender].0).unwrap();
            let (ready_ns, number) = next[sender];
            if ready_ns == i64::MAX {
                return packets;
            }
            let sent_ns = ready_ns + (self.host_ns)(number);
            let line_ns = (FRAME as f64 * self.ns_per_byte) as i64;
            let arrived_ns = free_ns.max(sent_ns + self.rtt_ns / 2) + line_ns;
            free_ns = arrived_ns;
            let acknowledged_ns = arrived_ns + self.rtt_ns / 2;
            packets.push(Packet { sender, number, sent_ns, arrived_ns, acknowledged_ns });
            acknowledged[sender].push(acknowledged_ns);
            // the next packet leaves when the window has room
            let room_ns = (number + 1).checked_sub(self.window).map_or(0, |first| acknowledged[sender][first]);
            let count = if sender + 1 == self.sender_count { self.count.min(self.last_count) } else { self.count };
            next[sender] = (if number + 1 < count { room_ns.max(sent_ns) } else { i64::MAX }, number + 1);
        }
    }

    /// What the tap shows of each sender.
    fn timelines(&self) -> Vec<Timeline> {
        let stamp = |time_ns: i64| (time_ns + self.stamp_ns - 1) / self.stamp_ns * self.stamp_ns;
        let mut timelines: Vec<Timeline> = (0..self.sender_count as u32).map(|number| self.timeline(number)).collect();
        let packets = self.packets();
        let mut of_sender: Vec<Vec<Packet>> = vec![Vec::new(); self.sender_count];
        packets.iter().for_each(|packet| of_sender[packet.sender].push(*packet));
        for (packets, timeline) in of_sender.iter().zip(&mut timelines) {
            let deliveries = &mut timeline.deliveries[0];
            let mut acks = Acks::default();
            let mut events: Vec<(i64, bool, Packet)> = Vec::new();
            for packet in packets {
                let (data_ns, ack_ns) = if self.is_tap_at_sender {
                    (packet.sent_ns, packet.acknowledged_ns)
                } else {
                    (packet.arrived_ns, packet.arrived_ns)
                };
                events.push((stamp(data_ns), true, *packet));
                events.push((stamp(ack_ns), false, *packet));
            }
            events.sort_by_key(|&(time_ns, is_data, packet)| (time_ns, packet.number, !is_data));
            for (time_ns, is_data, packet) in events {
                let mut seen = observation(time_ns);
                if is_data {
                    // it echoes the ACK that let it go
                    let echo = packet.number.checked_sub(self.window).map_or(0, |number| number as u32 + 1);
                    seen.length = SEGMENT as u32;
                    seen.timestamps = self.has_timestamps.then_some((0, echo));
                    acks.note_echo(&seen);
                    let path_ns = timeline.rtt_to_initiator_ns.unwrap();
                    deliveries.arrive(&seen, SEGMENT, acks.echoed_ns(&seen), path_ns);
                } else {
                    seen.timestamps = self.has_timestamps.then_some((packet.number as u32 + 1, 0));
                    acks.push(&seen, 0, 0);
                    let sent_ns = if self.is_tap_at_sender { packet.sent_ns } else { packet.arrived_ns };
                    let path_ns = timeline.rtt_to_target_ns.unwrap();
                    deliveries.acknowledge(&seen, SEGMENT as u32, Some(stamp(sent_ns)), path_ns);
                }
            }
        }
        timelines
    }

    fn timeline(&self, connection: u32) -> Timeline {
        let line_ns = (FRAME as f64 * self.ns_per_byte) as i64;
        let rtts_ns = [self.rtt_ns + line_ns, 0];
        let [to_target, to_initiator] = if self.is_tap_at_sender { [0, 1] } else { [1, 0] };
        Timeline {
            connection,
            hosts: Some(Hosts { initiator: Address::v4([10, 0, 0, 1]), target: Address::v4([10, 0, 0, 2]) }),
            rtt_to_target_ns: Some(rtts_ns[to_target]),
            rtt_to_initiator_ns: Some(rtts_ns[to_initiator]),
            line_busy: Default::default(),
            queued: Default::default(),
            deliveries: Default::default(),
            excess: Vec::new(),
            standing: [None, None],
            limited: Default::default(),
            stalls: Vec::new(),
            progress: Default::default(),
            silences: Default::default(),
        }
    }

    fn rows(&self) -> Senders {
        filled(&mut self.timelines())
    }

    /// The rate with headers, in MB/s; none if the line has none.
    fn rate(&self) -> Option<f64> {
        let rate = self.rows().line_wire_bytes_per_s[0];
        (rate != NULL_NS).then_some(rate as f64 / 1e6)
    }
}

fn filled(timelines: &mut [Timeline]) -> Senders {
    let mut senders = Senders::default();
    for timeline in &*timelines {
        for to_target in [true, false] {
            senders.push(SenderRow { connection: timeline.connection, to_target, ..SenderRow::default() });
        }
    }
    fill(&mut senders, timelines);
    senders
}

fn observation(time_ns: i64) -> Observation {
    Observation { class: SegmentClass::New, ..Observation::bare(time_ns, 0) }
}

/// Within 1 %.
fn is_near(rate: Option<f64>, expected: f64) -> bool {
    rate.is_some_and(|rate| (rate - expected).abs() < expected / 100.0)
}

#[test]
fn a_line_with_a_queue_has_its_rate_at_both_taps() {
    // 40 packets need 24 ms on a line of 2.5 MB/s, which is more than the RTT of 8 ms
    for is_tap_at_sender in [true, false] {
        let rows = Path { is_tap_at_sender, ..PATH }.rows();
        assert_eq!((rows.line[0], rows.line[1]), (0, NULL_U32));
        assert_eq!(rows.is_line_from_acks[0], is_tap_at_sender);
        assert!((rows.line_wire_bytes_per_s[0] - 2_500_000).abs() < 25_000, "{}", rows.line_wire_bytes_per_s[0]);
        // 1448 of 1514 bytes are payload
        assert!((rows.line_bytes_per_s[0] - 2_391_017).abs() < 25_000, "{}", rows.line_bytes_per_s[0]);
        assert!(rows.line_low_bytes_per_s[0] <= rows.line_bytes_per_s[0]);
        assert!(rows.line_bytes_per_s[0] <= rows.line_high_bytes_per_s[0]);
        assert!(rows.line_stretch_count[0] >= 8);
        // a window of 24.2 ms less 8.6 ms
        assert!((rows.line_queue_ns[0] - 15_600_000).abs() < MS, "{}", rows.line_queue_ns[0]);
    }
}

#[test]
fn a_window_that_does_not_fill_the_path_shows_no_line() {
    // 13 packets take 7.9 ms on the line, 14 and the path 8.6 ms
    for window in [2, 5, 10, 13] {
        for is_tap_at_sender in [true, false] {
            assert_eq!(Path { window, is_tap_at_sender, ..PATH }.rate(), None, "{window} packets");
        }
    }
}

#[test]
fn without_a_line_there_is_no_rate() {
    // hosts that pause for times that vary; one that takes the same time for each packet would be a line
    let paused: fn(usize) -> i64 = |number| match number.wrapping_mul(2_654_435_761) >> 8 & 15 {
        0 => (number % 5) as i64 * MS,
        1 => 300_000,
        _ => 20_000,
    };
    for host_ns in [|_| 0, paused] {
        for is_tap_at_sender in [true, false] {
            let path = Path { ns_per_byte: 0.0, host_ns, is_tap_at_sender, ..PATH };
            assert_eq!(path.rate(), None);
        }
    }
}

#[test]
fn the_connections_of_two_hosts_share_a_line() {
    for is_tap_at_sender in [true, false] {
        let rows = Path { sender_count: 3, is_tap_at_sender, ..PATH }.rows();
        for row in [0, 2, 4] {
            assert_eq!(rows.line[row], 0);
            assert_eq!(rows.line_bytes_per_s[row], rows.line_bytes_per_s[0]);
            let rate = rows.line_wire_bytes_per_s[row];
            assert!((rate - 2_500_000).abs() < 25_000, "{rate}");
        }
    }
}

#[test]
fn a_part_of_the_traffic_of_a_line_is_not_its_rate() {
    // of three connections one was captured; another one took the line for a time that varies
    let path = Path { sender_count: 3, window: 40, host_ns: |number| (number % 64) as i64 * 50_000, ..PATH };
    let mut timelines = path.timelines();
    timelines.truncate(1);
    let rate = filled(&mut timelines).line_wire_bytes_per_s[0];
    assert!(rate == NULL_NS || (rate - 2_500_000).abs() < 125_000, "{rate}");
}

#[test]
fn connections_to_several_targets_share_the_line_of_their_initiator() {
    let path =
        Path { sender_count: 2, is_tap_at_sender: false, host_ns: |number| (number % 50) as i64 * 20_000, ..PATH };
    let mut timelines = path.timelines();
    for timeline in &mut timelines {
        // data to the initiator
        timeline.deliveries.reverse();
        std::mem::swap(&mut timeline.rtt_to_target_ns, &mut timeline.rtt_to_initiator_ns);
        let target = Address::v4([10, 0, 1, timeline.connection as u8]);
        timeline.hosts = timeline.hosts.map(|hosts| Hosts { target, ..hosts });
    }
    let rows = filled(&mut timelines);
    assert_eq!((rows.line[1], rows.line[3]), (0, 0));
    assert!((rows.line_wire_bytes_per_s[3] - 2_500_000).abs() < 25_000, "{}", rows.line_wire_bytes_per_s[3]);
}

#[test]
fn connections_to_several_targets_with_queues_of_their_own_have_lines_of_their_own() {
    let mut timelines = PATH.timelines();
    let other = Path { ns_per_byte: 200.0, window: 120, count: 3000, ..PATH }.timelines().remove(0);
    let hosts = other.hosts.map(|hosts| Hosts { target: Address::v4([10, 0, 1, 1]), ..hosts });
    timelines.push(Timeline { connection: 1, hosts, ..other });
    let rows = filled(&mut timelines);
    assert_ne!(rows.line[0], rows.line[2]);
    for (row, rate) in [(0, 2_500_000), (2, 5_000_000)] {
        let found = rows.line_wire_bytes_per_s[row];
        assert!((found - rate).abs() < rate / 100, "{found}");
    }
}

#[test]
fn stamps_that_many_packets_share_show_the_rate_over_longer_times() {
    // 256 packets in flight, 155 ms; five packets and more share a stamp
    for is_tap_at_sender in [true, false] {
        let path = Path { stamp_ns: 3 * MS, window: 256, count: 4000, is_tap_at_sender, ..PATH };
        assert!(is_near(path.rate(), 2.5), "{:?}", path.rate());
        // a window of deliveries takes longer than the RTT: even what a host sends in bursts is even then
        let path = Path { stamp_ns: 30 * MS, ..path };
        assert_eq!(path.rate(), None);
    }
}

#[test]
fn without_timestamps_a_queue_before_the_tap_is_not_seen() {
    let path = Path { has_timestamps: false, ..PATH };
    // headers are 12 bytes shorter then: the same packets would be 1502 bytes
    assert!(is_near(path.rate(), 2.5 * 1502.0 / 1514.0), "{:?}", path.rate());
    assert_eq!(Path { is_tap_at_sender: false, ..path }.rate(), None);
}

/// Changes every delivery.
fn change(deliveries: &mut Deliveries, new: impl Fn(Delivery) -> Delivery) {
    for packed in [&mut deliveries.arrived, &mut deliveries.acknowledged] {
        let rows = std::mem::take(packed);
        rows.iter().for_each(|delivery| packed.push(new(delivery)));
    }
}

#[test]
fn other_packets_may_take_a_part_of_the_line_but_nothing_comes_out_of_it_faster() {
    // of the bytes of two fifths of the time so many percent are of this connection
    let with = |percent: u32| {
        let mut timelines = PATH.timelines();
        change(&mut timelines[0].deliveries[0], |delivery| {
            let is_shared = delivery.time_ns / (50 * MS) % 5 < 2;
            Delivery { bytes: delivery.bytes * if is_shared { percent } else { 100 } / 100, ..delivery }
        });
        let rate = filled(&mut timelines).line_wire_bytes_per_s[0];
        (rate != NULL_NS).then_some(rate as f64 / 1e6)
    };
    for percent in [83, 100, 104] {
        assert!(with(percent).is_some_and(|rate| (rate - 2.5).abs() < 0.125), "{percent} %: {:?}", with(percent));
    }
    assert_eq!([with(77), with(112)], [None, None]);
}

#[test]
fn packets_that_only_answer_others_show_no_line() {
    let mut timelines = PATH.timelines();
    for timeline in &mut timelines {
        let deliveries = &mut timeline.deliveries[0];
        change(deliveries, |delivery| Delivery { bytes: 48, ..delivery });
        deliveries.payload_bytes = 48 * deliveries.packet_count;
    }
    assert_eq!(filled(&mut timelines).line[0], NULL_U32);
}

#[test]
fn unknown_hosts_or_round_trips_show_no_line() {
    let mut timelines = PATH.timelines();
    timelines[0].hosts = None;
    assert_eq!(filled(&mut timelines).line[0], NULL_U32);
    let mut timelines = PATH.timelines();
    timelines[0].rtt_to_target_ns = None;
    assert_eq!(filled(&mut timelines).line[0], NULL_U32);
}

#[test]
fn ipv6_has_longer_headers() {
    let mut timelines = PATH.timelines();
    timelines[0].hosts = Some(Hosts { initiator: Address::v6([1; 16]), target: Address::v6([2; 16]) });
    let rate = filled(&mut timelines).line_wire_bytes_per_s[0];
    let expected = 2_500_000 * 1534 / 1514;
    assert!((rate - expected).abs() < expected / 100, "{rate}");
}

#[test]
fn the_time_in_the_queue_is_busy_time_of_the_line() {
    for is_tap_at_sender in [true, false] {
        let path = Path { is_tap_at_sender, ..PATH };
        let mut timelines = path.timelines();
        filled(&mut timelines);
        let busy = timelines[0].busy(0, i64::MIN);
        let busy_ns: i64 = busy.map(|(from_ns, to_ns)| to_ns - from_ns).sum();
        // 1000 packets, less the first
        let truth_ns = 999 * FRAME * 400;
        assert!((busy_ns - truth_ns).abs() < truth_ns / 50, "{busy_ns} of {truth_ns}");
        assert_eq!(timelines[0].busy(1, i64::MIN).count(), 0);
    }
}

#[test]
fn a_standing_queue_that_data_leave_at_one_rate_shows_the_line_where_nothing_else_does() {
    let queue = |rates| StandingQueue {
        spans: vec![(MS, 5 * MS), (7 * MS, 9 * MS)],
        delay_ns: 30 * MS,
        window_count: 9,
        rates,
    };
    let found = |path: Path, rates| {
        let mut timelines = path.timelines();
        timelines[0].standing[0] = Some(queue(rates));
        let rows = filled(&mut timelines);
        (
            rows.line_wire_bytes_per_s[0],
            rows.line_queue_ns[0],
            rows.line_stretch_count[0],
            timelines.swap_remove(0).line_busy,
        )
    };
    let without_windows = Path { window: 2, count: 100, ..PATH };
    let (rate, queue_ns, count, busy) = found(without_windows.clone(), Some([1e6, 1.448e6, 2e6]));
    assert_eq!((rate, queue_ns, count), (1_514_000, 30 * MS, 9));
    assert_eq!(busy, [vec![(MS, 5 * MS), (7 * MS, 9 * MS)], Vec::new()]);
    // others had a part of the line
    let (rate, _, count, busy) = found(without_windows, None);
    assert_eq!((rate, count, busy), (NULL_NS, 0, [Vec::new(), Vec::new()]));
    // windows shorter than an RTT know it better
    let (rate, ..) = found(PATH, Some([1e6, 1.448e6, 2e6]));
    assert!(is_near(Some(rate as f64 / 1e6), 2.5), "{rate}");
}

#[test]
fn a_connection_without_data_in_the_queue_is_not_busy() {
    let mut timelines = Path { sender_count: 2, last_count: 300, ..PATH }.timelines();
    let last_ns = timelines[1].deliveries[0].acknowledged.iter().last().unwrap().time_ns;
    filled(&mut timelines);
    assert!(timelines[1].busy(0, i64::MIN).all(|(_, to_ns)| to_ns <= last_ns));
    assert!(timelines[0].busy(0, i64::MIN).any(|(_, to_ns)| to_ns > last_ns));
}

#[test]
fn times_at_the_end_of_their_type_do_no_harm() {
    for shift_ns in [i64::MAX, i64::MIN] {
        let mut timelines = PATH.timelines();
        for deliveries in timelines.iter_mut().flat_map(|timeline| &mut timeline.deliveries) {
            change(deliveries, |delivery| Delivery {
                time_ns: delivery.time_ns.saturating_add(shift_ns),
                begun_ns: delivery.begun_ns.map(|begun_ns| begun_ns.saturating_sub(shift_ns)),
                ..delivery
            });
        }
        filled(&mut timelines);
    }
}

#[test]
fn a_stopped_timestamp_clock_shows_no_queue() {
    let (mut deliveries, mut acks) = (Deliveries::default(), Acks::default());
    for packet in 0..1000 {
        let time_ns = packet * 600_000;
        acks.push(&Observation { timestamps: Some((7, 0)), ..observation(time_ns) }, 0, 0);
        let seen = Observation { length: 1448, timestamps: Some((0, 7)), ..observation(time_ns + 100_000) };
        acks.note_echo(&seen);
        deliveries.arrive(&seen, SEGMENT, acks.echoed_ns(&seen), 8 * MS);
    }
    assert!(deliveries.arrived.iter().all(|delivery| delivery.begun_ns == Some(delivery.time_ns - 100_000)));
}

#[test]
fn an_old_timestamp_after_a_newer_acknowledgment_shows_no_queue() {
    let mut deliveries = Deliveries::default();
    let answer = |deliveries: &mut Deliveries, time_ns, answered_ns| {
        let seen = Observation { length: 1448, ..observation(time_ns) };
        deliveries.arrive(&seen, SEGMENT, answered_ns, MS);
        deliveries.arrived.last_mut().unwrap().begun_ns
    };
    assert_eq!(answer(&mut deliveries, 4 * MS, Some(0)), Some(0));
    // it acknowledges what passed at 5 ms; the next packet was sent later
    assert_eq!(answer(&mut deliveries, 9 * MS, Some(5 * MS)), Some(5 * MS));
    assert_eq!(answer(&mut deliveries, 10 * MS, Some(0)), Some(5 * MS));
}

proptest! {
    /// Any line that its senders fill has its rate, also with hosts that wait for a time that varies.
    #[test]
    fn any_line_with_a_queue_has_its_rate(
        ns_per_byte in 1.0..4000.0_f64,
        rtt_ns in 100_000..40_000_000_i64,
        fill in 2.0..8.0_f64,
        is_tap_at_sender: bool,
    ) {
        let line_ns = FRAME as f64 * ns_per_byte;
        let window = ((rtt_ns as f64 / line_ns + 1.0) * fill) as usize + 32;
        let count = (window * 12).max(1000);
        prop_assume!(count < 60_000);
        // here each packet has a timestamp of its own, where hosts have one for a millisecond; so many are remembered
        prop_assume!(window <= 4096);
        let path = Path { ns_per_byte, rtt_ns, window, count, is_tap_at_sender, ..PATH };
        let rate = path.rate();
        prop_assert!(is_near(rate, 1e3 / ns_per_byte), "{rate:?} of {}", 1e3 / ns_per_byte);
    }
}
