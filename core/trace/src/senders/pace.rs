//! The rate of a line in nanoseconds per byte, from packets that follow each other without a pause.
//!
//! A busy line delivers each packet a fixed time per byte after the previous one; every other wait makes the gap
//! longer. So the rate is a low quantile of gap / bytes, weighted by bytes: most bytes pass in trains. Smaller values
//! mean that the previous packet was delayed: the jitter of the hosts.

use serde::{Deserialize, Serialize};
/// Buckets per factor of two: neighbours differ by 4.4 %.
const BUCKETS_PER_OCTAVE: usize = 16;
/// The fastest rate that can be measured: 2^-6 ns per byte, 512 Gbit/s.
const OCTAVE_MIN: f64 = -6.0;
/// The slowest rate: 2^17 ns per byte, 61 kbit/s.
const OCTAVE_MAX: f64 = 17.0;
const BUCKET_COUNT: usize = (OCTAVE_MAX - OCTAVE_MIN) as usize * BUCKETS_PER_OCTAVE + 1;
/// The share of the bytes that pass at the rate or faster.
const QUANTILE: f64 = 0.25;
/// The share that passes faster because of host jitter.
const JITTER_QUANTILE: f64 = 0.05;
/// Minimum bytes in trains: with fewer, all may have waited for something.
const BYTES_MIN: u64 = 32 << 10;
/// The share of the bytes in windows that pass at the rate or faster.
const WINDOW_QUANTILE: f64 = 0.4;
/// Bytes of a window: more than hosts send in one batch.
const WINDOW_BYTES: u64 = 24_000;
/// Minimum number of windows.
const WINDOWS_MIN: u64 = 8;
/// Windows with less than this share of all bytes lie between pauses and may contain one,
const WINDOWS_SHARE_MIN: f64 = 0.25;
/// unless single gaps disagree: this quantile of theirs with the lower one.
const GAPS_QUANTILE: f64 = 0.4;
/// They agree within this relative difference.
const AGREEMENT: f64 = 0.05;
/// A gap ends a window beyond this time
const PAUSE_MIN_NS: f64 = 50_000.0;
/// and this multiple of the line's time for the bytes after it.
const PAUSE_MIN_LINE_TIMES: f64 = 4.0;
/// Buckets on either side of a quantile's bucket that are averaged.
const NEAR_BUCKETS: usize = 2;
/// Gaps between two updates.
const LOOK_EVERY: u32 = 64;

/// The rate of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Nanoseconds per byte; 0 while unknown, or too fast to measure.
    pub ns_per_byte: f64,
    /// How much smaller the value may look after a delayed packet.
    pub jitter_ns_per_byte: f64,
}

/// The rate by single gaps, and by windows of many gaps: a host that sends in batches makes some gaps shorter than the
/// line does, and others longer.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Pace {
    gaps: Histogram,
    windows: Histogram,
    window_ns: i64,
    window_bytes: u64,
    noted: u32,
    recent: Rate,
}

impl Pace {
    /// Adds a gap before `bytes`.
    pub fn note(&mut self, gap_ns: i64, bytes: u32) {
        if bytes == 0 || gap_ns < 0 {
            return;
        }
        self.gaps.add(gap_ns, bytes.into());
        self.noted += 1;
        if self.noted.is_multiple_of(LOOK_EVERY) {
            self.recent = self.rate();
        }
        if gap_ns as f64 > PAUSE_MIN_NS + PAUSE_MIN_LINE_TIMES * f64::from(bytes) * self.recent.ns_per_byte {
            // a pause ends the window
            return self.end_window();
        }
        self.window_ns = self.window_ns.saturating_add(gap_ns);
        self.window_bytes += u64::from(bytes);
        if self.window_bytes >= WINDOW_BYTES {
            self.windows.add(self.window_ns, self.window_bytes);
            self.end_window();
        }
    }

    /// Ends the train.
    pub fn end_window(&mut self) {
        (self.window_ns, self.window_bytes) = (0, 0);
    }

    /// The rate at the last update.
    pub fn recent(&self) -> Rate {
        self.recent
    }

