//! A FIFO of packets with departure times. Decides nothing.

use std::collections::VecDeque;

/// Packets with their departure times, which never decrease.
#[derive(Debug)]
pub(super) struct InOrder<P> {
    packets: VecDeque<(i64, P)>,
}

impl<P> InOrder<P> {
    pub(super) fn new() -> Self {
        Self { packets: VecDeque::new() }
    }

    pub(super) fn push(&mut self, ready_ns: i64, packet: P) {
        self.packets.push_back((ready_ns, packet));
    }

    pub(super) fn pop_ready(&mut self, now_ns: i64) -> Option<(i64, P)> {
        if self.next_ready()? > now_ns {
            return None;
        }
        self.packets.pop_front()
    }

    pub(super) fn next_ready(&self) -> Option<i64> {
        self.packets.front().map(|(ready_ns, _)| *ready_ns)
    }
}
