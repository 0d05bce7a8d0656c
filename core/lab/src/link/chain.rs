//! Impairments in series: a packet enters the next part at the time at which it leaves the one before. The chain itself
//! adds no delay and no loss.

use std::collections::VecDeque;

use super::impairment::{Dropped, Impairment};
use super::log::LineLog;
use crate::occurrence::Hits;

/// Impairments in the order in which packets meet them.
#[derive(Debug)]
pub struct Chain<P> {
    parts: Vec<Box<dyn Impairment<P>>>,
    dropped: VecDeque<(i64, Dropped<P>)>,
}

impl<P: Send> Chain<P> {
    /// A chain of these parts, at least one.
    pub fn new(parts: Vec<Box<dyn Impairment<P>>>) -> Self {
        Self { parts, dropped: VecDeque::new() }
    }

    /// Takes a packet that arrives at `now_ns`.
    pub fn enqueue(&mut self, now_ns: i64, packet: P) {
        self.enter(0, now_ns, packet);
        self.hand_on(None);
    }

    /// The next packet that has left the last part by `now_ns`, with the time at which it left.
    pub fn dequeue_ready(&mut self, now_ns: i64) -> Option<(i64, P)> {
        self.hand_on(Some(now_ns));
        self.parts.last_mut()?.dequeue_ready(now_ns)
    }

    /// The next packet that a part dropped, with the time.
    pub fn next_dropped(&mut self) -> Option<(i64, Dropped<P>)> {
        self.dropped.pop_front()
    }

    /// When the next packet leaves the chain, or has to be moved to its next part.
    pub fn next_ready(&self) -> Option<i64> {
        self.parts.iter().filter_map(|part| part.next_ready()).min()
    }

    /// Busy times of the first line of the chain.
    pub fn line(&self) -> Option<&LineLog> {
        self.parts.iter().find_map(|part| part.line())
    }

    /// The workload begins, from which the times of faults count.
    pub fn workload_begins(&mut self, now_ns: i64) {
        self.parts.iter_mut().for_each(|part| part.workload_begins(now_ns));
    }

    /// What the faults among its parts hit.
    pub fn hits(&self) -> Vec<Hits> {
        self.parts.iter().filter_map(|part| part.hits()).collect()
    }

    fn enter(&mut self, part: usize, now_ns: i64, packet: P) {
        let Some(part) = self.parts.get_mut(part) else { return };
        if let Err(dropped) = part.enqueue(now_ns, packet) {
            self.dropped.push_back((now_ns, dropped));
        }
    }

    /// Moves packets from each part to the next. A part that keeps the order passes packets on ahead of time. A part
    /// that reorders passes on only packets that are ready by `now_ns`, because a later packet may overtake.
    fn hand_on(&mut self, now_ns: Option<i64>) {
        for next in 1..self.parts.len() {
            let until_ns = if self.parts[next - 1].is_keeping_order() { Some(i64::MAX) } else { now_ns };
            let Some(until_ns) = until_ns else { continue };
            while let Some((ready_ns, packet)) = self.parts[next - 1].dequeue_ready(until_ns) {
                self.enter(next, ready_ns, packet);
            }
        }
    }
}
