//! The login of a connection at this portal: admission, and the session that it leads or joins.

use std::cell::RefCell;
use std::collections::BTreeSet;

use iscsitrace_wire::bhs::{Bhs, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;
use rustc_hash::FxHashMap;

use super::connection::Phase;
use super::ending::Ending;
use super::injection::Faults;
use super::output::{Credit, Numbers, Outgoing, Then};
use super::portal::{Portal, TargetNode};
use super::session::Session;
use super::settings::PortalSettings;
use crate::application::ConnectionNumber;
use crate::protocol::login::{
    Admission, Directory, LoggedIn, LoginFailure, LoginRequest, LoginStatus, Outcome, SessionPlace, SessionType, Wanted,
};
use crate::scsi::InitiatorPort;

/// The portal's targets and sessions, as a directory.
struct Register<'a> {
    settings: &'a PortalSettings,
    targets: &'a [TargetNode],
    sessions: &'a FxHashMap<u16, Session>,
    /// TSIH for a session that this connection leads.
    tsih: u16,
    /// CIDs of other connections that are joining the same session.
    joining: Vec<u16>,
    /// The target that was found.
    target: RefCell<Option<usize>>,
    /// Faults that refuse logins.
    faults: RefCell<&'a mut Faults>,
    now_ns: i64,
}

impl Register<'_> {
    fn fail<T>(status: LoginStatus, what: &str, section: &'static str) -> Result<T, LoginFailure> {
        Err(LoginFailure::new(status, what, section))
    }

    fn admission(&self, target: Option<usize>, tsih: u16, place: SessionPlace) -> Admission {
        let node = target.and_then(|target| self.targets.get(target)).or_else(|| self.targets.first());
        Admission {
            offers: self.settings.keys.clone(),
            authentication: self.settings.chap.clone(),
            target_portal_group_tag: node.map_or(1, |node| node.portal_group_tag),
            tsih,
            place,
        }
    }
}

impl Directory for Register<'_> {
    fn admit(&self, wanted: &Wanted<'_>) -> Result<Admission, LoginFailure> {
        let target = wanted.target_name.map(|name| self.targets.iter().position(|node| node.name == name));
        let target = match (target, wanted.session_type) {
            (Some(None), _) => return Self::fail(LoginStatus::NotFound, "no such target", "11.13.5"),
            (Some(Some(target)), _) => Some(target),
            (None, SessionType::Discovery) => None,
            (None, SessionType::Normal) => {
                return Self::fail(LoginStatus::MissingParameter, "no TargetName", "13.4");
            }
        };
        let is_discovery = wanted.session_type == SessionType::Discovery;
        if !is_discovery && let Some((status, target_addresses)) = self.faults.borrow_mut().refusal(self.now_ns) {
            return Err(LoginFailure {
                target_addresses,
                ..LoginFailure::new(status, "a fault of the run", "11.13.5")
            });
        }
        self.target.replace(target.filter(|_| !is_discovery));
        let is_same_port = |session: &Session| {
            session.initiator_name == wanted.initiator_name
                && session.isid == wanted.isid
                && session.target.is_none() == is_discovery
                && (is_discovery || session.target == target)
        };
        if wanted.tsih == 0 {
            let is_reinstatement = self.sessions.values().any(is_same_port);
            if self.sessions.len() >= self.settings.limits.session_count && !is_reinstatement {
                return Self::fail(LoginStatus::OutOfResources, "too many sessions", "11.13.5");
            }
            return Ok(self.admission(target, self.tsih, SessionPlace::Leading));
        }
        // RFC 7143 section 6.3.1: the session has to be this initiator port's
        let session = self.sessions.get(&wanted.tsih).filter(|session| is_same_port(session));
        let Some(session) = session else {
            return Self::fail(LoginStatus::SessionDoesNotExist, "no session with this TSIH and ISID", "6.3.1");
        };
        let joined = session.connections.iter().map(|(cid, _)| *cid);
        let mut others: BTreeSet<u16> = joined.chain(self.joining.iter().copied()).collect();
        others.remove(&wanted.cid);
        if others.len() as u64 >= u64::from(session.parameters.max_connections) {
            return Self::fail(LoginStatus::TooManyConnections, "MaxConnections is reached", "13.2");
        }
        let parameters = Box::new(session.parameters.clone());
        Ok(self.admission(target, wanted.tsih, SessionPlace::Further { parameters }))
    }
}

