//! The target's side of a login (RFC 7143 section 6.3): one response to each request, until the full feature phase or
//! a refusal.
//!
//! It asks a [`Directory`] once for admission and the session of the connection. It keeps no sessions, and never echoes
//! text of the initiator.

use iscsitrace_wire::login_status::LoginStatus;

use super::directory::{Admission, Directory, SessionPlace, Wanted};
use super::failure::LoginFailure;
use super::logged_in::LoggedIn;
use super::names::{Names, SessionType};
use super::pdu::{LoginRequest, LoginResponse, ROUNDS_MAX, Stage, VERSION};
use super::received_keys::{Purpose, ReceivedKeys, Used};
use super::security::TargetSecurity;
use crate::protocol::chap::Challenge;
use crate::protocol::keys::{Negotiation, Scope};
use crate::protocol::text::{Joiner, LOGIN_DATA_SEGMENT_MAX_BYTES, Splitter, TextWriter};

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The Login Response, to be sent whatever the outcome.
    pub response: LoginResponse,
    /// The state of the login.
    pub outcome: Outcome,
}

/// The state of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The next request is expected.
    Pending,
    /// The connection is in the full feature phase.
    Done(Box<LoggedIn>, SessionPlace),
    /// The login is refused: the connection is to be closed once the response is sent.
    Failed(LoginFailure),
}

/// The names and admission after the first text.
struct Admitted {
    names: Names,
    place: SessionPlace,
    tsih: u16,
    target_portal_group_tag: u16,
    security: TargetSecurity,
    negotiation: Negotiation,
    has_offered_missing: bool,
}

/// Fields that must not change during a login.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    isid: [u8; 6],
    tsih: u16,
    cid: u16,
}

/// The target's side of a connection's login.
pub struct TargetLogin {
    /// Used when the security stage begins.
    challenge: Challenge,
    stage: Stage,
    identity: Option<Identity>,
    admitted: Option<Admitted>,
    used: Used,
    joiner: Joiner,
    splitter: Splitter,
    part_bytes: usize,
    rounds: usize,
    is_over: bool,
}

impl TargetLogin {
    /// A login that waits for the first request. The challenge must be new and random for each connection.
    #[must_use]
    pub fn new(challenge: Challenge) -> TargetLogin {
        TargetLogin::with_data_segment_bytes(challenge, LOGIN_DATA_SEGMENT_MAX_BYTES)
    }

    /// As [`TargetLogin::new`], with Login Responses of at most `part_bytes` of text.
    #[must_use]
    pub fn with_data_segment_bytes(challenge: Challenge, part_bytes: usize) -> TargetLogin {
        TargetLogin {
            challenge,
            stage: Stage::SecurityNegotiation,
            identity: None,
            admitted: None,
            used: Used::default(),
            joiner: Joiner::default(),
            splitter: Splitter::new(part_bytes),
            part_bytes: part_bytes.clamp(1, LOGIN_DATA_SEGMENT_MAX_BYTES),
            rounds: 0,
            is_over: false,
        }
    }

    /// Refuses the login: for a PDU other than a Login Request, or a timeout.
    #[must_use]
    pub fn refuse(&mut self, failure: LoginFailure) -> Answer {
        self.is_over = true;
        let identity = self.identity.unwrap_or(Identity { isid: [0; 6], tsih: 0, cid: 0 });
        let mut text = TextWriter::default();
        for address in failure.target_addresses.iter().filter(|_| failure.status.is_redirection()) {
            text.pair("TargetAddress", address);
        }
        let response = LoginResponse {
            current_stage: self.stage.bits(),
            isid: identity.isid,
            tsih: identity.tsih,
            status: failure.status,
            data: text.into_bytes(),
            ..LoginResponse::default()
        };
        Answer { response, outcome: Outcome::Failed(failure) }
    }

    /// Takes a request and returns the answer.
    #[must_use]
    pub fn receive(&mut self, request: &LoginRequest, directory: &dyn Directory) -> Answer {
        if self.is_over {
            let over = LoginFailure::new(LoginStatus::InvalidDuringLogin, "Login Request after the login", "4.6.3.2");
            return self.refuse(over);
        }
        match self.step(request, directory) {
            Ok(answer) => answer,
            Err(failure) => self.refuse(failure),
        }
    }

