//! One direction of a TCP connection: segments in any order -> bytes in order, each from the packet that first carried
//! it past the tap.
//!
//! ```text
//!            next                    highest
//!   delivered |     hole     | held  |
//!   ----------+--------------+=======+----> stream offset
//! ```
//!
//! A hole is filled by a late segment. It becomes a gap when the receiver has acknowledged bytes beyond it (missing
//! from the capture, not lost by the network), when too much is held behind it, or at the end. The content is not
//! looked at, and nothing is held without a hole.

use super::chunk::{Chunk, StreamSink};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// The payload that all streams together may hold behind holes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HoldBudget {
    /// Bytes held now.
    pub held_bytes: usize,
    /// Maximum bytes; beyond it segments are held without payload.
    pub limit_bytes: usize,
}

impl Default for HoldBudget {
    fn default() -> Self {
        Self { held_bytes: 0, limit_bytes: 64 << 20 }
    }
}

/// Gaps that are kept: their bytes come after all if the capture has packets in another order.
const GAPS_KEPT: usize = 16;
/// Maximum segments held behind the holes of one stream; one more abandons the first hole.
const HELD_SEGMENTS_MAX: usize = 1 << 15;

/// So many packets beyond a late one are looked at for the first that overtook it: they follow each other but for few.
const OVERTAKERS_MAX: usize = 64;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Held {
    length: u32,
    captured: Box<[u8]>,
    frame: u64,
    time_ns: i64,
    is_late: bool,
    is_segment_start: bool,
}

/// The effect of one segment on its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Placement {
    /// New bytes.
    pub new_bytes: u32,
    /// New bytes that the snaplen cut off.
    pub cut_bytes: u32,
    /// Whether new bytes came after later bytes of the stream.
    pub is_late: bool,
    /// Whether payload was dropped for lack of memory.
    pub is_shed: bool,
    /// Holes abandoned because too much was held behind them.
    pub abandoned_holes: u32,
}

/// The reassembly of one direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Reassembly {
    /// All bytes below this offset were delivered, or became gaps.
    next: i64,
    /// The first byte of the stream: the first captured one, unless its start is known.
    begin: i64,
    is_begin_known: bool,
    /// The highest offset seen.
    highest: i64,
    /// The highest offset that the receiver acknowledged.
    acknowledged: i64,
    /// Bytes in gaps so far.
    gap_bytes: u64,
    /// Number of gaps so far.
    gap_count: u64,
    /// The latest gaps.
    gaps: VecDeque<(i64, i64)>,
    held: BTreeMap<i64, Held>,
}

impl Reassembly {
    /// The highest offset seen.
    pub fn highest(&self) -> i64 {
        self.highest
    }

    /// The bytes of the stream, holes included.
    pub fn stream_bytes(&self) -> u64 {
        u64::try_from(self.highest - self.begin).unwrap_or(0)
    }

    /// The stream begins with offset 0: its SYN was captured, or the answer to that.
    pub fn note_begin(&mut self) {
        self.is_begin_known = true;
    }

    /// Makes room for bytes before offset 0; false where the stream begins there, or moved on.
    pub fn move_begin(&mut self, bytes: i64) -> bool {
        let is_movable = !self.is_begin_known && self.next == 0 && self.held.is_empty();
        if is_movable {
            self.acknowledged += bytes;
        }
        is_movable
    }

    /// All bytes below this offset were delivered or became gaps.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// The highest acknowledged offset.
    pub fn acknowledged(&self) -> i64 {
        self.acknowledged
    }

    /// When the first packet beyond an offset passed the tap, if it is still held: it overtook what comes there now.
    #[inline]
    pub fn overtaken_ns(&self, offset: i64) -> Option<i64> {
        if offset >= self.highest {
            return None;
        }
        self.held.range(offset..).take(OVERTAKERS_MAX).map(|(_, held)| held.time_ns).min()
    }

    /// Bytes and number of the gaps so far.
    pub fn gaps(&self) -> (u64, u64) {
        (self.gap_bytes, self.gap_count)
    }

