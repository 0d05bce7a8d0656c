//! The end of a burst, and what follows until the next packet of its sender.

use super::ack_clock::InFlight;
use serde::{Deserialize, Serialize};

/// The end of a burst.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Stop {
    /// What was in flight.
    pub flight: InFlight,
    /// Bytes deemed lost, which the pipe lacks.
    pub lost: i64,
    /// Whether it ended within a PDU.
    pub is_within_pdu: bool,
    /// Bytes that the PDU lacked: 0 if their number is unknown, none between PDUs and where PDUs are unknown.
    pub left: Option<i64>,
    /// Bytes that the receiver's window had room for; none if the window is unknown.
    pub room: Option<i64>,
    /// Whether that can have been too little.
    pub is_window_limited: bool,
    /// Whether a recovery was in progress: the window then follows the pipe (RFC 6937).
    pub is_in_recovery: bool,
}

/// The events between the end of a burst and the next packet.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Between {
    /// Whether ACKs arrived.
    pub has_ack: bool,
    /// Whether a packet arrived that may be a request.
    pub has_request: bool,
    /// Time of the first packet of the burst,
    pub begun_ns: i64,
    /// and of its last.
    pub stopped_ns: i64,
    /// Time from the first ACK to the answer.
    pub answer_ns: i64,
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
        stop.is_within_pdu || (self.is_new && !self.has_request)
    }
}
