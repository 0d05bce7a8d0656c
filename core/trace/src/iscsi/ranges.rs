//! Which values of a sequence came, in any order, and which are missing between them: CmdSN, StatSN, DataSN and R2TSN, and
//! the bytes of a buffer. Whose a missing value is, others say.

use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

/// Sequence numbers within this distance of the expected one fit; others are of another sequence.
pub const NEAR: i32 = 1 << 14;
/// CmdSN: a longer jump is another sequence, because no command window is larger. How many ranges a session has only its
/// pass can say: connections whose logins were not captured are joined by all of theirs.
pub const COMMANDS: Sequence = Sequence { far: (1 << 16) + 1, kept: usize::MAX };
/// StatSN.
pub const STATUSES: Sequence = Sequence { far: NEAR, kept: 256 };
/// DataSN, R2TSN and the bytes of a buffer: each command has one sequence.
pub const DATA: Sequence = Sequence { far: i32::MAX, kept: 256 };
/// The last ranges, among which the place of a late value is searched.
const SEARCHED: usize = 1024;

/// What differs between sequences.
#[derive(Debug)]
pub struct Sequence {
    /// A jump by so many numbers leads to another sequence.
    far: i32,
    /// Ranges that are kept at least, whatever comes.
    kept: usize,
}

/// The place of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The next one.
    Next,
    /// So many numbers after the next one.
    Ahead(u32),
    /// One that was missing.
    Late,
    /// One that came before, or too old to know.
    Again,
    /// One of another sequence, which begins with it.
    Other,
}

impl Order {
    /// How many more numbers are missing.
    pub fn missing(self) -> i64 {
        match self {
            Order::Ahead(count) => count.into(),
            Order::Late => -1,
            Order::Next | Order::Again | Order::Other => 0,
        }
    }

    /// Whether it lies behind the next one.
    pub fn is_behind(self) -> bool {
        matches!(self, Order::Late | Order::Again)
    }
}

/// The values that came: from 0 on, or from the [`SerialNumber`] that they were made from. They do not wrap.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranges {
    /// The highest range: its first value, and the one after its last.
    last: (i64, i64),
    /// Nothing in a sequence without holes.
    before: Option<Box<Before>>,
}

/// What lies before the highest range.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Before {
    /// The other ranges, in order; they do not touch. The first is empty if the first value did not come.
    ranges: Vec<(i64, i64)>,
    /// Missing values before them.
    given_up: u64,
}

impl From<SerialNumber> for Ranges {
    /// Expects this number first.
    fn from(first: SerialNumber) -> Self {
        Self { last: (first.0.into(), first.0.into()), before: None }
    }
}

impl Ranges {
    /// The number after the highest one.
    #[inline]
    pub fn next(&self) -> SerialNumber {
        SerialNumber(self.last.1 as u32)
    }

    /// Adds a number.
    #[inline]
    pub fn note(&mut self, number: SerialNumber, sequence: &Sequence) -> Order {
        if number != self.next() {
            return self.note_apart(number, sequence);
        }
        self.last.1 += 1;
        Order::Next
    }

    #[cold]
    fn note_apart(&mut self, number: SerialNumber, sequence: &Sequence) -> Order {
        let (at, distance) = (self.place(number), number.distance(self.next()));
        if distance >= sequence.far {
            let given_up = self.missing();
            *self = Self { last: (at, at + 1), before: Some(Box::new(Before { ranges: Vec::new(), given_up })) };
            return Order::Other;
        }
        match (self.add(at, at + 1, sequence), u32::try_from(distance)) {
            (0, _) => Order::Again,
            (_, Ok(count)) => Order::Ahead(count),
            (_, Err(_)) => Order::Late,
        }
    }

    /// Adds the next values without having seen them.
    pub fn pass(&mut self, count: u32) {
        self.last.1 += i64::from(count);
    }

    /// All numbers below this one were sent, as the other side says.
    pub fn reach(&mut self, number: SerialNumber, sequence: &Sequence) {
        if (1..sequence.far).contains(&number.distance(self.next())) {
            let at = self.place(number);
            self.add(at, at, sequence);
        }
    }

