//! What every search for the number of connections has to answer.

use super::scatter::Scatter;
use super::step::{Measurement, Step};

/// A way to look for the number.
pub(super) trait Search: std::fmt::Debug + Send {
    /// The first step, from a number that is in use.
    fn begin(&mut self, from: u16, most: u16) -> Step;

    /// The next step after what the last one gave; [`super::Decision::Settle`] is the last. What was measured may be fewer
    /// connections than asked for: then `most` says that there are no more.
    fn next(&mut self, measured: Measurement, most: u16, scatter: &Scatter) -> Step;
}
