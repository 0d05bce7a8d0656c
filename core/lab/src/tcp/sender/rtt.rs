//! RTT and retransmission timeout (RFC 6298), in the arithmetic of Linux.
//!
//! The caller takes no samples of retransmitted segments.

/// Least variation: no timeout is shorter than SRTT plus this. RFC 6298 requires 1 s in total, Linux uses 200 ms.
pub const RTO_MIN_US: i64 = 200_000;
/// The longest timeout (RFC 6298, rule 2.5).
pub const RTO_MAX_US: i64 = 120_000_000;
/// The timeout before the first sample (RFC 6298, rule 2.1).
pub const RTO_INITIAL_US: i64 = 1_000_000;

/// RTT estimate and retransmission timeout.
#[derive(Debug, Clone)]
pub struct RoundTrip {
    /// Eight times the smoothed RTT, so that the eighth of a difference needs no fraction.
    srtt_8_us: i64,
    /// Four times the mean deviation.
    deviation_4_us: i64,
    deviation_most_us: i64,
    rttvar_us: i64,
    /// Until this is acknowledged, the variation does not decrease.
    round_end: i64,
    /// The minimum RTT.
    pub least_us: i64,
    /// The last sample.
    pub latest_us: i64,
    rto_us: i64,
}

impl Default for RoundTrip {
    fn default() -> Self {
        Self {
            srtt_8_us: 0,
            deviation_4_us: RTO_INITIAL_US,
            deviation_most_us: 0,
            rttvar_us: 0,
            round_end: 0,
            least_us: i64::MAX,
            latest_us: 0,
            rto_us: RTO_INITIAL_US,
        }
    }
}

impl RoundTrip {
    /// SRTT in microseconds; 0 before the first sample.
    pub fn srtt_us(&self) -> i64 {
        self.srtt_8_us >> 3
    }

    /// The retransmission timeout, backed off.
    pub fn rto_us(&self) -> i64 {
        self.rto_us
    }

    /// Doubles the timeout (RFC 6298, rule 5.5).
    pub fn back_off(&mut self) {
        self.rto_us = (self.rto_us << 1).min(RTO_MAX_US);
    }

    /// Records the minimum and the latest RTT.
    pub fn note(&mut self, sample_us: i64) {
        self.latest_us = sample_us;
        self.least_us = self.least_us.min(sample_us);
    }

    /// Takes a sample; the timeout is recomputed, without back-off (RFC 6298, section 2).
    pub fn sample(&mut self, sample_us: i64, snd_una: i64, snd_nxt: i64) {
        let sample_us = sample_us.max(1);
        if self.srtt_8_us == 0 {
            self.srtt_8_us = sample_us << 3;
            self.deviation_4_us = sample_us << 1;
            self.rttvar_us = self.deviation_4_us.max(RTO_MIN_US);
            self.deviation_most_us = self.rttvar_us;
            self.round_end = snd_nxt;
        } else {
            let mut difference = sample_us - (self.srtt_8_us >> 3);
            self.srtt_8_us = (self.srtt_8_us + difference).max(1);
            if difference < 0 {
                difference = -difference - (self.deviation_4_us >> 2);
                // A decreasing RTT raises the variation eight times more slowly.
                if difference > 0 {
                    difference >>= 3;
                }
            } else {
                difference -= self.deviation_4_us >> 2;
            }
            self.deviation_4_us += difference;
            if self.deviation_4_us > self.deviation_most_us {
                self.deviation_most_us = self.deviation_4_us;
                self.rttvar_us = self.rttvar_us.max(self.deviation_most_us);
            }
            if snd_una > self.round_end {
                if self.deviation_most_us < self.rttvar_us {
                    self.rttvar_us -= (self.rttvar_us - self.deviation_most_us) >> 2;
                }
                self.round_end = snd_nxt;
                self.deviation_most_us = RTO_MIN_US;
            }
        }
        self.rto_us = (self.srtt_us() + self.rttvar_us).min(RTO_MAX_US);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_round_trip_gives_the_least_timeout() {
        let mut rtt = RoundTrip::default();
        assert_eq!((rtt.rto_us(), rtt.srtt_us()), (1_000_000, 0));
        for round in 1..50 {
            rtt.sample(16_000, round * 10, round * 10 + 10);
            assert_eq!((rtt.srtt_us(), rtt.rto_us()), (16_000, 216_000));
        }
    }

    #[test]
    fn the_first_timeout_is_three_times_a_long_rtt() {
        // RFC 6298, rule 2.2: SRTT + 4 * R/2.
        let mut rtt = RoundTrip::default();
        rtt.sample(300_000, 1, 1);
        assert_eq!((rtt.srtt_us(), rtt.rto_us()), (300_000, 900_000));
    }

    #[test]
    fn a_round_trip_that_grows_moves_by_an_eighth() {
        // RFC 6298, rule 2.3.
        let mut rtt = RoundTrip::default();
        rtt.sample(100_000, 1, 1);
        rtt.sample(180_000, 2, 2);
        assert_eq!(rtt.srtt_us(), 110_000);
        // RTTVAR 50 ms -> 3/4 * 50 + 1/4 * 80 = 57.5 ms, four times that is 230 ms.
        assert_eq!(rtt.rto_us(), 110_000 + 230_000);
    }

    #[test]
    fn a_steady_rtt_lowers_the_timeout_by_a_quarter_of_the_excess_per_rtt() {
        // RFC 6298, rule 2.3: with equal samples RTTVAR shrinks to 3/4, so 4 * RTTVAR takes 600, 450, 337.5, 253.125
        // ms. As in Linux the timeout decreases once per RTT, by 1/4 of its excess over the largest value of that
        // round: 600 - (600 - 337.5) / 4 = 534.375 ms, then 534.375 - (534.375 - 253.125) / 4 = 464.0625 ms.
        let mut rtt = RoundTrip::default();
        let timeouts = [(1, 10), (11, 20), (21, 30), (31, 40)].map(|(snd_una, snd_nxt)| {
            rtt.sample(300_000, snd_una, snd_nxt);
            rtt.rto_us()
        });
        assert_eq!(timeouts, [900_000, 900_000, 834_375, 764_063]);
        // within a round it does not decrease
        rtt.sample(300_000, 40, 45);
        assert_eq!(rtt.rto_us(), 764_063);
    }

    #[test]
    fn a_shrinking_rtt_raises_the_deviation_by_an_eighth_of_a_quarter() {
        // RTTVAR is 50 ms after the first sample. 20 ms differ from SRTT by 80 ms, 30 ms more than that: RFC 6298 would add a
        // quarter of them, Linux adds 1/32 of them where the round trip got shorter: 50.9375 ms.
        let mut rtt = RoundTrip::default();
        rtt.sample(100_000, 1, 10);
        rtt.sample(20_000, 2, 10);
        assert_eq!((rtt.srtt_us(), rtt.deviation_4_us >> 2), (90_000, 50_937));
    }

    #[test]
    fn backing_off_doubles_up_to_two_minutes_and_a_sample_ends_it() {
        let mut rtt = RoundTrip::default();
        rtt.sample(16_000, 1, 1);
        rtt.back_off();
        assert_eq!(rtt.rto_us(), 432_000);
        for _ in 0..20 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto_us(), 120_000_000);
        rtt.sample(16_000, 2, 2);
        assert_eq!(rtt.rto_us(), 216_000);
    }
}
