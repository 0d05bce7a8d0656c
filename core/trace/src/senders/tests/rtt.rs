//! RTT samples and the columns made of them.

use super::*;
use crate::tables::NULL_NS;

#[test]
fn rtts_are_of_the_latest_packet_and_never_of_retransmissions() {
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
fn an_ack_that_covers_a_retransmission_gives_no_sample() {
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
fn percentiles_of_rtts_are_by_nearest_rank() {
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

/// A conversation without handshake with these RTTs, and its RTT of the path.
fn path_ns(rtts_ns: impl IntoIterator<Item = i64>) -> i64 {
    let mut talk = Conversation::without_syn();
    talk.ack(0, 0, &[]);
    for (number, rtt_ns) in (1..).zip(rtts_ns) {
        talk.data(number * MS, 1);
        talk.ack(number * MS + rtt_ns, number, &[]);
    }
    talk.finish().senders.rtt_path_ns[0]
}

#[test]
fn two_packets_that_were_faster_than_the_path_do_not_set_its_rtt() {
    let path = |outliers: usize, samples: usize| {
        path_ns((0..samples).map(|sample| if sample < outliers { 10 } else { 1000 + sample as i64 }))
    };
    assert_eq!((path(2, 19), path(2, 20), path(3, 20)), (10, 1002, 10));
    // what is almost as long is no outlier
    assert_eq!(
        [749, 750].map(|rtt_ns| path_ns((0..20).map(|sample| if sample < 2 { rtt_ns } else { 1000 }))),
        [1000, 750]
    );
}

#[test]
fn the_handshake_is_no_outlier() {
    // its RTT is 20 ms; all others waited for the answer of a host
    let mut talk = Conversation::begin();
    for number in 1..=30 {
        talk.data((number * 1000) * MS, 1);
        talk.ack((number * 1000 + 200) * MS, number, &[]);
    }
    assert_eq!(talk.finish().senders.rtt_path_ns[0], 20 * MS);
}

#[test]
fn where_packets_overtake_each_other_no_rtt_of_answers_is_longer_than_the_handshakes() {
    let mut talk = Conversation::begin();
    for number in 1..=40 {
        talk.data((number * 1000) * MS, 1);
        let answer = talk.packet((number * 1000 + 200) * MS, 1, number * 48, 48, Some(number * SEGMENT));
        let class = if number % 4 == 0 { SegmentClass::Reordered } else { SegmentClass::New };
        talk.see(Observation { class, ..answer });
    }
    assert_eq!(talk.finish().senders.rtt_path_ns[0], 20 * MS);
}

#[test]
fn without_a_handshake_answers_of_a_host_make_no_outlier_of_an_ack_alone() {
    // two ACKs after 20 ms, all others with an answer after 60 ms; and the same with answers alone
    let path = |with_data: [bool; 2], first_ms: i64| {
        let mut talk = Conversation::without_syn();
        talk.ack(0, 0, &[]);
        for number in 1..=30 {
            let sent_ns = number * 1000 * MS;
            talk.data(sent_ns, 1);
            let [rtt_ms, length] = if number <= 2 { [first_ms, 0] } else { [60, 48 * i64::from(with_data[1])] };
            let length = if number <= 2 && with_data[0] { 48 } else { length };
            let answer = talk.packet(sent_ns + rtt_ms * MS, 1, number * 48, length as u32, Some(number * SEGMENT));
            talk.see(answer);
        }
        talk.finish().senders.rtt_path_ns[0] / MS
    };
    assert_eq!(path([false, true], 20), 20);
    // of ACKs alike two are faster than the path
    assert_eq!(path([false, false], 20), 60);
    // an answer is never faster than the path, unless it took another one: too few ACKs tell
    assert_eq!(path([true, true], 20), 20);
}

#[test]
fn the_smoothed_rtt_moves_an_eighth_towards_each_sample() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 1);
    talk.ack(136 * MS, 1, &[]);
    // 20 ms of the handshake, then 36 ms: 20 + (36 - 20) / 8
    let [client, server] = talk.senders.snapshots(true);
    assert_eq!((client.rtt_smoothed_ns, server.rtt_smoothed_ns), (Some(22 * MS), Some(0)));
}

#[test]
fn a_delayed_ack_is_the_longest_rtt_of_less_than_two_segments_less_the_minimum() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 1);
    talk.ack(160 * MS, 1, &[]);
    // an ACK of two segments was not delayed
    talk.data(200 * MS, 2);
    talk.ack(290 * MS, 3, &[]);
    talk.data(300 * MS, 1);
    talk.ack(330 * MS, 4, &[]);
    let senders = talk.finish().senders;
    assert_eq!(senders.delayed_ack_max_ns[0], (60 - 20) * MS);
    // the median of 1000, 2000 and 1000 bytes
    assert_eq!(senders.bytes_per_ack[0], 1000);
}

#[test]
fn the_minimum_rtt_to_the_sender_shifts_instants_unless_the_tap_is_beside_it() {
    // the tap is 4 ms from the client; RTT 4 ms + `away_ms`
    for (away_ms, at_sender_ms) in [(12, 98), (40, 100)] {
        let mut talk = Conversation::without_syn();
        let request = talk.packet(0, 1, 0, 48, Some(0));
        talk.see(request);
        let answer = talk.packet(4 * MS, 0, 0, 1000, Some(48));
        talk.see(answer);
        talk.highest = SEGMENT;
        talk.ack((4 + away_ms) * MS, 1, &[]);
        talk.data(100 * MS, 1);
        // beside means less than an eighth of the whole RTT: 4 of 16 ms is not, 4 of 44 ms is
        let tables = talk.finish();
        assert_eq!(tables.window.time_ns.iter().max(), Some(&(at_sender_ms * MS)), "{away_ms} ms away");
    }
}

#[test]
fn snapshots_are_ordered_by_role_and_keep_the_peak_since_rows_were_removed() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 5);
    let [client, server] = talk.senders.snapshots(true);
    assert_eq!((client.owin_bytes, client.owin_peak_bytes), (5 * SEGMENT, 5 * SEGMENT));
    assert_eq!((server.owin_bytes, server.owin_peak_bytes), (0, 0));
    talk.senders.forget(0);
    talk.ack(120 * MS, 5, &[]);
    talk.data(130 * MS, 1);
    // five segments were in flight then; the client is the target now
    let [server, client] = talk.senders.snapshots(false);
    assert_eq!((client.owin_bytes, client.owin_peak_bytes), (SEGMENT, 5 * SEGMENT));
    assert_eq!((server.owin_bytes, server.owin_peak_bytes), (0, 0));
    talk.senders.forget(0);
    let [client, _] = talk.senders.snapshots(true);
    assert_eq!((client.owin_bytes, client.owin_peak_bytes), (SEGMENT, SEGMENT));
}
