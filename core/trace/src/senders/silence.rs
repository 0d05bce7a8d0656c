//! Silences of a host in which it sent packets that never passed the tap: the numbers of its packets show them. They were
//! lost before the tap, and what ends the silence was sent by a timer, or answers one of the other side.
//!
//! The sequence number of a bare ACK shows bytes that never passed, too: from then on the other host waits for them.

use super::gap::{PROBE_MIN_NS, TIMER_MIN_NS};
use super::observation::Observation;
use serde::{Deserialize, Serialize};

/// A host numbers the packets of a connection alone if at most one of so many shows others in between. Some hosts have one
/// count for all connections.
const ALONE_PER_OTHER: u32 = 16;

/// A silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Start.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// The frame that ended it.
    pub frame: u64,
}

/// The silences of one host.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Silences {
    /// When its latest packet passed, and the segments in it.
    last: Option<(i64, u16)>,
    /// The segments in the packet before that.
    before: u16,
    /// Packets that follow the one before, and those with others in between.
    alone: u32,
    others: u32,
    /// The end of what passed, or is missing from the capture alone.
    reached: Option<i64>,
    hole: Option<Hole>,
    spans: Vec<Silence>,
}

/// Bytes that the host sent and that never passed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Hole {
    /// When a bare ACK showed them.
    from_ns: i64,
    /// Their end.
    end: i64,
}

impl Silences {
    /// Notes a packet of any kind, with the payload of a full segment and the RTT between both hosts.
    #[inline]
    pub fn note(&mut self, seen: &Observation, segment: i64, rtt_ns: Option<i64>) {
        let segments = (i64::from(seen.length) - 1).max(0) / segment.max(1) + 1;
        let segments = u16::try_from(segments).unwrap_or(u16::MAX);
        let probe_ns = rtt_ns.map_or(TIMER_MIN_NS, |rtt_ns| PROBE_MIN_NS.max(rtt_ns.saturating_mul(2)));
        let is_lost = |from_ns: i64| seen.time_ns.saturating_sub(from_ns) >= probe_ns.min(TIMER_MIN_NS);
        if let Some(hole) = self.fill(seen).filter(|hole| is_lost(hole.from_ns)) {
            self.spans.push(Silence { from_ns: hole.from_ns, to_ns: seen.time_ns, frame: seen.frame });
        }
        let Some((from_ns, before)) = self.last.replace((seen.time_ns, segments)) else { return };
        self.before = before;
        let Some(steps) = seen.steps else { return };
        if steps <= before {
            self.alone = self.alone.saturating_add(1);
            return;
        }
        if is_lost(from_ns) && self.alone / ALONE_PER_OTHER >= self.others {
            self.spans.push(Silence { from_ns, to_ns: seen.time_ns, frame: seen.frame });
        }
        self.others = self.others.saturating_add(1);
    }

    /// Opens a hole where a bare ACK shows one, and returns one that this packet fills.
    fn fill(&mut self, seen: &Observation) -> Option<Hole> {
        if seen.flags.is_rst() {
            return None;
        }
        // SYN and FIN have a sequence number each
        let end = seen.end() + i64::from(seen.flags.is_syn()) + i64::from(seen.flags.is_fin());
        let reached = *self.reached.get_or_insert(end);
        if end > reached && end == seen.offset {
            let from_ns = self.hole.map_or(seen.time_ns, |hole| hole.from_ns);
            self.hole = Some(Hole { from_ns, end });
            return None;
        }
        self.reached = Some(reached.max(end));
        self.hole.take_if(|hole| hole.end <= end)
    }

    /// The other host acknowledges: what it has and never passed is missing from the capture alone.
    #[inline]
    pub fn acknowledge(&mut self, acknowledged: Option<i64>) {
        let (Some(acknowledged), Some(reached)) = (acknowledged, self.reached) else { return };
        if acknowledged > reached {
            self.reached = Some(acknowledged);
            self.hole.take_if(|hole| hole.end <= acknowledged);
        }
    }

    /// When the host's latest packet passed.
    #[inline]
    pub fn heard_ns(&self) -> Option<i64> {
        self.last.map(|(time_ns, _)| time_ns)
    }

    /// How many packets of the host the number of its latest one shows between that and the one before, which never passed;
    /// none if it does not number them in turn.
    pub fn missing_before(&self, latest: &Observation) -> Option<u16> {
        let steps = latest.steps.filter(|_| self.alone / ALONE_PER_OTHER >= self.others.saturating_sub(1))?;
        Some(steps.saturating_sub(self.before))
    }

    /// The silences.
    pub fn spans(&self) -> &[Silence] {
        &self.spans
    }

    /// Removes those from before.
    pub fn forget(&mut self, before_ns: i64) {
        self.spans.retain(|span| span.to_ns >= before_ns);
    }
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::frame::TcpFlags;

    use super::*;
    use crate::stream::class::SegmentClass;

    const MS: i64 = 1_000_000;

    fn packet(ms: i64, steps: u16, length: u32) -> Observation {
        Observation { length, steps: Some(steps), ..Observation::bare(ms * MS, 1) }
    }

