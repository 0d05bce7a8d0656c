//! Chunks of a stream that are kept, because what they hold shows only later. Of more than a limit the oldest are forgotten.

use iscsitrace_wire::bhs::LENGTH_BYTES;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Range;

use crate::iscsi::pdu::DataPackets;
use crate::stream::chunk::Chunk;
use crate::stream::stamp::Stamp;

/// Captured bytes that are kept of one stream: two Data-In of 256 KiB, the longest in practice.
const BYTES_MAX: usize = 512 << 10;
/// Chunks that are kept of one stream: what a snaplen leaves of 64 PDUs of 256 KiB.
const CHUNKS_MAX: usize = 1 << 14;

/// A kept chunk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeptChunk {
    chunk: Chunk<'static>,
    captured: Box<[u8]>,
}

impl KeptChunk {
    /// A copy of a chunk.
    pub fn new(chunk: &Chunk<'_>) -> Self {
        Self { chunk: chunk.without_bytes(), captured: chunk.captured.into() }
    }

    /// The chunk.
    pub fn chunk(&self) -> Chunk<'_> {
        Chunk { captured: &self.captured, ..self.chunk }
    }

    fn end(&self) -> i64 {
        self.chunk.offset + i64::from(self.chunk.length)
    }
}

/// The kept chunks, with holes between them where the capture has holes.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Kept {
    chunks: VecDeque<KeptChunk>,
    bytes: usize,
}

impl Kept {
    /// Keeps a chunk.
    pub fn push(&mut self, chunk: &Chunk<'_>) {
        self.bytes += chunk.captured.len();
        self.chunks.push_back(KeptChunk::new(chunk));
        while self.chunks.len() > CHUNKS_MAX || self.bytes > BYTES_MAX && self.chunks.len() > 1 {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        self.bytes -= self.chunks.pop_front().map_or(0, |oldest| oldest.captured.len());
    }

    /// Forgets the chunks that end before an offset.
    pub fn forget_before(&mut self, offset: i64) {
        while self.chunks.front().is_some_and(|oldest| oldest.end() <= offset) {
            self.forget_oldest();
        }
    }

    /// The chunks in order.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk<'_>> {
        self.chunks.iter().map(KeptChunk::chunk)
    }

    /// Capture time of the first chunk.
    pub fn since_ns(&self) -> Option<i64> {
        self.chunks.front().map(|kept| kept.chunk.time_ns)
    }

    /// The packet with the first of these bytes, and the latest with any; none if that is not kept.
    pub fn stamps(&self, bytes: Range<i64>) -> Option<(Stamp, Stamp)> {
        let of = self.chunks.range(self.place_of(bytes.start)..).map(|kept| &kept.chunk);
        let mut stamps = of.take_while(|chunk| chunk.offset < bytes.end).map(Chunk::stamp);
        let first =
            stamps.next().filter(|_| self.chunks.front().is_some_and(|oldest| oldest.chunk.offset <= bytes.start))?;
        Some((first, stamps.fold(first, Stamp::max)))
    }

    /// The packets with these bytes.
    pub fn packets(&self, bytes: Range<i64>) -> DataPackets {
        let mut packets = DataPackets::default();
        let of = self.chunks.range(self.place_of(bytes.start)..).map(|kept| &kept.chunk);
        of.take_while(|chunk| chunk.offset < bytes.end).for_each(|chunk| packets.note(chunk.frame));
        packets
    }

    /// The place of the chunk with a byte, or of the next one.
    fn place_of(&self, offset: i64) -> usize {
        self.chunks.partition_point(|kept| kept.end() <= offset)
    }

    /// The captured bytes from a stream offset on, without a hole, at most so many.
    pub fn captured_at(&self, offset: i64, most: usize) -> Vec<u8> {
        let mut found = Vec::with_capacity(most);
        for kept in self.chunks.range(self.place_of(offset)..) {
            let from = usize::try_from(offset + found.len() as i64 - kept.chunk.offset).ok();
            let Some(bytes) = from.and_then(|from| kept.captured.get(from..)) else { break };
            found.extend_from_slice(&bytes[..bytes.len().min(most - found.len())]);
            if found.len() == most || kept.captured.len() < kept.chunk.length as usize {
                break;
            }
        }
        found
    }

