//! One direction at the tap: runs of packets with payload, and the rate of the line. It keeps a row for each run.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use super::busy_line::{BusyLine, is_long_pause, is_pause};
use super::flight::Flight;
use super::gap::{Gap, release};
use super::observation::Observation;
use super::scoreboard::Scoreboard;
use super::stop::Stop;
use super::timeline::Limited;
use crate::stream::class::SegmentClass;
use crate::tables::{Flight as Row, NULL_NS, budget_part as part};

/// An ACK of at least this many segments shows the rate of the line, even if the line was idle before them.
const BURST_SEGMENTS_MIN: i64 = 4;
/// Maximum number of open holes.
const HOLES_MAX: usize = 64;
/// The bottleneck lies beyond the tap only if the ACKs are slower than the data by this factor.
const BEYOND_TAP_FACTOR: f64 = 1.5;

/// Bytes that were skipped.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Hole {
    left: i64,
    right: i64,
    missing: i64,
    from_ns: i64,
    to_ns: i64,
    frame: u64,
}

/// A run of packets.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run {
    row: Row,
    first_bytes: u32,
}

/// What reached the sender before a packet.
#[derive(Debug, Clone, Copy)]
pub struct Before {
    /// Whether a packet did that may be a request.
    pub has_request: bool,
    /// The first unacknowledged byte.
    pub una: i64,
}

/// The flights of one direction.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flights {
    connection: u32,
    is_from_client: bool,
    /// All of them, or the last alone if no rows are made of them.
    runs: Vec<Run>,
    are_runs_kept: bool,
    unknown: Vec<Limited>,
    /// When the last packet passed the tap, in order or not.
    last_ns: Option<i64>,
    seen: BusyLine,
    acknowledged: BusyLine,
    /// What the receiver reported as arrived.
    arrived: Scoreboard,
    delivered: i64,
    /// Whether the last ACK reported bytes beyond a hole.
    has_holes: bool,
    /// Time of the last ACK with progress.
    delivered_ns: Option<i64>,
    highest: i64,
    holes: VecDeque<Hole>,
}

impl Flights {
    /// A new direction.
    pub fn new(connection: u32, is_from_client: bool, are_rows_wanted: bool) -> Self {
        Self {
            connection,
            is_from_client,
            runs: Vec::new(),
            are_runs_kept: are_rows_wanted,
            unknown: Vec::new(),
            last_ns: None,
            seen: BusyLine::default(),
            acknowledged: BusyLine::default(),
            arrived: Scoreboard::default(),
            delivered: 0,
            has_holes: false,
            delivered_ns: None,
            highest: 0,
            holes: VecDeque::new(),
        }
    }

    /// Prefetches what its state points to.
    pub fn prefetch_queues(&self) {
        self.seen.prefetch();
        self.acknowledged.prefetch();
    }

    /// Notes a packet with payload on the line; `stop` is its sender after the packet before, and `before` what reached it
    /// since. Returns whether the gap between them is longer than the line explains, which is so of the first packet.
    #[inline]
    pub fn pass(&mut self, seen: &Observation, before: Before, stop: Option<&Stop>, segment_bytes: i64) -> bool {
        // data that the sender got only now says nothing about the line; nor does a packet that left when all before it had
        // arrived: it waited for their ACK, and not for the line
        let is_full = i64::from(seen.length) >= segment_bytes;
        let is_queued = |stop: &Stop| !before.has_request && before.una < stop.flight.end;
        let is_train = stop.is_some_and(|stop| is_queued(stop) && (is_full || stop.left.is_some()));
        let last_ns = self.last_ns.replace(seen.time_ns);
        let gap_ns = last_ns.map(|last_ns| seen.time_ns.saturating_sub(last_ns));
        self.seen.note(seen.time_ns, seen.length, gap_ns.filter(|_| is_train));
        self.note_hole(seen, last_ns.unwrap_or(seen.time_ns));
        gap_ns.is_none_or(|gap_ns| is_pause(gap_ns, seen.length, self.seen.recent_rate()))
    }

