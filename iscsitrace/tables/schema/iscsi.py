"""iSCSI tables: connections, sessions, PDUs, commands (``cycles``), and other requests and responses."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Column, Table, column

_PER_DIRECTION: Final = (
    ("packets", "uint64", "TCP packets captured, copies not counted", "packets", False),
    ("stream_bytes", "uint64", "bytes between the first and the highest sequence number, holes included", "bytes", False),
    ("captured_bytes", "uint64", "of these, bytes that some captured packet carried (cut by a snaplen or not)", "bytes", False),
    ("gap_bytes", "uint64", "of these, bytes that no captured packet carried", "bytes", False),
    ("cut_bytes", "uint64", "of these, bytes carried by captured packets but cut off by the snaplen", "bytes", False),
    ("explained_bytes", "uint64", "of these, decoded bytes: bytes of PDUs whose header was read", "bytes", False),
    ("pdu_count", "uint64", "iSCSI PDUs whose header was read", "PDUs", False),
    ("missing_pdu_count", "uint64", "iSCSI PDUs missing from the capture, by sequence numbers and bytes that were not decoded", "PDUs", False),
    ("retransmitted_packets", "uint64", "retransmitted packets: they repeat bytes, or deliver them late because the first copy was lost", "packets", False),
    ("retransmitted_bytes", "uint64", "payload bytes of these packets", "bytes", False),
    ("reordered_packets", "uint64", "packets that arrived out of order and were not retransmitted", "packets", False),
    ("copied_packets", "uint64", "packets that the capture holds twice", "packets", False),
    ("mss_bytes", "uint16", "maximum segment size announced by the sender of this direction", "bytes", True),
    ("window_scale", "uint8", "window scale announced by the sender of this direction", "", True),
)  # fmt: skip

CONNECTIONS: Final = Table(
    "connections",
    "one TCP connection, iSCSI or not, with the number of Wireshark's tcp.stream",
    (
        column("connection", "uint32", "number among all TCP connections of the input, from 0"),
        column("session", "uint32", "its iSCSI session", null=True),
        column("cid", "uint16", "connection ID of the login", null=True, source="RFC 7143 section 11.12.7"),
        column("is_iscsi", "bool", "whether its content is iSCSI"),
        column("initiator_address", "str", "IP address of the initiator (of the client, if not iSCSI)"),
        column("initiator_port", "uint16", "its TCP port"),
        column("target_address", "str", "IP address of the target (of the server, if not iSCSI)"),
        column("target_port", "uint16", "its TCP port"),
        column("roles_from", "category:roles_from", "how initiator and target were identified"),
        column("frame_first", "uint64", "its first frame"),
        column("frame_last", "uint64", "its last frame"),
        column("time_first_ns", "int64", "capture time of its first packet", "ns"),
        column("time_last_ns", "int64", "capture time of its last packet", "ns"),
        column("has_syn", "bool", "whether a SYN of the connection was captured"),
        column("has_fin", "bool", "whether a FIN was captured"),
        column("has_rst", "bool", "whether a RST was captured"),
        column("is_sack_permitted", "bool", "whether both ends announced SACK-permitted", source="RFC 2018"),
        column("has_timestamps", "bool", "whether TCP timestamps were seen", source="RFC 7323"),
        column("handshake_rtt_to_target_ns", "int64", "SYN to SYN-ACK", "ns", null=True, source="method 1"),
        column("handshake_rtt_to_initiator_ns", "int64", "SYN-ACK to ACK", "ns", null=True, source="method 1"),
        column("rtt_to_target_min_ns", "int64", "minimum RTT from the tap to the target: from the initiator's bytes to the ACK that covers them (Karn's rule), handshake included", "ns", null=True, source="method 1"),
        column("rtt_to_initiator_min_ns", "int64", "minimum RTT from the tap to the initiator: from the target's bytes to the ACK that covers them (Karn's rule), handshake included", "ns", null=True, source="method 1"),
        column("header_digest", "category:digest", "negotiated HeaderDigest", source="RFC 7143 section 13.1"),
        column("data_digest", "category:digest", "negotiated DataDigest", source="RFC 7143 section 13.1"),
        column("digest_source", "category:digest_source", "source of the two digests"),
        *(
            column(f"{name}_{direction}", dtype, f"{direction.replace('_', ' ')}: {meaning}", unit, null=null)
            for direction in ("to_target", "to_initiator")
            for name, dtype, meaning, unit, null in _PER_DIRECTION
        ),
    ),
)  # fmt: skip

SESSIONS: Final = Table(
    "sessions",
    "one iSCSI session: connections with the same initiator name, ISID, target name and TSIH",
    (
        column("session", "uint32", "number, from 0"),
        column("session_type", "category:session_type", "Normal or Discovery", source="RFC 7143 section 13.21"),
        column("initiator_name", "str", "InitiatorName", null=True, source="RFC 7143 section 13.5"),
        column("initiator_alias", "str", "InitiatorAlias", null=True, source="RFC 7143 section 13.7"),
        column("target_name", "str", "TargetName", null=True, source="RFC 7143 section 13.4"),
        column("target_alias", "str", "TargetAlias", null=True, source="RFC 7143 section 13.6"),
        column("isid", "str", "ISID, 12 hexadecimal digits", null=True, source="RFC 7143 section 11.12.5"),
        column("tsih", "uint16", "TSIH assigned by the target", null=True, source="RFC 7143 section 11.13.3"),
        column("target_portal_group_tag", "uint32", "TargetPortalGroupTag", null=True, source="RFC 7143 section 13.9"),
        column("auth_method", "str", "AuthMethod in use (CHAP, None ...); secrets are never kept", null=True, source="RFC 7143 section 12.1"),
        column("connection_count", "uint32", "connections of the session in the capture"),
        column("is_login_captured", "bool", "whether the leading login is in the capture"),
        column("login_status", "uint16", "status class and detail of the last login response (0 = success)", null=True, source="RFC 7143 section 11.13.5"),
        column("end", "category:session_end", "how the session ended in the capture"),
        column("time_first_ns", "int64", "its first packet", "ns"),
        column("time_last_ns", "int64", "its last packet", "ns"),
        column("cycle_count", "uint64", "SCSI commands", "commands"),
        column("read_bytes", "uint64", "Data-In payload bytes", "bytes"),
        column("write_bytes", "uint64", "Data-Out and immediate payload bytes", "bytes"),
        column("queue_depth_max", "uint32", "maximum number of commands in flight", "commands"),
    ),
)  # fmt: skip

PARAMETERS: Final = Table(
    "parameters",
    "one login key on one connection: both sides' offers and the negotiated value (secrets are never kept)",
    (
        column("connection", "uint32", "the connection"),
        column("session", "uint32", "its session", null=True),
        column("key", "str", "key in the RFC's spelling"),
        column("initiator_value", "str", "value sent by the initiator", null=True),
        column("target_value", "str", "value sent by the target", null=True),
        column("effective_initiator", "str", "negotiated value; for a declared key, the value that the initiator declared (it limits what the target sends)", null=True),
        column("effective_target", "str", "negotiated value; for a declared key, the value that the target declared (it limits what the initiator sends)", null=True),
        column("source", "category:parameter_source", "origin of the effective value"),
    ),
)  # fmt: skip

PDUS: Final = Table(
    "pdus",
    "one iSCSI PDU whose header was read, in stream order",
    (
        column("connection", "uint32", "the connection"),
        column("to_target", "bool", "direction"),
        column("frame_first", "uint64", "frame with its first byte"),
        column("frame_last", "uint64", "frame that completed it", null=True),
        column("time_first_ns", "int64", "capture time of frame_first", "ns"),
        column("time_last_ns", "int64", "capture time of frame_last, the latest of its packets; null if a later byte was never captured", "ns", null=True),
        column("stream_offset_bytes", "int64", "offset of its first byte in the stream; the first byte after the SYN is 0", "bytes"),
        column("header_bytes", "uint8", "bytes of the 48-byte basic header segment that were captured", "bytes"),
        column("opcode", "uint8", "opcode without the I bit", source="RFC 7143 section 11.2.1.2"),
        column("is_immediate", "bool", "I bit", source="RFC 7143 section 11.2.1.1"),
        column("is_final", "bool", "F bit; Login PDUs have the T bit in its place", source="RFC 7143 section 11.2.1.3"),
        column("has_status", "bool", "whether it is a SCSI Response or a Data-In with the S bit"),
        column("has_capture_gap", "bool", "whether some of its bytes are missing from the capture"),
        column("lun", "uint64", "logical unit, decoded like tshark's scsi.lun (the raw 64 bits for other addressing methods)", null=True, source="RFC 7143 section 11.2.1.7"),
        column("initiator_task_tag", "uint32", "Initiator Task Tag", null=True, source="RFC 7143 section 11.2.1.8"),
        column("target_transfer_tag", "uint32", "Target Transfer Tag", null=True),
        column("cmd_sn", "uint32", "CmdSN", null=True),
        column("stat_sn", "uint32", "StatSN", null=True),
        column("exp_stat_sn", "uint32", "ExpStatSN", null=True),
        column("exp_cmd_sn", "uint32", "ExpCmdSN", null=True),
        column("max_cmd_sn", "uint32", "MaxCmdSN", null=True),
        column("data_sn", "uint32", "DataSN of Data-In and Data-Out, R2TSN of R2T", null=True),
        column("buffer_offset", "uint32", "Buffer Offset", "bytes", null=True),
        column("data_segment_length", "uint32", "DataSegmentLength", "bytes", source="RFC 7143 section 11.2.1.6"),
        column("expected_data_transfer_length", "uint32", "Expected Data Transfer Length of a command, Desired Data Transfer Length of an R2T", "bytes", null=True),
        column("status", "uint8", "SCSI status", null=True, source="RFC 7143 section 11.4.2"),
        column("header_digest_ok", "uint8", "1: the header digest matches; 0: it does not; null: no digest, or not captured", null=True),
        column("data_digest_ok", "uint8", "1: the data digest matches; 0: it does not; null: no digest, or not captured", null=True),
        column("cycle", "uint32", "row of its command in cycles", null=True),
    ),
)  # fmt: skip

CYCLES: Final = Table(
    "cycles",
    "one SCSI command on the wire, from its SCSI Command PDU to its status, in order of issue",
    (
        column("cycle", "uint32", "number, from 0"),
        column("session", "uint32", "its session", null=True),
        column("connection", "uint32", "its connection"),
        column("lun", "uint64", "logical unit, decoded like tshark's scsi.lun", null=True),
        column("initiator_task_tag", "uint32", "Initiator Task Tag"),
        column("cmd_sn", "uint32", "CmdSN of the command (2^32 - 1, a possible value, also stands for null)", null=True, source="RFC 7143 section 4.2.2.1"),
        column("max_cmd_sn", "uint32", "MaxCmdSN of the status: the highest CmdSN that the target then accepted", null=True, source="RFC 7143 section 4.2.2.1"),
        column("operation", "category:operation", "SCSI operation without the length of the CDB (read, write, inquiry ...)", source="SPC-4, SBC-3, SSC-4"),
        column("cdb_opcode", "uint8", "first byte of the CDB", null=True),
        column("is_read", "bool", "R bit", source="RFC 7143 section 11.3.1"),
        column("is_write", "bool", "W bit", source="RFC 7143 section 11.3.1"),
        column("lba", "uint64", "logical block address", "blocks", null=True),
        column("block_count", "uint32", "transfer length of the CDB", "blocks", null=True),
        column("bytes", "uint32", "I/O size: the command's Expected Data Transfer Length (PDU block size)", "bytes", null=True, source="method 2"),
        column("data_bytes", "uint32", "payload transferred: Data-In, or Data-Out and immediate data", "bytes"),
        column("command_first_ns", "int64", "packet with the first byte of the command", "ns", source="method 3"),
        column("command_last_ns", "int64", "packet that completed the command", "ns", null=True, source="method 3"),
        column("r2t_first_ns", "int64", "completion of the first R2T", "ns", null=True, source="method 3"),
        column("data_first_ns", "int64", "packet with the first byte of the first data PDU", "ns", null=True, source="method 3"),
        column("data_last_ns", "int64", "packet that completed the last data PDU", "ns", null=True, source="method 3"),
        column("data_acked_ns", "int64", "first ACK that covers the last data byte", "ns", null=True, source="method 3"),
        column("status_ns", "int64", "completion of the SCSI Response, or of the Data-In with the S bit", "ns", null=True, source="method 3"),
        column("next_command_ns", "int64", "the session's next command, at queue depth 1", "ns", null=True, source="method 3"),
        column("queue_depth", "uint32", "commands of the session in flight when it was issued, itself included", "commands"),
        column("data_pdu_count", "uint32", "Data-In or Data-Out PDUs with data", "PDUs"),
        column("data_pdu_bytes_min", "uint32", "DataSegmentLength of the smallest of them", "bytes", null=True),
        column("data_pdu_bytes_max", "uint32", "DataSegmentLength of the largest of them", "bytes", null=True),
        column("r2t_count", "uint32", "R2Ts", "PDUs"),
        column("immediate_bytes", "uint32", "data in the command PDU", "bytes"),
        column("unsolicited_bytes", "uint32", "Data-Out bytes sent without R2T", "bytes"),
        column("solicited_bytes", "uint32", "Data-Out bytes sent for R2Ts", "bytes"),
        column("status", "uint8", "SCSI status", null=True, source="RFC 7143 section 11.4.2"),
        column("response", "uint8", "iSCSI service response", null=True, source="RFC 7143 section 11.4.3"),
        column("residual_bytes", "int64", "Residual Count: negative for underflow, positive for overflow", "bytes", source="RFC 7143 section 11.4.5"),
        column("sense_key", "uint8", "sense key", null=True, source="SPC-4"),
        column("asc", "uint8", "additional sense code", null=True, source="SPC-4"),
        column("ascq", "uint8", "additional sense code qualifier", null=True, source="SPC-4"),
        column("command_frame", "uint64", "frame with the first byte of the command"),
        column("data_first_frame", "uint64", "frame of data_first_ns", null=True),
        column("data_last_frame", "uint64", "frame of data_last_ns", null=True),
        column("status_frame", "uint64", "frame of status_ns", null=True),
        column("is_complete", "bool", "whether the status and all data that it accounts for were captured"),
        column("is_status_in_data", "bool", "whether the status came with the last Data-In (S bit)"),
        column("is_aborted", "bool", "whether it was aborted by task management"),
        column("has_capture_gap", "bool", "whether bytes or PDUs of the command are missing from the capture"),
        column("has_retransmission", "bool", "whether bytes of the command were retransmitted or arrived late"),
    ),
)  # fmt: skip

ROUNDS: Final = Table(
    "rounds",
    "one R2T and the Data-Out burst sent for it",
    (
        column("cycle", "uint32", "row of its command in cycles"),
        column("r2t_sn", "uint32", "R2TSN", source="RFC 7143 section 11.8.2"),
        column("target_transfer_tag", "uint32", "Target Transfer Tag"),
        column("buffer_offset", "uint32", "Buffer Offset", "bytes"),
        column("desired_data_transfer_length", "uint32", "bytes requested by the R2T", "bytes"),
        column("bytes", "uint32", "bytes sent", "bytes"),
        column("data_pdu_count", "uint32", "Data-Out PDUs", "PDUs"),
        column("r2t_ns", "int64", "completion of the R2T", "ns", null=True),
        column("data_first_ns", "int64", "first byte of the burst", "ns", null=True),
        column("data_last_ns", "int64", "completion of the burst", "ns", null=True),
        column("r2t_frame", "uint64", "frame of the R2T", null=True),
        column("data_first_frame", "uint64", "frame of data_first_ns", null=True),
        column("data_last_frame", "uint64", "frame of data_last_ns", null=True),
    ),
)  # fmt: skip

WRITE_STARTS: Final = Table(
    "write_starts",
    "the beginning of one write's data, where it was captured: enough to tell whether two writes carry the same data",
    (
        column("cycle", "uint32", "row of its command in cycles"),
        column("bytes", "uint8", "captured bytes from the start of the data, at most 64", "bytes"),
        column("crc32c", "uint32", "CRC32C of these bytes, computed like a data digest", source="method 9"),
    ),
)  # fmt: skip


def _exchange(name: str, row: str, *columns: Column) -> Table:
    """A table of requests and responses, or of single PDUs, of one connection."""
    return Table(
        name,
        row,
        (
            column("connection", "uint32", "the connection"),
            *columns,
        ),
    )


_REQUEST: Final = (
    column("request_ns", "int64", "completion of the request", "ns", null=True),
    column("response_ns", "int64", "completion of the response", "ns", null=True),
    column("request_frame", "uint64", "frame of the request", null=True),
    column("response_frame", "uint64", "frame of the response", null=True),
)
_ONE_WAY: Final = (
    column("time_ns", "int64", "its completion", "ns", null=True),
    column("frame", "uint64", "its frame", null=True),
)

OTHERS: Final = (
    _exchange(
        "logins",
        "one Login Request and its Login Response",
        *_REQUEST,
        column("current_stage", "uint8", "CSG of the request", null=True, source="RFC 7143 section 11.12.3"),
        column(
            "next_stage", "uint8", "NSG of the request (valid with T)", null=True, source="RFC 7143 section 11.12.3"
        ),
        column("is_transit", "bool", "T bit of the response"),
        column("status_class", "uint8", "Status-Class", null=True, source="RFC 7143 section 11.13.5"),
        column("status_detail", "uint8", "Status-Detail", null=True, source="RFC 7143 section 11.13.5"),
        column("status_text", "str", "meaning of class and detail", null=True),
    ),
    _exchange(
        "task_management",
        "one Task Management Function Request and its response",
        *_REQUEST,
        column("function", "uint8", "function", source="RFC 7143 section 11.5.1"),
        column("function_text", "str", "name of the function"),
        column("initiator_task_tag", "uint32", "Initiator Task Tag of the request"),
        column("referenced_task_tag", "uint32", "Referenced Task Tag: the task that it refers to"),
        column("referenced_cycle", "uint32", "row of that task's command in cycles", null=True),
        column("lun", "uint64", "logical unit", null=True),
        column("response", "uint8", "response", null=True, source="RFC 7143 section 11.6.1"),
    ),
    _exchange(
        "nops",
        "one NOP-Out or NOP-In and its answer, or a NOP that needs no answer",
        *_REQUEST,
        column("is_from_initiator", "bool", "whether the initiator sent it first (NOP-Out)"),
        column("is_ping", "bool", "whether it requests an answer"),
        column("initiator_task_tag", "uint32", "tag of a NOP-Out that requests an answer", null=True),
        column("target_transfer_tag", "uint32", "tag of a NOP-In that requests an answer", null=True),
    ),
    _exchange(
        "texts",
        "one Text Request and its Text Response",
        *_REQUEST,
        column("initiator_task_tag", "uint32", "Initiator Task Tag"),
        column("request_text", "str", "keys of the request, NUL shown as a space"),
        column("response_text", "str", "keys of the response, NUL shown as a space"),
    ),
    _exchange(
        "logouts",
        "one Logout Request and its Logout Response",
        *_REQUEST,
        column("reason", "uint8", "reason code", source="RFC 7143 section 11.14.1"),
        column("cid", "uint16", "connection to log out", null=True),
        column("response", "uint8", "response", null=True, source="RFC 7143 section 11.15.1"),
    ),
    _exchange(
        "rejects",
        "one Reject",
        *_ONE_WAY,
        column("reason", "uint8", "reason", source="RFC 7143 section 11.17.1"),
        column("reason_text", "str", "meaning of the reason"),
        column("rejected_opcode", "uint8", "opcode of the rejected header", null=True),
        column("rejected_initiator_task_tag", "uint32", "Initiator Task Tag of the rejected header", null=True),
    ),
    _exchange(
        "asyncs",
        "one Asynchronous Message",
        *_ONE_WAY,
        column("event", "uint8", "AsyncEvent", source="RFC 7143 section 11.9.1"),
        column("event_text", "str", "meaning of the event"),
        column("vendor_code", "uint8", "AsyncVCode"),
        column("parameter1", "uint16", "Parameter1"),
        column("parameter2", "uint16", "Parameter2"),
        column("parameter3", "uint16", "Parameter3"),
        column("lun", "uint64", "logical unit", null=True),
    ),
    _exchange(
        "snacks",
        "one SNACK Request",
        *_ONE_WAY,
        column("snack_type", "uint8", "type", source="RFC 7143 section 11.16.1"),
        column("initiator_task_tag", "uint32", "Initiator Task Tag"),
        column("target_transfer_tag", "uint32", "Target Transfer Tag or SNACK Tag"),
        column("begin_run", "uint32", "BegRun"),
        column("run_length", "uint32", "RunLength"),
    ),
)

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