    /// The bytes of a header at a stream offset, if all of them were captured.
    pub fn header_at(&self, offset: i64) -> Option<[u8; LENGTH_BYTES]> {
        let kept = self.chunks.get(self.place_of(offset))?;
        let from = usize::try_from(offset - kept.chunk.offset).ok()?;
        let within = kept.captured.get(from..).and_then(<[u8]>::first_chunk);
        within.copied().or_else(|| self.captured_at(offset, LENGTH_BYTES).try_into().ok())
    }

    /// The positions before `found` where its stream may have headers, with whether they start a segment.
    pub fn positions(&self, found: i64) -> impl Iterator<Item = (i64, bool)> + '_ {
        self.chunks().flat_map(move |chunk| {
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
        let mut kept = Kept::default();
        let bytes = vec![7; BYTES_MAX - 1];
        kept.push(&chunk(0, &bytes, bytes.len() as u32));
        kept.push(&chunk(bytes.len() as i64, &[1], 1));
        assert_eq!(kept.chunks.len(), 2);
        kept.push(&chunk(BYTES_MAX as i64, &[1], 1));
        assert_eq!(
            kept.chunks().map(|chunk| chunk.offset).collect::<Vec<_>>(),
            [BYTES_MAX as i64 - 1, BYTES_MAX as i64]
        );
        let mut kept = Kept::default();
        (0..=1 << 14).for_each(|offset| kept.push(&chunk(offset, &[], 1)));
        assert_eq!((kept.chunks.len(), kept.chunks[0].chunk.offset), (1 << 14, 1));
    }

    #[test]
    fn a_header_is_known_only_if_all_its_bytes_were_captured() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut kept = Kept::default();
        kept.push(&chunk(10, &bytes[..30], 30));
        kept.push(&chunk(40, &bytes[30..60], 30));
        // of the third chunk ten bytes were captured
        kept.push(&chunk(70, &bytes[60..70], 40));
        let header = |offset: i64| kept.header_at(offset).map(|header| header.to_vec());
        assert_eq!(header(10), Some(bytes[..48].to_vec()));
        assert_eq!(header(32), Some(bytes[22..70].to_vec()));
        assert_eq!((header(33), header(80), header(9), header(110)), (None, None, None, None));
    }

    #[test]
    fn captured_bytes_go_on_to_a_hole_or_a_cut() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut kept = Kept::default();
        for (offset, captured_bytes, length) in [(0, 60, 60), (60, 5, 10), (70, 10, 10), (84, 6, 6)] {
            let captured = &bytes[offset as usize..][..captured_bytes];
            kept.push(&chunk(offset, captured, length));
        }
        for (offset, most, end) in [(50, 47, 65), (50, 12, 62), (60, 9, 65), (70, 47, 80), (84, 47, 90)] {
            assert_eq!(kept.captured_at(offset, most), bytes[offset as usize..end], "{offset}");
        }
        assert!([66, 80, 90].iter().all(|&offset| kept.captured_at(offset, 47).is_empty()));
        kept.forget_before(70);
        assert_eq!(kept.chunks().map(|chunk| chunk.offset).collect::<Vec<_>>(), [70, 84]);
    }

    #[test]
    fn the_packets_of_bytes_are_the_first_and_the_latest() {
        let mut kept = Kept::default();
        for (offset, frame) in [(0, 4), (10, 9), (20, 6)] {
            kept.push(&Chunk { frame, time_ns: frame as i64, ..chunk(offset, &[], 10) });
        }
        let frames = |bytes| kept.stamps(bytes).map(|(first, last)| (first.frame, last.frame));
        assert_eq!([0..10, 0..11, 9..30, 10..20].map(frames), [Some((4, 4)), Some((4, 9)), Some((4, 9)), Some((9, 9))]);
        assert_eq!([-1..5, 30..31].map(frames), [None, None]);
        let packets = |bytes| {
            let DataPackets { count, first_frame, last_frame } = kept.packets(bytes);
            (count, first_frame, last_frame)
        };
        assert_eq!([0..10, 9..11, 5..30].map(packets), [(1, 4, 4), (2, 4, 9), (3, 4, 6)]);
        assert_eq!(packets(30..40).0, 0);
    }
}
