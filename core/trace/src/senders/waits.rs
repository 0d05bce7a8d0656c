//! What senders waited for, by what is known at the end of a connection: which recoveries lost something, and when a send
//! buffer was full.

use super::retransmission::Cause;
use super::send_buffer::Span;
use super::sender_state::SenderNs;
use super::timeline::{Limited, join};
use crate::stream::progress::OUTAGE_MIN_NS;
use crate::tables::{Columns, NULL_NS, NULL_U8, Recoveries, budget_part};

/// Retransmissions of a stall: a single one may be of what was lost alone.
const STALLED_MIN: u32 = 2;
/// The first timeout of hosts is no longer, unless the path is (RFC 6298); and so often it is doubled.
const LONGEST_TIMEOUT_NS: i64 = 1_000_000_000;
const WAITS_MAX: u32 = 8;

/// The recoveries that ended and lost data or ACKs; and when the others were, whose retransmissions were all unnecessary:
/// ordered and disjoint. Of one direction, when its sender knows of them.
pub fn recoveries(rows: &Recoveries, is_from_client: bool, to_sender_ns: i64) -> (Vec<Limited>, Vec<(i64, i64)>) {
    let (mut lost, mut needless) = (Vec::new(), Vec::new());
    let is_ended = |&row: &usize| rows.to_target[row] == is_from_client && rows.time_last_ns[row] != NULL_NS;
    for row in (0..rows.row_count()).filter(is_ended) {
        let [from_ns, to_ns] = [rows.time_first_ns[row], rows.time_last_ns[row]]
            .map(|ack_ns| SenderNs::of_ack(ack_ns, to_sender_ns).packet_ns());
        if rows.retransmitted_packets[row] > rows.spurious_packets[row] || rows.ack_loss[row] != NULL_U8 {
            lost.push(Limited {
                from_ns,
                to_ns,
                part: budget_part::LOSS_RECOVERY,
                frame: rows.frame_first[row],
                needs_queue: false,
            });
        } else {
            needless.push((from_ns, to_ns));
        }
    }
    join(&mut needless);
    (lost, needless)
}

/// When a timer sent the same data again and again, without an answer: each wait is twice as long as the one before. What
/// takes longer than that had its answer, which is missing from the capture, and nothing else to send.
pub fn stalls(rows: &Recoveries) -> Vec<(i64, i64)> {
    let by_timer = [Cause::Timeout as u8, Cause::TailProbe as u8];
    (0..rows.row_count())
        .filter(|&row| by_timer.contains(&rows.cause[row]) && rows.retransmitted_packets[row] >= STALLED_MIN)
        .map(|row| (row, rows.time_first_ns[row], rows.time_last_ns[row]))
        .filter(|&(row, from_ns, to_ns)| {
            let waits = rows.retransmitted_packets[row].min(WAITS_MAX);
            (OUTAGE_MIN_NS..=LONGEST_TIMEOUT_NS << waits).contains(&to_ns.saturating_sub(from_ns))
        })
        .map(|(_, from_ns, to_ns)| (from_ns, to_ns))
        .collect()
}

