//! What ended a pause, and what limited the sender, condition by condition.

use super::*;
use crate::dynamics::acks::Acks;
use crate::dynamics::flight::Flight;
use crate::dynamics::flights::Flights;
use crate::dynamics::sender_state::{LastAck, SenderState};
use crate::dynamics::window_scale::WindowScale;

const ACKNOWLEDGMENT: u8 = 0;
const WINDOW_UPDATE: u8 = 1;
const REQUEST: u8 = 2;
const OWN_TIME: u8 = 3;
/// An answer follows its ACK within an eighth of the RTT of 20 ms.
const WITHIN_NS: i64 = AWAY_NS / 8;

/// One segment of a PDU, a pause, and the next segment, which answers an ACK.
struct Pause {
    first: Observation,
    before: SenderState,
    next: Observation,
    after: SenderState,
    request_ns: Option<i64>,
}

impl Pause {
    fn new() -> Self {
        let mut talk = Conversation::without_syn();
        let first = talk.packet(0, 0, 0, 1000, Some(0));
        let next = talk.packet(20 * MS, 0, 1000, 1000, Some(0));
        let before = SenderState { owin: 5000, pipe: 5000, rwnd: Some(60_000), ..SenderState::default() };
        let ack = LastAck { answer_ns: 20 * MS, is_advance: true, has_opened_window: false, owin: 0 };
        Self {
            first: Observation { left_of_pdu: Some(9000), ..first },
            before,
            next,
            after: SenderState { owin: 1000, last_ack: Some(ack), ..before },
            request_ns: None,
        }
    }

    fn ack(&mut self) -> &mut LastAck {
        self.after.last_ack.as_mut().unwrap()
    }

    /// What ended the pause, and the part that limited the sender during it.
    fn judge(&self) -> (u8, Option<u8>) {
        let mut flights = Flights::new(CONNECTION, true, true);
        flights.packet(&self.first, self.before, &Acks::default(), SEGMENT, AWAY_NS, 0);
        self.request_ns.into_iter().for_each(|time_ns| flights.request(time_ns, 0));
        flights.packet(&self.next, self.after, &Acks::default(), SEGMENT, AWAY_NS, 0);
        let limited = flights.limited(&WindowScale::default()).next();
        if let Some(limited) = limited {
            assert_eq!((limited.from_ns, limited.to_ns), (self.first.time_ns, self.next.time_ns));
        }
        (flights.rows().nth(1).unwrap().release, limited.map(|limited| limited.part))
    }
}

/// The verdict after a change.
fn with(change: impl Fn(&mut Pause)) -> (u8, Option<u8>) {
    let mut pause = Pause::new();
    change(&mut pause);
    pause.judge()
}

#[test]
fn within_a_pdu_the_next_ack_shows_the_congestion_window() {
    let cwnd = Some(part::CONGESTION_WINDOW);
    assert_eq!(with(|_| ()), (ACKNOWLEDGMENT, cwnd));
    assert_eq!(with(|pause| pause.ack().is_advance = false), (OWN_TIME, None));
    assert_eq!(with(|pause| pause.after.last_ack = None), (OWN_TIME, None));
    // a request does not explain the rest of a PDU
    assert_eq!(with(|pause| pause.request_ns = Some(10 * MS)), (ACKNOWLEDGMENT, cwnd));
}

#[test]
fn an_answer_follows_within_an_eighth_of_the_rtt_and_the_cause_within_one() {
    let cwnd = Some(part::CONGESTION_WINDOW);
    let late = |late_ns: i64| with(|pause| pause.next.time_ns = 20 * MS + late_ns);
    assert_eq!(late(WITHIN_NS), (ACKNOWLEDGMENT, cwnd));
    assert_eq!(late(WITHIN_NS + 1), (OWN_TIME, cwnd));
    assert_eq!(late(-WITHIN_NS), (ACKNOWLEDGMENT, cwnd));
    assert_eq!(late(-WITHIN_NS - 1), (OWN_TIME, cwnd));
    assert_eq!(late(AWAY_NS), (OWN_TIME, cwnd));
    assert_eq!(late(AWAY_NS + 1), (OWN_TIME, None));
}

