//! A target portal: connections, sessions and timers. The other files of this folder add their PDUs to [`Portal`].

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use fastrand::Rng;
use rustc_hash::FxHashMap;
use thiserror::Error;

use super::command::Handle;
use super::connection::{Connection, Deadline, Phase};
use super::delay::Service;
use super::ending::Ending;
use super::guesses::Guesses;
use super::injection::Faults;
use super::log::{ConnectionRecord, PortalLog, TaskEnd};
use super::output::{Credit, Numbers, Outgoing};
use super::rule::TargetRule;
use super::session::Session;
use super::settings::{PortalSettings, R2tOrder};
use crate::application::{Application, Closed, ConnectionNumber};
use crate::occurrence::Hits;
use crate::protocol::breach::Breaches;
use crate::protocol::chap::Challenge;
use crate::protocol::keys::InvalidOffers;
use crate::protocol::login::TargetLogin;
use crate::scsi::{Device, SettingsError};

/// Portal settings that are not valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidPortal {
    /// Its keys.
    #[error("keys: {0}")]
    Keys(#[from] InvalidOffers),
    /// A target.
    #[error("target {name}: {error}")]
    Target {
        /// Its name.
        name: String,
        /// The reason.
        error: SettingsError,
    },
    /// Two targets of one name.
    #[error("two targets are named {0}")]
    SameName(String),
    /// CHAP that cannot succeed.
    #[error("CHAP needs an algorithm, and initiators and a target with secrets (RFC 7143 section 12.1.3)")]
    Chap,
    /// The command window.
    #[error("a command window of {0} commands: from 1 to 32768 are possible")]
    Window(u32),
    /// A fault that never applies.
    #[error("fault {place}: {what}")]
    Fault {
        /// Its index in the list, from 0.
        place: usize,
        /// The reason.
        what: &'static str,
    },
}

/// A target of a portal.
#[derive(Debug)]
pub(super) struct TargetNode {
    pub name: String,
    pub portal_group_tag: u16,
    pub device: Device,
    pub service: Service,
}

/// A timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wake {
    /// The timer of a connection.
    Connection(ConnectionNumber),
    /// The timer of a command.
    Command(u16, Handle),
    /// The timer of a session's task management functions.
    Management(u16),
}

/// A target portal, without I/O or a clock.
pub struct Portal {
    pub(super) settings: PortalSettings,
    pub(super) targets: Vec<TargetNode>,
    pub(super) connections: FxHashMap<ConnectionNumber, Connection>,
    pub(super) sessions: FxHashMap<u16, Session>,
    /// Connections that have not logged in, in order.
    pub(super) half_open: BTreeSet<ConnectionNumber>,
    pub(super) guesses: Guesses,
    pub(super) next_connection: ConnectionNumber,
    pub(super) next_tsih: u16,
    pub(super) random: Rng,
    pub(super) faults: Faults,
    pub(super) breaches: Breaches<TargetRule>,
    pub(super) wakes: BTreeSet<(i64, Wake)>,
    pub(super) to_close: VecDeque<ConnectionNumber>,
    pub(super) log: PortalLog,
}

