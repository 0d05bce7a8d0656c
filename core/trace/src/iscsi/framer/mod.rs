//! Stream bytes of one direction -> PDUs.
//!
//! ```text
//!   | BHS 48 | AHS | header digest | data | padding | data digest |  next BHS ...
//!   0        48    `- ahs_end      `- data_start    `- digest_start `- end        (position in the PDU)
//! ```
//!
//! Only headers have to be there: data is walked by its length, through holes and beyond a snaplen. When the place of
//! the next header becomes unknown, the bytes that follow are searched for a header that fits the connection; none is
//! taken on faith. It knows no session: what fits is for its [`Listener`] to say. It keeps one PDU at a time.

mod cut_header;
mod digest_inference;
pub mod listener;
mod progress;
mod replay;
mod search;
mod walk;

use iscsitrace_wire::bhs::LENGTH_BYTES;

use super::assumption::Assumed;
use super::digest_use::DigestUse;
use super::pdu::Stamp;
use crate::counters::Counter;
use crate::tcp::reassembly::Chunk;
use listener::Listener;
use progress::InProgress;
use replay::Replay;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The next byte begins a header, or is inside the PDU.
    Walking,
    /// The place of the next header is unknown.
    Searching,
}

/// The framer of one direction.
#[derive(Debug)]
pub struct Framer {
    /// Header digests in use.
    pub header_digest: DigestUse,
    /// Data digests in use.
    pub data_digest: DigestUse,
    /// Bytes of PDUs whose header was read.
    pub explained_bytes: u64,
    state: State,
    /// Stream offset of the next byte.
    offset: i64,
    /// PDUs begin at offsets of this remainder modulo 4, once that is known.
    alignment: Option<i64>,
    /// Where the last header should have been, while searching; and whether the PDU before it carried data.
    lost_at: i64,
    /// Whether that place was reached by walking, with bytes there that were no header.
    is_lost_place_known: bool,
    lost_after_data: bool,
    had_data: bool,
    is_stream_start: bool,
    has_lost_start: bool,
    /// PDUs of which only the place is known, since the last header that was read.
    assumed: Vec<Assumed>,
    /// All that came since the first of them, when they could be read otherwise.
    replay: Option<Box<Replay>>,
    is_walking_again: bool,
    /// The digest of the data just ended, while it is not known whether digests are in use.
    possible_digest: Option<[u8; 4]>,
    pdu: InProgress,
    /// While searching: the last bytes seen, too few to be a header.
    carry: Vec<u8>,
    /// The packet that brought each of them.
    carry_stamps: Vec<Stamp>,
}

impl Framer {
    /// The earliest capture time of bytes of which it is not known yet what they say: of a PDU under way, or of PDUs
    /// whose header was cut away.
    pub fn unread_since_ns(&self) -> Option<i64> {
        let is_under_way = match self.pdu.ahs_end {
            0 => self.pdu.header_known > 0,
            _ => self.pdu.position < self.pdu.end,
        };
        let of_pdu = (is_under_way && self.state == State::Walking).then_some(self.pdu.first.time_ns);
        let of_assumed = self.assumed.first().map(|assumed| assumed.first.time_ns);
        let of_search = self.carry_stamps.first().map(|stamp| stamp.time_ns);
        [of_pdu, of_assumed, of_search].into_iter().flatten().min()
    }