    /// Whether bytes wait behind a hole.
    pub fn has_hole(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether some byte below this offset is still awaited. The last may be the FIN.
    #[inline]
    pub fn lacks_before(&self, offset: i64) -> bool {
        let has_hole = self.held.first_key_value().is_some_and(|(&first, _)| first.min(offset) > self.next);
        has_hole || offset > self.highest.max(self.next) + 1
    }

    /// Whether some of these bytes came with no packet so far: they are in a hole, or in one of the latest gaps.
    pub fn lacks(&self, offset: i64, end: i64) -> bool {
        self.is_in_gap(offset, end) || self.has_hole_in(offset, end)
    }

    /// Whether some of these bytes are still awaited.
    pub fn has_hole_in(&self, offset: i64, end: i64) -> bool {
        let mut at = offset.max(self.next);
        for (&start, held) in self.held.range(..end) {
            if start > at {
                break;
            }
            at = at.max(start + i64::from(held.length));
        }
        at < end
    }

    /// Whether some of these bytes are in one of the latest gaps.
    pub fn is_in_gap(&self, offset: i64, end: i64) -> bool {
        self.gaps.iter().any(|&(from, to)| from < end && offset < to)
    }

    /// The earliest capture time of bytes behind a hole.
    pub fn held_since_ns(&self) -> Option<i64> {
        self.held.values().map(|held| held.time_ns).min()
    }

    /// Processes a segment (`chunk.is_late` is ignored) and delivers the bytes that are now in order.
    #[inline]
    pub fn segment(&mut self, chunk: Chunk<'_>, budget: &mut HoldBudget, sink: &mut impl StreamSink) -> Placement {
        if chunk.offset == self.next && self.held.is_empty() {
            let end = chunk.offset + i64::from(chunk.length);
            let is_late = end <= self.highest;
            self.next = end;
            self.highest = self.highest.max(end);
            sink.chunk(Chunk { is_late, ..chunk });
            return Placement {
                new_bytes: chunk.length,
                cut_bytes: chunk.length.saturating_sub(chunk.captured.len() as u32),
                is_late,
                ..Placement::default()
            };
        }
        self.out_of_order(chunk, budget, sink)
    }

    #[cold]
    fn out_of_order(&mut self, chunk: Chunk<'_>, budget: &mut HoldBudget, sink: &mut impl StreamSink) -> Placement {
        let end = chunk.offset + i64::from(chunk.length);
        let mut placement = Placement::default();
        let mut at = chunk.offset.max(self.next);
        while at < end {
            let covered = self.held.range(..=at).next_back().map_or(at, |(start, held)| start + i64::from(held.length));
            if covered > at {
                at = covered;
                continue;
            }
            let following = self.held.range(at..).next().map_or(i64::MAX, |(&start, _)| start);
            let piece_end = end.min(following);
            let piece = slice(&chunk, at, piece_end, at < self.highest);
            placement.new_bytes += piece.length;
            placement.cut_bytes += piece.length.saturating_sub(piece.captured.len() as u32);
            placement.is_late |= piece.is_late;
            if at == self.next {
                self.next = piece_end;
                sink.chunk(piece);
                self.drain(budget, sink);
            } else {
                placement.is_shed |= self.hold(piece, budget);
            }
            at = piece_end.max(self.next);
        }
        self.highest = self.highest.max(end);
        self.give_up_acknowledged(budget, sink);
        while self.held.len() > HELD_SEGMENTS_MAX {
            self.give_up_first_hole(budget, sink);
            placement.abandoned_holes += 1;
        }
        placement
    }

    fn hold(&mut self, piece: Chunk<'_>, budget: &mut HoldBudget) -> bool {
        let fits = budget.held_bytes + piece.captured.len() <= budget.limit_bytes;
        let captured: Box<[u8]> = if fits { piece.captured.into() } else { Box::default() };
        budget.held_bytes += captured.len();
        let held = Held {
            length: piece.length,
            captured,
            frame: piece.frame,
            time_ns: piece.time_ns,
            is_late: piece.is_late,
            is_segment_start: piece.is_segment_start,
        };
        self.held.insert(piece.offset, held);
        !fits
    }

    fn drain(&mut self, budget: &mut HoldBudget, sink: &mut impl StreamSink) {
        while let Some(entry) = self.held.first_entry() {
            if *entry.key() != self.next {
                break;
            }
            let (offset, held) = entry.remove_entry();
            budget.held_bytes -= held.captured.len();
            self.next = offset + i64::from(held.length);
            sink.chunk(Chunk {
                offset,
                length: held.length,
                captured: &held.captured,
                frame: held.frame,
                time_ns: held.time_ns,
                is_late: held.is_late,
                is_segment_start: held.is_segment_start,
            });
        }
    }

    /// The receiver acknowledged all bytes below `acknowledged`: a hole below is missing from the capture.
    ///
    /// Without later bytes, the hole may still be filled (a tap can see an ACK before its data), so it stays open until
    /// a segment beyond it comes.
    #[inline]
    pub fn acknowledge(&mut self, acknowledged: i64, budget: &mut HoldBudget, sink: &mut impl StreamSink) {
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged;
            if !self.held.is_empty() {
                self.give_up_acknowledged(budget, sink);
            }
        }
    }

