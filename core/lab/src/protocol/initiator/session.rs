//! A session: its connections, its command window, its tasks, and its end.
//!
//! It never parses PDUs: `receive` and `transmit` do.

use std::collections::VecDeque;

use super::connection::{Connection, State, Urgent};
use super::event::{Completion, Event, Outcome};
use super::settings::SessionSettings;
use super::task::{Command, Direction, Kind, TaskTable};
use super::violation::SessionError;
use super::window::CommandWindow;
use crate::application::Closed;
use crate::protocol::keys::Parameters;
use crate::protocol::pdu_log::PduRecord;

/// Initiator Task Tags of logins, above those of all tasks (RFC 7143 section 11.2.1.8).
const LATER_LOGIN_TAGS: u32 = 0x8000_0000;

/// The initiator's side of one iSCSI session. Connections are counted from 0; 0 is the leading one.
#[derive(Debug)]
pub struct Session {
    pub(super) settings: SessionSettings,
    pub(super) connections: Vec<Connection>,
    pub(super) window: CommandWindow,
    pub(super) tasks: TaskTable,
    pub(super) events: VecDeque<Event>,
    pub(super) tsih: u16,
    pub(super) is_over: bool,
    /// Whether connections have not reached the full feature phase yet.
    pub(super) is_connecting: bool,
    /// Whether [`Event::Ready`] was emitted.
    pub(super) has_begun: bool,
    /// Connections that are to be logged out.
    pub(super) removed_count: usize,
    pub(super) is_logout_wanted: bool,
    /// The target's reason for its end.
    pub(super) asked_to_leave: Option<&'static str>,
    pub(super) pdu_log: Option<Vec<PduRecord>>,
    pub(super) data_digest_error_count: u64,
    pub(super) remarks: Vec<String>,
    pub(super) has_long_bursts: bool,
    pub(super) has_counted_immediates: bool,
    /// Earliest time limit.
    pub(super) check_ns: Option<i64>,
}

impl Session {
    /// A session that starts by opening its leading connection.
    #[must_use]
    pub fn new(settings: SessionSettings) -> Self {
        let count = settings.connections.max(1);
        let connections =
            (0..count).map(|cid| Connection::new(cid, if cid == 0 { State::Wanted } else { State::Waiting })).collect();
        Self {
            window: CommandWindow::new(settings.initial_cmd_sn),
            pdu_log: settings.is_pdu_log_wanted.then(Vec::new),
            settings,
            connections,
            tasks: TaskTable::default(),
            events: VecDeque::new(),
            tsih: 0,
            is_over: false,
            is_connecting: true,
            has_begun: false,
            removed_count: 0,
            is_logout_wanted: false,
            asked_to_leave: None,
            data_digest_error_count: 0,
            remarks: Vec::new(),
            has_long_bursts: false,
            has_counted_immediates: false,
            check_ns: None,
        }
    }

    /// The next connection to open.
    pub fn poll_connect(&mut self, now_ns: i64) -> Option<usize> {
        if self.is_over || !self.is_connecting {
            return None;
        }
        let index = self.connections.iter().position(|connection| connection.state == State::Wanted)?;
        let connection = &mut self.connections[index];
        (connection.state, connection.opened_ns) = (State::Opening, now_ns);
        self.check_within(now_ns, self.settings.timeouts.login_ns);
        Some(index)
    }

    /// A connection is open: its login starts.
    pub fn opened(&mut self, now_ns: i64, connection: usize) {
        if self.connections.get(connection).is_some_and(|connection| connection.state == State::Opening)
            && let Err(error) = self.begin_login(now_ns, connection)
        {
            self.fail_over(connection, error);
        }
    }

    /// Adds a connection to a running session; [`Event::Joined`] or [`Event::Refused`] follows. None when the session
    /// is ending, or has no connection ID left.
    ///
    /// MaxConnections is not checked: a target refuses connections beyond it (RFC 7143 section 13.2).
    pub fn add_connection(&mut self) -> Option<usize> {
        let index = self.connections.len();
        let cid = u16::try_from(index).ok()?;
        if self.is_over || !self.has_begun || self.is_logout_wanted || self.asked_to_leave.is_some() {
            return None;
        }
        let mut connection = Connection::new(cid, State::Wanted);
        connection.login_tag = LATER_LOGIN_TAGS | u32::from(cid);
        connection.is_optional = true;
        self.connections.push(connection);
        self.is_connecting = true;
        Some(index)
    }

