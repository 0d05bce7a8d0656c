//! ACKs: seen at the tap, on their way, and what they change when they reach the sender.

use super::{Sender, recovery_rows};
use crate::senders::Rows;
use crate::senders::acks::Ack;
use crate::senders::delayed_acks::HeldBack;
use crate::senders::observation::{Observation, is_duplicate};
use crate::senders::retransmission::Place;
use crate::senders::sender_state::{Delays, LastAck, SenderNs};
use crate::tables::Sack;

/// Duplicate ACKs, or SACKed segments, that show a loss (RFC 5681, section 3.2; RFC 6675, section 4).
const DUPLICATES: i64 = 3;

impl Sender {
    /// Processes a packet to it.
    #[inline]
    pub fn acknowledge(&mut self, seen: &Observation, delays: Delays, rows: &mut Rows) {
        let Some(acknowledged) = seen.acknowledged else { return };
        if !self.is_begun {
            self.begin(acknowledged);
        }
        if rows.wanted.sacks {
            self.list_sacks(seen, acknowledged, rows);
        }
        self.times.pass(seen.time_ns);
        self.times.note(i64::from(seen.window) << seen.window_scale.unwrap_or(0), seen.flags.is_syn());
        if let Some(count) = self.lost_acks.acknowledge(seen, acknowledged, self.segment_bytes()) {
            self.remembered.follow_lost_acks(count, Place::BeforeTap, rows);
        }
        self.acks.push(seen, acknowledged, delays.to_sender_ns);
        if self.acks.is_full()
            && let Some((ack, blocks)) = self.acks.take_oldest()
        {
            self.take(&ack, SenderNs::of_ack(ack.time_ns, delays.to_sender_ns), &blocks, delays, rows);
        }
    }

    /// ACKs from before this timestamp never reached the sender, which retransmitted so many packets for that.
    #[cold]
    pub(super) fn lose_acks(&mut self, count: u32, heard: u32, rows: &mut Rows) {
        while let Some((ack, blocks)) = self.acks.take_before(heard) {
            let blocks = blocks.get(..ack.block_count()).unwrap_or_default();
            if let Some(&(left, right)) = blocks.first().filter(|_| is_duplicate(blocks, ack.acknowledged)) {
                self.remembered.duplicate_arrived(left, right, rows);
            }
        }
        self.remembered.follow_lost_acks(count, Place::BeyondTap, rows);
    }

    /// An ACK reached the sender; `answer` is when its answer passes the tap at the earliest.
    pub(super) fn take(&mut self, ack: &Ack, answer: SenderNs, blocks: &[(i64, i64)], delays: Delays, rows: &mut Rows) {
        let before = self.state;
        let segment = self.segment_bytes();
        let window = self.scale.bytes(ack);
        self.last_window = ack.window;
        let una_before = self.board.una();
        let is_advance = ack.acknowledged > una_before;
        self.note_delay(ack, answer, delays);
        let spurious_before = self.remembered.spurious_count();
        let has_news = self.take_blocks(ack, blocks, rows);
        if is_advance {
            self.board.acknowledge(ack.acknowledged);
            if let Some(remembered) = self.remembered.made() {
                remembered.acknowledge(ack.acknowledged, ack.timestamps.map(|(_, echo)| echo), rows);
            }
            self.advanced = answer;
            self.is_probed = false;
            self.pauses.acknowledge(ack.acknowledged, self.board.sent(), segment, answer.packet_ns());
        } else if ack.length == 0
            && ack.acknowledged == una_before
            && ack.block_count() == 0
            && before.rwnd == Some(window)
            && self.board.owin() > 0
        {
            self.board.duplicate(segment);
        }
        if self.board.sacked_bytes() > 0 {
            let sign = self.sign(ack.frame, ack.time_ns);
            self.recovery.note_sign(sign);
            if has_news && self.has_shown_loss(segment) {
                self.board.lose_below(self.board.highest_sacked());
            }
        }
        let pipe = self.board.pipe();
        let mut where_to = recovery_rows(self.connection, self.is_from_client, rows);
        let has_recovered =
            is_advance && self.recovery.acknowledge(self.board.una(), ack.frame, ack.time_ns, pipe, &mut where_to);
        if has_recovered {
            self.board.forget_losses();
            self.recovered = Some(answer);
            self.pauses.reduce();
        }
        if has_recovered || self.remembered.spurious_count() > spurious_before {
            self.undo();
        }
        if is_advance || has_news || before.rwnd != Some(window) {
            self.pauses.burst.acknowledge(answer);
        }
        if ack.length > 0 {
            self.pauses.burst.request();
        }
        let room = |owin: i64, window: Option<i64>| window.is_none_or(|window| window - owin >= segment);
        let has_opened_window =
            !room(before.owin, before.rwnd) && room(self.board.owin(), Some(window)) && before.rwnd.is_some();
        self.state.rwnd = Some(window);
        self.state.inferred_scale = self.scale.is_inferred().then(|| self.scale.inferred());
        self.settle(ack.frame, answer.at_sender_ns(delays.to_sender_ns), rows);
        self.state.last_ack = Some(LastAck { answer, is_advance, has_opened_window, owin: self.state.owin });
    }

