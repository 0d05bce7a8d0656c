//! Small streams of PDUs in segments, and what the framer finds in them. Frame N is captured at N microseconds.

mod cut_header;
mod digests;
mod search;
mod walk;

use std::ops::Range;

use iscsitrace_wire::bhs::{Bhs, BhsBuilder};
use iscsitrace_wire::digest;
use iscsitrace_wire::opcode::Opcode;

use super::Framer;
use super::listener::{Found, Listener};
use crate::counters::Counter;
use crate::iscsi::digest_use::Digests;
use crate::iscsi::pdu::Pdu;
use crate::iscsi::synchroniser::{Fit, Judge, Kept};
use crate::stream::chunk::Chunk;
use crate::stream::stamp::Stamp;

/// Headers with this Initiator Task Tag or a higher one fit certainly,
const CERTAIN: u32 = 0x100;
/// those with a lower one than this hardly,
const LIKELY: u32 = 0x10;
/// and this one may fit.
const POSSIBLE: u32 = 0x20;

/// This one fits certainly, and was sent before.
const PAST: u32 = 0x1ff;

const fn at(frame: u64) -> Stamp {
    Stamp { frame, time_ns: frame as i64 * 1000 }
}

/// A PDU that the framer handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    tag: Option<u32>,
    header_bytes: usize,
    data: Vec<u8>,
    offset: i64,
    end: i64,
    first: Stamp,
    last: Option<Stamp>,
    has_capture_gap: bool,
    is_unfinished: bool,
    is_late: bool,
    digests_ok: [Option<bool>; 2],
}

/// A PDU without digests, captured whole.
fn row(tag: u32, data: &[u8], place: (i64, i64), frames: (u64, u64)) -> Row {
    Row {
        tag: Some(tag),
        header_bytes: 48,
        data: data.to_vec(),
        offset: place.0,
        end: place.1,
        first: at(frames.0),
        last: Some(at(frames.1)),
        has_capture_gap: false,
        is_unfinished: false,
        is_late: false,
        digests_ok: [None; 2],
    }
}

/// A connection that notes everything.
#[derive(Debug, Default)]
struct Heard {
    /// Data bytes of the PDUs whose header was cut away: if statuses come apart, and if not.
    possible: [Vec<u32>; 2],
    explained: Vec<(i64, i64, Stamp, Stamp)>,
    is_waiting: bool,
    found_again: Vec<bool>,
    given_up: u32,
    keeps: Option<usize>,
    begun: Vec<(Option<u32>, Stamp)>,
    rows: Vec<Row>,
    counted: Vec<(Counter, u64)>,
    late_digests: Vec<i64>,
}

impl Judge for Heard {
    fn judge(&self, header: Bhs<'_>) -> Fit {
        match header.initiator_task_tag() {
            _ if header.is_valid().is_err() => Fit::No,
            Some(CERTAIN..) => Fit::Certain,
            Some(..LIKELY) => Fit::Unlikely,
            _ => Fit::Possible,
        }
    }
}

impl Listener for Heard {
    fn is_past(&self, header: Bhs<'_>, _: Found) -> bool {
        header.initiator_task_tag() == Some(PAST)
    }

    fn begin(&mut self, header: Bhs<'_>, first: Stamp) {
        self.begun.push((header.initiator_task_tag(), first));
    }

    fn keeps_data(&self, _: Bhs<'_>) -> usize {
        self.keeps.unwrap_or(usize::MAX)
    }

    fn pdu(&mut self, pdu: &Pdu<'_>) -> Option<Digests> {
        self.rows.push(Row {
            tag: pdu.bhs().initiator_task_tag(),
            header_bytes: pdu.header.len(),
            data: pdu.data.to_vec(),
            offset: pdu.offset,
            end: pdu.end,
            first: pdu.first,
            last: pdu.last,
            has_capture_gap: pdu.has_capture_gap,
            is_unfinished: pdu.is_unfinished,
            is_late: pdu.is_late,
            digests_ok: [pdu.header_digest_ok, pdu.data_digest_ok],
        });
        None
    }

    fn due(&self, start: i64, after: i64, digests: [bool; 2]) -> [Option<i64>; 2] {
        [0, 1].map(|possible| self.ends(possible, start, digests).into_iter().find(|&end| end > after))
    }

