//! PDUs from the target: their validation, and their dispatch.
//!
//! ```text
//! header   Data-In: check its sequence    others: choose the destination of the data
//! data     to the command, to the ping, or kept
//! end      check the digest, StatSN and window, then process the PDU
//! ```
//!
//! It never sends: answers are queued for `transmit`.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;

use super::breach::InitiatorRule;
use super::connection::{Incoming, State, Urgent};
use super::data::TaskData;
use super::event::Outcome;
use super::session::Session;
use super::task::Kind;
use super::transmit::ping_byte;
use super::violation::{SessionError, Violation};
use crate::protocol::pdu::Piece;
use crate::protocol::pdu_log::PduRecord;

/// Most pings of the target that may wait for an answer.
const MOST_PINGS: usize = 256;

/// Fields of a PDU; a missing field is read as 0.
pub(super) fn or_zero<T: Default>(field: Option<T>) -> T {
    field.unwrap_or_default()
}

impl Session {
    /// Takes bytes of a connection.
    pub fn receive(&mut self, now_ns: i64, connection: usize, bytes: &[u8], data: &mut impl TaskData) {
        self.settings.breaches.at(now_ns);
        if let Err(error) = self.read(now_ns, connection, bytes, data) {
            self.fail_over(connection, error);
        }
        self.proceed(now_ns);
    }

    /// Number of the next bytes of a connection that are ignored: unwanted data of a read.
    #[must_use]
    pub fn unwanted(&self, connection: usize, data: &impl TaskData) -> usize {
        match self.connections.get(connection).filter(|connection| connection.is_open()) {
            Some(connection) => match connection.incoming {
                Incoming::Task { tag, .. } if !data.is_wanted(tag) => connection.decoder.passable(),
                Incoming::Skip => connection.decoder.passable(),
                _ => 0,
            },
            None => 0,
        }
    }

    /// `count` of these bytes were dropped.
    pub fn skip(&mut self, now_ns: i64, connection: usize, count: usize, data: &mut impl TaskData) {
        if let Some(connection) = self.connections.get_mut(connection) {
            let count = connection.decoder.pass(count);
            if let Incoming::Task { offset, .. } = &mut connection.incoming {
                *offset += count as u32;
            }
        }
        // they may complete the PDU
        self.receive(now_ns, connection, &[], data);
    }

    fn read(
        &mut self,
        now_ns: i64,
        index: usize,
        mut bytes: &[u8],
        data: &mut impl TaskData,
    ) -> Result<(), SessionError> {
        loop {
            let Some(connection) = self.connections.get_mut(index).filter(|connection| connection.is_open()) else {
                return Ok(());
            };
            connection.received_ns = now_ns;
            let piece = connection.decoder.next(&mut bytes);
            match piece.map_err(|reason| SessionError::Unreadable { connection: index, reason })? {
                None => return Ok(()),
                Some(Piece::Header) => {
                    let Ok(header) = <[u8; LENGTH_BYTES]>::try_from(connection.decoder.bhs().as_bytes()) else {
                        return Ok(());
                    };
                    self.begin(now_ns, index, &header)?;
                }
                Some(Piece::Data(bytes)) => match &mut connection.incoming {
                    Incoming::Task { tag, offset } => {
                        data.take(*tag, *offset, bytes);
                        *offset += bytes.len() as u32;
                    }
                    Incoming::Collect => connection.segment.extend_from_slice(bytes),
                    Incoming::Echo { offset, length } => {
                        let is_same = bytes.iter().zip(*offset..*length).all(|(byte, at)| *byte == ping_byte(at));
                        *offset += bytes.len() as u32;
                        if !is_same || offset > length {
                            return Err(Violation::Echo.into());
                        }
                    }
                    Incoming::Skip => {}
                },
                Some(Piece::End { is_data_digest_good }) => {
                    let Ok(header) = <[u8; LENGTH_BYTES]>::try_from(connection.decoder.bhs().as_bytes()) else {
                        return Ok(());
                    };
                    let header = Bhs::new(&header);
                    if !is_data_digest_good {
                        self.data_digest_error_count += 1;
                        let opcode = header.opcode().map_or("PDU", Opcode::name);
                        return Err(SessionError::DataDigest { connection: index, opcode });
                    }
                    self.end(now_ns, index, header)?;
                }
            }
        }
    }

