//! The bytes of a connection's next system call: pending PDUs, then Data-In up to a limit (RFC 7143 section 11.7). Data
//! is copied once, from the logical unit to the buffer of the system call.

use iscsitrace_wire::bhs::{Bhs, BhsBuilder};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::command::Handle;
use super::connection::{Connection, Phase};
use super::ending::Ending;
use super::fault::Fault;
use super::log::{PortalLog, TaskEnd};
use super::output::{Credit, Outgoing, StatSn, Then};
use super::portal::{Portal, TargetNode};
use super::rule::TargetRule;
use super::session::Session;
use super::settings::StatusDelivery;
use crate::application::ConnectionNumber;
use crate::protocol::breach::Breaches;
use crate::scsi::Status;

/// The rest of a read after a Data-In.
enum Left {
    /// More data.
    Data,
    /// Nothing: the Data-In carried its status.
    Nothing,
    /// Its SCSI Response.
    Response(Outgoing),
    /// Its status, at a later time.
    Late(i64),
    /// The command no longer exists.
    Gone,
}

impl Portal {
    /// Appends the bytes of one system call. An empty buffer means that the network took those of the last one.
    pub(super) fn transmit(&mut self, now_ns: i64, number: ConnectionNumber, out: &mut Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.transmitted_bytes = out.len();
        }
        let most_bytes = self.data_in_bytes(number);
        self.append(now_ns, number, most_bytes, out);
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.transmitted_bytes = out.len();
        }
        if out.is_empty() {
            // a long PDU is rare: its room is not kept for the next one
            out.shrink_to(2 * self.settings.limits.transmit_bytes);
        }
    }

    /// The most data of a Data-In: what the initiator takes (RFC 7143 section 13.12) while there is room for it.
    fn data_in_bytes(&self, number: ConnectionNumber) -> u32 {
        let limits = &self.settings.limits;
        let Some(connection) = self.connections.get(&number) else { return 0 };
        let taken = connection.parameters.initiator_max_recv_data_segment_length;
        if taken as usize <= limits.transmit_bytes {
            return taken;
        }
        let waiting: usize = self.connections.values().map(|each| each.transmitted_bytes).sum();
        let room = limits.waiting_bytes.saturating_sub(waiting).max(limits.transmit_bytes);
        taken.min(u32::try_from(room).unwrap_or(u32::MAX))
    }

    fn append(&mut self, now_ns: i64, number: ConnectionNumber, most_bytes: u32, out: &mut Vec<u8>) {
        let begin = out.len();
        let Portal { connections, sessions, targets, log, settings, breaches, .. } = self;
        let Some(connection) = connections.get_mut(&number) else { return };
        let tsih = connection.session.map(|(tsih, _)| tsih);
        let mut session = tsih.and_then(|tsih| sessions.get_mut(&tsih));
        let mut ended = None;
        let mut woken = None;
        if let Some(outgoing) = connection.alone.take() {
            hand_out(now_ns, connection, session.as_deref_mut(), outgoing, breaches, log, out);
            return;
        }
        while out.len() - begin < settings.limits.transmit_bytes {
            if let Some(outgoing) = connection.ready.pop_front() {
                let then = hand_out(now_ns, connection, session.as_deref_mut(), outgoing, breaches, log, out);
                if then != Then::Nothing {
                    ended = Some(then);
                    break;
                }
                continue;
            }
            let Some(&handle) = connection.reads.front() else { break };
            // a session in logout sends no more data
            let left = match session.as_deref_mut().filter(|_| !matches!(connection.phase, Phase::Over(_))) {
                Some(session) => {
                    let delivery = settings.status;
                    send_data_in(now_ns, connection, session, targets, handle, most_bytes, delivery, breaches, log, out)
                }
                None => Left::Gone,
            };
            if matches!(left, Left::Data) {
                continue;
            }
            connection.reads.pop_front();
            match left {
                Left::Response(response) if settings.status == StatusDelivery::ApartHeld => {
                    connection.alone = Some(response);
                    break;
                }
                Left::Response(response) => {
                    hand_out(now_ns, connection, session.as_deref_mut(), response, breaches, log, out);
                }
                Left::Late(at_ns) => {
                    woken = Some((handle, at_ns));
                    break;
                }
                Left::Data | Left::Nothing | Left::Gone => {}
            }
        }
        if let (Some(tsih), Some((handle, at_ns))) = (tsih, woken) {
            self.wake_command(tsih, handle, at_ns);
        }
        match ended {
            Some(Then::EndConnection(ending)) => self.end_connection(now_ns, number, ending),
            Some(Then::EndSession(ending)) => {
                if let Some(tsih) = tsih {
                    self.end_session(now_ns, tsih, ending);
                }
                self.end_connection(now_ns, number, Ending::LoggedOut);
            }
            Some(Then::EndTarget(target)) => {
                let sessions = self.sessions.values().filter(|session| session.target == Some(target));
                let tsihs: Vec<u16> = sessions.map(|session| session.tsih).collect();
                for tsih in tsihs {
                    self.end_session(now_ns, tsih, Ending::ColdReset);
                }
            }
            _ => {}
        }
        let is_over = self.connections.get(&number).is_some_and(|connection| {
            matches!(connection.phase, Phase::Over(_)) && connection.ready.is_empty() && connection.alone.is_none()
        });
        if is_over {
            self.end_connection(now_ns, number, Ending::LoggedOut);
        }
    }
}

