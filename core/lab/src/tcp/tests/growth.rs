//! The congestion window round by round, against hand calculations.

use std::cell::Cell;
use std::rc::Rc;

use super::pipe::{Fate, MS, Pipe};
use crate::tcp::sender::recovery::State;
use crate::tcp::{CongestionControl, Settings};

const RENO: CongestionControl = CongestionControl::Reno;
const CUBIC: CongestionControl = CongestionControl::Cubic;

fn settings(congestion_control: CongestionControl) -> Settings {
    Settings { congestion_control, hystart: false, ..Settings::default() }
}

/// Segments sent in each round trip since the connection began.
fn segments_per_round(pipe: &Pipe, round_trip_ns: i64) -> Vec<usize> {
    let data = pipe.data(0);
    let start = data[0].0;
    let mut rounds = Vec::new();
    for (time_ns, _, _) in data {
        let round = ((time_ns - start) / round_trip_ns) as usize;
        rounds.resize(rounds.len().max(round + 1), 0);
        rounds[round] += 1;
    }
    rounds
}

#[test]
fn slow_start_begins_with_ten_segments_and_doubles() {
    for control in [RENO, CUBIC] {
        let mut pipe = Pipe::connected(&settings(control), 50 * MS);
        pipe.bulk(550 * MS);
        // Quick ACKs first, then an ACK for every second segment.
        assert_eq!(segments_per_round(&pipe, 100 * MS)[..5], [10, 20, 40, 80, 160], "{control:?}");
    }
}

#[test]
fn the_initial_window_is_as_set() {
    let mut pipe = Pipe::connected(&Settings { initial_window: 3, ..settings(RENO) }, 50 * MS);
    pipe.bulk(250 * MS);
    assert_eq!(segments_per_round(&pipe, 100 * MS)[..2], [3, 6]);
}

/// Loses one segment when `segments` are in flight, and returns cwnd and ssthresh two RTTs later, and again twenty
/// later.
fn after_one_loss(control: CongestionControl, sack: bool) -> ((u32, u32), u32) {
    let mut pipe = Pipe::connected(&Settings { sack, ..settings(control) }, 50 * MS);
    let mut count = 0;
    pipe.judge = Box::new(move |from, segment| {
        count += u32::from(from == 0 && !segment.payload.is_empty());
        // 10 + 20 + 40 + 1: the first of the fourth round, of 80 segments.
        if from == 0 && count == 71 && !segment.payload.is_empty() { Fate::Lost } else { Fate::Arrives }
    });
    pipe.bulk(700 * MS);
    let info = pipe.ends[0].tcp_info();
    assert_eq!((info.recovery, info.total_retransmissions), (State::Open, 1));
    let first = (info.cwnd, info.ssthresh);
    pipe.bulk(2000 * MS);
    (first, pipe.ends[0].tcp_info().cwnd)
}

#[test]
fn reno_halves_and_then_adds_one_per_rtt() {
    for has_sack in [true, false] {
        // cwnd was 80, and 2 or 3 more for each ACK of the third round's rest: none, for its loss was the first of its
        // round; the ACKs behind it are duplicates.
        let ((cwnd, ssthresh), later) = after_one_loss(RENO, has_sack);
        assert_eq!(ssthresh, 40, "sack {has_sack}");
        assert!((40..=43).contains(&cwnd), "{cwnd}");
        assert!((cwnd + 18..=cwnd + 21).contains(&later), "{later} after {cwnd} and 20 rounds");
    }
}

#[test]
fn cubic_keeps_seven_tenths() {
    let ((cwnd, ssthresh), later) = after_one_loss(CUBIC, true);
    assert_eq!(ssthresh, 80 * 717 / 1024);
    assert!((56..=60).contains(&cwnd), "{cwnd}");
    // K = cbrt(80 * 0.3 / 0.4) = 3.9 s: 2.2 s and a round trip after the loss the curve is at 80 - 0.4 * 1.6^3 = 78.
    assert!((76..=80).contains(&later), "{later}");
}

#[test]
fn an_application_limited_window_does_not_grow() {
    let mut pipe = Pipe::connected(&settings(RENO), 50 * MS);
    for _ in 0..30 {
        pipe.write(0, &[1; 4 * 1448]);
        pipe.run_until(pipe.now_ns + 101 * MS);
        pipe.read(1);
    }
    assert_eq!(pipe.ends[0].tcp_info().cwnd, 10);
}

