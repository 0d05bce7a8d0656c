//! The ledger of ACKs to one sender: what passed the tap, and what of it had reached the sender.
//!
//! ```text
//!   ACK at the tap --(tap to sender)--> sender --(sender to tap)--> first packet that may answer it
//!
//!   [arrived, not echoed yet][on their way to the sender           ]    in the order of the tap
//!                            ^ arrived
//! ```
//!
//! An ACK counts for packets that pass the tap one RTT (tap to sender) later. TCP timestamps show more: a packet echoes
//! the newest timestamp that its sender had received (RFC 7323, section 4.3), so every older ACK had arrived, and no
//! newer one. An ACK behind bytes whose timestamp cannot be echoed yet had not arrived either, while the packet does not
//! acknowledge those bytes; of ACKs with one timestamp, all before the bytes that it does acknowledge had. What an ACK
//! acknowledges is not used.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use iscsitrace_wire::serial::SerialNumber;

use super::gap::TIMER_MIN_NS;
use super::observation::{Observation, SACK_BLOCKS_MAX};
use super::sender_state::SenderNs;
use crate::stream::class::SegmentClass;

/// Maximum number of ACKs on their way; beyond it the oldest counts as arrived.
const WAITING_MAX: usize = 4096;
/// Maximum number of ACKs that are kept, arrived or not.
const KEPT_MAX: usize = 2 * WAITING_MAX;
/// A sender without a longer pause answers ACKs at once.
const PAUSE_NS: i64 = 2_000_000;

/// So long an ACK can wait in a queue; a sender that lacks what was sent before it for longer lost that.
const LOST_REQUEST_NS: i64 = 200_000_000;

/// One packet to a sender.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Ack {
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

impl Ack {
    /// The number of SACK blocks.
    pub fn block_count(&self) -> usize {
        usize::from(self.sack_count)
    }
}

/// SACK blocks of one packet.
type Blocks = [(i64, i64); SACK_BLOCKS_MAX];

/// The ACKs of one tick of the receiver's clock: which of them a packet that echoes it answers is unknown.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Tick {
    /// The timestamp value.
    pub timestamp: SerialNumber,
    /// When the first of them passed the tap.
    pub time_ns: i64,
    /// The last acknowledged offset.
    pub acknowledged: i64,
    /// The last window field, not scaled.
    pub window: u16,
}

impl Tick {
    fn of(ack: &Ack, value: u32) -> Self {
        Self {
            timestamp: SerialNumber(value),
            time_ns: ack.time_ns,
            acknowledged: ack.acknowledged,
            window: ack.window,
        }
    }

    /// The window in bytes, and its right edge.
    pub fn window(&self, shift: u8) -> (i64, i64) {
        let window = i64::from(self.window) << shift;
        (window, self.acknowledged.saturating_add(window))
    }
}

/// What the newest timestamp that the sender echoed shows of the ACKs.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub struct Echoed {
    /// The ACKs of the last tick before the echoed one: the sender had them.
    before: Option<Tick>,
    /// The ACKs of the echoed tick: the sender had at least one of them. And when the last of its packets passed the tap.
    tick: Option<Tick>,
    last_ns: i64,
}

impl Echoed {
    /// What the sender had for certain with the packet that echoes this.
    pub fn before(&self, echo: SerialNumber) -> Option<Tick> {
        self.before.filter(|tick| tick.timestamp.is_before(echo))
    }

    /// The most that it can have had.
    pub fn latest(&self, echo: SerialNumber) -> Option<Tick> {
        self.tick.filter(|tick| tick.timestamp == echo).or(self.before(echo))
    }

    /// When the last packet with the echoed timestamp passed the tap.
    fn last_ns(&self, echo: SerialNumber) -> Option<i64> {
        self.tick.filter(|tick| tick.timestamp == echo).map(|_| self.last_ns)
    }

    /// A newer timestamp is echoed.
    fn begin(&mut self, echo: SerialNumber) {
        if self.tick.is_some_and(|tick| tick.timestamp.is_before(echo)) {
            self.before = self.tick.take();
        }
    }

