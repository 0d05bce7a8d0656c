//! The clock of worlds in real time: wall-clock time at the start plus monotonic time since then. So times never jump,
//! and are comparable with those of a capture.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    start: Instant,
    /// When it was started.
    pub(super) start_ns: i64,
}

impl Clock {
    pub(super) fn new() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), start_ns: i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX) }
    }

    pub(super) fn now_ns(self) -> i64 {
        self.start_ns.saturating_add(i64::try_from(self.start.elapsed().as_nanos()).unwrap_or(i64::MAX))
    }
}