impl Portal {
    /// Takes a PDU of a connection that is not logged in yet.
    pub(super) fn take_login(&mut self, now_ns: i64, number: ConnectionNumber) {
        let Some(tsih) = self.reserve_tsih(number) else { return };
        let joining = self.joining(number);
        let Portal { connections, sessions, targets, settings, faults, .. } = self;
        let Some(connection) = connections.get_mut(&number) else { return };
        let header = connection.header;
        let bhs = Bhs::new(&header);
        let cmd_sn = bhs.cmd_sn().unwrap_or_default();
        let data = std::mem::take(&mut connection.data);
        let Phase::Login(login) = &mut connection.phase else { return };
        let (faults, target) = (RefCell::new(faults), RefCell::new(None));
        let register = Register { settings, targets, sessions, tsih, joining, target, faults, now_ns };
        let answer = match LoginRequest::read(bhs, data) {
            Some(request) => login.receive(&request, &register),
            None => login.refuse(LoginFailure::new(
                LoginStatus::InvalidDuringLogin,
                format!("{} before the full feature phase", bhs.opcode().map_or("an unknown PDU", Opcode::name)),
                "6.3",
            )),
        };
        if let Some(target) = register.target.into_inner() {
            connection.target = Some(target);
        }
        if !matches!(answer.outcome, Outcome::Failed(_)) {
            connection.joining = bhs.tsih().filter(|tsih| *tsih != 0).zip(bhs.cid());
        }
        let target = connection.target;
        // a new session starts with the CmdSN of its first request (RFC 7143 section 11.12.8)
        connection.numbers = match sessions.get(&bhs.tsih().unwrap_or(0)) {
            Some(session) => Self::numbers_of(connection, Some(session)),
            None => Numbers { exp_cmd_sn: cmd_sn, max_cmd_sn: cmd_sn + (settings.command_window_count - 1) },
        };
        let tag = bhs.initiator_task_tag().unwrap_or(RESERVED_TAG);
        let then = match &answer.outcome {
            Outcome::Failed(failure) => Then::EndConnection(Ending::LoginRefused(failure.to_string())),
            Outcome::Done(..) => Then::LoggedIn,
            Outcome::Pending => Then::Nothing,
        };
        // a response to a PDU without a tag has tag 0
        let response = answer.response.header().initiator_task_tag(if tag == RESERVED_TAG { 0 } else { tag });
        let text = self.breaches.login_text(answer.response.data);
        let outgoing = Outgoing::status(response, text, Credit::None, then);
        match answer.outcome {
            Outcome::Pending => self.send(now_ns, number, outgoing),
            Outcome::Failed(failure) => {
                self.log.counters.refused_logins += 1;
                if failure.status == LoginStatus::AuthenticationFailure
                    && let Some(connection) = self.connections.get(&number)
                {
                    self.guesses.note(now_ns, connection.peer.ip());
                }
                self.send(now_ns, number, outgoing);
                self.finish_connection(now_ns, number, Ending::LoginRefused(failure.to_string()));
            }
            Outcome::Done(logged_in, place) => {
                self.send(now_ns, number, outgoing);
                self.begin_full_feature(now_ns, number, *logged_in, &place, target, cmd_sn);
            }
        }
    }

