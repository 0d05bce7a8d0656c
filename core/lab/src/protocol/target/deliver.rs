//! SCSI commands: arrival, delivery, data out, service, status (RFC 7143 section 4.2.5).
//!
//! ```text
//!   take_command -> [held] -> deliver -> proceed -> begin_service -> serve -> Data-In, or respond
//!                              |          |  ^ data comes
//!                              fault      R2Ts
//! ```

use iscsitrace_wire::cdb::{self, Operation};
use iscsitrace_wire::lun;
use iscsitrace_wire::reject::RejectReason;

use super::command::{Command, Handle, Stage};
use super::ending::Ending;
use super::fault::{Fault, FaultOperation};
use super::injection::Candidate;
use super::log::{TaskEnd, TaskRecord};
use super::output::{Credit, Damage};
use super::portal::Portal;
use super::rule::TargetRule;
use super::session::{Held, Session};
use super::window::Turn;
use crate::application::ConnectionNumber;
use crate::scsi::{Completion, Status};

/// Data that a read must not send (D13).
const BEYOND_BYTES: u32 = 512;

/// Parameter3 of a requested logout: the time for it.
const LOGOUT_SECONDS: u16 = 3;

/// The kind of operation of a CDB.
fn operation_of(cdb: &[u8]) -> FaultOperation {
    match cdb::decode(cdb, None).operation {
        Operation::Read => FaultOperation::Read,
        Operation::Write | Operation::WriteVerify => FaultOperation::Write,
        Operation::Unmap => FaultOperation::Unmap,
        _ => FaultOperation::Other,
    }
}

/// A command as the faults of a portal see it.
fn candidate(command: &Command) -> Candidate {
    let decoded = cdb::decode(command.cdb(), None);
    Candidate {
        operation: operation_of(command.cdb()),
        lun: lun::single_level(command.lun()),
        blocks: decoded.lba.zip(decoded.block_count),
        bytes: command.expected_data_transfer_length(),
    }
}

/// The CDB of a command with an Extended CDB AHS (RFC 7143 section 11.2.2.3); none when the AHS is malformed.
fn extended_cdb(header: &[u8], ahs: &[u8]) -> Option<Vec<u8>> {
    let mut cdb = header.get(32..48)?.to_vec();
    let mut rest = ahs;
    while let [high, low, kind, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let specific = after.get(..length)?;
        if *kind & 0x3f == 1 {
            // the first byte is reserved
            cdb.extend_from_slice(specific.get(1..)?);
        }
        rest = after.get((length + 3).next_multiple_of(4) - 3..).unwrap_or_default();
    }
    Some(cdb)
}

