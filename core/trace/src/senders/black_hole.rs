//! Segments that never arrive while smaller packets do: a path whose MTU is too small, and no ICMP that reports it.
//!
//! Beyond the tap: the first unacknowledged segment is retransmitted for a second or more. A smaller packet passed in
//! between, or behind several that were lost: SACK reports it, or the peer went on without a retransmission of its data, so
//! that their ACK arrived. A retransmission after that was lost again: a black-out would have been over. No segment as large
//! was SACKed, nor did it arrive in the end in a packet as large: then another black-out had begun.
//!
//! Before the tap: the sender's sequence numbers go on behind bytes that never pass, and the receiver's ACK stays before
//! them. That alone may be a black-out that is over, until the next retransmission is due: a timeout doubles, so it waits
//! no longer than the time since the bytes were sent. A full segment behind them passes, or none does.

use super::observation::Observation;
use super::segment_size::TIMESTAMPS_BYTES;
use crate::stream::class::SegmentClass;
use crate::tables::{NULL_NS, NULL_U64, SenderRow};
use serde::{Deserialize, Serialize};

/// The least time that a segment is blocked, and the time within which a peer retransmits what was not acknowledged.
const LEAST_NS: i64 = 1_000_000_000;
/// The next retransmission comes after less than this multiple of the time since the one before.
const BACKOFF: i64 = 3;
/// Segments that are lost together before a smaller one that passes: one alone may be a loss before a black-out.
const LOST_AT_ONCE: i64 = 2;
/// Retransmissions of a blocked segment.
const LEAST_COUNT: u32 = 3;
/// Every host takes IP packets of 576 bytes (RFC 1122): smaller segments are not blocked by their size.
const LEAST_BYTES: i64 = 536;

/// A blocked segment.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Blocked {
    /// Its offset.
    place: i64,
    /// The smallest size in which it was sent, and that before the last retransmission; before the tap, the bytes that
    /// are missing.
    bytes: i64,
    bytes_before: i64,
    count: u32,
    frame: u64,
    first_ns: i64,
    last_ns: i64,
    /// When a smaller packet passed.
    passed_ns: Option<i64>,
    /// The first retransmission after that.
    again_ns: Option<i64>,
    is_before_tap: bool,
}

impl Blocked {
    /// Whether it was lost while smaller packets passed, for so long that its size explains it.
    fn is_by_size(&self) -> bool {
        let Some(passed_ns) = self.passed_ns else { return false };
        let due_ns = match self.again_ns {
            Some(again_ns) => again_ns,
            None if self.is_before_tap => passed_ns.saturating_add(passed_ns.saturating_sub(self.first_ns)),
            None => return false,
        };
        self.last_ns.saturating_sub(due_ns) >= LEAST_NS
    }

    /// Whether it was blocked for long while a smaller packet passed.
    fn is_worth(&self) -> bool {
        let Some(passed_ns) = self.passed_ns else { return false };
        // before the tap: the receiver would have acknowledged what is only missing from the capture
        let from_ns = if self.is_before_tap { passed_ns } else { self.first_ns };
        self.bytes >= LEAST_BYTES
            && (self.is_before_tap || self.count >= LEAST_COUNT)
            && self.last_ns.saturating_sub(from_ns) >= LEAST_NS
    }

    /// Its last retransmission arrived: it was smaller than those before, or its size is not what blocked them.
    fn arrive(&mut self) {
        if self.bytes == self.bytes_before {
            self.again_ns = None;
        }
        self.bytes = self.bytes_before;
    }

    /// The one to report of two: the one that its size explains, then the longer one.
    fn weight(&self) -> (bool, i64) {
        (self.is_by_size(), self.last_ns.saturating_sub(self.first_ns))
    }
}

/// The blocked segments of one direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct BlackHole {
    una: Option<i64>,
    highest: Option<i64>,
    /// The longest SACKed range since the last progress, the highest offset SACKed, and the end of the hole before the
    /// first one.
    sacked_bytes: i64,
    sacked: i64,
    hole_end: Option<i64>,
    /// The last packet of the sender that was no later than others.
    in_order_ns: i64,
    /// The largest payload of a packet that arrived, and a larger one in flight: its range.
    arrived_bytes: i64,
    larger: Option<(i64, i64)>,
    current: Option<Box<Blocked>>,
    found: Option<Box<Blocked>>,
    /// The end of the peer's data that waits for an ACK, and when a packet acknowledged it.
    peer_end: Option<i64>,
    answered_ns: Option<i64>,
    /// The last bare ACK of all its data while none was blocked: when, and the highest offset sent before.
    bare: Option<(i64, i64)>,
    /// The end of the peer's FIN.
    peer_fin: Option<i64>,
    /// The last retransmission of the peer, and the time until the next one is due: it doubles.
    repeated_ns: Option<i64>,
    due_after_ns: i64,
}

