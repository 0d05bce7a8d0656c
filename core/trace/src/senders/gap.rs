//! The judge: what held a sender between two of its packets, and what let it go on.
//!
//! ```text
//!   packets | stop ........ ACK -> packet      judged when the packet comes
//!           burst    gap
//! ```
//!
//! Everything that is said about what held a sender is a sum over these gaps. The judge looks at one gap at a time, and
//! keeps nothing.

use super::observation::Observation;
use super::sender_state::{LastAck, SenderNs};
use super::stop::Stop;
use crate::stream::class::SegmentClass;
use crate::tables::budget_part as part;

/// A packet answers an ACK if it follows within this time, or within a part of the path's RTT.
const ANSWER_WITHIN_NS: i64 = 100_000;
/// That part of the RTT.
const ANSWER_WITHIN_RTT_PART: i64 = 8;
/// On a path whose delay varies, within this part of the gap.
const ANSWER_WITHIN_GAP_PART: i64 = 8;
/// Beside the sender, where no path is in between, within this part of the gap: a busy host takes that long after a wait for an
/// ACK that was held back, and another reason ends one gap in so many by chance there.
const ANSWER_NEAR_WITHIN_GAP_PART: i64 = 64;
/// A pause of this length within a PDU that no ACK ended was ended by a retransmission timer, which Linux never sets
/// below 200 ms. The retransmission may be the first copy at the tap.
pub const TIMER_MIN_NS: i64 = 190_000_000;
/// After an earlier loss, a pause of two RTTs and at least this time is enough: Linux's tail loss probe (RFC 8985,
/// section 7.2).
pub const PROBE_MIN_NS: i64 = 8_000_000;

/// Programs may write what follows the data of a PDU apart from them: padding and a digest.
const TRAILER_MAX: i64 = 7;

/// Codes of `CATEGORIES["release"]`.
pub mod release {
    /// An ACK of new data.
    pub const ACKNOWLEDGMENT: u8 = 0;
    /// An ACK that opened the window.
    pub const WINDOW_UPDATE: u8 = 1;
    /// A packet that may be a request.
    pub const REQUEST: u8 = 2;
    /// Nothing that came: the host took its time.
    pub const OWN_TIME: u8 = 3;
    /// Not known: the first packet.
    pub const UNKNOWN: u8 = 4;
}

/// How long after an ACK a packet can be its answer.
#[inline]
pub fn within_ns(rtt_ns: i64) -> i64 {
    ANSWER_WITHIN_NS.max(rtt_ns / ANSWER_WITHIN_RTT_PART)
}

/// From a sender's last packet to its next one.
#[derive(Debug, Clone, Copy)]
pub struct Gap<'a> {
    /// The sender after its last packet.
    pub stop: &'a Stop,
    /// The next packet.
    pub seen: &'a Observation,
    /// Whether a packet reached the sender in between that may be a request.
    pub has_request: bool,
    /// The last ACK that reached the sender.
    pub ack: Option<LastAck>,
    /// The most that the sender can have known to be acknowledged.
    pub known: i64,
    /// Whether a recovery is in progress with the next packet.
    pub is_in_recovery: bool,
    /// Whether the connection had a loss so far.
    pub has_lost: bool,
    /// Whether everything was acknowledged, and no PDU begun.
    pub is_done: bool,
    /// Whether the tap stands beside the sender.
    pub is_near: bool,
    /// How late the answer to an ACK may come on a path whose delay varies, if the packet is the first to echo its timestamp.
    /// None beside the sender, where an answer comes at once.
    pub echo_within_ns: Option<i64>,
    /// The payload of a full segment.
    pub segment: i64,
    /// The least RTT between both ends.
    pub rtt_ns: i64,
}

/// What held a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// A code of `budget.part`.
    pub part: u8,
    /// It did only if the sender had more to send: data of a command from before came after.
    pub needs_queue: bool,
}

