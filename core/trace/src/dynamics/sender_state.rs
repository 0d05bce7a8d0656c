//! What is known of a sender from outside: after its last packet, and of its paths.

/// The sender after its last packet that passed the tap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderState {
    /// Highest byte sent less last byte acknowledged, as the sender knew it.
    pub owin: i64,
    /// Of these, what is still thought to be under way (RFC 6675, section 4).
    pub pipe: i64,
    /// The advertised window, as the sender knew it.
    pub rwnd: Option<i64>,
    /// Whether its scale was not captured, so that it may be larger.
    pub is_rwnd_inferred: bool,
    /// Whether a loss is being repaired.
    pub is_in_recovery: bool,
    /// The last ACK that the sender had when it sent the packet.
    pub last_ack: Option<LastAck>,
}

/// An ACK that let a sender go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastAck {
    /// When its answer could pass the tap first: its capture time, and the round trip from the tap to the sender.
    pub answer_ns: i64,
    /// Whether it acknowledged new data.
    pub is_advance: bool,
    /// Whether it opened a window that had been too small for a full segment.
    pub has_opened_window: bool,
    /// What was outstanding after it.
    pub owin: i64,
}

/// What the paths tell a sender.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delays {
    /// Least round trip from the tap to the sender.
    pub to_sender_ns: i64,
    /// Smoothed round trip of the whole path; 0 while nothing is known.
    pub round_trip_ns: i64,
}
