//! When the receiver's window held a sender that is far from the tap, at the time of the sender.
//!
//! Pauses at a far tap are not those of the sender: queues and hosts on the way make others. TCP timestamps tell when each
//! packet was sent, and with which ACKs: it echoes the newest (RFC 7323, section 4.3).
//!
//! ```text
//!   in flight  ________ window
//!             /|  /| /|           the window has no room for a segment: it holds the sender,
//!            / |_/ |/ |___        until a third of it is free, or there is nothing more to send
//! ```
//!
//! A sender may wait for room for a burst, up to a third of the window (Linux's tcp_tso_win_divisor). It waited for the
//! window only if it had more than the window allowed: bytes beyond its right edge follow, without a request in between.
//! What happens before the window was full is no wait for it: the congestion window or the send buffer may be smaller.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use iscsitrace_wire::serial::SerialNumber;

use super::acks::{Echoed, Tick};
use super::observation::Observation;
use super::sender_state::Delays;
use super::sent_clock::{SentClock, TICK_NS};
use super::timeline::Limited;
use crate::tables::budget_part;

/// A sender that the window holds may go on only when one part in so many of it is free.
pub const FREE_PARTS: i64 = 3;
/// Maximum number of waits that later bytes have to confirm.
const WAITS_MAX: usize = 1024;

/// A span in which the window held the sender.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Held {
    from_ns: i64,
    to_ns: i64,
    frame: u64,
    /// The right edge of the window.
    edge: i64,
}

/// The circumstances of a packet of new data.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// Whether the sender had more to send after the packet before.
    pub had_more: bool,
    /// Payload of a full segment.
    pub segment: i64,
    /// The window scale; none before the first window.
    pub shift: Option<u8>,
    /// The delays of its path.
    pub delays: Delays,
    /// An answer may follow its ACK by this time.
    pub patience_ns: i64,
}

/// The holds of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct WindowHold {
    clock: SentClock,
    is_held: bool,
    /// The end of what was sent before a retransmission: the congestion window may be smaller since, unless the
    /// receiver's window is full again before all of that is acknowledged.
    doubt: Option<i64>,
    sent: i64,
    /// When the last packet was sent.
    last_ns: Option<i64>,
    /// Its delay beyond that of the fastest packet, to half a tick.
    late_ns: Option<i64>,
    waits: VecDeque<Held>,
    spans: Vec<Held>,
    timed_since_ns: Option<i64>,
}

impl WindowHold {
    /// A packet of new data is sent, in the order of the stream.
    pub fn send(&mut self, seen: &Observation, echoed: &Echoed, sent: Sent) {
        let Some((value, echo)) = seen.timestamps else { return self.end() };
        let echo = SerialNumber(echo);
        let before = echoed.before(echo);
        let sent_ns = self.clock.note(value, seen.time_ns, sent.delays.round_trip_ns);
        self.late_ns = sent_ns.map(|sent_ns| seen.time_ns.saturating_sub(sent_ns).saturating_sub(TICK_NS / 2).max(0));
        // it answers an ACK that came later: else the clock of the timestamps was set, or one of them is wrong
        let sent_ns = sent_ns.filter(|&sent_ns| before.is_none_or(|before| sent_ns >= before.time_ns));
        if sent_ns.is_some() {
            self.timed_since_ns.get_or_insert(seen.time_ns);
        }
        let last_ns = std::mem::replace(&mut self.last_ns, sent_ns);
        let Some(shift) = sent.shift else { return };
        if !sent.had_more {
            self.end();
        }
        // before the ACKs that may have let it go, and after all that it can have had
        let (Some(before), Some(latest)) = (before, echoed.latest(echo)) else {
            return self.end();
        };
        // less than a segment is not sent while more is to come (RFC 9293, section 3.8.6.2.1)
        let is_open = |tick: Tick, offset: i64| {
            let (window, edge) = tick.window(shift);
            edge - offset >= sent.segment && (edge - offset) * FREE_PARTS >= window
        };
        // a sender that the window held goes on with the ACK that opens it
        let waited_ns = sent_ns.map_or(0, |sent_ns| sent_ns - latest.time_ns - sent.delays.to_sender_ns);
        let is_late = is_open(latest, seen.offset) && waited_ns > sent.patience_ns;
        self.is_held &= !is_open(before, seen.offset) && !is_late;
        let (_, edge) = before.window(shift);
        if let (true, Some(from_ns), Some(to_ns)) = (self.is_held, last_ns, sent_ns)
            && from_ns < to_ns
            && self.waits.len() < WAITS_MAX
        {
            self.waits.push_back(Held { from_ns, to_ns, frame: seen.frame, edge });
        }
        if self.doubt.is_some_and(|point| latest.acknowledged >= point) {
            self.end();
        }
        let (_, edge) = latest.window(shift);
        let room = edge - seen.end();
        self.is_held = room < sent.segment || (self.is_held && !is_open(latest, seen.end()));
        if room < sent.segment {
            self.doubt = None;
        }
        self.sent = seen.end();
        while let Some(&wait) = self.waits.front()
            && self.doubt.is_none()
            && wait.edge < self.sent
        {
            self.waits.pop_front();
            self.confirm(wait);
        }
    }

