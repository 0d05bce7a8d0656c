//! Small conversations, seen at a tap beside the client or far from it: what each rule makes of them.

use proptest::prelude::*;

use super::observation::Observation;
use super::{Dynamics, Rows};
use crate::tables::{NULL_NS, NULL_U64, Tables, Wanted, budget_part as part};
use crate::tcp::half::SegmentClass;
use iscsitrace_wire::frame::TcpFlags;

const ACK: u8 = 0x10;
const SYN: u8 = 0x02;
const MS: i64 = 1_000_000;
const SEGMENT: i64 = 1000;
/// Of the server, seen beside the client: there and back.
const AWAY_NS: i64 = 20 * MS;

/// A connection whose packets are written down in the order of the tap; the client sends the data.
struct Conversation {
    dynamics: Dynamics,
    frame: u64,
    window: u16,
    scale: Option<u8>,
    has_sack: Option<bool>,
    highest: i64,
}

impl Conversation {
    /// Both SYNs and the ACK: the server is 20 ms away, the client beside the tap.
    fn begin() -> Self {
        let mut talk = Self::without_syn();
        (talk.scale, talk.has_sack) = (Some(0), Some(true));
        let syn = talk.packet(-AWAY_NS, 0, 0, 0, None);
        talk.see(Observation { flags: TcpFlags(SYN), ..syn });
        let syn = talk.packet(0, 1, 0, 0, Some(0));
        talk.see(Observation { flags: TcpFlags(SYN | ACK), ..syn });
        let ack = talk.packet(0, 0, 0, 0, Some(0));
        talk.see(ack);
        talk
    }

    fn without_syn() -> Self {
        let dynamics = Dynamics::new(0, Wanted::ALL);
        Self { dynamics, frame: 0, window: 60_000, scale: None, has_sack: None, highest: 0 }
    }

    fn packet(&mut self, time_ns: i64, direction: usize, offset: i64, length: u32, acks: Option<i64>) -> Observation {
        self.frame += 1;
        Observation {
            frame: self.frame,
            time_ns,
            direction,
            flags: TcpFlags(ACK),
            class: if length > 0 { SegmentClass::New } else { SegmentClass::Empty },
            offset,
            length,
            left_of_pdu: None,
            acknowledged: acks,
            window: self.window,
            window_scale: self.scale,
            segment_max: Some(SEGMENT as u16),
            is_sack_permitted: self.has_sack,
            timestamps: None,
            sacks: Default::default(),
            sack_count: 0,
        }
    }

    fn see(&mut self, seen: Observation) {
        self.dynamics.observe(&seen);
    }

    /// So many full segments of new data.
    fn data(&mut self, time_ns: i64, count: i64) {
        for _ in 0..count {
            let seen = self.packet(time_ns, 0, self.highest, SEGMENT as u32, Some(0));
            self.highest += SEGMENT;
            self.see(seen);
        }
    }

    /// One segment again.
    fn again(&mut self, time_ns: i64, segment: i64) {
        let seen = self.packet(time_ns, 0, segment * SEGMENT, SEGMENT as u32, Some(0));
        self.see(Observation { class: SegmentClass::Retransmission, ..seen });
    }

    /// Everything before this segment arrived, and these ranges of segments.
    fn ack(&mut self, time_ns: i64, segment: i64, sacks: &[(i64, i64)]) {
        let mut seen = self.packet(time_ns, 1, 0, 0, Some(segment * SEGMENT));
        for (place, &(left, right)) in sacks.iter().enumerate() {
            seen.sacks[place] = (left * SEGMENT, right * SEGMENT);
            seen.sack_count += 1;
        }
        self.see(seen);
    }

    /// The server asks for something.
    fn request(&mut self, time_ns: i64, offset: i64, segment: i64) {
        let seen = self.packet(time_ns, 1, offset, 48, Some(segment * SEGMENT));
        self.see(seen);
    }

    /// New data of any length, of a PDU of which so much is left.
    fn piece(&mut self, time_ns: i64, length: u32, left_of_pdu: Option<u32>, acknowledged: i64) {
        let seen = self.packet(time_ns, 0, self.highest, length, Some(acknowledged));
        self.highest += i64::from(length);
        self.see(Observation { left_of_pdu, ..seen });
    }

    /// What held the client: from when, until when, by which part.
    fn limited(self) -> Vec<(i64, i64, u8)> {
        let timeline = Box::new(self.dynamics).finish(true, &mut Tables::default());
        timeline.limited.iter().map(|limited| (limited.from_ns / MS, limited.to_ns / MS, limited.part)).collect()
    }

