//! Serial numbers of 32 bits (RFC 1982): TCP sequence numbers, CmdSN, StatSN, DataSN.
//!
//! Serial numbers wrap, so they are never compared as integers. There is no `Ord`, because the order is not transitive.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Add;

/// A number modulo 2^32 that is compared by its distance to another (RFC 1982; RFC 7143 section 4.2.2.1 for CmdSN).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SerialNumber(pub u32);

impl SerialNumber {
    /// `self - other` modulo 2^32, as a signed number: positive when `self` comes later.
    ///
    /// Two numbers exactly 2^31 apart have no order (RFC 1982 section 3.2); their distance is `i32::MIN` both ways.
    #[inline]
    #[must_use]
    pub fn distance(self, other: SerialNumber) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// True when `self` comes before `other`; false for equal numbers and for those exactly 2^31 apart.
    #[inline]
    #[must_use]
    pub fn is_before(self, other: SerialNumber) -> bool {
        other.distance(self) > 0
    }

    /// True when `self` comes after `other`; false for equal numbers and for those exactly 2^31 apart.
    #[inline]
    #[must_use]
    pub fn is_after(self, other: SerialNumber) -> bool {
        self.distance(other) > 0
    }

    /// The number after this one.
    #[inline]
    #[must_use]
    pub fn next(self) -> SerialNumber {
        self + 1
    }
}

impl Add<u32> for SerialNumber {
    type Output = SerialNumber;

    #[inline]
    fn add(self, increment: u32) -> SerialNumber {
        SerialNumber(self.0.wrapping_add(increment))
    }
}

impl From<u32> for SerialNumber {
    #[inline]
    fn from(number: u32) -> SerialNumber {
        SerialNumber(number)
    }
}

impl fmt::Display for SerialNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::SerialNumber;
    use proptest::prelude::*;

    #[test]
    fn order_survives_the_wrap() {
        let last = SerialNumber(u32::MAX);
        assert_eq!(last.next(), SerialNumber(0));
        assert!(last.is_before(SerialNumber(0)));
        assert!(SerialNumber(5).is_after(SerialNumber(0xffff_fff0)));
        assert_eq!(SerialNumber(5).distance(SerialNumber(0xffff_fffe)), 7);
        assert_eq!(SerialNumber(0xffff_fffe).distance(SerialNumber(5)), -7);
    }

    #[test]
    fn numbers_half_the_circle_apart_have_no_order() {
        let (zero, half) = (SerialNumber(0), SerialNumber(0x8000_0000));
        assert!(!zero.is_before(half) && !zero.is_after(half) && !half.is_before(zero) && !half.is_after(zero));
    }

    proptest! {
        /// The definition of RFC 1982 section 3.2, case by case, over plain integers.
        #[test]
        fn order_is_that_of_rfc_1982(a: u32, b: u32) {
            const HALF: u64 = 1 << 31;
            let (i1, i2) = (u64::from(a), u64::from(b));
            let is_less = (i1 < i2 && i2 - i1 < HALF) || (i1 > i2 && i1 - i2 > HALF);
            let is_greater = (i1 < i2 && i2 - i1 > HALF) || (i1 > i2 && i1 - i2 < HALF);
            prop_assert_eq!(SerialNumber(a).is_before(SerialNumber(b)), is_less);
            prop_assert_eq!(SerialNumber(a).is_after(SerialNumber(b)), is_greater);
        }

        #[test]
        fn distance_undoes_addition(start: u32, step in 0..0x8000_0000_u32) {
            let later = SerialNumber(start) + step;
            prop_assert_eq!(i64::from(later.distance(SerialNumber(start))), i64::from(step));
        }
    }
}
