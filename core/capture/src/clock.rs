//! The capture's clock while no packet arrives: the time of the last one, and how long it has been silent since.
//!
//! It never runs ahead of the clock that stamps the packets. A time counts as silent only if the source was asked after
//! it and had nothing: while this process waits for a disk, or does not run, packets may be waiting.

use std::time::{Duration, Instant};

/// The clock of one capture.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Time after which a packet is certainly delivered.
    handed_over_after: Duration,
    last_ns: Option<i64>,
    /// When the last packet was read.
    heard: Option<Instant>,
}

impl Clock {
    pub(crate) fn new(handed_over_after: Duration) -> Self {
        Self { handed_over_after, last_ns: None, heard: None }
    }

    /// A packet with this time arrived.
    #[inline]
    pub(crate) fn stamp(&mut self, time_ns: i64) {
        self.last_ns = Some(time_ns);
    }

    /// All packets so far were read by then.
    pub(crate) fn hear(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// The time of the capture, of a source that had nothing when it was asked then.
    pub(crate) fn silent_until_ns(&self, asked: Instant) -> Option<i64> {
        let (last_ns, heard) = (self.last_ns?, self.heard?);
        let silent = asked.saturating_duration_since(heard).saturating_sub(self.handed_over_after);
        Some(last_ns.saturating_add(i64::try_from(silent.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// The time of the last packet.
    pub(crate) fn last_ns(&self) -> Option<i64> {
        self.last_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn silence_counts_from_the_last_packet_to_the_last_question() {
        let mut clock = Clock::new(100 * MS);
        let start = Instant::now();
        assert_eq!(clock.silent_until_ns(start), None);
        clock.stamp(5_000_000_000);
        assert_eq!(clock.silent_until_ns(start), None, "not all packets were read yet");
        clock.hear(start);
        for (asked_ms, silent_ms) in [(0, 0), (100, 0), (1100, 1000)] {
            let expected_ns = 5_000_000_000 + silent_ms * 1_000_000;
            assert_eq!(clock.silent_until_ns(start + asked_ms * MS), Some(expected_ns));
        }
    }

    #[test]
    fn packets_that_waited_while_this_process_did_not_run_end_the_silence() {
        let mut clock = Clock::new(Duration::ZERO);
        let start = Instant::now();
        clock.stamp(0);
        clock.hear(start);
        // stopped for ten seconds between a question and its use: only the question counts
        assert_eq!(clock.silent_until_ns(start + 50 * MS), Some(50_000_000));
        // after it the next packets come at once
        clock.stamp(9_900_000_000);
        clock.hear(start + 10_000 * MS);
        assert_eq!(clock.silent_until_ns(start + 10_010 * MS), Some(9_910_000_000));
    }

    #[test]
    fn the_clock_of_the_packets_may_be_set_back() {
        let mut clock = Clock::new(Duration::ZERO);
        let start = Instant::now();
        clock.stamp(i64::MAX - 1);
        clock.hear(start);
        assert_eq!(clock.silent_until_ns(start + 10 * MS), Some(i64::MAX));
        clock.stamp(7);
        assert_eq!(clock.silent_until_ns(start + 10 * MS), Some(10_000_007));
    }
}
