//! Whether the stops of a sender can be those of a congestion window.
//!
//! That never falls without a loss and without a pause, and falls with each loss: to a half (RFC 5681), or to 0.7 (RFC 9438).
//! A sender that paces itself (BBR), or is held by its buffer or its host, stops anywhere, and goes on after a loss as before.
//!
//! A program that waits for room in a full send buffer is woken when a third of it is free (Linux): so the sender goes on with a
//! later ACK than the first, where a window goes on with each. Or the socket takes what it has room for, to the byte: the last
//! segment within a PDU is short.

use super::histogram::Histogram;
use super::stop::{Between, Stop};
use serde::{Deserialize, Serialize};

/// A stop below this part of an earlier flight is none of a congestion window.
const FALL_PARTS: i64 = 2;
/// With fewer segments in flight, the growth in two rounds hides a reduction.
const SEGMENTS_MIN: i64 = 10;
/// What is in flight in so many rounds after a recovery
const ROUNDS: u32 = 2;
/// is less than 9 parts in 10 of what was before the loss, if that reduced the window.
const KEPT_PARTS: (i64, i64) = (9, 10);
/// So many observations that fit a congestion window come for each that does not.
const STEADY_MIN: u32 = 3;
/// A stop within this part of the most in flight is at its level.
const LEVEL_PARTS: i64 = 4;
/// Fewer waits for room are too few to be sure.
const WAITS_MIN: u32 = 12;

/// How many stops came far below what was in flight before, and how many did not.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct Stops {
    fallen: u32,
    steady: u32,
}

impl Stops {
    fn add(&mut self, pipe: i64, most: i64) {
        let count = if pipe * FALL_PARTS < most { &mut self.fallen } else { &mut self.steady };
        *count += 1;
    }
}

/// The time of stops, that of those for room in the send buffer, and their number.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct Waits {
    paused_ns: i64,
    room_ns: i64,
    room_count: u32,
}

impl Waits {
    fn add(&mut self, more: Self) {
        self.paused_ns = self.paused_ns.saturating_add(more.paused_ns);
        self.room_ns = self.room_ns.saturating_add(more.room_ns);
        self.room_count = self.room_count.saturating_add(more.room_count);
    }
}

/// What was in flight at the stops of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Steadiness {
    /// The most in flight since the last possible reduction.
    most: i64,
    /// The stops that a window can have caused.
    stops: Stops,
    /// The stops with more to send that ACKs ended, since the last loss and before.
    waits: Waits,
    before_waits: Waits,
    /// What was in flight when it stopped for room in the send buffer.
    levels: Histogram,
    /// The most in flight before the last loss, until it is known what that changed; the most since its recovery, and the
    /// rounds since then.
    before_loss: Option<i64>,
    after_loss: i64,
    rounds: u32,
    /// Of the losses, how many reduced it, and how many did not.
    reduced: u32,
    kept: u32,
}

impl Steadiness {
    /// The most in flight since the last possible reduction.
    pub fn most(&self) -> i64 {
        self.most
    }

    /// A stop, whatever caused it.
    pub fn stop(&mut self, pipe: i64, is_in_recovery: bool) {
        self.most = self.most.max(pipe);
        if !is_in_recovery {
            self.after_loss = self.after_loss.max(pipe);
        }
    }

    /// The congestion window can have caused the stop, outside of a recovery.
    pub fn hold(&mut self, pipe: i64) {
        self.stops.add(pipe, self.most);
    }

    /// A stop with more to send and an open window, outside of a recovery, which ACKs ended.
    pub fn wait(&mut self, stop: &Stop, between: &Between, segment: i64) {
        // a host that pauses skips ACKs, too: what it goes on with, or the level at which it stopped, shows the buffer
        let is_at_level = stop.flight.pipe >= self.most - self.most / LEVEL_PARTS;
        let is_buffer = between.is_prompt || is_at_level;
        let has_skipped = between.has_skipped && is_buffer && stop.leaves_segments(segment);
        let is_for_room = has_skipped || stop.is_cut(segment);
        let paused_ns = between.pause_ns;
        let room_ns = if is_for_room { paused_ns } else { 0 };
        self.waits.add(Waits { paused_ns, room_ns, room_count: u32::from(is_for_room) });
        if is_for_room {
            self.levels.add(stop.state.owin);
        }
    }

    /// A round ended.
    pub fn end_round(&mut self, segment: i64) {
        let Some(before) = self.before_loss.filter(|_| self.after_loss > 0) else { return };
        self.rounds += 1;
        if self.rounds == ROUNDS {
            self.before_loss = None;
            if before >= SEGMENTS_MIN * segment {
                let is_kept = self.after_loss * KEPT_PARTS.1 > before * KEPT_PARTS.0;
                *(if is_kept { &mut self.kept } else { &mut self.reduced }) += 1;
            }
        }
    }

    /// A loss: the window is reduced.
    pub fn lose(&mut self) {
        (self.before_loss, self.after_loss, self.rounds) = (Some(self.most), 0, 0);
        self.before_waits.add(std::mem::take(&mut self.waits));
    }

    /// There was no loss: the sender may undo what it had reduced.
    pub fn undo(&mut self) {
        self.before_loss = None;
        self.waits.add(std::mem::take(&mut self.before_waits));
    }

