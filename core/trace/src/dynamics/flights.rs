//! One direction at the tap: runs of packets with payload, the pauses between them, what ended each pause, and the rate
//! of the line.
//!
//! It keeps a row for each run.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use super::acks::Acks;
use super::busy_line::{BusyLine, is_long_pause, is_pause};
use super::flight::Flight;
use super::observation::Observation;
use super::scoreboard::Scoreboard;
use super::sender_state::SenderState;
use super::timeline::Limited;
use super::window_scale::WindowScale;
use crate::stream::class::SegmentClass;
use crate::tables::{Flight as Row, NULL_NS, budget_part as part};

/// A packet answers an ACK if it follows within this time, or within a part of the path's RTT.
const ANSWER_WITHIN_NS: i64 = 100_000;
/// That part of the RTT.
const ANSWER_WITHIN_RTT_PART: i64 = 8;
/// A pause of this length within a PDU that no ACK ended was ended by a retransmission timer, which Linux never sets
/// below 200 ms. The retransmission may be the first copy at the tap.
const TIMER_MIN_NS: i64 = 190_000_000;
/// After an earlier loss, a pause of two RTTs and at least this time is enough: Linux's tail loss probe (RFC 8985,
/// section 7.2).
const PROBE_MIN_NS: i64 = 8_000_000;
/// Maximum number of payload packets on their way to the sender.
const REQUESTS_MAX: usize = 1 << 12;
/// An ACK of at least this many segments shows the rate of the line, even if the line was idle before them.
const BURST_SEGMENTS_MIN: i64 = 4;
/// Maximum number of open holes.
const HOLES_MAX: usize = 64;
/// The bottleneck lies beyond the tap only if the ACKs are slower than the data by this factor.
const BEYOND_TAP_FACTOR: f64 = 1.5;

/// Codes of `CATEGORIES["release"]`.
mod release {
    pub const ACKNOWLEDGMENT: u8 = 0;
    pub const WINDOW_UPDATE: u8 = 1;
    pub const REQUEST: u8 = 2;
    pub const OWN_TIME: u8 = 3;
    pub const UNKNOWN: u8 = 4;
}

/// The previous packet.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Previous {
    time_ns: i64,
    length: u32,
    left_of_pdu: Option<u32>,
    /// What its sender knew to be acknowledged, and the end of the last short segment.
    acknowledged: i64,
    small_end: i64,
    sender: SenderState,
}

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

/// A wait for TCP; with the inferred window scale that it depends on, if it depends on one.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Wait {
    limited: Limited,
    scale: Option<u8>,
}

/// A run of packets.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run {
    row: Row,
    first_bytes: u32,
}

