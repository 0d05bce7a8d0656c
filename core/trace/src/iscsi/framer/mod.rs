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

mod cut;
mod digests;
mod progress;
mod search;

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::digest;

use super::assume::Assumed;
use super::login::Digests;
use crate::counters::Counter;
use crate::tcp::reassembly::Chunk;

use cut::Held;
pub use digests::DigestUse;
use progress::InProgress;

/// Bytes of a cut header without which its PDU cannot be walked: up to the DataSegmentLength.
const HEADER_WALK_BYTES: usize = 8;
/// Bytes of a cut header without which it tells nothing of its task: up to the Initiator Task Tag.
const HEADER_TAG_BYTES: usize = 20;
/// Data kept for the session's eyes (login text, sense data, rejected headers, ...).
pub const KEPT_DATA_MAX: usize = 64 << 10;

/// How well a header fits the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// It breaks the RFC.
    No,
    /// It keeps the RFC, but its sequence numbers are far from the expected.
    Unlikely,
    /// Nothing speaks against it.
    Possible,
    /// Tags or sequence numbers are the expected ones.
    Certain,
}

/// A packet, by number and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Frame number.
    pub frame: u64,
    /// Capture time.
    pub time_ns: i64,
}

/// A PDU whose header was read, as far as it was captured.
#[derive(Debug)]
pub struct Pdu<'a> {
    /// Its basic header segment, cut where the capture cut it.
    pub header: &'a [u8],
    /// Its data segment from the first byte on, as far as it is kept.
    pub data: &'a [u8],
    /// Stream offset of its first byte.
    pub offset: i64,
    /// One past its last byte.
    pub end: i64,
    /// The packet that brought its first byte.
    pub first: Place,
    /// The packet that completed it; none when its end was not captured.
    pub last: Option<Place>,
    /// Whether bytes of it were never captured.
    pub has_capture_gap: bool,
    /// Whether bytes of it came late, or again.
    pub is_late: bool,
    /// Whether its header digest matches; none without digest or bytes to tell.
    pub header_digest_ok: Option<bool>,
    /// Whether its data digest matches; none without digest or bytes to tell.
    pub data_digest_ok: Option<bool>,
}

impl Pdu<'_> {
    /// The view over its header.
    #[inline]
    pub fn bhs(&self) -> Bhs<'_> {
        Bhs::new(self.header)
    }
}

