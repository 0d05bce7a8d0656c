//! The initiator's side of a login (RFC 7143 section 6.3): one request at a time, until the full feature phase.
//!
//! It reports violations of the target with the section of the RFC. After a redirection it returns the addresses, and
//! opens no connection.

use super::logged_in::LoggedIn;
use super::names::SessionType;
use super::pdu::{LoginRequest, LoginResponse, ROUNDS_MAX, Stage, VERSION};
use super::received_keys::{Purpose, ReceivedKeys, Used};
use super::security::{AuthenticationFailed, InitiatorSecurity};
use super::settings::{InitiatorLoginSettings, InvalidSettings, SessionIdentity};
use crate::protocol::chap::Challenge;
use crate::protocol::keys::{Negotiation, Scope, Violation};
use crate::protocol::text::{Joiner, LOGIN_DATA_SEGMENT_MAX_BYTES, Splitter, TextWriter};
use iscsitrace_wire::login_status::LoginStatus;
use iscsitrace_wire::text;

/// The step after a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The next request.
    Send(LoginRequest),
    /// The connection is in the full feature phase.
    Done(Box<LoggedIn>),
    /// The target has moved; this connection is to be closed.
    Redirected(Redirection),
}

/// The new addresses of a target (RFC 7143 section 11.13.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirection {
    /// Whether it moved permanently.
    pub is_permanent: bool,
    /// Values of TargetAddress: `domainname[:port][,portal-group-tag]` (RFC 7143 section 13.8).
    pub target_addresses: Vec<String>,
}

/// Why a login failed; the connection is to be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The target refused it.
    #[error("the target refused the login: {0}")]
    Refused(LoginStatus),
    /// The target violated the protocol.
    #[error("the target violated the protocol: {0}")]
    Violation(#[from] Violation),
    /// Authentication failed.
    #[error("authentication failed: {what} (RFC 7143 section {section})")]
    Authentication {
        /// Description.
        what: &'static str,
        /// The section of RFC 7143.
        section: &'static str,
    },
}

impl From<AuthenticationFailed> for LoginError {
    fn from(failed: AuthenticationFailed) -> LoginError {
        LoginError::Authentication { what: failed.what, section: failed.section }
    }
}

fn violation<T>(what: impl Into<String>, section: &'static str) -> Result<T, LoginError> {
    Err(LoginError::Violation(Violation::new(what, section)))
}

/// The initiator's side of a connection's login.
pub struct InitiatorLogin {
    settings: InitiatorLoginSettings,
    identity: SessionIdentity,
    stage: Stage,
    /// The stage that the last request requested with the T bit.
    requested: Option<Stage>,
    /// The stage to ask for when the current text is sent completely.
    wanted: Option<Stage>,
    security: InitiatorSecurity,
    negotiation: Negotiation,
    used: Used,
    joiner: Joiner,
    splitter: Splitter,
    rounds: usize,
    target_portal_group_tag: Option<u16>,
    remarks: Vec<String>,
}

impl InitiatorLogin {
    /// Starts a login: returns the first request. The challenge is for target authentication; it must be new and random
    /// for each connection.
    ///
    /// # Errors
    /// Settings that are not valid.
    pub fn start(
        settings: InitiatorLoginSettings,
        identity: SessionIdentity,
        challenge: Challenge,
    ) -> Result<(InitiatorLogin, LoginRequest), InvalidSettings> {
        settings.validate()?;
        let scope = match (&identity.session, settings.session_type) {
            (Some(session), _) => Scope::Further(session.clone()),
            (None, SessionType::Normal) => Scope::Leading,
            (None, SessionType::Discovery) => Scope::Discovery,
        };
        let security = InitiatorSecurity::new(
            settings.chap.clone(),
            settings.chap_of_target.clone(),
            settings.chap_algorithms.clone(),
            settings.is_chap_optional,
            challenge,
        );
        let stage = match settings.is_security_skipped {
            true => Stage::LoginOperationalNegotiation,
            false => Stage::SecurityNegotiation,
        };
        let mut login = InitiatorLogin {
            negotiation: Negotiation::new(settings.offers.clone(), scope, true),
            splitter: Splitter::new(settings.login_data_segment_bytes),
            settings,
            identity,
            stage,
            requested: None,
            wanted: None,
            security,
            used: Used::default(),
            joiner: Joiner::default(),
            rounds: 0,
            target_portal_group_tag: None,
            remarks: Vec::new(),
        };
        let mut text = TextWriter::default();
        login.introduce(&mut text);
        if stage == Stage::SecurityNegotiation {
            login.security.offer(&mut text);
        } else {
            login.negotiation.offer(&mut text);
        }
        let request = login.request(text);
        Ok((login, request))
    }

