"""A capture that does not tell enough: what is missing of a session or connection, and whether it forbids a verdict."""

from __future__ import annotations

from typing import Final

from iscsitrace.analysis.findings.case import Case
from iscsitrace.analysis.findings.finding import Advice, Explains, Observation, Problem
from iscsitrace.analysis.session.subject import WAITS, Subject
from iscsitrace.wording import amounts as wording

COVERAGE: Final = 0.98
"""Share of stream bytes, and of PDUs, that has to be explained: with more than one in fifty missing, what is missing
can be what matters (a lost PDU is a lost phase)."""

UNKNOWN: Final = 0.05
"""Share of the jobs' time without an owner that is said; as WORTH_A_CHANGE."""

_GAPS = ("capture_gap", "sync_lost", "hole_abandoned", "header_assumed")
_DIRECTIONS = ("to_target", "to_initiator")


def reasons(subject: Subject) -> list[str]:
    """What of the capture is too poor, the weightiest first; empty when it is good enough."""
    found = []
    unknown = subject.share(subject.part_ns("unknown"))
    if unknown >= UNKNOWN:
        found.append(f"{wording.percent(unknown)} of the time has no known owner")
    for part, whole, what in (("explained_bytes", "stream_bytes", "bytes"), ("pdu_count", None, "PDUs")):
        have = sum(row[f"{part}_{direction}"] for row in subject.connections for direction in _DIRECTIONS)
        lost = sum(row[f"missing_pdu_count_{direction}"] for row in subject.connections for direction in _DIRECTIONS)
        of = (
            sum(row[f"{whole}_{direction}"] for row in subject.connections for direction in _DIRECTIONS)
            if whole
            else have + lost
        )
        if of and have / of < COVERAGE:
            found.append(f"only {wording.percent(have / of)} of the {what} are explained")
    if subject.jobs_ns and subject.path_ns is None:
        found.append("the round-trip time to one side or both was never seen")
    return found


def forbids_verdict(subject: Subject) -> bool:
    """Whether what is unknown could be the limiter of the work: it is as much as any wait, or the path is unknown."""
    if subject.budget is None or not reasons(subject):
        return False
    most = max(subject.part_ns(part) for part in WAITS if part != "unknown")
    return subject.path_ns is None or 0 < subject.part_ns("unknown") >= most


def _poor(case: Case) -> Observation | None:
    subject = case.subject
    said = reasons(subject)
    if not said:
        return None
    counters = subject.tables["counters"].rows(("name", "first_frame"))
    frames = [row["first_frame"] for row in counters if row["name"] in _GAPS]
    return Observation("; ".join(said), frames, subject.part_ns("unknown"))


CAPTURE_POOR: Final = Problem(
    name="capture_poor",
    meaning="The capture does not tell enough: what it lost may be what matters.",
    condition=f"Under {wording.percent(COVERAGE)} of the stream bytes or of the PDUs explained, or "
    f"{wording.percent(UNKNOWN)} of the time or more without an owner, or no round-trip time to either side.",
    evidence="The first frames of what is missing, where known. The share is the time without an owner.",
    explains=Explains("unknown"),
    severity="data_loss",
    advice=(
        Advice("`iscsitrace check` says what is missing and why."),
        Advice(
            "Capture again: from before the login, both directions, with -s 256 and a larger buffer (-B), next to a "
            "host."
        ),
    ),
    observe=_poor,
)

PROBLEMS: Final = (CAPTURE_POOR,)
