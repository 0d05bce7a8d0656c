//! Throughput over time, in slices of equal length, which doubles when there are too many.

use serde::{Deserialize, Serialize};

/// Most slices; then pairs are merged.
const MOST: usize = 4096;

/// Commands that ended in one slice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Bytes.
    pub bytes: u64,
    /// Commands.
    pub commands: u64,
}

/// All slices, from the start of the workload on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slices {
    /// Length of each.
    pub slice_ns: i64,
    /// In order.
    pub slices: Vec<Slice>,
}

impl Default for Slices {
    fn default() -> Self {
        Self::new(100_000_000)
    }
}

impl Slices {
    /// Starts with slices of this length.
    #[must_use]
    pub fn new(slice_ns: i64) -> Self {
        Self { slice_ns: slice_ns.max(1), slices: Vec::new() }
    }

    /// A command ended at this time after the start.
    pub fn add(&mut self, since_start_ns: i64, bytes: u64) {
        let since_start_ns = since_start_ns.max(0);
        while since_start_ns / self.slice_ns >= MOST as i64 {
            self.slice_ns = self.slice_ns.saturating_mul(2);
            let pairs = self.slices.chunks(2).map(|pair| Slice {
                bytes: pair.iter().map(|slice| slice.bytes).sum(),
                commands: pair.iter().map(|slice| slice.commands).sum(),
            });
            self.slices = pairs.collect();
        }
        let index = usize::try_from(since_start_ns / self.slice_ns).unwrap_or(0);
        if self.slices.len() <= index {
            self.slices.resize(index + 1, Slice::default());
        }
        self.slices[index].bytes += bytes;
        self.slices[index].commands += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_counts_in_the_slice_of_its_end() {
        let mut slices = Slices::new(100);
        [(0, 1), (99, 2), (100, 4), (350, 8)].into_iter().for_each(|(at, bytes)| slices.add(at, bytes));
        let found: Vec<_> = slices.slices.iter().map(|slice| (slice.bytes, slice.commands)).collect();
        assert_eq!(found, [(3, 2), (4, 1), (0, 0), (8, 1)]);
    }

    #[test]
    fn long_runs_have_longer_slices_and_lose_nothing() {
        let mut slices = Slices::new(1);
        (0..20_000).for_each(|at| slices.add(at, 3));
        assert_eq!(slices.slice_ns, 8);
        assert_eq!(slices.slices.len(), 2500);
        assert!(slices.slices.iter().all(|slice| *slice == Slice { bytes: 24, commands: 8 }));
        slices.add(i64::MAX, 1);
        assert!(slices.slices.len() <= MOST);
    }
}
