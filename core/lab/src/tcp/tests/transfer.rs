//! Whatever the pipe does, the bytes arrive once and in order; and the same seed gives the same segments.

use proptest::prelude::*;

use super::pipe::{Fate, Judge, MS, Pipe};
use crate::tcp::{CongestionControl, Endpoint, Settings, State};

fn settings() -> impl Strategy<Value = Settings> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (flags, 500u16..2000, 4000u32..100_000, 4000u32..100_000).prop_map(
        |((is_reno, sack, timestamps, window_scaling, nagle, delayed_ack), mss, send, receive)| Settings {
            congestion_control: if is_reno { CongestionControl::Reno } else { CongestionControl::Cubic },
            sack,
            timestamps,
            window_scaling,
            nagle,
            delayed_ack,
            mss,
            send_buffer_bytes: send,
            receive_buffer_bytes: receive,
            ..Settings::default()
        },
    )
}

/// Loses, delays and duplicates segments in both directions.
fn unkind(seed: u64, loss: f64, late: f64, twice: f64) -> Judge {
    let mut random = fastrand::Rng::with_seed(seed);
    Box::new(move |_, _| match random.f64() {
        draw if draw < loss => Fate::Lost,
        draw if draw < loss + late => Fate::Late(random.i64(1..20) * MS),
        draw if draw < loss + late + twice => Fate::Twice,
        _ => Fate::Arrives,
    })
}

/// Sends in both directions in calls of odd sizes, closes, and returns the bytes read at both ends.
fn exchange(pipe: &mut Pipe, sent: [&[u8]; 2], call: usize) -> [Vec<u8>; 2] {
    pipe.ends[0].connect(0);
    let (mut written, mut read) = ([0, 0], [Vec::new(), Vec::new()]);
    let mut is_closed = [false, false];
    for _ in 0..2_000_000 {
        for end in 0..2 {
            while written[end] < sent[end].len() {
                let upto = (written[end] + call).min(sent[end].len());
                match pipe.write(end, &sent[end][written[end]..upto]) {
                    0 => break,
                    count => written[end] += count,
                }
            }
            if written[end] == sent[end].len() && pipe.ends[end].is_synchronized() && !is_closed[end] {
                is_closed[end] = true;
                pipe.ends[end].close(pipe.now_ns);
            }
            let more = pipe.read(end);
            read[end].extend_from_slice(&more);
        }
        if !pipe.step(i64::MAX) {
            break;
        }
    }
    read
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn bytes_arrive_once_and_in_order(
        first in settings(), second in settings(), seed: u64,
        loss in 0.0..0.15f64, late in 0.0..0.3f64, twice in 0.0..0.1f64,
        counts in (0usize..60_000, 0usize..60_000), call in 1usize..20_000,
    ) {
        let stream = |count: usize, salt: usize| (0..count).map(|at| (at * 31 + at / 251 + salt) as u8).collect::<Vec<_>>();
        let sent = [stream(counts.0, 1), stream(counts.1, 2)];
        let mut pipe = Pipe::new([first, second], 5 * MS);
        pipe.records = None;
        pipe.judge = unkind(seed, loss, late, twice);
        let read = exchange(&mut pipe, [&sent[0], &sent[1]], call);
        if pipe.ends.iter().all(|end| end.error().is_none()) {
            prop_assert!(read[1] == sent[0] && read[0] == sent[1]);
            prop_assert!(pipe.ends.iter().all(|end| end.state() == State::Closed), "closed in the end");
        } else {
            // At worst a SYN or a FIN was lost seven times or more; the received bytes are correct nevertheless.
            prop_assert!(sent[0].starts_with(&read[1]) && sent[1].starts_with(&read[0]));
            prop_assert!(loss > 0.05, "{:?}", pipe.ends.iter().map(Endpoint::error).collect::<Vec<_>>());
        }
    }

    #[test]
    fn any_segment_is_survived(
        mangled in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u8>(), any::<u16>(), 0usize..3000, any::<[(u32, u32); 4]>(), 0u8..=9, any::<bool>()), 1..60),
    ) {
        let mut pipe = Pipe::connected(&Settings::default(), MS);
        pipe.write(0, &[1; 100_000]);
        pipe.run_until(pipe.now_ns + 3 * MS);
        let template = pipe.records.as_ref().unwrap().iter().rev().find(|record| record.from == 1).unwrap().segment.clone();
        for (sequence, acknowledgment, flags, window, length, sack, sack_count, is_near) in mangled {
            let mut segment = template.clone();
            let near = |field: u32, value: u32| if is_near { field.wrapping_add(value % 300_000).wrapping_sub(150_000) } else { value };
            segment.sequence_number = near(segment.sequence_number, sequence);
            segment.acknowledgment_number = near(segment.acknowledgment_number, acknowledgment);
            segment.flags.0 = flags & !4;
            segment.window = window;
            segment.payload = vec![7; length].into();
            segment.options.sack = sack.map(|(left, right)| {
                (near(template.acknowledgment_number, left), near(template.acknowledgment_number, right))
            });
            segment.options.sack_count = sack_count;
            pipe.ends[0].receive(pipe.now_ns, segment);
            pipe.run_until(pipe.now_ns + MS);
            let info = pipe.ends[0].tcp_info();
            prop_assert!(info.sacked + info.lost <= info.unacked + info.retransmitted);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_frames() {
    let run = || {
        let mut pipe = Pipe::alike(&Settings::default(), 5 * MS);
        pipe.judge = unkind(7, 0.02, 0.05, 0.01);
        exchange(&mut pipe, [&[1; 300_000], &[2; 300_000]], 70_000);
        let mut frames = Vec::new();
        for record in pipe.records.unwrap() {
            frames.extend_from_slice(&record.time_ns.to_be_bytes());
            record.segment.emit_frame(([2; 6], [4; 6]), &mut frames).unwrap();
        }
        frames
    };
    let first = run();
    assert!(first.len() > 600_000);
    assert!(first == run());
}

#[test]
fn tcp_info_counts_the_bytes_of_both_directions() {
    let mut pipe = Pipe::connected(&Settings::default(), 5 * MS);
    assert_eq!(
        pipe.ends.each_ref().map(|end| (end.tcp_info().bytes_acked, end.tcp_info().bytes_received)),
        [(0, 0); 2]
    );
    pipe.write(0, &[1; 5_000]);
    pipe.write(1, &[2; 700]);
    pipe.run_until(pipe.now_ns + 100 * MS);
    let counts = pipe.ends.each_ref().map(|end| (end.tcp_info().bytes_acked, end.tcp_info().bytes_received));
    assert_eq!(counts, [(5_000, 700), (700, 5_000)]);
    // the FIN has a sequence number, and is no byte
    pipe.ends[0].close(pipe.now_ns);
    pipe.run_until(pipe.now_ns + 100 * MS);
    assert_eq!(pipe.ends[0].tcp_info().bytes_acked, 5_000);
}
