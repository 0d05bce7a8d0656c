//! A line with a bit rate and a queue: packets are sent one after another. Fractions of a nanosecond are carried over,
//! so the times of a million packets add up exactly. Only the queue drops packets.

use super::impairment::Impairment;
use super::log::{Fate, LineLog};
use super::queue::DropTail;

/// A line and its queue.
#[derive(Debug)]
pub struct Rate {
    rate_bps: u64,
    overhead_bytes: u64,
    queue: DropTail,
    /// The line becomes idle at `free_ns` and `free_fraction / rate_bps` of a nanosecond.
    free_ns: i64,
    free_fraction: u64,
    line: LineLog,
}

impl Rate {
    /// An idle line. `rate_bps` is at least 1; `overhead_bytes` are added to each frame.
    pub fn new(rate_bps: u64, overhead_bytes: u32, queue: DropTail) -> Self {
        Self {
            rate_bps: rate_bps.max(1),
            overhead_bytes: overhead_bytes.into(),
            queue,
            free_ns: i64::MIN,
            free_fraction: 0,
            line: LineLog::default(),
        }
    }

    /// Transmission time of `bytes` plus the fraction carried over, in nanoseconds, and the new fraction.
    fn duration(&self, bytes: u64, fraction: u64) -> (i64, u64) {
        // bits times nanoseconds per second: fits 64 bits for every real frame
        let bit_nanoseconds = bytes.checked_mul(8_000_000_000).and_then(|product| product.checked_add(fraction));
        if let Some(total) = bit_nanoseconds {
            return (i64::try_from(total / self.rate_bps).unwrap_or(i64::MAX), total % self.rate_bps);
        }
        let total = u128::from(bytes) * 8_000_000_000 + u128::from(fraction);
        let rate = u128::from(self.rate_bps);
        (i64::try_from(total / rate).unwrap_or(i64::MAX), (total % rate) as u64)
    }
}

impl Impairment for Rate {
    fn departure_ns(&mut self, now_ns: i64, frame_bytes: usize) -> Result<i64, Fate> {
        let bytes = frame_bytes as u64;
        // a packet that arrives within the last, unfinished nanosecond waits for its rest
        let is_free = now_ns > self.free_ns || (now_ns == self.free_ns && self.free_fraction == 0);
        let (begin_ns, fraction) = if is_free { (now_ns, 0) } else { (self.free_ns, self.free_fraction) };
        if !self.queue.admit(now_ns, begin_ns, bytes) {
            return Err(Fate::QueueFull);
        }
        let (packets, waiting_bytes) = self.queue.waiting(now_ns);
        self.line.waiting(packets, waiting_bytes);
        let (duration_ns, fraction) = self.duration(bytes + self.overhead_bytes, fraction);
        (self.free_ns, self.free_fraction) = (begin_ns.saturating_add(duration_ns), fraction);
        self.line.busy(begin_ns, self.free_ns);
        Ok(self.free_ns)
    }

    fn line(&self) -> Option<&LineLog> {
        Some(&self.line)
    }
}
