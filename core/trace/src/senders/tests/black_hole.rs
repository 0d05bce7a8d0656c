//! Segments that never arrive while smaller packets do.

use super::*;
use crate::tables::NULL_NS;

/// `blocked_bytes`, `blocked_retransmissions`, from and to in ms, `is_blocked_by_size`.
type Found = Option<(i64, u32, i64, i64, bool)>;

fn found(talk: Conversation) -> Found {
    let senders = talk.finish().senders;
    let row = (0..2).find(|&row| senders.to_target[row])?;
    (senders.blocked_bytes[row] != NULL_NS).then(|| {
        (
            senders.blocked_bytes[row],
            senders.blocked_retransmissions[row],
            senders.blocked_first_ns[row] / MS,
            senders.blocked_last_ns[row] / MS,
            senders.is_blocked_by_size[row],
        )
    })
}

/// A segment of 1000 bytes at 100 ms, retransmitted at 300, 700 and 1500 ms.
fn blocked() -> Conversation {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 1);
    for time_ns in [300 * MS, 700 * MS, 1500 * MS] {
        talk.again(time_ns, 0);
    }
    talk
}

/// The client's bare ACK of the server's data.
fn bare(talk: &mut Conversation, time_ns: i64, acknowledged: i64) {
    let seen = talk.packet(time_ns, 0, talk.highest, 0, Some(acknowledged));
    talk.see(seen);
}

#[test]
fn the_peer_needs_no_retransmission_and_the_next_one_is_lost_again() {
    let mut talk = blocked();
    talk.request(1600 * MS, 0, 0);
    bare(&mut talk, 1601 * MS, 48);
    talk.again(3100 * MS, 0);
    talk.request(4100 * MS, 48, 0);
    assert_eq!(found(talk), Some((1000, 4, 300, 4100, true)));
}

#[test]
fn a_black_out_that_is_over_looks_the_same_until_the_next_retransmission() {
    let mut talk = blocked();
    talk.request(1600 * MS, 0, 0);
    bare(&mut talk, 1601 * MS, 48);
    talk.again(3100 * MS, 0);
    talk.ack(3120 * MS, 1, &[]);
    assert_eq!(found(talk), Some((1000, 4, 300, 3120, false)));
}

#[test]
fn a_segment_that_the_next_packet_of_the_peer_acknowledges_may_have_arrived_long_ago() {
    for (acknowledged, is_by_size) in [(0, true), (1, false)] {
        let mut talk = blocked();
        talk.request(1600 * MS, 0, 0);
        bare(&mut talk, 1601 * MS, 48);
        talk.again(3100 * MS, 0);
        talk.again(6300 * MS, 0);
        talk.request(9900 * MS, 48, acknowledged);
        assert_eq!(found(talk), Some((1000, 5, 300, 9900, is_by_size)));
    }
}

#[test]
fn a_segment_that_arrives_in_the_end_was_not_blocked_by_its_size_unless_it_became_smaller() {
    for (length, is_by_size) in [(1000, false), (600, true)] {
        let mut talk = blocked();
        talk.request(1600 * MS, 0, 0);
        bare(&mut talk, 1601 * MS, 48);
        // the small packet passed, for the server goes on; then, perhaps, a second black-out
        talk.again(3100 * MS, 0);
        talk.request(4000 * MS, 48, 0);
        talk.again(6300 * MS, 0);
        let seen = talk.packet(12_700 * MS, 0, 0, length, Some(96));
        talk.see(Observation { class: SegmentClass::Retransmission, ..seen });
        let seen = talk.packet(12_720 * MS, 1, 0, 0, Some(i64::from(length)));
        talk.see(seen);
        // those that were lost had 1000 bytes
        assert_eq!(found(talk), Some((1000, 6, 300, 12_720, is_by_size)));
    }
}

#[test]
fn in_a_black_out_nothing_passes() {
    let mut talk = blocked();
    talk.again(3100 * MS, 0);
    talk.again(6300 * MS, 0);
    assert_eq!(found(talk), None);
    // the ACKs of the client are lost, too: the server retransmits
    let mut talk = blocked();
    for time_ns in [1600, 1800, 2200, 3000] {
        let seen = talk.packet(time_ns * MS, 1, 0, 48, Some(0));
        let class = if time_ns == 1600 { SegmentClass::New } else { SegmentClass::Retransmission };
        talk.see(Observation { class, ..seen });
        bare(&mut talk, (time_ns + 1) * MS, 48);
    }
    talk.again(3100 * MS, 0);
    talk.again(3900 * MS, 0);
    assert_eq!(found(talk), None);
}

#[test]
fn a_peer_whose_timer_has_doubled_beyond_a_second_still_retransmits() {
    let mut talk = blocked();
    for (number, time_ns) in [1600, 1800, 2200, 3000, 4600, 7800].into_iter().enumerate() {
        let seen = talk.packet(time_ns * MS, 1, 0, 48, Some(0));
        let class = if number == 0 { SegmentClass::New } else { SegmentClass::Retransmission };
        talk.see(Observation { class, ..seen });
        bare(&mut talk, (time_ns + 1) * MS, 48);
        if time_ns > 3000 {
            talk.again((time_ns + 100) * MS, 0);
        }
    }
    talk.again(9900 * MS, 0);
    assert_eq!(found(talk), None);
}

