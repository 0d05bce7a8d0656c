//! One direction of a pair of connections: its packets at the sender's tap and at the receiver's, matched by bytes.
//!
//! Offload cuts segments anew, so ranges of bytes are matched, not packets: a row is what one packet of each tap has in
//! common, and its time at a tap is that of the packet that carried it. Copies of the same bytes are told apart by
//! `evidence`, what one tap alone saw is judged by `verdict`.

mod acknowledgments;

use iscsitrace_wire::serial::SerialNumber;

use super::copies::{Latest, fingerprint};
use super::evidence::Evidence;
use super::header::Header;
use super::output::{Matched, Output};
use super::passage::{Passage, Place, Waiting};
use super::skipped::Skips;
use super::stream::{RECEIVER, SENDER, Stream};
use super::verdict::{self, Verdict};

/// Passages of one list that wait for the other tap.
const WAITING_MAX: usize = 1 << 16;
/// Packets of a tap in which a second copy is looked for: as many as a network card hands over at once (NAPI).
const COPIES_AMONG: usize = 64;
/// A second copy in a capture follows within this time,
const COPY_WITHIN_NS: i64 = 1_000_000;
/// or within this time when it has the same identification.
const COPY_SAME_IDENTIFICATION_WITHIN_NS: i64 = 1_000_000_000;
/// Matched packets of the sender that are remembered: a duplicate comes later by fewer packets.
const REMEMBERED: usize = 256;
/// Skipped packets are judged so much later than others: by then those that the receiver's tap alone saw are known.
const SKIPS_LATER_NS: i64 = 1_000_000_000;
/// A receiver acknowledges within this time (RFC 9293, section 3.8.6.3).
const ACKNOWLEDGED_WITHIN_NS: i64 = 500_000_000;

/// Counts of one direction; the table `paths` names them.
#[derive(Debug, Default, Clone)]
pub(super) struct Counts {
    pub(super) packets: [u64; 2],
    pub(super) copies: [u64; 2],
    pub(super) matched: u64,
    /// By verdict.
    pub(super) unmatched: [u64; 5],
    /// Of these, without bytes.
    pub(super) unmatched_empty: [u64; 5],
    pub(super) outside: u64,
    pub(super) duplicated: u64,
    pub(super) reordered: u64,
    pub(super) dscp_changed: u64,
    pub(super) ce_marked: u64,
    pub(super) mss_bytes: [Option<u16>; 2],
    pub(super) window_scale: [Option<u8>; 2],
    /// Packets by difference of their TTLs.
    pub(super) hops: [u32; 32],
    /// Least and greatest time at the receiver's tap less time at the sender's.
    pub(super) transit_ns: Option<(i64, i64)>,
}

/// One direction of a pair.
#[derive(Debug)]
pub(super) struct Direction {
    pub(super) pair: u32,
    /// Tap of the sender: 0 for a.
    pub(super) sender: usize,
    pub(super) counts: Counts,
    stream: Stream,
    /// Highest offset of a byte at each tap.
    highest_at: [i64; 2],
    serials: [u64; 2],
    latest: [Latest<COPIES_AMONG>; 2],
    data: [Waiting; 2],
    empty: [Waiting; 2],
    /// Packets of the sender that both taps have seen.
    remembered: Latest<REMEMBERED>,
    pub(super) evidence: Evidence,
    /// Offset up to which the receiver acknowledged, as each tap shows it.
    acknowledged: [i64; 2],
    /// When the ACK at the receiver's tap advanced last.
    advanced_ns: i64,
    /// Time and offset of the latest ACK at the receiver's tap.
    latest_ack: Option<(i64, i64)>,
    has_sack: bool,
    /// Highest offset that the receiver reported beyond bytes that it lacked.
    reported: i64,
    /// The latest TSval at the receiver's tap.
    latest_timestamp: Option<u32>,
    /// The latest TSecr of the receiver.
    latest_echo: Option<u32>,
    /// Of the matched packet that was sent last.
    furthest: (u64, i64),
    /// Its time, and by how much a packet that both taps saw was sent before the furthest by then: the extent of reordering.
    furthest_ns: i64,
    overtaken_ns: i64,
    skips: Skips,
    pieces: Vec<Passage>,
}

