//! Timeouts: the retransmission timeout (RFC 6298), the tail loss probe (RFC 8985, section 7), the reordering timer,
//! and the zero window probe (RFC 9293, section 3.8.6.1).
//!
//! One timer serves all four, as in Linux: only one of them can be needed at a time.

use super::recovery::State;
use super::rtt::{RTO_INITIAL_US, RTO_MAX_US, RTO_MIN_US};
use super::timer::Timer;
use super::{Sender, Transmission};

/// Consecutive timeouts after which Linux aborts a connection (tcp_retries2).
const TIMEOUTS_MOST: u32 = 15;
/// The same for a SYN (tcp_syn_retries).
const SYN_TIMEOUTS_MOST: u32 = 6;
/// Least wait for a loss probe: two ticks of Linux's clock at 1000 Hz.
const PROBE_MIN_US: i64 = 2_000;

impl Sender {
    /// When the timer goes off.
    pub fn poll_timeout(&self) -> Option<i64> {
        self.timer.map(|(_, at_ns)| at_ns)
    }

    /// Stops the timer for good.
    pub fn stop_timer(&mut self) {
        self.timer = None;
    }

    /// Restarts the retransmission timer (RFC 6298, rules 5.1 to 5.3). After a probe it is measured from the
    /// transmission of the first segment.
    pub(super) fn rearm_retransmission(&mut self, now_ns: i64) {
        let Some(first) = self.board.first() else {
            self.timer = self.timer.filter(|&(timer, _)| timer == Timer::ZeroWindow);
            return;
        };
        let rto_ns = self.round_trip.rto_us() * 1000;
        let at_ns = match self.timer {
            Some((Timer::LossProbe | Timer::Reordering, _)) => (first.sent_ns + rto_ns).max(now_ns + 1),
            _ => now_ns + rto_ns,
        };
        self.timer = Some((Timer::Retransmission, at_ns));
    }

    /// After an ACK: schedules a loss probe where one is useful, else the retransmission timer.
    pub(super) fn set_timer(&mut self, now_ns: i64) {
        if !self.schedule_loss_probe(now_ns, true) {
            self.rearm_retransmission(now_ns);
        }
    }

    /// RFC 8985, section 7.2: two RTTs, plus 200 ms when the receiver may delay its ACK.
    pub(super) fn schedule_loss_probe(&mut self, now_ns: i64, is_rto_advancing: bool) -> bool {
        let Some(first) = self.board.first() else { return false };
        if !self.has_sack || !matches!(self.recovery.state, State::Open | State::Cwr) {
            return false;
        }
        let srtt_us = self.round_trip.srtt_us();
        let wait_us = match (srtt_us, self.board.packets_out()) {
            (0, _) => RTO_INITIAL_US,
            (_, 1) => 2 * srtt_us + RTO_MIN_US,
            _ => 2 * srtt_us + PROBE_MIN_US,
        };
        let rto_ns = self.round_trip.rto_us() * 1000;
        let rto_at_ns = if is_rto_advancing { now_ns + rto_ns } else { first.sent_ns + rto_ns };
        let mut at_ns = now_ns + wait_us * 1000;
        if rto_at_ns > now_ns {
            at_ns = at_ns.min(rto_at_ns);
        }
        self.timer = Some((Timer::LossProbe, at_ns));
        true
    }

    /// The timer went off; false when the connection is to be aborted.
    pub fn handle_timeout(&mut self, now_ns: i64) -> bool {
        let Some((timer, _)) = self.timer.filter(|&(_, at_ns)| at_ns <= now_ns) else { return true };
        match timer {
            Timer::Retransmission => return self.retransmission_timed_out(now_ns),
            Timer::LossProbe => self.send_loss_probe(now_ns),
            Timer::Reordering => self.reordering_timed_out(now_ns),
            Timer::ZeroWindow => return self.probe_zero_window(now_ns),
        }
        true
    }

    /// RFC 6298, rules 5.4 to 5.6: retransmits the earliest segment, and doubles the timeout.
    fn retransmission_timed_out(&mut self, now_ns: i64) -> bool {
        let Some(first) = self.board.first() else {
            self.timer = None;
            return true;
        };
        let most = if self.snd_una == 0 { SYN_TIMEOUTS_MOST } else { TIMEOUTS_MOST };
        if self.probe.timeout_count >= most {
            self.timer = None;
            return false;
        }
        self.enter_loss(now_ns);
        self.timeout_count += 1;
        self.probe.timeout_count += 1;
        self.retransmit(now_ns, first, false);
        self.round_trip.back_off();
        self.timer = Some((Timer::Retransmission, now_ns + self.round_trip.rto_us() * 1000));
        true
    }