/// The flights of one direction.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flights {
    connection: u32,
    is_from_client: bool,
    /// All of them, or the last alone if no rows are made of them.
    runs: Vec<Run>,
    are_runs_kept: bool,
    limited: Vec<Wait>,
    is_still_limited: bool,
    unknown: Vec<Limited>,
    previous: Option<Previous>,
    /// The earliest times at which payload of the other direction can be answered.
    requests: VecDeque<i64>,
    seen: BusyLine,
    acknowledged: BusyLine,
    /// What the receiver reported as arrived.
    arrived: Scoreboard,
    delivered: i64,
    /// End of the last short segment.
    small_end: i64,
    /// Whether the last ACK reported bytes beyond a hole.
    has_holes: bool,
    /// Time of the last ACK with progress.
    delivered_ns: Option<i64>,
    has_loss: bool,
    highest: i64,
    /// Whether that byte ends within a PDU, and whether the next packet finds everything acknowledged and no PDU begun.
    is_within_pdu: bool,
    is_done: bool,
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
            limited: Vec::new(),
            is_still_limited: false,
            unknown: Vec::new(),
            previous: None,
            requests: VecDeque::new(),
            seen: BusyLine::default(),
            acknowledged: BusyLine::default(),
            arrived: Scoreboard::default(),
            delivered: 0,
            small_end: 0,
            has_holes: false,
            delivered_ns: None,
            has_loss: false,
            highest: 0,
            is_within_pdu: false,
            is_done: false,
            holes: VecDeque::new(),
        }
    }

    /// Prefetches what its state points to.
    pub fn prefetch_queues(&self) {
        iscsitrace_sys::prefetch_ends(&self.requests);
        self.seen.prefetch();
        self.acknowledged.prefetch();
    }

    /// Processes a packet with payload. `sender` is the state after it, `rtt_ns` the minimum RTT between the two ends,
    /// `rtt_to_sender_ns` the sender's part of it.
    #[inline]
    pub fn packet(
        &mut self,
        seen: &Observation,
        sender: SenderState,
        acks: &Acks,
        segment_bytes: i64,
        rtt_ns: i64,
        rtt_to_sender_ns: i64,
    ) {
        let has_request = self.take_requests(seen.time_ns) || self.previous.is_none();
        // data that the sender got only now says nothing about the line
        let is_full = i64::from(seen.length) >= segment_bytes;
        let train = self.previous.filter(|previous| !has_request && (is_full || previous.left_of_pdu.is_some()));
        let line_ns = train.map(|previous| seen.time_ns.saturating_sub(previous.time_ns));
        self.seen.note(seen.time_ns, seen.length, line_ns);
        if !is_full {
            self.small_end = self.small_end.max(seen.end());
        }
        self.is_done = self.arrived.una() >= self.highest && !self.is_within_pdu;
        if seen.end() > self.highest {
            self.is_within_pdu = seen.is_within_pdu();
        }
        self.note_hole(seen);
        let is_retransmission = seen.class == SegmentClass::Retransmission;
        self.has_loss |= is_retransmission || sender.is_in_recovery;
        let gap_ns = self.previous.map(|previous| seen.time_ns.saturating_sub(previous.time_ns));
        let rate = self.seen.recent_rate();
        let is_pause = gap_ns.is_none_or(|gap_ns| is_pause(gap_ns, seen.length, rate));
        let begun =
            is_pause.then(|| self.begin(seen, sender, acks, has_request, segment_bytes, rtt_ns, rtt_to_sender_ns));
        if let (Some((_, limited)), Some(gap_ns)) = (&begun, gap_ns) {
            let (part, needs_queue) = limited.map_or((None, false), |(part, needs_queue)| (Some(part), needs_queue));
            self.limit(seen, gap_ns, part, needs_queue);
        }
        match (self.runs.last_mut(), begun) {
            (_, Some((row, _))) if gap_ns.is_none_or(|gap_ns| is_long_pause(gap_ns, seen.length, rate)) => {
                if !self.are_runs_kept {
                    self.runs.clear();
                    // no more are kept
                    self.runs.reserve_exact(1);
                }
                self.runs.push(Run { row, first_bytes: seen.length });
            }
            (Some(run), _) => extend(&mut run.row, seen, is_retransmission),
            (None, _) => {}
        }
        let acknowledged = self.highest.saturating_sub(sender.owin);
        self.previous = Some(Previous {
            time_ns: seen.time_ns,
            length: seen.length,
            left_of_pdu: seen.left_of_pdu,
            acknowledged,
            small_end: self.small_end,
            sender,
        });
    }

    /// Notes how a pause was limited, if TCP limited it. Pauses with the same cause in a row are one span, because a
    /// busy line takes precedence.
    fn limit(&mut self, seen: &Observation, gap_ns: i64, part: Option<u8>, needs_queue: bool) {
        let (to_ns, frame) = (seen.time_ns, seen.frame);
        let scale = self
            .previous
            .and_then(|previous| previous.sender.inferred_scale)
            .filter(|_| part == Some(part::RECEIVE_WINDOW));
        match (self.limited.last_mut(), part) {
            (Some(wait), Some(part))
                if self.is_still_limited
                    && needs_queue == wait.limited.needs_queue
                    && wait.limited.part == part
                    && wait.scale == scale =>
            {
                (wait.limited.to_ns, wait.limited.frame) = (to_ns, frame);
            }
            (_, Some(part)) => {
                let limited = Limited { from_ns: to_ns.saturating_sub(gap_ns), to_ns, part, frame, needs_queue };
                self.limited.push(Wait { limited, scale });
            }
            (_, None) => {}
        }
        self.is_still_limited = part.is_some() && !needs_queue;
    }

    /// A packet after a pause, or the first: its row, and what limited the sender, with `Limited::needs_queue`.
    fn begin(
        &self,
        seen: &Observation,
        sender: SenderState,
        acks: &Acks,
        has_request: bool,
        segment_bytes: i64,
        rtt_ns: i64,
        rtt_to_sender_ns: i64,
    ) -> (Row, Option<(u8, bool)>) {
        let is_retransmission = seen.class == SegmentClass::Retransmission;
        let mut row = Row {
            connection: self.connection,
            to_target: self.is_from_client,
            frame_first: seen.frame,
            time_first_ns: seen.time_ns,
            is_in_recovery: sender.is_in_recovery,
            release: release::UNKNOWN,
            ..Row::default()
        };
        extend(&mut row, seen, is_retransmission);
        let Some(previous) = self.previous else {
            return (row, None);
        };
        let before = previous.sender;
        row.pause_ns = seen.time_ns.saturating_sub(previous.time_ns);
        row.owin_before_bytes = before.owin;
        row.rwnd_before_bytes = before.rwnd.unwrap_or(NULL_NS);
        row.is_within_pdu = previous.left_of_pdu.is_some();
        row.is_in_recovery |= before.is_in_recovery;
        let within_ns = ANSWER_WITHIN_NS.max(rtt_ns / ANSWER_WITHIN_RTT_PART);
        let ack = sender.last_ack.filter(|ack| ack.answer_ns > previous.time_ns.saturating_sub(within_ns));
        let is_answer = ack.is_some_and(|ack| seen.time_ns.saturating_sub(ack.answer_ns).saturating_abs() <= within_ns);
        // a request explains more than the ACK that came with it
        let is_asked = has_request && !row.is_within_pdu;
        row.release = match ack {
            Some(ack) if is_answer && ack.has_opened_window && !ack.is_advance => release::WINDOW_UPDATE,
            Some(ack) if is_answer && ack.is_advance && !is_asked => release::ACKNOWLEDGMENT,
            _ if has_request => release::REQUEST,
            _ => release::OWN_TIME,
        };
        let is_small = i64::from(seen.length) < segment_bytes;
        let is_window_full = before.is_window_full;
        // what the sender can have known: the minimum RTT may belong to a packet that was answered late
        let known = self.highest.max(seen.end()).saturating_sub(sender.owin);
        let passed_ns = seen.time_ns.saturating_add(within_ns).saturating_sub(rtt_to_sender_ns);
        let known = acks.acknowledged_at(passed_ns).map_or(known, |passed| passed.max(known));
        let is_all_acknowledged = ack.is_some_and(|ack| ack.is_advance) && known >= seen.offset;
        // Nagle: less than a segment is left while an earlier short segment is in flight. It goes out when that is
        // acknowledged, or with the answer to a request
        let left = previous.left_of_pdu.map(i64::from).filter(|left| (1..segment_bytes).contains(left));
        let is_nagle = left.is_some() && previous.small_end > previous.acknowledged;
        let is_released = is_nagle && previous.small_end <= known;
        let is_filled = is_nagle && has_request && left.is_some_and(|left| i64::from(seen.length) > left);
        // what ACKs let out, if the sender has more
        let window = if before.is_window_smaller { part::RECEIVE_WINDOW } else { part::CONGESTION_WINDOW };
        let mut needs_queue = false;
        let limited = if is_retransmission && is_window_full && !before.is_in_recovery {
            // a probe of a full window, or of a slow receiver
            Some(part::RECEIVE_WINDOW)
        } else if row.is_in_recovery || is_retransmission {
            // a retransmission after everything was acknowledged is needless, and nothing waits for it
            (!self.is_done).then_some(part::LOSS_RECOVERY)
        } else if seen.class == SegmentClass::Reordered && row.pause_ns > rtt_ns {
            // others overtook it: what the window let out had arrived, and the path held this one for longer than it takes
            Some(part::CONGESTION_WINDOW)
        } else if row.is_within_pdu {
            // since the sender could have continued
            let late_ns = ack.map_or(row.pause_ns, |ack| seen.time_ns.saturating_sub(ack.answer_ns));
            let probe_ns = PROBE_MIN_NS.max(rtt_ns.saturating_mul(2));
            // nothing was sent in between that the network could lose: the host paused
            let segments = (i64::from(previous.length) - 1) / segment_bytes.max(1) + 1;
            let is_next = seen.steps.is_some_and(|steps| (1..=segments).contains(&i64::from(steps)));
            let is_lost = seen.steps.is_some_and(|steps| i64::from(steps) > segments);
            if is_lost && late_ns >= TIMER_MIN_NS {
                Some(part::LOSS_RECOVERY)
            } else if is_window_full {
                Some(part::RECEIVE_WINDOW)
            } else if !is_next && (late_ns >= TIMER_MIN_NS || (self.has_loss && late_ns >= probe_ns)) {
                Some(part::LOSS_RECOVERY)
            } else if before.owin > 0 && (is_filled || is_answer && (is_released || is_small && is_all_acknowledged)) {
                Some(part::ACK_WAIT)
            } else {
                let is_soon = late_ns <= within_ns.max(rtt_ns);
                ack.filter(|ack| ack.is_advance && is_soon).map(|_| window)
            }
        } else if before.owin > 0 && row.release == release::REQUEST && is_answer {
            // the request carried the ACK that opened the window, if there was more to send
            needs_queue = true;
            is_window_full.then_some(part::RECEIVE_WINDOW)
        } else if row.release == release::ACKNOWLEDGMENT && before.owin > 0 {
            if is_window_full {
                Some(part::RECEIVE_WINDOW)
            } else if is_all_acknowledged {
                is_small.then_some(part::ACK_WAIT)
            } else {
                Some(window)
            }
        } else if is_window_full && !has_request && before.owin > 0 {
            // what follows was asked for before: it had more to send
            Some(part::RECEIVE_WINDOW)
        } else {
            None
        };
        (row, limited.map(|part| (part, needs_queue)))
    }

    /// Notes a payload packet of the other direction, which reaches the sender `rtt_to_sender_ns` before its answer
    /// passes the tap.
    #[inline]
    pub fn request(&mut self, time_ns: i64, rtt_to_sender_ns: i64) {
        if self.requests.len() == REQUESTS_MAX {
            self.requests.pop_front();
        }
        self.requests.push_back(time_ns.saturating_add(rtt_to_sender_ns));
    }

    /// Whether a request can have been answered since the previous packet.
    #[inline]
    fn take_requests(&mut self, time_ns: i64) -> bool {
        let before = self.requests.len();
        while self.requests.front().is_some_and(|&answer_ns| answer_ns <= time_ns) {
            self.requests.pop_front();
        }
        self.requests.len() < before
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
    fn note_hole(&mut self, seen: &Observation) {
        let end = seen.end();
        if seen.offset > self.highest && self.highest > 0 {
            if self.holes.len() == HOLES_MAX {
                self.holes.pop_front();
            }
            self.holes.push_back(Hole {
                left: self.highest,
                right: seen.offset,
                missing: seen.offset - self.highest,
                from_ns: self.previous.map_or(seen.time_ns, |previous| previous.time_ns),
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
        let count = self.limited.iter().take_while(|wait| wait.limited.to_ns < before_ns).count();
        self.limited.drain(..count.min(self.limited.len().saturating_sub(1)));
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

    /// When the sender was limited, and when the cause is unknown. A window that seemed full was not if its inferred scale
    /// has grown since; it may not have been if nothing proves the scale. What depends on a queue, too, is then no wait.
    pub fn limited<'a>(&'a self, scale: &'a WindowScale) -> impl Iterator<Item = Limited> + 'a {
        let judged = |wait: &Wait| match wait.scale {
            Some(shift) if shift != scale.inferred() => Limited { part: part::CONGESTION_WINDOW, ..wait.limited },
            Some(_) if !scale.is_proven() => Limited { part: part::UNKNOWN, ..wait.limited },
            _ => wait.limited,
        };
        let is_likely = |wait: &Limited| !wait.needs_queue || wait.part == part::RECEIVE_WINDOW;
        self.limited.iter().map(judged).filter(is_likely).chain(self.unknown.iter().copied())
    }

    /// Whether the bottleneck lies beyond the tap, so that the ACKs show its rate: they are slower than the data, and
    /// the receiver is not beside the tap.
    pub(super) fn is_line_beyond(&self, rtt_to_receiver_ns: i64, rtt_to_sender_ns: i64) -> bool {
        let is_receiver_near = rtt_to_receiver_ns.saturating_mul(2) < rtt_to_sender_ns;
        !is_receiver_near && self.acknowledged.rate().ns_per_byte > BEYOND_TAP_FACTOR * self.seen.rate().ns_per_byte
    }

    /// When the bottleneck was busy: ordered and disjoint. Beyond the tap, ACKs show it, one RTT later.
    pub fn busy_intervals(&self, rtt_to_receiver_ns: i64, rtt_to_sender_ns: i64) -> Vec<(i64, i64)> {
        if self.is_line_beyond(rtt_to_receiver_ns, rtt_to_sender_ns) {
            self.acknowledged.intervals(rtt_to_receiver_ns, self.acknowledged.rate())
        } else {
            self.seen.intervals(0, self.seen.rate())
        }
    }
}

/// Adds a packet to a flight.
#[inline]
fn extend(row: &mut Row, seen: &Observation, is_retransmission: bool) {
    row.frame_last = seen.frame;
    row.time_last_ns = seen.time_ns;
    row.bytes += u64::from(seen.length);
    row.packet_count += 1;
    row.has_retransmission |= is_retransmission;
}
