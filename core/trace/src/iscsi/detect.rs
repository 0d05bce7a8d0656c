//! Detects iSCSI on any port, and which side is the initiator.
//!
//! If the capture has the start of the streams, the first header decides. Otherwise the synchroniser looks at the starts of
//! segments, and where headers there lead, without a connection that would know what comes next. It decides what it is sure
//! of; and, less sure, a header on an iSCSI port, three in a row, two of both directions with the same task tag, or a login.
//! Until then the last bytes are kept, and read again from the first of these headers.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;

use super::digest_use::DigestUse;
use super::synchroniser::{Fit, HEADER_TAG_BYTES, Judge, KeptChunk, Leads, Place, Sure};
use crate::stream::chunk::Chunk;

/// Captured bytes of one connection that are kept until the decision; on an iSCSI port two Data-In of 256 KiB.
const KEPT_BYTES_MAX: usize = 64 << 10;
const KEPT_BYTES_MAX_ON_PORT: usize = 512 << 10;
/// Packets that are kept until the decision.
const KEPT_EVENTS_MAX: usize = 512;
/// Headers that are kept.
const HEADERS_KEPT: usize = 32;
/// Fitting headers in a row of one direction that decide.
const HEADERS_IN_A_ROW: u32 = 3;
/// Nothing is known of digests.
const UNKNOWN: [DigestUse; 2] = [DigestUse::Unknown; 2];
/// TCP ports that IANA assigned to iSCSI.
pub const PORTS: [u16; 2] = [3260, 860];
/// Minimum captured bytes of a header at the start of a stream on an iSCSI port: up to the DataSegmentLength.
const FIRST_HEADER_SEEN_MIN: usize = 8;

/// Kept input, to be read again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Event {
    /// Bytes.
    Chunk {
        /// The sender: 0 the client, 1 the server.
        direction: usize,
        /// The chunk.
        chunk: KeptChunk,
    },
    /// A gap in the stream.
    Gap {
        /// The sender.
        direction: usize,
        /// Its stream offset.
        offset: i64,
        /// Its length.
        length: u64,
    },
}

/// The result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Not known yet.
    Undecided,
    /// iSCSI.
    Iscsi {
        /// Whether the client is the initiator.
        is_client_initiator: bool,
    },
    /// Something else.
    Other,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Header {
    direction: usize,
    is_of_initiator: bool,
    initiator_task_tag: u32,
}

/// A connection with unknown content.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Detector {
    events: VecDeque<Event>,
    kept_bytes: usize,
    headers: VecDeque<Header>,
    leads: [Leads; 2],
    in_a_row: [u32; 2],
    /// Whether each stream is captured from its first byte: its SYN was.
    has_start: [bool; 2],
    is_iscsi_port: bool,
    /// The first bytes of each stream.
    first: [Vec<u8>; 2],
}

impl Detector {
    /// A detector for a new connection.
    pub fn new(ports: [u16; 2]) -> Self {
        Self { is_iscsi_port: ports.iter().any(|port| PORTS.contains(port)), ..Self::default() }
    }

    /// Notes the SYN of a stream: its first byte is offset 0.
    pub fn note_start(&mut self, direction: usize) {
        self.has_start[direction] = true;
    }

    /// Whether each stream is known from its first byte.
    pub fn has_start(&self) -> [bool; 2] {
        self.has_start
    }

    /// Everything kept, in order; the detector must not be used afterwards.
    pub fn take_events(&mut self) -> VecDeque<Event> {
        std::mem::take(&mut self.events)
    }

    /// Notes a gap.
    pub fn gap(&mut self, direction: usize, offset: i64, length: u64) {
        // without its first bytes a stream is like one whose start was not captured
        self.has_start[direction] = false;
        self.in_a_row[direction] = 0;
        self.keep(Event::Gap { direction, offset, length });
    }

    /// Processes stream bytes.
    pub fn chunk(&mut self, direction: usize, chunk: &Chunk<'_>) -> Verdict {
        self.kept_bytes += chunk.captured.len();
        self.keep(Event::Chunk { direction, chunk: KeptChunk::new(chunk) });
        if self.has_start[direction] {
            return self.by_first_bytes(direction, chunk);
        }
        let leads = &self.leads[direction];
        let led = leads.within(chunk.offset..chunk.offset + chunk.captured.len() as i64);
        let mut led = led.filter_map(|offset| Place::within(chunk, (offset - chunk.offset) as usize));
        let shown = led.find(|place| place.weigh(leads, UNKNOWN, &Stranger) == Sure::Shown);
        if let Some(place) = shown {
            return verdict(direction, place.bhs());
        }
        drop(led);
        match Place::within(chunk, 0).filter(|place| place.starts_segment) {
            Some(place) => self.at_start(direction, &place),
            None => Verdict::Undecided,
        }
    }

