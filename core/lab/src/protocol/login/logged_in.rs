//! The result of a login. Never says how it came about.

use super::names::SessionType;
use crate::protocol::keys::Parameters;

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
