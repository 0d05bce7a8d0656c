//! HyStart: ends slow start before the queue overflows (Ha and Rhee, 2008), as in Linux.
//!
//! Two criteria: an ACK train longer than half the minimum RTT, and RTTs an eighth above the minimum. It never changes
//! a window. HyStart++ (RFC 9406) with its slower growth is not implemented.

/// Smallest window, in segments, at which it looks.
const LOW_WINDOW: u32 = 16;
/// Longest gap between ACKs of one train.
const TRAIN_GAP_US: i64 = 2_000;
/// RTT samples of a round before the delay criterion applies.
const LEAST_SAMPLES: u32 = 8;

/// One round of slow start.
#[derive(Debug, Default)]
pub struct HyStart {
    round_start_us: i64,
    last_ack_us: i64,
    /// The round ends when this is acknowledged.
    round_end: i64,
    shortest_us: Option<i64>,
    sample_count: u32,
    is_found: bool,
}

impl HyStart {
    /// Begins a round.
    pub fn begin_round(&mut self, now_ns: i64, snd_nxt: i64) {
        self.round_start_us = now_ns / 1000;
        self.last_ack_us = self.round_start_us;
        self.round_end = snd_nxt;
        self.shortest_us = None;
        self.sample_count = 0;
    }

    /// Whether slow start should end.
    #[expect(clippy::too_many_arguments, reason = "what Linux's hystart_update sees")]
    pub fn is_over(
        &mut self,
        now_ns: i64,
        round_trip_us: i64,
        least_us: i64,
        srtt_us: i64,
        cwnd: u32,
        snd_una: i64,
        snd_nxt: i64,
    ) -> bool {
        if self.is_found {
            return false;
        }
        // Rounds are counted from the first one, also while the window is small.
        if snd_una > self.round_end {
            self.begin_round(now_ns, snd_nxt);
        }
        if cwnd < LOW_WINDOW {
            return false;
        }
        let now_us = now_ns / 1000;
        if now_us - self.last_ack_us <= TRAIN_GAP_US {
            self.last_ack_us = now_us;
            // Time of 256 KiB at two windows per RTT, at most 1 ms: bursts of segmentation offload.
            let burst_us = (i64::from(4 * 65536u32) * srtt_us / (2 * 1448 * i64::from(cwnd))).min(1000);
            if now_us - self.round_start_us > (least_us + burst_us) >> 1 {
                self.is_found = true;
            }
        }
        let shortest_us = self.shortest_us.map_or(round_trip_us, |shortest_us| shortest_us.min(round_trip_us));
        self.shortest_us = Some(shortest_us);
        if self.sample_count < LEAST_SAMPLES {
            self.sample_count += 1;
        } else if shortest_us > least_us + (least_us >> 3).clamp(4_000, 16_000) {
            self.is_found = true;
        }
        self.is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_of_acks_longer_than_half_the_round_trip_ends_slow_start() {
        let mut hystart = HyStart::default();
        hystart.begin_round(0, 100);
        // 1448 * 2 * 100 bytes in 16 ms: a burst adds 1 ms, so the limit is 8.5 ms.
        let over = (1..20)
            .map(|ack| ack * 500_000)
            .find(|&now_ns| hystart.is_over(now_ns, 16_000, 16_000, 16_000, 100, 50, 200));
        assert_eq!(over, Some(9_000_000));
    }

    #[test]
    fn eight_longer_rtts_end_slow_start() {
        let mut hystart = HyStart::default();
        hystart.begin_round(0, 100);
        // 4 ms apart: no train. 16 ms / 8 is less than 4 ms, so more than 20 ms are too long.
        for ack in 1..=8 {
            assert!(!hystart.is_over(ack * 4_000_000, 20_001, 16_000, 16_000, 100, 50, 200));
        }
        assert!(hystart.is_over(36_000_000, 20_001, 16_000, 16_000, 100, 50, 200));
    }

    #[test]
    fn small_windows_stay_in_slow_start() {
        let mut hystart = HyStart::default();
        assert!((1..100).all(|ack| !hystart.is_over(ack * 100_000, 90_000, 1_000, 90_000, 15, 0, 200)));
    }

    #[test]
    fn a_round_begins_with_its_first_ack_even_while_the_window_is_small() {
        let mut hystart = HyStart::default();
        hystart.begin_round(0, 100);
        // The round begins at 20 ms with a window of 11. The train is judged from a window of 16 on, and measured from
        // the start of the round.
        let over = (0..40)
            .map(|ack| (20_000_000 + ack * 300_000, 11 + ack as u32))
            .find(|&(now_ns, cwnd)| hystart.is_over(now_ns, 16_000, 16_000, 16_000, cwnd, 101, 200));
        // Half of 16 ms and of the burst of 1 ms: the first after 8.5 ms.
        assert_eq!(over.map(|(now_ns, _)| now_ns), Some(20_000_000 + 8_700_000));
    }
}
