"""Columns and tables that are computed from those of the pass. ``tables/phases.py`` computes the columns of ``cycles``,
``events/derived.py`` events, mirrors and streams, ``taps/reading.py`` what several taps show together,
and ``fleet/periods.py`` what a dataset has of each period.
Also the sidecar of a capture, the results for single frames that Wireshark's plugin shows. It is not a table of a trace.
"""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Declaration, column

DERIVED_CYCLE_COLUMNS: Final = (
    column("request_ns", "int64", "read: command_first to data_first; no data: command_first to status", "ns", null=True, source="method 3"),
    column("grant_ns", "int64", "write with R2T: command_first to r2t_first", "ns", null=True, source="method 3"),
    column("transfer_ns", "int64", "read: data_first to data_last; write: r2t_first (command_first without R2T) to the last data byte", "ns", null=True, source="method 3"),
    column("service_ns", "int64", "write: last data byte to status", "ns", null=True, source="method 3"),
    column("status_wait_ns", "int64", "read: data_last to status, 0 if the status is in the last Data-In", "ns", null=True, source="method 3"),
    column("ack_ns", "int64", "data_last to data_acked", "ns", null=True, source="method 3"),
    column("turnaround_ns", "int64", "status to next_command", "ns", null=True, source="method 3"),
    column("latency_ns", "int64", "command_first to status: the sum of request, grant, transfer, service and status_wait", "ns", null=True, source="method 3"),
    column("period_ns", "int64", "command_first to next_command: latency + turnaround", "ns", null=True, source="method 3"),
)  # fmt: skip
"""Columns of ``cycles`` that are differences of its timestamps; computed on use, always exported."""

EVENTS: Final = Declaration(
    "events",
    "one event: what happened to a connection, a session or a command, in order of time",
    (
        column("event", "uint32", "number, from 0"),
        column("time_ns", "int64", "when it happened or began", "ns"),
        column("end_ns", "int64", "when it ended; null where it has no length, or had not ended in the capture", "ns", null=True),
        column("frame", "uint64", "the frame that shows it", null=True),
        column("session", "uint32", "its session", null=True),
        column("connection", "uint32", "its connection", null=True),
        column("lun", "uint64", "its logical unit", null=True),
        column("cycle", "uint32", "row of its command in cycles", null=True),
        column("kind", "category:event_kind", "what happened"),
        column("severity", "category:severity", "info: expected in healthy traffic; warning and error: look at it; data_loss: the capture misses something"),
        column("text", "str", "what happened, in words; equal for events that differ only in time, frame, connection and command"),
    ),
)  # fmt: skip

MIRRORED_WRITES: Final = Declaration(
    "mirrored_writes",
    "one write that the sessions of a mirror sent to all its targets, by mirror, in order of time",
    (
        column("mirror", "uint32", "number of the mirror, from 0", source="method 9"),
        column("mirrored_write", "uint32", "number among all mirrored writes, from 0"),
        column("lba", "uint64", "first logical block, on the mirror's first side", "blocks"),
        column("block_count", "uint64", "logical blocks, on the first side", "blocks"),
        column("bytes", "uint64", "payload on each side", "bytes"),
        column("leg_count", "uint8", "mirror sides"),
        column("begin_ns", "int64", "first packet of the first command, on any side", "ns", source="method 9"),
        column("end_ns", "int64", "last status, on any side", "ns", null=True, source="method 9"),
        column("skew_ns", "int64", "from completion on the first side to completion on the last: the wait of the faster side", "ns", null=True, source="method 9"),
        column("first_session", "uint32", "the session that completed first", null=True),
        column("last_session", "uint32", "the session that completed last", null=True),
        column("cause", "category:mirror_cause", "cause of the skew", source="method 9"),
        column("cause_ns", "int64", "part of the skew that the cause explains", "ns", null=True, source="method 9"),
    ),
)  # fmt: skip

