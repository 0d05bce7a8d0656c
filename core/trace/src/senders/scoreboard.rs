//! The bytes in flight of a sender: which are SACKed, lost or retransmitted (RFC 6675).
//!
//! ```text
//!   una          lost_below            sent
//!   |  hole SACK  hole | under way SACK |
//!   +------====--------+----------====--+---> place in the stream
//! ```
//!
//! Below `lost_below`, everything that is neither SACKed nor retransmitted is lost. Above it, everything that is not
//! SACKed is in flight. This is RACK's view (RFC 8985): bytes sent before others that arrived are lost. The caller
//! decides when a loss is detected. Without losses the scoreboard is two numbers.

use serde::{Deserialize, Serialize};
/// Maximum number of ranges; further SACK ranges are ignored.
const RANGES_MAX: usize = 1024;

/// A retransmitted range, and how far the stream had been sent by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Again {
    start: i64,
    end: i64,
    sent: i64,
}

/// The scoreboard of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Scoreboard {
    sent: i64,
    una: i64,
    lost_below: i64,
    /// SACKed ranges above `una`, ordered and disjoint.
    sacked: Vec<(i64, i64)>,
    sacked_bytes: i64,
    /// Retransmitted ranges below `lost_below` that have not arrived.
    again: Vec<Again>,
    /// Without SACK: bytes that duplicate ACKs report as arrived.
    duplicate_bytes: i64,
}

impl Scoreboard {
    /// Starts the stream at this offset, with no bytes in flight.
    pub fn start(&mut self, place: i64) {
        *self = Self { sent: place, una: place, lost_below: i64::MIN, ..Self::default() };
    }

    /// The highest offset sent.
    #[inline]
    pub fn sent(&self) -> i64 {
        self.sent
    }

    /// The first unacknowledged byte.
    #[inline]
    pub fn una(&self) -> i64 {
        self.una
    }

    /// Bytes in flight: highest byte sent less last byte acknowledged.
    #[inline]
    pub fn owin(&self) -> i64 {
        self.sent - self.una
    }

    /// The pipe (RFC 6675, section 4).
    #[inline]
    pub fn pipe(&self) -> i64 {
        if self.sacked.is_empty() && self.lost_below <= self.una && self.duplicate_bytes == 0 {
            return self.owin();
        }
        self.pipe_of_ranges()
    }

    fn pipe_of_ranges(&self) -> i64 {
        let from = self.lost_below.clamp(self.una, self.sent);
        let sacked: i64 = self.sacked.iter().map(|&(start, end)| (end - start.max(from)).max(0)).sum();
        let again: i64 = self.again.iter().map(|again| again.end - again.start).sum();
        (self.sent - from - sacked.max(self.duplicate_bytes) + again).max(0)
    }

    /// SACKed bytes, or bytes of duplicate ACKs.
    #[inline]
    pub fn sacked_bytes(&self) -> i64 {
        self.sacked_bytes.max(self.duplicate_bytes)
    }

    /// The number of SACKed ranges.
    pub fn sacked_count(&self) -> usize {
        self.sacked.len()
    }

    /// The highest SACKed offset.
    pub fn highest_sacked(&self) -> i64 {
        self.sacked.last().map_or(self.una, |&(_, end)| end)
    }

    /// New bytes up to `end` were sent.
    #[inline]
    pub fn send(&mut self, end: i64) {
        self.sent = self.sent.max(end);
    }

    /// A range was retransmitted: lost bytes are in flight again.
    pub fn retransmit_range(&mut self, start: i64, end: i64) {
        let (start, end) = (start.max(self.una), end.min(self.sent));
        if start >= end || self.again.len() >= RANGES_MAX {
            return;
        }
        self.remove_retransmitted(start, end);
        if end <= self.lost_below {
            self.again.push(Again { start, end, sent: self.sent });
            for index in 0..self.sacked.len() {
                let (left, right) = self.sacked[index];
                if left < end && start < right {
                    self.remove_retransmitted(left, right);
                }
            }
        }
    }

    /// Everything that is not SACKed is lost and not retransmitted (RFC 6298, section 5).
    pub fn lose_all(&mut self) {
        self.lost_below = self.sent;
        self.again.clear();
    }

    /// Everything below `place` that is not SACKed is lost.
    pub fn lose_below(&mut self, place: i64) {
        self.lost_below = self.lost_below.max(place.min(self.sent));
    }

    /// Nothing is lost.
    pub fn forget_losses(&mut self) {
        self.lost_below = self.una;
        self.again.clear();
    }

    /// Everything below `place` was acknowledged. Bytes that never passed the tap count as sent.
    #[inline]
    pub fn acknowledge(&mut self, place: i64) {
        if place <= self.una {
            return;
        }
        let newly = place - self.una;
        self.una = place;
        self.sent = self.sent.max(place);
        if self.duplicate_bytes > 0 {
            self.duplicate_bytes = (self.duplicate_bytes - newly).max(0);
        }
        if !self.sacked.is_empty() || !self.again.is_empty() {
            self.sacked.retain_mut(|range| {
                range.0 = range.0.max(place);
                range.0 < range.1
            });
            self.again.retain_mut(|again| {
                again.start = again.start.max(place);
                again.start < again.end
            });
            self.sacked_bytes = self.sacked.iter().map(|&(start, end)| end - start).sum();
        }
    }

