//! The snaplen that keeps every PDU header, measured on traffic, and how much it saves.
//!
//! ```text
//!   | link IP TCP | ... payload ... | BHS 48 | ...      a header may lie anywhere in a packet, or in two of them
//!   0             `- payload        `------->| what has to be kept of this packet
//! ```
//!
//! The packets go through the usual pass. Each header byte is assigned to the packet that the pass took it from.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use iscsitrace_trace::pipeline::Pipeline;
use iscsitrace_trace::reader::Packet;
use iscsitrace_trace::stream::class::SegmentClass;
use iscsitrace_trace::tables::{NULL_U16, Pdus, Segments, Wanted};
use iscsitrace_wire::bhs::LENGTH_BYTES;
use iscsitrace_wire::frame::segment;
use iscsitrace_wire::opcode::Opcode;
use rustc_hash::FxHasher;
use serde::Serialize;

/// Maximum packets measured: about 200 MB.
pub const PACKETS_MAX: u64 = 2_000_000;
/// The payload of a jumbo frame. Longer segments, without an MSS from a SYN, were merged by a host.
const SEGMENT_BYTES_MAX: u32 = 8960;
/// Other snaplens in the report.
const OTHERS: [u32; 7] = [96, 128, 192, 256, 512, 1024, 1518];
/// Maximum segments checked for a byte that came more than once.
const COPIES_MAX: usize = 64;

/// The measurement.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// Packets measured.
    pub packet_count: u64,
    /// Their bytes on the wire.
    pub byte_count: u64,
    /// iSCSI connections.
    pub connection_count: usize,
    /// PDUs with a decoded header.
    pub pdu_count: usize,
    /// Packets with more payload than one segment on the wire.
    pub long_packet_count: u64,
    /// The longest packet.
    pub longest_bytes: u32,
    /// Packets that were already truncated.
    pub cut_packet_count: u64,
    /// Stream bytes that could not be assigned to a PDU.
    pub unexplained_bytes: u64,
    /// The smallest snaplen that keeps every TCP and iSCSI header.
    pub headers_snaplen: u32,
    /// Bytes that it keeps.
    pub headers_kept_bytes: u64,
    /// The smallest snaplen that keeps login texts and sense data, too.
    pub texts_snaplen: u32,
    /// Bytes that it keeps.
    pub texts_kept_bytes: u64,
    /// The effect of other snaplens.
    pub others: Vec<Other>,
}

/// The effect of another snaplen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Other {
    /// Maximum captured bytes of a packet.
    pub snaplen: u32,
    /// Share of the headers within it.
    pub headers_share: f64,
    /// Bytes that it keeps.
    pub kept_bytes: u64,
}

#[derive(Clone, Copy)]
struct Frame {
    header_bytes: u16,
    length: u32,
    /// Identifies the sender.
    sender: u64,
}

/// Measures packets.
pub struct Adviser {
    pipeline: Pipeline,
    /// By frame number, from 1.
    frames: Vec<Frame>,
    cut_packet_count: u64,
}

impl Default for Adviser {
    fn default() -> Self {
        let wanted = Wanted { pdus: true, segments: true, ..Wanted::default() };
        Self { pipeline: Pipeline::new(wanted), frames: Vec::new(), cut_packet_count: 0 }
    }
}

impl Adviser {
    /// Processes a packet; frames are numbered from 1 without gaps.
    pub fn take(&mut self, packet: &Packet<'_>) {
        let captured = u32::try_from(packet.data.len()).unwrap_or(u32::MAX);
        self.cut_packet_count += u64::from(captured < packet.original_length);
        let mut frame = Frame { header_bytes: 0, length: packet.original_length.max(captured), sender: 0 };
        if let Ok(segment) = segment(packet.link_type, packet.data, packet.original_length) {
            // both lie in the packet, the payload directly after the options
            let start = packet.data.as_ptr().addr();
            let end = match (segment.payload, segment.options) {
                ([], []) => start,
                ([], options) => options.as_ptr().addr() + options.len(),
                (payload, _) => payload.as_ptr().addr(),
            };
            frame.header_bytes = u16::try_from(end.saturating_sub(start)).unwrap_or(u16::MAX);
            let mut hasher = FxHasher::default();
            (segment.source, segment.source_port).hash(&mut hasher);
            frame.sender = hasher.finish();
        }
        self.frames.push(frame);
        self.pipeline.packet(packet);
    }

