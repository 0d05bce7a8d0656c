//! Columns in a state: the bytes of all values at once. A value by itself takes many times as long.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::narrow::Narrow;
use super::sparse::Sparse;
use super::text_column::TextColumn;

/// A column that has a form for states.
pub trait Packed: Sized {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    fn pack<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
    /// Reads it.
    ///
    /// # Errors
    /// Those of the deserializer, or bytes that are no values.
    fn unpack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

/// For `serde(with)`.
pub fn serialize<V: Packed, S: Serializer>(values: &V, serializer: S) -> Result<S::Ok, S::Error> {
    values.pack(serializer)
}

/// For `serde(with)`.
pub fn deserialize<'de, V: Packed, D: Deserializer<'de>>(deserializer: D) -> Result<V, D::Error> {
    V::unpack(deserializer)
}

macro_rules! packed {
    ($($number:ident)*) => { $(
        impl Packed for Vec<$number> {
            fn pack<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut bytes = vec![0; self.len() * size_of::<$number>()];
                for (place, value) in bytes.as_chunks_mut().0.iter_mut().zip(self) {
                    *place = value.to_le_bytes();
                }
                serializer.serialize_bytes(&bytes)
            }

            fn unpack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let (values, rest) = <&[u8]>::deserialize(deserializer)?.as_chunks();
                if !rest.is_empty() {
                    return Err(D::Error::custom("a column ends within a value"));
                }
                Ok(values.iter().map(|&value| $number::from_le_bytes(value)).collect())
            }
        }
    )* };
}
packed!(u8 u16 u32 u64 i64);

impl Packed for Vec<bool> {
    fn pack<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.iter().map(|&value| u8::from(value)).collect();
        serializer.serialize_bytes(&bytes)
    }

    fn unpack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(<&[u8]>::deserialize(deserializer)?.iter().map(|&value| value != 0).collect())
    }
}

impl<T: Copy + PartialEq> Packed for Sparse<T>
where
    Vec<T>: Packed,
{
    fn pack<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.iter().collect::<Vec<T>>().pack(serializer)
    }

    fn unpack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::unpack(deserializer).map(Self::from)
    }
}

impl Packed for Narrow {
    fn pack<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.iter().collect::<Vec<u64>>().pack(serializer)
    }

    fn unpack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::unpack(deserializer).map(Self::from)
    }
}

impl Packed for TextColumn {
    fn pack<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize(serializer)
    }

    fn unpack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::TextColumn;
    use crate::tables::Values;

    #[derive(Debug, Serialize, Deserialize)]
    struct Columns {
        #[serde(with = "super")]
        bools: Vec<bool>,
        #[serde(with = "super")]
        small: Vec<u8>,
        #[serde(with = "super")]
        ports: Vec<u16>,
        #[serde(with = "super")]
        times: Vec<i64>,
        #[serde(with = "super")]
        texts: TextColumn,
    }

    #[test]
    fn columns_are_what_they_were() {
        let mut texts = TextColumn::default();
        for text in ["a", "", "a"] {
            texts.push_row(text.into());
        }
        let columns = Columns {
            bools: vec![true, false, true],
            small: vec![0, 255],
            ports: vec![3260, u16::MAX],
            times: vec![i64::MIN, -1, 0, i64::MAX],
            texts,
        };
        let bytes = postcard::to_extend(&columns, Vec::new()).expect("memory");
        let read: Columns = postcard::from_bytes(&bytes).expect("columns");
        assert_eq!(read.bools, [true, false, true]);
        assert_eq!(read.small, [0, 255]);
        assert_eq!(read.ports, [3260, u16::MAX]);
        assert_eq!(read.times, [i64::MIN, -1, 0, i64::MAX]);
        assert_eq!(read.texts.iter().collect::<Vec<_>>(), ["a", "", "a"]);
    }

    #[test]
    fn a_column_that_ends_within_a_value_is_damaged() {
        #[derive(Debug, Deserialize)]
        struct Times {
            #[serde(with = "super")]
            _times: Vec<i64>,
        }
        let bytes = postcard::to_extend(&(9_u8, [1_u8; 9]), Vec::new()).expect("memory");
        postcard::from_bytes::<Times>(&bytes).expect_err("nine bytes");
    }
}
