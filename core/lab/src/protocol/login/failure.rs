//! Why a target refuses a login: the status for the initiator, and the reason for a person.

use iscsitrace_wire::login_status::LoginStatus;

use crate::protocol::keys::Violation;

/// Why a login is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {violation}")]
pub struct LoginFailure {
    /// The status of the Login Response.
    pub status: LoginStatus,
    /// The reason.
    pub violation: Violation,
    /// Addresses of the target, for a redirection: values of TargetAddress.
    pub target_addresses: Vec<String>,
}

impl LoginFailure {
    /// A refusal with its reason, and the section of RFC 7143.
    #[must_use]
    pub fn new(status: LoginStatus, what: impl Into<String>, section: &'static str) -> LoginFailure {
        LoginFailure { status, violation: Violation::new(what, section), target_addresses: Vec::new() }
    }

    pub(super) fn initiator_error(what: impl Into<String>, section: &'static str) -> LoginFailure {
        LoginFailure::new(LoginStatus::InitiatorError, what, section)
    }
}

impl From<Violation> for LoginFailure {
    fn from(violation: Violation) -> LoginFailure {
        LoginFailure { status: LoginStatus::InitiatorError, violation, target_addresses: Vec::new() }
    }
}
