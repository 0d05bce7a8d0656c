//! Splits a system call into commands, as a kernel does: full commands, and the rest.
//!
//! It knows sizes only.

/// Lengths of the commands that carry `call_bytes` when one carries at most `most_bytes`.
pub fn commands(call_bytes: u64, most_bytes: u64) -> impl Iterator<Item = u64> {
    let most_bytes = most_bytes.max(1);
    let mut left = call_bytes;
    std::iter::from_fn(move || {
        let length = left.min(most_bytes);
        left -= length;
        (length > 0).then_some(length)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::commands;

    #[test]
    fn a_system_call_of_500_kb_becomes_four_commands() {
        let lengths: Vec<_> = commands(500 * 1024, 255 * 512).map(|length| length as f64 / 1024.0).collect();
        assert_eq!(lengths, [127.5, 127.5, 127.5, 117.5]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_only_the_last_is_short(call in 0u64..100_000, most in 1u64..5_000) {
            let lengths: Vec<_> = commands(call, most).collect();
            prop_assert_eq!(lengths.iter().sum::<u64>(), call);
            prop_assert!(lengths.iter().rev().skip(1).all(|length| *length == most));
            prop_assert!(lengths.iter().all(|length| (1..=most).contains(length)));
        }
    }
}
