//! The declaration of a table, and what follows from it: the columns, a row, and what Python is told of both.
//!
//! ```text
//! table! {
//!     /// what one row is
//!     Tables Row "name" {
//!         /// what the column holds
//!         column: u32 [unit] = null, "RFC 7143 section 11.2";
//!         code: u8(category);
//!         other: u8(sparse);
//!         frame: u64(narrow);
//!         command: u32(cycle);
//!     }
//! }
//! ```
//!
//! Unit, start and source may be left out. The start is the column's value in a default row: zero, false or "" unless
//! it is declared. `null` and `masked` make the column nullable: `null` starts it as the null of its type; `masked` is
//! for a column where every value is possible, whose nulls are computed from other columns. A code of a category is
//! null where it is 255; it is never declared nullable. A column is `sparse` if nearly all rows have its start, and
//! `narrow` if its numbers mostly fit into 32 bits. One of `cycle` has the numbers of commands, by their rows in `cycles`.
//!
//! A table whose rows go on through the periods of a ring says so, by what names a row; then every column has to say
//! what a period has of it, or it does not compile:
//!
//! ```text
//!     Tables Row "name" of (connection) {
//!         count: u64 => counter;             a count or a duration: what came after the period before
//!         address: String => kept;           what is known at its end
//!         longest_ns: i64 = null => of count;    kept where the count is another than before, else its start
//!     }
//! ```

use super::column::Column;

/// What is declared of a column.
#[derive(Debug)]
pub struct ColumnDeclaration {
    /// Its name.
    pub name: &'static str,
    /// NumPy's name of its type, `str`, or `category:NAME` for a code of that category.
    pub dtype: &'static str,
    /// What it holds.
    pub meaning: &'static str,
    /// Unit of its values, or "".
    pub unit: &'static str,
    /// Whether it can be null.
    pub is_nullable: bool,
    /// Where it is defined: a section of an RFC or of docs/method.md, or "".
    pub source: &'static str,
}

/// What is declared of a table.
#[derive(Debug)]
pub struct TableDeclaration {
    /// Its name.
    pub name: &'static str,
    /// What one row is.
    pub row: &'static str,
    /// Its columns in order.
    pub columns: &'static [ColumnDeclaration],
}

/// A table whose columns can be moved out by name.
pub trait Columns {
    /// What is declared of it.
    const DECLARATION: TableDeclaration;
    /// Rows.
    fn row_count(&self) -> usize;
    /// Its columns that name commands.
    fn cycles(&mut self) -> Vec<&mut Vec<u32>>;
    /// The column of that name, which is empty afterwards; none if there is none.
    fn take_column(&mut self, name: &str) -> Option<Column>;

    /// Every column in order; the table is empty afterwards.
    fn take_columns(&mut self) -> Vec<(&'static str, Column)> {
        let columns = Self::DECLARATION.columns.iter();
        columns.filter_map(|column| Some((column.name, self.take_column(column.name)?))).collect()
    }
}

