//! A step of the tuning: measurement, decision, reason.

use serde::{Deserialize, Serialize};

/// A measurement of a number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Connections in use.
    pub connections: u16,
    /// Bytes of data per second.
    pub goodput_bytes_per_s: f64,
}

impl Measurement {
    /// In words.
    pub(super) fn words(&self) -> String {
        format!("{}: {}", count(self.connections), rate(self.goodput_bytes_per_s))
    }
}

/// The purpose of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Measure another number.
    Probe,
    /// Measure the same number once more.
    Repeat,
    /// The number is found.
    Settle,
    /// The number found is still good.
    Watch,
    /// The search restarts.
    Restart,
}

/// The next step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Connections.
    pub connections: u16,
    /// Its purpose.
    pub decision: Decision,
    /// The reason, as a sentence.
    pub why: String,
}

impl Step {
    pub(super) fn probe(connections: u16, why: String) -> Self {
        Self { connections, decision: Decision::Probe, why }
    }

    pub(super) fn repeat(connections: u16, why: String) -> Self {
        Self { connections, decision: Decision::Repeat, why }
    }

    pub(super) fn settle(connections: u16, why: String) -> Self {
        Self { connections, decision: Decision::Settle, why }
    }
}

pub(super) fn count(connections: u16) -> String {
    if connections == 1 { "1 connection".to_owned() } else { format!("{connections} connections") }
}

pub(super) fn rate(bytes_per_s: f64) -> String {
    format!("{:.1} MB/s", bytes_per_s / 1e6)
}
