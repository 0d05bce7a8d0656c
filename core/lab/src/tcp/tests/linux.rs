//! Throughput under loss, against a Linux kernel over an emulated link of the same rate, delay, queue and losses.

use super::pipe::{Fate, MS, Pipe};
use crate::tcp::{CongestionControl, Settings};

/// Bulk data over 100 Mbit/s, 8 ms each way, a queue of 250 packets; every data segment is lost with this probability.
/// Returns Mbit/s as the mean over seeds 1 to 5, and the number of simulated segments.
fn throughput(control: CongestionControl, loss: f64, seconds: i64) -> (f64, u64) {
    let (mut sum, mut segments) = (0.0, 0);
    for seed in 1..=5 {
        let settings = Settings { congestion_control: control, ..Settings::default() };
        let mut pipe = Pipe::alike(&settings, 8 * MS);
        pipe.records = None;
        pipe.connect();
        (pipe.byte_ns, pipe.queue_ns) = (80, 250 * 1500 * 80);
        let mut random = fastrand::Rng::with_seed(seed);
        pipe.judge = Box::new(move |from, _| if from == 0 && random.f64() < loss { Fate::Lost } else { Fate::Arrives });
        sum += pipe.bulk(seconds * 1000 * MS) as f64 * 8.0 / seconds as f64 / 1e6;
        segments += pipe.segment_count;
    }
    (sum / 5.0, segments)
}

#[test]
fn throughput_under_loss_is_that_of_linux() {
    // Linux 6.18 between two namespaces over TUN devices, the same seeds of the same generator.
    for (control, loss, seconds, linux) in [
        (CongestionControl::Reno, 0.001, 20, 28.03),
        (CongestionControl::Cubic, 0.001, 20, 27.45),
        (CongestionControl::Reno, 0.01, 10, 7.92),
    ] {
        let start = std::time::Instant::now();
        let (ours, segments) = throughput(control, loss, seconds);
        let speed = segments as f64 / start.elapsed().as_secs_f64();
        println!("{control:?} {loss}: {ours:.2} Mbit/s, Linux {linux:.2}; {speed:.0} segments/s");
        assert!((ours / linux - 1.0).abs() < 0.15, "{control:?} with {loss} lost: {ours} Mbit/s, Linux {linux}");
    }
}