    /// The keys of the first request (RFC 7143 section 6.3.1).
    fn introduce(&self, text: &mut TextWriter) {
        text.pair("InitiatorName", &self.settings.initiator_name);
        if let Some(name) = &self.settings.target_name {
            text.pair("TargetName", name);
        }
        text.pair("SessionType", self.settings.session_type.name());
    }

    /// A request with this text; it requests the next stage when this one is complete.
    fn request(&mut self, text: TextWriter) -> LoginRequest {
        self.wanted = match self.stage {
            Stage::SecurityNegotiation => self.security.is_ready().then_some(Stage::LoginOperationalNegotiation),
            _ => Some(Stage::FullFeaturePhase),
        };
        self.splitter.put(text.into_bytes());
        self.next_part()
    }

    fn next_part(&mut self) -> LoginRequest {
        let (data, is_continue) = self.splitter.next_part();
        self.requested = self.wanted.filter(|_| !is_continue);
        self.bare_request(data, is_continue)
    }

    fn bare_request(&self, data: Vec<u8>, is_continue: bool) -> LoginRequest {
        LoginRequest {
            is_transit: self.requested.is_some(),
            is_continue,
            current_stage: self.stage.bits(),
            next_stage: self.requested.map_or(0, Stage::bits),
            version_max: VERSION,
            version_min: VERSION,
            isid: self.identity.isid,
            tsih: self.identity.tsih,
            cid: self.identity.cid,
            data,
        }
    }

