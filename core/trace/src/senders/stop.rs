//! The end of a burst, and what follows until the next packet of its sender.

use super::ack_clock::InFlight;
use super::sender_state::SenderState;
use serde::{Deserialize, Serialize};

/// The sender after its last packet: the end of a burst, if an ACK or a request comes before the next one.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Stop {
    /// When the packet passed the tap, and its payload.
    pub time_ns: i64,
    /// See `time_ns`.
    pub length: u32,
    /// The state of the sender. During a recovery the congestion window follows the pipe (RFC 6937).
    pub state: SenderState,
    /// What was in flight.
    pub flight: InFlight,
    /// Bytes deemed lost, which the pipe lacks.
    pub lost: i64,
    /// Whether it ended within a PDU.
    pub is_within_pdu: bool,
    /// Bytes that the PDU lacked: 0 if their number is unknown, none between PDUs and where PDUs are unknown.
    pub left: Option<i64>,
    /// Bytes that the burst of an R2T lacked behind that PDU: 0 between bursts.
    pub left_of_burst: i64,
    /// Bytes that the receiver's window had room for; none if the window is unknown.
    pub room: Option<i64>,
    /// Whether that can have been too little: a sender may wait for room for a burst.
    pub is_window_limited: bool,
    /// The end of the last segment that was not full.
    pub small_end: i64,
}

impl Stop {
    /// Whether the sender certainly had more to send: the rest of a PDU, or of a burst.
    pub fn has_more(&self) -> bool {
        self.is_within_pdu || self.left_of_burst > 0
    }

    /// Whether a short segment ends it within a PDU: its socket held no more. What a congestion window holds back is sent in
    /// full segments.
    pub fn is_cut(&self, segment: i64) -> bool {
        let length = i64::from(self.length);
        let short = length % segment.max(1);
        self.is_within_pdu && length > HEADER_MAX && short > 0 && short + OPTIONS_MAX < segment
    }

    /// Whether it did not end just before the end of a PDU: less than two segments may wait for Nagle's algorithm.
    pub fn leaves_segments(&self, segment: i64) -> bool {
        self.left.is_none_or(|left| left == 0 || left >= 2 * segment)
    }

    /// Bytes that it certainly had; none if it need not have had any.
    pub fn left_to_send(&self) -> Option<i64> {
        self.left.map(|left| left + self.left_of_burst).or((self.left_of_burst > 0).then_some(self.left_of_burst))
    }
}

/// Options of TCP take up to so many bytes of a segment.
const OPTIONS_MAX: i64 = 40;
/// Programs may write the header of a PDU, with its digest, apart from its data.
const HEADER_MAX: i64 = 52;

/// The events between the end of a burst and the next packet.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Between {
    /// Whether ACKs arrived.
    pub has_ack: bool,
    /// Whether a packet arrived that may be a request.
    pub has_request: bool,
    /// Time from the first ACK to the answer.
    pub answer_ns: i64,
    /// How long the sender had paused.
    pub pause_ns: i64,
    /// Whether the first ACK came long before the last one: it was no reason to go on. Not where hosts take as long as the path.
    pub has_skipped: bool,
    /// Whether the last one was.
    pub is_prompt: bool,
    /// Time from the last ACK before the stop to the first after it.
    pub calm_ns: i64,
    /// Whether the next packet came later than the line explains.
    pub is_pause: bool,
    /// Whether the pause is long compared with the variation of the delay between tap and sender.
    pub is_long_pause: bool,
    /// Whether the next packet carries new data: a retransmission may have become due only now.
    pub is_new: bool,
}

impl Between {
    /// Whether the sender had more to send at the stop.
    pub fn has_more(&self, stop: &Stop) -> bool {
        stop.has_more() || (self.is_new && !self.has_request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_segment_within_a_pdu_shows_that_the_socket_held_no_more() {
        for (length, is_within_pdu, is_cut) in [
            (1040, true, true),
            // a super-segment with a short one at its end
            (3936, true, true),
            (1040, false, false),
            (1448, true, false),
            (2896, true, false),
            // options of TCP take the rest; the header of a PDU alone, and with its digest
            (1408, true, false),
            (1407, true, true),
            (48, true, false),
            (52, true, false),
            (53, true, true),
        ] {
            let stop = Stop { length, is_within_pdu, ..Stop::default() };
            assert_eq!(stop.is_cut(1448), is_cut, "{length} {is_within_pdu}");
        }
    }
}
