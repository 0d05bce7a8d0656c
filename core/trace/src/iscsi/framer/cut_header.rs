//! A header that the snaplen cut away. [`crate::iscsi::assumption`] infers what it must have been, and the framer
//! continues with that.
//!
//! An assumption may turn out wrong only megabytes later, at the next captured header. While there is another
//! possible assumption (status in the last Data-In, or in a SCSI Response), the chunks are kept and read again.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};

use super::listener::{Fit, Listener};
use super::progress::HEADER_WALK_BYTES;
use super::replay::Replay;
use super::{Framer, State, without_header};
use crate::iscsi::assumption::ASSUMED_MAX;
use crate::stream::chunk::Chunk;
use crate::stream::stamp::Stamp;

impl Framer {
    /// Keeps a chunk for reading it again.
    #[cold]
    pub(super) fn keep_for_replay(&mut self, chunk: &Chunk<'_>) {
        if self.replay.as_mut().is_some_and(|replay| !replay.push(chunk)) {
            self.replay = None;
        }
    }

    /// The header was cut away at least from its task tag on: gets an assumption from the listener. Returns how much of
    /// the chunk is then used; none if nothing can be assumed, but the captured part of the header is enough.
    #[cold]
    pub(super) fn assume(
        &mut self,
        chunk: &Chunk<'_>,
        used: u32,
        stamp: Stamp,
        listener: &mut impl Listener,
    ) -> Option<u32> {
        if self.assumed.is_empty() && !self.is_walking_again && listener.is_ambiguous() {
            self.replay = Some(Box::new(Replay::new(self.pdu.clone(), used)));
            self.keep_for_replay(chunk);
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
                self.lose_sync(self.pdu.start, stamp.frame, listener);
                Some(without_header(used))
            }
        }
    }

    /// The assumption was wrong: reads the kept chunks again with the next one; false when there is none.
    #[cold]
    pub(super) fn walk_again(&mut self, listener: &mut impl Listener) -> bool {
        let Some(mut replay) = self.replay.take() else { return false };
        if !listener.reread() {
            return false;
        }
        self.assumed.clear();
        self.state = State::Walking;
        self.pdu = replay.pdu.clone();
        let (chunks, captured) = (std::mem::take(&mut replay.chunks), std::mem::take(&mut replay.captured));
        let used_of_first = replay.used;
        self.replay = Some(replay);
        // assumptions made on the way are not kept for replay: each chunk is read once per assumption
        let was_walking_again = std::mem::replace(&mut self.is_walking_again, true);
        let mut from = 0;
        for (number, (chunk, to)) in chunks.into_iter().enumerate() {
            let chunk = Chunk { captured: &captured[from..to], ..chunk };
            from = to;
            if number > 0 {
                self.chunk(&chunk, listener);
                continue;
            }
            self.keep_for_replay(&chunk);
            let stamp = Stamp { frame: chunk.frame, time_ns: chunk.time_ns };
            let used = self.end_header(&chunk, used_of_first, stamp, listener);
            self.go_on(&chunk, used, listener);
        }
        self.is_walking_again = was_walking_again;
        true
    }

    /// A header at the start of a segment, within what was assumed to be data: the assumption was wrong.
    #[cold]
    pub(super) fn contradict(
        &mut self,
        chunk: &Chunk<'_>,
        used: u32,
        stamp: Stamp,
        listener: &mut impl Listener,
    ) -> Option<u32> {
        // without its task tag a header is never certain
        let header = &chunk.captured[..LENGTH_BYTES.min(chunk.captured.len())];
        if used > 0 || !chunk.is_segment_start || listener.judge(Bhs::new(header)) < Fit::Certain {
            return None;
        }
        if self.walk_again(listener) {
            return Some(chunk.length);
        }
        self.lose_sync(self.pdu.start, stamp.frame, listener);
        Some(self.resume(chunk.offset, header, stamp, chunk, chunk.length.min(LENGTH_BYTES as u32), listener))
    }
}
