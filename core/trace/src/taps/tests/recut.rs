//! Random cuts of one stream at each tap, as offload makes them, with random packets missing from each capture, against
//! a join that holds every byte.

use proptest::collection::vec;
use proptest::prelude::*;

use super::capture::{Captures, MS, OFFSET_NS, SYN, Sent, losses};

/// A packet of one tap: its bytes, when it passed, whether it was captured.
type Cut = (usize, usize, i64, bool);

/// Packets of these lengths over a stream, `spacing_ns` apart.
fn cuts(lengths: &[(u32, bool)], stream: usize, mut time_ns: i64, spacing_ns: i64) -> Vec<Cut> {
    let mut packets = Vec::new();
    let mut start = 0;
    for &(length, is_captured) in lengths.iter().cycle() {
        let end = (start + length as usize).min(stream);
        packets.push((start, end, time_ns, is_captured));
        time_ns += spacing_ns;
        start = end;
        if start == stream {
            return packets;
        }
    }
    packets
}

/// By byte: the packet that carried it, if it was captured.
fn by_byte(packets: &[Cut], stream: usize) -> Vec<Option<usize>> {
    let mut carried = vec![None; stream];
    for (index, &(start, end, _, is_captured)) in packets.iter().enumerate() {
        carried[start..end].fill(is_captured.then_some(index));
    }
    carried
}

fn lengths() -> impl Strategy<Value = Vec<(u32, bool)>> {
    vec((1_u32..6_000, prop::bool::weighted(0.9)), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_has_the_packets_that_carried_it(
        sent in lengths(), received in lengths(), stream in 1_usize..60_000, initial: u32, spacing_us in 0_i64..300,
    ) {
        let spacing_ns = spacing_us * 1_000;
        let at_a = cuts(&sent, stream, 20 * MS, spacing_ns);
        let last_ns = at_a.last().unwrap().2;
        // offload at the receiver's tap may hold a packet; it never passes before it was sent
        let at_b = cuts(&received, stream, last_ns + MS, spacing_ns);
        let mut captures = Captures::default();
        let base = initial.wrapping_add(1);
        captures.pass_both(0, &Sent { acknowledgment_number: 0, ..Sent::data(initial, 0, 0).with_flags(SYN) });
        for (tap, packets) in [(0, &at_a), (1, &at_b)] {
            for &(start, end, time_ns, is_captured) in packets {
                if is_captured {
                    let number = base.wrapping_add(start as u32);
                    captures.pass(tap, time_ns, &Sent::data(number, (end - start) as u32, 0).with_timestamp(7));
                }
            }
        }
        // both captures go on, and everything was acknowledged. The sender's last packet passes both taps, too: transits vary
        // so much here that without it the bytes before may have passed a tap before its capture began
        let end_ns = last_ns + 10_000 * MS;
        captures.pass_both(end_ns, &Sent::ack(base.wrapping_add(stream as u32), 0).with_timestamp(9));
        captures.pass_both(end_ns, &Sent::data(base.wrapping_add(stream as u32), 0, 0).with_timestamp(8));
        let joined = captures.join();

        let (carried_a, carried_b) = (by_byte(&at_a, stream), by_byte(&at_b, stream));
        let mut expected = Vec::new();
        let mut alone = Vec::new();
        let mut start = 0;
        for byte in 1..=stream {
            let place = (carried_a[start], carried_b[start]);
            if byte < stream && (carried_a[byte], carried_b[byte]) == place {
                continue;
            }
            let bytes = (byte - start) as u32;
            match place {
                (Some(a), Some(b)) => expected.push((at_a[a].2, at_b[b].2 - at_a[a].2 + OFFSET_NS, bytes)),
                (Some(_), None) => alone.push((true, start as i64, byte as i64, "missing_at_b")),
                (None, Some(_)) => alone.push((true, start as i64, byte as i64, "missing_at_a")),
                (None, None) => {}
            }
            start = byte;
        }
        let transits = &joined.transits;
        let mut found: Vec<_> = (0..transits.pair.len())
            .filter(|&row| transits.payload_bytes[row] > 0)
            .map(|row| (transits.time_a_ns[row] - 1_000_000_000_000, transits.transit_ns[row], transits.payload_bytes[row]))
            .collect();
        found.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(merged(losses(&joined)), merged(alone));
    }
}

/// Ranges of one verdict side by side as one: where they are cut depends on the order of the packets.
fn merged(rows: Vec<(bool, i64, i64, &'static str)>) -> Vec<(bool, i64, i64, &'static str)> {
    let mut merged: Vec<(bool, i64, i64, &'static str)> = Vec::new();
    for row in rows {
        match merged.last_mut() {
            Some(last) if last.2 == row.1 && last.3 == row.3 => last.2 = row.2,
            _ => merged.push(row),
        }
    }
    merged
}