macro_rules! table {
    (@values String) => { $crate::tables::TextColumn };
    (@values u64 narrow) => { $crate::tables::Narrow };
    (@values $type:ident sparse) => { $crate::tables::Sparse<$type> };
    (@values $type:ident $($category:ident)?) => { Vec<$type> };

    (@cycles $table:ident $found:ident $column:ident cycle) => { $found.push(&mut $table.$column); };
    (@cycles $table:ident $found:ident $column:ident $($other:ident)?) => {};

    (@dtype $type:ident cycle) => { table!(@dtype $type) };
    (@dtype $type:ident narrow) => { table!(@dtype $type) };
    (@dtype $type:ident sparse) => { table!(@dtype $type) };
    (@dtype $type:ident) => { <$type as $crate::tables::column::Stored>::DTYPE };
    (@dtype $type:ident $category:ident) => { concat!("category:", stringify!($category)) };

    (@start $type:ident) => { <$type>::default() };
    (@start $type:ident null) => { <$type as $crate::tables::column::Nullable>::NULL };
    (@start $type:ident masked) => { <$type>::default() };
    (@start $type:ident $value:tt) => { $value };

    (@is_nullable (cycle) $($start:tt)?) => { table!(@is_nullable $($start)?) };
    (@is_nullable (narrow) $($start:tt)?) => { table!(@is_nullable $($start)?) };
    (@is_nullable (sparse) $($start:tt)?) => { table!(@is_nullable $($start)?) };
    (@is_nullable ($category:ident) $($start:tt)?) => { false };
    (@is_nullable null) => { true };
    (@is_nullable masked) => { true };
    (@is_nullable $($value:tt)?) => { false };

    // what a period has of a column: `now` is changed from what is known at its end, `before` is the end of the one before
    (@since kept $column:ident $type:ident ($($start:tt)?) ($($of:ident)*) $($tables:tt)+) => {};
    (@since counter $column:ident $type:ident ($($start:tt)?) () $before:ident $known:ident $now:ident $rows:ident) => {
        for &(row, old) in &$rows {
            let (known, before) = ($known.$column[row], $before.$column[old]);
            let null = <$type as $crate::tables::column::Nullable>::NULL;
            if !table!(@is_nullable $($start)?) || (known != null && before != null) {
                $now.$column[row] = known.saturating_sub(before).max(0);
            }
        }
    };
    (@since of $column:ident $type:ident ($($start:tt)?) ($($of:ident)+) $before:ident $known:ident $now:ident $rows:ident) => {
        for &(row, old) in &$rows {
            if $($known.$of[row] == $before.$of[old])&&+ {
                $now.$column[row] = table!(@start $type $($start)?);
            }
        }
    };

    (
        $(#[doc = $row_meaning:literal])+
        $table:ident $row:ident $name:literal of ($($key:ident),+) { $(
            $(#[doc = $meaning:literal])+
            $column:ident: $type:ident $(($category:ident))? $([$($unit:tt)+])? $(= $start:tt)? $(, $source:literal)?
            => $period:ident $($of:ident)*;
        )* }
    ) => {
        table! {
            $(#[doc = $row_meaning])+
            $table $row $name { $(
                $(#[doc = $meaning])+
                $column: $type $(($category))? $([$($unit)+])? $(= $start)? $(, $source)?;
            )* }
        }

        impl $table {
            /// What a period has of these rows, which are known at its end; `before` are those at the end of the one before.
            pub(crate) fn since(&self, before: &Self) -> Self {
                use $crate::tables::Columns;
                let key = |table: &Self, row: usize| ($(table.$key[row],)+);
                let places: rustc_hash::FxHashMap<_, usize> =
                    (0..before.row_count()).map(|row| (key(before, row), row)).collect();
                let place = |row: usize| Some((row, places.get(&key(self, row)).copied()?));
                let rows: Vec<(usize, usize)> = (0..self.row_count()).filter_map(place).collect();
                let mut now = self.clone();
                $(table!(@since $period $column $type ($($start)?) ($($of)*) before self now rows);)*
                now
            }
        }
    };

    (
        $(#[doc = $row_meaning:literal])+
        $table:ident $row:ident $name:literal { $(
            $(#[doc = $meaning:literal])+
            $column:ident: $type:ident $(($category:ident))? $([$($unit:tt)+])? $(= $start:tt)? $(, $source:literal)?;
        )* }
    ) => {
        #[doc = concat!("The table `", $name, "`. A row is", $($row_meaning,)+ ".")]
        #[derive(Debug, Default, Clone, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(test, derive(PartialEq))]
        pub struct $table { $(
            $(#[doc = $meaning])+
            pub $column: table!(@values $type $($category)?),
        )*
            ids: $crate::tables::Ids,
        }

        #[doc = concat!("A row of `", $name, "`:", $($row_meaning),+)]
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(test, derive(PartialEq))]
        pub struct $row { $($(#[doc = $meaning])+ pub $column: $type,)* }

        impl Default for $row {
            fn default() -> Self {
                Self { $($column: table!(@start $type $($start)?),)* }
            }
        }

        impl $table {
            /// The id of the row that is added next.
            #[inline]
            pub fn next_id(&self) -> $crate::tables::Id<Self> {
                $crate::tables::Id::new(self.ids.next($crate::tables::Columns::row_count(self)))
            }

            /// The row with an id; beyond all rows if it left the table.
            #[inline]
            pub fn row(&self, id: $crate::tables::Id<Self>) -> usize {
                self.ids.row(id.number())
            }

            /// Whether the row with an id is still there.
            pub fn has(&self, id: $crate::tables::Id<Self>) -> bool {
                self.row(id) < $crate::tables::Columns::row_count(self)
            }

            /// Appends the rows of `other`, and leaves it empty. The longer table keeps its memory: one connection can
            /// hold most rows of a pass. No row is looked for by its id afterwards.
            pub fn append(&mut self, other: &mut Self) {
                use $crate::tables::{Columns, Values};
                if self.row_count() < other.row_count() {
                    std::mem::swap(self, other);
                    $(self.$column.prepend_rows(&mut other.$column);)*
                } else {
                    $(self.$column.append_rows(&mut other.$column);)*
                }
                (self.ids, other.ids) = ($crate::tables::Ids::NONE, $crate::tables::Ids::NONE);
            }

            /// Appends copies of these rows of another table; missing rows are skipped.
            pub fn copy_rows(&mut self, other: &Self, rows: &[usize]) {
                use $crate::tables::Values;
                $(self.$column.copy_rows(&other.$column, rows);)*
                self.ids.add($crate::tables::Columns::row_count(self));
            }

            /// Brings the rows into this order; one column at a time is in memory twice. No row is looked for by its id
            /// afterwards.
            pub fn reorder(&mut self, rows: &[usize]) {
                use $crate::tables::Values;
                self.ids = $crate::tables::Ids::NONE;
                $(self.$column.reorder_rows(rows);)*
            }

            /// Keeps the rows whose flag is set. No row is looked for by its id afterwards.
            pub fn retain(&mut self, is_kept: &[bool]) {
                use $crate::tables::Values;
                self.ids = $crate::tables::Ids::NONE;
                $(self.$column.keep_rows(is_kept);)*
            }

            /// No row is looked for by its id from now on.
            pub fn forget_ids(&mut self) {
                self.ids = $crate::tables::Ids::NONE;
            }

            /// The rows whose flag is not set leave; the others keep their ids.
            pub fn let_go(&mut self, is_kept: &[bool]) {
                let mut ids = std::mem::replace(&mut self.ids, $crate::tables::Ids::NONE);
                ids.keep(is_kept, $crate::tables::Columns::row_count(self));
                self.retain(is_kept);
                self.ids = ids;
            }

            /// The first rows leave; the others keep their ids.
            pub fn drop_first(&mut self, count: usize) {
                use $crate::tables::Values;
                self.ids.drop_first(count, $crate::tables::Columns::row_count(self));
                $(self.$column.drop_first_rows(count);)*
            }

            /// Appends a row and returns its number.
            #[inline]
            pub fn push(&mut self, row: $row) -> usize {
                use $crate::tables::Values;
                let number = $crate::tables::Columns::row_count(self);
                $(self.$column.push_row(row.$column);)*
                self.ids.add(number + 1);
                number
            }

            /// A table of these rows.
            #[cfg(test)]
            pub fn of(rows: impl IntoIterator<Item = $row>) -> Self {
                let mut table = Self::default();
                rows.into_iter().for_each(|row| {
                    table.push(row);
                });
                table
            }

            /// A table of one default row.
            #[cfg(test)]
            pub fn of_default_row() -> Self {
                let mut table = Self::default();
                table.push($row::default());
                table
            }
        }

        impl $crate::tables::Empty for $table {
            #[inline]
            fn empty() -> &'static Self {
                static EMPTY: $table = $table { $($column: <table!(@values $type $($category)?) as $crate::tables::Values>::NONE,)* ids: $crate::tables::Ids::NONE };
                &EMPTY
            }
        }

        impl $crate::tables::Columns for $table {
            const DECLARATION: $crate::tables::TableDeclaration = $crate::tables::TableDeclaration {
                name: $name,
                row: concat!($($row_meaning),+).trim_ascii_start(),
                columns: &[$($crate::tables::ColumnDeclaration {
                    name: stringify!($column),
                    dtype: table!(@dtype $type $($category)?),
                    meaning: concat!($($meaning),+).trim_ascii_start(),
                    unit: concat!($($(stringify!($unit)),+)?),
                    is_nullable: table!(@is_nullable $(($category))? $($start)?),
                    source: concat!($($source)?),
                }),*],
            };

            #[inline]
            fn row_count(&self) -> usize {
                use $crate::tables::Values;
                let columns = [$(Values::row_count(&self.$column),)*];
                columns[0]
            }

            fn cycles(&mut self) -> Vec<&mut Vec<u32>> {
                #[allow(unused_mut, reason = "most tables name none")]
                let mut found = Vec::new();
                let table = self;
                $(table!(@cycles table found $column $($category)?);)*
                let _ = table;
                found
            }

            fn take_column(&mut self, name: &str) -> Option<$crate::tables::Column> {
                match name {
                    $(stringify!($column) => Some(std::mem::take(&mut self.$column).into()),)*
                    _ => None,
                }
            }
        }
    };
}
pub(super) use table;
