//! RACK (RFC 8985): a segment is lost when one sent sufficiently later was delivered.
//!
//! The reordering window is 0 while no reordering was seen and three segments are sacked, the classic threshold of
//! three duplicate ACKs; else it starts at a quarter of the minimum RTT. It never retransmits.

use super::scoreboard::Sent;

/// Sacked segments above a hole that make it a loss (RFC 5681, section 3.2).
const DUP_THRESH: u32 = 3;
/// Largest degree of reordering, in segments.
const REORDERING_MOST: u32 = 300;
/// Recoveries that a widened reordering window lasts.
const WIDENED_RECOVERIES: u8 = 16;
/// The state of RACK.
#[derive(Debug)]
pub struct Rack {
    /// Of the delivered segment that was sent last: its send time and its end.
    pub(super) latest: (i64, i64),
    pub(super) round_trip_us: i64,
    pub(super) has_advanced: bool,
    pub(super) is_reordering_seen: bool,
    /// Degree of reordering seen, in segments.
    pub reordering: u32,
    pub(super) steps: i64,
    pub(super) persists: u8,
    pub(super) is_duplicate_seen: bool,
    pub(super) widened_at: i64,
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
        // Too soon after the retransmission: the original transmission arrived.
        if sent.was_retransmitted && round_trip_us < least_round_trip_us {
            return;
        }
        self.has_advanced = true;
        self.round_trip_us = round_trip_us;
        self.latest = self.latest.max((sent.sent_ns, sent.end));
    }

    /// Reordering by `segments` was seen.
    pub fn reordered(&mut self, segments: u32) {
        self.reordering = self.reordering.max(segments.min(REORDERING_MOST));
        self.is_reordering_seen = true;
    }

    /// A retransmission was spurious (RFC 8985, section 6.2, step 4).
    pub fn duplicate_seen(&mut self) {
        self.is_duplicate_seen = true;
    }

    /// Makes the next ACK run loss detection, even if nothing new was delivered.
    pub fn look_again(&mut self) {
        self.has_advanced = true;
    }

    /// A recovery ended.
    pub fn recovery_ended(&mut self) {
        self.persists = self.persists.saturating_sub(1);
    }

    /// A spurious retransmission widens the window by a quarter of the minimum RTT, at most once per RTT.
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
