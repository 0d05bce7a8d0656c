//! Processing of an ACK: acknowledged segments, RTT samples, transmissions (RFC 9293, section 3.10.7.4; RFC 2018; RFC
//! 2883).
//!
//! The endpoint has checked that the segment is acceptable.

use super::Sender;
use super::recovery::{Acknowledgment, State};
use super::scoreboard::Sent;
use crate::tcp::congestion::Acknowledged;

/// An ACK, as places of this sender.
#[derive(Debug, Clone, Copy)]
pub struct Ack {
    /// Next place that the receiver expects.
    pub place: i64,
    /// The sequence number of the segment, as place of the other direction: for the order of window updates.
    pub sequence_place: i64,
    /// The offered window in bytes.
    pub window_bytes: u32,
    /// Selectively acknowledged blocks; the first `block_count` are set.
    pub blocks: [(i64, i64); 4],
    /// How many.
    pub block_count: usize,
    /// The segment carries data.
    pub has_data: bool,
    /// The echoed timestamp, in the milliseconds of `now_ns`.
    pub echo_ms: Option<i64>,
}

/// Send times of segments that this ACK newly acknowledges or sacks.
#[derive(Debug, Default, Clone, Copy)]
struct SendTimes {
    first_ns: Option<i64>,
    last_ns: Option<i64>,
}

impl SendTimes {
    fn add(&mut self, sent_ns: i64) {
        self.first_ns.get_or_insert(sent_ns);
        self.last_ns = Some(sent_ns);
    }
}

impl Sender {
    /// Takes an acceptable ACK, and sends what it allows.
    pub fn acknowledge(&mut self, now_ns: i64, ack: &Ack) {
        let mut what = Acknowledgment {
            snd_una_before: self.snd_una,
            is_advancing: ack.place > self.snd_una,
            has_data: ack.has_data,
            echo_ms: ack.echo_ms,
            ..Acknowledgment::default()
        };
        let lost_before = self.board.lost_total;
        if ack.place < self.snd_una {
            // An old ACK: only its blocks may be new.
            if ack.block_count > 0 && self.has_sack {
                self.take_blocks(now_ns, ack, &mut what, &mut SendTimes::default());
                let retransmit = self.alert(now_ns, &mut what);
                self.retransmit_after_ack(now_ns, retransmit);
            }
            return;
        }
        if what.is_advancing || self.board.packets_out() == 0 {
            self.peer_answered();
        }
        what.is_window_update = self.update_window(ack);
        let highest_sacked = self.board.highest_sacked(self.snd_una);
        let had_packets_out = self.board.packets_out() > 0;
        let mut sacked = SendTimes::default();
        if ack.block_count > 0 && self.has_sack {
            self.take_blocks(now_ns, ack, &mut what, &mut sacked);
        }
        if !had_packets_out {
            self.window_answered(now_ns);
            self.account_for_loss_probe(ack.place, what.has_duplicate, false);
            if what.has_duplicate {
                // Nothing is in flight, but a reduction may have to be undone.
                self.alert(now_ns, &mut what);
            }
            return;
        }
        self.take_cumulative(now_ns, ack, &mut what, sacked, highest_sacked);
        self.rack.adapt(self.snd_una, self.snd_nxt);
        let is_plain = !what.is_advancing && !what.has_data && !what.is_window_update;
        self.account_for_loss_probe(ack.place, what.has_duplicate, is_plain && !what.is_data_sacked);

        let is_not_duplicate = what.has_data || what.is_window_update || what.is_data_acknowledged;
        let mut retransmit = super::recovery::Retransmit::Nothing;
        if !is_not_duplicate || what.is_data_sacked || what.has_duplicate || self.recovery.state != State::Open {
            if !what.is_advancing && !is_not_duplicate && !what.has_duplicate {
                what.duplicate_acks = 1;
            }
            retransmit = self.alert(now_ns, &mut what);
        }
        if what.is_setting_timer {
            self.set_timer(now_ns);
        }
        if self.recovery.is_reducing() {
            self.reduce_window(what.delivered, self.board.lost_total - lost_before, what.is_advancing);
        } else if what.is_data_acknowledged || (self.rack.reordering > 3 && what.is_data_sacked) {
            let is_cwnd_limited = self.is_limited_by_cwnd();
            self.window.acknowledged(now_ns, Acknowledged { segments: what.delivered, is_cwnd_limited });
        }
        self.retransmit_after_ack(now_ns, retransmit);
    }

    /// RFC 9293, section 3.10.7.4: a window counts when its segment is not older than the last one with a window.
    fn update_window(&mut self, ack: &Ack) -> bool {
        let is_newer = ack.place > self.snd_una
            || ack.sequence_place > self.snd_wl1
            || (ack.sequence_place == self.snd_wl1 && (ack.window_bytes > self.snd_wnd || ack.window_bytes == 0));
        if !is_newer {
            return false;
        }
        self.snd_wl1 = ack.sequence_place;
        let is_changed = self.snd_wnd != ack.window_bytes;
        self.snd_wnd = ack.window_bytes;
        self.largest_window = self.largest_window.max(ack.window_bytes);
        is_changed
    }

