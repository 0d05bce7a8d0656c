//! Whether the stops of a sender can be those of a congestion window.
//!
//! That never falls without a loss and without a pause, and falls with each loss: to a half (RFC 5681), or to 0.7 (RFC 9438).
//! A sender that paces itself (BBR), or is held by its buffer or its host, stops anywhere, and goes on after a loss as before.

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
/// For one stop far below an earlier flight there are so many within PDUs that are not.
const FALLEN_PARTS: u32 = 2;
/// Fewer stops far below an earlier flight are too few to be sure.
const FALLEN_MIN: u32 = 8;

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

    /// Whether enough are far below, and more than one for so many that are not.
    fn have_fallen(self, parts: u32) -> bool {
        self.fallen >= FALLEN_MIN && self.fallen * parts > self.steady
    }
}

/// What was in flight at the stops of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Steadiness {
    /// The most in flight since the last possible reduction.
    most: i64,
    /// The stops that a window can have caused.
    stops: Stops,
    /// Those between the PDUs of bursts, however late an ACK was answered.
    in_burst: Stops,
    /// Those within PDUs, on a path so long that no ACK ends a stop by chance.
    in_pdu: Stops,
    /// Of those the ones behind a short segment, and behind a full one.
    cut: u32,
    whole: u32,
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

    /// A stop within a PDU, which an ACK from afar ended.
    pub fn hold_in_pdu(&mut self, pipe: i64) {
        self.in_pdu.add(pipe, self.most);
    }

    /// A stop between the PDUs of a burst, which ACKs ended.
    pub fn hold_in_burst(&mut self, pipe: i64) {
        self.in_burst.add(pipe, self.most);
    }

    /// A stop within a PDU, which an ACK from afar ended, behind a short segment or a full one.
    pub fn hold_behind(&mut self, is_cut: bool) {
        *(if is_cut { &mut self.cut } else { &mut self.whole }) += 1;
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
    }

    /// There was no loss: the sender may undo what it had reduced.
    pub fn undo(&mut self) {
        self.before_loss = None;
    }

    /// The window may have been reduced.
    pub fn reduce(&mut self) {
        self.most = 0;
    }

    /// Whether most stops between the PDUs of bursts, or a third of those within PDUs, are far below an earlier flight, or most
    /// of those behind a short segment: something else than the congestion window causes them.
    pub fn has_fallen(&self) -> bool {
        let are_cut = self.cut >= FALLEN_MIN && self.cut > self.whole;
        self.in_burst.have_fallen(1) || self.in_pdu.have_fallen(FALLEN_PARTS) || are_cut
    }

    /// Whether the stops can be those of a congestion window.
    pub fn is_steady(&self) -> bool {
        self.stops.fallen * STEADY_MIN <= self.stops.steady && self.kept * STEADY_MIN <= self.reduced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_window_with_room_is_no_congestion_window_where_most_stops_are_far_below_a_flight() {
        for (low, high, has_fallen) in [(8, 7, true), (8, 8, false), (7, 0, false)] {
            let mut found = Steadiness::default();
            found.stop(100, false);
            (0..low).for_each(|_| found.hold_in_burst(49));
            (0..high).for_each(|_| found.hold_in_burst(50));
            assert_eq!(found.has_fallen(), has_fallen);
        }
    }

    #[test]
    fn a_third_of_the_stops_within_pdus_far_below_a_flight_is_none_of_a_congestion_window() {
        for (low, high, has_fallen) in [(8, 15, true), (8, 16, false), (7, 0, false)] {
            let mut found = Steadiness::default();
            found.stop(100, false);
            (0..low).for_each(|_| found.hold_in_pdu(49));
            (0..high).for_each(|_| found.hold_in_pdu(50));
            assert_eq!(found.has_fallen(), has_fallen, "{low} of {}", low + high);
        }
    }

    #[test]
    fn a_sender_that_mostly_stops_behind_short_segments_within_pdus_has_no_more_in_its_buffer() {
        for (cut, whole, has_fallen) in [(8, 7, true), (8, 8, false), (7, 0, false)] {
            let mut found = Steadiness::default();
            (0..cut).for_each(|_| found.hold_behind(true));
            (0..whole).for_each(|_| found.hold_behind(false));
            assert_eq!(found.has_fallen(), has_fallen, "{cut} of {}", cut + whole);
        }
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