impl BlackHole {
    /// A packet of the sender.
    #[inline]
    pub fn sent(&mut self, seen: &Observation) {
        if matches!(seen.class, SegmentClass::Copy | SegmentClass::Probe | SegmentClass::Outside) {
            return;
        }
        let answered_ns = self.answered_ns;
        let (una, highest) = (self.una.unwrap_or(seen.offset), self.highest.unwrap_or(seen.offset));
        let bytes = i64::from(seen.length);
        if let Some(blocked) = &mut self.current {
            let covers = seen.offset <= blocked.place && blocked.place < seen.end();
            if blocked.is_before_tap && covers {
                // it passes at last
                blocked.last_ns = seen.time_ns;
                self.end();
            } else if covers {
                blocked.count += 1;
                blocked.bytes_before = blocked.bytes;
                blocked.bytes = blocked.bytes.min(bytes);
                blocked.last_ns = seen.time_ns;
                if blocked.passed_ns.or(answered_ns).is_some_and(|passed_ns| seen.time_ns > passed_ns) {
                    blocked.again_ns.get_or_insert(seen.time_ns);
                }
            } else if blocked.is_before_tap && bytes >= blocked.bytes.min(full_segment(seen)) {
                // as large as any of those that are missing, and it passed
                self.current = None;
            }
        } else if seen.class == SegmentClass::Retransmission && seen.offset <= una && una < seen.end() {
            // several of its size were lost, and the smaller one behind them was not
            let are_several = |end: i64| end.saturating_sub(una) >= LOST_AT_ONCE * bytes;
            let passed_ns = self.hole_end.is_some_and(are_several).then_some(seen.time_ns);
            self.answered_ns = self.bare.take().filter(|&(_, end)| are_several(end)).map(|(time_ns, _)| time_ns);
            let opened = Blocked { passed_ns, ..blocked(seen, una, bytes, seen.time_ns) };
            self.current = (self.sacked_bytes < bytes).then(|| Box::new(opened));
        } else if seen.offset > highest && highest >= una && bytes < seen.offset - highest {
            // a clock may have been set back between the two
            let first_ns = self.in_order_ns.min(seen.time_ns);
            let missing = seen.offset - highest;
            let hole = blocked(seen, highest, missing, first_ns);
            self.current = Some(Box::new(Blocked {
                count: 0,
                last_ns: first_ns,
                passed_ns: Some(seen.time_ns),
                is_before_tap: true,
                ..hole
            }));
        }
        if seen.acknowledged.is_some_and(|acknowledged| self.peer_end.is_some_and(|end| acknowledged >= end)) {
            self.peer_end = None;
            match &self.current {
                Some(blocked) if bytes < blocked.bytes => {
                    self.answered_ns.get_or_insert(seen.time_ns);
                }
                None if bytes == 0 => self.bare = Some((seen.time_ns, highest)),
                _ => {}
            }
        }
        if bytes > 0 {
            self.note_size(seen, bytes);
        }
        if seen.end() >= highest {
            self.highest = Some(seen.end());
            self.in_order_ns = seen.time_ns;
        }
    }

    /// A packet of the receiver.
    #[inline]
    pub fn answered(&mut self, seen: &Observation) {
        let is_fin = seen.flags.is_fin();
        if seen.length > 0 || is_fin {
            // a FIN is acknowledged and repeated as data is; offsets do not count it
            let end = seen.end();
            let is_repeated = is_fin && self.peer_fin.replace(end) == Some(end);
            match seen.class {
                SegmentClass::New | SegmentClass::Empty if !is_repeated => {
                    self.confirm(seen);
                    self.peer_end = Some(end);
                    (self.repeated_ns, self.due_after_ns) = (None, 0);
                }
                // it hears nothing
                SegmentClass::Retransmission | SegmentClass::Empty => {
                    let last_ns = self.repeated_ns.replace(seen.time_ns);
                    let since_ns = last_ns.map_or(0, |last_ns| seen.time_ns.saturating_sub(last_ns));
                    self.due_after_ns = since_ns.saturating_mul(BACKOFF);
                    (self.peer_end, self.answered_ns, self.bare) = (Some(end), None, None);
                    if let Some(blocked) = self.current.as_mut().filter(|blocked| blocked.passed_ns.is_none()) {
                        blocked.again_ns = None;
                    }
                }
                _ => {}
            }
        }
        let Some(acknowledged) = seen.acknowledged else { return };
        if let Some((_, end)) = self.larger
            && end <= acknowledged
            && let Some((start, end)) = self.larger.take()
        {
            self.arrived_bytes = self.arrived_bytes.max(end - start);
        }
        if self.una.is_none_or(|una| acknowledged > una) {
            self.una = Some(acknowledged);
            (self.sacked_bytes, self.sacked, self.hole_end) = (0, i64::MIN, None);
        }
        if self.current.as_ref().is_some_and(|blocked| acknowledged > blocked.place) {
            self.confirm(seen);
        }
        if let Some(blocked) = self.current.as_mut().filter(|blocked| acknowledged > blocked.place) {
            blocked.last_ns = seen.time_ns;
            if blocked.is_before_tap {
                // it arrived, and is missing from the capture
                self.current = None;
            } else {
                blocked.arrive();
                self.end();
            }
        }
        let una = self.una.unwrap_or(acknowledged);
        let mut is_news = false;
        for &(left, right) in seen.sacks().iter().filter(|&&(left, _)| left > una) {
            self.sacked_bytes = self.sacked_bytes.max(right - left);
            is_news |= right > self.sacked;
            self.sacked = self.sacked.max(right);
            self.hole_end = Some(self.hole_end.map_or(left, |end| end.min(left)));
        }
        let Some(blocked) = &mut self.current else { return };
        blocked.last_ns = seen.time_ns;
        if is_news && blocked.passed_ns.is_none() {
            (blocked.passed_ns, blocked.again_ns) = (Some(seen.time_ns), None);
        }
        if seen.window == 0 || self.sacked_bytes >= blocked.bytes {
            self.current = None;
        }
    }

