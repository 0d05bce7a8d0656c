//! When packets were sent, in the time of the tap: by the clock of their TCP timestamps, where it counts milliseconds.
//!
//! ```text
//!   tap time    |     |  | ||          a queue on the way delays some packets more than others
//!   timestamps  0     7  9 9 9         the least difference to the tap's clock is the path without a queue
//! ```

use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

/// A millisecond, as almost all senders count (RFC 7323, section 5.4, allows others).
pub const TICK_NS: i64 = 1_000_000;
/// The clock is judged after so many RTTs without a queue: then a clock of 1024 Hz is off by more than
const ROUND_TRIPS_MIN: i64 = 32;
/// this part of an RTT,
const ROUND_TRIP_PARTS: i64 = 2;
/// and this part of the time.
const DRIFT_PARTS: i64 = 500;
/// The least difference is that of the last one or two spans of this length: clocks drift by less than a tick in it.
const LEAST_WITHIN_NS: i64 = 1_000_000_000;

/// The clock of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct SentClock {
    first: Option<(SerialNumber, i64)>,
    /// The least difference of tap and sender in the current span, and in the one before; since when.
    least_ns: [Option<i64>; 2],
    since_ns: i64,
    /// When the last packet was sent.
    last_ns: Option<i64>,
    /// Whether it counts milliseconds.
    is_known: bool,
}

impl SentClock {
    /// Notes a packet, in the order of the stream. When it would have passed the tap without a queue, rounded down to a
    /// tick; none while the clock is not known to count milliseconds, and for a timestamp that cannot be: it is ahead by
    /// more than the path can have become shorter, or as much behind the last packet.
    pub fn note(&mut self, timestamp: u32, time_ns: i64, round_trip_ns: i64) -> Option<i64> {
        let (first, first_ns) = *self.first.get_or_insert((SerialNumber(timestamp), time_ns));
        let ticks_ns = i64::from(SerialNumber(timestamp).distance(first)) * TICK_NS;
        let elapsed_ns = time_ns.saturating_sub(first_ns);
        let ahead_ns = elapsed_ns.saturating_sub(ticks_ns);
        if time_ns.saturating_sub(self.since_ns) >= LEAST_WITHIN_NS {
            self.least_ns = [None, self.least_ns[0]];
            self.since_ns = time_ns;
        }
        let doubt_ns = round_trip_ns.saturating_add(TICK_NS);
        if self.is_known && self.least().is_some_and(|least_ns| ahead_ns < least_ns.saturating_sub(doubt_ns)) {
            return None;
        }
        let [latest, before] = &mut self.least_ns;
        let least_ns = latest.map_or(ahead_ns, |least_ns| least_ns.min(ahead_ns));
        *latest = Some(least_ns);
        let least_ns = before.map_or(least_ns, |before_ns| before_ns.min(least_ns));
        self.is_known |= elapsed_ns >= round_trip_ns.saturating_mul(ROUND_TRIPS_MIN)
            && ahead_ns.saturating_abs() <= round_trip_ns / ROUND_TRIP_PARTS + elapsed_ns / DRIFT_PARTS;
        let sent_ns = first_ns.saturating_add(ticks_ns).saturating_add(least_ns);
        if !self.is_known || self.last_ns.is_some_and(|last_ns| sent_ns < last_ns.saturating_sub(doubt_ns)) {
            return None;
        }
        self.last_ns = Some(sent_ns);
        Some(sent_ns)
    }

    /// The least difference so far.
    fn least(&self) -> Option<i64> {
        self.least_ns.iter().flatten().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = TICK_NS;

    /// Packets sent every 10 ms, with the ticks of a clock that takes `tick_us` for each; delayed as given, in ms.
    fn sent(tick_us: i64, delays_ms: &[i64]) -> Vec<Option<i64>> {
        let mut clock = SentClock::default();
        let begun = u32::MAX - 100;
        (0..)
            .zip(delays_ms)
            .map(|(packet, delay_ms)| {
                let sent_ms = packet * 10;
                let ticks = u32::try_from(sent_ms * 1000 / tick_us).unwrap();
                clock.note(begun.wrapping_add(ticks), (sent_ms + delay_ms) * MS, 10 * MS)
            })
            .collect()
    }

    #[test]
    fn a_queue_on_the_way_delays_no_sender() {
        // 5 ms of path; others wait for another 7 ms, or 70
        let mut delays_ms = [5; 60];
        (delays_ms[9], delays_ms[40]) = (12, 75);
        let found = sent(1000, &delays_ms);
        assert_eq!(found[31], None, "not judged before 32 RTTs");
        let expected: Vec<_> = (32..60).map(|packet| Some((packet * 10 + 5) * MS)).collect();
        assert_eq!(found[32..], expected, "also where the timestamps wrap");
    }

    #[test]
    fn a_clock_that_counts_something_else_tells_nothing() {
        for tick_us in [100, 900, 976, 4000, 10_000] {
            assert_eq!(sent(tick_us, &[5; 200]).into_iter().skip(100).flatten().count(), 0, "{tick_us} us");
        }
        // a crystal
        assert_eq!(sent(999, &[5; 200]).into_iter().skip(100).flatten().count(), 100);
    }

    #[test]
    fn a_damaged_timestamp_moves_no_other_packet() {
        let sent_at = |damaged: u32| -> Vec<Option<i64>> {
            let mut clock = SentClock::default();
            let stamp = |packet: u32| if packet == 50 { damaged } else { packet * 10 };
            (0..100).map(|packet| clock.note(stamp(packet), i64::from(packet) * 10 * MS, 10 * MS)).collect()
        };
        for damaged in [500 + 1_000_000, 500 - 400, 500 + (1 << 30)] {
            let found = sent_at(damaged);
            assert_eq!(found[50], None, "{damaged}");
            let expected: Vec<_> = (51..100).map(|packet| Some(packet * 10 * MS)).collect();
            assert_eq!(found[51..], expected, "{damaged}");
        }
    }

    #[test]
    fn a_path_that_becomes_longer_is_the_path_after_two_seconds() {
        let delays_ms: Vec<_> = (0..400).map(|packet| if packet < 100 { 5 } else { 9 }).collect();
        let found = sent(1000, &delays_ms);
        assert_eq!(found[101], Some((1010 + 5) * MS));
        assert_eq!(found[399], Some((3990 + 9) * MS));
    }
}
