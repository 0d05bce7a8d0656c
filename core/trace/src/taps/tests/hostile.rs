//! Packets of any content in any order at both taps: the join ends, and claims no more than it has seen.

use proptest::collection::vec;
use proptest::prelude::*;

use super::capture::{Captures, Sent};

fn sent() -> impl Strategy<Value = Sent> {
    let near = prop_oneof![0_u32..5_000, any::<u32>()];
    let length = prop_oneof![3 => Just(0_u32), 3 => 1_u32..3_000, 1 => 60_000_u32..90_000];
    let sack = vec((near.clone(), near.clone()), 0..4);
    (any::<(bool, u8, u8, u8)>(), near.clone(), near, length, 0_u16..4, 0_u32..4, 0_u32..4, sack).prop_map(
        |(
            (to_target, flags, hop_limit, traffic_class),
            sequence,
            acknowledgment,
            length,
            identification,
            value,
            echo,
            sack,
        )| {
            Sent {
                to_target,
                flags,
                sequence_number: sequence,
                acknowledgment_number: acknowledgment,
                payload_bytes: length,
                identification,
                timestamp: value,
                echo,
                // the options have 40 bytes
                is_sack_permitted: hop_limit % 2 == 0 && sack.is_empty(),
                sack: if value != 0 { sack.into_iter().take(3).collect() } else { sack },
                hop_limit,
                traffic_class,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_packets_are_joined_without_a_false_count(
        packets in vec((sent(), any::<(bool, bool)>(), 0_i64..20_000_000_000, -30_000_000_i64..90_000_000), 1..80),
    ) {
        let mut captures = Captures::default();
        for (sent, (is_at_a, is_at_b), time_ns, transit_ns) in &packets {
            // at least at one tap
            if *is_at_a || !*is_at_b {
                captures.pass(0, *time_ns, sent);
            }
            if *is_at_b {
                captures.pass(1, *time_ns + transit_ns, sent);
            }
        }
        if captures.packets.iter().any(Vec::is_empty) {
            return Ok(());
        }
        let joined = captures.join();
        let paths = &joined.paths;
        for row in 0..paths.pair.len() {
            prop_assert!(paths.packets_a[row] + paths.packets_b[row] <= 2 * packets.len() as u64);
            prop_assert!(paths.reordered[row] <= paths.matched[row]);
        }
        let losses = &joined.path_losses;
        for row in 0..losses.pair.len() {
            let frames = captures.packets[usize::from(!losses.is_seen_at_a[row])].len() as u64;
            prop_assert!((1..=frames).contains(&losses.frame[row]));
            prop_assert!(losses.first_offset_bytes[row] <= losses.last_offset_bytes[row]);
        }
    }
}