    /// Marks the segments of the blocks. The first block may report a duplicate (RFC 2883, section 4).
    fn take_blocks(&mut self, now_ns: i64, ack: &Ack, what: &mut Acknowledgment, sacked: &mut SendTimes) {
        let blocks = &ack.blocks[..ack.block_count.min(4)];
        let duplicate = match *blocks {
            [first, ..] if first.0 < ack.place => Some(first),
            [first, second, ..] if first.0 >= second.0 && first.1 <= second.1 => Some(first),
            _ => None,
        };
        if let Some((start, end)) = duplicate
            && start < end
            && start >= 0
            && end <= self.snd_nxt
        {
            what.has_duplicate = true;
            self.rack.duplicate_seen();
            self.board.duplicate_arrived(start);
            self.recovery.duplicate_arrived(end);
        }
        let mut overtaken = i64::MAX;
        for (index, &(start, end)) in blocks.iter().enumerate() {
            if (index == 0 && duplicate.is_some()) || start < self.snd_una || end > self.snd_nxt || start >= end {
                continue;
            }
            // Skip the blocks of the last ACK.
            let known =
                self.sacked_before.iter().find(|&&(left, right)| left <= start && start < right && right <= end);
            let from = known.map_or(start, |&(_, right)| right);
            if from < end {
                self.take_block(now_ns, (from, end), what, sacked, &mut overtaken);
            }
        }
        self.sacked_before = [(0, 0); 4];
        if self.board.sacked_count > 0 {
            self.sacked_before[..blocks.len()].copy_from_slice(blocks);
            if duplicate.is_some() {
                self.sacked_before[0] = (0, 0);
            }
        }
        if overtaken < i64::MAX && self.recovery.state != State::Loss {
            let highest = self.board.highest_sacked(self.snd_una);
            self.note_reordering(overtaken, highest);
        }
    }

    fn take_block(
        &mut self,
        now_ns: i64,
        (start, end): (i64, i64),
        what: &mut Acknowledgment,
        sacked: &mut SendTimes,
        overtaken: &mut i64,
    ) {
        let (rack, least_us) = (&mut self.rack, self.round_trip.least_us);
        let recovery_point = self.recovery.recovery_point;
        self.board.sack(start, end, |sent: Sent, highest| {
            rack.delivered(now_ns, &sent, least_us);
            if !sent.was_retransmitted {
                if sent.start < highest {
                    *overtaken = (*overtaken).min(sent.start);
                }
                what.is_original_delivered |= sent.end <= recovery_point;
                sacked.add(sent.sent_ns);
            }
            what.is_data_sacked = true;
            what.delivered += 1;
        });
    }

    /// Removes acknowledged segments, and samples the RTT of those that were not retransmitted (RFC 6298, section 3).
    fn take_cumulative(
        &mut self,
        now_ns: i64,
        ack: &Ack,
        what: &mut Acknowledgment,
        sacked: SendTimes,
        highest_sacked: i64,
    ) {
        if what.is_advancing {
            self.snd_una = ack.place;
            self.buffer.acknowledge(ack.place);
        }
        let mut times = SendTimes::default();
        let (mut count, mut overtaken) = (0, i64::MAX);
        while let Some(sent) = self.board.acknowledge(ack.place) {
            count += 1;
            if sent.was_retransmitted {
                what.is_retransmission_acknowledged = true;
            } else if !sent.is_sacked {
                times.add(sent.sent_ns);
                overtaken = overtaken.min(sent.start);
                what.is_original_delivered |= sent.end <= self.recovery.recovery_point;
            }
            if self.has_sack && !sent.is_sacked {
                what.delivered += 1;
                self.rack.delivered(now_ns, &sent, self.round_trip.least_us);
            }
        }
        let acknowledged_us = times.first_ns.filter(|_| !what.is_retransmission_acknowledged);
        let since = |sent_ns: i64| (now_ns - sent_ns) / 1000;
        let sample = acknowledged_us.or(sacked.first_ns).map(since).or_else(|| {
            // Only retransmitted segments: the timestamp tells which transmission (RFC 7323, section 4.1).
            let echo_ms = ack.echo_ms.filter(|_| count > 0)?;
            Some((now_ns / 1_000_000 - echo_ms).max(1) * 1000)
        });
        let latest = sacked.last_ns.or(times.last_ns.filter(|_| acknowledged_us.is_some())).map(since).or(sample);
        if let Some(sample_us) = sample {
            self.round_trip.note(latest.unwrap_or(sample_us));
            self.round_trip.sample(sample_us, self.snd_una, self.snd_nxt);
        }
        if count == 0 {
            let head_ns = self.board.first().map(|first| first.sent_ns);
            if let (Some(sacked_ns), Some(head_ns)) = (sacked.first_ns, head_ns) {
                // An ACK of later segments says nothing about the first one: the timer continues.
                what.is_setting_timer = sacked_ns < head_ns;
            }
        } else {
            what.is_data_acknowledged = true;
            what.is_setting_timer = true;
            if self.has_sack {
                self.note_reordering(overtaken, highest_sacked);
            } else {
                self.remove_duplicate_acks(count, what);
            }
        }
        if let Some(latest_us) = latest {
            let srtt_us = self.round_trip.srtt_us();
            self.window.measured(now_ns, latest_us, srtt_us, self.snd_una, self.snd_nxt);
        }
    }

    /// Without SACK: acknowledged segments had been counted as duplicate ACKs, except the missing one.
    fn remove_duplicate_acks(&mut self, count: u32, what: &mut Acknowledgment) {
        if what.is_retransmission_acknowledged {
            what.is_original_delivered = false;
        }
        what.delivered += count.saturating_sub(self.board.sacked_count).max(1);
        self.board.sacked_count = self.board.sacked_count.saturating_sub(count - 1).min(self.board.packets_out());
    }
}
