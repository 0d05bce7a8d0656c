//! CUBIC (RFC 9438) in the integer arithmetic of Linux.
//!
//! Time is counted in 1024ths of a second, windows in segments. It never changes the window itself: it computes how
//! many acknowledged segments increase it by one.

use super::hystart::HyStart;

/// The multiplicative decrease, 0.7, in 1024ths (RFC 9438, section 4.6).
const BETA: u64 = 717;
const BETA_SCALE: u64 = 1024;
/// C = 0.4 (RFC 9438, section 5.1) in 1024ths.
const C: u64 = 410;
/// A Reno flow with the same loss rate gains one segment per 8/15 of CUBIC's window (RFC 9438, section 4.3), in
/// eighths.
const RENO_SCALE: u64 = 8 * (BETA_SCALE + BETA) / 3 / (BETA_SCALE - BETA);
const MILLISECOND_NS: i64 = 1_000_000;

/// The state between two losses.
#[derive(Debug, Default)]
pub struct Cubic {
    /// Acknowledged segments per increase by one.
    count: u64,
    last_maximum: u64,
    last_cwnd: u64,
    last_time_ms: i64,
    origin: u64,
    k: u64,
    /// Start of the congestion avoidance epoch, in milliseconds; none before the first ACK after a loss.
    epoch_ms: Option<i64>,
    delay_min_us: i64,
    acknowledged: u64,
    reno_cwnd: u64,
    hystart: Option<HyStart>,
}

impl Cubic {
    /// Before the first loss.
    pub fn new(has_hystart: bool) -> Self {
        Self { hystart: has_hystart.then(HyStart::default), ..Self::default() }
    }

    /// Resets the state after a timeout.
    pub fn reset(&mut self, now_ns: i64, snd_nxt: i64) {
        let mut hystart = self.hystart.take();
        if let Some(hystart) = &mut hystart {
            *hystart = HyStart::default();
            hystart.begin_round(now_ns, snd_nxt);
        }
        *self = Self { hystart, ..Self::default() };
    }

    /// The window before the last loss, or less when losses come early.
    #[cfg(test)]
    pub fn last_maximum(&self) -> u64 {
        self.last_maximum
    }

    /// A loss: the threshold is 0.7 of the window. Fast convergence if the window had not reached its last maximum
    /// (RFC 9438, section 4.7).
    pub fn threshold_after_loss(&mut self, cwnd: u32) -> u32 {
        let cwnd = u64::from(cwnd);
        self.epoch_ms = None;
        self.last_maximum = if cwnd < self.last_maximum { cwnd * (BETA_SCALE + BETA) / (2 * BETA_SCALE) } else { cwnd };
        (cwnd * BETA / BETA_SCALE).max(2) as u32
    }

    /// Acknowledged segments per increase by one, now.
    pub fn segments_per_increase(&mut self, now_ns: i64, cwnd: u32, acknowledged: u32) -> u32 {
        let (cwnd, acknowledged) = (u64::from(cwnd), u64::from(acknowledged));
        let now_ms = now_ns / MILLISECOND_NS;
        self.acknowledged += acknowledged;
        // While the window does not change, computing every 1/32 s is enough.
        if self.last_cwnd == cwnd && now_ms - self.last_time_ms <= 1000 / 32 {
            return self.count.max(2) as u32;
        }
        if self.epoch_ms.is_none() || now_ms != self.last_time_ms {
            self.follow_curve(now_ms, cwnd, acknowledged);
        }
        // RFC 9438, section 4.3: never slower than Reno.
        let step = ((cwnd * RENO_SCALE) >> 3).max(1);
        if self.acknowledged > step {
            let steps = (self.acknowledged - 1) / step;
            self.acknowledged -= steps * step;
            self.reno_cwnd += steps;
        }
        if self.reno_cwnd > cwnd {
            self.count = self.count.min(cwnd / (self.reno_cwnd - cwnd));
        }
        // At most one per two segments: the window grows by at most half per RTT.
        self.count = self.count.max(2);
        self.count as u32
    }