    fn keep(&mut self, event: Event) {
        self.events.push_back(event);
        let kept_bytes_max = if self.is_iscsi_port { KEPT_BYTES_MAX_ON_PORT } else { KEPT_BYTES_MAX };
        while self.kept_bytes > kept_bytes_max || self.events.len() > KEPT_EVENTS_MAX {
            if let Some(Event::Chunk { chunk, .. }) = self.events.pop_front() {
                self.kept_bytes -= chunk.chunk().captured.len();
            }
            if self.events.is_empty() {
                break;
            }
        }
    }

    /// The initiator starts with a Login Request (RFC 7143 section 6.3). If it is missing, the response comes first.
    fn by_first_bytes(&mut self, direction: usize, chunk: &Chunk<'_>) -> Verdict {
        let login = [Opcode::LoginRequest, Opcode::LoginResponse];
        let ends = direction == 1 || chunk.captured.len() < chunk.length as usize;
        let first = &mut self.first[direction];
        first.extend_from_slice(chunk.captured);
        let bhs = Bhs::new(first);
        let enough = if self.is_iscsi_port { FIRST_HEADER_SEEN_MIN } else { HEADER_TAG_BYTES };
        match first.len() {
            _ if bhs.opcode() != login.get(direction).copied() || bhs.is_valid().is_err() => Verdict::Other,
            LENGTH_BYTES.. => Verdict::Iscsi { is_client_initiator: true },
            length if ends && length >= enough => Verdict::Iscsi { is_client_initiator: true },
            _ if ends => Verdict::Other,
            _ => Verdict::Undecided,
        }
    }

    /// A header that may start a segment.
    fn at_start(&mut self, direction: usize, place: &Place<'_>) -> Verdict {
        let sure = place.weigh(&self.leads[direction], UNKNOWN, &Stranger);
        if sure == Sure::No {
            return Verdict::Undecided;
        }
        let bhs = place.bhs();
        let is_of_initiator = bhs.opcode().is_some_and(Opcode::is_initiator);
        self.in_a_row[direction] = if sure >= Sure::Likely { self.in_a_row[direction] + 1 } else { 0 };
        let is_login = bhs.opcode() == Some(Opcode::LoginRequest)
            && place.bytes.get(LENGTH_BYTES..).is_some_and(|data| data.starts_with(b"InitiatorName="));
        let tag = bhs.initiator_task_tag().unwrap_or(RESERVED_TAG);
        let is_answered = tag != RESERVED_TAG
            && self.headers.iter().any(|header| {
                header.direction != direction
                    && header.is_of_initiator != is_of_initiator
                    && header.initiator_task_tag == tag
            });
        if sure == Sure::Shown
            || is_login
            || is_answered
            || (sure == Sure::Likely && self.is_iscsi_port)
            || self.in_a_row[direction] >= HEADERS_IN_A_ROW
        {
            return verdict(direction, bhs);
        }
        if self.headers.len() == HEADERS_KEPT {
            self.headers.pop_front();
        }
        self.headers.push_back(Header { direction, is_of_initiator, initiator_task_tag: tag });
        self.leads[direction].note(place.offset, place.header);
        Verdict::Undecided
    }
}

/// iSCSI, by a header of a direction.
fn verdict(direction: usize, header: Bhs<'_>) -> Verdict {
    let is_of_initiator = header.opcode().is_some_and(Opcode::is_initiator);
    Verdict::Iscsi { is_client_initiator: is_of_initiator == (direction == 0) }
}

/// Knows nothing of the connection.
struct Stranger;

impl Judge for Stranger {
    fn judge(&self, header: Bhs<'_>) -> Fit {
        if header.opcode().is_some() && header.is_valid().is_ok() { Fit::Possible } else { Fit::No }
    }
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::BhsBuilder;
    use iscsitrace_wire::digest;

    use super::*;

