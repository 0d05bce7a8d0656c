//! What an ACK shows to be lost: by time with SACK (RFC 8985), by duplicate ACKs without (RFC 5681, RFC 6582); and what it
//! shows to be only late.
//!
//! It never retransmits.

use super::Sender;
use super::recovery::{Acknowledgment, State};

impl Sender {
    /// What is lost now: by time with SACK (RFC 8985), by the third duplicate ACK and each partial ACK without (RFC 6582).
    pub(super) fn identify_losses(&mut self, now_ns: i64, ack: &mut Acknowledgment) {
        if self.has_sack {
            if self.mark_lost_by_time(now_ns) {
                ack.is_setting_timer = false;
            }
            return;
        }
        let is_before = !matches!(self.recovery.state, State::Recovery | State::Loss);
        let is_lost = is_before && self.board.sacked_count >= self.rack.reordering;
        let is_partial = self.recovery.state == State::Recovery && ack.is_advancing;
        if let Some(first) = self.board.first().filter(|first| !first.is_lost && (is_lost || is_partial)) {
            self.board.mark_lost(first.start);
        }
    }

    /// Without SACK a duplicate ACK says that one more segment arrived.
    pub(super) fn count_duplicate_acks(&mut self, ack: &mut Acknowledgment) {
        if self.has_sack || ack.duplicate_acks == 0 {
            return;
        }
        let most = self.board.packets_out().saturating_sub(self.board.lost_count.max(1));
        let before = self.board.sacked_count;
        self.board.sacked_count = (before + ack.duplicate_acks).min(most);
        ack.delivered += self.board.sacked_count.saturating_sub(before);
    }

    pub(super) fn is_any_retransmission_out(&self) -> bool {
        self.board.retransmitted_count > 0 || self.board.first().is_some_and(|first| first.was_retransmitted)
    }

    /// Something at `place` arrived after what lies before `highest`.
    pub(super) fn note_reordering(&mut self, place: i64, highest: i64) {
        if place < highest {
            let mss = i64::from(self.mss.max(1));
            let segments = (highest - place + mss - 1) / mss;
            self.rack.reordered(u32::try_from(segments).unwrap_or(u32::MAX));
        }
    }
}
