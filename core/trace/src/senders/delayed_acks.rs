//! Delayed ACKs that a sender waits for in a recovery or slow start: with less than two full segments in flight its
//! receiver may hold the ACK back (RFC 9293, section 3.8.6.3), and the window has no room for more.
//!
//! Nagle's algorithm holds back less than a segment: what it delays is not counted here (`flights`, `ack_wait`).

use super::gap::Gap;
use super::recovery;
use super::sender_state::{Prompt, SenderNs};
use serde::{Deserialize, Serialize};

/// An ACK that was held back came by this later than others: the shortest time in use is 40 ms (Linux).
const HELD_MIN_NS: i64 = 30_000_000;
/// No ACK may be delayed for half a second (RFC 9293, section 3.8.6.3); a tenth for late timers.
const HELD_MAX_NS: i64 = 550_000_000;

/// An ACK to the sender that was held back.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct HeldBack {
    /// Its frame.
    pub frame: u64,
    /// Its capture time.
    pub time_ns: i64,
    /// When its answer passes the tap at the earliest.
    pub answer: SenderNs,
    /// Whether a recovery was in progress, and its row.
    pub is_in_recovery: bool,
    /// See `is_in_recovery`.
    pub row: Option<usize>,
}

/// The delayed ACKs that one sender waited for.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct DelayedAcks {
    /// The last ACK, if it was held back; for how long.
    held: Option<(HeldBack, i64)>,
    has_request: bool,
    /// How many.
    pub count: u32,
    /// How long.
    pub time_ns: i64,
    /// The longest, and its frame.
    pub longest: Option<(i64, u64)>,
}

impl DelayedAcks {
    /// A packet with payload reaches the sender: it may send for this reason.
    pub fn request(&mut self) {
        (self.has_request, self.held) = (true, None);
    }

    /// An ACK of less than two full segments reaches the sender, which had no more in its pipe. The last of them passed the
    /// tap at `sent_ns`.
    pub fn acknowledge(&mut self, ack: HeldBack, sent_ns: i64, prompt: Prompt) {
        let rtt_ns = ack.time_ns.saturating_sub(sent_ns);
        let held_ns = rtt_ns.saturating_sub(prompt.usual_ns);
        let is_held = rtt_ns > prompt.latest_ns && (HELD_MIN_NS..=HELD_MAX_NS).contains(&held_ns);
        self.held = Some((ack, held_ns)).filter(|_| is_held && !self.has_request);
    }

    /// The sender sends a packet; `gap` is what came before it.
    pub fn send(&mut self, gap: Option<&Gap<'_>>, rows: &mut recovery::Rows<'_>) {
        self.has_request = false;
        let Some((ack, held_ns)) = self.held.take() else { return };
        if !gap.is_some_and(|gap| gap.waited_for(ack.answer, ack.is_in_recovery)) {
            return;
        }
        self.count += 1;
        self.time_ns = self.time_ns.saturating_add(held_ns);
        self.longest = self.longest.max(Some((held_ns, ack.frame)));
        if let Some(known_ns) = ack.row.and_then(|row| rows.table.delayed_ack_ns.get_mut(row)) {
            *known_ns += held_ns;
        }
    }

    /// The first rows of the recoveries were removed.
    pub fn forget_rows(&mut self, count: usize) {
        if let Some((held, _)) = &mut self.held {
            held.row = held.row.and_then(|row| row.checked_sub(count));
        }
    }
}
