//! A connection of a session as its initiator keeps it: where it stands, and what waits to be sent on it.
//!
//! It never judges and never chooses what is sent next: `receive` and `transmit` do.

use std::collections::VecDeque;

use iscsitrace_wire::serial::SerialNumber;

use crate::protocol::keys::{Digest, Parameters};
use crate::protocol::login::{InitiatorLogin, LoginRequest};
use crate::protocol::pdu::{Decoder, Digests};
use crate::protocol::text::LOGIN_DATA_SEGMENT_MAX_BYTES;

/// Where a connection stands (RFC 7143 section 8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Not to be opened yet: the leading connection comes first.
    Waiting,
    /// To be opened.
    Wanted,
    /// Being opened.
    Opening,
    /// In the login phase.
    Login,
    /// In the full feature phase.
    Full,
    /// In the full feature phase, but asked to leave: it takes no more commands.
    Leaving,
    /// Its Logout Request is on its way, after which nothing may be sent.
    LoggingOut,
    Closed,
}

/// What the PDU that is coming in is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Incoming {
    /// Its data is not looked at.
    Skip,
    /// Its data is kept until it is whole.
    Collect,
    /// Its data goes to a task, from this offset on.
    Task { tag: u32, offset: u32 },
    /// Its data has to be that of a ping, from this byte on.
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
    pub data_sn: SerialNumber,
}

/// A PDU that no command window holds back.
#[derive(Debug, Clone, Copy)]
pub(super) enum Urgent {
    /// The answer to a ping of the target.
    PingReply { target_transfer_tag: u32, lun: [u8; 8] },
    /// A request under its own Initiator Task Tag.
    Request(u32),
    /// A text request that asks for more.
    MoreText { tag: u32, target_transfer_tag: u32, lun: [u8; 8] },
}

pub(super) struct Connection {
    pub state: State,
    pub cid: u16,
    /// Initiator Task Tag of its login.
    pub login_tag: u32,
    /// Whether the session goes on without it when it does not come to the full feature phase.
    pub is_optional: bool,
    /// Whether it was in the full feature phase once.
    pub has_logged_in: bool,
    /// Whether it leaves because this side has no more use for it.
    pub is_removed: bool,
    pub decoder: Decoder,
    pub parameters: Parameters,
    pub digests: Digests,
    pub login: Option<InitiatorLogin>,
    pub login_request: Option<LoginRequest>,
    /// StatSN that the next status has to have; none before the first.
    pub exp_stat_sn: Option<SerialNumber>,
    pub incoming: Incoming,
    pub segment: Vec<u8>,
    pub text: Vec<u8>,
    pub urgent: VecDeque<Urgent>,
    /// Tags of commands that wait to be sent.
    pub commands: VecDeque<u32>,
    /// Unsolicited data of the last command, which goes before the next.
    pub unsolicited: Option<Burst>,
    /// What R2Ts asked for, in their order.
    pub bursts: VecDeque<Burst>,
    /// Tasks that were given to it and have not ended.
    pub task_count: usize,
    /// Stream offset of the next byte to be sent.
    pub sent_bytes: u64,
    pub opened_ns: i64,
    pub received_ns: i64,
    /// Whether a keepalive is under way.
    pub is_probed: bool,
}

impl Connection {
    pub(super) fn new(cid: u16, state: State) -> Self {
        Self {
            state,
            cid,
            login_tag: u32::from(cid),
            is_optional: false,
            has_logged_in: false,
            is_removed: false,
            decoder: Decoder::new(LOGIN_DATA_SEGMENT_MAX_BYTES as u32),
            parameters: Parameters::default(),
            digests: Digests::default(),
            login: None,
            login_request: None,
            exp_stat_sn: None,
            incoming: Incoming::Skip,
            segment: Vec::new(),
            text: Vec::new(),
            urgent: VecDeque::new(),
            commands: VecDeque::new(),
            unsolicited: None,
            bursts: VecDeque::new(),
            task_count: 0,
            sent_bytes: 0,
            opened_ns: 0,
            received_ns: 0,
            is_probed: false,
        }
    }

    /// ExpStatSN to be sent.
    pub(super) fn exp_stat_sn(&self) -> SerialNumber {
        self.exp_stat_sn.unwrap_or_default()
    }

    /// What holds from the next PDU on.
    pub(super) fn agree(&mut self, parameters: Parameters) {
        self.digests = Digests {
            header: parameters.header_digest == Digest::Crc32c,
            data: parameters.data_digest == Digest::Crc32c,
        };
        self.decoder.agree(self.digests, parameters.initiator_max_recv_data_segment_length);
        self.parameters = parameters;
    }

    /// Whether it may take commands.
    pub(super) fn is_usable(&self) -> bool {
        self.state == State::Full
    }

    /// Whether it is not in the full feature phase yet.
    pub(super) fn is_coming(&self) -> bool {
        matches!(self.state, State::Waiting | State::Wanted | State::Opening | State::Login)
    }

    /// Whether TCP is there.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Login | State::Full | State::Leaving | State::LoggingOut)
    }

    /// Forgets what was to be sent for a task.
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
