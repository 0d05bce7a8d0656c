"""Diagnoses of the recent past at intervals: the headline, the findings, and since when each was found.

Diagnoses take at most a fixed share of the time: after a slow one, the next comes later.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from iscsitrace.diagnosis.examination import examine
from iscsitrace.diagnosis.headline import Headline, Verdict
from iscsitrace.relate.stories import sessions_over
from iscsitrace.tables.memory import cycles_freed
from iscsitrace.tables.nulls import known
from iscsitrace.tables.passes import SECOND_NS, Settings
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.watch.figures import SHOWN_MAX

EVERY_NS = 5 * SECOND_NS
SHARE_MAX = 0.1
"""Largest share of the time for diagnoses."""


def current(recent: TraceTables, now_ns: int) -> Callable[[str], Table]:
    """The tables of the recent past, without sessions that logged out or were refused before it, or whose work had gone
    on in another by then: nothing happens in them any more, and where sessions are short, they are most.
    """
    sessions, cycles = recent.table("sessions"), recent.table("cycles")
    before_ns = now_ns - Settings().keep_ns
    numbers = sessions.raw("session")
    in_flight = cycles.raw("session")[~known(cycles, "status")]
    is_over = np.isin(numbers, [*sessions_over(sessions, before_ns, "logout", "refused")])
    gone = numbers[is_over & (sessions.raw("time_last_ns") < before_ns) & ~np.isin(numbers, in_flight)]
    connections = recent.table("connections")
    left = connections.raw("connection")[np.isin(connections.raw("session"), gone)]

    @cache
    def table(name: str) -> Table:
        found = recent.table(name)
        for column, numbers in (("session", gone), ("connection", left)):
            # other tables name commands by their rows
            if len(numbers) and column in found and name not in ("cycles", "rounds"):
                found = found.select(~np.isin(found.raw(column), numbers))
        return found

    return table


@dataclass(frozen=True)
class SessionFinding:
    """A finding of a session."""

    session: int
    name: str
    severity: str
    share: float | None
    cost: str
    """As text; JSON has the share."""
    text: str
    since_ns: int
    """Capture time of the first of the consecutive diagnoses that found it."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: value for name, value in vars(self).items() if name != "cost"}


class CurrentFindings:
    """The current findings."""

    def __init__(self, every_ns: int = EVERY_NS) -> None:
        self.current: tuple[SessionFinding, ...] = ()
        self.headline: Headline | None = None
        self.stories: tuple[tuple[tuple[int, ...], Headline], ...] = ()
        """The sessions of each story, and its headline."""
        self.left_out = 0
        """Sessions of the last diagnosis that are not in it, because others are worse."""
        self.every_ns = every_ns
        self._next_ns: int | None = None
        self._start_ns: int | None = None

    def is_due(self, now_ns: int) -> bool:
        """Whether the next diagnosis is due."""
        if self._next_ns is None:
            self._next_ns = now_ns + self.every_ns
        return now_ns >= self._next_ns

    def forget(self) -> None:
        """Drop all findings."""
        self.current, self.headline, self.stories, self.left_out = (), None, (), 0

    def update(self, recent: TraceTables, now_ns: int) -> None:
        """Diagnose the recent past."""
        with cycles_freed():
            self._update(recent, now_ns)

    def _update(self, recent: TraceTables, now_ns: int) -> None:
        started = time.thread_time_ns()
        # later the first input may be forgotten
        self._start_ns = recent.start_ns if self._start_ns is None else self._start_ns
        # recognising a mirror takes many writes, and the recent past has few
        diagnosis = examine(current(recent, now_ns), has_mirrors=False, start_ns=self._start_ns)
        shown = _worst(diagnosis.sessions, lambda number: diagnosis.sessions.verdicts[number])
        told = _worst(range(len(diagnosis.stories)), lambda place: diagnosis.stories.verdicts[place])
        self.left_out = len(diagnosis.sessions) - len(shown)
        since = {(found.session, found.name): found.since_ns for found in self.current}
        self.current = tuple(
            SessionFinding(
                number,
                finding.name,
                finding.severity,
                finding.share,
                finding.cost_in_words,
                finding.text,
                since.get((number, finding.name), now_ns),
            )
            for number in shown
            for finding in diagnosis.sessions[number].findings
        )
        self.headline = diagnosis.headline
        self.stories = tuple(
            (each.story.numbers, each.headline) for each in (diagnosis.stories[place] for place in told)
        )
        # sentences are made only here
        took_ns = time.thread_time_ns() - started
        self._next_ns = now_ns + max(self.every_ns, int(took_ns / SHARE_MAX))


def _worst(numbers: Collection[int], verdict_of: Callable[[int], Verdict]) -> list[int]:
    """At most SHOWN_MAX of them, those with the worst verdicts, in their order."""
    if len(numbers) <= SHOWN_MAX:
        return list(numbers)
    return sorted(heapq.nlargest(SHOWN_MAX, numbers, key=lambda number: verdict_of(number).weight))
