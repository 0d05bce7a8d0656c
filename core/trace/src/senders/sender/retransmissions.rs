//! A retransmission: its cause, and what it changes.

use super::{Sender, recovery_rows};
use crate::senders::Rows;
use crate::senders::lost_acks::Again;
use crate::senders::observation::Observation;
use crate::senders::retransmission::{self, Cause, Circumstances};
use crate::senders::sender_state::{Delays, SenderNs};

impl Sender {
    pub(super) fn retransmit(&mut self, seen: &Observation, last_ns: Option<i64>, delays: Delays, rows: &mut Rows) {
        self.hold.retransmit();
        let heard = self.advanced.max(last_ns.map_or(SenderNs::NEVER, SenderNs::of_packet));
        let circumstances = Circumstances {
            una: self.board.una(),
            sent: self.board.sent(),
            sacked_bytes: self.board.sacked_bytes(),
            recovery: self.recovery.cause(),
            has_just_recovered: self.recovered == Some(self.advanced),
            timeout_point: self.timeout_point,
            quiet_ns: SenderNs::of_packet(seen.time_ns).since(heard),
            round_trip_ns: delays.round_trip_ns,
            is_probed: self.is_probed,
            has_sack: seen.is_sack_permitted,
            has_timestamps: seen.timestamps.is_some(),
        };
        // an ACK that passed the tap before then would have arrived, even twice as late as usual
        let heard_ns =
            SenderNs::of_packet(seen.time_ns).ack_ns(delays.to_sender_ns).saturating_sub(delays.round_trip_ns);
        let passed =
            self.acks.arrived_by(heard_ns).map_or(self.board.una(), |(passed, _)| passed.max(self.board.una()));
        let (cause, is_timer) = retransmission::cause(seen.offset, seen.end(), &circumstances);
        let is_timeout = cause == Cause::Timeout && is_timer;
        let sign = self.sign(seen.frame, seen.time_ns);
        let mut where_to = recovery_rows(self.connection, self.is_from_client, rows);
        let sign_pipe = self.recovery.first_sign().map_or(sign.pipe, |first| first.pipe);
        let begins = self.recovery.retransmit(cause, is_timeout, sign, seen.length, &mut where_to);
        match cause {
            Cause::Timeout if is_timer => {
                self.board.lose_all();
                self.timeout_point = self.board.sent();
            }
            Cause::TailProbe => self.is_probed = true,
            Cause::Fast => {
                self.board.lose_below(self.board.highest_sacked().max(seen.end()));
            }
            _ => {}
        }
        if begins && self.pauses.cwnd.is_slow_start() {
            self.ssthresh_guess.get_or_insert(sign_pipe);
        }
        if begins || is_timeout {
            self.pauses.lose(is_timeout);
        }
        if cause != Cause::TailProbe {
            self.board.retransmit_range(seen.offset, seen.end());
        }
        if cause != Cause::Timeout || is_timer {
            self.counts[cause as usize] += 1;
        }
        let row = rows.wanted.retransmissions.then(|| {
            let original = self.flight.original(seen.offset).filter(|original| original.frame != seen.frame);
            rows.retransmissions.push(retransmission::row(seen, self.connection, self.is_from_client, cause, original))
        });
        let recovery = (self.recovery.count(), self.recovery.row());
        self.remembered.push(seen, seen.offset <= self.board.una(), row, recovery, rows);
        let has_sacks = self.board.sacked_bytes() > 0;
        self.lost_acks.retransmit(seen, Again { cause, is_timer, has_sacks, passed });
    }
}
