//! The states of a sender and the ways between them, as in Linux: Open, Disorder, CWR, Recovery, Loss.
//!
//! ```text
//! Open -> Disorder      something is sacked
//!      -> Recovery      something is lost: window to ssthresh by proportional rate reduction (RFC 6937)
//!      -> Loss          retransmission timeout: window of one segment, slow start, F-RTO (RFC 5682)
//!      -> CWR           a loss probe repaired a loss: window to ssthresh
//! Recovery, Loss -> Open   all that was sent before is acknowledged, or nothing was lost after all
//! ```
//!
//! It never reads segments: an ACK comes as what it acknowledged.

use super::Sender;

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
    is_frto: bool,
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

impl Sender {
    /// An ACK that is not plain progress in state Open.
    pub(super) fn alert(&mut self, now_ns: i64, ack: &mut Acknowledgment) -> Retransmit {
        if self.board.first().is_some_and(|first| first.is_sacked) && ack.is_advancing && self.has_sack {
            // The receiver dropped what it had sacked: a timeout will tell it apart (RFC 2018, section 8).
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
                    self.enter_recovery();
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
        self.enter_recovery();
        Retransmit::Lost
    }

    /// Open, unless something is still sacked, lost or retransmitted.
    pub(super) fn try_keep_open(&mut self) {
        let is_open = self.board.sacked_count + self.board.lost_count == 0 && !self.is_any_retransmission_out();
        let state = if is_open { State::Open } else { State::Disorder };
        if self.recovery.state != state {
            self.recovery.state = state;
            self.recovery.recovery_point = self.snd_nxt;
        }
    }

    /// Fast recovery begins (RFC 6675, section 5, step 4).
    pub(super) fn enter_recovery(&mut self) {
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
            // Step 3b: something that was not retransmitted arrived, so the timeout was spurious.
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
                // What was sent to see whether the timeout was spurious has arrived.
                self.count_duplicate_acks(ack);
            } else if ack.is_advancing {
                self.board.sacked_count = 0;
            }
        }
        Retransmit::Lost
    }

    /// Sends what `alert` allowed.
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
