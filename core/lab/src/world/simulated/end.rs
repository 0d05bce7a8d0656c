//! One end of a simulated connection: TCP, the application's bytes that TCP has not taken yet, and a log of windows.
//! Knows no other end, and no link.

use serde::{Deserialize, Serialize};

use crate::application::{Application, Closed, ConnectionNumber};
use crate::tcp::{Endpoint, State, TcpInfo};

/// Which changes of the sending half are logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpLog {
    /// None.
    None,
    /// Changes of the congestion window and its threshold.
    #[default]
    Windows,
    /// Also of the window that the peer offers, and of the pipe: about every packet.
    Pipe,
}

/// The state of the sending half after a change: a row of [`Windows`].
struct Sample {
    time_ns: i64,
    cwnd: u32,
    ssthresh: u32,
    snd_wnd: u32,
    pipe: u32,
    srtt_us: i64,
    unacked: u32,
}

/// The windows of an end over time: a row per logged change.
#[derive(Debug, Default, Serialize)]
pub struct Windows {
    /// Time.
    pub time_ns: Vec<i64>,
    /// Congestion window, in segments.
    pub cwnd: Vec<u32>,
    /// Slow start threshold, in segments.
    pub ssthresh: Vec<u32>,
    /// Window that the peer offers, in bytes.
    pub snd_wnd_bytes: Vec<u32>,
    /// Pipe: estimate of segments in flight (RFC 6675, section 4).
    pub pipe: Vec<u32>,
    /// Smoothed RTT, in microseconds.
    pub srtt_us: Vec<i64>,
    /// Segments sent and not acknowledged.
    pub unacked: Vec<u32>,
}

/// The log of one end of a connection.
#[derive(Debug, Serialize)]
pub struct EndLog {
    /// Port of the initiator, which identifies the connection on both hosts and in the captures.
    pub initiator_port: u16,
    /// Payload bytes of a full segment.
    pub snd_mss: u32,
    /// Retransmissions.
    pub retransmitted_segment_count: u64,
    /// Retransmission timeouts.
    pub timeout_count: u64,
    /// Its windows over time: the state after each instant with a change.
    pub windows: Windows,
}

pub(super) struct End {
    pub endpoint: Endpoint,
    pub initiator_port: u16,
    pub is_open: bool,
    pub is_closing: bool,
    /// This host reset it.
    pub is_aborted: bool,
    /// Its timer, as registered with the host.
    pub timeout_ns: Option<i64>,
    /// Waits until a third of the send buffer is free, as a blocked writer does.
    is_blocked: bool,
    out: Vec<u8>,
    written: usize,
    samples: Vec<Sample>,
}

impl End {
    pub fn new(endpoint: Endpoint, initiator_port: u16) -> Self {
        Self {
            endpoint,
            initiator_port,
            is_open: false,
            is_closing: false,
            is_aborted: false,
            timeout_ns: None,
            is_blocked: false,
            out: Vec::new(),
            written: 0,
            samples: Vec::new(),
        }
    }

    /// Whether the connection ended, and how. In TIME-WAIT it has ended, and only answers.
    pub fn ending(&self) -> Option<Closed> {
        let endpoint = &self.endpoint;
        if self.is_aborted {
            return Some(Closed::Failed("reset by its own host".to_owned()));
        }
        if let Some(error) = endpoint.error() {
            return Some(Closed::Failed(error.to_string()));
        }
        let is_over = endpoint.is_read_finished() && endpoint.state() != State::TimeWait;
        (is_over || endpoint.state() == State::Closed).then_some(Closed::ByPeer)
    }

    /// Fills the send buffer with the application's bytes, one system call after another; closes after the last one.
    /// Returns whether there were any.
    pub fn transmit(&mut self, now_ns: i64, number: ConnectionNumber, application: &mut dyn Application) -> bool {
        if self.is_blocked && !self.endpoint.is_writable() {
            return false;
        }
        let mut has_said = std::mem::take(&mut self.is_blocked);
        loop {
            if self.written == self.out.len() {
                self.out.clear();
                self.written = 0;
                application.poll_transmit(now_ns, number, &mut self.out);
                if self.out.is_empty() {
                    break;
                }
            }
            has_said = true;
            self.written += self.endpoint.write(now_ns, &self.out[self.written..]);
            if self.written < self.out.len() {
                self.is_blocked = true;
                return true;
            }
        }
        if self.is_closing {
            self.endpoint.close_both(now_ns);
        }
        has_said || self.is_closing
    }

    /// Logs its windows, if they changed.
    pub fn sample(&mut self, now_ns: i64, log: TcpLog) {
        let TcpInfo { cwnd, ssthresh, snd_wnd, pipe, srtt_us, unacked, .. } = self.endpoint.tcp_info();
        let sample = Sample { time_ns: now_ns, cwnd, ssthresh, snd_wnd, pipe, srtt_us, unacked };
        let is_news = match (log, self.samples.last()) {
            (TcpLog::None, _) => false,
            (_, None) => true,
            (TcpLog::Windows, Some(last)) => (last.cwnd, last.ssthresh) != (cwnd, ssthresh),
            (TcpLog::Pipe, Some(last)) => {
                (last.cwnd, last.ssthresh, last.snd_wnd, last.pipe) != (cwnd, ssthresh, snd_wnd, pipe)
            }
        };
        if is_news {
            self.samples.pop_if(|last| last.time_ns == now_ns);
            self.samples.push(sample);
        }
    }

    /// Its final state.
    pub fn log(self) -> EndLog {
        let mut windows = Windows::default();
        for sample in &self.samples {
            windows.time_ns.push(sample.time_ns);
            windows.cwnd.push(sample.cwnd);
            windows.ssthresh.push(sample.ssthresh);
            windows.snd_wnd_bytes.push(sample.snd_wnd);
            windows.pipe.push(sample.pipe);
            windows.srtt_us.push(sample.srtt_us);
            windows.unacked.push(sample.unacked);
        }
        let info = self.endpoint.tcp_info();
        EndLog {
            initiator_port: self.initiator_port,
            snd_mss: info.snd_mss,
            retransmitted_segment_count: info.total_retransmissions,
            timeout_count: info.total_timeouts,
            windows,
        }
    }
}
