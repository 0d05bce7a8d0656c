//! ACKs that are lost before the tap or beyond it, and what looks like that.

use super::*;
use crate::senders::retransmission::Place;
use crate::tables::NULL_U8;

const NONE: [u8; 1] = [NULL_U8];
const BEFORE: [u8; 1] = [Place::BeforeTap as u8];
const BEYOND: [u8; 1] = [Place::BeyondTap as u8];

/// An ACK of everything before a segment, with a D-SACK of the first one, after so many steps of the IP identification.
fn duplicate(talk: &mut Conversation, time_ns: i64, segment: i64, steps: Option<u16>) {
    let mut seen = talk.packet(time_ns, 1, 0, 0, Some(segment * SEGMENT));
    (seen.steps, seen.sack_count, seen.sacks[0]) = (steps, 1, (0, SEGMENT));
    talk.see(seen);
}

/// These segments in silence, of which timers repeat the first; the receiver numbered two ACKs in turn.
fn silence(segments: i64, timers: i64) -> Conversation {
    let mut talk = Conversation::begin();
    for _ in 0..2 {
        let ack = talk.packet(90 * MS, 1, 0, 0, Some(0));
        talk.see(Observation { steps: Some(1), ..ack });
    }
    talk.data(100 * MS, segments);
    for timer in 0..timers {
        talk.again((400 << timer) * MS, 0);
    }
    talk
}

fn ack_loss(talk: Conversation) -> Vec<u8> {
    talk.finish().recoveries.ack_loss
}

#[test]
fn the_first_ack_of_the_bytes_reports_the_copy() {
    let mut talk = silence(4, 1);
    duplicate(&mut talk, 420 * MS, 4, None);
    talk.data(430 * MS, 1);
    let tables = talk.finish();
    assert_eq!(tables.recoveries.ack_loss, BEFORE);
    assert_eq!(tables.senders.recovery_count[0], 0, "no data was lost");
    // the wait for the timer, and the recovery
    let mut talk = silence(4, 1);
    duplicate(&mut talk, 420 * MS, 4, None);
    talk.data(430 * MS, 1);
    let spans = talk.limited();
    assert!(spans.contains(&(400, 420, part::LOSS_RECOVERY)), "{spans:?}");
    assert!(spans.iter().any(|span| span.0 == 100 && span.2 == part::LOSS_RECOVERY), "{spans:?}");
}

#[test]
fn without_a_report_data_may_be_lost() {
    let mut talk = silence(4, 1);
    talk.ack(420 * MS, 4, &[]);
    assert_eq!(ack_loss(talk), NONE);
}

#[test]
fn late_data_is_acknowledged_before_its_copy() {
    let mut talk = silence(4, 1);
    talk.ack(405 * MS, 2, &[]);
    duplicate(&mut talk, 420 * MS, 4, None);
    assert_eq!(ack_loss(talk), NONE);
}

#[test]
fn the_ack_of_one_segment_may_have_been_held_back() {
    for (steps, expected) in [(None, NONE), (Some(1), NONE), (Some(2), BEFORE)] {
        let mut talk = silence(1, 1);
        duplicate(&mut talk, 420 * MS, 1, steps);
        assert_eq!(ack_loss(talk), expected, "{steps:?}");
    }
}

#[test]
fn a_receiver_that_sent_nothing_was_silent() {
    // a host that paused; a black-out, in which the first copy was lost as well; every copy was acknowledged
    for (timers, steps, expected) in [(1, 1, NONE), (2, 2, NONE), (2, 3, BEFORE), (3, 4, BEFORE)] {
        let mut talk = silence(4, timers);
        duplicate(&mut talk, 4_000 * MS, 4, Some(steps));
        assert_eq!(ack_loss(talk), expected, "{timers} timers, {steps} steps");
    }
    let mut talk = silence(4, 2);
    duplicate(&mut talk, 4_000 * MS, 4, None);
    assert_eq!(ack_loss(talk), NONE, "without identifications");
}

#[test]
fn hosts_that_number_all_packets_alike_show_nothing() {
    let mut talk = silence(1, 0);
    for _ in 0..5 {
        let ack = talk.packet(110 * MS, 1, 0, 0, Some(0));
        talk.see(Observation { steps: Some(7), ..ack });
    }
    talk.again(400 * MS, 0);
    duplicate(&mut talk, 420 * MS, 1, Some(7));
    assert_eq!(ack_loss(talk), NONE);
}

#[test]
fn a_receiver_whose_data_is_lost_too_lost_more_than_acks() {
    let mut talk = silence(4, 1);
    let mut seen = talk.packet(420 * MS, 1, 48, 0, Some(4 * SEGMENT));
    (seen.sack_count, seen.sacks[0]) = (1, (0, SEGMENT));
    talk.see(seen);
    assert_eq!(ack_loss(talk), NONE);
}

#[test]
fn three_duplicate_acks_are_no_silence() {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 6);
    talk.ack(121 * MS, 0, &[(1, 4)]);
    talk.again(121 * MS, 0);
    duplicate(&mut talk, 141 * MS, 6, None);
    assert_eq!(ack_loss(talk), NONE);
}

#[test]
fn another_segment_that_was_needed_makes_it_a_loss() {
    let mut talk = silence(4, 1);
    duplicate(&mut talk, 420 * MS, 2, None);
    talk.again(420 * MS, 2);
    talk.ack(440 * MS, 4, &[]);
    assert_eq!(ack_loss(talk), NONE);
}

/// The server, 20 ms away, sends two segments; the client beside the tap acknowledges both at once. The server repeats the
/// first after a timeout, which the client reports; then the server goes on, with this echo. The first ACK may carry data.
fn beyond(echo: Option<u32>, has_timestamps: bool, data: u32) -> Vec<u8> {
    let mut talk = Conversation::begin();
    let mut see = |time_ns, direction, offset, length, acks, stamps: (u32, u32)| {
        let mut seen = talk.packet(time_ns, direction, offset, length, Some(acks));
        seen.timestamps = Some(stamps).filter(|_| has_timestamps);
        if (length, acks, stamps.0) == (0, 2 * SEGMENT, 340) {
            (seen.sack_count, seen.sacks[0]) = (1, (0, SEGMENT));
        }
        if time_ns == 340 * MS && length > 0 {
            seen.class = SegmentClass::Retransmission;
        }
        talk.see(seen);
    };
    see(80 * MS, 0, 0, 48, 0, (80, 0));
    see(100 * MS, 1, 0, 1000, 48, (1100, 80));
    see(100 * MS, 1, SEGMENT, 1000, 48, (1100, 80));
    see(100 * MS, 0, 48, data, 2 * SEGMENT, (100, 1100));
    see(340 * MS, 1, 0, 1000, 48, (1340, 80));
    see(340 * MS, 0, 48 + i64::from(data), 0, 2 * SEGMENT, (340, 1340));
    if let Some(echo) = echo {
        see(360 * MS, 1, 2 * SEGMENT, 1000, 48, (1360, echo));
    }
    ack_loss(talk)
}

#[test]
fn a_sender_that_never_echoes_the_ack_did_not_get_it() {
    assert_eq!(beyond(Some(340), true, 0), BEYOND);
    assert_eq!(beyond(Some(340), true, 48), NONE, "a command was lost with it");
    assert_eq!(beyond(Some(100), true, 0), NONE, "it came late");
    assert_eq!(beyond(Some(80), true, 0), NONE, "the sender went on for another reason");
    assert_eq!(beyond(None, true, 0), NONE, "the capture ends");
    assert_eq!(beyond(Some(340), false, 0), NONE, "without timestamps late and lost look alike");
}