#[test]
fn an_ack_from_before_the_previous_packet_released_nothing() {
    let answered = |answer_ns: i64| {
        with(|pause| {
            pause.next.time_ns = MS;
            pause.ack().answer_ns = answer_ns;
        })
    };
    assert_eq!(answered(1 - WITHIN_NS), (OWN_TIME, Some(part::CONGESTION_WINDOW)));
    assert_eq!(answered(-WITHIN_NS), (OWN_TIME, None));
}

#[test]
fn an_ack_that_opens_the_window_without_progress_is_a_window_update() {
    assert_eq!(with(|pause| pause.ack().has_opened_window = true).0, ACKNOWLEDGMENT);
    let update = |pause: &mut Pause| {
        pause.ack().has_opened_window = true;
        pause.ack().is_advance = false;
    };
    assert_eq!(with(update).0, WINDOW_UPDATE);
    let late = |pause: &mut Pause| {
        update(pause);
        pause.ack().answer_ns -= WITHIN_NS + 1;
    };
    assert_eq!(with(late).0, OWN_TIME);
}

#[test]
fn a_full_window_limits_unless_nothing_proves_its_inferred_scale() {
    for (is_window_full, inferred_scale, limited) in [
        (true, None, part::RECEIVE_WINDOW),
        (false, None, part::CONGESTION_WINDOW),
        (true, Some(0), part::UNKNOWN),
        // the scale has grown since: there was room
        (true, Some(1), part::CONGESTION_WINDOW),
        (false, Some(0), part::CONGESTION_WINDOW),
    ] {
        for left_of_pdu in [Some(9000), None] {
            let verdict = with(|pause| {
                pause.first.left_of_pdu = left_of_pdu;
                // not everything is acknowledged
                pause.after.owin = 1500;
                (pause.before.is_window_full, pause.before.inferred_scale) = (is_window_full, inferred_scale);
            });
            assert_eq!(verdict, (ACKNOWLEDGMENT, Some(limited)), "{is_window_full} {inferred_scale:?} {left_of_pdu:?}");
        }
    }
}

#[test]
fn a_retransmission_is_loss_recovery_unless_it_probes_a_full_window() {
    let again = |is_window_full: bool, is_in_recovery: bool| {
        let verdict = with(|pause| {
            pause.next.class = SegmentClass::Retransmission;
            (pause.before.is_window_full, pause.before.is_in_recovery) = (is_window_full, is_in_recovery);
        });
        verdict.1
    };
    assert_eq!(again(false, false), Some(part::LOSS_RECOVERY));
    assert_eq!(again(true, false), Some(part::RECEIVE_WINDOW));
    assert_eq!(again(true, true), Some(part::LOSS_RECOVERY));
    // new data during a recovery, and the first after it
    assert_eq!(with(|pause| pause.after.is_in_recovery = true).1, Some(part::LOSS_RECOVERY));
    assert_eq!(with(|pause| pause.before.is_in_recovery = true).1, Some(part::LOSS_RECOVERY));
}

#[test]
fn nothing_waits_for_a_retransmission_of_what_was_acknowledged() {
    let again = |acknowledged: i64, left_of_pdu: Option<u32>| {
        let pause = Pause::new();
        let mut flights = Flights::new(CONNECTION, true, true);
        flights.packet(
            &Observation { left_of_pdu, ..pause.first },
            pause.before,
            &Acks::default(),
            SEGMENT,
            AWAY_NS,
            0,
        );
        let ack = Observation { direction: 1, acknowledged: Some(acknowledged), length: 0, ..pause.first };
        flights.acknowledge(&Observation { time_ns: MS, ..ack }, &Flight::default(), 0);
        let copy = Observation { offset: pause.first.offset, class: SegmentClass::Retransmission, ..pause.next };
        flights.packet(&copy, pause.after, &Acks::default(), SEGMENT, AWAY_NS, 0);
        flights.limited(&WindowScale::default()).next().map(|limited| limited.part)
    };
    let loss = Some(part::LOSS_RECOVERY);
    assert_eq!(again(1000, None), None);
    assert_eq!(again(999, None), loss, "a byte is missing");
    assert_eq!(again(1000, Some(9000)), loss, "the sender has more to send");
}

