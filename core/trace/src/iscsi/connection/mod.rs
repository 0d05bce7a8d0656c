//! One iSCSI connection: its PDUs -> session, login keys, tasks, and the tables of everything else.
//!
//! It is told PDUs by the framers of both directions, and tells them which headers fit. It never sees packets, and
//! prints nothing. Tasks keep to their connection (RFC 7143 section 4.2.5.1: connection allegiance).

mod fit;
mod forget;
mod row;
mod unread;

use iscsitrace_wire::bhs::{Bhs, RESERVED_TAG};
use iscsitrace_wire::cdb;
use iscsitrace_wire::digest;
use iscsitrace_wire::lun;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;
use rustc_hash::FxHashMap;

use super::assume::{Assumed, Assumptions};
use super::exchange::Exchanges;
use super::framer::{Fit, Listener, Pdu, Place};
use super::keys::Negotiation;
use super::login::{Digests, Login};
use super::session::{Sequence, SessionTable, Taken};
use super::spans::Spans;
use super::task::{self, Burst, Missing, Task, end_of};
use crate::counters::{Counter, Counters};
use crate::dynamics::timeline::Timeline;
use crate::tables::{Columns, Tables, WriteStart};

/// Open tasks of one connection that are tracked; no command window is larger in practice.
const TASKS_MAX: usize = 1 << 16;
/// Sequence numbers closer than this to the expected are taken as fitting.
const NEAR: i32 = 1 << 14;
/// Data kept of a login, text or other PDU whose content is looked at.
const KEPT_TEXT_MAX: usize = 64 << 10;
/// Data kept of a SCSI Response: SenseLength and the longest sense data.
const KEPT_SENSE_MAX: usize = 2 + 252;
/// Data kept of a write to tell it from another: what a fast processor looks up at once, and as much of a file system's
/// block or a RAID's superblock as differs from others (identities, counts).
const KEPT_START_MAX: usize = 64;

/// What all connections share.
#[derive(Debug, Default)]
pub struct Context {
    /// The columns that come out.
    pub tables: Tables,
    /// The oddities.
    pub counters: Counters,
    /// The sessions.
    pub sessions: SessionTable,
    /// When each cycle ended, for the count of open tasks; `i64::MAX` while it has not.
    pub cycle_ends_ns: Vec<i64>,
    /// What the time budget has to know of each connection's TCP, when it is wanted.
    pub timelines: Vec<Timeline>,
    /// Cycles that ended since somebody looked, with status or aborted; none when nobody does.
    pub ended: Option<Vec<u32>>,
}

impl Context {
    /// A cycle ended by a status, or because its task was aborted.
    #[inline]
    fn end_cycle(&mut self, cycle: u32, time_ns: i64) {
        if let Some(end_ns) = self.cycle_ends_ns.get_mut(cycle as usize) {
            *end_ns = time_ns;
        }
        if let Some(ended) = &mut self.ended {
            ended.push(cycle);
        }
    }
}

/// What a header from the initiator began.
#[derive(Debug, Clone, Copy)]
enum Begun {
    Nothing,
    Command { cycle: u32 },
    DataOut { cycle: u32, burst: Burst },
}

/// One iSCSI connection.
#[derive(Debug)]
pub struct IscsiConnection {
    /// Its number.
    pub number: u32,
    /// Its session, once it is known.
    pub session: Option<u32>,
    /// Its login, if it was captured.
    pub login: Login,
    /// Where the PDUs of cycles lie, by direction (to the target first).
    pub spans: [Spans; 2],
    /// PDUs whose header was read, by direction.
    pub pdu_count: [u64; 2],
    /// PDUs that sequence numbers and lacking bytes say are missing, by direction.
    pub missing: [u64; 2],
    /// Whether bytes of it were never captured.
    pub has_gap: bool,
    /// MaxRecvDataSegmentLength of the receiver, by direction, from the end of the login on.
    longest_data: [Option<u32>; 2],
    /// Whether its target sends the status of a read with the last Data-In; none before one was seen.
    is_status_in_data: Option<bool>,
    taken: Taken,
    tasks: FxHashMap<u32, Task>,
    /// The command or Data-Out whose header was read last: it counts from then on, for its answer may be read before
    /// the last of its own bytes.
    begun: Begun,
    exchanges: Exchanges,
    /// What must come next, by direction.
    assumptions: [Assumptions; 2],
    stat_sn: Option<SerialNumber>,
    exp_cmd_sn: Option<SerialNumber>,
    max_cmd_sn: Option<SerialNumber>,
    cmd_sn: Option<SerialNumber>,
    exp_stat_sn: Option<SerialNumber>,
}