    fn finish(self) -> Tables {
        let mut tables = Tables::default();
        Box::new(self.dynamics).finish(true, &mut tables);
        tables
    }
}

/// Estimates in segments, 0 where there is none, of the rows that frames of the client changed.
fn estimates(tables: &Tables) -> Vec<i64> {
    let window = &tables.window;
    let rows = (0..window.time_ns.len()).filter(|&row| window.to_target[row]);
    rows.map(|row| if window.is_valid[row] { window.cwnd_estimate_bytes[row] / SEGMENT } else { 0 }).collect()
}

#[test]
fn round_trips_are_of_the_latest_packet_and_never_of_what_was_sent_again() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 1);
    talk.data(102 * MS, 1);
    talk.ack(125 * MS, 2, &[]);
    talk.data(200 * MS, 4);
    talk.ack(221 * MS, 2, &[(3, 4)]);
    talk.ack(222 * MS, 2, &[(3, 6)]);
    talk.again(222 * MS, 2);
    talk.ack(250 * MS, 6, &[]);
    let tables = talk.finish();
    let samples = &tables.round_trips;
    assert_eq!(samples.rtt_ns, [20 * MS, 0, 23 * MS, 21 * MS, 22 * MS]);
    assert_eq!(samples.is_handshake, [true, true, false, false, false]);
    assert_eq!(tables.senders.rtt_min_ns, [20 * MS, 0]);
    assert_eq!(tables.senders.rtt_count, [4, 1]);
    assert_eq!(tables.senders.delayed_ack_max_ns, [NULL_NS; 2]);
}

#[test]
fn an_ack_that_covers_a_retransmission_gives_no_round_trip() {
    let mut talk = Conversation::begin();
    talk.has_sack = Some(false);
    talk.data(100 * MS, 2);
    talk.again(300 * MS, 0);
    talk.data(301 * MS, 1);
    // the retransmission filled the hole: how long the third segment waited for it is not known
    talk.ack(350 * MS, 3, &[]);
    talk.data(400 * MS, 1);
    talk.ack(424 * MS, 4, &[]);
    let tables = talk.finish();
    assert_eq!(tables.round_trips.rtt_ns, [20 * MS, 0, 24 * MS]);
    assert_eq!((tables.senders.rtt_count[0], tables.senders.rtt_min_ns[0]), (2, 20 * MS));
}

#[test]
fn percentiles_of_round_trips_are_by_nearest_rank() {
    let mut talk = Conversation::without_syn();
    talk.ack(0, 0, &[]);
    // 40 round trips of 1 to 40 ns, which the histogram holds exactly
    for rtt_ns in 1..=40 {
        talk.data(rtt_ns * MS, 1);
        talk.ack(rtt_ns * MS + rtt_ns, rtt_ns, &[]);
    }
    let senders = talk.finish().senders;
    assert_eq!((senders.rtt_count[0], senders.rtt_min_ns[0]), (40, 1));
    // ranks 20 (50 % of 40) and 38 (95 % of 40)
    assert_eq!((senders.rtt_median_ns[0], senders.rtt_p95_ns[0]), (20, 38));
}

#[test]
fn a_lost_segment_is_repaired() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 10);
    talk.ack(120 * MS, 2, &[]);
    talk.ack(121 * MS, 2, &[(3, 4)]);
    talk.ack(122 * MS, 2, &[(3, 5)]);
    talk.ack(123 * MS, 2, &[(3, 6)]);
    talk.again(123 * MS, 2);
    talk.ack(143 * MS, 10, &[]);
    talk.data(150 * MS, 1);
    let tables = talk.finish();
    let again = &tables.retransmissions;
    assert_eq!((&again.cause[..], &again.original_ns[..]), (&[0][..], &[100 * MS][..]));
    assert_eq!(again.is_spurious, [false]);
    let repair = &tables.recoveries;
    assert_eq!((repair.time_first_ns[0], repair.time_last_ns[0]), (121 * MS, 143 * MS));
    assert_eq!((repair.retransmitted_packets[0], repair.retransmitted_bytes[0]), (1, SEGMENT as u64));
    // before the ACK that showed it, and after the one that ended it
    assert_eq!((repair.pipe_before_bytes[0], repair.pipe_after_bytes[0]), (8 * SEGMENT, 0));
    let pipes: Vec<_> = tables.window.pipe_bytes.iter().map(|pipe| pipe / SEGMENT).collect();
    // ten out, two acknowledged, one SACKed, two; three, and the hole is lost; sent again; all acknowledged; one more
    assert_eq!(pipes[10..18], [10, 8, 7, 6, 4, 5, 0, 1]);
    assert_eq!((tables.senders.fast_retransmit_count[0], tables.senders.recovery_ns[0]), (1, 22 * MS));
}

