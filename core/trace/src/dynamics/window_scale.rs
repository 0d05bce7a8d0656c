//! The shift of a window field whose SYN was not captured: the least that explains what was sent.
//!
//! It never goes down again.

use super::acknowledgments::Acknowledgment;

/// The largest shift (RFC 7323, section 2.3).
const SHIFT_MAX: u8 = 14;
/// Probes of a closed window may lie beyond it.
const PROBE_BYTES: u32 = 1;

/// The scale of what one receiver advertises.
#[derive(Debug, Default)]
pub struct WindowScale {
    known: Option<u8>,
    inferred: u8,
    has_window: bool,
}

impl WindowScale {
    /// The window of a packet in bytes, as far as is known.
    #[inline]
    pub fn bytes(&mut self, ack: &Acknowledgment) -> i64 {
        if ack.window_scale.is_some() {
            self.known = ack.window_scale;
        }
        self.has_window = true;
        i64::from(ack.window) << ack.window_scale.unwrap_or(self.inferred)
    }

    /// A packet ends so far beyond what the latest ACK acknowledged, which advertised `window`; true when the shift has
    /// to be larger than was thought.
    #[inline]
    pub fn note_outstanding(&mut self, beyond: i64, window: u16, length: u32) -> bool {
        if self.known.is_some() || !self.has_window || window == 0 || length <= PROBE_BYTES {
            return false;
        }
        let before = self.inferred;
        while i64::from(window) << self.inferred < beyond && self.inferred < SHIFT_MAX {
            self.inferred += 1;
        }
        self.inferred > before
    }

    /// Whether the shift is not known.
    pub fn is_inferred(&self) -> bool {
        self.known.is_none()
    }

    /// The shift that is inferred; 0 when it is known.
    pub fn inferred(&self) -> u8 {
        if self.known.is_some() { 0 } else { self.inferred }
    }

    /// The shift, and whether it is inferred; none when nothing was advertised.
    pub fn found(&self) -> Option<(u8, bool)> {
        self.has_window.then(|| (self.known.unwrap_or(self.inferred), self.known.is_none()))
    }
}