/// Adds a wait, in pieces: for the send buffer where that was full and the congestion window seemed to be; none where it
/// needs a full send buffer and there was none; for the congestion window where it seemed to be for a loss, and nothing was lost.
pub fn push(wait: Limited, full: &[Span], needless: &[(i64, i64)], waits: &mut Vec<Limited>) {
    if wait.part == budget_part::LOSS_RECOVERY {
        let next = needless.partition_point(|&(_, to_ns)| to_ns < wait.from_ns);
        let is_needless = needless.get(next).is_some_and(|&(from_ns, _)| from_ns <= wait.to_ns);
        let part = if is_needless { budget_part::CONGESTION_WINDOW } else { wait.part };
        waits.push(Limited { part, ..wait });
        return;
    }
    let mut from_ns = wait.from_ns;
    let needs_buffer = wait.part == budget_part::SEND_BUFFER;
    if needs_buffer || wait.part == budget_part::CONGESTION_WINDOW {
        for span in full {
            let until_ns = span.until.map_or(i64::MAX, |until| until.time_ns).min(wait.to_ns);
            let since_ns = span.from.time_ns.max(from_ns);
            if since_ns < until_ns {
                if from_ns < since_ns && !needs_buffer {
                    waits.push(Limited { from_ns, to_ns: since_ns, ..wait });
                }
                waits.push(Limited { from_ns: since_ns, to_ns: until_ns, part: budget_part::SEND_BUFFER, ..wait });
                from_ns = until_ns;
            }
        }
    }
    if !needs_buffer && (from_ns < wait.to_ns || from_ns == wait.from_ns) {
        waits.push(Limited { from_ns, ..wait });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::senders::send_buffer::Place;
    use crate::tables::Recovery;

    #[test]
    fn a_stall_lasts_as_long_as_timeouts_that_double() {
        let row = |cause: Cause, retransmitted_packets: u32, took_ns: Option<i64>| Recovery {
            cause: cause as u8,
            time_first_ns: 5,
            time_last_ns: took_ns.map_or(NULL_NS, |took_ns| 5 + took_ns),
            retransmitted_packets,
            ..Recovery::default()
        };
        let second = OUTAGE_MIN_NS;
        for (found, cause, count, took_ns) in [
            (true, Cause::Timeout, 2, Some(second)),
            (false, Cause::Timeout, 2, Some(second - 1)),
            (true, Cause::TailProbe, 2, Some(4 * second)),
            // its answer is not in the capture, and the program was idle
            (false, Cause::Timeout, 2, Some(4 * second + 1)),
            (false, Cause::Timeout, 1, Some(second)),
            (false, Cause::Fast, 4, Some(second)),
            (false, Cause::Timeout, 4, None),
            (true, Cause::Timeout, u32::MAX, Some(256 * second)),
            (false, Cause::Timeout, u32::MAX, Some(256 * second + 1)),
        ] {
            let expected: Vec<(i64, i64)> =
                took_ns.filter(|_| found).map(|took_ns| (5, 5 + took_ns)).into_iter().collect();
            assert_eq!(stalls(&Recoveries::of([row(cause, count, took_ns)])), expected, "{count} {took_ns:?}");
        }
    }

    #[test]
    fn a_recovery_is_when_its_sender_knows_of_it() {
        let row = |time_last_ns: i64, spurious_packets: u32| Recovery {
            to_target: true,
            time_first_ns: 400,
            time_last_ns,
            retransmitted_packets: 1,
            spurious_packets,
            ack_loss: NULL_U8,
            ..Recovery::default()
        };
        let of = |row: Recovery, to_sender_ns: i64| {
            let (lost, needless) = recoveries(&Recoveries::of([row]), true, to_sender_ns);
            (lost.iter().map(|wait| (wait.from_ns, wait.to_ns)).collect::<Vec<_>>(), needless)
        };
        // beside the sender, and where its packets pass an RTT after the ACKs
        assert_eq!(of(row(700, 0), 0), (vec![(400, 700)], vec![]));
        assert_eq!(of(row(700, 0), 300), (vec![(700, 1000)], vec![]));
        assert_eq!(of(row(700, 1), 300), (vec![], vec![(700, 1000)]));
        assert_eq!(of(row(NULL_NS, 0), 300), (vec![], vec![]));
    }

    fn pushed(wait: Limited, full: &[Span], needless: &[(i64, i64)]) -> Vec<Limited> {
        let mut waits = Vec::new();
        push(wait, full, needless, &mut waits);
        waits
    }

    #[test]
    fn a_wait_for_the_congestion_window_is_cut_where_the_send_buffer_was_full() {
        let part = budget_part::CONGESTION_WINDOW;
        let wait = Limited { from_ns: 10, to_ns: 50, part, frame: 1, needs_queue: false };
        let at = |time_ns| Place { time_ns, row: 0 };
        let full = [
            Span { from: at(0), until: Some(at(15)) },
            Span { from: at(20), until: Some(at(30)) },
            Span { from: at(45), until: None },
        ];
        let pieces: Vec<_> =
            pushed(wait, &full, &[]).into_iter().map(|piece| (piece.from_ns, piece.to_ns, piece.part)).collect();
        let buffer = budget_part::SEND_BUFFER;
        assert_eq!(pieces, [(10, 15, buffer), (15, 20, part), (20, 30, buffer), (30, 45, part), (45, 50, buffer)]);
        assert_eq!(pushed(wait, &[], &[]), [wait]);
        let other = Limited { part: budget_part::RECEIVE_WINDOW, ..wait };
        assert_eq!(pushed(other, &full, &[]), [other]);
        let possible = Limited { part: buffer, ..wait };
        let pieces: Vec<_> = pushed(possible, &full, &[]).iter().map(|piece| (piece.from_ns, piece.to_ns)).collect();
        assert_eq!(pieces, [(10, 15), (20, 30), (45, 50)]);
        assert_eq!(pushed(possible, &[], &[]), []);
        let none = Limited { to_ns: 10, ..wait };
        assert_eq!(pushed(none, &full, &[]), [none], "a wait of no time");
    }

    #[test]
    fn a_wait_for_a_loss_is_for_the_congestion_window_where_nothing_was_lost() {
        let needless = [(10, 20), (40, 50)];
        let part = |from_ns, to_ns| {
            let wait = Limited { from_ns, to_ns, part: budget_part::LOSS_RECOVERY, frame: 1, needs_queue: false };
            pushed(wait, &[], &needless)[0].part
        };
        let cwnd = budget_part::CONGESTION_WINDOW;
        assert_eq!([part(0, 10), part(20, 30), part(12, 13), part(0, 90), part(45, 60)], [cwnd; 5]);
        assert_eq!([part(0, 9), part(21, 39), part(51, 60)], [budget_part::LOSS_RECOVERY; 3]);
    }
}
