//! When ACKs reach the sender, and the bursts between them.

use super::*;
use crate::senders::acks::Acks;
use crate::senders::burst::Burst;
use crate::senders::sender_state::{Delays, SenderNs};
use iscsitrace_wire::serial::SerialNumber;

/// From the tap to the sender and back.
const DELAY_NS: i64 = 100;

fn packet(time_ns: i64, offset: i64, timestamps: Option<(u32, u32)>) -> Observation {
    let seen = Conversation::without_syn().packet(time_ns, 0, offset, 1000, Some(49));
    Observation { timestamps, ..seen }
}

/// The time of the answer to an ACK captured at 1000, if it arrived when a packet passes the tap.
fn answer(ack: Option<(u32, u32)>, offset: i64, time_ns: i64, echo: Option<u32>) -> Option<i64> {
    answer_of(ack, offset, packet(time_ns, 0, echo.map(|echo| (1, echo))))
}

fn answer_of(ack: Option<(u32, u32)>, offset: i64, seen: Observation) -> Option<i64> {
    let mut acks = Acks::default();
    acks.note_acknowledged(Some(48));
    acks.push(&packet(1000, offset, ack), 5000, DELAY_NS);
    acks.note_packet(&seen, DELAY_NS);
    acks.next_due(seen.time_ns).map(|(ack, answer, _)| {
        assert_eq!((ack.acknowledged, ack.time_ns, ack.offset, ack.length), (5000, 1000, offset, 1000));
        answer.packet_ns()
    })
}

#[test]
fn without_timestamps_an_ack_counts_from_one_rtt_later_on() {
    assert_eq!(answer(None, 0, 1099, None), None);
    assert_eq!(answer(None, 0, 1100, None), Some(1100));
    assert_eq!(answer(None, 0, 1500, None), Some(1100));
}

#[test]
fn an_echoed_timestamp_shows_which_acks_had_arrived() {
    // an echo of this ACK's timestamp or of a later one, before the RTT has passed
    assert_eq!(answer(Some((7, 0)), 0, 1050, Some(7)), Some(1050));
    assert_eq!(answer(Some((7, 0)), 0, 1050, Some(8)), Some(1050));
    assert_eq!(answer(Some((u32::MAX, 0)), 0, 1050, Some(3)), Some(1050));
    // an echo of an earlier one: it had not, unless its data was out of order (RFC 7323, section 4.3)
    assert_eq!(answer(Some((7, 0)), 48, 1500, Some(6)), None);
    assert_eq!(answer(Some((7, 0)), 49, 1500, Some(6)), Some(1100));
    assert_eq!(answer(Some((7, 0)), 49, 1099, Some(6)), None);
}

#[test]
fn a_sender_that_lacks_what_was_sent_before_an_ack_has_not_got_it() {
    // an ACK behind byte 49, which the packet acknowledges or not; behind a lost request it counts in the end
    let counts = |acknowledged, late_ns: i64| {
        let seen = Observation { acknowledged, ..packet(1100 + late_ns, 0, Some((1, 6))) };
        answer_of(Some((7, 0)), 49, seen)
    };
    assert_eq!(counts(Some(49), 0), Some(1100));
    assert_eq!(counts(Some(48), 0), None);
    assert_eq!(counts(Some(48), 200_000_000 - 1), None);
    assert_eq!(counts(Some(48), 200_000_000), Some(1100));
    assert_eq!(counts(None, 0), Some(1100));
    // a retransmission shows that the sender knows of a loss
    let again = Observation { class: SegmentClass::Retransmission, ..packet(1100, 0, Some((1, 6))) };
    let again = Observation { acknowledged: Some(48), ..again };
    assert_eq!(answer_of(Some((7, 0)), 49, again), Some(1100));
}

#[test]
fn a_second_ack_with_the_same_timestamp_counts_one_rtt_later() {
    let mut acks = Acks::default();
    for time_ns in [1000, 1040] {
        acks.push(&packet(time_ns, 49, Some((7, 0))), 5000, DELAY_NS);
    }
    acks.note_packet(&packet(1050, 0, Some((1, 7))), DELAY_NS);
    assert_eq!(acks.next_due(1050).map(|due| due.1.packet_ns()), Some(1050));
    assert!(acks.next_due(1139).is_none());
    assert_eq!(acks.next_due(1140).map(|due| due.1.packet_ns()), Some(1140));
}

