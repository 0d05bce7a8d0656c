//! What most connections have nothing of, such as rows of a table: until it is changed it takes a pointer.
//! It saves 13 % of the peak with 60,000 open connections of one command (157 MB).

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

/// It without anything, to look at.
pub trait Empty: Default + 'static {
    /// The one of this type.
    fn empty() -> &'static Self;
}

/// It is made when it is changed.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Rare<T>(Option<Box<T>>);

impl<T> Rare<T> {
    /// It, if it was made.
    pub fn made(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T: Empty> Deref for Rare<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.0 {
            Some(made) => made,
            None => T::empty(),
        }
    }
}

impl<T: Empty> DerefMut for Rare<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Rare;
    use crate::tables::{Columns, Sack, Sacks};

    #[test]
    fn a_table_is_made_with_its_first_row_and_not_when_it_is_looked_at() {
        let mut table = Rare::<Sacks>::default();
        assert_eq!((table.row_count(), table.frame.len()), (0, 0));
        assert!(table.made().is_none());
        table.push(Sack { frame: 7, ..Sack::default() });
        assert_eq!(table.made().map(|sacks| sacks.frame.clone()), Some(vec![7]));
        assert_eq!(table.frame, [7]);
    }
}
