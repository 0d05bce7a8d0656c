//! Random packets.

use proptest::prelude::*;

use super::*;
use crate::senders::Rows;
use crate::senders::sender::Sender;
use crate::senders::sender_state::Delays;
use crate::tables::NULL_NS;

#[test]
fn unrequested_tables_stay_empty() {
    let mut rows = Rows::default();
    let mut sender = Sender::new(0, true);
    sender.finish(Delays::default(), &mut rows);
    assert!(rows.window.time_ns.is_empty());
}

fn any_observation() -> impl Strategy<Value = Observation> {
    let place = prop_oneof![0..40_000_i64, -2_000_000_000..2_000_000_000_i64];
    let time = prop_oneof![9 => 0..400 * MS, 1 => any::<i64>()];
    let class = prop_oneof![
        Just(SegmentClass::New),
        Just(SegmentClass::Retransmission),
        Just(SegmentClass::Reordered),
        Just(SegmentClass::Probe),
    ];
    let sacks = prop::array::uniform4((0..40_i64, 1..6_i64));
    let what = (place.clone(), prop_oneof![Just(0_u32), 1..3000_u32], class, prop::option::of(place), any::<bool>());
    let rest = (prop::option::of((0..50_u32, 0..50_u32)), sacks, 0..=4_u8, any::<u16>(), prop::option::of(0..=14_u8));
    (time, 0..2_usize, what, rest, any::<u8>()).prop_map(
        |(time_ns, direction, (offset, length, class, acknowledged, is_within_pdu), rest, flags)| {
            let (timestamps, sacks, sack_count, window, window_scale) = rest;
            Observation {
                flags: TcpFlags(flags),
                class: if length > 0 { class } else { SegmentClass::Empty },
                offset,
                length,
                left_of_pdu: is_within_pdu.then_some(0),
                acknowledged,
                window,
                window_scale,
                timestamps,
                sacks: sacks.map(|(left, length)| (left * SEGMENT, (left + length) * SEGMENT)),
                sack_count,
                ..Observation::bare(time_ns, direction)
            }
        },
    )
}

proptest! {
    #[test]
    fn rows_are_consistent_for_any_packets(packets in prop::collection::vec(any_observation(), 1..120)) {
        let mut senders = SenderPair::new(0, Wanted::ALL);
        for (place, seen) in packets.iter().enumerate() {
            senders.observe(&Observation { frame: place as u64 + 1, ..*seen });
        }
        let mut tables = Tables::default();
        Box::new(senders).finish(true, &mut tables);
        let window = &tables.window;
        for row in 0..window.time_ns.len() {
            prop_assert!(window.pipe_bytes[row] >= 0 && window.pipe_bytes[row] <= window.owin_bytes[row]);
            prop_assert_eq!(window.is_valid[row], window.cwnd_estimate_bytes[row] != NULL_NS);
            if row > 0 && window.to_target[row] == window.to_target[row - 1] {
                prop_assert!(window.time_ns[row] >= window.time_ns[row - 1]);
            }
        }
        let flights = &tables.flights;
        for row in 0..flights.time_first_ns.len() {
            prop_assert!(flights.time_first_ns[row] <= flights.time_last_ns[row]);
        }
        let senders = &tables.senders;
        for row in 0..2 {
            prop_assert!(senders.delayed_ack_max_ns[row] >= 0 || senders.delayed_ack_max_ns[row] == NULL_NS);
            let causes = [&senders.fast_retransmit_count, &senders.tail_probe_count, &senders.unknown_retransmit_count];
            let found: u32 = causes.iter().map(|counts| counts[row]).sum();
            let ours = tables.retransmissions.to_target.iter().zip(&tables.retransmissions.cause);
            let listed = ours.filter(|&(&way, &cause)| way == senders.to_target[row] && cause != 1).count();
            prop_assert_eq!(found as usize, listed);
            prop_assert!(senders.zero_window_ns[row] >= 0 && senders.window_full_ns[row] >= 0);
        }
    }
}
