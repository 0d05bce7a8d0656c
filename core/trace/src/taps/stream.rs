//! Sequence numbers of one direction at two taps -> offsets of 64 bits in one stream.

/// Index of the sender's tap in arrays of two.
pub(super) const SENDER: usize = 0;
/// Index of the receiver's tap.
pub(super) const RECEIVER: usize = 1;

/// A segment further than this from the stream does not belong to it: no window is larger (RFC 7323 section 2.3).
const WINDOW_MAX_BYTES: i64 = 1 << 30;
/// After so many segments outside in a row, the stream itself is elsewhere.
const OUTSIDE_IN_A_ROW_MAX: u32 = 8;

/// Where the stream of one direction is.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Sequence number of offset 0, in the numbers of the sender's tap.
    base: Option<u32>,
    /// Highest offset of a byte at either tap.
    highest: i64,
    /// Of the SYN at each tap.
    initial: [Option<u32>; 2],
    outside_in_a_row: u32,
}

impl Stream {
    /// A SYN: offset 0 is the byte after it.
    #[cold]
    pub(super) fn synchronize(&mut self, side: usize, number: u32) {
        self.initial[side].get_or_insert(number);
        if self.initial[0].is_none() || side != RECEIVER {
            self.base.get_or_insert(number.wrapping_add(1));
        }
    }

    /// Offset of a sequence number at one tap; none if it is too far away. The middle may have shifted all numbers: the
    /// SYNs show by how much.
    #[inline]
    pub(super) fn offset(&mut self, side: usize, number: u32) -> Option<i64> {
        let number = match self.initial {
            [Some(sent), Some(received)] if side == RECEIVER => number.wrapping_sub(received.wrapping_sub(sent)),
            _ => number,
        };
        let base = *self.base.get_or_insert(number);
        let distance = i64::from(number.wrapping_sub(base.wrapping_add(self.highest as u32)).cast_signed());
        (distance.abs() <= WINDOW_MAX_BYTES).then_some(self.highest + distance)
    }

    /// Notes a segment with bytes up to `end`.
    #[inline]
    pub(super) fn reach(&mut self, end: i64) {
        self.highest = self.highest.max(end);
        self.outside_in_a_row = 0;
    }

    /// Notes a segment too far away; after some in a row the stream goes on there.
    #[cold]
    pub(super) fn note_outside(&mut self, number: u32) {
        self.outside_in_a_row += 1;
        if self.outside_in_a_row >= OUTSIDE_IN_A_ROW_MAX {
            self.outside_in_a_row = 0;
            self.base = Some(number.wrapping_sub(self.highest as u32));
        }
    }
}
