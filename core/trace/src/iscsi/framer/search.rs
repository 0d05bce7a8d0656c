//! The search for the next header, after its position became unknown.
//!
//! A header is accepted if its tags or numbers are the expected ones and nothing contradicts what follows; or, at the start
//! of a segment, if nothing contradicts it and it leads to the segment's end or to another header. Never one that was sent
//! before: payload can hold PDUs of its own session. Headers may extend over the end of a packet.
//! At the start of a stream, a possible header leads to the first one, over any number of segments; and PDUs that lead to
//! the first header, or to bytes before it that are missing from the capture, are read as well.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::digest;
use rustc_hash::FxHashSet;

use super::listener::{Fit, Found, Listener};
use super::unread::Unread;
use super::{Framer, State};
use crate::counters::Counter;
use crate::iscsi::assumption::HEADER_TAG_BYTES;
use crate::iscsi::digest_use::DigestUse;
use crate::iscsi::leads::{DIGESTS, NUMBERS_MIN, near_numbers};
use crate::stream::chunk::Chunk;
use crate::stream::stamp::Stamp;

impl Framer {
    /// Searches a chunk for a header; returns how much of it is used then.
    #[cold]
    pub(super) fn search(&mut self, chunk: &Chunk<'_>, used: u32, stamp: Stamp, listener: &mut impl Listener) -> u32 {
        if used == 0 {
            self.keep_unread(chunk);
        }
        let captured = chunk.captured.get(used as usize..).unwrap_or_default();
        let carried = self.carry.len();
        let base = chunk.offset + i64::from(used) - carried as i64;
        // headers that start in the bytes of the previous chunk and end in this one
        if carried > 0 {
            let joined_length = carried + captured.len().min(LENGTH_BYTES - 1);
            let mut joined = std::mem::take(&mut self.carry);
            joined.extend_from_slice(&captured[..joined_length - carried]);
            for at in 0..carried {
                let Some(header) = joined.get(at..at + LENGTH_BYTES) else { break };
                let first = self.carry_stamps.get(at).copied().unwrap_or(stamp);
                if self.accepts(base + at as i64, header, first, false, None, listener) {
                    return self.resume(
                        base + at as i64,
                        header,
                        first,
                        chunk,
                        used + (at + LENGTH_BYTES - carried) as u32,
                        listener,
                    );
                }
            }
            self.carry = joined;
            self.carry.truncate(carried);
        }
        let is_cut = chunk.captured.len() < chunk.length as usize;
        for at in 0..captured.len() {
            let remaining = captured.len() - at;
            if remaining < LENGTH_BYTES && !(is_cut && remaining >= HEADER_TAG_BYTES) {
                break;
            }
            let header = &captured[at..at + remaining.min(LENGTH_BYTES)];
            let is_start = at == 0 && used == 0 && chunk.is_segment_start;
            let rest = chunk.length as usize - used as usize - at;
            if self.accepts(
                chunk.offset + i64::from(used) + at as i64,
                header,
                stamp,
                is_start,
                Some((&captured[at..], rest)),
                listener,
            ) {
                return self.resume(
                    chunk.offset + i64::from(used) + at as i64,
                    header,
                    stamp,
                    chunk,
                    (used as usize + at + LENGTH_BYTES).min(chunk.length as usize) as u32,
                    listener,
                );
            }
            if is_start {
                self.note_lead(chunk.offset, header, listener);
            }
        }
        self.carry_over(captured, is_cut, stamp);
        chunk.length
    }

    /// Notes a possible header at the start of a segment, while none is certain.
    fn note_lead(&mut self, offset: i64, header: &[u8], listener: &impl Listener) {
        if let (Some(unread), Some(whole)) = (&mut self.unread, header.first_chunk())
            && listener.judge(Bhs::new(whole)) == Fit::Possible
        {
            unread.leads.note(offset, whole);
        }
    }

