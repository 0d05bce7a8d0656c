"""The tables, declared once: every column's name, type, unit, null rule and meaning.

The core fills columns, exports write them, ``docs/tables.md`` prints them; all three are tested against
this file. It computes nothing and imports nothing of the package.

Null rule: a nullable column holds the *largest* value of its unsigned dtype, the *smallest* of its signed
dtype, or ``""`` for text, where the value is unknown or does not exist. The one exception is the 32-bit
header fields of ``pdus``, where every value is possible: whether they are there follows from ``opcode``,
``is_final``/``has_status`` and ``header_bytes`` and the core delivers the mask with the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class Column:
    """One column of one table."""

    name: str
    dtype: str
    """NumPy dtype name (``int64``, ``uint32``, ``bool``, ``str``), or ``category:NAME`` for a uint8 code into CATEGORIES[NAME]."""
    meaning: str
    unit: str = ""
    nullable: bool = False
    source: str = ""
    """Where the definition comes from: an RFC section, or a section of docs/method.md."""


@dataclass(frozen=True)
class Table:
    """One table: what a row stands for, and its columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """The column of that name; raises KeyError when there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name} has no column {name}")


CATEGORIES: Final[dict[str, tuple[str, ...]]] = {
    # a code is the place in the tuple; 255 is null
    "roles_from": ("syn", "login", "opcodes", "port", "first_packet"),
    "digest": ("none", "crc32c", "unknown"),
    "digest_source": ("login", "inferred", "unknown"),
    "session_type": ("normal", "discovery", "unknown"),
    "session_end": ("logout", "closed", "reset", "reinstated", "refused", "open"),
    "parameter_source": ("negotiated", "declared", "default", "offered"),
    "severity": ("info", "warning", "data_loss", "error"),
    "segment_class": ("new", "retransmission", "reordered", "copy", "probe", "empty", "outside"),
    # filled from the core's table of SCSI operations (core/wire/src/cdb.rs), see trace.py
    "operation": (),
}


def _c(name: str, dtype: str, meaning: str, unit: str = "", *, null: bool = False, source: str = "") -> Column:
    return Column(name, dtype, meaning, unit, null, source)


_PER_DIRECTION: Final = (
    ("packets", "uint64", "TCP packets captured, copies not counted", "packets", False),
    ("stream_bytes", "uint64", "bytes between the first and the highest sequence number, holes included", "bytes", False),
    ("captured_bytes", "uint64", "of these, bytes that some captured packet carried (cut by a snaplen or not)", "bytes", False),
    ("gap_bytes", "uint64", "of these, bytes that no captured packet carried", "bytes", False),
    ("cut_bytes", "uint64", "of these, bytes carried by captured packets but left out by the snaplen", "bytes", False),
    ("explained_bytes", "uint64", "of these, bytes of PDUs whose header was read", "bytes", False),
    ("pdu_count", "uint64", "iSCSI PDUs whose header was read", "PDUs", False),
    ("missing_pdu_count", "uint64", "iSCSI PDUs that sequence numbers and unexplained bytes say are missing", "PDUs", False),
    ("retransmitted_packets", "uint64", "packets that brought bytes again, or late where the first copy was lost", "packets", False),
    ("retransmitted_bytes", "uint64", "payload bytes of these packets", "bytes", False),
    ("reordered_packets", "uint64", "packets that came late without having been sent again", "packets", False),
    ("copied_packets", "uint64", "packets that the capture holds twice", "packets", False),
    ("mss_bytes", "uint16", "maximum segment size announced by the sender of this direction", "bytes", True),
    ("window_scale", "uint8", "window scale announced by the sender of this direction", "", True),
)  # fmt: skip

_CONNECTIONS: Final = Table(
    "connections",
    "one TCP connection, iSCSI or not, numbered as Wireshark's tcp.stream",
    (
        _c("connection", "uint32", "number, counted from 0 among all TCP connections of the input"),
        _c("session", "uint32", "the iSCSI session that it belongs to", null=True),
        _c("cid", "uint16", "connection ID of the login", null=True, source="RFC 7143 section 11.12.7"),
        _c("is_iscsi", "bool", "whether its content is iSCSI"),
        _c("initiator_address", "str", "address of the initiator (of the client, when not iSCSI)"),
        _c("initiator_port", "uint16", "its TCP port"),
        _c("target_address", "str", "address of the target (of the server, when not iSCSI)"),
        _c("target_port", "uint16", "its TCP port"),
        _c("roles_from", "category:roles_from", "what told initiator and target apart"),
        _c("frame_first", "uint64", "its first frame"),
        _c("frame_last", "uint64", "its last frame"),
        _c("time_first_ns", "int64", "capture time of its first packet", "ns"),
        _c("time_last_ns", "int64", "capture time of its last packet", "ns"),
        _c("has_syn", "bool", "whether a SYN of the connection was captured"),
        _c("has_fin", "bool", "whether a FIN was captured"),
        _c("has_rst", "bool", "whether a RST was captured"),
        _c("is_sack_permitted", "bool", "whether both ends announced SACK-permitted", source="RFC 2018"),
        _c("has_timestamps", "bool", "whether TCP timestamps were seen", source="RFC 7323"),
        _c("handshake_rtt_to_target_ns", "int64", "SYN to SYN-ACK", "ns", null=True, source="method 1"),
        _c("handshake_rtt_to_initiator_ns", "int64", "SYN-ACK to ACK", "ns", null=True, source="method 1"),
        _c("rtt_to_target_min_ns", "int64", "least time from an initiator's bytes to the ACK that covers them (Karn's rule), handshake included", "ns", null=True, source="method 1"),
        _c("rtt_to_initiator_min_ns", "int64", "least time from a target's bytes to the ACK that covers them (Karn's rule), handshake included", "ns", null=True, source="method 1"),
        _c("header_digest", "category:digest", "HeaderDigest in force", source="RFC 7143 section 13.1"),
        _c("data_digest", "category:digest", "DataDigest in force", source="RFC 7143 section 13.1"),
        _c("digest_source", "category:digest_source", "how the digests are known"),
        *(
            _c(f"{name}_{direction}", dtype, f"{direction.replace('_', ' ')}: {meaning}", unit, null=null)
            for direction in ("to_target", "to_initiator")
            for name, dtype, meaning, unit, null in _PER_DIRECTION
        ),
    ),
)  # fmt: skip

_SESSIONS: Final = Table(
    "sessions",
    "one iSCSI session: its connections joined by initiator name, ISID, target name and TSIH",
    (
        _c("session", "uint32", "number, counted from 0"),
        _c("session_type", "category:session_type", "Normal or Discovery", source="RFC 7143 section 13.21"),
        _c("initiator_name", "str", "InitiatorName", null=True, source="RFC 7143 section 13.5"),
        _c("initiator_alias", "str", "InitiatorAlias", null=True, source="RFC 7143 section 13.7"),
        _c("target_name", "str", "TargetName", null=True, source="RFC 7143 section 13.4"),
        _c("target_alias", "str", "TargetAlias", null=True, source="RFC 7143 section 13.6"),
        _c("isid", "str", "ISID, 12 hexadecimal digits", null=True, source="RFC 7143 section 11.12.5"),
        _c("tsih", "uint16", "TSIH that the target gave", null=True, source="RFC 7143 section 11.13.3"),
        _c("target_portal_group_tag", "uint32", "TargetPortalGroupTag", null=True, source="RFC 7143 section 13.9"),
        _c("auth_method", "str", "AuthMethod in use (CHAP, None ...); secrets are never kept", null=True, source="RFC 7143 section 12.1"),
        _c("connection_count", "uint32", "connections of the session in the capture"),
        _c("is_login_captured", "bool", "whether the leading login is in the capture"),
        _c("login_status", "uint16", "status class and detail of the last login response (0 = success)", null=True, source="RFC 7143 section 11.13.5"),
        _c("end", "category:session_end", "how the session ended in the capture"),
        _c("time_first_ns", "int64", "its first packet", "ns"),
        _c("time_last_ns", "int64", "its last packet", "ns"),
        _c("cycle_count", "uint64", "SCSI tasks", "tasks"),
        _c("read_bytes", "uint64", "Data-In payload bytes", "bytes"),
        _c("write_bytes", "uint64", "Data-Out and immediate payload bytes", "bytes"),
        _c("queue_depth_max", "uint32", "most tasks outstanding at once", "tasks"),
    ),
)  # fmt: skip

_PARAMETERS: Final = Table(
    "parameters",
    "one login key on one connection: who offered what, and what is in force (secrets are never kept)",
    (
        _c("connection", "uint32", "the connection"),
        _c("session", "uint32", "its session", null=True),
        _c("key", "str", "key in the RFC's spelling"),
        _c("initiator_value", "str", "what the initiator sent", null=True),
        _c("target_value", "str", "what the target sent", null=True),
        _c("effective_initiator", "str", "value in force; for a declared key, what the initiator declared (bounds the target's sending)", null=True),
        _c("effective_target", "str", "value in force; for a declared key, what the target declared (bounds the initiator's sending)", null=True),
        _c("source", "category:parameter_source", "how the value in force came about"),
    ),
)  # fmt: skip

_PDUS: Final = Table(
    "pdus",
    "one iSCSI PDU whose header was read, in the order in which the streams deliver them",
    (
        _c("connection", "uint32", "the connection"),
        _c("to_target", "bool", "direction"),
        _c("frame_first", "uint64", "frame that brought its first byte"),
        _c("frame_last", "uint64", "frame that completed it", null=True),
        _c("time_first_ns", "int64", "capture time of frame_first", "ns"),
        _c("time_last_ns", "int64", "capture time of frame_last, the latest among its bytes; null when a byte was never captured after the last known one", "ns", null=True),
        _c("stream_offset_bytes", "int64", "place of its first byte in the stream, the first byte after the SYN being 0", "bytes"),
        _c("header_bytes", "uint8", "bytes of the 48-byte basic header segment that were captured", "bytes"),
        _c("opcode", "uint8", "opcode without the I bit", source="RFC 7143 section 11.2.1.2"),
        _c("is_immediate", "bool", "I bit", source="RFC 7143 section 11.2.1.1"),
        _c("is_final", "bool", "F bit; Login PDUs have none (their T bit stands in its place)", source="RFC 7143 section 11.2.1.3"),
        _c("has_status", "bool", "a SCSI Response, or a Data-In with the S bit"),
        _c("has_capture_gap", "bool", "some of its bytes were never captured"),
        _c("lun", "uint64", "logical unit, decoded as tshark's scsi.lun (raw 64 bits when not a simple one)", null=True, source="RFC 7143 section 11.2.1.7"),
        _c("initiator_task_tag", "uint32", "Initiator Task Tag", null=True, source="RFC 7143 section 11.2.1.8"),
        _c("target_transfer_tag", "uint32", "Target Transfer Tag", null=True),
        _c("cmd_sn", "uint32", "CmdSN", null=True),
        _c("stat_sn", "uint32", "StatSN", null=True),
        _c("exp_stat_sn", "uint32", "ExpStatSN", null=True),
        _c("exp_cmd_sn", "uint32", "ExpCmdSN", null=True),
        _c("max_cmd_sn", "uint32", "MaxCmdSN", null=True),
        _c("data_sn", "uint32", "DataSN of Data-In and Data-Out, R2TSN of R2T", null=True),
        _c("buffer_offset", "uint32", "Buffer Offset", "bytes", null=True),
        _c("data_segment_length", "uint32", "DataSegmentLength", "bytes", source="RFC 7143 section 11.2.1.6"),
        _c("expected_data_transfer_length", "uint32", "Expected Data Transfer Length of a command, Desired Data Transfer Length of an R2T", "bytes", null=True),
        _c("status", "uint8", "SCSI status", null=True, source="RFC 7143 section 11.4.2"),
        _c("header_digest_ok", "uint8", "1 the header digest matches, 0 it does not; null: none, or not captured", null=True),
        _c("data_digest_ok", "uint8", "1 the data digest matches, 0 it does not; null: none, or not captured", null=True),
        _c("cycle", "uint32", "the cycle that it belongs to", null=True),
    ),
)  # fmt: skip

_CYCLES: Final = Table(
    "cycles",
    "one SCSI task on the wire, from its SCSI Command PDU to its status, in the order of the commands",
    (
        _c("cycle", "uint32", "number, counted from 0"),
        _c("session", "uint32", "its session", null=True),
        _c("connection", "uint32", "its connection"),
        _c("lun", "uint64", "logical unit, decoded as tshark's scsi.lun", null=True),
        _c("initiator_task_tag", "uint32", "Initiator Task Tag"),
        _c("operation", "category:operation", "SCSI operation without the CDB's length (read, write, inquiry ...)", source="SPC-4, SBC-3, SSC-4"),
        _c("cdb_opcode", "uint8", "first byte of the CDB", null=True),
        _c("is_read", "bool", "R bit", source="RFC 7143 section 11.3.1"),
        _c("is_write", "bool", "W bit", source="RFC 7143 section 11.3.1"),
        _c("lba", "uint64", "logical block address", "blocks", null=True),
        _c("block_count", "uint32", "transfer length of the CDB", "blocks", null=True),
        _c("bytes", "uint32", "Expected Data Transfer Length: the PDU block size", "bytes", null=True, source="method 2"),
        _c("data_bytes", "uint32", "payload that the task moved: Data-In, or Data-Out and immediate data", "bytes"),
        _c("command_first_ns", "int64", "packet that brought the first byte of the command", "ns", source="method 3"),
        _c("command_last_ns", "int64", "packet that completed the command", "ns", null=True, source="method 3"),
        _c("r2t_first_ns", "int64", "completion of the first R2T", "ns", null=True, source="method 3"),
        _c("data_first_ns", "int64", "packet that brought the first byte of the first data PDU", "ns", null=True, source="method 3"),
        _c("data_last_ns", "int64", "packet that completed the last data PDU", "ns", null=True, source="method 3"),
        _c("data_acked_ns", "int64", "first ACK that covers the last data byte", "ns", null=True, source="method 3"),
        _c("status_ns", "int64", "completion of the SCSI Response, or of the Data-In with the S bit", "ns", null=True, source="method 3"),
        _c("next_command_ns", "int64", "the session's next command, at queue depth 1", "ns", null=True, source="method 3"),
        _c("queue_depth", "uint32", "tasks of the session outstanding when it was issued, itself included", "tasks"),
        _c("data_pdu_count", "uint32", "Data-In or Data-Out PDUs that carry data", "PDUs"),
        _c("data_pdu_bytes_min", "uint32", "smallest of these", "bytes", null=True),
        _c("data_pdu_bytes_max", "uint32", "largest of these", "bytes", null=True),
        _c("r2t_count", "uint32", "R2Ts", "PDUs"),
        _c("immediate_bytes", "uint32", "data in the command PDU", "bytes"),
        _c("unsolicited_bytes", "uint32", "Data-Out bytes sent without R2T", "bytes"),
        _c("solicited_bytes", "uint32", "Data-Out bytes sent for R2Ts", "bytes"),
        _c("status", "uint8", "SCSI status", null=True, source="RFC 7143 section 11.4.2"),
        _c("response", "uint8", "iSCSI service response", null=True, source="RFC 7143 section 11.4.3"),
        _c("residual_bytes", "int64", "Residual Count: negative for underflow, positive for overflow", "bytes", source="RFC 7143 section 11.4.5"),
        _c("sense_key", "uint8", "sense key", null=True, source="SPC-4"),
        _c("asc", "uint8", "additional sense code", null=True, source="SPC-4"),
        _c("ascq", "uint8", "additional sense code qualifier", null=True, source="SPC-4"),
        _c("command_frame", "uint64", "frame that brought the command's first byte"),
        _c("data_first_frame", "uint64", "frame of data_first_ns", null=True),
        _c("data_last_frame", "uint64", "frame of data_last_ns", null=True),
        _c("status_frame", "uint64", "frame of status_ns", null=True),
        _c("is_complete", "bool", "the status was captured, and all data that it speaks of"),
        _c("is_status_in_data", "bool", "the status came with the last Data-In (S bit)"),
        _c("is_aborted", "bool", "ended by task management"),
        _c("has_capture_gap", "bool", "bytes or PDUs of the cycle were never captured"),
        _c("has_retransmission", "bool", "bytes of the cycle were retransmitted or came late"),
    ),
)  # fmt: skip

_ROUNDS: Final = Table(
    "rounds",
    "one R2T and the Data-Out burst that answers it",
    (
        _c("cycle", "uint32", "its cycle"),
        _c("r2t_sn", "uint32", "R2TSN", source="RFC 7143 section 11.8.2"),
        _c("target_transfer_tag", "uint32", "Target Transfer Tag"),
        _c("buffer_offset", "uint32", "Buffer Offset", "bytes"),
        _c("desired_data_transfer_length", "uint32", "bytes asked for", "bytes"),
        _c("bytes", "uint32", "bytes sent", "bytes"),
        _c("data_pdu_count", "uint32", "Data-Out PDUs", "PDUs"),
        _c("r2t_ns", "int64", "completion of the R2T", "ns", null=True),
        _c("data_first_ns", "int64", "first byte of the burst", "ns", null=True),
        _c("data_last_ns", "int64", "completion of the burst", "ns", null=True),
        _c("r2t_frame", "uint64", "frame of the R2T", null=True),
        _c("data_first_frame", "uint64", "frame of data_first_ns", null=True),
        _c("data_last_frame", "uint64", "frame of data_last_ns", null=True),
    ),
)  # fmt: skip


def _exchange(name: str, row: str, *columns: Column) -> Table:
    """A table of requests and their answers, or of single PDUs, on one connection."""
    return Table(
        name,
        row,
        (
            _c("connection", "uint32", "the connection"),
            *columns,
        ),
    )


_REQUEST: Final = (
    _c("request_ns", "int64", "completion of the request", "ns", null=True),
    _c("response_ns", "int64", "completion of the answer", "ns", null=True),
    _c("request_frame", "uint64", "frame of the request", null=True),
    _c("response_frame", "uint64", "frame of the answer", null=True),
)
_ONE_WAY: Final = (
    _c("time_ns", "int64", "its completion", "ns", null=True),
    _c("frame", "uint64", "its frame", null=True),
)

_OTHERS: Final = (
    _exchange(
        "logins",
        "one Login Request and its answer",
        *_REQUEST,
        _c("current_stage", "uint8", "CSG of the request", null=True, source="RFC 7143 section 11.12.3"),
        _c("next_stage", "uint8", "NSG of the request (valid with T)", null=True, source="RFC 7143 section 11.12.3"),
        _c("is_transit", "bool", "T bit of the answer"),
        _c("status_class", "uint8", "Status-Class", null=True, source="RFC 7143 section 11.13.5"),
        _c("status_detail", "uint8", "Status-Detail", null=True, source="RFC 7143 section 11.13.5"),
        _c("status_text", "str", "what they mean", null=True),
    ),
    _exchange(
        "task_management",
        "one Task Management Function Request and its answer",
        *_REQUEST,
        _c("function", "uint8", "function", source="RFC 7143 section 11.5.1"),
        _c("function_text", "str", "its name"),
        _c("initiator_task_tag", "uint32", "its own tag"),
        _c("referenced_task_tag", "uint32", "the task that it is about"),
        _c("referenced_cycle", "uint32", "that task's cycle", null=True),
        _c("lun", "uint64", "logical unit", null=True),
        _c("response", "uint8", "response", null=True, source="RFC 7143 section 11.6.1"),
    ),
    _exchange(
        "nops",
        "one ping and its echo, or a one-way NOP",
        *_REQUEST,
        _c("is_from_initiator", "bool", "who asked"),
        _c("is_ping", "bool", "whether an echo was asked for"),
        _c("initiator_task_tag", "uint32", "tag of an initiator's ping", null=True),
        _c("target_transfer_tag", "uint32", "tag of a target's ping", null=True),
    ),
    _exchange(
        "texts",
        "one Text Request and its answer",
        *_REQUEST,
        _c("initiator_task_tag", "uint32", "its tag"),
        _c("request_text", "str", "keys asked, NUL shown as a space"),
        _c("response_text", "str", "keys answered, NUL shown as a space"),
    ),
    _exchange(
        "logouts",
        "one Logout Request and its answer",
        *_REQUEST,
        _c("reason", "uint8", "reason code", source="RFC 7143 section 11.14.1"),
        _c("cid", "uint16", "connection to be logged out", null=True),
        _c("response", "uint8", "response", null=True, source="RFC 7143 section 11.15.1"),
    ),
    _exchange(
        "rejects",
        "one Reject",
        *_ONE_WAY,
        _c("reason", "uint8", "reason", source="RFC 7143 section 11.17.1"),
        _c("reason_text", "str", "what it means"),
        _c("rejected_opcode", "uint8", "opcode of the rejected header", null=True),
        _c("rejected_initiator_task_tag", "uint32", "its tag", null=True),
    ),
    _exchange(
        "asyncs",
        "one Asynchronous Message",
        *_ONE_WAY,
        _c("event", "uint8", "AsyncEvent", source="RFC 7143 section 11.9.1"),
        _c("event_text", "str", "what it means"),
        _c("vendor_code", "uint8", "AsyncVCode"),
        _c("parameter1", "uint16", "Parameter1"),
        _c("parameter2", "uint16", "Parameter2"),
        _c("parameter3", "uint16", "Parameter3"),
        _c("lun", "uint64", "logical unit", null=True),
    ),
    _exchange(
        "snacks",
        "one SNACK Request",
        *_ONE_WAY,
        _c("snack_type", "uint8", "type", source="RFC 7143 section 11.16.1"),
        _c("initiator_task_tag", "uint32", "Initiator Task Tag"),
        _c("target_transfer_tag", "uint32", "Target Transfer Tag or SNACK Tag"),
        _c("begin_run", "uint32", "BegRun"),
        _c("run_length", "uint32", "RunLength"),
    ),
)

_SEGMENTS: Final = Table(
    "segments",
    "one TCP packet of an iSCSI connection (only when asked for)",
    (
        _c("connection", "uint32", "the connection"),
        _c("to_target", "bool", "direction"),
        _c("frame", "uint64", "its frame"),
        _c("time_ns", "int64", "its capture time", "ns"),
        _c("stream_offset_bytes", "int64", "place of its first byte in its stream", "bytes"),
        _c("payload_bytes", "uint32", "TCP payload on the wire", "bytes"),
        _c("ack_offset_bytes", "int64", "place in the opposite stream that it acknowledges", "bytes", null=True),
        _c("window_bytes", "uint32", "advertised window, scaled where the scale is known", "bytes"),
        _c("flags", "uint8", "TCP flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128", source="RFC 9293 section 3.1"),
        _c("segment_class", "category:segment_class", "what its payload is to the stream"),
    ),
)  # fmt: skip

_COUNTERS: Final = Table(
    "counters",
    "one oddity of the input, for the capture (connection null) or one connection",
    (
        _c("name", "str", "name"),
        _c("connection", "uint32", "the connection", null=True),
        _c("severity", "category:severity", "what it means for the numbers"),
        _c("count", "uint64", "how often, or how many bytes"),
        _c("first_frame", "uint64", "where first", null=True),
        _c("meaning", "str", "what one count stands for"),
        _c("advice", "str", "what a person can do about it"),
    ),
)

TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        _CONNECTIONS,
        _SESSIONS,
        _PARAMETERS,
        _PDUS,
        _CYCLES,
        _ROUNDS,
        *_OTHERS,
        _SEGMENTS,
        _COUNTERS,
    )
}
"""Every table by name, in the order of the docs."""

ON_REQUEST: Final = frozenset({"pdus", "segments"})
"""Tables that the pass fills only when they are asked for, because they grow with packets or PDUs."""

DERIVED_CYCLE_COLUMNS: Final = (
    _c("request_ns", "int64", "read: command_first to data_first; no data: command_first to status", "ns", null=True, source="method 3"),
    _c("grant_ns", "int64", "write with R2T: command_first to r2t_first", "ns", null=True, source="method 3"),
    _c("transfer_ns", "int64", "read: data_first to data_last; write: r2t_first (command_first without R2T) to the last data byte", "ns", null=True, source="method 3"),
    _c("service_ns", "int64", "write: last data byte to status", "ns", null=True, source="method 3"),
    _c("status_wait_ns", "int64", "read: data_last to status, 0 when the status rides in the last Data-In", "ns", null=True, source="method 3"),
    _c("ack_ns", "int64", "data_last to data_acked", "ns", null=True, source="method 3"),
    _c("turnaround_ns", "int64", "status to next_command", "ns", null=True, source="method 3"),
    _c("latency_ns", "int64", "command_first to status: the sum of the phases", "ns", null=True, source="method 3"),
    _c("period_ns", "int64", "command_first to next_command: latency + turnaround", "ns", null=True, source="method 3"),
)  # fmt: skip
"""Columns of ``cycles`` that are differences of its instants; computed when asked for, always exported."""
