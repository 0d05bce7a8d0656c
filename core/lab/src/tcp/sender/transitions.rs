//! State transitions of loss recovery, as in Linux: Open, Disorder, CWR, Recovery, Loss.
//!
//! ```text
//! Open -> Disorder      a segment is sacked
//!      -> Recovery      a segment is lost: window to ssthresh by proportional rate reduction (RFC 6937)
//!      -> Loss          retransmission timeout: window of one segment, slow start, F-RTO (RFC 5682)
//!                       Tahoe: the same when a segment is lost, without F-RTO
//!      -> CWR           a loss probe repaired a loss: window to ssthresh
//! Recovery, Loss -> Open   everything sent before is acknowledged, or nothing was lost
//! ```
//!
//! It never reads segments, only the effects of an ACK.

use super::Sender;
use super::recovery::{Acknowledgment, Retransmit, State};

impl Sender {
    /// Takes an ACK that is not plain progress in state Open.
    pub(super) fn alert(&mut self, now_ns: i64, ack: &mut Acknowledgment) -> Retransmit {
        if self.board.first().is_some_and(|first| first.is_sacked) && ack.is_advancing && self.has_sack {
            // The receiver reneged on sacked data: a timeout will handle it (RFC 2018, section 8).
            self.board.clear_sacked();
        }
        if self.recovery.state == State::Open {
            self.recovery.first_retransmission_ms = 0;
        } else if self.snd_una >= self.recovery.recovery_point {
            match self.recovery.state {
                State::Cwr if self.snd_una != self.recovery.recovery_point => {
                    self.end_reduction();
                    self.recovery.state = State::Open;
                }
                State::Recovery => {
                    if !self.has_sack {
                        self.board.sacked_count = 0;
                    }
                    if self.try_undo_recovery(ack) {
                        return Retransmit::Nothing;
                    }
                    self.end_reduction();
                }
                _ => {}
            }
        }
        match self.recovery.state {
            State::Recovery => {
                if !ack.is_advancing {
                    self.count_duplicate_acks(ack);
                } else if self.try_undo_partial(ack) {
                    return Retransmit::Nothing;
                }
                if self.try_undo_by_duplicates() {
                    self.try_keep_open();
                }
                self.identify_losses(now_ns, ack);
                if self.recovery.state != State::Recovery {
                    if self.board.lost_count == 0 {
                        return Retransmit::Nothing;
                    }
                    self.enter_recovery(now_ns);
                }
                return Retransmit::Lost;
            }
            State::Loss => {
                let retransmit = self.process_loss(ack);
                let retransmissions = self.board.retransmitted_count;
                self.identify_losses(now_ns, ack);
                let is_retransmission_lost = retransmissions > self.board.retransmitted_count;
                if !(self.recovery.state == State::Open || is_retransmission_lost) {
                    return retransmit;
                }
            }
            _ => {}
        }
        if !self.has_sack {
            if ack.is_advancing {
                self.board.sacked_count = 0;
            }
            self.count_duplicate_acks(ack);
        }
        if matches!(self.recovery.state, State::Open | State::Disorder) {
            self.try_undo_by_duplicates();
        }
        self.identify_losses(now_ns, ack);
        if self.board.lost_count == 0 {
            if self.recovery.first_retransmission_ms != 0 && !self.is_any_retransmission_out() {
                self.recovery.first_retransmission_ms = 0;
            }
            if self.recovery.state != State::Cwr {
                self.try_keep_open();
            }
            return Retransmit::Nothing;
        }
        self.enter_recovery(now_ns);
        Retransmit::Lost
    }

    /// Returns to Open, unless segments are still sacked, lost or retransmitted.
    pub(super) fn try_keep_open(&mut self) {
        let is_open = self.board.sacked_count + self.board.lost_count == 0 && !self.is_any_retransmission_out();
        let state = if is_open { State::Open } else { State::Disorder };
        if self.recovery.state != state {
            self.recovery.state = state;
            self.recovery.recovery_point = self.snd_nxt;
        }
    }

