"""The tables on TCP: packets, and how each sender behaved. All are filled on request only."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Table, column

SEGMENTS: Final = Table(
    "segments",
    "one TCP packet of an iSCSI connection (only when asked for)",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction"),
        column("frame", "uint64", "its frame"),
        column("time_ns", "int64", "its capture time", "ns"),
        column("stream_offset_bytes", "int64", "place of its first byte in its stream", "bytes"),
        column("payload_bytes", "uint32", "TCP payload on the wire", "bytes"),
        column("ack_offset_bytes", "int64", "place in the opposite stream that it acknowledges", "bytes", null=True),
        column("window_bytes", "uint32", "advertised window, scaled where the scale is known", "bytes"),
        column("flags", "uint8", "TCP flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128", source="RFC 9293 section 3.1"),
        column("segment_class", "category:segment_class", "what its payload is to the stream"),
    ),
)  # fmt: skip

SACKS: Final = Table(
    "sacks",
    "one block of a selective acknowledgment, by connection, in order of frames (only when asked for)",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction of the data that it speaks of"),
        column("frame", "uint64", "the frame that carried it"),
        column("time_ns", "int64", "its capture time", "ns"),
        column("left_offset_bytes", "int64", "place of its first byte in the stream of the data", "bytes", source="RFC 2018 section 3"),
        column("right_offset_bytes", "int64", "place after its last byte", "bytes", source="RFC 2018 section 3"),
        column("is_duplicate", "bool", "a D-SACK: it tells of bytes that came twice", source="RFC 2883 section 4"),
    ),
)  # fmt: skip

WINDOW: Final = Table(
    "window",
    "the outstanding data of one sender, whenever one of its values changes, as the sender sees it; by connection and direction, in order of time (only when asked for)",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction of the data"),
        column("time_ns", "int64", "when, at the sender: capture time less (data) or plus (ACKs) the delay between tap and sender", "ns", source="method 5"),
        column("frame", "uint64", "the frame that changed it"),
        column("owin_bytes", "int64", "highest byte sent less last byte acknowledged", "bytes", source="method 5"),
        column("pipe_bytes", "int64", "owin less what SACK says arrived and what is held for lost, plus what was sent again", "bytes", source="RFC 6675 section 4"),
        column("cwnd_estimate_bytes", "int64", "the congestion window as the sending shows it", "bytes", null=True, source="method 5"),
        column("is_valid", "bool", "whether the congestion window alone held the sender back, so that the estimate is one", source="method 5"),
        column("rwnd_bytes", "int64", "advertised window, scaled", "bytes", null=True, source="RFC 9293 section 3.8.6"),
    ),
)  # fmt: skip

ROUND_TRIPS: Final = Table(
    "round_trips",
    "one round-trip sample between the tap and one end: data to the first ACK that covers it (only when asked for)",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction of the data: whether the target's side of the tap was measured"),
        column("frame", "uint64", "the frame of the ACK"),
        column("time_ns", "int64", "its capture time", "ns"),
        column("rtt_ns", "int64", "time since the data, never retransmitted, passed the tap", "ns", source="RFC 6298 section 3"),
        column("is_handshake", "bool", "SYN to SYN-ACK, or SYN-ACK to ACK"),
    ),
)  # fmt: skip

RETRANSMISSIONS: Final = Table(
    "retransmissions",
    "one packet that was sent again (only when asked for)",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction"),
        column("frame", "uint64", "its frame"),
        column("time_ns", "int64", "its capture time", "ns"),
        column("stream_offset_bytes", "int64", "place of its first byte in the stream", "bytes"),
        column("payload_bytes", "uint32", "TCP payload", "bytes"),
        column("cause", "category:retransmission_cause", "what made the sender send it again", source="method 5"),
        column("is_spurious", "bool", "a D-SACK told that the bytes had come twice", source="RFC 2883 section 4"),
        column("original_frame", "uint64", "the frame that carried its first byte before; null: that copy was lost before the tap", null=True),
        column("original_ns", "int64", "its capture time", "ns", null=True),
    ),
)  # fmt: skip

RECOVERIES: Final = Table(
    "recoveries",
    "one loss and its repair (only when asked for)",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction of the data"),
        column("cause", "category:retransmission_cause", "how the sender found out"),
        column("time_first_ns", "int64", "when the loss showed at the tap: the packet after the hole, its first duplicate ACK, or the retransmission", "ns"),
        column("time_last_ns", "int64", "when all that was outstanding at the first retransmission was acknowledged; null when it never was", "ns", null=True),
        column("frame_first", "uint64", "the frame of time_first_ns"),
        column("frame_last", "uint64", "the frame of time_last_ns", null=True),
        column("retransmitted_packets", "uint32", "packets sent again meanwhile", "packets"),
        column("retransmitted_bytes", "uint64", "their payload", "bytes"),
        column("pipe_before_bytes", "int64", "pipe when the loss showed", "bytes"),
        column("pipe_after_bytes", "int64", "pipe when it was repaired", "bytes", null=True),
    ),
)  # fmt: skip

FLIGHTS: Final = Table(
    "flights",
    "one run of payload packets of one direction without a pause between them, and what was before it (only when asked for)",
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
        column("release", "category:release", "what the sender had waited for", source="method 4"),
        column("owin_before_bytes", "int64", "outstanding data during the pause, after the last packet sent", "bytes"),
        column("rwnd_before_bytes", "int64", "advertised window then, as the sender knew it", "bytes", null=True),
        column("is_within_pdu", "bool", "it goes on with a PDU that the flight before it began: the sender had more to send"),
        column("is_in_recovery", "bool", "a loss was being repaired"),
        column("has_retransmission", "bool", "some of its packets were sent again"),
    ),
)  # fmt: skip

SENDERS: Final = Table(
    "senders",
    "one direction of one iSCSI connection: how its sender behaved, and its path (only when asked for)",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction of the data"),
        column("rtt_min_ns", "int64", "least round-trip time between the tap and the receiver", "ns", null=True, source="method 1"),
        column("rtt_median_ns", "int64", "its median", "ns", null=True),
        column("rtt_p95_ns", "int64", "its 95th percentile", "ns", null=True),
        column("rtt_count", "uint64", "samples"),
        column("segment_bytes", "uint32", "payload of a full segment, as sent", "bytes", null=True),
        column("has_super_segments", "bool", "packets longer than a segment were captured (offload)"),
        column("window_scale", "uint8", "shift of the receiver's window field", null=True, source="RFC 7323 section 2.3"),
        column("is_window_scale_inferred", "bool", "the shift was not captured: it is the least that explains the outstanding data"),
        column("owin_max_bytes", "int64", "most outstanding data", "bytes"),
        column("rwnd_min_bytes", "int64", "least advertised window after the handshake", "bytes", null=True),
        column("rwnd_max_bytes", "int64", "largest advertised window", "bytes", null=True),
        column("window_full_ns", "int64", "time for which owin was within a segment of the advertised window", "ns"),
        column("zero_window_ns", "int64", "time for which the advertised window was zero", "ns"),
        column("fast_retransmit_count", "uint32", "retransmissions after duplicate or selective ACKs", "packets", source="RFC 5681 section 3.2"),
        column("timeout_count", "uint32", "retransmission timeouts", source="RFC 6298 section 5"),
        column("tail_probe_count", "uint32", "tail loss probes that sent bytes again", "packets", source="RFC 8985 section 7"),
        column("unknown_retransmit_count", "uint32", "retransmissions of which no cause was seen", "packets"),
        column("spurious_count", "uint32", "of all these, those that were not needed", "packets"),
        column("recovery_count", "uint32", "losses repaired"),
        column("recovery_ns", "int64", "time that their repair took", "ns"),
        column("ssthresh_guess_bytes", "int64", "pipe at the end of the first slow start that a loss ended", "bytes", null=True),
        column("restart_after_idle_count", "uint32", "times that the sender began anew with a small window after a pause", source="RFC 5681 section 4.1"),
        column("delayed_ack_max_ns", "int64", "longest that the receiver held an ACK back beyond the least round trip", "ns", null=True),
        column("bytes_per_ack", "uint32", "median of the payload that one ACK covers", "bytes", null=True),
        column("line_bytes_per_s", "int64", "pace of the payload where it passes without a pause: the narrowest line on the path", "B/s", null=True, source="method 4"),
        column("is_line_from_acks", "bool", "the pace is that of the ACKs: the line lies beyond the tap"),
    ),
)  # fmt: skip
