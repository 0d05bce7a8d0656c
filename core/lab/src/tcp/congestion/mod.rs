//! The congestion window: its growth with each ACK, and its reduction after a loss.
//!
//! ```text
//! tahoe    slow start after each loss (Jacobson, 1988)
//! reno     RFC 5681
//! cubic    RFC 9438, in Linux's integers
//! hystart  when CUBIC leaves slow start
//! ```
//!
//! Windows are counted in segments, and every acknowledged segment counts (RFC 3465 with an unlimited L, as in Linux);
//! with Tahoe every ACK counts as one.
//! It is not used during loss recovery.

pub mod cubic;
pub mod hystart;

use super::settings::{CongestionControl, Settings};
use cubic::Cubic;

/// The slow start threshold before any loss.
pub const NO_THRESHOLD: u32 = i32::MAX as u32;

/// An ACK of new data, as the window sees it.
#[derive(Debug, Clone, Copy)]
pub struct Acknowledged {
    /// Segments newly acknowledged or sacked.
    pub segments: u32,
    /// Whether the window, and nothing else, limited the sender.
    pub is_cwnd_limited: bool,
}

/// The window and its threshold.
#[derive(Debug)]
pub struct CongestionWindow {
    /// The congestion window.
    pub cwnd: u32,
    /// The slow start threshold.
    pub ssthresh: u32,
    /// Acknowledged segments towards the next one.
    count: u32,
    algorithm: Algorithm,
}

#[derive(Debug)]
enum Algorithm {
    Tahoe,
    Reno,
    Cubic(Box<Cubic>),
}

impl CongestionWindow {
    /// An initial window (RFC 6928).
    pub fn new(settings: &Settings) -> Self {
        let algorithm = match settings.congestion_control {
            CongestionControl::Tahoe => Algorithm::Tahoe,
            CongestionControl::Reno => Algorithm::Reno,
            CongestionControl::Cubic => Algorithm::Cubic(Box::new(Cubic::new(settings.hystart))),
        };
        Self { cwnd: settings.initial_window, ssthresh: NO_THRESHOLD, count: 0, algorithm }
    }

    /// Below the threshold the window doubles in a round trip.
    pub fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Whether a loss that no timeout detected halves the window; else slow start begins again.
    pub fn has_fast_recovery(&self) -> bool {
        !matches!(self.algorithm, Algorithm::Tahoe)
    }

    /// Increases the window.
    pub fn acknowledged(&mut self, now_ns: i64, acknowledged: Acknowledged) {
        // RFC 7661, and Linux's is_cwnd_limited: a window that was not used does not grow.
        if !acknowledged.is_cwnd_limited {
            return;
        }
        let most = if matches!(self.algorithm, Algorithm::Tahoe) { 1 } else { u32::MAX };
        let mut segments = acknowledged.segments.min(most);
        if self.is_slow_start() {
            // RFC 5681, section 3.1; RFC 3465, section 2.2.
            let grown = (self.cwnd.saturating_add(segments)).min(self.ssthresh);
            segments -= grown - self.cwnd;
            self.cwnd = grown;
            if segments == 0 {
                return;
            }
        }
        let per_segment = match &mut self.algorithm {
            Algorithm::Tahoe | Algorithm::Reno => self.cwnd,
            Algorithm::Cubic(cubic) => cubic.segments_per_increase(now_ns, self.cwnd, segments),
        };
        // RFC 5681, section 3.1: one segment per RTT; CUBIC follows its curve.
        if self.count >= per_segment {
            self.count = 0;
            self.cwnd += 1;
        }
        self.count += segments;
        if self.count >= per_segment {
            self.cwnd += self.count / per_segment;
            self.count %= per_segment;
        }
    }

    /// The slow start threshold after a loss: half the window (RFC 5681, equation 4) or 0.7 (RFC 9438, section 4.6).
    pub fn threshold_after_loss(&mut self) -> u32 {
        self.count = 0;
        match &mut self.algorithm {
            Algorithm::Tahoe | Algorithm::Reno => (self.cwnd >> 1).max(2),
            Algorithm::Cubic(cubic) => cubic.threshold_after_loss(self.cwnd),
        }
    }