    /// Keeps the last bytes: a header may start in them.
    pub(super) fn carry_over(&mut self, captured: &[u8], is_cut: bool, stamp: Stamp) {
        if is_cut {
            self.clear_carry();
            return;
        }
        let kept = &captured[captured.len().saturating_sub(LENGTH_BYTES - 1)..];
        self.carry.extend_from_slice(kept);
        self.carry_stamps.resize(self.carry.len(), stamp);
        let excess = self.carry.len().saturating_sub(LENGTH_BYTES - 1);
        self.carry.drain(..excess);
        self.carry_stamps.drain(..excess);
    }

    pub(super) fn clear_carry(&mut self) {
        self.carry.clear();
        self.carry_stamps.clear();
    }

    /// Whether the bytes at `offset` are a header: certain by tags and numbers; or possible, at the start of a segment,
    /// and leading to the segment's end or to another header.
    pub(super) fn accepts(
        &self,
        offset: i64,
        header: &[u8],
        first: Stamp,
        is_segment_start: bool,
        rest: Option<(&[u8], usize)>,
        listener: &impl Listener,
    ) -> bool {
        if self.alignment.is_some_and(|alignment| offset.rem_euclid(4) != alignment) {
            return false;
        }
        let bhs = Bhs::new(header);
        match listener.judge(bhs) {
            Fit::No | Fit::Unlikely => false,
            _ if listener.is_past(bhs, self.found(offset, first)) => false,
            Fit::Certain => rest.is_none_or(|(bytes, _)| self.leads_on(bhs, bytes, listener)),
            Fit::Possible if self.unread.as_ref().is_some_and(|unread| unread.leads.show(offset, bhs)) => true,
            Fit::Possible => {
                let Some((bytes, length)) = rest else { return false };
                let digest = bytes.get(LENGTH_BYTES..LENGTH_BYTES + 4);
                if header.len() == LENGTH_BYTES && digest == Some(digest::to_wire(digest::crc32c(header)).as_slice()) {
                    return true;
                }
                if !is_segment_start {
                    return false;
                }
                DIGESTS.iter().any(|&(has_header_digest, has_data_digest)| {
                    let Some(total) = bhs.total_length(has_header_digest, has_data_digest) else { return false };
                    let total = total as usize;
                    total == length
                        || bytes
                            .get(total..total + LENGTH_BYTES)
                            .is_some_and(|next| listener.judge(Bhs::new(next)) > Fit::Unlikely)
                })
            }
        }
    }

    fn found(&self, offset: i64, first: Stamp) -> Found {
        Found { time_ns: first.time_ns, searched_bytes: (offset - self.search_from).max(0).unsigned_abs() }
    }

    /// Whether nothing shows that no header follows where a PDU ends.
    fn leads_on(&self, header: Bhs<'_>, bytes: &[u8], listener: &impl Listener) -> bool {
        let is_possible =
            |digest: DigestUse, has_digest: bool| !matches!(digest, DigestUse::Known(is_used) if is_used != has_digest);
        DIGESTS.iter().any(|&(has_header_digest, has_data_digest)| {
            let next = header
                .total_length(has_header_digest, has_data_digest)
                .and_then(|total| bytes.get(total as usize..total as usize + LENGTH_BYTES));
            is_possible(self.header_digest, has_header_digest)
                && is_possible(self.data_digest, has_data_digest)
                && next.is_none_or(|next| listener.judge(Bhs::new(next)) > Fit::No)
        })
    }

