//! When a line was busy with the bytes of one direction, from the times at which they left it.
//!
//! ```text
//! events      |  |  |  |  |           |  |  |  |        bytes seen, or acknowledged
//! busy      [--------------]        [-----------]       each event took bytes x ns/byte; a longer wait is a pause
//! ```

use super::pace::{Pace, Rate};
use super::packed::{Packed, Packer, Row, Unpacker};
use serde::{Deserialize, Serialize};

/// A gap is a pause if it exceeds the line's time by this multiple of the hosts' jitter,
const PAUSE_MIN_JITTERS: f64 = 4.0;
/// at least by this time,
const PAUSE_LEAST_NS: f64 = 5_000.0;
/// and certainly by this time: hosts send packets in batches, but do not wait longer.
const PAUSE_CERTAIN_NS: f64 = 50_000.0;
/// A gap is a pause only beyond this multiple of the line's time for the bytes after it.
const PAUSE_MIN_LINE_TIMES: f64 = 1.5;

/// Whether a gap of `gap_ns` before `bytes` is a pause of this line.
#[inline]
pub fn is_pause(gap_ns: i64, bytes: u32, rate: Rate) -> bool {
    let bytes = f64::from(bytes);
    let slack_ns = if rate.ns_per_byte > 0.0 {
        (PAUSE_MIN_JITTERS * bytes * rate.jitter_ns_per_byte).clamp(PAUSE_LEAST_NS, PAUSE_CERTAIN_NS)
    } else {
        PAUSE_CERTAIN_NS
    };
    gap_ns as f64 > slack_ns + PAUSE_MIN_LINE_TIMES * bytes * rate.ns_per_byte
}

/// Whether the gap is a pause beyond any jitter.
#[inline]
pub fn is_long_pause(gap_ns: i64, bytes: u32, rate: Rate) -> bool {
    gap_ns as f64 > PAUSE_CERTAIN_NS + PAUSE_MIN_LINE_TIMES * f64::from(bytes) * rate.ns_per_byte
}

/// Within a run, no gap exceeds this multiple of the line's time for the bytes after it.
const SPLIT_LINE_TIMES: f64 = 1.25;
/// Shorter pauses are ignored.
const JOIN_NS: i64 = 5_000;

/// Events without a pause between them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Run {
    first_ns: i64,
    first_bytes: u32,
    last_ns: i64,
    bytes: u64,
}

impl Row for Run {
    fn time_ns(&self) -> i64 {
        self.last_ns
    }

    fn pack(&self, before_ns: i64, packer: &mut Packer) {
        packer.add(self.first_bytes);
        packer.add(self.bytes.wrapping_sub(u64::from(self.first_bytes)));
        packer.add(self.last_ns.wrapping_sub(before_ns));
        packer.add(self.last_ns.wrapping_sub(self.first_ns));
    }

    fn unpack(before_ns: i64, unpacker: &mut Unpacker<'_>) -> Option<Self> {
        let first_bytes: u32 = unpacker.take()?;
        let bytes = u64::from(first_bytes).wrapping_add(unpacker.take()?);
        let last_ns = before_ns.wrapping_add(unpacker.take()?);
        let first_ns = last_ns.wrapping_sub(unpacker.take()?);
        Some(Self { first_ns, first_bytes, last_ns, bytes })
    }
}

/// The runs of one direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct BusyLine {
    pace: Pace,
    runs: Packed<Run>,
}

impl BusyLine {
    /// Prefetches what its state points to.
    pub fn prefetch(&self) {
        self.runs.prefetch();
    }

    /// `bytes` left the line at `time_ns`. They took `line_ns`, if nothing but the line can have delayed them.
    #[inline]
    pub fn note(&mut self, time_ns: i64, bytes: u32, line_ns: Option<i64>) {
        match line_ns {
            Some(line_ns) => self.pace.note(line_ns, bytes),
            None => self.pace.end_window(),
        }
        if let Some(run) = self.runs.last_mut() {
            let gap_ns = time_ns.saturating_sub(run.last_ns);
            if gap_ns as f64 <= SPLIT_LINE_TIMES * f64::from(bytes) * self.pace.recent().ns_per_byte {
                run.last_ns = run.last_ns.max(time_ns);
                run.bytes += u64::from(bytes);
                return;
            }
        }
        let run = Run { first_ns: time_ns, first_bytes: bytes, last_ns: time_ns, bytes: u64::from(bytes) };
        self.runs.push(run);
    }

    /// The pace so far.
    pub fn rate(&self) -> Rate {
        self.pace.rate()
    }

    /// Whether it is one rate.
    pub fn has_one_rate(&self) -> bool {
        self.pace.is_one()
    }

    /// The pace at the last update.
    pub fn recent_rate(&self) -> Rate {
        self.pace.recent()
    }

    /// Removes runs from before, except the last.
    pub fn forget(&mut self, before_ns: i64) {
        let last = self.runs.last_mut().copied();
        self.runs.forget(before_ns);
        if let (Some(last), None) = (last, self.runs.last_mut()) {
            self.runs.push(last);
        }
    }

