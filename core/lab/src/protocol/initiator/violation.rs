//! Why a session ended: protocol violations of the target, and other errors.

use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::reject::RejectReason;
use iscsitrace_wire::serial::SerialNumber;
use thiserror::Error;

use crate::protocol::login::LoginStatus;
use crate::protocol::pdu::Unreadable;

/// A violation of RFC 7143 by a target.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the fields are the numbers of the sentence above them")]
pub enum Violation {
    /// An unknown opcode.
    #[error("the target sent a PDU with the unknown opcode 0x{opcode:02x} (RFC 7143 section 11.2.1.2)")]
    UnknownOpcode { opcode: u8 },
    /// A PDU of initiators, or not allowed in this phase.
    #[error("the target sent a {} in the {phase} (RFC 7143 section 11.2.1.2)", .opcode.name())]
    NotNow { opcode: Opcode, phase: &'static str },
    /// An answer without a request.
    #[error("{} for Initiator Task Tag 0x{tag:08x}, but no such task is outstanding (RFC 7143 section 11.2.1.8)", .opcode.name())]
    UnknownTask { opcode: Opcode, tag: u32 },
    /// An answer on another connection than the request's.
    #[error(
        "{} for Initiator Task Tag 0x{tag:08x} on connection {found}, but the command was sent on connection {expected} (connection allegiance, RFC 7143 section 4.2.5.1)",
        .opcode.name()
    )]
    Allegiance { opcode: Opcode, tag: u32, found: u16, expected: u16 },
    /// A status is missing, or was sent twice.
    #[error("{} has StatSN {found} where {expected} is next (RFC 7143 section 4.2.2.2)", .opcode.name())]
    StatSn { opcode: Opcode, found: SerialNumber, expected: SerialNumber },
    /// It acknowledges a command that was not sent.
    #[error(
        "ExpCmdSN {exp_cmd_sn} acknowledges commands beyond CmdSN {cmd_sn}, the next to be sent (RFC 7143 section 4.2.2.1)"
    )]
    ExpCmdSnAhead { exp_cmd_sn: SerialNumber, cmd_sn: SerialNumber },
    /// Immediate requests are acknowledged as if they had a CmdSN of their own.
    #[error(
        "ExpCmdSN {exp_cmd_sn} after CmdSN {cmd_sn} counts an immediate request, which takes no CmdSN (RFC 7143 section 4.2.2.1)"
    )]
    ImmediateCounted { exp_cmd_sn: SerialNumber, cmd_sn: SerialNumber },
    /// A Data-In is missing, or was sent twice.
    #[error("Data-In of task 0x{tag:08x} has DataSN {found} where {expected} is next (RFC 7143 section 11.7.5)")]
    DataSn { tag: u32, found: SerialNumber, expected: SerialNumber },
    /// Data out of order although DataPDUInOrder or DataSequenceInOrder is Yes.
    #[error(
        "Data-In of task 0x{tag:08x} has Buffer Offset {found} where {expected} is next (RFC 7143 section 11.7.6; DataPDUInOrder=Yes)"
    )]
    BufferOffset { tag: u32, found: u32, expected: u32 },
    /// Data that was sent before, with data out of order.
    #[error("Data-In of task 0x{tag:08x} sends bytes from {offset} on again (RFC 7143 section 11.7.6)")]
    Overlap { tag: u32, offset: u32 },
    /// More data than the Expected Data Transfer Length.
    #[error(
        "Data-In of task 0x{tag:08x} ends at byte {end} of a buffer of {expected_data_transfer_length} (Expected Data Transfer Length, RFC 7143 section 11.3.4)"
    )]
    BeyondBuffer { tag: u32, end: u64, expected_data_transfer_length: u32 },
    /// A sequence longer than MaxBurstLength.
    #[error(
        "a sequence of Data-In of task 0x{tag:08x} has {length} bytes where MaxBurstLength is {max_burst_length} (RFC 7143 section 13.13)"
    )]
    BurstTooLong { tag: u32, length: u64, max_burst_length: u32 },
    /// Data for a command that does not read.
    #[error("{} for task 0x{tag:08x}, which does not transfer data in that direction (RFC 7143 section {section})", .opcode.name())]
    WrongDirection { opcode: Opcode, tag: u32, section: &'static str },
    /// The S bit without the F bit.
    #[error("Data-In of task 0x{tag:08x} has the S bit without the F bit (RFC 7143 section 11.7.3)")]
    StatusWithoutFinal { tag: u32 },
    /// A request for a SNACK, which ErrorRecoveryLevel 0 does not have.
    #[error(
        "Data-In of task 0x{tag:08x} requests an acknowledgement, which ErrorRecoveryLevel 0 does not have (RFC 7143 section 11.7.2)"
    )]
    AcknowledgeRequested { tag: u32 },
    /// Both residual bits at once.
    #[error("{} of task 0x{tag:08x} has both the O and the U bit (RFC 7143 section 11.4.1)", .opcode.name())]
    BothResiduals { opcode: Opcode, tag: u32 },
    /// An R2T is missing, or was sent twice.
    #[error("R2T of task 0x{tag:08x} has R2TSN {found} where {expected} is next (RFC 7143 section 11.8)")]
    R2tSn { tag: u32, found: SerialNumber, expected: SerialNumber },
    /// An R2T for no data.
    #[error("R2T of task 0x{tag:08x} requests no data (Desired Data Transfer Length, RFC 7143 section 11.8)")]
    R2tEmpty { tag: u32 },
    /// An R2T for more than MaxBurstLength.
    #[error(
        "R2T of task 0x{tag:08x} requests {length} bytes where MaxBurstLength is {max_burst_length} (RFC 7143 section 13.13)"
    )]
    R2tTooLong { tag: u32, length: u32, max_burst_length: u32 },
    /// An R2T for more than the command's data.
    #[error(
        "R2T of task 0x{tag:08x} requests bytes up to {end} of {expected_data_transfer_length} (Expected Data Transfer Length, RFC 7143 section 11.8)"
    )]
    R2tBeyondBuffer { tag: u32, end: u64, expected_data_transfer_length: u32 },
    /// An R2T out of order although DataSequenceInOrder is Yes.
    #[error(
        "R2T of task 0x{tag:08x} has Buffer Offset {found} where {expected} is next (RFC 7143 section 13.19; DataSequenceInOrder=Yes)"
    )]
    R2tOffset { tag: u32, found: u32, expected: u32 },
    /// An R2T for data that was sent or requested before.
    #[error(
        "R2T of task 0x{tag:08x} requests bytes from {offset} on again, which only ErrorRecoveryLevel 1 allows (RFC 7143 section 11.8)"
    )]
    R2tOverlap { tag: u32, offset: u32 },
    /// More R2Ts than MaxOutstandingR2T.
    #[error(
        "task 0x{tag:08x} has more than {max_outstanding_r2t} R2Ts outstanding (MaxOutstandingR2T, RFC 7143 section 13.17)"
    )]
    TooManyR2ts { tag: u32, max_outstanding_r2t: u32 },
    /// An R2T without a Target Transfer Tag.
    #[error("R2T of task 0x{tag:08x} has the reserved Target Transfer Tag 0xffffffff (RFC 7143 section 11.8)")]
    R2tWithoutTag { tag: u32 },
    /// The answer to a ping has different data.
    #[error("NOP-In returns other data than the NOP-Out sent (RFC 7143 section 11.19)")]
    Echo,
    /// Pings faster than they can be answered.
    #[error(
        "the target sent {count} NOP-In that cannot be answered, because it receives no data (RFC 7143 section 11.19)"
    )]
    TooManyPings { count: usize },
    /// Text that is too long.
    #[error("Text Response of more than {limit} bytes (RFC 7143 section 11.11)")]
    TextTooLong { limit: usize },
    /// Text that cannot be parsed.
    #[error("invalid Text Response: {reason} (RFC 7143 section {section})")]
    Text { reason: &'static str, section: &'static str },
    /// A data segment that is too short.
    #[error("{} with a data segment of {length} bytes where {needed} are needed (RFC 7143 section {section})", .opcode.name())]
    ShortData { opcode: Opcode, length: usize, needed: usize, section: &'static str },
}

