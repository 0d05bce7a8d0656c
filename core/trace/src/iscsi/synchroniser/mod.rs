//! Where in a stream do PDUs begin? Asked at the start of a capture, whether it is iSCSI at all, and behind a hole.
//!
//! ```text
//!   first byte captured         the first certain header
//!   | Data-In, 256 KiB ........ | SCSI Response ...
//!   `- nothing was known here, but its length leads exactly there
//! ```
//!
//! Bytes are a header if a connection expects its tags or numbers, and nothing contradicts what follows; if its digest
//! follows; or if an earlier possible header leads to it. A header at the start of a segment is likely one if it leads to
//! the segment's end or to another header. A snaplen may cut headers behind the task tag, and they may extend over the ends
//! of packets. Whoever asks decides how sure it has to be. The synchroniser never reads a PDU.

mod kept;
mod leads;

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::digest;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use super::digest_use::{DigestUse, lengths};
use crate::stream::chunk::Chunk;
use crate::stream::stamp::Stamp;
pub use kept::{Kept, KeptChunk};
pub use leads::Leads;
use leads::{NUMBERS_MIN, near_numbers};

/// Minimum captured bytes of a header to identify its task: up to the Initiator Task Tag.
pub const HEADER_TAG_BYTES: usize = 20;

/// How well a header fits a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// It violates the RFC.
    No,
    /// It conforms, but its sequence numbers are far from the expected ones.
    Unlikely,
    /// Nothing contradicts it.
    Possible,
    /// Its tags or sequence numbers are the expected ones.
    Certain,
}

/// Who knows what headers must look like.
pub trait Judge {
    /// How well a (possibly incomplete) header fits.
    fn judge(&self, header: Bhs<'_>) -> Fit;
}

/// How sure it is that a PDU begins at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sure {
    /// None does.
    No,
    /// Nothing contradicts it.
    Possible,
    /// It starts a segment, and leads to its end or to another header.
    Likely,
    /// Its tags, its numbers, its digest or an earlier header show it.
    Shown,
}

/// A place where a PDU may begin.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Its stream offset.
    pub offset: i64,
    /// What is captured of the header.
    pub header: &'a [u8],
    /// What is captured of its segment from there on, if the header begins in it.
    pub bytes: &'a [u8],
    /// The bytes of its segment from there on.
    pub length: usize,
    /// Whether it starts a segment.
    pub starts_segment: bool,
    /// The packet with its first byte.
    pub first: Stamp,
}

impl<'a> Place<'a> {
    /// The view over its header.
    pub fn bhs(&self) -> Bhs<'a> {
        Bhs::new(self.header)
    }

    /// A place within a chunk; none if too little of a header is captured there.
    pub fn within(chunk: &Chunk<'a>, at: usize) -> Option<Self> {
        let bytes = chunk.captured.get(at..)?;
        let (length, starts_segment) = (chunk.length as usize - at, at == 0 && chunk.is_segment_start);
        let header = header_of(bytes, chunk)?;
        Some(Self { offset: chunk.offset + at as i64, header, bytes, length, starts_segment, first: chunk.stamp() })
    }

    /// The headers that follow in its segment, by its lengths with each possible use of digests; and the segment's end.
    fn leads(&self, digests: [DigestUse; 2]) -> impl Iterator<Item = (bool, Option<Bhs<'a>>)> {
        let Self { bytes, length, .. } = *self;
        lengths(self.bhs(), digests).map(move |total| {
            let next = usize::try_from(total).ok().and_then(|total| bytes.get(total..total + LENGTH_BYTES));
            (total == length as u64, next.map(Bhs::new))
        })
    }

    /// How sure it is that a PDU begins here.
    #[inline]
    pub fn weigh(&self, leads: &Leads, digests: [DigestUse; 2], judge: &impl Judge) -> Sure {
        let digest = self.bytes.get(LENGTH_BYTES..LENGTH_BYTES + 4);
        let has_digest = || digest.is_some_and(|digest| digest == digest::to_wire(digest::crc32c(self.header)));
        let fits = |next: Option<Bhs<'_>>, least: Fit| next.is_some_and(|next| judge.judge(next) >= least);
        match judge.judge(self.bhs()) {
            Fit::No | Fit::Unlikely => Sure::No,
            Fit::Certain if self.leads(digests).any(|(_, next)| next.is_none() || fits(next, Fit::Unlikely)) => {
                Sure::Shown
            }
            Fit::Certain => Sure::No,
            Fit::Possible if leads.show(self.offset, self.bhs()) || has_digest() => Sure::Shown,
            Fit::Possible
                if self.starts_segment && self.leads(digests).any(|(ends, next)| ends || fits(next, Fit::Possible)) =>
            {
                Sure::Likely
            }
            Fit::Possible => Sure::Possible,
        }
    }
}

