//! Impairments one behind the other: what leaves one comes to the next at that very time. Adds no time and no loss of its
//! own.

use std::collections::VecDeque;

use super::impairment::{Dropped, Impairment};
use super::log::LineLog;

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

    /// The next packet that a part did not take, and when that was.
    pub fn next_dropped(&mut self) -> Option<(i64, Dropped<P>)> {
        self.dropped.pop_front()
    }

    /// When a packet leaves, or comes to a part that decides about it only then.
    pub fn next_ready(&self) -> Option<i64> {
        self.parts.iter().filter_map(|part| part.next_ready()).min()
    }

    /// When the first line of the chain was busy.
    pub fn line(&self) -> Option<&LineLog> {
        self.parts.iter().find_map(|part| part.line())
    }

    fn enter(&mut self, part: usize, now_ns: i64, packet: P) {
        let Some(part) = self.parts.get_mut(part) else { return };
        if let Err(dropped) = part.enqueue(now_ns, packet) {
            self.dropped.push_back((now_ns, dropped));
        }
    }

    /// Moves packets from each part to the next. A part that keeps the order hands on ahead of time; one that does not has
    /// to wait, for a packet that is still to come may overtake: it hands on what is ready by the time given.
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
