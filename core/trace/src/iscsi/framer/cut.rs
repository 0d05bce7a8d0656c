//! A header that the snaplen cut away: what must it have been? [`crate::iscsi::assume`] knows, this walks by it.
//!
//! What was assumed may turn out wrong only megabytes later, where a header is read. As long as it could be read
//! otherwise (a status apart, or in the data), what came is held, and walked again the other way.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};

use super::progress::InProgress;
use super::{Fit, Framer, HEADER_TAG_BYTES, HEADER_WALK_BYTES, Listener, Place, State};
use crate::iscsi::assume::ASSUMED_MAX;
use crate::tcp::reassembly::Chunk;

/// Held of one direction: what a snaplen leaves of 256 PDUs of 64 KiB.
const HELD_CHUNKS_MAX: usize = 1 << 14;
const HELD_BYTES_MAX: usize = 1 << 20;

/// What came since the first header that was assumed.
#[derive(Debug)]
pub(super) struct Held {
    /// As it was at the end of that header.
    pdu: InProgress,
    /// How much of the first chunk was used then.
    used: u32,
    /// Each with the end of what was captured of it in `captured`.
    chunks: Vec<(Chunk<'static>, usize)>,
    captured: Vec<u8>,
}

impl Framer {
    /// Keeps a chunk, to walk it again should the assumption not hold.
    #[cold]
    pub(super) fn hold(&mut self, chunk: &Chunk<'_>) {
        let Some(held) = &mut self.held else { return };
        if held.chunks.len() == HELD_CHUNKS_MAX || held.captured.len() + chunk.captured.len() > HELD_BYTES_MAX {
            self.held = None;
            return;
        }
        held.captured.extend_from_slice(chunk.captured);
        held.chunks.push((chunk.without_bytes(), held.captured.len()));
    }

    /// The header was cut away, at least from its tag on: what must it be? How much of the chunk is used then; none when
    /// that is not known but what was captured of the header will do.
    #[cold]
    pub(super) fn assume(
        &mut self,
        chunk: &Chunk<'_>,
        used: u32,
        place: Place,
        listener: &mut impl Listener,
    ) -> Option<u32> {
        if self.assumed.is_empty() && !self.is_walking_again && listener.is_ambiguous() {
            let held = Held { pdu: self.pdu.clone(), used, chunks: Vec::new(), captured: Vec::new() };
            self.held = Some(Box::new(held));
            self.hold(chunk);
        }
        let seen = Bhs::new(&self.pdu.header[..self.pdu.header_known]).data_segment_length();
        let room = self.assumed.len() < ASSUMED_MAX;
        let rest_of_segment = chunk.length - used + LENGTH_BYTES as u32;
        match room.then(|| listener.assume(rest_of_segment)).flatten() {
            Some(data) if seen.is_none_or(|seen| seen == data) => {
                self.pdu.is_assumed = true;
                self.pdu.wants_crc = false;
                self.pdu.lay_out_parts(0, u64::from(data), self.header_digest.is_used(), self.data_digest.is_used());
                if self.pdu.position == self.pdu.end {
                    self.complete(listener);
                }
                Some(used)
            }
            _ if self.walk_again(listener) => Some(chunk.length),
            _ if self.pdu.header_known >= HEADER_WALK_BYTES => {
                self.assumed.clear();
                listener.discard();
                None
            }
            _ => {
                self.lose_sync(self.pdu.start, place.frame, listener);
                Some(used)
            }
        }
    }

    /// What was assumed does not hold: walks all that came since once more, read otherwise; false when there is no other
    /// way to read it.
    #[cold]
    pub(super) fn walk_again(&mut self, listener: &mut impl Listener) -> bool {
        let Some(mut held) = self.held.take() else { return false };
        if !listener.reread() {
            return false;
        }
        self.assumed.clear();
        self.state = State::Walking;
        self.pdu = held.pdu.clone();
        let (chunks, captured) = (std::mem::take(&mut held.chunks), std::mem::take(&mut held.captured));
        let used_of_first = held.used;
        self.held = Some(held);
        // what is assumed anew on the way is not held: each chunk is walked as often as there are readings
        let was_walking_again = std::mem::replace(&mut self.is_walking_again, true);
        let mut from = 0;
        for (place, (chunk, to)) in chunks.into_iter().enumerate() {
            let chunk = Chunk { captured: &captured[from..to], ..chunk };
            from = to;
            if place > 0 {
                self.chunk(&chunk, listener);
                continue;
            }
            self.hold(&chunk);
            let place = Place { frame: chunk.frame, time_ns: chunk.time_ns };
            let used = self.end_header(&chunk, used_of_first, place, listener);
            self.go_on(&chunk, used, listener);
        }
        self.is_walking_again = was_walking_again;
        true
    }

    /// A header at the start of a segment, in the middle of what was taken for data: it was not.
    #[cold]
    pub(super) fn contradict(
        &mut self,
        chunk: &Chunk<'_>,
        used: u32,
        place: Place,
        listener: &mut impl Listener,
    ) -> Option<u32> {
        let header = chunk.captured.get(..LENGTH_BYTES.min(chunk.captured.len()))?;
        if used > 0 || !chunk.is_segment_start || header.len() < HEADER_TAG_BYTES {
            return None;
        }
        if listener.judge(Bhs::new(header)) < Fit::Certain {
            return None;
        }
        if self.walk_again(listener) {
            return Some(chunk.length);
        }
        self.lose_sync(self.pdu.start, place.frame, listener);
        Some(self.resume(chunk.offset, header, place, chunk, chunk.length.min(LENGTH_BYTES as u32), listener))
    }
}