    /// When the line was busy, shifted earlier by `earlier_ns`: ordered and disjoint.
    ///
    /// Computed backwards: bytes that arrived faster than the line allows were transmitted earlier, and waited in a
    /// host.
    pub fn intervals(&self, earlier_ns: i64, rate: Rate) -> Vec<(i64, i64)> {
        let runs: Vec<Run> = self.runs.iter().collect();
        let mut intervals: Vec<(i64, i64)> = Vec::with_capacity(runs.len());
        for run in runs.iter().rev() {
            let took_ns =
                run.last_ns.saturating_sub(run.first_ns) as f64 + f64::from(run.first_bytes) * rate.ns_per_byte;
            let least_ns = run.bytes as f64 * rate.ns_per_byte;
            let limit_ns = intervals.last().map_or(i64::MAX, |&(from_ns, _)| from_ns);
            let to_ns = run.last_ns.saturating_sub(earlier_ns).min(limit_ns);
            let from_ns = to_ns.saturating_sub(took_ns.max(least_ns) as i64);
            match intervals.last_mut() {
                Some(next) if next.0.saturating_sub(to_ns) <= JOIN_NS => next.0 = from_ns,
                _ => intervals.push((from_ns, to_ns)),
            }
        }
        intervals.reverse();
        intervals.shrink_to_fit();
        intervals
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_come_out_as_they_went_in(
            rows in proptest::collection::vec((any::<i64>(), any::<u32>(), any::<i64>(), any::<u64>()), 0..40),
        ) {
            let runs = rows.iter().map(|&(first_ns, first_bytes, last_ns, bytes)| Run { first_ns, first_bytes, last_ns, bytes });
            let mut packed = Packed::default();
            runs.for_each(|run| packed.push(run));
            let found = packed.iter().map(|run: Run| (run.first_ns, run.first_bytes, run.last_ns, run.bytes));
            prop_assert_eq!(found.collect::<Vec<_>>(), rows);
        }
    }

    /// Full segments over a line of 40 MB/s.
    const LINE_NS: i64 = 36_200;

    fn block(line: &mut BusyLine, start_ns: i64) {
        (0..20).for_each(|packet| line.note(start_ns + packet * LINE_NS, 1448, (packet > 0).then_some(LINE_NS)));
    }

    #[test]
    fn each_block_is_busy_for_its_bytes_at_the_line_rate() {
        let mut line = BusyLine::default();
        (0..50).for_each(|cycle| block(&mut line, cycle * 10_000_000));
        let intervals = line.intervals(0, line.rate());
        let busy_ns: i64 = intervals.iter().map(|(from, to)| to - from).sum();
        let truth_ns = 50 * 20 * LINE_NS;
        assert_eq!(intervals.len(), 50);
        assert!((busy_ns - truth_ns).abs() < truth_ns / 200, "{busy_ns} of {truth_ns}");
    }

    #[test]
    fn a_slow_line_has_no_pauses_between_its_packets() {
        // 10 Mbit/s: 1.2 ms per packet
        let mut line = BusyLine::default();
        (0..100).for_each(|packet| line.note(packet * 1_200_000, 1448, (packet > 0).then_some(1_200_000)));
        assert_eq!(line.intervals(0, line.rate()).len(), 1);
    }

    #[test]
    fn a_pause_exceeds_the_time_of_the_line_and_the_jitter_of_the_hosts() {
        let rate = |jitter_ns_per_byte| Rate { ns_per_byte: 25.0, jitter_ns_per_byte };
        // 1.5 times 25 us, and four times the jitter, but 5 to 50 us
        for (of, longest_ns) in [(rate(2.0), 45_500), (rate(0.0), 42_500), (rate(100.0), 87_500)] {
            assert!(!is_pause(longest_ns, 1000, of));
            assert!(is_pause(longest_ns + 1, 1000, of));
        }
        assert!(!is_pause(50_000, 1000, Rate::default()));
        assert!(is_pause(50_001, 1000, Rate::default()));
        assert!(!is_long_pause(87_500, 1000, rate(0.0)));
        assert!(is_long_pause(87_501, 1000, rate(0.0)));
    }

    /// Events of 1000 bytes, 25 us apart; their rate is known after 64 of them. The time of the last.
    fn train(line: &mut BusyLine, count: i64) -> i64 {
        (0..count).for_each(|event| line.note(event * 25_000, 1000, (event > 0).then_some(25_000)));
        (count - 1) * 25_000
    }

    #[test]
    fn a_gap_of_more_than_five_quarters_of_the_lines_time_starts_a_run() {
        for (gap_ns, count) in [(31_250, 1), (31_251, 2)] {
            let mut line = BusyLine::default();
            let last_ns = train(&mut line, 80);
            line.note(last_ns + gap_ns, 1000, Some(gap_ns));
            let intervals = line.intervals(1000, Rate { ns_per_byte: 25.0, jitter_ns_per_byte: 0.0 });
            assert_eq!(intervals.len(), count);
            assert_eq!(intervals.last().unwrap().1, last_ns + gap_ns - 1000);
        }
    }

    #[test]
    fn the_last_run_is_never_forgotten() {
        let mut line = BusyLine::default();
        let last_ns = train(&mut line, 100);
        (0..8).for_each(|event| line.note(last_ns + 1_000_000 + event * 25_000, 1000, None));
        line.forget(i64::MAX);
        assert_eq!(line.runs.iter().count(), 1);
    }

    #[test]
    fn single_packets_show_no_busy_time() {
        let mut line = BusyLine::default();
        (0..100).for_each(|packet| line.note(packet * 300_000, 560, None));
        let busy_ns: i64 = line.intervals(0, line.rate()).iter().map(|(from, to)| to - from).sum();
        assert_eq!(busy_ns, 0);
    }
}
