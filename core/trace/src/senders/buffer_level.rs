//! The level at which a full send buffer stops a sender.
//!
//! It looks like a congestion window, but it does not grow.

use super::stop::Stop;
use serde::{Deserialize, Serialize};

/// After so many rounds without growth before any loss, a level is not the congestion window, which would have grown: by
/// at least half a segment a round (CUBIC's Reno-friendly region, RFC 9438 section 4.3). It is the send buffer's.
const ROUNDS_MAX: u32 = 12;
/// Far from the sender, where every packet can be a stop, a round counts if its peak had so many segments left to send: all
/// of a command or burst that is in flight is a level, too. At a stop that was seen, any byte left shows that it is not all.
const LEFT_MIN: i64 = 3;
/// Far from the sender a peak is off by several segments, but the mean of so many is not: in as many rounds a congestion
/// window grows by half as many segments at least.
const HALF: u32 = 16;
/// The mean of a level grows by less than half of that.
const GROWTH_PARTS: i64 = 4;
/// How much fits into a send buffer varies by this part.
const PARTS: i64 = 8;
/// A congestion window grows by a segment in so many rounds at least.
const ROUNDS_OF_SEGMENT: i64 = 2;

/// The peaks of rounds far from the sender, which had more to send.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct FarRounds {
    count: u32,
    /// Of the first and of the second half.
    sums: [i64; 2],
    most: [i64; 2],
}

impl FarRounds {
    /// Adds a round; the most in flight if the peaks did not grow as a congestion window would.
    fn add(&mut self, peak: i64, segment: i64) -> Option<i64> {
        let half = usize::from(self.count >= HALF);
        self.sums[half] += peak;
        self.most[half] = self.most[half].max(peak);
        self.count += 1;
        if self.count < 2 * HALF {
            return None;
        }
        let [before, after] = self.sums.map(|sum| sum / i64::from(HALF));
        let most = self.most[0].max(self.most[1]);
        *self = Self { count: HALF, sums: [self.sums[1], 0], most: [self.most[1], 0] };
        (after - before < i64::from(HALF) * segment / GROWTH_PARTS).then_some(most)
    }
}

/// The levels of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct BufferLevel {
    /// The current level, where it began, and the rounds without growth.
    level: i64,
    first: i64,
    rounds: u32,
    /// Whether the current round has a stop, and one at its peak with enough left.
    is_judged: bool,
    has_stop: bool,
    /// The level of a full send buffer, and whether the sender reaches it at present.
    ceiling: Option<i64>,
    is_at_ceiling: bool,
    /// The highest peak of the rounds since one reached the level, and their number: after many a level begins there.
    lower: i64,
    lower_rounds: u32,
    /// The most in flight in the current round, far from the sender, and whether it had more to send then.
    far_peak: i64,
    far_has_more: bool,
    far: FarRounds,
    /// How far off the bytes in flight can be; 0 beside the sender.
    slack: i64,
}

impl BufferLevel {
    /// Whether the full send buffer holds the sender at present.
    pub fn is_full(&self) -> bool {
        self.is_at_ceiling
    }

    /// Whether the send buffer caused a stop. The congestion window is larger then, until something reduces it.
    pub fn holds(&mut self, pipe: i64, segment: i64) -> bool {
        match self.ceiling {
            Some(ceiling) if pipe > ceiling + segment + self.slack => {
                (self.ceiling, self.is_at_ceiling) = (None, false)
            }
            Some(ceiling) => self.is_at_ceiling |= pipe >= ceiling - segment - self.slack,
            None => {}
        }
        self.is_at_ceiling
    }

    /// A stop that the congestion window or the send buffer caused, in a round with this peak so far.
    pub fn note(&mut self, stop: &Stop, peak: i64, segment: i64) {
        self.is_judged = true;
        self.has_stop &= stop.flight.pipe <= peak + segment;
        self.has_stop |= stop.flight.pipe >= peak - segment && stop.left_to_send().is_some_and(|left| left > 0);
    }

    /// A packet of a sender far from the tap, with more to send: what is in flight is off by up to `slack` bytes.
    pub fn note_far(&mut self, stop: &Stop, segment: i64, slack: i64) {
        self.slack = slack;
        let pipe = stop.flight.pipe;
        self.is_judged = true;
        let has_more = stop.left_to_send().is_some_and(|left| left >= LEFT_MIN * segment + 2 * slack);
        if pipe >= self.far_peak {
            // where most is in flight: all that was asked for is a level, too
            (self.far_peak, self.far_has_more) = (pipe, has_more);
        }
        self.has_stop |= pipe >= self.level - segment - slack && has_more;
    }

