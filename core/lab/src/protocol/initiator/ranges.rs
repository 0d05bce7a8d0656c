//! The transferred ranges of a command's buffer, if data may arrive in any order.
//!
//! Never more than [`MOST`] ranges: a peer that needs more is refused.

/// Most ranges.
const MOST: usize = 4096;

/// Byte ranges that neither overlap nor touch, in order.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// Adds `first..end`; false when a byte of it was present already, or there are too many ranges.
    pub(super) fn add(&mut self, first: u32, end: u32) -> bool {
        if first >= end {
            return true;
        }
        let at = self.0.partition_point(|range| range.1 < first);
        let joins_before = self.0.get(at).is_some_and(|range| range.1 == first);
        let next = at + usize::from(joins_before);
        if self.0.get(next).is_some_and(|range| range.0 < end) {
            return false;
        }
        let joins_after = self.0.get(next).is_some_and(|range| range.0 == end);
        match (joins_before, joins_after) {
            (true, true) => {
                let (_, end) = self.0.remove(next);
                self.0[at].1 = end;
            }
            (true, false) => self.0[at].1 = end,
            (false, true) => self.0[next].0 = first,
            (false, false) if self.0.len() < MOST => self.0.insert(at, (first, end)),
            (false, false) => return false,
        }
        true
    }

    /// Clears it.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a model with a bit per byte.
        #[test]
        fn a_range_with_a_present_byte_is_refused(steps in prop::collection::vec((0u32..60, 0u32..9), 0..60)) {
            let (mut ranges, mut bytes) = (Ranges::default(), [false; 80]);
            for (first, length) in steps {
                let place = &mut bytes[first as usize..(first + length) as usize];
                let is_new = !place.contains(&true);
                prop_assert_eq!(ranges.add(first, first + length), is_new);
                if is_new {
                    place.fill(true);
                }
                let mut kept = [false; 80];
                ranges.0.iter().for_each(|range| kept[range.0 as usize..range.1 as usize].fill(true));
                prop_assert_eq!(kept, bytes);
                prop_assert!(ranges.0.windows(2).all(|pair| pair[0].1 < pair[1].0));
            }
        }
    }

    #[test]
    fn scattered_ranges_are_bounded() {
        let mut ranges = Ranges::default();
        let added = (0..10_000u32).filter(|index| ranges.add(index * 2, index * 2 + 1)).count();
        assert_eq!(added, MOST);
        ranges.clear();
        assert!(ranges.add(0, 1));
    }
}
