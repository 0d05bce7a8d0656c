//! One iSCSI connection: its PDUs -> session, login keys, tasks, and the tables of everything else.
//!
//! It receives PDUs from the framers of both directions, and judges which headers fit. Packets are not seen here. Tasks
//! stay on their connection (RFC 7143 section 4.2.5.1: connection allegiance).

mod acknowledged;
mod cut_header;
mod data_packets;
mod descriptions;
pub mod ending;
mod expected;
mod fit;
pub mod in_flight;
mod judging;
mod kept_data;
pub mod last_pdus;
pub mod listener;
mod lost_status;
mod numbering;
mod past;
mod table_rows;
mod tasks;
#[cfg(test)]
mod tests;
mod unclaimed;

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use iscsitrace_wire::digest;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;
use rustc_hash::FxHashMap;

use super::by_unit::ByUnit;
use super::cycle_row::DataOutBurst;
use super::digest_use::Digests;
use super::exchange::Exchanges;
use super::keys::Negotiation;
use super::login::Login;
use super::lost_statuses::LostStatuses;
use super::missing_pdus::{MissingPdus, UnreadBytes};
use super::pdu::Pdu;
use super::pdu_row;
use super::ranges::{COMMANDS, Ranges};
use super::session::missing_commands::PduTotals;
use super::spans::Spans;
use super::task::Task;
use crate::conformance::Judge;
use crate::context::Context;
use crate::counters::Counter;
use crate::stream::closing::Closing;
use crate::tables::{CycleId, NULL_NS, WriteStart};
use acknowledged::Acknowledged;
use data_packets::LastDataPacket;
use descriptions::Descriptions;
use expected::Expected;
use kept_data::{WRITE_START_BYTES_MAX, begins_write};
use last_pdus::LastPdus;
use unclaimed::Unclaimed;

/// What the last header from the initiator started.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
enum Begun {
    #[default]
    Nothing,
    Command {
        cycle: CycleId,
    },
    DataOut {
        cycle: CycleId,
        burst: DataOutBurst,
    },
}

/// One iSCSI connection.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct IscsiConnection {
    /// Connection number.
    pub number: u32,
    /// Its session, once known.
    pub session: Option<u32>,
    /// Its login, if captured.
    pub login: Login,
    /// Where the PDUs of cycles lie, by direction (to the target first).
    pub spans: [Spans; 2],
    data_packets: [LastDataPacket; 2],
    /// PDUs whose header was captured up to the task tag, by direction.
    pub pdu_count: [u64; 2],
    /// The last PDU, by direction.
    pub last_pdus: LastPdus,
    /// Missing PDUs according to sequence numbers and byte counts, by direction.
    pub missing: MissingPdus,
    /// Whether bytes are missing from the capture.
    pub has_gap: bool,
    /// Whether every PDU was read, from the first one on: then what its numbers skip was never sent.
    is_whole: bool,
    /// The last progress of its reads, writes and flushes: new data, an R2T or a status.
    progress_ns: i64,
    /// MaxRecvDataSegmentLength of the receiver, by direction, after the login.
    longest_data: [Option<u32>; 2],
    /// Whether its target sends the status of a read with the last Data-In; none before the first.
    is_status_in_data: Option<bool>,
    totals: PduTotals,
    /// Boxed: the table has room for as many as were ever open at once.
    tasks: FxHashMap<u32, Box<Task>>,
    /// The same by logical unit, once a reset asked.
    by_unit: ByUnit,
    /// The latest tasks that were aborted, by tag.
    aborted: VecDeque<(u32, Box<Task>)>,
    /// Number of tasks so far.
    tasks_opened: u64,
    /// The command or Data-Out with the last header. It counts from its header on, because its answer can be read
    /// before its own last bytes.
    begun: Begun,
    /// The task whose Data-Out came last.
    sending: Option<u32>,
    exchanges: Exchanges,
    unclaimed: VecDeque<Unclaimed>,
    descriptions: Descriptions,
    lost_statuses: LostStatuses,
    /// What must come next, by direction.
    expected: [Expected; 2],
    /// StatSN that came; none before the first.
    statuses: Option<Ranges>,
    exp_cmd_sn: Option<SerialNumber>,
    max_cmd_sn: Option<SerialNumber>,
    cmd_sn: Option<SerialNumber>,
    exp_stat_sn: Option<SerialNumber>,
    /// What the receiver had acknowledged, by direction of what it acknowledges.
    acknowledged: [Acknowledged; 2],
    /// Who breaks the protocol, if that is wanted.
    judge: Option<Box<Judge>>,
}

