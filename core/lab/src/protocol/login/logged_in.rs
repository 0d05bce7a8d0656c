//! The result of a login.

use super::names::SessionType;
use crate::protocol::keys::Parameters;

/// The result of a login: the connection is in the full feature phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedIn {
    /// Negotiated parameters of this connection.
    pub parameters: Parameters,
    /// Normal or Discovery.
    pub session_type: SessionType,
    /// iSCSI name of the initiator.
    pub initiator_name: String,
    /// iSCSI name of the target; none in a discovery session without one.
    pub target_name: Option<String>,
    /// ISID.
    pub isid: [u8; 6],
    /// TSIH, never 0.
    pub tsih: u16,
    /// CID.
    pub cid: u16,
    /// Whether the initiator was authenticated.
    pub is_initiator_authenticated: bool,
    /// Whether the target was authenticated.
    pub is_target_authenticated: bool,
    /// TargetPortalGroupTag, if the target sent it.
    pub target_portal_group_tag: Option<u16>,
    /// Harmless violations of the RFC by the peer.
    pub remarks: Vec<String>,
}