    fn step(&mut self, request: &LoginRequest, directory: &dyn Directory) -> Result<Answer, LoginFailure> {
        let wants = self.check(request)?;
        if self.splitter.is_open() {
            // while a response is incomplete, the initiator may only request the rest (RFC 7143 section 6.2)
            if !request.data.is_empty() || request.is_continue {
                return Err(LoginFailure::initiator_error("text before the target's text is complete", "6.2"));
            }
            return Ok(self.pending());
        }
        let whole = self.joiner.take(&request.data, request.is_continue);
        let whole = whole.map_err(|error| LoginFailure::new(LoginStatus::OutOfResources, error.to_string(), "6.1"))?;
        let Some(whole) = whole else { return Ok(self.pending()) };
        let received = ReceivedKeys::read(&whole, &mut self.used)?;
        let mut out = TextWriter::default();
        let mut admitted = match self.admitted.take() {
            None => self.admit(request, &received, directory, &mut out)?,
            Some(admitted) => {
                let is_late = |name: &str, purpose| purpose == Purpose::Naming && name != "InitiatorAlias";
                match received.find(is_late) {
                    Some(key) => {
                        return Err(LoginFailure::initiator_error(
                            format!("{key} is allowed in the first request only"),
                            "6.3.1",
                        ));
                    }
                    None => admitted,
                }
            }
        };
        let may_leave = self.answer_text(&mut admitted, &received, wants, &mut out)?;
        let text = out.into_bytes();
        // a text of several parts is sent completely before the stage changes
        let next = wants.filter(|_| may_leave && text.len() <= self.part_bytes);
        self.splitter.put(text);
        let answer = match next {
            None => {
                self.admitted = Some(admitted);
                self.pending()
            }
            Some(Stage::FullFeaturePhase) => self.done(request, admitted)?,
            Some(stage) => {
                let transit = self.transit(stage);
                self.stage = stage;
                self.admitted = Some(admitted);
                Answer { response: transit, outcome: Outcome::Pending }
            }
        };
        Ok(answer)
    }