    /// The first data may be sent: a round begins.
    pub fn begin(&mut self, now_ns: i64, snd_nxt: i64) {
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.reset(now_ns, snd_nxt);
        }
    }

    /// A retransmission timeout: resets the state of the algorithm.
    pub fn timed_out(&mut self, now_ns: i64, snd_nxt: i64) {
        self.count = 0;
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.reset(now_ns, snd_nxt);
        }
    }

    /// Takes an RTT sample.
    pub fn measured(&mut self, now_ns: i64, round_trip_us: i64, srtt_us: i64, snd_una: i64, snd_nxt: i64) {
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            let is_slow_start = self.cwnd < self.ssthresh;
            if cubic.measured(now_ns, round_trip_us, srtt_us, self.cwnd, is_slow_start, snd_una, snd_nxt) {
                self.ssthresh = self.cwnd;
            }
        }
    }

    /// Sending restarts `idle_ns` after the last data.
    pub fn restarted(&mut self, now_ns: i64, idle_ns: i64) {
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.restarted(now_ns, idle_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(control: CongestionControl, cwnd: u32, ssthresh: u32) -> CongestionWindow {
        let settings = Settings { congestion_control: control, ..Settings::default() };
        CongestionWindow { cwnd, ssthresh, ..CongestionWindow::new(&settings) }
    }

    fn acknowledge(window: &mut CongestionWindow, now_ns: i64, segments: u32) {
        window.acknowledged(now_ns, Acknowledged { segments, is_cwnd_limited: true });
    }

    #[test]
    fn slow_start_counts_segments_not_acks_and_stops_at_the_threshold() {
        let mut window = window(CongestionControl::Reno, 10, 25);
        for _ in 0..5 {
            acknowledge(&mut window, 0, 2);
        }
        assert_eq!(window.cwnd, 20);
        acknowledge(&mut window, 0, 8);
        // Five to the threshold, three towards the 26th.
        assert_eq!((window.cwnd, window.count), (25, 3));
    }

    #[test]
    fn reno_adds_a_segment_in_a_round_trip() {
        let mut window = window(CongestionControl::Reno, 40, 40);
        for round in 0..10 {
            for _ in 0..window.cwnd / 2 {
                acknowledge(&mut window, 0, 2);
            }
            assert!((41 + round - 1..=41 + round).contains(&window.cwnd), "{} in round {round}", window.cwnd);
        }
        assert_eq!(window.threshold_after_loss(), window.cwnd / 2);
    }

    #[test]
    fn tahoe_grows_with_each_ack() {
        let mut window = window(CongestionControl::Tahoe, 10, 25);
        for segments in [1, 2, 40] {
            acknowledge(&mut window, 0, segments);
        }
        assert_eq!(window.cwnd, 13);
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut window = window(CongestionControl::Reno, 10, NO_THRESHOLD);
        window.acknowledged(0, Acknowledged { segments: 5, is_cwnd_limited: false });
        assert_eq!(window.cwnd, 10);
    }

    /// RFC 9438, figure 1: W(t) = C (t - K)^3 + W_max with K = cbrt(W_max (1 - beta) / C), over a second of 100 ms rounds.
    #[test]
    fn cubic_follows_its_curve_after_a_loss() {
        let mut window = window(CongestionControl::Cubic, 1000, 1000);
        window.measured(0, 100_000, 100_000, 0, 0);
        window.ssthresh = window.threshold_after_loss();
        assert_eq!(window.ssthresh, 700);
        window.cwnd = 700;
        let k = (1000.0 * 0.3 / 0.4_f64).cbrt();
        let mut now_ns: i64 = 0;
        while now_ns < 15_000_000_000 {
            let acks = window.cwnd / 2;
            for _ in 0..acks {
                now_ns += 100_000_000 / i64::from(acks);
                acknowledge(&mut window, now_ns, 2);
            }
            let t = now_ns as f64 / 1e9;
            let curve = 1000.0 + 0.4 * (t - k).powi(3);
            let cwnd = f64::from(window.cwnd);
            assert!((cwnd - curve).abs() < 0.02 * curve, "{cwnd} instead of {curve} after {t} s");
        }
    }

    #[test]
    fn cubic_reduces_its_maximum_when_losses_come_early() {
        // RFC 9438, section 4.7: W_max becomes cwnd (1 + beta) / 2.
        let mut window = window(CongestionControl::Cubic, 1000, 1000);
        assert_eq!(window.threshold_after_loss(), 700);
        window.cwnd = 800;
        assert_eq!(window.threshold_after_loss(), 560);
        let Algorithm::Cubic(cubic) = &window.algorithm else { panic!("cubic") };
        assert_eq!(cubic.last_maximum(), 800 * (1024 + 717) / 2048);
    }
}
