//! Windows: bytes in flight, the receiver's window, the congestion window.

use super::*;

/// Estimates in segments, 0 where there is none, of the rows that frames of the client changed.
fn estimates(tables: &Tables) -> Vec<i64> {
    let window = &tables.window;
    let rows = (0..window.time_ns.len()).filter(|&row| window.to_target[row]);
    rows.map(|row| if window.is_valid[row] { window.cwnd_estimate_bytes[row] / SEGMENT } else { 0 }).collect()
}

/// A round of ACKs of two segments after 12, each answered with two.
fn clocked(talk: &mut Conversation, from_ns: i64) {
    for ack in 1..=5 {
        talk.ack(from_ns + 20 * ack * MS, 2 + 2 * ack, &[]);
        talk.data(from_ns + 20 * ack * MS, 2);
    }
}

/// Twelve segments, an ACK of two, and what `between` does; then four more segments, in answer, and a round of ACKs.
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
    clocked(&mut talk, 120 * MS);
    estimates(&talk.finish())[1..13].to_vec()
}

#[test]
fn a_sender_that_continues_with_the_ack_shows_its_window() {
    assert_eq!(after_a_stop(60_000, false, |_| ()), [12; 12]);
}

#[test]
fn a_sender_that_answers_a_request_shows_no_window() {
    assert_eq!(after_a_stop(60_000, false, |talk| talk.request(119 * MS, 0, 0)), [0; 12]);
    assert_eq!(after_a_stop(60_000, true, |talk| talk.request(119 * MS, 0, 0)), [12; 12]);
}

#[test]
fn a_sender_that_then_sends_more_than_the_acks_let_out_had_paused() {
    // two segments are acknowledged: a congestion window of 12 lets out 2, in slow start 4, and one for rounding
    for (count, segments) in [(5, 12), (6, 0)] {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, 12);
        talk.ack(120 * MS, 2, &[]);
        talk.data(120 * MS, count);
        clocked(&mut talk, 120 * MS);
        assert_eq!(estimates(&talk.finish())[1..12], [segments; 11], "{count} segments");
    }
}

#[test]
fn bytes_beyond_the_window_show_that_a_later_ack_had_arrived() {
    // beside the receiver: 20 ms to the sender and back, but the second answer is faster
    let mut talk = Conversation::begin();
    let reply = |talk: &mut Conversation, time_ns, segment: i64| {
        let seen = talk.packet(time_ns, 1, 0, SEGMENT as u32, Some(0));
        let offset = segment * SEGMENT;
        talk.see(Observation { offset, ..seen });
    };
    talk.window = 3000;
    let ack = |talk: &mut Conversation, time_ns, segment: i64| {
        let seen = talk.packet(time_ns, 0, 0, 0, Some(segment * SEGMENT));
        talk.see(seen);
    };
    ack(&mut talk, 80 * MS, 0);
    (0..3).for_each(|segment| reply(&mut talk, 100 * MS, segment));
    ack(&mut talk, 101 * MS, 2);
    (3..5).for_each(|segment| reply(&mut talk, 119 * MS, segment));
    let tables = talk.finish();
    let window = &tables.window;
    let most = (0..window.frame.len()).filter(|&row| !window.to_target[row]).map(|row| window.owin_bytes[row]).max();
    assert_eq!(most, Some(3000));
}

#[test]
fn a_receive_window_limited_sender_shows_no_window() {
    assert_eq!(after_a_stop(12_500, true, |_| ()), [0; 12]);
}

#[test]
fn a_small_window_after_a_long_pause_was_restarted() {
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
fn a_pause_lasts_175_ms_without_bytes_in_flight() {
    for (pause_ns, left, restarts) in [(175 * MS, 0, 1), (175 * MS - 1, 0, 0), (880 * MS, 1, 0)] {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, 40);
        talk.ack(120 * MS, 20, &[]);
        talk.data(120 * MS, 20);
        talk.ack(140 * MS, 60 - left, &[]);
        let now_ns = 120 * MS + pause_ns;
        talk.request(now_ns, 0, 60 - left);
        talk.data(now_ns, 10);
        talk.ack(now_ns + 20 * MS, 65, &[]);
        talk.data(now_ns + 20 * MS, 10);
        let count = talk.finish().senders.restart_after_idle_count[0];
        assert_eq!(count, restarts, "a pause of {pause_ns} ns with {left} segments in flight");
    }
}

