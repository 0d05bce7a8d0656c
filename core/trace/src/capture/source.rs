//! A window that slides over the bytes of any reader: one buffer, reused, of which a record is a slice.
//!
//! ```text
//! buffer  [ consumed | available ........ | room ]
//!                     start                end
//! ```
//!
//! It never copies a record, except the part of one that stands at the end of the buffer when more is read behind it,
//! and never grows for a length that the reader does not back with bytes.

use std::io::{self, Read};
use std::ops::Range;

/// Small enough to stay in the second-level cache, large enough that the system calls do not count.
const BUFFER_BYTES: usize = 256 * 1024;

pub(super) struct Source {
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    is_at_end: bool,
    failure: Option<io::Error>,
}

impl Source {
    pub(super) fn new(reader: Box<dyn Read + Send>) -> Self {
        Self { reader, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, is_at_end: false, failure: None }
    }

    /// The bytes that were read and not yet consumed.
    #[inline(always)]
    pub(super) fn available(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Whether `count` bytes are available, after reading as much as that takes.
    #[inline(always)]
    pub(super) fn has(&mut self, count: usize) -> bool {
        self.end - self.start >= count || self.fill(count)
    }

    /// Consumes `count` bytes, at most those available, and says where they are until more is read.
    #[inline(always)]
    pub(super) fn consume(&mut self, count: usize) -> Range<usize> {
        let start = self.start;
        self.start = self.end.min(start.saturating_add(count));
        start..self.start
    }

    /// Bytes consumed since more was read last.
    #[inline(always)]
    pub(super) fn consumed(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    /// Consumes `count` bytes without keeping them; false when there are fewer.
    pub(super) fn skip(&mut self, mut count: u64) -> bool {
        loop {
            let here = count.min((self.end - self.start) as u64);
            self.consume(here as usize);
            count -= here;
            if count == 0 {
                return true;
            }
            if !self.has(1) {
                return false;
            }
        }
    }

    /// Why reading ended, when that was not the end of the bytes.
    pub(super) fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    #[cold]
    #[inline(never)]
    fn fill(&mut self, count: usize) -> bool {
        while self.end - self.start < count && !self.is_at_end {
            self.make_room(count);
            match self.reader.read(self.buffer.get_mut(self.end..).unwrap_or_default()) {
                Ok(0) => self.is_at_end = true,
                // A reader that claims more than there was room for is not believed.
                Ok(read_count) => self.end = self.buffer.len().min(self.end.saturating_add(read_count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_at_end = true;
                    self.failure = Some(error);
                }
            }
        }
        self.end - self.start >= count
    }

    /// Moves what is available to the front when there is little room behind it, and grows the buffer, step by step
    /// as bytes come in, when one record does not fit.
    fn make_room(&mut self, count: usize) {
        let is_record_too_long = self.buffer.len() - self.start < count;
        if self.start > 0 && (is_record_too_long || self.end == self.buffer.len() || self.start == self.end) {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out at most `step` bytes a call, being interrupted before each.
    struct Dribble {
        bytes: Vec<u8>,
        at: usize,
        step: usize,
        is_interrupted: bool,
    }

    impl Read for Dribble {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.is_interrupted = !self.is_interrupted;
            if self.is_interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let count = self.step.min(buffer.len()).min(self.bytes.len() - self.at);
            buffer[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
            self.at += count;
            Ok(count)
        }
    }

    fn source(bytes: Vec<u8>, step: usize) -> Source {
        Source::new(Box::new(Dribble { bytes, at: 0, step, is_interrupted: false }))
    }

    #[test]
    fn gives_every_byte_once_and_in_order_over_refills_and_growth() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for step in [9_973, 65_536, usize::MAX] {
            let mut source = source(bytes.clone(), step);
            let mut seen = Vec::new();
            for count in [1, 700_000, 3, 1_200_000, 16].into_iter().chain(std::iter::repeat(1_514)) {
                if !source.has(count) {
                    break;
                }
                let range = source.consume(count);
                seen.extend_from_slice(source.consumed(range));
            }
            seen.extend_from_slice(source.available());
            assert!(seen == bytes, "step {step}");
        }
    }

    #[test]
    fn grows_only_with_bytes_that_are_there() {
        let mut source = source(vec![7; 1000], 100);
        assert!(!source.has(64 << 20));
        assert_eq!(source.available().len(), 1000);
        assert_eq!(source.buffer.len(), BUFFER_BYTES);
    }

    #[test]
    fn skips_across_refills_and_says_when_it_cannot() {
        let mut source = source(vec![7; 2_000_000], 4096);
        assert!(source.skip(1_999_999));
        assert!(source.has(1));
        assert!(!source.has(2));
        assert!(!source.skip(2));
    }
}