impl IscsiConnection {
    /// A connection whose content is iSCSI.
    pub fn new(number: u32) -> Self {
        Self {
            number,
            session: None,
            login: Login::default(),
            spans: Default::default(),
            pdu_count: [0; 2],
            missing: [0; 2],
            has_gap: false,
            longest_data: [None; 2],
            is_status_in_data: None,
            taken: Taken::default(),
            tasks: FxHashMap::default(),
            begun: Begun::Nothing,
            exchanges: Exchanges::default(),
            assumptions: Default::default(),
            stat_sn: None,
            exp_cmd_sn: None,
            max_cmd_sn: None,
            cmd_sn: None,
            exp_stat_sn: None,
        }
    }

    /// The keys of its login.
    pub fn negotiation(&self) -> &Negotiation {
        &self.login.negotiation
    }

    /// Its session; one without names when the login was not captured.
    fn session(&mut self, context: &mut Context) -> u32 {
        *self.session.get_or_insert_with(|| context.sessions.open_unknown(self.number))
    }

    /// Bytes of a PDU's data to keep.
    #[inline]
    fn keeps_data(&self, header: Bhs<'_>) -> usize {
        match header.opcode() {
            Some(Opcode::DataIn) => {
                let task = header.initiator_task_tag().and_then(|tag| self.tasks.get(&tag));
                usize::from(task.is_some_and(|task| task.is_standard_inquiry))
            }
            Some(Opcode::LoginRequest | Opcode::LoginResponse | Opcode::TextRequest | Opcode::TextResponse) => {
                KEPT_TEXT_MAX
            }
            Some(Opcode::ScsiResponse) => KEPT_SENSE_MAX,
            Some(Opcode::Reject) => iscsitrace_wire::bhs::LENGTH_BYTES,
            _ => 0,
        }
    }

