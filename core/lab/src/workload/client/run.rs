//! The state of the workload while it runs: calls in progress, and measurements.

use super::client_session::Pending;
use super::results::{Progress, TaskRecord};
use super::settings::ClientSettings;
use crate::latency::Latencies;
use crate::workload::pattern::Mismatch;
use crate::workload::sequence::Sequence;
use crate::workload::slices::Slices;

/// Completed commands of one kind.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub commands: u64,
    pub bytes: u64,
    pub latencies: Latencies,
}

/// Sessions that share calls, and the number of their calls in progress.
#[derive(Debug)]
pub(super) struct Lane {
    /// One session, or one per mirror side.
    pub sessions: Vec<usize>,
    pub sequence: usize,
    /// Calls in progress or in the pause after them.
    pub busy_count: u32,
    /// Counter of reads: it selects the mirror side of the next one.
    pub turn: usize,
}

/// A call in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenCall {
    pub lane: usize,
    pub commands_left: u32,
    pub bytes: u64,
    pub begun_ns: i64,
    pub has_failed: bool,
}

/// The state of the workload.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub started_ns: Option<i64>,
    pub ended_ns: i64,
    pub is_stopping: bool,
    pub sequences: Vec<Sequence>,
    pub lanes: Vec<Lane>,
    pub calls: Vec<OpenCall>,
    pub free_calls: Vec<usize>,
    pub open_count: usize,
    /// Commands waiting for a retry, with their session.
    pub retries: Vec<Option<(usize, Pending)>>,
    pub random: fastrand::Rng,
    pub total_bytes: Option<u64>,
    pub duration_ns: Option<i64>,
    pub bytes: u64,
    pub calls_done: u64,
    pub call_latencies: Latencies,
    pub read: Count,
    pub write: Count,
    pub slices: Slices,
    pub retry_count: u64,
    pub verify_error_count: u64,
    pub first_mismatch: Option<Mismatch>,
    pub task_log: Vec<TaskRecord>,
}

impl Run {
    pub(super) fn new(settings: &ClientSettings) -> Self {
        Self {
            random: fastrand::Rng::with_seed(settings.workload.seed),
            total_bytes: settings.workload.total_bytes,
            duration_ns: settings.workload.duration_ns,
            slices: Slices::new(settings.slice_ns),
            ..Self::default()
        }
    }

    pub(super) fn elapsed_ns(&self) -> i64 {
        self.started_ns.map_or(0, |started| (self.ended_ns - started).max(0))
    }

    pub(super) fn progress(&self, now_ns: i64) -> Progress {
        Progress {
            is_running: self.started_ns.is_some(),
            bytes: self.bytes,
            calls: self.calls_done,
            total_bytes: self.total_bytes,
            elapsed_ns: self.started_ns.map_or(0, |started| now_ns - started),
            duration_ns: self.duration_ns,
            tuning: None,
        }
    }

    pub(super) fn is_time_over(&self, now_ns: i64) -> bool {
        self.started_ns.zip(self.duration_ns).is_some_and(|(started, duration)| now_ns - started >= duration)
    }

    /// Whether no more calls are started.
    pub(super) fn is_over(&self, now_ns: i64) -> bool {
        self.is_stopping || self.is_time_over(now_ns)
    }

    /// Whether no call is in progress and no more will be started.
    pub(super) fn is_idle(&self, now_ns: i64) -> bool {
        self.open_count == 0
            && (self.is_stopping || self.is_time_over(now_ns) || self.sequences.iter().all(Sequence::is_exhausted))
    }
}
