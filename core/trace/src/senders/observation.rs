//! One packet of a connection, as the analysis of its senders needs it.

use iscsitrace_wire::frame::TcpFlags;
use serde::{Deserialize, Serialize};

use crate::stream::class::SegmentClass;

/// The maximum number of SACK blocks in a packet.
pub const SACK_BLOCKS_MAX: usize = 4;

/// One packet, with sequence numbers as stream offsets.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Observation {
    /// Frame number.
    pub frame: u64,
    /// Capture time.
    pub time_ns: i64,
    /// 0 from the client, 1 from the server.
    pub direction: usize,
    /// TCP flags.
    pub flags: TcpFlags,
    /// Class of its payload.
    pub class: SegmentClass,
    /// Stream offset of its first byte.
    pub offset: i64,
    /// Payload bytes on the wire.
    pub length: u32,
    /// Whether new data of a command came with it.
    pub is_progress: bool,
    /// Bytes that its last PDU still lacks, so that the sender has more to send: 0 if their number is unknown, none
    /// between PDUs and where PDUs are unknown.
    pub left_of_pdu: Option<u32>,
    /// Bytes that an R2T asked for and that the burst under way lacks behind its last PDU: 0 between bursts.
    pub left_of_burst: u32,
    /// Acknowledged offset of the opposite stream; none without ACK.
    pub acknowledged: Option<i64>,
    /// The window field, not scaled.
    pub window: u16,
    /// Window scale, if both SYNs were captured.
    pub window_scale: Option<u8>,
    /// Steps of its sender's IP identification since the packet before: 1 if none was sent between them. None where the
    /// sender does not number its packets in turn.
    pub steps: Option<u16>,
    /// The smaller MSS of both SYNs, as far as they were captured.
    pub segment_max: Option<u16>,
    /// Whether both SYNs permitted SACK, if both were captured.
    pub is_sack_permitted: Option<bool>,
    /// Timestamp value and echo reply (RFC 7323).
    pub timestamps: Option<(u32, u32)>,
    /// Left and right edges of the SACK blocks; the first `sack_count` are set.
    pub sacks: [(i64, i64); SACK_BLOCKS_MAX],
    /// The number of SACK blocks.
    pub sack_count: u8,
}

impl Observation {
    /// Whether its last byte is within a PDU.
    pub fn is_within_pdu(&self) -> bool {
        self.left_of_pdu.is_some()
    }

    /// The offset after its last byte.
    pub fn end(&self) -> i64 {
        self.offset + i64::from(self.length)
    }

    /// A bare ACK that says nothing more, for tests.
    #[cfg(test)]
    pub fn bare(time_ns: i64, direction: usize) -> Self {
        Self {
            frame: 0,
            time_ns,
            direction,
            flags: TcpFlags(0x10),
            class: SegmentClass::Empty,
            offset: 0,
            length: 0,
            is_progress: false,
            left_of_pdu: None,
            left_of_burst: 0,
            acknowledged: None,
            window: 0,
            window_scale: None,
            steps: None,
            segment_max: None,
            is_sack_permitted: None,
            timestamps: None,
            sacks: Default::default(),
            sack_count: 0,
        }
    }

    /// The SACK blocks.
    pub fn sacks(&self) -> &[(i64, i64)] {
        self.sacks.get(..usize::from(self.sack_count)).unwrap_or_default()
    }

    /// The bytes that its first block reports as received twice (D-SACK), if it does.
    pub fn duplicate(&self, acknowledged: i64) -> Option<(i64, i64)> {
        self.sacks().first().copied().filter(|_| is_duplicate(self.sacks(), acknowledged))
    }
}

/// Whether the first block reports bytes that arrived twice (RFC 2883, section 4).
pub fn is_duplicate(blocks: &[(i64, i64)], acknowledged: i64) -> bool {
    match *blocks {
        [first, ..] if first.0 < acknowledged => true,
        [first, second, ..] => first.0 >= second.0 && first.1 <= second.1,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_duplicate;

    #[test]
    fn a_first_block_below_the_ack_or_within_the_second_is_a_duplicate() {
        for (blocks, is) in [
            (&[][..], false),
            (&[(99, 200)], true),
            (&[(100, 200)], false),
            (&[(300, 400), (300, 400)], true),
            (&[(300, 400), (299, 401)], true),
            (&[(300, 400), (301, 500)], false),
            (&[(300, 400), (200, 399)], false),
            (&[(300, 400), (500, 600), (200, 700)], false),
        ] {
            assert_eq!(is_duplicate(blocks, 100), is, "{blocks:?}");
        }
    }
}
