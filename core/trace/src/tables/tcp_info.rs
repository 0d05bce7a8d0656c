//! What the kernels of the hosts say of their sockets. Filled only on request.

use super::declaration::table;

table! {
    /// one sample of the kernel's TCP_INFO of one socket of an iSCSI connection, in order of connection, direction and time
    TcpInfos TcpInfoRow "tcp_info" {
        /// the connection
        connection: u32;
        /// direction of the data that the socket sends: to target is the socket of the initiator's host
        to_target: bool;
        /// where the sample is from: 0 the capture, else the number of the file of samples
        source: u16;
        /// when it was taken, on the clock of the capture
        time_ns: i64 [ns], "method 5";
        /// congestion control, as the kernel names it
        congestion_control: String = null;
        /// congestion window
        cwnd_segments: u32 [segments] = null;
        /// slow start threshold; null before the first reduction
        ssthresh_segments: u32 [segments] = null;
        /// payload of a full segment, in which the kernel counts
        segment_bytes: u32 [bytes] = null;
        /// smoothed RTT
        rtt_ns: i64 [ns] = null;
        /// its variation
        rttvar_ns: i64 [ns] = null;
        /// minimum RTT
        rtt_min_ns: i64 [ns] = null;
        /// segments sent and not acknowledged
        unacked_segments: u32 [segments] = null;
        /// of these, selectively acknowledged ones
        sacked_segments: u32 [segments] = null;
        /// of these, segments that the sender deems lost
        lost_segments: u32 [segments] = null;
        /// retransmitted segments so far
        retransmitted_segments: u32 [segments] = null;
        /// payload sent so far, retransmissions included
        bytes_sent: u64 [bytes] = null;
        /// payload retransmitted so far
        bytes_retransmitted: u64 [bytes] = null;
        /// bytes acknowledged by the other end so far
        bytes_acked: u64 [bytes] = null;
        /// payload received so far
        bytes_received: u64 [bytes] = null;
        /// bytes in the send buffer that were not sent yet
        unsent_bytes: u32 [bytes] = null;
        /// advertised window of the other end, scaled
        rwnd_bytes: u32 [bytes] = null;
        /// most recent rate of delivery
        delivery_rate_bytes_per_s: u64 [B/s] = null;
        /// time with data in flight or to send so far
        busy_ns: i64 [ns] = null;
        /// of this, time limited by the receive window
        rwnd_limited_ns: i64 [ns] = null;
        /// of this, time limited by the send buffer
        sndbuf_limited_ns: i64 [ns] = null;
    }
}
