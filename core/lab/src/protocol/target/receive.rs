//! Decoding of stream bytes, and the order of PDUs. Each kind of PDU is processed in its own file.

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, LENGTH_BYTES, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::reject::RejectReason;
use iscsitrace_wire::serial::SerialNumber;

use super::connection::{Deadline, Phase, Sink};
use super::ending::Ending;
use super::output::{Credit, Outgoing, Then};
use super::portal::Portal;
use super::session::Held;
use super::window::Turn;
use crate::application::ConnectionNumber;
use crate::protocol::pdu::Piece;
use crate::protocol::pdu_log::PduRecord;

impl Portal {
    /// Takes bytes of a connection.
    pub(super) fn read(&mut self, now_ns: i64, number: ConnectionNumber, bytes: &[u8]) {
        let mut input = bytes;
        loop {
            let Some(connection) = self.connections.get_mut(&number) else { return };
            if matches!(connection.phase, Phase::Over(_)) {
                return;
            }
            connection.last_received_ns = now_ns;
            match connection.decoder.next(&mut input) {
                Ok(None) => return,
                Ok(Some(Piece::Header)) => {
                    if let Some(header) = connection.decoder.bhs().as_bytes().first_chunk() {
                        connection.header = *header;
                    }
                    connection.data.clear();
                    connection.sink = Sink::Collect;
                    if connection.bhs().opcode() == Some(Opcode::DataOut) {
                        self.begin_data_out(number);
                    }
                }
                Ok(Some(Piece::Data(data))) => self.take_data(now_ns, number, data),
                Ok(Some(Piece::End { is_data_digest_good })) => self.end_pdu(now_ns, number, is_data_digest_good),
                Err(unreadable) => {
                    self.end_connection(now_ns, number, Ending::Unreadable(unreadable));
                    return;
                }
            }
        }
    }

