//! What the time budget has to know of one connection's TCP.

/// A stretch of time in which a sender was held back, or of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// From when.
    pub from_ns: i64,
    /// Until when.
    pub to_ns: i64,
    /// By what: a code of `budget.part`.
    pub part: u8,
    /// The frame that ended it.
    pub frame: u64,
}

/// One connection.
#[derive(Debug)]
pub struct Timeline {
    /// Its number.
    pub connection: u32,
    /// Least round trip between the tap and the target.
    pub rtt_to_target_ns: Option<i64>,
    /// Least round trip between the tap and the initiator.
    pub rtt_to_initiator_ns: Option<i64>,
    /// When the line carried payload: per direction in order and disjoint.
    pub line_busy: [Vec<(i64, i64)>; 2],
    /// What held the senders of both directions.
    pub limited: Vec<Limited>,
}
