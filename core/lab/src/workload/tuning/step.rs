//! A step of the tuning: what was measured, what is done next, and why.

use serde::{Deserialize, Serialize};

/// What a number of connections gave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Connections that were in use.
    pub connections: u16,
    /// Bytes of data per second.
    pub goodput_bytes_per_s: f64,
}

impl Measurement {
    /// In words.
    pub(super) fn words(&self) -> String {
        format!("{} gave {}", count(self.connections), rate(self.goodput_bytes_per_s))
    }
}

/// What a step is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Another number, to see what it gives.
    Probe,
    /// The same number once more.
    Repeat,
    /// The number that was found.
    Settle,
    /// The number that was found, still.
    Watch,
    /// The search begins anew.
    Restart,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Connections.
    pub connections: u16,
    /// What for.
    pub decision: Decision,
    /// Why, in a sentence.
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
