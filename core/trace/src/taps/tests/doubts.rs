//! Short stories of packets that a capture lacks: whether their bytes were sent before, or arrived late.

use super::capture::{Captures, MS, Sent};
use crate::tables::taps::Joined;

/// Segments of 1000 bytes, one each millisecond, with these identifications; a null passes neither tap and has none of the
/// bytes. The last one comes 10 s later.
fn sent(identifications: &[u16], is_seen: impl Fn(u16) -> [bool; 2], payload_bytes: u32) -> Captures {
    let mut captures = Captures::default();
    let mut offset = 0;
    for (place, &identification) in (0..).zip(identifications) {
        let time_ns = if place + 1 == identifications.len() as i64 { 10_000 * MS } else { place * MS };
        let data = Sent::data(offset, payload_bytes, identification).with_timestamp(1 + place as u32);
        let [at_sender, at_receiver] = is_seen(identification);
        if at_sender {
            captures.pass_sender(time_ns, &data);
        }
        if at_receiver {
            captures.pass_receiver(time_ns, &data);
        }
        captures.pass_both(time_ns + 6 * MS, &Sent::ack(offset + payload_bytes, place as u16 + 1));
        if at_sender || at_receiver {
            offset += payload_bytes;
        }
    }
    captures
}

/// Times of the packets in doubt, in ms.
fn doubts(captures: &Captures) -> Vec<i64> {
    let joined: Joined = captures.join();
    joined.path_doubts.time_ns.iter().map(|ns| (ns - 1_000_000_000_000) / MS).collect()
}

#[test]
fn the_bytes_behind_a_packet_that_neither_tap_saw_may_have_been_in_it() {
    let unseen = |lost: [u16; 2]| move |number: u16| if lost.contains(&number) { [false, false] } else { [true, true] };
    let numbers: Vec<u16> = (1..40).collect();
    assert_eq!(doubts(&sent(&numbers, unseen([20, 20]), 1000)), [20]);
    assert_eq!(doubts(&sent(&numbers, unseen([20, 21]), 1000)), [21, 22]);
    assert_eq!(doubts(&sent(&numbers, unseen([20, 30]), 1000)), [20, 30]);
    assert_eq!(doubts(&sent(&numbers, unseen([0, 0]), 1000)), []);
}

#[test]
fn a_packet_that_the_receivers_tap_saw_came_as_itself() {
    let missed = |number: u16| [number != 20, true];
    assert_eq!(doubts(&sent(&(1..40).collect::<Vec<_>>(), missed, 1000)), []);
    // the skip shows when the next packet passes the sender's tap: 10 s later
    assert_eq!(doubts(&sent(&(1..=21).collect::<Vec<_>>(), missed, 1000)), []);
}

#[test]
fn numbers_wrap_and_count_the_segments_of_a_packet() {
    let lost = |number: u16| if number == 3 { [false, false] } else { [true, true] };
    let wrapping: Vec<u16> = (0..40_u16).map(|place| place.wrapping_sub(20)).collect();
    // the number 3 is that of the packet at 23 ms
    assert_eq!(doubts(&sent(&wrapping, lost, 1000)), [24]);
    // 2900 bytes are three segments
    let threefold: Vec<u16> = (0..40).map(|place| 1 + 3 * place).collect();
    assert_eq!(doubts(&sent(&threefold, |_| [true, true], 2900)), []);
    let without: Vec<u16> = threefold.iter().copied().filter(|&number| number != 61).collect();
    assert_eq!(doubts(&sent(&without, |_| [true, true], 2900)), [20]);
}

#[test]
fn numbers_of_another_kind_say_nothing() {
    let random: Vec<u16> = (0..40_u16).map(|place| place.wrapping_mul(40_503) | 1).collect();
    assert_eq!(doubts(&sent(&random, |_| [true, true], 1000)), []);
    // shared with as much other traffic
    let shared: Vec<u16> = (0..40_u16).map(|place| 1 + 2 * place).collect();
    assert_eq!(doubts(&sent(&shared, |_| [true, true], 1000)), []);
}

#[test]
fn a_sack_of_later_bytes_shows_that_a_packet_was_overtaken() {
    let story = |sack: &[(u32, u32)]| {
        let mut captures = Captures::default();
        for place in 0..10 {
            let data = Sent::data(1000 * place, 1000, 1 + place as u16).with_timestamp(1 + place);
            let time_ns = i64::from(place) * MS;
            if place == 5 { captures.pass_sender(time_ns, &data) } else { captures.pass_both(time_ns, &data) }
        }
        // what the receiver's capture lacks comes between the sixth packet and this
        let first = if sack.is_empty() { 7000 } else { 5000 };
        captures.pass_both(13 * MS, &Sent::ack(first, 1).with_sack(sack));
        captures.pass_both(20 * MS, &Sent::ack(10_000, 2));
        captures.pass_both(5_000 * MS, &Sent::data(10_000, 1000, 11).with_timestamp(5_000));
        captures.pass_both(5_006 * MS, &Sent::ack(11_000, 3));
        captures.join().path_losses
    };
    let (late, in_order) = (story(&[(6000, 7000)]), story(&[]));
    assert_eq!((late.first_offset_bytes, late.is_overtaken), (vec![5000], vec![true]));
    assert_eq!((in_order.first_offset_bytes, in_order.is_overtaken), (vec![5000], vec![false]));
}
