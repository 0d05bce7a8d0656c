//! Losses, retransmissions and recoveries.

use super::*;
use crate::tables::NULL_U64;

#[test]
fn a_lost_segment_is_recovered() {
    let mut talk = recovered_loss();
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
    // ten sent; two acknowledged; one, two and three SACKed, and the hole is lost; retransmitted; all acknowledged; one
    // more
    assert_eq!(pipes[10..18], [10, 8, 7, 6, 4, 5, 0, 1]);
    assert_eq!((tables.senders.fast_retransmit_count[0], tables.senders.recovery_ns[0]), (1, 22 * MS));
}

#[test]
fn a_duplicate_sack_shows_a_spurious_retransmission() {
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
fn an_old_timestamp_shows_a_spurious_retransmission() {
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
fn after_a_timeout_the_retransmissions_fill_the_pipe_again() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 6);
    talk.again(400 * MS, 0);
    talk.ack(420 * MS, 1, &[]);
    talk.again(420 * MS, 1);
    talk.again(420 * MS, 2);
    let tables = talk.finish();
    assert_eq!(tables.retransmissions.cause, [1, 1, 1]);
    let window = &tables.window;
    let rows = (0..window.frame.len()).filter(|&row| window.to_target[row] && window.frame[row] >= 10);
    let pipes: Vec<_> = rows.map(|row| window.pipe_bytes[row] / SEGMENT).collect();
    assert_eq!(pipes, [1, 0, 1, 2]);
}

#[test]
fn without_sack_a_retransmitted_last_segment_is_no_probe() {
    let mut talk = Conversation::begin();
    talk.has_sack = Some(false);
    talk.data(100 * MS, 1);
    talk.again(320 * MS, 0);
    assert_eq!(talk.finish().retransmissions.cause, [1]);
}

#[test]
fn packets_missing_from_the_capture_are_no_losses() {
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
fn a_packet_that_fills_a_hole_of_the_tap_has_no_original() {
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

/// Ten segments, of which two are lost and retransmitted 23 ms later; the recovery lasts 22 ms.
fn lose_two(talk: &mut Conversation, at_ms: i64) {
    let first = talk.highest / SEGMENT;
    talk.data(at_ms * MS, 10);
    talk.ack((at_ms + 20) * MS, first + 2, &[]);
    for seen in 1..=3 {
        talk.ack((at_ms + 20 + seen) * MS, first + 2, &[(first + 4, first + 4 + seen)]);
    }
    talk.again((at_ms + 23) * MS, first + 2);
    talk.again((at_ms + 23) * MS, first + 3);
    talk.ack((at_ms + 43) * MS, first + 10, &[]);
    talk.data((at_ms + 50) * MS, 1);
    talk.ack((at_ms + 70) * MS, first + 11, &[]);
}

#[test]
fn recoveries_add_up() {
    let mut talk = Conversation::begin();
    lose_two(&mut talk, 100);
    lose_two(&mut talk, 200);
    let tables = talk.finish();
    let recoveries = &tables.recoveries;
    assert_eq!(recoveries.retransmitted_packets, [2, 2]);
    assert_eq!(recoveries.retransmitted_bytes, [2 * SEGMENT as u64; 2]);
    assert_eq!((tables.senders.recovery_count[0], tables.senders.recovery_ns[0]), (2, (22 + 22) * MS));
}

#[test]
fn a_recovery_counts_unless_all_its_probes_were_spurious() {
    for (has_timeout, is_recovery) in [(false, false), (true, true)] {
        let talk = || {
            let mut talk = Conversation::begin();
            talk.data(100 * MS, 4);
            talk.again(142 * MS, 3);
            if has_timeout {
                talk.again(400 * MS, 0);
            }
            talk.ack(420 * MS, 4, &[]);
            // the DSACK is for the probe alone
            talk.ack(421 * MS, 4, &[(3, 4)]);
            talk.data(500 * MS, 1);
            talk
        };
        let count = talk().finish().senders.recovery_count[0];
        assert_eq!(count, u32::from(is_recovery), "with a timeout: {has_timeout}");
        let found = talk().limited().into_iter().any(|span| span == (142, 420, part::LOSS_RECOVERY));
        assert_eq!(found, is_recovery, "with a timeout: {has_timeout}");
    }
}

#[test]
fn the_first_loss_in_slow_start_shows_ssthresh() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 10);
    for (round, count) in [20, 40].into_iter().enumerate() {
        let now_ns = (120 + 20 * round as i64) * MS;
        talk.ack(now_ns, talk.highest / SEGMENT, &[]);
        talk.data(now_ns, count);
    }
    for sacked in 32..=34 {
        talk.ack(160 * MS, 30, &[(31, sacked)]);
    }
    talk.again(161 * MS, 30);
    talk.ack(181 * MS, 70, &[]);
    talk.data(190 * MS, 1);
    // the pipe when the first sign of the loss arrived
    assert_eq!(talk.finish().senders.ssthresh_guess_bytes[0], 40 * SEGMENT);
}

