//! Statistics of durations: exact up to a number of samples, beyond it a histogram within 0.1 %.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Most samples that are kept individually.
const MOST_SAMPLES: usize = 1 << 18;
/// Longest latency of the histogram: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Latencies of one kind of command, or of other events.
#[derive(Debug, Default)]
pub struct Latencies {
    samples_ns: Vec<u64>,
    histogram: Option<Histogram<u64>>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

/// Their summary, all in nanoseconds; zeros when there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Number of samples.
    pub count: u64,
    /// Smallest.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Median, and further percentiles.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 95 %.
    pub p95: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// Largest.
    pub max: u64,
    /// Whether percentiles are exact, not within 0.1 %.
    pub is_exact: bool,
}

impl Latencies {
    /// Latencies in a histogram from the first one on, so that recording never takes long.
    #[must_use]
    pub fn in_histogram() -> Self {
        Self { histogram: histogram(), ..Self::default() }
    }

    /// Adds a sample.
    pub fn record(&mut self, latency_ns: i64) {
        let latency_ns = u64::try_from(latency_ns).unwrap_or(0);
        self.min_ns = if self.count == 0 { latency_ns } else { self.min_ns.min(latency_ns) };
        self.max_ns = self.max_ns.max(latency_ns);
        self.count += 1;
        self.sum_ns += u128::from(latency_ns);
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(latency_ns);
        } else if self.samples_ns.len() < MOST_SAMPLES {
            self.samples_ns.push(latency_ns);
        } else {
            self.begin_histogram(latency_ns);
        }
    }

    fn begin_histogram(&mut self, latency_ns: u64) {
        if let Some(mut histogram) = histogram() {
            for sample_ns in self.samples_ns.drain(..) {
                histogram.saturating_record(sample_ns);
            }
            histogram.saturating_record(latency_ns);
            self.samples_ns = Vec::new();
            self.histogram = Some(histogram);
        }
    }

    /// Their summary.
    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        if self.count == 0 {
            return LatencySummary::default();
        }
        let mut sorted = self.samples_ns.clone();
        sorted.sort_unstable();
        let quantile = |share: f64| match &self.histogram {
            Some(histogram) => histogram.value_at_quantile(share).min(self.max_ns),
            // nearest rank
            None => {
                let rank = (share * sorted.len() as f64).ceil() as usize;
                sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
            }
        };
        LatencySummary {
            count: self.count,
            min: self.min_ns,
            mean: self.sum_ns as f64 / self.count as f64,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: self.max_ns,
            is_exact: self.histogram.is_none(),
        }
    }
}

/// An empty one. 3 digits are 0.1 %; these bounds are always valid.
fn histogram() -> Option<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_the_first_thousand_numbers() {
        let mut latencies = Latencies::default();
        (1..=1000).rev().for_each(|sample| latencies.record(sample));
        let summary = latencies.summary();
        let found = (summary.p50, summary.p90, summary.p95, summary.p99, summary.p999, summary.max, summary.min);
        assert_eq!(found, (500, 900, 950, 990, 999, 1000, 1));
        assert_eq!((summary.mean, summary.is_exact), (500.5, true));
        assert_eq!(Latencies::default().summary(), LatencySummary::default());
    }

    #[test]
    fn no_percentile_exceeds_the_largest_and_no_latency_is_negative() {
        let mut latencies = Latencies::default();
        // the histogram's bucket of this number ends above it
        (0..=MOST_SAMPLES).for_each(|_| latencies.record(1_000_003));
        let summary = latencies.summary();
        assert_eq!(
            (summary.is_exact, summary.p50, summary.p999, summary.max),
            (false, 1_000_003, 1_000_003, 1_000_003)
        );
        let mut latencies = Latencies::default();
        latencies.record(-5);
        assert_eq!((latencies.summary().max, latencies.summary().mean), (0, 0.0));
    }

    #[test]
    fn beyond_the_bound_they_are_within_a_thousandth() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut samples: Vec<u64> = (0..400_000).map(|_| 10_000 + random.u64(0..90_000_000)).collect();
        let mut latencies = Latencies::default();
        samples.iter().for_each(|sample| latencies.record(*sample as i64));
        samples.sort_unstable();
        let summary = latencies.summary();
        assert!(!summary.is_exact);
        for (share, found) in [(0.5, summary.p50), (0.95, summary.p95), (0.99, summary.p99), (0.999, summary.p999)] {
            let exact = samples[(share * 400_000f64) as usize - 1] as f64;
            assert!((found as f64 - exact).abs() / exact <= 0.001, "{share}: {found} against {exact}");
        }
        assert_eq!((summary.max, summary.min), (samples[399_999], samples[0]));
    }
}
