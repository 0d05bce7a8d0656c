//! The pass: packets in, tables out.
//!
//! It owns the connections of the moment and hands each packet down: frame, TCP half, reassembly, content. Its memory
//! grows with connections, tasks and (when asked for) PDUs and segments; never with packets alone.

use iscsitrace_wire::frame::{LinkType, NotTcp, Segment, segment, tcp_options};

use crate::capture::Packet;
use crate::content::{Content, ContentSink};
use crate::counters::{Counter, Counters};
use crate::iscsi::connection::Context;
use crate::iscsi::framer::DigestUse;
use crate::iscsi::session::SessionEnd;
use crate::queue;
use crate::tables::{Connection, CounterRow, NULL_NS, NULL_U8, NULL_U16, NULL_U32, NULL_U64, SegmentRow, Tables};
use crate::tcp::half::{Half, SegmentClass};
use crate::tcp::reassembly::{Chunk, HoldBudget};
use crate::tcp::table::{ConnectionTable, Endpoint};

/// Connections followed at once; beyond it the quietest half that is not iSCSI is closed.
const CONNECTIONS_MAX: usize = 1 << 15;
/// Rows of connections that are not iSCSI.
const OTHER_ROWS_MAX: usize = 1 << 17;

/// A connection of the moment.
#[derive(Debug)]
struct Tracked {
    number: u32,
    /// The client (who sent the SYN, or the first packet), and the server.
    ends: [Endpoint; 2],
    /// From the client, from the server.
    halves: [Half; 2],
    content: Content,
    has_fin: bool,
    has_rst: bool,
    has_timestamps: bool,
    frame_first: u64,
    frame_last: u64,
    time_first_ns: i64,
    time_last_ns: i64,
    syn_ns: Option<i64>,
    syn_ack_ns: Option<i64>,
    is_syn_repeated: bool,
    handshake_rtt_ns: [i64; 2],
}

impl Tracked {
    fn new(number: u32, ends: [Endpoint; 2], packet: &Packet<'_>) -> Self {
        Self {
            number,
            ends,
            halves: [Half::new(), Half::new()],
            content: Content::new([ends[0].port, ends[1].port]),
            has_fin: false,
            has_rst: false,
            has_timestamps: false,
            frame_first: packet.frame,
            frame_last: packet.frame,
            time_first_ns: packet.time_ns,
            time_last_ns: packet.time_ns,
            syn_ns: None,
            syn_ack_ns: None,
            is_syn_repeated: false,
            handshake_rtt_ns: [NULL_NS; 2],
        }
    }

    /// Whole round-trip time seen so far, both sides of the tap.
    fn round_trip_ns(&self) -> Option<i64> {
        let [a, b] = [self.halves[0].rtt_min_ns, self.halves[1].rtt_min_ns];
        (a != NULL_NS && b != NULL_NS).then(|| a.saturating_add(b))
    }
}

/// What the pass fills, and over which input.
#[derive(Debug, Default)]
pub struct Options {
    /// Fill `pdus`.
    pub with_pdus: bool,
    /// Fill `segments`.
    pub with_segments: bool,
}

/// The pass.
#[derive(Debug, Default)]
pub struct Pipeline {
    context: Context,
    table: ConnectionTable,
    slots: Vec<Option<Box<Tracked>>>,
    free: Vec<u32>,
    rows: Vec<Connection>,
    other_rows: usize,
    budget: HoldBudget,
    connection_count: u32,
    /// TCP packets seen.
    pub tcp_packet_count: u64,
}

impl Pipeline {
    /// A pass that has seen nothing.
    pub fn new(options: &Options) -> Self {
        let mut pipeline = Self::default();
        pipeline.context.tables.with_pdus = options.with_pdus;
        pipeline.context.tables.with_segments = options.with_segments;
        pipeline
    }