#[test]
fn a_lost_segment_among_others_of_its_size_is_a_loss() {
    // SACKed before the first retransmission, or after it
    for sacked_ns in [120 * MS, 720 * MS] {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, 3);
        for time_ns in [121 * MS, 300 * MS, 700 * MS] {
            if sacked_ns < time_ns {
                talk.ack(sacked_ns, 0, &[(1, 3)]);
            }
            talk.again(time_ns, 0);
        }
        talk.ack(730 * MS, 0, &[(1, 3)]);
        talk.request(750 * MS, 0, 0);
        bare(&mut talk, 751 * MS, 48);
        talk.again(2300 * MS, 0);
        talk.again(5500 * MS, 0);
        assert_eq!(found(talk), None);
    }
}

#[test]
fn a_smaller_segment_that_is_sacked_passed() {
    let mut talk = blocked();
    talk.piece(1600 * MS, 48, None, 0);
    let mut seen = talk.packet(1620 * MS, 1, 0, 0, Some(0));
    (seen.sacks[0], seen.sack_count) = ((1000, 1048), 1);
    talk.see(seen);
    talk.again(3100 * MS, 0);
    let seen = talk.packet(4100 * MS, 1, 0, 0, Some(0));
    talk.see(seen);
    assert_eq!(found(talk), Some((1000, 4, 300, 4100, true)));
}

#[test]
fn several_lost_segments_before_a_smaller_one_that_is_sacked() {
    for (lost, is_by_size) in [(2, true), (1, false)] {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, lost);
        let start = talk.highest;
        let small = talk.packet(101 * MS, 0, start, 500, Some(0));
        talk.see(small);
        talk.highest = start + 500;
        // it passed before the first retransmission
        let seen = talk.packet(110 * MS, 1, 0, 0, Some(0));
        talk.see(Observation { sacks: [(start, start + 500), (0, 0), (0, 0), (0, 0)], sack_count: 1, ..seen });
        for time_ns in [121, 321, 721, 1521, 3121] {
            talk.again(time_ns * MS, 0);
        }
        assert_eq!(found(talk).is_some_and(|found| found.4), is_by_size, "{lost}");
    }
}

/// A FIN of the server, and the client's ACK of it.
fn fin(talk: &mut Conversation, time_ns: i64, offset: i64) {
    let seen = talk.packet(time_ns, 1, offset, 0, Some(0));
    talk.see(Observation { flags: TcpFlags(ACK | FIN), ..seen });
    bare(talk, time_ns + MS, offset);
}

#[test]
fn an_outage_that_begins_in_one_direction_and_goes_on_in_both_is_no_hole() {
    // the server's packets pass until 1600 ms, those of the client are lost: nothing shows that the ACK was not
    for is_fin in [false, true] {
        let mut talk = blocked();
        if is_fin {
            fin(&mut talk, 1600 * MS, 0);
        } else {
            talk.request(1600 * MS, 0, 0);
            bare(&mut talk, 1601 * MS, 48);
        }
        talk.again(3100 * MS, 0);
        talk.again(6300 * MS, 0);
        talk.again(12_700 * MS, 0);
        assert_eq!(found(talk), None);
    }
}

#[test]
fn a_bare_ack_behind_several_lost_segments_passed() {
    // segments before the ACK; those that the server's next packet acknowledges; whether it repeats its data before
    let cases = [(2, 0, false, true), (1, 0, false, false), (2, 1, false, false), (2, 0, true, false)];
    for (lost, acknowledged, is_repeated, is_by_size) in cases {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, lost);
        talk.request(101 * MS, 0, 0);
        bare(&mut talk, 102 * MS, 48);
        talk.data(103 * MS, 1);
        if is_repeated {
            let seen = talk.packet(301 * MS, 1, 0, 48, Some(0));
            talk.see(Observation { class: SegmentClass::Retransmission, ..seen });
        }
        for time_ns in [302, 702, 1502, 3102] {
            talk.again(time_ns * MS, 0);
        }
        talk.request(3300 * MS, 48, acknowledged);
        assert_eq!(found(talk).is_some_and(|found| found.4), is_by_size, "{lost} {acknowledged} {is_repeated}");
    }
}

#[test]
fn a_fin_is_sent_after_the_ack_of_what_was_before() {
    let mut talk = blocked();
    talk.request(1600 * MS, 0, 0);
    bare(&mut talk, 1601 * MS, 48);
    talk.again(3100 * MS, 0);
    fin(&mut talk, 4100 * MS, 48);
    assert_eq!(found(talk), Some((1000, 4, 300, 4100, true)));
}

