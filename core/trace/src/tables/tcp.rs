//! TCP packets, and the behaviour of each sender. All are filled only on request.

use super::declaration::table;

table! {
    /// one TCP packet of an iSCSI connection
    Segments SegmentRow "segments" {
        /// the connection
        connection: u32;
        /// direction
        to_target: bool;
        /// its frame
        frame: u64;
        /// its capture time
        time_ns: i64 [ns];
        /// offset of its first byte in its stream
        stream_offset_bytes: i64 [bytes];
        /// TCP payload on the wire
        payload_bytes: u32 [bytes];
        /// offset in the opposite stream up to which it acknowledges
        ack_offset_bytes: i64 [bytes] = null;
        /// advertised window, scaled where the scale is known
        window_bytes: u32 [bytes];
        /// TCP flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128
        flags: u8, "RFC 9293 section 3.1";
        /// class of its payload: new, retransmission, reordered ...
        segment_class: u8(segment_class) = null;
    }
}

table! {
    /// one block of a selective acknowledgment (SACK), by connection, in order of frames
    Sacks Sack "sacks" {
        /// the connection
        connection: u32;
        /// direction of the data that it acknowledges
        to_target: bool;
        /// the frame that carried it
        frame: u64;
        /// its capture time
        time_ns: i64 [ns];
        /// offset of its first byte in the stream of the data
        left_offset_bytes: i64 [bytes], "RFC 2018 section 3";
        /// offset after its last byte
        right_offset_bytes: i64 [bytes], "RFC 2018 section 3";
        /// whether it is a D-SACK, which reports bytes received twice
        is_duplicate: bool, "RFC 2883 section 4";
    }
}

table! {
    /// bytes in flight and windows of one sender, at each change, as the sender sees them; by connection and direction,
    /// in order of time
    Windows Window "window" {
        /// the connection
        connection: u32;
        /// direction of the data
        to_target: bool;
        /// time at the sender: capture time less (data) or plus (ACKs) the delay between tap and sender
        time_ns: i64 [ns], "method 5";
        /// the frame that caused the change
        frame: u64;
        /// highest byte sent less last byte acknowledged
        owin_bytes: i64 [bytes], "method 5";
        /// owin less SACKed bytes and bytes deemed lost, plus retransmitted ones
        pipe_bytes: i64 [bytes], "RFC 6675 section 4";
        /// estimated congestion window
        cwnd_estimate_bytes: i64 [bytes] = null, "method 5";
        /// whether the sender was cwnd-limited, so that the estimate is valid
        is_valid: bool, "method 5";
        /// advertised window, scaled
        rwnd_bytes: i64 [bytes] = null, "RFC 9293 section 3.8.6";
    }
}

table! {
    /// one RTT sample between the tap and one end: from data to the first ACK that covers it
    RoundTrips RoundTrip "round_trips" {
        /// the connection
        connection: u32;
        /// direction of the data: true for an RTT between tap and target
        to_target: bool;
        /// the frame of the ACK
        frame: u64;
        /// its capture time
        time_ns: i64 [ns];
        /// time since the data, which was never retransmitted, passed the tap
        rtt_ns: i64 [ns], "RFC 6298 section 3";
        /// whether it is SYN to SYN-ACK, or SYN-ACK to ACK
        is_handshake: bool;
    }
}

table! {
    /// the RTT of one direction of a connection in 250 ms under load, queues included
    RttWindows RttWindow "rtt" {
        /// the connection
        connection: u32;
        /// direction of the data that were in flight
        to_target: bool;
        /// its beginning
        time_ns: i64 [ns], "method 5";
        /// least RTT of both ends
        rtt_least_ns: i64 [ns], "method 5";
        /// median of its samples
        rtt_median_ns: i64 [ns], "method 5";
        /// their number
        sample_count: u32;
        /// payload that the receiver reported as arrived
        delivered_bytes: u64 [bytes];
        /// bytes in flight, mean of the samples
        in_flight_bytes: i64 [bytes];
        /// whether data were in flight throughout
        is_busy: bool;
    }
}

