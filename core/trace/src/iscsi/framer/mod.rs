//! Stream bytes of one direction -> PDUs.
//!
//! ```text
//!   | BHS 48 | AHS | header digest | data | padding | data digest |  next BHS ...
//!   0        48    `- ahs_end      `- data_start    `- digest_start `- end        (position in the PDU)
//! ```
//!
//! Only headers must be captured: data is skipped by its length, through holes and beyond a snaplen. If the position of
//! the next header becomes unknown, the bytes are searched for a header that fits the connection; none is accepted
//! unchecked. The [`Listener`] knows the session and judges what fits. One PDU is kept at a time.

mod cut_header;
mod digest_inference;
pub mod listener;
mod progress;
mod replay;
mod search;
#[cfg(test)]
mod tests;
mod unread;
mod walk;

use iscsitrace_wire::bhs::LENGTH_BYTES;
use serde::{Deserialize, Serialize};

use super::assumption::Assumed;
use super::digest_use::DigestUse;
use crate::counters::Counter;
use crate::stream::chunk::Chunk;
use crate::stream::stamp::Stamp;
use listener::Listener;
use progress::InProgress;
use replay::Replay;
use unread::Unread;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    /// The next byte starts a header, or is within the PDU.
    Walking,
    /// The position of the next header is unknown.
    Searching,
}

/// The framer of one direction.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Framer {
    /// Header digests in use.
    pub header_digest: DigestUse,
    /// Data digests in use.
    pub data_digest: DigestUse,
    /// Bytes of PDUs with a decoded header.
    pub explained_bytes: u64,
    /// Header and data digests that do not match.
    pub digest_errors: u64,
    state: State,
    /// Stream offset of the next byte.
    offset: i64,
    /// Stream offset of the first byte that was captured.
    first_offset: i64,
    /// PDUs start at offsets with this remainder modulo 4, once known.
    alignment: Option<i64>,
    /// While searching: where the header should have been; and whether the PDU before it carried data.
    lost_at: i64,
    /// While searching: that position, or the end of the last hole since.
    search_from: i64,
    /// Whether that position is certain, with bytes there that are no header.
    is_lost_place_known: bool,
    lost_after_data: bool,
    had_data: bool,
    /// Whether a snaplen cut bytes of it.
    has_cut: bool,
    /// Bytes before the first header, if the start of the stream is missing.
    lost_start_bytes: Option<u64>,
    /// The chunks before the first header, while it is searched.
    unread: Option<Box<Unread>>,
    /// PDUs of which only the position is known, since the last decoded header.
    assumed: Vec<Assumed>,
    /// All chunks since the first of them, if other assumptions are possible.
    replay: Option<Box<Replay>>,
    is_walking_again: bool,
    /// The digest of the last data, while the use of digests is unknown.
    possible_digest: Option<[u8; 4]>,
    pdu: InProgress,
    /// While searching: the last bytes, too few for a header.
    carry: Vec<u8>,
    /// The packet of each of them.
    carry_stamps: Vec<Stamp>,
}

impl Framer {
    /// The earliest capture time of bytes that are not decoded yet: of an incomplete PDU, or of PDUs whose header was
    /// cut away.
    pub fn unread_since_ns(&self) -> Option<i64> {
        let of_pdu = (self.state == State::Walking && self.pdu.is_under_way()).then_some(self.pdu.first.time_ns);
        let of_assumed = self.assumed.first().map(|assumed| assumed.first.time_ns);
        let of_search = self.carry_stamps.first().map(|stamp| stamp.time_ns);
        let of_start = self.unread.as_ref().and_then(|unread| unread.since_ns());
        [of_pdu, of_assumed, of_search, of_start].into_iter().flatten().min()
    }

    /// Whether no byte is left to decode.
    pub fn is_between_pdus(&self) -> bool {
        let is_walking = self.state == State::Walking && !self.pdu.is_under_way();
        is_walking && self.assumed.is_empty() && self.unread.is_none() && self.replay.is_none()
    }

    /// Gives memory back that a stream under way needs.
    pub fn shrink(&mut self) {
        self.pdu.kept.shrink_to_fit();
        self.assumed.shrink_to_fit();
        self.carry.shrink_to_fit();
        self.carry_stamps.shrink_to_fit();
    }