    /// A range was SACKed. True if part of it is new.
    pub fn sack(&mut self, left: i64, right: i64) -> bool {
        let left = left.max(self.una);
        if left >= right || self.sacked.iter().any(|&(start, end)| start <= left && right <= end) {
            return false;
        }
        self.sent = self.sent.max(right);
        let first = self.sacked.partition_point(|&(_, end)| end < left);
        let after = self.sacked.partition_point(|&(start, _)| start <= right);
        if first == after && self.sacked.len() >= RANGES_MAX {
            return false;
        }
        let touching = self.sacked.get(first..after).unwrap_or_default();
        let start = touching.first().map_or(left, |&(start, _)| start.min(left));
        let end = touching.last().map_or(right, |&(_, end)| end.max(right));
        self.sacked.splice(first..after, [(start, end)]);
        self.sacked_bytes = self.sacked.iter().map(|&(start, end)| end - start).sum();
        self.remove_retransmitted(left, right);
        // bytes sent after the retransmission arrived first: it is lost again
        self.again.retain(|again| right <= again.sent);
        true
    }

    /// Without SACK: a duplicate ACK reports that a segment arrived (RFC 5681, section 3.2).
    pub fn duplicate(&mut self, segment_bytes: i64) {
        if self.sacked.is_empty() {
            self.duplicate_bytes = (self.duplicate_bytes + segment_bytes).min((self.owin() - segment_bytes).max(0));
        }
    }

