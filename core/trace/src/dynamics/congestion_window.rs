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

/// The end of a burst.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stop {
    /// The pipe, with every segment counted as a full one.
    pub pipe: i64,
    /// Whether it ended within a PDU.
    pub is_within_pdu: bool,
    /// Whether the receiver's window had no room for a segment.
    pub is_window_limited: bool,
    /// Whether a recovery was in progress: the window then follows the pipe (RFC 6937).
    pub is_in_recovery: bool,
}

/// The events between the end of a burst and the next packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Between {
    /// Whether ACKs arrived.
    pub has_ack: bool,
    /// Whether a packet arrived that may be a request.
    pub has_request: bool,
    /// Time from the first ACK to the answer.
    pub answer_ns: i64,
    /// Time from the last ACK before the stop to the first after it.
    pub calm_ns: i64,
    /// Whether the next packet came later than the line explains.
    pub is_pause: bool,
    /// Whether the pause is long compared with the variation of the delay between tap and sender.
    pub is_long_pause: bool,
    /// Whether the next packet carries new data: a retransmission may have become due only now.
    pub is_new: bool,
}

/// After so many rounds without growth, a level is not the congestion window, which would have grown.
const LEVEL_ROUNDS_MAX: u32 = 12;

/// A window that grows by more than this part in a round is only accepted if the sender paused and had answered every
/// ACK: a slow sender, or a queue before the tap, hides the growth.
const GROWTH_PARTS: i64 = 8;
/// The initial window (RFC 6928): before any loss none is smaller.
const INITIAL_SEGMENTS: i64 = 10;
/// Weight of a sample in the usual answer time: one part in this many.
const SMOOTHING: i64 = 8;

