//! The receive window: closed, probed, opened (RFC 9293, section 3.8.6).

use super::pipe::{Fate, MS, Pipe};
use crate::tcp::Settings;

fn small() -> [Settings; 2] {
    [Settings::default(), Settings { receive_buffer_bytes: 20_000, ..Settings::default() }]
}

#[test]
fn a_slow_reader_closes_the_window_and_opens_it_by_reading() {
    let mut pipe = Pipe::new(small(), 5 * MS);
    pipe.connect();
    pipe.write(0, &[1; 100_000]);
    pipe.run_until(pipe.now_ns + 5_000 * MS);
    let sent: usize = pipe.data(0).iter().map(|&(_, _, length)| length).sum();
    assert!((18_000..=20_480).contains(&sent), "{sent} bytes into a buffer of 20000");
    let before = pipe.pure_acks(1).len();
    let mut read = pipe.read(1).len();
    assert!(pipe.pure_acks(1).len() > before, "the window is opened by an ACK");
    for _ in 0..100 {
        pipe.run_until(pipe.now_ns + 20 * MS);
        read += pipe.read(1).len();
    }
    assert_eq!(read, 100_000);
}

#[test]
fn a_closed_window_is_probed_at_doubling_intervals() {
    let mut pipe = Pipe::new(small(), 5 * MS);
    pipe.connect();
    pipe.write(0, &[1; 100_000]);
    pipe.run_until(pipe.now_ns + 100 * MS);
    assert_eq!(pipe.ends[0].tcp_info().unacked, 0);
    pipe.run_until(pipe.now_ns + 10_000 * MS);
    let records = pipe.records.as_ref().unwrap();
    let probes: Vec<i64> = records
        .iter()
        .filter(|record| record.from == 0 && record.segment.payload.is_empty() && record.time_ns > 50 * MS)
        .map(|record| record.time_ns / MS)
        .collect();
    // An answer restarts the wait: 10 ms of round trip more each.
    let gaps: Vec<i64> = probes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() >= 4);
    for pair in gaps.windows(2) {
        assert_eq!(pair[1] - 10, 2 * (pair[0] - 10), "{gaps:?}");
    }
}

#[test]
fn a_lost_window_update_is_recovered_by_a_probe() {
    let mut pipe = Pipe::new(small(), 5 * MS);
    pipe.connect();
    pipe.write(0, &[1; 100_000]);
    pipe.run_until(pipe.now_ns + 300 * MS);
    pipe.judge = Box::new(|from, _| if from == 1 { Fate::Lost } else { Fate::Arrives });
    let mut read = pipe.read(1).len();
    pipe.judge = Box::new(|_, _| Fate::Arrives);
    for _ in 0..200 {
        pipe.run_until(pipe.now_ns + 20 * MS);
        read += pipe.read(1).len();
    }
    assert_eq!(read, 100_000);
}

#[test]
fn a_large_window_is_filled() {
    // 1 MiB over 100 ms, and no more.
    let settings = Settings { receive_buffer_bytes: 1 << 20, hystart: false, ..Settings::default() };
    let mut pipe = Pipe::connected(&settings, 50 * MS);
    pipe.bulk(2_000 * MS);
    let info = pipe.ends[0].tcp_info();
    assert_eq!(info.unacked, (1 << 20) / 1448);
    assert!(info.total_retransmissions == 0 && info.cwnd >= info.unacked);
}

#[test]
fn the_send_buffer_accepts_bytes_up_to_its_size() {
    let settings = Settings { send_buffer_bytes: 50_000, ..Settings::default() };
    let mut pipe = Pipe::connected(&settings, 50 * MS);
    assert_eq!(pipe.write(0, &[1; 80_000]), 50_000);
    assert_eq!((pipe.write(0, &[1; 1]), pipe.ends[0].is_writable()), (0, false));
    pipe.run_until(pipe.now_ns + 110 * MS);
    // Ten segments are acknowledged: less than a third.
    assert_eq!((pipe.ends[0].write_room(), pipe.ends[0].is_writable()), (10 * 1448, false));
    pipe.run_until(pipe.now_ns + 100 * MS);
    assert!(pipe.ends[0].is_writable());
}