    /// The oddities, for the reader of the capture to count its own.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.context.counters
    }

    /// Takes one packet.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>) {
        match segment(packet.link_type, packet.data, packet.original_length) {
            Ok(segment) => self.tcp(packet, &segment),
            Err(reason) => self.not_tcp(reason, packet.link_type, packet.frame),
        }
    }

    #[cold]
    fn not_tcp(&mut self, reason: NotTcp, _link_type: LinkType, frame: u64) {
        let counter = match reason {
            NotTcp::NotIp | NotTcp::OtherProtocol(_) => Counter::NotTcp,
            NotTcp::Fragment => Counter::FragmentOfIp,
            NotTcp::Tunnel => Counter::Tunnel,
            NotTcp::CutInHeaders => Counter::FrameCutInHeaders,
            NotTcp::Malformed => Counter::FrameMalformed,
            NotTcp::UnsupportedLinkType => Counter::LinkTypeUnsupported,
        };
        self.context.counters.add(counter, None, frame);
    }

    #[inline]
    fn tcp(&mut self, packet: &Packet<'_>, segment: &Segment<'_>) {
        self.tcp_packet_count += 1;
        if segment.is_ip_length_zero {
            self.context.counters.add(Counter::IpLengthZero, None, packet.frame);
        }
        let source = Endpoint { address: segment.source, port: segment.source_port };
        let destination = Endpoint { address: segment.destination, port: segment.destination_port };
        let slot = self.slot(source, destination, packet, segment);
        let Some(Some(tracked)) = self.slots.get_mut(slot as usize) else { return };
        // a connection to oneself has one direction only
        let direction = usize::from(tracked.ends[0] != source);
        tracked.take(direction, packet, segment, &mut self.context, &mut self.budget);
    }

    /// The slot of the packet's connection, a new one where it begins (Wireshark's rule: see `tcp::table`).
    #[inline]
    fn slot(&mut self, source: Endpoint, destination: Endpoint, packet: &Packet<'_>, segment: &Segment<'_>) -> u32 {
        let is_opening = segment.flags.is_syn() && !segment.flags.is_ack();
        if let Some(slot) = self.table.find(source, destination) {
            if !is_opening || !self.is_reused(slot, source, segment) {
                return slot;
            }
            self.close(slot);
        }
        self.open(source, destination, packet, segment)
    }

    #[cold]
    fn is_reused(&self, slot: u32, source: Endpoint, segment: &Segment<'_>) -> bool {
        let Some(Some(tracked)) = self.slots.get(slot as usize) else { return false };
        let half = &tracked.halves[usize::from(tracked.ends[0] != source)];
        half.initial_sequence_number
            .is_some_and(|initial| initial != segment.sequence_number || tracked.has_fin || tracked.has_rst)
    }

    #[cold]
    fn open(&mut self, source: Endpoint, destination: Endpoint, packet: &Packet<'_>, segment: &Segment<'_>) -> u32 {
        if self.slots.len() - self.free.len() >= CONNECTIONS_MAX {
            self.close_quietest(packet.frame);
        }
        let number = self.connection_count;
        self.connection_count += 1;
        // the SYN-ACK comes from the server
        let is_syn_ack = segment.flags.is_syn() && segment.flags.is_ack();
        let ends = if is_syn_ack { [destination, source] } else { [source, destination] };
        let tracked = Some(Box::new(Tracked::new(number, ends, packet)));
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = tracked;
                slot
            }
            None => {
                self.slots.push(tracked);
                (self.slots.len() - 1) as u32
            }
        };
        self.table.insert(source, destination, slot);
        slot
    }

    /// Closes the quieter half of the connections that are not iSCSI.
    fn close_quietest(&mut self, frame: u64) {
        let mut quiet: Vec<(u64, u32)> = (0..)
            .zip(&self.slots)
            .filter_map(|(slot, tracked)| tracked.as_ref().map(|tracked| (slot, tracked)))
            .filter(|(_, tracked)| !matches!(tracked.content, Content::Iscsi(_)))
            .map(|(slot, tracked)| (tracked.frame_last, slot))
            .collect();
        if quiet.is_empty() {
            quiet = (0..)
                .zip(&self.slots)
                .filter_map(|(slot, tracked)| tracked.as_ref().map(|tracked| (tracked.frame_last, slot)))
                .collect();
        }
        quiet.sort_unstable();
        quiet.truncate(quiet.len().div_ceil(2));
        self.context.counters.add_many(Counter::ConnectionsNotTracked, None, frame, quiet.len() as u64);
        for (_, slot) in quiet {
            self.close(slot);
        }
    }

    /// The end of a connection in this capture: its row.
    fn close(&mut self, slot: u32) {
        let Some(mut tracked) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        self.table.remove(tracked.ends[0], tracked.ends[1], slot);
        self.free.push(slot);
        let row = tracked.finish(&mut self.context, &mut self.budget);
        if !row.is_iscsi {
            self.other_rows += 1;
            if self.other_rows > OTHER_ROWS_MAX {
                return;
            }
        }
        self.rows.push(row);
    }

    /// The end of the input: everything that was open is closed, and the tables are complete.
    pub fn finish(mut self) -> Tables {
        let mut open: Vec<(u32, u32)> = (0..)
            .zip(&self.slots)
            .filter_map(|(slot, tracked)| tracked.as_ref().map(|tracked| (tracked.number, slot)))
            .collect();
        open.sort_unstable();
        for (_, slot) in open {
            self.close(slot);
        }
        let Context { mut tables, mut counters, mut sessions, cycle_ends_ns } = self.context;
        self.rows.sort_unstable_by_key(|row| row.connection);
        for (connection, missing) in sessions.missing_commands() {
            counters.add_many(Counter::CommandMissing, Some(connection), 0, missing.commands);
            if let Ok(place) = self.rows.binary_search_by_key(&connection, |row| row.connection) {
                self.rows[place].missing_pdu_count_to_target += missing.commands + missing.pdus[0];
                self.rows[place].missing_pdu_count_to_initiator += missing.pdus[1];
            }
        }
        queue::fill(&mut tables.cycles, &cycle_ends_ns, &mut sessions.rows);
        tables.sessions = sessions.rows;
        for row in self.rows {
            tables.connections.push(row);
        }
        for (counter, connection, tally) in counters.sorted() {
            let definition = counter.definition();
            tables.counters.push(CounterRow {
                name: definition.name.to_owned(),
                connection: connection.unwrap_or(NULL_U32),
                severity: definition.severity as u8,
                count: tally.count,
                first_frame: if tally.first_frame == 0 { NULL_U64 } else { tally.first_frame },
                meaning: definition.meaning.to_owned(),
                advice: definition.advice.to_owned(),
            });
        }
        tables
    }
}