#[test]
fn a_sender_has_not_got_what_its_newest_echo_is_older_than() {
    // the server's segment is in order, so that the client would echo its timestamp
    for (offset, owin) in [(48, 2000), (49, 1000)] {
        let mut talk = Conversation::without_syn();
        for (time_ns, to_server) in [(0, true), (10, false), (20, true)] {
            let seen = if to_server {
                let sent = talk.highest;
                talk.highest += SEGMENT;
                let acknowledged = if time_ns > 0 { 49 } else { 48 };
                let seen = talk.packet(time_ns, 0, sent, SEGMENT as u32, Some(acknowledged));
                Observation { timestamps: Some((1, 6)), ..seen }
            } else {
                let seen = talk.packet(time_ns, 1, offset, 0, Some(SEGMENT));
                Observation { timestamps: Some((7, 1)), ..seen }
            };
            talk.see(seen);
        }
        let tables = talk.finish();
        let rows: Vec<_> = (0..tables.window.frame.len()).filter(|&row| tables.window.frame[row] == 3).collect();
        assert_eq!(tables.window.owin_bytes[rows[0]], owin, "an ACK at {offset}");
    }
}

#[test]
fn far_from_the_sender_an_ack_counts_from_its_earliest_answer_on() {
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
fn a_window_field_without_its_scale_is_as_large_as_what_was_sent() {
    let mut talk = Conversation::without_syn();
    talk.window = 1000;
    talk.ack(90 * MS, 0, &[]);
    talk.data(100 * MS, 7);
    let tables = talk.finish();
    // also where it was taken for smaller; the last row is the client's own window
    assert_eq!(tables.window.rwnd_bytes, [8000, 8000, 8000, 8000, 8000, 8000, 8000, 8000, 1000]);
    // 1000, shifted by 3, is the first window that holds 7000 bytes
    assert_eq!((tables.senders.window_scale[0], tables.senders.is_window_scale_inferred[0]), (3, true));
}

#[test]
fn an_echoed_ack_counts_before_a_window_is_said_to_be_larger_than_its_field() {
    // beside the receiver, whose window is two segments; a host's answer after 60 ms is the only RTT so far, the path takes 20
    let shift = |has_timestamps: bool| {
        let mut talk = Conversation::without_syn();
        talk.window = 2000;
        let stamps = |seen: Observation, value: i64, echo: i64| {
            let timestamps = has_timestamps.then_some((value as u32, echo as u32));
            Observation { timestamps, ..seen }
        };
        let request = talk.packet(0, 1, 0, 48, Some(0));
        talk.see(stamps(request, 100, 1));
        for round in 0..20 {
            let ms = 60 + 20 * round;
            let echo = if round == 0 { 100 } else { 80 + ms };
            for place in 0..2 {
                let seen = talk.packet(ms * MS, 0, talk.highest, SEGMENT as u32, Some(48));
                talk.highest += SEGMENT;
                talk.see(stamps(seen, ms, echo));
                if place == 1 {
                    let ack = talk.packet(ms * MS, 1, 48, 0, Some(talk.highest));
                    talk.see(stamps(ack, 100 + ms, ms));
                }
            }
        }
        talk.finish().senders.window_scale[0]
    };
    assert_eq!(shift(true), 0);
    assert!(shift(false) > 0, "an RTT that is too long makes the window larger");
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
fn an_inferred_scale_holds_for_every_window() {
    let mut talk = Conversation::without_syn();
    talk.window = 1000;
    talk.ack(90 * MS, 0, &[]);
    talk.data(100 * MS, 7);
    talk.window = 900;
    talk.ack(120 * MS, 7, &[]);
    let senders = talk.finish().senders;
    assert_eq!((senders.rwnd_min_bytes[0], senders.rwnd_max_bytes[0]), (900 << 3, 1000 << 3));
}

#[test]
fn a_third_of_the_window_must_be_free_for_an_estimate() {
    // 12 segments in flight; the first row is the change of the window
    assert_eq!(after_a_stop(18_000, false, |_| ())[1..], [12; 11]);
    assert_eq!(after_a_stop(17_999, false, |_| ()), [0; 12]);
}

#[test]
fn an_overtaken_packet_ends_no_pause() {
    // the sixth of twelve segments comes in order, or after the ACK of two, before which it was sent
    let limited_ns = |is_late: bool| {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, 5);
        let late = talk.packet(119 * MS, 0, talk.highest, SEGMENT as u32, Some(0));
        talk.highest += SEGMENT;
        if !is_late {
            talk.see(Observation { time_ns: 100 * MS, ..late });
        }
        talk.data(100 * MS, 6);
        talk.ack(118 * MS, 2, &[]);
        if is_late {
            talk.see(Observation { class: SegmentClass::Reordered, ..late });
        }
        talk.data(120 * MS, 2);
        clocked(&mut talk, 120 * MS);
        talk.finish().senders.cwnd_limited_ns[0]
    };
    assert_eq!((limited_ns(false), limited_ns(true)), (120 * MS, 120 * MS));
}

/// An estimate of twelve segments before what `after` does.
fn before(after: impl Fn(&mut Conversation)) -> i64 {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 12);
    talk.ack(120 * MS, 2, &[]);
    talk.data(120 * MS, 2);
    after(&mut talk);
    estimates(&talk.finish())[1]
}

