//! One open TCP connection: its packets -> halves, reassembly, content; and its row at the end.
//!
//! It holds the TCP and iSCSI state of the connection, and nothing of other connections.

mod capture_order;
pub mod content;
mod over;
mod prefetch;
mod row;
#[cfg(test)]
pub(crate) mod test_segment;
#[cfg(test)]
mod tests;
mod waiting_packets;

use iscsitrace_wire::frame::{Segment, tcp_options};
use serde::{Deserialize, Serialize};

use crate::connection::content::{Content, ContentSink};
use crate::context::Context;
use crate::counters::Counter;
use crate::iscsi::noted::Note;
use crate::reader::Packet;
use crate::senders::SenderPair;
use crate::senders::analysis::Analysis;
use crate::senders::early::Early;
use crate::senders::observation::Observation;
use crate::stream::chunk::Chunk;
use crate::stream::class::SegmentClass;
use crate::stream::closing::Closing;
use crate::stream::half::Half;
use crate::stream::progress::Progress;
use crate::stream::reassembly::HoldBudget;
use crate::stream::send_order::Sent;
use crate::stream::stamp::Stamp;
use crate::stream::table::Endpoint;
use crate::tables::{NULL_NS, SegmentRow, Wanted};
pub(crate) use waiting_packets::AWAITED_NS;
use waiting_packets::CaptureOrder;

/// An open connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TcpConnection {
    pub(crate) number: u32,
    /// The client (sender of the SYN, or of the first packet), and the server.
    pub(crate) ends: [Endpoint; 2],
    /// From the client, from the server.
    pub(crate) halves: [Half; 2],
    pub(crate) content: Content,
    pub(crate) analysis: Analysis,
    pub(crate) capture_order: CaptureOrder,
    /// Whether a RST answered its SYN.
    is_refused: bool,
    /// Whether rows of `icmp_errors` refer to it.
    pub(crate) has_icmp_errors: bool,
    /// Whether it handed over what is known of it (`settle`).
    pub(crate) is_settled: bool,
    has_timestamps: bool,
    frame_first: u64,
    pub(crate) frame_last: u64,
    pub(crate) time_first_ns: i64,
    pub(crate) time_last_ns: i64,
    /// The first SYN of the client.
    syn: Option<Stamp>,
    syn_ack_ns: Option<i64>,
    is_syn_repeated: bool,
    handshake_rtt_ns: [i64; 2],
}

impl TcpConnection {
    pub(crate) fn new(number: u32, ends: [Endpoint; 2], packet: &Packet<'_>, wanted: Wanted) -> Self {
        Self {
            number,
            ends,
            halves: [Half::new(), Half::new()],
            content: Content::new([ends[0].port, ends[1].port]),
            analysis: if wanted.has_dynamics() { Analysis::Early(Early::new(wanted)) } else { Analysis::None },
            capture_order: CaptureOrder::default(),
            is_refused: false,
            has_icmp_errors: false,
            is_settled: false,
            has_timestamps: false,
            frame_first: packet.frame,
            frame_last: packet.frame,
            time_first_ns: packet.time_ns,
            time_last_ns: packet.time_ns,
            syn: None,
            syn_ack_ns: None,
            is_syn_repeated: false,
            handshake_rtt_ns: [NULL_NS; 2],
        }
    }

    /// Starts or stops the analysis of its senders.
    pub(crate) fn set_dynamics(&mut self, wanted: Wanted) {
        let is_wanted = wanted.has_dynamics() && !matches!(self.content, Content::Other) && !self.is_settled;
        self.analysis =
            if is_wanted { Analysis::Here(Box::new(SenderPair::new(self.number, wanted))) } else { Analysis::None };
    }

    /// Whether a SYN was captured that no SYN-ACK answered.
    pub(crate) fn is_unopened(&self) -> bool {
        self.syn.is_some() && self.syn_ack_ns.is_none() && matches!(self.content, Content::Undecided(_))
    }

