//! An estimate of the congestion window from the sender's behaviour.
//!
//! A sender with more to send, and a receive window that allows it, stops when its pipe fills the congestion window. That
//! it had more to send shows later, if it continues with the next ACK without a request in between. So each burst is
//! judged when the next one starts.
//!
//! ```text
//!   burst | stop ....... ACK -> next burst: answers it at once? had more? window open?   then pipe at the stop = cwnd
//! ```
//!
//! There is no estimate where the congestion window did not limit the sender.

use super::buffer_level::BufferLevel;
use super::steadiness::Steadiness;
use super::stop::{Between, Stop};
use serde::{Deserialize, Serialize};

/// Rounds with a full receive window that show that the congestion window is larger.
const BEYOND_ROUNDS_MIN: u32 = 3;
/// A receiver's window that is wider than any full one by more than this part of it need not be smaller than the congestion
/// window: receivers widen it as data arrive.
const WIDER_PARTS: i64 = 4;

/// A window that grows by more than this part in a round is only accepted if the sender paused and had answered every
/// ACK: a slow sender, or a queue before the tap, hides the growth.
const GROWTH_PARTS: i64 = 8;
/// The initial window (RFC 6928): before any loss none is smaller.
const INITIAL_SEGMENTS: i64 = 10;
/// Weight of a sample in the usual answer time: one part in this many.
const SMOOTHING: i64 = 8;

/// A round that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Whether more was in flight than in all rounds before.
    pub begins_level: bool,
}

/// The estimate for one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct CongestionWindow {
    /// The sender's usual time to answer an ACK.
    answer_ns: i64,
    /// Whether the receiver's window was full in the current round, and in the one before.
    is_window_full: [bool; 2],
    /// Rounds since the last possible reduction in which it was, and the largest window that was full then.
    full_rounds: u32,
    largest_full: i64,
    /// The largest pipes of the current round and of the two before.
    peaks: [i64; 3],
    /// The round ends when this byte is acknowledged.
    round_end: i64,
    /// Whether a loss reduced it, and that was not undone; and whether there was any loss.
    has_reduced: bool,
    has_lost: bool,
    buffer: BufferLevel,
    estimate: Option<i64>,
    is_growing: bool,
    steadiness: Steadiness,
}

impl CongestionWindow {
    /// The latest estimate, whether still valid or not.
    pub fn latest(&self) -> Option<i64> {
        self.estimate
    }

    /// Whether the window grew by half or more in two rounds: slow start doubles it in each.
    pub fn is_slow_start(&self) -> bool {
        let latest = self.peaks[0].max(self.peaks[1]);
        !self.has_reduced && latest > 0 && latest >= self.peaks[2] + self.peaks[2] / 2
    }

    /// Whether the window of the latest estimate grows much with each ACK.
    pub fn is_growing(&self) -> bool {
        self.is_growing
    }

    /// Judges the previous burst: the estimate, if the congestion window ended it.
    pub fn judge(&mut self, stop: Stop, between: Between, patience_ns: i64, segment: i64) -> Option<i64> {
        if between.has_ack && between.answer_ns <= patience_ns {
            self.answer_ns += (between.answer_ns - self.answer_ns) / SMOOTHING;
        }
        self.steadiness.stop(stop.flight.pipe, stop.state.is_in_recovery);
        let is_open = !stop.is_window_limited && !self.is_window_full();
        let is_ended_by_ack = between.has_ack && between.is_pause && is_open;
        if is_ended_by_ack && stop.has_more() && !stop.state.is_in_recovery {
            self.steadiness.wait(&stop, &between, segment);
        }
        let is_held = is_ended_by_ack
            && between.has_more(&stop)
            && stop.leaves_segments(segment)
            && stop.flight.pipe > 0
            && between.answer_ns <= patience_ns;
        if !is_held || self.buffer.holds(stop.flight.pipe, segment) {
            return None;
        }
        if stop.state.is_in_recovery {
            self.estimate = Some(stop.flight.pipe);
            return self.estimate;
        }
        self.steadiness.hold(stop.flight.pipe);
        self.buffer.note(&stop, self.peaks[0], segment);
        self.peaks[0] = self.peaks[0].max(stop.flight.pipe);
        let estimate = self.peaks[0].max(self.peaks[1]);
        let least = if self.has_reduced { 0 } else { INITIAL_SEGMENTS * segment };
        let most = self.steadiness.most();
        if estimate < least || estimate < most - most / GROWTH_PARTS {
            return None;
        }
        let is_growing = estimate - self.peaks[2] > self.peaks[2] / GROWTH_PARTS;
        self.is_growing = is_growing;
        if is_growing && (between.calm_ns < 2 * self.answer_ns || !between.is_long_pause) {
            return None;
        }
        self.estimate = Some(estimate);
        Some(estimate)
    }