#[test]
fn an_ack_before_bytes_that_the_packet_acknowledges_had_arrived() {
    // both carry the timestamp that the packet echoes; the first of them is what it echoes
    let second_counts = |offset| {
        let mut acks = Acks::default();
        for (time_ns, offset) in [(1000, 0), (1040, offset)] {
            acks.push(&packet(time_ns, offset, Some((7, 0))), 5000, DELAY_NS);
        }
        acks.note_packet(&packet(1105, 0, Some((1, 7))), DELAY_NS);
        assert_eq!(acks.next_due(1105).map(|due| due.1.packet_ns()), Some(1105));
        acks.next_due(1105).is_some()
    };
    assert!(second_counts(48));
    assert!(!second_counts(49));
}

#[test]
fn sack_blocks_stay_with_their_ack() {
    let mut acks = Acks::default();
    acks.push(&packet(0, 0, None), 1000, DELAY_NS);
    let mut seen = packet(1, 0, None);
    (seen.sacks[0], seen.sack_count) = ((2000, 3000), 1);
    acks.push(&seen, 1000, DELAY_NS);
    let (first, blocks) = acks.take_oldest().unwrap();
    assert_eq!((first.block_count(), blocks[0]), (0, (0, 0)));
    let (second, blocks) = acks.take_oldest().unwrap();
    assert_eq!((second.block_count(), blocks[0]), (1, (2000, 3000)));
    assert!(acks.take_oldest().is_none());
}

#[test]
fn acks_are_full_beyond_4096() {
    let mut acks = Acks::default();
    (0..4096).for_each(|_| acks.push(&packet(0, 0, None), 1000, DELAY_NS));
    assert!(!acks.is_full());
    acks.push(&packet(0, 0, None), 1000, DELAY_NS);
    assert!(acks.is_full());
}

#[test]
fn a_burst_ends_with_an_ack_and_its_pause_is_three_usual_spacings() {
    for (since_ns, is_pause, is_long_pause) in
        [(29_999, false, false), (30_000, true, false), (49_999, true, false), (50_000, true, true)]
    {
        let mut burst = Burst::default();
        let delays = Delays { to_sender_ns: 200_000, ..Delays::default() };
        assert!(burst.begin(&packet(0, 0, None), delays).is_none());
        // a sixteenth of 160 us; a millisecond is no spacing
        assert!(burst.begin(&packet(160_000, 0, None), delays).is_none());
        assert!(burst.begin(&packet(1_160_000, 0, None), delays).is_none());
        burst.acknowledge(SenderNs::of_packet(1_161_000));
        burst.acknowledge(SenderNs::of_packet(1_162_000));
        let now_ns = 1_160_000 + since_ns;
        let between = burst.begin(&packet(now_ns, 0, None), delays).unwrap();
        assert_eq!((between.is_pause, between.is_long_pause), (is_pause, is_long_pause), "{since_ns} ns");
        assert!(between.has_ack && !between.has_request && between.is_new);
        // since the first of the two ACKs; the one before it was at 0
        assert_eq!((between.answer_ns, between.calm_ns), (now_ns - 1_161_000, 1_161_000));
        assert_eq!(burst.last_ns(), Some(now_ns));
        burst.request();
        let again = Observation { class: SegmentClass::Retransmission, ..packet(now_ns + 1, 0, None) };
        let between = burst.begin(&again, delays).unwrap();
        assert!(!between.has_ack && between.has_request && !between.is_new);
        burst.acknowledge(SenderNs::of_packet(1_263_000));
        // the last ACK before was at 1162 us
        assert_eq!(burst.begin(&packet(2_000_000, 0, None), delays).unwrap().calm_ns, 101_000);
    }
}

#[test]
fn a_queue_before_a_busy_sender_delays_its_answers() {
    // an ACK of 1.2 ms is echoed at 3 ms; when does the next one, of 1.25 ms, count?
    let counts_from = |previous_ns: i64, least_ns: i64| {
        let mut acks = Acks::default();
        acks.push(&packet(1_200_000, 1, Some((7, 0))), 5000, least_ns);
        acks.push(&packet(1_250_000, 1, Some((9, 0))), 6000, least_ns);
        acks.note_packet(&packet(previous_ns, 0, Some((1, 6))), least_ns);
        acks.note_packet(&packet(3_000_000, 0, Some((1, 7))), least_ns);
        acks.next_due(3_000_000).unwrap();
        acks.next_due(9_000_000).unwrap().1.packet_ns()
    };
    assert_eq!(counts_from(1_000_001, DELAY_NS), 1_250_000 + 1_800_000);
    // after a pause of 2 ms the sender waited for something else; beside the tap nothing queues
    assert_eq!(counts_from(1_000_000, DELAY_NS), 1_250_000 + DELAY_NS);
    assert_eq!(counts_from(1_000_001, 0), 1_250_000);
}