impl IscsiConnection {
    /// A new iSCSI connection.
    pub fn new(number: u32) -> Self {
        Self { number, progress_ns: NULL_NS, ..Self::default() }
    }

    /// It is read from the start of both streams.
    pub fn begin_whole(&mut self) {
        self.is_whole = true;
    }

    /// Whether every PDU was read, from the first one on.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The keys of its login.
    pub fn negotiation(&self) -> &Negotiation {
        &self.login.negotiation
    }

    /// Its session; one without names if the login was not captured.
    fn session(&mut self, context: &mut Context) -> u32 {
        *self.session.get_or_insert_with(|| context.sessions.open_unknown(self.number))
    }

    /// Processes a PDU. Returns the digests in use from now on, if it ends a login.
    fn take(&mut self, pdu: &Pdu<'_>, to_target: bool, context: &mut Context) -> Option<Digests> {
        let bhs = pdu.bhs();
        let opcode = bhs.opcode()?;
        self.count_pdu(bhs, opcode);
        self.last_pdus.note(opcode, pdu.first);
        let mut cycle = None;
        let mut digests = None;
        let receiver = usize::from(!to_target);
        if self.longest_data[receiver]
            .is_some_and(|longest| bhs.data_segment_length().is_some_and(|length| length > longest))
        {
            context.counters.add(Counter::DataSegmentTooLong, Some(self.number), pdu.first.frame);
        }
        self.note_numbers(bhs, opcode, pdu.first, context);
        if matches!(opcode, Opcode::LoginRequest | Opcode::LoginResponse) {
            digests = self.login(pdu, context);
        }
        if context.tables.wanted.violations {
            self.judge_pdu(pdu, opcode, context);
        }
        match opcode {
            Opcode::DataIn | Opcode::DataOut | Opcode::ScsiResponse if bhs.initiator_task_tag().is_none() => {
                cycle = self.of_next_task(pdu, opcode, context);
                if cycle.is_none() {
                    self.note_without_task(pdu.first.frame, context);
                }
            }
            Opcode::ScsiCommand | Opcode::DataOut => cycle = self.complete(pdu, context),
            Opcode::DataIn | Opcode::ReadyToTransfer | Opcode::ScsiResponse => {
                cycle = self.of_task(pdu, opcode, context);
            }
            Opcode::LoginRequest | Opcode::LoginResponse => {}
            Opcode::TaskManagementResponse => {
                if let Some(managed) = self.exchanges.task_management_response(pdu, context) {
                    self.managed(managed, pdu, context);
                }
            }
            Opcode::TaskManagementRequest => {
                let referenced = bhs.referenced_task_tag().and_then(|tag| self.tasks.get(&tag)).map(|task| task.cycle);
                self.exchanges.task_management_request(pdu, self.number, referenced, context);
            }
            Opcode::TextRequest | Opcode::TextResponse => {
                self.exchanges.text(pdu, self.number, to_target, &mut self.login.negotiation, context);
            }
            Opcode::LogoutRequest => self.exchanges.logout_request(pdu, self.number, context),
            Opcode::LogoutResponse => {
                if let Some((reason, cid)) = self.exchanges.logout_response(pdu, context) {
                    self.logged_out(reason, cid, pdu.completion().time_ns, context);
                }
            }
            Opcode::NopOut | Opcode::NopIn => self.exchanges.nop(pdu, self.number, to_target, context),
            Opcode::Reject => {
                self.exchanges.reject(pdu, self.number, context);
                self.rejected(pdu, context);
            }
            Opcode::AsyncMessage => self.exchanges.asynchronous(pdu, self.number, context),
            Opcode::SnackRequest => self.exchanges.snack(pdu, self.number, context),
        }
        if !opcode.is_initiator() && (opcode != Opcode::DataIn || bhs.has_status() == Some(true)) {
            self.end_lost_tasks(context);
        }
        self.note_carrier(bhs, opcode);
        self.note_next(bhs, opcode, &context.tables.cycles);
        if let Some(cycle) = cycle {
            let is_data =
                matches!(opcode, Opcode::DataIn | Opcode::DataOut) && bhs.data_segment_length().unwrap_or(0) > 0;
            let has_status = opcode == Opcode::ScsiResponse || bhs.has_status() == Some(true);
            self.spans[usize::from(!to_target)].push_answer(
                (pdu.offset, pdu.end),
                is_data.then_some((pdu.data_end, pdu.data_last_ns)),
                pdu.last.filter(|_| has_status).map_or(NULL_NS, |last| last.time_ns),
                cycle,
                &mut context.tables.cycles,
            );
            // sense data are no data of the command
            if opcode != Opcode::ScsiResponse {
                self.data_packets[usize::from(!to_target)].count(pdu.data_packets, cycle, &mut context.tables.cycles);
            }
        }
        if context.tables.wanted.write_starts
            && let Some(cycle) = cycle
            && begins_write(bhs)
            && !pdu.data.is_empty()
        {
            let bytes = pdu.data.len().min(WRITE_START_BYTES_MAX);
            let crc32c = digest::crc32c(&pdu.data[..bytes]);
            let cycle = cycle.number();
            context.tables.write_starts.push(WriteStart { cycle, bytes: bytes as u8, crc32c });
        }
        if context.tables.wanted.pdus {
            let row = pdu_row::row(pdu, opcode, self.number, to_target, cycle.map(CycleId::number));
            context.tables.pdus.push(row);
        }
        digests
    }

