//! The scatter of repeated measurements of the same number of connections: a difference is significant beyond it.
//!
//! It never decides.

use super::step::Measurement;

/// Assumed scatter before a number was measured twice.
const ASSUMED: f64 = 0.03;
const LEAST: f64 = 0.005;
const MOST: f64 = 0.25;

/// Relative differences between measurements of the same number.
#[derive(Debug, Clone, Default)]
pub struct Scatter {
    /// Sum of their squares, and how many.
    squares: f64,
    count: u32,
}

impl Scatter {
    /// The same number was measured twice.
    pub fn note(&mut self, first: Measurement, second: Measurement) {
        let (a, b) = (first.goodput_bytes_per_s, second.goodput_bytes_per_s);
        let larger = a.max(b);
        if first.connections == second.connections && larger > 0.0 && larger.is_finite() {
            let difference = (a - b).abs() / larger;
            self.squares += difference * difference;
            self.count += 1;
        }
    }

    /// The difference of two measurements of the same number, as a share of either: its root mean square.
    #[must_use]
    pub fn share(&self) -> f64 {
        match self.count {
            0 => ASSUMED,
            count => (self.squares / f64::from(count)).sqrt().clamp(LEAST, MOST),
        }
    }

    /// Whether the first exceeds the second significantly.
    #[must_use]
    pub fn is_more(&self, first: f64, second: f64) -> bool {
        first > second * (1.0 + self.share())
    }
}