impl Tracked {
    /// Takes one of its packets.
    #[inline]
    fn take(
        &mut self,
        direction: usize,
        packet: &Packet<'_>,
        segment: &Segment<'_>,
        context: &mut Context,
        budget: &mut HoldBudget,
    ) {
        let (frame, time_ns) = (packet.frame, packet.time_ns);
        self.frame_last = frame;
        self.time_last_ns = self.time_last_ns.max(time_ns);
        let flags = segment.flags;
        if flags.is_syn() {
            self.synchronize(direction, segment, time_ns);
        }
        let payload_sequence_number = segment.sequence_number.wrapping_add(u32::from(flags.is_syn()));
        if self.halves[direction].initial_sequence_number.is_none() {
            self.halves[direction].set_base(payload_sequence_number);
        }
        let Some(offset) = self.halves[direction].offset(payload_sequence_number) else {
            context.counters.add(Counter::SegmentOutsideWindow, Some(self.number), frame);
            self.note_segment(direction, packet, segment, 0, SegmentClass::Outside, context);
            if self.halves[direction].note_outside() {
                self.restart(direction, payload_sequence_number, context, budget);
            }
            return;
        };
        let end = offset + i64::from(segment.payload_length);
        let acknowledged = self.acknowledged_offset(direction, segment);
        if self.is_suspect(direction, segment, end, acknowledged) && self.halves[direction].is_copy(segment, time_ns) {
            self.halves[direction].copied_packets += 1;
            context.counters.add(Counter::CapturedCopy, Some(self.number), frame);
            self.note_segment(direction, packet, segment, offset, SegmentClass::Copy, context);
            return;
        }
        let half = &mut self.halves[direction];
        half.note_inside();
        half.remember(segment, time_ns);
        self.has_rst |= flags.is_rst();
        self.has_timestamps |= has_timestamps(segment.options);
        if let Some(acknowledged) = acknowledged {
            self.acknowledge(1 - direction, acknowledged, packet, context, budget);
        }
        let class = if segment.payload_length > 0 {
            self.payload(direction, packet, segment, offset, context, budget)
        } else {
            SegmentClass::Empty
        };
        if flags.is_fin() {
            self.has_fin = true;
            self.halves[direction].fin_offset.get_or_insert(end);
        }
        if context.tables.with_segments {
            self.note_segment(direction, packet, segment, offset, class, context);
        }
    }

