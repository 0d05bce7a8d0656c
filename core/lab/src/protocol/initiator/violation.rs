//! Why a session ended: what the target did wrong, in the words of RFC 7143, and what else can happen.

use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::reject::RejectReason;
use iscsitrace_wire::serial::SerialNumber;
use thiserror::Error;

use crate::protocol::login::LoginStatus;
use crate::protocol::pdu::Unreadable;

/// What a target did that RFC 7143 does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the fields are the numbers of the sentence above them")]
pub enum Violation {
    /// A number that is no PDU type.
    #[error("the target sent a PDU with the unknown opcode 0x{opcode:02x} (RFC 7143 section 11.2.1.2)")]
    UnknownOpcode { opcode: u8 },
    /// A PDU that only initiators send, or not in this phase.
    #[error("the target sent a {} in the {phase} (RFC 7143 section 11.2.1.2)", .opcode.name())]
    NotNow { opcode: Opcode, phase: &'static str },
    /// An answer to nothing.
    #[error("{} for Initiator Task Tag 0x{tag:08x}, of which no such task is outstanding (RFC 7143 section 11.2.1.8)", .opcode.name())]
    UnknownTask { opcode: Opcode, tag: u32 },
    /// An answer on another connection than the request's.
    #[error(
        "{} for Initiator Task Tag 0x{tag:08x} on connection {found}, but the command was sent on connection {expected} (connection allegiance, RFC 7143 section 4.2.5.1)",
        .opcode.name()
    )]
    Allegiance { opcode: Opcode, tag: u32, found: u16, expected: u16 },
    /// A status is missing, or came twice.
    #[error("{} has StatSN {found} where {expected} is next (RFC 7143 section 4.2.2.2)", .opcode.name())]
    StatSn { opcode: Opcode, found: SerialNumber, expected: SerialNumber },
    /// It acknowledges a command that was never sent.
    #[error(
        "ExpCmdSN {exp_cmd_sn} acknowledges commands beyond CmdSN {cmd_sn}, the next to be sent (RFC 7143 section 4.2.2.1)"
    )]
    ExpCmdSnAhead { exp_cmd_sn: SerialNumber, cmd_sn: SerialNumber },
    /// Immediate requests are acknowledged as if they had a number of their own.
    #[error(
        "ExpCmdSN {exp_cmd_sn} after CmdSN {cmd_sn} counts an immediate request, which takes no CmdSN (RFC 7143 section 4.2.2.1)"
    )]
    ImmediateCounted { exp_cmd_sn: SerialNumber, cmd_sn: SerialNumber },
    /// A Data-In is missing, or came twice.
    #[error("Data-In of task 0x{tag:08x} has DataSN {found} where {expected} is next (RFC 7143 section 11.7.5)")]
    DataSn { tag: u32, found: SerialNumber, expected: SerialNumber },
    /// Data out of order although DataPDUInOrder or DataSequenceInOrder is Yes.
    #[error(
        "Data-In of task 0x{tag:08x} has Buffer Offset {found} where {expected} is next (RFC 7143 section 11.7.6; DataPDUInOrder=Yes)"
    )]
    BufferOffset { tag: u32, found: u32, expected: u32 },
    /// Data that came before, with data out of order.
    #[error("Data-In of task 0x{tag:08x} brings bytes from {offset} on again (RFC 7143 section 11.7.6)")]
    Overlap { tag: u32, offset: u32 },
    /// More data than the command asked for.
    #[error(
        "Data-In of task 0x{tag:08x} ends at byte {end} of a buffer of {expected_data_transfer_length} (Expected Data Transfer Length, RFC 7143 section 11.3.4)"
    )]
    BeyondBuffer { tag: u32, end: u64, expected_data_transfer_length: u32 },
    /// A sequence that does not end in time.
    #[error(
        "a sequence of Data-In of task 0x{tag:08x} has {length} bytes where MaxBurstLength is {max_burst_length} (RFC 7143 section 13.13)"
    )]
    BurstTooLong { tag: u32, length: u64, max_burst_length: u32 },
    /// Data for a task that reads nothing.
    #[error("{} for task 0x{tag:08x}, which does not transfer data in that direction (RFC 7143 section {section})", .opcode.name())]
    WrongDirection { opcode: Opcode, tag: u32, section: &'static str },
    /// The S bit without the F bit.
    #[error("Data-In of task 0x{tag:08x} has the S bit without the F bit (RFC 7143 section 11.7.3)")]
    StatusWithoutFinal { tag: u32 },
    /// A SNACK is asked for that ErrorRecoveryLevel 0 does not have.
    #[error(
        "Data-In of task 0x{tag:08x} asks for an acknowledgement, which ErrorRecoveryLevel 0 does not have (RFC 7143 section 11.7.2)"
    )]
    AcknowledgeRequested { tag: u32 },
    /// GOOD although data is missing that no residual names.
    #[error(
        "task 0x{tag:08x} ended with status GOOD after {transferred} of {expected_data_transfer_length} bytes, with a residual of {residual} (RFC 7143 section 11.4.5)"
    )]
    Residual { tag: u32, transferred: u32, expected_data_transfer_length: u32, residual: i64 },
    /// Both residual bits at once.
    #[error("{} of task 0x{tag:08x} has both the O and the U bit (RFC 7143 section 11.4.1)", .opcode.name())]
    BothResiduals { opcode: Opcode, tag: u32 },
    /// A R2T is missing, or came twice.
    #[error("R2T of task 0x{tag:08x} has R2TSN {found} where {expected} is next (RFC 7143 section 11.8)")]
    R2tSn { tag: u32, found: SerialNumber, expected: SerialNumber },
    /// A R2T asks for nothing.
    #[error("R2T of task 0x{tag:08x} asks for no data (Desired Data Transfer Length, RFC 7143 section 11.8)")]
    R2tEmpty { tag: u32 },
    /// A R2T asks for more than a burst.
    #[error(
        "R2T of task 0x{tag:08x} asks for {length} bytes where MaxBurstLength is {max_burst_length} (RFC 7143 section 13.13)"
    )]
    R2tTooLong { tag: u32, length: u32, max_burst_length: u32 },
    /// A R2T asks for more than the task has.
    #[error(
        "R2T of task 0x{tag:08x} asks for bytes up to {end} of {expected_data_transfer_length} (Expected Data Transfer Length, RFC 7143 section 11.8)"
    )]
    R2tBeyondBuffer { tag: u32, end: u64, expected_data_transfer_length: u32 },
    /// A R2T that is not the next, although DataSequenceInOrder is Yes.
    #[error(
        "R2T of task 0x{tag:08x} has Buffer Offset {found} where {expected} is next (RFC 7143 section 13.19; DataSequenceInOrder=Yes)"
    )]
    R2tOffset { tag: u32, found: u32, expected: u32 },
    /// A R2T for data that was sent or asked for before.
    #[error(
        "R2T of task 0x{tag:08x} asks again for bytes from {offset} on, as only ErrorRecoveryLevel 1 allows (RFC 7143 section 11.8)"
    )]
    R2tOverlap { tag: u32, offset: u32 },
    /// More R2Ts than agreed.
    #[error(
        "task 0x{tag:08x} has more than {max_outstanding_r2t} R2Ts outstanding (MaxOutstandingR2T, RFC 7143 section 13.17)"
    )]
    TooManyR2ts { tag: u32, max_outstanding_r2t: u32 },
    /// A R2T without a Target Transfer Tag.
    #[error("R2T of task 0x{tag:08x} has the reserved Target Transfer Tag 0xffffffff (RFC 7143 section 11.8)")]
    R2tWithoutTag { tag: u32 },
    /// The answer to a ping brings other data than the ping.
    #[error("NOP-In returns other data than the NOP-Out sent (RFC 7143 section 11.19)")]
    Echo,
    /// Pings faster than they can be answered.
    #[error("the target sent {count} NOP-In that wait for an answer while it takes no data (RFC 7143 section 11.19)")]
    TooManyPings { count: usize },
    /// Text without an end.
    #[error("Text Response of more than {limit} bytes (RFC 7143 section 11.11)")]
    TextTooLong { limit: usize },
    /// Text that is no answer.
    #[error("Text Response that cannot be read: {reason} (RFC 7143 section {section})")]
    Text { reason: &'static str, section: &'static str },
    /// A data segment that is shorter than what it has to hold.
    #[error("{} with a data segment of {length} bytes where {needed} are needed (RFC 7143 section {section})", .opcode.name())]
    ShortData { opcode: Opcode, length: usize, needed: usize, section: &'static str },
}

