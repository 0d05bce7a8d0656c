//! The SecurityNegotiation stage: AuthMethod and CHAP, both sides (RFC 7143 sections 6.3.2 and 12.1).
//!
//! ```text
//! initiator                                     target
//!   AuthMethod=CHAP                        ->
//!                                          <-     AuthMethod=CHAP
//!   CHAP_A=5                               ->
//!                                          <-     CHAP_A=5 CHAP_I CHAP_C
//!   CHAP_N CHAP_R [CHAP_I CHAP_C]          ->
//!                                          <-     [CHAP_N CHAP_R]
//! ```
//!
//! It never changes the stage of a connection: it tells when the next stage may begin.

use iscsitrace_wire::text;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use super::received_keys::ReceivedKeys;
use crate::protocol::chap::{Algorithm, Challenge, Credentials, decode_binary, encode_binary};
use crate::protocol::text::TextWriter;

/// Why authentication failed, and the section of RFC 7143.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AuthenticationFailed {
    pub what: &'static str,
    pub section: &'static str,
}

fn failed<T>(what: &'static str) -> Result<T, AuthenticationFailed> {
    Err(AuthenticationFailed { what, section: "12.1.3" })
}

/// Progress of the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Begun,
    MethodAgreed,
    AlgorithmAgreed(Algorithm),
    Answered(Algorithm),
    Done,
}

/// The keys of a peer's challenge.
fn challenge_of(received: &ReceivedKeys) -> Result<Option<Challenge>, AuthenticationFailed> {
    match (received.value("CHAP_I"), received.value("CHAP_C")) {
        (None, None) => Ok(None),
        (Some(identifier), Some(bytes)) => {
            let identifier = text::numeric(identifier).and_then(|identifier| u8::try_from(identifier).ok());
            match identifier.zip(decode_binary(bytes)) {
                Some((identifier, bytes)) => Ok(Some(Challenge { identifier, bytes })),
                None => failed("CHAP_I is no byte or CHAP_C no binary value of 1 to 1024 bytes"),
            }
        }
        _ => failed("CHAP_I and CHAP_C have to be sent together"),
    }
}

/// The keys of a peer's response.
fn proof_of(received: &ReceivedKeys) -> Result<Option<(&str, Vec<u8>)>, AuthenticationFailed> {
    match (received.value("CHAP_N"), received.value("CHAP_R")) {
        (None, None) => Ok(None),
        (Some(name), Some(response)) => match decode_binary(response) {
            Some(response) => Ok(Some((name, response))),
            None => failed("CHAP_R is no binary value"),
        },
        _ => failed("CHAP_N and CHAP_R have to be sent together"),
    }
}

/// The authentication that a target requires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authentication {
    /// Credentials of initiators.
    pub initiators: Vec<Credentials>,
    /// Credentials of the target, for initiators that request target authentication.
    #[serde(default)]
    pub target: Option<Credentials>,
    /// The algorithms that it supports.
    #[serde(default = "md5")]
    pub algorithms: Vec<Algorithm>,
}

fn md5() -> Vec<Algorithm> {
    vec![Algorithm::Md5]
}

/// A target in the security stage.
pub(super) struct TargetSecurity {
    authentication: Option<Authentication>,
    challenge: Challenge,
    progress: Progress,
    pub is_target_authenticated: bool,
}

impl TargetSecurity {
    pub fn new(authentication: Option<Authentication>, challenge: Challenge) -> TargetSecurity {
        TargetSecurity { authentication, challenge, progress: Progress::Begun, is_target_authenticated: false }
    }

    /// Whether the next stage may begin.
    pub fn is_done(&self) -> bool {
        // AuthMethod may be omitted if authentication is not required
        self.progress == Progress::Done || (self.progress == Progress::Begun && self.authentication.is_none())
    }

    /// Whether the initiator was authenticated.
    pub fn is_initiator_authenticated(&self) -> bool {
        self.authentication.is_some() && self.progress == Progress::Done
    }