    /// A header is complete; its data follows.
    fn begin(&mut self, now_ns: i64, index: usize, bytes: &[u8; LENGTH_BYTES]) -> Result<(), SessionError> {
        let header = Bhs::new(bytes);
        let connection = &mut self.connections[index];
        if let Some(log) = &mut self.pdu_log {
            let length = header.total_length(connection.digests.header, connection.digests.data).unwrap_or(0);
            log.push(PduRecord::new(index, false, connection.decoder.start(), length, bytes));
        }
        let Some(opcode) = header.opcode() else {
            return Err(Violation::UnknownOpcode { opcode: or_zero(header.opcode_byte()) & 0x3f }.into());
        };
        connection.segment.clear();
        let state = connection.state;
        let incoming = match opcode {
            _ if opcode.is_initiator() => {
                return Err(Violation::NotNow { opcode, phase: self.phase(index) }.into());
            }
            Opcode::LoginResponse if state == State::Login => Incoming::Collect,
            // Section 11.17: a target may reject a login before it closes the connection.
            Opcode::Reject => Incoming::Collect,
            _ if state == State::Login || opcode == Opcode::LoginResponse => {
                return Err(Violation::NotNow { opcode, phase: self.phase(index) }.into());
            }
            Opcode::DataIn => self.begin_data_in(now_ns, index, header)?,
            Opcode::NopIn => match self.tasks.get(or_zero(header.initiator_task_tag())).map(|task| task.kind) {
                Some(Kind::Ping { length, .. }) => Incoming::Echo { offset: 0, length },
                _ => Incoming::Skip,
            },
            Opcode::TextResponse | Opcode::ScsiResponse => Incoming::Collect,
            _ => Incoming::Skip,
        };
        self.connections[index].incoming = incoming;
        Ok(())
    }

