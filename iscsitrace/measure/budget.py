"""The time breakdown: sums over the stretches of the table ``budget`` (docs/method.md, section 4).

Pure functions. The parts of a connection or session add up exactly to the time from its first command to its last
status. All shares, wherever they are shown, are of the busy time among it (``busy``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import busy
from iscsitrace.measure.intervals import covered_until
from iscsitrace.tables.nulls import known, numbers_of
from iscsitrace.tables.numbers import Partition, sums_of
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table

PARTS = CATEGORIES["budget_part"]

"""The parts, in the order of the method; ``budget.part`` holds places in it."""

_WINDOWS = ("receive_window", "congestion_window", "send_buffer")
_NEARLY = 4 / 5
"""A window is named rather than the path where its time is at least this part of the path's."""

EXCLUDED = ("idle", "scan", "flush")
"""Uses of the time that is no busy time, by their codes in ``busy``: no command in flight; commands that inspect or set
up the device; SYNCHRONIZE CACHE apart from reads and writes."""


@dataclass(frozen=True)
class Budget:
    """The time breakdown of one connection or session. Shares, limiter and idle fraction are of the busy time."""

    parts_ns: dict[str, int]
    """Nanoseconds of the busy time in each part, zero included, in the order of PARTS."""

    excluded_ns: dict[str, int] = field(default_factory=dict)
    """The same of the time from first command to last status that is no busy time."""

    uses_ns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EXCLUDED, 0))
    """The same by use: see EXCLUDED."""

    @cached_property
    def jobs_ns(self) -> int:
        """The busy time."""
        return sum(self.parts_ns.values())

    @property
    def total_ns(self) -> int:
        """From the first command to the last status."""
        return self.jobs_ns + sum(self.excluded_ns.values())

    @property
    def whole_ns(self) -> dict[str, int]:
        """Nanoseconds of each part from the first command to the last status."""
        return {part: ns + self.excluded_ns.get(part, 0) for part, ns in self.parts_ns.items()}

    @property
    def shares(self) -> dict[str, float]:
        """Each part / busy time, from 0 to 1; all 0 where there is no busy time."""
        jobs_ns = self.jobs_ns
        return {part: ns / jobs_ns if jobs_ns else 0.0 for part, ns in self.parts_ns.items()}

    @property
    def idle_fraction(self) -> float | None:
        """1 less the share of transfer; None where there is no busy time."""
        return 1 - self.shares["transfer"] if self.jobs_ns else None

    @cached_property
    def limiter(self) -> str | None:
        """What limits the workload: transfer where it takes more than all waits together, else the largest wait.

        If that is the path's and a window held the sender for nearly as long, it is the window: it makes the sender
        pay the path's delay again and again. None where there is no busy time.
        """
        if not self.jobs_ns:
            return None
        if 2 * self.parts_ns["transfer"] > self.jobs_ns:
            return "transfer"
        longest = max((part for part in PARTS if part != "transfer"), key=self.parts_ns.__getitem__)
        window = max(_WINDOWS, key=self.parts_ns.__getitem__)
        is_window = longest == "propagation" and self.parts_ns[window] >= _NEARLY * self.parts_ns[longest]
        return window if is_window else longest


def added(budgets: Iterable[Budget]) -> Budget | None:
    """The time breakdown of several sessions together; None of none."""
    each = list(budgets)
    if not each:
        return None

    def sums(parts: Sequence[dict[str, int]]) -> dict[str, int]:
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: sum(part.get(name, 0) for part in parts) for name in names}

    return Budget(
        sums([one.parts_ns for one in each]),
        sums([one.excluded_ns for one in each]),
        sums([one.uses_ns for one in each]),
    )


class Budgets(Mapping[int, Budget]):
    """The time breakdowns of several sessions, or connections, by number."""

    def __init__(self, numbers: NDArray[Any], sums_ns: NDArray[Any]) -> None:
        """``sums_ns`` are int64 nanoseconds, shape (numbers, uses of ``busy``, PARTS); ``numbers`` ascend."""
        self.numbers = numbers
        self.sums_ns = sums_ns
        self._place = {number: place for place, number in enumerate(numbers.tolist())}

    def __getitem__(self, number: int) -> Budget:
        return _budget(self.sums_ns[self._place[number]])

    def __iter__(self) -> Iterator[int]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)


def of_connections(budget: Table) -> Budgets:
    """The time breakdown of each connection that has one."""
    return _by_number(budget, "connection", ~_is_session_time(budget))


def of_sessions(budget: Table) -> Budgets:
    """The time breakdown of each session that has one: its own time, or that of its only connection."""
    return _by_number(budget, "session", is_of_session(budget))


def is_of_session(budget: Table) -> NDArray[np.bool_]:
    """Which stretches are the time of a session: its own, or that of its only connection."""
    session, is_known = budget.raw("session"), known(budget, "session")
    is_own = _is_session_time(budget)
    has_own = np.isin(session, np.unique(session[is_own & is_known]))
    return np.asarray(is_known & (is_own | ~has_own))


def over_time(budget: Table, edges_ns: NDArray[Any]) -> NDArray[Any]:
    """Time in each part in each bin: (len(PARTS), len(edges_ns) - 1) int64 nanoseconds.

    ``edges_ns`` are increasing instants; ``budget`` has the rows of one connection or session: see :func:`rows_of`.
    """
    lasted: NDArray[Any] = np.diff(_until(budget, edges_ns), axis=1)
    return lasted


def by_connection(budget: Table) -> Partition:
    """The stretches of each connection, as :func:`rows_of` has them: for many of them."""
    return Partition(budget, numbers_of(budget, "connection"))


def by_session(budget: Table) -> Partition:
    """The stretches of each session, as :func:`rows_of` has them: for many of them."""
    return Partition(budget, np.where(is_of_session(budget), numbers_of(budget, "session"), -1))


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


def _by_number(budget: Table, name: str, is_wanted: NDArray[Any]) -> Budgets:
    number, part = budget.raw(name)[is_wanted].astype(np.int64), budget.raw("part")[is_wanted]
    length_ns = (budget.raw("time_last_ns") - budget.raw("time_first_ns"))[is_wanted]
    # numbers are small: counting is faster than sorting
    numbers = np.flatnonzero(np.bincount(number))
    place = np.zeros(numbers.max(initial=0) + 1, dtype=np.int64)
    place[numbers] = np.arange(len(numbers))
    use = budget.each(busy.uses)[is_wanted]
    shape = (len(numbers), busy.BUSY + 1, len(PARTS))
    sums = sums_of((place[number] * shape[1] + use) * shape[2] + part, length_ns, shape[0] * shape[1] * shape[2])
    return Budgets(numbers, sums.reshape(shape))


def _budget(sums: NDArray[Any]) -> Budget:
    """The breakdown with these sums by use and part."""
    # of ten thousand sessions: adding in Python is faster than a call of NumPy
    *excluded, parts = sums.tolist()
    return Budget(
        dict(zip(PARTS, parts, strict=True)),
        dict(zip(PARTS, map(sum, zip(*excluded, strict=True)), strict=True)),
        dict(zip(EXCLUDED, map(sum, excluded), strict=True)),
    )


def _is_session_time(budget: Table) -> NDArray[Any]:
    return ~known(budget, "connection")