    /// A packet of a sender far from the tap: it may have stopped there, which a queue on the way hides.
    pub fn pass_far(&mut self, stop: &Stop, segment: i64, slack: i64) {
        if !stop.is_window_limited && !stop.state.is_in_recovery {
            self.buffer.note_far(stop, segment, slack);
            self.buffer.holds(stop.flight.pipe, segment);
        }
    }

    /// Whether the stops can be those of a congestion window.
    pub fn is_steady(&self) -> bool {
        self.steadiness.is_steady()
    }

    /// Whether the sender waits for room in its send buffer.
    pub fn has_full_buffer(&self) -> bool {
        self.steadiness.has_full_buffer()
    }

    /// See [`Steadiness::buffer_level`].
    pub fn buffer_level(&self) -> Option<i64> {
        self.steadiness.buffer_level()
    }

    /// Whether the receiver's window was full in this round or the one before.
    pub fn is_window_full(&self) -> bool {
        self.is_window_full.contains(&true)
    }

    /// Whether the congestion window is larger than this window of the receiver: that was full again and again since it can
    /// have shrunk, and grew little since then.
    pub fn is_beyond_window(&self, window: i64) -> bool {
        self.full_rounds >= BEYOND_ROUNDS_MIN && window - window / WIDER_PARTS <= self.largest_full
    }

    /// Notes that the receiver's window is full.
    pub fn fill_window(&mut self, window: i64) {
        self.is_window_full[0] = true;
        self.largest_full = self.largest_full.max(window);
    }

    /// Whether the full send buffer holds the sender at present.
    pub fn is_at_ceiling(&self) -> bool {
        self.buffer.is_full()
    }

    /// Notes an ACK up to `una`, with bytes sent up to `sent`: whether a round ended, and with it a level began.
    pub fn acknowledge(&mut self, una: i64, sent: i64, segment: i64) -> Option<Round> {
        if una < self.round_end {
            return None;
        }
        self.round_end = sent;
        self.steadiness.end_round(segment);
        // after a loss a level can be CUBIC's plateau
        let begins_level = self.buffer.end_round(self.peaks[0], segment, !self.has_lost);
        self.peaks = [0, self.peaks[0], self.peaks[1]];
        self.full_rounds += u32::from(self.is_window_full[0]);
        self.is_window_full = [false, self.is_window_full[0]];
        Some(Round { begins_level })
    }

    /// The window was reduced, or may have been: earlier observations no longer apply.
    pub fn reduce(&mut self) {
        self.peaks = [0; 3];
        self.steadiness.reduce();
        self.buffer.reduce();
        (self.full_rounds, self.largest_full) = (0, 0);
    }

    /// A loss: from now on a level can be CUBIC's plateau.
    pub fn lose(&mut self) {
        self.steadiness.lose();
        self.reduce();
        (self.has_reduced, self.has_lost) = (true, true);
    }