/// Appends a pending PDU; returns the action after it.
fn hand_out(
    now_ns: i64,
    connection: &mut Connection,
    session: Option<&mut Session>,
    mut outgoing: Outgoing,
    breaches: &Breaches<TargetRule>,
    log: &mut PortalLog,
    out: &mut Vec<u8>,
) -> Then {
    if outgoing.credit == Credit::Immediate {
        connection.immediate_count = connection.immediate_count.saturating_sub(1);
    }
    connection.unbidden_count = connection.unbidden_count.saturating_sub(usize::from(outgoing.is_unbidden()));
    // a PDU advertises its own credit: MaxCmdSN
    let session = session.map(|session| {
        if outgoing.credit == Credit::Window {
            session.window.release();
        }
        &*session
    });
    let numbers = Portal::numbers_of(connection, session);
    let data = std::mem::take(&mut outgoing.data);
    let (header, stat_sn) = (outgoing.header, outgoing.stat_sn);
    let is_response = Bhs::new(&header).opcode() == Some(Opcode::ScsiResponse);
    let copies = if is_response && breaches.breaks(TargetRule::T3) { 2 } else { 1 };
    for _ in 0..copies {
        let append = |out: &mut Vec<u8>| out.extend_from_slice(&data);
        connection.stream.write(out, header, stat_sn, numbers, &mut outgoing.damage, breaches, log, append);
    }
    match outgoing.then {
        Then::LoggedIn => {
            connection.stream.digests = connection.parameters.digests();
            Then::Nothing
        }
        Then::Completed { record, status } => {
            if let Some(record) = log.task(record) {
                (record.status_ns, record.status, record.end) = (Some(now_ns), Some(status), TaskEnd::Answered);
            }
            Then::Nothing
        }
        Then::Asked { record } => {
            log.counters.r2ts += 1;
            if let Some(record) = log.task(record) {
                record.first_answer_ns.get_or_insert(now_ns);
            }
            Then::Nothing
        }
        then => then,
    }
}

