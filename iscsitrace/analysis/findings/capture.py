"""A capture that does not tell enough: what is missing of a session or connection, and whether it forbids a verdict."""

from __future__ import annotations

from collections.abc import Iterator

from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import COVERAGE, UNKNOWN
from iscsitrace.analysis.session.subject import WAITS, Subject
from iscsitrace.wording import amounts as wording

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


def find(subject: Subject) -> Iterator[Finding]:
    """capture_poor."""
    said = reasons(subject)
    if not said:
        return
    counters = subject.tables["counters"].rows(("name", "first_frame"))
    frames = [row["first_frame"] for row in counters if row["name"] in _GAPS]
    yield subject.finding("capture_poor", subject.part_ns("unknown"), "; ".join(said), frames, "data_loss")