table! {
    /// one retransmitted packet
    Retransmissions Retransmission "retransmissions" {
        /// the connection
        connection: u32;
        /// direction
        to_target: bool;
        /// its frame
        frame: u64;
        /// its capture time
        time_ns: i64 [ns];
        /// offset of its first byte in the stream
        stream_offset_bytes: i64 [bytes];
        /// TCP payload
        payload_bytes: u32 [bytes];
        /// cause of the retransmission
        cause: u8(retransmission_cause) = 3, "method 5";
        /// whether it was unnecessary: a D-SACK reported the bytes, or Eifel detection applies
        is_spurious: bool, "RFC 2883 section 4";
        /// the earlier frame with its first byte; null: that copy was lost before the tap
        original_frame: u64 = null;
        /// capture time of original_frame
        original_ns: i64 [ns] = null;
    }
}

table! {
    /// one loss and the recovery from it
    Recoveries Recovery "recoveries" {
        /// the connection
        connection: u32;
        /// direction of the data
        to_target: bool;
        /// how the sender detected the loss
        cause: u8(retransmission_cause) = 3;
        /// first sign of the loss at the tap: the packet after the hole, its first duplicate ACK, or the retransmission
        time_first_ns: i64 [ns];
        /// when all bytes in flight at the first retransmission were acknowledged, or its last retransmission, if that passed
        /// the tap after the ACK; null if they never were
        time_last_ns: i64 [ns] = null;
        /// the frame of time_first_ns
        frame_first: u64;
        /// the frame of time_last_ns
        frame_last: u64 = null;
        /// retransmissions during the recovery
        retransmitted_packets: u32 [packets];
        /// their payload
        retransmitted_bytes: u64 [bytes];
        /// how many of them were unnecessary (`is_spurious`); if all were, no data was lost
        spurious_packets: u32 [packets];
        /// where ACKs were lost, which a timer of the sender took for a loss of data; null where data was lost, too, where
        /// nothing was, and where the packets do not tell
        ack_loss: u8(ack_loss) = null, "method 5";
        /// how long the sender waited for ACKs that were held back, beyond the RTT
        delayed_ack_ns: i64 [ns], "RFC 9293 section 3.8.6.3";
        /// where nothing passed the path meanwhile: the receiver's last packet before; null without such a black-out
        black_out_first_ns: i64 [ns] = null, "method 5";
        /// the receiver's first packet after it
        black_out_last_ns: i64 [ns] = null, "method 5";
        /// how long it lasted at least: from the first packet that had no answer to the last one
        black_out_least_ns: i64 [ns] = null, "method 5";
        /// whether packets to the receiver were lost in it for certain
        is_black_out_to_receiver: bool, "method 5";
        /// whether packets of the receiver were lost in it, by their IP identifications
        is_black_out_from_receiver: bool, "method 5";
        /// pipe at the first sign of the loss
        pipe_before_bytes: i64 [bytes];
        /// pipe at the end of the recovery
        pipe_after_bytes: i64 [bytes] = null;
    }
}

table! {
    /// one run of payload packets of one direction without a pause between them, and the pause before it
    Flights Flight "flights" {
        /// the connection
        connection: u32;
        /// direction
        to_target: bool;
        /// its first frame
        frame_first: u64;
        /// its last frame
        frame_last: u64;
        /// capture time of its first packet
        time_first_ns: i64 [ns];
        /// capture time of its last packet
        time_last_ns: i64 [ns];
        /// TCP payload
        bytes: u64 [bytes];
        /// packets
        packet_count: u32 [packets];
        /// time since the flight before it in this direction; null for the first
        pause_ns: i64 [ns] = null;
        /// what ended the sender's wait
        release: u8(release) = 4, "method 4";
        /// bytes in flight during the pause, after the last packet sent
        owin_before_bytes: i64 [bytes];
        /// advertised window during the pause, as the sender knew it
        rwnd_before_bytes: i64 [bytes] = null;
        /// whether it continues a PDU of the flight before: the sender had more to send
        is_within_pdu: bool;
        /// whether TCP was recovering from a loss
        is_in_recovery: bool;
        /// whether it contains retransmissions
        has_retransmission: bool;
    }
}

