//! Bytes of a stream in order, and who receives them.

use serde::{Deserialize, Serialize};

use super::stamp::Stamp;

/// Stream bytes from the packet that carried them first.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Chunk<'a> {
    /// Stream offset of its first byte.
    pub offset: i64,
    /// Bytes on the wire.
    pub length: u32,
    /// The captured part of them, from the first byte on.
    #[serde(skip)]
    pub captured: &'a [u8],
    /// Frame number of the packet.
    pub frame: u64,
    /// Capture time of the packet.
    pub time_ns: i64,
    /// Whether it came after later bytes of the stream.
    pub is_late: bool,
    /// Whether it starts with its packet's payload.
    pub is_segment_start: bool,
}

impl Chunk<'_> {
    /// Its packet.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        Stamp { frame: self.frame, time_ns: self.time_ns }
    }

    /// The same chunk without captured bytes.
    pub fn without_bytes(&self) -> Chunk<'static> {
        Chunk {
            offset: self.offset,
            length: self.length,
            captured: &[],
            frame: self.frame,
            time_ns: self.time_ns,
            is_late: self.is_late,
            is_segment_start: self.is_segment_start,
        }
    }
}

/// Receives the bytes of one direction in order.
pub trait StreamSink {
    /// The next bytes.
    fn chunk(&mut self, chunk: Chunk<'_>);
    /// Bytes that no captured packet carried.
    fn gap(&mut self, offset: i64, length: u64);
    /// Bytes that were sent before the capture began, as far as is known.
    fn before_capture(&mut self, offset: i64, length: u64) {
        self.gap(offset, length);
    }
}
