//! The state of the tuning of a run. Never decides how many connections there are.

use super::results::{TuningResults, TuningStep};
use crate::workload::tuning::{Step, Tuner, TuningSettings};

/// What the tuning waits for.
#[derive(Debug)]
pub(super) enum Phase {
    /// Before the workload, and after it.
    Idle,
    /// Logins in progress.
    Joining(usize),
    /// Connections that have not completed a command yet.
    Settling(Vec<usize>),
    /// Start of the measurement.
    Measuring(i64),
}

/// The state of the tuning of a run.
#[derive(Debug)]
pub(super) struct TuningState {
    pub tuner: Tuner,
    pub settings: TuningSettings,
    pub phase: Phase,
    /// Connections that take commands, the latest last.
    pub in_use: Vec<usize>,
    /// The current step.
    pub step: Step,
    /// Number of the measurement: a timer of an earlier one is ignored.
    pub serial: u64,
    /// Bytes moved before the measurement.
    pub moved_before: u64,
    /// Bytes, number and time of commands completed since then.
    pub bytes: u64,
    pub commands: u64,
    pub command_ns: i64,
    pub steps: Vec<TuningStep>,
    pub converged_ns: Option<i64>,
    pub refusal: Option<String>,
    /// The most that were in use at once.
    pub most_used: usize,
}

impl TuningState {
    pub(super) fn new(settings: &TuningSettings) -> Self {
        let mut tuner = Tuner::new(settings);
        let step = tuner.begin();
        Self {
            tuner,
            settings: settings.clone(),
            phase: Phase::Idle,
            in_use: vec![0],
            step,
            serial: 0,
            moved_before: 0,
            bytes: 0,
            commands: 0,
            command_ns: 0,
            steps: Vec::new(),
            converged_ns: None,
            refusal: None,
            most_used: 1,
        }
    }

    /// Connections that take commands.
    pub(super) fn connection_count(&self) -> usize {
        self.in_use.len()
    }

    /// The last step, and how many there were.
    pub(super) fn latest(&self) -> Option<(&TuningStep, usize)> {
        Some((self.steps.last()?, self.steps.len()))
    }

    pub(super) fn results(&self, started_ns: Option<i64>) -> TuningResults {
        let seconds = |at_ns: i64| (at_ns - started_ns.unwrap_or(at_ns)) as f64 / 1e9;
        TuningResults {
            rule: self.settings.rule,
            connections: self.in_use.len() as u16,
            settled_connections: self.tuner.settled(),
            converged_s: self.converged_ns.map(seconds),
            most_connections: self.tuner.most(),
            refusal: self.refusal.clone(),
            steps: self.steps.clone(),
        }
    }
}
