//! What the payload of a packet is to its stream.

use serde::{Deserialize, Serialize};

/// The class of a packet's payload; codes as in `CATEGORIES["segment_class"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum SegmentClass {
    /// New bytes, in order or beyond a hole.
    New = 0,
    /// Bytes again, or late because the first copy was lost.
    Retransmission = 1,
    /// Late bytes that were not retransmitted.
    Reordered = 2,
    /// A copy: the capture holds this packet twice.
    Copy = 3,
    /// A keep-alive or window probe.
    Probe = 4,
    /// No payload.
    Empty = 5,
    /// Outside the stream.
    Outside = 6,
}
