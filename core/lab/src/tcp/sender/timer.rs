//! The timer of a sender, and its probes.

/// The purpose of the timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// RFC 6298.
    Retransmission,
    /// RFC 8985, section 7.
    LossProbe,
    /// RFC 8985, section 6.2, step 5.
    Reordering,
    /// RFC 9293, section 3.8.6.1.
    ZeroWindow,
}

/// Probes, and timeouts without progress.
#[derive(Debug, Default)]
pub struct Probe {
    /// `snd_nxt` after a loss probe that is not yet accounted for; 0 without one.
    pub loss_probe_end: i64,
    /// The loss probe was a retransmission.
    pub is_retransmission: bool,
    /// Zero window probes since the window closed.
    pub zero_window_count: u32,
    /// Retransmission timeouts since the last progress.
    pub timeout_count: u32,
}