    /// Whether many bytes pass at one rate, which is that of a line: ACKs also come at the pace of the windows that they open,
    /// of hosts that hold them back, and of losses.
    pub fn is_one(&self) -> bool {
        let of_gaps = self.gaps.quantile(QUANTILE);
        let is_steady = |rates: &Histogram, low: f64| rates.quantile(GAPS_QUANTILE) <= low * (1.0 + AGREEMENT);
        is_steady(&self.gaps, of_gaps)
            || self.are_windows_better(of_gaps) && is_steady(&self.windows, self.windows.quantile(QUANTILE))
    }

    /// The rate now.
    pub fn rate(&self) -> Rate {
        if self.gaps.bytes < BYTES_MIN {
            return Rate::default();
        }
        let of_gaps = self.gaps.quantile(QUANTILE);
        let of_windows = if self.are_windows_better(of_gaps) { self.windows.quantile(WINDOW_QUANTILE) } else { 0.0 };
        // batches make single gaps too short, pauses make windows too long
        let ns_per_byte = if of_windows > of_gaps * (1.0 + AGREEMENT) { of_windows } else { of_gaps };
        Rate { ns_per_byte, jitter_ns_per_byte: (ns_per_byte - self.gaps.quantile(JITTER_QUANTILE)).max(0.0) }
    }

    /// Whether windows are better evidence than single gaps.
    fn are_windows_better(&self, of_gaps: f64) -> bool {
        let are_few = (self.windows.bytes as f64) < WINDOWS_SHARE_MIN * self.gaps.bytes as f64;
        let do_gaps_agree = self.gaps.quantile(GAPS_QUANTILE) <= of_gaps * (1.0 + AGREEMENT);
        self.windows.bytes >= WINDOWS_MIN * WINDOW_BYTES && !(are_few && do_gaps_agree)
    }
}

/// A histogram of gap / bytes, weighted by bytes. Only buckets with gaps take memory: most connections have few.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Histogram {
    /// In order.
    buckets: Vec<Bucket>,
    bytes: u64,
}

/// Bytes, and the sum of the gaps before them.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct Bucket {
    number: usize,
    bytes: u64,
    gaps_ns: u64,
}

impl Histogram {
    fn add(&mut self, gap_ns: i64, bytes: u64) {
        let octave = (gap_ns as f64 / bytes as f64).log2().max(OCTAVE_MIN);
        let number = ((octave - OCTAVE_MIN) * BUCKETS_PER_OCTAVE as f64) as usize;
        if number >= BUCKET_COUNT {
            return;
        }
        let place = self.buckets.binary_search_by_key(&number, |bucket| bucket.number).unwrap_or_else(|place| {
            self.buckets.insert(place, Bucket { number, ..Bucket::default() });
            place
        });
        let bucket = &mut self.buckets[place];
        bucket.bytes += bytes;
        bucket.gaps_ns = bucket.gaps_ns.saturating_add(gap_ns as u64);
        self.bytes += bytes;
    }

