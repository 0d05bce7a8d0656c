//! A histogram with logarithmic classes in bounded memory: 32 classes per factor of two, so a percentile is within 1.6
//! % of a value that occurred. Only classes with values take memory: most connections are short.

use serde::{Deserialize, Serialize};
/// Classes per factor of two.
const CLASSES: u16 = 32;
/// Its binary logarithm.
const CLASS_BITS: u32 = 5;

/// Counts by class.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Histogram {
    /// Classes with values, in order, and their counts.
    counts: Vec<(u16, u32)>,
    count: u64,
}

impl Histogram {
    /// Prefetches where a class is looked for first.
    pub fn prefetch(&self) {
        self.counts.get(self.counts.len() / 2).into_iter().for_each(iscsitrace_sys::prefetch_value);
    }

    /// Adds a value; negative values count as zero.
    #[inline]
    pub fn add(&mut self, value: i64) {
        let class = class(value.max(0) as u64);
        match self.counts.binary_search_by_key(&class, |&(class, _)| class) {
            Ok(place) => self.counts[place].1 = self.counts[place].1.saturating_add(1),
            Err(place) => self.counts.insert(place, (class, 1)),
        }
        self.count += 1;
    }

    /// Removes all values; their memory stays.
    pub fn clear(&mut self) {
        self.counts.clear();
        self.count = 0;
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A percentile by nearest rank: the middle of its class.
    pub fn percentile(&self, percent: u64) -> Option<i64> {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut passed = 0;
        for &(class, count) in &self.counts {
            passed += u64::from(count);
            if passed >= rank {
                return Some(middle(class));
            }
        }
        None
    }
}

/// The class of a value: small values have their own, others share one by their first six bits.
fn class(value: u64) -> u16 {
    let shift = (64 - value.leading_zeros()).saturating_sub(CLASS_BITS + 1) as u16;
    shift * CLASSES + (value >> shift) as u16
}

/// The middle of a class.
fn middle(class: u16) -> i64 {
    let shift = (class / CLASSES).saturating_sub(1);
    let first = u64::from(class - shift * CLASSES) << shift;
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
    fn classes_without_values_take_no_memory() {
        let mut histogram = Histogram::default();
        [9_000_000_000, 5, 9_000_000_000, 5, 70_000].into_iter().for_each(|value| histogram.add(value));
        assert_eq!(histogram.counts.iter().map(|&(_, count)| count).collect::<Vec<_>>(), [2, 1, 2]);
        assert_eq!(histogram.percentile(40), Some(5));
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
