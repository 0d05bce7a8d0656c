//! What bulk transfers gave, for people and for the truth file.

use serde::Serialize;

use crate::workload::client::results::TargetResults;

/// One connection, in the direction of its blocks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BulkConnection {
    /// Target, as the settings count them.
    pub target: usize,
    /// Number that the world knows it by.
    pub connection: usize,
    /// Bytes that came.
    pub bytes: u64,
    /// From the first of them to the last, beside their receiver.
    pub elapsed_ns: i64,
    /// Throughput of what came after half of what was asked for; none when that took no time.
    pub steady_bytes_per_s: Option<f64>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BulkResults {
    /// `socket`.
    pub mode: &'static str,
    /// From the first request to the end of the last transfer, in nanoseconds.
    pub elapsed_ns: i64,
    /// When that first request was handed out, on the world's clock.
    pub started_ns: Option<i64>,
    /// Bytes that came.
    pub bytes: u64,
    /// Throughput once it is steady: of all connections, from the first half that was there to the end of the last.
    pub steady_bytes_per_s: Option<f64>,
    /// Connections.
    pub connections: Vec<BulkConnection>,
    /// Targets.
    pub targets: Vec<TargetResults>,
    /// Connections that ended early.
    pub error_count: u64,
    /// Each a line.
    pub errors: Vec<String>,
}