#[test]
fn far_away_acks_let_out_what_a_smaller_receive_window_held() {
    let beyond = |change: &dyn Fn(&mut Pause)| {
        with(|pause| {
            pause.before.is_window_smaller = true;
            change(pause);
        })
    };
    assert_eq!(beyond(&|_| ()), (ACKNOWLEDGMENT, Some(part::RECEIVE_WINDOW)));
    // a pause that no ACK ended is the host's
    assert_eq!(beyond(&|pause| pause.after.last_ack = None), (OWN_TIME, None));
}

#[test]
fn a_host_that_sent_nothing_between_two_packets_paused() {
    let silent = |steps: Option<u16>, length: u32| {
        let verdict = with(|pause| {
            let late_ns = 200 * MS;
            (pause.first.length, pause.next.steps) = (length, steps);
            pause.next.time_ns = pause.first.time_ns + late_ns;
            pause.after.last_ack = None;
        });
        verdict.1
    };
    const ONE: u32 = SEGMENT as u32;
    assert_eq!(silent(None, ONE), Some(part::LOSS_RECOVERY), "its packets are not numbered");
    assert_eq!(silent(Some(1), ONE), None);
    assert_eq!(silent(Some(2), ONE), Some(part::LOSS_RECOVERY), "one packet was lost");
    // a super-segment takes a number for each segment
    assert_eq!(silent(Some(2), ONE + 1), None);
    assert_eq!(silent(Some(3), ONE + 1), Some(part::LOSS_RECOVERY));
    // a window that was full meanwhile does not explain lost packets
    let full = |steps: Option<u16>| {
        let verdict = with(|pause| {
            (pause.before.is_window_full, pause.next.steps) = (true, steps);
            pause.next.time_ns = pause.first.time_ns + 200 * MS;
            pause.after.last_ack = None;
        });
        verdict.1
    };
    assert_eq!([full(None), full(Some(1))], [Some(part::RECEIVE_WINDOW); 2]);
    assert_eq!(full(Some(2)), Some(part::LOSS_RECOVERY));
}

#[test]
fn silence_of_a_timer_within_a_pdu_is_loss_recovery() {
    let silent = |pause_ns: i64, class: SegmentClass| {
        let verdict = with(|pause| {
            pause.first.class = class;
            pause.next.time_ns = pause_ns;
            pause.after.last_ack = None;
        });
        verdict.1
    };
    assert_eq!(silent(190 * MS, SegmentClass::New), Some(part::LOSS_RECOVERY));
    assert_eq!(silent(190 * MS - 1, SegmentClass::New), None);
    // after a loss, two RTTs are enough
    assert_eq!(silent(40 * MS, SegmentClass::Retransmission), Some(part::LOSS_RECOVERY));
    assert_eq!(silent(40 * MS - 1, SegmentClass::Retransmission), None);
}

#[test]
fn between_pdus_an_ack_limits_only_a_sender_with_bytes_in_flight() {
    let between = |change: &dyn Fn(&mut Pause)| {
        with(|pause| {
            pause.first.left_of_pdu = None;
            change(pause);
        })
    };
    // all was acknowledged: a full segment had nothing to wait for, a small one did (Nagle)
    assert_eq!(between(&|_| ()), (ACKNOWLEDGMENT, None));
    let small = |pause: &mut Pause| (pause.next.length, pause.after.owin) = (999, 999);
    assert_eq!(between(&small), (ACKNOWLEDGMENT, Some(part::ACK_WAIT)));
    // one byte was not
    assert_eq!(between(&|pause| pause.after.owin = 1001), (ACKNOWLEDGMENT, Some(part::CONGESTION_WINDOW)));
    let idle = |pause: &mut Pause| (pause.after.owin, pause.before.owin) = (1001, 0);
    assert_eq!(between(&idle), (ACKNOWLEDGMENT, None));
    // a request explains more
    assert_eq!(between(&|pause| pause.request_ns = Some(20 * MS)), (REQUEST, None));
    assert_eq!(between(&|pause| pause.request_ns = Some(20 * MS + 1)), (ACKNOWLEDGMENT, None));
}

