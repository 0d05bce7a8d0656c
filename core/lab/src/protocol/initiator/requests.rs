//! Requests other than SCSI commands, their answers, and timeouts: login, NOP, task management, text, logout,
//! Asynchronous Message, Reject.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::text;

use super::breach::InitiatorRule;
use super::connection::{Connection, State, Urgent};
use super::event::{DiscoveredTarget, Event, Outcome};
use super::session::Session;
use super::task::{Kind, Task};
use super::violation::{SessionError, Violation, reject_words};

/// Longest answer to SendTargets that is kept.
const TEXT_LIMIT_BYTES: usize = 1 << 20;

impl Session {
    /// Sends SendTargets=All in a discovery session; [`Event::Targets`] follows.
    pub fn send_targets(&mut self, now_ns: i64) -> Option<u32> {
        let timeout_ns = self.settings.timeouts.task_ns;
        self.add_urgent(now_ns, 0, Kind::Text { is_discovery: true }, [0; 8], timeout_ns)
    }

    /// Sends a NOP-Out with `length` bytes of ping data; its completion is [`Outcome::Answered`].
    pub fn ping(&mut self, now_ns: i64, connection: usize, length: u32) -> Option<u32> {
        let length = length.min(self.parameters(connection)?.target_max_recv_data_segment_length);
        // the answer must fit, too
        let length = length.min(self.parameters(connection)?.initiator_max_recv_data_segment_length);
        let kind = Kind::Ping { length, is_keepalive: false };
        self.add_urgent(now_ns, connection, kind, [0; 8], self.settings.timeouts.nop_ns)
    }

    /// Aborts a task. Its end is [`Outcome::Aborted`], unless the target completes it first.
    pub fn abort_task(&mut self, now_ns: i64, initiator_task_tag: u32) {
        let Some(task) = self.tasks.get_mut(initiator_task_tag) else { return };
        if self.is_over || task.kind != Kind::Scsi || task.is_aborting {
            return;
        }
        if !task.is_sent {
            let outcome = if task.is_timed_out { Outcome::TimedOut } else { Outcome::Aborted };
            self.complete(initiator_task_tag, outcome, 0, Vec::new(), false);
            return;
        }
        task.is_aborting = true;
        // Section 11.5.1: ABORT TASK goes over the connection of the task.
        let (connection, lun) = (usize::from(task.connection), task.command.lun);
        let kind = Kind::AbortTask { referenced: initiator_task_tag };
        self.add_urgent(now_ns, connection, kind, lun, self.management_ns());
    }

    /// Resets a logical unit; all tasks sent to it before end with [`Outcome::Aborted`].
    pub fn logical_unit_reset(&mut self, now_ns: i64, connection: usize, lun: [u8; 8]) -> Option<u32> {
        self.add_urgent(now_ns, connection, Kind::LogicalUnitReset, lun, self.management_ns())
    }

    fn management_ns(&self) -> i64 {
        let timeouts = self.settings.timeouts;
        if timeouts.management_ns > 0 { timeouts.management_ns } else { timeouts.task_ns }
    }

    /// Resets the logical unit of an ABORT TASK without an answer, unless that is under way; other ABORT TASKs for it
    /// are waited for no longer.
    fn escalate(&mut self, now_ns: i64, unanswered: u32) {
        let Some(task) = self.tasks.get(unanswered) else { return };
        let (connection, lun) = (usize::from(task.connection), task.command.lun);
        let aborts = self
            .tasks
            .active()
            .filter(|(_, task)| matches!(task.kind, Kind::AbortTask { .. }) && task.command.lun == lun);
        for tag in aborts.map(|(tag, _)| tag).collect::<Vec<u32>>() {
            self.complete(tag, Outcome::TimedOut, 0, Vec::new(), true);
        }
        self.logical_unit_reset(now_ns, connection, lun);
    }

    /// Logs out once the last task has ended.
    pub fn logout(&mut self, now_ns: i64) {
        self.is_logout_wanted = true;
        self.proceed(now_ns);
    }

