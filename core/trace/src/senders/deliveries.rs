//! The bytes of one direction as they came out of the line: at the tap, and at the receiver as its ACKs show.
//!
//! ```text
//! begun_ns   the packet that this one answers passes the tap    data for an ACK, an ACK for data
//! time_ns    the answer passes the tap                          time_ns - begun_ns = RTT, with queues
//! ```
//!
//! What the RTT of the path does not explain of that time, the bytes spent in a queue.

use serde::{Deserialize, Serialize};

use super::observation::Observation;
pub use super::packed::Delivery;
use super::packed::Packed;

/// Deliveries that follow each other out of one queue are one up to this many full segments.
const JOINED_SEGMENTS: i64 = 2;

/// The deliveries of one direction.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Deliveries {
    /// At the tap: a queue before it shows in how late the sender's answers arrive.
    pub arrived: Packed<Delivery>,
    /// At the receiver: a queue behind the tap shows in how late ACKs arrive.
    pub acknowledged: Packed<Delivery>,
    /// Payload of all packets, and their number as full segments on the line.
    pub payload_bytes: u64,
    /// That number.
    pub packet_count: u64,
    /// Whether packets carry TCP timestamps.
    pub has_timestamps: bool,
    /// Payload of a full segment.
    pub segment_bytes: i64,
    /// When the latest packet of the receiver passed that the sender has answered.
    answered_ns: Option<i64>,
}

impl Deliveries {
    /// Prefetches what its state points to.
    pub fn prefetch(&self) {
        self.arrived.prefetch();
        self.acknowledged.prefetch();
    }

    /// Notes a packet with payload. `answered_ns` is when the latest of those packets passed that it answers: with the
    /// bytes that it acknowledges, or with the timestamp that it echoes. `path_ns` is the RTT between tap and sender.
    pub fn arrive(&mut self, seen: &Observation, segment_bytes: i64, answered_ns: Option<i64>, path_ns: i64) {
        self.segment_bytes = segment_bytes;
        self.has_timestamps |= seen.timestamps.is_some();
        self.payload_bytes += u64::from(seen.length);
        let segment = u32::try_from(segment_bytes).unwrap_or(u32::MAX).max(1);
        self.packet_count += u64::from(seen.length.div_ceil(segment));
        // what the sender knew, it knows: an end that delays an ACK echoes an old timestamp meanwhile
        self.answered_ns = answered_ns.max(self.answered_ns);
        let delivery = Delivery { time_ns: seen.time_ns, begun_ns: self.answered_ns, bytes: seen.length };
        note(&mut self.arrived, delivery, segment_bytes, path_ns);
    }

    /// Notes a packet of the receiver, which acknowledges `bytes` more; the latest of them passed the tap at
    /// `answered_ns`. `path_ns` is the RTT between tap and receiver.
    pub fn acknowledge(&mut self, seen: &Observation, bytes: u32, answered_ns: Option<i64>, path_ns: i64) {
        if bytes > 0 {
            let delivery = Delivery { time_ns: seen.time_ns, begun_ns: answered_ns, bytes };
            note(&mut self.acknowledged, delivery, self.segment_bytes, path_ns);
        }
    }

    /// Removes deliveries from before.
    pub fn forget(&mut self, before_ns: i64) {
        self.arrived.forget(before_ns);
        self.acknowledged.forget(before_ns);
    }

    /// Drops what only more packets need.
    pub fn end(mut self) -> Self {
        self.arrived.shrink();
        self.acknowledged.shrink();
        self
    }
}

/// Adds a delivery. It is one with the last if both have the same time, or came out of one queue.
fn note(deliveries: &mut Packed<Delivery>, next: Delivery, segment_bytes: i64, path_ns: i64) {
    if let Some(last) = deliveries.last_mut() {
        let is_queued = next.begun_ns.is_some_and(|begun_ns| begun_ns.saturating_add(path_ns) <= last.time_ns);
        let is_small = i64::from(last.bytes) + i64::from(next.bytes) <= JOINED_SEGMENTS * segment_bytes;
        if next.time_ns <= last.time_ns || is_queued && is_small {
            last.time_ns = last.time_ns.max(next.time_ns);
            last.bytes = last.bytes.saturating_add(next.bytes);
            last.begun_ns = match (last.begun_ns, next.begun_ns) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            return;
        }
    }
    deliveries.push(next);
}