impl Direction {
    pub(super) fn new(pair: u32, sender: usize) -> Self {
        Self {
            pair,
            sender,
            counts: Counts::default(),
            stream: Stream::default(),
            highest_at: [i64::MIN; 2],
            serials: [0; 2],
            latest: Default::default(),
            data: Default::default(),
            empty: Default::default(),
            remembered: Latest::default(),
            evidence: Evidence::default(),
            acknowledged: [i64::MIN; 2],
            advanced_ns: i64::MIN,
            latest_ack: None,
            has_sack: false,
            reported: i64::MIN,
            latest_timestamp: None,
            latest_echo: None,
            furthest: (0, i64::MIN),
            furthest_ns: i64::MIN,
            overtaken_ns: 0,
            skips: Skips::default(),
            pieces: Vec::new(),
        }
    }

    pub(super) fn to_target(&self) -> bool {
        self.sender == 0
    }

    /// Index of a tap in the arrays of this direction.
    #[inline]
    pub(super) fn side(&self, tap: usize) -> usize {
        usize::from(tap != self.sender)
    }

    /// A packet of this direction at one side; `acknowledged` is its acknowledgment in the opposite stream.
    #[inline]
    pub(super) fn see(&mut self, side: usize, header: &Header, acknowledged: Option<i64>, output: &mut Output) {
        let flags = header.flags;
        if flags.is_syn() {
            self.stream.synchronize(side, header.sequence_number);
            self.counts.mss_bytes[side] = header.maximum_segment_size;
            self.counts.window_scale[side] = header.window_scale;
            self.has_sack |= header.settles_sack();
        }
        let Some(packet_start) = self.stream.offset(side, header.sequence_number) else {
            return self.stream.note_outside(header.sequence_number);
        };
        let length = header.sequence_length();
        let packet_end = packet_start + length;
        let empty_start = acknowledged.unwrap_or(i64::MAX - 1);
        let (start, end) = if length > 0 { (packet_start, packet_end) } else { (empty_start, empty_start) };
        let passage = Passage {
            start,
            end,
            packet_start,
            packet_end,
            time_ns: header.time_ns,
            frame: header.frame,
            serial: self.serials[side],
            sequence_number: header.sequence_number,
            timestamps: header.timestamps,
            window: header.window,
            identification: header.identification,
            flags: flags.0,
            hop_limit: header.hop_limit,
            traffic_class: header.traffic_class,
            fingerprint: fingerprint((packet_start, if length > 0 { packet_end } else { empty_start }), header),
            fate: Default::default(),
        };
        if self.is_copy(side, &passage) || (side == SENDER && self.is_sent_twice(&passage)) {
            self.counts.copies[side] += 1;
            return;
        }
        if side == RECEIVER
            && let Some((timestamp, _)) = header.timestamps
        {
            let is_older = |latest: u32| SerialNumber(latest).is_after(SerialNumber(timestamp));
            self.latest_timestamp = Some(self.latest_timestamp.filter(|&latest| is_older(latest)).unwrap_or(timestamp));
        }
        self.serials[side] += 1;
        self.counts.packets[side] += 1;
        if side == SENDER {
            let is_new = length > 0 && packet_end > self.highest_at[SENDER];
            self.skips.sent(&passage, is_new, self.segment_bytes());
        }
        if length > 0 {
            self.data(side, passage, output);
            self.stream.reach(packet_end);
            self.highest_at[side] = self.highest_at[side].max(packet_end);
        } else {
            self.empty(side, passage, acknowledged.is_some(), output);
        }
    }

    /// Whether the capture holds the packet twice, as that of the `any` device does.
    #[inline]
    fn is_copy(&mut self, side: usize, passage: &Passage) -> bool {
        let earlier_ns = self.latest[side].time_of(passage.fingerprint);
        let is_copy = earlier_ns.is_some_and(|earlier_ns| {
            let elapsed_ns = passage.time_ns.saturating_sub(earlier_ns);
            if passage.identification != 0 {
                elapsed_ns < COPY_SAME_IDENTIFICATION_WITHIN_NS
            } else {
                passage.start < passage.end && elapsed_ns < COPY_WITHIN_NS
            }
        });
        if !is_copy {
            self.latest[side].push(passage.fingerprint, passage.time_ns);
        }
        is_copy
    }