#[test]
fn a_sender_that_sends_less_than_the_acks_let_out_had_paused() {
    assert_eq!(before(|talk| clocked(talk, 120 * MS)), 12);
    // its host pauses while ten are acknowledged: 12 segments were what it had written, not its window
    let paused = |talk: &mut Conversation| {
        talk.ack(140 * MS, 12, &[]);
        talk.data(140 * MS, 2);
        clocked(talk, 160 * MS);
    };
    assert_eq!(before(paused), 0);
    // nothing follows
    assert_eq!(before(|talk| talk.ack(140 * MS, 14, &[])), 0);
}

#[test]
fn a_round_that_a_loss_ends_confirms_an_estimate_by_what_it_has() {
    let lost = |talk: &mut Conversation| {
        talk.ack(140 * MS, 4, &[]);
        talk.data(140 * MS, 2);
        talk.ack(160 * MS, 4, &[(5, 8)]);
        talk.again(160 * MS, 4);
    };
    assert_eq!(before(lost), 12);
}

#[test]
fn during_a_recovery_that_lost_nothing_there_is_no_estimate() {
    // three of twenty segments seem lost; the DSACK of a retransmission, or none
    for (blocks, is_valid) in [(&[][..], true), (&[(2, 3)][..], false)] {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, 20);
        talk.ack(120 * MS, 2, &[(5, 8)]);
        talk.again(120 * MS, 2);
        talk.ack(121 * MS, 2, &[(5, 9)]);
        talk.data(121 * MS, 1);
        talk.ack(141 * MS, 20, blocks);
        talk.data(141 * MS, 1);
        talk.ack(161 * MS, 22, &[]);
        let tables = talk.finish();
        assert_eq!(tables.senders.spurious_count[0], u32::from(!is_valid));
        assert_eq!(tables.window.is_valid.contains(&true), is_valid, "{blocks:?}");
    }
}

#[test]
fn an_answer_within_half_an_rtt_and_a_millisecond_shows_the_window() {
    for (answer_ms, segments) in [(131, 12), (132, 0)] {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, 12);
        talk.ack(120 * MS, 2, &[]);
        talk.data(answer_ms * MS, 4);
        clocked(&mut talk, answer_ms * MS);
        assert_eq!(estimates(&talk.finish())[1..13], [segments; 12], "{answer_ms} ms");
    }
}

