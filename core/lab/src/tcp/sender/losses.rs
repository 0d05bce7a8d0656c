//! Loss detection: by time with SACK (RFC 8985), by duplicate ACKs without (RFC 5681, RFC 6582); and detection of
//! reordering.
//!
//! It never retransmits.

use super::Sender;
use super::recovery::{Acknowledgment, State};
use super::scoreboard::{Judgement, Sent};
use super::timer::Timer;

/// Least wait for reordering, in microseconds.
const TIMEOUT_MIN_US: i64 = 2_000;

impl Sender {
    /// Marks lost segments: by time with SACK (RFC 8985), by the third duplicate ACK and each partial ACK without (RFC
    /// 6582).
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

    /// Without SACK a duplicate ACK means that one more segment arrived.
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

    /// A segment at `place` arrived although everything up to `highest` may have arrived before.
    pub(super) fn note_reordering(&mut self, place: i64, highest: i64) {
        if place < highest {
            let mss = i64::from(self.mss.max(1));
            let segments = (highest - place + mss - 1) / mss;
            self.rack.reordered(u32::try_from(segments).unwrap_or(u32::MAX));
        }
    }

    /// Marks lost segments (RFC 8985, section 6.2, step 5). True when the timer is set for those that may be lost soon.
    pub(super) fn mark_lost_by_time(&mut self, now_ns: i64) -> bool {
        if !self.rack.has_advanced {
            return false;
        }
        self.rack.has_advanced = false;
        let Some(wait_us) = self.detect_losses(now_ns) else { return false };
        self.timer = Some((Timer::Reordering, now_ns + (wait_us + TIMEOUT_MIN_US) * 1000));
        true
    }

    /// Marks lost segments; returns the longest remaining wait of the others.
    fn detect_losses(&mut self, now_ns: i64) -> Option<i64> {
        let (round_trip_us, window_us, latest) =
            (self.rack.round_trip_us, self.reordering_window_us(), self.rack.latest);
        let mut wait_us = None;
        self.board.judge_by_time(|sent| {
            if latest <= (sent.sent_ns, sent.end) {
                return Judgement::Stop;
            }
            let remaining_us = round_trip_us + window_us - (now_ns - sent.sent_ns) / 1000;
            if remaining_us <= 0 {
                return Judgement::Lost;
            }
            wait_us = wait_us.max(Some(remaining_us));
            Judgement::NotYet
        });
        wait_us
    }

    /// The reordering window (RFC 8985, section 6.2, step 4).
    fn reordering_window_us(&self) -> i64 {
        let is_recovering = matches!(self.recovery.state, State::Recovery | State::Loss);
        if !self.rack.is_reordering_seen && (is_recovering || self.board.sacked_count >= self.rack.reordering) {
            return 0;
        }
        if self.round_trip.least_us == i64::MAX {
            return 0;
        }
        ((self.round_trip.least_us >> 2) * self.rack.steps).min(self.round_trip.srtt_us())
    }

    /// Whether the segment was sent more than one RTT ago.
    pub(super) fn is_overdue(&self, now_ns: i64, sent: &Sent) -> bool {
        (now_ns - sent.sent_ns) / 1000 >= self.rack.round_trip_us
    }

    /// The reordering timer went off.
    pub(super) fn reordering_timed_out(&mut self, now_ns: i64) {
        let (pipe, lost) = (self.board.pipe(), self.board.lost_total);
        // Remaining segments are judged at the next ACK, or by the retransmission timeout: Linux waits only once.
        self.detect_losses(now_ns);
        if pipe != self.board.pipe() {
            if self.recovery.state != State::Recovery {
                self.enter_recovery(now_ns);
                if self.recovery.is_reducing() {
                    let newly_lost = self.board.lost_total - lost;
                    self.reduce_window(1, newly_lost, false);
                }
            }
            self.retransmit_lost(now_ns);
        }
        if !matches!(self.timer, Some((Timer::Retransmission, _))) {
            self.rearm_retransmission(now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::settings::Settings;

    /// RFC 8985, section 6.2: a segment is lost when its round trip is longer than that of a later one by the reordering
    /// window, a quarter of the shortest round trip. The timer adds Linux's 2 ms.
    #[test]
    fn the_reordering_window_is_a_quarter_of_the_minimum_rtt() {
        const MS: i64 = 1_000_000;
        let mut sender = Sender::new(&Settings::default());
        sender.has_sack = true;
        sender.round_trip.note(16_000);
        sender.round_trip.sample(16_000, 1, 3);
        sender.board.push(1, 2, 0);
        sender.board.push(2, 3, MS);
        // the second segment arrives first: sent at 1 ms, delivered at 17 ms
        let second = sender.board.last().unwrap();
        sender.rack.delivered(17 * MS, &second, 16_000);
        // the first one was sent 17 ms ago: 16 + 4 - 17 = 3 ms are left, and 2 ms
        assert!(sender.mark_lost_by_time(17 * MS));
        assert_eq!((sender.timer, sender.board.lost_count), (Some((Timer::Reordering, 22 * MS)), 0));
        sender.rack.look_again();
        sender.mark_lost_by_time(20 * MS - 1000);
        assert_eq!(sender.board.lost_count, 0);
        sender.rack.look_again();
        assert!(!sender.mark_lost_by_time(20 * MS));
        assert_eq!(sender.board.lost_count, 1);
    }
}
