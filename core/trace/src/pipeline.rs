//! Packets in, tables out.
//!
//! Holds the open connections and passes each packet down: frame, TCP half, reassembly, content. Memory use grows with
//! connections and commands, and with PDUs and segments if their tables are wanted; never with packets alone.

pub mod drain;
mod prefetch;
pub mod snapshot;

use iscsitrace_wire::frame::{self as wire, Address, NotTcp, Segment, segment};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::budget;
use crate::connection::content::{Content, IscsiContent};
use crate::connection::{AWAITED_NS, TcpConnection};
use crate::context::Context;
use crate::counters::{Counter, Counters};
use crate::iscsi::connection::in_flight::InFlight;
use crate::iscsi::detect::PORTS;
use crate::iscsi::noted::Note;
use crate::iscsi::session::succession::{self, Succession};
use crate::ledger::Ledger;
use crate::reader::Packet;
use crate::senders::apart::Apart;
use crate::senders::{held, line};
use crate::settling::Settling;
use crate::stream::reassembly::HoldBudget;
use crate::stream::table::{ConnectionTable, Endpoint};
use crate::tables::{
    Columns, Connections, CounterRow, CounterRows, CycleId, Cycles, HostQuestion, IcmpError, IcmpErrors, Id, NULL_U32,
    NULL_U64, Segments, Tables, Wanted,
};

/// Limits of what is kept at once.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Connections tracked at once. Beyond it, the quietest half of those that are over or not iSCSI is closed.
    pub(crate) connections: usize,
    /// The same where all are iSCSI and under way. Beyond it, the quietest half of these is closed.
    pub(crate) iscsi_connections: usize,
    /// Rows of connections that are not iSCSI: so many to portals, and so many others.
    pub(crate) other_rows: usize,
    /// Rows of ICMP errors at once.
    pub(crate) icmp_error_rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 1 << 15, iscsi_connections: 1 << 16, other_rows: 3 << 14, icmp_error_rows: 1 << 16 }
    }
}

/// Maximum rows of questions whether a host is there.
const QUESTIONS_MAX: usize = 1 << 12;
/// Maximum ends of iSCSI connections that are known as portals.
const PORTALS_MAX: usize = 1 << 16;

/// Connections that stay open beyond the limit are looked at again after so many new ones: one part in four of the limit.
const LOOKED_AT_PARTS: usize = 4;

/// After more connections, freed memory goes back to the system: below, it is not worth a millisecond.
const LARGE_FROM_CONNECTIONS: u32 = 1000;
/// It goes back after one part in so many of the connections is closed.
const GIVEN_BACK_IN: usize = 4;

/// The state of a pass.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Pipeline {
    pub(crate) context: Context,
    table: ConnectionTable,
    pub(crate) slots: Vec<Option<Box<TcpConnection>>>,
    free: Vec<u32>,
    /// Rows of closed connections.
    pub(crate) rows: Connections,
    /// By whether they are to a portal.
    other_rows: [usize; 2],
    /// Where targets were reached so far: ends of iSCSI connections.
    portals: FxHashSet<Endpoint>,
    /// The row of each kind of question of one address for another.
    questions: FxHashMap<(u8, Address, Address), u32>,
    /// The iSCSI connections with rows of `segments`, and whether their client is the target.
    with_segments: FxHashMap<u32, bool>,
    settling: Settling,
    pub(crate) ledger: Ledger,
    /// The connection of the frame after the next.
    #[serde(skip)]
    coming: Option<u32>,
    budget: HoldBudget,
    connection_count: u32,
    /// With so many open connections some are closed, if the limit is below.
    close_at: usize,
    /// Limits of what is kept at once.
    pub(crate) limits: Limits,
    /// Number of TCP packets.
    pub tcp_packet_count: u64,
}

impl Pipeline {
    /// A pass without packets so far.
    pub fn new(wanted: Wanted) -> Self {
        let mut pipeline = Self::default();
        pipeline.context.tables.wanted = wanted;
        pipeline
    }

