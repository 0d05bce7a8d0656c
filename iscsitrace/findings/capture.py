"""A poor capture: what is missing from a session or connection, and whether its limiter is still known."""

from __future__ import annotations

from typing import Final

import numpy as np

from iscsitrace.findings.case import Case
from iscsitrace.findings.finding import Advice, Explains, Found, Observation, Problem
from iscsitrace.findings.thresholds import FULL, WARNING
from iscsitrace.measure.facts import Array, Facts, path_ns
from iscsitrace.measure.session import WAITS, Session
from iscsitrace.wording import amounts as wording

COVERAGE: Final = 0.98
"""Least share of the stream bytes to be decoded, and of the PDUs to be captured. With more than 2 % missing, what is
missing can matter: a missing PDU is a missing phase of a command."""

UNKNOWN: Final = 0.05
"""Least share of the I/O time that cannot be attributed; as WORTH_A_CHANGE."""

_GAPS = ("capture_gap", "sync_lost", "hole_abandoned", "header_assumed")
_DIRECTIONS = ("to_target", "to_initiator")


def decoded_shares(facts: Facts) -> Array:
    """The share of the stream bytes that is decoded; 1 of none."""
    return _shares(facts, "explained_bytes", "stream_bytes")


def captured_shares(facts: Facts) -> Array:
    """The share of the PDUs that is in the capture; 1 of none."""
    return _shares(facts, "pdu_count", "pdu_count", "missing_pdu_count")


def _shares(facts: Facts, part: str, *whole: str) -> Array:
    have, of = (
        facts.total("connections", *(f"{name}_{direction}" for name in names for direction in _DIRECTIONS))
        for names in ((part,), whole)
    )
    return np.divide(have, of, out=np.ones(len(facts)), where=of > 0)


def unknown_shares(facts: Facts) -> Array:
    """The share of the I/O time that cannot be attributed."""
    return facts.share(facts.part_ns("unknown"))


def _lacks_rtt(facts: Facts) -> Array:
    return np.asarray((facts.jobs_ns > 0) & (facts.once(path_ns) < 0))


def is_poor(facts: Facts) -> Array:
    """Where something is missing that can matter: see `reasons`."""
    is_low = [facts.once(shares) < COVERAGE for shares in (decoded_shares, captured_shares)]
    return np.asarray(np.logical_or.reduce([facts.once(unknown_shares) >= UNKNOWN, *is_low, facts.once(_lacks_rtt)]))


def forbids_verdict(facts: Facts) -> Array:
    """Where the limiter is unknown: the unattributed time is the largest wait beside data that do not pass most of the
    time, the RTT is unknown, or so many PDUs are missing as make a warning.
    """
    unknown_ns = facts.part_ns("unknown")
    most_ns = np.max([facts.part_ns(part) for part in WAITS if part != "unknown"], axis=0)
    has_time = facts.sums_ns.any(axis=(1, 2))
    is_waiting = facts.part_ns("transfer") < FULL * facts.jobs_ns
    is_open = (facts.once(path_ns) < 0) | (is_waiting & (unknown_ns > 0) & (unknown_ns >= most_ns))
    return np.asarray((facts.once(captured_shares) < 1 - WARNING) | (has_time & facts.once(is_poor) & is_open))


def reasons(subject: Session) -> str:
    """What is missing, the most important first; empty for a good capture."""
    found = []
    if (unknown := subject.fact(unknown_shares)) >= UNKNOWN:
        found.append(f"{wording.percent(unknown)} of the time cannot be attributed")
    for shares, what in ((decoded_shares, "stream bytes are decoded"), (captured_shares, "PDUs were captured")):
        if (share := subject.fact(shares)) < COVERAGE:
            found.append(f"only {wording.percent(share)} of the {what}")
    if subject.fact(_lacks_rtt):
        found.append("the RTT to one side or both was not measured")
    return "; ".join(found)


def _poor(case: Case) -> Observation:
    counters = case.subject.tables["counters"].rows(("name", "first_frame"))
    frames = [row["first_frame"] for row in counters if row["name"] in _GAPS]
    return Observation(reasons(case.subject), frames)


CAPTURE_POOR: Final = Problem(
    name="capture_poor",
    meaning="Too much is missing from the capture, perhaps the cause of the problem.",
    condition=f"Less than {wording.percent(COVERAGE)} of the stream bytes decoded or of the PDUs captured, or at least "
    f"{wording.percent(UNKNOWN)} of the time not attributed, or no RTT measured to one side or both.",
    evidence="The first frames after what is missing, where known. The share is the time not attributed.",
    example="17 % of the time cannot be attributed; only 98 % of the stream bytes are decoded; only 95 % of the PDUs "
    "were captured.",
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
    where=lambda facts: Found(facts.once(is_poor), facts.part_ns("unknown")),
    tell=_poor,
)
