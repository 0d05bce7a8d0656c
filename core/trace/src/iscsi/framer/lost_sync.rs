//! The way back to headers, where the position of the next one is unknown.
//!
//! Three things make it unknown: the start of a capture, a hole with a header in it, and a snaplen that cut a header away. The
//! synchroniser finds the next header; one is accepted if it is at least likely, and never if it was sent before: payload
//! can hold PDUs of its own session. What lies before the first one of a stream is read, too, as far as it leads there. What
//! a snaplen cut away is never read: the connection says which PDUs must have been there.

use iscsitrace_wire::bhs::LENGTH_BYTES;

use super::Framer;
use super::listener::{Found, Listener};
use super::search::Search;
use crate::counters::Counter;
use crate::iscsi::digest_use::DigestUse;
use crate::iscsi::synchroniser::{Fit, Header, Place, Sure, Synchroniser};
use crate::stream::chunk::Chunk;
use crate::stream::stamp::Stamp;

impl Framer {
    /// The next header is not at `lost_at`. Its bytes before `chunk` are searched again, too.
    pub(super) fn lose_sync(&mut self, lost_at: i64, chunk: Option<&Chunk<'_>>) -> &mut Search {
        let mut synchroniser = Synchroniser::new(lost_at + 1, self.alignment, false);
        if let Some(length) =
            chunk.and_then(|chunk| u32::try_from(chunk.offset - lost_at).ok()).filter(|&length| length > 0)
        {
            let captured = &self.pdu.header[..self.pdu.header_known.min(length as usize)];
            let Stamp { frame, time_ns } = self.pdu.first;
            let (is_late, is_segment_start) = (self.pdu.is_late, false);
            synchroniser.kept.push(&Chunk {
                offset: lost_at,
                length,
                captured,
                frame,
                time_ns,
                is_late,
                is_segment_start,
            });
        }
        let (is_after_data, is_first) = (self.had_data, false);
        let search =
            Search { synchroniser, is_place_known: true, is_after_data, is_first, ..*Search::at_start(lost_at) };
        self.search.insert(Box::new(search))
    }

    /// The header of the current PDU was cut away before its length: what the tasks expect must be there, or its end is
    /// unknown.
    #[cold]
    pub(super) fn pass_cut_header(&mut self, chunk: &Chunk<'_>, listener: &mut impl Listener) -> u32 {
        let start = self.pdu.start;
        let due = listener.due(start, start, self.digests_used());
        let search = self.lose_sync(start, Some(chunk));
        search.due = due;
        search.synchroniser.keeps_all = search.is_due();
        if search.is_due() {
            listener.wait(true);
        } else {
            listener.count(Counter::SyncLost, chunk.frame, 1);
        }
        self.search(chunk, listener)
    }

    /// The bytes since a header that was cut away are not what the tasks expect.
    pub(super) fn give_up_due(&mut self, frame: u64, listener: &mut impl Listener) {
        if let Some(search) = self.search.as_mut().filter(|search| search.is_due()) {
            search.due = [None; 2];
            search.synchroniser.keeps_all = search.is_first;
            listener.count(Counter::SyncLost, frame, 1);
            listener.wait(false);
        }
    }

    /// Searches a chunk for a header; returns how much of it is used then.
    #[cold]
    pub(super) fn search(&mut self, chunk: &Chunk<'_>, listener: &mut impl Listener) -> u32 {
        let Some(mut search) = self.search.take() else { return chunk.length };
        let (digests, has) = ([self.header_digest, self.data_digest], self.digests_used());
        let Search { lost_at, searched_from, due, .. } = *search;
        let (is_due, asked) = (search.is_due(), &*listener);
        let end = chunk.offset + i64::from(chunk.length);
        if is_due
            && due.iter().flatten().all(|&due| due >= end)
            && Place::within(chunk, 0).is_none_or(|start| !start.starts_segment || asked.judge(start.bhs()) == Fit::No)
        {
            // all of it is of the PDU that is expected
            search.synchroniser.pass(chunk);
            self.search = Some(search);
            return chunk.length;
        }
        let found = search.synchroniser.find(chunk, digests, asked, |place, sure| {
            if sure == Sure::No && !place.starts_segment {
                return false;
            }
            // where a header is due, it is one, as in the walk
            if due.contains(&Some(place.offset)) {
                return sure == Sure::Shown || place.starts_segment && asked.judge(place.bhs()) > Fit::No;
            }
            // between cut headers payload may end anywhere
            let searched_bytes = if is_due { 0 } else { (place.offset - searched_from).max(0).unsigned_abs() };
            sure >= Sure::Likely && !asked.is_past(place.bhs(), Found { time_ns: place.first.time_ns, searched_bytes })
        });
        if let Some(found) = found {
            return self.resume(search, &found, chunk, listener);
        }
        // a header as long as that was due, and not found
        let next = if due.iter().flatten().any(|due| due + LENGTH_BYTES as i64 <= end) {
            listener.due(lost_at, end - 1, has)
        } else {
            due
        };
        let search = self.search.insert(search);
        if next == [None; 2] {
            self.give_up_due(chunk.frame, listener);
        } else {
            search.due = next;
        }
        chunk.length
    }

