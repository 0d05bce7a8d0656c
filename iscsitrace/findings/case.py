"""The case under examination: a session or connection, its groups, and facts that several findings share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from iscsitrace.findings.history import TapOf, only_tap
from iscsitrace.findings.thresholds import WORTH_A_CHANGE
from iscsitrace.measure import system_calls
from iscsitrace.measure.facts import Remembering
from iscsitrace.measure.intervals import Span
from iscsitrace.measure.line import Times
from iscsitrace.measure.session import Session
from iscsitrace.measure.system_calls import SystemCall
from iscsitrace.relate.jobs.streams import Job
from iscsitrace.relate.mirrors.account import Account
from iscsitrace.relate.paths import PathsUse
from iscsitrace.tables.table import Table

_Fact = TypeVar("_Fact")


@dataclass(frozen=True)
class Groups(Remembering):
    """Mirrors, parallel jobs, lines and paths of the whole trace, and the table of all commands."""

    mirrors: tuple[Account, ...]
    jobs: tuple[Job, ...]
    cycles: Table
    lines: Mapping[int, Times] = field(default_factory=dict)
    """The sessions that read or write over each line, by its number: when each did."""
    paths: tuple[PathsUse, ...] = ()
    """Volumes of which several paths were in service together."""

    tap_of: TapOf = only_tap
    """What sentences call the taps of the trace."""

    start_ns: int = 0
    """The zero of the times that sentences say."""

    end_ns: int = 0
    """The last packet of any connection."""


class Case:
    """One session or connection, and the facts that several findings share."""

    def __init__(self, subject: Session, groups: Groups) -> None:
        self.subject = subject
        self.groups = groups
        self._facts: dict[Callable[[Session], Any], Any] = {}

    @property
    def is_session(self) -> bool:
        """Whether it is a session: else one of its connections."""
        return self.subject.is_session

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The time of its I/O: from the start of the busy time to its end."""
        busy = self.subject.busy
        return ((int(busy.raw("time_first_ns")[0]), int(busy.raw("time_last_ns")[-1])),) if len(busy) else ()

    @property
    def sessions(self) -> tuple[int, ...]:
        """Its session."""
        numbers = (self.subject.number,) if self.is_session else (self.subject.connections[0]["session"],)
        return tuple(number for number in numbers if number is not None)

    @property
    def luns(self) -> tuple[int, ...]:
        """The logical units that it reads or writes."""
        return self.subject.luns

    @property
    def jobs_ns(self) -> int:
        """Busy time."""
        return self.subject.jobs_ns

    def part_ns(self, part: str) -> int:
        """Busy time in one part of the time breakdown."""
        return self.subject.part_ns(part)

    def share(self, amount_ns: float) -> float:
        """Share of the busy time."""
        return self.subject.share(amount_ns)

    def once(self, compute: Callable[[Session], _Fact]) -> _Fact:
        """Call a function on the subject, once; later calls return the same result."""
        if compute not in self._facts:
            self._facts[compute] = compute(self.subject)
        fact: _Fact = self._facts[compute]
        return fact

    @cached_property
    def system_call(self) -> SystemCall | None:
        """The inferred system call behind the reads and writes; None where nothing shows one."""
        return system_calls.infer(self.subject.transfers)


def is_worth(subject: Session, amount_ns: float, least: float = WORTH_A_CHANGE) -> bool:
    """Whether a time is at least this share of the busy time."""
    return subject.share(amount_ns) >= least
