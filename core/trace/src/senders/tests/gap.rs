//! What ended a pause, and what limited the sender, condition by condition.

use super::*;
use crate::senders::ack_clock::InFlight;
use crate::senders::gap::{Gap, Held};
use crate::senders::held::Spans;
use crate::senders::sender_state::{LastAck, SenderNs, SenderState};
use crate::senders::stop::Stop;
use crate::senders::timeline::Limited;
use crate::senders::window_scale::WindowScale;

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
    has_lost: bool,
    is_done: bool,
    is_near: bool,
    echo_within_ns: Option<i64>,
}

impl Pause {
    fn new() -> Self {
        let mut talk = Conversation::without_syn();
        let first = talk.packet(0, 0, 0, 1000, Some(0));
        let next = talk.packet(20 * MS, 0, 1000, 1000, Some(0));
        let before = SenderState { owin: 5000, pipe: 5000, rwnd: Some(60_000), ..SenderState::default() };
        let ack = LastAck { answer: SenderNs::of_packet(20 * MS), is_advance: true, has_opened_window: false, owin: 0 };
        Self {
            first: Observation { left_of_pdu: Some(9000), ..first },
            before,
            next,
            after: SenderState { owin: 1000, last_ack: Some(ack), ..before },
            request_ns: None,
            has_lost: false,
            is_done: false,
            is_near: true,
            echo_within_ns: None,
        }
    }

    fn ack(&mut self) -> &mut LastAck {
        self.after.last_ack.as_mut().unwrap()
    }

    fn stop(&self) -> Stop {
        let Observation { time_ns, length, left_of_pdu, left_of_burst, .. } = self.first;
        let end = self.first.end();
        Stop {
            time_ns,
            length,
            state: self.before,
            flight: InFlight { end, una: end - self.before.owin, ..InFlight::default() },
            is_within_pdu: left_of_pdu.is_some(),
            left: left_of_pdu.map(i64::from),
            left_of_burst: i64::from(left_of_burst),
            small_end: if i64::from(length) < SEGMENT { end } else { 0 },
            ..Stop::default()
        }
    }

    fn gap<'a>(&'a self, stop: &'a Stop) -> Gap<'a> {
        Gap {
            stop,
            seen: &self.next,
            has_request: self.request_ns.is_some_and(|time_ns| time_ns <= self.next.time_ns),
            ack: self.after.last_ack,
            known: self.next.end().max(self.first.end()) - self.after.owin,
            is_in_recovery: self.after.is_in_recovery,
            has_lost: self.has_lost,
            is_done: self.is_done,
            is_near: self.is_near,
            echo_within_ns: self.echo_within_ns,
            segment: SEGMENT,
            rtt_ns: AWAY_NS,
        }
    }

    fn note(&self, spans: &mut Spans) -> u8 {
        let stop = self.stop();
        let gap = self.gap(&stop);
        spans.note(&gap, gap.held(), true);
        gap.release()
    }

    /// What can have held the sender.
    fn may_be(&self) -> Option<u8> {
        let stop = self.stop();
        self.gap(&stop).may_be_held().map(|held| held.part)
    }

    /// What ended the pause, and the part that limited the sender during it.
    fn judge(&self) -> (u8, Option<u8>) {
        let mut spans = Spans::default();
        let release = self.note(&mut spans);
        let limited = all(&spans).first().copied();
        if let Some(limited) = limited {
            assert_eq!((limited.from_ns, limited.to_ns), (self.first.time_ns, self.next.time_ns));
        }
        (release, limited.map(|limited| limited.part))
    }
}