    /// Continues with a header that the search found; returns how much of the chunk is used with it.
    fn resume(
        &mut self,
        mut search: Box<Search>,
        found: &Header,
        chunk: &Chunk<'_>,
        listener: &mut impl Listener,
    ) -> u32 {
        self.had_data = false;
        if search.is_first || search.is_due() {
            search.synchroniser.kept.push(chunk);
        }
        let digests = [self.header_digest, self.data_digest];
        if search.is_first
            && let Some(start) = search.synchroniser.first_before(found, digests, listener)
        {
            listener.found_again(true);
            self.read_from(start, &search, listener);
            listener.found_again(false);
            // the chunk was the last of those that were kept
            return chunk.length;
        }
        listener.found_again(false);
        let (bytes, has) = (search.lost_at..found.offset, self.digests_used());
        let explain = || listener.explain(bytes.clone(), has, found.bhs(), &search.synchroniser.kept);
        if let Some(had_data) = search.is_due().then(explain).flatten() {
            self.explained_bytes += (bytes.end - bytes.start).unsigned_abs();
            if had_data && self.data_digest == DigestUse::Unknown {
                // right behind data
                self.data_digest = DigestUse::Inferred(false);
            }
        } else {
            if search.is_due() {
                listener.count(Counter::SyncLost, chunk.frame, 1);
                listener.wait(false);
            }
            self.note_lost_start(search.lost_at, found.offset);
            if search.is_place_known {
                self.reconsider_digests(found.offset - search.lost_at, search.is_after_data);
            }
        }
        self.pdu.begin(found.offset);
        self.pdu.first = found.first;
        self.pdu.last = Some(chunk.stamp());
        self.pdu.is_late = chunk.is_late;
        let (header, known) = (found.bhs(), found.bhs().as_bytes().len());
        self.pdu.header[..known].copy_from_slice(header.as_bytes());
        self.pdu.header_known = known;
        // an incomplete header may end with its segment
        let end = chunk.offset + i64::from(chunk.length);
        self.pdu.position = (end - found.offset).clamp(0, LENGTH_BYTES as i64) as u64;
        let used = (found.offset + self.pdu.position as i64 - chunk.offset) as u32;
        if self.pdu.position == LENGTH_BYTES as u64 {
            if known < LENGTH_BYTES {
                listener.count(Counter::PduHeaderCut, chunk.frame, 1);
            }
            self.start_body(chunk, used, listener);
        }
        used
    }

    /// Reads the kept chunks from the first PDU that leads to the header that was found.
    fn read_from(&mut self, start: i64, search: &Search, listener: &mut impl Listener) {
        self.note_lost_start(search.lost_at, start);
        self.pdu.begin(start);
        for chunk in search.synchroniser.kept.chunks() {
            if self.offset > start && chunk.offset > self.offset {
                self.gap(self.offset, (chunk.offset - self.offset) as u64, listener);
            }
            let used = (start - chunk.offset).clamp(0, i64::from(chunk.length)) as u32;
            self.go_on(&chunk, used, listener);
        }
    }

    /// The first header is at `offset`: what is before it is missing.
    fn note_lost_start(&mut self, lost_at: i64, offset: i64) {
        if self.explained_bytes == 0 && offset > lost_at {
            self.lost_start_bytes.get_or_insert((offset - lost_at).unsigned_abs());
        }
    }
}
