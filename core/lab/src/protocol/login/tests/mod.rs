//! Complete logins: initiator and target against each other, and each against a peer that violates the RFC.

mod agreement;
mod conversations;
mod hostile_initiators;
mod hostile_targets;

use super::*;
use crate::protocol::chap::{Algorithm, Challenge, Credentials, Secret};
use crate::protocol::keys::Offers;

pub(super) const INITIATOR: &str = "iqn.2026-01.example:initiator";
pub(super) const TARGET: &str = "iqn.2026-01.example:target";

/// A portal with one target and at most one session.
#[derive(Clone)]
pub(super) struct Portal {
    pub admission: Admission,
    pub refusal: Option<LoginFailure>,
}

impl Default for Portal {
    fn default() -> Portal {
        Portal {
            admission: Admission {
                offers: Offers::default(),
                authentication: None,
                target_portal_group_tag: 1,
                tsih: 77,
                place: SessionPlace::Leading,
            },
            refusal: None,
        }
    }
}

impl Directory for Portal {
    fn admit(&self, wanted: &Wanted<'_>) -> Result<Admission, LoginFailure> {
        match &self.refusal {
            Some(refusal) => Err(refusal.clone()),
            None if wanted.target_name.is_some_and(|name| name != TARGET) => {
                Err(LoginFailure::new(LoginStatus::NotFound, "no such target", "11.13.5"))
            }
            None => Ok(self.admission.clone()),
        }
    }
}

pub(super) fn challenge(identifier: u8) -> Challenge {
    Challenge { identifier, bytes: vec![identifier; 16] }
}

pub(super) fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.to_owned(), secret: Secret::new(secret) }
}

/// A portal that requires CHAP, and supports target authentication.
pub(super) fn chap_portal(algorithm: Algorithm) -> Portal {
    let mut portal = Portal::default();
    portal.admission.authentication = Some(Authentication {
        initiators: vec![credentials("nobody", "something else"), credentials("joe", "secret of the initiator")],
        target: Some(credentials("disk", "secret of the target")),
        algorithms: vec![algorithm],
    });
    portal
}

pub(super) fn initiator_settings(offers: Offers) -> InitiatorLoginSettings {
    InitiatorLoginSettings {
        initiator_name: INITIATOR.to_owned(),
        target_name: Some(TARGET.to_owned()),
        offers,
        ..InitiatorLoginSettings::default()
    }
}

/// The end of a login between our initiator and target.
pub(super) struct Ending {
    /// A line per PDU: direction, T or C, stages, text.
    pub transcript: Vec<String>,
    pub initiator: Result<Step, LoginError>,
    pub target: Outcome,
}

impl Ending {
    /// The negotiated parameters of both sides.
    pub fn both(self) -> (LoggedIn, LoggedIn, SessionPlace) {
        match (self.initiator, self.target) {
            (Ok(Step::Done(initiator)), Outcome::Done(target, place)) => (*initiator, *target, place),
            (initiator, target) => panic!("{initiator:?} {target:?} {:#?}", self.transcript),
        }
    }
}

fn line(arrow: char, flags: (bool, bool, u8, u8), data: &[u8]) -> String {
    let (is_transit, is_continue, current_stage, next_stage) = flags;
    let stages = if is_transit { format!("{current_stage}->{next_stage}") } else { current_stage.to_string() };
    let more = if is_continue { " C" } else { "" };
    let text = String::from_utf8_lossy(data).replace('\0', " ");
    // `chap` tests the response to a challenge
    let hidden = text.split(' ').map(|pair| match pair.split_once('=') {
        Some((key @ ("CHAP_R" | "CHAP_C"), _)) => format!("{key}=..."),
        _ => pair.to_owned(),
    });
    format!("{arrow} {stages}{more} {}", hidden.collect::<Vec<_>>().join(" ")).trim_end().to_owned()
}

/// Logs an initiator in at a portal.
pub(super) fn converse(
    settings: InitiatorLoginSettings,
    identity: SessionIdentity,
    portal: &Portal,
    target_part_bytes: usize,
) -> Ending {
    let (mut initiator, mut request) = InitiatorLogin::start(settings, identity, challenge(2)).unwrap();
    let mut target = TargetLogin::with_data_segment_bytes(challenge(1), target_part_bytes);
    let mut transcript = Vec::new();
    loop {
        let flags = (request.is_transit, request.is_continue, request.current_stage, request.next_stage);
        transcript.push(line('>', flags, &request.data));
        let Answer { response, outcome } = target.receive(&request, portal);
        let flags = (response.is_transit, response.is_continue, response.current_stage, response.next_stage);
        assert!(response.data.len() <= target_part_bytes, "a part is too long");
        transcript.push(line('<', flags, &response.data));
        match initiator.receive(&response) {
            Ok(Step::Send(next)) if outcome == Outcome::Pending => request = next,
            step => return Ending { transcript, initiator: step, target: outcome },
        }
    }
}

/// A leading connection.
pub(super) fn leading() -> SessionIdentity {
    SessionIdentity { isid: [0x80, 0, 0, 1, 0, 0], tsih: 0, cid: 0, session: None }
}