#[test]
fn the_window_halves_with_every_idle_timeout() {
    for (is_on, idle_ms, expected) in
        [(true, 200, 80), (true, 250, 80), (true, 500, 40), (true, 700, 20), (true, 9000, 10), (false, 9000, 80)]
    {
        let mut pipe = Pipe::connected(&Settings { slow_start_after_idle: is_on, ..settings(RENO) }, 50 * MS);
        // 10 + 20 + 40 segments: the window is 80 when they are acknowledged.
        pipe.write(0, &vec![1; 70 * 1448]);
        pipe.run_until(pipe.now_ns + 300 * MS);
        pipe.read(1);
        let info = pipe.ends[0].tcp_info();
        assert_eq!((info.cwnd, info.unacked, info.rto_us), (80, 0, 300_000));
        // The last data was sent 100 ms ago; a timeout is 300 ms. Nothing happens in the first, halving with each begun after.
        pipe.run_until(pipe.now_ns + (idle_ms - 100) * MS);
        pipe.write(0, &vec![1; 100 * 1448]);
        let burst = pipe.data(0).len() - 70;
        assert_eq!(burst, expected, "{is_on} {idle_ms}");
    }
}

#[test]
fn hystart_ends_slow_start_before_the_queue_overflows() {
    // 100 Mbit/s, 16 ms: 139 segments fill the path; a queue of 200 more.
    let lost = |hystart| {
        let mut pipe = Pipe::connected(&Settings { hystart, ..Settings::default() }, 8 * MS);
        (pipe.byte_ns, pipe.queue_ns) = (80, 200 * 1514 * 80);
        pipe.bulk(150 * MS);
        pipe.records.unwrap().iter().filter(|record| record.fate == Fate::Lost).count()
    };
    assert_eq!(lost(true), 0);
    assert!(lost(false) > 50);
}

#[test]
fn during_recovery_one_segment_is_sent_per_two_delivered() {
    // RFC 6937: 80 segments in flight, the first lost; 79 are sacked and ssthresh is 40, so 79 * 40 / 80, rounded up,
    // are sent, the retransmission among them.
    let mut pipe = Pipe::connected(&settings(RENO), 50 * MS);
    let mut count = 0;
    pipe.judge = Box::new(move |from, segment| {
        count += u32::from(from == 0 && !segment.payload.is_empty());
        if from == 0 && count == 71 && !segment.payload.is_empty() { Fate::Lost } else { Fate::Arrives }
    });
    pipe.bulk(490 * MS);
    assert_eq!(segments_per_round(&pipe, 100 * MS), [10, 20, 40, 80, 40]);
    let info = pipe.ends[0].tcp_info();
    assert_eq!((info.recovery, info.cwnd, info.ssthresh), (State::Recovery, 40, 40));
}

#[test]
fn a_timeout_within_a_recovery_resets_cubics_maximum() {
    // 80 segments in flight, the first lost: ssthresh is 56. What follows these is lost until a timeout. Linux forgets
    // the maximum with every timeout (bictcp_state), so that growth from 56 on is 5 % in a round trip; along the curve
    // to 80 it would be a third of that by then.
    let mut pipe = Pipe::connected(&settings(CUBIC), 50 * MS);
    let is_dead = Rc::new(Cell::new(true));
    let (mut count, is_dead_too) = (0, Rc::clone(&is_dead));
    pipe.judge = Box::new(move |from, segment| {
        let is_data = from == 0 && !segment.payload.is_empty();
        count += u32::from(is_data);
        if is_data && (count == 71 || (count > 150 && is_dead_too.get())) { Fate::Lost } else { Fate::Arrives }
    });
    let until = |pipe: &mut Pipe, state: State| {
        for _ in 0..500 {
            if pipe.ends[0].tcp_info().recovery == state {
                return;
            }
            pipe.bulk(10 * MS);
        }
        panic!("never in state {state:?}");
    };
    until(&mut pipe, State::Recovery);
    assert_eq!(pipe.ends[0].tcp_info().ssthresh, 56);
    until(&mut pipe, State::Loss);
    is_dead.set(false);
    until(&mut pipe, State::Open);
    assert_eq!(pipe.ends[0].tcp_info().ssthresh, 56);
    while pipe.ends[0].tcp_info().cwnd < 56 {
        pipe.bulk(10 * MS);
    }
    let before = f64::from(pipe.ends[0].tcp_info().cwnd);
    pipe.bulk(1000 * MS);
    let grown = f64::from(pipe.ends[0].tcp_info().cwnd) / before;
    assert!((1.5..=1.7).contains(&grown), "{grown} times in ten round trips; 1.05^10 is 1.63");
}
