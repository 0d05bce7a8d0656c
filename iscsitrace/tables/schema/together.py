"""Tables of mirrors and parallel streams: computed from the other tables on request."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Table, column

MIRRORED_WRITES: Final = Table(
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

MIRROR_LEGS: Final = Table(
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

STREAMS: Final = Table(
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
