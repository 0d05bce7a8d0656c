//! One end of one TCP connection (RFC 9293): what a world calls.
//!
//! ```text
//!   connect, receive, write, consume, close, handle_timeout   ->   poll_transmit until there is nothing
//!                                                             ->   poll_timeout: when to call again
//! ```
//!
//! After each call, poll the resulting segments with `poll_transmit` at once: they carry the time of the call. The
//! endpoint is deterministic. It never panics on input, and never keeps more than its buffers.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::receiver::Receiver;
use super::segment::{ACK, RST, Segment};
use super::sender::Sender;
use super::settings::Settings;

/// Which end opens the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends the first SYN.
    Active,
    /// Waits for it.
    Passive,
}

/// State of the connection (RFC 9293, section 3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are RFC 9293's")]
pub enum State {
    Closed,
    Listen,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

/// Why a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// A RST answered the SYN.
    #[error("connection refused")]
    Refused,
    /// A RST arrived later.
    #[error("connection reset by peer")]
    Reset,
    /// Retransmissions were not answered.
    #[error("connection timed out")]
    TimedOut,
}

/// How long TIME-WAIT lasts in Linux.
pub(super) const TIME_WAIT_NS: i64 = 60_000_000_000;

/// One end.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) settings: Settings,
    pub(super) state: State,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// Sequence number of our SYN.
    pub(super) iss: u32,
    /// Sequence number of the peer's SYN.
    pub(super) irs: u32,
    /// Offset of the timestamp clock, added to milliseconds (RFC 7323, section 5.4).
    pub(super) timestamp_offset: u32,
    pub(super) has_timestamps: bool,
    /// The timestamp to be echoed (RFC 7323, section 4.3: TS.Recent).
    pub(super) ts_recent: u32,
    /// Shift of the peer's window field.
    pub(super) peer_window_scale: u8,
    /// The peer understands window scaling.
    pub(super) has_window_scaling: bool,
    /// Payload bytes of a segment with timestamps and without other options.
    pub(super) full_mss: u32,
    pub(super) identification: u16,
    pub(super) queue: VecDeque<Segment>,
    pub(super) close_at_ns: Option<i64>,
    /// Nobody reads what arrives.
    pub(super) is_read_closed: bool,
    pub(super) error: Option<ConnectionError>,
}

impl Endpoint {
    /// A closed end, or one in LISTEN; `seed` determines the initial sequence number and other random values.
    pub fn new(settings: Settings, role: Role, local: SocketAddr, remote: SocketAddr, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self {
            state: if role == Role::Passive { State::Listen } else { State::Closed },
            local,
            remote,
            sender: Sender::new(&settings),
            receiver: Receiver::new(&settings),
            iss: random.u32(..),
            irs: 0,
            timestamp_offset: random.u32(..),
            has_timestamps: false,
            ts_recent: 0,
            peer_window_scale: 0,
            has_window_scaling: false,
            full_mss: 536,
            identification: random.u16(..),
            queue: VecDeque::new(),
            close_at_ns: None,
            is_read_closed: false,
            error: None,
            settings,
        }
    }

    /// Sends the SYN, once; only an active end does.
    pub fn connect(&mut self, now_ns: i64) {
        if self.state == State::Closed && self.sender.snd_nxt == 0 {
            self.state = State::SynSent;
            self.sender.send_syn(now_ns);
            self.flush(now_ns);
        }
    }

    /// Writes bytes into the send buffer, as one system call; returns how many fit.
    pub fn write(&mut self, now_ns: i64, bytes: &[u8]) -> usize {
        if !matches!(self.state, State::Established | State::CloseWait) || bytes.is_empty() {
            return 0;
        }
        self.prepare_mss();
        let taken = self.sender.write(now_ns, bytes);
        self.flush(now_ns);
        taken
    }