    fn chunk(captured: &[u8]) -> Chunk<'_> {
        Chunk {
            offset: 0,
            length: captured.len() as u32,
            captured,
            frame: 1,
            time_ns: 0,
            is_late: false,
            is_segment_start: true,
        }
    }

    fn started(ports: [u16; 2]) -> Detector {
        let mut detector = Detector::new(ports);
        detector.note_start(0);
        detector.note_start(1);
        detector
    }

    fn command() -> [u8; 48] {
        BhsBuilder::new(Opcode::ScsiCommand).is_final(true).is_read(true).initiator_task_tag(77).build()
    }

    #[test]
    fn other_protocols_are_recognised_by_their_first_byte() {
        assert_eq!(started([50000, 80]).chunk(0, &chunk(b"GET / HTTP/1.1\r\n")), Verdict::Other);
        assert_eq!(started([50000, 22]).chunk(1, &chunk(b"SSH-2.0-OpenSSH_9.2\r\n")), Verdict::Other);
    }

    #[test]
    fn a_login_request_byte_by_byte_is_iscsi_on_any_port() {
        let header = BhsBuilder::new(Opcode::LoginRequest).is_transit(true).next_stage(1).build();
        let mut detector = started([50000, 5000]);
        for (place, byte) in header.iter().enumerate() {
            let expected = if place == 47 { Verdict::Iscsi { is_client_initiator: true } } else { Verdict::Undecided };
            assert_eq!(detector.chunk(0, &chunk(&[*byte])), expected, "byte {place}");
        }
    }

    #[test]
    fn without_the_start_a_command_and_its_answer_decide() {
        let response = BhsBuilder::new(Opcode::ScsiResponse).is_final(true).initiator_task_tag(77).build();
        let mut detector = Detector::new([50000, 5000]);
        assert_eq!(detector.chunk(1, &chunk(&command())), Verdict::Undecided);
        assert_eq!(detector.chunk(0, &chunk(&response)), Verdict::Iscsi { is_client_initiator: false });
        assert_eq!(detector.take_events().len(), 2);
    }

    /// The verdict over the first chunk of a connection without its start, of which this many bytes were captured.
    fn without_start(ports: [u16; 2], bytes: &[u8], kept_bytes: usize) -> Verdict {
        let chunk = Chunk { captured: &bytes[..kept_bytes], ..chunk(bytes) };
        Detector::new(ports).chunk(1, &chunk)
    }

    const BY_SERVER: Verdict = Verdict::Iscsi { is_client_initiator: false };

    #[test]
    fn a_header_that_leads_to_another_decides_on_any_port() {
        let pdu = |bytes: usize| {
            let header = BhsBuilder::new(Opcode::DataIn).initiator_task_tag(1).data_segment_length(bytes as u32);
            [&header.build()[..], &vec![0xff; bytes]].concat()
        };
        for (bytes, is_iscsi) in [(4000, true), (3900, false)] {
            let stream = [&pdu(bytes)[..], &vec![0xff; 4000 - bytes], &pdu(2000)].concat();
            let mut detector = Detector::new([50_000, 5000]);
            let mut verdicts = (0..)
                .step_by(1448)
                .zip(stream.chunks(1448))
                .map(|(offset, segment)| detector.chunk(1, &Chunk { offset, ..chunk(segment) }));
            let expected = if is_iscsi { Verdict::Iscsi { is_client_initiator: true } } else { Verdict::Undecided };
            assert_eq!(verdicts.nth(2), Some(expected), "{bytes} bytes");
        }
    }

    #[test]
    fn on_an_iscsi_port_a_header_to_the_end_of_its_segment_decides() {
        let header = command();
        for port in [3260, 860] {
            assert_eq!(without_start([50_000, port], &header, 48), BY_SERVER);
            assert_eq!(without_start([port, 50_000], &header, 48), BY_SERVER);
        }
        assert_eq!(without_start([50_000, 5000], &header, 48), Verdict::Undecided);
        // with its task tag, if the rest was cut away
        assert_eq!(without_start([50_000, 3260], &header, 20), BY_SERVER);
        assert_eq!(without_start([50_000, 3260], &header, 19), Verdict::Undecided);
        assert_eq!(without_start([50_000, 3260], &header[..47], 47), Verdict::Undecided);
        // each digest makes a PDU four bytes longer
        for (more, verdict) in [(3, Verdict::Undecided), (4, BY_SERVER), (5, Verdict::Undecided)] {
            let bytes = [&header[..], &[0xff; 5][..more]].concat();
            assert_eq!(without_start([50_000, 3260], &bytes, bytes.len()), verdict, "{more} bytes more");
        }
        // or another header follows
        let two = [&header[..], &header, &[0xff]].concat();
        assert_eq!(without_start([50_000, 3260], &two, 97), BY_SERVER);
        assert_eq!(without_start([50_000, 3260], &two, 95), Verdict::Undecided);
        let other = [&header[..], &[0xff; 49]].concat();
        assert_eq!(without_start([50_000, 3260], &other, 97), Verdict::Undecided);
    }

    #[test]
    fn a_header_digest_decides_on_any_port() {
        let header = command();
        let bytes = [&header[..], &digest::to_wire(digest::crc32c(&header)), &[0xff]].concat();
        assert_eq!(without_start([50_000, 5000], &bytes, 53), BY_SERVER);
        assert_eq!(without_start([50_000, 5000], &bytes, 52), BY_SERVER);
        assert_eq!(without_start([50_000, 5000], &bytes, 51), Verdict::Undecided);
        let other = [&header[..], &[0xff; 5]].concat();
        assert_eq!(without_start([50_000, 5000], &other, 53), Verdict::Undecided);
    }

    #[test]
    fn a_login_request_with_the_name_of_its_initiator_decides_on_any_port() {
        let header = BhsBuilder::new(Opcode::LoginRequest).is_transit(true).next_stage(1).initiator_task_tag(1);
        let header = header.data_segment_length(40).build();
        let named = [&header[..], b"InitiatorName=iqn.i"].concat();
        assert_eq!(without_start([50_000, 5000], &named, named.len()), BY_SERVER);
        let other = [&header[..], b"TargetName=iqn.t"].concat();
        assert_eq!(without_start([50_000, 5000], &other, other.len()), Verdict::Undecided);
    }

    #[test]
    fn three_headers_in_a_row_of_one_direction_decide() {
        let header = |tag| BhsBuilder::new(Opcode::ScsiCommand).is_final(true).initiator_task_tag(tag).build();
        let mut detector = Detector::new([50_000, 5000]);
        assert_eq!(detector.chunk(0, &chunk(&header(1))), Verdict::Undecided);
        assert_eq!(detector.chunk(1, &chunk(&header(2))), Verdict::Undecided);
        assert_eq!(detector.chunk(0, &chunk(&header(3))), Verdict::Undecided);
        assert_eq!(detector.chunk(0, &chunk(&header(4))), Verdict::Iscsi { is_client_initiator: true });
        // one that does not fit its segment, and a gap, begin anew
        let long = [&header(5)[..], &[0xff; 7]].concat();
        for is_gap in [false, true] {
            let mut detector = Detector::new([50_000, 5000]);
            detector.chunk(0, &chunk(&header(1)));
            detector.chunk(0, &chunk(&header(2)));
            if is_gap {
                detector.gap(0, 96, 10);
            } else {
                assert_eq!(detector.chunk(0, &chunk(&long)), Verdict::Undecided);
            }
            assert_eq!(detector.chunk(0, &chunk(&header(6))), Verdict::Undecided);
            assert_eq!(detector.chunk(0, &chunk(&header(7))), Verdict::Undecided);
            assert_eq!(detector.chunk(0, &chunk(&header(8))), Verdict::Iscsi { is_client_initiator: true });
        }
        // within a segment nothing is searched
        let mut detector = Detector::new([50_000, 3260]);
        let header = header(1);
        assert_eq!(detector.chunk(0, &Chunk { is_segment_start: false, ..chunk(&header) }), Verdict::Undecided);
    }

    #[test]
    fn an_answer_comes_from_the_other_side_with_the_same_tag() {
        let response = |tag| BhsBuilder::new(Opcode::ScsiResponse).is_final(true).initiator_task_tag(tag).build();
        // another tag, the same direction, the same side
        for (direction, header) in [(0, response(78)), (1, response(77)), (0, command())] {
            let mut detector = Detector::new([50_000, 5000]);
            assert_eq!(detector.chunk(1, &chunk(&command())), Verdict::Undecided);
            assert_eq!(detector.chunk(direction, &chunk(&header)), Verdict::Undecided);
        }
        // with the whole header, unless the snaplen cut it
        for (length, verdict) in [(47, Verdict::Undecided), (48, BY_SERVER)] {
            let mut detector = Detector::new([50_000, 5000]);
            detector.chunk(1, &chunk(&command()));
            assert_eq!(detector.chunk(0, &chunk(&response(77)[..length])), verdict, "{length} bytes");
        }
        // 32 headers are kept
        for (others, is_kept) in [(31, true), (32, false)] {
            let mut detector = Detector::new([50_000, 5000]);
            detector.chunk(1, &chunk(&command()));
            // they do not fit their segments
            let other = [&response(99)[..], &[0xff; 7]].concat();
            for _ in 0..others {
                assert_eq!(detector.chunk(0, &chunk(&other)), Verdict::Undecided);
            }
            let verdict = detector.chunk(0, &chunk(&response(77)));
            assert_eq!(verdict == BY_SERVER, is_kept, "after {others} others");
        }
        // the reserved tag answers nothing
        let nop = |opcode| BhsBuilder::new(opcode).initiator_task_tag(RESERVED_TAG).build();
        let mut detector = Detector::new([50_000, 5000]);
        detector.chunk(1, &chunk(&nop(Opcode::NopOut)));
        assert_eq!(detector.chunk(0, &chunk(&nop(Opcode::NopIn))), Verdict::Undecided);
    }

    #[test]
    fn the_first_bytes_of_a_target_are_a_login_response() {
        let header = BhsBuilder::new(Opcode::LoginResponse).is_transit(true).next_stage(1).build();
        let iscsi = Verdict::Iscsi { is_client_initiator: true };
        // on an iSCSI port, less of it is enough
        for (port, enough) in [(3260, 8), (5000, 20)] {
            assert_eq!(started([50_000, port]).chunk(1, &chunk(&header[..enough])), iscsi);
            assert_eq!(started([50_000, port]).chunk(1, &chunk(&header[..enough - 1])), Verdict::Other);
        }
        let response = BhsBuilder::new(Opcode::ScsiResponse).is_final(true).initiator_task_tag(77).build();
        assert_eq!(started([50_000, 3260]).chunk(1, &chunk(&response)), Verdict::Other);
        let mut invalid = header;
        invalid[2] = 1;
        invalid[20] = 1;
        assert_eq!(started([50_000, 3260]).chunk(1, &chunk(&invalid)), Verdict::Other);
    }

    #[test]
    fn a_cut_login_request_decides_as_soon_as_enough_is_captured() {
        let header = BhsBuilder::new(Opcode::LoginRequest).is_transit(true).next_stage(1).build();
        let iscsi = Verdict::Iscsi { is_client_initiator: true };
        for (port, enough) in [(3260, 8), (5000, 20)] {
            for (kept_bytes, verdict) in [(enough, iscsi), (enough - 1, Verdict::Other)] {
                let chunk = Chunk { captured: &header[..kept_bytes], ..chunk(&header) };
                assert_eq!(started([50_000, port]).chunk(0, &chunk), verdict, "{kept_bytes} bytes on {port}");
            }
            // not cut: the rest follows
            assert_eq!(started([50_000, port]).chunk(0, &chunk(&header[..47])), Verdict::Undecided);
        }
    }

    #[test]
    fn the_oldest_events_make_room() {
        let mut detector = Detector::new([1, 2]);
        (0..KEPT_EVENTS_MAX as i64 + 1).for_each(|offset| detector.gap(0, offset, 1));
        let events = detector.take_events();
        assert_eq!(events.len(), KEPT_EVENTS_MAX);
        assert!(matches!(events[0], Event::Gap { direction: 0, offset: 1, length: 1 }));
        // 64 KiB stay, one byte more does not
        for (more, count) in [(0, 2), (1, 1)] {
            let mut detector = Detector::new([1, 2]);
            detector.chunk(0, &chunk(&[0xff; KEPT_BYTES_MAX / 2]));
            detector.chunk(0, &chunk(&vec![0xff; KEPT_BYTES_MAX / 2 + more]));
            assert_eq!(detector.kept_bytes, if more == 0 { KEPT_BYTES_MAX } else { KEPT_BYTES_MAX / 2 + 1 });
            assert_eq!(detector.take_events().len(), count);
        }
    }

    #[test]
    fn kept_bytes_are_bounded() {
        let mut detector = Detector::new([1, 2]);
        for _ in 0..10_000 {
            detector.chunk(0, &chunk(&[0xff; 1000]));
        }
        assert!(detector.kept_bytes <= KEPT_BYTES_MAX && detector.events.len() <= KEPT_EVENTS_MAX);
    }
}
