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