    /// Takes the keys of an initiator.
    pub fn take(&mut self, received: &ReceivedKeys, out: &mut TextWriter) -> Result<(), AuthenticationFailed> {
        if let Some(list) = received.value("AuthMethod") {
            let wanted = if self.authentication.is_some() { "CHAP" } else { "None" };
            if !list.split(',').any(|method| method == wanted) {
                return Err(AuthenticationFailed {
                    what: "AuthMethod has no value that the target accepts",
                    section: "12.1",
                });
            }
            self.progress = if self.authentication.is_some() { Progress::MethodAgreed } else { Progress::Done };
            out.pair("AuthMethod", wanted);
        }
        let Some(authentication) = &self.authentication else {
            return match received.find(|name, _| name.starts_with("CHAP_")) {
                Some(_) => failed("CHAP without AuthMethod=CHAP"),
                None => Ok(()),
            };
        };
        if let Some(list) = received.value("CHAP_A") {
            if self.progress != Progress::MethodAgreed {
                return failed("CHAP_A without AuthMethod=CHAP");
            }
            let offered = list.split(',').filter_map(text::numeric).filter_map(Algorithm::from_number);
            let Some(algorithm) = offered.into_iter().find(|offered| authentication.algorithms.contains(offered))
            else {
                return failed("CHAP_A has no algorithm that the target supports");
            };
            self.progress = Progress::AlgorithmAgreed(algorithm);
            out.pair("CHAP_A", &algorithm.number().to_string());
            out.pair("CHAP_I", &self.challenge.identifier.to_string());
            out.pair("CHAP_C", &encode_binary(&self.challenge.bytes));
        }
        let theirs = challenge_of(received)?;
        let Some((name, response)) = proof_of(received)? else {
            return if theirs.is_some() { failed("a challenge without CHAP_N and CHAP_R") } else { Ok(()) };
        };
        let Progress::AlgorithmAgreed(algorithm) = self.progress else {
            return failed("CHAP_R without a challenge");
        };
        // the same work for a name that is known and for one that is not: else the time of the answer would tell them apart
        let is_known = authentication.initiators.iter().fold(false, |found, known| {
            let is_name: bool = known.name.as_bytes().ct_eq(name.as_bytes()).into();
            found | is_name & self.challenge.is_answered_by(&response, algorithm, &known.secret)
        });
        if !is_known {
            return failed("CHAP_N and CHAP_R are not those of a known initiator");
        }
        if let Some(theirs) = theirs {
            // an initiator that reflects the target's challenge could have its response computed for it (RFC 7143
            // section 9.2.1)
            if self.challenge.is_reflected_by(&theirs) {
                let what = "the initiator reflects the target's challenge";
                return Err(AuthenticationFailed { what, section: "9.2.1" });
            }
            let Some(own) = &authentication.target else {
                return failed("target authentication is not supported");
            };
            out.pair("CHAP_N", &own.name);
            out.pair("CHAP_R", &encode_binary(&theirs.response(algorithm, &own.secret)));
            self.is_target_authenticated = true;
        }
        self.progress = Progress::Done;
        Ok(())
    }
}

/// An initiator in the security stage.
pub(super) struct InitiatorSecurity {
    own: Option<Credentials>,
    targets: Option<Credentials>,
    algorithms: Vec<Algorithm>,
    is_optional: bool,
    challenge: Challenge,
    progress: Progress,
    pub is_initiator_authenticated: bool,
    pub is_target_authenticated: bool,
}

impl InitiatorSecurity {
    pub fn new(
        own: Option<Credentials>,
        targets: Option<Credentials>,
        algorithms: Vec<Algorithm>,
        is_optional: bool,
        challenge: Challenge,
    ) -> InitiatorSecurity {
        InitiatorSecurity {
            own,
            targets,
            algorithms,
            is_optional,
            challenge,
            progress: Progress::Begun,
            is_initiator_authenticated: false,
            is_target_authenticated: false,
        }
    }

