//! Payloads -> bytes in order; and the blocks of SACK options (RFC 2018, section 4).
//!
//! Payloads are kept, not copied. The caller has checked them against the window.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

/// The effect of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It is in order; whether it closed the last hole.
    InOrder {
        /// It closed the last hole.
        is_last_hole_filled: bool,
    },
    /// It lies behind a hole.
    OutOfOrder,
    /// It is a duplicate.
    Duplicate,
}

/// Bytes received. Places count from 1.
#[derive(Debug)]
pub struct Reassembly {
    /// Next place expected.
    next: i64,
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
    /// Pieces behind holes, without overlaps.
    waiting: BTreeMap<i64, Bytes>,
    /// Runs of `waiting` for SACK options, the latest changed first (RFC 2018, section 4).
    runs: Vec<(i64, i64)>,
    /// A duplicate to be reported once (RFC 2883).
    duplicate: Option<(i64, i64)>,
}

/// Runs that are remembered: as many as Linux remembers, one more than fit into options beside timestamps.
const RUNS_MOST: usize = 4;

impl Default for Reassembly {
    fn default() -> Self {
        Self {
            next: 1,
            ready: VecDeque::new(),
            ready_bytes: 0,
            waiting: BTreeMap::new(),
            runs: Vec::with_capacity(RUNS_MOST + 1),
            duplicate: None,
        }
    }
}