/// The estimate for one sender.
#[derive(Debug, Default)]
pub struct CongestionWindow {
    /// The sender's usual time to answer an ACK.
    answer_ns: i64,
    /// Whether the receiver's window was full in the current round, and in the one before.
    is_window_full: [bool; 2],
    /// The largest pipes of the current round and of the two before.
    peaks: [i64; 3],
    /// The round ends when this byte is acknowledged.
    round_end: i64,
    /// The current level, and the rounds without growth.
    level: i64,
    level_rounds: u32,
    is_level_judged: bool,
    has_reduced: bool,
    /// A level that something else than the congestion window caused.
    ceiling: Option<i64>,
    /// The largest estimate since the last possible reduction: the window does not shrink without a reason.
    shown: i64,
    estimate: Option<i64>,
    is_growing: bool,
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
        let has_more = stop.is_within_pdu || (between.is_new && !between.has_request);
        let is_held = between.has_ack
            && has_more
            && between.is_pause
            && between.answer_ns <= patience_ns
            && !stop.is_window_limited
            && !self.is_window_full.contains(&true)
            && stop.pipe > 0
            && self.ceiling.is_none_or(|ceiling| (stop.pipe - ceiling).abs() > segment);
        if !is_held {
            return None;
        }
        if stop.is_in_recovery {
            self.estimate = Some(stop.pipe);
            return self.estimate;
        }
        self.is_level_judged = true;
        self.peaks[0] = self.peaks[0].max(stop.pipe);
        let estimate = self.peaks[0].max(self.peaks[1]);
        let least = if self.has_reduced { 0 } else { INITIAL_SEGMENTS * segment };
        if estimate < least || estimate < self.shown - self.shown / GROWTH_PARTS {
            return None;
        }
        self.shown = self.shown.max(estimate);
        let is_growing = estimate - self.peaks[2] > self.peaks[2] / GROWTH_PARTS;
        self.is_growing = is_growing;
        if is_growing && (between.calm_ns < 2 * self.answer_ns || !between.is_long_pause) {
            return None;
        }
        self.estimate = Some(estimate);
        Some(estimate)
    }

    /// Notes that the receiver's window is full.
    pub fn fill_window(&mut self) {
        self.is_window_full[0] = true;
    }

    /// Notes an ACK up to `una`, with bytes sent up to `sent`. True if a round ended.
    pub fn acknowledge(&mut self, una: i64, sent: i64, segment: i64) -> bool {
        if una < self.round_end {
            return false;
        }
        self.round_end = sent;
        if self.is_level_judged && !self.has_reduced {
            self.note_level(segment);
        }
        self.is_level_judged = false;
        self.peaks = [0, self.peaks[0], self.peaks[1]];
        self.is_window_full = [false, self.is_window_full[0]];
        true
    }

    fn note_level(&mut self, segment: i64) {
        let peak = self.peaks[0];
        if peak > self.level + segment / 2 {
            self.level = peak;
            self.level_rounds = 0;
            return;
        }
        self.level_rounds += 1;
        if self.level_rounds >= LEVEL_ROUNDS_MAX {
            self.ceiling = Some(self.level);
        }
    }

    /// The window was reduced, or may have been: earlier observations no longer apply.
    pub fn reduce(&mut self) {
        self.peaks = [0; 3];
        self.shown = 0;
        self.level = 0;
        self.level_rounds = 0;
    }

    /// A loss: from now on a level can be CUBIC's plateau.
    pub fn lose(&mut self) {
        self.reduce();
        self.has_reduced = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: i64 = 1000;
    const PATIENCE_NS: i64 = 500;
    /// A sender that answers its first ACK at once, after a pause.
    const HELD: Between = Between {
        has_ack: true,
        has_request: false,
        answer_ns: 0,
        calm_ns: 1000,
        is_pause: true,
        is_long_pause: true,
        is_new: true,
    };

    fn stop(segments: i64) -> Stop {
        Stop { pipe: segments * SEGMENT, ..Stop::default() }
    }

    /// Judges a stop at so many segments; the estimate in segments.
    fn judge(cwnd: &mut CongestionWindow, stop: Stop, between: Between) -> Option<i64> {
        cwnd.judge(stop, between, PATIENCE_NS, SEGMENT).map(|bytes| bytes / SEGMENT)
    }

    /// The next round begins.
    fn round(cwnd: &mut CongestionWindow) {
        let end = cwnd.round_end;
        assert!(cwnd.acknowledge(end, end + SEGMENT, SEGMENT));
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
        cwnd.fill_window();
        assert_eq!(judge(&mut cwnd, stop(20), HELD), None);
        round(&mut cwnd);
        assert_eq!(judge(&mut cwnd, stop(20), HELD), None);
        round(&mut cwnd);
        assert_eq!(judge(&mut cwnd, stop(20), HELD), Some(20));
    }

    #[test]
    fn during_a_recovery_the_window_is_the_pipe() {
        let mut cwnd = CongestionWindow::default();
        let recovering = Stop { is_in_recovery: true, ..stop(3) };
        assert_eq!(judge(&mut cwnd, recovering, HELD), Some(3));
        assert_eq!(cwnd.latest(), Some(3 * SEGMENT));
    }

    #[test]
    fn a_round_ends_when_what_was_in_flight_is_acknowledged() {
        let mut cwnd = CongestionWindow::default();
        assert!(cwnd.acknowledge(0, 5000, SEGMENT));
        assert!(!cwnd.acknowledge(4999, 9000, SEGMENT));
        assert!(cwnd.acknowledge(5000, 9000, SEGMENT));
        assert!(!cwnd.acknowledge(8999, 9000, SEGMENT));
    }

    #[test]
    fn a_level_of_twelve_rounds_is_not_the_congestion_window() {
        for (rounds, found) in [(12, Some(20)), (13, None)] {
            let mut cwnd = CongestionWindow::default();
            // the first round sets the level; half a segment more is the same level
            for number in 0..rounds {
                let more = if number == 5 { SEGMENT / 2 } else { 0 };
                judge(&mut cwnd, Stop { pipe: 20 * SEGMENT + more, ..Stop::default() }, HELD);
                round(&mut cwnd);
            }
            // later rounds without a stop say nothing
            round(&mut cwnd);
            round(&mut cwnd);
            assert_eq!(judge(&mut cwnd, stop(20), HELD), found, "{rounds} rounds");
            // a segment beyond the level is within its reach, more is not
            assert_eq!(judge(&mut cwnd, stop(21), HELD), found.map(|_| 21));
            assert_eq!(judge(&mut cwnd, stop(22), HELD), Some(22));
        }
    }

    #[test]
    fn growth_starts_the_count_of_rounds_anew() {
        let mut cwnd = CongestionWindow::default();
        for number in 0..13 {
            judge(&mut cwnd, stop(if number < 6 { 20 } else { 21 }), HELD);
            round(&mut cwnd);
        }
        assert_eq!(judge(&mut cwnd, stop(21), HELD), Some(21));
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
