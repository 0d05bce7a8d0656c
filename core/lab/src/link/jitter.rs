//! Jitter: a uniformly distributed delay, with or without reordering. Drops no packet.

use fastrand::Rng;

use super::impairment::Impairment;
use super::log::Fate;

/// A random delay.
#[derive(Debug)]
pub struct Jitter {
    jitter_ns: u64,
    is_reordering: bool,
    random: Rng,
    last_ready_ns: i64,
}

impl Jitter {
    /// Jitter from 0 to `jitter_ns`. Without reordering a packet leaves no earlier than the one before it.
    pub fn new(jitter_ns: u64, is_reordering: bool, seed: u64) -> Self {
        Self { jitter_ns, is_reordering, random: Rng::with_seed(seed), last_ready_ns: i64::MIN }
    }
}

impl Impairment for Jitter {
    fn departure_ns(&mut self, now_ns: i64, _frame_bytes: usize) -> Result<i64, Fate> {
        let delay_ns = i64::try_from(self.random.u64(0..=self.jitter_ns)).unwrap_or(i64::MAX);
        let ready_ns = now_ns.saturating_add(delay_ns);
        self.last_ready_ns = if self.is_reordering { ready_ns } else { ready_ns.max(self.last_ready_ns) };
        Ok(self.last_ready_ns)
    }

    fn is_keeping_order(&self) -> bool {
        !self.is_reordering
    }
}
