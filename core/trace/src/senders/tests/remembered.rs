//! Which retransmissions turn out to be spurious.

use super::*;
use crate::senders::Rows;
use crate::senders::retransmission::{Cause, Remembered, row};
use crate::tables::Recovery;

fn sent(timestamp: u32, start: i64, end: i64) -> Observation {
    let seen = Conversation::without_syn().packet(0, 0, start, (end - start) as u32, Some(0));
    Observation { timestamps: Some((timestamp, 0)), ..seen }
}

/// Retransmissions of these bytes, with timestamps 100, 101, ... and rows of the tables: each is a recovery.
fn remembered(spans: &[(i64, i64)]) -> (Remembered, Rows) {
    let (mut remembered, mut rows) = (Remembered::default(), Rows::default());
    for (number, &(start, end)) in (100..).zip(spans) {
        let seen = sent(number, start, end);
        let row = rows.retransmissions.push(row(&seen, 0, true, Cause::Fast, None));
        let recovery = rows.recoveries.push(Recovery::default());
        remembered.push(&seen, true, Some(row), (number - 99, Some(recovery)), &mut rows);
    }
    (remembered, rows)
}

#[test]
fn a_dsack_marks_the_latest_retransmission_of_its_bytes() {
    let (mut remembered, mut rows) = remembered(&[(0, 1000), (1000, 2000), (0, 1000)]);
    for (left, right, is_found, is_spurious) in [
        // beside them
        (2000, 3000, false, [false; 3]),
        (-100, 0, false, [false; 3]),
        (0, 1000, true, [false, false, true]),
        (999, 1000, true, [true, false, true]),
        // a third copy
        (0, 1, true, [true, false, true]),
        (1999, 3000, true, [true; 3]),
    ] {
        assert_eq!(remembered.duplicate_arrived(left, right, &mut rows), is_found, "{left} to {right}");
        assert_eq!(rows.retransmissions.is_spurious, is_spurious, "{left} to {right}");
    }
    assert_eq!(remembered.spurious_count(), 3);
    assert_eq!(rows.recoveries.spurious_packets, [1, 1, 1]);
    assert_eq!(remembered.needless_count(), 3);
}

#[test]
fn an_echo_from_before_a_retransmission_shows_that_its_original_arrived() {
    for (una, echo, is_spurious) in [
        (1000, Some(99), [true, false]),
        (999, Some(99), [false, false]),
        (1000, Some(100), [false, false]),
        (2000, Some(100), [false, true]),
        (2000, Some(99), [true, true]),
        (2000, None, [false, false]),
        // the clock of timestamps wraps
        (2000, Some(u32::MAX), [true, true]),
    ] {
        let (mut remembered, mut rows) = remembered(&[(0, 1000), (1000, 2000)]);
        remembered.acknowledge(una, echo, &mut rows);
        assert_eq!(rows.retransmissions.is_spurious, is_spurious, "{una} {echo:?}");
        let count = is_spurious.iter().filter(|&&is| is).count();
        assert_eq!(remembered.spurious_count() as usize, count);
        // the first ACK decides
        remembered.acknowledge(una, Some(1), &mut rows);
        assert_eq!(rows.retransmissions.is_spurious, is_spurious);
    }
    // once, by DSACK and by timestamp
    let (mut remembered, mut rows) = remembered(&[(0, 1000)]);
    remembered.duplicate_arrived(0, 1000, &mut rows);
    remembered.acknowledge(1000, Some(1), &mut rows);
    assert_eq!(remembered.spurious_count(), 1);
}

#[test]
fn only_the_timestamp_of_the_first_unacknowledged_byte_is_echoed() {
    let mut remembered = Remembered::default();
    remembered.push(&sent(100, 0, 1000), false, None, (1, None), &mut Rows::default());
    remembered.acknowledge(1000, Some(1), &mut Rows::default());
    assert_eq!(remembered.spurious_count(), 0);
}

#[test]
fn a_recovery_is_needless_if_all_its_retransmissions_were_spurious() {
    let (mut remembered, mut rows) = (Remembered::default(), Rows::default());
    // two in the first recovery, one in each of two others
    for (place, number) in [1, 1, 2, 3].into_iter().enumerate() {
        let start = 1000 * place as i64;
        remembered.push(&sent(100, start, start + 1000), false, None, (number, None), &mut rows);
    }
    for (start, count) in [(0, 0), (2000, 1), (1000, 2)] {
        remembered.duplicate_arrived(start, start + 1000, &mut rows);
        assert_eq!(remembered.needless_count(), count, "{start}");
    }
    // one more in the third, which makes it a loss, and many recoveries after it
    remembered.duplicate_arrived(3000, 4000, &mut rows);
    assert_eq!(remembered.needless_count(), 3);
    remembered.push(&sent(100, 4000, 5000), false, None, (3, None), &mut rows);
    assert_eq!(remembered.needless_count(), 2);
    for number in 4..2000 {
        remembered.push(&sent(100, 9000, 9001), false, None, (number, None), &mut rows);
    }
    assert_eq!(remembered.needless_count(), 2);
}

#[test]
fn the_latest_1024_retransmissions_are_remembered() {
    let spans: Vec<_> = (0..1025).map(|place| (place * 10, place * 10 + 10)).collect();
    let (mut remembered, mut rows) = remembered(&spans);
    assert!(!remembered.duplicate_arrived(0, 10, &mut rows));
    assert!(remembered.duplicate_arrived(10, 20, &mut rows));
}

#[test]
fn removed_rows_are_not_marked() {
    let (mut remembered, mut rows) = remembered(&[(0, 1000), (1000, 2000), (2000, 3000)]);
    remembered.forget_rows(1, 2);
    rows.retransmissions.drop_first(1);
    rows.recoveries.drop_first(2);
    remembered.duplicate_arrived(0, 1000, &mut rows);
    assert_eq!(rows.retransmissions.is_spurious, [false, false]);
    remembered.duplicate_arrived(2000, 3000, &mut rows);
    assert_eq!(rows.retransmissions.is_spurious, [false, true]);
    assert_eq!(rows.recoveries.spurious_packets, [1]);
    assert_eq!(remembered.spurious_count(), 2);
}
