//! The RTT under load, and the queue that stands before the data.

use super::*;
use crate::senders::load::{Excess, Load};
use crate::tables::NULL_NS;

/// A client beside the tap with always so many segments in flight, to a server 20 ms away: each pair of segments is
/// acknowledged `rtt_ms` after it was sent, for each of these.
fn stream(rtts_ms: impl IntoIterator<Item = i64>, in_flight: i64) -> Tables {
    talk(rtts_ms, in_flight).finish()
}

fn talk(rtts_ms: impl IntoIterator<Item = i64>, in_flight: i64) -> Conversation {
    let mut talk = Conversation::begin();
    talk.window = u16::MAX;
    talk.data(0, in_flight);
    let (mut now_ms, mut acknowledged) = (None, 0);
    for rtt_ms in rtts_ms {
        // as many ACKs in an RTT as there are pairs in flight
        let next_ms = now_ms.map_or(rtt_ms, |now_ms| now_ms + 2 * rtt_ms / in_flight);
        now_ms = Some(next_ms);
        acknowledged += 2;
        talk.ack(next_ms * MS, acknowledged, &[]);
        talk.data(next_ms * MS, 2);
    }
    talk
}

#[test]
fn a_queue_that_never_empties_stands_at_the_rate_of_its_line() {
    // 20 segments in 100 ms: 200 kB/s; the path takes 20 ms of these
    let tables = stream(vec![100; 200], 20);
    let row = &tables.senders;
    assert!((99 * MS..=101 * MS).contains(&row.rtt_load_median_ns[0]), "{}", row.rtt_load_median_ns[0]);
    assert_eq!(row.rtt_load_count[0], 200);
    // two seconds; the first window and the last were not busy throughout
    assert_eq!(row.standing_queue_ns[0], 1_750 * MS);
    assert!((78 * MS..=82 * MS).contains(&row.standing_queue_delay_ns[0]), "{}", row.standing_queue_delay_ns[0]);
    assert_eq!(row.standing_queue_bytes_per_s[0], 200_000);
    // the server sends none
    assert_eq!((row.rtt_load_median_ns[1], row.standing_queue_delay_ns[1]), (NULL_NS, NULL_NS));
    let windows = &tables.rtt;
    assert_eq!(windows.time_ns.len(), 9);
    assert_eq!(windows.time_ns[3], 750 * MS);
    assert_eq!(windows.is_busy, [false, true, true, true, true, true, true, true, false]);
    assert_eq!((windows.delivered_bytes[3], windows.in_flight_bytes[3]), (50_000, 20_000));
}

#[test]
fn a_path_at_its_least_rtt_has_no_queue_at_any_pace() {
    let row = stream(vec![20; 1000], 20).senders;
    assert_eq!((row.standing_queue_ns[0], row.standing_queue_delay_ns[0]), (0, NULL_NS));
    assert!((19 * MS..=21 * MS).contains(&row.rtt_load_median_ns[0]));
}

#[test]
fn an_rtt_below_5_ms_or_half_of_the_path_above_it_is_no_queue() {
    for (rtt_ms, is_queue) in [(29, false), (30, true)] {
        let row = stream(vec![rtt_ms; 1000], 10).senders;
        assert_eq!(row.standing_queue_ns[0] > 0, is_queue, "{rtt_ms} ms");
    }
}

#[test]
fn a_path_whose_delay_varies_takes_longer_than_at_its_least_and_has_no_queue_for_that() {
    // of 10 segments in flight each fifth of these passes between two ACKs
    for (least_ms, most_ms, is_longer, has_queue) in
        [(20, 24, false, false), (20, 26, true, false), (20, 35, true, false), (30, 30, true, true)]
    {
        let rtts_ms = (0..1000).map(|number| if number % 2 == 0 { most_ms } else { least_ms });
        let senders = talk(rtts_ms, 10).senders;
        assert_eq!(senders.load.has_queue(0, Some(20 * MS)), has_queue, "{least_ms} to {most_ms} ms");
        let found = Box::new(senders).finish(true, &mut Tables::default()).excess;
        assert_eq!(!found.is_empty(), is_longer, "{least_ms} to {most_ms} ms");
    }
}

#[test]
fn late_packets_show_a_longer_path_where_no_answer_measures_it() {
    // by their timestamps; the RTT is 20 ms
    for (late_ms, excess_ms) in [([0, 6], None), ([0, 8], Some(8)), ([20, 20], Some(40))] {
        let mut load = Load::new(false);
        for (place, late_ms) in late_ms.into_iter().enumerate() {
            load.arrive_late(place as i64 * 100 * MS, late_ms * MS);
        }
        // one in a window is no mean
        load.arrive_late(300 * MS, 50 * MS);
        let excess = |excess_ms| Excess { time_ns: 0, by_ns: excess_ms * MS, unloaded_ns: excess_ms * MS };
        let expected: Vec<Excess> = excess_ms.map(excess).into_iter().collect();
        assert_eq!(load.excess(Some(20 * MS)), expected);
        assert_eq!(load.excess(None), []);
        load.forget(1_000 * MS);
        assert_eq!(load.excess(Some(20 * MS)), []);
    }
}