/// Who knows the connection.
pub trait Listener {
    /// How well a header (perhaps cut) fits.
    fn judge(&self, header: Bhs<'_>) -> Fit;
    /// A header was read; its PDU follows with [`Listener::pdu`], perhaps much later when bytes of it come late.
    fn begin(&mut self, header: Bhs<'_>, first: Place);
    /// How many bytes of a PDU's data to keep for [`Pdu::data`].
    fn keeps_data(&self, header: Bhs<'_>) -> usize;
    /// A PDU, complete or as far as it will ever be; gives the digests from the next PDU on, when it ends a login.
    fn pdu(&mut self, pdu: &Pdu<'_>) -> Option<Digests>;
    /// The bytes of data of the next PDU, whose header was cut away and which begins so many bytes before the end of its
    /// segment; none when that is not known.
    fn assume(&mut self, rest_of_segment: u32) -> Option<u32>;
    /// Whether it could also be something else.
    fn is_ambiguous(&self) -> bool;
    /// What was assumed does not hold: whether it can be assumed otherwise, from its start.
    fn reread(&mut self) -> bool;
    /// What was assumed holds: `header` follows where it ended.
    fn confirm(&mut self, assumed: &[Assumed], header: Bhs<'_>);
    /// What was assumed does not hold.
    fn discard(&mut self);
    /// An oddity.
    fn count(&mut self, counter: Counter, frame: u64, count: u64);
}

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
    held: Option<Box<Held>>,
    is_walking_again: bool,
    /// The digest of the data just ended, while it is not known whether digests are in use.
    possible_digest: Option<[u8; 4]>,
    pdu: InProgress,
    /// While searching: the last bytes seen, too few to be a header.
    carry: Vec<u8>,
    /// The packet that brought each of them.
    carry_places: Vec<Place>,
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
        let of_search = self.carry_places.first().map(|place| place.time_ns);
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
            held: None,
            is_walking_again: false,
            possible_digest: None,
            pdu: InProgress::new(),
            carry: Vec::new(),
            carry_places: Vec::new(),
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
        if self.held.is_some() {
            self.hold(chunk);
        }
        self.go_on(chunk, 0, listener);
    }

    /// What is left of a chunk.
    #[inline]
    fn go_on(&mut self, chunk: &Chunk<'_>, mut used: u32, listener: &mut impl Listener) {
        let place = Place { frame: chunk.frame, time_ns: chunk.time_ns };
        while used < chunk.length {
            used = match self.state {
                State::Walking => self.walk(chunk, used, place, listener),
                State::Searching => self.search(chunk, used, place, listener),
            };
        }
        self.offset = chunk.offset + i64::from(chunk.length);
    }

    /// Walks one part of the PDU; gives how much of the chunk is used then.
    #[inline]
    fn walk(&mut self, chunk: &Chunk<'_>, used: u32, place: Place, listener: &mut impl Listener) -> u32 {
        if self.pdu.position < LENGTH_BYTES as u64 {
            return self.walk_header(chunk, used, place, listener);
        }
        if self.pdu.is_assumed
            && let Some(used) = self.contradict(chunk, used, place, listener)
        {
            return used;
        }
        self.pdu.note(place, chunk.is_late);
        let position = self.pdu.position;
        let boundary = if position < self.pdu.ahs_end {
            self.pdu.ahs_end
        } else if position < self.pdu.data_start {
            self.pdu.data_start
        } else if position < self.pdu.data_end {
            self.pdu.data_end
        } else if position < self.pdu.digest_start {
            self.pdu.digest_start
        } else {
            self.pdu.end
        };
        let length = (boundary - position).min(u64::from(chunk.length - used)) as u32;
        let (from, to) = (used as usize, (used + length) as usize);
        let known = chunk.captured.get(from..to.min(chunk.captured.len())).unwrap_or_default();
        self.take_body(known, length as usize);
        self.pdu.position += u64::from(length);
        if self.pdu.position == boundary {
            self.end_part(chunk, used + length, listener);
        }
        used + length
    }

    /// Takes the bytes of AHS, data or digests (`known` may be shorter than `length`).
    #[inline]
    fn take_body(&mut self, known: &[u8], length: usize) {
        let pdu = &mut self.pdu;
        let is_known = known.len() == length;
        if pdu.position < pdu.ahs_end || (pdu.position >= pdu.data_start && pdu.position < pdu.digest_start) {
            if pdu.wants_crc {
                pdu.crc = if is_known { pdu.crc.map(|crc| digest::append(crc, known)) } else { None };
            }
            let data_position = pdu.position.wrapping_sub(pdu.data_start) as usize;
            if pdu.keep > pdu.kept.len()
                && pdu.position >= pdu.data_start
                && pdu.position < pdu.data_end
                && data_position == pdu.kept.len()
            {
                let wanted = (pdu.keep - pdu.kept.len()).min(known.len());
                pdu.kept.extend_from_slice(&known[..wanted]);
            }
        } else {
            let digest_start = if pdu.position < pdu.data_start { pdu.ahs_end } else { pdu.digest_start };
            let from = (pdu.position - digest_start) as usize;
            match pdu.digest.get_mut(from..from + length) {
                Some(digest) if is_known => digest.copy_from_slice(known),
                _ => pdu.crc = None,
            }
        }
    }

    /// At the end of a part of the PDU: infers and verifies digests, and completes the PDU.
    #[inline]
    fn end_part(&mut self, chunk: &Chunk<'_>, used: u32, listener: &mut impl Listener) {
        if self.pdu.position == self.pdu.ahs_end && self.pdu.position < self.pdu.data_start {
            return;
        }
        if self.pdu.position == self.pdu.data_start && self.pdu.data_start > self.pdu.ahs_end {
            self.pdu.header_digest_ok = self.pdu.crc.map(|crc| digest::to_wire(crc) == self.pdu.digest);
            self.start_data_crc();
        }
        if self.data_digest == DigestUse::Unknown
            && self.pdu.position == self.pdu.digest_start
            && self.pdu.data_end > self.pdu.data_start
            && let Some(crc) = self.pdu.crc
        {
            self.infer_data_digest(digest::to_wire(crc), chunk, used);
        }
        if self.pdu.position == self.pdu.end {
            if self.pdu.end > self.pdu.digest_start {
                self.pdu.data_digest_ok = self.pdu.crc.map(|crc| digest::to_wire(crc) == self.pdu.digest);
            }
            self.complete(listener);
        }
    }

    #[inline]
    fn start_data_crc(&mut self) {
        let has_data = self.pdu.data_end > self.pdu.data_start;
        self.pdu.wants_crc =
            has_data && self.data_digest != DigestUse::Known(false) && self.data_digest != DigestUse::Inferred(false);
        self.pdu.crc = self.pdu.wants_crc.then_some(0);
    }

    /// Collects the header; at its end lays out the PDU.
    #[inline]
    fn walk_header(&mut self, chunk: &Chunk<'_>, used: u32, place: Place, listener: &mut impl Listener) -> u32 {
        if self.data_digest == DigestUse::Unknown
            && self.had_data
            && self.pdu.position == 0
            && self.take_late_digest(chunk, used)
        {
            return used + 4;
        }
        self.pdu.note(place, chunk.is_late);
        let position = self.pdu.position as usize;
        let length = (LENGTH_BYTES - position).min((chunk.length - used) as usize);
        let from = used as usize;
        let known = chunk.captured.get(from..(from + length).min(chunk.captured.len())).unwrap_or_default();
        if let Some(whole) = known.first_chunk() {
            // the usual case, without a call
            self.pdu.header = *whole;
            self.pdu.header_known = LENGTH_BYTES;
        } else if self.pdu.header_known == position {
            self.pdu.header[position..position + known.len()].copy_from_slice(known);
            self.pdu.header_known += known.len();
        }
        self.pdu.position += length as u64;
        let used = used + length as u32;
        if self.pdu.position < LENGTH_BYTES as u64 {
            return used;
        }
        self.end_header(chunk, used, place, listener)
    }

    /// Where the header ends: is it one?
    #[inline]
    fn end_header(&mut self, chunk: &Chunk<'_>, used: u32, place: Place, listener: &mut impl Listener) -> u32 {
        if self.pdu.header_known < HEADER_TAG_BYTES
            && let Some(used) = self.assume(chunk, used, place, listener)
        {
            return used;
        }
        let known = self.pdu.header_known;
        let fit = listener.judge(Bhs::new(&self.pdu.header[..known]));
        let is_segment_start = chunk.is_segment_start && used as usize == LENGTH_BYTES;
        let is_unconfirmed = !self.assumed.is_empty() && fit < Fit::Certain && !is_segment_start;
        if fit == Fit::No || is_unconfirmed {
            if self.walk_again(listener) {
                return chunk.length;
            }
            listener.count(Counter::PduInvalid, place.frame, 1);
            let (header, first) = (self.pdu.header, self.pdu.first);
            self.lose_sync(self.pdu.start, place.frame, listener);
            // the true header may begin inside these bytes
            if known == LENGTH_BYTES {
                self.carry.extend_from_slice(&header[1..]);
                let before = LENGTH_BYTES.saturating_sub(used as usize);
                self.carry_places.resize(before.saturating_sub(1), first);
                self.carry_places.resize(self.carry.len(), place);
            }
            return used;
        }
        if known < LENGTH_BYTES {
            listener.count(Counter::PduHeaderCut, place.frame, 1);
        }
        if !self.assumed.is_empty() {
            self.explained_bytes +=
                self.assumed.iter().map(|assumed| (assumed.end - assumed.offset) as u64).sum::<u64>();
            listener.confirm(&self.assumed, Bhs::new(&self.pdu.header[..known]));
            self.assumed.clear();
            self.held = None;
        }
        self.start_body(chunk, used, listener);
        used
    }

    /// The header is there: what follows it?
    #[inline]
    fn start_body(&mut self, chunk: &Chunk<'_>, used: u32, listener: &mut impl Listener) {
        self.alignment = Some(self.pdu.start.rem_euclid(4));
        listener.begin(Bhs::new(&self.pdu.header[..self.pdu.header_known]), self.pdu.first);
        if self.header_digest == DigestUse::Unknown {
            self.infer_header_digest(chunk, used);
        }
        self.pdu.lay_out(self.header_digest.is_used(), self.data_digest.is_used());
        let known = self.pdu.header_known;
        self.pdu.keep = listener.keeps_data(Bhs::new(&self.pdu.header[..known])).min(KEPT_DATA_MAX);
        if self.header_digest.is_used() {
            self.pdu.wants_crc = true;
            self.pdu.crc = (known == LENGTH_BYTES).then(|| digest::crc32c(&self.pdu.header));
        } else {
            // the CRC of the data begins after the AHS
            self.pdu.wants_crc = false;
            if self.pdu.ahs_end == LENGTH_BYTES as u64 {
                self.start_data_crc();
            }
        }
        prefetch_header(chunk.captured, used as usize + (self.pdu.end - self.pdu.position) as usize);
        if self.pdu.position == self.pdu.end {
            self.complete(listener);
        }
    }

    /// Hands the PDU over and waits for the next header.
    #[inline]
    fn complete(&mut self, listener: &mut impl Listener) {
        let end = self.pdu.start + self.pdu.end as i64;
        self.had_data = self.pdu.data_end > self.pdu.data_start;
        if self.pdu.is_assumed {
            self.assumed.push(Assumed { offset: self.pdu.start, end, first: self.pdu.first, last: self.pdu.last });
        } else {
            self.emit(end, listener);
        }
        self.pdu.begin(end);
    }

    #[inline]
    fn emit(&mut self, end: i64, listener: &mut impl Listener) {
        let pdu = &self.pdu;
        let last = if pdu.position == pdu.end { pdu.last } else { None };
        self.explained_bytes += pdu.position;
        let frame = pdu.first.frame;
        if pdu.header_digest_ok == Some(false) {
            listener.count(Counter::HeaderDigestError, frame, 1);
        }
        if pdu.data_digest_ok == Some(false) {
            listener.count(Counter::DataDigestError, frame, 1);
        }
        let digests = listener.pdu(&Pdu {
            header: &pdu.header[..pdu.header_known],
            data: &pdu.kept,
            offset: pdu.start,
            end,
            first: pdu.first,
            last,
            has_capture_gap: pdu.has_capture_gap,
            is_late: pdu.is_late,
            header_digest_ok: pdu.header_digest_ok,
            data_digest_ok: pdu.data_digest_ok,
        });
        if let Some(digests) = digests {
            self.agree(digests);
        }
    }

    /// The next header is not where it should be: it is searched for from `lost_at` on.
    fn lose_sync(&mut self, lost_at: i64, frame: u64, listener: &mut impl Listener) {
        listener.count(Counter::SyncLost, frame, 1);
        self.assumed.clear();
        self.held = None;
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
        self.held = None;
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
