//! The state of loss recovery, and what one ACK did. It never changes a window.

/// What a sender thinks of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// Nothing is wrong.
    #[default]
    Open,
    /// Something is sacked, or was retransmitted.
    Disorder,
    /// The window was reduced without a loss to repair.
    Cwr,
    /// Fast retransmit and fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

impl State {
    /// Linux's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Disorder => "disorder",
            Self::Cwr => "cwr",
            Self::Recovery => "recovery",
            Self::Loss => "loss",
        }
    }
}

/// State, reduction and undo.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The state.
    pub state: State,
    /// What was sent when the state was entered: it ends when this is acknowledged.
    pub recovery_point: i64,
    pub(super) prior_cwnd: u32,
    pub(super) prior_ssthresh: u32,
    pub(super) prr_delivered: u32,
    /// Segments sent during the reduction.
    pub prr_out: u32,
    /// `snd_una` at the reduction, while it may be undone.
    pub(super) undo_from: Option<i64>,
    /// Retransmissions that were not in vain as far as is known; none before the first.
    pub(super) undo_retransmissions: Option<u32>,
    /// When the first retransmission was sent, in milliseconds; 0 for none.
    pub(super) first_retransmission_ms: i64,
    /// F-RTO looks whether the timeout was spurious (RFC 5682).
    pub(super) is_frto: bool,
}

impl Recovery {
    /// Whether proportional rate reduction sets the window.
    pub fn is_reducing(&self) -> bool {
        matches!(self.state, State::Cwr | State::Recovery)
    }

    /// A segment was retransmitted.
    pub fn note_retransmission(&mut self, now_ns: i64) {
        if self.first_retransmission_ms == 0 {
            self.first_retransmission_ms = (now_ns / 1_000_000).max(1);
        }
        *self.undo_retransmissions.get_or_insert(0) += 1;
    }

    /// A duplicate of a retransmitted segment that ends at `end` arrived (RFC 2883).
    pub fn duplicate_arrived(&mut self, end: i64) {
        if self.undo_from.is_some_and(|from| end > from)
            && let Some(count) = &mut self.undo_retransmissions
        {
            *count = count.saturating_sub(1);
        }
    }
}

/// What one ACK did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Acknowledgment {
    /// It acknowledges more than any before.
    pub is_advancing: bool,
    /// Segments were acknowledged that way.
    pub is_data_acknowledged: bool,
    /// Segments were selectively acknowledged.
    pub is_data_sacked: bool,
    /// It reports a duplicate (RFC 2883).
    pub has_duplicate: bool,
    /// Something never retransmitted, and sent before the recovery began, arrived.
    pub is_original_delivered: bool,
    /// A retransmitted segment was acknowledged.
    pub is_retransmission_acknowledged: bool,
    /// The segment carried data.
    pub has_data: bool,
    /// It changed the window.
    pub is_window_update: bool,
    /// The timer is to be set anew.
    pub is_setting_timer: bool,
    /// Duplicate ACKs that it stands for.
    pub duplicate_acks: u32,
    /// Segments delivered, one way or the other.
    pub delivered: u32,
    /// The echoed timestamp, in the milliseconds of `now_ns`.
    pub echo_ms: Option<i64>,
    /// `snd_una` before.
    pub snd_una_before: i64,
}

/// What may be sent after an ACK before new data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retransmit {
    Nothing,
    /// What is lost.
    Lost,
    /// New data first, to see whether a timeout was spurious (RFC 5682, section 2.1, step 2b).
    NewFirst,
}
