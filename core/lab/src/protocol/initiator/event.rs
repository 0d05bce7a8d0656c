//! What a session tells the one who uses it.

use serde::{Deserialize, Serialize};

use super::violation::SessionError;

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The target completed it with this SCSI status; 0 is GOOD.
    Status(u8),
    /// The target could not deliver it: the Response of the SCSI Response (RFC 7143 section 11.4.3).
    TargetFailure(u8),
    /// The target rejected its PDU for this reason (RFC 7143 section 11.17.1).
    Rejected(u8),
    /// Aborted as asked for, by ABORT TASK or LOGICAL UNIT RESET.
    Aborted,
    /// Aborted because it took too long.
    TimedOut,
    /// A ping came back, or a task management function was completed with this Response (RFC 7143 section 11.6.1).
    Answered(u8),
}

/// The end of a task. Its Initiator Task Tag may be used again by the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// Initiator Task Tag, as the request returned it.
    pub initiator_task_tag: u32,
    /// Connection, counted from 0.
    pub connection: usize,
    /// How it ended.
    pub outcome: Outcome,
    /// Bytes that travelled.
    pub transferred_bytes: u32,
    /// Residual Count: negative for underflow, positive for overflow (RFC 7143 section 11.4.5).
    pub residual_bytes: i64,
    /// Sense data of a CHECK CONDITION, without its length.
    pub sense: Vec<u8>,
    /// When its PDU was handed out; none when it never was.
    pub sent_ns: Option<i64>,
    /// When the first byte of a Data-In, or the first R2T, came.
    pub first_data_ns: Option<i64>,
}

/// A target that SendTargets named (RFC 7143 section 4.3 and appendix C).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveredTarget {
    /// TargetName.
    pub name: String,
    /// TargetAddress, each `domainname[:port][,portal-group-tag]`.
    pub addresses: Vec<String>,
}

/// Something happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// All connections are in the full feature phase, but for those that the target wanted closed since.
    Ready,
    /// A connection that was added, counted from 0, is in the full feature phase: it takes commands.
    Joined(usize),
    /// A connection that was added did not come to the full feature phase; the session goes on without it.
    Refused {
        /// The connection, counted from 0.
        connection: usize,
        /// Why, in a line.
        reason: String,
    },
    /// A task, ping or task management function ended.
    Done(Completion),
    /// What SendTargets gave.
    Targets(Vec<DiscoveredTarget>),
    /// An Asynchronous Message came: AsyncEvent and AsyncVCode (RFC 7143 section 11.9).
    AsyncMessage {
        /// AsyncEvent.
        event: u8,
        /// AsyncVCode.
        vcode: u8,
    },
    /// A Reject of what is no task of the caller's.
    Reject {
        /// Reason.
        reason: u8,
        /// The reason's words.
        words: &'static str,
    },
    /// Connection, counted from 0, is to be closed, once what was handed out is sent.
    Close(usize),
    /// The session is over: nothing more will happen, and what was outstanding is lost.
    Ended(Result<(), SessionError>),
}
