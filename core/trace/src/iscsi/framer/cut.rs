//! A header that the snaplen cut away: what must it have been? [`crate::iscsi::assume`] knows, this walks by it.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};

use super::{Fit, Framer, HEADER_TAG_BYTES, HEADER_WALK_BYTES, Listener, Place};
use crate::counters::Counter;
use crate::iscsi::assume::ASSUMED_MAX;
use crate::tcp::reassembly::Chunk;

impl Framer {
    /// The header was cut away, at least from its tag on: what must it be? False when that is not known but what was
    /// captured of it will do.
    #[cold]
    pub(super) fn assume(&mut self, rest_of_segment: u32, place: Place, listener: &mut impl Listener) -> bool {
        let seen = Bhs::new(&self.pdu.header[..self.pdu.header_known]).data_segment_length();
        let room = self.assumed.len() < ASSUMED_MAX;
        match room.then(|| listener.assume(rest_of_segment)).flatten() {
            Some(data) if seen.is_none_or(|seen| seen == data) => {
                self.pdu.is_assumed = true;
                self.pdu.wants_crc = false;
                self.pdu.lay_out_parts(0, u64::from(data), self.header_digest.is_used(), self.data_digest.is_used());
                if self.pdu.position == self.pdu.end {
                    self.complete(listener);
                }
                true
            }
            _ if self.pdu.header_known >= HEADER_WALK_BYTES => {
                self.assumed.clear();
                listener.discard();
                false
            }
            _ => {
                listener.count(Counter::SyncLost, place.frame, 1);
                let start = self.pdu.start;
                self.lose_sync(start, listener);
                true
            }
        }
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
        listener.count(Counter::SyncLost, place.frame, 1);
        let start = self.pdu.start;
        self.lose_sync(start, listener);
        Some(self.resume(chunk.offset, header, place, chunk, chunk.length.min(LENGTH_BYTES as u32), listener))
    }
}
