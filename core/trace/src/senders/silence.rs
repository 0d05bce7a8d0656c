//! Silences of a host in which it sent packets that never passed the tap: the numbers of its packets show them. They were
//! lost before the tap, and what ends the silence was sent by a timer, or answers one of the other side.

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
    /// Packets that follow the one before, and those with others in between.
    alone: u32,
    others: u32,
    spans: Vec<Silence>,
}

impl Silences {
    /// Notes a packet of any kind, with the payload of a full segment and the RTT between both hosts.
    #[inline]
    pub fn note(&mut self, seen: &Observation, segment: i64, rtt_ns: Option<i64>) {
        let segments = (i64::from(seen.length) - 1).max(0) / segment.max(1) + 1;
        let segments = u16::try_from(segments).unwrap_or(u16::MAX);
        let Some((from_ns, before)) = self.last.replace((seen.time_ns, segments)) else { return };
        let Some(steps) = seen.steps else { return };
        if steps <= before {
            self.alone = self.alone.saturating_add(1);
            return;
        }
        let probe_ns = rtt_ns.map_or(TIMER_MIN_NS, |rtt_ns| PROBE_MIN_NS.max(rtt_ns.saturating_mul(2)));
        let is_silence = seen.time_ns.saturating_sub(from_ns) >= probe_ns.min(TIMER_MIN_NS);
        if is_silence && self.alone / ALONE_PER_OTHER >= self.others {
            self.spans.push(Silence { from_ns, to_ns: seen.time_ns, frame: seen.frame });
        }
        self.others = self.others.saturating_add(1);
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
    use super::*;

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
}
