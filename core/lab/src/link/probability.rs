//! Probabilities that draw exactly.

use fastrand::Rng;

/// A probability as a number of 2^53 equally likely outcomes: multiples of 2^-53 are exact, also 0 and 1.
#[derive(Debug, Clone, Copy)]
pub struct Probability {
    outcomes: u64,
}

impl Probability {
    const ALL: f64 = (1u64 << 53) as f64;

    /// A probability from 0 to 1.
    pub fn new(probability: f64) -> Self {
        Self { outcomes: (probability.clamp(0.0, 1.0) * Self::ALL).round() as u64 }
    }

    /// One random draw: true with this probability.
    pub fn draw(self, random: &mut Rng) -> bool {
        random.u64(..) >> 11 < self.outcomes
    }
}