    fn quantile(&self, share: f64) -> f64 {
        let wanted = (self.bytes as f64 * share) as u64;
        let mut seen = 0;
        for &Bucket { number, bytes, .. } in &self.buckets {
            seen += bytes;
            if seen > wanted {
                // the lowest bucket holds everything too fast to measure
                if number == 0 {
                    return 0.0;
                }
                // the mean of the neighbouring buckets: finer than one bucket
                let near = number.saturating_sub(NEAR_BUCKETS).max(1)..=number + NEAR_BUCKETS;
                let sum = |of: fn(&Bucket) -> u64| -> f64 {
                    self.buckets.iter().filter(|bucket| near.contains(&bucket.number)).map(|each| of(each) as f64).sum()
                };
                return sum(|bucket| bucket.gaps_ns) / sum(|bucket| bucket.bytes);
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trains_at_line_rate_with_pauses_between_them_have_the_pace_of_the_line() {
        let mut pace = Pace::default();
        for _ in 0..20 {
            pace.note(8_000_000, 1448);
            (0..43).for_each(|_| pace.note(36_200, 1448));
        }
        // 25 ns per byte are 40 MB/s
        let rate = pace.rate();
        assert!((rate.ns_per_byte - 25.0).abs() < 25.0 * 0.05, "{rate:?}");
        assert_eq!(rate.jitter_ns_per_byte, 0.0);
    }

    #[test]
    fn a_few_windows_across_pauses_do_not_outweigh_the_trains() {
        let mut pace = Pace::default();
        for train in 0..400 {
            // trains shorter than a window; every tenth pause is too short to be recognised
            pace.note(if train % 10 == 9 { 150_000 } else { 1_600_000 }, 1448);
            (0..10).for_each(|_| pace.note(36_200, 1448));
        }
        let rate = pace.rate();
        assert!((rate.ns_per_byte - 25.0).abs() < 25.0 * 0.05, "{rate:?}");
    }

    #[test]
    fn neighbouring_buckets_count_across_the_border_of_an_octave() {
        let mut pace = Pace::default();
        // on either side of 2^5 ns per byte
        (0..200).for_each(|gap| pace.note(if gap % 2 == 0 { 31_500 } else { 32_500 }, 1000));
        assert!((pace.rate().ns_per_byte - 32.0).abs() < 1e-9, "{:?}", pace.rate());
    }

    #[test]
    fn buckets_without_gaps_take_no_memory() {
        let mut pace = Pace::default();
        assert!(pace.gaps.buckets.is_empty());
        pace.note(36_200, 1448);
        pace.note(3_620_000, 1448);
        pace.note(36_200, 1448);
        let bytes: Vec<u64> = pace.gaps.buckets.iter().map(|bucket| bucket.bytes).collect();
        assert_eq!(bytes, [2896, 1448]);
    }

    #[test]
    fn a_few_bytes_show_no_rate() {
        let mut pace = Pace::default();
        pace.note(36_200, 1448);
        assert_eq!(pace.rate(), Rate::default());
    }

    #[test]
    fn lines_slower_than_the_slowest_rate_are_not_measured() {
        // 2^17 ns per byte, and 5 % more
        for (ns_per_byte, found) in [(131_072, 131_072.0), (137_626, 0.0)] {
            let mut pace = Pace::default();
            (0..100).for_each(|_| pace.note(1448 * ns_per_byte, 1448));
            assert_eq!(pace.rate().ns_per_byte, found);
        }
    }

    /// Windows of 20 gaps of 1200 bytes, `slow` of them at 31 ns per byte, the others at 25.
    fn batches(slow: i64) -> Rate {
        let mut pace = Pace::default();
        (0..200).for_each(|gap| pace.note(if gap % 20 < slow { 37_200 } else { 30_000 }, 1200));
        pace.rate()
    }

    #[test]
    fn windows_count_only_if_they_are_clearly_slower_than_gaps() {
        // (17 x 25 + 3 x 31) / 20 = 25.9, within 5 %
        assert_eq!(batches(3), Rate { ns_per_byte: 25.0, jitter_ns_per_byte: 0.0 });
        // (12 x 25 + 8 x 31) / 20 = 27.4
        let rate = batches(8);
        assert!((rate.ns_per_byte - 27.4).abs() < 1e-9, "{rate:?}");
        assert!((rate.jitter_ns_per_byte - 2.4).abs() < 1e-9, "{rate:?}");
    }

    #[test]
    fn a_rate_needs_32_kib() {
        for (packets, found) in [(31, 0.0), (32, 25.0)] {
            let mut pace = Pace::default();
            (0..packets).for_each(|_| pace.note(25 * 1024, 1024));
            assert_eq!(pace.rate().ns_per_byte, found, "{packets} KiB");
        }
    }

    #[test]
    fn empty_packets_and_a_clock_that_runs_backwards_show_nothing() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| {
            pace.note(-1, 1448);
            pace.note(36_200, 0);
        });
        assert_eq!(pace.rate(), Rate::default());
    }

    #[test]
    fn the_recent_rate_is_that_of_the_last_64_gaps() {
        let mut pace = Pace::default();
        (0..63).for_each(|_| pace.note(25 * 1024, 1024));
        assert_eq!(pace.recent(), Rate::default());
        pace.note(25 * 1024, 1024);
        assert_eq!(pace.recent().ns_per_byte, 25.0);
    }

    #[test]
    fn bytes_at_one_instant_are_too_fast_to_measure() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.note(0, 1448));
        assert_eq!(pace.rate(), Rate::default());
    }
}
