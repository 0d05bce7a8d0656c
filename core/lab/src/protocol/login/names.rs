//! Names in the first Login Request (RFC 7143 section 6.3.1).
//!
//! The target's directory knows which names exist.

use iscsitrace_wire::login_status::LoginStatus;

use serde::{Deserialize, Serialize};

use super::failure::LoginFailure;
use super::received_keys::ReceivedKeys;

/// Longest iSCSI name (RFC 7143 section 4.2.7.2), in bytes.
const NAME_LENGTH_MAX_BYTES: usize = 223;

/// SessionType (RFC 7143 section 13.21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum SessionType {
    /// A session for SCSI tasks.
    #[default]
    Normal,
    /// A session for SendTargets.
    Discovery,
}

impl SessionType {
    /// As it is sent.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SessionType::Normal => "Normal",
            SessionType::Discovery => "Discovery",
        }
    }
}

/// The names in the first Login Request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    pub initiator_name: String,
    pub target_name: Option<String>,
    pub session_type: SessionType,
}

/// Whether a text can be an iSCSI name. Its type (iqn., eui., naa.) is not checked, because targets accept any.
pub(super) fn is_iscsi_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_LENGTH_MAX_BYTES
        && !name.chars().any(|letter| letter.is_control() || letter.is_whitespace() || letter == '\u{fffd}')
}

impl Names {
    /// Parses the names in the first text of an initiator.
    pub fn read(received: &ReceivedKeys) -> Result<Names, LoginFailure> {
        let name = |key: &str| match received.value(key) {
            Some(name) if !is_iscsi_name(name) => {
                Err(LoginFailure::new(LoginStatus::InitiatorError, format!("{key} is no iSCSI name"), "4.2.7"))
            }
            name => Ok(name.map(str::to_owned)),
        };
        let missing = |what: &str, section| Err(LoginFailure::new(LoginStatus::MissingParameter, what, section));
        let Some(initiator_name) = name("InitiatorName")? else {
            return missing("no InitiatorName in the first Login Request", "13.5");
        };
        let session_type = match received.value("SessionType") {
            None | Some("Normal") => SessionType::Normal,
            Some("Discovery") => SessionType::Discovery,
            Some(_) => {
                return Err(LoginFailure::new(
                    LoginStatus::SessionTypeNotSupported,
                    "SessionType is neither Normal nor Discovery",
                    "13.21",
                ));
            }
        };
        let target_name = name("TargetName")?;
        if target_name.is_none() && session_type == SessionType::Normal {
            return missing("no TargetName in the first Login Request of a normal session", "13.4");
        }
        Ok(Names { initiator_name, target_name, session_type })
    }
}
