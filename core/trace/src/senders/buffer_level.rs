//! The level at which a full send buffer stops a sender.
//!
//! It looks like a congestion window, but it does not grow.

use super::stop::Stop;
use serde::{Deserialize, Serialize};

/// After so many rounds without growth before any loss, a level is not the congestion window, which would have grown: by
/// at least half a segment a round (CUBIC's Reno-friendly region, RFC 9438 section 4.3). It is the send buffer's.
const ROUNDS_MAX: u32 = 12;
/// A round counts if its peak was a stop with so many segments left of the PDU: all of a command or burst that is in
/// flight is a level, too.
pub const LEFT_MIN: i64 = 3;
/// How much fits into a send buffer varies by this part.
const PARTS: i64 = 8;

/// The levels of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct BufferLevel {
    /// The current level, where it began, and the rounds without growth.
    level: i64,
    first: i64,
    rounds: u32,
    /// Whether the current round has a stop, and one at its peak with enough left.
    is_judged: bool,
    has_stop: bool,
    /// The level of a full send buffer, and whether the sender reaches it at present.
    ceiling: Option<i64>,
    is_at_ceiling: bool,
}

impl BufferLevel {
    /// Whether the full send buffer holds the sender at present.
    pub fn is_full(&self) -> bool {
        self.is_at_ceiling
    }

    /// Whether the send buffer caused a stop. The congestion window is larger then, until something reduces it.
    pub fn holds(&mut self, pipe: i64, segment: i64) -> bool {
        match self.ceiling {
            Some(ceiling) if pipe > ceiling + segment => (self.ceiling, self.is_at_ceiling) = (None, false),
            Some(ceiling) => self.is_at_ceiling |= pipe >= ceiling - segment,
            None => {}
        }
        self.is_at_ceiling
    }

    /// A stop that the congestion window or the send buffer caused, in a round with this peak so far.
    pub fn note(&mut self, stop: &Stop, peak: i64, segment: i64) {
        self.is_judged = true;
        self.has_stop &= stop.flight.pipe <= peak + segment;
        self.has_stop |= stop.flight.pipe >= peak - segment && stop.left.is_some_and(|left| left >= LEFT_MIN * segment);
    }

    /// A round with this peak ended: whether a level began with it.
    pub fn end_round(&mut self, peak: i64, segment: i64, is_before_loss: bool) -> bool {
        let has_stop = std::mem::take(&mut self.has_stop);
        if !std::mem::take(&mut self.is_judged) || !is_before_loss {
            return false;
        }
        if peak > self.level + segment / 2 {
            self.level = peak;
            self.rounds = 0;
            // how much fits into a send buffer varies a little: the same level
            let begins = peak > self.first + self.first / PARTS;
            if begins {
                self.first = peak;
            }
            return begins;
        }
        self.rounds += u32::from(peak >= self.level - segment && has_stop);
        if self.rounds >= ROUNDS_MAX {
            (self.ceiling, self.is_at_ceiling) = (Some(self.level), true);
        }
        false
    }

    /// The congestion window was reduced, or may have been.
    pub fn reduce(&mut self) {
        *self = Self { is_judged: self.is_judged, has_stop: self.has_stop, ceiling: self.ceiling, ..Self::default() };
    }
}
