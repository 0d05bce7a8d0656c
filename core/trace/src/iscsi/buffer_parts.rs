//! Which parts of a command's buffer were transferred: a byte that comes again does not count again.

use serde::{Deserialize, Serialize};

/// Parts that are kept apart, beside the last one. Data in order are one part, and each hole makes one more.
const PARTS_MAX: usize = 256;
/// The write buffer of a bidirectional command lies behind every offset of its read buffer.
const WRITE_BUFFER_AT: u64 = 1 << 40;

/// The parts of the buffers of one command.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct BufferParts {
    /// The part with the bytes that came last.
    last: (u64, u64),
    /// The others, in order.
    others: Vec<(u64, u64)>,
    /// Whether there were too many, so that bytes of the dropped ones count again if they come again.
    pub is_incomplete: bool,
}

impl BufferParts {
    /// Adds the bytes at an offset of the buffer, of the write buffer of a bidirectional command if `is_second`; returns how
    /// many of them are new.
    #[inline]
    pub fn add(&mut self, is_second: bool, offset: u32, length: u32) -> u32 {
        let start = u64::from(offset) + if is_second { WRITE_BUFFER_AT } else { 0 };
        let end = start + u64::from(length);
        if self.others.is_empty() && (start == self.last.1 || self.last.0 == self.last.1) {
            self.last = (if start == self.last.1 { self.last.0 } else { start }, end);
            return length;
        }
        self.insert(start, end)
    }

    /// Adds bytes that follow the last ones; all of them count.
    pub fn add_next(&mut self, length: u32) {
        self.last.1 += u64::from(length);
    }

    #[cold]
    fn insert(&mut self, start: u64, end: u64) -> u32 {
        let last = self.last;
        if last.0 < last.1 {
            let place = self.others.partition_point(|part| *part < last);
            self.others.insert(place, last);
        }
        let is_joined = |part: &mut (u64, u64)| part.0 <= end && part.1 >= start;
        let (mut own, mut known) = ((start, end), 0);
        for part in self.others.extract_if(.., is_joined) {
            known += part.1.min(end).saturating_sub(part.0.max(start));
            own = (own.0.min(part.0), own.1.max(part.1));
        }
        self.last = own;
        if self.others.len() > PARTS_MAX {
            self.others.remove(0);
            self.is_incomplete = true;
        }
        (end - start).saturating_sub(known) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_in_order_are_one_part() {
        let mut parts = BufferParts::default();
        assert_eq!([0, 512, 1024].map(|offset| parts.add(false, offset, 512)), [512; 3]);
        assert_eq!((parts.last, parts.others.len()), ((0, 1536), 0));
        // a capture that begins within a command
        let mut later = BufferParts::default();
        assert_eq!((later.add(false, 4096, 512), later.add(false, 4608, 512)), (512, 512));
        assert_eq!((later.last, later.others.len()), ((4096, 5120), 0));
    }

    #[test]
    fn the_write_buffer_is_not_the_read_buffer() {
        let mut parts = BufferParts::default();
        assert_eq!([parts.add(false, 0, 512), parts.add(true, 0, 512), parts.add(true, 256, 512)], [512, 512, 256]);
    }

    #[test]
    fn bytes_that_are_assumed_count_and_are_known_then() {
        let mut parts = BufferParts::default();
        parts.add(false, 0, 512);
        parts.add_next(512);
        assert_eq!(parts.add(false, 512, 1024), 512);
    }

    #[test]
    fn too_many_parts_are_bounded_and_said() {
        let mut parts = BufferParts::default();
        let every_second = |parts: &mut BufferParts, count: u32| {
            (0..count).map(|number| parts.add(false, 1024 * number, 512)).all(|new| new == 512)
        };
        assert!(every_second(&mut parts, PARTS_MAX as u32 + 1));
        assert!(!parts.is_incomplete);
        assert!(!every_second(&mut parts, 1));
        assert_eq!(parts.add(false, 1024 * (PARTS_MAX as u32 + 1), 512), 512);
        assert!(parts.is_incomplete && parts.others.len() == PARTS_MAX);
    }

    proptest! {
        /// Compared with a set of bytes.
        #[test]
        fn each_byte_counts_once(data in prop::collection::vec((any::<bool>(), 0u32..60, 1u32..20), 1..40)) {
            let (mut parts, mut bytes) = (BufferParts::default(), HashSet::new());
            for (is_second, offset, length) in data {
                let new = (offset..offset + length).filter(|&byte| bytes.insert((is_second, byte))).count();
                prop_assert_eq!(parts.add(is_second, offset, length), new as u32);
            }
        }
    }
}
