//! Bytes written and not yet acknowledged, by their place in the stream; and the ends of writes.
//!
//! A write is copied once. Segments and retransmissions share its memory; only a segment across two writes is copied
//! again. It never decides what is sent.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Bytes from the first not acknowledged to the last written. Places count from 1: the SYN is at 0.
#[derive(Debug)]
pub struct SendBuffer {
    capacity: usize,
    /// What was written, in order, each with its place.
    blocks: VecDeque<(i64, Bytes)>,
    start: i64,
    end: i64,
    /// Places behind bytes that are to be pushed (RFC 9293, section 3.9.1.2), ascending.
    pushes: VecDeque<i64>,
    pushed: i64,
}

impl SendBuffer {
    /// An empty one.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, blocks: VecDeque::new(), start: 1, end: 1, pushes: VecDeque::new(), pushed: 1 }
    }

    /// The place behind the last byte written.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Bytes that a write would take.
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub((self.end - self.start) as usize)
    }

    /// Takes as many bytes as fit, as one system call; `sent` is the place behind the last byte sent.
    ///
    /// PSH is set as in Linux: at the end of the call, and within a long call after each half of the largest window
    /// that the peer offered. Bytes appended to an unsent last segment clear its mark.
    pub fn write(&mut self, bytes: &[u8], sent: i64, largest_window: u32) -> usize {
        let taken = bytes.len().min(self.room());
        if taken == 0 {
            return 0;
        }
        if self.end > sent && self.pushes.back() == Some(&self.end) {
            self.pushes.pop_back();
        }
        self.blocks.push_back((self.end, Bytes::copy_from_slice(&bytes[..taken])));
        self.end += taken as i64;
        let half = i64::from(largest_window / 2);
        while half > 0 && self.end - self.pushed > half + 1 {
            self.pushed += half + 1;
            self.pushes.push_back(self.pushed);
        }
        self.push();
        taken
    }

    /// Marks the last byte written as to be pushed.
    fn push(&mut self) {
        self.pushed = self.end;
        if self.pushes.back() != Some(&self.end) {
            self.pushes.push_back(self.end);
        }
    }

    /// Whether a byte of `start..end` is the last before a push.
    pub fn is_pushed(&self, start: i64, end: i64) -> bool {
        let index = self.pushes.partition_point(|&place| place <= start);
        self.pushes.get(index).is_some_and(|&place| place <= end)
    }

    /// The bytes of `start..end` that are here.
    pub fn slice(&self, start: i64, end: i64) -> Bytes {
        let (start, end) = (start.max(self.start), end.min(self.end));
        if start >= end {
            return Bytes::new();
        }
        let mut index = self.blocks.partition_point(|(place, block)| place + block.len() as i64 <= start);
        let Some((place, block)) = self.blocks.get(index) else { return Bytes::new() };
        let from = (start - place) as usize;
        let length = (end - start) as usize;
        if from + length <= block.len() {
            return block.slice(from..from + length);
        }
        let mut joined = BytesMut::with_capacity(length);
        joined.extend_from_slice(&block[from..]);
        while joined.len() < length {
            index += 1;
            let Some((_, block)) = self.blocks.get(index) else { break };
            joined.extend_from_slice(&block[..block.len().min(length - joined.len())]);
        }
        joined.freeze()
    }

    /// Drops acknowledged bytes.
    pub fn acknowledge(&mut self, place: i64) {
        self.start = self.start.max(place.min(self.end));
        while self.blocks.front().is_some_and(|(place, block)| place + block.len() as i64 <= self.start) {
            self.blocks.pop_front();
        }
        while self.pushes.front().is_some_and(|&place| place <= self.start) {
            self.pushes.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain vector: any slice of what was written and not acknowledged.
        #[test]
        fn slices_equal_the_written_bytes(operations in prop::collection::vec((1usize..400, 0usize..300, any::<u16>()), 1..60)) {
            let mut buffer = SendBuffer::new(1000);
            let (mut written, mut acknowledged) = (Vec::new(), 0usize);
            for (count, more, start) in operations {
                let bytes: Vec<u8> = (0..count).map(|index| (written.len() + index) as u8 ^ 0x5a).collect();
                let room = 1000 - (written.len() - acknowledged);
                let taken = buffer.write(&bytes, 1, 65535);
                prop_assert_eq!(taken, count.min(room));
                written.extend_from_slice(&bytes[..taken]);
                let start = acknowledged + usize::from(start) % (written.len() - acknowledged + 1);
                let end = (start + more).min(written.len());
                prop_assert_eq!(&buffer.slice(start as i64 + 1, end as i64 + 1)[..], &written[start..end]);
                acknowledged = (acknowledged + more).min(written.len());
                buffer.acknowledge(acknowledged as i64 + 1);
                prop_assert_eq!(buffer.room(), 1000 - (written.len() - acknowledged));
            }
        }
    }

    #[test]
    fn psh_marks_the_end_of_a_call_unless_more_follows_before_sending() {
        let mut buffer = SendBuffer::new(100_000);
        buffer.write(&[1; 3000], 1, 60_000);
        assert!(!buffer.is_pushed(1, 2897) && buffer.is_pushed(2897, 3001));
        // The last segment was not sent: it loses its mark, the end of the new call has one.
        buffer.write(&[1; 500], 2897, 60_000);
        assert!(!buffer.is_pushed(2897, 3200) && buffer.is_pushed(3200, 3501));
        // It was sent: both stay.
        buffer.write(&[1; 500], 3501, 60_000);
        assert!(buffer.is_pushed(3200, 3501) && buffer.is_pushed(3501, 4001));
    }

    #[test]
    fn a_long_call_is_pushed_after_half_of_the_window() {
        let mut buffer = SendBuffer::new(100_000);
        buffer.write(&[1; 70_000], 1, 60_000);
        assert!(!buffer.is_pushed(1, 30_001) && buffer.is_pushed(30_001, 30_002));
        assert!(buffer.is_pushed(60_002, 60_003) && buffer.is_pushed(70_000, 70_001));
    }
}
