//! Ids of rows. A row has the number of rows that came before it in its table; rows that leave the table take theirs along,
//! so that none is ever used again, and who kept an id of such a row finds nothing.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

/// The id of a row of a table.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Id<T> {
    number: u32,
    #[serde(skip)]
    table: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    /// The id with this number.
    pub const fn new(number: u32) -> Self {
        Self { number, table: PhantomData }
    }

    /// Its number: that of the row in a table that no row left.
    pub const fn number(self) -> u32 {
        self.number
    }
}

impl<T> Default for Id<T> {
    /// Of the first row.
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Id<T> {}

impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Id<T> {}

impl<T> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number)
    }
}

impl<T> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

/// The ids of the rows of a table, in order.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ids {
    /// The number of each row, once rows left from among others.
    numbers: Option<Vec<u32>>,
    /// The number of the first row; of the next one, where the number of each is known.
    number: u32,
}

impl Ids {
    /// Those of a table that no row left.
    pub(super) const NONE: Self = Self { numbers: None, number: 0 };

    /// The number of the row that is added next to `count` rows.
    #[inline]
    pub(super) fn next(&self, count: usize) -> u32 {
        if self.numbers.is_some() { self.number } else { self.number + count as u32 }
    }

    /// The row with a number; beyond all rows if it left.
    #[inline]
    pub(super) fn row(&self, number: u32) -> usize {
        match &self.numbers {
            None => number.wrapping_sub(self.number) as usize,
            Some(numbers) => self.found(numbers, number),
        }
    }

    fn found(&self, numbers: &[u32], number: u32) -> usize {
        // no row left from among the latest ones
        let from_end = self.number.wrapping_sub(number) as usize;
        match numbers.len().checked_sub(from_end) {
            Some(row) if numbers.get(row) == Some(&number) => row,
            _ => numbers.binary_search(&number).unwrap_or(usize::MAX),
        }
    }

    /// Rows were added: there are `count` now.
    #[inline]
    pub(super) fn add(&mut self, count: usize) {
        if let Some(numbers) = &mut self.numbers {
            while numbers.len() < count {
                numbers.push(self.number);
                self.number += 1;
            }
        }
    }

    /// Of `count` rows those leave whose flag is not set.
    pub(super) fn keep(&mut self, is_kept: &[bool], count: usize) {
        let Self { numbers, number } = self;
        let numbers = numbers.get_or_insert_with(|| {
            let first = *number;
            *number += count as u32;
            (first..*number).collect()
        });
        let mut is_kept = is_kept.iter();
        numbers.retain(|_| is_kept.next().copied().unwrap_or(true));
    }

    /// Of `count` rows the first `left` leave.
    pub(super) fn drop_first(&mut self, left: usize, count: usize) {
        let left = left.min(count);
        match &mut self.numbers {
            None => self.number += left as u32,
            Some(numbers) => drop(numbers.drain(..left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_its_number_and_none_is_used_again() {
        let mut ids = Ids::NONE;
        assert_eq!((ids.next(3), ids.row(2)), (3, 2));
        // the first leave
        ids.drop_first(2, 3);
        assert_eq!((ids.next(1), ids.row(2)), (3, 0));
        assert!(ids.row(1) > 9);
        // of 2, 3, 4, 5
        ids.keep(&[true, false, false], 4);
        assert_eq!(
            [1, 2, 3, 4, 5, 6].map(|number| ids.row(number)),
            [usize::MAX, 0, usize::MAX, usize::MAX, 1, usize::MAX]
        );
        assert_eq!(ids.next(2), 6);
        ids.add(4);
        assert_eq!([5, 6, 7, 8].map(|number| ids.row(number)), [1, 2, 3, usize::MAX]);
        ids.drop_first(3, 4);
        assert_eq!([2, 6, 7].map(|number| ids.row(number)), [usize::MAX, usize::MAX, 0]);
        // all of them
        ids.drop_first(9, 1);
        assert_eq!((ids.row(7), ids.next(0)), (usize::MAX, 8));
        ids.add(1);
        assert_eq!((ids.row(8), ids.next(1)), (0, 9));
    }
}
