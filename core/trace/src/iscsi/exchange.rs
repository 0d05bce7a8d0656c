//! Everything except SCSI tasks: task management, NOP, Text, Logout, Reject, Asynchronous Message, SNACK; each with its
//! table.
//!
//! Requests are paired with their responses by tag, on one connection.

use iscsitrace_wire::bhs::{Bhs, RESERVED_TAG};
use iscsitrace_wire::lun;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::reject::RejectReason;
use iscsitrace_wire::serial::SerialNumber;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::continued_text::ContinuedText;
use super::keys::{self, Negotiation};
use super::pdu::Pdu;
use crate::context::Context;
use crate::counters::Counter;
use crate::tables::{
    Async, CycleId, Id, Logout, NULL_U8, NULL_U32, Nop, Reject, Snack, Tables, TaskManagement, TextRow,
};

/// Maximum requests without a response; further ones are not paired.
const OPEN_MAX: usize = 4096;
/// Maximum text kept of one exchange.
const SHOWN_TEXT_MAX: usize = 4096;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Task Management Function Request.
    TaskManagement,
    /// NOP-Out that asks for a NOP-In.
    InitiatorPing,
    /// NOP-In that asks for a NOP-Out.
    TargetPing,
    /// Text Request.
    Text,
    /// Logout Request.
    Logout,
}

/// An open request: its kind and tag.
type Key = (Kind, u32);

/// A task management function that has its response.
#[derive(Debug, Clone, Copy)]
pub struct Managed {
    /// Function code.
    pub function: u8,
    /// Response code.
    pub response: u8,
    /// Referenced Task Tag.
    pub referenced_task_tag: u32,
    /// Logical unit number.
    pub lun: Option<u64>,
    /// CmdSN of the request.
    pub cmd_sn: Option<SerialNumber>,
}

/// The open requests of one connection.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Exchanges {
    /// The number of its row: the table follows from its kind; and how many were opened before it.
    open: FxHashMap<Key, (u32, u64)>,
    /// CmdSN of the open task management requests, by tag.
    cmd_sns: FxHashMap<u32, SerialNumber>,
    /// Number of requests that were noted as open.
    opened: u64,
    requested: ContinuedText,
    answered: ContinuedText,
}

/// Whether the response of a request takes a StatSN: an echo of the initiator has none.
fn has_stat_sn((kind, _): Key) -> bool {
    kind != Kind::TargetPing
}

fn tag(bhs: Bhs<'_>) -> u32 {
    bhs.initiator_task_tag().unwrap_or(NULL_U32)
}

impl Exchanges {
    /// Gives memory back that a connection under way needs.
    pub fn shrink(&mut self) {
        self.open.shrink_to_fit();
        self.cmd_sns.shrink_to_fit();
    }

    fn remember<T>(&mut self, kind: Kind, tag: u32, id: Id<T>) {
        if self.open.len() < OPEN_MAX {
            self.open.insert((kind, tag), (id.number(), self.opened));
            self.opened += 1;
        }
    }

    /// Number of requests that were noted as open.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// How many of the first requests are open whose response takes a StatSN.
    pub fn open_until(&self, count: u64) -> usize {
        self.open.iter().filter(|&(&key, &(_, place))| has_stat_sn(key) && place < count).count()
    }

    /// The responses of these are missing from the capture.
    pub fn close_until(&mut self, count: u64) {
        self.open.retain(|&key, &mut (_, place)| !has_stat_sn(key) || place >= count);
    }

    /// Number of requests that are open no longer.
    pub fn ended(&self) -> u64 {
        self.opened - self.open.len() as u64
    }

    /// Rows left the tables: drops requests among them.
    pub fn forget(&mut self, tables: &Tables) {
        self.open.retain(|(kind, _), (number, _)| match kind {
            Kind::TaskManagement => tables.task_management.has(Id::new(*number)),
            Kind::InitiatorPing | Kind::TargetPing => tables.nops.has(Id::new(*number)),
            Kind::Text => tables.texts.has(Id::new(*number)),
            Kind::Logout => tables.logouts.has(Id::new(*number)),
        });
    }

