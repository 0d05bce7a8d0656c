//! One direction of a TCP connection: 64-bit stream offsets, RTT, and copies told from retransmissions.
//!
//! It keeps numbers and the last few packets, never payload (`reassembly` does).

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::hash::Hasher;

use iscsitrace_wire::frame::Segment;
use rustc_hash::FxHasher;

use super::reassembly::Reassembly;
use super::send_order::SendOrder;
use crate::stream::stamp::Stamp;
use crate::tables::NULL_NS;

/// A segment further than this from the stream does not belong to it: no window is larger (RFC 7323 section 2.3).
const WINDOW_MAX_BYTES: i64 = 1 << 30;
/// After so many segments outside in a row, the stream itself is elsewhere.
const OUTSIDE_IN_A_ROW_MAX: u32 = 8;
/// Maximum number of unacknowledged segments with an RTT sample in progress.
const RTT_SAMPLES_MAX: usize = 256;
/// Number of recent packets that are compared with a new one to recognise copies.
const RECENT_PACKETS: usize = 16;
/// Copies without an IP identification must follow each other within this time.
const COPY_WITHIN_NS: i64 = 1_000_000;
/// Copies with the same IP identification must follow each other within this time, because the identification wraps.
const COPY_SAME_IDENTIFICATION_WITHIN_NS: i64 = 1_000_000_000;
/// A hash of everything that identifies a packet, except hop limit and checksums.
#[inline]
fn fingerprint(segment: &Segment<'_>) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(u64::from(segment.sequence_number) << 32 | u64::from(segment.acknowledgment_number));
    hasher.write_u64(
        u64::from(segment.payload_length) << 40
            | u64::from(segment.window) << 24
            | u64::from(segment.flags.0) << 16
            | u64::from(segment.identification.unwrap_or(0)),
    );
    hasher.write(segment.options);
    hasher.finish()
}

/// One direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Half {
    /// Sequence number of stream offset 0.
    base: Option<u32>,
    /// The SYN's sequence number, or one less than the first seen: a SYN of a new connection differs from it.
    pub initial_sequence_number: Option<u32>,
    /// The stream.
    pub reassembly: Reassembly,
    /// Whether its SYN was captured: offset 0 is then the first byte of the stream.
    pub has_syn: bool,
    /// Offset of the FIN.
    pub fin_offset: Option<i64>,
    /// Its first FIN.
    pub fin: Option<Stamp>,
    /// Its first RST.
    pub rst: Option<Stamp>,
    /// The TTL, or hop limit, of that.
    pub rst_hop_limit: Option<u8>,
    /// The TTL, or hop limit, of its other packets.
    hop_limit: Option<u8>,
    /// Whether that changes: by another way, or in a gateway of several machines.
    has_hop_limits: bool,
    /// Capture time of its last packet; `NULL_NS` before the first.
    pub time_last_ns: i64,
    /// Capture time of its last packet with new payload; `NULL_NS` before the first.
    pub data_last_ns: i64,
    /// Whether it carried payload in packets that a router may fragment.
    pub may_be_fragmented: bool,
    /// Number of packets without copies.
    pub packets: u64,
    /// Distinct payload bytes that captured packets carried.
    pub captured_bytes: u64,
    /// Bytes among them that the snaplen cut off.
    pub cut_bytes: u64,
    /// Number of retransmissions.
    pub retransmitted_packets: u64,
    /// Payload bytes of the retransmissions.
    pub retransmitted_bytes: u64,
    /// SYNs, and FINs, that do not repeat bytes: each after the first is retransmitted.
    pub syns: u64,
    /// See `syns`.
    pub fins: u64,
    /// Number of reordered packets.
    pub reordered_packets: u64,
    /// The longest time by which one of them was late; `NULL_NS` before the first.
    pub reordered_late_max_ns: i64,
    /// Number of captured copies.
    pub copied_packets: u64,
    /// Maximum segment size announced by the sender.
    pub mss_bytes: Option<u16>,
    /// Window scale announced by the sender.
    pub window_scale: Option<u8>,
    /// SACK-permitted announced by the sender.
    pub is_sack_permitted: bool,
    /// Minimum time from bytes to the ACK that covers them; `NULL_NS` before the first sample.
    pub rtt_min_ns: i64,
    samples: VecDeque<(i64, i64)>,
    recent: [(u64, i64); RECENT_PACKETS],
    recent_next: usize,
    /// The order in which its packets were sent.
    pub order: SendOrder,
    outside_in_a_row: u32,
}

impl Half {
    /// A new direction.
    pub fn new() -> Self {
        Self {
            rtt_min_ns: NULL_NS,
            time_last_ns: NULL_NS,
            data_last_ns: NULL_NS,
            reordered_late_max_ns: NULL_NS,
            ..Self::default()
        }
    }

