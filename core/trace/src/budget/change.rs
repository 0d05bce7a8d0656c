//! What changes the attribution of time, and when.

/// Something that changes who owns the time, in the order of what happens at one moment. Tasks are places in the scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// A command begins.
    Command(u32),
    /// The initiator has sent all that the task needs for now.
    Requested(u32),
    /// The burst of an R2T was sent: before the next R2T of the same moment.
    BurstSent(u32),
    /// An R2T came.
    R2t(u32),
    /// The task ended.
    Ended(u32),
    /// The line is busy with payload, or no longer.
    Busy(bool),
    /// A sender is held back by a part, or no longer.
    Limited(u8, bool),
}

/// When it does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) time_ns: i64,
    pub(super) change: Change,
    /// The frame in which it shows.
    pub(super) frame: u64,
}
