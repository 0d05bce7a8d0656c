//! The scoreboard against a naive model: one record per segment, recounted each time.

use crate::tcp::sender::scoreboard::Scoreboard;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Operation {
    Send(u8),
    Acknowledge(u8),
    Sack(u8, u8),
    Lose(u8),
    Retransmit,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (1u8..6).prop_map(Operation::Send),
        (0u8..8).prop_map(Operation::Acknowledge),
        (any::<u8>(), 1u8..10).prop_map(|(start, count)| Operation::Sack(start, count)),
        any::<u8>().prop_map(Operation::Lose),
        Just(Operation::Retransmit),
    ]
}

proptest! {
    /// Against one record a segment, counted anew each time.
    #[test]
    fn counts_are_those_of_a_naive_model(operations in prop::collection::vec(operation(), 1..80)) {
        const MSS: i64 = 100;
        let mut board = Scoreboard::default();
        // Index of a segment -> sacked, lost, retransmitted.
        let mut naive: Vec<(bool, bool, bool)> = Vec::new();
        let (mut una, mut now) = (0usize, 0);
        for operation in operations {
            now += 1;
            let out = naive.len() - una;
            match operation {
                Operation::Send(count) => for _ in 0..count {
                    board.push(naive.len() as i64 * MSS, (naive.len() as i64 + 1) * MSS, now);
                    naive.push((false, false, false));
                },
                Operation::Acknowledge(count) => {
                    una += usize::from(count).min(out);
                    while board.acknowledge(una as i64 * MSS + MSS / 2).is_some() {}
                }
                Operation::Sack(start, count) if out > 0 => {
                    let start = una + usize::from(start) % out;
                    let end = (start + usize::from(count)).min(naive.len());
                    // Half a segment more at both ends does not count.
                    board.sack(start as i64 * MSS - MSS / 2, end as i64 * MSS + MSS / 2, |_, _| {});
                    for sent in &mut naive[start..end] {
                        if !sent.0 { *sent = (true, false, sent.2 && !sent.1); }
                    }
                }
                Operation::Lose(which) if out > 0 => {
                    let which = una + usize::from(which) % out;
                    board.mark_lost(which as i64 * MSS);
                    if !naive[which].0 { naive[which] = (false, true, false); }
                }
                Operation::Retransmit => {
                    let expected = (una..naive.len()).find(|&at| naive[at] == (false, true, false));
                    let found = board.next_to_retransmit().map(|sent| (sent.start / MSS) as usize);
                    prop_assert_eq!(found, expected);
                    if let Some(at) = found {
                        board.retransmitted(at as i64 * MSS, now, false);
                        naive[at].2 = true;
                    }
                }
                _ => {}
            }
            let out = &naive[una..];
            let count = |test: fn(&(bool, bool, bool)) -> bool| out.iter().filter(|sent| test(sent)).count() as u32;
            let (sacked, lost, retransmitted) = (count(|s| s.0), count(|s| s.1), count(|s| s.2));
            prop_assert_eq!(board.packets_out(), out.len() as u32);
            prop_assert_eq!((board.sacked_count, board.lost_count, board.retransmitted_count), (sacked, lost, retransmitted));
            prop_assert_eq!(board.pipe(), out.len() as u32 + retransmitted - sacked - lost);
            if let Some(highest) = naive[una..].iter().rposition(|sent| sent.0) {
                prop_assert_eq!(board.highest_sacked(0), (una + highest + 1) as i64 * MSS);
            }
        }
    }
}