    /// Takes the target's response.
    ///
    /// # Errors
    /// Why the login failed.
    pub fn receive(&mut self, response: &LoginResponse) -> Result<Step, LoginError> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            return violation("the login takes too many responses", "6.3");
        }
        if response.status.is_redirection() {
            let received = ReceivedKeys::read(&response.data, &mut Used::default())?;
            return Ok(Step::Redirected(Redirection {
                is_permanent: response.status == LoginStatus::TargetMovedPermanently,
                target_addresses: received.values("TargetAddress").map(str::to_owned).collect(),
            }));
        }
        if !response.status.is_success() {
            return Err(LoginError::Refused(response.status));
        }
        let next = self.check(response)?;
        if self.splitter.is_open() {
            if !response.data.is_empty() || response.is_continue || next.is_some() {
                return violation("the target sends text before the initiator's text is complete", "6.2");
            }
            return Ok(Step::Send(self.next_part()));
        }
        let whole = self.joiner.take(&response.data, response.is_continue);
        let Some(whole) = whole.map_err(|error| Violation::new(error.to_string(), "6.1"))? else {
            // an empty request for the rest (RFC 7143 section 6.2)
            self.requested = None;
            return Ok(Step::Send(self.bare_request(Vec::new(), false)));
        };
        let received = ReceivedKeys::read(&whole, &mut self.used)?;
        let mut out = TextWriter::default();
        self.take(&received, next, &mut out)?;
        match next {
            Some(Stage::FullFeaturePhase) => self.done(response.tsih).map(|done| Step::Done(Box::new(done))),
            Some(stage) => {
                self.security.leave()?;
                self.stage = stage;
                self.negotiation.offer(&mut out);
                Ok(Step::Send(self.request(out)))
            }
            None => Ok(Step::Send(self.request(out))),
        }
    }

    /// Checks the header; returns the stage after the response.
    fn check(&self, response: &LoginResponse) -> Result<Option<Stage>, LoginError> {
        if response.version_active != VERSION {
            return violation(format!("Version-active is {}", response.version_active), "11.13.2");
        }
        if response.isid != self.identity.isid {
            return violation("the response has another ISID", "11.13");
        }
        if response.current_stage != self.stage.bits() {
            return violation(format!("CSG {} in the stage {}", response.current_stage, self.stage.name()), "11.12.3");
        }
        if response.data.len() > LOGIN_DATA_SEGMENT_MAX_BYTES {
            return violation("a data segment of more than 8192 bytes", "13.12");
        }
        if !response.is_transit {
            return Ok(None);
        }
        if response.is_continue {
            return violation("T and C bit together", "11.13.7");
        }
        match self.requested {
            None => violation("T bit in the response to a request without it", "11.13.6"),
            Some(requested) if requested.bits() != response.next_stage => {
                violation(format!("NSG {} where {} was requested", response.next_stage, requested.name()), "11.13.6")
            }
            requested => Ok(requested),
        }
    }

    fn take(&mut self, received: &ReceivedKeys, next: Option<Stage>, out: &mut TextWriter) -> Result<(), LoginError> {
        const INITIATORS_KEYS: &[&str] = &["InitiatorName", "InitiatorAlias", "SessionType"];
        if let Some(key) = received.find(|name, _| INITIATORS_KEYS.contains(&name)) {
            return violation(format!("{key} may be sent by initiators only"), "13");
        }
        if let Some(tag) = received.value("TargetPortalGroupTag") {
            match text::numeric(tag).and_then(|tag| u16::try_from(tag).ok()) {
                Some(tag) => self.target_portal_group_tag = Some(tag),
                None => return violation("TargetPortalGroupTag is no number of 16 bits", "13.9"),
            }
        }
        let mut unknown = TextWriter::default();
        received.answer_unknown(&mut unknown)?;
        let misplaced = match self.stage {
            Stage::SecurityNegotiation => received.find(|_, purpose| matches!(purpose, Purpose::Operational(_))),
            _ => received.find(|_, purpose| purpose == Purpose::Security),
        };
        if let Some(key) = misplaced {
            return violation(format!("{key} in the stage {}", self.stage.name()), "12");
        }
        let mut answers = TextWriter::default();
        match self.stage {
            Stage::SecurityNegotiation => self.security.take(received, &mut answers)?,
            _ => self.negotiation.take(&received.operational(), &mut answers)?,
        }
        if next.is_some() && !answers.is_empty() {
            return violation("the target leaves the stage with a key that needs an answer", "11.13.6");
        }
        if next == Some(Stage::FullFeaturePhase) {
            if !unknown.is_empty() {
                self.remarks.push("the target's last response has keys that can no longer be answered".to_owned());
            }
            return Ok(());
        }
        out.append(unknown);
        out.append(answers);
        Ok(())
    }

    fn done(&mut self, tsih: u16) -> Result<LoggedIn, LoginError> {
        if tsih == 0 {
            return violation("the last response has no TSIH", "11.13.3");
        }
        if self.identity.tsih != 0 && tsih != self.identity.tsih {
            return violation("the response has the TSIH of another session", "11.13.3");
        }
        let (parameters, remarks) = self.negotiation.clone().finish()?;
        self.remarks.extend(remarks);
        if self.settings.target_name.is_some() && self.target_portal_group_tag.is_none() {
            self.remarks.push(Violation::new("the target does not send its TargetPortalGroupTag", "13.9").to_string());
        }
        Ok(LoggedIn {
            parameters,
            session_type: self.settings.session_type,
            initiator_name: self.settings.initiator_name.clone(),
            target_name: self.settings.target_name.clone(),
            isid: self.identity.isid,
            tsih,
            cid: self.identity.cid,
            is_initiator_authenticated: self.security.is_initiator_authenticated,
            is_target_authenticated: self.security.is_target_authenticated,
            target_portal_group_tag: self.target_portal_group_tag,
            remarks: std::mem::take(&mut self.remarks),
        })
    }
}