    /// A SYN: offset 0 is the byte after it. Handshake times, unless a SYN was sent again (Karn's rule).
    #[cold]
    fn synchronize(&mut self, direction: usize, segment: &Segment<'_>, time_ns: i64) {
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
        }
        half.set_base(segment.sequence_number.wrapping_add(1));
        half.has_syn = true;
        half.mss_bytes = options.maximum_segment_size;
        half.window_scale = options.window_scale;
        half.is_sack_permitted = options.is_sack_permitted;
        if segment.flags.is_ack() {
            self.syn_ack_ns.get_or_insert(time_ns);
            if let (Some(syn_ns), false, NULL_NS) = (self.syn_ns, self.is_syn_repeated, self.handshake_rtt_ns[0]) {
                self.handshake_rtt_ns[0] = round_trip_ns(syn_ns, time_ns);
                self.halves[0].note_round_trip(self.handshake_rtt_ns[0]);
            }
        } else {
            self.syn_ns.get_or_insert(time_ns);
        }
    }

    /// Where in the opposite stream the packet's ACK points.
    #[inline]
    fn acknowledged_offset(&mut self, direction: usize, segment: &Segment<'_>) -> Option<i64> {
        if !segment.flags.is_ack() || segment.flags.is_rst() {
            return None;
        }
        let opposite = &mut self.halves[1 - direction];
        if opposite.initial_sequence_number.is_none() {
            opposite.set_base(segment.acknowledgment_number);
        }
        let offset = opposite.offset(segment.acknowledgment_number)?;
        Some(opposite.fin_offset.map_or(offset, |fin| offset.min(fin)))
    }

    /// Whether a packet brings nothing new, so that it may be a copy.
    #[inline]
    fn is_suspect(&self, direction: usize, segment: &Segment<'_>, end: i64, acknowledged: Option<i64>) -> bool {
        if segment.payload_length > 0 {
            end <= self.halves[direction].reassembly.highest()
        } else {
            acknowledged.is_none_or(|offset| offset <= self.halves[1 - direction].reassembly.acknowledged())
        }
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

    /// The packet's payload.
    #[inline]
    fn payload(
        &mut self,
        direction: usize,
        packet: &Packet<'_>,
        segment: &Segment<'_>,
        offset: i64,
        context: &mut Context,
        budget: &mut HoldBudget,
    ) -> SegmentClass {
        let (frame, time_ns) = (packet.frame, packet.time_ns);
        let end = offset + i64::from(segment.payload_length);
        let round_trip_ns = self.round_trip_ns();
        let half = &mut self.halves[direction];
        let (next, highest) = (half.reassembly.next(), half.reassembly.highest());
        if segment.payload_length == 1 && end == highest && highest > 0 && half.reassembly.acknowledged() >= highest {
            // a keep-alive repeats the last byte, acknowledged long ago (RFC 9293 section 3.8.4)
            return SegmentClass::Probe;
        }
        if offset > highest {
            half.note_hole(segment, time_ns);
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
        let placement = half.reassembly.segment(chunk, budget, &mut sink);
        half.captured_bytes += u64::from(placement.new_bytes);
        half.cut_bytes += u64::from(placement.cut_bytes);
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
        let class = if placement.is_late && !is_again {
            if half.is_filling_retransmission(segment, time_ns, round_trip_ns) {
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
            }
            SegmentClass::Reordered => half.reordered_packets += 1,
            _ if offset == next => half.sample(end, time_ns),
            _ => {}
        }
        half.settle(class == SegmentClass::Retransmission);
        if is_again && let Some(iscsi) = self.content.iscsi() {
            let direction = iscsi.direction(direction);
            iscsi.framers[direction].mark_retransmitted(offset, end);
            iscsi.connection.spans[direction].mark_retransmitted(offset, end, &mut context.tables.cycles);
        }
        class
    }

    /// So many packets were elsewhere that the stream must be: what was before ends, and another begins.
    #[cold]
    fn restart(&mut self, direction: usize, sequence_number: u32, context: &mut Context, budget: &mut HoldBudget) {
        let half = &mut self.halves[direction];
        let mut sink =
            ContentSink { content: &mut self.content, context, number: self.number, direction, frame: self.frame_last };
        half.reassembly.finish(budget, &mut sink);
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
        if !context.tables.with_segments {
            return;
        }
        let to_target = match &self.content {
            Content::Iscsi(iscsi) => iscsi.direction(direction) == 0,
            _ => direction == 0,
        };
        let scale = match (self.halves[0].window_scale, self.halves[1].window_scale) {
            (Some(_), Some(_)) if !segment.flags.is_syn() => self.halves[direction].window_scale.unwrap_or(0),
            _ => 0,
        };
        let opposite = &self.halves[1 - direction];
        context.tables.segments.push(SegmentRow {
            connection: self.number,
            to_target,
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

    /// The end of the connection in this capture.
    fn finish(&mut self, context: &mut Context, budget: &mut HoldBudget) -> Connection {
        for direction in [0, 1] {
            let mut sink = ContentSink {
                content: &mut self.content,
                context,
                number: self.number,
                direction,
                frame: self.frame_last,
            };
            let abandoned = self.halves[direction].reassembly.finish(budget, &mut sink);
            if matches!(self.content, Content::Iscsi(_)) {
                context.counters.add_many(
                    Counter::HoleAbandoned,
                    Some(self.number),
                    self.frame_last,
                    u64::from(abandoned),
                );
            }
        }
        self.content.finish(self.time_last_ns, context);
        let is_flipped = matches!(&self.content, Content::Iscsi(iscsi) if !iscsi.is_client_initiator);
        let [initiator, target] = if is_flipped { [self.ends[1], self.ends[0]] } else { self.ends };
        let [out, back] = if is_flipped { [1, 0] } else { [0, 1] };
        let [to_target, to_initiator] = [&self.halves[out], &self.halves[back]];
        let mut row = Connection {
            connection: self.number,
            initiator_address: initiator.address.to_string(),
            initiator_port: initiator.port,
            target_address: target.address.to_string(),
            target_port: target.port,
            roles_from: if self.halves.iter().any(|half| half.has_syn) { 0 } else { 4 },
            frame_first: self.frame_first,
            frame_last: self.frame_last,
            time_first_ns: self.time_first_ns,
            time_last_ns: self.time_last_ns,
            has_syn: self.halves.iter().any(|half| half.has_syn),
            has_fin: self.has_fin,
            has_rst: self.has_rst,
            is_sack_permitted: self.halves.iter().all(|half| half.is_sack_permitted),
            has_timestamps: self.has_timestamps,
            handshake_rtt_to_target_ns: self.handshake_rtt_ns[out],
            handshake_rtt_to_initiator_ns: self.handshake_rtt_ns[back],
            rtt_to_target_min_ns: to_target.rtt_min_ns,
            rtt_to_initiator_min_ns: to_initiator.rtt_min_ns,
            ..Connection::default()
        };
        macro_rules! both {
            ($($column_a:ident $column_b:ident = $value:expr;)*) => { $(
                let value: fn(&Half) -> _ = $value;
                row.$column_a = value(to_target);
                row.$column_b = value(to_initiator);
            )* };
        }
        both! {
            packets_to_target packets_to_initiator = |half| half.packets;
            stream_bytes_to_target stream_bytes_to_initiator = |half| half.reassembly.highest().max(0) as u64;
            captured_bytes_to_target captured_bytes_to_initiator = |half| half.captured_bytes;
            gap_bytes_to_target gap_bytes_to_initiator = |half| half.reassembly.gaps().0;
            cut_bytes_to_target cut_bytes_to_initiator = |half| half.cut_bytes;
            retransmitted_packets_to_target retransmitted_packets_to_initiator = |half| half.retransmitted_packets;
            retransmitted_bytes_to_target retransmitted_bytes_to_initiator = |half| half.retransmitted_bytes;
            reordered_packets_to_target reordered_packets_to_initiator = |half| half.reordered_packets;
            copied_packets_to_target copied_packets_to_initiator = |half| half.copied_packets;
            mss_bytes_to_target mss_bytes_to_initiator = |half| half.mss_bytes.unwrap_or(NULL_U16);
            window_scale_to_target window_scale_to_initiator = |half| half.window_scale.unwrap_or(NULL_U8);
        }
        if let Content::Iscsi(iscsi) = &mut self.content {
            let unexplained = (row.stream_bytes_to_target + row.stream_bytes_to_initiator)
                .saturating_sub(iscsi.framers.iter().map(|framer| framer.explained_bytes).sum());
            context.counters.add_many(Counter::UnexplainedBytes, Some(self.number), 0, unexplained);
            if row.roles_from != 0 {
                row.roles_from = if iscsi.connection.login.is_captured { 1 } else { 2 };
            }
            describe(iscsi, &mut row);
            if let Some(session) = iscsi.connection.session {
                context.sessions.note_time(session, self.time_first_ns, self.time_last_ns);
                let is_discovery = context.sessions.rows.session_type[session as usize] == 1;
                let login = std::mem::take(&mut iscsi.connection.login);
                login.parameters(self.number, session, is_discovery, context);
                if self.has_rst || self.has_fin {
                    context
                        .sessions
                        .close_connection(session, if self.has_rst { SessionEnd::Reset } else { SessionEnd::Closed });
                }
            }
        }
        row
    }
}

/// What iSCSI knows of the connection.
fn describe(iscsi: &crate::content::IscsiContent, row: &mut Connection) {
    let connection = &iscsi.connection;
    row.is_iscsi = true;
    row.session = connection.session.unwrap_or(NULL_U32);
    row.cid = connection.login.cid.unwrap_or(NULL_U16);
    row.explained_bytes_to_target = iscsi.framers[0].explained_bytes;
    row.explained_bytes_to_initiator = iscsi.framers[1].explained_bytes;
    [row.pdu_count_to_target, row.pdu_count_to_initiator] = connection.pdu_count;
    [row.missing_pdu_count_to_target, row.missing_pdu_count_to_initiator] = connection.missing;
    let [header, data]: [fn(&crate::iscsi::framer::Framer) -> DigestUse; 2] =
        [|framer| framer.header_digest, |framer| framer.data_digest];
    row.header_digest = digest_code(iscsi.framers.each_ref().map(header));
    row.data_digest = digest_code(iscsi.framers.each_ref().map(data));
    row.digest_source = match header(&iscsi.framers[1]) {
        DigestUse::Known(_) => 0,
        DigestUse::Inferred(_) => 1,
        DigestUse::Unknown => 2,
    };
}

/// none 0, crc32c 1, unknown 2: both directions have the same.
fn digest_code(uses: [DigestUse; 2]) -> u8 {
    if uses.iter().any(|digest| digest.is_used()) {
        1
    } else if uses.contains(&DigestUse::Unknown)
        && !uses.iter().any(|digest| matches!(digest, DigestUse::Inferred(_) | DigestUse::Known(_)))
    {
        2
    } else {
        0
    }
}

/// From one instant to a later one; null when the clock ran backwards between them.
fn round_trip_ns(from_ns: i64, to_ns: i64) -> i64 {
    if to_ns >= from_ns { to_ns.saturating_sub(from_ns) } else { NULL_NS }
}

/// Whether a segment carries TCP timestamps; the usual layout first.
#[inline]
fn has_timestamps(options: &[u8]) -> bool {
    options.starts_with(&[1, 1, 8, 10]) || (options.len() >= 10 && tcp_options(options).timestamps.is_some())
}