    /// CIDs of other connections in the login to the session of a Login Request.
    fn joining(&self, number: ConnectionNumber) -> Vec<u16> {
        let wanted = self.connections.get(&number).and_then(|connection| connection.bhs().tsih());
        let others = self.connections.iter().filter(|(other, _)| **other != number);
        let logging_in = others.filter(|(_, other)| matches!(other.phase, Phase::Login(_)));
        let joining = logging_in.filter_map(|(_, other)| other.joining);
        joining.filter(|(tsih, _)| Some(*tsih) == wanted).map(|(_, cid)| cid).collect()
    }

    /// An unused TSIH for a connection that may lead a session.
    fn reserve_tsih(&mut self, number: ConnectionNumber) -> Option<u16> {
        let connection = self.connections.get(&number)?;
        if let Some(tsih) = connection.reserved_tsih {
            return Some(tsih);
        }
        let is_taken = |tsih: u16| {
            tsih == 0
                || self.sessions.contains_key(&tsih)
                || self.connections.values().any(|other| other.reserved_tsih == Some(tsih))
        };
        let mut tsih = self.next_tsih.wrapping_add(1);
        for _ in 0..=u16::MAX {
            if !is_taken(tsih) {
                break;
            }
            tsih = tsih.wrapping_add(1);
        }
        self.next_tsih = tsih;
        self.connections.get_mut(&number)?.reserved_tsih = Some(tsih);
        Some(tsih)
    }

    /// Completes a login: the connection leads a session, or joins one.
    fn begin_full_feature(
        &mut self,
        now_ns: i64,
        number: ConnectionNumber,
        logged_in: LoggedIn,
        place: &SessionPlace,
        target: Option<usize>,
        cmd_sn: SerialNumber,
    ) {
        let LoggedIn { parameters, session_type, initiator_name, isid, tsih, cid, .. } = logged_in;
        let target = target.filter(|_| session_type == SessionType::Normal);
        match place {
            SessionPlace::Leading => {
                // RFC 7143 section 6.3.5: the old session of the initiator port ends before the new one begins
                let is_old = |session: &&Session| {
                    session.initiator_name == initiator_name && session.isid == isid && session.target == target
                };
                let old: Vec<u16> = self.sessions.values().filter(is_old).map(|session| session.tsih).collect();
                for old in old {
                    self.end_session(now_ns, old, Ending::SessionReinstated);
                }
                let depth = self.settings.command_window_count;
                let believed = self.breaches.believed(parameters.clone());
                let mut session = Session::new(tsih, initiator_name.clone(), isid, believed, cmd_sn, depth);
                session.target = target;
                let port = InitiatorPort { initiator_name: initiator_name.clone(), isid };
                let node = target.and_then(|target| self.targets.get_mut(target));
                session.nexus = node.map(|node| node.device.nexus_established(port));
                session.connections.push((cid, number));
                self.sessions.insert(tsih, session);
                self.log.counters.sessions += 1;
            }
            SessionPlace::Further { .. } => {
                let joined = self.sessions.get_mut(&tsih).map(|session| {
                    let old = session.connections.iter().find(|(known, _)| *known == cid).map(|(_, old)| *old);
                    session.connections.push((cid, number));
                    old
                });
                match joined {
                    // RFC 7143 section 6.3.4
                    Some(Some(old)) => self.end_connection(now_ns, old, Ending::ConnectionReinstated),
                    Some(None) => {}
                    None => {
                        let ending = Ending::LoginRefused(LoginStatus::SessionDoesNotExist.to_string());
                        return self.end_connection(now_ns, number, ending);
                    }
                }
            }
        }
        self.leave_phase(number, Phase::FullFeature { tsih });
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.reserved_tsih = None;
        connection.initiator_name = Some(initiator_name);
        connection.session = Some((tsih, cid));
        connection.parameters = parameters;
        let digests = connection.parameters.digests();
        connection.decoder.agree(digests, connection.parameters.target_max_recv_data_segment_length);
        self.log.counters.logins += 1;
        self.watch(now_ns, number);
    }
}