    /// Whether a FIN was captured.
    pub(crate) fn has_fin(&self) -> bool {
        self.halves.iter().any(|half| half.fin.is_some())
    }

    /// How it ended so far.
    pub(crate) fn closing(&self) -> Closing {
        let [out, back] = &self.halves;
        let closes = [out.fin, out.rst, back.fin, back.rst];
        Closing { closes_ns: closes.map(|close| close.map(|close| close.time_ns)), last_ns: self.time_last_ns }
    }

    /// Another connection took its ports: its commands ended by then.
    pub(crate) fn end_replaced(&self, time_ns: i64, context: &mut Context) {
        let mut closing = self.closing();
        if let Content::Iscsi(iscsi) = &self.content {
            closing.closes_ns[0].get_or_insert(time_ns);
            iscsi.connection.end_in_flight(&closing, false, context);
        }
    }

    /// Whether a RST was captured.
    pub(crate) fn has_rst(&self) -> bool {
        self.halves.iter().any(|half| half.rst.is_some())
    }

    /// The minimum RTT of the whole path so far.
    fn round_trip_ns(&self) -> Option<i64> {
        let [a, b] = [self.halves[0].rtt_min_ns, self.halves[1].rtt_min_ns];
        (a != NULL_NS && b != NULL_NS).then(|| a.saturating_add(b))
    }

    /// Reads one of its packets; `is_early` if it is read before others, and its ACK follows in its place.
    #[inline]
    fn read(
        &mut self,
        direction: usize,
        packet: &Packet<'_>,
        segment: &Segment<'_>,
        is_early: bool,
        context: &mut Context,
        budget: &mut HoldBudget,
    ) {
        let (frame, time_ns) = (packet.frame, packet.time_ns);
        let flags = segment.flags;
        if flags.is_syn() {
            self.synchronize(direction, segment, Stamp { time_ns, frame });
        }
        let payload_sequence_number = payload_sequence_number(segment);
        if self.halves[direction].initial_sequence_number.is_none() {
            // nothing came from there before, and nothing that did was acknowledged
            self.is_refused |= flags.is_rst() && self.halves[1 - direction].has_syn;
            self.halves[direction].set_base(payload_sequence_number);
        }
        self.halves[direction].begin_before(payload_sequence_number, segment.payload_length);
        let Some(offset) = self.halves[direction].offset(payload_sequence_number) else {
            context.counters.add(Counter::SegmentOutsideWindow, Some(self.number), frame);
            self.note_segment(direction, packet, segment, 0, SegmentClass::Outside, context);
            if self.halves[direction].note_outside() {
                self.restart(direction, payload_sequence_number, frame, context, budget);
            }
            return;
        };
        let end = offset + i64::from(segment.payload_length);
        let opposite = &mut self.halves[1 - direction];
        if opposite.initial_sequence_number.is_none() && acknowledges(segment) {
            opposite.set_base(segment.acknowledgment_number);
            if flags.is_syn() {
                // the SYN was not captured, but its answer acknowledges it
                self.content.note_start(1 - direction);
                opposite.reassembly.note_begin();
            }
        }
        let acknowledged = self.acknowledged_offset(direction, segment);
        if self.is_suspect(direction, segment, end, acknowledged)
            && (self.halves[direction].is_copy(segment, time_ns) || self.is_late_copy(direction, segment, offset))
        {
            self.halves[direction].copied_packets += 1;
            let is_routed = self.halves[direction].is_routed(segment);
            let counter = if is_routed { Counter::RoutedCopy } else { Counter::CapturedCopy };
            context.counters.add(counter, Some(self.number), frame);
            self.note_segment(direction, packet, segment, offset, SegmentClass::Copy, context);
            return;
        }
        let half = &mut self.halves[direction];
        half.note_inside();
        half.remember(segment, time_ns);
        half.order.step(segment);
        if flags.is_rst() {
            half.rst.get_or_insert(Stamp { time_ns, frame });
            half.rst_hop_limit.get_or_insert(segment.hop_limit);
        } else {
            half.note_hop_limit(segment.hop_limit);
        }
        self.has_timestamps |= has_timestamps(segment.options);
        if let Some(acknowledged) = acknowledged.filter(|_| !is_early) {
            self.acknowledge(1 - direction, acknowledged, packet, context, budget);
        }
        if segment.payload_length > 0
            && acknowledged.is_some_and(|acknowledged| acknowledged > self.halves[1 - direction].reassembly.next())
            && let Some(iscsi) = self.content.iscsi()
        {
            // it may answer what was not captured
            iscsi.connection.note_unread();
        }
        self.analysis.begin_with(segment.payload_length > 0, self.number, &mut context.apart);
        let (class, is_progress) = if segment.payload_length > 0 {
            self.payload(direction, packet, segment, offset, context, budget)
        } else {
            (SegmentClass::Empty, false)
        };
        if flags.is_fin() {
            self.halves[direction].fin.get_or_insert(Stamp { time_ns, frame });
            self.halves[direction].fin_offset.get_or_insert(end);
        }
        if class != SegmentClass::Retransmission {
            self.halves[direction].syns += u64::from(flags.is_syn());
            self.halves[direction].fins += u64::from(flags.is_fin());
        }
        if context.tables.wanted.segments {
            self.note_segment(direction, packet, segment, offset, class, context);
        }
        if matches!(self.content, Content::Other) {
            self.analysis.cancel(&mut context.apart);
        }
        if !matches!(self.analysis, Analysis::None) {
            let seen = self.observation(direction, packet, segment, (offset, acknowledged), (class, is_progress));
            self.analysis.observe(&seen, &mut context.apart);
        }
    }