    /// Checks the header; returns the stage that the initiator requests.
    fn check(&mut self, request: &LoginRequest) -> Result<Option<Stage>, LoginFailure> {
        let wrong = |what: &str, section| Err(LoginFailure::initiator_error(what, section));
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            return wrong("the login takes too many requests", "6.3");
        }
        if request.version_min > VERSION {
            let what = format!("Version-min is {}", request.version_min);
            return Err(LoginFailure::new(LoginStatus::UnsupportedVersion, what, "11.12.4"));
        }
        let identity = Identity { isid: request.isid, tsih: request.tsih, cid: request.cid };
        let current_stage =
            Stage::from_bits(request.current_stage).filter(|current_stage| *current_stage != Stage::FullFeaturePhase);
        let Some(current_stage) = current_stage else { return wrong("CSG is no stage of the login phase", "11.12.3") };
        if self.identity.is_none() {
            self.stage = current_stage;
        } else if current_stage != self.stage {
            return wrong("CSG is not the stage that both sides are in", "11.12.3");
        }
        if *self.identity.get_or_insert(identity) != identity {
            return wrong("ISID, TSIH or CID changes during the login", "11.12");
        }
        if request.is_transit && request.is_continue {
            return wrong("T and C bit together", "11.12.2");
        }
        if request.data.len() > LOGIN_DATA_SEGMENT_MAX_BYTES {
            return wrong("a data segment of more than 8192 bytes", "13.12");
        }
        if !request.is_transit {
            return Ok(None);
        }
        match Stage::from_bits(request.next_stage) {
            Some(next_stage) if next_stage > current_stage => Ok(Some(next_stage)),
            _ => wrong("NSG is no stage after CSG", "11.12.3"),
        }
    }

    /// Parses the first text, and asks the directory.
    fn admit(
        &mut self,
        request: &LoginRequest,
        received: &ReceivedKeys,
        directory: &dyn Directory,
        out: &mut TextWriter,
    ) -> Result<Admitted, LoginFailure> {
        const TARGETS_KEYS: &[&str] = &["TargetAlias", "TargetAddress", "TargetPortalGroupTag"];
        if let Some(key) = received.find(|name, _| TARGETS_KEYS.contains(&name)) {
            return Err(LoginFailure::initiator_error(format!("{key} may be sent by targets only"), "13"));
        }
        let names = Names::read(received)?;
        if names.session_type == SessionType::Discovery && request.tsih != 0 {
            let status = LoginStatus::CannotIncludeInSession;
            return Err(LoginFailure::new(status, "a discovery session has one connection", "4.3"));
        }
        let admission = directory.admit(&Wanted {
            initiator_name: &names.initiator_name,
            target_name: names.target_name.as_deref(),
            session_type: names.session_type,
            isid: request.isid,
            tsih: request.tsih,
            cid: request.cid,
        })?;
        let Admission { offers, authentication, target_portal_group_tag, tsih, place } = admission;
        if self.stage != Stage::SecurityNegotiation && authentication.is_some() {
            return Err(LoginFailure::new(
                LoginStatus::AuthenticationFailure,
                "the initiator skips the security stage",
                "6.3.1",
            ));
        }
        let scope = match &place {
            SessionPlace::Further { parameters, .. } => Scope::Further(parameters.clone()),
            SessionPlace::Leading if names.session_type == SessionType::Discovery => Scope::Discovery,
            SessionPlace::Leading => Scope::Leading,
        };
        // in the answer to the first complete request, if it names a target (RFC 7143 section 13.9)
        if names.target_name.is_some() {
            out.pair("TargetPortalGroupTag", &target_portal_group_tag.to_string());
        }
        let challenge = std::mem::replace(&mut self.challenge, Challenge { identifier: 0, bytes: Vec::new() });
        Ok(Admitted {
            names,
            place,
            tsih,
            target_portal_group_tag,
            security: TargetSecurity::new(authentication, challenge),
            negotiation: Negotiation::new(offers, scope, false),
            has_offered_missing: false,
        })
    }

    /// Answers a text; returns whether the connection may leave its stage.
    fn answer_text(
        &self,
        admitted: &mut Admitted,
        received: &ReceivedKeys,
        wants: Option<Stage>,
        out: &mut TextWriter,
    ) -> Result<bool, LoginFailure> {
        // "Other keys MUST NOT be used" in the security stage, and security keys only there (section 12)
        let is_misplaced = |purpose| match self.stage {
            Stage::SecurityNegotiation => matches!(purpose, Purpose::Operational(_)),
            _ => purpose == Purpose::Security,
        };
        if let Some(key) = received.find(|_, purpose| is_misplaced(purpose)) {
            let what = format!("{key} in the stage {}", self.stage.name());
            return Err(LoginFailure::initiator_error(what, "12"));
        }
        received.answer_unknown(out)?;
        if self.stage == Stage::SecurityNegotiation {
            admitted
                .security
                .take(received, out)
                .map_err(|failed| LoginFailure::new(LoginStatus::AuthenticationFailure, failed.what, failed.section))?;
            return Ok(admitted.security.is_done());
        }
        admitted.negotiation.take(&received.operational(), out)?;
        admitted.negotiation.declare(out);
        if wants == Some(Stage::FullFeaturePhase) && !std::mem::replace(&mut admitted.has_offered_missing, true) {
            admitted.negotiation.offer_missing(out);
            return Ok(!admitted.negotiation.has_open_offers());
        }
        Ok(true)
    }

    /// A response that leaves the connection in its stage, with the next part of the text.
    fn pending(&mut self) -> Answer {
        let (data, is_continue) = self.splitter.next_part();
        let response = LoginResponse { is_continue, data, ..self.response() };
        Answer { response, outcome: Outcome::Pending }
    }

    /// A response that takes the connection to another stage.
    fn transit(&mut self, stage: Stage) -> LoginResponse {
        let (data, _) = self.splitter.next_part();
        LoginResponse { is_transit: true, next_stage: stage.bits(), data, ..self.response() }
    }

    fn response(&self) -> LoginResponse {
        let Identity { isid, tsih, .. } = self.identity.unwrap_or(Identity { isid: [0; 6], tsih: 0, cid: 0 });
        LoginResponse { current_stage: self.stage.bits(), isid, tsih, ..LoginResponse::default() }
    }

    fn done(&mut self, request: &LoginRequest, admitted: Admitted) -> Result<Answer, LoginFailure> {
        let Admitted { names, place, tsih, target_portal_group_tag, security, negotiation, .. } = admitted;
        let (parameters, remarks) = negotiation.finish()?;
        self.is_over = true;
        // the last response has the TSIH of a new session (RFC 7143 section 11.13.3)
        let response = LoginResponse { tsih, ..self.transit(Stage::FullFeaturePhase) };
        let logged_in = LoggedIn {
            parameters,
            session_type: names.session_type,
            initiator_name: names.initiator_name,
            target_portal_group_tag: names.target_name.is_some().then_some(target_portal_group_tag),
            target_name: names.target_name,
            isid: request.isid,
            tsih,
            cid: request.cid,
            is_initiator_authenticated: security.is_initiator_authenticated(),
            is_target_authenticated: security.is_target_authenticated,
            remarks,
        };
        Ok(Answer { response, outcome: Outcome::Done(Box::new(logged_in), place) })
    }
}
