//! The window scale when the SYNs were not captured: the smallest that explains the bytes in flight.
//!
//! It never decreases.

use super::acks::Ack;
use serde::{Deserialize, Serialize};

/// The maximum shift (RFC 7323, section 2.3).
const SHIFT_MAX: u8 = 14;
/// Window probes can exceed the window by one byte.
const PROBE_BYTES: u32 = 1;
/// What a sender knew of its receiver's window, and when, is known to this part of the window.
pub const WINDOW_PARTS: i64 = 16;
/// Rounds that end at an inferred window and prove it: another limit is within a segment of it by chance in few
/// percent of the captures, and not for long.
const FULL_ROUNDS_MIN: u32 = 4;

/// The window scale of one receiver.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct WindowScale {
    known: Option<u8>,
    inferred: u8,
    has_window: bool,
    /// Rounds in which the sender stopped at the window with more to send, or well beyond it; and the byte that ends the
    /// latest.
    full_rounds: u32,
    beyond_rounds: u32,
    round_end: i64,
}

impl WindowScale {
    /// The window of an ACK in bytes, with the known or inferred scale.
    #[inline]
    pub fn bytes(&mut self, ack: &Ack) -> i64 {
        if ack.window_scale.is_some() {
            self.known = ack.window_scale;
        }
        self.has_window = true;
        i64::from(ack.window) << ack.window_scale.unwrap_or(self.inferred)
    }

    /// A packet ends `beyond` bytes after the latest ACK, which advertised `window`. True if the inferred scale had to
    /// grow.
    #[inline]
    pub fn note_outstanding(&mut self, beyond: i64, window: u16, length: u32) -> bool {
        if self.known.is_some() || !self.has_window || window == 0 || length <= PROBE_BYTES {
            return false;
        }
        let before = self.inferred;
        while i64::from(window) << self.inferred < beyond && self.inferred < SHIFT_MAX {
            self.inferred += 1;
        }
        if self.inferred > before {
            (self.full_rounds, self.beyond_rounds) = (0, 0);
        }
        self.inferred > before
    }

    /// The sender stopped with more to send at a full window, `beyond` bytes past it; `una` and `sent` are what is
    /// acknowledged and sent.
    pub fn note_stop(&mut self, beyond: i64, window: i64, una: i64, sent: i64) {
        if una >= self.round_end {
            let is_far = beyond > window / WINDOW_PARTS;
            *(if is_far { &mut self.beyond_rounds } else { &mut self.full_rounds }) += 1;
            self.round_end = sent;
        }
    }

    /// Whether the window is known to be what the sender stopped at: a sender that stops at an inferred window again and
    /// again shows that the scale is right.
    pub fn is_proven(&self) -> bool {
        self.known.is_some() || self.full_rounds >= FULL_ROUNDS_MIN.max(self.beyond_rounds)
    }

    /// Whether the scale is inferred.
    pub fn is_inferred(&self) -> bool {
        self.known.is_none()
    }

    /// The inferred shift; 0 if the scale is known.
    pub fn inferred(&self) -> u8 {
        if self.known.is_some() { 0 } else { self.inferred }
    }

    /// The shift, and whether it is inferred; none before the first window.
    pub fn found(&self) -> Option<(u8, bool)> {
        self.has_window.then(|| (self.known.unwrap_or(self.inferred), self.known.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the scale is, and whether it had to grow, after a packet that ends so far beyond an ACK.
    fn after(known: Option<u8>, beyond: i64, window: u16, length: u32) -> (bool, u8) {
        let mut scale = WindowScale { known, has_window: true, ..WindowScale::default() };
        (scale.note_outstanding(beyond, window, length), scale.inferred())
    }

    #[test]
    fn the_scale_is_the_smallest_that_holds_what_is_in_flight() {
        assert_eq!(after(None, 1000, 1000, 100), (false, 0));
        assert_eq!(after(None, 1001, 1000, 100), (true, 1));
        assert_eq!(after(None, 8000, 1000, 100), (true, 3));
        // RFC 7323: not above 14
        assert_eq!(after(None, i64::MAX, 1, 100), (true, 14));
        // known, a closed window, a probe of one byte
        assert_eq!(after(Some(2), 8000, 1000, 100), (false, 0));
        assert_eq!(after(None, 8000, 0, 100), (false, 0));
        assert_eq!(after(None, 8000, 1000, 1), (false, 0));
        assert_eq!(after(None, 8000, 1000, 2), (true, 3));
    }

    #[test]
    fn an_inferred_scale_is_proven_by_four_rounds_that_stop_at_the_window() {
        let proven = |full: i64, beyond: i64, repeats: i64| {
            let mut scale = WindowScale::default();
            for round in 0..full + beyond {
                // a sixteenth beyond the window is within what is known of it
                let past = if round < full { 1000 } else { 1001 };
                (0..repeats).for_each(|_| scale.note_stop(past, 16_000, round * 10, round * 10 + 10));
            }
            scale.is_proven()
        };
        assert_eq!([proven(3, 0, 1), proven(4, 0, 1), proven(2, 0, 20)], [false, true, false]);
        // a sender that is beyond the window as often shows that the scale is another
        assert_eq!([proven(9, 9, 1), proven(9, 10, 1)], [true, false]);
        let mut scale = WindowScale { full_rounds: 8, has_window: true, ..WindowScale::default() };
        assert!(scale.is_proven() && scale.note_outstanding(2000, 1000, 100) && !scale.is_proven());
        assert!(WindowScale { known: Some(0), ..WindowScale::default() }.is_proven());
    }

    #[test]
    fn nothing_is_known_before_the_first_window() {
        let mut scale = WindowScale::default();
        assert_eq!((scale.note_outstanding(8000, 1000, 100), scale.found()), (false, None));
    }
}
