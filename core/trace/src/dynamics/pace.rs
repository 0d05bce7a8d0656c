//! The pace of a line: nanoseconds per byte where packets follow each other without a pause.
//!
//! A line that is busy delivers each packet a fixed time per byte after the one before; any other wait makes the gap
//! longer. So the pace is a low quantile of gap / bytes, weighted by bytes: most bytes pass in trains. What is faster
//! still came closer to what was before it than the line allows: that is the jitter of the hosts.

/// Buckets per factor of two: neighbours differ by 4.4 %.
const BUCKETS_PER_OCTAVE: f64 = 16.0;
/// The fastest pace told from none: 2^-6 ns a byte, 512 Gbit/s.
const OCTAVE_MIN: f64 = -6.0;
/// The slowest pace: 2^17 ns a byte, 61 kbit/s.
const OCTAVE_MAX: f64 = 17.0;
const BUCKET_COUNT: usize = ((OCTAVE_MAX - OCTAVE_MIN) * BUCKETS_PER_OCTAVE) as usize + 1;
/// The share of the bytes that pass at the pace or faster.
const QUANTILE: f64 = 0.25;
/// The share that passes no slower than the jitter of the hosts makes it.
const JITTER_QUANTILE: f64 = 0.05;
/// No event weighs more than these bytes, two segments: an ACK that waited for a timer covers many.
const WEIGHT_MAX_BYTES: u32 = 2 * 1460;
/// Bytes in trains before a pace is told: fewer may all have waited for something.
const BYTES_MIN: u64 = 32 << 10;
/// Gaps between two looks at all buckets.
const LOOK_EVERY: u32 = 64;

/// What is known of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Line {
    /// Nanoseconds per byte; 0 while unknown, or when too fast to tell.
    pub ns_per_byte: f64,
    /// How much less it may seem for a packet whose predecessor came late.
    pub jitter_ns_per_byte: f64,
}

/// A histogram of gap / bytes.
#[derive(Debug)]
pub struct Pace {
    buckets: Box<[u64; BUCKET_COUNT]>,
    bytes: u64,
    noted: u32,
    recent: Line,
}

impl Default for Pace {
    fn default() -> Self {
        Self { buckets: Box::new([0; BUCKET_COUNT]), bytes: 0, noted: 0, recent: Line::default() }
    }
}

impl Pace {
    /// `bytes` passed so long after what passed before them.
    pub fn note(&mut self, gap_ns: i64, bytes: u32) {
        if bytes == 0 || gap_ns < 0 {
            return;
        }
        let octave = (gap_ns as f64 / f64::from(bytes)).log2().max(OCTAVE_MIN);
        let bucket = ((octave - OCTAVE_MIN) * BUCKETS_PER_OCTAVE) as usize;
        if let Some(sum) = self.buckets.get_mut(bucket) {
            let weight = u64::from(bytes.min(WEIGHT_MAX_BYTES));
            *sum += weight;
            self.bytes += weight;
        }
        self.noted += 1;
        if self.noted.is_multiple_of(LOOK_EVERY) {
            self.recent = self.line();
        }
    }

    /// What was known a short while ago.
    pub fn recent(&self) -> Line {
        self.recent
    }

    /// What is known now.
    pub fn line(&self) -> Line {
        if self.bytes < BYTES_MIN {
            return Line::default();
        }
        let ns_per_byte = self.quantile(QUANTILE);
        Line { ns_per_byte, jitter_ns_per_byte: ns_per_byte - self.quantile(JITTER_QUANTILE) }
    }

    fn quantile(&self, quantile: f64) -> f64 {
        let wanted = (self.bytes as f64 * quantile) as u64;
        let mut seen = 0;
        for (bucket, &bytes) in self.buckets.iter().enumerate() {
            seen += bytes;
            if seen > wanted {
                // the lowest bucket holds all that is too fast to tell
                return if bucket == 0 {
                    0.0
                } else {
                    ((bucket as f64 + 0.5) / BUCKETS_PER_OCTAVE + OCTAVE_MIN).exp2()
                };
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
        // 25 ns a byte are 40 MB/s
        let line = pace.line();
        assert!((line.ns_per_byte - 25.0).abs() < 25.0 * 0.05, "{line:?}");
        assert_eq!(line.jitter_ns_per_byte, 0.0);
    }

    #[test]
    fn a_few_bytes_tell_no_pace() {
        let mut pace = Pace::default();
        pace.note(36_200, 1448);
        assert_eq!(pace.line(), Line::default());
    }

    #[test]
    fn bytes_of_one_instant_are_too_fast_to_tell() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.note(0, 1448));
        assert_eq!(pace.line(), Line::default());
    }
}
