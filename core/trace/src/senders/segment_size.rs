//! The payload of a full segment of one direction.
//!
//! It is the MSS of the SYNs, if packets of that length were sent. Otherwise it is the most frequent length, or a
//! common divisor of the lengths of merged packets (offload).

use serde::{Deserialize, Serialize};
/// Number of different lengths that are counted at a time.
const LENGTHS_MAX: usize = 8;
/// No full segment is shorter (RFC 9293, section 3.7.1).
const FULL_MIN_BYTES: u32 = 536;
/// No network used for iSCSI carries more in one packet.
const FULL_MAX_BYTES: u32 = 9_216;
/// The size while nothing is known.
const ASSUMED_BYTES: i64 = 1_460;
/// Bytes of TCP timestamps in every segment (RFC 7323, section 3.2).
pub const TIMESTAMPS_BYTES: u32 = 12;

/// The segment size of one direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct SegmentSize {
    /// Payload of a full segment; 0 while unknown.
    bytes: u32,
    announced: Option<u32>,
    is_announced_seen: bool,
    /// Lengths and their counts; a new length replaces the rarest.
    lengths: Vec<(u32, u32)>,
    longest: u32,
}

impl SegmentSize {
    /// Notes a packet with payload; `announced` is the smaller MSS of the two SYNs.
    #[inline]
    pub fn note(&mut self, length: u32, announced: Option<u16>, has_timestamps: bool) {
        if length == self.bytes || length < FULL_MIN_BYTES {
            return;
        }
        self.note_other(length, announced, has_timestamps);
    }

    fn note_other(&mut self, length: u32, announced: Option<u16>, has_timestamps: bool) {
        self.longest = self.longest.max(length);
        let options = if has_timestamps { TIMESTAMPS_BYTES } else { 0 };
        self.announced = announced.map(|bytes| u32::from(bytes).saturating_sub(options)).filter(|&bytes| bytes > 0);
        if let Some(announced) = self.announced
            && length.is_multiple_of(announced)
        {
            self.is_announced_seen = true;
            self.bytes = announced;
            return;
        }
        if self.is_announced_seen {
            return;
        }
        if self.count(length).is_power_of_two() {
            self.bytes = self.common();
        }
    }

    /// Counts a length and returns its count. The size is computed anew whenever a count reaches a power of two.
    fn count(&mut self, length: u32) -> u32 {
        if let Some(known) = self.lengths.iter_mut().find(|known| known.0 == length) {
            known.1 = known.1.saturating_add(1);
            return known.1;
        }
        if self.lengths.len() < LENGTHS_MAX {
            self.lengths.push((length, 1));
        } else if let Some(rarest) = self.lengths.iter_mut().min_by_key(|known| known.1) {
            *rarest = (length, rarest.1.saturating_add(1));
        }
        1
    }

    /// The longest length, if one packet can carry it; otherwise the divisor of two lengths that divides most packets,
    /// the largest of equals.
    fn common(&self) -> u32 {
        let longest = self.lengths.iter().map(|&(length, _)| length).max().unwrap_or(0);
        if longest <= FULL_MAX_BYTES && self.longest <= FULL_MAX_BYTES {
            return longest;
        }
        let divisors = self.lengths.iter().flat_map(|&(length, _)| {
            self.lengths.iter().map(move |&(other, _)| greatest_common_divisor(length, other))
        });
        let divided = |divisor: u32| -> u64 {
            let fitting = self.lengths.iter().filter(|&&(length, _)| length.is_multiple_of(divisor));
            fitting.map(|&(_, count)| u64::from(count)).sum()
        };
        divisors
            .filter(|divisor| (FULL_MIN_BYTES..=FULL_MAX_BYTES).contains(divisor))
            .max_by_key(|&divisor| (divided(divisor), divisor))
            .unwrap_or(0)
    }

    /// Payload of a full segment; none if unknown.
    pub fn known(&self) -> Option<u32> {
        (self.bytes > 0).then_some(self.bytes)
    }

    /// Payload of a full segment, or the usual one.
    #[inline]
    pub fn bytes(&self) -> i64 {
        if self.bytes > 0 { i64::from(self.bytes) } else { ASSUMED_BYTES }
    }

    /// Whether packets longer than a segment were captured.
    pub fn has_super_segments(&self) -> bool {
        self.bytes > 0 && self.longest > self.bytes
    }
}

fn greatest_common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(lengths: &[u32], announced: Option<u16>) -> (Option<u32>, bool) {
        let mut size = SegmentSize::default();
        lengths.iter().for_each(|&length| size.note(length, announced, true));
        (size.known(), size.has_super_segments())
    }

    #[test]
    fn the_size_is_the_mss_of_the_syns_minus_timestamps() {
        assert_eq!(size(&[1248, 1448, 48], Some(1460)), (Some(1448), false));
        assert_eq!(size(&[14480, 1248], Some(1460)), (Some(1448), true));
    }

    #[test]
    fn a_smaller_path_mtu_shows_in_the_packets() {
        assert_eq!(size(&[1348, 1348, 600, 1348], Some(1460)), (Some(1348), false));
    }

    #[test]
    fn a_full_segment_has_536_to_9216_bytes() {
        assert_eq!(size(&[535], None), (None, false));
        assert_eq!(size(&[536], None), (Some(536), false));
        assert_eq!(size(&[9216], None), (Some(9216), false));
        // merged from two or more, but not from one alone
        assert_eq!(size(&[9217], None), (None, false));
        assert_eq!(size(&[2 * 9216], None), (None, false));
        assert_eq!(size(&[2 * 9216, 3 * 9216], None), (Some(9216), true));
    }

    #[test]
    fn without_a_syn_the_lengths_decide() {
        assert_eq!(size(&[48, 1448, 1248, 1448, 1448], None), (Some(1448), false));
        assert_eq!(size(&[2896, 14480, 20272, 24616, 1248], None), (Some(1448), true));
        assert_eq!(size(&[48, 96], None), (None, false));
    }
}