    /// A packet, as the analysis of its senders needs it.
    #[inline]
    fn observation(
        &self,
        direction: usize,
        packet: &Packet<'_>,
        segment: &Segment<'_>,
        (offset, acknowledged): (i64, Option<i64>),
        (class, is_progress): (SegmentClass, bool),
    ) -> Observation {
        let options = tcp_options(segment.options);
        let opposite = &self.halves[1 - direction];
        let mut seen = Observation {
            frame: packet.frame,
            time_ns: packet.time_ns,
            direction,
            flags: segment.flags,
            class,
            offset,
            length: segment.payload_length,
            is_progress,
            acknowledged,
            window: segment.window,
            window_scale: match (self.halves[direction].has_syn, opposite.has_syn) {
                (true, true) if segment.flags.is_syn() || opposite.window_scale.is_none() => Some(0),
                (true, true) => Some(self.halves[direction].window_scale.unwrap_or(0)),
                _ => None,
            },
            left_of_pdu: match &self.content {
                Content::Iscsi(iscsi) => {
                    let end = offset + i64::from(segment.payload_length);
                    let left = iscsi.framers[iscsi.direction(direction)].left_of_pdu(end);
                    left.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
                }
                _ => None,
            },
            left_of_burst: match &self.content {
                Content::Iscsi(iscsi) if iscsi.direction(direction) == 0 => iscsi.connection.left_of_burst(),
                _ => 0,
            },
            steps: self.halves[direction].order.steps(),
            segment_max: match (self.halves[direction].mss_bytes, opposite.mss_bytes) {
                (Some(own), Some(others)) => Some(own.min(others)),
                (own, others) => own.or(others),
            },
            is_sack_permitted: (self.halves[direction].has_syn && opposite.has_syn)
                .then_some(self.halves[direction].is_sack_permitted && opposite.is_sack_permitted),
            timestamps: options.timestamps,
            sacks: Default::default(),
            sack_count: 0,
        };
        let blocks = options.sack.iter().take(usize::from(options.sack_count));
        for &(left, right) in blocks {
            if let (Some(left), Some(right)) = (opposite.offset(left), opposite.offset(right))
                && left < right
                && let Some(block) = seen.sacks.get_mut(usize::from(seen.sack_count))
            {
                *block = (left, right);
                seen.sack_count += 1;
            }
        }
        seen
    }

