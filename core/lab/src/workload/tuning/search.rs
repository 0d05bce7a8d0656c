//! The interface of a search for the number of connections.

use super::scatter::Scatter;
use super::step::{Measurement, Step};

/// A search for the number of connections.
pub(super) trait Search: std::fmt::Debug + Send {
    /// The first step, from the number in use.
    fn begin(&mut self, from: u16, most: u16) -> Step;

    /// The next step after a measurement; [`super::Decision::Settle`] is the last. Fewer connections than requested may
    /// have been measured: then `most` is the limit.
    fn next(&mut self, measured: Measurement, most: u16, scatter: &Scatter) -> Step;
}
