"""The operational login keys of RFC 7143, section 13: the name of each in settings and results, and its kind of value.

Generated from core/wire/src/key.rs by `python -m tools.login_keys`; do not edit.
"""

from __future__ import annotations

NUMBER, TRUTH, LIST = "a number", "Yes or No", "a list of values"
LOGIN_KEYS: dict[str, tuple[str, str]] = {
    "HeaderDigest": ("header_digest", LIST),
    "DataDigest": ("data_digest", LIST),
    "MaxConnections": ("max_connections", NUMBER),
    "InitialR2T": ("initial_r2t", TRUTH),
    "ImmediateData": ("immediate_data", TRUTH),
    "MaxRecvDataSegmentLength": ("max_recv_data_segment_length", NUMBER),
    "MaxBurstLength": ("max_burst_length", NUMBER),
    "FirstBurstLength": ("first_burst_length", NUMBER),
    "DefaultTime2Wait": ("default_time2wait", NUMBER),
    "DefaultTime2Retain": ("default_time2retain", NUMBER),
    "MaxOutstandingR2T": ("max_outstanding_r2t", NUMBER),
    "DataPDUInOrder": ("data_pdu_in_order", TRUTH),
    "DataSequenceInOrder": ("data_sequence_in_order", TRUTH),
    "ErrorRecoveryLevel": ("error_recovery_level", NUMBER),
    "TaskReporting": ("task_reporting", LIST),
    "iSCSIProtocolLevel": ("iscsi_protocol_level", NUMBER),
}
"""Key in the RFC's spelling: its name in settings and results, and its kind of value."""
