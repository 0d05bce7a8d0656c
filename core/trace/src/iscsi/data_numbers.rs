//! The DataSN and R2TSN of one task, in order: which numbers were skipped (RFC 7143 section 4.2.2.4).
//!
//! R2Ts and Data-In of a bidirectional command share one numbering (section 11.8): which of the two a skipped number
//! was, only the task can tell.

use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

/// Maximum missing PDUs for one jump of a number: a longer jump is another fault.
const MISSING_AT_ONCE_MAX: u64 = 1 << 16;

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

/// The numbers that come next.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct DataNumbers {
    is_bidirectional: bool,
    data_in: SerialNumber,
    r2t: SerialNumber,
    unsolicited: SerialNumber,
    /// Skipped numbers of R2Ts or Data-In of a bidirectional command.
    either: u64,
}

impl DataNumbers {
    /// Before the first PDU.
    pub fn new(is_bidirectional: bool) -> Self {
        Self { is_bidirectional, ..Self::default() }
    }

    fn next(&mut self, counted: Counted) -> &mut SerialNumber {
        match counted {
            Counted::DataIn => &mut self.data_in,
            Counted::R2t => &mut self.r2t,
            Counted::Unsolicited => &mut self.unsolicited,
        }
    }

    /// What follows all R2Ts and Data-In so far.
    fn after_either(&self) -> SerialNumber {
        if self.r2t.is_after(self.data_in) { self.r2t } else { self.data_in }
    }

    /// Whether a number was there before.
    pub fn is_again(&self, counted: Counted, number: SerialNumber) -> bool {
        number.is_before(match counted {
            Counted::DataIn => self.data_in,
            Counted::R2t => self.r2t,
            Counted::Unsolicited => self.unsolicited,
        })
    }

    /// Notes a number that is not there again; returns how many of its kind were skipped before it.
    pub fn advance(&mut self, counted: Counted, number: SerialNumber) -> u64 {
        let is_shared = self.is_bidirectional && !matches!(counted, Counted::Unsolicited);
        let expected = if is_shared { self.after_either() } else { *self.next(counted) };
        *self.next(counted) = number.next();
        let skipped = skipped(number, expected);
        if is_shared {
            self.either += skipped;
            return 0;
        }
        skipped
    }

    /// A Data-In whose header was not captured.
    pub fn pass_data_in(&mut self) {
        self.data_in = self.data_in.next();
    }

    /// An unsolicited Data-Out whose header was not captured.
    pub fn pass_unsolicited(&mut self) {
        self.unsolicited = self.unsolicited.next();
    }

    /// Whether a bidirectional command skipped numbers.
    pub fn has_skipped_either(&self) -> bool {
        self.either > 0
    }

    /// The skipped numbers of a bidirectional command since the last call.
    pub fn take_skipped_either(&mut self) -> u64 {
        std::mem::take(&mut self.either)
    }

    /// The numbers after the last one seen, by ExpDataSN (section 11.4.8), which targets may leave 0. Those of a
    /// bidirectional command count as skipped.
    pub fn end_at(&mut self, exp_data_sn: SerialNumber) -> u64 {
        if self.is_bidirectional {
            let further = skipped(exp_data_sn, self.after_either());
            self.either += further;
            return further;
        }
        if exp_data_sn.0 == 0 { 0 } else { skipped(exp_data_sn, self.data_in) }
    }
}

/// How many numbers were skipped before this one.
pub fn skipped(number: SerialNumber, expected: SerialNumber) -> u64 {
    u64::try_from(number.distance(expected)).unwrap_or(0).min(MISSING_AT_ONCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advance(numbers: &mut DataNumbers, counted: Counted, number: u32) -> u64 {
        numbers.advance(counted, SerialNumber(number))
    }

    #[test]
    fn each_kind_counts_alone() {
        let mut numbers = DataNumbers::new(false);
        assert_eq!(advance(&mut numbers, Counted::DataIn, 0), 0);
        assert_eq!(advance(&mut numbers, Counted::R2t, 2), 2);
        assert_eq!(advance(&mut numbers, Counted::DataIn, 2), 1);
        assert_eq!(advance(&mut numbers, Counted::Unsolicited, 0), 0);
        assert!(
            numbers.is_again(Counted::DataIn, SerialNumber(2)) && !numbers.is_again(Counted::DataIn, SerialNumber(3))
        );
        assert_eq!((numbers.end_at(SerialNumber(5)), numbers.end_at(SerialNumber(0))), (2, 0));
        assert!(!numbers.has_skipped_either());
    }

    #[test]
    fn r2ts_and_data_in_of_a_bidirectional_command_count_together() {
        let mut numbers = DataNumbers::new(true);
        for (counted, number) in [(Counted::DataIn, 0), (Counted::R2t, 1), (Counted::DataIn, 3), (Counted::R2t, 4)] {
            assert!(!numbers.is_again(counted, SerialNumber(number)));
            assert_eq!(advance(&mut numbers, counted, number), 0);
        }
        // unsolicited data have a numbering of their own
        assert_eq!(advance(&mut numbers, Counted::Unsolicited, 1), 1);
        assert_eq!((numbers.take_skipped_either(), numbers.take_skipped_either()), (1, 0));
        assert_eq!((numbers.end_at(SerialNumber(5)), numbers.end_at(SerialNumber(0))), (0, 0));
        assert_eq!((numbers.end_at(SerialNumber(7)), numbers.take_skipped_either()), (2, 2));
    }

    #[test]
    fn a_target_that_numbers_them_apart_skips_nothing() {
        let mut numbers = DataNumbers::new(true);
        for (counted, number) in [(Counted::R2t, 0), (Counted::DataIn, 0), (Counted::DataIn, 1), (Counted::R2t, 1)] {
            assert!(!numbers.is_again(counted, SerialNumber(number)));
            assert_eq!(advance(&mut numbers, counted, number), 0);
        }
        assert!(!numbers.has_skipped_either());
    }

    #[test]
    fn numbers_wrap_and_a_jump_is_limited() {
        let mut numbers = DataNumbers::new(false);
        assert_eq!(advance(&mut numbers, Counted::DataIn, 0x7fff_ffff), MISSING_AT_ONCE_MAX);
        assert_eq!(advance(&mut numbers, Counted::DataIn, 0xffff_ffff), MISSING_AT_ONCE_MAX);
        assert_eq!(advance(&mut numbers, Counted::DataIn, 1), 1);
    }
}