/// What a sender shows that stops so many segments deep, after `before`; five rounds.
fn in_flight(segments: i64, before: impl Fn(&mut Conversation)) -> Option<i64> {
    let mut talk = Conversation::begin();
    before(&mut talk);
    for round in 0..6 {
        let now_ns = (600 + 20 * round) * MS;
        talk.ack(now_ns, talk.highest / SEGMENT, &[]);
        talk.data(now_ns, segments);
    }
    estimates(&talk.finish()).last_chunk().map(|last: &[i64; 10]| last[0])
}

fn seven_in_flight(before: impl Fn(&mut Conversation)) -> Option<i64> {
    in_flight(7, before)
}

#[test]
fn below_seven_segments_there_is_no_estimate() {
    assert_eq!([6, 7].map(|segments| in_flight(segments, lost)), [Some(0), Some(7)]);
}

/// Six segments, of which the ACKs at 120 ms report four to have arrived, and retransmissions of the first ones.
fn lose_first(talk: &mut Conversation, count: i64) {
    talk.data(100 * MS, 6);
    talk.ack(120 * MS, 0, &[(2, 5)]);
    (0..count).for_each(|segment| talk.again(121 * MS, segment));
}

/// The first of six segments is lost, and sent again.
fn lost(talk: &mut Conversation) {
    lose_first(talk, 1);
    talk.ack(141 * MS, 6, &[]);
}

#[test]
fn a_spurious_retransmission_reduces_no_window() {
    // a window below ten segments takes a loss
    assert_eq!(seven_in_flight(|_| ()), Some(0));
    assert_eq!(seven_in_flight(lost), Some(7));
    let is_known_late = |talk: &mut Conversation| {
        lost(talk);
        talk.ack(142 * MS, 6, &[(0, 1)]);
    };
    assert_eq!(seven_in_flight(is_known_late), Some(0));
    let is_known_during_the_recovery = |talk: &mut Conversation| {
        lose_first(talk, 1);
        talk.ack(140 * MS, 5, &[(0, 1)]);
        talk.ack(141 * MS, 6, &[]);
    };
    assert_eq!(seven_in_flight(is_known_during_the_recovery), Some(0));
}

#[test]
fn a_loss_beside_a_spurious_retransmission_reduces_the_window() {
    let of_one_flight = |talk: &mut Conversation| {
        lose_first(talk, 2);
        talk.ack(141 * MS, 6, &[]);
        talk.ack(142 * MS, 6, &[(0, 1)]);
    };
    assert_eq!(seven_in_flight(of_one_flight), Some(7));
    let of_one_recovery = |talk: &mut Conversation| {
        lose_first(talk, 1);
        talk.ack(140 * MS, 1, &[(0, 1), (2, 5)]);
        talk.again(141 * MS, 1);
        talk.ack(160 * MS, 6, &[]);
    };
    assert_eq!(seven_in_flight(of_one_recovery), Some(7));
    let before = |talk: &mut Conversation| {
        lost(talk);
        talk.data(200 * MS, 1);
        talk.again(250 * MS, 6);
        talk.ack(260 * MS, 7, &[]);
        talk.ack(270 * MS, 7, &[(6, 7)]);
    };
    assert_eq!(seven_in_flight(before), Some(7));
}

#[test]
fn an_old_timestamp_undoes_a_timeout() {
    for (echo, segments) in [(7, 0), (307, 7)] {
        let timeout = |talk: &mut Conversation| {
            talk.data(100 * MS, 1);
            let again = talk.packet(400 * MS, 0, 0, SEGMENT as u32, Some(0));
            talk.see(Observation { timestamps: Some((307, 1)), class: SegmentClass::Retransmission, ..again });
            let ack = talk.packet(401 * MS, 1, 0, 0, Some(SEGMENT));
            talk.see(Observation { timestamps: Some((900, echo)), ..ack });
        };
        assert_eq!(seven_in_flight(timeout), Some(segments), "{echo}");
    }
}
