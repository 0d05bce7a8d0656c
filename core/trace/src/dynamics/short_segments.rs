//! How many bytes the segments in flight lack to full ones: the congestion window counts segments (RFC 5681, section
//! 3.1).

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Maximum number of short segments in flight that are tracked.
const SEGMENTS_MAX: usize = 4096;

/// The short segments of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct ShortSegments {
    /// End of each segment, and the bytes it lacks.
    segments: VecDeque<(i64, i64)>,
    missing_bytes: i64,
    /// Those of all segments so far.
    missing_in_all: i64,
}

impl ShortSegments {
    /// Notes a packet that ends at `end`.
    #[inline]
    pub fn push(&mut self, end: i64, length: u32, segment: i64) {
        let over = i64::from(length) % segment;
        if over > 0 && self.segments.len() < SEGMENTS_MAX {
            self.segments.push_back((end, segment - over));
            self.missing_bytes += segment - over;
            self.missing_in_all += segment - over;
        }
    }

    /// Everything below `una` was acknowledged.
    #[inline]
    pub fn acknowledge(&mut self, una: i64) {
        while let Some(&(end, missing)) = self.segments.front()
            && end <= una
        {
            self.missing_bytes -= missing;
            self.segments.pop_front();
        }
    }

    /// The sum of the missing bytes.
    #[inline]
    pub fn missing_bytes(&self) -> i64 {
        self.missing_bytes
    }

    /// The sum of the missing bytes of all segments, in flight or not.
    #[inline]
    pub fn missing_in_all(&self) -> i64 {
        self.missing_in_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_segments_stand_for_a_pdu_of_4144_bytes() {
        let mut short = ShortSegments::default();
        for (end, length) in [(1448, 1448), (2896, 1448), (4144, 1248)] {
            short.push(end, length, 1448);
        }
        assert_eq!(4144 + short.missing_bytes(), 3 * 1448);
        short.acknowledge(4144);
        assert_eq!((short.missing_bytes(), short.missing_in_all()), (0, 200));
    }
}
