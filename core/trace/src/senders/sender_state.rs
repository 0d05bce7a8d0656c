//! The state of a sender after its last packet, and its delays.

use serde::{Deserialize, Serialize};

/// A tap stands beside a host if its RTT to the host is less than this part of the whole RTT.
const BESIDE_PARTS: i64 = 8;

/// Whether the tap stands beside a host: by its RTT to that, and to both.
#[inline]
pub fn is_beside(to_host_ns: i64, whole_ns: i64) -> bool {
    to_host_ns < whole_ns / BESIDE_PARTS
}

/// When what a sender does passes the tap: what it sends upon an ACK does so an RTT to the sender after that ACK, and its
/// packets when they pass. Not to be mixed with the times at which ACKs pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SenderNs(i64);

impl SenderNs {
    /// Before everything.
    pub const NEVER: Self = Self(i64::MIN);

    /// Of a packet of the sender that passes the tap at `time_ns`.
    #[inline]
    pub fn of_packet(time_ns: i64) -> Self {
        Self(time_ns)
    }

    /// At the earliest upon an ACK that passes the tap at `time_ns`.
    #[inline]
    pub fn of_ack(time_ns: i64, to_sender_ns: i64) -> Self {
        Self(time_ns.saturating_add(to_sender_ns))
    }

    /// Time since an earlier one; negative if that is later.
    #[inline]
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant at the sender itself, half an RTT before.
    #[inline]
    pub fn at_sender_ns(self, to_sender_ns: i64) -> i64 {
        self.0.saturating_sub(to_sender_ns / 2)
    }

    /// When a packet passes the tap that the sender sends then.
    #[inline]
    pub fn packet_ns(self) -> i64 {
        self.0
    }

    /// When the ACK passed the tap.
    #[inline]
    pub fn ack_ns(self, to_sender_ns: i64) -> i64 {
        self.0.saturating_sub(to_sender_ns)
    }
}

/// The sender after its last packet at the tap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderState {
    /// Bytes in flight: highest byte sent less last byte acknowledged, as the sender knew it.
    pub owin: i64,
    /// Bytes in flight without SACKed and lost bytes (RFC 6675, section 4).
    pub pipe: i64,
    /// The advertised window, as the sender knew it.
    pub rwnd: Option<i64>,
    /// The window scale if it is inferred, so that the window may be larger.
    pub inferred_scale: Option<u8>,
    /// Whether the window has no room for a segment.
    pub is_window_full: bool,
    /// Whether the window rather than the congestion window holds what ACKs let out: it has no room for two segments, and
    /// had none for one in the current round or the one before (a sender may wait for room for several; Linux does, to send
    /// a super-segment). Far from the sender: the congestion window is known to be larger.
    pub is_window_smaller: bool,
    /// Whether a recovery is in progress.
    pub is_in_recovery: bool,
    /// The last ACK that reached the sender before the packet.
    pub last_ack: Option<LastAck>,
}

/// An ACK that let a sender continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAck {
    /// When its answer passes the tap at the earliest.
    pub answer: SenderNs,
    /// Whether it acknowledged new data.
    pub is_advance: bool,
    /// Whether it opened a window that had no room for a full segment.
    pub has_opened_window: bool,
    /// Bytes in flight after it.
    pub owin: i64,
}

/// How long an ACK takes that is not held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// The smoothed RTT.
    pub usual_ns: i64,
    /// The smoothed RTT and four times its variation, as for an RTO (RFC 6298, section 2).
    pub latest_ns: i64,
}

/// Delays of a sender's path.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Delays {
    /// Minimum RTT from the tap to the sender; 0 beside it.
    pub to_sender_ns: i64,
    /// Minimum RTT of the whole path, likewise.
    pub least_ns: i64,
    /// Smoothed RTT of the whole path; 0 while unknown.
    pub round_trip_ns: i64,
    /// RTT from the tap to the receiver of ACKs that are not held back, if there were any.
    pub prompt: Option<Prompt>,
    /// Whether packets of the sender overtake each other before the tap.
    pub is_reordered: bool,
}