    /// The window may have been reduced.
    pub fn reduce(&mut self) {
        self.most = 0;
    }

    /// Whether the sender mostly waited for room in its send buffer since the last loss.
    pub fn has_full_buffer(&self) -> bool {
        let Waits { paused_ns, room_ns, room_count } = self.waits;
        room_count >= WAITS_MIN && room_ns > paused_ns - room_ns
    }

    /// What is typically in flight when it stops for room in its send buffer; none of too few stops.
    pub fn buffer_level(&self) -> Option<i64> {
        self.levels.percentile(50).filter(|_| self.levels.count() >= u64::from(WAITS_MIN))
    }

    /// Whether the stops can be those of a congestion window.
    pub fn is_steady(&self) -> bool {
        self.stops.fallen * STEADY_MIN <= self.stops.steady && self.kept * STEADY_MIN <= self.reduced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::senders::ack_clock::InFlight;

    const SEGMENT: i64 = 1000;

    /// A window of so many segments, then a loss, and the most in flight in each round after its recovery.
    fn after_loss(before: i64, rounds: &[i64], is_undone: bool) -> Steadiness {
        let mut found = Steadiness::default();
        found.stop(before * SEGMENT, false);
        found.lose();
        found.reduce();
        // the recovery: the pipe is what it was
        found.stop(before * SEGMENT, true);
        found.end_round(SEGMENT);
        if is_undone {
            found.undo();
        }
        for segments in rounds {
            found.stop(segments * SEGMENT, false);
            found.end_round(SEGMENT);
        }
        found
    }

    #[test]
    fn a_loss_reduces_a_congestion_window() {
        let is_steady = |before, rounds: &[i64]| after_loss(before, rounds, false).is_steady();
        assert!(is_steady(20, &[14, 15]));
        // CUBIC's least window, with the growth of two rounds
        assert!(is_steady(10, &[7, 9]));
        assert!(!is_steady(20, &[14, 19]));
        assert!(!is_steady(20, &[20, 20]));
        // one round does not tell, nor does a small window
        assert!(is_steady(20, &[20]));
        assert!(is_steady(9, &[9, 9]));
        assert!(after_loss(20, &[20, 20], true).is_steady());
    }

    #[test]
    fn a_sender_that_skips_acks_or_cuts_segments_for_most_of_the_time_waits_for_room_in_its_buffer() {
        let found = |waits: u32, others: u32, wait: (Stop, Between)| {
            let mut found = Steadiness::default();
            found.stop(100 * SEGMENT, false);
            let other = (Stop::default(), Between { pause_ns: 10, is_prompt: true, ..Between::default() });
            let all = (0..waits).map(|_| wait).chain((0..others).map(|_| other));
            all.for_each(|(stop, between)| found.wait(&stop, &between, SEGMENT));
            found.has_full_buffer()
        };
        let skips = |segments: i64, is_prompt: bool| {
            let pipe = segments * SEGMENT;
            let stop = Stop { flight: InFlight { pipe, ..InFlight::default() }, ..Stop::default() };
            (stop, Between { pause_ns: 10, has_skipped: true, is_prompt, ..Between::default() })
        };
        assert!(found(12, 11, skips(20, true)));
        assert!(!found(12, 12, skips(20, true)));
        assert!(!found(11, 0, skips(20, true)));
        // far from the sender the level shows it
        assert!(found(12, 11, skips(75, false)));
        assert!(!found(12, 11, skips(74, false)), "a host that pauses");
        for (left, is_full) in [(2 * SEGMENT - 1, false), (2 * SEGMENT, true)] {
            let (stop, between) = skips(20, true);
            assert_eq!(found(12, 11, (Stop { left: Some(left), ..stop }, between)), is_full, "Nagle's algorithm");
        }
        // another window may hold the sender after a loss, if it was one
        let (stop, between) = skips(20, true);
        let mut lost = Steadiness::default();
        (0..12).for_each(|_| lost.wait(&stop, &between, SEGMENT));
        lost.lose();
        assert!(!lost.has_full_buffer());
        lost.undo();
        assert!(lost.has_full_buffer());
        let cut = Stop { length: 500, is_within_pdu: true, ..Stop::default() };
        assert!(found(12, 11, (cut, Between { pause_ns: 10, ..Between::default() })));
    }

    #[test]
    fn one_loss_in_four_may_be_none_of_the_senders() {
        for (reduced, is_steady) in [(3, true), (2, false)] {
            let mut found = after_loss(20, &[20, 20], false);
            for _ in 0..reduced {
                found.reduce();
                found.stop(20 * SEGMENT, false);
                found.lose();
                found.stop(10 * SEGMENT, false);
                found.end_round(SEGMENT);
                found.end_round(SEGMENT);
            }
            assert_eq!(found.is_steady(), is_steady, "{reduced}");
        }
    }

    #[test]
    fn a_sender_that_often_stops_below_half_of_an_earlier_flight_has_no_window_to_show() {
        for (fallen, is_steady) in [(1, true), (2, false)] {
            let mut found = Steadiness::default();
            found.stop(40 * SEGMENT, false);
            (0..3).for_each(|_| found.hold(20 * SEGMENT));
            (0..fallen).for_each(|_| found.hold(19 * SEGMENT));
            assert_eq!(found.is_steady(), is_steady, "{fallen} of {}", 3 + fallen);
        }
    }
}