/// The header at the start of bytes that end with what is captured of a chunk; none if too little of it is captured.
fn header_of<'a>(bytes: &'a [u8], chunk: &Chunk<'_>) -> Option<&'a [u8]> {
    let is_cut = chunk.captured.len() < chunk.length as usize;
    let header = &bytes[..bytes.len().min(LENGTH_BYTES)];
    (header.len() >= if is_cut { HEADER_TAG_BYTES } else { LENGTH_BYTES }).then_some(header)
}

/// A header that was found.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// Its stream offset.
    pub offset: i64,
    /// The packet with its first byte.
    pub first: Stamp,
    bytes: [u8; LENGTH_BYTES],
    known: usize,
}

impl Header {
    fn of(place: &Place<'_>) -> Self {
        let (mut bytes, known) = ([0; LENGTH_BYTES], place.header.len().min(LENGTH_BYTES));
        bytes[..known].copy_from_slice(&place.header[..known]);
        Self { offset: place.offset, first: place.first, bytes, known }
    }

    /// The view over what is captured of it.
    pub fn bhs(&self) -> Bhs<'_> {
        Bhs::new(&self.bytes[..self.known])
    }
}

/// The search for the next header of one stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Synchroniser {
    /// The first place that was not looked at.
    from: i64,
    /// PDUs begin at offsets with this remainder modulo 4, once known.
    alignment: Option<i64>,
    /// All chunks, if bytes before the header are asked for once it is found; else the last bytes, too few for a header.
    pub kept: Kept,
    /// Whether it keeps all of them.
    pub keeps_all: bool,
    leads: Leads,
}

impl Synchroniser {
    /// A search from an offset on.
    pub fn new(from: i64, alignment: Option<i64>, keeps_all: bool) -> Self {
        Self { from, alignment, kept: Kept::default(), keeps_all, leads: Leads::default() }
    }

    /// Forgets what came before a hole that ends here, unless all is kept.
    pub fn skip_to(&mut self, gap_end: i64) {
        self.from = gap_end;
        if !self.keeps_all {
            self.kept = Kept::default();
        }
    }

