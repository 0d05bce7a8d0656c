//! The fields of Linux's TCP_INFO, for the truth of a run.

use super::endpoint::Endpoint;
use super::sender::recovery;

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpInfo {
    /// State of loss recovery.
    pub recovery: recovery::State,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Slow start threshold, in segments; 2147483647 before any loss.
    pub ssthresh: u32,
    /// Payload bytes of a full segment.
    pub snd_mss: u32,
    /// Smoothed RTT, in microseconds; 0 before the first sample.
    pub srtt_us: i64,
    /// Retransmission timeout, in microseconds.
    pub rto_us: i64,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Of these: selectively acknowledged.
    pub sacked: u32,
    /// Of these: marked lost.
    pub lost: u32,
    /// Retransmissions in flight.
    pub retransmitted: u32,
    /// Estimate of segments in flight (RFC 6675, section 4: pipe).
    pub pipe: u32,
    /// Segments retransmitted since the connection began.
    pub total_retransmissions: u64,
    /// Retransmission timeouts since the connection began.
    pub total_timeouts: u64,
    /// Window that the peer offers, in bytes.
    pub snd_wnd: u32,
    /// Bytes acknowledged by the peer.
    pub bytes_acked: i64,
    /// Bytes received in order.
    pub bytes_received: i64,
}

impl Endpoint {
    /// The fields, now.
    pub fn tcp_info(&self) -> TcpInfo {
        let (sender, receiver) = (&self.sender, &self.receiver);
        TcpInfo {
            recovery: sender.recovery.state,
            cwnd: sender.window.cwnd,
            ssthresh: sender.window.ssthresh,
            snd_mss: sender.mss,
            srtt_us: sender.round_trip.srtt_us(),
            rto_us: sender.round_trip.rto_us(),
            unacked: sender.board.packets_out(),
            sacked: sender.board.sacked_count,
            lost: sender.board.lost_count,
            retransmitted: sender.board.retransmitted_count,
            pipe: sender.board.pipe(),
            total_retransmissions: sender.retransmission_count,
            total_timeouts: sender.timeout_count,
            snd_wnd: sender.snd_wnd,
            bytes_acked: (sender.snd_una.min(sender.buffer.end()) - 1).max(0),
            bytes_received: receiver.bytes.next() - 1,
        }
    }
}
