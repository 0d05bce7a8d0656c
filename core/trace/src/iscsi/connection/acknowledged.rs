//! What the other side of a connection had acknowledged, and when: ExpCmdSN acknowledges commands, ExpStatSN statuses.
//!
//! What was acknowledged before a packet passed the tap is not in that packet for the first time.

use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

use crate::iscsi::ranges::NEAR;

/// The latest numbers that are kept. Behind a hole packets are read later than they passed.
const KEPT: usize = 8;

/// What one side acknowledged.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Acknowledged {
    /// When the other side said first that all below a number had arrived: a ring, the oldest at `next`.
    said: [Option<(i64, SerialNumber)>; KEPT],
    next: usize,
    /// How long before a packet its number was acknowledged, at most, where there is no doubt of its header: the queues of a
    /// network card, or two taps, are not in step.
    lead_ns: i64,
}

impl Acknowledged {
    /// All below this number had arrived.
    #[inline]
    pub(super) fn note(&mut self, until: SerialNumber, time_ns: i64) {
        let last = (self.next + KEPT - 1) % KEPT;
        if self.said[last].is_none_or(|(_, said)| until.is_after(said)) {
            self.said[self.next] = Some((time_ns, until));
            self.next = (self.next + 1) % KEPT;
        }
    }

    /// How long before this time a number was acknowledged, if it was.
    fn before(&self, number: SerialNumber, time_ns: i64) -> Option<i64> {
        // some initiators do not maintain ExpStatSN
        let said = self.said.iter().flatten().filter(|(_, until)| (1..NEAR).contains(&until.distance(number)));
        said.map(|&(said_ns, _)| time_ns.saturating_sub(said_ns)).max().filter(|&ago_ns| ago_ns > 0)
    }

    /// A header with this number was read, where no doubt of it is possible.
    #[inline]
    pub(super) fn take(&mut self, number: SerialNumber, time_ns: i64) {
        if let Some(ago_ns) = self.before(number, time_ns) {
            self.lead_ns = self.lead_ns.max(ago_ns);
        }
    }

    /// Whether a number was acknowledged before a packet of this time.
    pub(super) fn has(&self, number: SerialNumber, time_ns: i64) -> bool {
        self.before(number, time_ns).is_some_and(|ago_ns| ago_ns > self.lead_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_before_a_time_is_known_for_the_latest_numbers() {
        let mut acknowledged = Acknowledged::default();
        (1..=KEPT as u32 + 1).for_each(|number| acknowledged.note(SerialNumber(number), 1000 * i64::from(number)));
        // the oldest of those that are kept is 2, said at 2000
        let has = |number, time_ns| acknowledged.has(SerialNumber(number), time_ns);
        assert_eq!([2000, 2001].map(|time_ns| has(1, time_ns)), [false, true]);
        assert_eq!([2000, 2001].map(|time_ns| has(0, time_ns)), [false, true]);
        assert_eq!([9000, 9001].map(|time_ns| has(8, time_ns)), [false, true]);
        assert!(!has(9, i64::MAX));
        // numbers far off are of an initiator that does not maintain them
        let far = 2u32.wrapping_sub(NEAR as u32);
        assert!(has(far + 1, i64::MAX) && !has(far, i64::MAX));
        // the same number again was said before
        acknowledged.note(SerialNumber(9), 20_000);
        assert!(acknowledged.has(SerialNumber(8), 9001));
    }

    #[test]
    fn packets_out_of_step_show_how_far() {
        let mut acknowledged = Acknowledged::default();
        acknowledged.note(SerialNumber(8), 1000);
        // this one was read in its place 500 ns after it was acknowledged
        acknowledged.take(SerialNumber(7), 1500);
        acknowledged.take(SerialNumber(7), 1200);
        assert_eq!([1500, 1501].map(|time_ns| acknowledged.has(SerialNumber(7), time_ns)), [false, true]);
    }
}