    /// Removes a connection while the session continues: it accepts no more commands, and logs out when its commands
    /// have ended (RFC 7143 section 11.14); [`Event::Close`] follows. False for a connection that accepts no commands,
    /// and for the last one.
    pub fn remove_connection(&mut self, now_ns: i64, connection: usize) -> bool {
        let is_last = (0..self.connections.len()).all(|other| other == connection || !self.is_usable(other));
        if is_last || !self.is_usable(connection) {
            return false;
        }
        let leaving = &mut self.connections[connection];
        (leaving.state, leaving.is_removed) = (State::Leaving, true);
        self.removed_count += 1;
        self.proceed(now_ns);
        true
    }

    /// A connection ended, not by this side.
    pub fn closed(&mut self, now_ns: i64, connection: usize, why: &Closed) {
        let Some(found) = self.connections.get_mut(connection) else { return };
        let state = std::mem::replace(&mut found.state, State::Closed);
        let is_optional = found.is_optional;
        let reason = match why {
            Closed::ByPeer => "closed by the target".to_owned(),
            Closed::Failed(reason) => reason.clone(),
        };
        match state {
            State::Waiting | State::Wanted | State::Closed => {}
            State::Opening if is_optional => self.go_without(connection, &SessionError::Unreachable(reason)),
            State::Login if is_optional => {
                self.go_without(connection, &SessionError::Login(format!("the connection was lost: {reason}")));
            }
            State::Opening => self.fail(SessionError::Unreachable(reason)),
            State::Login => self.fail(SessionError::Login(format!("the connection was lost: {reason}"))),
            State::LoggingOut => self.closed_in_logout(connection, &reason),
            State::Full | State::Leaving => match self.asked_to_leave {
                Some(reason) => self.fail(SessionError::AskedToLeave(reason)),
                None => self.fail(SessionError::ConnectionLost { connection, reason }),
            },
        }
        self.proceed(now_ns);
    }

