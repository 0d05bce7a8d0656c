//! A fixed delay. Any number of packets can be in transit; none is dropped.

use super::impairment::Impairment;
use super::log::Fate;

/// A fixed delay.
#[derive(Debug)]
pub struct Delay {
    delay_ns: i64,
}

impl Delay {
    /// A delay of `delay_ns`.
    pub fn new(delay_ns: u64) -> Self {
        Self { delay_ns: i64::try_from(delay_ns).unwrap_or(i64::MAX) }
    }
}

impl Impairment for Delay {
    fn departure_ns(&mut self, now_ns: i64, _frame_bytes: usize) -> Result<i64, Fate> {
        Ok(now_ns.saturating_add(self.delay_ns))
    }
}