/// Why a session ended before its logout.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionError {
    /// The target broke the protocol.
    #[error("protocol error: {0}")]
    Violation(#[from] Violation),
    /// The stream could not be read on.
    #[error("connection {connection}: {reason}")]
    Unreadable {
        /// The connection, counted from 0.
        connection: usize,
        /// Why.
        reason: Unreadable,
    },
    /// Section 7.8: at ErrorRecoveryLevel 0 what is lost with a PDU ends the session.
    #[error(
        "connection {connection}: data digest error in a {opcode}; ErrorRecoveryLevel 0 ends the session (RFC 7143 section 7.8)"
    )]
    DataDigest {
        /// The connection, counted from 0.
        connection: usize,
        /// The title of the PDU type.
        opcode: &'static str,
    },
    /// Section 7.14.
    #[error("connection {connection} lost: {reason}; ErrorRecoveryLevel 0 ends the session (RFC 7143 section 7.14)")]
    ConnectionLost {
        /// The connection, counted from 0.
        connection: usize,
        /// The world's words.
        reason: String,
    },
    /// There never was a connection.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// The login failed.
    #[error("login failed: {0}")]
    Login(String),
    /// The target refused the login.
    #[error("login refused: {0} (RFC 7143 section 11.13.5)")]
    LoginRefused(LoginStatus),
    /// The target is to be found elsewhere.
    #[error("the target moved to {address} (RFC 7143 section 11.13.5)")]
    Redirected {
        /// TargetAddress as the target gave it.
        address: String,
    },
    /// Fewer connections than asked for.
    #[error(
        "the target allows {allowed} connections in a session, {wanted} are asked for (MaxConnections, RFC 7143 section 13.2)"
    )]
    TooFewConnections {
        /// MaxConnections in force.
        allowed: usize,
        /// How many are wanted.
        wanted: usize,
    },
    /// Something took too long.
    #[error("no {awaited} within {} s", *.timeout_ns as f64 / 1e9)]
    TimedOut {
        /// What was waited for.
        awaited: &'static str,
        /// How long.
        timeout_ns: i64,
    },
    /// The target asked for it, or announced that it drops its connections.
    #[error("{0}")]
    AskedToLeave(&'static str),
    /// The logout was not accepted.
    #[error("logout refused with response {response} (RFC 7143 section 11.15.1)")]
    LogoutRefused {
        /// Its Response.
        response: u8,
    },
    /// A request that is no task was rejected.
    #[error("{request} rejected: {reason} (RFC 7143 section 11.17.1)")]
    Rejected {
        /// What was sent.
        request: &'static str,
        /// The reason's words.
        reason: &'static str,
    },
}

/// The words of a Reject's reason (RFC 7143 section 11.17.1).
pub(super) fn reject_words(reason: u8) -> &'static str {
    RejectReason::from_u8(reason).map_or("for a reason that RFC 7143 does not name", RejectReason::words)
}
