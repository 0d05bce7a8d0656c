//! Stream bytes of one direction -> PDUs.
//!
//! ```text
//!   | BHS 48 | AHS | header digest | data | padding | data digest |  next BHS ...
//!   0        48    `- ahs_end      `- data_start    `- digest_start `- end        (position in the PDU)
//! ```
//!
//! Only headers must be captured: data is skipped by its length, through holes and beyond a snaplen. If the position of
//! the next header becomes unknown, the synchroniser searches for one. The [`Listener`] knows the session and judges what fits. One PDU is kept at a time.

mod digest_inference;
pub mod listener;
mod lost_sync;
mod progress;
mod search;
#[cfg(test)]
mod tests;
mod walk;

use iscsitrace_wire::bhs::LENGTH_BYTES;
use serde::{Deserialize, Serialize};

use super::digest_use::DigestUse;
use crate::counters::Counter;
use crate::stream::chunk::Chunk;
use listener::Listener;
use progress::InProgress;
use search::Search;

/// The framer of one direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Framer {
    /// Header digests in use.
    pub header_digest: DigestUse,
    /// Data digests in use.
    pub data_digest: DigestUse,
    /// Bytes of PDUs with a decoded header.
    pub explained_bytes: u64,
    /// Header and data digests that do not match.
    pub digest_errors: u64,
    /// Stream offset of the next byte.
    offset: i64,
    /// Stream offset of the first byte that was captured.
    first_offset: i64,
    /// PDUs start at offsets with this remainder modulo 4, once known.
    alignment: Option<i64>,
    /// Whether the last PDU carried data.
    had_data: bool,
    /// Whether a snaplen cut bytes of it.
    has_cut: bool,
    /// Bytes before the first header, if the start of the stream is missing.
    lost_start_bytes: Option<u64>,
    /// The position of the next header is unknown.
    search: Option<Box<Search>>,
    /// The digest of the last data, while the use of digests is unknown.
    possible_digest: Option<[u8; 4]>,
    pdu: InProgress,
}

impl Framer {
    /// The earliest capture time of bytes that are not decoded yet: of an incomplete PDU, or of PDUs whose header was
    /// cut away.
    pub fn unread_since_ns(&self) -> Option<i64> {
        match &self.search {
            Some(search) => search.synchroniser.kept.since_ns(),
            None => self.pdu.is_under_way().then_some(self.pdu.first.time_ns),
        }
    }

    /// Whether no byte is left to decode.
    pub fn is_between_pdus(&self) -> bool {
        self.search.is_none() && !self.pdu.is_under_way()
    }

