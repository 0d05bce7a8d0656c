"""A diagnosis in a report: first the headline, key figures and the time breakdown; then all findings with advice.

The key figures of a failure are when it was, what it cost, what it hit, and whose side it points to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.diagnosis.headline import broke, to_act_on
from iscsitrace.diagnosis.subject import Subject
from iscsitrace.findings.finding import Finding
from iscsitrace.findings.history import listed
from iscsitrace.findings.statuses import in_words
from iscsitrace.measure import line, path, waits, workload
from iscsitrace.measure.budget import Budget
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.distribution import is_bound
from iscsitrace.measure.intervals import Span
from iscsitrace.measure.path import tap_position
from iscsitrace.measure.ranks import PERCENTILES
from iscsitrace.measure.throughput import Throughput, measure, shares
from iscsitrace.relate.outages import OUTAGE_MIN_NS
from iscsitrace.show import places
from iscsitrace.show.diagnose import Remedies, breakdown
from iscsitrace.show.document import Block, Fact, Findings, FoundProblem, Heading, Opening, Section, SvgPlot
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import cells
from iscsitrace.wording.sentences import capital

NUMBERS_SHOWN = 6
"""Sessions or logical units that are named; more are counted."""


def failure_facts(trace: TraceTables, subject: Subject) -> tuple[Fact, ...]:
    """The facts of what broke; nothing where nothing did."""
    failure = subject.failure
    return () if failure is None else tuple(_facts_of(trace, subject, failure))


def _facts_of(trace: TraceTables, subject: Subject, failure: Finding) -> Iterator[Fact]:
    if failure.spans:
        start_ns = trace.start_ns
        yield Fact(
            "When", _when(failure.spans, start_ns), f"from {cells.clock(min(first for first, _ in failure.spans))}"
        )
    if failure.cost_ns is not None:
        # a stop without I/O lies outside of the I/O time
        part = 1.0 if failure.share is None else failure.share
        share = f"{wording.percent(part)} of the I/O time" if part < 1 else ""
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
    first, last = (wording.seconds(each - start_ns) for each in (first_ns, last_ns))
    return f"{times}at {first}" if first == last else f"{times}{first} to {last}"


def _numbers(noun: str, numbers: tuple[int, ...]) -> str:
    """``sessions 0 and 1``; nothing of none."""
    if len(numbers) > NUMBERS_SHOWN:
        return f"{len(numbers)} {noun}s"
    return f"{noun if len(numbers) == 1 else noun + 's'} {listed(numbers)}" if numbers else ""


def in_flight(trace: TraceTables, sessions: tuple[int, ...], spans: tuple[Span, ...]) -> Table:
    """The reads and writes of these sessions that were in flight in one of these times of some length, also those
    without a status whose connection ended when it began.

    Where some had no status or took a second, others in flight did not wait: they are those that ended it. Else what
    took less than a tenth of that time did not wait, either.
    """
    cycles = trace.cycles
    own = cycles.select(known(cycles, "session") & np.isin(cycles.raw("session"), sessions))
    own = own.select(is_data_command(own))
    starts, ends = own.raw("command_first_ns"), _ends_ns(trace, own)
    is_open = ~known(own, "status_ns")
    keep, is_long = np.zeros((2, len(own)), dtype=bool)
    for first_ns, last_ns in spans:
        if last_ns > first_ns:
            within = (starts < last_ns) & ((ends > first_ns) | (is_open & (ends == first_ns)))
            keep |= within
            is_long |= within & (ends - starts >= (last_ns - first_ns) / 10)
    waited = keep & (is_open | (ends - starts >= OUTAGE_MIN_NS))
    return own.select(waited if waited.any() else is_long)


def _ends_ns(trace: TraceTables, cycles: Table) -> NDArray[np.int64]:
    return waits.of(cycles, trace.connections).ends_ns(cycles)


FIRST_FINDINGS: Final = 2
"""Findings shown beside the headline; the others follow later."""


def opening(
    trace: TraceTables,
    subject: Subject,
    told: Findings,
    timeline: tuple[SvgPlot, ...] = (),
    yardsticks: Mapping[str, float] = MappingProxyType({}),
) -> Opening:
    """What the report says first of a session or story, of which all of this was ``told``; ``yardsticks`` are what its
    throughput is compared with, in bytes/s.
    """
    rows = subject.rows_of(trace.connections)
    return Opening(
        question=f"Diagnosis of {subject.label}",
        headline=subject.headline.text,
        facts=tuple(_facts(trace, rows, subject.commands(trace), subject.time, yardsticks)),
        label=subject.label,
        peers=_peers(trace, subject, rows),
        breakdowns=(
            *places.breakdown(trace, subject.sessions, subject.label),
            *breakdown(subject.label, subject.time, subject.findings),
        ),
        findings=first_findings(subject, told),
        failure=failure_facts(trace, subject),
        timeline=timeline,
    )


def first_findings(subject: Subject, told: Findings) -> tuple[FoundProblem, ...]:
    """The first findings that something has to be done about, of all that were ``told``."""
    by_name = {each.name: each for each in told.every}
    return tuple(by_name[each.name] for each in to_act_on(subject.headline, subject.findings)[:FIRST_FINDINGS])


def told(subject: Subject, remedies: Remedies) -> Findings:
    """Its findings; ``remedies`` are those that the report has said before."""
    is_only_told = broke(subject.findings) is not None or subject.headline.kind == "healthy"
    return remedies.told(subject.findings, subject.label, subject.sessions, is_only_told=is_only_told)


def findings(lead: Subject, first: Findings, rest: Iterable[Subject], remedies: Remedies) -> Section:
    """All findings: of what comes ``first``, then of others, with their headlines and times."""
    blocks: list[Block] = [Heading(capital(lead.label)), first]
    for each in rest:
        blocks.append(Heading(capital(each.label)))
        blocks += [each.headline.text, *breakdown(each.label, each.time, each.findings), told(each, remedies)]
    return Section("Findings and advice", tuple(blocks), "findings")


def _names(trace: TraceTables, subject: Subject) -> str:
    """Initiator and target, of the first login of them that was captured."""
    sessions = list(trace.sessions.select(np.isin(trace.sessions.raw("session"), subject.sessions)).rows())
    named = [row for row in sessions if row["initiator_name"] is not None or row["target_name"] is not None]
    if not named:
        return "names unknown: the login was not captured" if sessions else "no login was captured"
    return f"{cells.short(named[0]['initiator_name'])} to {cells.short(named[0]['target_name'])}"


def _peers(trace: TraceTables, subject: Subject, connections: list[dict[str, Any]]) -> str:
    names = _names(trace, subject)
    ends = [f"{cells.endpoint(row, 'initiator')} to {cells.endpoint(row, 'target')}" for row in connections[:2]]
    more = f" and {len(connections) - len(ends)} more" if len(connections) > len(ends) else ""
    return f"{names} ({', '.join(ends)}{more})" if ends else names


def _facts(
    trace: TraceTables,
    connections: list[dict[str, Any]],
    cycles: Table,
    time: Budget | None,
    yardsticks: Mapping[str, float],
) -> list[Fact]:
    found, waited = [], waits.of(cycles, trace.connections)
    volume = measure(cycles, waited)[-1]
    moved = {"read": volume.read_bytes_per_s, "written": volume.write_bytes_per_s}
    rates = [f"{wording.rate(amount)} {word}" for word, amount in moved.items() if amount]
    if rates:
        found_line = line.of_one(trace.connections, trace.senders, (row["connection"] for row in connections))
        found.append(
            Fact(
                "Throughput",
                ", ".join(rates),
                f"line rate {wording.rate(found_line.bytes_per_s)}" if found_line else "while I/O is in flight",
            )
        )
    found += _shares(volume, yardsticks)
    if time and time.idle_fraction is not None:
        busy = f"of {wording.time(time.jobs_ns)} of I/O time; no data on the line"
        found.append(Fact("Line idle", wording.percent(time.idle_fraction), busy))
    found += _path(trace, connections)
    operations = cycles.words_by_code("operation")
    codes = [place for place, word in enumerate(operations) if word in ("read", "write")]
    is_moving = np.isin(cycles.raw("operation"), codes)
    moved_data = cycles.select(is_moving)
    is_whole = (moved_data.raw("data_bytes") > 0) & moved_data.raw("is_complete")
    asked = workload.of(moved_data.select(is_whole))
    if asked is not None:
        depth = f"queue depth {asked.queue_depth}"
        # all of them, as summary counts: one without a status is the slowest there is
        commands = wording.count(len(moved_data), "read or write", "reads and writes")
        word = "I/O" if asked.word == workload.MIXED else asked.word
        found.append(
            Fact("Workload", f"{wording.size(asked.block_bytes)} {word}s", f"{depth}, medians by bytes; {commands}")
        )
    waited = waited.select(is_moving)
    latency = waited.select(is_whole | waited.is_open).percentiles
    if latency["p50"] is not None:
        shown = {
            name: f"{'> ' if is_bound(latency, name) else ''}{wording.time(value)}"
            for name in PERCENTILES
            if (value := latency[name]) is not None
        }
        rest = ", ".join(f"{name} {text}" for name, text in shown.items() if name != "p50")
        n = latency["n"] or 0
        of = wording.part_of(n, len(moved_data), "reads and writes", "are not complete") or f"n {n:,}"
        found.append(Fact("Latency", f"{shown['p50']} p50", f"{rest}; {of}"))
    again = sum(row[f"retransmitted_packets_{way}"] for row in connections for way in ("to_target", "to_initiator"))
    if again:
        packets = sum(row[f"packets_{way}"] for row in connections for way in ("to_target", "to_initiator"))
        found.append(
            Fact("Retransmissions", wording.count(again, "packet"), f"{wording.percent(again / packets)} of packets")
        )
    return found


_YARDSTICKS: Final = {"line": ("Of the line", "named rate"), "socket": ("Of a socket", "a plain TCP transfer carries")}


def _shares(volume: Throughput, yardsticks: Mapping[str, float]) -> Iterable[Fact]:
    """The throughput as a share of what it is compared with; reads and writes apart."""
    for name, bytes_per_s in yardsticks.items():
        of_each = shares(volume.as_dict(), {name: bytes_per_s})
        words = {"read": of_each[f"read_share_of_{name}"], "written": of_each[f"write_share_of_{name}"]}
        found = [f"{wording.percent(share)} {word}" for word, share in words.items() if share]
        if found:
            heading, meaning = _YARDSTICKS[name]
            yield Fact(heading, ", ".join(found), f"{meaning} {wording.rate(bytes_per_s)}")


def _path(trace: TraceTables, connections: list[dict[str, Any]]) -> list[Fact]:
    """The RTT of the path, by the busiest connection."""
    found = path.of_one(trace.connections, trace.senders, (row["connection"] for row in connections))
    rtts, found_ns = dict(zip(path.SIDES, found.rtts_ns[:, 0].tolist(), strict=True)), int(found.whole_ns[0])
    if found_ns < 0:
        return []
    near = tap_position(rtts["initiator"], rtts["target"]) or ""
    where = {"initiator": "tap near the initiator", "target": "tap near the target"}.get(near, "tap between the hosts")
    return [Fact("RTT", wording.time(found_ns), f"minimum; {where}")]
