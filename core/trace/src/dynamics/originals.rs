//! Which packet carried a byte past the tap first.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use crate::growth::push_back;
use crate::stream::near::{Near, lower};

/// Acknowledged packets that are kept: a retransmission can follow the ACK.
const ACKNOWLEDGED_MAX: usize = 512;
/// Packets that are kept in all.
const PACKETS_MAX: usize = 1 << 16;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Original {
    start: u32,
    end: u32,
    frame: u64,
    time_ns: i64,
}

/// The latest packets of one direction, ordered by offset.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Originals {
    packets: VecDeque<Original>,
    near: Near,
}

impl Originals {
    /// Prefetches its ends.
    pub fn prefetch(&self) {
        iscsitrace_sys::prefetch_ends(&self.packets);
    }

    /// Adds a packet; for bytes that came before, the first packet counts.
    #[inline]
    pub fn push(&mut self, start: i64, end: i64, frame: u64, time_ns: i64, una: i64) {
        if let Some(moved) = self.near.reach(end) {
            self.packets.retain_mut(|packet| lower(&mut packet.start, moved) && lower(&mut packet.end, moved));
        }
        let [start, end] = [start, end].map(|offset| self.near.of(offset));
        let original = Original { start, end, frame, time_ns };
        if self.packets.back().is_none_or(|last| last.end <= start) {
            push_back(&mut self.packets, original);
        } else {
            let place = self.packets.partition_point(|packet| packet.end <= start);
            if self.packets.get(place).is_some_and(|next| start < next.start) {
                self.packets.insert(place, original);
            }
        }
        let is_old = |first: &Original| first.end <= self.near.of(una);
        if self.packets.len() > PACKETS_MAX
            || (self.packets.len() > ACKNOWLEDGED_MAX && self.packets.front().is_some_and(is_old))
        {
            self.packets.pop_front();
        }
    }

    /// Frame and capture time of the packet that first carried the byte at an offset.
    pub fn of(&self, place: i64) -> Option<(u64, i64)> {
        let place = self.near.of(place);
        let index = self.packets.partition_point(|packet| packet.end <= place);
        self.packets.get(index).filter(|packet| packet.start <= place).map(|packet| (packet.frame, packet.time_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_packet_counts_and_holes_have_none() {
        let mut originals = Originals::default();
        originals.push(0, 100, 1, 10, 0);
        originals.push(200, 300, 2, 20, 0);
        originals.push(0, 100, 3, 30, 0);
        assert_eq!(
            [0, 99, 100, 250, 300].map(|place| originals.of(place).map(|(frame, _)| frame)),
            [Some(1), Some(1), None, Some(2), None]
        );
        originals.push(100, 200, 4, 40, 0);
        assert_eq!(originals.of(150), Some((4, 40)));
    }

    #[test]
    fn acknowledged_packets_are_kept_up_to_512() {
        let mut originals = Originals::default();
        for packet in 0..512 {
            originals.push(packet * 100, packet * 100 + 100, 1, 0, 100);
        }
        assert_eq!(originals.of(0), Some((1, 0)));
        // the first is acknowledged, the second is not
        for packet in 512..514 {
            originals.push(packet * 100, packet * 100 + 100, 1, 0, 100);
        }
        assert_eq!((originals.of(0), originals.of(100)), (None, Some((1, 0))));
    }
}
