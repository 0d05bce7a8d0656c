//! The DataSN and R2TSN of one task (RFC 7143 section 4.2.2.4).
//!
//! R2Ts and Data-In of a bidirectional command share one numbering (section 11.8): which of the two a missing number
//! was, only the task can tell.

use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

use super::ranges::{DATA, Order, Ranges};

/// Maximum missing PDUs for one jump of a number: a longer jump is another fault.
const MISSING_AT_ONCE_MAX: i64 = 1 << 16;

/// What is numbered from 0 in a task; the Data-Out of an R2T are numbered in its burst.
#[derive(Debug, Clone, Copy)]
pub enum Counted {
    /// Data-In.
    DataIn,
    /// R2Ts.
    R2t,
    /// Unsolicited Data-Out.
    Unsolicited,
}

/// The numbers that came.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct DataNumbers {
    /// By [`Counted`].
    came: [Ranges; 3],
}

impl DataNumbers {
    /// Whether a number was there before.
    pub fn is_again(&self, counted: Counted, number: SerialNumber) -> bool {
        self.came[counted as usize].is_again(number)
    }

    /// Whether a number is missing so far, although later ones came.
    pub fn lacks(&self, counted: Counted, number: SerialNumber) -> bool {
        number.is_before(self.came[counted as usize].next()) && !self.is_again(counted, number)
    }

    /// Notes a number.
    #[inline]
    pub fn note(&mut self, counted: Counted, number: SerialNumber) -> Order {
        self.came[counted as usize].note(number, &DATA)
    }

    /// PDUs whose headers were not captured had the next numbers.
    pub fn pass(&mut self, counted: Counted, count: u32) {
        self.came[counted as usize].pass(count);
    }

    /// How many numbers are missing that R2Ts and Data-In share.
    pub fn missing_of_either(&self) -> i64 {
        let [data_in, r2ts, _] = &self.came;
        let mut either = data_in.clone();
        r2ts.ranges().for_each(|(start, end)| {
            either.add(start, end, &DATA);
        });
        at_once(either.missing() as i64)
    }

    /// The numbers after the last one, by ExpDataSN (section 11.4.8), which targets may leave 0; those that R2Ts and Data-In
    /// share are missing from now on.
    pub fn end_at(&mut self, exp_data_sn: SerialNumber, is_shared: bool) -> i64 {
        let [data_in, r2ts, _] = &mut self.came;
        let next = if is_shared && r2ts.next().is_after(data_in.next()) { r2ts.next() } else { data_in.next() };
        let further = i64::from(exp_data_sn.distance(next)).max(0);
        if exp_data_sn.0 == 0 || further == 0 {
            return 0;
        }
        if is_shared {
            data_in.reach(exp_data_sn, &DATA);
        }
        at_once(further)
    }
}

/// So many missing PDUs, as far as one jump can show them.
pub fn at_once(missing: i64) -> i64 {
    missing.min(MISSING_AT_ONCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(numbers: &[(Counted, u32)]) -> DataNumbers {
        let mut noted = DataNumbers::default();
        numbers.iter().for_each(|&(counted, number)| assert!(!noted.note(counted, SerialNumber(number)).is_behind()));
        noted
    }

    #[test]
    fn each_kind_counts_alone() {
        let mut numbers = noted(&[(Counted::DataIn, 0), (Counted::R2t, 2), (Counted::Unsolicited, 0)]);
        assert_eq!(numbers.note(Counted::DataIn, SerialNumber(2)), Order::Ahead(1));
        let (again, lacks): (Vec<_>, Vec<_>) = [0, 1, 2, 3]
            .map(SerialNumber)
            .map(|number| (numbers.is_again(Counted::DataIn, number), numbers.lacks(Counted::DataIn, number)))
            .into_iter()
            .unzip();
        assert_eq!((again, lacks), (vec![true, false, true, false], vec![false, true, false, false]));
        assert_eq!([5, 3, 0, 0xffff].map(|number| numbers.end_at(SerialNumber(number), false)), [2, 0, 0, 0xfffc]);
        assert_eq!(numbers.end_at(SerialNumber(1 << 20), false), MISSING_AT_ONCE_MAX);
    }

    #[test]
    fn r2ts_and_data_in_of_a_bidirectional_command_count_together() {
        let mut numbers = noted(&[(Counted::DataIn, 0), (Counted::R2t, 1), (Counted::DataIn, 3), (Counted::R2t, 4)]);
        // unsolicited data have a numbering of their own
        assert_eq!(numbers.note(Counted::Unsolicited, SerialNumber(1)), Order::Ahead(1));
        assert_eq!(numbers.missing_of_either(), 1);
        assert_eq!([5, 0, 7].map(|number| numbers.end_at(SerialNumber(number), true)), [0, 0, 2]);
        assert_eq!(numbers.missing_of_either(), 3);
        assert_eq!((numbers.note(Counted::R2t, SerialNumber(2)), numbers.missing_of_either()), (Order::Late, 2));
    }

    #[test]
    fn a_target_that_numbers_them_apart_skips_nothing() {
        let each = [(Counted::R2t, 0), (Counted::DataIn, 0), (Counted::DataIn, 1), (Counted::R2t, 1)];
        assert_eq!(noted(&each).missing_of_either(), 0);
    }
}
