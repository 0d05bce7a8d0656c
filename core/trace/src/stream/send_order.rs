//! Which of two packets a sender sent first, by what it numbers them with: their IP identification, else their TCP
//! timestamp.
//!
//! A hole in the stream begins with the first packet beyond it, its opener. Bytes of the hole that were sent after the
//! opener are retransmissions; those that were sent before it were overtaken. The openers are found among the latest packets
//! that each brought the highest byte so far, so that a hole that is split keeps its own.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use iscsitrace_wire::frame::{Segment, tcp_options};
use iscsitrace_wire::serial::SerialNumber;

use super::near::{Near, lower};

/// Packets that are kept: more than overtake a packet. Of what was sent before all of them, the oldest is the opener.
const KEPT_MAX: usize = 64;
/// A sender that numbers its packets in turn is never further from one of a connection to the next: segments of a
/// super-segment and packets to other hosts come between.
const STEP_MAX: u16 = 1024;
/// Identifications count after so many steps,
const STEPS_MIN: u32 = 2;
/// if at most one of so many was none.
const STEPS_PER_JUMP: u32 = 16;
/// Without numbers, a hole filled within this time was reordering (as in Wireshark).
const REORDERED_WITHIN_NS: i64 = 3_000_000;

/// When a packet was sent, compared with the opener of the hole that its bytes are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sent {
    /// Before it, or as the same packet.
    Before,
    /// After it.
    After,
    /// The packets do not tell.
    Unknown,
}

/// Flat and packed, because a connection keeps up to 64 of these in each direction.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[repr(Rust, packed(4))]
struct Packet {
    time_ns: i64,
    end: u32,
    /// 0 without timestamps.
    timestamp: u32,
    identification: u16,
    has_timestamp: bool,
}

/// The latest packets of one direction that brought the highest byte.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct SendOrder {
    packets: VecDeque<Packet>,
    near: Near,
    /// Identifications that followed the one before, and those that did not.
    steps: u32,
    jumps: u32,
    /// That of the latest packet of any kind, and its steps since the one before.
    latest: Option<u16>,
    since: Option<u16>,
}

impl SendOrder {
    /// Notes a packet whose payload ends at `end`, beyond all others.
    #[inline]
    pub fn note(&mut self, segment: &Segment<'_>, end: i64, time_ns: i64) {
        let identification = segment.identification.unwrap_or(0);
        if let Some(last) = self.packets.back() {
            let step = identification.wrapping_sub(last.identification);
            if identification != 0 && step != 0 && step <= STEP_MAX {
                self.steps = self.steps.saturating_add(1);
            } else {
                self.jumps = self.jumps.saturating_add(1);
            }
        }
        if self.packets.len() >= KEPT_MAX {
            self.packets.pop_front();
        }
        if let Some(moved) = self.near.reach(end) {
            self.packets.retain_mut(|packet| {
                let mut end = packet.end;
                let is_near = lower(&mut end, moved);
                packet.end = end;
                is_near
            });
        }
        let timestamp = timestamp(segment.options);
        let packet = Packet {
            end: self.near.of(end),
            time_ns,
            timestamp: timestamp.unwrap_or_default(),
            identification,
            has_timestamp: timestamp.is_some(),
        };
        self.packets.push_back(packet);
    }

    /// Gives memory back that a stream under way needs.
    pub fn shrink(&mut self) {
        self.packets.shrink_to_fit();
    }

    /// Prefetches its last packet.
    pub fn prefetch(&self) {
        iscsitrace_sys::prefetch_ends(&self.packets);
    }

    /// Notes a packet of any kind.
    #[inline]
    pub fn step(&mut self, segment: &Segment<'_>) {
        let before = std::mem::replace(&mut self.latest, segment.identification);
        self.since = before.zip(segment.identification).map(|(before, now)| now.wrapping_sub(before));
    }

    /// The steps of the identification between the latest two packets; none where they are not numbered in turn.
    pub fn steps(&self) -> Option<u16> {
        self.since.filter(|_| self.are_in_turn())
    }

    /// When a packet from `offset` on was sent, by the numbers of the packets alone.
    pub fn of(&self, segment: &Segment<'_>, offset: i64) -> Sent {
        let Some(opener) = self.opener(offset) else { return Sent::Unknown };
        if let Some(identification) = segment.identification.filter(|&number| number != 0 && self.are_in_turn()) {
            let is_after = identification.wrapping_sub(opener.identification) as i16 > 0;
            return if is_after { Sent::After } else { Sent::Before };
        }
        let opened = opener.has_timestamp.then_some(opener.timestamp);
        match opened.zip(timestamp(segment.options)) {
            Some((opened, own)) if own != opened => {
                if SerialNumber(own).is_after(SerialNumber(opened)) {
                    Sent::After
                } else {
                    Sent::Before
                }
            }
            _ => Sent::Unknown,
        }
    }

    /// Whether a packet that fills a hole was sent after its opener. Where the numbers do not tell, it came no sooner
    /// than a retransmission could.
    pub fn is_filled_again(
        &self,
        segment: &Segment<'_>,
        offset: i64,
        time_ns: i64,
        round_trip_ns: Option<i64>,
    ) -> bool {
        match self.of(segment, offset) {
            Sent::Before => false,
            Sent::After => true,
            Sent::Unknown => self.opener(offset).is_none_or(|opener| {
                time_ns.saturating_sub(opener.time_ns) >= round_trip_ns.unwrap_or(REORDERED_WITHIN_NS)
            }),
        }
    }

    /// The earliest kept packet that ends beyond an offset.
    fn opener(&self, offset: i64) -> Option<&Packet> {
        let offset = self.near.of(offset);
        let place = self.packets.partition_point(|packet| packet.end <= offset);
        self.packets.get(place)
    }