    /// The rest of its row.
    pub fn describe(&self, row: &mut SenderRow) {
        let ended = self.current.as_deref().filter(|blocked| blocked.is_worth());
        let found = ended.into_iter().chain(self.found.as_deref()).max_by_key(|blocked| blocked.weight());
        row.arrived_segment_bytes = self.arrived_bytes.try_into().unwrap_or(u32::MAX);
        row.blocked_bytes = found.map_or(NULL_NS, |blocked| blocked.bytes);
        row.blocked_retransmissions = found.map_or(0, |blocked| blocked.count);
        row.blocked_first_ns = found.map_or(NULL_NS, |blocked| blocked.first_ns);
        row.blocked_last_ns = found.map_or(NULL_NS, |blocked| blocked.last_ns);
        row.blocked_frame = found.map_or(NULL_U64, |blocked| blocked.frame);
        row.is_blocked_by_size = found.is_some_and(Blocked::is_by_size);
    }

    /// The largest packet in flight arrived if it is acknowledged and was sent once.
    fn note_size(&mut self, seen: &Observation, bytes: i64) {
        if seen.class == SegmentClass::Retransmission {
            self.larger = self.larger.filter(|&(start, end)| seen.end() <= start || end <= seen.offset);
        } else if bytes > self.arrived_bytes && self.larger.is_none() {
            let largest = seen.segment_max.map_or(bytes, i64::from).min(bytes);
            if largest > self.arrived_bytes {
                self.larger = Some((seen.end() - largest, seen.end()));
            }
        }
    }

    /// The peer goes on without having repeated what was acknowledged: that ACK arrived. Silence proves nothing: its packets
    /// may be lost, too. If it acknowledges the segment now, a retransmission may have arrived long ago.
    #[inline]
    fn confirm(&mut self, seen: &Observation) {
        if let Some(blocked) = self.current.as_mut().filter(|blocked| blocked.passed_ns.is_none())
            && let Some(answered_ns) = self.answered_ns
            && seen.time_ns.saturating_sub(answered_ns) >= self.due_after_ns.max(LEAST_NS)
        {
            blocked.passed_ns = Some(answered_ns);
            let has_arrived = seen.acknowledged.is_some_and(|acknowledged| acknowledged > blocked.place);
            blocked.again_ns = blocked.again_ns.filter(|_| !has_arrived);
        }
    }

    fn end(&mut self) {
        if let Some(blocked) = self.current.take().filter(|blocked| blocked.is_worth())
            && self.found.as_ref().is_none_or(|found| blocked.weight() > found.weight())
        {
            self.found = Some(blocked);
        }
    }
}

/// The payload of the largest segment that the sender may send: not limited unless a SYN was captured.
fn full_segment(seen: &Observation) -> i64 {
    let options = if seen.timestamps.is_some() { TIMESTAMPS_BYTES } else { 0 };
    i64::from(seen.segment_max.unwrap_or(u16::MAX)) - i64::from(options)
}

fn blocked(seen: &Observation, place: i64, bytes: i64, first_ns: i64) -> Blocked {
    Blocked {
        place,
        bytes,
        bytes_before: bytes,
        count: 1,
        frame: seen.frame,
        first_ns,
        last_ns: seen.time_ns,
        passed_ns: None,
        again_ns: None,
        is_before_tap: false,
    }
}