    /// A Task Management Function Request.
    pub fn task_management_request(
        &mut self,
        pdu: &Pdu<'_>,
        connection: u32,
        referenced_cycle: Option<CycleId>,
        context: &mut Context,
    ) {
        let bhs = pdu.bhs();
        let function = bhs.function().unwrap_or(NULL_U8);
        let id = context.tables.task_management.next_id();
        context.tables.task_management.push(TaskManagement {
            connection,
            request_ns: pdu.completion().time_ns,
            request_frame: pdu.completion().frame,
            function,
            function_text: function_text(function).to_owned(),
            initiator_task_tag: tag(bhs),
            referenced_task_tag: bhs.referenced_task_tag().unwrap_or(NULL_U32),
            referenced_cycle: referenced_cycle.map_or(NULL_U32, CycleId::number),
            lun: bhs.lun().map_or(u64::MAX, lun::number),
            ..TaskManagement::default()
        });
        self.remember(Kind::TaskManagement, tag(bhs), id);
        if let Some(cmd_sn) = bhs.cmd_sn().filter(|_| self.cmd_sns.len() < OPEN_MAX) {
            self.cmd_sns.insert(tag(bhs), cmd_sn);
        }
    }

    /// Its response; returns both.
    pub fn task_management_response(&mut self, pdu: &Pdu<'_>, context: &mut Context) -> Option<Managed> {
        let bhs = pdu.bhs();
        let cmd_sn = self.cmd_sns.remove(&tag(bhs));
        let (number, _) = self.open.remove(&(Kind::TaskManagement, tag(bhs)))?;
        let table = &mut context.tables.task_management;
        let row = table.row(Id::new(number));
        table.response_ns[row] = pdu.completion().time_ns;
        table.response_frame[row] = pdu.completion().frame;
        table.response[row] = bhs.response().unwrap_or(NULL_U8);
        table.response_text.set(row, bhs.response().map_or("", response_text));
        Some(Managed {
            function: table.function[row],
            response: bhs.response()?,
            referenced_task_tag: table.referenced_task_tag[row],
            lun: (table.lun[row] != u64::MAX).then_some(table.lun[row]),
            cmd_sn,
        })
    }

    /// A NOP-Out or NOP-In: a request, its answer, or neither (RFC 7143 sections 11.18 and 11.19).
    pub fn nop(&mut self, pdu: &Pdu<'_>, connection: u32, is_from_initiator: bool, context: &mut Context) {
        let bhs = pdu.bhs();
        let initiator_task_tag = tag(bhs);
        let target_transfer_tag = bhs.target_transfer_tag().unwrap_or(RESERVED_TAG);
        let nop = Nop { connection, initiator_task_tag, target_transfer_tag, ..Nop::default() };
        let echo_of = if is_from_initiator {
            (target_transfer_tag != RESERVED_TAG).then_some((Kind::TargetPing, target_transfer_tag))
        } else {
            (initiator_task_tag != RESERVED_TAG).then_some((Kind::InitiatorPing, initiator_task_tag))
        };
        if let Some(key) = echo_of {
            if let Some((number, _)) = self.open.remove(&key) {
                let row = context.tables.nops.row(Id::new(number));
                context.tables.nops.response_ns[row] = pdu.completion().time_ns;
                context.tables.nops.response_frame[row] = pdu.completion().frame;
                return;
            }
            // the request was not captured
            context.tables.nops.push(Nop {
                response_ns: pdu.completion().time_ns,
                response_frame: pdu.completion().frame,
                is_from_initiator: !is_from_initiator,
                is_ping: true,
                ..nop
            });
            return;
        }
        let asks = if is_from_initiator { initiator_task_tag } else { target_transfer_tag };
        let id = context.tables.nops.next_id();
        context.tables.nops.push(Nop {
            request_ns: pdu.completion().time_ns,
            request_frame: pdu.completion().frame,
            is_from_initiator,
            is_ping: asks != RESERVED_TAG,
            ..nop
        });
        if asks != RESERVED_TAG {
            self.remember(if is_from_initiator { Kind::InitiatorPing } else { Kind::TargetPing }, asks, id);
        }
    }

