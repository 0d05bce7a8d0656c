//! The login phase of a connection, from both sides (RFC 7143 section 6.3).
//!
//! ```text
//! initiator                                target
//!   InitiatorLogin::new -> request     ->    TargetLogin::receive -> an answer: always one response
//!   receive(response) -> a request     ->    ...
//!   ... until Step::Done               <-    ... until Outcome::Done, or Outcome::Failed: send, then close
//! ```
//!
//! Both machines take and give [`LoginRequest`] and [`LoginResponse`], which hold what the login phase is about. What
//! every PDU has (Initiator Task Tag, CmdSN, StatSN) stays with the caller, who also bounds how long a login may take.
//! Everything that a peer sends is bounded: text, keys, rounds.

mod directory;
mod heard;
mod initiator;
mod names;
mod pdu;
mod security;
mod settings;
mod status;
mod target;
#[cfg(test)]
mod tests;

pub use directory::{Admission, Directory, LoginFailure, SessionPlace, Wanted};
pub use initiator::{InitiatorLogin, LoginError, Redirection, Step};
pub use names::SessionType;
pub use pdu::{LoginRequest, LoginResponse, Stage};
pub use security::Authentication;
pub use settings::{InitiatorLoginSettings, InvalidSettings, SessionIdentity};
pub use status::LoginStatus;
pub use target::{Answer, Outcome, TargetLogin};

use crate::protocol::keys::Parameters;

/// Requests or responses of one login, at most: each side has little to say.
const ROUNDS_MAX: usize = 128;

/// What a login led to: the connection is in the full feature phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedIn {
    /// What is in force on this connection.
    pub parameters: Parameters,
    /// Normal or Discovery.
    pub session_type: SessionType,
    /// iSCSI name of the initiator.
    pub initiator_name: String,
    /// iSCSI name of the target; none in a discovery session that did not name one.
    pub target_name: Option<String>,
    /// ISID.
    pub isid: [u8; 6],
    /// TSIH, never 0.
    pub tsih: u16,
    /// CID.
    pub cid: u16,
    /// Whether the initiator proved who it is.
    pub is_initiator_authenticated: bool,
    /// Whether the target proved who it is.
    pub is_target_authenticated: bool,
    /// TargetPortalGroupTag, when the target gave it.
    pub target_portal_group_tag: Option<u16>,
    /// InitiatorAlias as a target heard it, TargetAlias as an initiator did.
    pub peer_alias: Option<String>,
    /// What the peer did that the RFC does not allow, and that did no harm.
    pub remarks: Vec<String>,
}