impl Portal {
    /// A portal without connections.
    ///
    /// # Errors
    /// Settings that are not valid.
    pub fn new(mut settings: PortalSettings) -> Result<Self, InvalidPortal> {
        settings.keys.validate()?;
        if !(1..=32_768).contains(&settings.command_window_count) {
            return Err(InvalidPortal::Window(settings.command_window_count));
        }
        if let Some(chap) = &settings.chap {
            let has_empty = chap.initiators.iter().chain(&chap.target).any(|credentials| credentials.secret.is_empty());
            if has_empty || chap.initiators.is_empty() || chap.algorithms.is_empty() {
                return Err(InvalidPortal::Chap);
            }
        }
        for (place, fault) in settings.faults.iter().enumerate() {
            if let Some(what) = fault.contradiction() {
                return Err(InvalidPortal::Fault { place, what });
            }
        }
        // an order that a session needs which ignores DataSequenceInOrder=Yes
        let ignores_order = settings.breaks.iter().any(|breach| breach.rule == TargetRule::D11);
        if ignores_order && settings.r2t_order == R2tOrder::InOrder {
            settings.r2t_order = R2tOrder::Reverse;
        }
        // a TSIH for each session, and for each connection that may lead one
        settings.limits.session_count = settings.limits.session_count.min(32_000);
        settings.limits.half_open_count = settings.limits.half_open_count.min(32_000);
        let mut targets: Vec<TargetNode> = Vec::new();
        for target in &settings.targets {
            let name = target.target_name.clone();
            if targets.iter().any(|other| other.name == name) {
                return Err(InvalidPortal::SameName(name));
            }
            let device = Device::new(target).map_err(|error| InvalidPortal::Target { name: name.clone(), error })?;
            let portal_group_tag = target.target_portal_group_tag;
            targets.push(TargetNode { name, portal_group_tag, device, service: Service::default() });
        }
        Ok(Self {
            targets,
            connections: FxHashMap::default(),
            sessions: FxHashMap::default(),
            half_open: BTreeSet::new(),
            guesses: Guesses::default(),
            next_connection: 0,
            next_tsih: 0,
            random: Rng::with_seed(settings.seed),
            faults: Faults::new(&settings.faults),
            breaches: Breaches::new(&settings.breaks),
            wakes: BTreeSet::new(),
            to_close: VecDeque::new(),
            log: PortalLog::new(&settings.limits, settings.has_pdu_log),
            settings,
        })
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &PortalLog {
        &self.log
    }

    /// What the faults of the run hit that it has.
    #[must_use]
    pub fn fault_hits(&self) -> Vec<Hits> {
        self.faults.hits().into_iter().chain(self.breaches.hits()).collect()
    }

    /// Connections that are open, in no order.
    pub fn connection_numbers(&self) -> impl Iterator<Item = ConnectionNumber> {
        self.connections.keys().copied()
    }

    /// Number of sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Closes a connection.
    pub fn close(&mut self, now_ns: i64, connection: ConnectionNumber) {
        self.end_connection(now_ns, connection, Ending::OnDemand);
    }

    /// Queues a PDU on a connection.
    pub(super) fn send(&mut self, now_ns: i64, number: ConnectionNumber, outgoing: Outgoing) {
        let limit = self.settings.limits.waiting_pdu_count;
        let Some(connection) = self.connections.get_mut(&number) else {
            self.return_credit(number, outgoing.credit);
            return;
        };
        connection.unbidden_count += usize::from(outgoing.is_unbidden());
        connection.ready.push_back(outgoing);
        if connection.unbidden_count > limit {
            self.end_connection(now_ns, number, Ending::AnswersNotTaken(limit));
        }
    }

    /// Returns one credit of the command window.
    pub(super) fn return_credit(&mut self, number: ConnectionNumber, credit: Credit) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        match credit {
            Credit::None => {}
            Credit::Immediate => connection.immediate_count = connection.immediate_count.saturating_sub(1),
            Credit::Window => {
                if let Some(session) = connection.tsih().and_then(|tsih| self.sessions.get_mut(&tsih)) {
                    session.window.release();
                }
            }
        }
    }

    /// Sets the timer of a connection, in place of its present one.
    pub(super) fn set_deadline(&mut self, number: ConnectionNumber, deadline: Option<(i64, Deadline)>) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if let Some((old_ns, _)) = connection.deadline.take() {
            self.wakes.remove(&(old_ns, Wake::Connection(number)));
        }
        if let Some((new_ns, _)) = deadline {
            self.wakes.insert((new_ns, Wake::Connection(number)));
        }
        connection.deadline = deadline;
    }

    /// Sets a timer of a command.
    pub(super) fn wake_command(&mut self, tsih: u16, handle: Handle, at_ns: i64) {
        let Some(command) = self.sessions.get_mut(&tsih).and_then(|session| session.command(handle)) else { return };
        command.wake_ns = Some(at_ns);
        self.wakes.insert((at_ns, Wake::Command(tsih, handle)));
    }

    /// Ends a connection immediately: pending PDUs are not sent.
    pub(super) fn end_connection(&mut self, now_ns: i64, number: ConnectionNumber, ending: Ending) {
        if self.drop_connection(now_ns, number, ending) {
            self.to_close.push_back(number);
        }
    }

    /// Ends a connection once its pending PDUs are sent.
    pub(super) fn finish_connection(&mut self, now_ns: i64, number: ConnectionNumber, ending: Ending) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if !connection.has_output() {
            self.end_connection(now_ns, number, ending);
            return;
        }
        self.leave_phase(number, Phase::Over(ending));
        let close_ns = now_ns.saturating_add(self.settings.limits.login_timeout_ns);
        self.set_deadline(number, Some((close_ns, Deadline::Close)));
    }

    /// Changes the phase, and notes which connections are not logged in.
    pub(super) fn leave_phase(&mut self, number: ConnectionNumber, phase: Phase) -> Option<Phase> {
        let connection = self.connections.get_mut(&number)?;
        let old = std::mem::replace(&mut connection.phase, phase);
        if matches!(old, Phase::Login(_)) {
            self.half_open.remove(&number);
        }
        Some(old)
    }

    /// Removes a connection; returns whether it existed.
    fn drop_connection(&mut self, now_ns: i64, number: ConnectionNumber, ending: Ending) -> bool {
        self.set_deadline(number, None);
        let Some(connection) = self.connections.remove(&number) else { return false };
        if matches!(connection.phase, Phase::Login(_)) {
            self.half_open.remove(&number);
        }
        // the first reason is the one that counts
        let ending = match connection.phase {
            Phase::Over(earlier) if !matches!(ending, Ending::NotClosed { .. }) => earlier,
            _ => ending,
        };
        self.log.end_connection(ConnectionRecord {
            connection: number,
            peer: connection.peer,
            initiator_name: connection.initiator_name,
            session: connection.session,
            opened_ns: connection.opened_ns,
            ended_ns: now_ns,
            received_bytes: connection.decoder.offset(),
            sent_bytes: connection.stream.sent_bytes,
            ending: ending.clone(),
        });
        if let Some((tsih, cid)) = connection.session {
            let waiting = connection.ready.iter().chain(&connection.alone);
            let credits = waiting.filter(|outgoing| outgoing.credit == Credit::Window).count();
            self.leave_session(now_ns, tsih, (cid, number), credits, ending);
        }
        true
    }

    /// A connection is gone: its tasks end (RFC 7143 section 7.6), and with its last connection the session. PDUs that
    /// were not sent return their `credits`.
    fn leave_session(&mut self, now_ns: i64, tsih: u16, gone: (u16, ConnectionNumber), credits: usize, ending: Ending) {
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        let (_, number) = gone;
        let was_closed = session.window.is_closed();
        (0..credits).for_each(|_| session.window.release());
        session.connections.retain(|connection| *connection != gone);
        session.drop_managements(number);
        let has_connections = !session.connections.is_empty();
        self.drop_commands(tsih, TaskEnd::ConnectionLost, |command| command.connection == number);
        if !has_connections {
            self.end_session(now_ns, tsih, ending);
            return;
        }
        if was_closed {
            self.advertise_window(now_ns, tsih);
        }
        // nothing will be acknowledged there
        self.go_on_with_management(now_ns, tsih);
    }

    /// Ends a session with all its connections.
    pub(super) fn end_session(&mut self, now_ns: i64, tsih: u16, ending: Ending) {
        self.drop_commands(tsih, TaskEnd::ConnectionLost, |_| true);
        let Some(session) = self.sessions.remove(&tsih) else { return };
        if let (Some(node), Some(nexus)) =
            (session.target.and_then(|target| self.targets.get_mut(target)), session.nexus)
        {
            node.device.nexus_lost(nexus);
        }
        self.wakes.retain(|(_, wake)| *wake != Wake::Management(tsih));
        for (_, number) in session.connections {
            self.end_connection(now_ns, number, ending.clone());
        }
    }

    /// The sequence numbers for PDUs of a connection.
    pub(super) fn numbers_of(connection: &Connection, session: Option<&Session>) -> Numbers {
        session.map_or(connection.numbers, |session| Numbers {
            exp_cmd_sn: session.window.exp_cmd_sn(),
            max_cmd_sn: session.window.max_cmd_sn(),
        })
    }
}

