//! Why a connection ended.

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::protocol::pdu::Unreadable;

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Ending {
    /// The initiator logged out, this connection or its session.
    #[error("logged out (RFC 7143 section 11.14)")]
    LoggedOut,
    /// The peer closed it without a logout.
    #[error("closed by the initiator without a Logout (RFC 7143 section 7.14)")]
    ByPeer,
    /// It failed, with the world's error message.
    #[error("connection failure (RFC 7143 section 7.14): {0}")]
    Failed(String),
    /// The login was refused.
    #[error("login refused: {0}")]
    LoginRefused(String),
    /// No login in time.
    #[error("not logged in after {seconds} s (RFC 7143 section 8.1.2)")]
    LoginTimeout {
        /// The timeout.
        seconds: i64,
    },
    /// Too many connections were logging in, and this one sent nothing.
    #[error("not logged in while others waited to log in")]
    GaveWay,
    /// The stream cannot be decoded.
    #[error("{0}")]
    Unreadable(Unreadable),
    /// A new session of the same initiator port replaced its session.
    #[error("session reinstatement (RFC 7143 section 6.3.5)")]
    SessionReinstated,
    /// A new connection with the same CID replaced it.
    #[error("connection reinstatement (RFC 7143 section 6.3.4)")]
    ConnectionReinstated,
    /// A NOP-In ping was not answered.
    #[error("NOP-In ping not answered for {seconds} s (RFC 7143 section 11.19)")]
    PingUnanswered {
        /// The timeout.
        seconds: i64,
    },
    /// The initiator sends, but does not receive answers.
    #[error("more than {0} PDUs wait to be sent")]
    AnswersNotTaken(usize),
    /// It did not log out on request.
    #[error("not logged out {seconds} s after the Asynchronous Message that requested it (RFC 7143 section 11.9.1)")]
    NotLoggedOut {
        /// The timeout.
        seconds: i64,
    },
    /// Commands that wait for an earlier one have too much data.
    #[error("more than {0} bytes of data before their commands' turn (RFC 7143 section 4.2.2.1)")]
    TooMuchEarlyData(usize),
    /// TARGET COLD RESET.
    #[error("TARGET COLD RESET (RFC 7143 section 11.5.1)")]
    ColdReset,
    /// Closed by the caller.
    #[error("closed on request")]
    OnDemand,
    /// The last response could not be sent.
    #[error("the peer neither received the last response nor closed the connection within {seconds} s")]
    NotClosed {
        /// The timeout.
        seconds: i64,
    },
}

impl Serialize for Ending {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