    /// Notes the TTL, or hop limit, of a packet without RST.
    #[inline]
    pub fn note_hop_limit(&mut self, hop_limit: u8) {
        self.has_hop_limits |= self.hop_limit.replace(hop_limit).is_some_and(|before| before != hop_limit);
    }

    /// The TTL, or hop limit, of all its packets without RST.
    pub fn hop_limit(&self) -> Option<u8> {
        self.hop_limit.filter(|_| !self.has_hop_limits)
    }

    /// Sets the sequence number of offset 0, if it is not known yet.
    pub fn set_base(&mut self, sequence_number: u32) {
        self.base.get_or_insert(sequence_number);
        self.initial_sequence_number.get_or_insert(sequence_number.wrapping_sub(1));
    }

    /// Begins the stream with these bytes, if they are its first captured ones, end where it began so far, and no SYN
    /// says where it begins: packets without payload, and ACKs of the peer, came before them in the capture. A single
    /// byte is that of a keep-alive (RFC 9293 section 3.8.4).
    #[inline]
    pub fn begin_before(&mut self, sequence_number: u32, length: u32) {
        let Some(base) = self.base.filter(|_| self.captured_bytes == 0 && length > 0) else { return };
        let before = base.wrapping_sub(sequence_number);
        if before > 1 && before <= length && self.reassembly.move_begin(i64::from(before)) {
            self.base = Some(sequence_number);
            self.initial_sequence_number = Some(sequence_number.wrapping_sub(1));
        }
    }

    /// The sequence number of offset 0, as far as it is known.
    pub fn base(&self) -> Option<u32> {
        self.base
    }

    /// Continues the stream elsewhere: the next byte has this sequence number.
    pub fn rebase(&mut self, sequence_number: u32) {
        self.base = Some(sequence_number.wrapping_sub(self.reassembly.highest() as u32));
        self.outside_in_a_row = 0;
        self.samples.clear();
    }

    /// Offset of a sequence number: the one nearest to the highest byte seen; none if it is too far away.
    #[inline]
    pub fn offset(&self, sequence_number: u32) -> Option<i64> {
        let base = self.base?;
        let highest = self.reassembly.highest();
        let distance = i64::from(sequence_number.wrapping_sub(base.wrapping_add(highest as u32)) as i32);
        (distance.abs() <= WINDOW_MAX_BYTES).then_some(highest + distance)
    }

    /// Notes a segment too far away. True after so many in a row that the stream must be there.
    pub fn note_outside(&mut self) -> bool {
        self.outside_in_a_row += 1;
        self.outside_in_a_row >= OUTSIDE_IN_A_ROW_MAX
    }

    /// Notes a segment that belongs to the stream.
    #[inline]
    pub fn note_inside(&mut self) {
        self.outside_in_a_row = 0;
    }

    /// Whether the packet is a captured copy: same headers and IP identification; without one, same TCP options and
    /// almost the same time.
    pub fn is_copy(&self, segment: &Segment<'_>, time_ns: i64) -> bool {
        let fingerprint = fingerprint(segment);
        self.recent.iter().any(|&(earlier, earlier_ns)| {
            let elapsed_ns = time_ns.saturating_sub(earlier_ns);
            earlier == fingerprint
                && match segment.identification {
                    Some(identification) if identification != 0 => elapsed_ns < COPY_SAME_IDENTIFICATION_WITHIN_NS,
                    _ => segment.payload_length > 0 && elapsed_ns < COPY_WITHIN_NS,
                }
        })
    }

    /// Whether a copy of a packet that was just captured has passed a router since: its TTL, or hop limit, is lower.
    pub fn is_routed(&self, copy: &Segment<'_>) -> bool {
        self.hop_limit.is_some_and(|hop_limit| copy.hop_limit < hop_limit)
    }

    /// Counts a packet and stores it for the recognition of copies.
    #[inline]
    pub fn remember(&mut self, segment: &Segment<'_>, time_ns: i64) {
        self.packets += 1;
        self.time_last_ns = self.time_last_ns.max(time_ns);
        self.recent[self.recent_next] = (fingerprint(segment), time_ns);
        self.recent_next = (self.recent_next + 1) % RECENT_PACKETS;
    }

    /// A retransmission makes the RTT samples in progress ambiguous (Karn's rule).
    pub fn end_samples(&mut self) {
        self.samples.clear();
    }

    /// Starts an RTT sample for bytes up to `end`.
    #[inline]
    pub fn sample(&mut self, end: i64, time_ns: i64) {
        if self.samples.len() < RTT_SAMPLES_MAX {
            self.samples.push_back((end, time_ns));
        }
    }

    /// Ends the samples that an ACK covers; the latest of them counts.
    #[inline]
    pub fn acknowledge_samples(&mut self, acknowledged: i64, time_ns: i64) {
        let mut latest = None;
        while let Some(&(end, sent_ns)) = self.samples.front()
            && end <= acknowledged
        {
            latest = Some(sent_ns);
            self.samples.pop_front();
        }
        if let Some(sent_ns) = latest {
            self.note_round_trip(time_ns.saturating_sub(sent_ns));
        }
    }