impl Application for Portal {
    fn accept(&mut self, now_ns: i64, peer: SocketAddr, local: SocketAddr) -> Option<ConnectionNumber> {
        let is_down = !self.faults.is_accepting(now_ns);
        if is_down || !self.makes_room(now_ns, peer.ip()) {
            self.log.counters.refused_connections += 1;
            return None;
        }
        let login_ns = now_ns.saturating_add(self.settings.limits.login_timeout_ns);
        let number = self.next_connection;
        self.next_connection += 1;
        let challenge = Challenge {
            identifier: self.random.u8(..),
            bytes: std::iter::repeat_with(|| self.random.u8(..)).take(16).collect(),
        };
        let login = TargetLogin::new(challenge);
        self.connections.insert(number, Connection::new(number, peer, local, now_ns, login));
        self.half_open.insert(number);
        self.log.counters.connections += 1;
        self.set_deadline(number, Some((login_ns, Deadline::Login)));
        Some(number)
    }

    fn is_accepting(&self, now_ns: i64) -> bool {
        !self.faults.is_down(now_ns)
    }

    fn receive(&mut self, now_ns: i64, connection: ConnectionNumber, bytes: &[u8]) {
        self.breaches.at(now_ns);
        self.read(now_ns, connection, bytes);
    }

    fn closed(&mut self, now_ns: i64, connection: ConnectionNumber, why: Closed) {
        let ending = match why {
            Closed::ByPeer => Ending::ByPeer,
            Closed::Failed(words) => Ending::Failed(words),
        };
        self.drop_connection(now_ns, connection, ending);
    }

    fn poll_transmit(&mut self, now_ns: i64, connection: ConnectionNumber, out: &mut Vec<u8>) {
        self.breaches.at(now_ns);
        self.transmit(now_ns, connection, out);
    }

    fn poll_close(&mut self) -> Option<ConnectionNumber> {
        self.to_close.pop_front()
    }

    fn poll_timeout(&self) -> Option<i64> {
        self.wakes.first().map(|(at_ns, _)| *at_ns).into_iter().chain(self.faults.next_ns()).min()
    }

    fn handle_timeout(&mut self, now_ns: i64) {
        self.breaches.at(now_ns);
        while self.faults.restarts_now(now_ns) {
            let mut open: Vec<ConnectionNumber> = self.connections.keys().copied().collect();
            open.sort_unstable();
            open.into_iter().for_each(|number| self.end_connection(now_ns, number, Ending::OnDemand));
        }
        while let Some(&(at_ns, wake)) = self.wakes.first() {
            if at_ns > now_ns {
                break;
            }
            self.wakes.pop_first();
            match wake {
                Wake::Connection(number) => self.deadline_passed(now_ns, number),
                Wake::Command(tsih, handle) => self.command_woken(now_ns, tsih, handle),
                Wake::Management(tsih) => self.go_on_with_management(now_ns, tsih),
            }
        }
    }
}
