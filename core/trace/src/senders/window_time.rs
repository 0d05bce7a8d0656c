//! How long the receiver's window was full, and how long it was zero, as the sender knew it.

use serde::{Deserialize, Serialize};

/// By so much or more a clock was set back; packets that come out of order are nearer.
const SET_BACK_NS: i64 = 1_000_000_000;

/// Times of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct WindowTime {
    /// The latest time at the tap.
    now_ns: i64,
    since_ns: Option<i64>,
    is_full: bool,
    is_zero: bool,
    /// Time with bytes in flight within one segment of the window.
    pub full_ns: i64,
    /// Time with a window of zero.
    pub zero_ns: i64,
    least: Option<i64>,
    largest: Option<i64>,
}

impl WindowTime {
    /// A packet passes the tap.
    #[inline]
    pub fn pass(&mut self, time_ns: i64) {
        if self.now_ns.saturating_sub(time_ns) >= SET_BACK_NS {
            (self.now_ns, self.since_ns) = (time_ns, None);
        }
        self.now_ns = self.now_ns.max(time_ns);
    }

    /// From `time_ns` on, `owin` bytes are in flight in this window. No time counts twice, and none after the last packet.
    #[inline]
    pub fn set(&mut self, time_ns: i64, owin: i64, window: Option<i64>, segment: i64) {
        let time_ns = time_ns.min(self.now_ns);
        if self.is_full || self.is_zero {
            let elapsed_ns = self.since_ns.map_or(0, |since_ns| time_ns.saturating_sub(since_ns).max(0));
            self.full_ns = self.full_ns.saturating_add(if self.is_full { elapsed_ns } else { 0 });
            self.zero_ns = self.zero_ns.saturating_add(if self.is_zero { elapsed_ns } else { 0 });
        }
        self.since_ns = self.since_ns.max(Some(time_ns));
        self.is_full = window.is_some_and(|window| window - owin < segment);
        self.is_zero = window == Some(0);
    }

    /// Notes an advertised window.
    #[inline]
    pub fn note(&mut self, window: i64, is_syn: bool) {
        self.largest = self.largest.max(Some(window));
        if !is_syn {
            self.least = Some(self.least.map_or(window, |least| least.min(window)));
        }
    }

    /// Restarts the count: the window scale was taken for too small.
    pub fn begin_anew(&mut self) {
        self.full_ns = 0;
        self.is_full = false;
    }

    /// The smallest window after the handshake, and the largest.
    pub fn extremes(&self) -> (Option<i64>, Option<i64>) {
        (self.least, self.largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(time_ns: i64) -> WindowTime {
        let mut times = WindowTime::default();
        times.pass(time_ns);
        times
    }

    #[test]
    fn full_and_zero_windows_take_time() {
        let mut times = until(100);
        times.set(0, 0, Some(10_000), 1000);
        times.set(10, 9_500, Some(10_000), 1000);
        times.set(30, 5_000, Some(10_000), 1000);
        times.set(40, 0, Some(0), 1000);
        times.set(100, 0, Some(10_000), 1000);
        assert_eq!((times.full_ns, times.zero_ns), (20 + 60, 60));
    }

    #[test]
    fn time_between_packets_that_are_read_in_another_order_counts_once() {
        let mut times = until(40);
        times.set(0, 9_500, Some(10_000), 1000);
        times.set(30, 9_500, Some(10_000), 1000);
        times.set(10, 9_500, Some(10_000), 1000);
        times.set(40, 0, Some(10_000), 1000);
        assert_eq!(times.full_ns, 40);
        // a clock that was set back goes on
        times.pass(20 - SET_BACK_NS);
        times.set(20 - SET_BACK_NS, 9_500, Some(10_000), 1000);
        times.pass(40 - SET_BACK_NS);
        times.set(40 - SET_BACK_NS, 0, Some(10_000), 1000);
        assert_eq!(times.full_ns, 60);
    }

    #[test]
    fn acks_that_were_long_on_their_way_are_no_clock_that_is_set_back() {
        let mut times = until(0);
        for now_ns in [0, 10, 20] {
            times.pass(now_ns);
            times.set(now_ns + 2 * SET_BACK_NS, 9_500, Some(10_000), 1000);
            times.set(now_ns, 9_500, Some(10_000), 1000);
        }
        assert_eq!(times.full_ns, 20);
    }

    #[test]
    fn a_window_with_room_for_one_segment_is_not_full() {
        for (owin, full_ns) in [(9_000, 0), (9_001, 20)] {
            let mut times = until(20);
            times.set(0, owin, Some(10_000), 1000);
            times.set(20, 0, Some(10_000), 1000);
            assert_eq!(times.full_ns, full_ns);
        }
    }
}