    /// The next event. A tag is reused only after its completion was returned here.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if let Some(Event::Done(completion)) = &event {
            self.tasks.release(completion.initiator_task_tag);
        }
        event
    }

    /// Submits a SCSI command on a connection; none when the connection accepts no more. The Initiator Task Tag is a
    /// small number, reused after the completion.
    pub fn submit(&mut self, now_ns: i64, connection: usize, command: Command) -> Option<u32> {
        let tag = self.add(now_ns, connection, Kind::Scsi, command, self.settings.timeouts.task_ns)?;
        self.connections[connection].commands.push_back(tag);
        Some(tag)
    }

    /// Negotiated parameters of a connection, once it is in the full feature phase.
    #[must_use]
    pub fn parameters(&self, connection: usize) -> Option<&Parameters> {
        let connection = self.connections.get(connection)?;
        connection.has_logged_in.then_some(&connection.parameters)
    }

    /// Number of connections, past and wanted ones included.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Whether a connection accepts commands.
    #[must_use]
    pub fn is_usable(&self, connection: usize) -> bool {
        !self.is_over && self.connections.get(connection).is_some_and(Connection::is_usable)
    }

    /// Tasks of a connection that have not ended.
    #[must_use]
    pub fn task_count(&self, connection: usize) -> usize {
        self.connections.get(connection).map_or(0, |connection| connection.task_count)
    }

    /// The command window.
    #[must_use]
    pub fn window(&self) -> &CommandWindow {
        &self.window
    }

    /// TSIH, or 0 before the login.
    #[must_use]
    pub fn tsih(&self) -> u16 {
        self.tsih
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Data digest errors seen.
    #[must_use]
    pub fn data_digest_error_count(&self) -> u64 {
        self.data_digest_error_count
    }

    /// Harmless violations of RFC 7143 by the target.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Takes the PDUs logged so far, if the settings enable the log.
    pub fn take_pdu_log(&mut self) -> Vec<PduRecord> {
        self.pdu_log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A new request of a connection.
    pub(super) fn add(
        &mut self,
        now_ns: i64,
        connection: usize,
        kind: Kind,
        command: Command,
        timeout_ns: i64,
    ) -> Option<u32> {
        let is_usable = match kind {
            Kind::Scsi => self.is_usable(connection),
            _ => matches!(self.connections.get(connection)?.state, State::Full | State::Leaving) && !self.is_over,
        };
        if !is_usable {
            return None;
        }
        self.connections[connection].task_count += 1;
        self.check_within(now_ns, timeout_ns);
        Some(self.tasks.insert(now_ns, kind, connection, command))
    }

    /// Queues a request that does not depend on the command window.
    pub(super) fn add_urgent(
        &mut self,
        now_ns: i64,
        connection: usize,
        kind: Kind,
        lun: [u8; 8],
        timeout_ns: i64,
    ) -> Option<u32> {
        let command = Command { lun, ..Command::default() };
        let tag = self.add(now_ns, connection, kind, command, timeout_ns)?;
        self.connections[connection].urgent.push_back(Urgent::Request(tag));
        Some(tag)
    }

    /// Ends a task; its tag rests if answers may still arrive.
    pub(super) fn complete(
        &mut self,
        tag: u32,
        outcome: Outcome,
        residual_bytes: i64,
        sense: Vec<u8>,
        is_buried: bool,
    ) {
        let Some(task) = self.tasks.get(tag) else { return };
        let index = usize::from(task.connection);
        let completion = Completion {
            initiator_task_tag: tag,
            connection: index,
            outcome,
            transferred_bytes: task.transferred,
            residual_bytes,
            sense,
            sent_ns: task.is_sent.then_some(task.sent_ns),
            first_data_ns: task.first_data_ns,
        };
        let is_told = match task.kind {
            Kind::Ping { is_keepalive, .. } => !is_keepalive,
            Kind::AbortTask { .. } | Kind::LogicalUnitReset | Kind::Scsi => true,
            Kind::Text { .. } | Kind::Logout { .. } | Kind::Free | Kind::Ended | Kind::Ghost => false,
        };
        let has_data_waiting = task.command.direction == Direction::Write && task.granted > task.transferred;
        if let Some(connection) = self.connections.get_mut(index) {
            connection.task_count = connection.task_count.saturating_sub(1);
            if has_data_waiting || completion.sent_ns.is_none() {
                connection.drop_task(tag);
            }
        }
        if is_buried {
            self.tasks.reserve_tag(tag);
        } else {
            self.tasks.end(tag);
            if !is_told {
                self.tasks.release(tag);
            }
        }
        if is_told {
            self.events.push_back(Event::Done(completion));
        }
    }

    /// An error of a connection: it ends the session, unless the session can continue without that connection.
    pub(super) fn fail_over(&mut self, index: usize, error: SessionError) {
        let is_coming = |connection: &Connection| matches!(connection.state, State::Opening | State::Login);
        match self.connections.get_mut(index) {
            Some(connection) if connection.is_optional && is_coming(connection) => {
                connection.state = State::Closed;
                self.events.push_back(Event::Close(index));
                self.go_without(index, &error);
            }
            _ => self.fail(error),
        }
    }

    /// An added connection failed.
    fn go_without(&mut self, index: usize, error: &SessionError) {
        if let Some(connection) = self.connections.get_mut(index) {
            (connection.login, connection.login_request) = (None, None);
        }
        self.events.push_back(Event::Refused { connection: index, reason: error.to_string() });
        self.end_connecting();
    }

    /// Checks whether all connections are ready.
    pub(super) fn end_connecting(&mut self) {
        // a connection that was ready may have been asked to leave since
        if self.connections.iter().any(Connection::is_coming) {
            return;
        }
        self.is_connecting = false;
        if !self.has_begun {
            self.has_begun = true;
            self.events.push_back(Event::Ready);
        }
    }

    /// Ends the session with a reason: commands in flight are lost.
    pub(super) fn fail(&mut self, error: SessionError) {
        self.finish(Err(error));
    }

    pub(super) fn finish(&mut self, result: Result<(), SessionError>) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        self.check_ns = None;
        for (index, connection) in self.connections.iter_mut().enumerate() {
            let state = std::mem::replace(&mut connection.state, State::Closed);
            if !matches!(state, State::Waiting | State::Wanted | State::Closed) {
                self.events.push_back(Event::Close(index));
            }
        }
        self.events.push_back(Event::Ended(result));
    }

    /// Schedules the check of a time limit. 0 for no limit.
    pub(super) fn check_within(&mut self, now_ns: i64, timeout_ns: i64) {
        if timeout_ns > 0 {
            let limit = now_ns.saturating_add(timeout_ns);
            self.check_ns = Some(self.check_ns.map_or(limit, |check| check.min(limit)));
        }
    }
}
