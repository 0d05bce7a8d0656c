//! A window that slides over the bytes of a reader or file: a record is a slice of it.
//!
//! ```text
//! bytes  [ consumed | available ........ | room ]
//!                    start                end
//! ```
//!
//! The bytes of a reader are in one reused buffer; a large file is mapped and never copied. Only an incomplete record
//! at the end of the buffer is copied, when more is read. The buffer never grows for a length without bytes to back it.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iscsitrace_sys::MappedFile;

/// Small enough for the second-level cache, large enough that system calls do not matter.
const BUFFER_BYTES: usize = 256 * 1024;

/// File bytes of a record with a full Ethernet frame.
const FULL_RECORD_BYTES: usize = 16 + 1514;
/// Prefetch distances: the headers of the next packet; of the one after it, if the next is a full one; and further
/// ahead, for the address translation of the page. They save a quarter of the CPU time of a pass over 2 GB of large blocks.
const PREFETCHED_AHEAD: [usize; 3] = [0, FULL_RECORD_BYTES, 3 * FULL_RECORD_BYTES];

enum Bytes {
    Read {
        reader: Box<dyn Read + Send>,
        buffer: Vec<u8>,
    },
    /// `reached` is how far in the file the windows went.
    Mapped {
        file: MappedFile,
        reached: u64,
        bytes_read: Arc<AtomicU64>,
    },
}

pub(super) struct Source {
    bytes: Bytes,
    start: usize,
    end: usize,
    is_at_end: bool,
    /// The reader has nothing now, but is not at its end.
    is_waiting: bool,
    failure: Option<io::Error>,
}

impl Source {
    pub(super) fn new(reader: Box<dyn Read + Send>) -> Self {
        Self::over(Bytes::Read { reader, buffer: vec![0; BUFFER_BYTES] })
    }

    /// A source that maps a file; `bytes_read` follows the progress.
    pub(super) fn mapped(file: File, bytes_read: Arc<AtomicU64>) -> Self {
        Self::over(Bytes::Mapped { file: MappedFile::new(file), reached: 0, bytes_read })
    }

    fn over(bytes: Bytes) -> Self {
        Self { bytes, start: 0, end: 0, is_at_end: false, is_waiting: false, failure: None }
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Read { buffer, .. } => buffer,
            Bytes::Mapped { file, .. } => file.bytes(),
        }
    }

    /// The bytes read and not yet consumed.
    #[inline(always)]
    pub(super) fn available(&self) -> &[u8] {
        self.bytes().get(self.start..self.end).unwrap_or_default()
    }

    /// Whether `count` bytes are available; reads more if necessary.
    #[inline(always)]
    pub(super) fn has(&mut self, count: usize) -> bool {
        self.end - self.start >= count || self.fill(count)
    }

    /// Consumes `count` bytes, at most those available, and returns their position, valid until the next read.
    #[inline(always)]
    pub(super) fn consume(&mut self, count: usize) -> Range<usize> {
        let start = self.start;
        self.start = self.end.min(start.saturating_add(count));
        start..self.start
    }

    /// Bytes consumed since the last read.
    #[inline(always)]
    pub(super) fn consumed(&self, range: Range<usize>) -> &[u8] {
        self.bytes().get(range).unwrap_or_default()
    }

    /// Prefetches bytes that will probably be needed soon.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        if let Bytes::Mapped { file, .. } = &self.bytes {
            for ahead in PREFETCHED_AHEAD {
                iscsitrace_sys::prefetch(file.bytes(), self.start + ahead);
            }
        }
    }

    /// Skips `count` bytes. False if there are fewer.
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

    /// Whether the last check found too few bytes, but more may come (`WouldBlock`).
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Why reading failed, if it did.
    pub(super) fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    #[cold]
    #[inline(never)]
    fn fill(&mut self, count: usize) -> bool {
        self.is_waiting = false;
        while self.end - self.start < count && !self.is_at_end {
            let more = match &mut self.bytes {
                Bytes::Read { reader, buffer } => {
                    make_room(buffer, &mut self.start, &mut self.end, count);
                    reader.read(buffer.get_mut(self.end..).unwrap_or_default()).map(|read_count| {
                        // A reader cannot have read more than there was room for.
                        self.end = buffer.len().min(self.end.saturating_add(read_count));
                        read_count > 0
                    })
                }
                Bytes::Mapped { file, reached, bytes_read } => {
                    let place = file.offset() + self.start as u64;
                    let before = self.end - self.start;
                    (self.start, self.end) = (0, 0);
                    file.slide(place, count).map(|shown| {
                        (self.start, self.end) = (shown.start, shown.end);
                        let now_reached = (*reached).max(place + shown.len() as u64);
                        bytes_read.fetch_add(now_reached - *reached, Ordering::Relaxed);
                        *reached = now_reached;
                        shown.len() > before
                    })
                }
            };
            match more {
                Ok(has_more) => self.is_at_end = !has_more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_waiting = true;
                    return false;
                }
                Err(error) => {
                    self.is_at_end = true;
                    self.failure = Some(error);
                }
            }
        }
        self.end - self.start >= count
    }
}

