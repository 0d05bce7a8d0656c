//! ACKs on their way from the tap to the sender of the data.
//!
//! ```text
//!   ACK at the tap --(tap to sender)--> sender --(sender to tap)--> first packet that may answer it
//! ```
//!
//! An ACK counts for packets that pass the tap one RTT (tap to sender) later. TCP timestamps show more: a packet echoes
//! the newest timestamp that its sender had received (RFC 7323, section 4.3), so every older ACK had arrived, and no
//! newer one. An ACK behind bytes whose timestamp cannot be echoed yet had not arrived either, while the packet does not
//! acknowledge those bytes. What an ACK acknowledges is not used.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use iscsitrace_wire::serial::SerialNumber;

use super::observation::{Observation, SACK_BLOCKS_MAX};
use crate::stream::class::SegmentClass;

/// Maximum number of ACKs on their way; beyond it the oldest counts as arrived.
const WAITING_MAX: usize = 4096;
/// A sender without a longer pause answers ACKs at once.
const PAUSE_NS: i64 = 2_000_000;

/// So long an ACK can wait in a queue; a sender that lacks what was sent before it for longer lost that.
const LOST_REQUEST_NS: i64 = 200_000_000;

/// One packet on its way to a sender.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Acknowledgment {
    /// Frame number.
    pub frame: u64,
    /// Capture time.
    pub time_ns: i64,
    /// Acknowledged offset.
    pub acknowledged: i64,
    /// The window field, not scaled.
    pub window: u16,
    /// Window scale, if known.
    pub window_scale: Option<u8>,
    /// Offset of its first byte in its own stream.
    pub offset: i64,
    /// Payload bytes: it may be a request.
    pub length: u32,
    /// Timestamp value and echo reply.
    pub timestamps: Option<(u32, u32)>,
    /// The number of SACK blocks.
    sack_count: u8,
}

/// SACK blocks of one packet.
type Blocks = [(i64, i64); SACK_BLOCKS_MAX];

/// The ACKs on their way to one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Acknowledgments {
    waiting: VecDeque<Acknowledgment>,
    /// SACK blocks of the ACKs that have some.
    blocks: VecDeque<Blocks>,
    /// Time from an ACK at the tap to its answer at the tap.
    delay_ns: i64,
    echo: Option<u32>,
    /// Timestamp of the last arrived ACK.
    taken: Option<u32>,
    last_packet_ns: i64,
    /// What the sender's last packet acknowledged: it does not echo timestamps of later segments.
    sender_acknowledged: i64,
    /// What its current packet acknowledges: it has nothing that was sent after later bytes.
    packet_acknowledged: i64,
}

impl Acknowledgments {
    /// Adds a packet to the sender. `least_ns` is the minimum RTT from the tap to the sender.
    #[inline]
    pub fn push(&mut self, seen: &Observation, acknowledged: i64, least_ns: i64) {
        if self.waiting.is_empty() {
            self.delay_ns = least_ns;
        }
        self.waiting.push_back(Acknowledgment {
            frame: seen.frame,
            time_ns: seen.time_ns,
            acknowledged,
            window: seen.window,
            window_scale: seen.window_scale,
            offset: seen.offset,
            length: seen.length,
            timestamps: seen.timestamps,
            sack_count: seen.sack_count,
        });
        if seen.sack_count > 0 {
            self.blocks.push_back(seen.sacks);
        }
    }

    /// Prefetches the oldest and the latest.
    pub fn prefetch(&self) {
        iscsitrace_sys::prefetch_ends(&self.waiting);
    }