    /// Whether it is a second copy at the sender's tap, behind more packets than `latest` holds: a retransmission has another
    /// identification.
    #[inline]
    fn is_sent_twice(&self, passage: &Passage) -> bool {
        let Passage { start, end, identification, fingerprint, .. } = *passage;
        start < end
            && identification != 0
            && start < self.highest_at[SENDER]
            && (self.remembered.time_of(fingerprint).is_some()
                || self.data[SENDER].overlapping(start, end).any(|(_, each)| each.fingerprint == fingerprint))
    }

    fn data(&mut self, side: usize, mut passage: Passage, output: &mut Output) {
        let (packet_start, packet_end) = (passage.start, passage.end);
        if side == SENDER && packet_start < self.highest_at[SENDER] {
            passage.fate.is_repeat = true;
            // by the clocks of both taps: what was acknowledged before the fastest packet would have arrived
            let least_ns = self.counts.transit_ns.map_or(i64::MIN, |(least, _)| least);
            passage.fate.is_needless = packet_end <= self.acknowledged[RECEIVER]
                && self.advanced_ns < passage.time_ns.saturating_add(least_ns);
            let is_open = |each: &Passage| !each.fate.is_acknowledged;
            self.data[SENDER].mark(packet_start, packet_end, is_open, |fate| fate.is_resent = true);
        }
        let mut latest_match = None;
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.push(passage);
        while let Some(piece) = pieces.pop() {
            match self.counterpart(side, &piece) {
                Some((place, from, to)) => {
                    if to < piece.end {
                        pieces.push(Passage { start: to, ..piece });
                    }
                    if piece.start < from {
                        pieces.push(Passage { end: from, ..piece });
                    }
                    let Some(other) = self.data[1 - side].take(place, from, to) else { continue };
                    latest_match = latest_match.max(Some(if side == SENDER { passage.serial } else { other.serial }));
                    let (sent, received) = if side == SENDER { (&passage, &other) } else { (&other, &passage) };
                    self.matched(sent, received, from, to, output);
                }
                None => self.unmatched(side, piece, output),
            }
        }
        self.pieces = pieces;
        if side == RECEIVER && self.data[SENDER].len() > 0 {
            let acknowledged = self.acknowledged[RECEIVER];
            let is_older =
                |each: &Passage| !each.fate.is_acknowledged && latest_match.is_none_or(|serial| each.serial < serial);
            // a split passage keeps its awaited byte in its first part only
            let is_needless = packet_end <= acknowledged;
            self.data[SENDER].mark(packet_start, packet_end, is_older, |fate| {
                fate.refills = fate.refills.saturating_add(1);
                fate.needless_refills = fate.needless_refills.saturating_add(u8::from(is_needless));
                fate.is_awaited |= acknowledged >= packet_start && acknowledged < packet_end;
            });
        }
    }

    /// The best counterpart of a part of a packet at the other side, and the bytes that they have in common.
    #[inline]
    fn counterpart(&self, side: usize, piece: &Passage) -> Option<(Place, i64, i64)> {
        if let Some(next) = self.data[1 - side].next_if(piece.start, piece.end) {
            let (sent, received) = if side == SENDER { (piece, next) } else { (next, piece) };
            return self.evidence.distance(sent, received).map(|_| (Place::Ahead(0), piece.start, piece.end));
        }
        let mut best: Option<((u8, u64), Place, i64, i64)> = None;
        for (place, other) in self.data[1 - side].overlapping(piece.start, piece.end) {
            let (sent, received) = if side == SENDER { (piece, other) } else { (other, piece) };
            if let Some(distance) = self.evidence.distance(sent, received)
                && best.is_none_or(|(least, ..)| distance < least)
            {
                best = Some((distance, place, other.start.max(piece.start), other.end.min(piece.end)));
            }
        }
        best.map(|(_, place, from, to)| (place, from, to))
    }