    /// What is missing from this number on was never used.
    pub fn pass_from(&mut self, number: SerialNumber, sequence: &Sequence) {
        let start = self.place(number);
        if start < self.last.1 {
            self.add(start, self.last.1, sequence);
        }
    }

    /// Adds the values of `start..end`; returns how many of them are new. Those before the first range are too old to know.
    #[inline]
    pub fn add(&mut self, start: i64, end: i64, sequence: &Sequence) -> u64 {
        if start != self.last.1 {
            return self.add_apart(start, end, sequence);
        }
        self.last.1 = end;
        (end - start) as u64
    }

    #[cold]
    fn add_apart(&mut self, start: i64, end: i64, sequence: &Sequence) -> u64 {
        let ranges = &mut self.before.get_or_insert_default().ranges;
        ranges.push(self.last);
        let new = if start > self.last.1 {
            ranges.push((start, end));
            (end - start) as u64
        } else {
            merge(ranges, start, end)
        };
        self.last = ranges.pop().unwrap_or_default();
        self.forget(sequence.kept);
        new
    }

    /// Keeps only the last ranges if there are twice as many; what is missing before them stays missing.
    pub fn forget(&mut self, kept: usize) {
        if self.before.as_ref().is_none_or(|before| before.ranges.len() < kept.saturating_mul(2)) {
            return;
        }
        let missing = self.missing();
        if let Some(before) = &mut self.before {
            before.ranges.drain(..=before.ranges.len() - kept);
            before.given_up = 0;
        }
        let given_up = missing - self.missing();
        if let Some(before) = &mut self.before {
            before.given_up = given_up;
        }
    }

    /// Whether values are missing that will stay so, because there were too many ranges.
    pub fn has_given_up(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.given_up > 0)
    }

    /// Whether this number came.
    pub fn has(&self, number: SerialNumber) -> bool {
        let at = self.place(number);
        let (start, end) = self.range_to(at + 1);
        start <= at && at < end
    }

    /// Whether this number came, or is too old to know.
    #[inline]
    pub fn is_again(&self, number: SerialNumber) -> bool {
        number.is_before(self.next())
            && (self.before.is_none() || self.place(number) < self.first() || self.has(number))
    }

    /// Whether all numbers from one on and before another came, or are too old to know, or of another sequence.
    pub fn has_all(&self, from: SerialNumber, to: SerialNumber, sequence: &Sequence) -> bool {
        let is_other = to.distance(self.next()) >= sequence.far;
        let (from, to) = (self.place(from), self.place(to));
        let (start, end) = self.range_to(to);
        from >= to || from < self.first() || is_other || (start <= from && to <= end)
    }

    /// The number of missing values between those that came.
    pub fn missing(&self) -> u64 {
        let Some(before) = &self.before else { return 0 };
        let holes = self.ranges().skip(1).zip(&before.ranges).map(|((start, _), (_, end))| start - end);
        before.given_up + holes.sum::<i64>() as u64
    }

    /// Both as one sequence of serial numbers, if possible: they overlap, and no value came in both.
    pub fn joined(&self, other: &Ranges, sequence: &Sequence) -> Option<Ranges> {
        let shift = self.place(SerialNumber(other.first() as u32)) - other.first();
        let first = self.first().min(other.first() + shift);
        if self.first().max(other.first() + shift) >= self.last.1.min(other.last.1 + shift) {
            return None;
        }
        let given_up = [self, other].iter().filter_map(|each| each.before.as_ref()).map(|before| before.given_up).sum();
        let before = Some(Box::new(Before { ranges: Vec::new(), given_up }));
        let mut joined = Ranges { last: (first, first), before };
        let mut ours = self.ranges().peekable();
        let mut theirs = other.ranges().map(|(start, end)| (start + shift, end + shift)).peekable();
        while let Some((start, end)) = match (ours.peek(), theirs.peek()) {
            (Some(our), Some(their)) if their.0 < our.0 => theirs.next(),
            (None, _) => theirs.next(),
            _ => ours.next(),
        } {
            if joined.add(start, end, sequence) < (end - start) as u64 {
                return None;
            }
        }
        Some(joined)
    }

    /// All of them, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (i64, i64)> {
        self.before.iter().flat_map(|before| &before.ranges).copied().chain([self.last])
    }

    fn first(&self) -> i64 {
        self.before.as_ref().and_then(|before| before.ranges.first()).unwrap_or(&self.last).0
    }

    fn place(&self, number: SerialNumber) -> i64 {
        self.last.1 + i64::from(number.distance(self.next()))
    }

    /// The first range that ends there or later; else the highest.
    fn range_to(&self, end: i64) -> (i64, i64) {
        let before = self.before.as_ref().map_or(&[][..], |before| &before.ranges);
        before.get(before.partition_point(|range| range.1 < end)).copied().unwrap_or(self.last)
    }
}