impl Portal {
    /// A SCSI Command within the window arrived with its immediate data.
    pub(super) fn take_command(&mut self, now_ns: i64, number: ConnectionNumber) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let header = connection.header;
        let bhs = connection.bhs();
        let (is_read, is_write) = (bhs.is_read() == Some(true), bhs.is_write() == Some(true));
        let immediate = connection.data.len() as u32;
        // no bidirectional commands; only writes have immediate data (RFC 7143 section 11.3.1)
        if is_read && is_write {
            return self.reject(now_ns, number, &header, RejectReason::CommandNotSupported);
        }
        if !is_write && (immediate > 0 || bhs.is_final() != Some(true)) {
            return self.reject(now_ns, number, &header, RejectReason::InvalidPduField);
        }
        let ahs = connection.decoder.ahs();
        let extended = if ahs.is_empty() { Some(Vec::new()) } else { extended_cdb(&header, ahs) };
        let Some(extended) = extended else {
            return self.reject(now_ns, number, &header, RejectReason::InvalidPduField);
        };
        let Some(session) = connection.tsih().and_then(|tsih| self.sessions.get_mut(&tsih)) else { return };
        self.log.counters.commands += 1;
        self.log.counters.data_out_bytes += u64::from(immediate);
        let tsih = session.tsih;
        let target = session.target.unwrap_or_default();
        let decoded = cdb::decode(if extended.is_empty() { &header[32..] } else { &extended }, None);
        let record = self.log.begin_task(|| TaskRecord {
            target,
            session: tsih,
            connection: number,
            lun: bhs.lun().unwrap_or_default(),
            initiator_task_tag: bhs.initiator_task_tag().unwrap_or_default(),
            cmd_sn: bhs.cmd_sn().unwrap_or_default().0,
            command: decoded.name,
            lba: decoded.lba,
            block_count: decoded.block_count,
            expected_data_transfer_length: bhs.expected_data_transfer_length().unwrap_or_default(),
            transferred_bytes: 0,
            r2t_count: 0,
            received_ns: now_ns,
            delivered_ns: None,
            service_begin_ns: None,
            service_end_ns: None,
            first_answer_ns: None,
            status_ns: None,
            status: None,
            fault: None,
            end: TaskEnd::Open,
        });
        let Some(handle) = session.open(number, header, record) else {
            return self.reject(now_ns, number, &header, RejectReason::OutOfResources);
        };
        let Some(command) = session.command(handle) else { return };
        command.extended_cdb = extended;
        let (cmd_sn, is_final) = (command.cmd_sn(), command.bhs().is_final() == Some(true));
        let expected = if is_write { command.expected_data_transfer_length() } else { 0 };
        let has_more = is_write && !is_final;
        command.data_out.begin(expected, immediate, !has_more, &connection.parameters);
        if command.is_immediate() {
            connection.immediate_count += 1;
        } else if session.window.turn(cmd_sn) == Turn::Now {
            session.window.advance();
        } else {
            session.window.hold(cmd_sn, Held::Command(handle));
            let data = std::mem::take(&mut connection.data);
            return self.keep_early_data(now_ns, number, handle, 0, &data);
        }
        let data = std::mem::take(&mut connection.data);
        self.deliver(now_ns, tsih, handle, &data);
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.data = data;
        }
        self.deliver_held(now_ns, tsih);
    }

    /// A command that was held has its turn.
    pub(super) fn deliver_early(&mut self, now_ns: i64, tsih: u16, handle: Handle) {
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        // a dropped command has returned its credit
        let Some(command) = session.command(handle) else { return };
        let early = std::mem::take(&mut command.early);
        session.early_bytes = session.early_bytes.saturating_sub(early.len());
        self.deliver(now_ns, tsih, handle, &early);
    }

    /// Executes a command in its turn.
    fn deliver(&mut self, now_ns: i64, tsih: u16, handle: Handle, data: &[u8]) {
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        let nexus = session.nexus;
        let is_cleared = session.is_cleared(handle);
        let Some(node) = session.target.and_then(|target| self.targets.get_mut(target)) else { return };
        let Some(command) = session.command(handle) else { return };
        let number = command.connection;
        if let Some(record) = self.log.task(command.record) {
            record.delivered_ns = Some(now_ns);
        }
        if is_cleared {
            self.drop_command(tsih, handle, TaskEnd::Aborted);
            return;
        }
        let candidate = candidate(command);
        command.fault = self.faults.of_command(now_ns, &candidate);
        let mut asks_to_leave = false;
        if let Some(settings) = command.fault.clone() {
            self.log.counters.faults += 1;
            if let Some(record) = self.log.task(command.record) {
                record.fault = Some(settings.fault);
            }
            let header = command.header;
            match settings.fault {
                Fault::BadHeaderDigest => command.damage = Some(Damage::Header),
                Fault::BadDataDigest => command.damage = Some(Damage::Data),
                Fault::SwallowedPdu => {
                    command.stage = Stage::Swallowed;
                    return;
                }
                Fault::Busy => command.completion = Some(Completion::new(Status::Busy)),
                Fault::TaskSetFull => command.completion = Some(Completion::new(Status::TaskSetFull)),
                Fault::ReservationConflict => {
                    command.completion = Some(Completion::new(Status::ReservationConflict));
                }
                Fault::CheckCondition => {
                    command.completion = Some(node.device.check_condition(command.lun(), settings.sense()));
                }
                Fault::Reject => {
                    self.drop_command_keeping_credit(tsih, handle, TaskEnd::Rejected);
                    self.send_reject(now_ns, number, &header, settings.reason, Self::credit_of(&header));
                    return;
                }
                Fault::ClosedConnection => return self.end_connection(now_ns, number, Ending::OnDemand),
                Fault::LogoutRequested => asks_to_leave = true,
                // where it occurs
                Fault::LateR2t | Fault::DelayedStatus => {}
                // not of a command that is delivered
                Fault::Slow | Fault::Stuck | Fault::LoginRefused | Fault::Restart => {}
            }
        }
        let is_write = command.is_write();
        let expected = command.expected_data_transfer_length();
        command.stage = Stage::Receiving;
        if command.completion.is_none()
            && let Some(nexus) = nexus
        {
            let mut task = node.device.execute(nexus, command.lun(), command.cdb());
            if is_write {
                task.expect_data_out(u64::from(expected));
            }
            let (gives, takes) = (task.data_in_length(), task.data_out_length());
            command.available = if is_write { takes } else { gives };
            if command.is_read() {
                command.data_in_length = u32::try_from(gives).unwrap_or(u32::MAX).min(expected);
                if candidate.operation == FaultOperation::Read && self.breaches.breaks(TargetRule::D13) {
                    command.data_in_length = expected.saturating_add(BEYOND_BYTES);
                }
                if candidate.operation == FaultOperation::Read && self.breaches.breaks(TargetRule::D17) {
                    command.data_in_length /= 2;
                }
            }
            if is_write {
                let unsolicited = u64::from(command.data_out.unsolicited_end());
                let is_asked_for = takes <= unsolicited
                    || candidate.operation != FaultOperation::Write
                    || !self.breaches.breaks(TargetRule::D18);
                let length = if is_asked_for { takes } else { unsolicited };
                command.data_out.set_length(length, self.random.u32(..));
            }
            if !data.is_empty() {
                let fits = data.get(..command.data_out.length() as usize).unwrap_or(data);
                node.device.write_data_out(&mut task, 0, fits);
            }
            command.task = Some(task);
        } else {
            command.available = 0;
        }
        self.proceed(now_ns, tsih, handle);
        if asks_to_leave {
            self.request_logout(now_ns, number, LOGOUT_SECONDS);
        }
    }

    /// Continues a delivered command: requests its data, or serves it.
    pub(super) fn proceed(&mut self, now_ns: i64, tsih: u16, handle: Handle) {
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        let max_burst_length = session.parameters.max_burst_length;
        let Some(command) = session.command(handle) else { return };
        if command.stage != Stage::Receiving {
            return;
        }
        if command.data_out.has_unsolicited_only() && self.breaches.breaks(TargetRule::D7) {
            command.data_out.forget_unsolicited();
        }
        if command.data_out.is_complete(max_burst_length) {
            self.begin_service(now_ns, tsih, handle);
            return;
        }
        let is_first = command.data_out.r2t_count() == 0 && !command.data_out.is_unsolicited_open();
        let late_by_ns = command.has_fault(Fault::LateR2t).filter(|_| is_first).map(|settings| settings.by_ns.max(0));
        if let Some(by_ns) = late_by_ns {
            command.stage = Stage::LateR2t;
            self.wake_command(tsih, handle, now_ns.saturating_add(by_ns));
            return;
        }
        self.ask(now_ns, tsih, handle);
    }

    /// All data has arrived: the service time starts.
    fn begin_service(&mut self, now_ns: i64, tsih: u16, handle: Handle) {
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        let Some(node) = session.target.and_then(|target| self.targets.get_mut(target)) else { return };
        let Some(command) = session.command(handle) else { return };
        let record = command.record;
        if let Some(condition) = command.data_out.condition() {
            command.completion = Some(node.device.check_condition(command.lun(), condition.sense()));
            command.task = None;
        }
        if let Some(record) = self.log.task(record) {
            record.service_begin_ns = Some(now_ns);
            record.transferred_bytes = command.data_out.received();
            record.r2t_count = command.data_out.r2t_count();
        }
        let delay = match operation_of(command.cdb()) {
            _ if command.completion.is_some() => None,
            FaultOperation::Read => Some(self.settings.read_delay),
            FaultOperation::Write => Some(self.settings.write_delay),
            FaultOperation::Other | FaultOperation::Any | FaultOperation::Unmap => {
                Some(super::delay::ServiceDelay::default())
            }
        };
        let end_ns = delay.map_or(now_ns, |delay| {
            let delay_ns = delay.draw(&mut self.random);
            node.service.end_ns(now_ns, command.lun(), delay_ns, self.settings.service_order)
        });
        let end_ns = match command.completion {
            None => self.faults.service_end_ns(now_ns, &candidate(command), end_ns),
            Some(_) => end_ns,
        };
        node.service.prolong(command.lun(), end_ns);
        command.stage = Stage::Service;
        if end_ns > now_ns {
            self.wake_command(tsih, handle, end_ns);
        } else {
            self.serve(now_ns, tsih, handle);
        }
    }

    /// The service time ended.
    fn serve(&mut self, now_ns: i64, tsih: u16, handle: Handle) {
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        let Some(node) = session.target.and_then(|target| self.targets.get_mut(target)) else { return };
        let Some(command) = session.command(handle) else { return };
        if let Some(task) = command.task.as_mut()
            && command.completion.is_none()
        {
            command.completion = Some(node.device.finish(task));
        }
        if let Some(record) = self.log.task(command.record) {
            record.service_end_ns = Some(now_ns);
        }
        let (number, target) = (command.connection, session.target);
        let Some(command) = session.command(handle) else { return };
        if command.data_in_length > 0 && command.status() != Status::CheckCondition {
            command.stage = Stage::Sending;
            if let Some(connection) = self.connections.get_mut(&number) {
                connection.reads.push_back(handle);
            }
        } else {
            command.data_in_length = 0;
            self.respond(now_ns, tsih, handle);
        }
        self.abort_for_others(now_ns, target);
    }

    /// Queues a command's SCSI Response, unless it is delayed.
    fn respond(&mut self, now_ns: i64, tsih: u16, handle: Handle) {
        let Some(command) = self.sessions.get_mut(&tsih).and_then(|session| session.command(handle)) else { return };
        let late_by_ns = command.has_fault(Fault::DelayedStatus).map(|settings| settings.by_ns.max(0));
        if let Some(by_ns) = late_by_ns
            && command.stage != Stage::LateStatus
        {
            command.stage = Stage::LateStatus;
            self.wake_command(tsih, handle, now_ns.saturating_add(by_ns));
            return;
        }
        let (mut number, response) = (command.connection, command.response());
        if let Some(session) = self.sessions.get_mut(&tsih) {
            let other = session.connections.iter().map(|(_, other)| *other).find(|other| *other != number);
            number = other.filter(|_| self.breaches.breaks(TargetRule::T8)).unwrap_or(number);
            session.close(handle);
        }
        self.send(now_ns, number, response);
    }

    /// A timer of a command went off.
    pub(super) fn command_woken(&mut self, now_ns: i64, tsih: u16, handle: Handle) {
        let Some(command) = self.sessions.get_mut(&tsih).and_then(|session| session.command(handle)) else { return };
        command.wake_ns = None;
        match command.stage {
            Stage::LateR2t => {
                command.stage = Stage::Receiving;
                self.ask(now_ns, tsih, handle);
            }
            Stage::Service => self.serve(now_ns, tsih, handle),
            Stage::LateStatus => self.respond(now_ns, tsih, handle),
            Stage::Held | Stage::Receiving | Stage::Sending | Stage::Swallowed => {}
        }
    }

    /// Aborts the tasks of PREEMPT AND ABORT.
    fn abort_for_others(&mut self, now_ns: i64, target: Option<usize>) {
        while let Some(abort) = target.and_then(|target| self.targets.get_mut(target)?.device.poll_abort()) {
            let is_meant = |session: &&Session| session.target == target && session.nexus == Some(abort.nexus);
            let tsihs: Vec<u16> = self.sessions.values().filter(is_meant).map(|session| session.tsih).collect();
            for tsih in tsihs {
                self.drop_commands_for_another(now_ns, tsih, |command| {
                    lun::single_level(command.lun()) == Some(abort.lun) && command.stage != Stage::Held
                });
            }
        }
    }

    /// Drops the commands of a session that another session ended, and advertises the credit; returns how many.
    pub(super) fn drop_commands_for_another(
        &mut self,
        now_ns: i64,
        tsih: u16,
        is_meant: impl FnMut(&Command) -> bool,
    ) -> usize {
        let was_closed = self.sessions.get(&tsih).is_some_and(|session| session.window.is_closed());
        let count = self.drop_commands(tsih, TaskEnd::Aborted, is_meant);
        if was_closed && count > 0 {
            self.advertise_window(now_ns, tsih);
        }
        count
    }

    /// Drops commands of a session without an answer; returns how many.
    pub(super) fn drop_commands(
        &mut self,
        tsih: u16,
        end: TaskEnd,
        mut is_meant: impl FnMut(&Command) -> bool,
    ) -> usize {
        let Some(session) = self.sessions.get_mut(&tsih) else { return 0 };
        let mut handles = session.handles();
        handles.retain(|handle| session.command(*handle).is_some_and(|command| is_meant(command)));
        handles.iter().for_each(|handle| self.drop_command(tsih, *handle, end));
        handles.len()
    }

    /// Drops a command without an answer, and returns its credit.
    pub(super) fn drop_command(&mut self, tsih: u16, handle: Handle, end: TaskEnd) {
        let command = self.sessions.get_mut(&tsih).and_then(|session| session.command(handle));
        let Some((number, credit)) = command.map(|command| (command.connection, command.credit())) else { return };
        self.drop_command_keeping_credit(tsih, handle, end);
        match credit {
            Credit::Window => {
                if let Some(session) = self.sessions.get_mut(&tsih) {
                    session.window.release();
                }
            }
            credit => self.return_credit(number, credit),
        }
    }

    /// Drops a command without an answer; another PDU returns its credit.
    fn drop_command_keeping_credit(&mut self, tsih: u16, handle: Handle, end: TaskEnd) {
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        session.remember(handle);
        let Some(command) = session.command(handle) else { return };
        if let Some(wake_ns) = command.wake_ns.take() {
            self.wakes.remove(&(wake_ns, super::portal::Wake::Command(tsih, handle)));
        }
        if let Some(record) = self.log.task(command.record) {
            record.end = end;
        }
        session.close(handle);
    }
}