#[test]
fn a_duplicate_sack_tells_of_a_retransmission_in_vain() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 6);
    talk.ack(121 * MS, 0, &[(1, 4)]);
    talk.again(121 * MS, 0);
    talk.ack(122 * MS, 6, &[]);
    talk.ack(141 * MS, 6, &[(0, 1)]);
    talk.data(150 * MS, 1);
    let tables = talk.finish();
    assert_eq!(tables.retransmissions.is_spurious, [true]);
    assert_eq!(tables.senders.spurious_count[0], 1);
    assert_eq!(tables.sacks.is_duplicate, [false, true]);
}

#[test]
fn an_old_timestamp_tells_of_a_retransmission_in_vain() {
    for (echo, is_spurious) in [(7, true), (500, false)] {
        let mut talk = Conversation::begin();
        let seen = talk.packet(100 * MS, 0, 0, 1000, Some(0));
        talk.see(Observation { timestamps: Some((7, 1)), ..seen });
        let seen = talk.packet(400 * MS, 0, 0, 1000, Some(0));
        talk.see(Observation { timestamps: Some((307, 1)), class: SegmentClass::Retransmission, ..seen });
        let seen = talk.packet(401 * MS, 1, 0, 0, Some(SEGMENT));
        talk.see(Observation { timestamps: Some((900, echo)), ..seen });
        assert_eq!(talk.finish().retransmissions.is_spurious, [is_spurious]);
    }
}

#[test]
fn silence_ends_with_a_probe_and_then_with_a_timeout() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 4);
    talk.again(142 * MS, 3);
    talk.again(400 * MS, 0);
    talk.ack(420 * MS, 2, &[]);
    talk.again(420 * MS, 2);
    talk.ack(440 * MS, 4, &[]);
    let tables = talk.finish();
    assert_eq!(tables.retransmissions.cause, [2, 1, 1]);
    let senders = &tables.senders;
    assert_eq!((senders.tail_probe_count[0], senders.timeout_count[0], senders.fast_retransmit_count[0]), (1, 1, 0));
    assert_eq!(tables.recoveries.time_last_ns, [440 * MS]);
}

#[test]
fn without_sack_the_last_segment_alone_is_no_probe() {
    let mut talk = Conversation::begin();
    talk.has_sack = Some(false);
    talk.data(100 * MS, 1);
    talk.again(320 * MS, 0);
    assert_eq!(talk.finish().retransmissions.cause, [1]);
}

#[test]
fn what_the_capture_dropped_is_no_loss() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 2);
    talk.highest += 3 * SEGMENT;
    talk.data(100 * MS, 2);
    talk.ack(121 * MS, 7, &[]);
    talk.data(122 * MS, 1);
    let tables = talk.finish();
    assert_eq!(tables.retransmissions.cause.len() + tables.recoveries.cause.len(), 0);
    assert_eq!(tables.senders.owin_max_bytes[0], 7 * SEGMENT);
}

#[test]
fn what_fills_a_hole_of_the_tap_has_no_original() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 1);
    talk.highest += SEGMENT;
    talk.data(100 * MS, 4);
    talk.ack(120 * MS, 1, &[(2, 6)]);
    talk.again(121 * MS, 1);
    talk.ack(141 * MS, 6, &[]);
    let tables = talk.finish();
    assert_eq!(
        (&tables.retransmissions.original_frame[..], &tables.retransmissions.cause[..]),
        (&[NULL_U64][..], &[0][..])
    );
    // the packet after the hole was the first sign
    assert_eq!(tables.recoveries.time_first_ns, [100 * MS]);
}

/// Twelve segments, an ACK of two, and what `between` does; then four more segments, in answer.
fn after_a_stop(window: u16, is_within_pdu: bool, between: impl Fn(&mut Conversation)) -> Vec<i64> {
    let mut talk = Conversation::begin();
    talk.window = window;
    talk.ack(90 * MS, 0, &[]);
    talk.data(100 * MS, 11);
    let seen = talk.packet(100 * MS, 0, talk.highest, SEGMENT as u32, Some(0));
    talk.highest += SEGMENT;
    talk.see(Observation { left_of_pdu: is_within_pdu.then_some(0), ..seen });
    between(&mut talk);
    talk.ack(120 * MS, 2, &[]);
    talk.data(120 * MS, 4);
    estimates(&talk.finish())[1..13].to_vec()
}

