"""A capture compared with the truth of a shipped sample: totals, and the parameters that the kernels reported.

That truth (``samples/*/truth.json``) was told by the programs that made the traffic and by tshark. It has totals, not
single commands. Values that it lacks, and parameters whose negotiation the capture lacks, are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from iscsitrace.compare.agreement import Agreement
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.table import Source

_COMMAND = "SCSI Command"


def is_sample(truth: Mapping[str, Any]) -> bool:
    """Whether it is the truth of a sample, and not of a run."""
    return "kind" not in truth and {"packet_count", "connection_count"} <= truth.keys()


def compare(source: Source, packet_count: int, truth: Mapping[str, Any]) -> Agreement:
    """Compares the tables of a capture with the truth of its sample. InputInvalid for a truth that is none."""
    agreement = Agreement(None)
    try:
        for subject, found, told in _totals(source, packet_count, truth):
            agreement.value_count += 1
            if found != told:
                agreement.differ("capture", None, f"{subject}: {found} in the capture, {told} in the truth")
        for connection, key, value, effective in _parameters(source, truth):
            agreement.parameter_count += 1
            if value != effective:
                agreement.differ("parameter", connection, f"{key}: {value} in the capture, {effective} in the truth")
    except (KeyError, TypeError, AttributeError) as error:
        raise InputInvalid(f"the truth is damaged: {type(error).__name__}: {error}") from error
    return agreement


def _totals(source: Source, packet_count: int, truth: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    yield "packets", packet_count, truth["packet_count"]
    yield "connections", len(source("connections")), truth["connection_count"]
    if "keys_in_force" in truth:
        # a connection is a session, unless the truth says otherwise
        yield "sessions", len(source("sessions")), truth.get("session_count", truth["connection_count"])
    if _COMMAND in truth.get("pdu_count", {}):
        yield "commands", len(source("cycles")), truth["pdu_count"][_COMMAND]
    if "aborted_task_count" in truth:
        yield "aborted commands", int(source("cycles").raw("is_aborted").sum()), truth["aborted_task_count"]


def _parameters(source: Source, truth: Mapping[str, Any]) -> Iterator[tuple[int | None, str, str, str]]:
    sessions = list(source("sessions").rows(("session", "target_name", "login_status")))
    rows = {(row["session"], row["key"]): row for row in source("parameters").rows()}
    for told in truth.get("keys_in_force", ()):
        for session in sessions:
            if session["target_name"] != told["target_name"] or session["login_status"] != 0:
                continue
            for key, value in told.items():
                row = rows.get((session["session"], key))
                if row is not None:
                    yield row["connection"], key, row["effective_initiator"], value