    /// Whether the oldest ACK must be taken.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.waiting.len() > WAITING_MAX
    }

    /// Updates the answer time with the sender's next packet.
    #[inline]
    pub fn note_packet(&mut self, seen: &Observation, least_ns: i64) {
        let echo = seen.timestamps.map(|(_, echo)| echo);
        self.delay_ns = self.delay_ns.max(least_ns);
        if let Some(echo) = echo
            && self.echo != Some(echo)
        {
            let is_going_on = seen.time_ns.saturating_sub(self.last_packet_ns) < PAUSE_NS;
            self.delay_ns = least_ns;
            // beside the sender nothing can queue; a longer delay means that the sender waits for more room
            if is_going_on
                && least_ns > 0
                && let Some(first) =
                    self.waiting.iter().find(|waiting| waiting.timestamps.is_some_and(|(value, _)| value == echo))
            {
                self.delay_ns = seen.time_ns.saturating_sub(first.time_ns).max(least_ns);
            }
        }
        self.echo = echo;
        // a retransmission answers ACKs that report a loss, also behind a request that was lost
        let is_again = seen.class == SegmentClass::Retransmission;
        self.packet_acknowledged = seen.acknowledged.filter(|_| !is_again).unwrap_or(i64::MAX);
        self.last_packet_ns = seen.time_ns;
    }

    /// Notes what the sender's packets acknowledge.
    #[inline]
    pub fn note_acknowledged(&mut self, acknowledged: Option<i64>) {
        self.sender_acknowledged = self.sender_acknowledged.max(acknowledged.unwrap_or(0));
    }

    /// The next ACK that had reached the sender when it sent the packet at `time_ns`; with the earliest time of its
    /// answer at the tap, and its blocks.
    #[inline]
    pub fn next_due(&mut self, time_ns: i64) -> Option<(Acknowledgment, i64, Blocks)> {
        let front = self.waiting.front()?;
        let answer_ns = front.time_ns.saturating_add(self.delay_ns);
        let is_arrived = match (front.timestamps, self.echo) {
            (Some((value, _)), Some(echo)) if SerialNumber(echo).is_after(SerialNumber(value)) => true,
            (Some((value, _)), Some(echo)) if value == echo && self.taken != Some(value) => true,
            (Some((value, _)), Some(echo)) if SerialNumber(value).is_after(SerialNumber(echo)) => {
                let is_held_back =
                    front.offset > self.packet_acknowledged && time_ns.saturating_sub(answer_ns) < LOST_REQUEST_NS;
                answer_ns <= time_ns && front.offset > self.sender_acknowledged && !is_held_back
            }
            _ => answer_ns <= time_ns,
        };
        if !is_arrived {
            return None;
        }
        self.taken = front.timestamps.map(|(value, _)| value);
        self.take_oldest().map(|(waiting, blocks)| (waiting, answer_ns.min(time_ns), blocks))
    }

    /// What the last ACK that passed the tap by then acknowledges, and its window, not scaled; if it still waits.
    pub fn arrived_by(&self, time_ns: i64) -> Option<(i64, u16)> {
        let count = self.waiting.partition_point(|ack| ack.time_ns <= time_ns);
        count.checked_sub(1).and_then(|last| self.waiting.get(last)).map(|ack| (ack.acknowledged, ack.window))
    }

    /// The oldest ACK, if its timestamp is from before this one; and its blocks.
    pub fn take_before(&mut self, timestamp: u32) -> Option<(Acknowledgment, Blocks)> {
        let (value, _) = self.waiting.front()?.timestamps?;
        SerialNumber(timestamp).is_after(SerialNumber(value)).then(|| self.take_oldest()).flatten()
    }

    /// The oldest ACK, arrived or not, and its blocks.
    pub fn take_oldest(&mut self) -> Option<(Acknowledgment, Blocks)> {
        let waiting = self.waiting.pop_front()?;
        let blocks = if waiting.sack_count > 0 { self.blocks.pop_front() } else { None };
        Some((waiting, blocks.unwrap_or_default()))
    }
}

impl Acknowledgment {
    /// The number of SACK blocks.
    pub fn block_count(&self) -> usize {
        usize::from(self.sack_count)
    }
}