    /// Offers the authentication methods.
    pub fn offer(&self, out: &mut TextWriter) {
        out.pair(
            "AuthMethod",
            match (&self.own, self.is_optional) {
                (None, _) => "None",
                (Some(_), false) => "CHAP",
                (Some(_), true) => "CHAP,None",
            },
        );
    }

    /// Whether the initiator has nothing left to send in this stage.
    pub fn is_ready(&self) -> bool {
        matches!(self.progress, Progress::Done | Progress::Answered(_)) || self.own.is_none()
    }

    /// Takes the keys of the target.
    pub fn take(&mut self, received: &ReceivedKeys, out: &mut TextWriter) -> Result<(), AuthenticationFailed> {
        match (self.progress, received.value("AuthMethod")) {
            (Progress::Begun, Some("None")) if self.own.is_none() || self.is_optional => self.progress = Progress::Done,
            (Progress::Begun, Some("CHAP")) if self.own.is_some() => {
                let numbers: Vec<_> = self.algorithms.iter().map(|algorithm| algorithm.number().to_string()).collect();
                out.pair("CHAP_A", &numbers.join(","));
                self.progress = Progress::MethodAgreed;
            }
            (_, None) => {}
            (_, Some(_)) => {
                return Err(AuthenticationFailed {
                    what: "AuthMethod is answered with a value that was not offered",
                    section: "12.1",
                });
            }
        }
        if let Some(number) = received.value("CHAP_A") {
            let chosen = text::numeric(number).and_then(Algorithm::from_number);
            match (self.progress, chosen.filter(|chosen| self.algorithms.contains(chosen))) {
                (Progress::MethodAgreed, Some(algorithm)) => self.progress = Progress::AlgorithmAgreed(algorithm),
                _ => return failed("CHAP_A is answered with an algorithm that was not offered"),
            }
        }
        if let Some(theirs) = challenge_of(received)? {
            self.answer(&theirs, out)?;
        }
        if let Some((name, response)) = proof_of(received)? {
            let (Progress::Answered(algorithm), Some(targets)) = (self.progress, &self.targets) else {
                return failed("CHAP_R that was not requested");
            };
            if targets.name != name || !self.challenge.is_answered_by(&response, algorithm, &targets.secret) {
                return failed("CHAP_N and CHAP_R are not those of the expected target");
            }
            self.is_target_authenticated = true;
            self.progress = Progress::Done;
        }
        Ok(())
    }

    fn answer(&mut self, theirs: &Challenge, out: &mut TextWriter) -> Result<(), AuthenticationFailed> {
        let (Progress::AlgorithmAgreed(algorithm), Some(own)) = (self.progress, &self.own) else {
            return failed("a challenge without CHAP_A");
        };
        if self.challenge.is_reflected_by(theirs) {
            return failed("both sides have the same challenge");
        }
        out.pair("CHAP_N", &own.name);
        out.pair("CHAP_R", &encode_binary(&theirs.response(algorithm, &own.secret)));
        if self.targets.is_some() {
            out.pair("CHAP_I", &self.challenge.identifier.to_string());
            out.pair("CHAP_C", &encode_binary(&self.challenge.bytes));
        }
        self.is_initiator_authenticated = true;
        self.progress = Progress::Answered(algorithm);
        Ok(())
    }

    /// Checks that the initiator may leave the stage; called when the target allows it.
    pub fn leave(&mut self) -> Result<(), AuthenticationFailed> {
        if self.targets.is_some() && !self.is_target_authenticated {
            return failed("the target does not authenticate itself");
        }
        match self.progress {
            Progress::Done | Progress::Answered(_) => Ok(()),
            // a target that sends no AuthMethod requires no authentication
            Progress::Begun if self.own.is_none() || self.is_optional => Ok(()),
            _ => failed("the target leaves the security stage before CHAP is done"),
        }
    }
}