    /// Whether everything that was sent before is acknowledged, and no PDU was begun.
    pub fn is_done(&self, stop: &Stop) -> bool {
        self.arrived.una() >= stop.flight.end && !stop.is_within_pdu
    }

    /// Adds a packet to its flight; `gap` is what came before it.
    #[inline]
    pub fn add(&mut self, seen: &Observation, is_pause: bool, gap: Option<&Gap<'_>>) {
        let is_long = |gap: &Gap<'_>| is_long_pause(gap.length_ns(), seen.length, self.seen.recent_rate());
        if is_pause && gap.is_none_or(is_long) {
            if !self.are_runs_kept {
                self.runs.clear();
                // no more are kept
                self.runs.reserve_exact(1);
            }
            let row = self.row(seen, gap);
            self.runs.push(Run { row, first_bytes: seen.length });
        } else if let Some(run) = self.runs.last_mut() {
            extend(&mut run.row, seen);
        }
    }

    /// The row of a flight that begins with this packet.
    fn row(&self, seen: &Observation, gap: Option<&Gap<'_>>) -> Row {
        let mut row = Row {
            connection: self.connection,
            to_target: self.is_from_client,
            frame_first: seen.frame,
            time_first_ns: seen.time_ns,
            release: release::UNKNOWN,
            ..Row::default()
        };
        extend(&mut row, seen);
        if let Some(gap) = gap {
            let before = &gap.stop.state;
            row.release = gap.release();
            row.pause_ns = gap.length_ns();
            row.owin_before_bytes = before.owin;
            row.rwnd_before_bytes = before.rwnd.unwrap_or(NULL_NS);
            row.is_within_pdu = gap.stop.is_within_pdu;
            row.is_in_recovery = before.is_in_recovery || gap.is_in_recovery;
        }
        row
    }

    /// Processes a packet of the other direction, and returns how many bytes it acknowledges: they have left the line.
    #[inline]
    pub fn acknowledge(&mut self, seen: &Observation, flight: &Flight, rtt_to_receiver_ns: i64) -> u32 {
        let Some(acknowledged) = seen.acknowledged else { return 0 };
        self.arrived.acknowledge(acknowledged);
        for &(left, right) in seen.sacks().iter().filter(|(left, _)| *left >= acknowledged) {
            self.arrived.sack(left, right);
        }
        let delivered = self.arrived.una() + self.arrived.sacked_bytes();
        let mut bytes = 0;
        if self.delivered > 0 && delivered > self.delivered {
            bytes = u32::try_from(delivered - self.delivered).unwrap_or(u32::MAX);
            // the line could start with them when they arrived and it was free
            let sent_ns = flight.first_beyond(self.delivered).map(|time_ns| time_ns.saturating_add(rtt_to_receiver_ns));
            let is_busy = sent_ns.zip(self.delivered_ns).is_some_and(|(sent_ns, before_ns)| sent_ns <= before_ns);
            let begun_ns = sent_ns.map(|sent_ns| sent_ns.max(self.delivered_ns.unwrap_or(sent_ns)));
            // with holes, the bytes are unknown
            let is_whole = delivered == acknowledged && !self.has_holes;
            let segment_bytes = flight.size().bytes();
            let enough_bytes = if is_busy { segment_bytes } else { BURST_SEGMENTS_MIN * segment_bytes };
            let is_train = is_whole && i64::from(bytes) >= enough_bytes;
            let line_ns = begun_ns.filter(|_| is_train).map(|begun_ns| seen.time_ns.saturating_sub(begun_ns));
            self.acknowledged.note(seen.time_ns, bytes, line_ns);
            self.has_holes = delivered != acknowledged;
            self.delivered_ns = Some(seen.time_ns);
        }
        self.delivered = self.delivered.max(delivered);
        while self.holes.front().is_some_and(|hole| hole.right <= acknowledged) {
            // acknowledged, but not captured: missing from the capture
            if let Some(hole) = self.holes.pop_front()
                && hole.missing > 0
            {
                let Hole { from_ns, to_ns, frame, .. } = hole;
                self.unknown.push(Limited { from_ns, to_ns, part: part::UNKNOWN, frame, needs_queue: false });
            }
        }
        bytes
    }