    /// A SYN: offset 0 is the byte after it. Notes handshake times, unless a SYN was retransmitted (Karn's rule).
    #[cold]
    fn synchronize(&mut self, direction: usize, segment: &Segment<'_>, place: Stamp) {
        let time_ns = place.time_ns;
        let options = tcp_options(segment.options);
        let half = &mut self.halves[direction];
        if half.has_syn
            && half.initial_sequence_number == Some(segment.sequence_number)
            && !half.is_copy(segment, time_ns)
        {
            self.is_syn_repeated = true;
        }
        if half.initial_sequence_number.is_none() {
            self.content.note_start(direction);
            half.reassembly.note_begin();
        }
        half.set_base(segment.sequence_number.wrapping_add(1));
        half.has_syn = true;
        half.mss_bytes = options.maximum_segment_size;
        half.window_scale = options.window_scale;
        half.is_sack_permitted = options.is_sack_permitted;
        if segment.flags.is_ack() {
            self.syn_ack_ns.get_or_insert(time_ns);
            if let (Some(syn), false, NULL_NS) = (self.syn, self.is_syn_repeated, self.handshake_rtt_ns[0]) {
                self.handshake_rtt_ns[0] = round_trip_ns(syn.time_ns, time_ns);
                self.halves[0].note_round_trip(self.handshake_rtt_ns[0]);
            }
        } else {
            self.syn.get_or_insert(place);
        }
    }

    /// The acknowledged offset of the opposite stream.
    #[inline]
    fn acknowledged_offset(&self, direction: usize, segment: &Segment<'_>) -> Option<i64> {
        if !acknowledges(segment) {
            return None;
        }
        let opposite = &self.halves[1 - direction];
        let offset = opposite.offset(segment.acknowledgment_number)?;
        Some(opposite.fin_offset.map_or(offset, |fin| offset.min(fin)))
    }

    /// Whether a packet carries nothing new, so that it may be a copy.
    #[inline]
    fn is_suspect(&self, direction: usize, segment: &Segment<'_>, end: i64, acknowledged: Option<i64>) -> bool {
        if segment.payload_length > 0 {
            end <= self.halves[direction].reassembly.highest()
        } else {
            acknowledged.is_none_or(|offset| offset <= self.halves[1 - direction].reassembly.acknowledged())
        }
    }

    /// Whether a suspect carries bytes that came before, and was sent before what came after them: the network delivered
    /// it twice, or the capture holds it twice.
    fn is_late_copy(&self, direction: usize, segment: &Segment<'_>, offset: i64) -> bool {
        let half = &self.halves[direction];
        segment.payload_length > 0
            && !half.reassembly.lacks(offset, offset + i64::from(segment.payload_length))
            && half.order.of(segment, offset) == Sent::Before
    }

    /// The bytes of `direction` below `offset` were acknowledged.
    #[inline]
    fn acknowledge(
        &mut self,
        direction: usize,
        offset: i64,
        packet: &Packet<'_>,
        context: &mut Context,
        budget: &mut HoldBudget,
    ) {
        let (frame, time_ns) = (packet.frame, packet.time_ns);
        let half = &mut self.halves[direction];
        if offset <= half.reassembly.acknowledged() && offset != 0 {
            return;
        }
        half.acknowledge_samples(offset, time_ns);
        let mut sink = ContentSink { content: &mut self.content, context, number: self.number, direction, frame };
        half.reassembly.acknowledge(offset, budget, &mut sink);
        if direction == 1
            && offset == 0
            && self.handshake_rtt_ns[1] == NULL_NS
            && let Some(syn_ack_ns) = self.syn_ack_ns
            && !self.is_syn_repeated
        {
            self.handshake_rtt_ns[1] = round_trip_ns(syn_ack_ns, time_ns);
            self.halves[1].note_round_trip(self.handshake_rtt_ns[1]);
        }
        if let Some(iscsi) = self.content.iscsi() {
            let direction = iscsi.direction(direction);
            iscsi.connection.spans[direction].acknowledge(offset, time_ns, &mut context.tables.cycles);
        }
    }

