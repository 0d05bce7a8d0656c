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
        self.extend(rows.iter().filter_map(|&row| other.get(row).copied()));
    }

    fn keep_rows(&mut self, is_kept: &[bool]) {
        let mut places = is_kept.iter();
        self.retain(|_| places.next().copied().unwrap_or(true));
    }

    fn drop_first_rows(&mut self, count: usize) {
        self.drain(..count.min(self.len()));
    }

    fn reorder_rows(&mut self, rows: &[usize]) {
        *self = rows.iter().filter_map(|&row| self.get(row).copied()).collect();
    }
}
