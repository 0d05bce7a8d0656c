//! Packets that a sender sends without an ACK between them, and the events before the next such burst.

use super::observation::Observation;
use super::sender_state::{Delays, SenderNs};
use super::stop::{Between, Stop};
use crate::stream::class::SegmentClass;
use serde::{Deserialize, Serialize};

/// Packets of one burst follow each other within this time.
const SPACING_MAX_NS: i64 = 1_000_000;
/// Hosts answer within a few milliseconds.
const FAR_NS: i64 = 5_000_000;
/// Weight of a sample in the usual spacing: one part in this many. So many spacings are a pause.
const SPACING_SMOOTHING: i64 = 16;
const SPACINGS: i64 = 3;
/// An ACK that made room is answered within this part of the pause: a sender that goes on by itself answers one in so many by
/// chance.
const PROMPT_PARTS: i64 = 8;
/// A congestion window may wait for room for a super-segment, which hosts send in this time.
const SKIPPED_MIN_NS: i64 = 1_000_000;
/// Delays between tap and sender can vary by this part of their minimum.
const LONG_PARTS: i64 = 4;

/// The current burst, or the last one.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Burst {
    /// Its state at the last packet.
    pub stop: Stop,
    between: Between,
    first_answer: SenderNs,
    last_answer: SenderNs,
    last_ns: Option<i64>,
    /// Usual time between packets of a burst.
    spacing_ns: i64,
}

impl Burst {
    /// Time of its last packet.
    pub fn last_ns(&self) -> Option<i64> {
        self.last_ns
    }

    /// Whether a packet arrived since then that may be a request.
    pub fn has_request(&self) -> bool {
        self.between.has_request
    }

    /// Notes an ACK that may let the sender continue.
    #[inline]
    pub fn acknowledge(&mut self, answer: SenderNs) {
        if !self.between.has_ack {
            self.between.has_ack = true;
            self.first_answer = answer;
            self.between.calm_ns = answer.since(self.last_answer);
        }
        self.last_answer = answer;
    }

    /// Notes a packet to the sender that may be a request.
    #[inline]
    pub fn request(&mut self) {
        self.between.has_request = true;
    }

    /// Notes a sent packet. If it starts a burst, returns the events since the previous burst, whose end is still in
    /// `stop`.
    #[inline]
    pub fn begin(&mut self, seen: &Observation, delays: Delays) -> Option<Between> {
        let stopped_ns = self.last_ns.unwrap_or(seen.time_ns);
        let since_ns = seen.time_ns.saturating_sub(stopped_ns).max(0);
        self.last_ns = Some(seen.time_ns);
        if !self.between.has_ack && !self.between.has_request {
            if since_ns < SPACING_MAX_NS {
                self.spacing_ns += (since_ns - self.spacing_ns) / SPACING_SMOOTHING;
            }
            return None;
        }
        let now = SenderNs::of_packet(seen.time_ns);
        let (first_ns, last_ns) = (now.since(self.first_answer), now.since(self.last_answer));
        let is_far = delays.least_ns >= FAR_NS;
        Some(Between {
            answer_ns: first_ns.max(0),
            pause_ns: since_ns,
            has_skipped: is_far && first_ns - last_ns >= SKIPPED_MIN_NS.max(since_ns / PROMPT_PARTS),
            is_prompt: last_ns <= since_ns / PROMPT_PARTS,
            is_long_pause: since_ns >= delays.to_sender_ns / LONG_PARTS,
            is_pause: since_ns >= SPACINGS * self.spacing_ns,
            is_new: seen.class == SegmentClass::New,
            ..std::mem::take(&mut self.between)
        })
    }
}