    /// Processes the packet's payload. Returns its class, and whether it has new data of a command.
    #[inline]
    fn payload(
        &mut self,
        direction: usize,
        packet: &Packet<'_>,
        segment: &Segment<'_>,
        offset: i64,
        context: &mut Context,
        budget: &mut HoldBudget,
    ) -> (SegmentClass, bool) {
        let (frame, time_ns) = (packet.frame, packet.time_ns);
        let end = offset + i64::from(segment.payload_length);
        let round_trip_ns = self.round_trip_ns();
        let half = &mut self.halves[direction];
        let (next, highest) = (half.reassembly.next(), half.reassembly.highest());
        if segment.payload_length == 1 && end == highest && highest > 0 && half.reassembly.acknowledged() >= highest {
            // a keep-alive repeats the last byte, which is already acknowledged (RFC 9293 section 3.8.4)
            return (SegmentClass::Probe, false);
        }
        if end > highest {
            half.order.note(segment, end, time_ns);
        }
        let mut sink = ContentSink { content: &mut self.content, context, number: self.number, direction, frame };
        let chunk = Chunk {
            offset,
            length: segment.payload_length,
            captured: segment.payload,
            frame,
            time_ns,
            is_late: false,
            is_segment_start: true,
        };
        let overtaken_ns = half.reassembly.overtaken_ns(offset);
        let placement = half.reassembly.segment(chunk, budget, &mut sink);
        half.captured_bytes += u64::from(placement.new_bytes);
        half.cut_bytes += u64::from(placement.cut_bytes);
        half.may_be_fragmented |= !segment.is_dont_fragment;
        if placement.new_bytes > 0 {
            half.data_last_ns = half.data_last_ns.max(time_ns);
        }
        if placement.is_shed {
            context.counters.add(Counter::PayloadShed, Some(self.number), packet.frame);
        }
        if placement.abandoned_holes > 0 {
            context.counters.add_many(
                Counter::HoleAbandoned,
                Some(self.number),
                frame,
                u64::from(placement.abandoned_holes),
            );
        }
        if placement.cut_bytes > 0 {
            context.counters.add_many(
                Counter::SnaplenCutBytes,
                Some(self.number),
                frame,
                u64::from(placement.cut_bytes),
            );
        }
        let is_again = placement.new_bytes < segment.payload_length && offset < highest;
        // bytes that were acknowledged before they passed the tap, and came first now
        let is_first_late = is_again && placement.new_bytes == 0 && half.reassembly.is_in_gap(offset, end);
        let class = if is_first_late || placement.is_late && !is_again {
            if half.order.is_filled_again(segment, offset, time_ns, round_trip_ns) {
                SegmentClass::Retransmission
            } else {
                SegmentClass::Reordered
            }
        } else if is_again {
            SegmentClass::Retransmission
        } else {
            SegmentClass::New
        };
        match class {
            SegmentClass::Retransmission => {
                half.retransmitted_packets += 1;
                half.retransmitted_bytes += u64::from(segment.payload_length);
                half.end_samples();
            }
            SegmentClass::Reordered => {
                half.reordered_packets += 1;
                let late_ns = overtaken_ns.map_or(NULL_NS, |first_ns| time_ns.saturating_sub(first_ns).max(0));
                half.reordered_late_max_ns = half.reordered_late_max_ns.max(late_ns);
            }
            _ if offset == next => half.sample(end, time_ns),
            _ => {}
        }
        let is_progress =
            placement.new_bytes > 0 && self.note_progress(direction, end, segment.payload_length, time_ns);
        if is_again && let Some(iscsi) = self.content.iscsi() {
            let direction = iscsi.direction(direction);
            iscsi.framers[direction].mark_retransmitted(offset, end);
            let cycles = &mut context.tables.cycles;
            iscsi.connection.spans[direction].mark_retransmitted(offset, end, time_ns, cycles);
            if is_first_late {
                iscsi.connection.note_late(direction, offset, end, &mut context.tables.cycles);
            }
        }
        (class, is_progress)
    }