    /// Whether the position of the next header is unknown.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.search.is_some()
    }

    /// Gives memory back that a stream under way needs.
    pub fn shrink(&mut self) {
        self.pdu.kept.shrink_to_fit();
    }

    /// A framer that expects a header at `offset` (if the start of the stream was captured), or searches for one.
    pub fn new(offset: i64, is_stream_start: bool) -> Self {
        let mut framer = Self {
            offset,
            first_offset: offset,
            alignment: is_stream_start.then_some(offset.rem_euclid(4)),
            search: (!is_stream_start).then(|| Search::at_start(offset)),
            ..Self::default()
        };
        framer.pdu.begin(offset);
        framer
    }

    /// Bytes before the first header, if the start of the stream is missing: of at least one PDU.
    pub fn lost_start_bytes(&self) -> Option<u64> {
        self.lost_start_bytes
    }

    /// Bytes since the position of the next header became unknown, if any came.
    pub fn lost_end_bytes(&self) -> Option<u64> {
        let lost_at = self.search.as_ref().filter(|search| !search.is_due())?.lost_at;
        u64::try_from(self.offset - lost_at).ok().filter(|&bytes| bytes > 0)
    }

    /// Bytes from the first captured one on that are of no PDU with a decoded header.
    pub fn unexplained_bytes(&self) -> u64 {
        u64::try_from(self.offset - self.first_offset).unwrap_or(0).saturating_sub(self.explained_bytes)
    }

    /// Bytes that the PDU at `offset` still lacks, if the walk is there, or behind a hole in the same PDU; 0 while its
    /// header is incomplete. None between PDUs, and where it is unknown.
    #[inline]
    pub fn left_of_pdu(&self, offset: i64) -> Option<u64> {
        let left = match &self.search {
            Some(search) => search.left_of_pdu(self.offset)?,
            None if self.pdu.is_under_way() => self.pdu.end.saturating_sub(self.pdu.position),
            None => return None,
        };
        let skipped = u64::try_from(offset - self.offset).ok()?;
        if skipped == 0 { Some(left) } else { left.checked_sub(skipped).filter(|left| *left > 0) }
    }

    /// Processes the next bytes of the stream.
    #[inline]
    pub fn chunk(&mut self, chunk: &Chunk<'_>, listener: &mut impl Listener) {
        self.has_cut |= chunk.captured.len() < chunk.length as usize;
        self.go_on(chunk, 0, listener);
    }

    /// Processes the rest of a chunk.
    #[inline]
    fn go_on(&mut self, chunk: &Chunk<'_>, mut used: u32, listener: &mut impl Listener) {
        let stamp = chunk.stamp();
        while used < chunk.length {
            used = if self.search.is_none() {
                self.walk(chunk, used, stamp, listener)
            } else {
                self.search(chunk, listener)
            };
        }
        self.offset = chunk.offset + i64::from(chunk.length);
    }

    /// Processes a gap in the stream.
    pub fn gap(&mut self, offset: i64, length: u64, listener: &mut impl Listener) {
        let gap_end = offset + length as i64;
        let is_first = self.offset == self.first_offset;
        self.offset = gap_end;
        self.possible_digest = None;
        let frame = self.pdu.last.map_or(0, |last| last.frame);
        self.give_up_due(frame, listener);
        if let Some(search) = &mut self.search {
            if is_first {
                // acknowledged bytes from before the capture
                (self.first_offset, search.lost_at) = (gap_end, gap_end);
            }
            search.pass_hole(gap_end);
            return;
        }
        let pdu = &mut self.pdu;
        if pdu.position < LENGTH_BYTES as u64 {
            self.lose_in_hole(self.pdu.start, gap_end, frame, listener);
            return;
        }
        pdu.has_capture_gap = true;
        pdu.crc = None;
        let end = pdu.start + pdu.end as i64;
        if gap_end < end {
            pdu.position = (gap_end - pdu.start) as u64;
            return;
        }
        // the end of the PDU was not captured: its completion time is unknown
        pdu.position = pdu.end;
        pdu.is_end_missing = true;
        self.complete(listener);
        if gap_end > end {
            self.lose_in_hole(end, gap_end, frame, listener);
        }
    }

    /// The header at `lost_at` is in a hole, at least in part.
    fn lose_in_hole(&mut self, lost_at: i64, gap_end: i64, frame: u64, listener: &mut impl Listener) {
        listener.count(Counter::SyncLost, frame, 1);
        self.lose_sync(lost_at, None).pass_hole(gap_end);
    }

    /// Ends the stream: a PDU with a decoded header is handed over as far as it goes.
    pub fn finish(&mut self, listener: &mut impl Listener) {
        if self.search.is_none() && self.pdu.position >= LENGTH_BYTES as u64 {
            let end = self.pdu.start + self.pdu.end as i64;
            self.emit(end, listener);
            self.pdu.begin(end);
        }
    }

    /// Marks the current PDU if bytes of it were retransmitted.
    pub fn mark_retransmitted(&mut self, start: i64, end: i64) {
        if self.search.is_none() && self.pdu.position > 0 && start < self.offset && end > self.pdu.start {
            self.pdu.is_late = true;
        }
    }
}