    /// A framer that waits for a header at `offset` (when the start of the stream was captured), or searches for one.
    pub fn new(offset: i64, is_stream_start: bool) -> Self {
        let mut framer = Self {
            header_digest: DigestUse::Unknown,
            data_digest: DigestUse::Unknown,
            explained_bytes: 0,
            state: if is_stream_start { State::Walking } else { State::Searching },
            offset,
            alignment: is_stream_start.then_some(offset.rem_euclid(4)),
            lost_at: offset,
            is_lost_place_known: false,
            lost_after_data: false,
            had_data: false,
            is_stream_start,
            has_lost_start: false,
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

    /// Whether it lost the start of the stream: a PDU was there that was not seen.
    pub fn has_lost_start(&self) -> bool {
        self.has_lost_start
    }

    /// Whether bytes came since the place of the next header became unknown.
    pub fn has_lost_end(&self) -> bool {
        self.state == State::Searching && self.offset > self.lost_at
    }

    /// Bytes that the PDU under way still has to bring after `offset`, where the walk is; 0 while its header does not tell.
    /// None between PDUs, and where it is not known.
    #[inline]
    pub fn left_of_pdu(&self, offset: i64) -> Option<u64> {
        let is_within = self.state == State::Walking
            && self.offset == offset
            && self.pdu.position > 0
            && (self.pdu.end == 0 || self.pdu.position < self.pdu.end);
        is_within.then(|| self.pdu.end.saturating_sub(self.pdu.position))
    }

    /// Starts to fetch the next header out of a payload that is about to come as a chunk.
    #[inline]
    pub fn prefetch(&self, payload: &[u8]) {
        if self.state == State::Walking && self.pdu.position >= LENGTH_BYTES as u64 {
            prefetch_header(payload, (self.pdu.end - self.pdu.position) as usize);
        }
    }

    /// The next bytes of the stream.
    #[inline]
    pub fn chunk(&mut self, chunk: &Chunk<'_>, listener: &mut impl Listener) {
        if self.replay.is_some() {
            self.keep_for_replay(chunk);
        }
        self.go_on(chunk, 0, listener);
    }

    /// What is left of a chunk.
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

    /// The next header is not where it should be: it is searched for from `lost_at` on.
    fn lose_sync(&mut self, lost_at: i64, frame: u64, listener: &mut impl Listener) {
        listener.count(Counter::SyncLost, frame, 1);
        self.assumed.clear();
        self.replay = None;
        listener.discard();
        self.state = State::Searching;
        self.lost_at = lost_at;
        self.is_lost_place_known = true;
        self.lost_after_data = self.had_data;
        self.clear_carry();
    }

    /// Bytes of the stream that no captured packet carried.
    pub fn gap(&mut self, offset: i64, length: u64, listener: &mut impl Listener) {
        let gap_end = offset + length as i64;
        self.offset = gap_end;
        if self.state == State::Searching {
            self.clear_carry();
            self.is_lost_place_known = false;
            return;
        }
        self.possible_digest = None;
        let pdu = &mut self.pdu;
        let frame = pdu.last.map_or(0, |last| last.frame);
        if pdu.position < LENGTH_BYTES as u64 || pdu.is_assumed {
            let start = pdu.start;
            self.lose_sync(start, frame, listener);
            self.is_lost_place_known = false;
            return;
        }
        pdu.has_capture_gap = true;
        pdu.crc = None;
        let end = pdu.start + pdu.end as i64;
        if gap_end < end {
            let position = (gap_end - pdu.start) as u64;
            if position >= pdu.data_start {
                // the AHS and header digest are behind: data goes on without its CRC
                pdu.wants_crc = true;
            }
            pdu.position = position;
            return;
        }
        // the end of the PDU was not captured: the time of its completion is unknown
        pdu.position = pdu.end;
        pdu.last = None;
        self.complete(listener);
        if gap_end > end {
            self.lose_sync(end, frame, listener);
            self.is_lost_place_known = false;
        }
    }

    /// The end of the stream in this capture: a PDU with its header read is handed over as far as it goes.
    pub fn finish(&mut self, listener: &mut impl Listener) {
        self.assumed.clear();
        self.replay = None;
        listener.discard();
        if self.state == State::Walking && self.pdu.position >= LENGTH_BYTES as u64 && !self.pdu.is_assumed {
            self.pdu.has_capture_gap = true;
            let end = self.pdu.start + self.pdu.end as i64;
            self.emit(end, listener);
            self.pdu.begin(end);
        }
    }

    /// Marks the PDU in progress when bytes of it came again.
    pub fn mark_retransmitted(&mut self, start: i64, end: i64) {
        if self.state == State::Walking && self.pdu.position > 0 && start < self.offset && end > self.pdu.start {
            self.pdu.is_late = true;
        }
    }
}

/// Starts to fetch the header at `at` of these bytes, if it is there.
#[inline]
fn prefetch_header(bytes: &[u8], at: usize) {
    for end in [at, at + LENGTH_BYTES - 1] {
        iscsitrace_mapped::prefetch_line(bytes, end);
    }
}