    /// Takes a PDU; gives the digests in use from now on when it ends a login.
    fn take(&mut self, pdu: &Pdu<'_>, to_target: bool, context: &mut Context) -> Option<Digests> {
        let bhs = pdu.bhs();
        let opcode = bhs.opcode()?;
        self.pdu_count[usize::from(!to_target)] += 1;
        let mut cycle = None;
        let mut digests = None;
        let receiver = usize::from(!to_target);
        if self.longest_data[receiver]
            .is_some_and(|longest| bhs.data_segment_length().is_some_and(|length| length > longest))
        {
            context.counters.add(Counter::DataSegmentTooLong, Some(self.number), pdu.first.frame);
        }
        self.note_numbers(bhs, opcode, pdu.first.frame, context);
        match opcode {
            Opcode::ScsiCommand | Opcode::DataOut => cycle = self.complete(pdu, context),
            Opcode::DataIn | Opcode::ReadyToTransfer | Opcode::ScsiResponse => {
                cycle = self.of_task(pdu, opcode, context);
            }
            Opcode::LoginRequest | Opcode::LoginResponse => {
                digests = self.login.take(pdu, self.number, &mut self.session, context);
                if digests.is_some() {
                    self.longest_data =
                        [true, false].map(|of_target| self.negotiation().max_recv_data_segment_length(of_target));
                    let is_in_any_order = self.negotiation().is_no_in_force("DataSequenceInOrder");
                    if let Some(state) =
                        self.session.and_then(|session| context.sessions.states.get_mut(session as usize))
                    {
                        state.is_data_in_any_order |= is_in_any_order;
                    }
                }
            }
            Opcode::TaskManagementResponse => {
                if let Some(ended) = self.exchanges.task_management_response(pdu, context) {
                    self.abort_tasks(ended.function, ended.referenced_task_tag, ended.lun, pdu, context);
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
                if self.exchanges.logout_response(pdu, context) == Some(0)
                    && let Some(session) = self.session
                {
                    context.sessions.end(session, super::session::SessionEnd::Logout);
                }
            }
            Opcode::NopOut | Opcode::NopIn => self.exchanges.nop(pdu, self.number, to_target, context),
            Opcode::Reject => self.exchanges.reject(pdu, self.number, context),
            Opcode::AsyncMessage => self.exchanges.asynchronous(pdu, self.number, context),
            Opcode::SnackRequest => self.exchanges.snack(pdu, self.number, context),
        }
        self.note_next(bhs, opcode, &context.tables.cycles);
        if let Some(cycle) = cycle {
            let is_data =
                matches!(opcode, Opcode::DataIn | Opcode::DataOut) && bhs.data_segment_length().unwrap_or(0) > 0;
            self.spans[usize::from(!to_target)].push(pdu.offset, pdu.end, cycle, is_data, &mut context.tables.cycles);
        }
        if context.tables.wanted.write_starts
            && let Some(cycle) = cycle
            && begins_write(bhs)
            && !pdu.data.is_empty()
        {
            let bytes = pdu.data.len().min(KEPT_START_MAX);
            let crc32c = digest::crc32c(&pdu.data[..bytes]);
            context.tables.write_starts.push(WriteStart { cycle, bytes: bytes as u8, crc32c });
        }
        if context.tables.wanted.pdus {
            let row = row::row(pdu, opcode, self.number, to_target, cycle);
            context.tables.pdus.push(row);
        }
        digests
    }

    /// Follows CmdSN, StatSN and their kin (RFC 7143 section 4.2.2).
    fn note_numbers(&mut self, bhs: Bhs<'_>, opcode: Opcode, frame: u64, context: &mut Context) {
        if opcode.is_initiator() {
            self.exp_stat_sn = bhs.exp_stat_sn().or(self.exp_stat_sn);
            let Some(cmd_sn) = bhs.cmd_sn() else { return };
            self.cmd_sn = Some(cmd_sn);
            if opcode == Opcode::LoginRequest {
                if let Some(session) = self.session
                    && let Some(state) = context.sessions.states.get_mut(session as usize)
                {
                    state.commands.start(cmd_sn);
                }
                return;
            }
            if bhs.is_immediate() == Some(true) {
                return;
            }
            let session = self.session(context);
            if let Some(state) = context.sessions.states.get_mut(session as usize)
                && state.commands.take(cmd_sn) == Sequence::Behind
            {
                context.counters.add(Counter::CmdSnOutOfOrder, Some(self.number), frame);
            }
            return;
        }
        self.exp_cmd_sn = bhs.exp_cmd_sn().or(self.exp_cmd_sn);
        self.max_cmd_sn = bhs.max_cmd_sn().or(self.max_cmd_sn);
        let Some(stat_sn) = bhs.stat_sn() else { return };
        let advances = match opcode {
            Opcode::ReadyToTransfer => false,
            Opcode::DataIn => bhs.has_status() == Some(true),
            Opcode::NopIn => bhs.initiator_task_tag() != Some(RESERVED_TAG),
            _ => true,
        };
        // a Data-In without status has no StatSN; R2T and unsolicited NOP-In carry the next without using it
        if !advances {
            self.stat_sn.get_or_insert(stat_sn);
            return;
        }
        let distance = self.stat_sn.map_or(0, |expected| stat_sn.distance(expected));
        if distance < 0 {
            context.counters.add(Counter::StatSnOutOfOrder, Some(self.number), frame);
            return;
        }
        if distance > 0 && distance < NEAR {
            context.counters.add_many(Counter::StatusMissing, Some(self.number), frame, distance as u64);
            self.missing[1] += distance as u64;
        }
        self.stat_sn = Some(stat_sn.next());
    }

    /// A header from the initiator was read: a command opens its task, a Data-Out counts for its own.
    fn begin(&mut self, header: Bhs<'_>, first: Place, context: &mut Context) {
        self.begun = match header.opcode() {
            Some(Opcode::ScsiCommand) => {
                self.command(header, first, context).map_or(Begun::Nothing, |cycle| Begun::Command { cycle })
            }
            Some(Opcode::DataOut) => self.data_out(header, first, context),
            _ => Begun::Nothing,
        };
    }

    fn command(&mut self, bhs: Bhs<'_>, first: Place, context: &mut Context) -> Option<u32> {
        let session = self.session(context);
        let state = context.sessions.states.get(session as usize);
        let device_type = state.and_then(|state| state.device_types.get(&lun::number(bhs.lun()?)).copied());
        let is_data_in_any_order = state.is_some_and(|state| state.is_data_in_any_order);
        let Some(tag) = bhs.initiator_task_tag() else {
            context.counters.add(Counter::PduWithoutTask, Some(self.number), first.frame);
            return None;
        };
        let decoded = bhs.cdb().map(|cdb| cdb::decode(&cdb, device_type));
        let cycle = context.tables.cycles.row_count() as u32;
        context.cycle_ends_ns.push(i64::MAX);
        if self.tasks.len() >= TASKS_MAX && !self.tasks.contains_key(&tag) {
            context.counters.add(Counter::TasksNotTracked, Some(self.number), first.frame);
        } else {
            let task = Task::open(bhs, cycle, decoded.as_ref(), is_data_in_any_order);
            if let Some(earlier) = self.tasks.insert(tag, task) {
                context.counters.add(Counter::TaskTagReused, Some(self.number), first.frame);
                context.cycle_ends_ns[earlier.cycle as usize] = first.time_ns;
                self.abandon(earlier, first.frame, context);
            }
        }
        // after the task: moving what was just made waits for all writes before it, here those to every column
        task::open_row(bhs, tag, first, self.number, session, decoded.as_ref(), &mut context.tables.cycles);
        Some(cycle)
    }

    /// In a capture with holes, a task may be outlived by another of the same tag: it is closed then.
    fn close_outlived(&mut self, bhs: Bhs<'_>, first: Place, context: &mut Context) {
        let Some(tag) = bhs.initiator_task_tag().filter(|_| self.has_gap) else { return };
        if self.tasks.get(&tag).is_some_and(|task| task.is_outlived_by(bhs, &context.tables.cycles))
            && let Some(task) = self.tasks.remove(&tag)
        {
            context.counters.add(Counter::TaskTagReused, Some(self.number), first.frame);
            context.cycle_ends_ns[task.cycle as usize] = first.time_ns;
            self.abandon(task, first.frame, context);
        }
    }

    fn data_out(&mut self, bhs: Bhs<'_>, first: Place, context: &mut Context) -> Begun {
        self.close_outlived(bhs, first, context);
        let Some(task) = bhs.initiator_task_tag().and_then(|tag| self.tasks.get_mut(&tag)) else {
            context.counters.add(Counter::PduWithoutTask, Some(self.number), first.frame);
            self.taken.orphans[0] += 1;
            return Begun::Nothing;
        };
        let cycle = task.cycle;
        let (burst, missing) = task.data_out(bhs, first, &mut context.tables.cycles, &mut context.tables.rounds);
        self.note_missing(missing, 0, first.frame, context);
        Begun::DataOut { cycle, burst }
    }

    /// The command or Data-Out is complete: gives its cycle.
    fn complete(&mut self, pdu: &Pdu<'_>, context: &mut Context) -> Option<u32> {
        match std::mem::replace(&mut self.begun, Begun::Nothing) {
            Begun::Nothing => None,
            Begun::Command { cycle } => {
                task::complete_command(pdu, cycle, &mut context.tables.cycles);
                Some(cycle)
            }
            Begun::DataOut { cycle, burst } => {
                task::complete_data_out(pdu, cycle, burst, &mut context.tables.cycles, &mut context.tables.rounds);
                Some(cycle)
            }
        }
    }

    /// A PDU of a task that a command opened.
    fn of_task(&mut self, pdu: &Pdu<'_>, opcode: Opcode, context: &mut Context) -> Option<u32> {
        let bhs = pdu.bhs();
        let frame = pdu.first.frame;
        let direction = usize::from(!opcode.is_initiator());
        self.close_outlived(bhs, pdu.first, context);
        let Some(task) = bhs.initiator_task_tag().and_then(|tag| self.tasks.get_mut(&tag)) else {
            context.counters.add(Counter::PduWithoutTask, Some(self.number), frame);
            if opcode != Opcode::ScsiResponse && bhs.has_status() != Some(true) {
                self.taken.orphans[direction] += 1;
            }
            return None;
        };
        let cycle = task.cycle;
        let tables = &mut context.tables;
        let mut missing = match opcode {
            Opcode::ReadyToTransfer => task.ready_to_transfer(pdu, &mut tables.cycles, &mut tables.rounds),
            Opcode::DataIn => {
                if task.is_standard_inquiry
                    && bhs.buffer_offset() == Some(0)
                    && let (Some(lun), Some(first), Some(session)) = (task.lun, pdu.data.first(), self.session)
                    && let Some(state) = context.sessions.states.get_mut(session as usize)
                {
                    state.note_device_type(lun, first & 0x1f);
                }
                task.data_in(pdu, &mut tables.cycles)
            }
            _ => Missing::default(),
        };
        if opcode == Opcode::ScsiResponse || bhs.has_status() == Some(true) {
            context.end_cycle(cycle, end_of(pdu).time_ns);
            if bhs.status() == Some(CHECK_CONDITION) {
                context.counters.add(Counter::CheckCondition, Some(self.number), frame);
            }
            if let Some(mut task) = bhs.initiator_task_tag().and_then(|tag| self.tasks.remove(&tag)) {
                // a status tells of missing Data-Out too
                let direction = usize::from(!task.is_write || task.is_read);
                let at_status = task.status(pdu, &mut context.tables.cycles);
                self.note_missing(Missing { is_out_of_order: false, ..at_status }, direction, frame, context);
                missing.is_out_of_order |= at_status.is_out_of_order;
                if task.is_read && context.tables.cycles.is_complete[cycle as usize] {
                    self.is_status_in_data = Some(opcode == Opcode::DataIn);
                }
                self.note_taken(&task, context);
            }
        }
        self.note_missing(missing, direction, frame, context);
        Some(cycle)
    }

    fn note_missing(&mut self, missing: Missing, direction: usize, frame: u64, context: &mut Context) {
        self.missing[direction] += missing.data + missing.r2t;
        context.counters.add_many(Counter::DataMissing, Some(self.number), frame, missing.data);
        context.counters.add_many(Counter::R2tMissing, Some(self.number), frame, missing.r2t);
        if missing.is_out_of_order {
            context.counters.add(Counter::DataSnOutOfOrder, Some(self.number), frame);
        }
    }

    /// Closes a task without status.
    fn abandon(&mut self, mut task: Task, frame: u64, context: &mut Context) {
        if !context.tables.cycles.is_aborted[task.cycle as usize] {
            context.counters.add(Counter::CycleIncomplete, Some(self.number), frame);
        }
        let lacking = task.abandon(&mut context.tables.cycles);
        if self.has_gap {
            // the last Data-In of a read may be missing as a status already
            let is_told = self.is_status_in_data == Some(true) && task.is_read;
            self.missing[usize::from(!task.is_write)] += lacking.saturating_sub(u64::from(is_told));
            context.tables.cycles.has_capture_gap[task.cycle as usize] = true;
        }
        self.note_taken(&task, context);
    }

    /// Notes what a task took, now that it is over.
    fn note_taken(&mut self, task: &Task, context: &Context) {
        let cycles = &context.tables.cycles;
        let row = task.cycle as usize;
        self.taken.tasks += 1;
        let data = task.data_pdu_count(cycles);
        if task.is_write {
            self.taken.pdus[0] += data;
            self.taken.pdus[1] += u64::from(cycles.r2t_count[row]);
        } else {
            self.taken.pdus[1] += data.saturating_sub(u64::from(self.is_status_in_data == Some(true)));
        }
    }

    /// A task management function was carried out (RFC 7143 section 11.5.1): the tasks that it ends.
    fn abort_tasks(&mut self, function: u8, tag: u32, lun: Option<u64>, pdu: &Pdu<'_>, context: &mut Context) {
        let tags: Vec<u32> = match function {
            1 => self.tasks.contains_key(&tag).then_some(tag).into_iter().collect(),
            2 | 4 | 5 => {
                self.tasks.iter().filter(|(_, task)| lun.is_some() && task.lun == lun).map(|(&tag, _)| tag).collect()
            }
            6 | 7 => self.tasks.keys().copied().collect(),
            _ => Vec::new(),
        };
        for tag in tags {
            let Some(task) = self.tasks.remove(&tag) else { continue };
            let cycle = task.cycle as usize;
            context.tables.cycles.is_aborted[cycle] = true;
            context.end_cycle(task.cycle, end_of(pdu).time_ns);
            context.counters.add(Counter::TaskAborted, Some(self.number), pdu.first.frame);
            self.abandon(task, pdu.first.frame, context);
        }
    }

    /// Whether tasks wait for their status.
    pub fn has_open_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// The end of the connection, or of the capture, at `time_ns`.
    pub fn finish(&mut self, time_ns: i64, context: &mut Context) {
        let mut open: Vec<Task> = self.tasks.drain().map(|(_, task)| task).collect();
        open.sort_unstable_by_key(|task| task.cycle);
        for task in open {
            let cycle = task.cycle as usize;
            context.cycle_ends_ns[cycle] = time_ns;
            let frame = context.tables.cycles.command_frame[cycle];
            self.abandon(task, frame, context);
        }
        // a connection with PDUs belongs to a session, if only to one without names
        if self.pdu_count != [0; 2] {
            let session = self.session(context);
            if let Some(state) = context.sessions.states.get_mut(session as usize) {
                state.taken = state.taken.with(&self.taken);
            }
        }
    }
}

/// Whether the data of a PDU are the first of a write.
#[inline]
fn begins_write(header: Bhs<'_>) -> bool {
    match header.opcode() {
        Some(Opcode::ScsiCommand) => true,
        Some(Opcode::DataOut) => header.buffer_offset() == Some(0),
        _ => false,
    }
}

/// SCSI status CHECK CONDITION.
const CHECK_CONDITION: u8 = 0x02;

/// A connection listening to the framer of one direction.
pub struct Ear<'a> {
    /// The connection.
    pub connection: &'a mut IscsiConnection,
    /// What all connections share.
    pub context: &'a mut Context,
    /// The direction.
    pub to_target: bool,
}

