//! ACKs that passed the tap and wait until their sender of data has them.
//!
//! ```text
//!   ACK at the tap --(tap to sender)--> sender --(sender to tap)--> first packet that may answer it
//! ```
//!
//! An ACK is due for the packets that pass the tap a round trip between tap and sender later. TCP's timestamps tell more:
//! a packet echoes the newest timestamp that its sender had taken (RFC 7323, section 4.3), so that every older ACK had
//! arrived, and no newer one. It never looks at what an ACK acknowledges.

use std::collections::VecDeque;

use super::observation::{Observation, SACK_BLOCKS_MAX};

/// ACKs that may wait; the oldest is taken for arrived when there are more.
const WAITING_MAX: usize = 4096;
/// A sender that goes on without a longer pause answers ACKs at once.
const PAUSE_NS: i64 = 2_000_000;

/// One packet on its way to a sender.
#[derive(Debug, Clone, Copy)]
pub struct Acknowledgment {
    /// Its number.
    pub frame: u64,
    /// Its capture time.
    pub time_ns: i64,
    /// What it acknowledges.
    pub acknowledged: i64,
    /// The window field as it stands in the header.
    pub window: u16,
    /// The shift of the window field, when it is known.
    pub window_scale: Option<u8>,
    /// Place of its first byte in its own stream.
    pub offset: i64,
    /// Payload: it may ask for something.
    pub length: u32,
    /// Its own timestamp, and the one that it echoes.
    pub timestamps: Option<(u32, u32)>,
    /// How many blocks it selectively acknowledges.
    sack_count: u8,
}

/// Blocks of one packet.
type Blocks = [(i64, i64); SACK_BLOCKS_MAX];

/// ACKs under way to one sender.
#[derive(Debug, Default)]
pub struct Acknowledgments {
    waiting: VecDeque<Acknowledgment>,
    /// Of those that have some.
    blocks: VecDeque<Blocks>,
    /// From an ACK at the tap to its answer at the tap.
    delay_ns: i64,
    echo: Option<u32>,
    /// The timestamp of the last ACK that was taken.
    taken: Option<u32>,
    last_packet_ns: i64,
    /// What the sender's last packet acknowledged: of segments beyond it the timestamp is not echoed.
    sender_acknowledged: i64,
}

/// Whether timestamp `a` is newer than `b` (RFC 7323, section 5.2).
fn is_newer(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

impl Acknowledgments {
    /// A packet to the sender passed the tap; `least_ns` is the least round trip from the tap to the sender.
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

    /// Whether so many wait that the oldest is to be taken.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.waiting.len() > WAITING_MAX
    }

    /// The sender's next packet passed the tap: finds out how long its answers take now.
    #[inline]
    pub fn note_packet(&mut self, seen: &Observation, least_ns: i64) {
        let echo = seen.timestamps.map(|(_, echo)| echo);
        self.delay_ns = self.delay_ns.max(least_ns);
        if let Some(echo) = echo
            && self.echo != Some(echo)
        {
            let is_going_on = seen.time_ns.saturating_sub(self.last_packet_ns) < PAUSE_NS;
            self.delay_ns = least_ns;
            // beside the sender nothing can queue; what takes longer is a sender that waits for more room
            if is_going_on
                && least_ns > 0
                && let Some(first) =
                    self.waiting.iter().find(|waiting| waiting.timestamps.is_some_and(|(value, _)| value == echo))
            {
                self.delay_ns = seen.time_ns.saturating_sub(first.time_ns).max(least_ns);
            }
        }
        self.echo = echo;
        self.last_packet_ns = seen.time_ns;
    }

    /// What the sender acknowledges with its packets.
    #[inline]
    pub fn note_acknowledged(&mut self, acknowledged: Option<i64>) {
        self.sender_acknowledged = self.sender_acknowledged.max(acknowledged.unwrap_or(0));
    }

    /// The next ACK that the sender had when it sent what passes the tap at `time_ns`, when its answer could pass the
    /// tap first, and its blocks.
    #[inline]
    pub fn next_due(&mut self, time_ns: i64) -> Option<(Acknowledgment, i64, Blocks)> {
        let front = self.waiting.front()?;
        let answer_ns = front.time_ns.saturating_add(self.delay_ns);
        let is_arrived = match (front.timestamps, self.echo) {
            (Some((value, _)), Some(echo)) if is_newer(echo, value) => true,
            (Some((value, _)), Some(echo)) if value == echo && self.taken != Some(value) => true,
            (Some((value, _)), Some(echo)) if is_newer(value, echo) => {
                answer_ns <= time_ns && front.offset > self.sender_acknowledged
            }
            _ => answer_ns <= time_ns,
        };
        if !is_arrived {
            return None;
        }
        self.taken = front.timestamps.map(|(value, _)| value);
        self.take_oldest().map(|(waiting, blocks)| (waiting, answer_ns.min(time_ns), blocks))
    }

    /// The oldest ACK, arrived or not, and its blocks.
    pub fn take_oldest(&mut self) -> Option<(Acknowledgment, Blocks)> {
        let waiting = self.waiting.pop_front()?;
        let blocks = if waiting.sack_count > 0 { self.blocks.pop_front() } else { None };
        Some((waiting, blocks.unwrap_or_default()))
    }
}

impl Acknowledgment {
    /// How many blocks it selectively acknowledges.
    pub fn block_count(&self) -> usize {
        usize::from(self.sack_count)
    }
}
