//! The addresses of system calls: sequential or random by a seed, within a span, until all bytes are used.
//!
//! It knows bytes of one volume, not commands.

use super::settings::Access;

/// A system call: first byte on the volume, and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// First byte.
    pub byte: u64,
    /// Length.
    pub length_bytes: u64,
}

/// The calls to one volume.
#[derive(Debug)]
pub struct Sequence {
    first_byte: u64,
    call_bytes: u64,
    slots: u64,
    access: Access,
    random: fastrand::Rng,
    next: u64,
    left_bytes: Option<u64>,
}

impl Sequence {
    /// Calls within `span_bytes` from `first_byte` on; none when the span has no room for a call.
    #[must_use]
    pub fn new(
        first_byte: u64,
        span_bytes: u64,
        call_bytes: u64,
        access: Access,
        seed: u64,
        left_bytes: Option<u64>,
    ) -> Option<Self> {
        let slots = span_bytes.checked_div(call_bytes).filter(|slots| *slots > 0)?;
        let random = fastrand::Rng::with_seed(seed);
        Some(Self { first_byte, call_bytes, slots, access, random, next: 0, left_bytes })
    }

    /// Whether all bytes are used.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.left_bytes == Some(0)
    }

    /// The next call; none when all bytes are used. The last may be shorter.
    pub fn next_call(&mut self) -> Option<Call> {
        let length_bytes = self.left_bytes.map_or(self.call_bytes, |left| left.min(self.call_bytes));
        if length_bytes == 0 {
            return None;
        }
        if let Some(left) = &mut self.left_bytes {
            *left -= length_bytes;
        }
        let slot = match self.access {
            Access::Sequential => self.next % self.slots,
            Access::Random => self.random.u64(0..self.slots),
        };
        self.next += 1;
        Some(Call { byte: self.first_byte + slot * self.call_bytes, length_bytes })
    }
}

/// The share of `total_bytes` of one of `count` volumes when calls are distributed round robin.
#[must_use]
pub fn share(total_bytes: u64, call_bytes: u64, count: u64, index: u64) -> u64 {
    let calls = total_bytes.div_ceil(call_bytes);
    let own = calls / count + u64::from(index < calls % count);
    let is_last_here = calls > 0 && (calls - 1) % count == index;
    let missing = calls * call_bytes - total_bytes;
    own * call_bytes - if is_last_here { missing } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn calls(access: Access, span: u64, left: u64) -> Vec<(u64, u64)> {
        let mut sequence = Sequence::new(1000, span, 100, access, 3, Some(left)).unwrap();
        std::iter::from_fn(|| sequence.next_call()).map(|call| (call.byte, call.length_bytes)).collect()
    }

    #[test]
    fn sequential_calls_wrap_at_the_end_of_the_span() {
        let expected = [(1000, 100), (1100, 100), (1200, 100), (1000, 100), (1100, 50)];
        assert_eq!(calls(Access::Sequential, 350, 450), expected);
        assert!(Sequence::new(0, 99, 100, Access::Sequential, 0, None).is_none());
    }

    #[test]
    fn random_calls_depend_on_the_seed_and_cover_the_span() {
        let first = calls(Access::Random, 1000, 100_000);
        assert_eq!(first, calls(Access::Random, 1000, 100_000));
        let mut bytes: Vec<_> = first.iter().map(|call| call.0).collect();
        bytes.sort_unstable();
        bytes.dedup();
        assert_eq!(bytes, (10..20).map(|slot| slot * 100).collect::<Vec<_>>());
    }

    proptest! {
        /// A naive model: distributed one by one.
        #[test]
        fn shares_equal_round_robin_distribution(total in 1u64..5_000, call in 1u64..700, count in 1u64..9) {
            let mut dealt = vec![0; count as usize];
            let (mut left, mut index) = (total, 0);
            while left > 0 {
                let length = left.min(call);
                dealt[index % count as usize] += length;
                (left, index) = (left - length, index + 1);
            }
            let shares: Vec<_> = (0..count).map(|index| share(total, call, count, index)).collect();
            prop_assert_eq!(shares, dealt);
        }
    }
}
