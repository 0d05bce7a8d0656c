//! What a session is to be; never what it asks of its logical units.

use serde::{Deserialize, Serialize};

use crate::protocol::login::InitiatorLoginSettings;

/// How long to wait; 0 waits for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// For a connection with its login, and for a logout.
    pub login_ns: i64,
    /// For a task; then it is aborted, and after as long again without an answer the session ends.
    pub task_ns: i64,
    /// Without a byte from the target for this long, a NOP-Out asks whether it is there; 0 never asks.
    pub nop_interval_ns: i64,
    /// For the answer to a NOP-Out.
    pub nop_ns: i64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            login_ns: 15_000_000_000,
            task_ns: 30_000_000_000,
            nop_interval_ns: 5_000_000_000,
            nop_ns: 5_000_000_000,
        }
    }
}

/// A session as its initiator wants it.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// Names, keys and credentials.
    pub login: InitiatorLoginSettings,
    /// ISID.
    pub isid: [u8; 6],
    /// Connections, 1 to 64.
    pub connections: u16,
    /// How long to wait.
    pub timeouts: Timeouts,
    /// CmdSN of the login.
    pub initial_cmd_sn: u32,
    /// What CHAP challenges are made of: random bytes in the real world.
    pub challenge_seed: u64,
    /// Whether [`super::Session::take_pdu_log`] has something to give.
    pub is_pdu_log_wanted: bool,
}
