//! Flights: pauses, and what limited the sender.

use super::*;

#[test]
fn a_small_segment_after_an_ack_waited_for_it_even_before_the_minimum_rtt() {
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
fn the_rest_of_a_pdu_sent_with_an_answer_waited_for_an_ack() {
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
fn a_flight_has_its_packets_and_the_pause_before_it() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 4);
    talk.ack(120 * MS, 4, &[]);
    talk.data(120 * MS, 3);
    let flights = talk.finish().flights;
    assert_eq!((&flights.packet_count[..], &flights.bytes[..]), (&[4, 3][..], &[4000, 3000][..]));
    assert_eq!((flights.pause_ns[1], flights.owin_before_bytes[1]), (20 * MS, 4000));
    assert_eq!((flights.frame_first[1], flights.frame_last[1]), (9, 11));
}

#[test]
fn packets_of_a_slow_line_are_one_flight_once_its_rate_is_known() {
    let mut talk = Conversation::begin();
    // 1.2 us per byte: each gap looks like a pause until the rate is known
    (0..100).for_each(|packet| talk.data(100 * MS + packet * 1_200_000, 1));
    let flights = talk.finish().flights;
    assert_eq!((&flights.packet_count[..], &flights.bytes[..]), (&[100][..], &[100_000][..]));
    assert_eq!(flights.time_last_ns[0] - flights.time_first_ns[0], 99 * 1_200_000);
}

#[test]
fn a_window_update_is_not_an_acknowledgment() {
    const ACKNOWLEDGMENT: u8 = 0;
    const WINDOW_UPDATE: u8 = 1;
    let mut talk = Conversation::begin();
    talk.window = 5_000;
    talk.ack(90 * MS, 0, &[]);
    talk.data(100 * MS, 5);
    // opens the window because it acknowledges
    talk.ack(120 * MS, 5, &[]);
    talk.data(120 * MS, 5);
    talk.window = 0;
    talk.ack(140 * MS, 10, &[]);
    talk.window = 5_000;
    talk.ack(170 * MS, 10, &[]);
    talk.data(170 * MS, 1);
    assert_eq!(talk.finish().flights.release[1..], [ACKNOWLEDGMENT, WINDOW_UPDATE]);
}

#[test]
fn a_pause_as_long_as_a_retransmission_timer_is_loss_recovery() {
    for (pause_ms, limited) in [(185, vec![]), (195, vec![(100, 295, part::LOSS_RECOVERY)])] {
        let mut talk = Conversation::begin();
        talk.piece(100 * MS, 1000, Some(9000), 0);
        talk.piece((100 + pause_ms) * MS, 1000, Some(8000), 0);
        assert_eq!(talk.limited(), limited, "{pause_ms} ms");
    }
}

#[test]
fn a_packet_that_others_overtook_and_that_was_held_for_longer_than_the_rtt_explains_the_pause() {
    for (pause_ms, class, limited) in [
        (30, SegmentClass::Reordered, vec![(110, 140, part::CONGESTION_WINDOW)]),
        // the overtaking packet may have been early
        (9, SegmentClass::Reordered, vec![]),
        (30, SegmentClass::New, vec![]),
    ] {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, 1);
        let start = talk.highest;
        let overtaking = talk.packet(110 * MS, 0, start + 1000, 1000, Some(0));
        talk.see(overtaking);
        let late = talk.packet((110 + pause_ms) * MS, 0, start, 1000, Some(0));
        talk.see(Observation { class, ..late });
        let found: Vec<_> = talk.limited().into_iter().filter(|&(from_ms, ..)| from_ms >= 110).collect();
        assert_eq!(found, limited, "{pause_ms} ms, {class:?}");
    }
}

/// Bursts at 100 bytes per us, which are acknowledged at 10 bytes per us.
fn slowly_acknowledged() -> Conversation {
    let mut talk = Conversation::begin();
    for burst in 0..20 {
        let begun_ns = (100 + 50 * burst) * MS;
        // 40 segments at 100 bytes per us, acknowledged two at a time at 10 bytes per us
        (0..40).for_each(|packet| talk.data(begun_ns + packet * 10_000, 1));
        (1..=20).for_each(|ack| talk.ack(begun_ns + 20 * MS + ack * 200_000, 40 * burst + 2 * ack, &[]));
    }
    talk
}

