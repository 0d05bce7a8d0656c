//! Proportional rate reduction (RFC 6937): the window shrinks to its threshold while segments are acknowledged.
//!
//! It never decides that a reduction is due.

use super::Sender;
use super::recovery::State;
use crate::tcp::congestion::NO_THRESHOLD;

impl Sender {
    /// Starts a reduction to a new threshold (RFC 6937).
    pub(super) fn begin_reduction(&mut self) {
        self.forget_loss_probe();
        self.recovery.recovery_point = self.snd_nxt;
        self.recovery.prior_cwnd = self.window.cwnd;
        self.recovery.prr_delivered = 0;
        self.recovery.prr_out = 0;
        self.window.ssthresh = self.window.threshold_after_loss();
    }

    /// Sets the window to the pipe plus what PRR allows (RFC 6937, section 3).
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
            // Slow start reduction bound when the ACK advances without new losses; else the conservative reduction
            // bound.
            let more = i64::from(is_advancing && newly_lost == 0);
            ((delivered_all - out).max(i64::from(delivered)) + more).min(room)
        };
        // The first retransmission is always allowed.
        count = count.max(i64::from(out == 0));
        self.window.cwnd = (i64::from(pipe) + count).max(0) as u32;
    }

    /// Ends the reduction.
    pub(super) fn end_reduction(&mut self) {
        if self.window.ssthresh < NO_THRESHOLD
            && (self.recovery.state == State::Cwr || self.recovery.undo_from.is_some())
        {
            self.window.cwnd = self.window.ssthresh;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::settings::{CongestionControl, Settings};

    /// A reduction from 20 segments to 10 begins; `out` segments are unacknowledged, one of them lost and none sacked.
    fn reducing(out: u32) -> Sender {
        let mut sender = Sender::new(&Settings { congestion_control: CongestionControl::Reno, ..Settings::default() });
        sender.window.cwnd = 20;
        (0..out).for_each(|number| sender.board.push(i64::from(number), i64::from(number) + 1, 0));
        sender.board.lost_count = 1;
        sender.begin_reduction();
        sender
    }

    #[test]
    fn above_the_threshold_one_segment_is_sent_per_two_delivered() {
        // RFC 6937, section 3: CEIL(prr_delivered * ssthresh / RecoverFS) - prr_out with ssthresh 10 and RecoverFS 20:
        // CEIL(1/2) - 0, CEIL(1) - 1, CEIL(3/2) - 1, CEIL(2) - 2. The pipe stays at 20 - 1.
        let mut sender = reducing(20);
        let sent = (0..4).map(|_| {
            sender.reduce_window(1, 0, true);
            let sent = sender.window.cwnd - sender.board.pipe();
            sender.recovery.prr_out += sent;
            sent
        });
        assert_eq!(sent.collect::<Vec<_>>(), [1, 0, 1, 0]);
    }

    #[test]
    fn below_the_threshold_an_advancing_ack_allows_one_more_segment() {
        // RFC 6937, section 3: MAX(prr_delivered - prr_out, DeliveredData), and one more in slow start, up to ssthresh.
        for (is_advancing, newly_lost, window) in [(true, 0, 5 + 2), (true, 1, 5 + 1), (false, 0, 5 + 1)] {
            let mut sender = reducing(6);
            (sender.recovery.prr_delivered, sender.recovery.prr_out) = (3, 4);
            sender.reduce_window(1, newly_lost, is_advancing);
            assert_eq!(sender.window.cwnd, window);
        }
        let mut sender = reducing(6);
        sender.recovery.prr_out = 1;
        sender.reduce_window(9, 0, true);
        assert_eq!(sender.window.cwnd, 10, "never above ssthresh");
    }
}
