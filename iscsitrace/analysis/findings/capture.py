"""A poor capture: what is missing from a session or connection, and whether its limiter is still known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from iscsitrace.analysis.findings.case import Case
from iscsitrace.analysis.findings.finding import Advice, Explains, Observation, Problem
from iscsitrace.analysis.findings.thresholds import WARNING
from iscsitrace.analysis.session.facts import Array, Facts, path_ns
from iscsitrace.analysis.session.session import WAITS, Session
from iscsitrace.wording import amounts as wording

COVERAGE: Final = 0.98
"""Least share of the stream bytes to be decoded, and of the PDUs to be captured. With more than 2 % missing, what is
missing can matter: a missing PDU is a missing phase of a command."""

UNKNOWN: Final = 0.05
"""Least share of the busy time that cannot be attributed; as WORTH_A_CHANGE."""

_GAPS = ("capture_gap", "sync_lost", "hole_abandoned", "header_assumed")
_DIRECTIONS = ("to_target", "to_initiator")


def reasons(subject: Session) -> list[str]:
    """What is missing, the most important first; empty for a good capture."""
    found = []
    unknown = subject.share(subject.part_ns("unknown"))
    if unknown >= UNKNOWN:
        found.append(f"{wording.percent(unknown)} of the time cannot be attributed")
    for share, what in (
        (decoded_share(subject.connections), "stream bytes are decoded"),
        (captured_share(subject.connections), "PDUs were captured"),
    ):
        if share < COVERAGE:
            found.append(f"only {wording.percent(share)} of the {what}")
    if subject.jobs_ns and subject.path_ns is None:
        found.append("the RTT to one side or both was not measured")
    return found


def decoded_share(connections: Sequence[Mapping[str, Any]]) -> float:
    """The share of the stream bytes of connections that is decoded; 1 of none."""
    have, of = (
        sum(row[f"{part}_{direction}"] for row in connections for direction in _DIRECTIONS)
        for part in ("explained_bytes", "stream_bytes")
    )
    return have / of if of else 1.0


def decoded_shares(facts: Facts) -> Array:
    """The same of the connections of all sessions."""
    have, of = (
        facts.total("connections", *(f"{part}_{direction}" for direction in _DIRECTIONS))
        for part in ("explained_bytes", "stream_bytes")
    )
    return np.divide(have, of, out=np.ones(len(facts)), where=of > 0)


def captured_share(connections: Sequence[Mapping[str, Any]]) -> float:
    """The share of the PDUs of connections that is in the capture; 1 of none."""
    have, lost = (
        sum(row[f"{name}_{direction}"] for row in connections for direction in _DIRECTIONS)
        for name in ("pdu_count", "missing_pdu_count")
    )
    return have / (have + lost) if have + lost else 1.0


def forbids_verdict(subject: Session) -> bool:
    """Whether the limiter is unknown: the unattributed time is the largest wait, the RTT is unknown, or so many PDUs
    are missing as make a warning.
    """
    if captured_share(subject.connections) < 1 - WARNING:
        return True
    if subject.budget is None or not reasons(subject):
        return False
    most = max(subject.part_ns(part) for part in WAITS if part != "unknown")
    return subject.path_ns is None or 0 < subject.part_ns("unknown") >= most


def _may_be_poor(facts: Facts) -> Array:
    """Where any of the `reasons` holds."""

    def is_below(have: tuple[str, ...], lost: tuple[str, ...], *, is_whole: bool) -> Array:
        amounts = [
            facts.total("connections", *(f"{name}_{each}" for name in names for each in _DIRECTIONS))
            for names in (have, lost)
        ]
        whole = amounts[1] if is_whole else amounts[0] + amounts[1]
        return amounts[0] < COVERAGE * whole

    return np.asarray(
        (facts.share(facts.part_ns("unknown")) >= UNKNOWN)
        | is_below(("explained_bytes",), ("stream_bytes",), is_whole=True)
        | is_below(("pdu_count",), ("missing_pdu_count",), is_whole=False)
        | ((facts.jobs_ns > 0) & (facts.once(path_ns) < 0))
    )


def _poor(case: Case) -> Observation | None:
    subject = case.subject
    missing = reasons(subject)
    if not missing:
        return None
    counters = subject.tables["counters"].rows(("name", "first_frame"))
    frames = [row["first_frame"] for row in counters if row["name"] in _GAPS]
    return Observation("; ".join(missing), frames, subject.part_ns("unknown"))


CAPTURE_POOR: Final = Problem(
    name="capture_poor",
    meaning="Too much is missing from the capture: the cause of the problem can be among it.",
    condition=f"Less than {wording.percent(COVERAGE)} of the stream bytes decoded or of the PDUs captured, or at least "
    f"{wording.percent(UNKNOWN)} of the time not attributed, or no RTT measured to one side or both.",
    evidence="The first frames after what is missing, where known. The share is the time not attributed.",
    explains=Explains("unknown"),
    severity="data_loss",
    rank="note",
    advice=(
        Advice("Run `iscsitrace check`: it shows what is missing and why."),
        Advice(
            "Capture again: from before the login, in both directions, with -s 256 and a larger buffer (-B), at one of "
            "the hosts."
        ),
    ),
    where=_may_be_poor,
    tell=_poor,
)

PROBLEMS: Final = (CAPTURE_POOR,)