#[test]
fn a_spurious_probe_is_no_recovery_even_after_a_real_loss() {
    let mut talk = Conversation::begin();
    lose_two(&mut talk, 100);
    // 50 ms after the last ACK, more than two RTTs
    talk.data(180 * MS, 2);
    talk.again(230 * MS, 12);
    talk.ack(231 * MS, 13, &[]);
    talk.ack(250 * MS, 13, &[(12, 13)]);
    talk.data(300 * MS, 1);
    let spans = talk.limited();
    assert!(spans.contains(&(121, 143, part::LOSS_RECOVERY)), "{spans:?}");
    assert!(!spans.contains(&(230, 231, part::LOSS_RECOVERY)), "{spans:?}");
}

#[test]
fn the_time_around_bytes_missing_from_the_capture_is_unknown() {
    for is_filled in [false, true] {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, 2);
        talk.highest += SEGMENT;
        talk.data(110 * MS, 1);
        if is_filled {
            let late = talk.packet(111 * MS, 0, 2 * SEGMENT, SEGMENT as u32, Some(0));
            talk.see(Observation { class: SegmentClass::Reordered, ..late });
        }
        talk.ack(130 * MS, 3, &[]);
        let unknown: Vec<_> = talk.limited().into_iter().filter(|span| span.2 == part::UNKNOWN).collect();
        assert_eq!(unknown, if is_filled { vec![] } else { vec![(100, 110, part::UNKNOWN)] });
    }
}

#[test]
fn without_sack_a_duplicate_ack_takes_a_segment_out_of_the_pipe() {
    let pipe_after = |third: &dyn Fn(&mut Conversation)| {
        let mut talk = Conversation::begin();
        talk.has_sack = Some(false);
        talk.data(100 * MS, 5);
        talk.ack(120 * MS, 1, &[]);
        talk.ack(121 * MS, 1, &[]);
        third(&mut talk);
        talk.data(130 * MS, 1);
        let tables = talk.finish();
        let last = tables.window.to_target.iter().rposition(|&to_target| to_target).unwrap();
        tables.window.pipe_bytes[last] / SEGMENT
    };
    // four in flight, one or two reported, and the new one
    assert_eq!(pipe_after(&|_| ()), 4);
    assert_eq!(pipe_after(&|talk| talk.ack(122 * MS, 1, &[])), 3);
    // a request, a window update and an old ACK report nothing
    assert_eq!(pipe_after(&|talk| talk.request(122 * MS, 0, 1)), 4);
    assert_eq!(pipe_after(&|talk| talk.ack(122 * MS, 0, &[])), 4);
    let update = |talk: &mut Conversation| {
        talk.window += 1000;
        talk.ack(122 * MS, 1, &[]);
    };
    assert_eq!(pipe_after(&update), 4);
}

#[test]
fn acks_of_an_idle_sender_are_no_duplicates() {
    let mut talk = Conversation::begin();
    talk.ack(90 * MS, 0, &[]);
    talk.ack(91 * MS, 0, &[]);
    talk.data(100 * MS, 3);
    assert_eq!(talk.finish().window.pipe_bytes[1..4], [1000, 2000, 3000]);
}
