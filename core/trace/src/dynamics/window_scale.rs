//! The window scale when the SYNs were not captured: the smallest that explains the bytes in flight.
//!
//! It never decreases.

use super::acknowledgments::Acknowledgment;

/// The maximum shift (RFC 7323, section 2.3).
const SHIFT_MAX: u8 = 14;
/// Window probes can exceed the window by one byte.
const PROBE_BYTES: u32 = 1;

/// The window scale of one receiver.
#[derive(Debug, Default)]
pub struct WindowScale {
    known: Option<u8>,
    inferred: u8,
    has_window: bool,
}

impl WindowScale {
    /// The window of an ACK in bytes, with the known or inferred scale.
    #[inline]
    pub fn bytes(&mut self, ack: &Acknowledgment) -> i64 {
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
        self.inferred > before
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
