//! A packet, and a record as the readers of both formats find it.

use std::ops::Range;

use iscsitrace_wire::frame::LinkType;

/// Longer packets do not exist, not even as super-segments: a record that claims more is damaged.
pub(super) const PACKET_BYTES_AT_MOST: u32 = 64 << 20;

/// One captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Number of the frame, from 1, over all files of the input: Wireshark's `frame.number`.
    pub frame: u64,
    /// Capture time in nanoseconds since 1970.
    pub time_ns: i64,
    /// What `data` begins with.
    pub link_type: LinkType,
    /// Index into [`CaptureInfo::interfaces`].
    pub interface: u32,
    /// Bytes of the frame on the wire.
    pub original_length: u32,
    /// Bytes of the frame that were kept.
    pub data: &'a [u8],
}

/// A packet as the readers of both formats find it: where it is in the source's buffer.
pub(super) struct Record {
    pub(super) time_ns: i64,
    pub(super) link_type: LinkType,
    pub(super) interface: u32,
    pub(super) original_length: u32,
    pub(super) range: Range<usize>,
}

/// Why there is no further record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The last record was the last.
    Clean,
    /// In the middle of a record.
    CutShort,
    /// Lengths that cannot be true: where the next record begins is unknown.
    Invalid,
}
