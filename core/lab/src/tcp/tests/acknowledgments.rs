//! When ACKs are sent, and the interaction with Nagle's algorithm.

use super::pipe::{MS, Pipe};
use crate::tcp::Settings;

/// A pipe after enough data that quick ACKs have ended.
fn settled(settings: &Settings, delay_ns: i64) -> Pipe {
    let mut pipe = Pipe::connected(settings, delay_ns);
    for _ in 0..20 {
        pipe.write(0, &[1; 2 * 1448]);
        pipe.run_until(pipe.now_ns + 10 * MS);
        pipe.read(1);
    }
    pipe.run_until(pipe.now_ns + 100 * MS);
    pipe.records.as_mut().unwrap().clear();
    pipe
}

#[test]
fn each_of_the_first_segments_is_acknowledged() {
    let mut pipe = Pipe::connected(&Settings::default(), 5 * MS);
    pipe.write(0, &[1; 10 * 1448]);
    pipe.run_until(pipe.now_ns + 6 * MS);
    assert_eq!(pipe.pure_acks(1).len(), 10);
}

#[test]
fn every_second_full_segment_is_acknowledged() {
    let mut pipe = settled(&Settings::default(), 5 * MS);
    pipe.write(0, &[1; 10 * 1448]);
    let sent_ns = pipe.now_ns;
    pipe.run_until(pipe.now_ns + 6 * MS);
    assert_eq!(pipe.pure_acks(1), [sent_ns + 5 * MS; 5]);
}

#[test]
fn a_single_segment_is_acknowledged_after_forty_milliseconds() {
    let mut pipe = settled(&Settings::default(), 5 * MS);
    let sent_ns = pipe.now_ns;
    pipe.write(0, &[1; 1448]);
    pipe.run_until(pipe.now_ns + 200 * MS);
    assert_eq!(pipe.pure_acks(1), [sent_ns + 45 * MS]);
}

#[test]
fn without_delayed_ack_each_segment_is_acknowledged() {
    let mut pipe = settled(&Settings { delayed_ack: false, ..Settings::default() }, 5 * MS);
    let sent_ns = pipe.now_ns;
    pipe.write(0, &[1; 3 * 1448]);
    pipe.run_until(pipe.now_ns + 100 * MS);
    assert_eq!(pipe.pure_acks(1), [sent_ns + 5 * MS; 3]);
}

#[test]
fn an_answer_carries_the_ack() {
    let mut pipe = settled(&Settings::default(), 5 * MS);
    for _ in 0..5 {
        pipe.write(0, &[1; 48]);
        pipe.run_until(pipe.now_ns + 5 * MS);
        assert_eq!(pipe.ends[1].readable().len(), 48);
        pipe.ends[1].write(pipe.now_ns, &[2; 48]);
        pipe.read(1);
        pipe.run_until(pipe.now_ns + 5 * MS);
        pipe.read(0);
        pipe.run_until(pipe.now_ns + MS);
    }
    assert!(pipe.pure_acks(1).is_empty());
}

/// The read study's fourth delay: a status of 48 bytes follows data whose last segment is small. Returns when the
/// status and the last data were sent, in milliseconds after the write.
fn status_after_data(nagle: bool, delayed_ack: bool) -> (i64, i64) {
    let settings = Settings { nagle, delayed_ack, ..Settings::default() };
    let mut pipe = settled(&settings, 5 * MS);
    // The reader answers: pingpong, so ACKs wait for data.
    for _ in 0..3 {
        pipe.write(1, &[3; 48]);
        pipe.run_until(pipe.now_ns + 5 * MS);
        pipe.write(0, &[1; 48]);
        pipe.read(0);
        pipe.run_until(pipe.now_ns + 5 * MS);
        pipe.write(1, &[2; 48]);
        pipe.read(1);
        pipe.run_until(pipe.now_ns + 5 * MS);
        pipe.read(0);
        pipe.write(0, &[1; 48]);
        pipe.run_until(pipe.now_ns + 300 * MS);
        pipe.read(1);
    }
    pipe.records.as_mut().unwrap().clear();
    let start_ns = pipe.now_ns;
    // The request, and 5 ms later 2 full segments and 300 bytes more; then the status in a separate call.
    pipe.write(0, &[1; 48]);
    pipe.run_until(start_ns + 5 * MS);
    pipe.ends[1].write(pipe.now_ns, &[2; 2 * 1448 + 300]);
    pipe.read(1);
    pipe.write(1, &[4; 48]);
    while pipe.step(start_ns + 300 * MS) {
        pipe.read(0);
    }
    let sent: Vec<(i64, usize)> = pipe
        .records
        .as_ref()
        .unwrap()
        .iter()
        .filter(|record| record.from == 1 && !record.segment.payload.is_empty())
        .map(|record| ((record.time_ns - start_ns) / MS, record.segment.payload.len()))
        .collect();
    assert_eq!(sent.iter().map(|&(_, length)| length).collect::<Vec<_>>(), [1448, 1448, 300, 48]);
    (sent[3].0, sent[2].0)
}

#[test]
fn nagle_holds_a_status_until_the_data_before_it_is_acknowledged() {
    // Without Nagle it is sent with the data.
    assert_eq!(status_after_data(false, true), (5, 5));
    // With Nagle it waits one RTT for the ACK of the small segment before it, even when that ACK is sent at once ...
    assert_eq!(status_after_data(true, false), (15, 5));
    // ... plus the ACK timeout when it is delayed.
    let (status_ms, data_ms) = status_after_data(true, true);
    assert_eq!(data_ms, 5);
    assert_eq!(status_ms, 15 + 40);
}

#[test]
fn small_writes_behind_full_segments_do_not_wait() {
    // Minshall: only a small segment delays small ones.
    let mut pipe = settled(&Settings::default(), 5 * MS);
    let sent_ns = pipe.now_ns;
    pipe.write(0, &[1; 2 * 1448]);
    pipe.write(0, &[1; 100]);
    pipe.write(0, &[1; 100]);
    pipe.run_until(pipe.now_ns + 4 * MS);
    let sent: Vec<_> =
        pipe.records.as_ref().unwrap().iter().map(|record| (record.time_ns, record.segment.payload.len())).collect();
    assert_eq!(sent, [(sent_ns, 1448), (sent_ns, 1448), (sent_ns, 100)]);
}