#[test]
fn where_the_delay_varies_all_the_time_the_mean_of_all_packets_holds_in_windows_with_a_lower_one() {
    // two packets in each window: late by 2 ms in every other one, else by 10 ms
    let excess_of = |window_count: i64| {
        let mut load = Load::new(false);
        for packet in 0..2 * window_count {
            load.arrive_late(packet * 125 * MS, if packet / 2 % 2 == 0 { 2 * MS } else { 10 * MS });
        }
        load.excess(Some(20 * MS)).iter().map(|window| window.by_ns / MS).collect::<Vec<_>>()
    };
    assert_eq!(excess_of(8), [12, 20, 12, 20, 12, 20, 12, 20]);
    assert_eq!(excess_of(6), [20, 20, 20], "too few to know the mean");
}

#[test]
fn a_sender_that_stops_between_has_no_standing_queue() {
    let mut talk = Conversation::begin();
    // bursts of 20 segments that wait for each other on the line, one every 200 ms
    for burst in 0..20 {
        let now_ns = burst * 200 * MS;
        talk.data(now_ns, 20);
        for pair in 1..=10 {
            talk.ack(now_ns + (20 + 8 * pair) * MS, burst * 20 + 2 * pair, &[]);
        }
    }
    let tables = talk.finish();
    assert_eq!(tables.senders.standing_queue_ns[0], 0);
    assert!(tables.rtt.is_busy.iter().all(|is_busy| !is_busy));
    // the fifth pair waited 40 ms, the sixth 48
    assert!((59 * MS..69 * MS).contains(&tables.senders.rtt_load_median_ns[0]));
}

#[test]
fn an_ack_that_may_have_been_held_back_says_nothing() {
    let mut talk = Conversation::begin();
    for round in 0..40 {
        let now_ns = round * 200 * MS;
        talk.data(now_ns, 3);
        talk.ack(now_ns + 25 * MS, 3 * round + 2, &[]);
        // the last segment alone: 40 ms of delay
        talk.ack(now_ns + 65 * MS, 3 * round + 3, &[]);
    }
    let row = talk.finish().senders;
    assert_eq!(row.rtt_load_count[0], 40);
    assert!((24 * MS..=26 * MS).contains(&row.rtt_load_p95_ns[0]), "{}", row.rtt_load_p95_ns[0]);
}

#[test]
fn few_samples_are_no_load() {
    let row = stream(vec![50; 19], 20).senders;
    assert_eq!((row.rtt_load_median_ns[0], row.rtt_load_count[0]), (NULL_NS, 0));
}

/// At a tap beside the client, the server sends pairs of segments: each when an ACK with the next tick reaches it, which
/// takes `delay_ms` until the pair passes the tap.
fn far_stream(delay_ms: i64, is_within_pdu: bool) -> crate::tables::Senders {
    let mut talk = Conversation::begin();
    let at = |seen: Observation, value: i64, echo: i64| Observation {
        timestamps: Some((value as u32, echo as u32)),
        ..seen
    };
    for pair in 0..100 {
        let (sent_ms, acknowledged) = (10 * pair, (2 * pair - 20).max(0) * SEGMENT);
        // of 20 segments in flight, these were not acknowledged yet
        let seen = talk.packet((sent_ms + delay_ms) * MS, 1, 2 * pair * SEGMENT, SEGMENT as u32, Some(0));
        let next = talk.packet((sent_ms + delay_ms) * MS, 1, (2 * pair + 1) * SEGMENT, SEGMENT as u32, Some(0));
        for seen in [seen, next] {
            let left_of_pdu = is_within_pdu.then_some(5_000);
            talk.see(Observation { left_of_pdu, ..at(seen, 500_000 + sent_ms, 1000 + sent_ms) });
        }
        let ack = talk.packet((sent_ms + delay_ms) * MS + 1, 0, 0, 0, Some(acknowledged));
        talk.see(at(ack, 1000 + sent_ms + delay_ms, 500_000 + sent_ms));
    }
    talk.finish().senders
}

#[test]
fn far_from_the_sender_timestamps_show_the_rtt_of_what_only_waited_for_acks() {
    // the ACKs pass the tap every 10 ms, with their own time as their timestamp
    let row = far_stream(60, true);
    assert!((59 * MS..=61 * MS).contains(&row.rtt_load_median_ns[1]), "{}", row.rtt_load_median_ns[1]);
    // whole PDUs may have been asked for, or the target may have been slow
    assert_eq!(far_stream(60, false).rtt_load_median_ns[1], NULL_NS);
}