    /// Gives memory back that a stream under way needs.
    pub fn shrink(&mut self) {
        self.samples.shrink_to_fit();
        self.order.shrink();
    }

    /// Notes an RTT.
    pub fn note_round_trip(&mut self, round_trip_ns: i64) {
        if round_trip_ns >= 0 && (self.rtt_min_ns == NULL_NS || round_trip_ns < self.rtt_min_ns) {
            self.rtt_min_ns = round_trip_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retransmission_ends_the_rtt_samples_in_progress() {
        let mut half = Half::new();
        half.sample(1000, 30);
        half.end_samples();
        half.acknowledge_samples(1000, 100);
        assert_eq!(half.rtt_min_ns, NULL_NS);
    }

    #[test]
    fn an_rtt_is_of_the_latest_packet_that_an_ack_covers() {
        let mut half = Half::new();
        for (end, time_ns) in [(1000, 10), (2000, 20), (3000, 30)] {
            half.sample(end, time_ns);
        }
        half.acknowledge_samples(2999, 100);
        assert_eq!(half.rtt_min_ns, 80);
        // the least of 80 and 75
        half.acknowledge_samples(3000, 105);
        assert_eq!(half.rtt_min_ns, 75);
    }

    fn segment(identification: Option<u16>) -> Segment<'static> {
        crate::connection::test_segment::segment(identification, &[])
    }

    #[test]
    fn the_first_payload_begins_the_stream_if_it_ends_where_that_began() {
        let begun = |number: u32, length: u32, has_begin: bool, captured_bytes: u64| {
            let mut half = Half { captured_bytes, ..Half::new() };
            half.set_base(100);
            if has_begin {
                half.reassembly.note_begin();
            }
            half.begin_before(number, length);
            half.offset(100)
        };
        assert_eq!(begun(52, 48, false, 0), Some(48));
        assert_eq!(begun(52, 90, false, 0), Some(48));
        // it begins there, it ends before that, it is a keep-alive, it is not the first, a SYN says where the begin is
        for (number, length, has_begin, captured_bytes) in
            [(100, 48, false, 0), (52, 47, false, 0), (99, 1, false, 0), (52, 48, false, 1), (52, 48, true, 0)]
        {
            assert_eq!(begun(number, length, has_begin, captured_bytes), Some(0));
        }
    }

    #[test]
    fn a_sequence_number_within_the_largest_window_has_an_offset() {
        let mut half = Half::new();
        assert_eq!(half.offset(0), None);
        half.set_base(5);
        const MAX: u32 = WINDOW_MAX_BYTES as u32;
        assert_eq!(
            [5, 4, 5 + MAX, 6 + MAX].map(|number| half.offset(number)),
            [Some(0), Some(-1), Some(WINDOW_MAX_BYTES), None]
        );
        let back = 5_u32.wrapping_sub(MAX);
        assert_eq!([back, back.wrapping_sub(1)].map(|number| half.offset(number)), [Some(-WINDOW_MAX_BYTES), None]);
        assert_eq!(half.initial_sequence_number, Some(4));
        // the first base stays, until the stream continues elsewhere
        half.set_base(900);
        assert_eq!(half.offset(6), Some(1));
        half.rebase(900);
        assert_eq!(half.offset(901), Some(1));
    }

    #[test]
    fn sixteen_packets_are_compared_with_a_new_one() {
        let number = |number: u16| segment(Some(number));
        let mut half = Half::new();
        (1..=16).for_each(|sent| half.remember(&number(sent), 0));
        assert!(half.is_copy(&number(1), 1) && half.is_copy(&number(16), 1));
        half.remember(&number(17), 0);
        assert!(!half.is_copy(&number(1), 1) && half.is_copy(&number(2), 1));
        assert_eq!(half.packets, 17);
    }

    #[test]
    fn eight_packets_outside_in_a_row_are_enough() {
        let mut half = Half::new();
        assert!((0..7).all(|_| !half.note_outside()));
        assert!(half.note_outside());
        half.note_inside();
        assert!(!half.note_outside());
    }

    #[test]
    fn a_copy_follows_immediately_or_has_the_same_identification() {
        for (number, within_ns) in [(None, 1_000_000), (Some(0), 1_000_000), (Some(7), 1_000_000_000)] {
            let mut half = Half::new();
            half.remember(&segment(number), 0);
            assert!(half.is_copy(&segment(number), within_ns - 1), "{number:?}");
            assert!(!half.is_copy(&segment(number), within_ns), "{number:?}");
        }
        let mut half = Half::new();
        half.remember(&segment(Some(7)), 0);
        assert!(!half.is_copy(&segment(Some(8)), 1));
        // a bare ACK without a number may be meant twice
        let ack = Segment { payload: &[], payload_length: 0, ..segment(None) };
        half.remember(&ack, 0);
        assert!(!half.is_copy(&ack, 1));
    }
}
