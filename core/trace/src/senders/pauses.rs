//! What the bursts of a sender and the stops between them show: the congestion window, and a full send buffer.

use super::ack_clock::{AckClock, Estimate};
use super::burst::Burst;
use super::congestion_window::{CongestionWindow, Round};
use super::observation::Observation;
use super::reductions::Reductions;
use super::retransmission::Remembered;
use super::send_buffer::{Place, SendBuffer, Span};
use super::sender_state::Delays;
use super::stop::{Between, Stop};
use super::window_rows::{Holds, WindowRows};
use crate::tables::{Rare, Windows};
use serde::{Deserialize, Serialize};

/// After a pause of this length a sender may restart with a small window: the usual minimum retransmission timeout,
/// less the possible difference of srtt.
const IDLE_MIN_NS: i64 = 175_000_000;
/// An answer may follow its ACK by half an RTT and this time.
const PATIENCE_MIN_NS: i64 = 1_000_000;
/// Timestamps rarely tick faster (RFC 7323, section 5.4): within a shorter RTT, which ACKs a far sender had is not known.
const TICK_NS: i64 = 1_000_000;
/// Within so many of them what is in flight changes too much to show the level of a send buffer.
const LEVEL_TICKS_MIN: i64 = 2;
/// A window that is smaller after a pause by this factor was restarted.
const RESTART_NUMERATOR: i64 = 3;
const RESTART_DENOMINATOR: i64 = 4;
/// An estimate is doubtful if more than this part of it was deemed lost, in a recovery that lost nothing.
const LOST_PARTS: i64 = 8;

/// A segment is more than 15 % of a smaller window, which an ACK may enlarge by that.
const SMALL_SEGMENTS: i64 = 7;

/// The sender when a burst begins.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The first unacknowledged byte.
    pub una: i64,
    /// Payload of a full segment.
    pub segment: i64,
    /// The number of recoveries so far.
    pub recovery: u32,
}

/// The pauses of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Pauses {
    /// Packets without an ACK between them.
    pub burst: Burst,
    /// The congestion window.
    pub cwnd: CongestionWindow,
    /// The rows of the table `window`.
    pub windows: WindowRows,
    clock: AckClock,
    reductions: Reductions,
    buffer: SendBuffer,
    /// The largest pipe since the last long pause; and before it, until the next window is known.
    peak: i64,
    before_pause: Option<i64>,
    restart_count: u32,
}

impl Pauses {
    /// The time by which an answer may follow its ACK.
    pub fn patience_ns(delays: Delays) -> i64 {
        delays.round_trip_ns / 2 + PATIENCE_MIN_NS
    }

    /// A packet is sent; returns whether it begins a burst.
    #[inline]
    pub fn end(&mut self, seen: &Observation, delays: Delays, now: Now) -> bool {
        let Some(between) = self.burst.begin(seen, delays) else { return false };
        let patience_ns = Self::patience_ns(delays);
        let stop = self.burst.stop;
        self.confirm(&stop, &between, now);
        let estimate = self.cwnd.judge(stop, between, patience_ns, now.segment);
        if self.cwnd.has_full_buffer() && !delays.is_reordered {
            self.buffer.find_since_loss();
        } else {
            self.buffer.set(self.cwnd.is_at_ceiling(), self.place(seen.time_ns));
        }
        if let Some(estimate) = estimate {
            self.estimate(estimate, &stop, delays, now);
        }
        self.windows.begin_burst();
        true
    }

    /// The burst goes on, to this stop so far.
    #[inline]
    pub fn stop(&mut self, stop: Stop, delays: Delays, segment: i64) {
        let ticks = delays.to_sender_ns / TICK_NS;
        // where packets overtake each other, what was in flight behind one of them is not known
        if ticks >= LEVEL_TICKS_MIN && !delays.is_reordered {
            // which ACKs the sender had is known by a tick
            let slack = stop.flight.pipe / ticks;
            self.cwnd.pass_far(&stop, segment, slack);
        }
        self.burst.stop = stop;
        self.windows.stop();
        self.peak = self.peak.max(stop.flight.pipe);
    }

    fn estimate(&mut self, bytes: i64, stop: &Stop, delays: Delays, now: Now) {
        if let Some(before) = self.before_pause.take()
            && bytes * RESTART_DENOMINATOR <= before * RESTART_NUMERATOR
        {
            self.restart_count += 1;
        }
        if (1..TICK_NS).contains(&delays.to_sender_ns) || bytes < SMALL_SEGMENTS * now.segment {
            return;
        }
        let rows = self.windows.of_burst(match self.cwnd.is_growing() {
            true if delays.to_sender_ns > 0 => Holds::AtStop,
            is_growing if is_growing || stop.state.is_in_recovery => Holds::ToStop,
            _ => Holds::ToNext,
        });
        if stop.state.is_in_recovery {
            if stop.lost > bytes / LOST_PARTS {
                self.windows.doubt(rows.clone(), now.recovery);
            }
            self.windows.show(Some(bytes), rows);
        } else {
            self.clock.push(Estimate { bytes, epoch: self.reductions.epoch(), rows }, stop.flight);
        }
    }