    fn explain(&mut self, bytes: Range<i64>, digests: [bool; 2], _: Bhs<'_>, kept: &Kept) -> Option<bool> {
        let found = [0, 1].map(|possible| self.ends(possible, bytes.start, digests));
        let ends = found.into_iter().find(|ends| ends.contains(&bytes.end))?;
        let mut start = bytes.start;
        for end in ends.into_iter().take_while(|&end| end <= bytes.end) {
            let (first, last) = kept.stamps(start..end).expect("the packets are kept");
            self.explained.push((start, end, first, last));
            start = end;
        }
        self.is_waiting = false;
        Some(true)
    }

    fn found_again(&mut self, is_reading_kept: bool) {
        self.found_again.push(is_reading_kept);
    }

    fn wait(&mut self, is_waiting: bool) {
        self.is_waiting = is_waiting;
        self.given_up += u32::from(!is_waiting);
    }

    fn late_digest(&mut self, offset: i64) {
        self.late_digests.push(offset);
    }

    fn count(&mut self, counter: Counter, frame: u64, count: u64) {
        (0..count).for_each(|_| self.counted.push((counter, frame)));
    }
}

impl Heard {
    /// Where the PDUs of a possibility end.
    fn ends(&self, possible: usize, start: i64, [has_header_digest, has_data_digest]: [bool; 2]) -> Vec<i64> {
        let mut end = start;
        let lengths = self.possible[possible].iter().map(|&data| {
            let digests = 4 * (i64::from(has_header_digest) + i64::from(has_data_digest && data > 0));
            48 + i64::from(data.next_multiple_of(4)) + digests
        });
        lengths.map(|length| (end += length, end).1).collect()
    }
}

/// A stream in segments.
struct Stream {
    framer: Framer,
    heard: Heard,
    offset: i64,
    frame: u64,
}

impl Stream {
    /// A stream whose start was captured, at offset 0.
    fn begin() -> Self {
        Self { framer: Framer::new(0, true), heard: Heard::default(), offset: 0, frame: 0 }
    }

    /// The same, with or without digests.
    fn with_digests(header: bool, data: bool) -> Self {
        let mut stream = Self::begin();
        stream.framer.agree(Digests { header: Some(header), data: Some(data) });
        stream
    }

    /// A stream whose start was not captured.
    fn search(offset: i64) -> Self {
        Self { framer: Framer::new(offset, false), heard: Heard::default(), offset, frame: 0 }
    }

    /// The next bytes, in one segment.
    fn send(&mut self, bytes: &[u8]) {
        self.send_cut(bytes, bytes.len());
    }

    /// The next bytes, of which this many were captured.
    fn send_cut(&mut self, bytes: &[u8], kept_bytes: usize) {
        self.frame += 1;
        let chunk = self.next(bytes);
        self.take(&Chunk { captured: &bytes[..kept_bytes.min(bytes.len())], ..chunk });
    }

    fn next<'a>(&self, bytes: &'a [u8]) -> Chunk<'a> {
        Chunk {
            offset: self.offset,
            length: bytes.len() as u32,
            captured: bytes,
            frame: self.frame,
            time_ns: at(self.frame).time_ns,
            is_late: false,
            is_segment_start: true,
        }
    }

    fn take(&mut self, chunk: &Chunk<'_>) {
        self.offset += i64::from(chunk.length);
        self.framer.chunk(chunk, &mut self.heard);
    }

    /// Bytes that no captured packet carried.
    fn gap(&mut self, length: i64) {
        self.framer.gap(self.offset, length as u64, &mut self.heard);
        self.offset += length;
    }

    fn finish(&mut self) {
        self.framer.finish(&mut self.heard);
    }
}

/// A NOP-In with data.
fn nop(tag: u32, data: &[u8]) -> Vec<u8> {
    whole(nop_header(tag).data_segment_length(data.len() as u32), &[], data, [false; 2])
}

fn nop_header(tag: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::NopIn).initiator_task_tag(tag)
}

/// A PDU with its AHS, padding and digests (RFC 7143 sections 11.2 and 13.1).
fn whole(header: BhsBuilder, ahs: &[u8], data: &[u8], [has_header_digest, has_data_digest]: [bool; 2]) -> Vec<u8> {
    let mut bytes = header.build().to_vec();
    bytes.extend_from_slice(ahs);
    if has_header_digest {
        let digest = crc(&bytes);
        bytes.extend_from_slice(&digest);
    }
    let mut segment = data.to_vec();
    segment.resize(data.len().next_multiple_of(4), 0);
    bytes.extend_from_slice(&segment);
    if has_data_digest && !data.is_empty() {
        bytes.extend_from_slice(&crc(&segment));
    }
    bytes
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    digest::to_wire(digest::crc32c(bytes))
}
