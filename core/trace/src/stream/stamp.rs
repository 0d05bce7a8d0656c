//! When a packet passed the tap, and its frame.

use serde::{Deserialize, Serialize};

/// Frame number and capture time of a packet, ordered by time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp {
    /// Capture time.
    pub time_ns: i64,
    /// Frame number.
    pub frame: u64,
}
