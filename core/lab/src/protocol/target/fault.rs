//! The faults of a target: what happens, when, and where. `injection` decides what each one hits; what a fault does is
//! implemented where they occur.

use serde::{Deserialize, Serialize};

use crate::occurrence::When;
use crate::scsi::{Sense, SenseKey};

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The first PDU that answers a command has a wrong header digest; no effect without HeaderDigest.
    BadHeaderDigest,
    /// The first PDU with data that answers a command has a wrong data digest; no effect without DataDigest.
    BadDataDigest,
    /// A command is never answered.
    SwallowedPdu,
    /// The first R2T of a command is delayed by `by_ns`.
    LateR2t,
    /// A command ends with status BUSY.
    Busy,
    /// A command ends with status TASK SET FULL.
    TaskSetFull,
    /// A command ends with status RESERVATION CONFLICT.
    ReservationConflict,
    /// A command ends with status CHECK CONDITION, with `sense`.
    CheckCondition,
    /// A command is answered with a Reject, with `reason`.
    Reject,
    /// A command closes its connection.
    ClosedConnection,
    /// A command makes the target request a logout within 3 s.
    LogoutRequested,
    /// The status of a command is delayed by `by_ns`, and never in a Data-In.
    DelayedStatus,
    /// The service of a command takes `by_ns` longer.
    Slow,
    /// A command is not answered before the fault ends, nor are task management functions.
    Stuck,
    /// A login is refused with `status`, or redirected to `addresses`.
    LoginRefused,
    /// The portal ends all connections when the fault begins, and accepts none before it ends.
    Restart,
}

/// What a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// A command that is delivered. It has one fault at most: the first that hits it.
    Command,
    /// The service of a command.
    Service,
    /// A login.
    Login,
    /// The whole portal.
    Portal,
}

impl Fault {
    pub(super) const fn subject(self) -> Subject {
        match self {
            Self::BadHeaderDigest
            | Self::BadDataDigest
            | Self::SwallowedPdu
            | Self::LateR2t
            | Self::Busy
            | Self::TaskSetFull
            | Self::ReservationConflict
            | Self::CheckCondition
            | Self::Reject
            | Self::ClosedConnection
            | Self::LogoutRequested
            | Self::DelayedStatus => Subject::Command,
            Self::Slow | Self::Stuck => Subject::Service,
            Self::LoginRefused => Subject::Login,
            Self::Restart => Subject::Portal,
        }
    }
}

/// Commands that a fault is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultOperation {
    /// All.
    #[default]
    Any,
    /// Reads of blocks.
    Read,
    /// Writes of blocks.
    Write,
    /// UNMAP.
    Unmap,
    /// All others.
    Other,
}

/// A fault, such as `{"fault": "bad_data_digest", "nth": 5, "operation": "read"}`, or
/// `{"fault": "slow", "by_ns": 1000000, "lun": 0, "when": {"at_ns": 0, "for_ns": 2000000000}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSettings {
    /// What happens.
    pub fault: Fault,
    /// The delay.
    #[serde(default)]
    pub by_ns: i64,
    /// Sense key, additional sense code and qualifier of a CHECK CONDITION.
    #[serde(default = "unrecovered_read_error")]
    pub sense: [u8; 3],
    /// Reason of a Reject (RFC 7143 section 11.17.1).
    #[serde(default = "protocol_error")]
    pub reason: u8,
    /// Status-Class and Status-Detail of a login that is refused (RFC 7143 section 11.13.5).
    #[serde(default = "service_unavailable")]
    pub status: [u8; 2],
    /// Values of TargetAddress, for a redirection.
    #[serde(default)]
    pub addresses: Vec<String>,

    /// Number of the command that it hits, counted from 1 over all sessions in the order of delivery. None for every
    /// one; without `when` the first.
    #[serde(default)]
    pub nth: Option<u64>,
    /// Whether it hits every nth command.
    #[serde(default)]
    pub is_repeated: bool,
    /// When it is there; none for the whole run, and for a fault that is not counted among those of the run.
    #[serde(default)]
    pub when: Option<When>,
    /// It hits commands beyond so many bytes.
    #[serde(default)]
    pub after_bytes: u64,
    /// Most logins that it hits; none for all.
    #[serde(default)]
    pub most: Option<u64>,

    /// Commands that it counts and hits.
    #[serde(default)]
    pub operation: FaultOperation,
    /// The logical unit; none for all.
    #[serde(default)]
    pub lun: Option<u16>,
    /// First and last logical block: it counts and hits commands that touch these. None for all commands.
    #[serde(default)]
    pub blocks: Option<(u64, u64)>,
}

/// MEDIUM ERROR, UNRECOVERED READ ERROR.
fn unrecovered_read_error() -> [u8; 3] {
    [0x03, 0x11, 0x00]
}

fn protocol_error() -> u8 {
    0x04
}

fn service_unavailable() -> [u8; 2] {
    [0x03, 0x01]
}

impl FaultSettings {
    /// The sense data of a CHECK CONDITION.
    pub(super) fn sense(&self) -> Sense {
        let [key, code, qualifier] = self.sense;
        Sense::new(SenseKey::from_u8(key), code, qualifier)
    }

    /// What cannot be, in words.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        match self.nth {
            Some(0) => Some("nth counts from 1 on"),
            Some(_) if self.fault.subject() != Subject::Command => Some("nth counts commands that are delivered"),
            _ => None,
        }
    }

    /// The number of the command that it hits; none for every one.
    pub(super) fn nth(&self) -> Option<u64> {
        self.nth.or(if self.when.is_none() { Some(1) } else { None })
    }
}
