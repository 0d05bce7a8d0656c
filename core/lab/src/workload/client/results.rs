//! The results of a run, for people and for the truth file.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::probe::LogicalUnit;
use super::settings::Mode;
use crate::latency::LatencySummary;
use crate::protocol::initiator::DiscoveredTarget;
use crate::protocol::keys::Parameters;
use crate::workload::pattern::Mismatch;
use crate::workload::slices::Slices;
use crate::workload::tuning::{Decision, TuningRule};

/// Results of reads or of writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationResults {
    /// Completed commands.
    pub commands: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From submission to status, in nanoseconds.
    pub latency_ns: LatencySummary,
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionResults {
    /// Session, counted from 0 over all targets.
    pub session: usize,
    /// Target, by its place in the settings.
    pub target: usize,
    /// Number of the connection in the world.
    pub connection: usize,
    /// CID.
    pub cid: u16,
    /// When it entered the full feature phase.
    pub joined_ns: Option<i64>,
    /// When it was closed.
    pub left_ns: Option<i64>,
    /// Negotiated parameters, once it was logged in.
    pub parameters: Option<Parameters>,
    /// Completed commands.
    pub commands: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetResults {
    /// Address.
    pub address: SocketAddr,
    /// TargetName.
    pub name: Option<String>,
    /// Logical unit.
    pub lun: u16,
    /// Its identification, once it is known.
    pub unit: Option<LogicalUnit>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The mode.
    pub mode: Mode,
    /// From the first command of the workload to the end of the last, in nanoseconds.
    pub elapsed_ns: i64,
    /// When that first command was submitted, on the world's clock.
    pub started_ns: Option<i64>,
    /// Bytes of completed calls; with mirrors each byte of the data counts once.
    pub bytes: u64,
    /// Completed calls.
    pub calls: u64,
    /// From the first command of a call to the end of its last, in nanoseconds.
    pub call_latency_ns: LatencySummary,
    /// Reads, per command.
    pub read: OperationResults,
    /// Writes, per command to each target.
    pub write: OperationResults,
    /// RTT of NOP-Out pings, in nanoseconds.
    pub ping_ns: LatencySummary,
    /// Throughput over time.
    pub slices: Slices,
    /// Connections.
    pub connections: Vec<ConnectionResults>,
    /// Targets.
    pub targets: Vec<TargetResults>,
    /// Targets found by SendTargets.
    pub discovered: Vec<DiscoveredTarget>,
    /// Commands that failed, and sessions that ended early.
    pub error_count: u64,
    /// The first of them, a line each.
    pub errors: Vec<String>,
    /// Retries after BUSY, TASK SET FULL or UNIT ATTENTION.
    pub retry_count: u64,
    /// Data digest errors.
    pub data_digest_error_count: u64,
    /// Reads with wrong data.
    pub verify_error_count: u64,
    /// The first wrong byte.
    pub first_mismatch: Option<Mismatch>,
    /// The tuning of the number of connections, if it was enabled.
    pub tuning: Option<TuningResults>,
    /// Harmless violations of RFC 7143 by targets.
    pub remarks: Vec<String>,
}

/// A measurement of the tuning, and its decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningStep {
    /// When it ended, in seconds since the first command.
    pub time_s: f64,
    /// Connections in use.
    pub connections: u16,
    /// Bytes per second; of completed commands only, when it measures at once or by bytes.
    pub goodput_bytes_per_s: f64,
    /// Mean time from submission to status; none when no command completed.
    pub command_s: Option<f64>,
    /// The decision.
    pub decision: Decision,
    /// Connections in the next step.
    pub next_connections: u16,
    /// The reason, as a sentence.
    pub why: String,
}

/// Results of the tuning of the number of connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningResults {
    /// The search rule.
    pub rule: TuningRule,
    /// Connections in use at the end.
    pub connections: u16,
    /// The number found; none during a search.
    pub settled_connections: Option<u16>,
    /// When it was first found, in seconds since the first command.
    pub converged_s: Option<f64>,
    /// Upper limit: by the settings, and by the target's refusals.
    pub most_connections: u16,
    /// The target's reason for refusing another connection.
    pub refusal: Option<String>,
    /// Every measurement.
    pub steps: Vec<TuningStep>,
}

/// Progress of the tuning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningProgress {
    /// Connections in use.
    pub connections: u16,
    /// Measurements so far.
    pub step_count: usize,
    /// The last measurement.
    pub step: Option<TuningStep>,
}

/// Progress of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Whether the workload has begun.
    pub is_running: bool,
    /// Bytes so far.
    pub bytes: u64,
    /// Calls, or pings, so far.
    pub calls: u64,
    /// Total bytes, if the settings limit them.
    pub total_bytes: Option<u64>,
    /// Time since the first command, in nanoseconds.
    pub elapsed_ns: i64,
    /// Total time, if the settings limit it.
    pub duration_ns: Option<i64>,
    /// Progress of the tuning, if it is enabled.
    pub tuning: Option<TuningProgress>,
}

/// A command of the workload, for the truth file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Session, counted from 0 over all targets.
    pub session: usize,
    /// Number of the connection in the world.
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
    /// When it was submitted.
    pub submitted_ns: i64,
    /// When its SCSI Command PDU was passed to the transport.
    pub sent_ns: Option<i64>,
    /// When the first Data-In, or the first R2T, arrived.
    pub first_data_ns: Option<i64>,
    /// When its status arrived.
    pub completed_ns: i64,
    /// SCSI status; none when it ended without one.
    pub status: Option<u8>,
}
