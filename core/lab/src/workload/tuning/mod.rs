//! How many connections a session is to have, found while data flow.
//!
//! ```text
//! Measurement: so many connections gave so much for a while
//!        |
//!      Tuner        bounds, what the same number scatters, and when to begin anew
//!        |
//!      Search       GoldenSection: brackets the peak of goodput and narrows it
//!        |          Predicted: reckons the number from what one connection gives, and confirms it
//!        v
//! Step: how many next, and why
//! ```
//!
//! It never opens a connection, never measures, and reads no clock.

mod golden_section;
mod predicted;
mod scatter;
mod settings;
#[cfg(test)]
mod tests;
mod tuner;

use serde::{Deserialize, Serialize};

pub use scatter::Scatter;
pub use settings::{TuningRule, TuningSettings};
pub use tuner::Tuner;

/// What a number of connections gave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Connections that were in use.
    pub connections: u16,
    /// Bytes per second of commands that ended well.
    pub goodput_bytes_per_s: f64,
}

impl Measurement {
    fn words(&self) -> String {
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
    fn probe(connections: u16, why: String) -> Self {
        Self { connections, decision: Decision::Probe, why }
    }

    fn repeat(connections: u16, why: String) -> Self {
        Self { connections, decision: Decision::Repeat, why }
    }

    fn settle(connections: u16, why: String) -> Self {
        Self { connections, decision: Decision::Settle, why }
    }
}

/// A way to look for the number.
trait Search: std::fmt::Debug + Send {
    /// The first step, from a number that is in use.
    fn begin(&mut self, from: u16, most: u16) -> Step;

    /// The next step after what the last one gave; [`Decision::Settle`] is the last. What was measured may be fewer
    /// connections than asked for: then `most` says that there are no more.
    fn next(&mut self, measured: Measurement, most: u16, scatter: &Scatter) -> Step;
}

fn count(connections: u16) -> String {
    if connections == 1 { "1 connection".to_owned() } else { format!("{connections} connections") }
}

fn rate(bytes_per_s: f64) -> String {
    format!("{:.1} MB/s", bytes_per_s / 1e6)
}
