//! What one packet of a connection tells of its senders.

use iscsitrace_wire::frame::TcpFlags;

use crate::tcp::half::SegmentClass;

/// Blocks of selective acknowledgment that one packet can carry.
pub const SACK_BLOCKS_MAX: usize = 4;

/// One packet, with sequence numbers as places in their streams.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// Its number.
    pub frame: u64,
    /// Its capture time.
    pub time_ns: i64,
    /// 0 from the client, 1 from the server.
    pub direction: usize,
    /// Its flags.
    pub flags: TcpFlags,
    /// What its payload is to its stream.
    pub class: SegmentClass,
    /// Place of its first byte.
    pub offset: i64,
    /// Payload on the wire.
    pub length: u32,
    /// Bytes that its last PDU still has to bring, so that its sender has more to send; 0 where it is not known how many,
    /// none between PDUs and where that is not known.
    pub left_of_pdu: Option<u32>,
    /// What it acknowledges of the opposite stream; none without ACK.
    pub acknowledged: Option<i64>,
    /// The window field as it stands in the header.
    pub window: u16,
    /// The shift of the window field, when both SYNs were captured and agreed on it.
    pub window_scale: Option<u8>,
    /// The smaller of the maximum segment sizes of both SYNs, as far as they were captured.
    pub segment_max: Option<u16>,
    /// Whether both SYNs permitted selective acknowledgment, when both were captured.
    pub is_sack_permitted: Option<bool>,
    /// Timestamp value and echo reply (RFC 7323).
    pub timestamps: Option<(u32, u32)>,
    /// Left and right edges of what it selectively acknowledges of the opposite stream; the first `sack_count` are set.
    pub sacks: [(i64, i64); SACK_BLOCKS_MAX],
    /// How many of `sacks` are set.
    pub sack_count: u8,
}

impl Observation {
    /// Whether its last byte is within a PDU.
    pub fn is_within_pdu(&self) -> bool {
        self.left_of_pdu.is_some()
    }

    /// One past its last byte.
    pub fn end(&self) -> i64 {
        self.offset + i64::from(self.length)
    }

    /// What it selectively acknowledges.
    pub fn sacks(&self) -> &[(i64, i64)] {
        self.sacks.get(..usize::from(self.sack_count)).unwrap_or_default()
    }
}
