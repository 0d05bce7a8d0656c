//! Whether ACKs clock a sender, which confirms estimates of its congestion window.
//!
//! An estimate is what is in flight at one stop, and a sender stops for other reasons, too: its host paused, or had
//! nothing to send. The round that follows tells. A sender that its congestion window holds sends with each ACK what
//! that lets out, no less and no more:
//!
//! ```text
//!   in flight  ____      ___  ___       ____      ______            ____
//!             /    \.../   \/    \     /    \    /      (more)     /    \__  (less)
//!             stop    held again       stop   a pause ended        stop     ACKs came, nothing was sent
//! ```
//!
//! After a confirmed estimate, a stop at the same level needs no other evidence: the window does not change unless ACKs
//! raise it or a loss reduces it.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// In flight is the same, if it differs by at most this part.
const LEVEL_PARTS: i64 = 8;
/// So many later stops at the level are no chance, also within a round.
const SUPPORT_MIN: u32 = 3;
/// Maximum number of estimates that wait for the end of their round; later ones are not made.
const PENDING_MAX: usize = 256;

/// What was in flight at a stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// The pipe, with every segment counted as a full one.
    pub pipe: i64,
    /// All that was sent until then, counted likewise.
    pub sent: i64,
    /// The highest offset sent.
    pub end: i64,
    /// The first unacknowledged byte.
    pub una: i64,
}

/// An estimate, its epoch, and the rows of the table `window` for which it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// The congestion window in bytes.
    pub bytes: i64,
    /// Losses and idle times before it.
    pub epoch: u32,
    /// Its rows.
    pub rows: Range<usize>,
}

/// An estimate that later stops can contradict.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pending {
    estimate: Estimate,
    at: InFlight,
    /// Whether it is at the level of a confirmed one.
    is_known: bool,
    /// Later stops that agreed.
    support: u32,
}

/// The clock of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct AckClock {
    pending: Vec<Pending>,
    /// The last confirmed estimate, unless the window may have shrunk since.
    level: Option<i64>,
}

impl AckClock {
    /// An estimate for the stop `at`.
    pub fn push(&mut self, estimate: Estimate, at: InFlight) {
        // a sender that collects segments for offload stops below its window: how far cannot be told
        if at.pipe < least(estimate.bytes) || self.pending.len() >= PENDING_MAX {
            return;
        }
        let is_known = self.level.is_some_and(|level| (at.pipe - level).abs() <= level / LEVEL_PARTS);
        self.pending.push(Pending { estimate, at, is_known, support: 0 });
    }

    /// The next stop, after a pause or not: hands over the estimates that it confirms.
    pub fn stop(&mut self, at: InFlight, is_pause: bool, segment: i64, mut confirm: impl FnMut(Estimate)) {
        let level = &mut self.level;
        self.pending.retain_mut(|pending| {
            // an ACK lets out as much as it acknowledges, in slow start twice that
            if 2 * (at.pipe - pending.at.pipe) > at.sent - pending.at.sent + segment {
                return false;
            }
            if pending.is_known {
                *level = (*level).max(Some(pending.estimate.bytes));
                confirm(pending.estimate.clone());
                return false;
            }
            if !is_pause {
                return true;
            }
            if at.pipe < least(pending.estimate.bytes) {
                return false;
            }
            pending.support += 1;
            let is_confirmed = at.una >= pending.at.end || pending.support >= SUPPORT_MIN;
            if is_confirmed {
                *level = Some(pending.estimate.bytes);
                confirm(pending.estimate.clone());
            }
            !is_confirmed
        });
    }

    /// The sender had nothing to send: ACKs no longer clocked it.
    pub fn lapse(&mut self, confirm: impl FnMut(Estimate)) {
        self.take(|pending| pending.is_known, confirm);
    }

    /// The window was reduced, or may have been. A loss ends a round early: what a later stop supported is confirmed.
    pub fn reduce(&mut self, confirm: impl FnMut(Estimate)) {
        self.take(|pending| pending.is_known || pending.support > 0, confirm);
        self.level = None;
    }

    fn take(&mut self, is_confirmed: impl Fn(&Pending) -> bool, confirm: impl FnMut(Estimate)) {
        self.pending.drain(..).filter(is_confirmed).map(|pending| pending.estimate).for_each(confirm);
    }
}