    /// Part of a packet that the other tap has not seen, yet or at all.
    fn unmatched(&mut self, side: usize, mut piece: Passage, output: &mut Output) {
        if side == RECEIVER {
            if self.is_duplicate(&piece) {
                self.counts.duplicated += 1;
                return;
            }
            // the sender's tap shows a skip with its next packet: it may come only now, or when this one is judged
            self.skips.received(&piece, self.segment_bytes());
        } else if piece.end <= self.acknowledged[RECEIVER] && !piece.fate.is_repeat {
            // the receiver's tap was read first: another copy may have passed there by now
            let refills = self.data[RECEIVER].overlapping(piece.start, piece.end).count();
            piece.fate.refills = refills.min(usize::from(u8::MAX)) as u8;
            piece.fate.is_acknowledged = refills == 0;
            piece.fate.is_overtaken = piece.end < self.reported;
        }
        self.data[side].push(piece);
        if self.data[side].len() > WAITING_MAX
            && let Some(oldest) = self.data[side].pop()
        {
            self.drop_waiting(side, &oldest, output);
        }
    }

    fn drop_waiting(&mut self, side: usize, passage: &Passage, output: &mut Output) {
        output.waiting_dropped += 1;
        self.settle(side, passage, Verdict::CannotTell, output);
    }

    /// Whether it is a second copy of a packet that both taps have seen: a retransmission would differ.
    fn is_duplicate(&self, passage: &Passage) -> bool {
        (passage.timestamps.is_some() || passage.identification != 0)
            && self.remembered.time_of(passage.fingerprint).is_some()
    }

    /// A packet without bytes.
    fn empty(&mut self, side: usize, passage: Passage, is_ack: bool, output: &mut Output) {
        let mut best: Option<((u8, u64), Place)> = None;
        for (place, other) in self.empty[1 - side].at(passage.start) {
            if other.packet_start != passage.packet_start || other.flags != passage.flags {
                continue;
            }
            let (sent, received) = if side == SENDER { (&passage, other) } else { (other, &passage) };
            if let Some(distance) = self.evidence.distance(sent, received)
                && best.is_none_or(|(least, _)| distance < least)
            {
                best = Some((distance, place));
            }
        }
        let other = best.and_then(|(_, place)| self.empty[1 - side].take(place, passage.start, passage.end));
        match other {
            Some(other) => {
                let (sent, received) = if side == SENDER { (&passage, &other) } else { (&other, &passage) };
                self.matched(sent, received, passage.start, passage.end, output);
            }
            None if side == RECEIVER && self.is_duplicate(&passage) => self.counts.duplicated += 1,
            None => {
                if side == RECEIVER {
                    self.skips.received(&passage, self.segment_bytes());
                }
                if is_ack {
                    self.empty[side].push(passage);
                } else {
                    self.empty[side].stray(passage);
                }
                if self.empty[side].len() > WAITING_MAX
                    && let Some(oldest) = self.empty[side].pop()
                {
                    self.drop_waiting(side, &oldest, output);
                }
            }
        }
    }

    /// Bytes, or an empty packet, that both taps have seen.
    #[inline]
    fn matched(&mut self, sent: &Passage, received: &Passage, from: i64, to: i64, output: &mut Output) {
        self.evidence.note(sent, received);
        let counts = &mut self.counts;
        counts.matched += 1;
        let transit_ns = received.time_ns.saturating_sub(sent.time_ns);
        let (least, greatest) = counts.transit_ns.unwrap_or((transit_ns, transit_ns));
        counts.transit_ns = Some((least.min(transit_ns), greatest.max(transit_ns)));
        let is_empty = from == to;
        if is_empty || from == received.packet_start {
            counts.dscp_changed += u64::from(sent.traffic_class >> 2 != received.traffic_class >> 2);
            counts.ce_marked += u64::from(sent.traffic_class & 3 != 3 && received.traffic_class & 3 == 3);
            let hops = usize::from(sent.hop_limit.saturating_sub(received.hop_limit));
            if let Some(packets) = counts.hops.get_mut(hops) {
                *packets += 1;
            }
            let place = (sent.serial, if is_empty { i64::MIN } else { from });
            counts.reordered += u64::from(place < self.furthest);
            self.furthest = self.furthest.max(place);
            self.furthest_ns = self.furthest_ns.max(sent.time_ns);
            self.overtaken_ns = self.overtaken_ns.max(self.furthest_ns.saturating_sub(sent.time_ns));
        }
        if is_empty || to == sent.packet_end {
            self.remembered.push(sent.fingerprint, sent.time_ns);
        }
        let bytes =
            if (sent.flags | received.flags) & 2 != 0 { 0 } else { u32::try_from(to - from).unwrap_or(u32::MAX) };
        output.matched(&Matched {
            pair: self.pair,
            sender: self.sender,
            sent_ns: sent.time_ns,
            received_ns: received.time_ns,
            bytes,
        });
    }

