"""The time breakdown: sums over the stretches of the table ``budget`` (docs/method.md, section 4).

Pure functions. The parts of a connection or session add up exactly to the time from its first command to its last
status.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures.intervals import covered_until
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table

PARTS = CATEGORIES["budget_part"]
"""The parts, in the order of the method; ``budget.part`` holds places in it."""

BETWEEN_JOBS_MIN_NS = 100_000_000
"""A stretch of initiator_think up to this length is think time: applications wait that long for reasons of theirs."""

BETWEEN_JOBS_MIN_QUARTILES = 10
"""So is one of up to this many upper quartiles of its connection's stretches: steady think time is no idle gap."""

STEADY_COUNT_MIN = 3
"""Stretches that it takes for a steady think time."""


@dataclass(frozen=True)
class Budget:
    """The time breakdown of one connection or session."""

    parts_ns: dict[str, int]
    """Nanoseconds of every part, zero included, in the order of PARTS."""

    between_jobs_ns: int = 0
    """The part of initiator_think that is idle gaps between bursts of I/O."""

    @property
    def total_ns(self) -> int:
        """From the first command to the last status."""
        return sum(self.parts_ns.values())

    @property
    def shares(self) -> dict[str, float]:
        """Each part / total, from 0 to 1; all 0 where there is no time."""
        total_ns = self.total_ns
        return {part: ns / total_ns if total_ns else 0.0 for part, ns in self.parts_ns.items()}

    @property
    def idle_fraction(self) -> float | None:
        """1 less the share of transfer; None where there is no time."""
        return 1 - self.shares["transfer"] if self.total_ns else None

    @property
    def limiter(self) -> str | None:
        """The largest part but transfer, without the idle gaps between bursts of I/O; None where there is none."""
        others = self.busy_parts_ns
        del others["transfer"]
        largest = max(others, key=others.__getitem__)
        return largest if others[largest] > 0 else None

    @property
    def jobs_ns(self) -> int:
        """Busy time: the total without the idle gaps between bursts of I/O."""
        return self.total_ns - self.between_jobs_ns

    @property
    def busy_parts_ns(self) -> dict[str, int]:
        """The parts of the busy time: initiator_think without the idle gaps between bursts of I/O."""
        return self.parts_ns | {"initiator_think": self.parts_ns["initiator_think"] - self.between_jobs_ns}

    @property
    def busy_shares(self) -> dict[str, float]:
        """Each part of the busy time / busy time, from 0 to 1; all 0 where there is no time."""
        return {part: ns / self.jobs_ns if self.jobs_ns else 0.0 for part, ns in self.busy_parts_ns.items()}

    @property
    def is_line_bound(self) -> bool:
        """Whether transfer takes more than half of the busy time: a faster line would help most."""
        return 2 * self.parts_ns["transfer"] > self.jobs_ns


def of_connections(budget: Table) -> dict[int, Budget]:
    """The time breakdown of each connection that has one, by number."""
    return _by_number(budget, "connection", ~_is_session_time(budget))


def of_sessions(budget: Table) -> dict[int, Budget]:
    """The time breakdown of each session that has one, by number: its own time, or that of its only connection."""
    session, is_known = budget.raw("session"), known(budget, "session")
    is_own = _is_session_time(budget)
    has_own = np.isin(session, np.unique(session[is_own & is_known]))
    return _by_number(budget, "session", is_known & (is_own | ~has_own))


def over_time(budget: Table, edges_ns: NDArray[Any]) -> NDArray[Any]:
    """Time in each part in each bin: (len(PARTS), len(edges_ns) - 1) int64 nanoseconds.

    ``edges_ns`` are increasing instants; ``budget`` has the rows of one connection or session: see :func:`rows_of`.
    """
    lasted: NDArray[Any] = np.diff(_until(budget, edges_ns), axis=1)
    return lasted


def rows_of(budget: Table, *, connection: int | None = None, session: int | None = None) -> Table:
    """The stretches of one connection, or of one session (its own, or those of its only connection), in order."""
    if connection is not None:
        return budget.select(~_is_session_time(budget) & (budget.raw("connection") == connection))
    is_member = known(budget, "session") & (budget.raw("session") == session)
    is_own = is_member & _is_session_time(budget)
    return budget.select(is_own if is_own.any() else is_member)


def of_cycles(budget: Table, starts_ns: NDArray[Any], ends_ns: NDArray[Any]) -> NDArray[Any]:
    """The time breakdown of spans such as a cycle's command to status: (spans, len(PARTS)) int64 nanoseconds.

    ``budget`` has the rows of one connection or session, see :func:`rows_of`; spans may overlap.
    """
    lasted: NDArray[Any] = (_until(budget, ends_ns) - _until(budget, starts_ns)).T
    return lasted


def _until(budget: Table, instants_ns: NDArray[Any]) -> NDArray[Any]:
    """Time in each part up to each instant: (len(PARTS), instants)."""
    first_ns, last_ns, part = budget.raw("time_first_ns"), budget.raw("time_last_ns"), budget.raw("part")
    sums = np.zeros((len(PARTS), len(instants_ns)), dtype=np.int64)
    for code in np.unique(part):
        sums[code] = covered_until(first_ns[part == code], last_ns[part == code], instants_ns)
    return sums


def _by_number(budget: Table, name: str, is_wanted: NDArray[Any]) -> dict[int, Budget]:
    number, part = budget.raw(name)[is_wanted].astype(np.int64), budget.raw("part")[is_wanted]
    length_ns = (budget.raw("time_last_ns") - budget.raw("time_first_ns"))[is_wanted]
    # numbers are small: counting is faster than sorting
    numbers = np.flatnonzero(np.bincount(number))
    place = np.zeros(numbers.max(initial=0) + 1, dtype=np.int64)
    place[numbers] = np.arange(len(numbers))
    sums = np.zeros(len(numbers) * len(PARTS), dtype=np.int64)
    np.add.at(sums, place[number] * len(PARTS) + part, length_ns)
    is_think = part == PARTS.index("initiator_think")
    think_ns, of = length_ns[is_think], number[is_think]
    order = np.argsort(of, kind="stable")
    starts = np.searchsorted(of[order], numbers[1:])
    return {
        int(number): Budget(dict(zip(PARTS, row.tolist(), strict=True)), between_jobs_ns(think_ns[rows]))
        for number, row, rows in zip(
            numbers, sums.reshape(-1, len(PARTS)), np.split(order, starts) if len(numbers) else [], strict=True
        )
    }


def between_jobs_ns(think_ns: NDArray[Any]) -> int:
    """The sum of the idle gaps between bursts of I/O among these stretches of initiator_think."""
    return int(think_ns[think_ns > longest_think_ns(think_ns)].sum())


def longest_think_ns(think_ns: NDArray[Any]) -> float:
    """The longest stretch of initiator_think that is think time and no idle gap, given all stretches."""
    steady_ns = float(np.percentile(think_ns, 75, method="lower")) if len(think_ns) >= STEADY_COUNT_MIN else 0.0
    return max(BETWEEN_JOBS_MIN_NS, BETWEEN_JOBS_MIN_QUARTILES * steady_ns)


def _is_session_time(budget: Table) -> NDArray[Any]:
    return ~known(budget, "connection")