    /// Adds an ACK of the echoed tick, or of one before. What one of an older clock or with less says is out of date.
    fn add(&mut self, echo: SerialNumber, ack: &Ack) {
        let Some((value, _)) = ack.timestamps else { return };
        let next = Tick::of(ack, value);
        let is_old = |known: Tick| next.acknowledged < known.acknowledged || next.timestamp.is_before(known.timestamp);
        let known = if self.tick.is_some() { &mut self.tick } else { &mut self.before };
        match known {
            Some(known) if is_old(*known) => {}
            Some(known) if known.timestamp == next.timestamp => {
                (known.acknowledged, known.window) = (next.acknowledged, next.window);
                self.last_ns = ack.time_ns;
            }
            _ if next.timestamp == echo => (self.tick, self.last_ns) = (Some(next), ack.time_ns),
            _ => *known = Some(next),
        }
    }
}

/// The ACKs to one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Acks {
    acks: VecDeque<Ack>,
    /// How many of them had reached the sender, and how many are in `echoed`.
    arrived: usize,
    heard: usize,
    echoed: Echoed,
    /// SACK blocks of the ACKs on their way that have some.
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

impl Acks {
    /// Adds a packet to the sender. `least_ns` is the minimum RTT from the tap to the sender.
    #[inline]
    pub fn push(&mut self, seen: &Observation, acknowledged: i64, least_ns: i64) {
        if self.arrived == self.acks.len() {
            self.delay_ns = least_ns;
        }
        self.acks.push_back(Ack {
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
        iscsitrace_sys::prefetch_ends(&self.acks);
    }

    /// Whether the oldest ACK on its way must be taken.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.acks.len() - self.arrived > WAITING_MAX
    }

    /// Notes what a packet of the sender echoes, and forgets the ACKs that no later packet can ask for.
    #[inline]
    pub fn note_echo(&mut self, seen: &Observation) {
        if let Some((_, echo)) = seen.timestamps {
            let echo = SerialNumber(echo);
            self.echoed.begin(echo);
            while let Some(ack) = self.acks.get(self.heard)
                && ack.timestamps.is_none_or(|(value, _)| !SerialNumber(value).is_after(echo))
            {
                self.echoed.add(echo, ack);
                self.heard += 1;
            }
        }
        self.forget();
    }

    /// When the receiver's packet passed whose timestamp this one of the sender echoes: the latest one it can have been.
    #[inline]
    pub fn echoed_ns(&self, seen: &Observation) -> Option<i64> {
        seen.timestamps.and_then(|(_, echo)| self.echoed.last_ns(SerialNumber(echo)))
    }

    /// The most that the sender of this packet can have known, by the timestamp that it echoes.
    #[inline]
    pub fn echoed_by(&self, seen: &Observation) -> Option<Tick> {
        seen.timestamps.and_then(|(_, echo)| self.echoed.latest(SerialNumber(echo)))
    }

    /// When the receiver's packet passed that let the sender send this one with payload, if it waited for ACKs: the first of
    /// the tick that this is the first to echo. None after a silence that a timer ended.
    #[inline]
    pub fn released_ns(&self, seen: &Observation) -> Option<i64> {
        let (_, echo) = seen.timestamps.filter(|&(_, echo)| self.echo.is_some_and(|before| before != echo))?;
        let is_timer = seen.time_ns.saturating_sub(self.last_packet_ns) >= TIMER_MIN_NS;
        let tick = self.echoed.tick.filter(|tick| !is_timer && tick.timestamp == SerialNumber(echo))?;
        Some(tick.time_ns)
    }

    /// What the sender's newest packet echoes.
    #[inline]
    pub fn echoed(&self) -> &Echoed {
        &self.echoed
    }

    #[inline]
    fn forget(&mut self) {
        while let Some(first) = self.acks.front()
            && (self.arrived > 0 && (self.heard > 0 || first.timestamps.is_none()) || self.acks.len() > KEPT_MAX)
        {
            self.acks.pop_front();
            self.arrived = self.arrived.saturating_sub(1);
            self.heard = self.heard.saturating_sub(1);
        }
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
                && let Some(first_ns) = self.waiting_since(echo)
            {
                self.delay_ns = seen.time_ns.saturating_sub(first_ns).max(least_ns);
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

    /// When the first ACK on its way passed the tap that has this timestamp.
    fn waiting_since(&self, timestamp: u32) -> Option<i64> {
        let mut waiting = self.acks.range(self.arrived.min(self.acks.len())..);
        waiting.find(|ack| ack.timestamps.is_some_and(|(value, _)| value == timestamp)).map(|ack| ack.time_ns)
    }

    /// The next ACK that had reached the sender when it sent the packet at `time_ns`; with when its answer passes the tap at
    /// the earliest, and its blocks.
    #[inline]
    pub fn next_due(&mut self, time_ns: i64) -> Option<(Ack, SenderNs, Blocks)> {
        let next = self.acks.get(self.arrived)?;
        let (now, answer) = (SenderNs::of_packet(time_ns), SenderNs::of_ack(next.time_ns, self.delay_ns));
        let is_arrived = match (next.timestamps, self.echo) {
            (Some((value, _)), Some(echo)) if SerialNumber(echo).is_after(SerialNumber(value)) => true,
            (Some((value, _)), Some(echo)) if value == echo && (self.taken != Some(value) || self.is_passed(next)) => {
                true
            }
            (Some((value, _)), Some(echo)) if SerialNumber(value).is_after(SerialNumber(echo)) => {
                let is_held_back = next.offset > self.packet_acknowledged && now.since(answer) < LOST_REQUEST_NS;
                answer <= now && next.offset > self.sender_acknowledged && !is_held_back
            }
            _ => answer <= now,
        };
        if !is_arrived {
            return None;
        }
        self.taken = next.timestamps.map(|(value, _)| value);
        self.take_oldest().map(|(ack, blocks)| (ack, answer.min(now), blocks))
    }

    /// Whether the current packet acknowledges what came after an ACK.
    fn is_passed(&self, ack: &Ack) -> bool {
        ack.offset < self.packet_acknowledged && self.packet_acknowledged < i64::MAX
    }

    /// What the last ACK that passed the tap by then acknowledges, and its window, not scaled; if it is still on its way.
    pub fn arrived_by(&self, time_ns: i64) -> Option<(i64, u16)> {
        self.last_by(time_ns, self.arrived).map(|ack| (ack.acknowledged, ack.window))
    }

    /// What the ACKs at the tap had acknowledged by then; as far as the sender may not have known it.
    pub fn acknowledged_at(&self, time_ns: i64) -> Option<i64> {
        self.last_by(time_ns, 0).map(|ack| ack.acknowledged)
    }

    /// The last ACK that passed the tap by then, from this place in the ledger on.
    fn last_by(&self, time_ns: i64, from: usize) -> Option<&Ack> {
        // near the sender the last one nearly always
        let is_last = self.acks.back().is_some_and(|ack| ack.time_ns <= time_ns);
        let count = if is_last { self.acks.len() } else { self.acks.partition_point(|ack| ack.time_ns <= time_ns) };
        count.checked_sub(1).filter(|&last| last >= from).and_then(|last| self.acks.get(last))
    }

    /// The oldest ACK on its way, if its timestamp is from before this one; and its blocks.
    pub fn take_before(&mut self, timestamp: u32) -> Option<(Ack, Blocks)> {
        let (value, _) = self.acks.get(self.arrived)?.timestamps?;
        SerialNumber(timestamp).is_after(SerialNumber(value)).then(|| self.take_oldest()).flatten()
    }

    /// The oldest ACK on its way, arrived or not, and its blocks.
    pub fn take_oldest(&mut self) -> Option<(Ack, Blocks)> {
        let ack = *self.acks.get(self.arrived)?;
        self.arrived += 1;
        let blocks = if ack.sack_count > 0 { self.blocks.pop_front() } else { None };
        Some((ack, blocks.unwrap_or_default()))
    }
}
