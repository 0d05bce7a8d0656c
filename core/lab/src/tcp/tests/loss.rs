//! Which segments are retransmitted, and when.

use super::pipe::{Fate, MS, Pipe};
use crate::tcp::sender::recovery::State;
use crate::tcp::{CongestionControl, Settings};

const MSS: u32 = 1448;

fn settings(sack: bool) -> Settings {
    Settings { congestion_control: CongestionControl::Reno, sack, ..Settings::default() }
}

/// Loses the first transmissions of the segments that start at these numbers of full segments.
fn losing(pipe: &mut Pipe, segments: &[u32]) {
    let first = pipe.records.as_ref().unwrap()[0].segment.sequence_number.wrapping_add(1);
    let mut left = segments.to_vec();
    pipe.judge = Box::new(move |from, segment| {
        let place = segment.sequence_number.wrapping_sub(first);
        if from == 0 && !segment.payload.is_empty() && place % MSS == 0 && left.contains(&(place / MSS)) {
            left.retain(|&segment| segment != place / MSS);
            return Fate::Lost;
        }
        Fate::Arrives
    });
}

/// Retransmissions of `data`: number of the segment, milliseconds after the first data.
fn retransmissions(pipe: &Pipe) -> Vec<(u32, i64)> {
    let data = pipe.data(0);
    let mut next = 0;
    let mut again = Vec::new();
    for &(time_ns, place, length) in &data {
        if place < next {
            again.push((place / MSS, (time_ns - data[0].0) / MS));
        }
        next = next.max(place + length as u32);
    }
    again
}

#[test]
fn the_third_duplicate_ack_retransmits() {
    for sack in [true, false] {
        let mut pipe = Pipe::connected(&settings(sack), 50 * MS);
        losing(&mut pipe, &[3]);
        pipe.write(0, &[1; 10 * MSS as usize]);
        pipe.run_until(pipe.now_ns + 1000 * MS);
        assert_eq!(retransmissions(&pipe), [(3, 100)], "sack {sack}");
        assert_eq!(pipe.read(1).len(), 10 * MSS as usize);
    }
}

#[test]
fn several_losses_are_recovered_in_one_rtt_with_sack_and_one_per_rtt_without() {
    let lost = [11, 14, 17, 20];
    for (sack, expected) in [(true, [200, 200, 200, 200]), (false, [200, 300, 400, 500])] {
        let mut pipe = Pipe::connected(&settings(sack), 50 * MS);
        losing(&mut pipe, &lost);
        pipe.write(0, &[1; 30 * MSS as usize]);
        pipe.run_until(pipe.now_ns + 1500 * MS);
        let again = retransmissions(&pipe);
        assert_eq!(again.iter().map(|&(segment, _)| segment).collect::<Vec<_>>(), lost, "sack {sack}");
        for ((_, at_ms), expected) in again.into_iter().zip(expected) {
            // SACK compression makes an ACK a millisecond late.
            assert!((expected..=expected + 2).contains(&at_ms), "sack {sack}: {at_ms}");
        }
        assert_eq!(pipe.read(1).len(), 30 * MSS as usize);
    }
}

#[test]
fn tahoe_begins_slow_start_again_at_the_third_duplicate_ack() {
    // Windows of 10 and 20 segments. The ACK of segment 10 comes at 200 ms: a window of 21, of which half is the
    // threshold, then three duplicate ACKs. The next ACK covers everything; windows of 2, 4, 8, and 10 from there on.
    let tahoe = Settings { congestion_control: CongestionControl::Tahoe, delayed_ack: false, ..settings(false) };
    for (control, after) in [(CongestionControl::Tahoe, [2, 4, 8]), (CongestionControl::Reno, [10, 11, 12])] {
        let mut pipe = Pipe::connected(&Settings { congestion_control: control, ..tahoe.clone() }, 50 * MS);
        losing(&mut pipe, &[11]);
        pipe.write(0, &[1; 100 * MSS as usize]);
        pipe.run_until(pipe.now_ns + 590 * MS);
        assert_eq!(retransmissions(&pipe), [(11, 200)]);
        assert_eq!((pipe.ends[0].tcp_info().ssthresh, pipe.ends[0].tcp_info().total_timeouts), (10, 0));
        let data = pipe.data(0);
        let sent_in = |round: i64| data.iter().filter(|(at_ns, ..)| (at_ns - data[0].0) / (100 * MS) == round).count();
        assert_eq!([3, 4, 5].map(sent_in), after, "{control:?}");
    }
}

#[test]
fn limited_transmit_sends_new_segments_for_the_first_two_duplicates() {
    // RFC 3042.
    let mut pipe = Pipe::connected(&Settings { initial_window: 4, ..settings(true) }, 50 * MS);
    losing(&mut pipe, &[0]);
    pipe.write(0, &[1; 40 * MSS as usize]);
    pipe.run_until(pipe.now_ns + 110 * MS);
    let places: Vec<u32> = pipe.data(0).iter().map(|&(_, place, _)| place / MSS).collect();
    assert_eq!(places[..7], [0, 1, 2, 3, 4, 5, 0]);
}

#[test]
fn a_lost_tail_is_probed_after_two_rtts() {
    // RFC 8985, section 7: the last segment again after 2 SRTT, and the lost ones when the probe is sacked.
    let mut pipe = Pipe::connected(&settings(true), 50 * MS);
    losing(&mut pipe, &[7, 8, 9]);
    pipe.write(0, &[1; 10 * MSS as usize]);
    pipe.run_until(pipe.now_ns + 1000 * MS);
    let again = retransmissions(&pipe);
    // ACKs come 100 ms after the data; two round trips and 2 ms later goes the probe; its SACK comes 100 ms later. Nothing
    // is in the network then, and one segment was delivered: one goes (RFC 6937), the next when that is acknowledged.
    assert_eq!(again, [(9, 302), (7, 402), (8, 502)]);
}