    /// The counters, for the reader of the capture to add to.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.context.counters
    }

    /// From now on, cycles that end are collected for [`Pipeline::take_ended`].
    pub fn note_ended(&mut self) {
        self.context.ended = Some(Vec::new());
    }

    /// From now on, connections that are over hold no more than their rows and late packets need. Not for a live pass, whose
    /// views show all of them until it closes them.
    pub fn settle_early(&mut self) {
        self.settling.begin();
    }

    /// From now on, the senders are analysed in a thread of its own, if they are, and there is more than one processor. Not for
    /// a pass whose senders are looked at before its end.
    pub fn analyse_apart(&mut self) {
        self.context.apart = Apart::Wanted;
    }

    /// Ends the commands in flight of connections and sessions that are over; a status that comes after all sets the end again.
    pub fn end_closed(&mut self) {
        for connection in self.slots.iter().flatten() {
            if let Content::Iscsi(iscsi) = &connection.content {
                iscsi.connection.end_in_flight(&connection.closing(), false, &mut self.context);
            }
        }
    }

    /// Moves the cycles that ended since the last call to `ended`: by status, by task management, or with their
    /// connection, if [`Pipeline::end_closed`] is called.
    #[inline]
    pub fn take_ended(&mut self, ended: &mut Vec<CycleId>) {
        if let Some(noted) = &mut self.context.ended {
            ended.append(noted);
        }
    }

    /// From now on, notes of the streams are collected for [`Pipeline::take_notes`].
    pub fn keep_notes(&mut self) {
        self.context.notes = Some(Vec::new());
    }

    /// The notes since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        self.context.notes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Closes all connections at the end of the input, and returns the last notes instead of tables.
    pub fn finish_notes(mut self) -> Vec<Note> {
        self.close_all();
        self.take_notes()
    }

    /// The connection of the packet that was processed last, and its TCP direction: 0 from the client, 1 from the server.
    pub fn connection_of(&mut self, segment: &Segment<'_>) -> Option<(u32, usize)> {
        let source = Endpoint { address: segment.source, port: segment.source_port };
        let destination = Endpoint { address: segment.destination, port: segment.destination_port };
        let slot = self.table.find(source, destination)?;
        let connection = self.slots.get(slot as usize)?.as_ref()?;
        Some((connection.number, usize::from(connection.ends[0] != source)))
    }

    /// All cycles so far, those in flight included.
    pub fn cycles(&self) -> &Cycles {
        &self.context.tables.cycles
    }

    /// What is in flight in each session; rows of `cycles` name the same sessions.
    pub fn in_flight(&self) -> FxHashMap<u32, InFlight> {
        let mut found: FxHashMap<u32, InFlight> = FxHashMap::default();
        for (_, iscsi) in self.iscsi() {
            let Some(session) = iscsi.connection.session else { continue };
            let in_flight = found.entry(session).or_default();
            *in_flight = in_flight.with(iscsi.connection.in_flight(&self.context));
        }
        found
    }

    /// Processes one packet.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>) {
        // by reference: a copy would wait for the writes before it
        match &segment(packet.link_type, packet.data, packet.original_length) {
            Ok(segment) => self.tcp(packet, segment),
            Err(reason) => self.not_tcp(reason, packet),
        }
    }

    #[cold]
    fn not_tcp(&mut self, reason: &NotTcp, packet: &Packet<'_>) {
        let counter = match reason {
            NotTcp::IcmpError(error) if self.icmp_error(error, packet) => return,
            NotTcp::Question(question) => {
                self.question(question, packet);
                Counter::NotTcp
            }
            NotTcp::IcmpError(_) | NotTcp::NotIp | NotTcp::OtherProtocol(_) => Counter::NotTcp,
            NotTcp::Fragment => Counter::FragmentOfIp,
            NotTcp::Tunnel => Counter::Tunnel,
            NotTcp::CutInHeaders => Counter::FrameCutInHeaders,
            NotTcp::Malformed => Counter::FrameMalformed,
            NotTcp::UnsupportedLinkType => Counter::LinkTypeUnsupported,
        };
        self.context.counters.add(counter, None, packet.frame);
    }

    /// Adds the row of an error about a packet of an open connection; false if it is of none.
    fn icmp_error(&mut self, error: &wire::IcmpError, packet: &Packet<'_>) -> bool {
        let source = Endpoint { address: error.source, port: error.source_port };
        let destination = Endpoint { address: error.destination, port: error.destination_port };
        let slot = self.table.find(source, destination);
        let Some(Some(connection)) = slot.and_then(|slot| self.slots.get_mut(slot as usize)) else { return false };
        let tables = &mut self.context.tables;
        if tables.icmp_errors.row_count() >= self.limits.icmp_error_rows {
            self.context.counters.add(Counter::IcmpErrorsNotListed, Some(connection.number), packet.frame);
            return true;
        }
        connection.has_icmp_errors = true;
        tables.icmp_errors.push(IcmpError {
            connection: connection.number,
            // from the client, until it is known which side is the target
            to_target: connection.ends[0] == source,
            frame: packet.frame,
            time_ns: packet.time_ns,
            kind: error.kind as u8,
            code: error.code,
            mtu_bytes: error.mtu_bytes.unwrap_or(NULL_U32),
            reporter_address: error.reporter.to_string(),
        });
        true
    }

    /// Counts a question whether a host is there, or its answer.
    fn question(&mut self, question: &wire::Question, packet: &Packet<'_>) {
        let wire::Question { kind, is_answer, asker, asked } = *question;
        let rows = &mut self.context.tables.host_questions;
        let row = match self.questions.get(&(kind as u8, asker, asked)) {
            Some(&row) => row as usize,
            None if rows.row_count() >= QUESTIONS_MAX => {
                self.context.counters.add(Counter::HostQuestionsNotListed, None, packet.frame);
                return;
            }
            None => {
                self.questions.insert((kind as u8, asker, asked), rows.row_count() as u32);
                rows.push(HostQuestion {
                    kind: kind as u8,
                    asker_address: asker.to_string(),
                    asked_address: asked.to_string(),
                    frame_first: packet.frame,
                    time_first_ns: packet.time_ns,
                    ..HostQuestion::default()
                });
                rows.row_count() - 1
            }
        };
        // not before the first, where the clock runs backwards
        let now_ns = packet.time_ns.max(rows.time_first_ns[row]);
        if is_answer {
            rows.answer_count[row] += 1;
            rows.time_answered_ns[row] = rows.time_answered_ns[row].max(now_ns);
        } else {
            rows.question_count[row] += 1;
            rows.time_last_ns[row] = rows.time_last_ns[row].max(now_ns);
        }
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
        let Some(Some(connection)) = self.slots.get_mut(slot as usize) else { return };
        // a connection of a host to itself has one direction only
        let direction = usize::from(connection.ends[0] != source);
        connection.take(direction, packet, segment, &mut self.context, &mut self.budget);
    }

    /// The slot of the packet's connection; opens a new one at its start (Wireshark's rule, see `stream::table`).
    #[inline]
    fn slot(&mut self, source: Endpoint, destination: Endpoint, packet: &Packet<'_>, segment: &Segment<'_>) -> u32 {
        let is_opening = segment.flags.is_syn() && !segment.flags.is_ack();
        if let Some(slot) = self.table.find(source, destination) {
            if !is_opening {
                return slot;
            }
            if let Some(Some(connection)) = self.slots.get_mut(slot as usize) {
                // a FIN or RST may wait
                connection.read_waiting(&mut self.context, &mut self.budget);
            }
            if !self.is_reused(slot, source, segment) {
                return slot;
            }
            if let Some(Some(connection)) = self.slots.get_mut(slot as usize) {
                connection.end_replaced(packet.time_ns, &mut self.context);
            }
            self.close(slot);
        }
        self.open(source, destination, packet, segment)
    }

    #[cold]
    fn is_reused(&self, slot: u32, source: Endpoint, segment: &Segment<'_>) -> bool {
        let Some(Some(connection)) = self.slots.get(slot as usize) else { return false };
        let half = &connection.halves[usize::from(connection.ends[0] != source)];
        half.initial_sequence_number
            .is_some_and(|initial| initial != segment.sequence_number || connection.has_fin() || connection.has_rst())
    }

    #[cold]
    fn open(&mut self, source: Endpoint, destination: Endpoint, packet: &Packet<'_>, segment: &Segment<'_>) -> u32 {
        if self.open_count() >= self.limits.connections.max(self.close_at) {
            self.close_quietest(packet);
        }
        let number = self.connection_count;
        self.connection_count += 1;
        // the server sends the SYN-ACK
        let is_syn_ack = segment.flags.is_syn() && segment.flags.is_ack();
        let ends = if is_syn_ack { [destination, source] } else { [source, destination] };
        let connection = Some(Box::new(TcpConnection::new(number, ends, packet, self.context.tables.wanted)));
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = connection;
                slot
            }
            None => {
                self.slots.push(connection);
                (self.slots.len() - 1) as u32
            }
        };
        self.table.insert(source, destination, slot);
        self.settling.note((slot, number), packet.time_ns, &mut self.slots, &mut self.context);
        slot
    }

    /// Notes where the open iSCSI connections reach their targets: tries to connect there are listed.
    fn note_portals(&mut self) {
        let open = self.slots.iter().flatten().filter(|connection| matches!(connection.content, Content::Iscsi(_)));
        open.for_each(|connection| note_portal(&mut self.portals, connection.target()));
    }

    /// The number of open connections.
    fn open_count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Closes the quieter half of the connections that are over or not iSCSI, first those that are over; of all, if there are
    /// none, and too many of iSCSI.
    fn close_quietest(&mut self, packet: &Packet<'_>) {
        let rank = |connection: &TcpConnection| match connection.content {
            _ if connection.is_over(packet.time_ns) => 0,
            Content::Iscsi(_) => 2,
            _ => 1,
        };
        let mut quiet: Vec<(u8, u64, u32)> = (0..)
            .zip(&self.slots)
            .filter_map(|(slot, connection)| connection.as_ref().map(|connection| (slot, connection)))
            .map(|(slot, connection)| (rank(connection), connection.frame_last, slot))
            .collect();
        quiet.sort_unstable();
        let expendable_count = quiet.partition_point(|&(rank, ..)| rank < 2);
        let is_full = expendable_count == 0 && quiet.len() >= self.limits.iscsi_connections;
        let count = if is_full { quiet.len() } else { expendable_count };
        let kept_count = quiet.len() - count.div_ceil(2);
        self.close_at = (kept_count + self.limits.connections / LOOKED_AT_PARTS).min(self.limits.iscsi_connections);
        quiet.truncate(count.div_ceil(2));
        let not_tracked_count = quiet.iter().filter(|&&(rank, ..)| rank > 0).count();
        self.context.counters.add_many(Counter::ConnectionsNotTracked, None, packet.frame, not_tracked_count as u64);
        self.note_portals();
        for (.., slot) in quiet {
            self.close(slot);
        }
    }

    /// Reads the packets that waited long enough for others. Sessions last as long as their connections, as far as these
    /// were read.
    pub(crate) fn read_waiting(&mut self, until_ns: i64) {
        let Self { slots, context, budget, .. } = self;
        for connection in slots.iter_mut().flatten() {
            connection.read_waiting_before(until_ns.saturating_sub(AWAITED_NS), context, budget);
            if let Some(session) = connection.session() {
                context.sessions.note_time(session, connection.time_first_ns, connection.time_last_ns);
            }
        }
    }

    /// Starts or stops the analysis of the senders under way.
    pub(crate) fn set_wanted(&mut self, wanted: Wanted) {
        self.context.tables.wanted = wanted;
        self.slots.iter_mut().flatten().for_each(|connection| connection.set_dynamics(wanted));
    }

    /// The open connections.
    pub(crate) fn connections(&self) -> impl Iterator<Item = &TcpConnection> {
        self.slots.iter().flatten().map(|connection| &**connection)
    }

    /// Those that are iSCSI.
    fn iscsi(&self) -> impl Iterator<Item = (&TcpConnection, &IscsiContent)> {
        self.connections().filter_map(|connection| match &connection.content {
            Content::Iscsi(iscsi) => Some((connection, &**iscsi)),
            _ => None,
        })
    }

    /// Closes a connection and adds its row.
    pub(crate) fn close(&mut self, slot: u32) {
        let Some(mut connection) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        self.table.remove(connection.ends[0], connection.ends[1], slot);
        self.free.push(slot);
        self.end(&mut connection);
    }

    /// Ends a connection and adds its row.
    fn end(&mut self, connection: &mut TcpConnection) {
        let row = connection.finish(&mut self.context, &mut self.budget);
        if connection.has_icmp_errors && connection.is_flipped() {
            turn(&mut self.context.tables.icmp_errors, row.connection);
        }
        if row.is_iscsi && self.context.tables.wanted.segments {
            self.with_segments.insert(row.connection, connection.is_flipped());
        }
        if row.is_iscsi {
            note_portal(&mut self.portals, connection.target());
        } else {
            let server = connection.target();
            let is_portal = PORTS.contains(&server.port) || self.portals.contains(&server);
            let count = &mut self.other_rows[usize::from(is_portal)];
            *count += 1;
            if *count > self.limits.other_rows {
                self.context.counters.add(Counter::ConnectionsNotListed, None, row.frame_first);
                return;
            }
        }
        self.rows.push(row);
    }

    /// Closes all open connections.
    pub(crate) fn close_all(&mut self) {
        let mut open: Vec<(u32, u32)> = (0..)
            .zip(&self.slots)
            .filter_map(|(slot, connection)| connection.as_ref().map(|connection| (connection.number, slot)))
            .collect();
        open.sort_unstable();
        self.note_portals();
        let part = open.len().div_ceil(GIVEN_BACK_IN);
        for (closed, (_, slot)) in open.into_iter().enumerate() {
            // rows come in the place of what the first ones held
            if closed > 0 && closed.is_multiple_of(part) && self.connection_count > LARGE_FROM_CONNECTIONS {
                iscsitrace_sys::give_back();
            }
            self.close(slot);
        }
    }

    /// A pass that ends here, of all rows but those of PDUs and of connections that were closed before. The pass goes on:
    /// each open connection is ended in a copy of its own.
    pub(crate) fn ended(&mut self, closed: Id<Connections>) -> Self {
        let pdus = std::mem::take(&mut self.context.tables.pdus);
        let mut ended = Self {
            context: self.context.clone(),
            settling: self.settling.clone(),
            ledger: self.ledger.clone(),
            portals: self.portals.clone(),
            with_segments: self.with_segments.clone(),
            other_rows: self.other_rows,
            budget: self.budget.clone(),
            limits: self.limits,
            ..Self::default()
        };
        self.context.tables.pdus = pdus;
        ended.rows.copy_rows(&self.rows, &(self.rows.row(closed)..self.rows.row_count()).collect::<Vec<_>>());
        let mut open: Vec<&TcpConnection> = self.connections().collect();
        open.sort_unstable_by_key(|connection| connection.number);
        self.iscsi().for_each(|(connection, _)| note_portal(&mut ended.portals, connection.target()));
        open.into_iter().for_each(|connection| ended.end(&mut connection.clone()));
        ended
    }

    /// Adds the missing commands to counters and connection rows, which are sorted by then.
    pub(crate) fn add_missing_commands(&mut self) {
        self.rows.sort_by_connection();
        for (connection, missing) in self.context.sessions.missing_commands() {
            self.context.counters.add_many(Counter::CommandMissing, Some(connection), 0, missing.commands);
            if let Ok(place) = self.rows.connection.binary_search(&connection) {
                self.rows.missing_pdu_count_to_target[place] += missing.commands + missing.pdus[0];
                self.rows.missing_pdu_count_to_initiator[place] += missing.pdus[1];
            }
        }
    }

    /// Closes all connections at the end of the input, and completes the tables.
    pub fn finish(self) -> Tables {
        self.finish_after(|_| (), |_| ())
    }

    /// The same, with rows that leave by `let_go`, and changed by `change` before the time breakdown is made.
    pub(crate) fn finish_after(
        mut self,
        let_go: impl FnOnce(&mut Context),
        change: impl FnOnce(&mut Tables),
    ) -> Tables {
        self.close_all();
        let Context { digests, tables, counters, .. } = &mut self.context;
        digests.finish(&mut tables.violations, counters);
        std::mem::take(&mut self.context.apart).join(&mut self.context.tables, &mut self.context.timelines);
        self.settling.sort(&self.rows.connection, &mut self.context);
        self.add_missing_commands();
        let is_large = self.connection_count > LARGE_FROM_CONNECTIONS;
        (self.slots, self.free, self.table) = Default::default();
        std::mem::take(&mut self.ledger).take_all(&mut self.context);
        let_go(&mut self.context);
        let Context { mut tables, counters, sessions, mut timelines, .. } = self.context;
        settle(&mut tables.segments, &self.with_segments);
        (tables.logical_units, tables.alua_states) = sessions.logical_units();
        tables.sessions = sessions.rows;
        line::fill(&mut tables.senders, &mut timelines);
        held::settle(&mut timelines, &tables.cycles, &mut tables.senders);
        // what connections and deliveries held is free now; the time breakdown of many follows
        if is_large {
            iscsitrace_sys::give_back();
        }
        tables.connections = self.rows;
        succession::fill(&mut tables.sessions, &tables.connections);
        change(&mut tables);
        if tables.wanted.budget {
            let succession = Succession::of(&tables.sessions, &sessions.states);
            budget::fill(&mut tables, &timelines, &succession);
        }
        tables.counters = counter_rows(&counters);
        drop((timelines, counters, sessions.states));
        if is_large {
            iscsitrace_sys::give_back();
        }
        tables
    }
}