MIRROR_LEGS: Final = Declaration(
    "mirror_legs",
    "one mirrored write on one side of the mirror",
    (
        column("mirrored_write", "uint32", "the mirrored write"),
        column("leg", "uint8", "number of the side in its mirror, from 0"),
        column("session", "uint32", "the session that carried it; if there are several, the one that completed it"),
        column("lun", "uint64", "logical unit"),
        column("cycle", "uint32", "row of its first command in cycles"),
        column("cycle_count", "uint32", "number of commands: a host may split the write differently on each side", "commands"),
        column("r2t_count", "uint32", "most R2Ts of one of these commands", "PDUs"),
        column("begin_ns", "int64", "first packet of its first command", "ns"),
        column("end_ns", "int64", "its last status", "ns", null=True),
        column("wait_ns", "int64", "from its last status to the last status of the slowest side", "ns", null=True),
        column("command_frame", "uint64", "frame of its first command"),
        column("status_frame", "uint64", "frame of its last status", null=True),
    ),
)  # fmt: skip

STREAMS: Final = Declaration(
    "streams",
    "one connection of a set of parallel streams (a job), which begin together and carry the same kind of commands",
    (
        column("job", "uint32", "number of the job, from 0", source="method 10"),
        column("connection", "uint32", "the connection"),
        column("session", "uint32", "its session", null=True),
        column("to_target", "bool", "direction of its data"),
        column("bytes", "uint64", "payload of its commands", "bytes"),
        column("time_first_ns", "int64", "its first command", "ns"),
        column("time_last_ns", "int64", "its last status: the end of the stream", "ns"),
        column("bytes_per_s", "int64", "bytes / time from first command to last status", "B/s", source="method 10"),
        column("behind_ns", "int64", "time between the end of the first stream and its own end", "ns", source="method 10"),
        column("retransmitted_packets", "uint64", "retransmissions in the direction of its data", "packets"),
        column("packets", "uint64", "packets in that direction", "packets"),
        column("loss_count", "uint32", "losses that TCP recovered from, timeouts included"),
        column("timeout_count", "uint32", "of these, losses that a timeout detected"),
        column("is_slow", "bool", "whether its throughput is below nine tenths of the fastest one's", source="method 10"),
        column("cause", "category:stream_cause", "cause of a slow stream; null: not slow, or cause unknown", source="method 10"),
        column("cause_time_ns", "int64", "start of the cause: the loss, or the first wait for the window", "ns", null=True),
        column("cause_frame", "uint64", "the frame that shows it", null=True),
    ),
)  # fmt: skip

_HELD = "time in which its TCP was sending, or waited for ACKs, windows or retransmissions"

LEGS: Final = Declaration(
    "legs",
    "one command at the initiator's tap, with the time that each host and each direction of the network took",
    (
        column("cycle", "uint32", "row of the command in cycles"),
        column("initiator_ns", "int64", "in the initiator's host, up to its tap: from the command, and from each R2T that counts, to the last byte sent for it; the four legs add up to latency_ns; null where the command is not complete at both taps", "ns", null=True, source="method 14"),
        column("to_target_ns", "int64", "on the network to the target, recovery of losses included", "ns", null=True, source="method 14"),
        column("target_ns", "int64", "in the target, behind its tap: from the last byte that it waited for to R2T or status", "ns", null=True, source="method 14"),
        column("to_initiator_ns", "int64", "on the network to the initiator", "ns", null=True, source="method 14"),
        column("initiator_held_ns", "int64", f"of initiator_ns, {_HELD}", "ns", null=True, source="method 14"),
        column("target_held_ns", "int64", f"of target_ns, {_HELD}", "ns", null=True, source="method 14"),
    ),
)  # fmt: skip

