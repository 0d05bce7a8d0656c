//! The results of plain TCP transfers, for people and for the truth file.

use serde::Serialize;

use crate::workload::client::results::TargetResults;

/// One connection, in the direction of its blocks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BulkConnection {
    /// Target, by its place in the settings.
    pub target: usize,
    /// Number of the connection in its world.
    pub connection: usize,
    /// Bytes received.
    pub bytes: u64,
    /// From the first byte received to the last.
    pub elapsed_ns: i64,
    /// Throughput of the second half; none when that took no time.
    pub steady_bytes_per_s: Option<f64>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BulkResults {
    /// `socket`.
    pub mode: &'static str,
    /// From the first request to the end of the last transfer, in nanoseconds.
    pub elapsed_ns: i64,
    /// When that first request was sent, on the world's clock.
    pub started_ns: Option<i64>,
    /// Bytes received.
    pub bytes: u64,
    /// Steady throughput of all connections, from the first half reached to the end of the last transfer.
    pub steady_bytes_per_s: Option<f64>,
    /// Connections.
    pub connections: Vec<BulkConnection>,
    /// Targets.
    pub targets: Vec<TargetResults>,
    /// Connections that ended early.
    pub error_count: u64,
    /// A line each.
    pub errors: Vec<String>,
}