    /// Whether the send buffer is full at present.
    pub fn is_buffer_full(&self) -> bool {
        self.buffer.is_full()
    }

    /// A burst ended: what it says of the estimates before it.
    fn confirm(&mut self, stop: &Stop, between: &Between, now: Now) {
        let (windows, reductions) = (&mut self.windows, &mut self.reductions);
        self.clock.stop(stop.flight, between.is_pause, now.segment, |estimate| show(estimate, windows, reductions));
        if now.una >= stop.flight.end && !between.has_more(stop) {
            self.lapse();
        }
    }

    fn lapse(&mut self) {
        let (windows, reductions) = (&mut self.windows, &mut self.reductions);
        self.clock.lapse(|estimate| show(estimate, windows, reductions));
    }

    /// The congestion window was reduced, or may have been.
    pub fn reduce(&mut self) {
        self.end_epoch();
        self.cwnd.reduce();
    }

    /// A loss.
    pub fn lose(&mut self, is_timeout: bool) {
        self.end_epoch();
        self.buffer.lose(self.place(self.burst.last_ns().unwrap_or(i64::MIN)));
        self.cwnd.lose();
        self.reductions.lose(is_timeout);
    }

    /// There was no loss: the sender undoes what it had reduced.
    pub fn undo(&mut self) {
        self.cwnd.undo();
        self.buffer.undo();
    }

    /// Later stops say nothing of the estimates so far.
    fn end_epoch(&mut self) {
        let (windows, reductions) = (&mut self.windows, &mut self.reductions);
        self.clock.reduce(|estimate| show(estimate, windows, reductions));
    }

    /// After a pause a sender may restart with a small window (RFC 5681, section 4.1): nothing was in flight since
    /// `last_ns`.
    pub fn rest(&mut self, last_ns: i64, now_ns: i64, round_trip_ns: i64) {
        if now_ns.saturating_sub(last_ns) >= IDLE_MIN_NS.max(2 * round_trip_ns) {
            self.before_pause = Some(std::mem::take(&mut self.peak));
            self.reduce();
            self.reductions.pause();
        }
    }

    /// Bytes up to `una` were acknowledged, of those up to `sent`: the level of the send buffer may begin with the round
    /// that ends, or be known by now.
    pub fn acknowledge(&mut self, una: i64, sent: i64, segment: i64, time_ns: i64) {
        let Some(Round { begins_level }) = self.cwnd.acknowledge(una, sent, segment) else { return };
        if !begins_level && self.cwnd.is_at_ceiling() && !self.buffer.is_full() {
            self.buffer.find();
        }
        self.buffer.end_round(begins_level, self.place(time_ns));
    }

    fn place(&self, time_ns: i64) -> Place {
        Place { time_ns, row: self.windows.count() }
    }

    /// What is typically in flight when the sender stops for room in its send buffer.
    pub fn buffer_level(&self) -> Option<i64> {
        self.cwnd.buffer_level()
    }

    /// The congestion control, if the reductions tell.
    pub fn congestion_control(&self) -> Option<u8> {
        self.reductions.name()
    }

    /// Small windows after long pauses.
    pub fn restart_count(&self) -> u32 {
        self.restart_count
    }

    /// When the send buffer held the sender.
    pub fn send_buffer(&self) -> &[Span] {
        self.buffer.spans()
    }

    /// Removes spans from before.
    pub fn forget(&mut self, before_ns: i64) {
        self.buffer.forget(before_ns);
    }

    /// Ends the direction: moves the rows to the table.
    pub fn finish(&mut self, remembered: &Remembered, table: &mut Rare<Windows>) {
        self.lapse();
        if !self.cwnd.is_steady() {
            self.windows.show(None, 0..self.windows.count());
        }
        self.windows.finish(self.buffer.spans(), |recovery| remembered.is_any_spurious(recovery), table);
    }
}

/// Shows a confirmed estimate.
fn show(estimate: Estimate, windows: &mut WindowRows, reductions: &mut Reductions) {
    windows.show(Some(estimate.bytes), estimate.rows);
    reductions.note(estimate.bytes, estimate.epoch);
}
