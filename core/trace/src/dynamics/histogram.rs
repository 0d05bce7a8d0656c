//! A histogram with logarithmic classes in bounded memory: 32 classes per factor of two, so a percentile is within 1.6
//! % of a value that occurred.

use serde::{Deserialize, Serialize};
/// Classes per factor of two.
const CLASSES: usize = 32;
/// Its binary logarithm.
const CLASS_BITS: u32 = 5;

/// Counts by class.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Histogram {
    /// Counts up to the class of the largest value.
    counts: Vec<u32>,
    count: u64,
}

impl Histogram {
    /// Adds a value; negative values count as zero.
    #[inline]
    pub fn add(&mut self, value: i64) {
        let class = class(value.max(0) as u64);
        if class >= self.counts.len() {
            self.counts.resize(class + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(class) {
            *count = count.saturating_add(1);
        }
        self.count += 1;
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A percentile by nearest rank: the middle of its class.
    pub fn percentile(&self, percent: u64) -> Option<i64> {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut passed = 0;
        for (class, &count) in self.counts.iter().enumerate() {
            passed += u64::from(count);
            if passed >= rank {
                return Some(middle(class));
            }
        }
        None
    }
}

/// The class of a value: small values have their own, others share one by their first six bits.
fn class(value: u64) -> usize {
    let shift = (64 - value.leading_zeros()).saturating_sub(CLASS_BITS + 1);
    shift as usize * CLASSES + (value >> shift) as usize
}

/// The middle of a class.
fn middle(class: usize) -> i64 {
    let shift = (class / CLASSES).saturating_sub(1);
    let first = ((class - shift * CLASSES) as u64) << shift;
    (first + (1_u64 << shift >> 1)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_hundred_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(50), None);
        (1..=100).for_each(|value| histogram.add(value));
        assert_eq!(histogram.count(), 100);
        assert_eq!(histogram.percentile(50), Some(50));
        let high = histogram.percentile(95).expect("there are values");
        assert!((94..=96).contains(&high), "{high}");
        assert_eq!(histogram.percentile(1), Some(1));
    }

    #[test]
    fn a_class_has_the_stated_width() {
        for value in (0..62).flat_map(|bit| [1_u64 << bit, (1 << bit) + (1 << bit) / 3, (2 << bit) - 1]) {
            let found = middle(class(value)) as f64;
            assert!((found - value as f64).abs() <= value as f64 / 62.0, "{value} is held as {found}");
        }
    }

    #[test]
    fn a_value_below_zero_counts_as_zero() {
        let mut histogram = Histogram::default();
        histogram.add(i64::MIN);
        assert_eq!(histogram.percentile(100), Some(0));
    }
}