#[test]
fn a_sender_that_stops_and_goes_on_with_the_ack_shows_its_window() {
    assert_eq!(after_a_stop(60_000, false, |_| ()), [12; 12]);
}

#[test]
fn a_sender_that_was_asked_for_more_shows_none() {
    assert_eq!(after_a_stop(60_000, false, |talk| talk.request(119 * MS, 0, 0)), [0; 12]);
    assert_eq!(after_a_stop(60_000, true, |talk| talk.request(119 * MS, 0, 0)), [12; 12]);
}

#[test]
fn a_sender_that_the_receiver_holds_back_shows_none() {
    assert_eq!(after_a_stop(12_500, true, |_| ()), [0; 12]);
}

#[test]
fn a_small_window_after_a_long_pause_was_begun_anew() {
    for (count, restarts) in [(10, 1), (40, 0)] {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, 40);
        talk.ack(120 * MS, 20, &[]);
        talk.data(120 * MS, 20);
        talk.ack(140 * MS, 60, &[]);
        talk.request(1000 * MS, 0, 60);
        talk.data(1000 * MS, count);
        talk.ack(1020 * MS, 60 + count / 2, &[]);
        talk.data(1020 * MS, count);
        assert_eq!(talk.finish().senders.restart_after_idle_count[0], restarts, "{count} segments after the pause");
    }
}

#[test]
fn far_from_the_sender_an_ack_counts_when_its_answer_can_be_there() {
    // the tap is beside the server: 30 ms to the client and back
    let mut talk = Conversation::without_syn();
    let seen = talk.packet(0, 1, 0, 48, Some(0));
    talk.see(seen);
    let seen = talk.packet(30 * MS, 0, 0, 1000, Some(48));
    talk.see(seen);
    talk.highest = SEGMENT;
    talk.data(40 * MS, 1);
    talk.ack(40 * MS, 2, &[]);
    talk.data(69 * MS, 1);
    talk.data(70 * MS, 1);
    let tables = talk.finish();
    let rows: Vec<_> = (0..tables.window.time_ns.len()).filter(|&row| tables.window.to_target[row]).collect();
    let owin: Vec<_> = rows.iter().map(|&row| tables.window.owin_bytes[row] / SEGMENT).collect();
    let times: Vec<_> = rows.iter().map(|&row| tables.window.time_ns[row] / MS).collect();
    assert_eq!((&owin[..], &times[..]), (&[0, 1, 2, 3, 1, 2][..], &[15, 15, 25, 54, 55, 55][..]));
}

#[test]
fn a_small_segment_after_the_last_ack_waited_for_it_though_it_came_before_the_least_round_trip() {
    let mut talk = Conversation::without_syn();
    // the client is far from the tap, and its first answer was late
    talk.request(0, 0, 0);
    talk.piece(30 * MS, 1000, None, 48);
    talk.piece(38 * MS, 1000, Some(1400), 48);
    talk.ack(38 * MS, 2, &[]);
    talk.piece(40 * MS, 1000, Some(400), 48);
    talk.piece(40 * MS, 400, None, 48);
    let ack = talk.packet(40 * MS, 1, 48, 0, Some(3400));
    talk.see(ack);
    talk.piece(68 * MS, 48, None, 48);
    assert_eq!(talk.limited().last(), Some(&(40, 68, part::ACK_WAIT)));
}

#[test]
fn the_rest_of_a_pdu_that_goes_with_the_answer_to_a_request_waited_for_an_ack() {
    let limited_with = |small_bytes| {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, 1);
        talk.piece(100 * MS, small_bytes, None, 0);
        talk.piece(100 * MS, 1000, Some(400), 0);
        talk.ack(117 * MS, 1, &[]);
        talk.request(118 * MS, 0, 1);
        talk.piece(118 * MS, 1000, None, 48);
        talk.limited()
    };
    assert_eq!(limited_with(500), [(100, 118, part::ACK_WAIT)]);
    // with nothing small under way Nagle's algorithm holds nothing
    assert!(limited_with(1000).iter().all(|limited| limited.2 != part::ACK_WAIT));
}

