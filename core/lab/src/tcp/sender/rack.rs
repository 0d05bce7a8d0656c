//! RACK (RFC 8985): a segment is lost when one sent sufficiently later has arrived.
//!
//! The reordering window is nothing until reordering is seen and three segments are sacked, which is the classic
//! threshold of three duplicate ACKs; a quarter of the shortest round trip afterwards. It never retransmits.

use super::Sender;
use super::recovery::State;
use super::scoreboard::{Judgement, Sent};
use super::timer::Timer;

/// Segments sacked above a hole that make it a loss (RFC 5681, section 3.2).
const DUP_THRESH: u32 = 3;
/// The largest degree of reordering that is believed.
const REORDERING_MOST: u32 = 300;
/// Recoveries that a widened reordering window lasts.
const WIDENED_RECOVERIES: u8 = 16;
/// Least wait for reordering, in microseconds.
const TIMEOUT_MIN_US: i64 = 2_000;

/// What RACK knows.
#[derive(Debug)]
pub struct Rack {
    /// When the segment sent last, of those delivered, was sent, and its end.
    latest: (i64, i64),
    round_trip_us: i64,
    has_advanced: bool,
    is_reordering_seen: bool,
    /// Segments by which packets were seen to overtake each other.
    pub reordering: u32,
    steps: i64,
    persists: u8,
    is_duplicate_seen: bool,
    widened_at: i64,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            latest: (0, 0),
            round_trip_us: 0,
            has_advanced: false,
            is_reordering_seen: false,
            reordering: DUP_THRESH,
            steps: 1,
            persists: 0,
            is_duplicate_seen: false,
            widened_at: 0,
        }
    }
}

impl Rack {
    /// A segment was delivered (RFC 8985, section 6.2, steps 1 and 2).
    pub fn delivered(&mut self, now_ns: i64, sent: &Sent, least_round_trip_us: i64) {
        let round_trip_us = (now_ns - sent.sent_ns) / 1000;
        // Too soon after a retransmission: it was the first transmission that arrived.
        if sent.was_retransmitted && round_trip_us < least_round_trip_us {
            return;
        }
        self.has_advanced = true;
        self.round_trip_us = round_trip_us;
        self.latest = self.latest.max((sent.sent_ns, sent.end));
    }

    /// Something arrived that others overtook by `segments`.
    pub fn reordered(&mut self, segments: u32) {
        self.reordering = self.reordering.max(segments.min(REORDERING_MOST));
        self.is_reordering_seen = true;
    }

    /// A retransmission was in vain (RFC 8985, section 6.2, step 4).
    pub fn duplicate_seen(&mut self) {
        self.is_duplicate_seen = true;
    }

    /// Looks again at the next ACK, though nothing new was delivered.
    pub fn look_again(&mut self) {
        self.has_advanced = true;
    }

    /// A recovery ended.
    pub fn recovery_ended(&mut self) {
        self.persists = self.persists.saturating_sub(1);
    }

    /// A retransmission in vain widens the window by a quarter of the shortest round trip, once in a round trip.
    pub fn adapt(&mut self, snd_una: i64, snd_nxt: i64) {
        if self.is_duplicate_seen && snd_una >= self.widened_at {
            self.steps = (self.steps + 1).min(255);
            self.persists = WIDENED_RECOVERIES;
            self.widened_at = snd_nxt;
        } else if self.persists == 0 {
            self.steps = 1;
        }
        self.is_duplicate_seen = false;
    }
}

impl Sender {
    /// Marks what is lost now (RFC 8985, section 6.2, step 5); waits for what may be lost soon, and says so.
    pub(super) fn mark_lost_by_time(&mut self, now_ns: i64) -> bool {
        if !self.rack.has_advanced {
            return false;
        }
        self.rack.has_advanced = false;
        let Some(wait_us) = self.detect_losses(now_ns) else { return false };
        self.timer = Some((Timer::Reordering, now_ns + (wait_us + TIMEOUT_MIN_US) * 1000));
        true
    }

    /// Marks what is lost now; gives the longest wait for what is not yet.
    fn detect_losses(&mut self, now_ns: i64) -> Option<i64> {
        let (round_trip_us, window_us, latest) =
            (self.rack.round_trip_us, self.reordering_window_us(), self.rack.latest);
        let mut wait_us = None;
        self.board.judge_by_time(|sent| {
            if latest <= (sent.sent_ns, sent.end) {
                return Judgement::Stop;
            }
            let remaining_us = round_trip_us + window_us - (now_ns - sent.sent_ns) / 1000;
            if remaining_us <= 0 {
                return Judgement::Lost;
            }
            wait_us = wait_us.max(Some(remaining_us));
            Judgement::NotYet
        });
        wait_us
    }

    /// How late a segment may be (RFC 8985, section 6.2, step 4).
    fn reordering_window_us(&self) -> i64 {
        let is_recovering = matches!(self.recovery.state, State::Recovery | State::Loss);
        if !self.rack.is_reordering_seen && (is_recovering || self.board.sacked_count >= self.rack.reordering) {
            return 0;
        }
        if self.round_trip.least_us == i64::MAX {
            return 0;
        }
        ((self.round_trip.least_us >> 2) * self.rack.steps).min(self.round_trip.srtt_us())
    }

    /// Whether the segment was sent longer than a round trip ago.
    pub(super) fn is_overdue(&self, now_ns: i64, sent: &Sent) -> bool {
        (now_ns - sent.sent_ns) / 1000 >= self.rack.round_trip_us
    }

    /// The wait for reordering is over.
    pub(super) fn reordering_timed_out(&mut self, now_ns: i64) {
        let (pipe, lost) = (self.board.pipe(), self.board.lost_total);
        // What may still be late is judged at the next ACK, or by the timeout: Linux waits but once.
        self.detect_losses(now_ns);
        if pipe != self.board.pipe() {
            if self.recovery.state != State::Recovery {
                self.enter_recovery();
                let newly_lost = self.board.lost_total - lost;
                self.reduce_window(1, newly_lost, false);
            }
            self.retransmit_lost(now_ns);
        }
        if !matches!(self.timer, Some((Timer::Retransmission, _))) {
            self.rearm_retransmission(now_ns);
        }
    }
}
