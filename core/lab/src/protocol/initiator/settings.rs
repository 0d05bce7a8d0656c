//! Settings of a session at its initiator.

use serde::{Deserialize, Serialize};

use super::breach::InitiatorRule;
use crate::protocol::breach::Breaches;
use crate::protocol::login::InitiatorLoginSettings;

/// Timeouts; 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Of a connection with its login, and of a logout.
    pub login_ns: i64,
    /// Of a task: it is aborted; after the same time without an answer the session ends.
    pub task_ns: i64,
    /// Idle time after which a NOP-Out is sent; 0 for never.
    pub nop_interval_ns: i64,
    /// Of the answer to a NOP-Out.
    pub nop_ns: i64,
    /// Of ABORT TASK, after which the logical unit is reset, and of that reset, after which the session ends. 0 for
    /// that of a task, and no reset.
    pub management_ns: i64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            login_ns: 15_000_000_000,
            task_ns: 30_000_000_000,
            nop_interval_ns: 5_000_000_000,
            nop_ns: 5_000_000_000,
            management_ns: 0,
        }
    }
}

/// A session.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// Names, keys and credentials.
    pub login: InitiatorLoginSettings,
    /// ISID.
    pub isid: [u8; 6],
    /// Connections, 1 to 64.
    pub connections: u16,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// CmdSN of the login.
    pub initial_cmd_sn: u32,
    /// Seed of CHAP challenges: random in the real world.
    pub challenge_seed: u64,
    /// Whether PDUs are logged for [`super::Session::take_pdu_log`].
    pub is_pdu_log_wanted: bool,
    /// Rules of RFC 7143 that it breaks.
    pub breaches: Breaches<InitiatorRule>,
}
