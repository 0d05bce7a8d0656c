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

#[cfg(test)]
mod tests {
    use super::*;

    /// What the scale is, and whether it had to grow, after a packet that ends so far beyond an ACK.
    fn after(known: Option<u8>, beyond: i64, window: u16, length: u32) -> (bool, u8) {
        let mut scale = WindowScale { known, inferred: 0, has_window: true };
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
    fn nothing_is_known_before_the_first_window() {
        let mut scale = WindowScale::default();
        assert_eq!((scale.note_outstanding(8000, 1000, 100), scale.found()), (false, None));
    }
}