    /// A recovery ended, or another retransmission turned out to be spurious: the sender undoes what no loss reduced.
    /// During a recovery there may be one yet.
    #[cold]
    fn undo(&mut self) {
        if self.recovery.cause().is_none() && !self.remembered.has_reduced() {
            self.pauses.undo();
        }
    }

    /// An ACK reaches the sender: whether it was held back while the sender waited for it.
    #[inline]
    fn note_delay(&mut self, ack: &Ack, answer: SenderNs, delays: Delays) {
        if ack.length > 0 {
            self.delayed.request();
        } else if (1..2 * self.segment_bytes()).contains(&(ack.acknowledged - self.board.una()))
            && self.state.pipe < 2 * self.segment_bytes()
            && !self.state.is_window_full
            && let (Some(sent_ns), Some(prompt)) = (self.pauses.burst.last_ns(), delays.prompt)
        {
            let (is_in_recovery, row) = (self.recovery.cause().is_some(), self.recovery.row());
            let held = HeldBack { frame: ack.frame, time_ns: ack.time_ns, answer, is_in_recovery, row };
            self.delayed.acknowledge(held, sent_ns, prompt);
        }
    }

    /// Whether the scoreboard shows a loss (RFC 6675, section 4, IsLost; during a recovery RFC 8985).
    fn has_shown_loss(&self, segment: i64) -> bool {
        self.recovery.cause().is_some()
            || self.board.sacked_bytes() > (DUPLICATES - 1) * segment
            || self.board.sacked_count() as i64 >= DUPLICATES
    }

    /// Processes SACK blocks. True if one is new.
    fn take_blocks(&mut self, ack: &Ack, blocks: &[(i64, i64)], rows: &mut Rows) -> bool {
        let mut has_news = false;
        let blocks = blocks.get(..ack.block_count()).unwrap_or_default();
        for (index, &(left, right)) in blocks.iter().enumerate() {
            if index == 0 && is_duplicate(blocks, ack.acknowledged) {
                self.remembered.duplicate_arrived(left, right, rows);
            } else {
                has_news |= self.board.sack(left, right);
            }
        }
        has_news
    }

    fn list_sacks(&self, seen: &Observation, acknowledged: i64, rows: &mut Rows) {
        for (index, &(left, right)) in seen.sacks().iter().enumerate() {
            rows.sacks.push(Sack {
                connection: self.connection,
                to_target: self.is_from_client,
                frame: seen.frame,
                time_ns: seen.time_ns,
                left_offset_bytes: left,
                right_offset_bytes: right,
                is_duplicate: index == 0 && is_duplicate(seen.sacks(), acknowledged),
            });
        }
    }
}