/// Why a session ended before its logout.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionError {
    /// A protocol violation of the target.
    #[error("protocol error: {0}")]
    Violation(#[from] Violation),
    /// The stream cannot be decoded.
    #[error("connection {connection}: {reason}")]
    Unreadable {
        /// The connection, counted from 0.
        connection: usize,
        /// The reason.
        reason: Unreadable,
    },
    /// Section 7.8: at ErrorRecoveryLevel 0 a lost PDU ends the session.
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
        /// The world's error message.
        reason: String,
    },
    /// The connection could not be opened.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// The login failed.
    #[error("login failed: {0}")]
    Login(String),
    /// The target refused the login.
    #[error("login refused: {0} (RFC 7143 section 11.13.5)")]
    LoginRefused(LoginStatus),
    /// The target has moved.
    #[error("the target moved to {address} (RFC 7143 section 11.13.5)")]
    Redirected {
        /// The TargetAddress of the response.
        address: String,
    },
    /// Fewer connections than requested.
    #[error(
        "the target allows {allowed} connections in a session, {wanted} are requested (MaxConnections, RFC 7143 section 13.2)"
    )]
    TooFewConnections {
        /// Negotiated MaxConnections.
        allowed: usize,
        /// Number requested.
        wanted: usize,
    },
    /// A timeout.
    #[error("no {awaited} within {} s", *.timeout_ns as f64 / 1e9)]
    TimedOut {
        /// What it waited for.
        awaited: &'static str,
        /// The timeout.
        timeout_ns: i64,
    },
    /// The target requested it, or announced that it drops connections.
    #[error("{0}")]
    AskedToLeave(&'static str),
    /// The logout was not accepted.
    #[error("logout refused with response {response} (RFC 7143 section 11.15.1)")]
    LogoutRefused {
        /// Its Response.
        response: u8,
    },
    /// A request other than a task was rejected.
    #[error("{request} rejected: {reason} (RFC 7143 section 11.17.1)")]
    Rejected {
        /// The request.
        request: &'static str,
        /// The reason in words.
        reason: &'static str,
    },
}

/// The reason of a Reject in words (RFC 7143 section 11.17.1).
pub(super) fn reject_words(reason: u8) -> &'static str {
    RejectReason::from_u8(reason).map_or("for a reason that RFC 7143 does not name", RejectReason::words)
}
