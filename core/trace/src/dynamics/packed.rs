//! Deliveries in few bytes: there is one for every few packets, and a pass keeps those of all connections to its end.
//!
//! ```text
//! payload bytes x 2 + is begun known?   time since the delivery before   time since begun
//! ```
//!
//! Each is a variable-length integer; together about 10 bytes instead of 32.

use integer_encoding::VarInt;
use serde::{Deserialize, Serialize};

/// Bytes of the longest integer of 64 bits.
const VARINT_BYTES_MAX: usize = 10;

/// Bytes that came out of the line since the delivery before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// When.
    pub time_ns: i64,
    /// When the latest packet that it answers passed the tap, if known.
    pub begun_ns: Option<i64>,
    /// TCP payload.
    pub bytes: u32,
}

/// Deliveries in order, of which the last can still change.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PackedDeliveries {
    bytes: Vec<u8>,
    /// The time that the first packed one counts from, and the time of the last packed one.
    base_ns: i64,
    packed_ns: i64,
    last: Option<Delivery>,
}

impl PackedDeliveries {
    /// The last one.
    pub fn last_mut(&mut self) -> Option<&mut Delivery> {
        self.last.as_mut()
    }

    /// Adds one.
    pub fn push(&mut self, next: Delivery) {
        let Some(Delivery { time_ns, begun_ns, bytes }) = self.last.replace(next) else { return };
        let mut buffer = [0; 3 * VARINT_BYTES_MAX];
        let mut length = (u64::from(bytes) << 1 | u64::from(begun_ns.is_some())).encode_var(&mut buffer);
        length += time_ns.wrapping_sub(self.packed_ns).encode_var(&mut buffer[length..]);
        if let Some(begun_ns) = begun_ns {
            length += time_ns.wrapping_sub(begun_ns).encode_var(&mut buffer[length..]);
        }
        self.bytes.extend_from_slice(&buffer[..length]);
        self.packed_ns = time_ns;
    }

    /// All of them.
    pub fn iter(&self) -> Iter<'_> {
        Iter { bytes: &self.bytes, time_ns: self.base_ns, last: self.last }
    }

    /// Removes those from before.
    pub fn forget(&mut self, before_ns: i64) {
        let mut iter = self.iter();
        let mut kept = iter;
        while iter.next().is_some_and(|delivery| delivery.time_ns < before_ns) {
            kept = iter;
        }
        let Iter { bytes, time_ns, last } = kept;
        let count = self.bytes.len() - bytes.len();
        (self.base_ns, self.last) = (time_ns, last);
        self.bytes.drain(..count);
    }

    /// Gives the memory back that more would need.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

/// Iterates over deliveries.
#[derive(Debug, Clone, Copy)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    time_ns: i64,
    last: Option<Delivery>,
}

impl Iter<'_> {
    fn take<T: VarInt>(&mut self) -> Option<T> {
        let (value, length) = T::decode_var(self.bytes)?;
        self.bytes = self.bytes.get(length..)?;
        Some(value)
    }
}

impl Iterator for Iter<'_> {
    type Item = Delivery;

    fn next(&mut self) -> Option<Delivery> {
        if self.bytes.is_empty() {
            return self.last.take();
        }
        let bytes: u64 = self.take()?;
        self.time_ns = self.time_ns.wrapping_add(self.take()?);
        let begun_ns = if bytes & 1 == 1 { Some(self.time_ns.wrapping_sub(self.take()?)) } else { None };
        Some(Delivery { time_ns: self.time_ns, begun_ns, bytes: (bytes >> 1) as u32 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_comes_out_went_in(
            rows in proptest::collection::vec((any::<i64>(), any::<Option<i64>>(), any::<u32>()), 0..40),
            step_ns in 1_i64..9_000_000,
            is_ordered in any::<bool>(),
            before in 0_i64..40,
        ) {
            let of = |(place, (time_ns, begun_ns, bytes))| {
                let time_ns = if is_ordered { step_ns * place } else { time_ns };
                Delivery { time_ns, begun_ns, bytes }
            };
            let rows: Vec<Delivery> = (0..).zip(rows).map(of).collect();
            let mut packed = PackedDeliveries::default();
            rows.iter().for_each(|&row| packed.push(row));
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), rows.clone());
            prop_assert_eq!(packed.last_mut().copied(), rows.last().copied());
            packed.forget(step_ns * before);
            let kept: Vec<Delivery> = rows.into_iter().skip_while(|row| row.time_ns < step_ns * before).collect();
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), kept.clone());
            let more = Delivery { time_ns: 7, begun_ns: None, bytes: 9 };
            packed.push(more);
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), [kept, vec![more]].concat());
        }
    }
}