#[test]
fn no_line_lies_between_the_tap_and_a_receiver_beside_it() {
    let talk = slowly_acknowledged();
    let flights = &talk.senders.flights[0];
    // less than half of the sender's RTT is beside the tap
    for (rtt_to_receiver_ns, is_beyond) in [(10 * MS, true), (10 * MS - 1, false)] {
        assert_eq!(flights.is_line_beyond(rtt_to_receiver_ns, 20 * MS), is_beyond);
        // each burst of 40 segments takes 4 ms there, and 0.4 ms here
        let busy_ns: i64 = flights
            .busy_intervals(rtt_to_receiver_ns, 20 * MS, |_| false)
            .iter()
            .map(|(from_ns, to_ns)| to_ns - from_ns)
            .sum();
        let expected = 20 * if is_beyond { 4 * MS } else { 4 * MS / 10 };
        assert!((busy_ns - expected).abs() < expected / 10, "{busy_ns}");
    }
}

/// Bursts of eight segments at 100 bytes per us; 0.8 ms after the first can have arrived, all are acknowledged.
fn acknowledged_by_burst(between: impl Fn(&mut Conversation, i64, i64)) -> Conversation {
    let mut talk = Conversation::begin();
    for burst in 0..40 {
        let begun_ns = (100 + 50 * burst) * MS;
        (0..8).for_each(|packet| talk.data(begun_ns + packet * 10_000, 1));
        between(&mut talk, begun_ns + AWAY_NS, 8 * burst);
        talk.ack(begun_ns + AWAY_NS + 800_000, 8 * burst + 8, &[]);
    }
    talk
}

#[test]
fn an_ack_of_a_burst_shows_the_rate_from_its_arrival_on() {
    let talk = acknowledged_by_burst(|_, _, _| ());
    let busy = talk.senders.flights[0].busy_intervals(AWAY_NS, 0, |_| false);
    let busy_ns: i64 = busy.iter().map(|(from_ns, to_ns)| to_ns - from_ns).sum();
    assert!((busy_ns - 40 * 800_000).abs() < 4 * 800_000, "{busy_ns}");
}

#[test]
fn an_ack_that_fills_a_hole_shows_no_rate() {
    // the second segment of each burst arrives last
    let talk = acknowledged_by_burst(|talk, now_ns, first| {
        talk.ack(now_ns + 100_000, first + 1, &[]);
        talk.ack(now_ns + 700_000, first + 1, &[(first + 2, first + 8)]);
    });
    assert!(!talk.senders.flights[0].is_line_beyond(AWAY_NS, 0));
}

#[test]
fn an_ack_of_fewer_than_four_segments_on_an_idle_line_shows_no_rate() {
    for (segments, is_line_from_acks) in [(3, false), (4, true)] {
        let mut talk = Conversation::begin();
        for burst in 0..40 {
            let begun_ns = (100 + 50 * burst) * MS;
            (0..segments).for_each(|packet| talk.data(begun_ns + packet * 10_000, 1));
            talk.ack(begun_ns + AWAY_NS + 400_000, segments * (burst + 1), &[]);
        }
        assert_eq!(talk.senders.flights[0].is_line_beyond(AWAY_NS, 0), is_line_from_acks, "{segments} segments");
    }
}

#[test]
fn packets_that_wait_for_the_ack_of_all_before_them_show_no_line() {
    // a window of one segment, or of two
    for (segments, is_busy) in [(1, false), (2, true)] {
        let mut talk = Conversation::begin();
        for round in 0..200 {
            talk.data((100 + 20 * round) * MS, 1);
            talk.ack((120 + 20 * round) * MS, 2 - segments + round, &[]);
        }
        let timeline = Box::new(talk.senders).finish(true, &mut Tables::default());
        let busy_ns: i64 = timeline.line_busy[0].iter().map(|(from_ns, to_ns)| to_ns - from_ns).sum();
        assert_eq!(busy_ns > 0, is_busy, "{segments} in flight: {busy_ns} ns");
    }
}
