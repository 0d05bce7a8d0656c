"""The facts of a failure: when it was, what it cost, what it hit, and whose side it points to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from iscsitrace.diagnosis.subject import Subject
from iscsitrace.findings.finding import Finding
from iscsitrace.findings.history import listed
from iscsitrace.findings.statuses import in_words
from iscsitrace.measure import waits
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.intervals import Span
from iscsitrace.relate.outages import OUTAGE_MIN_NS
from iscsitrace.show.document import Fact
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import cells

NUMBERS_SHOWN = 6
"""Sessions or logical units that are named; more are counted."""


def facts(trace: TraceTables, subject: Subject) -> tuple[Fact, ...]:
    """The facts of what broke; nothing where nothing did."""
    failure = subject.failure
    return () if failure is None else tuple(_facts(trace, subject, failure))


def _facts(trace: TraceTables, subject: Subject, failure: Finding) -> Iterator[Fact]:
    if failure.spans:
        start_ns = trace.start_ns
        yield Fact(
            "When", _when(failure.spans, start_ns), f"from {cells.clock(min(first for first, _ in failure.spans))}"
        )
    if failure.cost_ns is not None:
        share = "" if failure.share is None else f"{wording.percent(failure.share)} of the I/O time"
        yield Fact("Time lost", wording.time(failure.cost_ns), share)
    yield Fact("Affected", _numbers("session", subject.sessions) or subject.label, _numbers("LUN", failure.luns))
    waiting = in_flight(trace, subject.sessions, failure.spans)
    if len(waiting):
        yield Fact("In flight meanwhile", in_words(waiting), _waited(trace, waiting))
    yield Fact("Points to", failure.points_to or "cannot tell from these packets")


def _waited(trace: TraceTables, waiting: Table) -> str:
    """How long these commands took, or were in flight without a status."""
    longest = wording.time(int((_ends_ns(trace, waiting) - waiting.raw("command_first_ns")).max()))
    without = int((~known(waiting, "status_ns")).sum())
    if len(waiting) == 1:
        return f"no status for {longest}" if without else f"took {longest}"
    return f"up to {longest} each" + (f", {without} without a status" if without else "")


def _when(spans: tuple[Span, ...], start_ns: int) -> str:
    first_ns, last_ns = min(first for first, _ in spans), max(last for _, last in spans)
    times = f"{len(spans)} times, " if len(spans) > 1 else ""
    if first_ns == last_ns:
        return f"at {wording.seconds(first_ns - start_ns)}"
    return f"{times}{wording.seconds(first_ns - start_ns)} to {wording.seconds(last_ns - start_ns)}"


def _numbers(noun: str, numbers: tuple[int, ...]) -> str:
    """``sessions 0 and 1``; nothing of none."""
    if len(numbers) > NUMBERS_SHOWN:
        return f"{len(numbers)} {noun}s"
    return f"{noun if len(numbers) == 1 else noun + 's'} {listed(numbers)}" if numbers else ""


def in_flight(trace: TraceTables, sessions: tuple[int, ...], spans: tuple[Span, ...]) -> Table:
    """The reads and writes of these sessions that were in flight in one of these times of some length, also those
    without a status whose connection ended when it began.

    Where some had no status or took a second, others in flight did not wait: they are those that ended it.
    """
    cycles = trace.cycles
    own = cycles.select(known(cycles, "session") & np.isin(cycles.raw("session"), sessions))
    own = own.select(is_data_command(own))
    starts, ends = own.raw("command_first_ns"), _ends_ns(trace, own)
    is_open = ~known(own, "status_ns")
    keep = np.zeros(len(own), dtype=bool)
    for first_ns, last_ns in spans:
        if last_ns > first_ns:
            keep |= (starts < last_ns) & ((ends > first_ns) | (is_open & (ends == first_ns)))
    waited = keep & (is_open | (ends - starts >= OUTAGE_MIN_NS))
    return own.select(waited if waited.any() else keep)


def _ends_ns(trace: TraceTables, cycles: Table) -> NDArray[np.int64]:
    return waits.of(cycles, trace.connections).ends_ns(cycles)
