//! Impairments in series: a packet enters the next part at the time at which it leaves the one before. The chain itself
//! adds no delay and no loss.

use std::collections::VecDeque;

use super::impairment::{Impairment, Packet};
use super::log::{Fate, LineLog};
use crate::occurrence::Hits;

/// A part, and the packets that have not left it.
#[derive(Debug)]
struct Stage<P> {
    part: Box<dyn Impairment>,
    /// With their departure times, in the order of departure: at equal times the first to arrive leaves first.
    under_way: VecDeque<(i64, P)>,
}

impl<P> Stage<P> {
    fn push(&mut self, ready_ns: i64, packet: P) {
        let place = self.under_way.partition_point(|(other_ns, _)| *other_ns <= ready_ns);
        self.under_way.insert(place, (ready_ns, packet));
    }

    fn pop_ready(&mut self, now_ns: i64) -> Option<(i64, P)> {
        self.next_ready().filter(|ready_ns| *ready_ns <= now_ns)?;
        self.under_way.pop_front()
    }

    fn next_ready(&self) -> Option<i64> {
        self.under_way.front().map(|(ready_ns, _)| *ready_ns)
    }
}

/// Impairments in the order in which packets meet them.
#[derive(Debug)]
pub struct Chain<P> {
    stages: Vec<Stage<P>>,
    dropped: VecDeque<(i64, P, Fate)>,
}

impl<P: Packet> Chain<P> {
    /// A chain of these parts, at least one.
    pub fn new(parts: Vec<Box<dyn Impairment>>) -> Self {
        let stages = parts.into_iter().map(|part| Stage { part, under_way: VecDeque::new() });
        Self { stages: stages.collect(), dropped: VecDeque::new() }
    }

    /// Takes a packet that arrives at `now_ns`.
    pub fn enqueue(&mut self, now_ns: i64, packet: P) {
        self.enter(0, now_ns, packet);
    }

    /// The next packet that has left the last part by `now_ns`, with the time at which it left.
    pub fn dequeue_ready(&mut self, now_ns: i64) -> Option<(i64, P)> {
        for next in 1..self.stages.len() {
            while let Some((ready_ns, packet)) = self.stages[next - 1].pop_ready(now_ns) {
                self.enter(next, ready_ns, packet);
            }
        }
        self.stages.last_mut()?.pop_ready(now_ns)
    }

    /// The next packet that a part dropped, with the time and its fate.
    pub fn next_dropped(&mut self) -> Option<(i64, P, Fate)> {
        self.dropped.pop_front()
    }

    /// When the next packet leaves the chain, or has to be moved to its next part.
    pub fn next_ready(&self) -> Option<i64> {
        self.stages.iter().filter_map(Stage::next_ready).min()
    }

    /// Busy times of the first line of the chain.
    pub fn line(&self) -> Option<&LineLog> {
        self.stages.iter().find_map(|stage| stage.part.line())
    }

    /// The workload begins, from which the times of faults count.
    pub fn workload_begins(&mut self, now_ns: i64) {
        self.stages.iter_mut().for_each(|stage| stage.part.workload_begins(now_ns));
    }

    /// What the faults among its parts hit.
    pub fn hits(&self) -> Vec<Hits> {
        self.stages.iter().filter_map(|stage| stage.part.hits()).collect()
    }

    /// Moves a packet through the parts from `place` on. A part that keeps the order passes it on ahead of time. In a
    /// part that reorders it stays until it is ready, because a later packet may overtake.
    fn enter(&mut self, place: usize, mut now_ns: i64, packet: P) {
        let last = self.stages.len().saturating_sub(1);
        for (place, stage) in self.stages.iter_mut().enumerate().skip(place) {
            match stage.part.departure_ns(now_ns, packet.frame_bytes()) {
                Err(fate) => return self.dropped.push_back((now_ns, packet, fate)),
                Ok(ready_ns) if place < last && stage.part.is_keeping_order() => now_ns = ready_ns,
                Ok(ready_ns) => return stage.push(ready_ns, packet),
            }
        }
    }
}
