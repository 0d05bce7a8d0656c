//! Sending to the target: the choice of the next PDU, and its encoding.
//!
//! ```text
//! urgent        answers to pings, task management, NOP, text, logout: independent of the window
//! unsolicited   Data-Out of the command just sent
//! commands      up to MaxCmdSN
//! bursts        Data-Out for R2Ts, in the order of the R2Ts
//! ```
//!
//! CmdSN is assigned when a command is sent, not before. So a blocked connection never delays the others, and CmdSN
//! increases on each connection (RFC 7143 section 4.2.2.1).

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, LENGTH_BYTES, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::breach::InitiatorRule;
use super::connection::{Burst, Connection, State, Urgent};
use super::data::TaskData;
use super::session::Session;
use super::task::{Direction, Kind, Task};
use crate::protocol::breach::Breaches;
use crate::protocol::pdu;
use crate::protocol::pdu_log::PduRecord;

/// Approximate bytes of one system call.
const TRANSMIT_BYTES: usize = 256 << 10;

/// Initiator Task Tag of a command that must not be sent (M9).
const TAG_AFTER_LOGOUT: u32 = 0x4000_0000;

/// Section 13.3 and appendix C.
const SEND_TARGETS: &[u8] = b"SendTargets=All\0";

/// Ping data: each byte depends on its offset.
pub(super) fn ping_byte(offset: u32) -> u8 {
    (offset % 251) as u8
}

impl Session {
    /// Appends the bytes of a connection's next system call; nothing when there is nothing to send now.
    pub fn poll_transmit(&mut self, now_ns: i64, connection: usize, out: &mut Vec<u8>, data: &mut impl TaskData) {
        self.settings.breaches.at(now_ns);
        let start = out.len();
        match self.connections.get(connection).map(|connection| connection.state) {
            Some(State::Login) => self.transmit_login(connection, out),
            Some(State::Full | State::Leaving | State::LoggingOut) => {
                while out.len() - start < TRANSMIT_BYTES && self.transmit_next(now_ns, connection, out, data) {}
            }
            _ => {}
        }
    }

