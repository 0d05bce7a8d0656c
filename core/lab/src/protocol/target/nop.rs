//! NOP-Out and NOP-In (RFC 7143 sections 11.18 and 11.19), Asynchronous Messages, and timers of connections.

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, LENGTH_BYTES, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::reject::RejectReason;

use super::connection::Deadline;
use super::ending::Ending;
use super::output::{Outgoing, Then};
use super::portal::Portal;
use super::rule::TargetRule;
use crate::application::ConnectionNumber;

/// Nanoseconds per second.
const SECOND_NS: i64 = 1_000_000_000;

impl Portal {
    /// Takes a NOP-Out in its turn.
    pub(super) fn take_nop_out(
        &mut self,
        now_ns: i64,
        number: ConnectionNumber,
        header: &[u8; LENGTH_BYTES],
        mut data: Vec<u8>,
    ) {
        let bhs = Bhs::new(header);
        let credit = Self::credit_of(header);
        let tag = bhs.initiator_task_tag().unwrap_or(RESERVED_TAG);
        if tag != RESERVED_TAG && self.breaches.breaks(TargetRule::M2) {
            return self.return_credit(number, credit);
        }
        if tag != RESERVED_TAG {
            let Some(connection) = self.connections.get(&number) else { return };
            // RFC 7143 section 11.19: as much of the ping data as the initiator accepts
            data.truncate(connection.parameters.initiator_max_recv_data_segment_length as usize);
            let header = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(tag).target_transfer_tag(RESERVED_TAG);
            self.send(now_ns, number, Outgoing::status(header, data, credit, Then::Nothing));
            return;
        }
        // RFC 7143 section 11.18.1: a NOP-Out without an answer is immediate
        if bhs.is_immediate() != Some(true) {
            self.send_reject(now_ns, number, header, RejectReason::InvalidPduField.as_u8(), credit);
            return;
        }
        self.return_credit(number, credit);
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if connection.ping.is_some() && connection.ping == bhs.target_transfer_tag() {
            connection.ping = None;
            // not if a logout was requested since: its timer is running
            if matches!(connection.deadline, Some((_, Deadline::Ping))) {
                self.watch(now_ns, number);
            }
        }
    }

    /// Starts the idle timer before a ping.
    pub(super) fn watch(&mut self, now_ns: i64, number: ConnectionNumber) {
        let interval_ns = self.settings.nop_in_interval_ns;
        let deadline = (interval_ns > 0).then(|| (now_ns.saturating_add(interval_ns), Deadline::Quiet));
        self.set_deadline(number, deadline);
    }

    /// Pings an initiator (RFC 7143 section 11.19) with a timeout.
    pub fn ping(&mut self, now_ns: i64, number: ConnectionNumber) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        // not if a logout was requested
        let is_asked = matches!(connection.deadline, Some((_, Deadline::Logout { .. })));
        if connection.tsih().is_none() || connection.ping.is_some() || is_asked {
            return;
        }
        connection.text.tag = connection.text.tag.wrapping_add(1) & 0x7fff_ffff;
        let tag = connection.text.tag;
        connection.ping = Some(tag);
        let header = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(RESERVED_TAG).target_transfer_tag(tag);
        self.log.counters.pings += 1;
        self.send(now_ns, number, Outgoing::shown(header, Vec::new(), Then::Nothing));
        let answer_ns = now_ns.saturating_add(self.settings.nop_in_timeout_ns);
        self.set_deadline(number, Some((answer_ns, Deadline::Ping)));
    }

    /// Advertises new command window credit if no other PDU does.
    pub(super) fn advertise_window(&mut self, now_ns: i64, tsih: u16) {
        let Some(session) = self.sessions.get(&tsih) else { return };
        let Some(&(_, number)) = session.connections.first() else { return };
        let header = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(RESERVED_TAG).target_transfer_tag(RESERVED_TAG);
        self.send(now_ns, number, Outgoing::shown(header, Vec::new(), Then::Nothing));
    }

    /// Requests a logout within a time (RFC 7143 section 11.9.1, event 1); then the connection is closed.
    pub fn request_logout(&mut self, now_ns: i64, number: ConnectionNumber, seconds: u16) {
        let Some(connection) = self.connections.get(&number) else { return };
        if connection.tsih().is_none() {
            return;
        }
        let header = BhsBuilder::new(Opcode::AsyncMessage).async_event(1).parameter3(seconds);
        self.send(now_ns, number, Outgoing::status(header, Vec::new(), super::output::Credit::None, Then::Nothing));
        let end_ns = now_ns.saturating_add(i64::from(seconds) * SECOND_NS);
        self.set_deadline(number, Some((end_ns, Deadline::Logout { seconds: seconds.into() })));
    }

    /// A timer of a connection went off.
    pub(super) fn deadline_passed(&mut self, now_ns: i64, number: ConnectionNumber) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Some((_, deadline)) = connection.deadline.take() else { return };
        let limits = &self.settings.limits;
        let ending = match deadline {
            Deadline::Login => Ending::LoginTimeout { seconds: limits.login_timeout_ns / SECOND_NS },
            Deadline::Close => Ending::NotClosed { seconds: limits.login_timeout_ns / SECOND_NS },
            Deadline::Ping => Ending::PingUnanswered { seconds: self.settings.nop_in_timeout_ns / SECOND_NS },
            Deadline::Logout { seconds } => Ending::NotLoggedOut { seconds },
            Deadline::Quiet => {
                let quiet_ns = connection.last_received_ns.saturating_add(self.settings.nop_in_interval_ns);
                if quiet_ns > now_ns {
                    self.set_deadline(number, Some((quiet_ns, Deadline::Quiet)));
                } else {
                    self.ping(now_ns, number);
                }
                return;
            }
        };
        self.end_connection(now_ns, number, ending);
    }
}
