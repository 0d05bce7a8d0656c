//! A column that has left its table: its values, their types and their nulls.

use super::text_column::TextColumn;

/// Null in an `i64` column.
pub const NULL_NS: i64 = i64::MIN;
/// Null in a `u8` column.
pub const NULL_U8: u8 = u8::MAX;
/// Null in a `u16` column.
pub const NULL_U16: u16 = u16::MAX;
/// Null in a `u32` column.
pub const NULL_U32: u32 = u32::MAX;
/// Null in a `u64` column.
pub const NULL_U64: u64 = u64::MAX;

/// One column, moved out of a table.
#[derive(Debug)]
pub enum Column {
    /// Truth values.
    Bool(Vec<bool>),
    /// Codes and small numbers.
    U8(Vec<u8>),
    /// Ports, tags of 16 bits.
    U16(Vec<u16>),
    /// Numbers, tags, lengths.
    U32(Vec<u32>),
    /// Frames, byte counts.
    U64(Vec<u64>),
    /// Instants and stream offsets.
    I64(Vec<i64>),
    /// Names.
    Text(TextColumn),
}

/// A type of values that a column can hold.
pub(super) trait Stored {
    /// Its name in NumPy; `str` for text.
    const DTYPE: &'static str;
}

/// A type with a value that stands for null: the largest unsigned, the smallest signed, "" for text.
pub(super) trait Nullable {
    /// That value.
    const NULL: Self;
}

macro_rules! stored {
    ($($variant:ident $type:ident $values:ty: $dtype:literal $(, null $null:expr)?;)*) => { $(
        impl From<$values> for Column {
            fn from(values: $values) -> Self {
                Self::$variant(values)
            }
        }

        impl Stored for $type {
            const DTYPE: &'static str = $dtype;
        }

        $(impl Nullable for $type {
            const NULL: Self = $null;
        })?
    )* };
}
stored! {
    Bool bool Vec<bool>: "bool";
    U8 u8 Vec<u8>: "uint8", null NULL_U8;
    U16 u16 Vec<u16>: "uint16", null NULL_U16;
    U32 u32 Vec<u32>: "uint32", null NULL_U32;
    U64 u64 Vec<u64>: "uint64", null NULL_U64;
    I64 i64 Vec<i64>: "int64", null NULL_NS;
    Text String TextColumn: "str", null Self::new();
}