#[test]
fn a_window_field_without_its_scale_is_as_large_as_what_was_sent() {
    let mut talk = Conversation::without_syn();
    talk.window = 1000;
    talk.ack(90 * MS, 0, &[]);
    talk.data(100 * MS, 7);
    let tables = talk.finish();
    // 1000, shifted by 3, is the first window that holds 7000 bytes
    assert_eq!((tables.senders.window_scale[0], tables.senders.is_window_scale_inferred[0]), (3, true));
}

#[test]
fn full_and_closed_windows_last_until_they_open() {
    let mut talk = Conversation::begin();
    talk.window = 5_000;
    talk.ack(90 * MS, 0, &[]);
    talk.data(100 * MS, 5);
    talk.window = 0;
    talk.ack(120 * MS, 5, &[]);
    talk.window = 5_000;
    talk.ack(170 * MS, 5, &[]);
    talk.data(200 * MS, 1);
    let tables = talk.finish();
    assert_eq!((tables.senders.window_full_ns[0], tables.senders.zero_window_ns[0]), (70 * MS, 50 * MS));
    assert_eq!((tables.senders.rwnd_min_bytes[0], tables.senders.rwnd_max_bytes[0]), (0, 60_000));
}

#[test]
fn nothing_is_remembered_that_nobody_asked_for() {
    let mut rows = Rows::default();
    let mut sender = super::sender::Sender::new(0, true);
    sender.finish(super::sender_state::Delays::default(), &mut rows);
    assert!(rows.window.time_ns.is_empty());
}

fn any_observation() -> impl Strategy<Value = Observation> {
    let place = prop_oneof![0..40_000_i64, -2_000_000_000..2_000_000_000_i64];
    let time = prop_oneof![9 => 0..400 * MS, 1 => any::<i64>()];
    let class = prop_oneof![
        Just(SegmentClass::New),
        Just(SegmentClass::Retransmission),
        Just(SegmentClass::Reordered),
        Just(SegmentClass::Probe),
    ];
    let sacks = prop::array::uniform4((0..40_i64, 1..6_i64));
    let what = (place.clone(), prop_oneof![Just(0_u32), 1..3000_u32], class, prop::option::of(place), any::<bool>());
    let rest = (prop::option::of((0..50_u32, 0..50_u32)), sacks, 0..=4_u8, any::<u16>(), prop::option::of(0..=14_u8));
    (time, 0..2_usize, what, rest, any::<u8>()).prop_map(
        |(time_ns, direction, (offset, length, class, acknowledged, is_within_pdu), rest, flags)| {
            let (timestamps, sacks, sack_count, window, window_scale) = rest;
            Observation {
                frame: 0,
                time_ns,
                direction,
                flags: TcpFlags(flags),
                class: if length > 0 { class } else { SegmentClass::Empty },
                offset,
                length,
                left_of_pdu: is_within_pdu.then_some(0),
                acknowledged,
                window,
                window_scale,
                segment_max: None,
                is_sack_permitted: None,
                timestamps,
                sacks: sacks.map(|(left, length)| (left * SEGMENT, (left + length) * SEGMENT)),
                sack_count,
            }
        },
    )
}

proptest! {
    #[test]
    fn whatever_comes_the_rows_make_sense(packets in prop::collection::vec(any_observation(), 1..120)) {
        let mut dynamics = Dynamics::new(0, Wanted::ALL);
        for (place, seen) in packets.iter().enumerate() {
            dynamics.observe(&Observation { frame: place as u64 + 1, ..*seen });
        }
        let mut tables = Tables::default();
        Box::new(dynamics).finish(true, &mut tables);
        let window = &tables.window;
        for row in 0..window.time_ns.len() {
            prop_assert!(window.pipe_bytes[row] >= 0 && window.pipe_bytes[row] <= window.owin_bytes[row]);
            prop_assert_eq!(window.is_valid[row], window.cwnd_estimate_bytes[row] != NULL_NS);
            if row > 0 && window.to_target[row] == window.to_target[row - 1] {
                prop_assert!(window.time_ns[row] >= window.time_ns[row - 1]);
            }
        }
        let senders = &tables.senders;
        for row in 0..2 {
            let causes = [&senders.fast_retransmit_count, &senders.tail_probe_count, &senders.unknown_retransmit_count];
            let found: u32 = causes.iter().map(|counts| counts[row]).sum();
            let ours = tables.retransmissions.to_target.iter().zip(&tables.retransmissions.cause);
            let listed = ours.filter(|&(&way, &cause)| way == senders.to_target[row] && cause != 1).count();
            prop_assert_eq!(found as usize, listed);
            prop_assert!(senders.zero_window_ns[row] >= 0 && senders.window_full_ns[row] >= 0);
        }
    }
}
