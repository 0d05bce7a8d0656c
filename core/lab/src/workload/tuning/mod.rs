//! Tuning of the number of connections of a session during the workload.
//!
//! ```text
//! Measurement: the goodput of a number of connections
//!        |
//!      Tuner        limits, scatter of equal measurements, and restarts
//!        |
//!      Search       GoldenSection: brackets the peak of goodput and narrows it
//!        |          Measured: no search, one number and then another
//!        |          Predicted: computes the number from the goodput of one connection, and confirms it
//!        v
//! Step: the next number, and the reason
//! ```
//!
//! It never opens a connection, never measures, and reads no clock.

mod golden_section;
mod measured;
mod predicted;
mod scatter;
mod search;
mod settings;
mod step;
#[cfg(test)]
mod tests;
mod tuner;

pub use scatter::Scatter;
pub use settings::{TuningRule, TuningSettings};
pub use step::{Decision, Measurement, Step};
pub use tuner::Tuner;