    fn phase(&self, index: usize) -> &'static str {
        match self.connections.get(index).map(|connection| connection.state) {
            Some(State::Login) => "login phase",
            _ => "full feature phase",
        }
    }

    /// A PDU is complete.
    fn end(&mut self, now_ns: i64, index: usize, header: Bhs<'_>) -> Result<(), SessionError> {
        let Some(opcode) = header.opcode() else { return Ok(()) };
        if let (Some(exp_cmd_sn), Some(max_cmd_sn)) = (header.exp_cmd_sn(), header.max_cmd_sn()) {
            let cmd_sn = self.window.cmd_sn();
            // real targets do it: reported once
            if !self.window.update(exp_cmd_sn, max_cmd_sn)? && !self.has_counted_immediates {
                self.has_counted_immediates = true;
                self.remarks.push(Violation::ImmediateCounted { exp_cmd_sn, cmd_sn }.to_string());
            }
        }
        let tag = or_zero(header.initiator_task_tag());
        match opcode {
            Opcode::LoginResponse => return self.end_login_response(now_ns, index, header),
            Opcode::DataIn if header.has_status() == Some(true) => {
                self.advance_stat_sn(index, opcode, header)?;
                self.end_status(opcode, tag, header, Vec::new())?;
            }
            Opcode::ScsiResponse => {
                self.advance_stat_sn(index, opcode, header)?;
                if self.expect(index, opcode, tag, |kind| kind == Kind::Scsi)? {
                    let sense = self.sense(index)?;
                    self.end_status(opcode, tag, header, sense)?;
                }
            }
            Opcode::ReadyToTransfer => self.end_r2t(now_ns, index, tag, header)?,
            Opcode::NopIn => self.end_nop_in(index, tag, header)?,
            Opcode::TaskManagementResponse => {
                self.advance_stat_sn(index, opcode, header)?;
                let is_request = |kind| matches!(kind, Kind::AbortTask { .. } | Kind::LogicalUnitReset);
                if self.expect(index, opcode, tag, is_request)? {
                    self.end_task_management(tag, or_zero(header.response()))?;
                }
            }
            Opcode::TextResponse => {
                self.advance_stat_sn(index, opcode, header)?;
                if self.expect(index, opcode, tag, |kind| matches!(kind, Kind::Text { .. }))? {
                    self.end_text(index, tag, header)?;
                }
            }
            Opcode::LogoutResponse => {
                self.advance_stat_sn(index, opcode, header)?;
                if self.expect(index, opcode, tag, |kind| matches!(kind, Kind::Logout { .. }))? {
                    self.end_logout(index, tag, or_zero(header.response()))?;
                }
            }
            Opcode::AsyncMessage => {
                self.advance_stat_sn(index, opcode, header)?;
                self.end_async_message(now_ns, index, header)?;
            }
            Opcode::Reject => {
                self.advance_stat_sn(index, opcode, header)?;
                self.end_reject(index, or_zero(header.reject_reason()))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Section 4.2.2.2: every status has the next StatSN of its connection.
    fn advance_stat_sn(&mut self, index: usize, opcode: Opcode, header: Bhs<'_>) -> Result<(), Violation> {
        let found = or_zero(header.stat_sn());
        let connection = &mut self.connections[index];
        match connection.exp_stat_sn {
            Some(expected) if expected != found => Err(Violation::StatSn { opcode, found, expected }),
            _ => {
                connection.exp_stat_sn = Some(found.next());
                Ok(())
            }
        }
    }

    /// Whether an answer is to be processed: false when its task was aborted.
    pub(super) fn expect(
        &self,
        index: usize,
        opcode: Opcode,
        tag: u32,
        is_expected: impl Fn(Kind) -> bool,
    ) -> Result<bool, Violation> {
        match self.tasks.get(tag) {
            Some(task) if task.kind == Kind::Ghost => Ok(false),
            Some(task) if task.is_sent && is_expected(task.kind) => {
                if usize::from(task.connection) == index {
                    return Ok(true);
                }
                Err(Violation::Allegiance { opcode, tag, found: index as u16, expected: task.connection })
            }
            _ => Err(Violation::UnknownTask { opcode, tag }),
        }
    }

    fn end_nop_in(&mut self, index: usize, tag: u32, header: Bhs<'_>) -> Result<(), Violation> {
        let opcode = Opcode::NopIn;
        if tag != RESERVED_TAG {
            self.advance_stat_sn(index, opcode, header)?;
            if self.expect(index, opcode, tag, |kind| matches!(kind, Kind::Ping { .. }))? {
                let is_whole = matches!(self.connections[index].incoming,
                    Incoming::Echo { offset, length } if offset == length);
                if !is_whole {
                    return Err(Violation::Echo);
                }
                self.connections[index].is_probed = false;
                self.complete(tag, Outcome::Answered(0), 0, Vec::new(), false);
            }
            return Ok(());
        }
        // Section 11.19.2: StatSN does not advance here.
        let target_transfer_tag = or_zero(header.target_transfer_tag());
        let connection = &mut self.connections[index];
        // Section 11.14: after the Logout Request nothing more is sent.
        if target_transfer_tag == RESERVED_TAG || connection.state == State::LoggingOut {
            return Ok(());
        }
        if connection.urgent.len() >= MOST_PINGS {
            return Err(Violation::TooManyPings { count: connection.urgent.len() + 1 });
        }
        if !self.settings.breaches.breaks(InitiatorRule::M1) {
            connection.urgent.push_back(Urgent::PingReply { target_transfer_tag, lun: or_zero(header.lun()) });
        }
        Ok(())
    }
}