/// A packet of the sender that echoes a timestamp.
fn echo(acks: &mut Acks, value: u32) {
    acks.note_echo(&packet(0, 0, Some((1, value))));
}

/// The last acknowledged offsets of the tick before an echoed one, and of the latest that the sender can have had.
fn known(acks: &Acks, value: u32) -> (Option<i64>, Option<i64>) {
    let (echoed, echo) = (acks.echoed(), SerialNumber(value));
    (echoed.before(echo).map(|tick| tick.acknowledged), echoed.latest(echo).map(|tick| tick.acknowledged))
}

#[test]
fn an_echo_tells_the_acks_that_the_sender_had_from_those_it_can_have_had() {
    let mut acks = Acks::default();
    for (time_ns, value, acknowledged) in [(1, 5, 100), (2, 5, 200), (3, 6, 300), (4, 7, 400), (5, 7, 500), (6, 9, 600)]
    {
        acks.push(&packet(time_ns, 0, Some((value, 0))), acknowledged, DELAY_NS);
    }
    for (value, expected, last_ns) in [
        (4, (None, None), None),
        (5, (None, Some(200)), Some(2)),
        // a packet that was overtaken
        (4, (None, None), None),
        (7, (Some(300), Some(500)), Some(5)),
        (7, (Some(300), Some(500)), Some(5)),
        // no packet with this one passed the tap
        (8, (Some(500), Some(500)), None),
        (9, (Some(500), Some(600)), Some(6)),
    ] {
        echo(&mut acks, value);
        assert_eq!(known(&acks, value), expected, "{value}");
        assert_eq!(acks.echoed_ns(&packet(0, 0, Some((1, value)))), last_ns, "{value}");
    }
    // more of the same tick; what comes late from an older one says nothing
    acks.push(&packet(7, 0, Some((9, 0))), 700, DELAY_NS);
    acks.push(&packet(8, 0, Some((7, 0))), 450, DELAY_NS);
    echo(&mut acks, 9);
    assert_eq!((known(&acks, 9), acks.echoed_ns(&packet(0, 0, Some((1, 9))))), ((Some(500), Some(700)), Some(7)));
}

#[test]
fn the_clock_of_timestamps_may_wrap() {
    let mut acks = Acks::default();
    acks.push(&packet(1, 0, Some((u32::MAX, 0))), 100, DELAY_NS);
    acks.push(&packet(2, 0, Some((3, 0))), 200, DELAY_NS);
    echo(&mut acks, 3);
    assert_eq!(known(&acks, 3), (Some(100), Some(200)));
}

#[test]
fn acks_are_kept_until_they_arrived_and_were_echoed() {
    let mut acks = Acks::default();
    for value in 0..100 {
        acks.push(&packet(i64::from(value), 0, Some((value, 0))), i64::from(value), DELAY_NS);
        echo(&mut acks, value);
        while acks.take_oldest().is_some() {}
    }
    echo(&mut acks, 99);
    assert_eq!(acks.acknowledged_at(i64::MAX), None);
    // one that is not echoed, one that did not arrive, and one without a timestamp that did
    acks.push(&packet(100, 0, Some((100, 0))), 100, DELAY_NS);
    acks.take_oldest();
    echo(&mut acks, 99);
    assert_eq!(acks.acknowledged_at(i64::MAX), Some(100));
    echo(&mut acks, 100);
    assert_eq!(acks.acknowledged_at(i64::MAX), None);
    acks.push(&packet(101, 0, Some((101, 0))), 101, DELAY_NS);
    echo(&mut acks, 101);
    assert_eq!((acks.acknowledged_at(i64::MAX), acks.arrived_by(i64::MAX)), (Some(101), Some((101, 60_000))));
    acks.take_oldest();
    acks.push(&packet(102, 0, None), 102, DELAY_NS);
    acks.take_oldest();
    acks.note_echo(&packet(0, 0, None));
    assert_eq!(acks.acknowledged_at(i64::MAX), None);
    // however many the sender is silent to
    for number in 0..20_000 {
        acks.push(&packet(number, 0, Some((200, 0))), number, DELAY_NS);
        if acks.is_full() {
            acks.take_oldest();
        }
        acks.note_echo(&packet(0, 0, None));
    }
    assert!(acks.acknowledged_at(19_999 - 8192).is_none() && acks.acknowledged_at(19_999).is_some());
}