    /// Judges what waited longer than `limits_ns`, by side; at the end of the input everything.
    pub(super) fn expire(&mut self, limits_ns: [i64; 2], is_end: bool, output: &mut Output) {
        let greatest_ns = self.counts.transit_ns.map_or(0, |(_, greatest)| greatest);
        let latest_ack = self.latest_ack;
        let mut gone = std::mem::take(&mut self.pieces);
        for side in [SENDER, RECEIVER] {
            self.data[side].expire(
                limits_ns[side],
                |each| {
                    let answered_ns = each.time_ns.saturating_add(greatest_ns).saturating_add(ACKNOWLEDGED_WITHIN_NS);
                    each.fate.is_lacking |=
                        latest_ack.is_some_and(|(time_ns, offset)| offset <= each.start && time_ns > answered_ns);
                    let is_refilled = each.fate.refills > 0 && std::mem::replace(&mut each.fate.is_answered, true);
                    side == RECEIVER || is_end || each.fate.is_acknowledged || each.fate.is_needless || is_refilled
                },
                &mut gone,
            );
            self.empty[side].expire(limits_ns[side], |_| true, &mut gone);
            for passage in gone.drain(..) {
                let verdict = if side == SENDER {
                    verdict::of_sent(&passage, 1 - self.sender, self.has_sack)
                } else {
                    self.skips.received(&passage, self.segment_bytes());
                    verdict::of_received(&passage, self.sender)
                };
                self.settle(side, &passage, verdict, output);
            }
        }
        self.pieces = gone;
        for doubtful in self.skips.expire(limits_ns[SENDER].saturating_sub(SKIPS_LATER_NS), is_end) {
            output.doubt(self.pair, self.sender, doubtful);
        }
    }

    /// Bytes of a segment between the taps, as far as the handshake shows them.
    #[inline]
    fn segment_bytes(&self) -> Option<u16> {
        self.counts.mss_bytes.into_iter().flatten().min().filter(|&bytes| bytes > 0)
    }

    /// Counts and lists a passage that the other tap has not seen, unless it passed there outside its capture.
    fn settle(&mut self, side: usize, passage: &Passage, verdict: Verdict, output: &mut Output) {
        let tap = if side == SENDER { self.sender } else { 1 - self.sender };
        let is_known_lost = verdict == Verdict::LostInNetwork;
        let is_between = output.is_between(self.sender, tap, passage.time_ns, self.overtaken_ns.saturating_mul(2));
        if !is_known_lost && !is_between && output.is_outside(1 - tap, passage.time_ns, self.bounds_ns(side, output)) {
            self.counts.outside += 1;
            return;
        }
        let is_empty = passage.start == passage.end;
        let bytes = u64::try_from(passage.end - passage.start).unwrap_or(0);
        // a super-segment is several packets between the taps
        let packets = self.segment_bytes().map_or(1, |segment| bytes.div_ceil(u64::from(segment))).max(1);
        self.counts.unmatched[verdict as usize] += packets;
        self.counts.unmatched_empty[verdict as usize] += u64::from(is_empty);
        output.lose(self.pair, self.sender, tap, passage, verdict);
    }

    /// Least and greatest time at the other tap less time at this side's.
    fn bounds_ns(&self, side: usize, output: &Output) -> (i64, i64) {
        let (least, greatest) = self.counts.transit_ns.unwrap_or_else(|| {
            let offset_ns = output.offset_ns(self.sender);
            (offset_ns, offset_ns)
        });
        if side == SENDER { (least, greatest) } else { (greatest.saturating_neg(), least.saturating_neg()) }
    }
}
