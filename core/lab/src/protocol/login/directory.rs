//! The interface between a target's login and the portal's targets and sessions.
//!
//! The directory decides who may log in.

use super::failure::LoginFailure;
use super::names::SessionType;
use super::security::Authentication;
use crate::protocol::keys::{Offers, Parameters};

/// The names and identifiers of the first Login Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// InitiatorName.
    pub initiator_name: &'a str,
    /// TargetName; always present in a normal session.
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

/// The session that a connection belongs to (RFC 7143 section 6.3.1):
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
        /// Negotiated parameters of the session.
        parameters: Box<Parameters>,
    },
}

/// The admission of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The target's offers.
    pub offers: Offers,
    /// The authentication that is required; none for AuthMethod=None.
    pub authentication: Option<Authentication>,
    /// TargetPortalGroupTag.
    pub target_portal_group_tag: u16,
    /// TSIH of the session, new or old; never 0.
    pub tsih: u16,
    /// The session that it belongs to.
    pub place: SessionPlace,
}

/// The targets of a portal and their sessions.
pub trait Directory {
    /// Admits a connection.
    ///
    /// # Errors
    /// The status to refuse it with: NotFound, AuthorizationFailure, SessionDoesNotExist, TooManyConnections, a
    /// redirection ...
    fn admit(&self, wanted: &Wanted<'_>) -> Result<Admission, LoginFailure>;
}
