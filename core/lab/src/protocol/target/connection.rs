//! One connection of a portal: its streams, and its queues.

use std::collections::VecDeque;
use std::net::SocketAddr;

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::serial::SerialNumber;

use super::command::Handle;
use super::ending::Ending;
use super::output::{Numbers, Outgoing, StatSn, Stream};
use crate::application::ConnectionNumber;
use crate::protocol::keys::Parameters;
use crate::protocol::login::TargetLogin;
use crate::protocol::pdu::{Decoder, Digests};
use crate::protocol::text::{Joiner, Splitter};

/// StatSN of the first Login Response.
const FIRST_STAT_SN: SerialNumber = SerialNumber(1);

/// The phase of a connection.
pub(super) enum Phase {
    /// The login phase.
    Login(Box<TargetLogin>),
    /// The full feature phase, in the session with this TSIH.
    FullFeature { tsih: u16 },
    /// Pending PDUs are still sent; received bytes are dropped.
    Over(Ending),
}

/// The destination of the current PDU's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sink {
    /// Kept until the PDU is complete.
    Collect,
    /// Directly to the logical unit, at this offset.
    Task(Handle, u32),
    /// To a command that waits for its turn, at this offset.
    Early(Handle, u32),
    /// Nowhere.
    Drop,
}

/// The purpose of a connection's timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deadline {
    /// The login.
    Login,
    /// Idle time before a ping.
    Quiet,
    /// The answer to a ping.
    Ping,
    /// The requested logout.
    Logout { seconds: i64 },
    /// Sending of its last responses.
    Close,
}

/// A sequence of Text Requests (RFC 7143 section 11.10).
#[derive(Default)]
pub(super) struct TextNegotiation {
    pub joiner: Joiner,
    /// The rest to be sent, and its Target Transfer Tag.
    pub answer: Option<(Splitter, u32)>,
    pub tag: u32,
}

/// One connection.
pub(super) struct Connection {
    pub peer: SocketAddr,
    /// The address that the peer connected to.
    pub local: SocketAddr,
    pub opened_ns: i64,
    pub last_received_ns: i64,
    pub phase: Phase,
    pub parameters: Parameters,
    /// TSIH of its session if it leads one.
    pub reserved_tsih: Option<u16>,
    /// TSIH and CID of the session that it joins, otherwise.
    pub joining: Option<(u16, u16)>,
    pub initiator_name: Option<String>,
    /// TSIH and CID, after its login.
    pub session: Option<(u16, u16)>,
    /// Index of its target.
    pub target: Option<usize>,
    pub decoder: Decoder,
    pub header: [u8; LENGTH_BYTES],
    pub sink: Sink,
    pub data: Vec<u8>,
    /// The judgement of the current Data-Out.
    pub is_wrong_data_out: bool,
    pub stream: Stream,
    /// Commands and immediate data before there is a session.
    pub numbers: Numbers,
    /// ExpStatSN of the initiator.
    pub exp_stat_sn: SerialNumber,
    pub ready: VecDeque<Outgoing>,
    /// Reads with data to send, in order.
    pub reads: VecDeque<Handle>,
    /// A PDU for a separate system call.
    pub alone: Option<Outgoing>,
    /// Bytes of the last system call: the network may not have taken them yet.
    pub transmitted_bytes: usize,
    /// Pending PDUs that return no credit: an initiator can cause any number of them.
    pub unbidden_count: usize,
    pub immediate_count: usize,
    pub deadline: Option<(i64, Deadline)>,
    /// Target Transfer Tag of the unanswered ping.
    pub ping: Option<u32>,
    pub text: TextNegotiation,
}

impl Connection {
    pub fn new(number: ConnectionNumber, peer: SocketAddr, local: SocketAddr, now_ns: i64, login: TargetLogin) -> Self {
        Self {
            peer,
            local,
            opened_ns: now_ns,
            last_received_ns: now_ns,
            phase: Phase::Login(Box::new(login)),
            parameters: Parameters::default(),
            reserved_tsih: None,
            joining: None,
            initiator_name: None,
            session: None,
            target: None,
            decoder: Decoder::default(),
            header: [0; LENGTH_BYTES],
            sink: Sink::Collect,
            data: Vec::new(),
            is_wrong_data_out: false,
            stream: Stream {
                connection: number,
                stat_sn: FIRST_STAT_SN,
                digests: Digests::default(),
                sent_bytes: 0,
                frozen_max_cmd_sn: None,
            },
            numbers: Numbers { exp_cmd_sn: SerialNumber(0), max_cmd_sn: SerialNumber(0) },
            exp_stat_sn: FIRST_STAT_SN,
            ready: VecDeque::new(),
            reads: VecDeque::new(),
            alone: None,
            transmitted_bytes: 0,
            unbidden_count: 0,
            immediate_count: 0,
            deadline: None,
            ping: None,
            text: TextNegotiation::default(),
        }
    }

    pub fn bhs(&self) -> Bhs<'_> {
        Bhs::new(&self.header)
    }

    /// TSIH of its session, in the full feature phase.
    pub fn tsih(&self) -> Option<u16> {
        match self.phase {
            Phase::FullFeature { tsih } => Some(tsih),
            _ => None,
        }
    }

    /// StatSN after the last status that was sent or queued.
    pub fn end_stat_sn(&self) -> SerialNumber {
        let waiting = self.ready.iter().chain(&self.alone).filter(|outgoing| outgoing.stat_sn == StatSn::Taken);
        self.stream.stat_sn + waiting.count() as u32
    }

    /// Whether it has bytes to send.
    pub fn has_output(&self) -> bool {
        self.alone.is_some() || !self.ready.is_empty() || !self.reads.is_empty()
    }
}
