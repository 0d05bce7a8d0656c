"""The truth of a run, as the lab's runs, `initiator --truth` and `target --truth` write it (docs/lab.md).

It has kinds, taps, and commands, whose values are compared with the columns of ``cycles``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from iscsitrace.errors import InputInvalid

SCHEMA_VERSION = 1
"""Schema of the truth files that can be read."""
KINDS = ("simulation", "run", "initiator", "target")
TAPS = "initiator, target, target-2 ..."

INSTANTS = (
    *("command_first_ns", "command_last_ns", "r2t_first_ns", "data_first_ns", "data_last_ns", "data_acked_ns"),
    "status_ns",
)
FIRST_PORT = 40_000
"""The simulated initiator opens its connection number n from this port + n."""
_OF_WORKLOAD = {
    "operation": "operation",
    "lba": "lba",
    "block_count": "block_count",
    "bytes": "bytes",
    "status": "status",
}
# column of the table cycles -> column of the truth
FIELDS: dict[str, dict[str, str]] = {
    "simulation": {
        "operation": "operation",
        "lba": "lba",
        "block_count": "block_count",
        "bytes": "block_size_bytes",
        "data_bytes": "bytes",
        "data_pdu_count": "data_pdu_count",
        "r2t_count": "r2t_count",
        "status": "status",
    },
    "run": _OF_WORKLOAD,
    "initiator": _OF_WORKLOAD,
    "target": {
        "operation": "operation",
        "lba": "lba",
        "block_count": "block_count",
        "bytes": "expected_data_transfer_length",
        "data_bytes": "transferred_bytes",
        "r2t_count": "r2t_count",
        "status": "status",
    },
}
# key -> names in the truth: of the initiator's value, of the target's value
KEYS: dict[str, tuple[str, str]] = {
    "MaxRecvDataSegmentLength": (
        "initiator_max_recv_data_segment_length",
        "target_max_recv_data_segment_length",
    )
} | {
    key: (name, name)
    for key, name in {
        "HeaderDigest": "header_digest",
        "DataDigest": "data_digest",
        "MaxConnections": "max_connections",
        "InitialR2T": "initial_r2t",
        "ImmediateData": "immediate_data",
        "MaxBurstLength": "max_burst_length",
        "FirstBurstLength": "first_burst_length",
        "DefaultTime2Wait": "default_time2wait",
        "DefaultTime2Retain": "default_time2retain",
        "MaxOutstandingR2T": "max_outstanding_r2t",
        "DataPDUInOrder": "data_pdu_in_order",
        "DataSequenceInOrder": "data_sequence_in_order",
        "ErrorRecoveryLevel": "error_recovery_level",
        "TaskReporting": "task_reporting",
        "iSCSIProtocolLevel": "iscsi_protocol_level",
    }.items()
}

Row = Mapping[str, Any]
End = tuple[int, int]
"""The initiator's end of a connection: the number of its target, and its port.

A kernel reuses a port for another target, so a port alone does not identify a connection of a real run. In other runs
the target's number is 0.
"""


def check(truth: Mapping[str, Any]) -> None:
    """Raises InputInvalid for a truth that cannot be read."""
    if truth.get("schema") != SCHEMA_VERSION or truth.get("kind") not in KINDS:
        raise InputInvalid(
            f"not a truth of schema {SCHEMA_VERSION} and kind {', '.join(KINDS)}: schema {truth.get('schema')!r}, "
            f"kind {truth.get('kind')!r}"
        )


def tap_of(truth: Mapping[str, Any], file_name: str) -> str | None:
    """The tap of a capture of that name; None where the truth does not name the file."""
    captures = truth.get("captures", {})
    if file_name == captures.get("initiator"):
        return "initiator"
    names = captures.get("targets", [])
    return target_tap(names.index(file_name)) if file_name in names else None


def target_tap(place: int) -> str:
    """The name of the tap beside a target."""
    return "target" if place == 0 else f"target-{place + 1}"


def target_of(truth: Mapping[str, Any], tap: str | None) -> int | None:
    """Number of the target beside the tap; None for the initiator. InputInvalid for a tap that the truth lacks."""
    taps = [target_tap(place) for place in range(len(truth["target_ends"]))]
    if tap == "initiator":
        return None
    if tap not in taps:
        raise InputInvalid(f"unknown tap {tap}; the truth has initiator, {', '.join(taps)}")
    return taps.index(tap)


def target_numbers(truth: Mapping[str, Any]) -> dict[str, int]:
    """The number of each target of a real run, by address."""
    if truth["kind"] != "run":
        return {}
    targets = truth["results"].get("targets", ())
    return {one["address"].rpartition(":")[0].strip("[]"): number for number, one in enumerate(targets)}


def calls(truth: Mapping[str, Any]) -> list[Row]:
    """The reads and writes of a program, in the order of completion: ``operation offset bytes latency_ns``."""
    names = ("operation", "offset", "bytes", "latency_ns")
    columns = [truth["commands"][name] for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def rows(truth: Mapping[str, Any], target: int | None) -> Iterator[Row]:
    """The commands of the truth that passed the tap, by the names of its columns and of the instants."""
    columns = dict(truth["cycles"])
    kind = truth["kind"]
    columns.pop("by_initiator", None)
    if kind == "target" and columns:
        columns["operation"] = [_operation(command) for command in columns["command"]]
    if kind == "simulation":
        at_initiator, at_target = columns.pop("initiator"), columns.pop("at_target")
        columns |= at_initiator if target is None else at_target
        blocks = [one["unit"] for one in truth["results"]["targets"]]
        lengths = [unit and unit["block_length_bytes"] for unit in blocks]
        columns["block_size_bytes"] = [
            count * lengths[number] if count is not None and number is not None and lengths[number] else None
            for count, number in zip(columns["block_count"], columns["target"], strict=True)
        ]
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        is_elsewhere = target is not None and row["target"] != target
        if is_elsewhere or (kind == "simulation" and row["command_first_ns"] is None):
            continue
        yield row


def _operation(command: str) -> str:
    """The operation in the table ``cycles`` for T10's name of a command, such as READ(10)."""
    return command.partition("(")[0].strip().lower().replace(" ", "_")