#[test]
fn a_fin_whose_acks_are_lost_is_repeated() {
    let mut talk = blocked();
    [1600, 1900, 2500].into_iter().for_each(|time_ns| fin(&mut talk, time_ns * MS, 0));
    talk.again(3100 * MS, 0);
    [3700, 6100].into_iter().for_each(|time_ns| fin(&mut talk, time_ns * MS, 0));
    talk.again(6300 * MS, 0);
    assert_eq!(found(talk), None);
}

#[test]
fn a_closed_window_and_a_tiny_segment_are_something_else() {
    let mut talk = blocked();
    talk.window = 0;
    talk.request(1600 * MS, 0, 0);
    bare(&mut talk, 1601 * MS, 48);
    talk.again(3100 * MS, 0);
    let seen = talk.packet(4200 * MS, 1, 48, 0, Some(0));
    talk.see(seen);
    assert_eq!(found(talk), None);
    // 535 bytes, or 536
    for (length, is_found) in [(535, false), (536, true)] {
        let mut talk = Conversation::begin();
        talk.piece(100 * MS, length, None, 0);
        for time_ns in [300, 700, 1500, 3100] {
            if time_ns == 3100 {
                talk.request(1600 * MS, 0, 0);
                bare(&mut talk, 1601 * MS, 48);
            }
            let seen = talk.packet(time_ns * MS, 0, 0, length, Some(0));
            talk.see(Observation { class: SegmentClass::Retransmission, ..seen });
        }
        talk.request(4100 * MS, 48, 0);
        assert_eq!(found(talk).is_some(), is_found, "{length}");
    }
}

/// 1000 bytes pass at 100 ms, 4000 are lost before the tap; at 1100 ms a bare ACK is numbered behind them.
fn lost_before_the_tap() -> Conversation {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 1);
    talk.ack(101 * MS, 1, &[]);
    talk.highest += 4 * SEGMENT;
    talk.request(1090 * MS, 0, 1);
    bare(&mut talk, 1100 * MS, 48);
    talk
}

#[test]
fn before_the_tap_the_next_retransmission_is_due_within_twice_the_time() {
    // lost since 100 ms, passed at 1100 ms: the next one is due by 2100 ms, and is not there a second later
    for (last, is_by_size) in [(3100, true), (3099, false)] {
        let mut talk = lost_before_the_tap();
        talk.request(last * MS, 48, 1);
        assert_eq!(found(talk), Some((4000, 0, 100, last, is_by_size)));
    }
    let mut talk = lost_before_the_tap();
    talk.request(2099 * MS, 48, 1);
    assert_eq!(found(talk), None, "not even a second");
}

#[test]
fn a_clock_that_was_set_back_before_them_does_not_make_them_end_before_they_begin() {
    let mut talk = Conversation::begin();
    talk.data(9000 * MS, 1);
    talk.ack(9001 * MS, 1, &[]);
    talk.highest += 4 * SEGMENT;
    talk.request(1090 * MS, 0, 1);
    bare(&mut talk, 1100 * MS, 48);
    talk.request(3100 * MS, 48, 1);
    assert_eq!(found(talk), Some((4000, 0, 1100, 3100, true)));
}

#[test]
fn bytes_that_the_receiver_acknowledges_are_missing_from_the_capture() {
    let mut talk = lost_before_the_tap();
    talk.request(1900 * MS, 48, 1);
    talk.ack(9000 * MS, 5, &[]);
    assert_eq!(found(talk), None);
}

#[test]
fn a_segment_that_passes_ends_it() {
    let mut talk = lost_before_the_tap();
    talk.request(3500 * MS, 48, 1);
    let seen = talk.packet(4000 * MS, 0, SEGMENT, 1000, Some(48));
    talk.see(seen);
    talk.ack(4001 * MS, 2, &[]);
    talk.ack(9000 * MS, 2, &[]);
    assert_eq!(found(talk), Some((4000, 0, 100, 4000, true)));
}

#[test]
fn a_full_segment_that_passes_behind_them_shows_that_their_size_is_no_reason() {
    for (length, is_found) in [(1000, false), (999, true)] {
        let mut talk = lost_before_the_tap();
        talk.piece(2500 * MS, length, None, 0);
        talk.request(3500 * MS, 48, 1);
        assert_eq!(found(talk).is_some(), is_found, "{length}");
    }
}

#[test]
fn the_largest_segment_that_arrived_was_sent_once() {
    let mut talk = Conversation::begin();
    talk.piece(100 * MS, 700, None, 0);
    let ack = talk.packet(120 * MS, 1, 0, 0, Some(700));
    talk.see(ack);
    talk.piece(130 * MS, 900, None, 0);
    let seen = talk.packet(400 * MS, 0, 700, 900, Some(0));
    talk.see(Observation { class: SegmentClass::Retransmission, ..seen });
    let ack = talk.packet(420 * MS, 1, 0, 0, Some(1600));
    talk.see(ack);
    let senders = talk.finish().senders;
    assert_eq!(senders.arrived_segment_bytes[0], 700);
}