    /// Continues with a header that the search found; `used` is how much of the chunk is used with it.
    pub(super) fn resume(
        &mut self,
        offset: i64,
        header: &[u8],
        first: Stamp,
        chunk: &Chunk<'_>,
        used: u32,
        listener: &mut impl Listener,
    ) -> u32 {
        self.had_data = false;
        if self.unread.is_some() && self.read_before(offset, header, listener) {
            // the chunk was the last of those that were kept
            return chunk.length;
        }
        self.state = State::Walking;
        self.clear_carry();
        self.note_lost_start(offset);
        if self.is_lost_place_known {
            self.reconsider_digests(offset - self.lost_at);
        }
        self.pdu.begin(offset);
        self.pdu.first = first;
        self.pdu.last = Some(Stamp { frame: chunk.frame, time_ns: chunk.time_ns });
        self.pdu.is_late = chunk.is_late;
        self.pdu.header[..header.len()].copy_from_slice(header);
        self.pdu.header_known = header.len();
        // an incomplete header may end with its segment
        self.pdu.position = (chunk.offset + i64::from(used) - offset).clamp(0, LENGTH_BYTES as i64) as u64;
        if self.pdu.position == LENGTH_BYTES as u64 {
            if header.len() < LENGTH_BYTES {
                listener.count(Counter::PduHeaderCut, chunk.frame, 1);
            }
            self.start_body(chunk, used, listener);
        }
        used
    }

    /// Keeps a chunk in which the first header is searched.
    fn keep_unread(&mut self, chunk: &Chunk<'_>) {
        let Some(unread) = &mut self.unread else { return };
        if !unread.push(chunk) {
            **unread = Unread::default();
            unread.push(chunk);
        }
    }

    /// The first position whose lengths lead to the header at `found`; or, from the start of a segment, to a header
    /// before it that was not captured.
    fn first_before(&self, found: i64, header: &[u8], listener: &impl Listener) -> Option<i64> {
        let unread = self.unread.as_ref()?;
        let uses = |digest: DigestUse| match digest {
            DigestUse::Unknown => [false, true],
            known => [known.is_used(); 2],
        };
        let mut first: Option<i64> = None;
        for has_header_digest in uses(self.header_digest) {
            for has_data_digest in uses(self.data_digest) {
                let mut leads_elsewhere: FxHashSet<i64> = FxHashSet::default();
                let start = unread.positions(found).find(|&(start, starts_segment)| {
                    let (mut offset, mut passed) = (start, Vec::new());
                    let (mut leads_there, mut has_numbers) = (false, starts_segment);
                    while offset < found {
                        let Some(bytes) = unread.header_at(offset) else {
                            // with as many numbers as this takes, no header is needed there
                            leads_there = has_numbers && offset > start;
                            break;
                        };
                        let bhs = Bhs::new(&bytes);
                        let near = near_numbers(bhs, Bhs::new(header));
                        let needed = if offset == start && !starts_segment { NUMBERS_MIN } else { 1 };
                        let is_header = listener.judge(bhs) > Fit::Unlikely && near >= needed;
                        let length = bhs.total_length(has_header_digest, has_data_digest);
                        let Some(length) = length.filter(|_| is_header && !leads_elsewhere.contains(&offset)) else {
                            break;
                        };
                        has_numbers &= near >= NUMBERS_MIN;
                        passed.push(offset);
                        offset += length as i64;
                    }
                    leads_there |= offset == found;
                    if !leads_there {
                        leads_elsewhere.extend(passed);
                    }
                    leads_there
                });
                first = start.map(|(start, _)| first.map_or(start, |first| first.min(start))).or(first);
            }
        }
        first
    }

    /// The first header was found at `found`: reads the kept chunks from the first PDU that leads to it. False if there
    /// is none.
    #[cold]
    fn read_before(&mut self, found: i64, header: &[u8], listener: &mut impl Listener) -> bool {
        let start = self.first_before(found, header, listener);
        let (Some(start), Some(unread)) = (start, self.unread.take()) else {
            self.unread = None;
            return false;
        };
        self.state = State::Walking;
        self.clear_carry();
        self.note_lost_start(start);
        self.pdu.begin(start);
        for (place, (chunk, _)) in unread.chunks.iter().enumerate() {
            if self.offset > start && chunk.offset > self.offset {
                self.gap(self.offset, (chunk.offset - self.offset) as u64, listener);
            }
            let used = (start - chunk.offset).clamp(0, i64::from(chunk.length)) as u32;
            self.go_on(&Chunk { captured: unread.captured_of(place), ..*chunk }, used, listener);
        }
        true
    }
}