/// Appends the next Data-In of a read.
#[allow(clippy::too_many_arguments, reason = "the parts of a portal that are borrowed apart from it")]
fn send_data_in(
    now_ns: i64,
    connection: &mut Connection,
    session: &mut Session,
    targets: &[TargetNode],
    handle: Handle,
    most_bytes: u32,
    delivery: StatusDelivery,
    breaches: &Breaches<TargetRule>,
    log: &mut PortalLog,
    out: &mut Vec<u8>,
) -> Left {
    let max_burst_length = session.parameters.max_burst_length;
    let Some(node) = session.target.and_then(|target| targets.get(target)) else { return Left::Gone };
    let Some(command) = session.command(handle) else { return Left::Gone };
    let remaining = command.data_in_length - command.data_in_sent;
    // RFC 7143 section 13.13
    let burst_left = remaining.min(max_burst_length - command.burst_sent);
    let length = match burst_left > most_bytes && breaches.breaks(TargetRule::D16) {
        true => burst_left,
        false => burst_left.min(most_bytes),
    };
    let offset = match std::mem::take(&mut command.is_exchanged) {
        true => command.data_in_sent - length,
        false if burst_left >= 2 * length && breaches.breaks(TargetRule::D10) => {
            command.is_exchanged = true;
            command.data_in_sent + length
        }
        false => command.data_in_sent,
    };
    let is_last = length == remaining;
    let is_burst_end = is_last || command.burst_sent + length == max_burst_length;
    let is_final = is_last || is_burst_end && !breaches.breaks(TargetRule::D14);
    if breaches.breaks(TargetRule::S14) {
        command.data_sn += 1;
    }
    let status = command.status();
    let late_by_ns = command.has_fault(Fault::DelayedStatus).map(|settings| settings.by_ns.max(0));
    // RFC 7143 section 11.7.3: a Data-In carries only a status without sense data
    let has_status = is_last && delivery == StatusDelivery::InData && status == Status::Good && late_by_ns.is_none();
    let mut header = BhsBuilder::new(Opcode::DataIn)
        .is_final(is_final)
        .initiator_task_tag(command.initiator_task_tag())
        .target_transfer_tag(iscsitrace_wire::bhs::RESERVED_TAG)
        .data_sn(SerialNumber(command.data_sn))
        .buffer_offset(offset)
        .data_segment_length(length);
    if has_status {
        let residual = command.residual();
        header = header
            .has_status(true)
            .status(status as u8)
            .is_overflow(residual.is_overflow)
            .is_underflow(residual.is_underflow)
            .residual_count(residual.count);
    }
    command.data_sn += 1;
    let is_again = !is_last && breaches.breaks(TargetRule::D12);
    command.data_in_sent += if is_again { 0 } else { length };
    command.burst_sent = if is_burst_end { 0 } else { command.burst_sent + length };
    if let Some(record) = log.task(command.record) {
        record.first_answer_ns.get_or_insert(now_ns);
        record.transferred_bytes += u64::from(length);
        if has_status {
            (record.status_ns, record.status, record.end) = (Some(now_ns), Some(status as u8), TaskEnd::Answered);
        }
    }
    log.counters.data_in_bytes += u64::from(length);
    let (credit, mut damage, task) = (command.credit(), command.damage.take(), command.task.take());
    if has_status {
        match credit {
            Credit::Window => session.window.release(),
            _ => connection.immediate_count = connection.immediate_count.saturating_sub(1),
        }
    }
    let numbers = Portal::numbers_of(connection, Some(session));
    let stat_sn = if has_status { StatSn::Taken } else { StatSn::Absent };
    connection.stream.write(out, header.build(), stat_sn, numbers, &mut damage, breaches, log, |out| {
        if let Some(task) = &task {
            node.device.append_data_in(task, offset.into(), length as usize, out);
        }
    });
    let Some(command) = session.command(handle) else { return Left::Gone };
    (command.damage, command.task) = (damage, task);
    if !is_last {
        return Left::Data;
    }
    if let Some(by_ns) = late_by_ns {
        command.stage = super::command::Stage::LateStatus;
        return Left::Late(now_ns.saturating_add(by_ns));
    }
    let left = if has_status { Left::Nothing } else { Left::Response(command.response()) };
    session.close(handle);
    left
}