    /// The measurement.
    pub fn finish(self) -> Advice {
        let tables = self.pipeline.finish();
        let mut headers = Depths::default();
        let mut texts = Depths::default();
        for stream in streams(&self.frames, &tables.pdus, &tables.segments) {
            stream.measure(&self.frames, &tables.pdus, &tables.segments, &mut headers, &mut texts);
        }
        // the TCP header of every packet is needed
        let least = self.frames.iter().map(|frame| u32::from(frame.header_bytes)).max().unwrap_or(0).max(headers.max);
        let kept = |snaplen: u32| self.frames.iter().map(|frame| u64::from(frame.length.min(snaplen))).sum();
        let deepest = least.max(texts.max);
        let connections = &tables.connections;
        let is_iscsi = |row: &usize| connections.is_iscsi.get(*row).copied().unwrap_or(false);
        let rows: Vec<usize> = (0..connections.is_iscsi.len()).filter(is_iscsi).collect();
        let unexplained = |row: usize| {
            let carried = connections.stream_bytes_to_target[row] + connections.stream_bytes_to_initiator[row];
            carried.saturating_sub(
                connections.explained_bytes_to_target[row] + connections.explained_bytes_to_initiator[row],
            )
        };
        let announced = connections.mss_bytes_to_target.iter().chain(&connections.mss_bytes_to_initiator);
        let longest_segment =
            announced.filter(|&&mss| mss != NULL_U16).max().map_or(SEGMENT_BYTES_MAX, |&mss| mss.into());
        Advice {
            packet_count: self.frames.len() as u64,
            byte_count: kept(u32::MAX),
            connection_count: rows.len(),
            pdu_count: tables.pdus.opcode.len(),
            long_packet_count: tables.segments.payload_bytes.iter().filter(|&&bytes| bytes > longest_segment).count()
                as u64,
            longest_bytes: self.frames.iter().map(|frame| frame.length).max().unwrap_or(0),
            cut_packet_count: self.cut_packet_count,
            unexplained_bytes: rows.into_iter().map(unexplained).sum(),
            headers_snaplen: least,
            headers_kept_bytes: kept(least),
            texts_snaplen: deepest,
            texts_kept_bytes: kept(deepest),
            others: OTHERS
                .iter()
                .map(|&snaplen| Other {
                    snaplen,
                    headers_share: headers.share_within(snaplen),
                    kept_bytes: kept(snaplen),
                })
                .collect(),
        }
    }
}

/// Positions in packets at which headers or texts end.
#[derive(Default)]
struct Depths {
    max: u32,
    counts: BTreeMap<u32, u64>,
}

impl Depths {
    fn add(&mut self, depth: u32) {
        self.max = self.max.max(depth);
        *self.counts.entry(depth).or_default() += 1;
    }

    /// The share of those within that many bytes.
    fn share_within(&self, bound: u32) -> f64 {
        let within: u64 = self.counts.range(..=bound).map(|(_, count)| count).sum();
        let all: u64 = self.counts.values().sum();
        if all == 0 { 0.0 } else { within as f64 / all as f64 }
    }
}

/// The PDUs and segments of one direction of one connection, by row.
#[derive(Default)]
struct Stream {
    pdus: Vec<usize>,
    /// Sorted by stream offset, then by frame.
    segments: Vec<usize>,
}

/// Directions are those of the senders of the packets: the direction in a segment's row was not known yet in the first
/// packets of a connection without a captured login.
fn streams(frames: &[Frame], pdus: &Pdus, segments: &Segments) -> impl Iterator<Item = Stream> {
    let sender = |frame: u64| {
        let place = usize::try_from(frame).unwrap_or(0).checked_sub(1)?;
        frames.get(place).map(|frame| frame.sender)
    };
    let mut streams: BTreeMap<(u32, Option<u64>), Stream> = BTreeMap::new();
    for row in 0..pdus.opcode.len() {
        streams.entry((pdus.connection[row], sender(pdus.frame_first[row]))).or_default().pdus.push(row);
    }
    let carries = [SegmentClass::New, SegmentClass::Retransmission, SegmentClass::Reordered].map(|class| class as u8);
    for row in (0..segments.frame.len()).filter(|&row| carries.contains(&segments.segment_class[row])) {
        streams.entry((segments.connection[row], sender(segments.frame[row]))).or_default().segments.push(row);
    }
    for stream in streams.values_mut() {
        stream.segments.sort_by_key(|&row| (segments.stream_offset_bytes[row], segments.frame[row]));
    }
    streams.into_values()
}

impl Stream {
    fn measure(&self, frames: &[Frame], pdus: &Pdus, segments: &Segments, headers: &mut Depths, texts: &mut Depths) {
        for &pdu in &self.pdus {
            let start = pdus.stream_offset_bytes[pdu];
            let end = start + LENGTH_BYTES as i64;
            self.parts(frames, segments, start, end, |depth| headers.add(depth));
            let opcode = Opcode::from_u8(pdus.opcode[pdu]);
            let is_read = matches!(
                opcode,
                Some(
                    Opcode::LoginRequest
                        | Opcode::LoginResponse
                        | Opcode::TextRequest
                        | Opcode::TextResponse
                        | Opcode::ScsiResponse
                        | Opcode::Reject
                        | Opcode::AsyncMessage
                )
            );
            let data_bytes = i64::from(pdus.data_segment_length[pdu]);
            if is_read && data_bytes > 0 && data_bytes < i64::from(u32::MAX) {
                // with room for additional headers and a header digest
                self.parts(frames, segments, start, end + data_bytes + 4, |depth| texts.add(depth));
            }
        }
    }

    /// Calls `each` with the end position of each part of a range in its packet, one part per packet: the first that
    /// carried it.
    fn parts(&self, frames: &[Frame], segments: &Segments, mut from: i64, to: i64, mut each: impl FnMut(u32)) {
        let offset = |row: usize| segments.stream_offset_bytes[row];
        let end = |row: usize| offset(row) + i64::from(segments.payload_bytes[row]);
        while from < to {
            let after = self.segments.partition_point(|&row| offset(row) <= from);
            let brought = self.segments[..after]
                .iter()
                .rev()
                .take(COPIES_MAX)
                .filter(|&&row| end(row) > from)
                .min_by_key(|&&row| segments.frame[row]);
            let Some(&row) = brought else { return };
            let until = end(row).min(to);
            let frame = usize::try_from(segments.frame[row]).unwrap_or(0).checked_sub(1);
            if let Some(frame) = frame.and_then(|frame| frames.get(frame)) {
                let depth = i64::from(frame.header_bytes) + until - offset(row);
                each(u32::try_from(depth).unwrap_or(u32::MAX).min(frame.length));
            }
            from = until;
        }
    }
}
