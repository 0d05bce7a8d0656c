//! What a full segment of one direction carries.
//!
//! The SYNs tell it when packets of that length were sent; else it is the length that came most often, or what divides
//! the lengths of packets that were put together (offload). It never counts packets of other lengths.

/// Lengths that are counted at a time.
const LENGTHS_MAX: usize = 8;
/// No full segment is shorter (RFC 9293, section 3.7.1).
const FULL_MIN_BYTES: u32 = 536;
/// No network on which iSCSI runs carries more in one packet.
const FULL_MAX_BYTES: u32 = 9_216;
/// What is assumed while nothing is known.
const ASSUMED_BYTES: i64 = 1_460;
/// Bytes of every segment that timestamps take (RFC 7323, section 3.2).
const TIMESTAMPS_BYTES: u32 = 12;

/// The segment size of one direction.
#[derive(Debug, Default)]
pub struct SegmentSize {
    /// Full, as far as is known; 0 while nothing is.
    bytes: u32,
    announced: Option<u32>,
    is_announced_seen: bool,
    /// Lengths and how often they came, the rarest given up for another.
    lengths: Vec<(u32, u32)>,
    longest: u32,
}

impl SegmentSize {
    /// A packet with payload; `announced` is the smaller maximum of the two SYNs.
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

    /// How often a length came, this time included; something is learnt whenever that doubles.
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

    /// Of the lengths and what divides two of them, that which divides most packets, the longest of such; but the longest
    /// length that came, when one packet of a network carries that.
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

    /// Payload of a full segment; none when none was sent.
    pub fn known(&self) -> Option<u32> {
        (self.bytes > 0).then_some(self.bytes)
    }

    /// Payload of a full segment, or what is usual.
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
    fn the_syns_tell_less_the_timestamps() {
        assert_eq!(size(&[1248, 1448, 48], Some(1460)), (Some(1448), false));
        assert_eq!(size(&[14480, 1248], Some(1460)), (Some(1448), true));
    }

    #[test]
    fn a_path_that_carries_less_shows_in_what_is_sent() {
        assert_eq!(size(&[1348, 1348, 600, 1348], Some(1460)), (Some(1348), false));
    }

    #[test]
    fn without_a_syn_the_lengths_tell() {
        assert_eq!(size(&[48, 1448, 1248, 1448, 1448], None), (Some(1448), false));
        assert_eq!(size(&[2896, 14480, 20272, 24616, 1248], None), (Some(1448), true));
        assert_eq!(size(&[48, 96], None), (None, false));
    }
}
