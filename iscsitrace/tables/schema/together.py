"""The tables on sessions and connections that work together: computed from the others when they are asked for."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Table, column

MIRRORED_WRITES: Final = Table(
    "mirrored_writes",
    "one write that sessions of a mirror carried to all its targets, in order of time by mirror",
    (
        column("mirror", "uint32", "number of the mirror, counted from 0", source="method 9"),
        column("mirrored_write", "uint32", "number among all mirrored writes, counted from 0"),
        column("lba", "uint64", "first logical block, on the mirror's first leg", "blocks"),
        column("block_count", "uint64", "logical blocks, on the first leg", "blocks"),
        column("bytes", "uint64", "payload on each leg", "bytes"),
        column("leg_count", "uint8", "legs"),
        column("begin_ns", "int64", "first packet of the first command, on any leg", "ns", source="method 9"),
        column("end_ns", "int64", "last status, on any leg", "ns", null=True, source="method 9"),
        column("skew_ns", "int64", "from done on the first leg to done on the last: what the faster one waited", "ns", null=True, source="method 9"),
        column("first_session", "uint32", "the session that was done first", null=True),
        column("last_session", "uint32", "the session that was done last", null=True),
        column("cause", "category:mirror_cause", "why it was last", source="method 9"),
        column("cause_ns", "int64", "how much of the skew that makes", "ns", null=True, source="method 9"),
    ),
)  # fmt: skip

MIRROR_LEGS: Final = Table(
    "mirror_legs",
    "one mirrored write on one of the mirror's legs",
    (
        column("mirrored_write", "uint32", "the mirrored write"),
        column("leg", "uint8", "place of the leg in its mirror, counted from 0"),
        column("session", "uint32", "the session that carried it, the end of it where there are several"),
        column("lun", "uint64", "logical unit"),
        column("cycle", "uint32", "its first cycle"),
        column("cycle_count", "uint32", "cycles that it took: a host may cut it differently on each leg", "tasks"),
        column("r2t_count", "uint32", "R2Ts of the cycle that had most", "PDUs"),
        column("begin_ns", "int64", "first packet of its first command", "ns"),
        column("end_ns", "int64", "its last status", "ns", null=True),
        column("wait_ns", "int64", "from its last status to that of the last leg", "ns", null=True),
        column("command_frame", "uint64", "frame of its first command"),
        column("status_frame", "uint64", "frame of its last status", null=True),
    ),
)  # fmt: skip

STREAMS: Final = Table(
    "streams",
    "one connection that is a stream of a job: of several that began together and ask for the same",
    (
        column("job", "uint32", "number of the job, counted from 0", source="method 10"),
        column("connection", "uint32", "the connection"),
        column("session", "uint32", "its session", null=True),
        column("to_target", "bool", "direction of its data"),
        column("bytes", "uint64", "payload of its tasks", "bytes"),
        column("time_first_ns", "int64", "its first command", "ns"),
        column("time_last_ns", "int64", "its last status: when it finished", "ns"),
        column("bytes_per_s", "int64", "bytes over the time between", "B/s", source="method 10"),
        column("behind_ns", "int64", "how long after the first stream it finished", "ns", source="method 10"),
        column("retransmitted_packets", "uint64", "packets of its data's direction that were sent again", "packets"),
        column("packets", "uint64", "packets of that direction", "packets"),
        column("loss_count", "uint32", "losses repaired, timeouts included"),
        column("timeout_count", "uint32", "of these, those that a timeout found out"),
        column("is_slow", "bool", "whether it carried much less a second than the fastest", source="method 10"),
        column("cause", "category:stream_cause", "why a slow one is slow; null: it is not slow, or nothing shows why", source="method 10"),
        column("cause_time_ns", "int64", "when that began: the loss, or the first wait for the window", "ns", null=True),
        column("cause_frame", "uint64", "the frame that shows it", null=True),
    ),
)  # fmt: skip
