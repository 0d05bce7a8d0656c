//! When an ACK is sent: immediately, with every second full segment, or delayed (RFC 9293, section 3.8.6.3; RFC 5681,
//! section 4.2), as in Linux.
//!
//! ```text
//! quick      the first segments of a connection, and after duplicates: immediately
//! pingpong   data was sent soon after data arrived: ACKs wait to be piggybacked
//! else       when more than a full segment is unacknowledged; or after the ACK timeout, 40 ms at first
//! hole       immediately; from the fourth duplicate on one ACK per millisecond (SACK compression)
//! ```
//!
//! It never sends an ACK itself.

/// Least ACK timeout.
const ATO_MIN_NS: i64 = 40_000_000;
/// Longest delay of an ACK, and the longest while no data is expected to carry it.
const DELAY_MAX_NS: i64 = 200_000_000;
const INTERVAL_MAX_NS: i64 = 500_000_000;
/// Segments acknowledged at once when a connection begins.
const QUICK_MOST: u32 = 16;
/// Duplicate ACKs that are never held back (RFC 5681, section 3.2).
const DUPLICATES_AT_ONCE: u32 = 3;
/// Most ACKs that one compressed ACK replaces, and its longest delay.
const COMPRESSED_MOST: u32 = 44;
const COMPRESSION_MAX_NS: i64 = 1_000_000;

/// The ACK that is due, or will be.
#[derive(Debug)]
pub struct Acknowledgment {
    is_enabled: bool,
    /// An ACK is pending.
    pub is_owed: bool,
    /// It must not be delayed.
    is_urgent: bool,
    /// Small segments since the last ACK.
    small_count: u32,
    quick: u32,
    /// Data was sent soon after data arrived.
    pub is_pingpong: bool,
    /// The ACK timeout; 0 before the first data.
    ato_ns: i64,
    last_data_ns: i64,
    delay_until_ns: Option<i64>,
    compressed: u32,
    compress_until_ns: Option<i64>,
    duplicates_at: i64,
    duplicates: u32,
    /// The largest recent segment: a "full" one.
    pub full_segment: u32,
}

/// The state of the connection that the decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    /// Bytes received since the last ACK.
    pub unacknowledged: i64,
    /// The window would not shrink by an ACK now.
    pub is_window_open: bool,
    /// Data is queued behind a hole.
    pub has_holes: bool,
    /// Selective acknowledgments were negotiated.
    pub has_sack: bool,
    /// The next place expected.
    pub rcv_nxt: i64,
    /// The smoothed round trip; 0 when not known.
    pub srtt_us: i64,
}

impl Acknowledgment {
    /// No pending ACK.
    pub fn new(is_enabled: bool) -> Self {
        Self {
            is_enabled,
            is_owed: false,
            is_urgent: false,
            small_count: 0,
            quick: 0,
            is_pingpong: false,
            ato_ns: 0,
            last_data_ns: 0,
            delay_until_ns: None,
            compressed: 0,
            compress_until_ns: None,
            duplicates_at: 0,
            duplicates: 0,
            full_segment: 536,
        }
    }

    /// The next time an ACK is due.
    pub fn poll_timeout(&self) -> Option<i64> {
        match (self.delay_until_ns, self.compress_until_ns) {
            (Some(delay_ns), Some(compress_ns)) => Some(delay_ns.min(compress_ns)),
            (delay_ns, compress_ns) => delay_ns.or(compress_ns),
        }
    }

    /// Data arrived: updates the size of full segments and the time between segments.
    pub fn data_received(&mut self, now_ns: i64, length: u32, mss: u32, window: u32, rto_ns: i64) {
        self.is_owed = true;
        if length >= self.full_segment {
            self.full_segment = length.min(mss.max(88));
        } else {
            self.small_count += 1;
        }
        if self.ato_ns == 0 {
            self.quicken(QUICK_MOST, window);
            self.ato_ns = ATO_MIN_NS;
        } else {
            let gap_ns = now_ns - self.last_data_ns;
            if gap_ns <= ATO_MIN_NS / 2 {
                self.ato_ns = self.ato_ns / 2 + ATO_MIN_NS / 2;
            } else if gap_ns < self.ato_ns {
                self.ato_ns = (self.ato_ns / 2 + gap_ns).min(rto_ns);
            } else if gap_ns > rto_ns {
                // The sender may start again with a small window.
                self.quicken(QUICK_MOST, window);
            }
        }
        self.last_data_ns = now_ns;
    }

    /// The next segments are acknowledged immediately: half a window of them, at most `most`.
    fn quicken(&mut self, most: u32, window: u32) {
        let half = (window / (2 * self.full_segment.max(1))).max(2);
        self.quick = self.quick.max(half.min(most));
    }

    /// A duplicate arrived: the sender has to be told (RFC 9293, section 3.10.7.4, first check).
    pub fn duplicate_received(&mut self, window: u32) {
        self.quicken(QUICK_MOST, window);
        self.is_pingpong = false;
        self.ato_ns = ATO_MIN_NS;
        self.is_owed = true;
    }

    /// RFC 5681, section 4.2: a hole was filled.
    pub fn hole_filled(&mut self) {
        self.is_urgent = true;
    }

    /// Data is sent: from now on ACKs may be piggybacked, if it was soon after data arrived.
    pub fn data_sent(&mut self, now_ns: i64) {
        if self.ato_ns > 0 && now_ns - self.last_data_ns < self.ato_ns {
            self.is_pingpong = true;
        }
    }