impl Listener for Ear<'_> {
    #[inline]
    fn judge(&self, header: Bhs<'_>) -> Fit {
        self.connection.judge(header, self.to_target)
    }

    #[inline]
    fn begin(&mut self, header: Bhs<'_>, first: Place) {
        if self.to_target {
            self.connection.begin(header, first, self.context);
        }
    }

    #[inline]
    fn keeps_data(&self, header: Bhs<'_>) -> usize {
        if self.context.tables.wanted.write_starts && begins_write(header) {
            return KEPT_START_MAX;
        }
        self.connection.keeps_data(header)
    }

    #[inline]
    fn pdu(&mut self, pdu: &Pdu<'_>) -> Option<Digests> {
        self.connection.take(pdu, self.to_target, self.context)
    }

    fn assume(&mut self, rest_of_segment: u32) -> Option<u32> {
        self.connection.assume(self.to_target, rest_of_segment, self.context)
    }

    fn is_ambiguous(&self) -> bool {
        self.connection.is_ambiguous(self.to_target)
    }

    fn reread(&mut self) -> bool {
        self.connection.assumptions[usize::from(!self.to_target)].reread()
    }

    fn confirm(&mut self, assumed: &[Assumed], header: Bhs<'_>) {
        self.connection.confirm(self.to_target, assumed, header, self.context);
    }

    fn discard(&mut self) {
        self.connection.discard(self.to_target);
    }

    fn count(&mut self, counter: Counter, frame: u64, count: u64) {
        self.context.counters.add_many(counter, Some(self.connection.number), frame, count);
    }
}
