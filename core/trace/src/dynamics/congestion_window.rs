//! The congestion window as the sending shows it.
//!
//! A sender that has more to send, and room in the receiver's window, stops when its pipe fills the congestion window.
//! Whether it had more to send shows later: it goes on in answer to the next ACK, without anybody having asked for more.
//! So each burst is judged when the next one begins.
//!
//! ```text
//!   burst | stop ....... ACK -> next burst: answers it at once? had more? window open?   then pipe at the stop = cwnd
//! ```
//!
//! It never guesses between: where the window did not hold the sender back, there is no estimate.

/// How a burst ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stop {
    /// The pipe, every segment counted as a full one.
    pub pipe: i64,
    /// Whether more of the same PDU had to come.
    pub is_within_pdu: bool,
    /// Whether the receiver's window left no room for a segment.
    pub is_window_limited: bool,
    /// Whether a loss was being repaired: the window then follows the pipe (RFC 6937).
    pub is_in_recovery: bool,
}

/// What happened between a stop and the next packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Between {
    /// ACKs arrived.
    pub has_ack: bool,
    /// So did a packet that may ask for something.
    pub has_request: bool,
    /// From the first ACK to the answer.
    pub answer_ns: i64,
    /// From the last ACK before the stop to the first after it.
    pub calm_ns: i64,
    /// Whether the next packet came later than the line alone would have it.
    pub is_pause: bool,
    /// Whether that pause is long beside what delays between tap and sender may differ by.
    pub is_long_pause: bool,
    /// Whether the next packet brings new data: what is sent again may have become due only now.
    pub is_new: bool,
}

/// A level that was held for so many rounds without growth is no congestion window: it would have grown.
const LEVEL_ROUNDS_MAX: u32 = 12;

/// A window that grows by more than this part in a round is followed only where the sender
/// paused, and had answered every ACK: a slow sender, or a queue between it and the tap, hides the growth.
const GROWTH_PARTS: i64 = 8;
/// The initial window (RFC 6928): before any loss none is smaller.
const INITIAL_SEGMENTS: i64 = 10;
/// The usual answer time follows a sample by this part.
const SMOOTHING: i64 = 8;

/// The estimate of one sender.
#[derive(Debug, Default)]
pub struct CongestionWindow {
    /// How long the sender usually takes to answer an ACK.
    answer_ns: i64,
    /// Whether the receiver's window was full in the round under way, and in the one before it.
    is_window_full: [bool; 2],
    /// Largest estimate of the round under way and of the two before it.
    peaks: [i64; 3],
    /// The round ends when this byte is acknowledged.
    round_end: i64,
    /// Segments of growth, and rounds without any.
    level: i64,
    level_rounds: u32,
    is_level_judged: bool,
    has_reduced: bool,
    /// A level that something else than the congestion window held.
    ceiling: Option<i64>,
    /// Largest estimate since the window may last have been reduced: without a reason it does not get smaller.
    shown: i64,
    estimate: Option<i64>,
    is_growing: bool,
}

impl CongestionWindow {
    /// The latest estimate, valid or not any more.
    pub fn latest(&self) -> Option<i64> {
        self.estimate
    }

    /// Whether the window was larger by half, or more, than two rounds before: slow start has it double in each.
    pub fn is_slow_start(&self) -> bool {
        let latest = self.peaks[0].max(self.peaks[1]);
        !self.has_reduced && latest > 0 && latest >= self.peaks[2] + self.peaks[2] / 2
    }

    /// Whether the latest estimate is of a window that an ACK changes by much.
    pub fn is_growing(&self) -> bool {
        self.is_growing
    }

    /// The burst before was the last that the congestion window held, or none: the window is what `stop` shows.
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

    /// The receiver's window is full.
    pub fn fill_window(&mut self) {
        self.is_window_full[0] = true;
    }

    /// Bytes up to `una` were acknowledged while those up to `sent` were outstanding; true when a round ended.
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

    /// The window was reduced, or may have been: what was seen before says nothing any more.
    pub fn reduce(&mut self) {
        self.peaks = [0; 3];
        self.shown = 0;
        self.level = 0;
        self.level_rounds = 0;
    }

    /// A loss: from now on a level may be CUBIC's plateau.
    pub fn lose(&mut self) {
        self.reduce();
        self.has_reduced = true;
    }
}