    /// Processes a Login PDU. Returns the digests in use from now on, if it ends the login.
    #[cold]
    fn login(&mut self, pdu: &Pdu<'_>, context: &mut Context) -> Option<Digests> {
        let digests = self.login.take(pdu, self.number, &mut self.session, context)?;
        self.longest_data = [true, false].map(|of_target| self.negotiation().max_recv_data_segment_length(of_target));
        let is_in_any_order = self.negotiation().is_negotiated_no("DataSequenceInOrder");
        if let Some(state) = self.session.and_then(|session| context.sessions.state_mut(session)) {
            state.is_data_in_any_order |= is_in_any_order;
        }
        Some(digests)
    }

    /// Gives memory back that a connection under way needs; all that only PDUs to come need, if every byte was decoded.
    pub fn shrink(&mut self, is_decoded: bool) {
        self.tasks.shrink_to_fit();
        self.exchanges.shrink();
        self.unclaimed.shrink_to_fit();
        if is_decoded {
            self.spans.iter_mut().for_each(Spans::clear);
            self.data_packets = Default::default();
            self.descriptions = Descriptions::default();
        }
    }

    /// Ends the connection; `unread` are the bytes of no decoded PDU, by direction.
    pub fn finish(&mut self, closing: &Closing, unread: [UnreadBytes; 2], context: &mut Context) {
        self.end_tasks(closing, context);
        let has_pdus = self.pdu_count != [0; 2] || self.missing.count != [0; 2];
        for (direction, unread) in unread.into_iter().enumerate() {
            let (bytes, least) = self.missing.settle(direction, unread, &self.totals.carriers[direction]);
            self.totals.unread_bytes[direction] = bytes;
            self.totals.least_answers += least;
        }
        // a connection with PDUs belongs to a session, at least to one without names
        if has_pdus {
            let session = self.session(context);
            if let Some(state) = context.sessions.state_mut(session) {
                state.totals = state.totals.with(&self.totals);
                if let Some((commands, exp_cmd_sn)) = state.commands.as_mut().zip(self.exp_cmd_sn) {
                    if self.is_whole {
                        // what the target never had was never sent
                        commands.pass_from(exp_cmd_sn, &COMMANDS);
                    } else {
                        // the last commands may be missing, too
                        commands.reach(exp_cmd_sn, &COMMANDS);
                    }
                }
            }
        }
    }
}
