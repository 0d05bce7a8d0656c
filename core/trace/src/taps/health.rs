//! How complete each capture is: what settles where packets stayed that nothing else tells of.
//!
//! A capture that misses packets does not choose which. If it provably missed none, and would hardly have missed only those
//! in doubt, none of them with payload, then the network lost these.

use super::verdict::Verdict;

/// Greatest probability that a capture missed the packets in doubt, and none with payload.
const CHANCE_MAX: f64 = 0.01;

/// What both captures saw, and missed.
#[derive(Debug, Default)]
pub(super) struct Health {
    matched: u64,
    matched_with_payload: u64,
    /// By tap: packets that its capture missed.
    missing: [u64; 2],
    /// By tap: packets that its capture missed, or the network lost on the way there.
    doubtful: [u64; 2],
}

impl Health {
    #[inline]
    pub(super) fn note_matched(&mut self, has_payload: bool) {
        self.matched += 1;
        self.matched_with_payload += u64::from(has_payload);
    }

    /// Notes a packet that only `tap` saw.
    pub(super) fn note_unmatched(&mut self, tap: usize, verdict: Verdict) {
        let other = 1 - tap;
        self.missing[other] += u64::from(verdict == Verdict::missing_at(other));
        self.doubtful[other] += u64::from(verdict == Verdict::LostUnlessMissed);
    }

    /// Where the packets in doubt stayed that this tap has not seen.
    pub(super) fn unless_missed(&self, tap: usize) -> Verdict {
        if self.missing[tap] > 0 || self.matched == 0 {
            return Verdict::CannotTell;
        }
        let without_payload = 1.0 - self.matched_with_payload as f64 / self.matched as f64;
        let doubtful = i32::try_from(self.doubtful[tap]).unwrap_or(i32::MAX);
        if without_payload.powi(doubtful) < CHANCE_MAX { Verdict::LostInNetwork } else { Verdict::CannotTell }
    }
}