#[test]
fn pauses_in_a_row_with_one_cause_are_one_span() {
    let cwnd = part::CONGESTION_WINDOW;
    let spans = |causes: [Option<u8>; 3]| {
        let pause = Pause::new();
        let mut flights = Flights::new(CONNECTION, true, true);
        flights.packet(&pause.first, pause.before, &Acks::default(), SEGMENT, AWAY_NS, 0);
        for (number, cause) in (1..).zip(causes) {
            let time_ns = number * 20 * MS;
            let ack = LastAck { answer_ns: time_ns, is_advance: true, has_opened_window: false, owin: 0 };
            let next = Observation { time_ns, offset: number * SEGMENT, left_of_pdu: Some(9000), ..pause.next };
            let is_in_recovery = cause == Some(part::LOSS_RECOVERY);
            // bytes in flight before each of them
            let after = SenderState { owin: 5000, last_ack: cause.map(|_| ack), is_in_recovery: false, ..pause.after };
            let next = if is_in_recovery { Observation { class: SegmentClass::Retransmission, ..next } } else { next };
            flights.packet(&next, after, &Acks::default(), SEGMENT, AWAY_NS, 0);
        }
        flights
            .limited(&WindowScale::default())
            .map(|span| (span.from_ns / MS, span.to_ns / MS, span.part))
            .collect::<Vec<_>>()
    };
    assert_eq!(spans([Some(cwnd); 3]), [(0, 60, cwnd)]);
    assert_eq!(spans([Some(cwnd), None, Some(cwnd)]), [(0, 20, cwnd), (40, 60, cwnd)]);
    let loss = part::LOSS_RECOVERY;
    assert_eq!(spans([Some(cwnd), Some(loss), Some(loss)]), [(0, 20, cwnd), (20, 60, loss)]);
}

#[test]
fn old_spans_are_forgotten_except_the_last() {
    let pause = Pause::new();
    for (before_ns, count) in [(20 * MS, 2), (20 * MS + 1, 1), (90 * MS, 1)] {
        let mut flights = Flights::new(CONNECTION, true, true);
        flights.packet(&pause.first, pause.before, &Acks::default(), SEGMENT, AWAY_NS, 0);
        for (time_ns, last_ack) in [(20 * MS, pause.after.last_ack), (40 * MS, None), (60 * MS, pause.after.last_ack)] {
            let last_ack = last_ack.map(|ack| LastAck { answer_ns: time_ns, ..ack });
            let next = Observation { time_ns, left_of_pdu: Some(9000), ..pause.next };
            flights.packet(
                &next,
                SenderState { owin: 5000, last_ack, ..pause.after },
                &Acks::default(),
                SEGMENT,
                AWAY_NS,
                0,
            );
        }
        assert_eq!(flights.limited(&WindowScale::default()).count(), 2);
        flights.forget(before_ns);
        assert_eq!(flights.limited(&WindowScale::default()).count(), count, "before {before_ns} ns");
    }
}

#[test]
fn between_pdus_a_full_window_holds_what_was_asked_for_before() {
    let after = |is_full: bool, has_request: bool| {
        with(|pause| {
            pause.first.left_of_pdu = None;
            pause.before.is_window_full = is_full;
            // no ACK came when the sender went on
            pause.ack().answer_ns = 20 * MS - 2 * WITHIN_NS;
            pause.request_ns = has_request.then_some(15 * MS);
        })
    };
    assert_eq!(after(true, false), (OWN_TIME, Some(part::RECEIVE_WINDOW)));
    assert_eq!(after(false, false), (OWN_TIME, None));
    assert_eq!(after(true, true), (REQUEST, None));
}