    fn transmit_login(&mut self, index: usize, out: &mut Vec<u8>) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(mut request) = connection.login_request.take() else { return };
        request.data = self.settings.breaches.login_text(request.data);
        // Section 11.12: a login has the same Initiator Task Tag in all its PDUs, and CmdSN does not advance.
        let header = request.header().initiator_task_tag(connection.login_tag).cmd_sn(self.window.cmd_sn());
        let header = header.exp_stat_sn(connection.exp_stat_sn()).build();
        let (breaches, log) = (&self.settings.breaches, self.pdu_log.as_mut());
        emit(index, connection, out, header, breaches, log, |place| place.copy_from_slice(&request.data));
    }

    /// Appends the next PDU; false when there is none.
    fn transmit_next(&mut self, now_ns: i64, index: usize, out: &mut Vec<u8>, data: &mut impl TaskData) -> bool {
        let Some(connection) = self.connections.get_mut(index) else { return false };
        if let Some(urgent) = connection.urgent.pop_front() {
            self.transmit_urgent(now_ns, index, urgent, out);
            return true;
        }
        if let Some(mut burst) = connection.unsolicited.take() {
            self.transmit_data_out(index, &mut burst, out, data);
            if let Some(connection) = self.connections.get_mut(index).filter(|_| burst.offset < burst.end) {
                connection.unsolicited = Some(burst);
            }
            return true;
        }
        let is_allowed = self.window.is_open()
            || !connection.commands.is_empty() && self.settings.breaches.breaks(InitiatorRule::S3);
        if is_allowed && let Some(tag) = connection.commands.pop_front() {
            self.transmit_command(now_ns, index, tag, out, data);
            return true;
        }
        if let Some(mut burst) = connection.bursts.pop_front() {
            self.transmit_data_out(index, &mut burst, out, data);
            if let Some(connection) = self.connections.get_mut(index).filter(|_| burst.offset < burst.end) {
                connection.bursts.push_front(burst);
            }
            return true;
        }
        false
    }

    fn transmit_command(&mut self, now_ns: i64, index: usize, tag: u32, out: &mut Vec<u8>, data: &mut impl TaskData) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let breaches = &self.settings.breaches;
        let is_open = |(other, task): &(u32, &Task)| *other != tag && task.kind == Kind::Scsi && task.is_sent;
        let open_tag = self.tasks.active().find(is_open).map(|(other, _)| other);
        let initiator_task_tag = open_tag.filter(|_| breaches.breaks(InitiatorRule::T1)).unwrap_or(tag);
        let Some(task) = self.tasks.get_mut(tag) else { return };
        let command = task.command;
        let keys = &breaches.believed(&connection.parameters, &command);
        if breaches.breaks(InitiatorRule::S1) {
            self.window.take();
        }
        task.cmd_sn = if breaches.breaks(InitiatorRule::S2) { self.window.reuse() } else { self.window.take() };
        (task.is_sent, task.sent_ns) = (true, now_ns);
        let (mut immediate, mut unsolicited_end) = (0, 0);
        if command.direction == Direction::Write {
            // Section 13.11 and 13.14: immediate data within FirstBurstLength, and within one data segment.
            if keys.immediate_data {
                immediate = command.length_bytes.min(keys.first_burst_length);
                immediate = immediate.min(keys.target_max_recv_data_segment_length);
            }
            // Section 13.10: with InitialR2T=No the rest of the first burst follows unsolicited.
            unsolicited_end =
                if keys.initial_r2t { immediate } else { command.length_bytes.min(keys.first_burst_length) };
            task.granted = unsolicited_end;
            task.transferred = immediate;
            if !keys.data_sequence_in_order {
                task.ranges.add(0, unsolicited_end);
            }
            if immediate < unsolicited_end {
                connection.unsolicited = Some(Burst {
                    tag,
                    target_transfer_tag: RESERVED_TAG,
                    // Section 11.7.4: the LUN is present only with a Target Transfer Tag.
                    lun: [0; 8],
                    offset: immediate,
                    end: unsolicited_end,
                    is_exchanged: false,
                    data_sn: SerialNumber(0),
                });
            }
        }
        let header = BhsBuilder::new(Opcode::ScsiCommand)
            // Section 11.3.1: the F bit means that no unsolicited Data-Out follows.
            .is_final(immediate == unsolicited_end)
            .is_read(command.direction == Direction::Read)
            .is_write(command.direction == Direction::Write)
            .task_attribute(1)
            .lun(command.lun)
            .initiator_task_tag(initiator_task_tag)
            .expected_data_transfer_length(command.length_bytes)
            .cmd_sn(task.cmd_sn)
            .exp_stat_sn(connection.exp_stat_sn())
            .cdb(command.cdb)
            .data_segment_length(immediate)
            .build();
        let mut log = self.pdu_log.as_mut();
        emit(index, connection, out, header, breaches, log.as_deref_mut(), |place| data.fill(tag, 0, place));
        if breaches.breaks(InitiatorRule::M8) {
            // DataSN 0 of this command
            let snack = BhsBuilder::new(Opcode::SnackRequest)
                .lun(command.lun)
                .initiator_task_tag(tag)
                .target_transfer_tag(RESERVED_TAG)
                .exp_stat_sn(connection.exp_stat_sn());
            emit(index, connection, out, snack.build(), breaches, log, |_| ());
        }
    }

    fn transmit_data_out(&mut self, index: usize, burst: &mut Burst, out: &mut Vec<u8>, data: &mut impl TaskData) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let breaches = &self.settings.breaches;
        let (left, most) = (burst.end - burst.offset, connection.parameters.target_max_recv_data_segment_length);
        let length = if left > most && breaches.breaks(InitiatorRule::D16) { left } else { left.min(most) };
        let offset = match std::mem::take(&mut burst.is_exchanged) {
            true => burst.offset - length,
            false if left >= 2 * length && breaches.breaks(InitiatorRule::D10) => {
                burst.is_exchanged = true;
                burst.offset + length
            }
            false => burst.offset,
        };
        if breaches.breaks(InitiatorRule::S15) {
            burst.data_sn = burst.data_sn.next();
        }
        let is_final = burst.offset + length == burst.end;
        let header = BhsBuilder::new(Opcode::DataOut)
            .is_final(is_final)
            .lun(burst.lun)
            .initiator_task_tag(burst.tag)
            .target_transfer_tag(burst.target_transfer_tag)
            .exp_stat_sn(connection.exp_stat_sn())
            .data_sn(burst.data_sn)
            .buffer_offset(offset)
            .data_segment_length(length)
            .build();
        let log = self.pdu_log.as_mut();
        emit(index, connection, out, header, breaches, log, |place| data.fill(burst.tag, offset, place));
        if let Some(task) = self.tasks.get_mut(burst.tag) {
            task.transferred += length;
            if is_final && burst.target_transfer_tag != RESERVED_TAG {
                task.outstanding_r2t_count = task.outstanding_r2t_count.saturating_sub(1);
            }
        }
        burst.offset += length;
        burst.data_sn = burst.data_sn.next();
    }

    fn transmit_urgent(&mut self, now_ns: i64, index: usize, urgent: Urgent, out: &mut Vec<u8>) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let (cmd_sn, exp_stat_sn) = (self.window.cmd_sn(), connection.exp_stat_sn());
        let mut text: &[u8] = &[];
        let header = match urgent {
            Urgent::PingReply { target_transfer_tag, lun } => BhsBuilder::new(Opcode::NopOut)
                // Section 11.18.1: an answer has the reserved Initiator Task Tag, and is immediate.
                .initiator_task_tag(RESERVED_TAG)
                .target_transfer_tag(target_transfer_tag)
                .lun(lun),
            Urgent::MoreText { tag, target_transfer_tag, lun } => BhsBuilder::new(Opcode::TextRequest)
                .is_final(true)
                .initiator_task_tag(tag)
                .target_transfer_tag(target_transfer_tag)
                .lun(lun),
            Urgent::Request(tag) => {
                // an aborted request is not sent
                let referenced = match self.tasks.get(tag).map(|task| task.kind) {
                    Some(Kind::AbortTask { referenced }) => self.tasks.get(referenced).map(|task| task.cmd_sn),
                    Some(_) => None,
                    None => return,
                };
                let Some(task) = self.tasks.get_mut(tag) else { return };
                (task.is_sent, task.sent_ns, task.cmd_sn) = (true, now_ns, cmd_sn);
                let header = match task.kind {
                    Kind::Ping { length, .. } => BhsBuilder::new(Opcode::NopOut)
                        .target_transfer_tag(RESERVED_TAG)
                        .lun(task.command.lun)
                        .data_segment_length(length),
                    Kind::AbortTask { referenced: tag } => BhsBuilder::new(Opcode::TaskManagementRequest)
                        .function(1)
                        .lun(task.command.lun)
                        .referenced_task_tag(tag)
                        .ref_cmd_sn(referenced.unwrap_or_default()),
                    Kind::LogicalUnitReset => BhsBuilder::new(Opcode::TaskManagementRequest)
                        .function(5)
                        .lun(task.command.lun)
                        .referenced_task_tag(RESERVED_TAG),
                    Kind::Text { is_discovery } => {
                        text = if is_discovery { SEND_TARGETS } else { &[] };
                        BhsBuilder::new(Opcode::TextRequest)
                            .is_final(true)
                            .target_transfer_tag(RESERVED_TAG)
                            .data_segment_length(text.len() as u32)
                    }
                    Kind::Logout { reason } => {
                        BhsBuilder::new(Opcode::LogoutRequest).logout_reason(reason).cid(connection.cid)
                    }
                    Kind::Scsi | Kind::Free | Kind::Ended | Kind::Ghost => return,
                };
                header.initiator_task_tag(tag)
            }
        };
        let header = header.is_immediate(true).cmd_sn(cmd_sn).exp_stat_sn(exp_stat_sn).build();
        self.window.pass();
        let (breaches, mut log) = (&self.settings.breaches, self.pdu_log.as_mut());
        if breaches.breaks(InitiatorRule::S4) {
            self.window.take();
        }
        emit(index, connection, out, header, breaches, log.as_deref_mut(), |place| {
            if text.is_empty() {
                place.iter_mut().zip(0..).for_each(|(byte, offset)| *byte = ping_byte(offset));
            } else {
                place.copy_from_slice(text);
            }
        });
        if Bhs::new(&header).opcode() == Some(Opcode::LogoutRequest) && breaches.breaks(InitiatorRule::M9) {
            // TEST UNIT READY, which no task of this session is
            let command = BhsBuilder::new(Opcode::ScsiCommand)
                .is_final(true)
                .initiator_task_tag(TAG_AFTER_LOGOUT)
                .cmd_sn(self.window.take())
                .exp_stat_sn(exp_stat_sn);
            emit(index, connection, out, command.build(), breaches, log, |_| ());
        }
    }
}

fn emit(
    index: usize,
    connection: &mut Connection,
    out: &mut Vec<u8>,
    mut header: [u8; LENGTH_BYTES],
    breaches: &Breaches<InitiatorRule>,
    log: Option<&mut Vec<PduRecord>>,
    fill: impl FnOnce(&mut [u8]),
) {
    breaches.spoil(&mut header, &mut connection.lagging_exp_stat_sn);
    let start = out.len();
    let data_length = Bhs::new(&header).data_segment_length().unwrap_or(0) as usize;
    pdu::encode(out, &header, &[], connection.digests, |out| {
        let data = out.len();
        out.resize(data + data_length, 0);
        fill(&mut out[data..]);
    });
    if let Some(last) = connection.digests.last_byte(start, out.len(), data_length > 0)
        && breaches.breaks(InitiatorRule::D21)
    {
        out[last] ^= 0xff;
    }
    let length = (out.len() - start) as u64;
    if let Some(log) = log {
        log.push(PduRecord::new(index, true, connection.sent_bytes, length, &header));
    }
    connection.sent_bytes += length;
}