/// The spans, if nothing is known of the window scale.
fn all(spans: &Spans) -> Vec<Limited> {
    spans.iter(&WindowScale::default(), true).collect()
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
fn far_away_the_first_echo_of_an_ack_may_answer_it_later() {
    let late = |late_ns: i64, echo_within_ns| {
        with(|pause| {
            pause.next.time_ns = 20 * MS + late_ns;
            pause.echo_within_ns = echo_within_ns;
        })
    };
    // and within an eighth of the gap of 22.8 ms
    let most_ns = 20 * MS / 7;
    assert_eq!([late(most_ns, Some(MS * 3)).0, late(most_ns + 1, Some(MS * 3)).0], [ACKNOWLEDGMENT, OWN_TIME]);
    let within_ns = WITHIN_NS + MS / 4;
    assert_eq!(late(within_ns, Some(within_ns)).0, ACKNOWLEDGMENT);
    assert_eq!(late(within_ns + 1, Some(within_ns)).0, OWN_TIME);
    assert_eq!(late(within_ns, None).0, OWN_TIME);
}

#[test]
fn beside_a_busy_sender_an_answer_comes_within_a_64th_of_the_gap() {
    let late = |late_ns: i64, is_near| {
        with(|pause| {
            pause.ack().answer = SenderNs::of_packet(630 * MS);
            pause.next.time_ns = 630 * MS + late_ns;
            pause.is_near = is_near;
        })
        .0
    };
    // of 640 ms
    assert_eq!([late(10 * MS, true), late(10 * MS + 200_000, true)], [ACKNOWLEDGMENT, OWN_TIME]);
    assert_eq!(late(10 * MS, false), OWN_TIME, "a path in between may hold an ACK back for as long");
}

#[test]
fn an_ack_from_before_the_previous_packet_released_nothing() {
    let answered = |answer_ns: i64| {
        with(|pause| {
            pause.next.time_ns = MS;
            pause.ack().answer = SenderNs::of_packet(answer_ns);
        })
    };
    assert_eq!(answered(1 - WITHIN_NS), (OWN_TIME, Some(part::CONGESTION_WINDOW)));
    assert_eq!(answered(-WITHIN_NS), (OWN_TIME, None));
}

#[test]
fn an_ack_that_the_sender_had_before_released_nothing() {
    let had = |ack_ns: i64| {
        with(|pause| {
            pause.next.time_ns = MS;
            pause.ack().answer = SenderNs::default();
            // what it knew at its last packet, and whether that was all
            pause.after.owin = if ack_ns == 0 { 1000 + pause.before.owin } else { 1000 };
            pause.before.last_ack =
                pause.after.last_ack.map(|ack| LastAck { answer: SenderNs::of_packet(ack_ns), ..ack });
        })
    };
    assert_eq!(had(-MS), (ACKNOWLEDGMENT, Some(part::CONGESTION_WINDOW)));
    assert_eq!(had(0), (OWN_TIME, None));
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
        pause.ack().answer = SenderNs::of_packet(20 * MS - WITHIN_NS - 1);
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
fn a_small_window_holds_no_pdu_without_data_that_it_has_room_for() {
    let again = |room: i64, left_of_pdu: Option<u32>| {
        let mut pause = Pause::new();
        (pause.next.class, pause.next.length) = (SegmentClass::Retransmission, 48);
        (pause.first.left_of_pdu, pause.before.is_window_full) = (left_of_pdu, true);
        let stop = Stop { room: Some(room), ..pause.stop() };
        pause.gap(&stop).held().map(|held| held.part)
    };
    assert_eq!([again(48, None), again(47, None)], [Some(part::LOSS_RECOVERY), Some(part::RECEIVE_WINDOW)]);
    assert_eq!(again(48, Some(9000)), Some(part::RECEIVE_WINDOW));
}

#[test]
fn nothing_waits_for_a_retransmission_when_all_is_done() {
    let again = |is_done: bool| {
        let verdict = with(|pause| {
            pause.next.class = SegmentClass::Retransmission;
            pause.is_done = is_done;
        });
        verdict.1
    };
    assert_eq!([again(true), again(false)], [None, Some(part::LOSS_RECOVERY)]);
}

#[test]
fn beside_its_sender_a_super_segment_waits_until_the_window_has_room_for_all_of_it() {
    let long = |room: i64, is_near: bool| {
        let pause = Pause { is_near, ..Pause::new() };
        let next = Observation { length: 4 * SEGMENT as u32, ..pause.next };
        let stop = Stop { room: Some(room), ..pause.stop() };
        let gap = Gap {
            stop: &stop,
            seen: &next,
            has_request: false,
            ack: pause.after.last_ack,
            known: next.end() - pause.after.owin,
            is_in_recovery: false,
            has_lost: false,
            is_done: false,
            is_near,
            echo_within_ns: None,
            segment: SEGMENT,
            rtt_ns: AWAY_NS,
        };
        gap.held().map(|held| held.part)
    };
    let (window, cwnd) = (Some(part::RECEIVE_WINDOW), Some(part::CONGESTION_WINDOW));
    assert_eq!([long(4 * SEGMENT - 1, true), long(4 * SEGMENT, true)], [window, cwnd]);
    // hosts and switches on the way join segments
    assert_eq!(long(4 * SEGMENT - 1, false), cwnd);
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
fn far_away_the_path_held_the_rest_of_a_pdu_that_no_ack_let_out() {
    let late = |is_near: bool, is_within_pdu: bool| {
        with(|pause| {
            pause.is_near = is_near;
            pause.after.last_ack = None;
            pause.first.left_of_pdu = pause.first.left_of_pdu.filter(|_| is_within_pdu);
        })
    };
    assert_eq!(late(false, true), (OWN_TIME, Some(part::PROPAGATION)));
    // beside the sender a host is seen to pause, and between PDUs it may have had nothing to send
    assert_eq!([late(true, true), late(false, false)], [(OWN_TIME, None); 2]);
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
    let silent = |pause_ns: i64, has_lost: bool| {
        let verdict = with(|pause| {
            pause.has_lost = has_lost;
            pause.next.time_ns = pause_ns;
            pause.after.last_ack = None;
        });
        verdict.1
    };
    assert_eq!(silent(190 * MS, false), Some(part::LOSS_RECOVERY));
    assert_eq!(silent(190 * MS - 1, false), None);
    // after a loss, two RTTs are enough
    assert_eq!(silent(40 * MS, true), Some(part::LOSS_RECOVERY));
    assert_eq!(silent(40 * MS - 1, true), None);
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
fn a_short_segment_that_ends_within_the_data_of_a_pdu_shows_a_full_socket_and_no_nagle() {
    let after = |length: u32, left: u32| {
        let verdict = with(|pause| {
            (pause.first.length, pause.first.left_of_pdu) = (length, Some(left));
            (pause.next.offset, pause.next.length, pause.after.owin) = (i64::from(length), left, i64::from(left));
        });
        verdict.1
    };
    let (nagle, window) = (Some(part::ACK_WAIT), Some(part::CONGESTION_WINDOW));
    assert_eq!(after(400, 48), window);
    // a program writes a digest after the data, and the data after the header
    assert_eq!([after(400, 7), after(400, 8)], [nagle, window]);
    assert_eq!([after(48, 400), after(53, 400)], [nagle, window]);
}

#[test]
fn pauses_in_a_row_with_one_cause_are_one_span() {
    let cwnd = part::CONGESTION_WINDOW;
    let spans = |causes: [Option<u8>; 3]| {
        let mut spans = Spans::default();
        for (number, cause) in (0..).zip(causes) {
            let mut pause = Pause::new();
            (pause.first.time_ns, pause.next.time_ns) = (number * 20 * MS, (number + 1) * 20 * MS);
            pause.ack().answer = SenderNs::of_packet(pause.next.time_ns);
            match cause {
                None => pause.after.last_ack = None,
                Some(part::LOSS_RECOVERY) => pause.next.class = SegmentClass::Retransmission,
                _ => {}
            }
            pause.note(&mut spans);
        }
        all(&spans).iter().map(|span| (span.from_ns / MS, span.to_ns / MS, span.part)).collect::<Vec<_>>()
    };
    assert_eq!(spans([Some(cwnd); 3]), [(0, 60, cwnd)]);
    assert_eq!(spans([Some(cwnd), None, Some(cwnd)]), [(0, 20, cwnd), (40, 60, cwnd)]);
    let loss = part::LOSS_RECOVERY;
    assert_eq!(spans([Some(cwnd), Some(loss), Some(loss)]), [(0, 20, cwnd), (20, 60, loss)]);
}

#[test]
fn a_gap_that_the_line_explains_ends_no_span() {
    let mut pause = Pause::new();
    let mut spans = Spans::default();
    let note = |pause: &Pause, spans: &mut Spans, is_pause: bool| {
        let stop = pause.stop();
        let gap = Gap {
            stop: &stop,
            seen: &pause.next,
            has_request: false,
            ack: pause.after.last_ack,
            known: pause.next.end() - pause.after.owin,
            is_in_recovery: false,
            has_lost: false,
            is_done: false,
            is_near: true,
            echo_within_ns: None,
            segment: SEGMENT,
            rtt_ns: AWAY_NS,
        };
        spans.note(&gap, gap.held(), is_pause);
    };
    note(&pause, &mut spans, false);
    for (number, has_ack) in [(1, false), (2, true)] {
        (pause.first.time_ns, pause.next.time_ns) = (number * 20 * MS, (number + 1) * 20 * MS);
        let ack = LastAck { answer: SenderNs::of_packet(pause.next.time_ns), ..*pause.ack() };
        let seen = Pause { after: SenderState { last_ack: has_ack.then_some(ack), ..pause.after }, ..pause };
        note(&seen, &mut spans, false);
        pause = Pause { after: SenderState { last_ack: Some(ack), ..seen.after }, ..seen };
    }
    assert_eq!(all(&spans).iter().map(|span| (span.from_ns / MS, span.to_ns / MS)).collect::<Vec<_>>(), [(0, 60)]);
}

#[test]
fn old_spans_are_forgotten_except_the_last() {
    for (before_ns, count) in [(20 * MS, 2), (20 * MS + 1, 1), (90 * MS, 1)] {
        let mut spans = Spans::default();
        for (number, has_ack) in [(0, true), (1, false), (2, true)] {
            let mut pause = Pause::new();
            (pause.first.time_ns, pause.next.time_ns) = (number * 20 * MS, (number + 1) * 20 * MS);
            pause.ack().answer = SenderNs::of_packet(pause.next.time_ns);
            pause.after.last_ack = pause.after.last_ack.filter(|_| has_ack);
            pause.note(&mut spans);
        }
        assert_eq!(all(&spans).len(), 2);
        spans.forget(before_ns);
        assert_eq!(all(&spans).len(), count, "before {before_ns} ns");
    }
}

#[test]
fn between_pdus_a_full_window_holds_what_was_asked_for_before() {
    let after = |is_full: bool, has_request: bool| {
        with(|pause| {
            pause.first.left_of_pdu = None;
            pause.before.is_window_full = is_full;
            // no ACK came when the sender went on
            pause.ack().answer = SenderNs::of_packet(20 * MS - 2 * WITHIN_NS);
            pause.request_ns = has_request.then_some(15 * MS);
        })
    };
    assert_eq!(after(true, false), (OWN_TIME, Some(part::RECEIVE_WINDOW)));
    assert_eq!(after(false, false), (OWN_TIME, None));
    assert_eq!(after(true, true), (REQUEST, None));
}

/// Between the PDUs of a burst, with an R2T of another command in the pause.
fn in_burst(change: impl Fn(&mut Pause)) -> Pause {
    let mut pause = Pause::new();
    (pause.first.left_of_pdu, pause.first.left_of_burst, pause.request_ns) = (None, 50_000, Some(10 * MS));
    change(&mut pause);
    pause
}

#[test]
fn between_the_pdus_of_a_burst_a_sender_has_more_to_send() {
    let cwnd = (ACKNOWLEDGMENT, Some(part::CONGESTION_WINDOW));
    assert_eq!(in_burst(|_| ()).judge(), cwnd);
    // data follow the header, which Nagle's algorithm does not hold then
    let header = |pause: &mut Pause| (pause.next.length, pause.after.owin) = (48, 48);
    assert_eq!(in_burst(header).judge(), cwnd);
    assert_eq!(in_burst(|pause| pause.first.left_of_burst = 0).judge(), (REQUEST, None));
}

#[test]
fn a_full_socket_may_hold_what_was_asked_for_before_the_request_of_the_pause() {
    let between = |change: fn(&mut Pause)| {
        let pause = in_burst(|pause| {
            (pause.first.left_of_burst, pause.after.owin) = (0, 3000);
            change(pause);
        });
        let stop = pause.stop();
        pause.gap(&stop).may_be_held()
    };
    let held = Some(Held { part: part::SEND_BUFFER, needs_queue: true });
    assert_eq!(between(|_| ()), held);
    // nothing in flight, an ACK that let nothing out, or all acknowledged
    assert_eq!(between(|pause| pause.before.owin = 0), None);
    assert_eq!(between(|pause| pause.after.last_ack = None), None);
    assert_eq!(between(|pause| pause.after.owin = 1000), None);
}

#[test]
fn an_unexplained_pause_within_an_rtt_may_be_a_full_sockets_within_a_burst() {
    let unanswered = |length_ns: i64| {
        move |pause: &mut Pause| {
            pause.after.last_ack = None;
            pause.next.time_ns = pause.first.time_ns + length_ns;
        }
    };
    for (length_ns, is_possible) in [(AWAY_NS, true), (AWAY_NS + 1, false)] {
        // beside the sender its host shows
        let mut within = Pause::new();
        unanswered(length_ns)(&mut within);
        assert_eq!((within.judge().1, within.may_be()), (None, None));
        let between = in_burst(unanswered(length_ns));
        assert_eq!((between.judge().1, between.may_be()), (None, is_possible.then_some(part::SEND_BUFFER)));
    }
    let idle = in_burst(|pause| {
        unanswered(MS)(pause);
        pause.before.owin = 0;
    });
    assert_eq!(idle.may_be(), None);
    let no_burst = in_burst(|pause| {
        unanswered(MS)(pause);
        pause.first.left_of_burst = 0;
    });
    assert_eq!(no_burst.may_be(), None, "the initiator answers an R2T");
    // a pause that an ACK ended within an RTT may be longer
    let late = in_burst(|pause| pause.next.time_ns = 20 * MS + AWAY_NS);
    assert_eq!((late.judge().1, late.may_be()), (None, Some(part::SEND_BUFFER)));
}

#[test]
fn without_nagles_algorithm_a_sender_waited_for_another_reason_or_not_at_all() {
    let parts = |left_of_pdu: Option<u32>| {
        let mut pause = Pause::new();
        // 200 bytes, all that was in flight before them is acknowledged
        pause.next.length = 200;
        pause.first.left_of_pdu = left_of_pdu;
        pause.after.owin = 200;
        let mut spans = Spans::default();
        pause.note(&mut spans);
        [true, false]
            .map(|has_nagle| spans.iter(&WindowScale::default(), has_nagle).map(|span| span.part).collect::<Vec<_>>())
    };
    assert_eq!(parts(Some(200)), [vec![part::ACK_WAIT], vec![part::CONGESTION_WINDOW]]);
    assert_eq!(parts(None), [vec![part::ACK_WAIT], vec![]]);
}

#[test]
fn four_small_segments_beside_others_in_flight_show_that_there_is_no_nagle() {
    let waits = |pairs: i64| {
        let mut talk = Conversation::begin();
        for pair in 0..pairs {
            let ms = 100 + 40 * pair;
            talk.piece(ms * MS, 100, None, 0);
            talk.piece(ms * MS, 100, None, 0);
            let ack = talk.packet((ms + 20) * MS, 1, 0, 0, Some(talk.highest));
            talk.see(ack);
        }
        // the header of a PDU, and the rest when that is acknowledged
        talk.piece(1000 * MS, 48, Some(300), 0);
        let ack = talk.packet(1020 * MS, 1, 0, 0, Some(talk.highest));
        talk.see(ack);
        talk.piece(1020 * MS, 300, None, 0);
        talk.limited().into_iter().filter(|span| span.0 == 1000).map(|span| span.2).collect::<Vec<_>>()
    };
    assert_eq!(waits(3), [part::ACK_WAIT]);
    assert_eq!(waits(4), [part::CONGESTION_WINDOW]);
}