fn note_portal(portals: &mut FxHashSet<Endpoint>, portal: Endpoint) {
    if portals.len() < PORTALS_MAX {
        portals.insert(portal);
    }
}

/// Removes the rows of other connections, and turns those whose client is the target. Rows of packets that waited for
/// others come to their place.
fn settle(segments: &mut Segments, is_flipped: &FxHashMap<u32, bool>) {
    if !segments.frame.is_sorted() {
        let mut rows: Vec<usize> = (0..segments.row_count()).collect();
        rows.sort_unstable_by_key(|&row| segments.frame[row]);
        segments.reorder(&rows);
    }
    if segments.connection.iter().any(|connection| !is_flipped.contains_key(connection)) {
        let is_kept: Vec<_> = segments.connection.iter().map(|number| is_flipped.contains_key(number)).collect();
        segments.retain(&is_kept);
    }
    if is_flipped.values().any(|&is_flipped| is_flipped) {
        for (to_target, connection) in segments.to_target.iter_mut().zip(&segments.connection) {
            *to_target ^= is_flipped.get(connection) == Some(&true);
        }
    }
}

/// Turns the errors about a connection whose client is the target.
fn turn(errors: &mut IcmpErrors, connection: u32) {
    for (to_target, &number) in errors.to_target.iter_mut().zip(&errors.connection) {
        *to_target ^= number == connection;
    }
}