    fn give_up_acknowledged(&mut self, budget: &mut HoldBudget, sink: &mut impl StreamSink) {
        while let Some((&first, _)) = self.held.first_key_value() {
            let gap_end = first.min(self.acknowledged);
            if gap_end <= self.next {
                break;
            }
            self.give_up_hole(gap_end, sink);
            self.drain(budget, sink);
        }
    }

    fn give_up_first_hole(&mut self, budget: &mut HoldBudget, sink: &mut impl StreamSink) {
        if let Some((&first, _)) = self.held.first_key_value() {
            self.give_up_hole(first, sink);
            self.drain(budget, sink);
        }
    }

    /// Gives up bytes before those that are held. Before the first captured byte nothing was captured yet: an ACK told
    /// what the receiver had, and the rest was on its way when the capture began.
    fn give_up_hole(&mut self, end: i64, sink: &mut impl StreamSink) {
        if self.next > self.begin || self.is_begin_known {
            return self.give_up(end, sink);
        }
        let (offset, length) = (self.next, (end - self.next) as u64);
        (self.next, self.begin) = (end, end);
        sink.before_capture(offset, length);
    }

    /// The bytes up to `end`, which is beyond `next`, are a gap.
    fn give_up(&mut self, end: i64, sink: &mut impl StreamSink) {
        debug_assert!(end > self.next);
        let (offset, length) = (self.next, (end - self.next) as u64);
        self.next = end;
        self.gap_bytes += length;
        self.gap_count += 1;
        if self.gaps.len() >= GAPS_KEPT {
            self.gaps.pop_front();
        }
        self.gaps.push_back((offset, self.next));
        sink.gap(offset, length);
    }

    /// Drops what is held behind holes: the receiver reset the connection and had acknowledged none of it, so that no hole is
    /// missing from the capture. Returns the number of holes.
    pub fn refuse(&mut self, budget: &mut HoldBudget) -> u32 {
        let (mut holes, mut next) = (0, self.next);
        for (offset, held) in std::mem::take(&mut self.held) {
            budget.held_bytes -= held.captured.len();
            holes += u32::from(offset > next);
            next = offset + i64::from(held.length);
        }
        holes
    }

    /// Ends the stream: delivers everything held, and returns the number of holes that were neither filled nor
    /// acknowledged.
    pub fn finish(&mut self, budget: &mut HoldBudget, sink: &mut impl StreamSink) -> u32 {
        let mut abandoned = 0;
        while !self.held.is_empty() {
            self.give_up_first_hole(budget, sink);
            abandoned += 1;
        }
        // one byte beyond may be the FIN
        if self.acknowledged > self.next + 1 {
            self.give_up(self.acknowledged, sink);
            self.highest = self.highest.max(self.acknowledged);
        }
        abandoned
    }
}