table! {
    /// one direction of one iSCSI connection: the behaviour of its sender, and its path
    Senders SenderRow "senders" of (connection, to_target) {
        /// the connection
        connection: u32 => kept;
        /// direction of the data
        to_target: bool => kept;
        /// minimum RTT between the tap and the receiver
        rtt_min_ns: i64 [ns] = null, "method 1" => kept;
        /// RTT of the path between the tap and the receiver, without queues, and without packets that were faster
        rtt_path_ns: i64 [ns] = null, "method 5" => kept;
        /// median RTT
        rtt_median_ns: i64 [ns] = null => kept;
        /// 95th percentile of the RTT
        rtt_p95_ns: i64 [ns] = null => kept;
        /// RTT samples
        rtt_count: u64 => kept;
        /// least RTT between both ends while data were in flight, queues included; null where the tap shows none
        rtt_load_least_ns: i64 [ns] = null, "method 5" => kept;
        /// median of the same
        rtt_load_median_ns: i64 [ns] = null, "method 5" => kept;
        /// 95th percentile of the same
        rtt_load_p95_ns: i64 [ns] = null, "method 5" => kept;
        /// samples of the same
        rtt_load_count: u64 => kept;
        /// time with data in flight throughout and a queue that never emptied
        standing_queue_ns: i64 [ns], "method 5" => kept;
        /// median delay in that queue; null without one
        standing_queue_delay_ns: i64 [ns] = null, "method 5" => kept;
        /// the rate at which the data left it; null where that was not one rate
        standing_queue_bytes_per_s: i64 [B/s] = null, "method 5" => kept;
        /// payload of a full segment, as sent
        segment_bytes: u32 [bytes] = null => kept;
        /// whether packets longer than a segment were captured (offload)
        has_super_segments: bool => kept;
        /// shift of the receiver's window field
        window_scale: u8 = null, "RFC 7323 section 2.3" => kept;
        /// whether the shift was not captured; it is then the least that explains the bytes in flight
        is_window_scale_inferred: bool => kept;
        /// maximum of the bytes in flight
        owin_max_bytes: i64 [bytes] => kept;
        /// median of the bytes in flight when it stopped for room in its send buffer; null where it did so fewer than 12 times
        sndbuf_level_bytes: i64 [bytes] = null, "method 5" => kept;
        /// smallest advertised window after the handshake
        rwnd_min_bytes: i64 [bytes] = null => kept;
        /// largest advertised window
        rwnd_max_bytes: i64 [bytes] = null => kept;
        /// time with owin within a segment of the advertised window
        window_full_ns: i64 [ns] => counter;
        /// time with an advertised window of zero
        zero_window_ns: i64 [ns] => counter;
        /// time with more to send than the receiver's window had room for; null where the scale of the window is not known
        rwnd_limited_ns: i64 [ns] = null, "method 5" => counter;
        /// time with more to send, held by the congestion window
        cwnd_limited_ns: i64 [ns], "method 5" => counter;
        /// time with more to send, held by a full send buffer
        sndbuf_limited_ns: i64 [ns], "method 5" => counter;
        /// time with data in flight or to send, as TCP_INFO counts; null without samples of the sender's host. With them, the times limited by windows and send buffer are those of TCP_INFO, too
        kernel_busy_ns: i64 [ns] = null, "method 5" => counter;
        /// retransmitted segments, as TCP_INFO counts; null without samples of the sender's host
        kernel_retransmitted_segments: u32 [segments] = null, "method 5" => counter;
        /// congestion control, as its reductions after losses tell; null where they do not
        congestion_control: u8(congestion_control) = null, "method 5" => kept;
        /// retransmissions after duplicate or selective ACKs
        fast_retransmit_count: u32 [packets], "RFC 5681 section 3.2" => counter;
        /// retransmission timeouts
        timeout_count: u32, "RFC 6298 section 5" => counter;
        /// tail loss probes that retransmitted bytes
        tail_probe_count: u32 [packets], "RFC 8985 section 7" => counter;
        /// retransmissions of unknown cause
        unknown_retransmit_count: u32 [packets] => counter;
        /// spurious retransmissions among all of these
        spurious_count: u32 [packets] => counter;
        /// recoveries from a loss of data: not all of their retransmissions were spurious or followed lost ACKs
        recovery_count: u32 => counter;
        /// time in recovery
        recovery_ns: i64 [ns] => counter;
        /// estimated ssthresh: pipe at the end of a first slow start that a loss ended
        ssthresh_guess_bytes: i64 [bytes] = null => kept;
        /// restarts with a small window after an idle time
        restart_after_idle_count: u32, "RFC 5681 section 4.1" => counter;
        /// ACKs that were held back while a recovery or slow start waited for them
        delayed_ack_wait_count: u32, "method 5" => counter;
        /// how long it waited for them, beyond the RTT
        delayed_ack_wait_ns: i64 [ns], "RFC 9293 section 3.8.6.3" => counter;
        /// the frame of the ACK that was held back longest
        delayed_ack_wait_frame: u64 = null => of delayed_ack_wait_count;
        /// largest payload of a packet that was acknowledged without a retransmission; at most the MSS, if it is known
        arrived_segment_bytes: u32 [bytes] => kept;
        /// a segment that did not arrive for a second or more while smaller packets did: its bytes; null without one
        blocked_bytes: i64 [bytes] = null, "method 5" => of blocked_frame blocked_last_ns;
        /// its retransmissions; 0 where its bytes never reached the tap
        blocked_retransmissions: u32 [packets] => of blocked_frame blocked_last_ns;
        /// its first retransmission; where its bytes never reached the tap, the packet before them
        blocked_first_ns: i64 [ns] = null => of blocked_frame blocked_last_ns;
        /// when it arrived at last, or its receiver's last packet
        blocked_last_ns: i64 [ns] = null => of blocked_frame blocked_last_ns;
        /// the frame of its first retransmission, or of the smaller packet that passed
        blocked_frame: u64 = null => of blocked_frame blocked_last_ns;
        /// whether only its size explains it; a black-out may look the same else
        is_blocked_by_size: bool => of blocked_frame blocked_last_ns;
        /// longest delay of an ACK beyond the minimum RTT
        delayed_ack_max_ns: i64 [ns] = null => kept;
        /// median payload covered by one ACK
        bytes_per_ack: u32 [bytes] = null => kept;
        /// number of the bottleneck line: connections with the same number share it; null: its rate was not reached
        line: u32 = null, "method 4" => kept;
        /// its rate, estimated, in TCP payload of full segments: median of stretches in which it had a queue
        line_bytes_per_s: i64 [B/s] = null, "method 4" => kept;
        /// the same with headers, Ethernet included
        line_wire_bytes_per_s: i64 [B/s] = null, "method 4" => kept;
        /// lower quartile of these stretches
        line_low_bytes_per_s: i64 [B/s] = null, "method 4" => kept;
        /// upper quartile of these stretches
        line_high_bytes_per_s: i64 [B/s] = null, "method 4" => kept;
        /// their number
        line_stretch_count: u32 => kept;
        /// median time in the queue of the line
        line_queue_ns: i64 [ns] = null, "method 4" => kept;
        /// whether ACKs show the rate, because the bottleneck lies beyond the tap
        is_line_from_acks: bool => kept;
    }
}
