//! The state of loss recovery, and the effects of one ACK. It never changes a window.

/// The state of loss recovery, as in Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// No loss or reordering is suspected.
    #[default]
    Open,
    /// Segments are sacked, or were retransmitted.
    Disorder,
    /// The window is reduced without a retransmission.
    Cwr,
    /// Fast retransmit and fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// State, reduction and undo.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The state.
    pub state: State,
    /// `snd_nxt` when the state was entered: it ends when this is acknowledged.
    pub recovery_point: i64,
    pub(super) prior_cwnd: u32,
    pub(super) prior_ssthresh: u32,
    pub(super) prr_delivered: u32,
    /// Segments sent during the reduction.
    pub prr_out: u32,
    /// `snd_una` at the reduction, while it may be undone.
    pub(super) undo_from: Option<i64>,
    /// Retransmissions not known to be spurious; none before the first.
    pub(super) undo_retransmissions: Option<u32>,
    /// When the first retransmission was sent, in milliseconds; 0 for none.
    pub(super) first_retransmission_ms: i64,
    /// F-RTO checks whether the timeout was spurious (RFC 5682).
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

/// The effects of one ACK.
#[derive(Debug, Default, Clone, Copy)]
pub struct Acknowledgment {
    /// It advances `snd_una`.
    pub is_advancing: bool,
    /// Segments were cumulatively acknowledged.
    pub is_data_acknowledged: bool,
    /// Segments were selectively acknowledged.
    pub is_data_sacked: bool,
    /// It reports a duplicate (RFC 2883).
    pub has_duplicate: bool,
    /// A segment that was sent before the recovery began, and never retransmitted, was delivered.
    pub is_original_delivered: bool,
    /// A retransmitted segment was acknowledged.
    pub is_retransmission_acknowledged: bool,
    /// The segment carried data.
    pub has_data: bool,
    /// It changed the window.
    pub is_window_update: bool,
    /// The timer is to be restarted.
    pub is_setting_timer: bool,
    /// Duplicate ACKs that it counts as.
    pub duplicate_acks: u32,
    /// Segments newly acknowledged or sacked.
    pub delivered: u32,
    /// The echoed timestamp, in the milliseconds of `now_ns`.
    pub echo_ms: Option<i64>,
    /// `snd_una` before.
    pub snd_una_before: i64,
}

/// Retransmissions after an ACK, before new data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retransmit {
    Nothing,
    /// Lost segments.
    Lost,
    /// New data first, to check whether a timeout was spurious (RFC 5682, section 2.1, step 2b).
    NewFirst,
}