    fn confirm(&mut self, wait: Held) {
        match self.spans.last_mut() {
            Some(last) if last.to_ns == wait.from_ns => {
                (last.to_ns, last.frame) = (wait.to_ns, wait.frame);
            }
            _ => self.spans.push(wait),
        }
    }

    /// A retransmission: a loss reduces the congestion window.
    pub fn retransmit(&mut self) {
        self.doubt.get_or_insert(self.sent);
    }

    /// The window no longer holds the sender.
    fn end(&mut self) {
        (self.is_held, self.doubt) = (false, None);
        self.waits.clear();
    }

    /// The inferred window scale grew: the window had room.
    pub fn widen(&mut self) {
        self.end();
        self.spans.clear();
    }

    /// From when on it is known when the window held the sender.
    pub fn timed_since_ns(&self) -> Option<i64> {
        self.timed_since_ns
    }

    /// The delay of the last packet of new data beyond that of the fastest one, where timestamps tell.
    pub fn late_ns(&self) -> Option<i64> {
        self.late_ns
    }

    /// When it did, in the time of the tap. Unknown while nothing proves an inferred scale.
    pub fn limited(&self, is_scale_proven: bool) -> impl Iterator<Item = Limited> + '_ {
        let part = if is_scale_proven { budget_part::RECEIVE_WINDOW } else { budget_part::UNKNOWN };
        self.spans.iter().map(move |&Held { from_ns, to_ns, frame, .. }| Limited {
            from_ns,
            to_ns,
            part,
            frame,
            needs_queue: false,
        })
    }

    /// Removes spans from before, except the last, which may go on.
    pub fn forget(&mut self, before_ns: i64) {
        let count = self.spans.iter().take_while(|span| span.to_ns < before_ns).count();
        self.spans.drain(..count.min(self.spans.len().saturating_sub(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::senders::acks::Acks;
    use crate::senders::sent_clock::TICK_NS as MS;
    use crate::stream::class::SegmentClass;

    const SEGMENT: i64 = 1000;
    const WINDOW: u16 = 12_000;
    /// The RTT; the tap stands beside the receiver.
    const PATH_MS: i64 = 20;
    const PATIENCE_MS: i64 = PATH_MS / 2 + 1;

    /// A sender of 1 s of single segments, which then begins anew at 2 s with nothing in flight. Times are in ms; those of
    /// the sender as its packets would pass the tap without a queue.
    struct Far {
        hold: WindowHold,
        acks: Acks,
        sent: i64,
        had_more: bool,
        window: u16,
    }

    impl Far {
        fn begin() -> Self {
            Self::begin_with(0)
        }

        /// The timestamp of its third segment is ahead by this.
        fn begin_with(ahead_ms: i64) -> Self {
            let mut far =
                Self { hold: WindowHold::default(), acks: Acks::default(), sent: 0, had_more: false, window: WINDOW };
            for ms in (0..=1000).step_by(100) {
                far.ack(ms, far.sent / SEGMENT);
                let wrong_ms = if ms == 200 { ahead_ms } else { 0 };
                far.send(ms + PATH_MS + wrong_ms, ms + PATH_MS, ms, 1);
                far.had_more = false;
            }
            far.ack(1980, far.sent / SEGMENT);
            let ack = far.packet(1981, 1981, 0);
            far.acks.push(&ack, far.sent, PATH_MS * MS);
            far
        }

        fn packet(&self, time_ms: i64, value_ms: i64, echo_ms: i64) -> Observation {
            Observation {
                frame: 1,
                class: SegmentClass::New,
                offset: self.sent,
                length: SEGMENT as u32,
                window: self.window,
                window_scale: Some(0),
                is_sack_permitted: Some(true),
                timestamps: Some((u32::try_from(value_ms).unwrap(), u32::try_from(echo_ms).unwrap())),
                ..Observation::bare(time_ms * MS, 1)
            }
        }

        /// The receiver acknowledges so many segments.
        fn ack(&mut self, ms: i64, segments: i64) {
            let ack = self.packet(ms, ms, 0);
            self.acks.push(&ack, segments * SEGMENT, PATH_MS * MS);
        }

        /// Segments sent at once, that pass the tap at `tap_ms`; the ACKs of `echo_ms` are the last that their sender had.
        fn send(&mut self, sent_ms: i64, tap_ms: i64, echo_ms: i64, count: i64) {
            for _ in 0..count {
                let path_ns = PATH_MS * MS;
                let delays =
                    Delays { to_sender_ns: path_ns, least_ns: path_ns, round_trip_ns: path_ns, ..Delays::default() };
                let (had_more, patience_ns) = (self.had_more, PATIENCE_MS * MS);
                let sent = Sent { had_more, segment: SEGMENT, shift: Some(0), delays, patience_ns };
                let seen = self.packet(tap_ms, sent_ms, echo_ms);
                self.sent += SEGMENT;
                self.acks.note_echo(&seen);
                self.hold.send(&seen, self.acks.echoed(), sent);
                self.had_more = true;
            }
        }

        /// The spans of the receiver's window, in ms.
        fn spans(&self) -> Vec<(i64, i64)> {
            self.hold.limited(true).map(|span| (span.from_ns / MS, span.to_ns / MS)).collect()
        }
    }

    /// The window of 12 segments is filled at 2000; what was acknowledged before.
    fn filled() -> (Far, i64) {
        let mut far = Far::begin();
        let before = far.sent / SEGMENT;
        far.send(2000, 2000, 1981, 12);
        (far, before)
    }

    #[test]
    fn a_full_window_holds_its_sender_whatever_queues_on_the_way_do() {
        for queue_ms in [0, 3, 9] {
            let (mut far, before) = filled();
            for (ms, acknowledged) in [(2005, 2), (2008, 4), (2012, 6)] {
                far.ack(ms, before + acknowledged);
                far.send(ms + PATH_MS, ms + PATH_MS + queue_ms, ms, 2);
            }
            assert_eq!(far.spans(), [(2000, 2032)], "{queue_ms} ms");
        }
    }

    #[test]
    fn a_sender_may_wait_for_a_third_of_the_window() {
        // three segments are free before the last ACK, or four
        for (free, spans) in [(3, vec![(2000, 2031)]), (4, vec![])] {
            let (mut far, before) = filled();
            far.ack(2010, before + free);
            far.ack(2011, before + 6);
            far.send(2031, 2031, 2011, 6);
            assert_eq!(far.spans(), spans, "{free} segments");
        }
    }

    #[test]
    fn a_third_of_a_window_is_no_room_where_it_is_less_than_a_segment() {
        // a window of 1.8 segments: 0.8 of it is free with each segment in flight
        let mut far = Far::begin();
        far.window = 1800;
        let before = far.sent / SEGMENT;
        far.ack(1981, before);
        far.send(2001, 2001, 1981, 1);
        for round in 1..4 {
            let ms = 1981 + round * PATH_MS;
            far.ack(ms, before + round);
            far.send(ms + PATH_MS, ms + PATH_MS, ms, 1);
        }
        assert_eq!(far.spans(), [(2001, 2061)]);
    }

    #[test]
    fn a_window_with_room_for_a_segment_was_never_full() {
        let mut far = Far::begin();
        let before = far.sent / SEGMENT;
        // the congestion window, or the send buffer, has 11 segments
        far.send(2000, 2000, 1981, 11);
        for ms in 2005..2015 {
            far.ack(ms, before + ms - 2004);
            far.send(ms + PATH_MS, ms + PATH_MS, ms, 1);
        }
        assert_eq!(far.spans(), []);
    }

    #[test]
    fn a_host_that_pauses_after_the_window_opened_is_not_held() {
        for (pause_ms, spans) in [(PATIENCE_MS, vec![(2000, 2036)]), (PATIENCE_MS + 1, vec![])] {
            let (mut far, before) = filled();
            far.ack(2005, before + 12);
            let sent_ms = 2005 + PATH_MS + pause_ms;
            far.send(sent_ms, sent_ms, 2005, 5);
            assert_eq!(far.spans(), spans, "{pause_ms} ms");
        }
    }

    #[test]
    fn what_the_window_had_room_for_did_not_wait_for_it() {
        // two segments are free before the last ACK; that many follow, or one more
        for (count, spans) in [(2, vec![]), (3, vec![(2000, 2026)])] {
            let (mut far, before) = filled();
            far.ack(2005, before + 2);
            far.ack(2006, before + 3);
            far.send(2026, 2026, 2006, count);
            far.had_more = false;
            far.ack(2030, before + 12 + count);
            far.send(2100, 2100, 2030, 12);
            assert_eq!(far.spans(), spans, "{count} segments");
        }
    }

    #[test]
    fn a_request_is_no_end_of_a_wait() {
        let (mut far, before) = filled();
        far.ack(2005, before + 12);
        far.had_more = false;
        far.send(2025, 2025, 2005, 12);
        assert_eq!(far.spans(), []);
    }

    #[test]
    fn a_loss_ends_it_unless_the_window_is_full_again_within_the_round() {
        let after = |count: i64| {
            let (mut far, before) = filled();
            far.ack(2005, before + 2);
            far.hold.retransmit();
            far.send(2025, 2025, 2005, count);
            // the round is over; three segments of room
            far.ack(2045, before + 11 + count);
            far.ack(2046, before + 12 + count);
            far.send(2066, 2066, 2046, 11);
            far.spans()
        };
        assert_eq!(after(2), [(2000, 2025)]);
        assert_eq!(after(1), []);
    }

    #[test]
    fn without_timestamps_it_is_unknown() {
        let mut hold = WindowHold::default();
        assert_eq!(hold.timed_since_ns(), None);
        let far = Far::begin();
        let delays = Delays::default();
        let sent = Sent { had_more: true, segment: SEGMENT, shift: Some(0), delays, patience_ns: 0 };
        hold.send(&Observation { timestamps: None, ..far.packet(0, 0, 0) }, far.acks.echoed(), sent);
        assert_eq!(hold.timed_since_ns(), None);
    }

    #[test]
    fn a_wrong_timestamp_before_the_clock_is_known_puts_no_wait_into_another_time() {
        // half an hour ahead
        let mut far = Far::begin_with(1_800_000);
        let before = far.sent / SEGMENT;
        far.send(2000, 2000, 1981, 12);
        for round in 1..400 {
            let ms = 2000 + 5 * round;
            far.ack(ms, before + 2 * round);
            far.send(ms + PATH_MS, ms + PATH_MS, ms, 2);
        }
        let spans = far.spans();
        assert!(!spans.is_empty());
        assert!(spans.iter().all(|&(from_ms, to_ms)| 2000 <= from_ms && to_ms <= 4020), "{spans:?}");
    }

    #[test]
    fn an_inferred_scale_has_to_be_proven_and_a_larger_one_held_nothing() {
        let (mut far, before) = filled();
        far.ack(2005, before + 2);
        far.send(2025, 2025, 2005, 2);
        let parts: Vec<_> = far.hold.limited(false).map(|span| span.part).collect();
        assert_eq!(parts, [budget_part::UNKNOWN]);
        far.hold.widen();
        assert_eq!(far.spans(), []);
    }

    #[test]
    fn the_last_span_is_never_forgotten() {
        let (mut far, before) = filled();
        far.ack(2005, before + 2);
        far.send(2025, 2025, 2005, 2);
        far.hold.forget(i64::MAX);
        assert_eq!(far.spans(), [(2000, 2025)]);
    }
}
