//! Login settings of an initiator.
//!
//! They contain no addresses.

use serde::{Deserialize, Serialize};

use super::names::{SessionType, is_iscsi_name};
use crate::protocol::chap::{Algorithm, Credentials};
use crate::protocol::keys::{InvalidOffers, Offers, Parameters};
use crate::protocol::text::LOGIN_DATA_SEGMENT_MAX_BYTES;

/// The login of an initiator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InitiatorLoginSettings {
    /// InitiatorName.
    pub initiator_name: String,
    /// TargetName; a normal session needs one.
    pub target_name: Option<String>,
    /// SessionType.
    pub session_type: SessionType,
    /// Offers of operational keys.
    pub offers: Offers,
    /// Credentials of the initiator; none for AuthMethod=None.
    pub chap: Option<Credentials>,
    /// Credentials of the target; if set, target authentication is required.
    pub chap_of_target: Option<Credentials>,
    /// CHAP_A, best first.
    pub chap_algorithms: Vec<Algorithm>,
    /// Whether AuthMethod=CHAP,None is offered instead of CHAP only.
    pub is_chap_optional: bool,
    /// Whether the login starts with the operational stage (RFC 7143 section 6.3.1), without authentication.
    pub is_security_skipped: bool,
    /// Most bytes of text in a Login Request.
    pub login_data_segment_bytes: usize,
}

impl Default for InitiatorLoginSettings {
    fn default() -> InitiatorLoginSettings {
        InitiatorLoginSettings {
            initiator_name: "iqn.2026-01.io.github.iscsitrace:initiator".to_owned(),
            target_name: None,
            session_type: SessionType::Normal,
            offers: Offers::usual(),
            chap: None,
            chap_of_target: None,
            chap_algorithms: vec![Algorithm::Md5],
            is_chap_optional: false,
            is_security_skipped: false,
            login_data_segment_bytes: LOGIN_DATA_SEGMENT_MAX_BYTES,
        }
    }
}

/// Settings that are not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    /// InitiatorName or TargetName.
    #[error("{0} is no iSCSI name (RFC 7143 section 4.2.7)")]
    BadName(&'static str),
    /// No TargetName.
    #[error("a normal session needs a TargetName (RFC 7143 section 13.4)")]
    NoTargetName,
    /// A CHAP name that is no valid text value.
    #[error("{0} is empty, longer than 255 bytes or has control characters (RFC 7143 section 6.1)")]
    BadText(&'static str),
    /// The offers.
    #[error(transparent)]
    Offers(#[from] InvalidOffers),
    /// Credentials of the target without those of the initiator.
    #[error("a target authenticates itself only to an initiator that does so, too (RFC 7143 section 12.1.3)")]
    OnlyTargetAuthenticates,
    /// The same secret for both sides.
    #[error("initiator and target must have different CHAP secrets (RFC 7143 section 9.2.1)")]
    SameSecret,
    /// An empty secret, or no algorithm.
    #[error("CHAP needs a secret and an algorithm (RFC 7143 section 12.1.3)")]
    IncompleteChap,
    /// CHAP without the security stage.
    #[error("CHAP needs the SecurityNegotiation stage (RFC 7143 section 6.3.2)")]
    ChapWithoutSecurity,
}

/// The identifiers of a connection and its session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionIdentity {
    /// ISID.
    pub isid: [u8; 6],
    /// TSIH: 0 for the leading connection.
    pub tsih: u16,
    /// CID.
    pub cid: u16,
    /// For a further connection, the session's parameters.
    pub session: Option<Box<Parameters>>,
}

impl InitiatorLoginSettings {
    /// Checks all settings.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        if !is_iscsi_name(&self.initiator_name) {
            return Err(InvalidSettings::BadName("InitiatorName"));
        }
        match &self.target_name {
            Some(name) if !is_iscsi_name(name) => return Err(InvalidSettings::BadName("TargetName")),
            None if self.session_type == SessionType::Normal => return Err(InvalidSettings::NoTargetName),
            _ => {}
        }
        let is_text = |text: &str| !text.is_empty() && text.len() <= 255 && !text.chars().any(char::is_control);
        if self.chap.iter().chain(&self.chap_of_target).any(|credentials| !is_text(&credentials.name)) {
            return Err(InvalidSettings::BadText("CHAP_N"));
        }
        self.offers.validate()?;
        let has_empty_secret = self.chap.iter().chain(&self.chap_of_target).any(|chap| chap.secret.is_empty());
        match (&self.chap, &self.chap_of_target) {
            (None, Some(_)) => Err(InvalidSettings::OnlyTargetAuthenticates),
            (Some(own), Some(targets)) if own.secret == targets.secret => Err(InvalidSettings::SameSecret),
            (Some(_), _) if has_empty_secret || self.chap_algorithms.is_empty() => Err(InvalidSettings::IncompleteChap),
            (Some(_), _) if self.is_security_skipped => Err(InvalidSettings::ChapWithoutSecurity),
            _ => Ok(()),
        }
    }
}
