//! The events that change the attribution of time.

/// What an event changes, in the order within one instant. Commands are given by their index in the scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// A command begins: whole, or with data of its own to follow.
    Command(u32, bool),
    /// The initiator has sent everything that the target needs for now.
    Requested(u32),
    /// The burst of an R2T was sent: before the next R2T of the same instant.
    BurstSent(u32),
    /// An R2T arrived.
    R2t(u32),
    /// The command ended, or its status was sent and did not arrive.
    Ended(u32),
    /// A command or its status was lost and is being sent again, or it has arrived.
    Resent(u32, bool),
    /// The line becomes busy with payload, or idle.
    Busy(bool),
    /// A sender becomes limited by a part, or no longer is.
    Limited(u8, bool),
    /// From now on nothing progresses, or something did. The last of an instant: another change has the frame of it.
    Out(bool),
}

/// A change and its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) time_ns: i64,
    pub(super) change: Change,
    /// The frame that shows it.
    pub(super) frame: u64,
}
