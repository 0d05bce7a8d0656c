//! A DropTail queue: a FIFO before the line; a packet that arrives at a full queue is dropped. Holds only start times
//! and lengths, no packets; never reads a clock.

use std::collections::VecDeque;

/// The queue of a line.
#[derive(Debug)]
pub struct DropTail {
    limit_packets: u64,
    limit_bytes: u64,
    /// For each queued packet, when the line starts to send it and the bytes of its frame; times never decrease.
    waiting: VecDeque<(i64, u64)>,
    waiting_bytes: u64,
}

impl DropTail {
    /// An empty queue with these limits.
    pub fn new(limit_packets: Option<u64>, limit_bytes: Option<u64>) -> Self {
        Self {
            limit_packets: limit_packets.unwrap_or(u64::MAX),
            limit_bytes: limit_bytes.unwrap_or(u64::MAX),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// Packets and bytes in the queue at `now_ns`: those that the line has not started to send.
    pub fn waiting(&mut self, now_ns: i64) -> (u64, u64) {
        while let Some((begin_ns, bytes)) = self.waiting.front().copied() {
            if begin_ns > now_ns {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= bytes;
        }
        (self.waiting.len() as u64, self.waiting_bytes)
    }

    /// Whether the queue has room for a packet of `bytes` from `now_ns` to `begin_ns`. A packet that the line sends at
    /// once needs no room.
    pub fn admit(&mut self, now_ns: i64, begin_ns: i64, bytes: u64) -> bool {
        if begin_ns <= now_ns {
            return true;
        }
        let (packets, waiting_bytes) = self.waiting(now_ns);
        if packets >= self.limit_packets || waiting_bytes.saturating_add(bytes) > self.limit_bytes {
            return false;
        }
        self.waiting.push_back((begin_ns, bytes));
        self.waiting_bytes += bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_leaves_the_queue_when_its_transmission_starts() {
        let mut queue = DropTail::new(Some(2), None);
        assert!(queue.admit(0, 0, 100), "the line is free");
        assert!(queue.admit(0, 10, 100));
        assert!(queue.admit(0, 20, 100));
        assert!(!queue.admit(9, 30, 100), "two wait");
        assert_eq!(queue.waiting(9), (2, 200));
        assert!(queue.admit(10, 30, 100), "the line began with one of them");
        assert_eq!(queue.waiting(30), (0, 0));
    }

    #[test]
    fn the_byte_limit_applies_too() {
        let mut queue = DropTail::new(None, Some(250));
        assert!(queue.admit(0, 10, 200));
        assert!(!queue.admit(0, 20, 51));
        assert!(queue.admit(0, 20, 50), "a smaller one still fits");
        let mut none = DropTail::new(Some(0), None);
        assert!(none.admit(0, 0, 1500) && !none.admit(1, 2, 1500), "no queue: only a free line takes a packet");
    }
}