    /// RFC 9438, section 4.2: the target is the curve one RTT from now.
    fn follow_curve(&mut self, now_ms: i64, cwnd: u64, acknowledged: u64) {
        self.last_cwnd = cwnd;
        self.last_time_ms = now_ms;
        let epoch_ms = *self.epoch_ms.get_or_insert_with(|| {
            self.acknowledged = acknowledged;
            self.reno_cwnd = cwnd;
            self.origin = self.last_maximum.max(cwnd);
            self.k = cubic_root((self.origin - cwnd) * ((1 << 40) / C));
            now_ms
        });
        let time = ((now_ms - epoch_ms + (self.delay_min_us + 999) / 1000).max(0) as u64) * 1024 / 1000;
        let distance = time.abs_diff(self.k).min(1 << 17);
        let delta = (C * distance * distance * distance) >> 40;
        let target = if time < self.k { self.origin.saturating_sub(delta) } else { self.origin + delta };
        self.count = if target > cwnd { cwnd / (target - cwnd) } else { 100 * cwnd };
        // Before the first loss there is no curve: 5 % per RTT.
        if self.last_maximum == 0 {
            self.count = self.count.min(20);
        }
    }

    /// Takes an RTT sample; true when it ends slow start.
    #[expect(clippy::too_many_arguments, reason = "what Linux's pkts_acked sees")]
    pub fn measured(
        &mut self,
        now_ns: i64,
        round_trip_us: i64,
        srtt_us: i64,
        cwnd: u32,
        is_slow_start: bool,
        snd_una: i64,
        snd_nxt: i64,
    ) -> bool {
        // Samples right after a loss are not representative.
        if self.epoch_ms.is_some_and(|epoch_ms| now_ns / MILLISECOND_NS - epoch_ms < 1000) {
            return false;
        }
        let round_trip_us = round_trip_us.max(1);
        if self.delay_min_us == 0 || round_trip_us < self.delay_min_us {
            self.delay_min_us = round_trip_us;
        }
        match &mut self.hystart {
            Some(hystart) if is_slow_start => {
                hystart.is_over(now_ns, round_trip_us, self.delay_min_us, srtt_us, cwnd, snd_una, snd_nxt)
            }
            _ => false,
        }
    }

    /// Idle time does not count as time of the epoch (RFC 9438, section 4.2).
    pub fn restarted(&mut self, now_ns: i64, idle_ns: i64) {
        if let Some(epoch_ms) = &mut self.epoch_ms {
            *epoch_ms = (*epoch_ms + idle_ns.max(0) / MILLISECOND_NS).min(now_ns / MILLISECOND_NS);
        }
    }
}

/// The cubic root, rounded down.
fn cubic_root(number: u64) -> u64 {
    let mut root = (number as f64).cbrt() as u64;
    while root * root * root > number {
        root -= 1;
    }
    while (root + 1).pow(3) <= number {
        root += 1;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// After a loss at 1,000 segments, with a window of 700 and a first ACK at 0. The curve is steep: K is
    /// (300 / 0.4)^(1/3) = 9.1 s.
    fn after_a_loss(delay_min_us: i64) -> Cubic {
        let mut cubic = Cubic::new(false);
        cubic.measured(0, delay_min_us, delay_min_us, 1000, false, 1, 2);
        assert_eq!(cubic.threshold_after_loss(1000), 700);
        cubic.segments_per_increase(0, 700, 0);
        cubic
    }

    #[test]
    fn the_curve_is_evaluated_again_after_a_32nd_of_a_second() {
        let mut cubic = after_a_loss(1000);
        let at = |cubic: &mut Cubic, ms: i64| cubic.segments_per_increase(ms * MS, 700, 0);
        // a round trip of 1 ms ahead: 1000 - 0.4 * (9.086 - 0.301)^3 = 1000 - 271.2, in whole segments 1000 - 271 = 729;
        // one more for 700 / (729 - 700) segments
        assert_eq!(at(&mut cubic, 300), 24);
        assert_eq!(at(&mut cubic, 331), 24);
        // 1000 - 0.4 * (9.086 - 0.333)^3 = 1000 - 268.2, in whole segments 732: 700 / 32
        assert_eq!(at(&mut cubic, 332), 21);
    }

    #[test]
    fn the_curve_is_followed_a_round_trip_ahead() {
        // RFC 9438, section 4.2: the target is W(t + RTT)
        let [mut near, mut far] = [1000, 101_000].map(after_a_loss);
        assert_eq!(far.segments_per_increase(300 * MS, 700, 0), near.segments_per_increase(400 * MS, 700, 0));
    }

    #[test]
    fn an_idle_time_does_not_advance_the_curve() {
        let [mut idle, mut busy] = [1000, 1000].map(after_a_loss);
        idle.restarted(5000 * MS, 5000 * MS);
        assert_eq!(idle.segments_per_increase(5300 * MS, 700, 0), busy.segments_per_increase(300 * MS, 700, 0));
        // and no time before the ACK that began it counts as growth
        let mut idle = after_a_loss(1000);
        idle.restarted(200 * MS, 5000 * MS);
        assert_eq!(idle.epoch_ms, Some(200));
    }
}
