//! What a target's login asks of those who know its names and sessions.
//!
//! It never decides: who may come in is the directory's.

use super::failure::LoginFailure;
use super::names::SessionType;
use super::security::Authentication;
use crate::protocol::keys::{Offers, Parameters};

/// What the first request of a connection asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// InitiatorName.
    pub initiator_name: &'a str,
    /// TargetName; always there in a normal session.
    pub target_name: Option<&'a str>,
    /// SessionType.
    pub session_type: SessionType,
    /// ISID.
    pub isid: [u8; 6],
    /// TSIH: 0 for a new session.
    pub tsih: u16,
    /// CID.
    pub cid: u16,
}

/// Where the connection belongs (RFC 7143 section 6.3.1):
///
/// | ISID of this initiator | TSIH of the request | CID | the connection |
/// |---|---|---|---|
/// | any | 0 | any | leads a new session, in place of one with the same ISID |
/// | of a session | of this session | not in use | joins it |
/// | of a session | of this session | in use | joins it in place of the old one |
/// | any other case | | | [`super::LoginStatus::SessionDoesNotExist`] |
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionPlace {
    /// It leads a session; an old one of the same initiator port ends when this one begins (RFC 7143 section 6.3.5).
    Leading,
    /// It joins a session; an old connection with the same CID ends when this one begins (RFC 7143 section 6.3.4).
    Further {
        /// What is in force in the session.
        parameters: Box<Parameters>,
    },
}

/// How a directory lets a connection in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// What the target wants of the operational keys.
    pub offers: Offers,
    /// What initiators have to prove; none: AuthMethod=None.
    pub authentication: Option<Authentication>,
    /// TargetPortalGroupTag.
    pub target_portal_group_tag: u16,
    /// TargetAlias.
    pub target_alias: Option<String>,
    /// TSIH of the session, new or old; never 0.
    pub tsih: u16,
    /// Where the connection belongs.
    pub place: SessionPlace,
}

/// Who knows the targets of a portal and their sessions.
pub trait Directory {
    /// Lets a connection in, or says why not.
    ///
    /// # Errors
    /// The status to refuse it with: NotFound, AuthorizationFailure, SessionDoesNotExist, TooManyConnections, a
    /// redirection ...
    fn admit(&self, wanted: &Wanted<'_>) -> Result<Admission, LoginFailure>;
}
