"""A session or connection in which findings are looked for, the groups it belongs to, and what is computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from iscsitrace.analysis.findings.thresholds import WORTH_A_CHANGE
from iscsitrace.analysis.groups.jobs.streams import Job
from iscsitrace.analysis.groups.mirrors.account import Account
from iscsitrace.analysis.session import system_calls
from iscsitrace.analysis.session.subject import Subject
from iscsitrace.analysis.session.system_calls import SystemCall
from iscsitrace.tables.table import Table

_Fact = TypeVar("_Fact")


@dataclass(frozen=True)
class Groups:
    """What several sessions or connections are together, and the table of all their tasks."""

    mirrors: tuple[Account, ...]
    jobs: tuple[Job, ...]
    cycles: Table


class Case:
    """A session or connection, and what several findings need to know of it."""

    def __init__(self, subject: Subject, groups: Groups) -> None:
        self.subject = subject
        self.groups = groups
        self._facts: dict[Callable[[Subject], Any], Any] = {}

    def once(self, compute: Callable[[Subject], _Fact]) -> _Fact:
        """What a function makes of the subject, computed when it is first asked for."""
        if compute not in self._facts:
            self._facts[compute] = compute(self.subject)
        fact: _Fact = self._facts[compute]
        return fact

    @cached_property
    def system_call(self) -> SystemCall | None:
        """The system call behind the reads and writes; None where nothing tells."""
        return system_calls.infer(self.subject.transfers)


def is_worth(subject: Subject, amount_ns: float, least: float = WORTH_A_CHANGE) -> bool:
    """Whether an amount of time is so large a share of the jobs' time that a remedy can be felt."""
    return amount_ns > 0 and subject.share(amount_ns) >= least
