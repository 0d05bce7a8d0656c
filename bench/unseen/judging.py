"""What `diagnose` says of a run at each tap and at both together, and whether it is right.

Two taps are equal when their headlines have the same name and verdict, or when both headlines are right and name one
cause of the table of `acceptance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import iscsitrace
from bench.unseen.acceptance import HEALTHY, LIMITED, NONE, PROBLEM, Accepted
from iscsitrace.api import Trace
from iscsitrace.errors import InputInvalid
from iscsitrace.findings import NEEDED
from iscsitrace.taps.reading import read_taps

BOTH: Final = "both"
NO_RESULT: Final = "no result"


@dataclass(frozen=True)
class Said:
    """The headline of a diagnosis."""

    name: str
    verdict: str
    """Empty where the document has none: then the name `none` is healthy or limited, and any other a problem."""
    limiter: str = ""
    text: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    """The time breakdown of the session that was busy longest."""

    def is_in(self, accepted: Accepted) -> bool:
        """Whether it is right."""
        if self.verdict:
            return accepted.is_right(self.name, self.verdict)
        own = (HEALTHY, LIMITED) if self.name == NONE else (PROBLEM, LIMITED)
        return any(accepted.is_right(self.name, verdict) for verdict in own)

    def __str__(self) -> str:
        return f"{self.name} ({self.verdict})" if self.verdict else self.name


def said_of(captures: Mapping[str, Path]) -> dict[str, Said]:
    """What is said at each tap, and at both together."""
    found = {tap: _said(iscsitrace.read(str(file), tables=NEEDED)) for tap, file in captures.items()}
    try:
        found[BOTH] = _said(read_taps(captures, tables=NEEDED))
    except InputInvalid as error:
        found[BOTH] = Said(NO_RESULT, "", text=str(error))
    return found


def _said(trace: Any) -> Said:
    document = Trace.of(trace).diagnose().as_dict()
    headline = document["headline"] or {"name": NO_RESULT, "text": ""}
    sessions = [each for each in document["sessions"] if each.get("limiter")]
    busiest: Mapping[str, Any] = max(sessions, key=lambda each: each["jobs_ns"], default={"limiter": "", "shares": {}})
    return Said(headline["name"], headline.get("verdict", ""), busiest["limiter"], headline["text"], busiest["shares"])


def are_equal(one: Said, other: Said, accepted: Accepted) -> bool:
    """Whether two taps say the same."""
    if (one.name, one.verdict) == (other.name, other.verdict):
        return True
    is_right = one.is_in(accepted) and other.is_in(accepted)
    return is_right and bool(accepted.labels(one.name) & accepted.labels(other.name))
