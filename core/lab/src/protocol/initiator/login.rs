//! The login of each connection: its start, and its result for the session.
//!
//! It never negotiates: that is `protocol::login`.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::opcode::Opcode;

use super::connection::State;
use super::event::Event;
use super::session::Session;
use super::violation::{SessionError, Violation};
use crate::protocol::chap::Challenge;
use crate::protocol::login::{InitiatorLogin, LoggedIn, LoginError, LoginResponse, SessionIdentity, SessionType, Step};

/// Length of a CHAP challenge.
const CHALLENGE_BYTES: usize = 16;

impl Session {
    pub(super) fn begin_login(&mut self, now_ns: i64, index: usize) -> Result<(), SessionError> {
        let mut random = fastrand::Rng::with_seed(self.settings.challenge_seed.wrapping_add(index as u64));
        let mut bytes = vec![0; CHALLENGE_BYTES];
        random.fill(&mut bytes);
        let challenge = Challenge { identifier: random.u8(..), bytes };
        let leading = self.connections.first().filter(|_| index > 0);
        let identity = SessionIdentity {
            isid: self.settings.isid,
            tsih: self.tsih,
            cid: self.connections[index].cid,
            session: leading.map(|leading| Box::new(leading.parameters.clone())),
        };
        let started = InitiatorLogin::start(self.settings.login.clone(), identity, challenge);
        let (login, request) = started.map_err(|error| SessionError::Login(error.to_string()))?;
        let connection = &mut self.connections[index];
        (connection.login, connection.login_request) = (Some(login), Some(request));
        (connection.state, connection.received_ns) = (State::Login, now_ns);
        Ok(())
    }

    pub(super) fn end_login_response(
        &mut self,
        now_ns: i64,
        index: usize,
        header: Bhs<'_>,
    ) -> Result<(), SessionError> {
        let tag = header.initiator_task_tag().unwrap_or(0);
        // Section 11.12: all PDUs of a login have one Initiator Task Tag.
        if tag != self.connections[index].login_tag {
            return Err(Violation::UnknownTask { opcode: Opcode::LoginResponse, tag }.into());
        }
        let connection = &mut self.connections[index];
        let data = std::mem::take(&mut connection.segment);
        let Some((login, response)) = connection.login.as_mut().zip(LoginResponse::read(header, data)) else {
            return Err(Violation::NotNow { opcode: Opcode::LoginResponse, phase: "full feature phase" }.into());
        };
        // Section 11.13.4: StatSN is only there when the login is not refused.
        if response.status.is_success() {
            connection.exp_stat_sn = header.stat_sn().map(|stat_sn| stat_sn.next());
        }
        let is_answered = connection.login_request.is_none();
        if !is_answered {
            return Err(SessionError::Login("the target answered a Login Request that was not sent".to_owned()));
        }
        match login.receive(&response) {
            Ok(Step::Send(request)) => connection.login_request = Some(request),
            Ok(Step::Done(logged_in)) => return self.end_login(now_ns, index, *logged_in),
            Ok(Step::Redirected(redirection)) => {
                let address = redirection.target_addresses.first().cloned().unwrap_or_default();
                return Err(SessionError::Redirected { address });
            }
            Err(LoginError::Refused(status)) => return Err(SessionError::LoginRefused(status)),
            Err(error) => return Err(SessionError::Login(error.to_string())),
        }
        Ok(())
    }

    fn end_login(&mut self, now_ns: i64, index: usize, logged_in: LoggedIn) -> Result<(), SessionError> {
        let connection = &mut self.connections[index];
        connection.login = None;
        connection.agree(logged_in.parameters);
        (connection.state, connection.has_logged_in) = (State::Full, true);
        if connection.is_optional {
            self.events.push_back(Event::Joined(index));
        }
        self.remarks.extend(logged_in.remarks);
        self.check_within(now_ns, self.settings.timeouts.nop_interval_ns);
        if index == 0 {
            self.tsih = logged_in.tsih;
            let wanted = self.connections.len();
            let allowed = self.connections[0].parameters.max_connections as usize;
            // Section 13.2.
            if logged_in.session_type == SessionType::Normal && wanted > allowed {
                return Err(SessionError::TooFewConnections { allowed, wanted });
            }
            self.connections.iter_mut().skip(1).for_each(|connection| connection.state = State::Wanted);
        }
        self.end_connecting();
        Ok(())
    }
}