    /// Looks for a header in the next chunk. `accepts` says whether it is sure enough that one is there.
    pub fn find(
        &mut self,
        chunk: &Chunk<'_>,
        digests: [DigestUse; 2],
        judge: &impl Judge,
        mut accepts: impl FnMut(&Place<'_>, Sure) -> bool,
    ) -> Option<Header> {
        // bytes before this chunk, where a header may start that ends in it, and the start of this chunk
        let (mut joined, mut base) = (Vec::new(), chunk.offset);
        let step = if self.alignment.is_some() { 4 } else { 1 };
        if self.from < chunk.offset {
            joined = self.kept.captured_at(self.from, LENGTH_BYTES - 1);
            if self.from + joined.len() as i64 == chunk.offset {
                base = self.from;
                joined.extend_from_slice(&chunk.captured[..chunk.captured.len().min(LENGTH_BYTES - 1)]);
            }
        }
        self.from = self.aligned(self.from.max(base));
        loop {
            let place = if self.from < chunk.offset {
                let header = joined.get((self.from - base) as usize..).and_then(|bytes| header_of(bytes, chunk));
                let first = self.kept.stamps(self.from..self.from + 1).map_or(chunk.stamp(), |(first, _)| first);
                let (offset, starts_segment) = (self.from, false);
                header.map(|header| Place { offset, header, bytes: &[], length: 0, starts_segment, first })
            } else {
                Place::within(chunk, (self.from - chunk.offset) as usize)
            };
            let Some(place) = place else { break };
            let sure = place.weigh(&self.leads, digests, judge);
            if accepts(&place, sure) {
                return Some(Header::of(&place));
            }
            if place.starts_segment && sure == Sure::Possible {
                self.leads.note(place.offset, place.header);
            }
            self.from += step;
        }
        if chunk.captured.len() < chunk.length as usize {
            self.from = chunk.offset + i64::from(chunk.length);
        }
        if !self.keeps_all {
            self.kept.forget_before(self.from);
        }
        self.kept.push(chunk);
        None
    }

    /// Passes over a chunk in which no PDU begins: its bytes are not asked for.
    pub fn pass(&mut self, chunk: &Chunk<'_>) {
        self.from = chunk.offset + i64::from(chunk.length);
        self.kept.push(&chunk.without_bytes());
    }

    /// The first place from `offset` on where a PDU may begin.
    fn aligned(&self, offset: i64) -> i64 {
        offset + self.alignment.map_or(0, |alignment| (alignment - offset).rem_euclid(4))
    }

    /// The first position whose lengths lead to a header that was found; or, from the start of a segment, to a header
    /// before it that was not captured. Their sequence numbers are near its own; the first one starts a segment, or has two
    /// such numbers.
    pub fn first_before(&self, found: &Header, digests: [DigestUse; 2], judge: &impl Judge) -> Option<i64> {
        let uses = [[false, false], [true, false], [false, true], [true, true]];
        let possible = uses.into_iter().filter(|has| digests.iter().zip(has).all(|(digest, &has)| digest.may_be(has)));
        possible.filter_map(|has| self.first_with(found, has, judge)).min()
    }

    fn first_with(&self, found: &Header, [has_header, has_data]: [bool; 2], judge: &impl Judge) -> Option<i64> {
        let mut leads_elsewhere: FxHashSet<i64> = FxHashSet::default();
        let leads_there = |&(start, starts_segment): &(i64, bool)| {
            let (mut offset, mut passed) = (start, Vec::new());
            let (mut leads_there, mut has_numbers) = (false, starts_segment);
            while offset < found.offset {
                let Some(bytes) = self.kept.header_at(offset) else {
                    // with as many numbers as this takes, no header is needed there
                    leads_there = has_numbers && offset > start;
                    break;
                };
                let bhs = Bhs::new(&bytes);
                let near = near_numbers(bhs, found.bhs());
                let needed = if offset == start && !starts_segment { NUMBERS_MIN } else { 1 };
                let is_header = judge.judge(bhs) > Fit::Unlikely && near >= needed;
                let length = bhs.total_length(has_header, has_data);
                let Some(length) = length.filter(|_| is_header && !leads_elsewhere.contains(&offset)) else { break };
                has_numbers &= near >= NUMBERS_MIN;
                passed.push(offset);
                offset += length as i64;
            }
            leads_there |= offset == found.offset;
            if !leads_there {
                leads_elsewhere.extend(passed);
            }
            leads_there
        };
        self.kept.positions(found.offset).find(leads_there).map(|(start, _)| start)
    }
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::BhsBuilder;
    use iscsitrace_wire::opcode::Opcode;

    use super::*;

    const UNKNOWN: [DigestUse; 2] = [DigestUse::Unknown; 2];
    const WITHOUT: [DigestUse; 2] = [DigestUse::Known(false); 2];

    /// Expects PDUs with this Initiator Task Tag or a higher one.
    struct From(u32);

    impl Judge for From {
        fn judge(&self, header: Bhs<'_>) -> Fit {
            match header.initiator_task_tag() {
                _ if header.is_valid().is_err() => Fit::No,
                Some(tag) if tag >= self.0 => Fit::Certain,
                _ => Fit::Possible,
            }
        }
    }

    fn nop(tag: u32, data: &[u8]) -> Vec<u8> {
        let header = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(tag).data_segment_length(data.len() as u32);
        [&header.build()[..], data].concat()
    }

    fn chunk(offset: i64, bytes: &[u8], captured_bytes: usize) -> Chunk<'_> {
        Chunk {
            offset,
            length: bytes.len() as u32,
            captured: &bytes[..captured_bytes],
            frame: 1,
            time_ns: offset,
            is_late: false,
            is_segment_start: true,
        }
    }