impl Gap<'_> {
    /// Its length.
    pub fn length_ns(&self) -> i64 {
        self.seen.time_ns.saturating_sub(self.stop.time_ns)
    }

    fn is_retransmission(&self) -> bool {
        self.seen.class == SegmentClass::Retransmission
    }

    /// The ACK that reached the sender in the gap: one that it had at its stop did not let it go on.
    fn ack(&self) -> Option<LastAck> {
        let stopped = SenderNs::of_packet(self.stop.time_ns);
        let is_new = self.stop.state.last_ack != self.ack || self.known > self.stop.flight.una;
        self.ack.filter(|ack| is_new && ack.answer.since(stopped) > -within_ns(self.rtt_ns))
    }

    /// Whether the packet answers it.
    fn is_answer(&self) -> bool {
        let most_ns = match self.echo_within_ns {
            Some(within_ns) => within_ns.min(self.length_ns() / ANSWER_WITHIN_GAP_PART),
            None if self.is_near => self.length_ns() / ANSWER_NEAR_WITHIN_GAP_PART,
            None => 0,
        };
        let is_soon = |ack: LastAck| (1..=most_ns).contains(&self.since_ns(ack));
        self.ack().is_some_and(|ack| self.comes_with(ack.answer) || is_soon(ack))
    }

    /// Whether it came when the answer to an ACK can pass the tap at the earliest.
    fn comes_with(&self, answer: SenderNs) -> bool {
        SenderNs::of_packet(self.seen.time_ns).since(answer).saturating_abs() <= within_ns(self.rtt_ns)
    }

    /// Since the sender could have gone on with it.
    fn since_ns(&self, ack: LastAck) -> i64 {
        SenderNs::of_packet(self.seen.time_ns).since(ack.answer)
    }

    /// Whether the sender waited for an ACK that its receiver held back: in a recovery, as it was when the ACK reached the sender,
    /// it retransmits with it, else it had more to send. Less than a segment may have waited for Nagle's algorithm.
    pub fn waited_for(&self, answer: SenderNs, is_in_recovery: bool) -> bool {
        let is_again = self.is_retransmission() && is_in_recovery;
        let is_full = (self.stop.has_more() || !self.has_request) && i64::from(self.seen.length) >= self.segment;
        self.comes_with(answer) && (is_again || is_full)
    }

    /// Whether the sender certainly had more to send: it stopped within a PDU or a burst, or went on with new data that nothing
    /// asked for in between.
    pub fn has_more(&self) -> bool {
        self.stop.has_more() || self.seen.class == SegmentClass::New && !self.has_request
    }

    /// What let the sender go on: a code of `release`.
    pub fn release(&self) -> u8 {
        // a request explains more than the ACK that came with it
        let is_asked = self.has_request && !self.stop.has_more();
        match self.ack() {
            Some(ack) if self.is_answer() && ack.has_opened_window && !ack.is_advance => release::WINDOW_UPDATE,
            Some(ack) if self.is_answer() && ack.is_advance && !is_asked => release::ACKNOWLEDGMENT,
            _ if self.has_request => release::REQUEST,
            _ => release::OWN_TIME,
        }
    }

    /// Whether the receiver's window had no room for the packet. Beside its sender a super-segment is one packet, which is
    /// not sent in parts.
    fn is_window_full(&self) -> bool {
        let is_too_long = self.stop.room.is_some_and(|room| room < i64::from(self.seen.length));
        self.stop.state.is_window_full || self.is_near && is_too_long
    }

    /// Whether the receiver's window had closed before a retransmission: there was more to send, or no room for what was
    /// retransmitted. A small window has no room for a segment, but for a PDU without data.
    fn was_closed(&self) -> bool {
        let has_room = self.stop.room.is_some_and(|room| room >= i64::from(self.seen.length));
        self.stop.state.is_window_full && (self.stop.has_more() || !has_room)
    }

    /// What held the sender; none if it had nothing to send, or took its time.
    pub fn held(&self) -> Option<Held> {
        let before = &self.stop.state;
        let is_recovering = self.is_in_recovery || before.is_in_recovery;
        let by = |part: u8| Some(Held { part, needs_queue: false });
        if self.is_retransmission() && self.was_closed() && !before.is_in_recovery {
            // a probe of a full window, or of a slow receiver
            by(part::RECEIVE_WINDOW)
        } else if is_recovering || self.is_retransmission() {
            // a retransmission after everything was acknowledged is needless, and nothing waits for it
            by(part::LOSS_RECOVERY).filter(|_| !self.is_done)
        } else if self.seen.class == SegmentClass::Reordered && self.length_ns() > self.rtt_ns {
            // others overtook it: what the window let out had arrived, and the path held this one for longer than it takes
            by(part::CONGESTION_WINDOW)
        } else if self.stop.is_within_pdu {
            self.held_within_pdu().and_then(by)
        } else if before.owin > 0 && self.release() == release::REQUEST && self.is_answer() {
            // the request carried the ACK that opened the window, if there was more to send
            let held = Held { part: part::RECEIVE_WINDOW, needs_queue: true };
            self.is_window_full().then_some(held)
        } else if self.release() == release::ACKNOWLEDGMENT && before.owin > 0 {
            if self.is_window_full() {
                by(part::RECEIVE_WINDOW)
            } else if self.is_all_acknowledged() && self.stop.left_of_burst == 0 {
                by(part::ACK_WAIT).filter(|_| self.is_small())
            } else {
                by(self.window())
            }
        } else if self.is_window_full() && (!self.has_request || self.stop.has_more()) && before.owin > 0 {
            // what follows was asked for before: it had more to send
            by(part::RECEIVE_WINDOW)
        } else {
            None
        }
    }

    /// What can have held a sender that nothing else held. Within a PDU, with data in flight, it may have waited for an ACK,
    /// which takes an RTT; beside it such a pause is its host's, or what held it shows. Between the PDUs of a burst its host
    /// may have taken its time, but a full socket holds it there, too.
    pub fn may_be_held(&self) -> Option<Held> {
        let may_wait = self.stop.state.owin > 0 && self.length_ns() <= self.rtt_ns;
        let is_released = self.released_by_ack().is_some();
        let by = |part: u8, needs_queue: bool| Some(Held { part, needs_queue });
        if self.stop.is_within_pdu {
            by(part::PROPAGATION, false).filter(|_| may_wait && !self.is_near)
        } else if self.stop.left_of_burst > 0 {
            by(part::SEND_BUFFER, false).filter(|_| may_wait || is_released)
        } else {
            // what was asked for before may wait in the socket, and the request of the meantime be for later
            by(part::SEND_BUFFER, true)
                .filter(|_| is_released && self.stop.state.owin > 0 && !self.is_all_acknowledged())
        }
    }

    /// The same for a sender that certainly had more to send.
    fn held_within_pdu(&self) -> Option<u8> {
        let (before, ack) = (&self.stop.state, self.ack());
        // since the sender could have continued
        let late_ns = ack.map_or(self.length_ns(), |ack| self.since_ns(ack));
        let probe_ns = PROBE_MIN_NS.max(self.rtt_ns.saturating_mul(2));
        // nothing was sent in between that the network could lose: the host paused
        let segments = (i64::from(self.stop.length) - 1) / self.segment.max(1) + 1;
        let is_next = self.seen.steps.is_some_and(|steps| (1..=segments).contains(&i64::from(steps)));
        let is_lost = self.seen.steps.is_some_and(|steps| i64::from(steps) > segments);
        if is_lost && late_ns >= TIMER_MIN_NS {
            Some(part::LOSS_RECOVERY)
        } else if self.is_window_full() {
            Some(part::RECEIVE_WINDOW)
        } else if !is_next && (late_ns >= TIMER_MIN_NS || (self.has_lost && late_ns >= probe_ns)) {
            Some(part::LOSS_RECOVERY)
        } else if before.owin > 0 && self.is_held_for_ack() {
            Some(part::ACK_WAIT)
        } else {
            self.without_nagle()
        }
    }

    /// What held a sender that waits for no ACK of a short segment: within a PDU a window, and between PDUs nothing. A PDU is
    /// whole before it is sent: beyond the sender's own tap the path held the rest of it.
    pub fn without_nagle(&self) -> Option<u8> {
        let by_path = || (!self.is_near).then_some(part::PROPAGATION);
        self.released_by_ack().or_else(by_path).filter(|_| self.stop.is_within_pdu)
    }

    /// The window whose room an ACK made, if the sender went on within an RTT of it.
    fn released_by_ack(&self) -> Option<u8> {
        let most_ns = within_ns(self.rtt_ns).max(self.rtt_ns);
        self.ack().filter(|&ack| ack.is_advance && self.since_ns(ack) <= most_ns).map(|_| self.window())
    }

    /// Whether Nagle's algorithm held less than a segment back, while an earlier short segment was in flight. It goes out
    /// when that is acknowledged, or with the answer to a request.
    fn is_held_for_ack(&self) -> bool {
        if self.stop.is_cut(self.segment) && self.stop.left.is_some_and(|left| left > TRAILER_MAX) {
            // the rest would have been part of the short segment: the socket had no room for it
            return false;
        }
        let left = self.stop.left.filter(|left| (1..self.segment).contains(left));
        let is_nagle = left.is_some() && self.stop.small_end > self.stop.flight.una;
        let is_released = is_nagle && self.stop.small_end <= self.known;
        let is_filled = is_nagle && self.has_request && left.is_some_and(|left| i64::from(self.seen.length) > left);
        is_filled || self.is_answer() && (is_released || self.is_small() && self.is_all_acknowledged())
    }

    fn is_small(&self) -> bool {
        i64::from(self.seen.length) < self.segment
    }

    fn is_all_acknowledged(&self) -> bool {
        self.ack().is_some_and(|ack| ack.is_advance) && self.known >= self.seen.offset
    }

    /// Which window held what ACKs let out, if the sender had more.
    fn window(&self) -> u8 {
        if self.stop.state.is_window_smaller { part::RECEIVE_WINDOW } else { part::CONGESTION_WINDOW }
    }
}