/// Moves the available bytes to the front when there is little room behind them. Grows the buffer step by step as bytes
/// arrive, if one record does not fit.
fn make_room(buffer: &mut Vec<u8>, start: &mut usize, end: &mut usize, count: usize) {
    let is_record_too_long = buffer.len() - *start < count;
    if *start > 0 && (is_record_too_long || *end == buffer.len() || start == end) {
        buffer.copy_within(*start..*end, 0);
        *end -= *start;
        *start = 0;
    }
    if *end == buffer.len() {
        buffer.resize(buffer.len() * 2, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns at most `step` bytes per call, and is interrupted before each.
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

    fn assert_returns(mut source: Source, bytes: &[u8], what: &str) {
        let mut seen = Vec::new();
        for count in [1, 700_000, 3, 1_200_000, 16].into_iter().chain(std::iter::repeat(1_514)) {
            if !source.has(count) {
                break;
            }
            let range = source.consume(count);
            seen.extend_from_slice(source.consumed(range));
        }
        seen.extend_from_slice(source.available());
        assert!(seen == bytes, "{what}");
    }

    fn noise(count: u32) -> Vec<u8> {
        (0..count).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    #[test]
    fn returns_every_byte_once_and_in_order_over_refills_and_growth() {
        let bytes = noise(3_000_000);
        for step in [9_973, 65_536, usize::MAX] {
            assert_returns(source(bytes.clone(), step), &bytes, &format!("step {step}"));
        }
    }

    #[test]
    fn returns_every_byte_of_a_mapped_file_over_its_windows() {
        let bytes = noise(30_000_000);
        let path = std::env::temp_dir().join(format!("iscsitrace-source-{}", std::process::id()));
        std::fs::write(&path, &bytes).expect("a file");
        let bytes_read = Arc::default();
        let mapped = Source::mapped(File::open(&path).expect("the file"), Arc::clone(&bytes_read));
        std::fs::remove_file(path).expect("the file");
        assert_returns(mapped, &bytes, "sys");
        assert_eq!(bytes_read.load(Ordering::Relaxed), bytes.len() as u64);
    }

    #[test]
    fn grows_only_with_bytes_that_are_there() {
        let mut source = source(vec![7; 1000], 100);
        assert!(!source.has(64 << 20));
        assert_eq!(source.available().len(), 1000);
        assert_eq!(source.bytes().len(), BUFFER_BYTES);
    }

    #[test]
    fn skips_across_refills_and_reports_a_short_input() {
        let mut source = source(vec![7; 2_000_000], 4096);
        assert!(source.skip(1_999_999));
        assert!(source.has(1));
        assert!(!source.has(2));
        assert!(!source.skip(2));
    }
}