TAPS: Final = Declaration(
    "taps",
    "two taps, next to each other on the way from the initiator to the target",
    (
        column("tap_a", "str", "name of the tap nearer to the initiator"),
        column("tap_b", "str", "name of the tap nearer to the target"),
        column("commands", "uint32", "commands that both captures have", "commands"),
        column("clock_offset_ns", "int64", "clock of b minus clock of a, where it is known "
        "best", "ns", source="method 14"),
        column("clock_offset_low_ns", "int64", "least offset that the captures allow at that time", "ns", source="method 14"),
        column("clock_offset_high_ns", "int64", "greatest offset that they allow", "ns", source="method 14"),
        column("clock_time_ns", "int64", "that time, on the clock of a", "ns"),
        column("clock_steps", "uint32", "times that one of the clocks was set during the captures", source="method 14"),
        column("drift_ppm", "float64", "drift of the clock of b against that of a at that time", "ppm", source="method 14"),
        column("delay_a_to_b_p50_ns", "int64", "median one-way delay, by the estimated clock offset", "ns", null=True, source="method 14"),
        column("delay_b_to_a_p50_ns", "int64", "the same to the initiator", "ns", null=True, source="method 14"),
        column("lost_a_to_b_packets", "uint64", "packets lost between the taps, to the target", "packets", null=True, source="method 14"),
        column("lost_b_to_a_packets", "uint64", "the same to the initiator", "packets", null=True, source="method 14"),
        column("missing_at_a_packets", "uint64", "packets that a's capture lacks, though they passed a", "packets", null=True, source="method 14"),
        column("missing_at_b_packets", "uint64", "the same of b", "packets", null=True, source="method 14"),
    ),
)  # fmt: skip

FINDINGS: Final = Declaration(
    "findings",
    "one finding of a diagnosis, in one period of a ring",
    (
        column("time_first_ns", "int64", "its start; of the I/O in which it was found, where it has none of its own", "ns"),
        column("time_last_ns", "int64", "its end", "ns"),
        column("session", "uint32", "the last session that has it", null=True),
        column("sessions", "str", "all of them, separated by spaces"),
        column("connection", "uint32", "the first connection of that session; the one that has it, where there is no session", null=True),
        column("lun", "uint64", "the logical unit that has it; null where there are several, or none", null=True),
        column("name", "str", "its name"),
        column("rank", "category:finding_rank", "failure: something broke; slowness: something is wrong; limit: of the path or the load; note: worth knowing"),
        column("severity", "category:severity", "as `diagnose` shows it"),
        column("is_leading", "bool", "whether a person has to read it first: what broke and what users notice"),
        column("cost_ns", "int64", "time that it costs", "ns", null=True),
        column("busy_ns", "int64", "I/O time of its session in the period", "ns", source="method 4"),
        column("text", "str", "the facts with their numbers"),
        column("advice", "str", "what to do about it"),
        column("frame", "uint64", "the first frame that shows it", null=True),
        column("frames", "str", "a few frames that show it, separated by spaces"),
    ),
)  # fmt: skip

TIME_BREAKDOWN: Final = Declaration(
    "time_breakdown",
    "time of a session in one part of the time breakdown, in one period of a ring",
    (
        column("session", "uint32", "the session"),
        column("lun", "uint64", "the logical unit of the commands that waited; null where there were none, and the session uses several", null=True),
        column("part", "category:budget_part", "part of the time breakdown", source="method 4"),
        column("is_busy", "bool", "whether it is I/O time: shares are of the I/O time", source="method 4"),
        column("time_first_ns", "int64", "its first instant", "ns"),
        column("time_last_ns", "int64", "its last instant", "ns"),
        column("duration_ns", "int64", "the time between them that is in this part", "ns"),
    ),
)  # fmt: skip


SIDECAR: Final = Declaration(
    "sidecar",
    "one frame with results, in ascending order",
    (
        column("frame", "uint64", "the frame"),
        column("budget_owner", "category:budget_part", "part of the time breakdown that the time before it is attributed to: the largest since the previous packet of its connection, in either direction", source="method 4"),
        column("cwnd_estimate_bytes", "int64", "estimated congestion window of the sender whose data it carries or acknowledges; the larger if both apply", "bytes", null=True, source="method 5"),
        column("loss_class", "category:retransmission_cause", "cause of the retransmission", source="method 5"),
        column("violation", "str", "the violations of RFC 7143 that it shows, each with the name of its rule", null=True),
    ),
)  # fmt: skip