    fn remove_retransmitted(&mut self, start: i64, end: i64) {
        if self.again.is_empty() {
            return;
        }
        let mut rest = Vec::new();
        self.again.retain_mut(|again| {
            if again.end <= start || end <= again.start {
                return true;
            }
            if again.start < start && end < again.end {
                rest.push(Again { start: end, ..*again });
            }
            if again.start < start {
                again.end = start;
            } else {
                again.start = end;
            }
            again.start < again.end
        });
        self.again.append(&mut rest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEGMENT: i64 = 100;

    fn board(segments: i64) -> Scoreboard {
        let mut board = Scoreboard::default();
        board.start(0);
        board.send(segments * SEGMENT);
        board
    }

    #[test]
    fn without_loss_the_pipe_is_the_bytes_in_flight() {
        let mut board = board(10);
        assert_eq!((board.owin(), board.pipe()), (1000, 1000));
        board.acknowledge(300);
        assert_eq!((board.owin(), board.pipe()), (700, 700));
    }

    #[test]
    fn at_its_start_nothing_is_lost() {
        // wherever the stream starts: an offset counts from the first captured byte
        for place in [-500, 0, 500] {
            let mut board = Scoreboard::default();
            board.start(place);
            board.send(place + 300);
            assert_eq!((board.una(), board.owin(), board.pipe()), (place, 300, 300));
        }
    }

    #[test]
    fn a_hole_leaves_the_pipe_when_lost_and_returns_when_retransmitted() {
        let mut board = board(10);
        assert!(board.sack(100, 400));
        assert!(!board.sack(100, 400));
        assert_eq!(board.pipe(), 700);
        board.lose_below(board.highest_sacked());
        assert_eq!(board.pipe(), 600);
        board.retransmit_range(0, 100);
        assert_eq!(board.pipe(), 700);
        board.acknowledge(400);
        assert_eq!((board.owin(), board.pipe()), (600, 600));
    }

    #[test]
    fn a_retransmission_is_lost_when_later_data_arrives_first() {
        let mut board = board(10);
        board.sack(100, 400);
        board.lose_below(400);
        board.retransmit_range(0, 100);
        board.send(1100);
        board.sack(400, 1000);
        board.lose_below(1000);
        assert_eq!(board.pipe(), 200);
        board.sack(1000, 1100);
        board.lose_below(1100);
        assert_eq!(board.pipe(), 0);
    }

    #[test]
    fn a_timeout_empties_the_pipe() {
        let mut board = board(10);
        board.sack(500, 600);
        board.lose_all();
        assert_eq!((board.owin(), board.pipe()), (1000, 0));
        board.retransmit_range(0, 100);
        assert_eq!(board.pipe(), 100);
    }

    #[test]
    fn a_sack_within_a_retransmission_leaves_the_rest_in_flight() {
        for (left, right) in [(0, 100), (100, 200), (200, 300)] {
            let mut board = board(10);
            board.sack(900, 1000);
            board.lose_below(900);
            board.retransmit_range(0, 300);
            assert_eq!(board.pipe(), 300);
            board.sack(left, right);
            assert_eq!(board.pipe(), 200, "SACK {left} to {right}");
        }
    }

    #[test]
    fn an_ack_takes_what_it_covers_out_of_every_count() {
        let mut board = board(10);
        board.sack(500, 700);
        board.lose_below(700);
        board.retransmit_range(100, 400);
        board.acknowledge(200);
        // retransmitted: 200 to 400; never lost: 700 to 1000
        assert_eq!((board.owin(), board.pipe(), board.sacked_bytes()), (800, 200 + 300, 200));
        board.acknowledge(600);
        assert_eq!((board.pipe(), board.sacked_bytes(), board.sacked_count()), (300, 100, 1));
        assert_eq!(board.highest_sacked(), 700);
        board.acknowledge(700);
        assert_eq!((board.sacked_bytes(), board.sacked_count(), board.highest_sacked()), (0, 0, 700));
        // what is acknowledged was sent, captured or not
        board.acknowledge(1200);
        assert_eq!((board.sent(), board.una(), board.owin()), (1200, 1200, 0));
    }

    #[test]
    fn touching_sacks_are_one_range() {
        let mut board = board(10);
        assert!(board.sack(200, 300));
        assert!(board.sack(500, 600));
        assert_eq!((board.sacked_count(), board.sacked_bytes()), (2, 200));
        assert!(board.sack(300, 500));
        assert_eq!((board.sacked_count(), board.sacked_bytes(), board.highest_sacked()), (1, 400, 600));
        assert!(!board.sack(250, 550), "nothing of it is new");
        assert!(!board.sack(300, 300), "it is empty");
    }

    #[test]
    fn duplicate_acks_count_arrived_segments() {
        let mut board = board(5);
        (0..9).for_each(|_| board.duplicate(SEGMENT));
        assert_eq!(board.pipe(), 100);
        board.acknowledge(500);
        assert_eq!(board.pipe(), 0);
    }

    /// The same, segment by segment, without optimisation.
    #[derive(Default)]
    struct Naive {
        una: usize,
        sent: usize,
        lost_below: usize,
        is_sacked: Vec<bool>,
        again: Vec<Option<usize>>,
    }

    impl Naive {
        fn pipe(&self) -> i64 {
            let count = (self.una..self.sent)
                .filter(|&index| !self.is_sacked[index] && (index >= self.lost_below || self.again[index].is_some()))
                .count();
            count as i64 * SEGMENT
        }

        fn apply(&mut self, step: Step) {
            match step {
                Step::Send(count) => self.sent = (self.sent + count).min(self.is_sacked.len()),
                Step::Acknowledge(place) => {
                    self.una = self.una.max(place.min(self.sent));
                }
                Step::Sack(left, right) => {
                    let (left, right) = (left.max(self.una), right.min(self.sent));
                    if left >= right || self.is_sacked[left..right].iter().all(|&is_sacked| is_sacked) {
                        return;
                    }
                    self.is_sacked[left..right].fill(true);
                    for again in &mut self.again {
                        *again = again.filter(|&sent| right <= sent);
                    }
                }
                Step::LoseBelow(place) => self.lost_below = self.lost_below.max(place.min(self.sent)),
                Step::Again(start) => {
                    if start >= self.una && start < self.sent && start < self.lost_below {
                        self.again[start] = Some(self.sent);
                    }
                }
                Step::LoseAll => {
                    self.lost_below = self.sent;
                    self.again.fill(None);
                }
            }
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Send(usize),
        Acknowledge(usize),
        Sack(usize, usize),
        LoseBelow(usize),
        Again(usize),
        LoseAll,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1..8_usize).prop_map(Step::Send),
            2 => (0..60_usize).prop_map(Step::Acknowledge),
            4 => (0..60_usize, 1..6_usize).prop_map(|(left, length)| Step::Sack(left, left + length)),
            2 => (0..60_usize).prop_map(Step::LoseBelow),
            3 => (0..60_usize).prop_map(Step::Again),
            1 => Just(Step::LoseAll),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_scoreboard(steps in prop::collection::vec(step(), 1..80)) {
            let mut naive = Naive { is_sacked: vec![false; 64], again: vec![None; 64], ..Naive::default() };
            let mut board = Scoreboard::default();
            board.start(0);
            for step in steps {
                naive.apply(step);
                let place = |index: usize| index as i64 * SEGMENT;
                match step {
                    Step::Send(_) => board.send(place(naive.sent)),
                    Step::Acknowledge(index) => board.acknowledge(place(index).min(board.sent())),
                    Step::Sack(left, right) => { board.sack(place(left), place(right).min(board.sent())); }
                    Step::LoseBelow(index) => board.lose_below(place(index)),
                    Step::Again(index) => board.retransmit_range(place(index), place(index + 1)),
                    Step::LoseAll => board.lose_all(),
                }
                prop_assert_eq!(board.owin(), (naive.sent - naive.una) as i64 * SEGMENT);
                prop_assert_eq!(board.pipe(), naive.pipe(), "after {:?}", step);
            }
        }
    }
}
