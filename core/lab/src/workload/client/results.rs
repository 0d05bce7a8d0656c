//! What a run gave, for people and for the truth file.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::probe::LogicalUnit;
use super::settings::Mode;
use crate::protocol::initiator::DiscoveredTarget;
use crate::protocol::keys::Parameters;
use crate::workload::latency::LatencySummary;
use crate::workload::pattern::Mismatch;
use crate::workload::slices::Slices;
use crate::workload::tuning::{Decision, TuningRule};

/// What commands of one kind gave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationResults {
    /// Commands that ended well.
    pub commands: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From handing in to status, in nanoseconds.
    pub latency_ns: LatencySummary,
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionResults {
    /// Session, counted from 0 over all targets.
    pub session: usize,
    /// Target, as the settings count them.
    pub target: usize,
    /// Number that the world knows it by.
    pub connection: usize,
    /// CID.
    pub cid: u16,
    /// When it came to the full feature phase.
    pub joined_ns: Option<i64>,
    /// When it was closed.
    pub left_ns: Option<i64>,
    /// Parameters in force, once they were.
    pub parameters: Option<Parameters>,
    /// Commands that ended well.
    pub commands: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetResults {
    /// Where.
    pub address: SocketAddr,
    /// TargetName.
    pub name: Option<String>,
    /// Logical unit.
    pub lun: u16,
    /// What it is, once it told.
    pub unit: Option<LogicalUnit>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// What it was for.
    pub mode: Mode,
    /// From the first command of the workload to the end of the last, in nanoseconds.
    pub elapsed_ns: i64,
    /// When that first command was handed in, on the world's clock.
    pub started_ns: Option<i64>,
    /// Bytes of calls that ended well; on mirrors each byte of the data counts once.
    pub bytes: u64,
    /// Calls that ended well.
    pub calls: u64,
    /// From the first command of a call to the end of its last, in nanoseconds.
    pub call_latency_ns: LatencySummary,
    /// Reads, each command.
    pub read: OperationResults,
    /// Writes, each command to each target.
    pub write: OperationResults,
    /// NOP-Out round trips, in nanoseconds.
    pub ping_ns: LatencySummary,
    /// Throughput over time.
    pub slices: Slices,
    /// Connections.
    pub connections: Vec<ConnectionResults>,
    /// Targets.
    pub targets: Vec<TargetResults>,
    /// What SendTargets gave.
    pub discovered: Vec<DiscoveredTarget>,
    /// Commands that failed, and sessions that ended early.
    pub error_count: u64,
    /// The first of them, each a line.
    pub errors: Vec<String>,
    /// Commands sent again after BUSY, TASK SET FULL or UNIT ATTENTION.
    pub retry_count: u64,
    /// Data digest errors.
    pub data_digest_error_count: u64,
    /// Reads with wrong data, and the first of it.
    pub verify_error_count: u64,
    /// The first wrong byte.
    pub first_mismatch: Option<Mismatch>,
    /// How the number of connections was found, where it was looked for.
    pub tuning: Option<TuningResults>,
    /// What targets did that RFC 7143 does not allow, and that did no harm.
    pub remarks: Vec<String>,
}

/// A measurement of the tuning, and what followed from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningStep {
    /// When it ended, since the first command.
    pub time_s: f64,
    /// Connections that were in use.
    pub connections: u16,
    /// Bytes per second of commands that ended well.
    pub goodput_bytes_per_s: f64,
    /// From handing in to status, on average; none when no command ended.
    pub command_s: Option<f64>,
    /// What is done next.
    pub decision: Decision,
    /// Connections then.
    pub next_connections: u16,
    /// Why, in a sentence.
    pub why: String,
}

/// How the number of connections was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningResults {
    /// Which search.
    pub rule: TuningRule,
    /// Connections in use at the end.
    pub connections: u16,
    /// The number that was found; none during a search.
    pub settled_connections: Option<u16>,
    /// When it was found first, since the first command.
    pub converged_s: Option<f64>,
    /// The most that there could be, as far as is known: settings, and what the target refused.
    pub most_connections: u16,
    /// What a target said that refused another connection.
    pub refusal: Option<String>,
    /// Every measurement.
    pub steps: Vec<TuningStep>,
}

/// How far the tuning is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningProgress {
    /// Connections in use.
    pub connections: u16,
    /// Measurements so far.
    pub step_count: usize,
    /// The last of them.
    pub step: Option<TuningStep>,
}

/// How far a run is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Whether the workload has begun.
    pub is_running: bool,
    /// Bytes so far.
    pub bytes: u64,
    /// Calls, or pings, so far.
    pub calls: u64,
    /// Bytes in all, when the settings say so.
    pub total_bytes: Option<u64>,
    /// Since the first command, in nanoseconds.
    pub elapsed_ns: i64,
    /// Time in all, when the settings say so.
    pub duration_ns: Option<i64>,
    /// Where the number of connections is looked for.
    pub tuning: Option<TuningProgress>,
}

/// A task of the workload, for the truth file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Session, counted from 0 over all targets.
    pub session: usize,
    /// Connection, as the world knows it.
    pub connection: usize,
    /// Initiator Task Tag.
    pub initiator_task_tag: u32,
    /// Whether it is a read; else it is a write.
    pub is_read: bool,
    /// First logical block.
    pub lba: u64,
    /// Logical blocks.
    pub blocks: u32,
    /// Bytes.
    pub bytes: u32,
    /// When it was handed in.
    pub submitted_ns: i64,
    /// When its command went to the transport.
    pub sent_ns: Option<i64>,
    /// When the first Data-In, or the first R2T, came.
    pub first_data_ns: Option<i64>,
    /// When its status came.
    pub completed_ns: i64,
    /// SCSI status; none when it ended without.
    pub status: Option<u8>,
}