/// Adds values to ranges in order, none of which lie behind them; returns how many are new.
fn merge(ranges: &mut Vec<(i64, i64)>, start: i64, end: i64) -> u64 {
    let first = ranges.len().saturating_sub(SEARCHED);
    let oldest = ranges.get(first).map_or(start, |range| range.0);
    let start = start.max(oldest);
    if start > end {
        return 0;
    }
    let from = first + ranges[first..].partition_point(|range| range.1 < start);
    let to = from + ranges[from..].partition_point(|range| range.0 <= end);
    let joined = &ranges[from..to];
    let known: i64 = joined.iter().map(|range| (range.1.min(end) - range.0.max(start)).max(0)).sum();
    let whole = joined.iter().fold((start, end), |whole, range| (whole.0.min(range.0), whole.1.max(range.1)));
    ranges.splice(from..to, [whole]);
    (end - start - known) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn after(numbers: &[u32]) -> Ranges {
        let mut ranges = Ranges::from(SerialNumber(numbers[0]));
        numbers.iter().for_each(|&number| {
            ranges.note(SerialNumber(number), &COMMANDS);
        });
        ranges
    }

    #[test]
    fn a_late_number_is_no_longer_missing_and_counts_once() {
        let mut ranges = Ranges::from(SerialNumber(9));
        let mut counted = 0;
        for (number, expected, missing) in [
            (10, Order::Ahead(1), 1),
            (14, Order::Ahead(3), 4),
            (12, Order::Late, 3),
            (12, Order::Again, 3),
            (13, Order::Late, 2),
            (9, Order::Late, 1),
            (8, Order::Again, 1),
            (11, Order::Late, 0),
            (15, Order::Next, 0),
            (17, Order::Ahead(1), 1),
            (1 << 20, Order::Other, 1),
            ((1 << 20) + 2, Order::Ahead(1), 2),
            (16, Order::Again, 2),
        ] {
            let order = ranges.note(SerialNumber(number), &COMMANDS);
            counted += order.missing();
            assert_eq!((order, ranges.missing(), counted), (expected, missing, missing as i64), "{number}");
            assert_eq!(order.is_behind(), matches!(expected, Order::Late | Order::Again));
        }
    }

    #[test]
    fn a_jump_leads_to_another_sequence_where_it_is_too_long() {
        for (sequence, far) in [(&STATUSES, 1 << 14), (&COMMANDS, (1 << 16) + 1)] {
            for (jump, expected) in [(far - 1, Order::Ahead(far - 1)), (far, Order::Other)] {
                assert_eq!(after(&[u32::MAX]).note(SerialNumber(jump), sequence), expected);
            }
        }
        assert_eq!(after(&[u32::MAX]).note(SerialNumber(0x7fff_fffe), &DATA), Order::Ahead(0x7fff_fffe));
    }

    #[test]
    fn numbers_that_the_other_side_expects_no_more_were_sent() {
        let mut ranges = after(&[u32::MAX]);
        for (number, missing) in [(0, 0), (u32::MAX, 0), (3, 3), (2, 3), (1 << 17, 3)] {
            ranges.reach(SerialNumber(number), &COMMANDS);
            assert_eq!(ranges.missing(), missing, "{number}");
        }
        // one of them comes late after all, and others follow
        assert_eq!((ranges.note(SerialNumber(1), &COMMANDS), ranges.missing()), (Order::Late, 2));
        assert_eq!((ranges.note(SerialNumber(3), &COMMANDS), ranges.missing()), (Order::Next, 2));
    }

    #[test]
    fn a_number_is_there_once_it_came() {
        let ranges = after(&[u32::MAX, 0, 3]);
        let numbers = [u32::MAX - 1, u32::MAX, 0, 1, 2, 3, 4].map(SerialNumber);
        assert_eq!(numbers.map(|number| ranges.has(number)), [false, true, true, false, false, true, false]);
        assert_eq!(numbers.map(|number| ranges.is_again(number)), [true, true, true, false, false, true, false]);
    }

    #[test]
    fn numbers_without_a_hole_between_follow_each_other() {
        let ranges = after(&[u32::MAX - 1, u32::MAX, 0, 3, 4, 7]);
        let has_all = |from, to| ranges.has_all(SerialNumber(from), SerialNumber(to), &COMMANDS);
        assert!([(u32::MAX - 1, 1), (u32::MAX, 0), (3, 4), (4, 5), (3, 5)].iter().all(|&(from, to)| has_all(from, to)));
        assert!(![(0, 2), (0, 3), (2, 3), (4, 6), (4, 7), (u32::MAX, 3)].iter().any(|&(from, to)| has_all(from, to)));
        // an immediate command has the number of the next; backwards and before the first there is nothing to miss
        assert!([(3, 3), (2, 2), (4, 3), (u32::MAX - 9, 3)].iter().all(|&(from, to)| has_all(from, to)));
        // those after the last one were not seen
        assert!(has_all(7, 8) && !has_all(7, 9) && !has_all(8, 9) && !has_all(0, 1000) && has_all(7, 1 << 20));
    }

    #[test]
    fn what_is_missing_before_forgotten_ranges_stays_missing() {
        let mut ranges = after(&(0..100).map(|number| 10 * number).collect::<Vec<_>>());
        ranges.forget(51);
        assert_eq!((ranges.ranges().count(), ranges.has_given_up()), (100, false));
        ranges.forget(20);
        assert_eq!((ranges.missing(), ranges.ranges().count(), ranges.has_given_up()), (99 * 9, 20, true));
        assert_eq!((ranges.note(SerialNumber(985), &COMMANDS), ranges.missing()), (Order::Late, 99 * 9 - 1));
        assert_eq!((ranges.note(SerialNumber(5), &COMMANDS), ranges.missing()), (Order::Again, 99 * 9 - 1));
    }

    #[test]
    fn a_hostile_sequence_is_bounded() {
        let mut ranges = Ranges::default();
        for number in 0..100_000 {
            assert_eq!(ranges.note(SerialNumber(2 * number + 1), &DATA), Order::Ahead(1));
            assert!(ranges.ranges().count() <= 2 * DATA.kept);
        }
        assert_eq!((ranges.missing(), ranges.has_given_up()), (100_000, true));
    }

    proptest! {
        /// Compared with a set of bytes.
        #[test]
        fn each_byte_counts_once(data in prop::collection::vec((0i64..60, 1i64..20), 1..40)) {
            let (mut ranges, mut bytes) = (Ranges::default(), HashSet::new());
            for (start, length) in data {
                let new = (start..start + length).filter(|&byte| bytes.insert(byte)).count();
                prop_assert_eq!(ranges.add(start, start + length, &DATA), new as u64);
                prop_assert_eq!(ranges.missing() as i64, ranges.last.1 - bytes.len() as i64);
            }
        }

        /// Counts the missing numbers between the first and the last, whatever is lost or reordered.
        #[test]
        fn missing_numbers_are_counted(
            start: u32,
            lost in prop::collection::btree_set(1u32..200, 0..50),
            order in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            let mut numbers: Vec<u32> = (1..200).filter(|number| !lost.contains(number)).chain([200]).collect();
            for (place, other) in order.iter().enumerate().take(numbers.len()) {
                let other = other.index(numbers.len());
                numbers.swap(place, other);
            }
            let mut ranges = Ranges::from(SerialNumber(start));
            for number in [0].iter().chain(&numbers) {
                let order = ranges.note(SerialNumber(start.wrapping_add(*number)), &COMMANDS);
                prop_assert!(!matches!(order, Order::Again | Order::Other));
            }
            prop_assert_eq!(ranges.missing(), lost.len() as u64);
        }
    }
}