    /// Notes new payload that ends at `end`, if it has data of a command: a login's is none. Returns whether it has.
    #[inline]
    fn note_progress(&mut self, direction: usize, end: i64, length: u32, time_ns: i64) -> bool {
        let Content::Iscsi(iscsi) = &mut self.content else { return false };
        let login = &iscsi.connection.login;
        let is_within_pdu = iscsi.framers[iscsi.direction(direction)].left_of_pdu(end).is_some();
        let is_progress = (login.is_complete || !login.is_captured) && Progress::is_data(length, is_within_pdu);
        if is_progress {
            iscsi.connection.note_progress(time_ns);
        }
        is_progress
    }

    /// Restarts the stream elsewhere, after many packets there.
    #[cold]
    fn restart(
        &mut self,
        direction: usize,
        sequence_number: u32,
        frame: u64,
        context: &mut Context,
        budget: &mut HoldBudget,
    ) {
        let half = &mut self.halves[direction];
        let mut sink = ContentSink { content: &mut self.content, context, number: self.number, direction, frame };
        half.reassembly.finish(budget, &mut sink);
        let (connection, base, offset) = (self.number, half.base(), half.reassembly.highest());
        context.note(|| Note::Restart { connection, direction, frame, offset, base });
        half.rebase(sequence_number);
    }

    fn note_segment(
        &self,
        direction: usize,
        packet: &Packet<'_>,
        segment: &Segment<'_>,
        offset: i64,
        class: SegmentClass,
        context: &mut Context,
    ) {
        // rows of connections that do not turn out to be iSCSI are removed at the end
        if !context.tables.wanted.segments || matches!(self.content, Content::Other) {
            return;
        }
        let scale = match (self.halves[0].window_scale, self.halves[1].window_scale) {
            (Some(_), Some(_)) if !segment.flags.is_syn() => self.halves[direction].window_scale.unwrap_or(0),
            _ => 0,
        };
        let opposite = &self.halves[1 - direction];
        context.tables.segments.push(SegmentRow {
            connection: self.number,
            // from the client, until it is known which side is the target
            to_target: direction == 0,
            frame: packet.frame,
            time_ns: packet.time_ns,
            stream_offset_bytes: offset,
            payload_bytes: segment.payload_length,
            ack_offset_bytes: if segment.flags.is_ack() {
                opposite.offset(segment.acknowledgment_number).unwrap_or(NULL_NS)
            } else {
                NULL_NS
            },
            window_bytes: u32::from(segment.window) << scale,
            flags: segment.flags.0,
            segment_class: class as u8,
        });
    }
}

/// Sequence number of the first payload byte.
#[inline]
fn payload_sequence_number(segment: &Segment<'_>) -> u32 {
    segment.sequence_number.wrapping_add(u32::from(segment.flags.is_syn()))
}

/// Whether its acknowledgment number counts.
#[inline]
fn acknowledges(segment: &Segment<'_>) -> bool {
    segment.flags.is_ack() && !segment.flags.is_rst()
}

/// The time between two instants; null if the clock ran backwards.
fn round_trip_ns(from_ns: i64, to_ns: i64) -> i64 {
    if to_ns >= from_ns { to_ns.saturating_sub(from_ns) } else { NULL_NS }
}

/// Whether a segment has TCP timestamps; checks the usual layout first.
#[inline]
fn has_timestamps(options: &[u8]) -> bool {
    options.starts_with(&[1, 1, 8, 10]) || (options.len() >= 10 && tcp_options(options).timestamps.is_some())
}