    /// A round with this peak ended: whether a level began with it.
    pub fn end_round(&mut self, peak: i64, segment: i64, is_before_loss: bool) -> bool {
        let has_stop = std::mem::take(&mut self.has_stop);
        if !std::mem::take(&mut self.is_judged) || !is_before_loss {
            return false;
        }
        let far_peak = std::mem::take(&mut self.far_peak);
        if std::mem::take(&mut self.far_has_more) {
            let begins = self.far.count == 0;
            if let Some(most) = self.far.add(far_peak, segment) {
                (self.ceiling, self.is_at_ceiling) = (Some(most + most / PARTS), true);
            }
            if begins {
                return true;
            }
        }
        let is_far = peak == 0;
        let peak = if is_far { far_peak } else { peak };
        if peak > self.level + (segment / 2).max(self.slack) {
            self.level = peak;
            self.rounds = 0;
            // how much fits into a send buffer varies a little: the same level
            let begins = peak > self.first + self.first / PARTS;
            if begins {
                self.first = peak;
            }
            return begins;
        }
        if peak >= self.level - segment - self.slack {
            self.rounds += u32::from(has_stop);
            (self.lower, self.lower_rounds) = (0, 0);
        } else if has_stop && !is_far {
            self.lower = self.lower.max(peak);
            self.lower_rounds += 1;
            if self.lower_rounds >= ROUNDS_MAX {
                (self.level, self.rounds) = (self.lower, 0);
            }
        }
        // the congestion window would have grown by twice of what the level can be off
        let rounds_max = i64::from(ROUNDS_MAX).max(2 * self.slack / segment.max(1) * ROUNDS_OF_SEGMENT);
        if i64::from(self.rounds) >= rounds_max {
            (self.ceiling, self.is_at_ceiling) = (Some(self.level), true);
        }
        false
    }

    /// The congestion window was reduced, or may have been.
    pub fn reduce(&mut self) {
        *self = Self { is_judged: self.is_judged, has_stop: self.has_stop, ceiling: self.ceiling, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::senders::ack_clock::InFlight;

    const SEGMENT: i64 = 1000;

    fn stop(pipe: i64, left: i64) -> Stop {
        Stop { flight: InFlight { pipe, ..InFlight::default() }, left: Some(left), ..Stop::default() }
    }

    /// After how many rounds far from the sender the buffer is full, with these peaks; none if it never is.
    fn full_after(peaks: impl IntoIterator<Item = i64>, left: i64, slack: i64) -> Option<usize> {
        let mut level = BufferLevel::default();
        peaks.into_iter().position(|peak| {
            level.note_far(&stop(peak, left), SEGMENT, slack);
            level.end_round(0, SEGMENT, true);
            level.is_full()
        })
    }

    #[test]
    fn far_from_the_sender_a_level_takes_as_long_as_a_congestion_window_would_need_to_leave_it() {
        // off by 10 segments, the window would have grown by 20 in 40 rounds
        let noisy = |round: i64| 50 * SEGMENT - round * 7 % 10 * SEGMENT;
        // by the mean of twice sixteen rounds
        assert_eq!(full_after((0..90).map(noisy), 100 * SEGMENT, 10 * SEGMENT), Some(31));
        assert_eq!(full_after((0..90).map(|_| 50 * SEGMENT), 100 * SEGMENT, SEGMENT), Some(13));
        // CUBIC's least growth
        let growing = |round: i64| noisy(round) + round * SEGMENT / 2;
        assert_eq!(full_after((0..400).map(growing), 100 * SEGMENT, 10 * SEGMENT), None);
    }

    #[test]
    fn all_of_a_command_in_flight_is_no_level_far_from_the_sender() {
        for (left, found) in [(22 * SEGMENT, None), (23 * SEGMENT, Some(31))] {
            assert_eq!(full_after((0..90).map(|_| 50 * SEGMENT), left, 10 * SEGMENT), found);
        }
    }

    #[test]
    fn after_many_rounds_below_it_a_level_begins_where_they_stop() {
        let mut level = BufferLevel::default();
        let mut round = |peak: i64| {
            level.note(&stop(peak, 100 * SEGMENT), peak, SEGMENT);
            level.end_round(peak, SEGMENT, true);
            level.is_full()
        };
        // one round had more: its data were smaller in the buffer
        assert!(!round(80 * SEGMENT));
        let first = (1..100).find(|_| round(55 * SEGMENT));
        assert_eq!(first, Some(24));
    }
}
