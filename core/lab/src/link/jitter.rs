//! Jitter: a uniformly distributed delay, with or without reordering. Drops no packet.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use fastrand::Rng;

use super::impairment::{Dropped, Impairment};
use super::in_order::InOrder;

/// Jitter that keeps the order: a packet leaves no earlier than the one before it.
#[derive(Debug)]
pub struct OrderedJitter<P> {
    jitter_ns: u64,
    random: Rng,
    last_ready_ns: i64,
    under_way: InOrder<P>,
}

impl<P> OrderedJitter<P> {
    /// Jitter from 0 to `jitter_ns`.
    pub fn new(jitter_ns: u64, seed: u64) -> Self {
        let random = Rng::with_seed(seed);
        Self { jitter_ns, random, last_ready_ns: i64::MIN, under_way: InOrder::new() }
    }
}

impl<P: std::fmt::Debug + Send> Impairment<P> for OrderedJitter<P> {
    fn enqueue(&mut self, now_ns: i64, packet: P) -> Result<(), Dropped<P>> {
        self.last_ready_ns = self.last_ready_ns.max(draw_ready(&mut self.random, now_ns, self.jitter_ns));
        self.under_way.push(self.last_ready_ns, packet);
        Ok(())
    }

    fn dequeue_ready(&mut self, now_ns: i64) -> Option<(i64, P)> {
        self.under_way.pop_ready(now_ns)
    }

    fn next_ready(&self) -> Option<i64> {
        self.under_way.next_ready()
    }
}

/// Jitter that reorders packets.
#[derive(Debug)]
pub struct Jitter<P> {
    jitter_ns: u64,
    random: Rng,
    arrived_count: u64,
    under_way: BinaryHeap<Reverse<Held<P>>>,
}

/// A packet in a heap, ordered by departure time, then by arrival.
#[derive(Debug)]
struct Held<P> {
    leaves: (i64, u64),
    packet: P,
}

impl<P> PartialEq for Held<P> {
    fn eq(&self, other: &Self) -> bool {
        self.leaves == other.leaves
    }
}

impl<P> Eq for Held<P> {}

impl<P> PartialOrd for Held<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for Held<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.leaves.cmp(&other.leaves)
    }
}

impl<P> Jitter<P> {
    /// Jitter from 0 to `jitter_ns`.
    pub fn new(jitter_ns: u64, seed: u64) -> Self {
        Self { jitter_ns, random: Rng::with_seed(seed), arrived_count: 0, under_way: BinaryHeap::new() }
    }
}

impl<P: std::fmt::Debug + Send> Impairment<P> for Jitter<P> {
    fn enqueue(&mut self, now_ns: i64, packet: P) -> Result<(), Dropped<P>> {
        let leaves = (draw_ready(&mut self.random, now_ns, self.jitter_ns), self.arrived_count);
        self.arrived_count += 1;
        self.under_way.push(Reverse(Held { leaves, packet }));
        Ok(())
    }

    fn dequeue_ready(&mut self, now_ns: i64) -> Option<(i64, P)> {
        if self.next_ready()? > now_ns {
            return None;
        }
        self.under_way.pop().map(|Reverse(held)| (held.leaves.0, held.packet))
    }

    fn next_ready(&self) -> Option<i64> {
        self.under_way.peek().map(|Reverse(held)| held.leaves.0)
    }

    fn is_keeping_order(&self) -> bool {
        false
    }
}

fn draw_ready(random: &mut Rng, now_ns: i64, jitter_ns: u64) -> i64 {
    now_ns.saturating_add(i64::try_from(random.u64(0..=jitter_ns)).unwrap_or(i64::MAX))
}