    /// RFC 8985, section 7.3: sends a new segment or retransmits the last one, so that the receiver sends a SACK.
    fn send_loss_probe(&mut self, now_ns: i64) {
        if self.probe.loss_probe_end == 0 {
            let is_sent = if let Some(end) = self.next_segment(true).filter(|&end| end > self.snd_nxt) {
                self.send_new(now_ns, end);
                self.probe.is_retransmission = false;
                true
            } else if let Some(last) = self.board.last() {
                self.probe.is_retransmission = true;
                self.retransmit(now_ns, last, true)
            } else {
                false
            };
            if is_sent {
                self.probe.loss_probe_end = self.snd_nxt;
                // The retransmission timer starts now.
                self.timer = None;
            }
        }
        self.rearm_retransmission(now_ns);
    }

    /// Sets the probe timer when nothing is in flight and the window is closed.
    pub(super) fn check_zero_window(&mut self, now_ns: i64) {
        let is_stuck = self.board.packets_out() == 0 && self.snd_nxt < self.end();
        match self.timer {
            None if is_stuck => {
                self.timer = Some((Timer::ZeroWindow, now_ns + self.probe_interval_ns()));
            }
            Some((Timer::ZeroWindow, _)) if !is_stuck => {
                self.timer = None;
                self.probe.zero_window_count = 0;
                self.rearm_retransmission(now_ns);
            }
            _ => {}
        }
    }

    /// The timeout, doubled with each probe.
    fn probe_interval_ns(&self) -> i64 {
        let base_us = self.round_trip.rto_us().max(RTO_MIN_US);
        (base_us << self.probe.zero_window_count.min(20)).min(RTO_MAX_US) * 1000
    }

    /// RFC 9293, section 3.8.6.1: sends what fits the window; else an empty segment outside it.
    fn probe_zero_window(&mut self, now_ns: i64) -> bool {
        self.timer = None;
        if self.board.packets_out() > 0 || self.snd_nxt >= self.end() {
            return true;
        }
        // A receiver that answers may keep the window closed for ever; each answer resets the count.
        if self.probe.timeout_count >= TIMEOUTS_MOST {
            return false;
        }
        self.probe.timeout_count += 1;
        self.probe.zero_window_count += 1;
        let room = i64::from(self.snd_wnd) - (self.snd_nxt - self.snd_una);
        let end = (self.snd_nxt + room).min(self.snd_nxt + i64::from(self.mss)).min(self.buffer.end());
        if end > self.snd_nxt {
            self.send_new(now_ns, end);
        } else {
            self.outgoing.push(Transmission { start: self.snd_una - 1, end: self.snd_una - 1, is_window_probe: true });
            self.timer = Some((Timer::ZeroWindow, now_ns + self.probe_interval_ns()));
        }
        true
    }

    /// An ACK arrived while nothing was in flight: the peer is alive.
    pub(super) fn window_answered(&mut self, now_ns: i64) {
        if !matches!(self.timer, Some((Timer::ZeroWindow, _))) {
            return;
        }
        if self.next_segment(true).is_some() {
            self.probe.zero_window_count = 0;
            self.timer = None;
        } else {
            self.timer = Some((Timer::ZeroWindow, now_ns + self.probe_interval_ns()));
        }
    }

    /// Progress: the peer is alive.
    pub(super) fn peer_answered(&mut self) {
        self.probe.timeout_count = 0;
    }

    /// Checks whether the loss probe repaired a loss (RFC 8985, section 7.4).
    pub(super) fn account_for_loss_probe(
        &mut self,
        acknowledged: i64,
        is_duplicate_seen: bool,
        is_plain_duplicate: bool,
    ) {
        if self.probe.loss_probe_end == 0 || acknowledged < self.probe.loss_probe_end {
            return;
        }
        if !self.probe.is_retransmission || is_duplicate_seen {
            self.probe.loss_probe_end = 0;
        } else if acknowledged > self.probe.loss_probe_end {
            // The probe repaired a loss that would otherwise go unnoticed.
            self.probe.loss_probe_end = 0;
            self.begin_reduction();
            self.recovery.state = State::Cwr;
            self.end_reduction();
            self.try_keep_open();
        } else if is_plain_duplicate {
            self.probe.loss_probe_end = 0;
        }
    }

    /// A recovery begins: it accounts for the loss.
    pub(super) fn forget_loss_probe(&mut self) {
        self.probe.loss_probe_end = 0;
    }
}
