//! Lateness of timed events: quantiles of any number of events, from a histogram in microseconds. Keeps no single
//! event.

use serde::Serialize;

/// Latenesses beyond this many microseconds are counted together.
const BUCKETS: usize = 20_000;

/// Histogram of lateness.
#[derive(Debug, Clone)]
pub struct Lateness {
    /// Events late by 0 to 1 us, 1 to 2 us, and so on; the last for all beyond.
    counts: Vec<u64>,
    max_ns: i64,
}

/// Quantiles of lateness, rounded up to a microsecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LatenessSummary {
    /// Number of events.
    pub count: u64,
    /// Median.
    pub median_ns: i64,
    /// 99 %.
    pub p99_ns: i64,
    /// Maximum.
    pub max_ns: i64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS + 1], max_ns: 0 }
    }
}

impl Lateness {
    /// Adds an event; an early one counts as in time.
    pub fn add(&mut self, late_ns: i64) {
        let late_ns = late_ns.max(0);
        let bucket = usize::try_from(late_ns / 1_000).unwrap_or(BUCKETS).min(BUCKETS);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.max_ns = self.max_ns.max(late_ns);
    }

    /// Quantiles so far.
    pub fn summary(&self) -> LatenessSummary {
        let count: u64 = self.counts.iter().sum();
        let quantile = |numerator: u64, denominator: u64| {
            let wanted = (count * numerator).div_ceil(denominator);
            let mut seen = 0;
            let reached = |counted: &u64| {
                seen += counted;
                seen >= wanted
            };
            match self.counts.iter().position(reached) {
                Some(bucket) if bucket < BUCKETS => (bucket as i64 + 1).saturating_mul(1_000).min(self.max_ns),
                _ => self.max_ns,
            }
        };
        LatenessSummary { count, median_ns: quantile(1, 2), p99_ns: quantile(99, 100), max_ns: self.max_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut late: Vec<i64> = (0..1_001).map(|_| random.i64(0..60_000_000)).collect();
        let mut lateness = Lateness::default();
        late.iter().for_each(|&late_ns| lateness.add(late_ns));
        late.iter().for_each(|&late_ns| lateness.add(late_ns / 10_000));
        late.extend(late.clone().iter().map(|late_ns| late_ns / 10_000));
        late.sort_unstable();
        let up = |late_ns: i64| if late_ns < 20_000_000 { (late_ns / 1_000 + 1) * 1_000 } else { late[2_001] };
        let summary = lateness.summary();
        let expected =
            LatenessSummary { count: 2_002, median_ns: up(late[1_000]), p99_ns: up(late[1_981]), max_ns: late[2_001] };
        assert_eq!(summary, expected);
    }

    #[test]
    fn nothing_and_early() {
        assert_eq!(Lateness::default().summary(), LatenessSummary::default());
        let mut lateness = Lateness::default();
        lateness.add(-5);
        assert_eq!(lateness.summary(), LatenessSummary { count: 1, ..LatenessSummary::default() });
    }
}
