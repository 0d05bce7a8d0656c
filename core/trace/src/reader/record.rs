//! A packet, and a record as the readers of both formats find it.

use serde::{Deserialize, Serialize};
use std::ops::Range;

use iscsitrace_wire::frame::LinkType;

/// Maximum length of a packet: even super-segments are shorter, so a longer record is damaged.
pub(super) const PACKET_BYTES_AT_MOST: u32 = 64 << 20;

/// Plausible capture times: the years 1970 to 2106, which classic pcap can express. No computer captured outside them:
/// such a time is damage, or a wrong resolution or offset. Differences and sums of two plausible times fit an `i64`.
const PLAUSIBLE_NS: Range<i64> = 0..(1 << 32) * 1_000_000_000;

/// One captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet<'a> {
    /// Frame number from 1 over all files of the input: Wireshark's `frame.number`.
    pub frame: u64,
    /// Capture time in nanoseconds since 1970.
    pub time_ns: i64,
    /// Link type of `data`.
    pub link_type: LinkType,
    /// Index into [`CaptureInfo::interfaces`].
    pub interface: u32,
    /// Bytes of the frame on the wire.
    pub original_length: u32,
    /// Captured bytes of the frame.
    #[serde(skip)]
    pub data: &'a [u8],
}

/// A packet by its position in the source's buffer.
pub(super) struct Record {
    pub(super) time_ns: i64,
    pub(super) link_type: LinkType,
    pub(super) interface: u32,
    pub(super) original_length: u32,
    pub(super) range: Range<usize>,
}

impl Record {
    /// Whether anything can have been captured at its time.
    #[inline]
    pub(super) fn has_plausible_time(&self) -> bool {
        PLAUSIBLE_NS.contains(&self.time_ns)
    }
}

/// Why there is no further record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The file ended after a record.
    Clean,
    /// The file ended within a record.
    CutShort,
    /// Impossible lengths: the position of the next record is unknown.
    Invalid,
}
