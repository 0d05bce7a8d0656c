//! What every column can do with its rows.

/// The values of a column.
pub trait Values: Default {
    /// One of them.
    type Value;
    /// No rows.
    const NONE: Self;
    /// Rows.
    fn row_count(&self) -> usize;
    /// Appends a row.
    fn push_row(&mut self, value: Self::Value);
    /// Moves the rows of `other` to the end.
    fn append_rows(&mut self, other: &mut Self);
    /// Moves the rows of `other` to the start.
    fn prepend_rows(&mut self, other: &mut Self);
    /// Appends copies of these rows of `other`; missing rows are skipped.
    fn copy_rows(&mut self, other: &Self, rows: &[usize]);
    /// Keeps the rows whose flag is set.
    fn keep_rows(&mut self, is_kept: &[bool]);
    /// Removes the first rows.
    fn drop_first_rows(&mut self, count: usize);
    /// Brings the rows into this order.
    fn reorder_rows(&mut self, rows: &[usize]);
}

impl<T: Copy> Values for Vec<T> {
    type Value = T;
    const NONE: Self = Self::new();

    #[inline]
    fn row_count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn push_row(&mut self, value: T) {
        self.push(value);
    }

    fn append_rows(&mut self, other: &mut Self) {
        self.append(other);
    }

    fn prepend_rows(&mut self, other: &mut Self) {
        self.splice(0..0, other.drain(..));
    }

    fn copy_rows(&mut self, other: &Self, rows: &[usize]) {
        self.reserve(rows.len());
        // most rows follow one another
        for run in rows.chunk_by(|&row, &next| row + 1 == next) {
            let first = run.first().map_or(0, |&row| row.min(other.len()));
            self.extend_from_slice(&other[first..(first + run.len()).min(other.len())]);
        }
    }

    fn keep_rows(&mut self, is_kept: &[bool]) {
        let (mut row, mut count) = (0, 0);
        for run in is_kept.chunk_by(|flag, next| flag == next) {
            let end = (row + run.len()).min(self.len());
            if run.first() == Some(&true) {
                self.copy_within(row..end, count);
                count += end - row;
            }
            row = end;
        }
        // rows without a flag stay, too
        self.copy_within(row.., count);
        self.truncate(count + self.len() - row);
    }

    fn drop_first_rows(&mut self, count: usize) {
        self.drain(..count.min(self.len()));
    }

    fn reorder_rows(&mut self, rows: &[usize]) {
        *self = rows.iter().filter_map(|&row| self.get(row).copied()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::Values;

    #[test]
    fn rows_are_kept_by_flags_and_without_one() {
        let (no, yes) = (false, true);
        for (is_kept, kept) in [
            (&[][..], &[0, 1, 2, 3, 4][..]),
            (&[no, no, yes, yes, no], &[2, 3]),
            (&[yes, no, yes, no, yes], &[0, 2, 4]),
            (&[no, yes], &[1, 2, 3, 4]),
            (&[yes, yes, no], &[0, 1, 3, 4]),
            (&[no, no, no, no, no, yes, yes], &[]),
        ] {
            let mut values = vec![0, 1, 2, 3, 4];
            values.keep_rows(is_kept);
            assert_eq!(values, kept, "{is_kept:?}");
        }
    }

    #[test]
    fn rows_are_copied_in_any_order_and_missing_ones_left_out() {
        for (rows, copied) in [
            (&[][..], &[9][..]),
            (&[0, 1, 2], &[9, 10, 11, 12]),
            (&[2, 1, 1, 0], &[9, 12, 11, 11, 10]),
            (&[1, 2, 3, 4], &[9, 11, 12]),
            (&[7, 8, 0], &[9, 10]),
        ] {
            let mut values = vec![9];
            values.copy_rows(&vec![10, 11, 12], rows);
            assert_eq!(values, copied, "{rows:?}");
        }
    }
}