    /// Fast recovery begins (RFC 6675, section 5, step 4); with Tahoe, slow start begins again.
    pub(super) fn enter_recovery(&mut self, now_ns: i64) {
        if !self.window.has_fast_recovery() {
            self.enter_loss(now_ns);
            // nothing takes such a loss for spurious later
            self.recovery.is_frto = false;
            self.recovery.undo_from = None;
            self.rearm_retransmission(now_ns);
            return;
        }
        self.init_undo();
        if !self.recovery.is_reducing() {
            self.recovery.prior_ssthresh = self.current_ssthresh();
            self.begin_reduction();
        } else {
            self.recovery.prior_ssthresh = 0;
        }
        self.recovery.state = State::Recovery;
    }

    /// A retransmission timeout (RFC 5681, section 3.1, equation 4; RFC 6675, section 5.1).
    pub(super) fn enter_loss(&mut self, now_ns: i64) {
        let is_new = !matches!(self.recovery.state, State::Recovery | State::Loss);
        let is_reneged = self.board.first().is_some_and(|first| first.is_sacked);
        if is_reneged {
            self.board.clear_sacked();
        } else if !self.has_sack {
            self.board.sacked_count = 0;
        }
        let first = self.snd_una;
        let overdue: Vec<i64> = self
            .board
            .iter()
            .filter(|sent| !self.has_sack || is_reneged || sent.start <= first || self.is_overdue(now_ns, sent))
            .map(|sent| sent.start)
            .collect();
        for start in overdue {
            self.board.mark_lost(start);
        }
        let is_reduced = matches!(self.recovery.state, State::Cwr | State::Recovery | State::Loss)
            && self.recovery.recovery_point > self.snd_una
            && !(self.recovery.state == State::Loss && self.probe.timeout_count == 0);
        if !is_reduced {
            self.recovery.prior_ssthresh = self.current_ssthresh();
            self.recovery.prior_cwnd = self.window.cwnd;
            self.window.ssthresh = self.window.threshold_after_loss();
            self.init_undo();
        }
        self.window.timed_out(now_ns, self.snd_nxt);
        self.window.cwnd = self.board.pipe() + 1;
        self.cwnd_stamp_ns = now_ns;
        self.recovery.state = State::Loss;
        self.recovery.recovery_point = self.snd_nxt;
        self.recovery.is_frto = is_new || self.probe.timeout_count > 0;
    }

    /// An ACK after a timeout: F-RTO (RFC 5682, section 3.1).
    fn process_loss(&mut self, ack: &mut Acknowledgment) -> Retransmit {
        let is_recovered = self.snd_una >= self.recovery.recovery_point;
        if ack.is_advancing && self.try_undo_loss(ack, false) {
            return Retransmit::Nothing;
        }
        if self.recovery.is_frto {
            // Step 3b: a segment that was not retransmitted was delivered, so the timeout was spurious.
            if ack.is_original_delivered && self.try_undo_loss(ack, true) {
                return Retransmit::Nothing;
            }
            if self.snd_nxt > self.recovery.recovery_point {
                if ack.is_data_sacked || ack.duplicate_acks > 0 {
                    // Step 3a: the loss was real.
                    self.recovery.is_frto = false;
                }
            } else if ack.is_advancing && !is_recovered {
                self.recovery.recovery_point = self.snd_nxt;
                if self.snd_nxt < self.end() && self.snd_una + i64::from(self.snd_wnd) > self.snd_nxt {
                    return Retransmit::NewFirst;
                }
                self.recovery.is_frto = false;
            }
        }
        if is_recovered {
            self.try_undo_recovery(ack);
            return Retransmit::Nothing;
        }
        if !self.has_sack {
            if self.snd_nxt > self.recovery.recovery_point && ack.duplicate_acks > 0 {
                // The new data sent by F-RTO arrived.
                self.count_duplicate_acks(ack);
            } else if ack.is_advancing {
                self.board.sacked_count = 0;
            }
        }
        Retransmit::Lost
    }

    /// Sends the retransmissions that `alert` allowed.
    pub(super) fn retransmit_after_ack(&mut self, now_ns: i64, retransmit: Retransmit) {
        match retransmit {
            Retransmit::Nothing => return,
            Retransmit::Lost => {}
            Retransmit::NewFirst => {
                self.transmit(now_ns, true);
                if self.snd_nxt > self.recovery.recovery_point {
                    return;
                }
                self.recovery.is_frto = false;
            }
        }
        self.retransmit_lost(now_ns);
    }
}
