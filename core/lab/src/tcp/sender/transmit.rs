//! What may be sent now: new segments within both windows (RFC 9293, section 3.8.6.2; RFC 5681) and retransmissions;
//! and how much of the congestion window is used (RFC 7661, RFC 2861).
//!
//! It never judges what is lost.

use super::recovery::State;
use super::scoreboard::Sent;
use super::timer::Timer;
use super::{Sender, Transmission};

impl Sender {
    /// Sends new segments while the windows allow; `is_pushing` also sends small ones.
    pub fn transmit(&mut self, now_ns: i64, is_pushing: bool) {
        if self.snd_una == 0 {
            return;
        }
        let mut is_sent = false;
        let mut is_cwnd_limited = false;
        while self.snd_nxt < self.end() {
            if self.board.pipe() >= self.window.cwnd {
                is_cwnd_limited = true;
                break;
            }
            let Some(end) = self.next_segment(is_pushing) else { break };
            self.send_new(now_ns, end);
            is_sent = true;
            if self.recovery.is_reducing() {
                self.recovery.prr_out += 1;
            }
        }
        if is_sent {
            self.schedule_loss_probe(now_ns, false);
        }
        is_cwnd_limited |= self.board.pipe() >= self.window.cwnd;
        if is_sent || is_cwnd_limited {
            self.validate_window(now_ns, is_cwnd_limited);
        }
        self.check_zero_window(now_ns);
    }

    /// The end of the next new segment, if receive window and Nagle allow it.
    pub(super) fn next_segment(&self, is_pushing: bool) -> Option<i64> {
        let unsent = self.buffer.end() - self.snd_nxt;
        let payload = unsent.min(i64::from(self.mss));
        let has_fin = self.fin.is_some() && payload == unsent;
        let end = self.snd_nxt + payload + i64::from(has_fin);
        // RFC 9293, section 3.8.6.2.1: silly window avoidance.
        if end > self.snd_una + i64::from(self.snd_wnd) {
            return None;
        }
        let is_small = payload < i64::from(self.mss) && !has_fin;
        // RFC 9293, section 3.7.4, as modified by Minshall: a small segment waits only for an unacknowledged small one.
        let waits = self.settings.nagle
            && is_small
            && !is_pushing
            && self.board.packets_out() > 0
            && self.small_end > self.snd_una
            && self.small_end <= self.snd_nxt;
        (!waits).then_some(end)
    }

    /// Sends the bytes from `snd_nxt` to `end`.
    pub(super) fn send_new(&mut self, now_ns: i64, end: i64) {
        if self.board.pipe() == 0 {
            self.window.restarted(now_ns, now_ns - self.last_data_ns);
        }
        self.last_data_ns = now_ns;
        let had_packets_out = self.board.packets_out() > 0;
        self.board.push(self.snd_nxt, end, now_ns);
        self.outgoing.push(Transmission { start: self.snd_nxt, end, is_window_probe: false });
        if end - self.snd_nxt < i64::from(self.mss) {
            self.small_end = end;
        }
        self.snd_nxt = end;
        if !had_packets_out || matches!(self.timer, Some((Timer::LossProbe, _))) {
            self.rearm_retransmission(now_ns);
        }
    }

    /// Retransmits lost segments as far as the window allows.
    pub(super) fn retransmit_lost(&mut self, now_ns: i64) {
        let mut is_first = false;
        while self.board.pipe() < self.window.cwnd {
            let Some(sent) = self.board.next_to_retransmit() else { break };
            if !self.retransmit(now_ns, sent, false) {
                break;
            }
            if self.recovery.is_reducing() {
                self.recovery.prr_out += 1;
            }
            is_first |= self.board.first().is_some_and(|first| first.start == sent.start);
        }
        if is_first && !matches!(self.timer, Some((Timer::Reordering, _))) {
            self.timer = Some((Timer::Retransmission, now_ns + self.round_trip.rto_us() * 1000));
        }
    }

    /// Retransmits a segment, unless the receiver's window shrank below it.
    pub(super) fn retransmit(&mut self, now_ns: i64, sent: Sent, is_probe: bool) -> bool {
        let start = sent.start.max(self.snd_una);
        if start >= self.snd_una + i64::from(self.snd_wnd) && start != self.snd_una {
            return false;
        }
        self.outgoing.push(Transmission { start, end: sent.end, is_window_probe: false });
        self.board.retransmitted(sent.start, now_ns, is_probe);
        self.retransmission_count += 1;
        self.last_data_ns = now_ns;
        if !is_probe {
            self.recovery.note_retransmission(now_ns);
        }
        true
    }

    /// Whether the sender is cwnd-limited (Linux's tcp_is_cwnd_limited).
    pub(super) fn is_limited_by_cwnd(&self) -> bool {
        // In slow start the window may grow to twice what was sent.
        self.is_cwnd_limited || (self.window.is_slow_start() && self.window.cwnd < 2 * self.most_packets_out)
    }

    /// Records the use of the window, and shrinks a window that was not used for an RTO (RFC 2861).
    fn validate_window(&mut self, now_ns: i64, is_cwnd_limited: bool) {
        let packets_out = self.board.packets_out();
        if self.snd_una >= self.usage_end
            || is_cwnd_limited
            || (!self.is_cwnd_limited && packets_out > self.most_packets_out)
        {
            self.is_cwnd_limited = is_cwnd_limited;
            self.most_packets_out = packets_out;
            self.usage_end = self.snd_nxt;
        }
        if self.is_limited_by_cwnd() {
            self.cwnd_used = 0;
            self.cwnd_stamp_ns = now_ns;
            return;
        }
        self.cwnd_used = self.cwnd_used.max(packets_out);
        let unused_ns = now_ns - self.cwnd_stamp_ns;
        if self.settings.slow_start_after_idle && unused_ns >= self.round_trip.rto_us() * 1000 {
            if self.recovery.state == State::Open && !self.is_buffer_limited {
                let used = self.cwnd_used.max(self.settings.initial_window);
                if used < self.window.cwnd {
                    self.window.ssthresh = self.current_ssthresh();
                    self.window.cwnd = (self.window.cwnd + used) >> 1;
                }
                self.cwnd_used = 0;
            }
            self.cwnd_stamp_ns = now_ns;
        }
    }

    /// RFC 5681, section 4.1, as in Linux: the window halves with every RTO without data.
    pub(super) fn restart_after_idle(&mut self, now_ns: i64) {
        let rto_ns = self.round_trip.rto_us() * 1000;
        let mut idle_ns = now_ns - self.last_data_ns;
        if !self.settings.slow_start_after_idle || self.board.packets_out() > 0 || idle_ns <= rto_ns {
            return;
        }
        self.window.ssthresh = self.current_ssthresh();
        let restart = self.settings.initial_window.min(self.window.cwnd);
        let mut cwnd = self.window.cwnd;
        idle_ns -= rto_ns;
        while idle_ns > 0 && cwnd > restart {
            cwnd >>= 1;
            idle_ns -= rto_ns;
        }
        self.window.cwnd = cwnd.max(restart);
        self.cwnd_stamp_ns = now_ns;
        self.cwnd_used = 0;
    }

    /// The threshold after the window shrinks: three quarters of the window.
    pub(super) fn current_ssthresh(&self) -> u32 {
        if self.recovery.is_reducing() {
            self.window.ssthresh
        } else {
            self.window.ssthresh.max((self.window.cwnd >> 1) + (self.window.cwnd >> 2))
        }
    }
}
