//! Task management functions (RFC 7143 sections 4.2.3 and 11.5): their effects and responses.
//!
//! A function that ends several tasks drops them immediately. It is carried out once their requested Data-Out has
//! arrived and all earlier commands were delivered, or after a timeout. It is answered once earlier responses on other
//! connections of the session are acknowledged (section 4.2.3.3), or after a timeout.

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, LENGTH_BYTES};
use iscsitrace_wire::lun;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::log::TaskEnd;
use super::management::{Function, Management};
use super::output::{Credit, Outgoing, Then};
use super::portal::{Portal, Wake};
use super::rule::TargetRule;
use super::session::Held;
use crate::application::ConnectionNumber;
use crate::scsi::Reset;

/// Responses (RFC 7143 section 11.6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Response {
    Complete = 0,
    TaskDoesNotExist = 1,
    LunDoesNotExist = 2,
    AllegianceReassignmentNotSupported = 4,
    NotSupported = 5,
}

impl Portal {
    /// Takes a Task Management Function Request in its turn.
    pub(super) fn take_management(&mut self, now_ns: i64, number: ConnectionNumber, header: &[u8; LENGTH_BYTES]) {
        let bhs = Bhs::new(header);
        let function = match bhs.function() {
            Some(1) => Function::AbortTask,
            Some(2) => Function::AbortTaskSet,
            Some(4) => Function::ClearTaskSet,
            Some(5) => Function::LogicalUnitReset,
            Some(6) => Function::TargetReset(Reset::Warm),
            Some(7) => Function::TargetReset(Reset::Cold),
            // TASK REASSIGN needs ErrorRecoveryLevel 2
            Some(8) => {
                return self.answer(
                    now_ns,
                    number,
                    header,
                    Response::AllegianceReassignmentNotSupported,
                    Then::Nothing,
                );
            }
            // CLEAR ACA: no logical unit has auto contingent allegiance
            _ => return self.answer(now_ns, number, header, Response::NotSupported, Then::Nothing),
        };
        let Some(tsih) = self.connections.get(&number).and_then(|connection| connection.tsih()) else { return };
        // LUN of the task or the logical unit (RFC 7143 section 11.5.3)
        let lun: [u8; 8] = header.get(8..16).and_then(|lun| lun.try_into().ok()).unwrap_or_default();
        if self.faults.is_stuck(now_ns, lun::single_level(lun)) {
            return;
        }
        if self.breaches.breaks(TargetRule::M10) {
            return self.return_credit(number, Self::credit_of(header));
        }
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        let node = session.target.and_then(|target| self.targets.get(target));
        let has_unit = node.is_some_and(|node| node.device.has_logical_unit(lun));
        if !has_unit && !matches!(function, Function::TargetReset(_)) {
            return self.answer(now_ns, number, header, Response::LunDoesNotExist, Then::Nothing);
        }
        if function == Function::AbortTask {
            let response = self.abort_task(tsih, &bhs);
            self.answer(now_ns, number, header, response, Then::Nothing);
            // others may have waited for it
            return self.deliver_held(now_ns, tsih);
        }
        let deadline_ns = now_ns.saturating_add(self.settings.limits.task_management_wait_ns);
        let mut management = Management {
            connection: number,
            function,
            lun,
            cmd_sn: bhs.cmd_sn().unwrap_or_default(),
            initiator_task_tag: bhs.initiator_task_tag().unwrap_or_default(),
            credit: Self::credit_of(header),
            tags: Vec::new(),
            others: Vec::new(),
            fence: None,
            deadline_ns,
        };
        let target = session.target;
        let tsihs: Vec<u16> = match function {
            Function::AbortTaskSet => vec![tsih],
            _ => self.sessions.values().filter(|other| other.target == target).map(|other| other.tsih).collect(),
        };
        for other in tsihs {
            self.drop_covered(now_ns, &mut management, other, tsih);
        }
        if let Some(session) = self.sessions.get_mut(&tsih) {
            session.managements.push(management);
            self.wakes.insert((deadline_ns, Wake::Management(tsih)));
        }
    }

    /// Drops the tasks of a session to which a function applies.
    fn drop_covered(&mut self, now_ns: i64, management: &mut Management, tsih: u16, own_tsih: u16) {
        if tsih != own_tsih {
            let count = self.drop_commands_for_another(now_ns, tsih, |command| management.covers(command.lun()));
            let nexus = self.sessions.get(&tsih).and_then(|session| session.nexus);
            management.others.extend(nexus.filter(|_| count > 0));
            return;
        }
        let mut tags = Vec::new();
        self.drop_commands(tsih, TaskEnd::Aborted, |command| {
            // RFC 7143 section 11.5.1: commands with an earlier CmdSN
            let is_before = command.is_immediate() || command.cmd_sn().is_before(management.cmd_sn);
            let is_meant = management.covers(command.lun()) && is_before;
            tags.extend(command.data_out.tags().filter(|_| is_meant));
            is_meant
        });
        management.tags = tags;
    }