    /// Packets without payload at these times in ms, with these steps.
    fn silences(packets: &[(i64, u16)], rtt_ms: Option<i64>) -> Vec<(i64, i64)> {
        let mut silences = Silences::default();
        for &(ms, steps) in packets {
            silences.note(&packet(ms, steps, 0), 1448, rtt_ms.map(|ms| ms * MS));
        }
        silences.spans().iter().map(|span| (span.from_ns / MS, span.to_ns / MS)).collect()
    }

    #[test]
    fn a_silence_with_packets_in_between_is_of_lost_ones() {
        assert_eq!(silences(&[(0, 1), (1, 1), (191, 2)], None), [(1, 191)]);
        assert_eq!(silences(&[(0, 1), (1, 1), (190, 2)], None), [], "a timer takes longer");
        assert_eq!(silences(&[(0, 1), (1, 1), (500, 1)], None), [], "the host was silent");
        // a probe after two RTTs, and at least 8 ms
        assert_eq!(silences(&[(0, 1), (1, 1), (41, 2)], Some(20)), [(1, 41)]);
        assert_eq!(silences(&[(0, 1), (1, 1), (40, 2)], Some(20)), []);
        assert_eq!(silences(&[(0, 1), (1, 1), (9, 2)], Some(1)), [(1, 9)]);
        assert_eq!(silences(&[(0, 1), (1, 1), (8, 2)], Some(1)), []);
        assert_eq!(silences(&[(0, 1), (1, 1), (191, 2)], Some(400)), [(1, 191)]);
    }

    #[test]
    fn a_host_that_numbers_the_packets_of_all_connections_shows_nothing() {
        let busy: Vec<_> = (0..40).map(|packet| (packet, if packet % 4 == 0 { 9 } else { 1 })).collect();
        assert_eq!(silences(&[&busy[..], &[(500, 7)]].concat(), None), []);
    }

    #[test]
    fn a_super_segment_has_several_numbers() {
        let mut silences = Silences::default();
        for (ms, steps, length) in [(0, 1, 0), (1, 1, 4344), (300, 3, 0), (301, 1, 4344), (600, 4, 0)] {
            silences.note(&packet(ms, steps, length), 1448, None);
        }
        assert_eq!(silences.spans().iter().map(|span| span.from_ns / MS).collect::<Vec<_>>(), [301]);
    }

    /// Packets of a host at these times in ms, with the offset and length of each, and what the other host acknowledges
    /// after it.
    fn held(packets: &[(i64, i64, u32, i64)]) -> Vec<(i64, i64)> {
        let mut silences = Silences::default();
        for &(ms, offset, length, acknowledged) in packets {
            let class = if length > 0 { SegmentClass::New } else { SegmentClass::Empty };
            let seen = Observation { offset, length, class, ..Observation::bare(ms * MS, 1) };
            silences.note(&seen, 1448, Some(20 * MS));
            silences.acknowledge(Some(acknowledged));
        }
        silences.spans().iter().map(|span| (span.from_ns / MS, span.to_ns / MS)).collect()
    }

    #[test]
    fn a_bare_ack_behind_bytes_that_never_passed_shows_a_hole_until_they_pass() {
        // an answer of 100 bytes; the ACK of a command behind two more, which a timer repeats
        assert_eq!(
            held(&[(0, 0, 100, 100), (10, 300, 0, 100), (250, 100, 100, 100), (251, 200, 100, 300)]),
            [(10, 251)]
        );
        assert_eq!(held(&[(0, 0, 100, 100), (10, 200, 0, 100), (60, 300, 0, 100), (250, 100, 200, 300)]), [(10, 250)]);
        // an answer that takes that long, after the ACK of its command
        assert_eq!(held(&[(0, 0, 100, 100), (10, 100, 0, 100), (250, 100, 100, 200)]), []);
        // an ACK that overtook its answer
        assert_eq!(held(&[(0, 0, 100, 100), (10, 200, 0, 100), (49, 100, 100, 200)]), []);
        assert_eq!(held(&[(0, 0, 100, 100), (10, 200, 0, 100), (50, 100, 100, 200)]), [(10, 50)]);
    }

    #[test]
    fn what_the_other_host_acknowledged_was_not_lost() {
        // the capture lacks the second answer
        assert_eq!(held(&[(0, 0, 100, 100), (10, 200, 0, 200), (250, 200, 100, 300)]), []);
        // a capture that begins late, and the end of a connection
        assert_eq!(held(&[(0, 5_000, 0, 0), (250, 5_000, 100, 5_100)]), []);
        let mut silences = Silences::default();
        silences.note(&Observation { flags: TcpFlags(0x11), ..Observation::bare(0, 1) }, 1448, None);
        silences.note(&Observation { offset: 1, ..Observation::bare(MS, 1) }, 1448, None);
        silences.note(&Observation { offset: 9_000, flags: TcpFlags(0x14), ..Observation::bare(MS, 1) }, 1448, None);
        assert!(silences.hole.is_none());
    }
}