    /// Whether the sender numbers the packets of its connections in turn: some count, some draw, some write 0.
    fn are_in_turn(&self) -> bool {
        self.steps >= STEPS_MIN && self.steps / STEPS_PER_JUMP >= self.jumps
    }
}

/// The timestamp value of a segment; looks at the usual layout first.
#[inline]
fn timestamp(options: &[u8]) -> Option<u32> {
    match options {
        [1, 1, 8, 10, a, b, c, d, ..] => Some(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => tcp_options(options).timestamps.map(|(value, _)| value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::test_segment::segment;

    /// Packets of 10 bytes, one a millisecond, with these identifications.
    fn numbered(identifications: impl IntoIterator<Item = u16>) -> SendOrder {
        let mut order = SendOrder::default();
        for (packet, number) in (1..).zip(identifications) {
            order.note(&segment(Some(number), &[]), packet * 10, packet * 1_000_000);
        }
        order
    }

    fn of(order: &SendOrder, number: u16, offset: i64) -> Sent {
        order.of(&segment(Some(number), &[]), offset)
    }

    #[test]
    fn each_hole_has_its_own_opener() {
        // 12 and 15 are missing: they carried [20, 30) and [50, 60)
        let mut order = SendOrder::default();
        for (end, number) in [(10, 10), (20, 11), (40, 13), (50, 14), (70, 16), (80, 17)] {
            order.note(&segment(Some(number), &[]), end, 0);
        }
        assert_eq!(
            (of(&order, 12, 20), of(&order, 14, 20), of(&order, 18, 20)),
            (Sent::Before, Sent::After, Sent::After)
        );
        assert_eq!(
            (of(&order, 15, 50), of(&order, 17, 50), of(&order, 18, 50)),
            (Sent::Before, Sent::After, Sent::After)
        );
        // the same packet again
        assert_eq!(of(&order, 13, 30), Sent::Before);
        // nothing was sent beyond
        assert_eq!(of(&order, 18, 80), Sent::Unknown);
    }

    #[test]
    fn identifications_wrap() {
        let order = numbered([65_532, 65_533, 65_534, 65_535, 1, 2]);
        assert_eq!((of(&order, 65_535, 40), of(&order, 3, 40)), (Sent::Before, Sent::After));
    }

    #[test]
    fn identifications_count_only_if_they_are_in_turn() {
        assert_eq!(of(&numbered([1, 2]), 9, 0), Sent::Unknown, "one step");
        assert_eq!(of(&numbered([1, 2, 3]), 9, 0), Sent::After);
        // the largest step, and one more
        assert_eq!(of(&numbered((0..6).map(|packet| 1 + packet * STEP_MAX)), 9, 40), Sent::Before);
        assert_eq!(of(&numbered((0..6).map(|packet| 1 + packet * (STEP_MAX + 1))), 9, 40), Sent::Unknown);
        // zeros, and the same number for all
        assert_eq!(of(&numbered([0; 8]), 9, 0), Sent::Unknown);
        assert_eq!(of(&numbered([7; 8]), 9, 0), Sent::Unknown);
        // one jump needs sixteen steps
        let with_jump = |steps: u16| numbered((0..=steps).chain([40_000]));
        assert_eq!(of(&with_jump(15), 9, 0), Sent::Unknown);
        assert_eq!(of(&with_jump(16), 9, 0), Sent::After);
        // a packet without a number says nothing
        assert_eq!(of(&numbered([1, 2, 3, 4, 5]), 0, 0), Sent::Unknown);
    }

    #[test]
    fn timestamps_tell_without_identifications() {
        let options = |value: u8| [1, 1, 8, 10, 0, 0, 0, value, 0, 0, 0, 0];
        // another layout: no padding before
        let bare = |value: u8| [8, 10, 0, 0, 0, value, 0, 0, 0, 0, 1, 1];
        let mut order = SendOrder::default();
        order.note(&segment(None, &options(10)), 10, 0);
        order.note(&segment(None, &bare(20)), 30, 0);
        let sent = |value| order.of(&segment(None, &options(value)), 10);
        assert_eq!((sent(19), sent(20), sent(21)), (Sent::Before, Sent::Unknown, Sent::After));
        assert_eq!(order.of(&segment(None, &[]), 10), Sent::Unknown);
    }

    #[test]
    fn without_numbers_a_retransmission_takes_a_round_trip() {
        let mut order = SendOrder::default();
        order.note(&segment(None, &[]), 30, 1_000_000);
        let is_again = |time_ns, rtt_ns| order.is_filled_again(&segment(None, &[]), 10, time_ns, rtt_ns);
        assert_eq!([3_999_999, 4_000_000].map(|time_ns| is_again(time_ns, None)), [false, true]);
        assert_eq!([10_999_999, 11_000_000].map(|time_ns| is_again(time_ns, Some(10_000_000))), [false, true]);
        assert!(SendOrder::default().is_filled_again(&segment(None, &[]), 10, 0, None), "nothing came before");
        // numbers go before time
        let order = numbered(1..=5);
        let is_again = |number| order.is_filled_again(&segment(Some(number), &[]), 10, i64::MAX, None);
        assert_eq!([2, 3].map(is_again), [false, true]);
    }

    #[test]
    fn of_what_was_sent_before_all_kept_packets_the_oldest_is_the_opener() {
        let order = numbered(1..=100);
        // packets 37 to 100 are kept
        assert_eq!(
            (of(&order, 37, 0), of(&order, 38, 0), of(&order, 101, 0)),
            (Sent::Before, Sent::After, Sent::After)
        );
    }
}