    /// Bytes that [`Endpoint::write`] would take now.
    pub fn write_room(&self) -> usize {
        match self.state {
            State::Established | State::CloseWait => self.sender.buffer.room(),
            _ => 0,
        }
    }

    /// Whether a blocked writer would be woken: a third of the send buffer is free, as in Linux.
    pub fn is_writable(&self) -> bool {
        self.write_room() * 3 >= self.settings.send_buffer_bytes as usize
    }

    /// The first piece of the bytes received in order. Empty when there are none.
    pub fn readable(&self) -> &[u8] {
        self.receiver.bytes.readable()
    }

    /// Consumes readable bytes; may open the window.
    pub fn consume(&mut self, now_ns: i64, count: usize) {
        if self.receiver.consume(count) && self.is_synchronized() {
            self.send_ack(now_ns);
        }
    }

    /// Closes this direction: a FIN follows the written bytes. The peer may continue to send.
    pub fn close(&mut self, now_ns: i64) {
        match self.state {
            State::Listen | State::SynSent => self.end(None),
            State::SynReceived | State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => return,
        }
        if self.state != State::Closed {
            self.prepare_mss();
            self.sender.close(now_ns);
            self.flush(now_ns);
        }
    }

    /// Closes both directions, as an application that closes its socket does: a RST answers new bytes of the peer
    /// (RFC 9293, section 3.6.1).
    pub fn close_both(&mut self, now_ns: i64) {
        self.is_read_closed = true;
        self.close(now_ns);
    }

    /// Aborts: drops all data and sends a RST.
    pub fn abort(&mut self, now_ns: i64) {
        if self.is_synchronized() && self.state != State::TimeWait {
            let mut segment = self.segment(now_ns, self.sender.snd_nxt, RST | ACK);
            segment.options = Default::default();
            self.queue.push_back(segment);
        }
        self.end(None);
    }

    /// The next segment to be sent.
    pub fn poll_transmit(&mut self, _now_ns: i64) -> Option<Segment> {
        self.queue.pop_front()
    }

    /// When to call [`Endpoint::handle_timeout`]; none without a timer.
    pub fn poll_timeout(&self) -> Option<i64> {
        if self.state == State::Closed {
            return None;
        }
        [self.sender.poll_timeout(), self.receiver.acknowledgment.poll_timeout(), self.close_at_ns]
            .into_iter()
            .flatten()
            .min()
    }

    /// The time that [`Endpoint::poll_timeout`] named has come.
    pub fn handle_timeout(&mut self, now_ns: i64) {
        if self.state == State::Closed {
            return;
        }
        if self.close_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.end(None);
            return;
        }
        let rto_ns = self.sender.round_trip.rto_us() * 1000;
        if self.receiver.acknowledgment.handle_timeout(now_ns, rto_ns) {
            self.send_ack(now_ns);
        }
        self.prepare_mss();
        if !self.sender.handle_timeout(now_ns) {
            self.end(Some(ConnectionError::TimedOut));
            return;
        }
        self.flush(now_ns);
    }

    /// State of the connection.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it failed.
    pub fn error(&self) -> Option<ConnectionError> {
        self.error
    }

    /// Whether the handshake is done.
    pub fn is_synchronized(&self) -> bool {
        !matches!(self.state, State::Closed | State::Listen | State::SynSent | State::SynReceived)
    }

    /// Whether the peer closed its direction, and everything received was consumed.
    pub fn is_read_finished(&self) -> bool {
        self.receiver.is_finished() && self.readable().is_empty()
    }

    /// Whether all written bytes, and the FIN if any, are acknowledged.
    pub fn is_drained(&self) -> bool {
        self.sender.is_drained()
    }

    /// This end's address and the other's.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.local, self.remote)
    }

    /// Ends the connection; received bytes can still be read.
    pub(super) fn end(&mut self, error: Option<ConnectionError>) {
        self.state = State::Closed;
        self.error = self.error.or(error);
        self.sender.stop_timer();
        self.close_at_ns = None;
    }
}
