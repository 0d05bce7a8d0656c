//! Events of a session.

use serde::{Deserialize, Serialize};

use super::violation::SessionError;

/// The outcome of a command or request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The target completed it with this SCSI status; 0 is GOOD.
    Status(u8),
    /// The target failed: the Response field of the SCSI Response (RFC 7143 section 11.4.3).
    TargetFailure(u8),
    /// The target rejected its PDU for this reason (RFC 7143 section 11.17.1).
    Rejected(u8),
    /// Aborted on request, by ABORT TASK or LOGICAL UNIT RESET.
    Aborted,
    /// Aborted after its timeout.
    TimedOut,
    /// A ping was answered, or a task management function was completed with this Response (RFC 7143 section 11.6.1).
    Answered(u8),
}

/// The completion of a task. Its Initiator Task Tag may be reused by the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// Initiator Task Tag, as the request returned it.
    pub initiator_task_tag: u32,
    /// Connection, counted from 0.
    pub connection: usize,
    /// Its outcome.
    pub outcome: Outcome,
    /// Bytes transferred.
    pub transferred_bytes: u32,
    /// Residual Count: negative for underflow, positive for overflow (RFC 7143 section 11.4.5).
    pub residual_bytes: i64,
    /// Sense data of a CHECK CONDITION, without its length.
    pub sense: Vec<u8>,
    /// When its PDU was sent; none when it was not.
    pub sent_ns: Option<i64>,
    /// When the first byte of a Data-In, or the first R2T, arrived.
    pub first_data_ns: Option<i64>,
}

/// A target found by SendTargets (RFC 7143 section 4.3 and appendix C).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveredTarget {
    /// TargetName.
    pub name: String,
    /// TargetAddress, each `domainname[:port][,portal-group-tag]`.
    pub addresses: Vec<String>,
}

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// All connections are in the full feature phase, except those that the target asked to close.
    Ready,
    /// An added connection, counted from 0, is in the full feature phase and accepts commands.
    Joined(usize),
    /// An added connection failed; the session continues without it.
    Refused {
        /// The connection, counted from 0.
        connection: usize,
        /// The reason, in one line.
        reason: String,
    },
    /// A task, ping or task management function ended.
    Done(Completion),
    /// Targets found by SendTargets.
    Targets(Vec<DiscoveredTarget>),
    /// An Asynchronous Message arrived: AsyncEvent and AsyncVCode (RFC 7143 section 11.9).
    AsyncMessage {
        /// AsyncEvent.
        event: u8,
        /// AsyncVCode.
        vcode: u8,
    },
    /// A Reject that belongs to no task of the caller.
    Reject {
        /// Reason.
        reason: u8,
        /// The reason in words.
        words: &'static str,
    },
    /// The connection, counted from 0, is to be closed once its pending bytes are sent.
    Close(usize),
    /// The session ended: outstanding commands are lost, and no event follows.
    Ended(Result<(), SessionError>),
}
