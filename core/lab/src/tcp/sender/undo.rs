//! Undo of a spurious reduction (RFC 4015, RFC 3708).
//!
//! Two criteria: every retransmission arrived as a duplicate, or an ACK echoes a timestamp older than the first
//! retransmission.

use super::Sender;
use super::recovery::{Acknowledgment, State};

impl Sender {
    pub(super) fn init_undo(&mut self) {
        self.recovery.undo_from = Some(self.snd_una);
        let out = self.board.retransmitted_count;
        self.recovery.undo_retransmissions = (out > 0).then_some(out);
    }

    /// Whether all retransmissions were spurious, by duplicates or by the echoed timestamp (RFC 4015).
    fn may_undo(&self, ack: &Acknowledgment) -> bool {
        self.recovery.undo_from.is_some()
            && (self.recovery.undo_retransmissions == Some(0) || self.is_answer_to_original(ack))
    }

    fn is_answer_to_original(&self, ack: &Acknowledgment) -> bool {
        let first_ms = self.recovery.first_retransmission_ms;
        first_ms != 0 && ack.echo_ms.is_some_and(|echo_ms| echo_ms < first_ms)
    }

    /// Undoes the reduction.
    fn undo(&mut self, is_clearing_lost: bool) {
        if is_clearing_lost {
            self.board.clear_lost();
        }
        if self.recovery.prior_ssthresh > 0 {
            self.window.cwnd = self.window.cwnd.max(self.recovery.prior_cwnd);
            self.window.ssthresh = self.window.ssthresh.max(self.recovery.prior_ssthresh);
        }
        self.recovery.undo_from = None;
        self.rack.look_again();
    }

    /// Everything is acknowledged. True when the state is kept, without SACK, until something later is acknowledged.
    pub(super) fn try_undo_recovery(&mut self, ack: &Acknowledgment) -> bool {
        if self.may_undo(ack) {
            self.undo(false);
        }
        self.rack.recovery_ended();
        if self.snd_una == self.recovery.recovery_point && !self.has_sack {
            if !self.is_any_retransmission_out() {
                self.recovery.first_retransmission_ms = 0;
            }
            return true;
        }
        self.recovery.state = State::Open;
        false
    }

    /// A partial ACK of delayed segments, not lost ones. True when nothing else is to be done.
    pub(super) fn try_undo_partial(&mut self, ack: &Acknowledgment) -> bool {
        if self.recovery.undo_from.is_none() || !self.is_answer_to_original(ack) {
            return false;
        }
        let highest = self.board.highest_sacked(self.snd_una);
        self.note_reordering(ack.snd_una_before, highest);
        if self.board.retransmitted_count > 0 {
            return true;
        }
        self.undo(true);
        self.try_keep_open();
        false
    }

    pub(super) fn try_undo_loss(&mut self, ack: &Acknowledgment, is_spurious: bool) -> bool {
        if !is_spurious && !self.may_undo(ack) {
            return false;
        }
        self.undo(true);
        self.probe.timeout_count = 0;
        if is_spurious || self.has_sack {
            self.recovery.state = State::Open;
        }
        true
    }

    /// Undoes when duplicates show that every retransmission was spurious.
    pub(super) fn try_undo_by_duplicates(&mut self) -> bool {
        let is_in_vain = self.recovery.undo_from.is_some() && self.recovery.undo_retransmissions == Some(0);
        if is_in_vain {
            self.undo(false);
        }
        is_in_vain
    }
}
