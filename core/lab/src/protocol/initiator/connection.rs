//! A connection of a session at its initiator: its state, and its queues.
//!
//! It never validates PDUs and never chooses the next one: `receive` and `transmit` do.

use std::collections::VecDeque;

use iscsitrace_wire::serial::SerialNumber;

use crate::protocol::keys::Parameters;
use crate::protocol::login::{InitiatorLogin, LoginRequest};
use crate::protocol::pdu::{Decoder, Digests};

/// The state of a connection (RFC 7143 section 8.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for the leading connection.
    #[default]
    Waiting,
    /// To be opened.
    Wanted,
    /// Being opened.
    Opening,
    /// In the login phase.
    Login,
    /// In the full feature phase.
    Full,
    /// In the full feature phase, but leaving: it accepts no more commands.
    Leaving,
    /// Its Logout Request was sent, after which nothing may be sent.
    LoggingOut,
    Closed,
}

/// The destination of the current PDU's data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Incoming {
    /// Its data is ignored.
    #[default]
    Skip,
    /// Its data is kept until the PDU is complete.
    Collect,
    /// Its data goes to a command, from this offset on.
    Task { tag: u32, offset: u32 },
    /// Its data must equal that of a ping, from this byte on.
    Echo { offset: u32, length: u32 },
}

/// A sequence of Data-Out to be sent (RFC 7143 section 11.7).
#[derive(Debug, Clone, Copy)]
pub(super) struct Burst {
    pub tag: u32,
    pub target_transfer_tag: u32,
    pub lun: [u8; 8],
    pub offset: u32,
    pub end: u32,
    /// Whether the last Data-Out had the place of the next one (D10).
    pub is_exchanged: bool,
    pub data_sn: SerialNumber,
}

/// A PDU that does not depend on the command window.
#[derive(Debug, Clone, Copy)]
pub(super) enum Urgent {
    /// The answer to a ping of the target.
    PingReply { target_transfer_tag: u32, lun: [u8; 8] },
    /// A request under its own Initiator Task Tag.
    Request(u32),
    /// A Text Request for the rest of a response.
    MoreText { tag: u32, target_transfer_tag: u32, lun: [u8; 8] },
}

#[derive(Default)]
pub(super) struct Connection {
    pub state: State,
    pub cid: u16,
    /// Initiator Task Tag of its login.
    pub login_tag: u32,
    /// Whether the session continues without it if its login fails.
    pub is_optional: bool,
    /// Whether it was ever in the full feature phase.
    pub has_logged_in: bool,
    /// Whether this side is removing it.
    pub is_removed: bool,
    pub decoder: Decoder,
    pub parameters: Parameters,
    pub digests: Digests,
    pub login: Option<InitiatorLogin>,
    pub login_request: Option<LoginRequest>,
    /// ExpStatSN, from when it lags behind (S13).
    pub lagging_exp_stat_sn: Option<SerialNumber>,
    /// StatSN of the next status; none before the first.
    pub exp_stat_sn: Option<SerialNumber>,
    pub incoming: Incoming,
    pub segment: Vec<u8>,
    pub text: Vec<u8>,
    pub urgent: VecDeque<Urgent>,
    /// Tags of commands waiting to be sent.
    pub commands: VecDeque<u32>,
    /// Unsolicited data of the last command, which precedes the next command.
    pub unsolicited: Option<Burst>,
    /// Data requested by R2Ts, in their order.
    pub bursts: VecDeque<Burst>,
    /// Commands assigned to it that have not ended.
    pub task_count: usize,
    /// Stream offset of the next byte to be sent.
    pub sent_bytes: u64,
    pub opened_ns: i64,
    pub received_ns: i64,
    /// Whether a keepalive is outstanding.
    pub is_probed: bool,
}

impl Connection {
    pub(super) fn new(cid: u16, state: State) -> Self {
        Self { state, cid, login_tag: u32::from(cid), ..Self::default() }
    }

    /// ExpStatSN to be sent.
    pub(super) fn exp_stat_sn(&self) -> SerialNumber {
        self.exp_stat_sn.unwrap_or_default()
    }

    /// Negotiated parameters, from the next PDU on.
    pub(super) fn agree(&mut self, parameters: Parameters) {
        self.digests = parameters.digests();
        self.decoder.agree(self.digests, parameters.initiator_max_recv_data_segment_length);
        self.parameters = parameters;
    }

    /// Whether it accepts commands.
    pub(super) fn is_usable(&self) -> bool {
        self.state == State::Full
    }

    /// Whether it has not reached the full feature phase yet.
    pub(super) fn is_coming(&self) -> bool {
        matches!(self.state, State::Waiting | State::Wanted | State::Opening | State::Login)
    }

    /// Whether TCP is connected.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Login | State::Full | State::Leaving | State::LoggingOut)
    }

    /// Removes pending data of a command.
    pub(super) fn drop_task(&mut self, tag: u32) {
        self.commands.retain(|waiting| *waiting != tag);
        self.bursts.retain(|burst| burst.tag != tag);
        if self.unsolicited.is_some_and(|burst| burst.tag == tag) {
            self.unsolicited = None;
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Connection");
        shown.field("cid", &self.cid).field("state", &self.state).field("parameters", &self.parameters);
        shown.field("task_count", &self.task_count).finish_non_exhaustive()
    }
}
