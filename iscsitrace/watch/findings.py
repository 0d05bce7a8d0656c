"""The diagnosis of the recent past, now and then: what is found, since when, and what it took to find out.

It takes no more than a share of the time: where a diagnosis takes long, the next one comes later.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from iscsitrace.analysis.findings.examination import examine
from iscsitrace.tables.live_pass import SECOND_NS
from iscsitrace.tables.trace import Trace

EVERY_NS = 5 * SECOND_NS
SHARE_MAX = 0.1
"""Of the time that a diagnosis may take."""


@dataclass(frozen=True)
class Found:
    """A finding of a session."""

    session: int
    name: str
    severity: str
    share: float | None
    text: str
    since_ns: int
    """Capture time of the diagnosis that found it first, without a break until now."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


class Findings:
    """What is found at the moment."""

    def __init__(self, every_ns: int = EVERY_NS) -> None:
        self.current: tuple[Found, ...] = ()
        self.verdicts: dict[int, str] = {}
        self.every_ns = every_ns
        self._next_ns: int | None = None

    def is_due(self, now_ns: int) -> bool:
        """Whether it is time for the next diagnosis."""
        if self._next_ns is None:
            self._next_ns = now_ns + self.every_ns
        return now_ns >= self._next_ns

    def forget(self) -> None:
        """Nothing is known any more."""
        self.current, self.verdicts = (), {}

    def update(self, recent: Trace, now_ns: int) -> None:
        """Examines the recent past."""
        started = time.thread_time_ns()
        # a mirror is recognised by many writes, of which the recent past has few
        diagnosis = examine(recent.table, has_mirrors=False)
        took_ns = time.thread_time_ns() - started
        self._next_ns = now_ns + max(self.every_ns, int(took_ns / SHARE_MAX))
        since = {(found.session, found.name): found.since_ns for found in self.current}
        self.current = tuple(
            Found(
                number,
                finding.name,
                finding.severity,
                finding.share,
                finding.text,
                since.get((number, finding.name), now_ns),
            )
            for number, opinion in diagnosis.sessions.items()
            for finding in opinion.findings
        )
        self.verdicts = {number: opinion.verdict for number, opinion in diagnosis.sessions.items()}