impl Reassembly {
    /// Next place expected.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// Bytes in order that were not consumed.
    pub fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// Whether there is a hole.
    pub fn has_holes(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The first piece of the bytes in order.
    pub fn readable(&self) -> &[u8] {
        self.ready.front().map_or(&[], |piece| piece)
    }

    /// Drops consumed bytes.
    pub fn consume(&mut self, mut count: usize) {
        while let Some(piece) = self.ready.front_mut() {
            if count < piece.len() {
                let _ = piece.split_to(count);
                self.ready_bytes -= count;
                return;
            }
            count -= piece.len();
            self.ready_bytes -= piece.len();
            self.ready.pop_front();
        }
    }

    /// Takes a payload that starts at `start`.
    pub fn insert(&mut self, start: i64, payload: Bytes) -> Arrival {
        let end = start + payload.len() as i64;
        if end <= self.next {
            self.report_duplicate(start, end);
            return Arrival::Duplicate;
        }
        if start > self.next {
            return self.keep(start, payload);
        }
        if start < self.next {
            self.report_duplicate(start, self.next);
        }
        let new = payload.slice((self.next - start) as usize..);
        self.append(new);
        let had_holes = self.has_holes();
        if had_holes {
            self.take_waiting();
        }
        Arrival::InOrder { is_last_hole_filled: had_holes && !self.has_holes() }
    }

    fn append(&mut self, payload: Bytes) {
        self.next += payload.len() as i64;
        self.ready_bytes += payload.len();
        self.ready.push_back(payload);
    }

    /// Moves pieces that are in order now.
    fn take_waiting(&mut self) {
        while let Some(entry) = self.waiting.first_entry().filter(|entry| *entry.key() <= self.next) {
            let (start, payload) = entry.remove_entry();
            let end = start + payload.len() as i64;
            if start < self.next {
                self.report_duplicate(start, end.min(self.next));
            }
            if end > self.next {
                let new = payload.slice((self.next - start) as usize..);
                self.append(new);
            }
        }
        let next = self.next;
        self.runs.retain(|&(_, end)| end > next);
    }

    /// Keeps the new parts of a payload behind a hole.
    fn keep(&mut self, start: i64, payload: Bytes) -> Arrival {
        let end = start + payload.len() as i64;
        let mut from = start;
        if let Some((&before, piece)) = self.waiting.range(..=start).next_back() {
            from = from.max((before + piece.len() as i64).min(end));
        }
        let mut is_new = false;
        while from < end {
            let following =
                self.waiting.range(from..).next().map(|(&place, piece)| (place, place + piece.len() as i64));
            let (to, then) = following.map_or((end, end), |(place, after)| (place.min(end), after.min(end).max(place)));
            if to > from {
                is_new = true;
                self.waiting.insert(from, payload.slice((from - start) as usize..(to - start) as usize));
            }
            from = then.max(to);
        }
        if !is_new {
            self.report_duplicate(start, end);
        }
        self.note_run(start, end);
        if is_new { Arrival::OutOfOrder } else { Arrival::Duplicate }
    }

    /// Puts the run of the latest segment first.
    fn note_run(&mut self, mut start: i64, mut end: i64) {
        self.runs.retain(|&(left, right)| {
            let is_apart = right < start || left > end;
            if !is_apart {
                (start, end) = (start.min(left), end.max(right));
            }
            is_apart
        });
        self.runs.insert(0, (start, end));
        self.runs.truncate(RUNS_MOST);
    }

    /// Remembers a duplicate for the next ACK.
    pub fn report_duplicate(&mut self, start: i64, end: i64) {
        self.duplicate = Some((start, end));
    }

    /// The blocks of the next ACK, at most `most`: a duplicate first, reported once; then runs, the latest first.
    pub fn blocks(&mut self, most: usize, mut add: impl FnMut(i64, i64)) -> usize {
        let duplicate = if most > 0 { self.duplicate.take() } else { None };
        let blocks = duplicate.iter().chain(&self.runs).take(most);
        let mut count = 0;
        for &(start, end) in blocks {
            add(start, end);
            count += 1;
        }
        count
    }

    /// How many blocks the next ACK has.
    pub fn block_count(&self) -> usize {
        self.runs.len() + usize::from(self.duplicate.is_some())
    }

    /// Drops the pending duplicate: SACK was not negotiated.
    pub fn forget_duplicate(&mut self) {
        self.duplicate = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against one flag a byte: what is readable, what is waited for, and which runs there are.
        #[test]
        fn bytes_are_delivered_in_order_for_any_order_of_arrival(
            pieces in prop::collection::vec((0usize..300, 1usize..60), 1..80),
        ) {
            let stream: Vec<u8> = (0..400).map(|index| (index * 7 % 251) as u8).collect();
            let mut reassembly = Reassembly::default();
            let mut has = vec![false; 400];
            let mut read = Vec::new();
            for (start, length) in pieces {
                let end = (start + length).min(400);
                let before = has.iter().take_while(|&&has| has).count();
                let is_known = has[start..end].iter().all(|&has| has);
                let arrival = reassembly.insert(start as i64 + 1, Bytes::copy_from_slice(&stream[start..end]));
                has[start..end].fill(true);
                let next = has.iter().take_while(|&&has| has).count();
                prop_assert_eq!(reassembly.next(), next as i64 + 1);
                prop_assert_eq!(arrival == Arrival::Duplicate, is_known);
                prop_assert_eq!(matches!(arrival, Arrival::InOrder { .. }), next > before);
                prop_assert_eq!(reassembly.has_holes(), has[next..].contains(&true));
                let mut blocks = Vec::new();
                reassembly.forget_duplicate();
                reassembly.blocks(4, |start, end| blocks.push((start as usize - 1, end as usize - 1)));
                for &(start, end) in &blocks {
                    // Of a run that was forgotten for lack of room, a part may come back.
                    prop_assert!(start > next && has[start..end].iter().all(|&has| has));
                }
                if start > before && !is_known {
                    prop_assert!(blocks[0].0 <= start && blocks[0].1 >= end, "the latest run first");
                }
                while !reassembly.readable().is_empty() {
                    let part = reassembly.readable().len().div_ceil(2);
                    read.extend_from_slice(&reassembly.readable()[..part]);
                    reassembly.consume(part);
                }
                prop_assert_eq!(&read[..], &stream[..next]);
            }
        }
    }

    #[test]
    fn a_duplicate_is_reported_once_and_first() {
        let mut reassembly = Reassembly::default();
        reassembly.insert(1, Bytes::from_static(&[0; 100]));
        reassembly.insert(201, Bytes::from_static(&[0; 100]));
        assert_eq!(reassembly.insert(51, Bytes::from_static(&[0; 50])), Arrival::Duplicate);
        let mut blocks = Vec::new();
        assert_eq!(reassembly.blocks(3, |start, end| blocks.push((start, end))), 2);
        assert_eq!(blocks, [(51, 101), (201, 301)]);
        assert_eq!(reassembly.block_count(), 1);
    }
}
