//! The sending half of an endpoint: what may be sent now.
//!
//! ```text
//! transmit     what may be sent now
//! buffer       bytes written, and the ends of writes
//! scoreboard   segments in flight: sacked, lost, retransmitted
//! acknowledge  processing of an ACK
//! transitions  the states Open, Disorder, CWR, Recovery, Loss (state: recovery)
//! losses       loss detection (state by time: rack)
//! reduction    proportional rate reduction
//! undo         undo of a spurious reduction
//! timeouts     retransmission timeout, loss probe, zero window probe (state: timer)
//! rtt          the round-trip time and the retransmission timeout
//! ```
//!
//! Places are counted from the SYN, which is at 0; the first byte is at 1. Transmissions go to `outgoing` as soon as an
//! event allows them, as in Linux; the endpoint makes the segments. It never reads a clock, and knows neither ports nor
//! the receiving half.

pub mod acknowledge;
pub mod buffer;
mod losses;
pub mod rack;
pub mod recovery;
mod reduction;
pub mod rtt;
pub mod scoreboard;
mod timeouts;
pub mod timer;
mod transitions;
mod transmit;
mod undo;

use super::congestion::CongestionWindow;
use super::settings::Settings;
use buffer::SendBuffer;
use rack::Rack;
use recovery::Recovery;
use rtt::RoundTrip;
use scoreboard::Scoreboard;
use timer::{Probe, Timer};

/// A part of the stream to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmission {
    /// Its first place.
    pub start: i64,
    /// The place behind it, SYN and FIN counted.
    pub end: i64,
    /// An empty segment below the window, which the receiver must answer (RFC 9293, section 3.8.6.1).
    pub is_window_probe: bool,
}

/// The sending half.
#[derive(Debug)]
pub struct Sender {
    /// Bytes written.
    pub buffer: SendBuffer,
    /// Segments in flight.
    pub board: Scoreboard,
    /// The congestion window.
    pub window: CongestionWindow,
    /// RTT and retransmission timeout.
    pub round_trip: RoundTrip,
    /// Oldest unacknowledged place.
    pub snd_una: i64,
    /// Next place to be sent.
    pub snd_nxt: i64,
    /// The window that the receiver offers, in bytes.
    pub snd_wnd: u32,
    /// The sequence number of the segment that offered it, as a place (RFC 9293, section 3.3.1: SND.WL1).
    pub snd_wl1: i64,
    /// The largest window offered so far.
    pub largest_window: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Selective acknowledgments were negotiated.
    pub has_sack: bool,
    /// Retransmissions so far.
    pub retransmission_count: u64,
    /// Retransmission timeouts so far.
    pub timeout_count: u64,
    /// Transmissions to be made, in order.
    pub outgoing: Vec<Transmission>,
    /// State and undo of recovery.
    pub recovery: Recovery,
    rack: Rack,
    timer: Option<(Timer, i64)>,
    probe: Probe,
    settings: Settings,
    /// The place of a FIN behind all bytes, once the application closed.
    pub fin: Option<i64>,
    /// The end of the last small segment (Minshall's modification of Nagle's algorithm).
    small_end: i64,
    last_data_ns: i64,
    is_cwnd_limited: bool,
    most_packets_out: u32,
    usage_end: i64,
    cwnd_used: u32,
    cwnd_stamp_ns: i64,
    /// The application has more bytes than fit into the buffer.
    pub is_buffer_limited: bool,
    sacked_before: [(i64, i64); 4],
}

impl Sender {
    /// A sender before its SYN.
    pub fn new(settings: &Settings) -> Self {
        Self {
            buffer: SendBuffer::new(settings.send_buffer_bytes as usize),
            board: Scoreboard::default(),
            window: CongestionWindow::new(settings),
            round_trip: RoundTrip::default(),
            snd_una: 0,
            snd_nxt: 0,
            snd_wnd: 0,
            snd_wl1: 0,
            largest_window: 0,
            mss: 536,
            has_sack: false,
            retransmission_count: 0,
            timeout_count: 0,
            outgoing: Vec::new(),
            recovery: Recovery::default(),
            rack: Rack::default(),
            timer: None,
            probe: Probe::default(),
            settings: settings.clone(),
            fin: None,
            small_end: 0,
            last_data_ns: 0,
            is_cwnd_limited: false,
            most_packets_out: 0,
            usage_end: 0,
            cwnd_used: 0,
            cwnd_stamp_ns: 0,
            is_buffer_limited: false,
            sacked_before: [(0, 0); 4],
        }
    }

    /// Sends the SYN.
    pub fn send_syn(&mut self, now_ns: i64) {
        self.board.push(0, 1, now_ns);
        self.snd_nxt = 1;
        self.outgoing.push(Transmission { start: 0, end: 1, is_window_probe: false });
        self.rearm_retransmission(now_ns);
    }

    /// The handshake is done: a lost SYN does not reduce the window, but a SYN lost twice leaves a window of one
    /// segment, as in Linux (RFC 6298, rule 5.7, asks for an RTO of 3 s instead).
    pub fn established(&mut self, now_ns: i64, is_active: bool) {
        let lost_syns = self.retransmission_count;
        self.window = CongestionWindow::new(&self.settings);
        self.window.begin(now_ns, self.snd_nxt);
        if is_active && lost_syns > 1 {
            self.window.cwnd = 1;
        }
        self.recovery = Recovery::default();
        self.cwnd_stamp_ns = now_ns;
        self.last_data_ns = now_ns;
        self.usage_end = self.snd_nxt;
    }

    /// Takes bytes, as one system call, and sends what may be sent.
    pub fn write(&mut self, now_ns: i64, bytes: &[u8]) -> usize {
        if self.fin.is_some() {
            return 0;
        }
        if self.buffer.end() == self.snd_nxt && self.buffer.room() > 0 {
            self.restart_after_idle(now_ns);
        }
        let taken = self.buffer.write(bytes, self.snd_nxt, self.largest_window);
        self.is_buffer_limited = taken < bytes.len();
        // A caller that waits for buffer space gets its small segment sent.
        self.transmit(now_ns, taken < bytes.len());
        taken
    }

    /// No more bytes follow; the FIN goes with the last of them.
    pub fn close(&mut self, now_ns: i64) {
        self.fin.get_or_insert(self.buffer.end());
        self.transmit(now_ns, false);
    }

    /// Whether all written bytes, and the FIN if any, are acknowledged.
    pub fn is_drained(&self) -> bool {
        self.snd_una >= self.end()
    }

    /// The end of the stream so far, with its FIN.
    fn end(&self) -> i64 {
        self.fin.map_or(self.buffer.end(), |fin| fin + 1)
    }
}
