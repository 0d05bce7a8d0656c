//! The ledger of sent packets of one direction: which packet first carried a byte past the tap, and when.
//!
//! ```text
//!   acknowledged (kept for late retransmissions)   in flight
//!   [packet][packet]| ....                       |[packet][packet]   ordered by offset, first copies only
//! ```
//!
//! Everything that is asked of a sent packet is looked up here: its round-trip time, the original of a retransmission, the
//! oldest byte in flight, and what the segments in flight lack to be full ones. It never judges.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use super::observation::Observation;
use super::segment_size::SegmentSize;
use crate::stream::class::SegmentClass;
use crate::stream::near::{Near, lower};

/// Acknowledged packets that are kept: a retransmission can follow the ACK.
const ACKNOWLEDGED_MAX: usize = 512;
/// Packets that are kept in all.
const PACKETS_MAX: usize = 1 << 16;

/// The first copy of a packet.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Packet {
    start: u32,
    end: u32,
    /// What all segments up to this one lack to be full, modulo 2^32.
    short: u32,
    frame: u64,
    time_ns: i64,
}

/// When a byte first passed the tap, and in which frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Original {
    /// Capture time.
    pub time_ns: i64,
    /// Frame number.
    pub frame: u64,
}

/// The sent packets of one direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Flight {
    packets: VecDeque<Packet>,
    near: Near,
    size: SegmentSize,
    /// The highest offset sent; none before the first packet.
    highest: Option<i64>,
    /// What all segments so far lack to be full: the congestion window counts segments (RFC 5681, section 3.1).
    short: i64,
    /// The same up to the last packet that was removed, modulo 2^32.
    removed_short: u32,
}

impl Flight {
    /// Prefetches its ends.
    pub fn prefetch(&self) {
        iscsitrace_sys::prefetch_ends(&self.packets);
    }

    /// The payload of a full segment.
    #[inline]
    pub fn size(&self) -> &SegmentSize {
        &self.size
    }

    /// The highest offset sent, retransmissions included; none before the first packet.
    #[inline]
    pub fn highest(&self) -> Option<i64> {
        self.highest
    }

    /// Notes a packet with payload. For bytes that came before, the first packet counts. `una` is the first byte that the
    /// sender does not know to be acknowledged.
    #[inline]
    pub fn send(&mut self, seen: &Observation, una: i64) {
        if matches!(seen.class, SegmentClass::Probe | SegmentClass::Copy | SegmentClass::Outside) {
            return;
        }
        self.size.note(seen.length, seen.segment_max, seen.timestamps.is_some());
        if let Some(moved) = self.near.reach(seen.end()) {
            self.packets.retain_mut(|packet| lower(&mut packet.start, moved) && lower(&mut packet.end, moved));
        }
        self.highest = self.highest.max(Some(seen.end()));
        let [start, end] = [seen.offset, seen.end()].map(|offset| self.near.of(offset));
        let mut packet = Packet { start, end, short: self.short as u32, frame: seen.frame, time_ns: seen.time_ns };
        let lacks = self.lacks(seen);
        if self.packets.back().is_none_or(|last| last.end <= start) {
            self.short += i64::from(lacks);
            packet.short = self.short as u32;
            self.packets.push_back(packet);
        } else {
            let place = self.packets.partition_point(|packet| packet.end <= start);
            if self.packets.get(place).is_some_and(|next| start < next.start) {
                // it was overtaken, or lost before the tap
                self.short += i64::from(lacks);
                packet.short = self.short_before(place).wrapping_add(lacks);
                self.packets.range_mut(place..).for_each(|later| later.short = later.short.wrapping_add(lacks));
                self.packets.insert(place, packet);
            }
        }
        let is_old = |first: &Packet| first.end <= self.near.of(una);
        if (self.packets.len() > PACKETS_MAX
            || (self.packets.len() > ACKNOWLEDGED_MAX && self.packets.front().is_some_and(is_old)))
            && let Some(first) = self.packets.pop_front()
        {
            self.removed_short = first.short;
        }
    }

    /// What a packet lacks to be made of full segments. A retransmission may cover parts of several.
    #[inline]
    fn lacks(&self, seen: &Observation) -> u32 {
        let over = i64::from(seen.length) % self.size.bytes();
        let lacks = if over == 0 || seen.class == SegmentClass::Retransmission { 0 } else { self.size.bytes() - over };
        lacks as u32
    }

    /// What all segments before this place in the ledger lack, modulo 2^32.
    #[inline]
    fn short_before(&self, place: usize) -> u32 {
        place.checked_sub(1).and_then(|last| self.packets.get(last)).map_or(self.removed_short, |last| last.short)
    }

    /// The packet that first carried the byte at an offset.
    pub fn original(&self, offset: i64) -> Option<Original> {
        let offset = self.near.of(offset);
        let place = self.packets.partition_point(|packet| packet.end <= offset);
        let packet = self.packets.get(place).filter(|packet| packet.start <= offset)?;
        Some(Original { time_ns: packet.time_ns, frame: packet.frame })
    }

    /// When the last packet passed that ends after one offset, and not after another.
    #[inline]
    pub fn last_between(&self, after: i64, until: i64) -> Option<i64> {
        let [after, until] = [after, until].map(|offset| self.near.of(offset));
        let place = self.packets.partition_point(|packet| packet.end <= until);
        let last = place.checked_sub(1).and_then(|last| self.packets.get(last))?;
        (last.end > after).then_some(last.time_ns)
    }

    /// When the first packet passed that ends beyond an offset.
    #[inline]
    pub fn first_beyond(&self, offset: i64) -> Option<i64> {
        let offset = self.near.of(offset);
        let place = self.packets.partition_point(|packet| packet.end <= offset);
        self.packets.get(place).map(|packet| packet.time_ns)
    }

    /// What all segments so far lack to be full.
    #[inline]
    pub fn short(&self) -> i64 {
        self.short
    }

    /// What the segments from `una` on lack to be full.
    #[inline]
    pub fn short_from(&self, una: i64) -> i64 {
        let una = self.near.of(una);
        let place = self.packets.partition_point(|packet| packet.end <= una);
        i64::from((self.short as u32).wrapping_sub(self.short_before(place)))
    }
}
