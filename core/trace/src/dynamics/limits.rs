//! How long a sender with more to send was held, and by what, as Linux counts it (`tcpi_rwnd_limited`): from the packet
//! after which no more could go out, through all that ACKs let out, to the first packet after which more could.
//!
//! A send buffer that is full looks like a congestion window that no longer grows, so its time is told apart late.

use super::stop::Between;
use serde::{Deserialize, Serialize};

/// What held a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The receiver's window; with an inferred scale, perhaps.
    ReceiveWindow,
    /// The congestion window, or the send buffer.
    CongestionWindow,
}

/// Times of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Limits {
    window_ns: i64,
    congestion_ns: i64,
    buffer_ns: i64,
    /// What held it after the burst before.
    before: Option<Cause>,
    /// `congestion_ns` when the current level began.
    level_ns: i64,
}

impl Limits {
    /// The next burst begins at `next_ns`: what held the sender since the last one, if anything did.
    pub fn note(&mut self, between: &Between, next_ns: i64, cause: Option<Cause>, is_buffer: bool) {
        let Some(cause) = cause else {
            self.before = None;
            return;
        };
        // what ACKs let out between two stops of one cause is no end of it
        let from_ns = if self.before == Some(cause) { between.begun_ns } else { between.stopped_ns };
        let lasted_ns = next_ns.saturating_sub(from_ns).max(0);
        let sum = match cause {
            Cause::ReceiveWindow => &mut self.window_ns,
            Cause::CongestionWindow if is_buffer => &mut self.buffer_ns,
            Cause::CongestionWindow => &mut self.congestion_ns,
        };
        *sum = sum.saturating_add(lasted_ns);
        self.before = Some(cause);
    }

    /// A level begins.
    pub fn begin_level(&mut self) {
        self.level_ns = self.congestion_ns;
    }

    /// The level turned out to be that of the send buffer.
    pub fn end_level(&mut self) {
        self.buffer_ns += self.congestion_ns - self.level_ns;
        self.congestion_ns = self.level_ns;
    }

    /// The inferred window scale grew: the window had room.
    pub fn widen(&mut self) {
        self.congestion_ns = self.congestion_ns.saturating_add(std::mem::take(&mut self.window_ns));
    }

    /// Time held by the receiver's window, the congestion window, the send buffer.
    pub fn times_ns(&self) -> [i64; 3] {
        [self.window_ns, self.congestion_ns, self.buffer_ns]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst of 2 ns that began at `begun_ns`.
    fn after(begun_ns: i64) -> Between {
        Between { begun_ns, stopped_ns: begun_ns + 2, ..Between::default() }
    }

    #[test]
    fn what_acks_let_out_between_two_stops_of_one_cause_is_no_end_of_it() {
        let mut limits = Limits::default();
        let window = Some(Cause::ReceiveWindow);
        limits.note(&after(0), 10, window, false);
        limits.note(&after(10), 20, window, false);
        // held by nothing, and then again: two bursts of 2 ns are not waits
        limits.note(&after(20), 30, None, false);
        limits.note(&after(30), 40, window, false);
        limits.note(&after(40), 50, Some(Cause::CongestionWindow), false);
        limits.note(&after(50), 60, Some(Cause::CongestionWindow), true);
        assert_eq!(limits.times_ns(), [8 + 10 + 8, 8, 10]);
    }

    #[test]
    fn a_level_of_the_send_buffer_takes_its_time_from_the_congestion_window() {
        let mut limits = Limits::default();
        let cwnd = Some(Cause::CongestionWindow);
        limits.note(&after(0), 10, cwnd, false);
        limits.begin_level();
        limits.note(&after(10), 20, cwnd, false);
        limits.end_level();
        assert_eq!(limits.times_ns(), [0, 8, 10]);
    }

    #[test]
    fn a_window_that_turned_out_larger_held_nothing() {
        let mut limits = Limits::default();
        limits.note(&after(0), 10, Some(Cause::ReceiveWindow), false);
        limits.widen();
        assert_eq!(limits.times_ns(), [0, 8, 0]);
    }
}