    /// Tracks skipped bytes.
    #[inline]
    fn note_hole(&mut self, seen: &Observation, last_ns: i64) {
        let end = seen.end();
        if seen.offset > self.highest && self.highest > 0 {
            if self.holes.len() == HOLES_MAX {
                self.holes.pop_front();
            }
            self.holes.push_back(Hole {
                left: self.highest,
                right: seen.offset,
                missing: seen.offset - self.highest,
                from_ns: last_ns,
                to_ns: seen.time_ns,
                frame: seen.frame,
            });
        } else if seen.offset < self.highest {
            for hole in &mut self.holes {
                hole.missing -= (end.min(hole.right) - seen.offset.max(hole.left)).max(0);
            }
        }
        self.highest = self.highest.max(end);
    }

    /// Removes spans from before, except the last of each kind, which may continue.
    pub fn forget(&mut self, before_ns: i64) {
        self.runs.drain(..self.runs.len().saturating_sub(1));
        let count = self.unknown.iter().take_while(|limited| limited.to_ns < before_ns).count();
        self.unknown.drain(..count.min(self.unknown.len().saturating_sub(1)));
        self.seen.forget(before_ns);
        self.acknowledged.forget(before_ns);
    }

    /// The flights, separated by the rate of the whole connection.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let mut runs = self.runs.iter().peekable();
        let rate = self.seen.rate();
        std::iter::from_fn(move || {
            let mut row = runs.next()?.row.clone();
            while let Some(run) = runs.next_if(|run| !is_long_pause(run.row.pause_ns, run.first_bytes, rate)) {
                row.frame_last = run.row.frame_last;
                row.time_last_ns = row.time_last_ns.max(run.row.time_last_ns);
                row.bytes += run.row.bytes;
                row.packet_count += run.row.packet_count;
                row.has_retransmission |= run.row.has_retransmission;
            }
            Some(row)
        })
    }

    /// When packets are missing from the capture.
    pub fn unknown(&self) -> &[Limited] {
        &self.unknown
    }

    /// Whether the bottleneck lies beyond the tap, so that the ACKs show its rate: they are slower than the data, and
    /// the receiver is not beside the tap.
    pub(super) fn is_line_beyond(&self, rtt_to_receiver_ns: i64, rtt_to_sender_ns: i64) -> bool {
        let is_receiver_near = rtt_to_receiver_ns.saturating_mul(2) < rtt_to_sender_ns;
        let is_slower = || self.acknowledged.rate().ns_per_byte > BEYOND_TAP_FACTOR * self.seen.rate().ns_per_byte;
        !is_receiver_near && is_slower() && self.acknowledged.has_one_rate()
    }

    /// When the bottleneck was busy: ordered and disjoint. Beyond the tap, ACKs show it, one RTT later. A pace of a window
    /// per RTT, at which no queue grows, is that of a window: `window` says so of a pace in nanoseconds per byte.
    pub fn busy_intervals(
        &self,
        rtt_to_receiver_ns: i64,
        rtt_to_sender_ns: i64,
        is_of_window: impl Fn(f64) -> bool,
    ) -> Vec<(i64, i64)> {
        let (line, earlier_ns) = if self.is_line_beyond(rtt_to_receiver_ns, rtt_to_sender_ns) {
            (&self.acknowledged, rtt_to_receiver_ns)
        } else {
            (&self.seen, 0)
        };
        let rate = line.rate();
        if is_of_window(rate.ns_per_byte) { Vec::new() } else { line.intervals(earlier_ns, rate) }
    }
}

/// Adds a packet to a flight.
#[inline]
fn extend(row: &mut Row, seen: &Observation) {
    row.frame_last = seen.frame;
    row.time_last_ns = row.time_last_ns.max(seen.time_ns);
    row.bytes += u64::from(seen.length);
    row.packet_count += 1;
    row.has_retransmission |= seen.class == SegmentClass::Retransmission;
}