    /// A Text Request or Text Response; its keys count as negotiated (RFC 7143 section 6.4).
    pub fn text(
        &mut self,
        pdu: &Pdu<'_>,
        connection: u32,
        is_request: bool,
        negotiation: &mut Negotiation,
        context: &mut Context,
    ) {
        let bhs = pdu.bhs();
        let continued = if is_request { &mut self.requested } else { &mut self.answered };
        let text = continued.take(pdu, connection, context);
        let shown = text.as_deref().map(shown).unwrap_or_default();
        if let Some(text) = &text {
            // a discovery response describes other targets, not this session
            if negotiation.initiator("SendTargets").is_none() && !text.starts_with(b"SendTargets=") {
                let oddities = negotiation.take(text, is_request, |_| ());
                oddities.count(connection, pdu.first.frame, &mut context.counters);
            }
        }
        if is_request {
            let id = context.tables.texts.next_id();
            context.tables.texts.push(TextRow {
                connection,
                request_ns: pdu.completion().time_ns,
                request_frame: pdu.completion().frame,
                initiator_task_tag: tag(bhs),
                request_text: shown,
                ..TextRow::default()
            });
            self.remember(Kind::Text, tag(bhs), id);
        } else if let Some((number, _)) = self.open.remove(&(Kind::Text, tag(bhs))) {
            let row = context.tables.texts.row(Id::new(number));
            context.tables.texts.response_ns[row] = pdu.completion().time_ns;
            context.tables.texts.response_frame[row] = pdu.completion().frame;
            context.tables.texts.response_text.set(row, &shown);
        }
    }

    /// A Logout Request.
    pub fn logout_request(&mut self, pdu: &Pdu<'_>, connection: u32, context: &mut Context) {
        let bhs = pdu.bhs();
        let id = context.tables.logouts.next_id();
        context.tables.logouts.push(Logout {
            connection,
            request_ns: pdu.completion().time_ns,
            request_frame: pdu.completion().frame,
            reason: bhs.logout_reason().unwrap_or(NULL_U8),
            cid: bhs.cid().unwrap_or(u16::MAX),
            ..Logout::default()
        });
        self.remember(Kind::Logout, tag(bhs), id);
    }

    /// Its response; returns reason code and CID of the request if the logout succeeded.
    pub fn logout_response(&mut self, pdu: &Pdu<'_>, context: &mut Context) -> Option<(u8, u16)> {
        let bhs = pdu.bhs();
        let (number, _) = self.open.remove(&(Kind::Logout, tag(bhs)))?;
        let table = &mut context.tables.logouts;
        let row = table.row(Id::new(number));
        table.response_ns[row] = pdu.completion().time_ns;
        table.response_frame[row] = pdu.completion().frame;
        table.response[row] = bhs.response().unwrap_or(NULL_U8);
        (bhs.response() == Some(0)).then_some((table.reason[row], table.cid[row]))
    }

    /// A Reject.
    pub fn reject(&mut self, pdu: &Pdu<'_>, connection: u32, context: &mut Context) {
        let bhs = pdu.bhs();
        let rejected = Bhs::new(pdu.data);
        let reason = bhs.reject_reason().unwrap_or(NULL_U8);
        context.counters.add(Counter::RejectReceived, Some(connection), pdu.first.frame);
        context.tables.rejects.push(Reject {
            connection,
            time_ns: pdu.completion().time_ns,
            frame: pdu.completion().frame,
            reason,
            reason_text: RejectReason::from_u8(reason).map_or("unknown", RejectReason::words).to_owned(),
            rejected_opcode: rejected.opcode().map_or(NULL_U8, Opcode::as_u8),
            rejected_initiator_task_tag: rejected.initiator_task_tag().unwrap_or(NULL_U32),
        });
    }

