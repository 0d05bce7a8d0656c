//! No search: the first number is kept and measured, and after some measurements another one.
//!
//! It never settles, and compares nothing.

use super::scatter::Scatter;
use super::search::Search;
use super::step::{Measurement, Step, count};

/// One number, and then another.
#[derive(Debug)]
pub(super) struct Measured {
    change_to: Option<u16>,
    /// Measurements left before the change.
    left: u32,
}

impl Measured {
    pub(super) fn new(change_to: Option<u16>, change_after: u32) -> Self {
        Self { change_to, left: change_after }
    }
}

impl Search for Measured {
    fn begin(&mut self, from: u16, most: u16) -> Step {
        let from = from.clamp(1, most);
        Step::probe(from, format!("start with {}", count(from)))
    }

    fn next(&mut self, measured: Measurement, most: u16, _: &Scatter) -> Step {
        self.left = self.left.saturating_sub(1);
        match self.change_to {
            Some(number) if self.left == 0 && number.min(most) != measured.connections => {
                let number = number.min(most);
                Step::probe(number, format!("{}; change to {}", measured.words(), count(number)))
            }
            _ => Step::repeat(measured.connections, measured.words()),
        }
    }
}
