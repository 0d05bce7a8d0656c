//! One captured frame -> the fields of its IP and TCP headers that a join compares, without a reference to the frame.

use iscsitrace_wire::frame::{Segment, TcpFlags, tcp_options};

use crate::reader::Packet;

/// NOP, NOP, timestamps: the options of nearly every segment of Linux (RFC 7323, appendix A).
const TIMESTAMPS_ONLY: [u8; 4] = [1, 1, 8, 10];

/// The headers of one TCP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) time_ns: i64,
    pub(super) frame: u64,
    pub(super) sequence_number: u32,
    pub(super) acknowledgment_number: u32,
    pub(super) payload_bytes: u32,
    pub(super) flags: TcpFlags,
    pub(super) window: u16,
    /// IPv4 identification; 0 where there is none.
    pub(super) identification: u16,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    /// TSval and TSecr.
    pub(super) timestamps: Option<(u32, u32)>,
    /// Of a SYN.
    pub(super) maximum_segment_size: Option<u16>,
    /// Of a SYN.
    pub(super) window_scale: Option<u8>,
    /// Of a SYN.
    pub(super) is_sack_permitted: bool,
    pub(super) sack: [(u32, u32); 4],
    pub(super) sack_count: u8,
}

impl Header {
    #[inline]
    pub(super) fn new(packet: &Packet<'_>, segment: &Segment<'_>) -> Self {
        let mut header = Self {
            time_ns: packet.time_ns,
            frame: packet.frame,
            sequence_number: segment.sequence_number,
            acknowledgment_number: segment.acknowledgment_number,
            payload_bytes: segment.payload_length,
            flags: segment.flags,
            window: segment.window,
            identification: segment.identification.unwrap_or(0),
            hop_limit: segment.hop_limit,
            traffic_class: segment.traffic_class,
            timestamps: None,
            maximum_segment_size: None,
            window_scale: None,
            is_sack_permitted: false,
            sack: [(0, 0); 4],
            sack_count: 0,
        };
        if let &[a, b, c, d, e, f, g, h, i, j, k, l] = segment.options
            && [a, b, c, d] == TIMESTAMPS_ONLY
        {
            header.timestamps = Some((u32::from_be_bytes([e, f, g, h]), u32::from_be_bytes([i, j, k, l])));
        } else if !segment.options.is_empty() {
            let options = tcp_options(segment.options);
            header.timestamps = options.timestamps;
            (header.sack, header.sack_count) = (options.sack, options.sack_count);
            (header.maximum_segment_size, header.window_scale) = (options.maximum_segment_size, options.window_scale);
            header.is_sack_permitted = options.is_sack_permitted;
        }
        header
    }

    /// Whether it is a SYN-ACK that settles that both sides report by SACK (RFC 2018).
    #[inline]
    pub(super) fn settles_sack(&self) -> bool {
        self.is_sack_permitted && self.flags.is_syn() && self.flags.is_ack()
    }

    /// What it takes of the sequence space: payload, SYN and FIN (RFC 9293, section 3.4).
    #[inline]
    pub(super) fn sequence_length(&self) -> i64 {
        i64::from(self.payload_bytes) + i64::from(self.flags.is_syn()) + i64::from(self.flags.is_fin())
    }
}
