//! Data out at the target: R2T and Data-Out (RFC 7143 sections 11.7 and 11.8). `data_out` checks the data; `deliver`
//! continues once it is complete.

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::reject::RejectReason;
use iscsitrace_wire::serial::SerialNumber;

use super::command::{Handle, Stage};
use super::connection::Sink;
use super::data_out::{Condition, Fit, Piece};
use super::ending::Ending;
use super::output::{Credit, Damage, Outgoing, Then};
use super::portal::Portal;
use super::rule::TargetRule;
use super::session::Session;
use crate::application::ConnectionNumber;

/// Data that an R2T must not ask for (D6).
const BEYOND_BYTES: u32 = 512;

impl Portal {
    /// Sends as many R2Ts as may be outstanding (RFC 7143 section 11.8).
    pub(super) fn ask(&mut self, now_ns: i64, tsih: u16, handle: Handle) {
        loop {
            let Some(session) = self.sessions.get_mut(&tsih) else { return };
            let parameters = std::mem::take(&mut session.parameters);
            let order = self.settings.r2t_order;
            let breaches = &self.breaches;
            let asked = session.command_and_transfer(handle).and_then(|(command, next_transfer)| {
                let tag = || Session::transfer_tag(next_transfer, handle.slot);
                let mut r2t = command.data_out.next_r2t(&parameters, order, tag)?;
                if breaches.breaks(TargetRule::D6) {
                    r2t.desired_data_transfer_length =
                        command.expected_data_transfer_length() - r2t.buffer_offset + BEYOND_BYTES;
                }
                let header = BhsBuilder::new(Opcode::ReadyToTransfer)
                    .lun(command.lun())
                    .initiator_task_tag(command.initiator_task_tag())
                    .target_transfer_tag(r2t.target_transfer_tag)
                    .r2t_sn(SerialNumber(r2t.r2t_sn))
                    .buffer_offset(r2t.buffer_offset)
                    .desired_data_transfer_length(r2t.desired_data_transfer_length);
                let damage = command.damage.take_if(|damage| *damage == Damage::Header);
                let then = Then::Asked { record: command.record };
                Some((command.connection, Outgoing { damage, ..Outgoing::shown(header, Vec::new(), then) }))
            });
            session.parameters = parameters;
            let Some((number, r2t)) = asked else { return };
            self.send(now_ns, number, r2t);
        }
    }

    /// Takes the header of a Data-Out; returns the destination of its data.
    pub(super) fn begin_data_out(&mut self, number: ConnectionNumber) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.sink = Sink::Drop;
        connection.is_wrong_data_out = false;
        let Some(session) = connection.tsih().and_then(|tsih| self.sessions.get_mut(&tsih)) else { return };
        let bhs = Bhs::new(&connection.header);
        let initiator_task_tag = bhs.initiator_task_tag().unwrap_or(RESERVED_TAG);
        let piece = Piece {
            target_transfer_tag: bhs.target_transfer_tag().unwrap_or(RESERVED_TAG),
            data_sn: bhs.data_sn().unwrap_or_default().0,
            buffer_offset: bhs.buffer_offset().unwrap_or_default(),
            length: bhs.data_segment_length().unwrap_or_default(),
            is_final: bhs.is_final() == Some(true),
        };
        let is_solicited = piece.target_transfer_tag != RESERVED_TAG;
        let handle = if is_solicited {
            session.by_transfer(piece.target_transfer_tag)
        } else {
            session.by_tag(initiator_task_tag)
        };
        session.answer_gone(piece.target_transfer_tag, piece.is_final);
        let command = handle.and_then(|handle| session.command(handle));
        // RFC 7143 section 4.2.5.1: data arrives on the connection of its command
        let command = command
            .filter(|command| command.initiator_task_tag() == initiator_task_tag && command.connection == number);
        let fit = match (command, handle) {
            (Some(command), Some(handle)) => {
                let fit = command.data_out.take(piece, &connection.parameters);
                if fit == Fit::Good && command.stage == Stage::Held {
                    connection.sink = Sink::Early(handle, piece.buffer_offset);
                } else if fit == Fit::Good {
                    connection.sink = Sink::Task(handle, piece.buffer_offset);
                }
                fit
            }
            _ => Fit::Unknown,
        };
        match fit {
            Fit::Good => self.log.counters.data_out_bytes += u64::from(piece.length),
            Fit::Unknown if session.is_gone(initiator_task_tag, piece.target_transfer_tag) => {
                self.log.counters.stray_data_outs += 1
            }
            Fit::Gap => self.log.counters.wrong_data_outs += 1,
            Fit::Wrong | Fit::Unknown => {
                self.log.counters.wrong_data_outs += 1;
                connection.is_wrong_data_out = true;
            }
        }
    }

    /// A Data-Out is complete.
    pub(super) fn end_data_out(&mut self, now_ns: i64, number: ConnectionNumber, is_data_digest_good: bool) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let header = connection.header;
        let bhs = connection.bhs();
        let Some(tsih) = connection.tsih() else { return };
        let tag = bhs.initiator_task_tag().unwrap_or(RESERVED_TAG);
        if connection.is_wrong_data_out && is_data_digest_good {
            self.send_reject(now_ns, number, &header, RejectReason::InvalidPduField.as_u8(), Credit::None);
        }
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        if let Some(handle) = session.by_tag(tag)
            && let Some(command) = session.command(handle).filter(|command| command.connection == number)
        {
            if !is_data_digest_good {
                command.data_out.fail(Condition::ProtocolServiceCrcError);
            }
            self.proceed(now_ns, tsih, handle);
        }
    }

    /// Keeps data of a command that waits for its turn.
    pub(super) fn keep_early_data(
        &mut self,
        now_ns: i64,
        number: ConnectionNumber,
        handle: Handle,
        offset: u32,
        data: &[u8],
    ) {
        let Some(tsih) = self.connections.get(&number).and_then(|connection| connection.tsih()) else { return };
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        let target = session.target.and_then(|target| self.targets.get_mut(target));
        let Some(command) = session.command(handle) else { return };
        if command.stage != Stage::Held {
            // its turn came in the middle of a PDU
            if let (Some(target), Some(task)) = (target, command.task.as_mut()) {
                target.device.write_data_out(task, offset.into(), data);
            }
            return;
        }
        let (begin, before) = (offset as usize, command.early.len());
        let end = begin + data.len();
        if end > before {
            command.early.resize(end, 0);
        }
        if let Some(place) = command.early.get_mut(begin..end) {
            place.copy_from_slice(data);
        }
        session.early_bytes += end.saturating_sub(before);
        self.check_early(now_ns, number);
    }

    /// Bounds the data that waits for its command's turn.
    pub(super) fn check_early(&mut self, now_ns: i64, number: ConnectionNumber) {
        let tsih = self.connections.get(&number).and_then(|connection| connection.tsih());
        let Some(session) = tsih.and_then(|tsih| self.sessions.get(&tsih)) else { return };
        let of_all = self.sessions.values().map(|each| each.early_bytes).sum();
        let limits = &self.settings.limits;
        let reached = [(session.early_bytes, limits.early_data_bytes), (of_all, limits.waiting_bytes)];
        if let Some((_, limit)) = reached.into_iter().find(|(bytes, limit)| bytes > limit) {
            self.end_connection(now_ns, number, Ending::TooMuchEarlyData(limit));
        }
    }
}