/// The part [from, to) of a chunk.
fn slice<'a>(chunk: &Chunk<'a>, from: i64, to: i64, is_late: bool) -> Chunk<'a> {
    let skipped = (from - chunk.offset) as usize;
    let length = (to - from) as usize;
    let captured = chunk.captured.get(skipped..).unwrap_or_default();
    Chunk {
        offset: from,
        length: length as u32,
        captured: &captured[..length.min(captured.len())],
        is_late,
        is_segment_start: chunk.is_segment_start && skipped == 0,
        ..*chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The delivered stream: bytes with their frames, `None` in gaps.
    #[derive(Default)]
    struct Record {
        bytes: Vec<Option<(u8, u64)>>,
    }

    impl StreamSink for Record {
        fn chunk(&mut self, chunk: Chunk<'_>) {
            assert_eq!(chunk.offset, self.bytes.len() as i64, "delivered in order");
            assert_eq!(chunk.length as usize, chunk.captured.len());
            self.bytes.extend(chunk.captured.iter().map(|&byte| Some((byte, chunk.frame))));
        }
        fn gap(&mut self, offset: i64, length: u64) {
            assert_eq!(offset, self.bytes.len() as i64);
            self.bytes.extend(std::iter::repeat_n(None, length as usize));
        }
    }

    fn chunk(offset: i64, captured: &[u8], frame: u64) -> Chunk<'_> {
        Chunk {
            offset,
            length: captured.len() as u32,
            captured,
            frame,
            time_ns: frame as i64,
            is_late: false,
            is_segment_start: true,
        }
    }

    #[test]
    fn what_a_receiver_refused_is_no_gap() {
        let (mut stream, mut budget, mut record) = (Reassembly::default(), HoldBudget::default(), Record::default());
        for (offset, bytes) in [(0, b"ab"), (4, b"ef"), (6, b"gh"), (10, b"kl")] {
            stream.segment(chunk(offset, bytes, 1), &mut budget, &mut record);
        }
        assert_eq!((stream.refuse(&mut budget), budget.held_bytes), (2, 0));
        assert_eq!(stream.finish(&mut budget, &mut record), 0);
        assert_eq!((stream.gaps(), stream.next()), ((0, 0), 2));
    }

    #[test]
    fn a_hole_is_filled_and_late_bytes_are_marked() {
        let (mut stream, mut budget, mut record) = (Reassembly::default(), HoldBudget::default(), Record::default());
        assert_eq!(stream.segment(chunk(0, b"ab", 1), &mut budget, &mut record).new_bytes, 2);
        assert!(!stream.segment(chunk(4, b"ef", 2), &mut budget, &mut record).is_late);
        assert_eq!(record.bytes.len(), 2);
        assert!(stream.segment(chunk(1, b"bcdef", 3), &mut budget, &mut record).is_late);
        let expected: Vec<_> = vec![(b'a', 1), (b'b', 1), (b'c', 3), (b'd', 3), (b'e', 2), (b'f', 2)];
        assert_eq!(record.bytes, expected.into_iter().map(Some).collect::<Vec<_>>());
        assert_eq!(budget.held_bytes, 0);
    }

    #[test]
    fn bytes_are_lacking_in_holes_only() {
        let (mut stream, mut budget, mut record) = (Reassembly::default(), HoldBudget::default(), Record::default());
        for (offset, captured) in [(0, b"ab"), (4, b"ef"), (6, b"gh"), (10, b"kl")] {
            stream.segment(chunk(offset, captured, 1), &mut budget, &mut record);
        }
        let lacking = |from, to| stream.lacks(from, to);
        assert!(
            [(0, 3), (2, 4), (3, 5), (7, 9), (8, 10), (4, 12), (11, 13)].iter().all(|&(from, to)| lacking(from, to))
        );
        assert!(![(0, 2), (4, 8), (5, 7), (10, 12)].iter().any(|&(from, to)| lacking(from, to)));
        // an ACK makes the first hole a gap
        stream.acknowledge(8, &mut budget, &mut record);
        assert_eq!((stream.gaps(), stream.next()), ((2, 1), 8));
        assert!(
            [(1, 3), (2, 3), (3, 5)].iter().all(|&(from, to)| stream.is_in_gap(from, to) && stream.lacks(from, to))
        );
        assert!(![(0, 2), (4, 8)].iter().any(|&(from, to)| stream.is_in_gap(from, to) || stream.lacks(from, to)));
    }

    #[test]
    fn an_acknowledged_hole_is_a_gap_at_once_when_bytes_wait_behind_it() {
        let (mut stream, mut budget, mut record) = (Reassembly::default(), HoldBudget::default(), Record::default());
        stream.note_begin();
        stream.segment(chunk(3, b"de", 1), &mut budget, &mut record);
        stream.acknowledge(2, &mut budget, &mut record);
        assert_eq!(record.bytes, vec![None, None]);
        stream.segment(chunk(2, b"c", 2), &mut budget, &mut record);
        assert_eq!(record.bytes[2..], [Some((b'c', 2)), Some((b'd', 1)), Some((b'e', 1))]);
        assert_eq!(stream.gaps(), (2, 1));
    }

    #[test]
    fn without_its_start_a_stream_begins_with_its_first_captured_byte() {
        let begin = |segments: &[(i64, i64)]| {
            let (mut stream, mut budget, mut record) =
                (Reassembly::default(), HoldBudget::default(), Record::default());
            for &(offset, acknowledged) in segments {
                stream.segment(chunk(offset, b"a", 1), &mut budget, &mut record);
                stream.acknowledge(acknowledged, &mut budget, &mut record);
            }
            stream.finish(&mut budget, &mut record);
            (stream.gaps(), stream.stream_bytes())
        };
        assert_eq!(begin(&[(5, 0)]), ((0, 0), 1));
        // acknowledged in parts
        assert_eq!(begin(&[(5, 3), (6, 7)]), ((0, 0), 2));
        // the first packet was overtaken; but for its bytes, what is between is a gap
        assert_eq!(begin(&[(5, 0), (3, 6)]), ((1, 1), 3));
        assert_eq!(begin(&[(0, 1), (5, 6)]), ((4, 1), 6));
    }

    #[test]
    fn data_captured_after_its_ack_is_no_gap() {
        let (mut stream, mut budget, mut record) = (Reassembly::default(), HoldBudget::default(), Record::default());
        stream.acknowledge(3, &mut budget, &mut record);
        stream.segment(chunk(0, b"abc", 1), &mut budget, &mut record);
        assert_eq!(stream.gaps(), (0, 0));
        assert_eq!((stream.acknowledged(), stream.next(), stream.highest()), (3, 3, 3));
        // an older ACK takes nothing back
        stream.acknowledge(2, &mut budget, &mut record);
        assert_eq!(stream.acknowledged(), 3);
        assert_eq!(record.bytes.len(), 3);
    }

    #[test]
    fn acknowledged_bytes_at_the_end_are_a_gap_but_a_fin_is_not() {
        for (acknowledged, gaps, highest) in [(3, (0, 0), 2), (4, (2, 1), 4)] {
            let (mut stream, mut budget, mut record) =
                (Reassembly::default(), HoldBudget::default(), Record::default());
            stream.segment(chunk(0, b"ab", 1), &mut budget, &mut record);
            stream.acknowledge(acknowledged, &mut budget, &mut record);
            assert_eq!(stream.finish(&mut budget, &mut record), 0);
            assert_eq!((stream.gaps(), stream.highest()), (gaps, highest));
        }
    }

    #[test]
    fn what_waits_behind_holes_is_delivered_at_the_end() {
        let (mut stream, mut budget, mut record) = (Reassembly::default(), HoldBudget::default(), Record::default());
        stream.note_begin();
        stream.segment(chunk(4, b"e", 20), &mut budget, &mut record);
        stream.segment(chunk(1, b"bc", 30), &mut budget, &mut record);
        assert_eq!((stream.has_hole(), stream.held_since_ns(), budget.held_bytes), (true, Some(20), 3));
        assert_eq!(stream.finish(&mut budget, &mut record), 2);
        assert_eq!(record.bytes, [None, Some((b'b', 30)), Some((b'c', 30)), None, Some((b'e', 20))]);
        assert_eq!((stream.gaps(), stream.next(), budget.held_bytes), ((2, 2), 5, 0));
        assert_eq!((stream.has_hole(), stream.held_since_ns()), (false, None));
    }

    #[test]
    fn a_placement_counts_new_cut_and_late_bytes() {
        struct Nothing;
        impl StreamSink for Nothing {
            fn chunk(&mut self, _: Chunk<'_>) {}
            fn gap(&mut self, _: i64, _: u64) {}
        }
        let (mut stream, mut budget) = (Reassembly::default(), HoldBudget::default());
        let mut place = |offset, length, captured: &[u8]| {
            stream.segment(Chunk { length, ..chunk(offset, captured, 1) }, &mut budget, &mut Nothing)
        };
        let placed =
            |new_bytes, cut_bytes, is_late| Placement { new_bytes, cut_bytes, is_late, ..Placement::default() };
        assert_eq!(place(0, 10, b"abcdef"), placed(10, 4, false));
        // beyond a hole; then over its end and beyond: of the 15 bytes 10 are new, 3 of them captured
        assert_eq!(place(20, 10, b"abc"), placed(10, 7, false));
        assert_eq!(place(25, 15, b"abcdefgh"), placed(10, 7, false));
        // fills half of the hole, and the rest with bytes that came before
        assert_eq!(place(10, 5, b"abcde"), placed(5, 0, true));
        assert_eq!(place(5, 20, b"abcdefghijkl"), placed(5, 3, true));
        assert_eq!(place(0, 40, b""), placed(0, 0, false));
    }

    #[test]
    fn beyond_the_memory_limit_segments_keep_only_their_length() {
        struct Lengths(u64);
        impl StreamSink for Lengths {
            fn chunk(&mut self, chunk: Chunk<'_>) {
                self.0 += u64::from(chunk.length);
            }
            fn gap(&mut self, _: i64, _: u64) {}
        }
        let mut budget = HoldBudget { held_bytes: 0, limit_bytes: 3 };
        let (mut stream, mut lengths) = (Reassembly::default(), Lengths(0));
        assert!(!stream.segment(chunk(1, b"bc", 1), &mut budget, &mut lengths).is_shed);
        assert!(stream.segment(chunk(3, b"de", 2), &mut budget, &mut lengths).is_shed);
        stream.segment(chunk(0, b"a", 3), &mut budget, &mut lengths);
        assert_eq!((lengths.0, budget.held_bytes), (5, 0));
    }

    proptest! {
        /// Compared with a naive model: an array in which the first copy of each byte wins.
        #[test]
        fn equals_the_naive_model(segments in proptest::collection::vec((0usize..60, 1usize..20), 1..40)) {
            let (mut stream, mut budget, mut record) = (Reassembly::default(), HoldBudget::default(), Record::default());
            let mut model: Vec<Option<(u8, u64)>> = Vec::new();
            stream.note_begin();
            for (frame, &(start, length)) in segments.iter().enumerate() {
                let bytes: Vec<u8> = (start..start + length).map(|place| (place as u8).wrapping_mul(31) ^ frame as u8).collect();
                let before = model.iter().flatten().count();
                model.resize(model.len().max(start + length), None);
                for (place, &byte) in (start..).zip(&bytes) {
                    model[place].get_or_insert((byte, frame as u64));
                }
                let placement = stream.segment(chunk(start as i64, &bytes, frame as u64), &mut budget, &mut record);
                prop_assert_eq!(placement.new_bytes as usize, model.iter().flatten().count() - before);
            }
            stream.finish(&mut budget, &mut record);
            prop_assert_eq!(&record.bytes, &model);
            prop_assert_eq!(stream.gaps().0 as usize, model.iter().filter(|byte| byte.is_none()).count());
            prop_assert_eq!(budget.held_bytes, 0);
        }
    }
}