    /// No loss reduced it: the sender undid what it had reduced. Not all senders undo, so a level can still be CUBIC's
    /// plateau.
    pub fn undo(&mut self) {
        self.has_reduced = false;
        self.steadiness.undo();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::senders::ack_clock::InFlight;

    const SEGMENT: i64 = 1000;
    const PATIENCE_NS: i64 = 500;
    /// A sender that answers its first ACK at once, after a pause.
    const HELD: Between = Between {
        has_ack: true,
        has_request: false,
        answer_ns: 0,
        calm_ns: 1000,
        is_pause: true,
        pause_ns: 1000,
        has_skipped: false,
        is_prompt: true,
        is_long_pause: true,
        is_new: true,
    };

    fn stop(segments: i64) -> Stop {
        Stop { flight: InFlight { pipe: segments * SEGMENT, ..InFlight::default() }, ..Stop::default() }
    }

    /// The same, with more of a PDU to send.
    fn deep(segments: i64) -> Stop {
        Stop { is_within_pdu: true, left: Some(2 * SEGMENT), ..stop(segments) }
    }

    /// Judges a stop at so many segments; the estimate in segments.
    fn judge(cwnd: &mut CongestionWindow, stop: Stop, between: Between) -> Option<i64> {
        cwnd.judge(stop, between, PATIENCE_NS, SEGMENT).map(|bytes| bytes / SEGMENT)
    }

    /// The next round begins.
    fn round(cwnd: &mut CongestionWindow) {
        let end = cwnd.round_end;
        assert!(cwnd.acknowledge(end, end + SEGMENT, SEGMENT).is_some());
    }

    #[test]
    fn a_stop_shows_the_window_only_if_the_window_can_have_caused_it() {
        let judged = |stop, between| judge(&mut CongestionWindow::default(), stop, between);
        assert_eq!(judged(stop(20), HELD), Some(20));
        assert_eq!(judged(stop(0), HELD), None);
        assert_eq!(judged(stop(20), Between { has_ack: false, ..HELD }), None);
        assert_eq!(judged(stop(20), Between { is_pause: false, ..HELD }), None);
        assert_eq!(judged(stop(20), Between { answer_ns: PATIENCE_NS, ..HELD }), Some(20));
        assert_eq!(judged(stop(20), Between { answer_ns: PATIENCE_NS + 1, ..HELD }), None);
        assert_eq!(judged(stop(20), Between { is_new: false, ..HELD }), None);
        assert_eq!(judged(stop(20), Between { has_request: true, ..HELD }), None);
        assert_eq!(judged(Stop { is_window_limited: true, ..stop(20) }, HELD), None);
        // within a PDU there was more to send in any case
        let within = Stop { is_within_pdu: true, ..stop(20) };
        assert_eq!(judged(within, Between { is_new: false, has_request: true, ..HELD }), Some(20));
    }

    #[test]
    fn before_a_loss_no_window_is_smaller_than_ten_segments() {
        let mut cwnd = CongestionWindow::default();
        assert_eq!(judge(&mut cwnd, stop(9), HELD), None);
        assert_eq!(judge(&mut cwnd, stop(10), HELD), Some(10));
        assert_eq!(cwnd.latest(), Some(10 * SEGMENT));
        cwnd.lose();
        assert_eq!(judge(&mut cwnd, stop(4), HELD), Some(4));
        assert_eq!(cwnd.latest(), Some(4 * SEGMENT));
        cwnd.lose();
        cwnd.undo();
        assert_eq!(judge(&mut cwnd, stop(9), HELD), None);
    }

    #[test]
    fn a_window_does_not_shrink_by_more_than_an_eighth_without_a_reason() {
        for (segments, found) in [(35, Some(35)), (34, None)] {
            let mut cwnd = CongestionWindow::default();
            assert_eq!(judge(&mut cwnd, stop(40), HELD), Some(40));
            // the peaks of this round and of the one before count
            round(&mut cwnd);
            assert_eq!(judge(&mut cwnd, stop(20), HELD), Some(40));
            round(&mut cwnd);
            round(&mut cwnd);
            assert_eq!(judge(&mut cwnd, stop(segments), HELD), found);
            cwnd.reduce();
            assert_eq!(judge(&mut cwnd, stop(20), HELD), Some(20));
        }
    }

    #[test]
    fn growth_by_more_than_an_eighth_needs_a_long_pause_and_calm() {
        for (segments, is_growing) in [(45, false), (46, true)] {
            let mut cwnd = CongestionWindow::default();
            judge(&mut cwnd, stop(40), HELD);
            assert!(cwnd.is_growing());
            round(&mut cwnd);
            round(&mut cwnd);
            let hurried = Between { is_long_pause: false, ..HELD };
            assert_eq!(judge(&mut cwnd, stop(segments), hurried), (!is_growing).then_some(segments));
            assert_eq!(cwnd.is_growing(), is_growing);
        }
        // the usual answer time is an eighth of 400: calm is twice as long
        for (calm_ns, found) in [(100, Some(20)), (99, None)] {
            let mut cwnd = CongestionWindow::default();
            assert_eq!(judge(&mut cwnd, stop(20), Between { answer_ns: 400, calm_ns, ..HELD }), found);
        }
    }

    #[test]
    fn a_full_receive_window_counts_for_this_round_and_the_next() {
        let mut cwnd = CongestionWindow::default();
        cwnd.fill_window(20 * SEGMENT);
        assert_eq!(judge(&mut cwnd, stop(20), HELD), None);
        round(&mut cwnd);
        assert_eq!(judge(&mut cwnd, stop(20), HELD), None);
        round(&mut cwnd);
        assert_eq!(judge(&mut cwnd, stop(20), HELD), Some(20));
    }

    #[test]
    fn a_window_that_was_full_in_three_rounds_is_smaller_than_the_congestion_window() {
        for (rounds, window, is_beyond) in [(2, 20, false), (3, 20, true), (3, 26, true), (3, 27, false)] {
            let mut cwnd = CongestionWindow::default();
            for _ in 0..rounds {
                cwnd.fill_window(20 * SEGMENT);
                cwnd.fill_window(10 * SEGMENT);
                round(&mut cwnd);
                round(&mut cwnd);
            }
            assert_eq!(cwnd.is_beyond_window(window * SEGMENT), is_beyond);
            cwnd.reduce();
            assert!(!cwnd.is_beyond_window(window * SEGMENT));
        }
    }

    #[test]
    fn during_a_recovery_the_window_is_the_pipe() {
        let mut cwnd = CongestionWindow::default();
        let mut recovering = stop(3);
        recovering.state.is_in_recovery = true;
        assert_eq!(judge(&mut cwnd, recovering, HELD), Some(3));
        assert_eq!(cwnd.latest(), Some(3 * SEGMENT));
    }

    #[test]
    fn a_round_ends_when_what_was_in_flight_is_acknowledged() {
        let mut cwnd = CongestionWindow::default();
        assert!(cwnd.acknowledge(0, 5000, SEGMENT).is_some());
        assert!(cwnd.acknowledge(4999, 9000, SEGMENT).is_none());
        assert!(cwnd.acknowledge(5000, 9000, SEGMENT).is_some());
        assert!(cwnd.acknowledge(8999, 9000, SEGMENT).is_none());
    }

    /// The first round sets the level; later ones without growth count.
    fn level(rounds: u32, stop: Stop) -> CongestionWindow {
        let mut cwnd = CongestionWindow::default();
        for number in 0..rounds {
            // half a segment more is the same level
            let more = if number == 5 { SEGMENT / 2 } else { 0 };
            judge(&mut cwnd, Stop { flight: InFlight { pipe: stop.flight.pipe + more, ..stop.flight }, ..stop }, HELD);
            round(&mut cwnd);
        }
        cwnd
    }

    #[test]
    fn a_level_of_twelve_rounds_is_that_of_the_send_buffer() {
        for (rounds, is_buffer) in [(12, false), (13, true)] {
            let mut cwnd = level(rounds, deep(20));
            assert_eq!(cwnd.is_at_ceiling(), is_buffer, "{rounds} rounds");
            // while the buffer is full, the congestion window is larger than what is in flight
            for segments in [20, 17, 21] {
                let expected = (!is_buffer).then_some(segments.max(20));
                assert_eq!(judge(&mut cwnd, deep(segments), HELD), expected, "{rounds} rounds");
            }
            // more than a segment beyond it, the level was another one
            assert_eq!(judge(&mut cwnd, deep(22), HELD), Some(22));
            assert!(!cwnd.is_at_ceiling());
        }
    }

    #[test]
    fn a_reduced_window_may_be_below_the_send_buffer_until_that_is_full_again() {
        let mut cwnd = level(13, deep(20));
        cwnd.reduce();
        assert_eq!(judge(&mut cwnd, deep(12), HELD), Some(12));
        assert_eq!(judge(&mut cwnd, deep(19), HELD), None);
        assert_eq!(judge(&mut cwnd, deep(12), HELD), None);
    }

    #[test]
    fn all_data_of_a_burst_in_flight_is_no_send_buffer() {
        let all = Stop { left: Some(0), ..deep(20) };
        assert!(!level(13, all).is_at_ceiling());
        assert!(!level(13, stop(20)).is_at_ceiling());
        // after a loss a level can be CUBIC's plateau, also where only some senders undo the reduction
        for is_undone in [false, true] {
            let mut cwnd = CongestionWindow::default();
            cwnd.lose();
            if is_undone {
                cwnd.undo();
            }
            for _ in 0..20 {
                judge(&mut cwnd, deep(20), HELD);
                round(&mut cwnd);
            }
            assert!(!cwnd.is_at_ceiling());
        }
    }

    #[test]
    fn a_level_that_varies_by_an_eighth_is_one() {
        let mut cwnd = CongestionWindow::default();
        let begins: Vec<_> = [16, 18, 19]
            .into_iter()
            .map(|segments| {
                judge(&mut cwnd, deep(segments), HELD);
                let end = cwnd.round_end;
                cwnd.acknowledge(end, end + SEGMENT, SEGMENT).unwrap().begins_level
            })
            .collect();
        assert_eq!(begins, [true, false, true]);
    }

    #[test]
    fn a_stop_with_less_than_two_segments_left_is_not_judged() {
        let judged = |left| judge(&mut CongestionWindow::default(), Stop { left, ..deep(20) }, HELD);
        assert_eq!(judged(Some(2 * SEGMENT)), Some(20));
        assert_eq!(judged(Some(2 * SEGMENT - 1)), None);
        // how much is left is unknown
        assert_eq!(judged(Some(0)), Some(20));
        assert_eq!(judged(None), Some(20));
    }

    #[test]
    fn growth_starts_the_count_of_rounds_anew() {
        let mut cwnd = CongestionWindow::default();
        for number in 0..13 {
            judge(&mut cwnd, deep(if number < 6 { 20 } else { 21 }), HELD);
            round(&mut cwnd);
        }
        assert!(!cwnd.is_at_ceiling());
    }

    #[test]
    fn slow_start_grows_by_half_in_two_rounds_before_any_loss() {
        for (segments, is_slow_start) in [(60, true), (59, false)] {
            let mut cwnd = CongestionWindow::default();
            assert!(!cwnd.is_slow_start(), "nothing is known");
            judge(&mut cwnd, stop(40), HELD);
            round(&mut cwnd);
            round(&mut cwnd);
            judge(&mut cwnd, stop(segments), HELD);
            assert_eq!(cwnd.is_slow_start(), is_slow_start);
            cwnd.lose();
            judge(&mut cwnd, stop(segments), HELD);
            assert!(!cwnd.is_slow_start());
        }
    }
}