/// The rows of the table `counters`.
pub(crate) fn counter_rows(counters: &Counters) -> CounterRows {
    let mut rows = CounterRows::default();
    for (counter, connection, tally) in counters.sorted() {
        let definition = counter.definition();
        rows.push(CounterRow {
            name: definition.name.to_owned(),
            connection: connection.unwrap_or(NULL_U32),
            severity: definition.severity as u8,
            count: tally.count,
            first_frame: if tally.first_frame == 0 { NULL_U64 } else { tally.first_frame },
            meaning: definition.meaning.to_owned(),
            advice: definition.advice.to_owned(),
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::BhsBuilder;
    use iscsitrace_wire::frame::{Address, LinkType, TcpFlags};
    use iscsitrace_wire::opcode::Opcode;

    use super::*;
    use crate::connection::test_segment;
    use crate::tables::SegmentRow;

    #[test]
    fn segments_are_those_of_iscsi_connections_with_its_directions() {
        let row = |frame, connection, to_target| SegmentRow { frame, connection, to_target, ..SegmentRow::default() };
        let rows = [row(1, 0, true), row(3, 2, true), row(5, 2, false), row(2, 1, true), row(4, 1, false)];
        let mut segments = Segments::of(rows);
        // 0 is another connection; the client of 2 is the target
        settle(&mut segments, &[(1, false), (2, true)].into_iter().collect());
        assert_eq!(segments.frame, [2, 3, 4, 5]);
        assert_eq!(segments.connection, [1, 2, 1, 2]);
        assert_eq!(segments.to_target, [true, false, false, true]);
    }

    #[test]
    fn tries_to_connect_to_portals_have_rows_of_their_own() {
        let mut pipeline = Pipeline::new(Wanted::default());
        pipeline.limits.other_rows = 2;
        let login = BhsBuilder::new(Opcode::LoginRequest).is_transit(true).next_stage(1).build();
        let syn = |pipeline: &mut Pipeline, client_port: u16, server_port: u16, payload: &[u8]| {
            let frame = u64::from(client_port);
            let packet =
                Packet { frame, time_ns: 0, link_type: LinkType::RAW, interface: 0, original_length: 60, data: &[] };
            let flags = TcpFlags(if payload.is_empty() { 0x02 } else { 0x10 });
            let sequence_number = u32::from(!payload.is_empty());
            let ends = [Address::v4([10, 0, 0, 1]), Address::v4([10, 0, 0, 2])];
            pipeline.tcp(
                &packet,
                &Segment {
                    source: ends[0],
                    destination: ends[1],
                    source_port: client_port,
                    destination_port: server_port,
                    sequence_number,
                    flags,
                    payload,
                    payload_length: payload.len() as u32,
                    ..test_segment::segment(Some(client_port), &[])
                },
            );
        };
        // of a scan two are listed; of the tries at a port of RFC 7143, and where a connection carried iSCSI, two too
        for client_port in 1..=5 {
            syn(&mut pipeline, client_port, 80, &[]);
        }
        syn(&mut pipeline, 6, 3260, &[]);
        syn(&mut pipeline, 7, 5000, &[]);
        syn(&mut pipeline, 8, 860, &[]);
        syn(&mut pipeline, 9, 5000, &[]);
        syn(&mut pipeline, 9, 5000, &login);
        let tables = pipeline.finish();
        assert_eq!(tables.connections.initiator_port, [1, 2, 6, 7, 9]);
        assert_eq!(
            (tables.counters.name, tables.counters.count),
            (["connections_not_listed"].into_iter().collect(), vec![4])
        );
    }

    #[test]
    fn connections_under_way_stay_open_beyond_the_limit_of_others() {
        let login = BhsBuilder::new(Opcode::LoginRequest).is_transit(true).next_stage(1).build();
        let open = |pipeline: &mut Pipeline, client_port: u16, payload: &[u8]| {
            let frame = u64::from(client_port);
            let packet =
                Packet { frame, time_ns: 0, link_type: LinkType::RAW, interface: 0, original_length: 60, data: &[] };
            let segment = Segment {
                source_port: client_port,
                destination_port: 3260,
                flags: TcpFlags(0x10),
                payload,
                payload_length: payload.len() as u32,
                ..test_segment::segment(Some(client_port), &[])
            };
            pipeline.tcp(&packet, &segment);
        };
        let mut pipeline = Pipeline::new(Wanted::default());
        (pipeline.limits.connections, pipeline.limits.iscsi_connections) = (8, 20);
        (1..=20).for_each(|port| open(&mut pipeline, port, &login));
        assert_eq!(pipeline.open_count(), 20);
        // as many as can be: the quieter half of all is closed
        open(&mut pipeline, 21, &login);
        assert_eq!(pipeline.open_count(), 11);
        (22..=60).for_each(|port| open(&mut pipeline, port, &[]));
        let iscsi = pipeline.slots.iter().flatten().filter(|open| matches!(open.content, Content::Iscsi(_))).count();
        assert_eq!(iscsi, 11, "those of other protocols are closed before");
        assert!(pipeline.open_count() <= 20);
    }

    #[test]
    fn a_counter_without_a_frame_has_none() {
        let mut counters = Counters::default();
        counters.add(Counter::NotTcp, None, 8);
        counters.add_many(Counter::UnexplainedBytes, Some(2), 0, 40);
        let rows = counter_rows(&counters);
        assert_eq!(rows.name, ["not_tcp", "unexplained_bytes"]);
        assert_eq!((&rows.connection[..], &rows.count[..]), (&[NULL_U32, 2][..], &[1, 40][..]));
        assert_eq!(rows.first_frame, [8, NULL_U64]);
        // info 0, data_loss 2
        assert_eq!(rows.severity, [0, 2]);
    }
}
