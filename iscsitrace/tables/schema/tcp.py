"""TCP tables: packets, and the behaviour of each sender. All are filled only on request."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Table, column

SEGMENTS: Final = Table(
    "segments",
    "one TCP packet of an iSCSI connection",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction"),
        column("frame", "uint64", "its frame"),
        column("time_ns", "int64", "its capture time", "ns"),
        column("stream_offset_bytes", "int64", "offset of its first byte in its stream", "bytes"),
        column("payload_bytes", "uint32", "TCP payload on the wire", "bytes"),
        column("ack_offset_bytes", "int64", "offset in the opposite stream up to which it acknowledges", "bytes", null=True),
        column("window_bytes", "uint32", "advertised window, scaled where the scale is known", "bytes"),
        column("flags", "uint8", "TCP flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128", source="RFC 9293 section 3.1"),
        column("segment_class", "category:segment_class", "class of its payload: new, retransmission, reordered ..."),
    ),
)  # fmt: skip

SACKS: Final = Table(
    "sacks",
    "one block of a selective acknowledgment (SACK), by connection, in order of frames",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction of the data that it acknowledges"),
        column("frame", "uint64", "the frame that carried it"),
        column("time_ns", "int64", "its capture time", "ns"),
        column("left_offset_bytes", "int64", "offset of its first byte in the stream of the data", "bytes", source="RFC 2018 section 3"),
        column("right_offset_bytes", "int64", "offset after its last byte", "bytes", source="RFC 2018 section 3"),
        column("is_duplicate", "bool", "whether it is a D-SACK, which reports bytes received twice", source="RFC 2883 section 4"),
    ),
)  # fmt: skip

WINDOW: Final = Table(
    "window",
    "bytes in flight and windows of one sender, at each change, as the sender sees them; by connection and direction, in order of time",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction of the data"),
        column("time_ns", "int64", "time at the sender: capture time less (data) or plus (ACKs) the delay between tap and sender", "ns", source="method 5"),
        column("frame", "uint64", "the frame that caused the change"),
        column("owin_bytes", "int64", "highest byte sent less last byte acknowledged", "bytes", source="method 5"),
        column("pipe_bytes", "int64", "owin less SACKed bytes and bytes deemed lost, plus retransmitted ones", "bytes", source="RFC 6675 section 4"),
        column("cwnd_estimate_bytes", "int64", "estimated congestion window", "bytes", null=True, source="method 5"),
        column("is_valid", "bool", "whether the sender was cwnd-limited, so that the estimate is valid", source="method 5"),
        column("rwnd_bytes", "int64", "advertised window, scaled", "bytes", null=True, source="RFC 9293 section 3.8.6"),
    ),
)  # fmt: skip

ROUND_TRIPS: Final = Table(
    "round_trips",
    "one RTT sample between the tap and one end: from data to the first ACK that covers it",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction of the data: true for an RTT between tap and target"),
        column("frame", "uint64", "the frame of the ACK"),
        column("time_ns", "int64", "its capture time", "ns"),
        column("rtt_ns", "int64", "time since the data, which was never retransmitted, passed the tap", "ns", source="RFC 6298 section 3"),
        column("is_handshake", "bool", "whether it is SYN to SYN-ACK, or SYN-ACK to ACK"),
    ),
)  # fmt: skip

RETRANSMISSIONS: Final = Table(
    "retransmissions",
    "one retransmitted packet",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction"),
        column("frame", "uint64", "its frame"),
        column("time_ns", "int64", "its capture time", "ns"),
        column("stream_offset_bytes", "int64", "offset of its first byte in the stream", "bytes"),
        column("payload_bytes", "uint32", "TCP payload", "bytes"),
        column("cause", "category:retransmission_cause", "cause of the retransmission", source="method 5"),
        column("is_spurious", "bool", "whether it was unnecessary: a D-SACK reported the bytes, or Eifel detection applies", source="RFC 2883 section 4"),
        column("original_frame", "uint64", "the earlier frame with its first byte; null: that copy was lost before the tap", null=True),
        column("original_ns", "int64", "capture time of original_frame", "ns", null=True),
    ),
)  # fmt: skip

RECOVERIES: Final = Table(
    "recoveries",
    "one loss and the recovery from it",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction of the data"),
        column("cause", "category:retransmission_cause", "how the sender detected the loss"),
        column("time_first_ns", "int64", "first sign of the loss at the tap: the packet after the hole, its first duplicate ACK, or the retransmission", "ns"),
        column("time_last_ns", "int64", "when all bytes in flight at the first retransmission were acknowledged; null if they never were", "ns", null=True),
        column("frame_first", "uint64", "the frame of time_first_ns"),
        column("frame_last", "uint64", "the frame of time_last_ns", null=True),
        column("retransmitted_packets", "uint32", "retransmissions during the recovery", "packets"),
        column("retransmitted_bytes", "uint64", "their payload", "bytes"),
        column("pipe_before_bytes", "int64", "pipe at the first sign of the loss", "bytes"),
        column("pipe_after_bytes", "int64", "pipe at the end of the recovery", "bytes", null=True),
    ),
)  # fmt: skip

FLIGHTS: Final = Table(
    "flights",
    "one run of payload packets of one direction without a pause between them, and the pause before it",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction"),
        column("frame_first", "uint64", "its first frame"),
        column("frame_last", "uint64", "its last frame"),
        column("time_first_ns", "int64", "capture time of its first packet", "ns"),
        column("time_last_ns", "int64", "capture time of its last packet", "ns"),
        column("bytes", "uint64", "TCP payload", "bytes"),
        column("packet_count", "uint32", "packets", "packets"),
        column("pause_ns", "int64", "time since the flight before it in this direction; null for the first", "ns", null=True),
        column("release", "category:release", "what ended the sender's wait", source="method 4"),
        column("owin_before_bytes", "int64", "bytes in flight during the pause, after the last packet sent", "bytes"),
        column("rwnd_before_bytes", "int64", "advertised window during the pause, as the sender knew it", "bytes", null=True),
        column("is_within_pdu", "bool", "whether it continues a PDU of the flight before: the sender had more to send"),
        column("is_in_recovery", "bool", "whether TCP was recovering from a loss"),
        column("has_retransmission", "bool", "whether it contains retransmissions"),
    ),
)  # fmt: skip

SENDERS: Final = Table(
    "senders",
    "one direction of one iSCSI connection: the behaviour of its sender, and its path",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction of the data"),
        column("rtt_min_ns", "int64", "minimum RTT between the tap and the receiver", "ns", null=True, source="method 1"),
        column("rtt_median_ns", "int64", "median RTT", "ns", null=True),
        column("rtt_p95_ns", "int64", "95th percentile of the RTT", "ns", null=True),
        column("rtt_count", "uint64", "RTT samples"),
        column("segment_bytes", "uint32", "payload of a full segment, as sent", "bytes", null=True),
        column("has_super_segments", "bool", "whether packets longer than a segment were captured (offload)"),
        column("window_scale", "uint8", "shift of the receiver's window field", null=True, source="RFC 7323 section 2.3"),
        column("is_window_scale_inferred", "bool", "whether the shift was not captured; it is then the least that explains the bytes in flight"),
        column("owin_max_bytes", "int64", "maximum of the bytes in flight", "bytes"),
        column("rwnd_min_bytes", "int64", "smallest advertised window after the handshake", "bytes", null=True),
        column("rwnd_max_bytes", "int64", "largest advertised window", "bytes", null=True),
        column("window_full_ns", "int64", "time with owin within a segment of the advertised window", "ns"),
        column("zero_window_ns", "int64", "time with an advertised window of zero", "ns"),
        column("fast_retransmit_count", "uint32", "retransmissions after duplicate or selective ACKs", "packets", source="RFC 5681 section 3.2"),
        column("timeout_count", "uint32", "retransmission timeouts", source="RFC 6298 section 5"),
        column("tail_probe_count", "uint32", "tail loss probes that retransmitted bytes", "packets", source="RFC 8985 section 7"),
        column("unknown_retransmit_count", "uint32", "retransmissions of unknown cause", "packets"),
        column("spurious_count", "uint32", "spurious retransmissions among all of these", "packets"),
        column("recovery_count", "uint32", "losses that TCP recovered from"),
        column("recovery_ns", "int64", "time in recovery", "ns"),
        column("ssthresh_guess_bytes", "int64", "estimated ssthresh: pipe at the end of a first slow start that a loss ended", "bytes", null=True),
        column("restart_after_idle_count", "uint32", "restarts with a small window after an idle time", source="RFC 5681 section 4.1"),
        column("delayed_ack_max_ns", "int64", "longest delay of an ACK beyond the minimum RTT", "ns", null=True),
        column("bytes_per_ack", "uint32", "median payload covered by one ACK", "bytes", null=True),
        column("line_bytes_per_s", "int64", "rate of the bottleneck link: payload rate without pauses", "B/s", null=True, source="method 4"),
        column("is_line_from_acks", "bool", "whether the rate is that of the ACKs, because the bottleneck lies beyond the tap"),
    ),
)  # fmt: skip