#[test]
fn without_sack_a_lost_tail_waits_for_the_timeout() {
    let mut pipe = Pipe::connected(&settings(false), 50 * MS);
    losing(&mut pipe, &[8, 9]);
    pipe.write(0, &[1; 10 * MSS as usize]);
    pipe.run_until(pipe.now_ns + 2000 * MS);
    // SRTT 100 ms and 200 ms, counted from the last ACK.
    assert_eq!(retransmissions(&pipe), [(8, 400), (9, 500)]);
    // Half of the window after ten segments and eight acknowledged ones.
    assert_eq!(pipe.ends[0].tcp_info().ssthresh, 9);
    assert_eq!(pipe.ends[0].tcp_info().total_timeouts, 1, "the second is sent when the first is acknowledged");
}

#[test]
fn the_timeout_doubles_until_the_connection_is_aborted() {
    let mut pipe = Pipe::connected(&settings(false), 50 * MS);
    pipe.judge = Box::new(|_, _| Fate::Lost);
    pipe.write(0, &[1; 1000]);
    pipe.run_until(pipe.now_ns + 10_000_000 * MS);
    let times: Vec<i64> = pipe.data(0).iter().map(|&(time_ns, _, _)| time_ns / MS).collect();
    let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // SRTT 100 ms, variation at least 200 ms; up to two minutes; fifteen times, as tcp_retries2 says.
    let expected: Vec<i64> = (0..15).map(|power| (300 << power).min(120_000)).collect();
    assert_eq!(gaps, expected);
    assert_eq!(pipe.ends[0].tcp_info().total_timeouts, 15);
    assert_eq!(pipe.ends[0].error(), Some(crate::tcp::ConnectionError::TimedOut));
}

/// Segments are held up for half a second; nothing is lost. The window is what it was.
fn undone(held: i32, timestamps: bool) {
    let mut pipe = Pipe::connected(&Settings { timestamps, ..settings(true) }, 50 * MS);
    pipe.write(0, &[1; 10 * MSS as usize]);
    pipe.run_until(pipe.now_ns + 110 * MS);
    let before = pipe.ends[0].tcp_info();
    assert_eq!(before.cwnd, 20);
    let mut left = held;
    pipe.judge = Box::new(move |from, _| {
        left -= i32::from(from == 0);
        if from == 0 && left >= 0 { Fate::Late(500 * MS) } else { Fate::Arrives }
    });
    pipe.write(0, &[1; 20 * MSS as usize]);
    pipe.run_until(pipe.now_ns + 3000 * MS);
    let info = pipe.ends[0].tcp_info();
    assert!(info.total_retransmissions > 0);
    assert_eq!((info.recovery, info.unacked), (State::Open, 0));
    assert!(info.cwnd >= 20 && info.ssthresh >= 15, "{held} {timestamps}: {info:?}");
    assert_eq!(pipe.read(1).len(), 30 * MSS as usize);
}

#[test]
fn a_spurious_recovery_is_undone_when_duplicates_are_reported() {
    // The loss probe overtakes everything, all is taken for lost and retransmitted; then the originals come (RFC 3708).
    // With timestamps they would be refused as outdated (RFC 7323, section 5.3), and nothing were known.
    undone(20, false);
}

#[test]
fn a_spurious_timeout_is_undone_when_the_original_is_acknowledged() {
    // RFC 4015: the echoed timestamp is older than the retransmission.
    undone(60, true);
    // RFC 5682: a segment that was not retransmitted arrives.
    undone(60, false);
}

#[test]
fn known_reordering_does_not_reduce_the_window() {
    let mut pipe = Pipe::connected(&settings(true), 50 * MS);
    pipe.byte_ns = 800;
    let mut count = 0;
    pipe.judge = Box::new(move |from, segment| {
        count += i32::from(from == 0 && !segment.payload.is_empty());
        if from == 0 && count % 40 == 39 { Fate::Late(8 * MS) } else { Fate::Arrives }
    });
    pipe.bulk(3000 * MS);
    let before = pipe.ends[0].tcp_info().total_retransmissions;
    pipe.bulk(3000 * MS);
    let info = pipe.ends[0].tcp_info();
    // 8 ms are less than a quarter of the round trip: RACK waits that long.
    assert_eq!(info.total_retransmissions, before, "{info:?}");
}

#[test]
fn a_lost_retransmission_is_retransmitted_without_a_timeout() {
    let mut pipe = Pipe::connected(&settings(true), 50 * MS);
    let first = pipe.records.as_ref().unwrap()[0].segment.sequence_number.wrapping_add(1);
    let mut losses = 2;
    pipe.judge = Box::new(move |from, segment| {
        let is_chosen =
            from == 0 && segment.sequence_number == first.wrapping_add(20 * MSS) && !segment.payload.is_empty();
        losses -= i32::from(is_chosen);
        if is_chosen && losses >= 0 { Fate::Lost } else { Fate::Arrives }
    });
    pipe.bulk(1000 * MS);
    let again: Vec<i64> = retransmissions(&pipe).iter().map(|&(_, at_ms)| at_ms).collect();
    // RFC 8985: a segment sent after the retransmission arrives one RTT later.
    assert!(again.len() == 2 && again[0] == 200 && (300..=302).contains(&again[1]), "{again:?}");
    assert_eq!(pipe.ends[0].tcp_info().total_timeouts, 0);
}