    /// Takes data of the current PDU.
    fn take_data(&mut self, now_ns: i64, number: ConnectionNumber, data: &[u8]) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        match connection.sink {
            Sink::Collect => connection.data.extend_from_slice(data),
            Sink::Drop => {}
            Sink::Task(handle, offset) => {
                connection.sink = Sink::Task(handle, offset.saturating_add(data.len() as u32));
                let Some(session) = connection.tsih().and_then(|tsih| self.sessions.get_mut(&tsih)) else { return };
                let target = session.target.and_then(|target| self.targets.get_mut(target));
                let task = session.command(handle).and_then(|command| command.task.as_mut());
                if let (Some(target), Some(task)) = (target, task) {
                    target.device.write_data_out(task, offset.into(), data);
                }
            }
            Sink::Early(handle, offset) => {
                connection.sink = Sink::Early(handle, offset.saturating_add(data.len() as u32));
                self.keep_early_data(now_ns, number, handle, offset, data);
            }
        }
    }

    /// A PDU is complete.
    fn end_pdu(&mut self, now_ns: i64, number: ConnectionNumber, is_data_digest_good: bool) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let header = connection.header;
        let bhs = Bhs::new(&header);
        self.log.counters.pdus_received += 1;
        let start = connection.decoder.start();
        self.log.pdu(|| PduRecord::new(number, true, start, connection.decoder.offset() - start, &header));
        if matches!(connection.phase, Phase::Login(_)) {
            self.take_login(now_ns, number);
            return;
        }
        let exp_stat_sn = bhs.exp_stat_sn().unwrap_or_default();
        // only a sent status can be acknowledged (RFC 7143 section 4.2.2.2)
        if exp_stat_sn.is_after(connection.stream.stat_sn) {
            self.log.counters.wrong_exp_stat_sns += 1;
        } else if exp_stat_sn.is_after(connection.exp_stat_sn) {
            connection.exp_stat_sn = exp_stat_sn;
        }
        let tsih = connection.tsih();
        self.take_full_feature(now_ns, number, &header, is_data_digest_good);
        // a task management function may have waited for it, or for its acknowledgment
        if let Some(tsih) = tsih {
            self.go_on_with_management(now_ns, tsih);
        }
    }

    /// Takes a PDU of the full feature phase.
    fn take_full_feature(
        &mut self,
        now_ns: i64,
        number: ConnectionNumber,
        header: &[u8; LENGTH_BYTES],
        is_data_digest_good: bool,
    ) {
        let bhs = Bhs::new(header);
        if !is_data_digest_good {
            // RFC 7143 section 7.8
            self.log.counters.data_digest_errors += 1;
            self.send_reject(now_ns, number, header, RejectReason::DataDigestError.as_u8(), Credit::None);
            if bhs.opcode() == Some(Opcode::DataOut) {
                self.end_data_out(now_ns, number, false);
            }
            return;
        }
        match bhs.opcode() {
            Some(Opcode::DataOut) => self.end_data_out(now_ns, number, true),
            // RFC 7143 section 11.16: no retransmission at ErrorRecoveryLevel 0
            Some(Opcode::SnackRequest) => {
                self.send_reject(now_ns, number, header, RejectReason::SnackReject.as_u8(), Credit::None);
            }
            Some(opcode) if opcode.is_initiator() && opcode != Opcode::LoginRequest => {
                self.take_ordered(now_ns, number, opcode);
            }
            // RFC 7143 section 4.6.3.2: no Login Request after the login, and no PDU of targets
            Some(_) => self.send_reject(now_ns, number, header, RejectReason::ProtocolError.as_u8(), Credit::None),
            None => self.reject(now_ns, number, header, RejectReason::CommandNotSupported),
        }
    }

    /// Takes a PDU with a CmdSN: processes, holds or ignores it.
    fn take_ordered(&mut self, now_ns: i64, number: ConnectionNumber, opcode: Opcode) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let header = connection.header;
        let bhs = Bhs::new(&header);
        let is_immediate = bhs.is_immediate() == Some(true);
        let Some(session) = connection.tsih().and_then(|tsih| self.sessions.get_mut(&tsih)) else { return };
        let cmd_sn = bhs.cmd_sn().unwrap_or_default();
        // RFC 7143 section 4.2.2.1: silently ignored
        if !is_immediate && session.window.turn(cmd_sn) == Turn::Never {
            self.log.counters.ignored_cmd_sns += 1;
            return;
        }
        if let Some(reason) = self.fault_of_header(number, &header, opcode) {
            self.reject(now_ns, number, &header, reason);
            return;
        }
        if opcode == Opcode::ScsiCommand {
            self.take_command(now_ns, number);
            return;
        }
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let data = std::mem::take(&mut connection.data);
        if is_immediate {
            connection.immediate_count += 1;
            self.take_pdu(now_ns, number, &header, data);
            return;
        }
        let Some(session) = connection.tsih().and_then(|tsih| self.sessions.get_mut(&tsih)) else { return };
        if session.window.turn(cmd_sn) == Turn::Later {
            session.early_bytes += data.len();
            session.window.hold(cmd_sn, Held::Pdu { connection: number, header, data });
            self.check_early(now_ns, number);
            return;
        }
        session.window.advance();
        let tsih = session.tsih;
        self.take_pdu(now_ns, number, &header, data);
        self.deliver_held(now_ns, tsih);
    }

    /// Why a header is rejected, whatever its turn.
    fn fault_of_header(&self, number: ConnectionNumber, header: &[u8], opcode: Opcode) -> Option<RejectReason> {
        let connection = self.connections.get(&number)?;
        let session = self.sessions.get(&connection.tsih()?)?;
        let bhs = Bhs::new(header);
        let tag = bhs.initiator_task_tag().unwrap_or(RESERVED_TAG);
        // RFC 7143 section 11.2.1.8: no task has the reserved tag; a NOP-Out may have it
        if tag == RESERVED_TAG && opcode != Opcode::NopOut {
            return Some(RejectReason::InvalidPduField);
        }
        if bhs.total_ahs_length_bytes().unwrap_or(0) > 0 && opcode != Opcode::ScsiCommand {
            return Some(RejectReason::InvalidPduField);
        }
        if session.by_tag(tag).is_some() && tag != RESERVED_TAG {
            return Some(RejectReason::TaskInProgress);
        }
        let is_immediate = bhs.is_immediate() == Some(true);
        if is_immediate && connection.immediate_count >= self.settings.limits.immediate_count {
            return Some(RejectReason::TooManyImmediateCommands);
        }
        // RFC 7143 section 4.3: a discovery session allows Text and Logout; pings are harmless
        let is_for_tasks = matches!(opcode, Opcode::ScsiCommand | Opcode::TaskManagementRequest);
        if is_for_tasks && session.target.is_none() {
            return Some(RejectReason::ProtocolError);
        }
        // RFC 7143 section 11.9.1: a logout was requested
        let is_asked = matches!(connection.deadline, Some((_, Deadline::Logout { .. })));
        (is_asked && opcode == Opcode::ScsiCommand).then_some(RejectReason::WaitingForLogout)
    }

    /// Delivers held PDUs whose turn has come.
    pub(super) fn deliver_held(&mut self, now_ns: i64, tsih: u16) {
        loop {
            let Some(session) = self.sessions.get_mut(&tsih) else { return };
            let Some(held) = session.window.next_held() else { return };
            match held {
                Held::Nothing => {}
                Held::Command(handle) => self.deliver_early(now_ns, tsih, handle),
                Held::Pdu { connection, header, data } => {
                    session.early_bytes = session.early_bytes.saturating_sub(data.len());
                    // PDUs of a closed connection are dropped
                    if self.connections.get(&connection).is_some_and(|connection| connection.tsih() == Some(tsih)) {
                        self.take_pdu(now_ns, connection, &header, data);
                    } else if let Some(session) = self.sessions.get_mut(&tsih) {
                        session.window.release();
                    }
                }
            }
        }
    }

    /// Takes a PDU in its turn, other than a SCSI Command.
    fn take_pdu(&mut self, now_ns: i64, number: ConnectionNumber, header: &[u8; LENGTH_BYTES], data: Vec<u8>) {
        match Bhs::new(header).opcode() {
            Some(Opcode::NopOut) => self.take_nop_out(now_ns, number, header, data),
            Some(Opcode::TextRequest) => self.take_text(now_ns, number, header, &data),
            Some(Opcode::LogoutRequest) => self.take_logout(now_ns, number, header),
            Some(Opcode::TaskManagementRequest) => self.take_management(now_ns, number, header),
            _ => {}
        }
    }

    /// The credit that the answer to a PDU returns.
    pub(super) fn credit_of(header: &[u8; LENGTH_BYTES]) -> Credit {
        if Bhs::new(header).is_immediate() == Some(true) { Credit::Immediate } else { Credit::Window }
    }

    /// Rejects a PDU that was not processed. Its CmdSN, if expected, is consumed.
    pub(super) fn reject(
        &mut self,
        now_ns: i64,
        number: ConnectionNumber,
        header: &[u8; LENGTH_BYTES],
        reason: RejectReason,
    ) {
        let bhs = Bhs::new(header);
        let cmd_sn = bhs.cmd_sn().filter(|_| bhs.is_immediate() == Some(false));
        let tsih = self.connections.get(&number).and_then(|connection| connection.tsih());
        let Some(session) = tsih.and_then(|tsih| self.sessions.get_mut(&tsih)) else { return };
        let turn = cmd_sn.map(|cmd_sn: SerialNumber| session.window.turn(cmd_sn));
        let credit = match (turn, cmd_sn) {
            (Some(Turn::Never), _) => return,
            (Some(Turn::Now), _) => {
                session.window.advance();
                Credit::Window
            }
            (Some(Turn::Later), Some(cmd_sn)) => {
                session.window.hold(cmd_sn, Held::Nothing);
                Credit::Window
            }
            _ => Credit::None,
        };
        self.send_reject(now_ns, number, header, reason.as_u8(), credit);
        if let (Some(tsih), Some(Turn::Now)) = (tsih, turn) {
            self.deliver_held(now_ns, tsih);
        }
    }

    /// Sends a Reject with the rejected header (RFC 7143 section 11.17).
    pub(super) fn send_reject(
        &mut self,
        now_ns: i64,
        number: ConnectionNumber,
        header: &[u8; LENGTH_BYTES],
        reason: u8,
        credit: Credit,
    ) {
        self.log.counters.rejects += 1;
        let reject = BhsBuilder::new(Opcode::Reject).reject_reason(reason);
        self.send(now_ns, number, Outgoing::status(reject, header.to_vec(), credit, Then::Nothing));
    }
}