    /// Sends a Logout Request that is due.
    pub(super) fn proceed(&mut self, now_ns: i64) {
        let is_leaving = self.is_logout_wanted || self.asked_to_leave.is_some() || self.removed_count > 0;
        if self.is_over || !is_leaving {
            return;
        }
        let timeout_ns = self.settings.timeouts.login_ns;
        let is_last = |index: usize, session: &Session| {
            session.connections.iter().enumerate().all(|(other, connection)| other == index || !connection.is_open())
        };
        if self.is_logout_wanted {
            let is_quiet = self.tasks.active_count() == 0;
            let is_logged_in = |connection: &Connection| matches!(connection.state, State::Full | State::Leaving);
            let logged_in = self.connections.iter().position(is_logged_in);
            let open = logged_in.or_else(|| self.connections.iter().position(Connection::is_open));
            let is_under_way = self.connections.iter().any(|connection| connection.state == State::LoggingOut);
            if let Some(index) = open.filter(|_| is_quiet && !is_under_way) {
                self.send_logout(now_ns, index, 0, timeout_ns);
            }
            return;
        }
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            if connection.state == State::Leaving && connection.task_count == 0 {
                // Section 11.14.1: 0 closes the session, 1 the connection.
                let reason = if is_last(index, self) { 0 } else { 1 };
                self.removed_count -= usize::from(connection.is_removed);
                self.send_logout(now_ns, index, reason, timeout_ns);
            }
        }
    }

    fn send_logout(&mut self, now_ns: i64, index: usize, reason: u8, timeout_ns: i64) {
        if self.add_urgent(now_ns, index, Kind::Logout { reason }, [0; 8], timeout_ns).is_some() {
            let is_session = reason == 0;
            for (other, connection) in self.connections.iter_mut().enumerate() {
                if other == index || is_session && matches!(connection.state, State::Full | State::Leaving) {
                    connection.state = State::LoggingOut;
                }
            }
        } else {
            // still in its login: no command is lost
            self.finish(Ok(()));
        }
    }

    pub(super) fn end_task_management(&mut self, tag: u32, response: u8) -> Result<(), SessionError> {
        let Some(task) = self.tasks.get(tag) else { return Ok(()) };
        let (kind, lun, cmd_sn) = (task.kind, task.command.lun, task.cmd_sn);
        self.complete(tag, Outcome::Answered(response), 0, Vec::new(), false);
        match kind {
            Kind::AbortTask { referenced } => {
                let Some(task) = self.tasks.get_mut(referenced).filter(|task| task.is_aborting) else { return Ok(()) };
                // Section 11.6.1: 0 function complete, 1 task does not exist.
                if response <= 1 {
                    let outcome = if task.is_timed_out { Outcome::TimedOut } else { Outcome::Aborted };
                    self.complete(referenced, outcome, 0, Vec::new(), true);
                } else if task.is_timed_out {
                    let timeout_ns = self.settings.timeouts.task_ns;
                    return Err(SessionError::TimedOut {
                        awaited: "end of a task, and ABORT TASK was refused",
                        timeout_ns,
                    });
                } else {
                    task.is_aborting = false;
                }
            }
            Kind::LogicalUnitReset if response == 0 => self.end_tasks_of(lun, |task_cmd_sn| {
                // Section 11.5.1: those with a CmdSN before that of the function.
                task_cmd_sn.is_before(cmd_sn)
            }),
            _ => {}
        }
        Ok(())
    }

    fn end_tasks_of(&mut self, lun: [u8; 8], is_meant: impl Fn(iscsitrace_wire::serial::SerialNumber) -> bool) {
        let tags: Vec<u32> = self
            .tasks
            .active()
            .filter(|(_, task)| task.kind == Kind::Scsi && task.is_sent && task.command.lun == lun)
            .filter(|(_, task)| is_meant(task.cmd_sn))
            .map(|(tag, _)| tag)
            .collect();
        for tag in tags {
            self.complete(tag, Outcome::Aborted, 0, Vec::new(), true);
        }
    }

    pub(super) fn end_text(&mut self, index: usize, tag: u32, header: Bhs<'_>) -> Result<(), Violation> {
        let connection = &mut self.connections[index];
        if connection.text.len() + connection.segment.len() > TEXT_LIMIT_BYTES {
            return Err(Violation::TextTooLong { limit: TEXT_LIMIT_BYTES });
        }
        connection.text.extend_from_slice(&connection.segment);
        let target_transfer_tag = header.target_transfer_tag().unwrap_or(RESERVED_TAG);
        if header.is_final() != Some(true) {
            // Section 11.11.1: without the F bit the target sends a tag for the rest.
            if target_transfer_tag == RESERVED_TAG {
                return Err(Violation::Text {
                    reason: "more is to come, but no Target Transfer Tag",
                    section: "11.11.1",
                });
            }
            let lun = header.lun().unwrap_or_default();
            connection.urgent.push_back(Urgent::MoreText { tag, target_transfer_tag, lun });
            return Ok(());
        }
        let text = std::mem::take(&mut connection.text);
        if matches!(self.tasks.get(tag).map(|task| task.kind), Some(Kind::Text { is_discovery: true })) {
            self.events.push_back(Event::Targets(targets(&text)?));
        }
        self.complete(tag, Outcome::Answered(0), 0, Vec::new(), false);
        Ok(())
    }

    pub(super) fn end_logout(&mut self, index: usize, tag: u32, response: u8) -> Result<(), SessionError> {
        let Some(Kind::Logout { reason }) = self.tasks.get(tag).map(|task| task.kind) else { return Ok(()) };
        self.complete(tag, Outcome::Answered(response), 0, Vec::new(), false);
        if response != 0 {
            if reason != 1 || !self.connections[index].is_removed {
                return Err(SessionError::LogoutRefused { response });
            }
            // it has no commands in flight, so nothing is lost
            self.remarks.push(format!("connection {index}: {}", SessionError::LogoutRefused { response }));
        }
        if reason == 1 {
            self.connections[index].state = State::Closed;
            self.events.push_back(Event::Close(index));
            return Ok(());
        }
        match self.asked_to_leave.filter(|_| !self.is_logout_wanted) {
            Some(reason) => self.finish(Err(SessionError::AskedToLeave(reason))),
            None => self.finish(Ok(())),
        }
        Ok(())
    }

    /// A connection was closed after its Logout Request. It had no commands in flight, so nothing is lost.
    pub(super) fn closed_in_logout(&mut self, index: usize, why: &str) {
        let is_its_logout =
            |task: &Task| matches!(task.kind, Kind::Logout { .. }) && usize::from(task.connection) == index;
        // the Logout Response of the session may still arrive on another connection
        let Some(tag) = self.tasks.active().find(|(_, task)| is_its_logout(task)).map(|(tag, _)| tag) else { return };
        let section = "RFC 7143 section 11.15";
        self.remarks.push(format!("connection {index} ended without a Logout Response: {why} ({section})"));
        let is_session = matches!(self.tasks.get(tag).map(|task| task.kind), Some(Kind::Logout { reason: 0 }));
        self.complete(tag, Outcome::Answered(0), 0, Vec::new(), false);
        match self.asked_to_leave.filter(|_| !self.is_logout_wanted) {
            _ if !is_session => {}
            Some(reason) => self.finish(Err(SessionError::AskedToLeave(reason))),
            None => self.finish(Ok(())),
        }
    }

    /// Section 11.9.1.
    pub(super) fn end_async_message(&mut self, now_ns: i64, index: usize, header: Bhs<'_>) -> Result<(), SessionError> {
        let (event, vcode) = (header.async_event().unwrap_or(0), header.async_vcode().unwrap_or(0));
        self.events.push_back(Event::AsyncMessage { event, vcode });
        match event {
            1 if self.settings.breaches.breaks(InitiatorRule::M6) => {}
            1 => {
                self.asked_to_leave =
                    Some("the target requested a logout (Asynchronous Message, RFC 7143 section 11.9.1)");
                if self.connections[index].state == State::Full {
                    self.connections[index].state = State::Leaving;
                }
            }
            2 => {
                let reason = "the target drops a connection (Asynchronous Message, RFC 7143 section 11.9.1)";
                let cid = header.parameter1().unwrap_or(0);
                if self.connections.iter().any(|connection| connection.cid == cid && connection.is_open()) {
                    return Err(SessionError::AskedToLeave(reason));
                }
            }
            3 => {
                let reason =
                    "the target drops all connections of the session (Asynchronous Message, RFC 7143 section 11.9.1)";
                return Err(SessionError::AskedToLeave(reason));
            }
            4 => {
                let timeout_ns = self.settings.timeouts.task_ns;
                self.add_urgent(now_ns, index, Kind::Text { is_discovery: false }, [0; 8], timeout_ns);
            }
            5 => {
                let lun = header.lun().unwrap_or_default();
                self.end_tasks_of(lun, |_| true);
                // Section 11.9.1: acknowledged with a NOP-Out with reserved tags and the LUN.
                self.connections[index].urgent.push_back(Urgent::PingReply { target_transfer_tag: RESERVED_TAG, lun });
            }
            _ => {}
        }
        Ok(())
    }

    /// Section 11.17: the data is the header of the rejected PDU.
    pub(super) fn end_reject(&mut self, index: usize, reason: u8) -> Result<(), SessionError> {
        let words = reject_words(reason);
        let segment = std::mem::take(&mut self.connections[index].segment);
        let Some(rejected) = segment.get(..LENGTH_BYTES).map(Bhs::new) else {
            let (opcode, length) = (Opcode::Reject, segment.len());
            return Err(Violation::ShortData { opcode, length, needed: LENGTH_BYTES, section: "11.17.4" }.into());
        };
        let request = rejected.opcode().map_or("PDU", Opcode::name);
        if self.connections[index].state == State::Login {
            return Err(SessionError::Rejected { request, reason: words });
        }
        let tag = rejected.initiator_task_tag().unwrap_or(RESERVED_TAG);
        let task = self.tasks.get(tag).filter(|task| usize::from(task.connection) == index && task.is_sent);
        match (rejected.opcode(), task.map(|task| task.kind)) {
            (Some(Opcode::ScsiCommand), Some(Kind::Scsi))
            | (Some(Opcode::NopOut), Some(Kind::Ping { is_keepalive: false, .. }))
            | (Some(Opcode::TaskManagementRequest), Some(Kind::LogicalUnitReset)) => {
                // Section 7.3: a CHECK CONDITION may follow.
                self.complete(tag, Outcome::Rejected(reason), 0, Vec::new(), true);
            }
            (Some(Opcode::TaskManagementRequest), Some(Kind::AbortTask { .. })) => {
                self.end_task_management(tag, 255)?;
            }
            (
                Some(Opcode::NopOut | Opcode::TextRequest | Opcode::LogoutRequest),
                Some(Kind::Ping { .. } | Kind::Text { .. } | Kind::Logout { .. }),
            ) => return Err(SessionError::Rejected { request, reason: words }),
            _ => self.events.push_back(Event::Reject { reason, words }),
        }
        Ok(())
    }

    /// When to call [`Session::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<i64> {
        self.check_ns
    }

    /// Checks all time limits.
    pub fn handle_timeout(&mut self, now_ns: i64) {
        if self.is_over || self.check_ns.is_none_or(|check| check > now_ns) {
            return;
        }
        self.check_ns = None;
        self.check_connections(now_ns);
        if self.is_over {
            return;
        }
        if let Err(error) = self.check_tasks(now_ns) {
            self.fail(error);
        }
        self.proceed(now_ns);
    }

    fn check_connections(&mut self, now_ns: i64) {
        let timeouts = self.settings.timeouts;
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            match connection.state {
                State::Opening | State::Login => {
                    let limit = connection.opened_ns.saturating_add(timeouts.login_ns);
                    if timeouts.login_ns > 0 && limit <= now_ns {
                        let awaited =
                            if connection.state == State::Opening { "connection" } else { "end of the login" };
                        let error = SessionError::TimedOut { awaited, timeout_ns: timeouts.login_ns };
                        self.fail_over(index, error);
                        continue;
                    }
                    self.check_within(limit, i64::from(timeouts.login_ns > 0));
                }
                State::Full if timeouts.nop_interval_ns > 0 && !connection.is_probed && !self.is_logout_wanted => {
                    let due = connection.received_ns.saturating_add(timeouts.nop_interval_ns);
                    if due <= now_ns {
                        self.connections[index].is_probed = true;
                        let kind = Kind::Ping { length: 0, is_keepalive: true };
                        self.add_urgent(now_ns, index, kind, [0; 8], timeouts.nop_ns);
                        self.check_within(now_ns, timeouts.nop_interval_ns);
                    } else {
                        self.check_within(due, 1);
                    }
                }
                State::Full => self.check_within(now_ns, timeouts.nop_interval_ns),
                _ => {}
            }
        }
    }

    fn check_tasks(&mut self, now_ns: i64) -> Result<(), SessionError> {
        let (timeouts, management_ns) = (self.settings.timeouts, self.management_ns());
        let (mut late, mut unanswered) = (Vec::new(), Vec::new());
        let mut next: Option<i64> = None;
        for (tag, task) in self.tasks.active() {
            let (awaited, timeout_ns) = match task.kind {
                Kind::Scsi if task.is_aborting => continue,
                Kind::Scsi => ("end of a task", timeouts.task_ns),
                Kind::Ping { .. } => ("answer to a NOP-Out", timeouts.nop_ns),
                Kind::AbortTask { .. } => ("answer to ABORT TASK", management_ns),
                Kind::LogicalUnitReset => ("answer to LOGICAL UNIT RESET", management_ns),
                Kind::Text { .. } => ("Text Response", timeouts.task_ns),
                Kind::Logout { .. } => ("Logout Response", timeouts.login_ns),
                Kind::Free | Kind::Ended | Kind::Ghost => continue,
            };
            let limit = task.submitted_ns.saturating_add(timeout_ns);
            if timeout_ns <= 0 {
                continue;
            }
            if limit > now_ns {
                next = Some(next.map_or(limit, |next| next.min(limit)));
            } else if task.kind == Kind::Scsi {
                late.push(tag);
            } else if matches!(task.kind, Kind::AbortTask { .. }) && timeouts.management_ns > 0 {
                unanswered.push(tag);
            } else {
                return Err(SessionError::TimedOut { awaited, timeout_ns });
            }
        }
        if let Some(limit) = next {
            self.check_within(limit, 1);
        }
        for tag in late {
            if let Some(task) = self.tasks.get_mut(tag) {
                task.is_timed_out = true;
            }
            self.abort_task(now_ns, tag);
        }
        for tag in unanswered {
            self.escalate(now_ns, tag);
        }
        Ok(())
    }
}

/// The targets of a SendTargets response (RFC 7143 appendix C): each TargetName with the addresses that follow it.
fn targets(text: &[u8]) -> Result<Vec<DiscoveredTarget>, Violation> {
    let mut targets: Vec<DiscoveredTarget> = Vec::new();
    for pair in text::pairs(text) {
        let Ok((key, value)) = pair else {
            return Err(Violation::Text { reason: "not key=value", section: "6.1" });
        };
        match (key, targets.last_mut()) {
            ("TargetName", _) => targets.push(DiscoveredTarget { name: value.into_owned(), addresses: Vec::new() }),
            ("TargetAddress", Some(target)) => target.addresses.push(value.into_owned()),
            ("TargetAddress", None) => {
                return Err(Violation::Text { reason: "a TargetAddress without a TargetName", section: "C" });
            }
            _ => {}
        }
    }
    Ok(targets)
}