    /// An Asynchronous Message.
    pub fn asynchronous(&mut self, pdu: &Pdu<'_>, connection: u32, context: &mut Context) {
        let bhs = pdu.bhs();
        let event = bhs.async_event().unwrap_or(NULL_U8);
        context.tables.asyncs.push(Async {
            connection,
            time_ns: pdu.completion().time_ns,
            frame: pdu.completion().frame,
            event,
            event_text: async_text(event).to_owned(),
            vendor_code: bhs.async_vcode().unwrap_or(0),
            parameter1: bhs.parameter1().unwrap_or(0),
            parameter2: bhs.parameter2().unwrap_or(0),
            parameter3: bhs.parameter3().unwrap_or(0),
            lun: bhs.lun().map_or(u64::MAX, lun::number),
        });
    }

    /// A SNACK Request.
    pub fn snack(&mut self, pdu: &Pdu<'_>, connection: u32, context: &mut Context) {
        let bhs = pdu.bhs();
        context.tables.snacks.push(Snack {
            connection,
            time_ns: pdu.completion().time_ns,
            frame: pdu.completion().frame,
            snack_type: bhs.snack_type().unwrap_or(NULL_U8),
            initiator_task_tag: tag(bhs),
            target_transfer_tag: bhs.target_transfer_tag().unwrap_or(NULL_U32),
            begin_run: bhs.beg_run().map_or(0, |number| number.0),
            run_length: bhs.run_length().unwrap_or(0),
        });
    }
}

/// Text for a table: key=value pairs separated by spaces, without secrets, of limited length.
fn shown(text: &[u8]) -> String {
    let mut shown = String::new();
    for (key, value) in iscsitrace_wire::text::pairs(text).flatten() {
        if shown.len() >= SHOWN_TEXT_MAX {
            break;
        }
        if !shown.is_empty() {
            shown.push(' ');
        }
        shown.push_str(key);
        shown.push('=');
        shown.push_str(if keys::is_secret(key) { "(hidden)" } else { &value });
    }
    if shown.len() > SHOWN_TEXT_MAX {
        let end = (0..=SHOWN_TEXT_MAX).rev().find(|&end| shown.is_char_boundary(end)).unwrap_or(0);
        shown.truncate(end);
    }
    shown
}

/// RFC 7143 section 11.5.1, RFC 7144 section 6.3.
fn function_text(function: u8) -> &'static str {
    match function {
        1 => "ABORT TASK",
        2 => "ABORT TASK SET",
        3 => "CLEAR ACA",
        4 => "CLEAR TASK SET",
        5 => "LOGICAL UNIT RESET",
        6 => "TARGET WARM RESET",
        7 => "TARGET COLD RESET",
        8 => "TASK REASSIGN",
        9 => "QUERY TASK",
        10 => "QUERY TASK SET",
        11 => "I_T NEXUS RESET",
        12 => "QUERY ASYNCHRONOUS EVENT",
        _ => "unknown",
    }
}

/// RFC 7143 section 11.6.1, RFC 7144 section 6.4.
fn response_text(response: u8) -> &'static str {
    match response {
        0 => "function complete",
        1 => "task does not exist",
        2 => "LUN does not exist",
        3 => "task still allegiant",
        4 => "task allegiance reassignment not supported",
        5 => "task management function not supported",
        6 => "function authorization failed",
        7 => "function succeeded",
        255 => "function rejected",
        _ => "unknown",
    }
}

/// RFC 7143 section 11.9.1.
fn async_text(event: u8) -> &'static str {
    match event {
        0 => "SCSI asynchronous event",
        1 => "target requests logout",
        2 => "target will drop the connection",
        3 => "target will drop all connections of the session",
        4 => "target requests parameter negotiation",
        5 => "all active tasks of a logical unit are being terminated",
        248.. => "vendor specific",
        _ => "unknown",
    }
}