/// What is in flight at least at the level of an estimate.
fn least(estimate: i64) -> i64 {
    estimate - estimate / LEVEL_PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: i64 = 1000;

    /// A stop with so many segments in flight, after so many were sent.
    fn flight(pipe: i64, sent: i64) -> InFlight {
        let [pipe, sent] = [pipe * SEGMENT, sent * SEGMENT];
        InFlight { pipe, sent, end: sent, una: sent - pipe }
    }

    fn estimate(segments: i64) -> Estimate {
        Estimate { bytes: segments * SEGMENT, epoch: 0, rows: 0..1 }
    }

    /// The confirmed estimates, in segments, of a first stop and those that follow it.
    fn confirmed(clock: &mut AckClock, first: (i64, i64), later: &[(i64, i64)]) -> Vec<i64> {
        let mut found = Vec::new();
        clock.push(estimate(first.0), flight(first.0, first.1));
        for &(pipe, sent) in later {
            clock.stop(flight(pipe, sent), true, SEGMENT, |estimate| found.push(estimate.bytes / SEGMENT));
        }
        found
    }

    #[test]
    fn a_round_at_the_level_confirms_an_estimate() {
        let after = |later: &[(i64, i64)]| confirmed(&mut AckClock::default(), (16, 16), later);
        assert_eq!(after(&[(16, 32)]), [16], "one stop that ends the round");
        assert_eq!(after(&[(16, 31)]), []);
        assert_eq!(after(&[(16, 18), (16, 20), (16, 22)]), [16], "three within it");
        assert_eq!(after(&[(16, 18), (16, 20)]), []);
        // an eighth less
        assert_eq!(after(&[(14, 32)]), [16]);
        assert_eq!(after(&[(13, 32)]), []);
        // slow start: twice what was acknowledged, and a segment
        assert_eq!(after(&[(18, 20), (32, 48)]), [16]);
        assert_eq!(after(&[(18, 19), (33, 49)]), [16]);
        assert_eq!(after(&[(19, 20), (32, 48)]), [], "it had paused");
        assert_eq!(after(&[(16, 18), (20, 24), (17, 40)]), [16]);
        assert_eq!(after(&[(16, 18), (21, 24), (17, 40)]), [], "later, too");
    }

    #[test]
    fn only_stops_after_a_pause_show_less_in_flight() {
        let mut clock = AckClock::default();
        let mut count = 0;
        clock.push(estimate(16), flight(16, 16));
        clock.stop(flight(3, 18), false, SEGMENT, |_| count += 1);
        assert_eq!(count, 0);
        clock.stop(flight(16, 32), true, SEGMENT, |_| count += 1);
        assert_eq!(count, 1);
    }

    #[test]
    fn a_stop_at_a_confirmed_level_needs_no_other() {
        for (pipe, is_known) in [(14, true), (18, true), (13, false), (19, false)] {
            let mut clock = AckClock::default();
            assert_eq!(confirmed(&mut clock, (16, 16), &[(16, 32)]), [16]);
            // the next stop may have less in flight, but not more
            let expected = if is_known { vec![pipe] } else { vec![] };
            assert_eq!(confirmed(&mut clock, (pipe, 64), &[(1, 65)]), expected, "{pipe} segments");
            assert_eq!(confirmed(&mut clock, (16, 96), &[(20, 100)]), [], "it had paused");
            clock.reduce(|_| ());
            assert_eq!(confirmed(&mut clock, (pipe, 128), &[(1, 129)]), [], "after a loss");
        }
    }

    #[test]
    fn a_sender_without_data_confirms_nothing_but_a_known_level() {
        let mut clock = AckClock::default();
        let mut count = 0;
        assert_eq!(confirmed(&mut clock, (16, 16), &[(16, 18), (16, 20)]), []);
        clock.lapse(|_| count += 1);
        assert_eq!((count, confirmed(&mut clock, (16, 64), &[(16, 80)])), (0, vec![16]));
        assert_eq!(confirmed(&mut clock, (16, 96), &[]), []);
        clock.lapse(|_| count += 1);
        assert_eq!(count, 1);
    }

    #[test]
    fn a_loss_ends_the_round() {
        for (later, count) in [(&[(16, 18)][..], 1), (&[][..], 0)] {
            let mut clock = AckClock::default();
            assert_eq!(confirmed(&mut clock, (16, 16), later), []);
            let mut found = 0;
            clock.reduce(|_| found += 1);
            assert_eq!(found, count);
        }
    }

    #[test]
    fn a_stop_more_than_an_eighth_below_its_estimate_is_none() {
        for (pipe, count) in [(14, 1), (13, 0)] {
            let mut clock = AckClock::default();
            clock.push(estimate(16), flight(pipe, 16));
            let mut found = 0;
            clock.stop(flight(16, 32), true, SEGMENT, |_| found += 1);
            assert_eq!(found, count, "{pipe} segments");
        }
    }

    #[test]
    fn at_most_256_estimates_wait() {
        let mut clock = AckClock::default();
        (0..300).for_each(|_| clock.push(estimate(16), flight(16, 16)));
        let mut found = 0;
        clock.stop(flight(16, 32), true, SEGMENT, |_| found += 1);
        assert_eq!(found, 256);
    }
}