    /// ABORT TASK (RFC 7143 section 11.5.1, and 11.6.1 for its responses).
    fn abort_task(&mut self, tsih: u16, bhs: &Bhs<'_>) -> Response {
        let Some(session) = self.sessions.get_mut(&tsih) else { return Response::TaskDoesNotExist };
        let referenced = bhs.referenced_task_tag().unwrap_or_default();
        if let Some(handle) = session.by_tag(referenced) {
            if !self.breaches.breaks(TargetRule::M3) {
                self.drop_command(tsih, handle, TaskEnd::Aborted);
            }
            return Response::Complete;
        }
        // a command that may still arrive is considered received
        let (cmd_sn, ref_cmd_sn) = (bhs.cmd_sn().unwrap_or_default(), bhs.ref_cmd_sn().unwrap_or_default());
        if !session.window.has(ref_cmd_sn)
            || !ref_cmd_sn.is_before(cmd_sn)
            || session.window.held_mut(ref_cmd_sn).is_some()
        {
            return Response::TaskDoesNotExist;
        }
        session.window.hold(ref_cmd_sn, Held::Nothing);
        session.window.release();
        Response::Complete
    }

    /// Continues the functions of a session, in order, as far as they need not wait.
    pub(super) fn go_on_with_management(&mut self, now_ns: i64, tsih: u16) {
        loop {
            let Some(session) = self.sessions.get(&tsih) else { return };
            let Some(management) = session.managements.first() else { return };
            let is_late = now_ns >= management.deadline_ns;
            let Some(fence) = &management.fence else {
                let has_commands = !session.window.exp_cmd_sn().is_before(management.cmd_sn);
                let is_ready = has_commands && management.tags.is_empty();
                if !is_ready && !is_late {
                    return;
                }
                self.carry_out(tsih);
                self.raise_fence(now_ns, tsih);
                continue;
            };
            let open: Vec<ConnectionNumber> =
                fence.iter().filter(|place| self.is_unacknowledged(**place)).map(|(number, _)| *number).collect();
            if !open.is_empty() && !is_late {
                // RFC 7143 section 4.2.2.3.3: a silent initiator is pinged for its acknowledgment
                open.into_iter().for_each(|number| self.ping(now_ns, number));
                return;
            }
            self.finish_management(now_ns, tsih);
        }
    }

    /// Carries out the first function of a session at the device.
    fn carry_out(&mut self, tsih: u16) {
        let Some(session) = self.sessions.get(&tsih) else { return };
        let Some(management) = session.managements.first() else { return };
        let Some(node) = session.target.and_then(|target| self.targets.get_mut(target)) else { return };
        match management.function {
            Function::ClearTaskSet => node.device.clear_task_set(management.lun, &management.others),
            Function::LogicalUnitReset => node.device.reset_logical_unit(management.lun),
            Function::TargetReset(reset) => node.device.reset(reset),
            Function::AbortTask | Function::AbortTaskSet => {}
        }
    }

    /// Waits until responses on other connections are acknowledged (RFC 7143 section 4.2.2.3.3): the initiator
    /// considers the tasks ended after the response to the function.
    fn raise_fence(&mut self, now_ns: i64, tsih: u16) {
        let deadline_ns = now_ns.saturating_add(self.settings.limits.task_management_wait_ns);
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        let Some(management) = session.managements.first_mut() else { return };
        let others = session.connections.iter().filter(|(_, number)| *number != management.connection);
        let end = |(_, number): &(u16, ConnectionNumber)| Some((*number, self.connections.get(number)?.end_stat_sn()));
        management.fence = Some(others.filter_map(end).collect());
        management.deadline_ns = deadline_ns;
        if session.connections.len() > 1 {
            self.wakes.insert((deadline_ns, Wake::Management(tsih)));
        }
    }

    /// Whether the initiator has not acknowledged this StatSN on an existing connection.
    fn is_unacknowledged(&self, (number, stat_sn): (ConnectionNumber, SerialNumber)) -> bool {
        self.connections.get(&number).is_some_and(|connection| connection.exp_stat_sn.is_before(stat_sn))
    }

    /// Answers the first function of a session.
    fn finish_management(&mut self, now_ns: i64, tsih: u16) {
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        // another function may have the same deadline: the timer stays
        let management = session.managements.remove(0);
        let then = match (management.function, session.target) {
            (Function::TargetReset(Reset::Cold), Some(target)) => Then::EndTarget(target),
            _ => Then::Nothing,
        };
        let (tag, credit) = (management.initiator_task_tag, management.credit);
        self.send_management_response(now_ns, management.connection, tag, credit, Response::Complete, then);
    }

    fn answer(
        &mut self,
        now_ns: i64,
        number: ConnectionNumber,
        header: &[u8; LENGTH_BYTES],
        response: Response,
        then: Then,
    ) {
        let tag = Bhs::new(header).initiator_task_tag().unwrap_or_default();
        self.send_management_response(now_ns, number, tag, Self::credit_of(header), response, then);
    }

    fn send_management_response(
        &mut self,
        now_ns: i64,
        number: ConnectionNumber,
        initiator_task_tag: u32,
        credit: Credit,
        response: Response,
        then: Then,
    ) {
        let header = BhsBuilder::new(Opcode::TaskManagementResponse)
            .initiator_task_tag(initiator_task_tag)
            .response(response as u8);
        self.send(now_ns, number, Outgoing::status(header, Vec::new(), credit, then));
    }
}
