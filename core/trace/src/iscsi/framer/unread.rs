//! The start of a stream whose first header was not found yet: its chunks are kept, because the first header that is
//! certain often follows others that were not.
//!
//! ```text
//!   first byte captured         the first certain header
//!   | Data-In, 256 KiB ........ | SCSI Response ...
//!   `- nothing was known here, but its length leads exactly there
//! ```
//!
//! Positions before the found header are read as headers if their lengths lead exactly to it, from one to the next, and
//! their sequence numbers are near its own. The first one starts a segment, or has two such numbers.

use iscsitrace_wire::bhs::LENGTH_BYTES;
use serde::{Deserialize, Serialize};

use crate::iscsi::leads::Leads;
use crate::stream::chunk::Chunk;

/// Captured bytes that are kept of one stream: two Data-In of 256 KiB, the longest in practice.
const BYTES_MAX: usize = 512 << 10;
/// Chunks that are kept of one stream.
const CHUNKS_MAX: usize = 1 << 12;

/// The kept chunks, with holes between them where the capture has holes.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Unread {
    /// Each chunk, and where its captured bytes start in `captured`.
    pub(super) chunks: Vec<(Chunk<'static>, usize)>,
    captured: Vec<u8>,
    /// The possible headers at the starts of segments.
    pub(super) leads: Leads,
}

impl Unread {
    /// Keeps a chunk; false if there is no room for it.
    pub(super) fn push(&mut self, chunk: &Chunk<'_>) -> bool {
        if self.chunks.len() == CHUNKS_MAX || self.captured.len() + chunk.captured.len() > BYTES_MAX {
            return false;
        }
        self.chunks.push((chunk.without_bytes(), self.captured.len()));
        self.captured.extend_from_slice(chunk.captured);
        true
    }

    /// Capture time of the first chunk.
    pub(super) fn since_ns(&self) -> Option<i64> {
        self.chunks.first().map(|(chunk, _)| chunk.time_ns)
    }

    /// The captured bytes of a chunk.
    pub(super) fn captured_of(&self, place: usize) -> &[u8] {
        let from = self.chunks.get(place).map_or(0, |&(_, from)| from);
        let to = self.chunks.get(place + 1).map_or(self.captured.len(), |&(_, from)| from);
        self.captured.get(from..to).unwrap_or_default()
    }

    /// The bytes of a header at a stream offset, if all of them were captured.
    pub(super) fn header_at(&self, offset: i64) -> Option<[u8; LENGTH_BYTES]> {
        let mut header = [0; LENGTH_BYTES];
        let mut known = 0;
        let mut place = self.chunks.partition_point(|(chunk, _)| chunk.offset + i64::from(chunk.length) <= offset);
        while known < LENGTH_BYTES {
            let (chunk, _) = self.chunks.get(place)?;
            let from = usize::try_from(offset + known as i64 - chunk.offset).ok()?;
            let bytes = self.captured_of(place).get(from..)?;
            let length = bytes.len().min(LENGTH_BYTES - known);
            header[known..known + length].copy_from_slice(&bytes[..length]);
            known += length;
            if known < LENGTH_BYTES && from + length < chunk.length as usize {
                return None;
            }
            place += 1;
        }
        Some(header)
    }

    /// The positions before `found` where its stream may have headers, with whether they start a segment.
    pub(super) fn positions(&self, found: i64) -> impl Iterator<Item = (i64, bool)> + '_ {
        self.chunks.iter().flat_map(move |(chunk, _)| {
            let first = chunk.offset + (found - chunk.offset).rem_euclid(4);
            let end = (chunk.offset + i64::from(chunk.length)).min(found);
            let starts_segment = chunk.is_segment_start;
            (first..end).step_by(4).map(move |offset| (offset, starts_segment && offset == chunk.offset))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(offset: i64, captured: &[u8], length: u32) -> Chunk<'_> {
        Chunk { offset, length, captured, frame: 1, time_ns: 0, is_late: false, is_segment_start: true }
    }

    #[test]
    fn there_is_room_for_two_of_the_longest_data_in() {
        let mut unread = Unread::default();
        let bytes = vec![7; BYTES_MAX - 1];
        assert!(unread.push(&chunk(0, &bytes, bytes.len() as u32)));
        assert!(!unread.push(&chunk(bytes.len() as i64, &[1, 2], 2)));
        assert!(unread.push(&chunk(bytes.len() as i64, &[1], 1)));
        let mut unread = Unread::default();
        assert!((0..1 << 12).all(|offset| unread.push(&chunk(offset, &[], 1))));
        assert!(!unread.push(&chunk(1 << 12, &[], 1)));
    }

    #[test]
    fn a_header_is_known_only_if_all_its_bytes_were_captured() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut unread = Unread::default();
        unread.push(&chunk(10, &bytes[..30], 30));
        unread.push(&chunk(40, &bytes[30..60], 30));
        // of the third chunk ten bytes were captured
        unread.push(&chunk(70, &bytes[60..70], 40));
        let header = |offset: i64| unread.header_at(offset).map(|header| header.to_vec());
        assert_eq!(header(10), Some(bytes[..48].to_vec()));
        assert_eq!(header(32), Some(bytes[22..70].to_vec()));
        assert_eq!((header(33), header(80), header(9), header(110)), (None, None, None, None));
    }
}
