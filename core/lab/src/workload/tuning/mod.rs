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
