//! Offsets near the end of a stream, in 32 bits: a connection keeps hundreds of them.
//!
//! What lies further away than 2^31 bytes is none of a connection's: its window has at most 2^30 (`half`).

use serde::{Deserialize, Serialize};

/// Bytes on either side that offsets are told apart in.
const REACH: i64 = 1 << 31;

/// The place that offsets are counted from.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Near {
    first: i64,
}

impl Default for Near {
    fn default() -> Self {
        Self { first: -REACH }
    }
}

impl Near {
    /// An offset; the first or the last that there is instead of one further away.
    #[inline]
    pub fn of(self, offset: i64) -> u32 {
        let from_first = offset.wrapping_sub(self.first);
        u32::try_from(from_first).unwrap_or(if from_first < 0 { 0 } else { u32::MAX })
    }

    /// Moves on if `end` is too far away; returns how far: all offsets are `lowered` by that then.
    #[inline]
    pub fn reach(&mut self, end: i64) -> Option<i64> {
        let moved = end.wrapping_sub(self.first) - REACH;
        (moved >= REACH).then(|| {
            self.first += moved;
            moved
        })
    }
}

/// Lowers an offset, after the place that it is counted from moved; false if it is too far away now.
pub fn lower(offset: &mut u32, moved: i64) -> bool {
    let lowered = u32::try_from(i64::from(*offset) - moved);
    *offset = lowered.unwrap_or(0);
    lowered.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_keep_their_distance_until_they_are_too_far_away() {
        let mut near = Near::default();
        assert_eq!(near.reach(REACH - 1), None);
        assert_eq!([-REACH, 0, REACH - 1].map(|offset| near.of(offset)), [0, 1 << 31, u32::MAX]);
        assert_eq!([-REACH - 1, REACH].map(|offset| near.of(offset)), [0, u32::MAX]);
        let mut kept = [-5, 0, 7].map(|offset| near.of(offset));
        let moved = near.reach(REACH).expect("too far away");
        assert_eq!(kept.each_mut().map(|offset| lower(offset, moved)), [false, true, true]);
        assert_eq!(kept[1..], [0, 7].map(|offset| near.of(offset)));
        assert_eq!(near.reach(1 << 60), Some((1 << 60) - REACH));
        assert_eq!(near.of(-(1 << 60)), 0);
    }
}