    /// A segment with an ACK is sent: none is pending.
    pub fn sent(&mut self) {
        if self.quick == 1 {
            // Quick ACKs are over.
            self.ato_ns = ATO_MIN_NS;
        }
        self.quick = self.quick.saturating_sub(1);
        self.is_owed = false;
        self.is_urgent = false;
        self.small_count = 0;
        self.delay_until_ns = None;
        self.compressed = 0;
        self.compress_until_ns = None;
    }

    /// Whether to send the ACK now; if not, the delay is set.
    pub fn is_due(&mut self, now_ns: i64, situation: &Situation) -> bool {
        if !self.is_owed {
            return false;
        }
        let is_second = situation.unacknowledged > i64::from(self.full_segment) && situation.is_window_open;
        let is_quick = self.quick > 0 && !self.is_pingpong;
        if !self.is_enabled || is_second || is_quick || self.is_urgent {
            return true;
        }
        if situation.has_holes {
            return self.is_duplicate_due(now_ns, situation);
        }
        self.delay(now_ns, situation.srtt_us)
    }

    /// Whether to send the ACK of a segment behind a hole now.
    fn is_duplicate_due(&mut self, now_ns: i64, situation: &Situation) -> bool {
        if !situation.has_sack || self.compressed >= COMPRESSED_MOST {
            return true;
        }
        if self.duplicates_at != situation.rcv_nxt {
            self.duplicates_at = situation.rcv_nxt;
            self.duplicates = 0;
        }
        if self.duplicates < DUPLICATES_AT_ONCE {
            self.duplicates += 1;
            return true;
        }
        self.compressed += 1;
        if self.compress_until_ns.is_none() {
            // A twentieth of the RTT.
            self.compress_until_ns = Some(now_ns + (situation.srtt_us * 1000 / 20).min(COMPRESSION_MAX_NS));
        }
        false
    }

    /// Sets the delay; true when an earlier one ends so soon that the ACK is sent now.
    fn delay(&mut self, now_ns: i64, srtt_us: i64) -> bool {
        let mut ato_ns = self.ato_ns.max(ATO_MIN_NS);
        if ato_ns > ATO_MIN_NS {
            let mut most_ns = if self.is_pingpong || self.small_count > 0 { DELAY_MAX_NS } else { INTERVAL_MAX_NS };
            if srtt_us > 0 {
                most_ns = most_ns.min((srtt_us * 1000).max(ATO_MIN_NS));
            }
            ato_ns = ato_ns.min(most_ns);
        }
        ato_ns = ato_ns.min(DELAY_MAX_NS);
        let mut until_ns = now_ns + ato_ns;
        if let Some(earlier_ns) = self.delay_until_ns {
            if earlier_ns <= now_ns + ato_ns / 4 {
                return true;
            }
            until_ns = until_ns.min(earlier_ns);
        }
        self.delay_until_ns = Some(until_ns);
        false
    }

    /// Whether a read by the application makes an ACK due.
    pub fn is_due_after_reading(&self, is_drained: bool, unacknowledged: i64) -> bool {
        self.is_owed
            && (unacknowledged > i64::from(self.full_segment)
                || (is_drained && (self.small_count >= 2 || (self.small_count == 1 && !self.is_pingpong))))
    }

    /// A timeout; whether an ACK is due.
    pub fn handle_timeout(&mut self, now_ns: i64, rto_ns: i64) -> bool {
        let mut is_due = false;
        if self.compress_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.compress_until_ns = None;
            is_due = self.compressed > 0;
        }
        if self.delay_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.delay_until_ns = None;
            if self.is_owed {
                if self.is_pingpong {
                    // No data was sent in time: not a dialogue.
                    self.is_pingpong = false;
                    self.ato_ns = ATO_MIN_NS;
                } else {
                    self.ato_ns = (self.ato_ns * 2).min(rto_ns);
                }
                is_due = true;
            }
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn situation(srtt_us: i64) -> Situation {
        Situation { unacknowledged: 1, is_window_open: true, has_holes: true, has_sack: true, rcv_nxt: 1, srtt_us }
    }

    /// An ACK that is due for a segment of 1448 bytes, after the quick ACKs of the start.
    fn pending() -> Acknowledgment {
        let mut ack = Acknowledgment::new(true);
        ack.data_received(0, 1448, 1448, 65_536, 200 * MS);
        ack.quick = 0;
        ack
    }

    #[test]
    fn compressed_acks_wait_for_a_twentieth_of_the_round_trip_and_a_millisecond_at_most() {
        for (srtt_us, wait_ns) in [(10_000, 500_000), (100_000, MS)] {
            let mut ack = pending();
            // three duplicates are acknowledged at once (RFC 5681, section 3.2)
            let is_due = (0..4).map(|_| ack.is_due(7 * MS, &situation(srtt_us)));
            assert_eq!(is_due.collect::<Vec<_>>(), [true, true, true, false]);
            assert_eq!(ack.poll_timeout(), Some(7 * MS + wait_ns));
        }
    }

    #[test]
    fn a_delayed_ack_that_is_not_piggybacked_doubles_the_delay() {
        let mut ack = pending();
        let quiet = Situation { has_holes: false, ..situation(300_000) };
        assert!(!ack.is_due(0, &quiet));
        assert_eq!(ack.poll_timeout(), Some(40 * MS));
        assert!(ack.handle_timeout(40 * MS, 500 * MS));
        assert!(!ack.is_due(50 * MS, &quiet));
        assert_eq!(ack.poll_timeout(), Some(50 * MS + 80 * MS));
    }
}
