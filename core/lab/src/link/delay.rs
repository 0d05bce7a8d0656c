//! A fixed delay. Any number of packets can be in transit; none is dropped.

use super::impairment::{Dropped, Impairment};
use super::in_order::InOrder;

/// A fixed delay.
#[derive(Debug)]
pub struct Delay<P> {
    delay_ns: i64,
    under_way: InOrder<P>,
}

impl<P> Delay<P> {
    /// A delay without packets.
    pub fn new(delay_ns: u64) -> Self {
        Self { delay_ns: i64::try_from(delay_ns).unwrap_or(i64::MAX), under_way: InOrder::new() }
    }
}

impl<P: std::fmt::Debug + Send> Impairment<P> for Delay<P> {
    fn enqueue(&mut self, now_ns: i64, packet: P) -> Result<(), Dropped<P>> {
        self.under_way.push(now_ns.saturating_add(self.delay_ns), packet);
        Ok(())
    }

    fn dequeue_ready(&mut self, now_ns: i64) -> Option<(i64, P)> {
        self.under_way.pop_ready(now_ns)
    }

    fn next_ready(&self) -> Option<i64> {
        self.under_way.next_ready()
    }
}