    /// A framer that expects a header at `offset` (if the start of the stream was captured), or searches for one.
    pub fn new(offset: i64, is_stream_start: bool) -> Self {
        let mut framer = Self {
            header_digest: DigestUse::Unknown,
            data_digest: DigestUse::Unknown,
            explained_bytes: 0,
            digest_errors: 0,
            state: if is_stream_start { State::Walking } else { State::Searching },
            offset,
            first_offset: offset,
            alignment: is_stream_start.then_some(offset.rem_euclid(4)),
            lost_at: offset,
            search_from: offset,
            is_lost_place_known: false,
            lost_after_data: false,
            had_data: false,
            has_cut: false,
            lost_start_bytes: None,
            unread: (!is_stream_start).then(Box::default),
            assumed: Vec::new(),
            replay: None,
            is_walking_again: false,
            possible_digest: None,
            pdu: InProgress::new(),
            carry: Vec::new(),
            carry_stamps: Vec::new(),
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
        let bytes = u64::try_from(self.offset - self.lost_at).ok().filter(|&bytes| bytes > 0);
        bytes.filter(|_| self.state == State::Searching)
    }

    /// Bytes from the first captured one on that are of no PDU with a decoded header.
    pub fn unexplained_bytes(&self) -> u64 {
        u64::try_from(self.offset - self.first_offset).unwrap_or(0).saturating_sub(self.explained_bytes)
    }

    /// The first header is at `offset`: what is before it is missing.
    fn note_lost_start(&mut self, offset: i64) {
        if self.explained_bytes == 0 && offset > self.lost_at {
            self.lost_start_bytes.get_or_insert((offset - self.lost_at).unsigned_abs());
        }
    }

    /// Bytes that the PDU at `offset` still lacks, if the walk is there, or behind a hole in the same PDU; 0 while its
    /// header is incomplete. None between PDUs, and where it is unknown.
    #[inline]
    pub fn left_of_pdu(&self, offset: i64) -> Option<u64> {
        if self.state == State::Searching || !self.pdu.is_under_way() {
            return None;
        }
        let left = self.pdu.end.saturating_sub(self.pdu.position);
        let skipped = u64::try_from(offset - self.offset).ok()?;
        if skipped == 0 { Some(left) } else { left.checked_sub(skipped).filter(|left| *left > 0) }
    }

    /// Prefetches the next header in the payload of the next chunk.
    #[inline]
    pub fn prefetch(&self, payload: &[u8]) {
        prefetch_header(payload, self.pdu.end.saturating_sub(self.pdu.position) as usize);
    }

    /// Processes the next bytes of the stream.
    #[inline]
    pub fn chunk(&mut self, chunk: &Chunk<'_>, listener: &mut impl Listener) {
        if self.replay.is_some() {
            self.keep_for_replay(chunk);
        }
        self.has_cut |= chunk.captured.len() < chunk.length as usize;
        self.go_on(chunk, 0, listener);
    }

    /// Processes the rest of a chunk.
    #[inline]
    fn go_on(&mut self, chunk: &Chunk<'_>, mut used: u32, listener: &mut impl Listener) {
        let stamp = Stamp { frame: chunk.frame, time_ns: chunk.time_ns };
        while used < chunk.length {
            used = match self.state {
                State::Walking => self.walk(chunk, used, stamp, listener),
                State::Searching => self.search(chunk, used, stamp, listener),
            };
        }
        self.offset = chunk.offset + i64::from(chunk.length);
    }

    /// The next header is not where it should be: searches for it from `lost_at` on.
    fn lose_sync(&mut self, lost_at: i64, frame: u64, listener: &mut impl Listener) {
        listener.count(Counter::SyncLost, frame, 1);
        self.assumed.clear();
        self.replay = None;
        listener.discard();
        self.state = State::Searching;
        (self.lost_at, self.search_from) = (lost_at, lost_at);
        self.is_lost_place_known = true;
        self.lost_after_data = self.had_data;
        self.clear_carry();
    }

    /// The header may be in a hole that ends here, with its data behind it.
    fn lose_place(&mut self, gap_end: i64) {
        self.is_lost_place_known = false;
        self.search_from = gap_end;
    }

    /// Processes a gap in the stream.
    pub fn gap(&mut self, offset: i64, length: u64, listener: &mut impl Listener) {
        let gap_end = offset + length as i64;
        if self.state == State::Searching && self.offset == self.first_offset {
            // acknowledged bytes from before the capture
            (self.first_offset, self.lost_at) = (gap_end, gap_end);
        }
        self.offset = gap_end;
        if self.state == State::Searching {
            self.clear_carry();
            self.lose_place(gap_end);
            return;
        }
        self.possible_digest = None;
        let pdu = &mut self.pdu;
        let frame = pdu.last.map_or(0, |last| last.frame);
        if pdu.position < LENGTH_BYTES as u64 || pdu.is_assumed {
            let start = pdu.start;
            self.lose_sync(start, frame, listener);
            self.lose_place(gap_end);
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
            self.lose_sync(end, frame, listener);
            self.lose_place(gap_end);
        }
    }

    /// Ends the stream: a PDU with a decoded header is handed over as far as it goes.
    pub fn finish(&mut self, listener: &mut impl Listener) {
        self.assumed.clear();
        (self.replay, self.unread) = (None, None);
        listener.discard();
        if self.state == State::Walking && self.pdu.position >= LENGTH_BYTES as u64 && !self.pdu.is_assumed {
            let end = self.pdu.start + self.pdu.end as i64;
            self.emit(end, listener);
            self.pdu.begin(end);
        }
    }

    /// Marks the current PDU if bytes of it were retransmitted.
    pub fn mark_retransmitted(&mut self, start: i64, end: i64) {
        if self.state == State::Walking && self.pdu.position > 0 && start < self.offset && end > self.pdu.start {
            self.pdu.is_late = true;
        }
    }
}

/// How much of a chunk is used before the bytes of a header that ends at `used`, and of which others were cut away: if it is
/// none, the real one may start there.
fn without_header(used: u32) -> u32 {
    used.saturating_sub(LENGTH_BYTES as u32)
}

/// Prefetches the header at `at`, if it is in these bytes.
#[inline]
fn prefetch_header(bytes: &[u8], at: usize) {
    for end in [at, at + LENGTH_BYTES - 1] {
        iscsitrace_sys::prefetch_line(bytes, end);
    }
}
