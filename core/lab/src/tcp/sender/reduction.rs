//! Proportional rate reduction (RFC 6937): the window comes down to its threshold while segments are acknowledged.
//!
//! It never decides that a reduction is due.

use super::Sender;
use super::recovery::State;
use crate::tcp::congestion::NO_THRESHOLD;

impl Sender {
    /// The window is to come down to a new threshold (RFC 6937).
    pub(super) fn begin_reduction(&mut self) {
        self.forget_loss_probe();
        self.recovery.recovery_point = self.snd_nxt;
        self.recovery.prior_cwnd = self.window.cwnd;
        self.recovery.prr_delivered = 0;
        self.recovery.prr_out = 0;
        self.window.ssthresh = self.window.threshold_after_loss();
    }

    /// The window is what is in the network and what PRR lets go (RFC 6937, section 3).
    pub(super) fn reduce_window(&mut self, delivered: u32, newly_lost: u64, is_advancing: bool) {
        let recovery = &mut self.recovery;
        if delivered == 0 || recovery.prior_cwnd == 0 {
            return;
        }
        let pipe = self.board.pipe();
        let (ssthresh, prior) = (i64::from(self.window.ssthresh), i64::from(recovery.prior_cwnd));
        let room = ssthresh - i64::from(pipe);
        recovery.prr_delivered += delivered;
        let (delivered_all, out) = (i64::from(recovery.prr_delivered), i64::from(recovery.prr_out));
        let mut count = if room < 0 {
            (ssthresh * delivered_all + prior - 1) / prior - out
        } else {
            // Slow start reduction bound, when the ACK shows that the retransmissions get through; else the bound of what
            // was delivered.
            let more = i64::from(is_advancing && newly_lost == 0);
            ((delivered_all - out).max(i64::from(delivered)) + more).min(room)
        };
        // The first retransmission always goes.
        count = count.max(i64::from(out == 0));
        self.window.cwnd = (i64::from(pipe) + count).max(0) as u32;
    }

    /// The reduction is done.
    pub(super) fn end_reduction(&mut self) {
        if self.window.ssthresh < NO_THRESHOLD
            && (self.recovery.state == State::Cwr || self.recovery.undo_from.is_some())
        {
            self.window.cwnd = self.window.ssthresh;
        }
    }
}