    #[test]
    fn the_more_speaks_for_a_header_the_surer_it_is() {
        let weigh = |bytes: &[u8], at: usize, from: u32, digests| {
            let place = Place::within(&chunk(0, bytes, bytes.len()), at)?;
            Some(place.weigh(&Leads::default(), digests, &From(from)))
        };
        let (header, behind) = (nop(7, &[]), [&nop(7, &[])[..], &[0xff; 48]].concat());
        assert_eq!(weigh(&header, 0, 7, UNKNOWN), Some(Sure::Shown));
        // it would be one, if a header followed
        assert_eq!(weigh(&behind, 0, 7, WITHOUT), Some(Sure::No));
        assert_eq!(weigh(&header, 0, 8, UNKNOWN), Some(Sure::Likely));
        assert_eq!(weigh(&behind, 0, 8, UNKNOWN), Some(Sure::Possible));
        assert_eq!(weigh(&[&[0xff][..], &header].concat(), 1, 8, UNKNOWN), Some(Sure::Possible));
        let with_digest = [&header[..], &digest::to_wire(digest::crc32c(&header)), &[0xff; 48]].concat();
        assert_eq!(weigh(&with_digest, 0, 8, UNKNOWN), Some(Sure::Shown));
        assert_eq!((weigh(&[0xff; 48], 0, 0, UNKNOWN), weigh(&header[..47], 0, 0, UNKNOWN)), (Some(Sure::No), None));
        // the login knows that there are no digests: four bytes more are none
        let longer = [&header[..], &[0xff; 4]].concat();
        let sure = [UNKNOWN, WITHOUT].map(|digests| weigh(&longer, 0, 8, digests));
        assert_eq!(sure, [Some(Sure::Likely), Some(Sure::Possible)]);
    }

    #[test]
    fn a_header_over_two_packets_is_found_with_its_tag_if_the_second_is_cut() {
        let pdu = nop(7, &[]);
        for (captured_bytes, is_found) in [(38, true), (10, true), (9, false)] {
            let mut search = Synchroniser::new(0, None, false);
            let accepts = |_: &Place<'_>, sure| sure == Sure::Shown;
            let first = [&[0xff; 90][..], &pdu[..10]].concat();
            assert!(search.find(&chunk(0, &first, 100), UNKNOWN, &From(7), accepts).is_none());
            let second = [&pdu[10..], &[0xff; 50]].concat();
            let found = search.find(&chunk(100, &second, captured_bytes), UNKNOWN, &From(7), accepts);
            assert_eq!(found.map(|found| (found.offset, found.first.time_ns)), is_found.then_some((90, 0)));
        }
    }

    #[test]
    fn only_the_last_bytes_are_kept_unless_all_are_asked_for() {
        for (keeps_all, kept) in [(true, 4), (false, 1)] {
            let mut search = Synchroniser::new(0, Some(0), keeps_all);
            for place in 0..4 {
                assert!(search.find(&chunk(place * 100, &[0xff; 100], 100), UNKNOWN, &From(7), |_, _| false).is_none());
            }
            assert_eq!(search.kept.chunks().count(), kept);
            search.skip_to(500);
            assert_eq!(search.kept.chunks().count(), if keeps_all { 4 } else { 0 });
        }
    }
}
