"""Diagnoses as chapters: the headline, key figures, the time breakdown, and what to change."""

from __future__ import annotations

from typing import Any

import numpy as np

from iscsitrace.diagnosis.opinions import Opinion
from iscsitrace.findings.finding import Finding
from iscsitrace.measure import line, path, waits, workload
from iscsitrace.measure import tap_position as tap
from iscsitrace.measure.budget import Budget
from iscsitrace.measure.distribution import PERCENTILES, is_bound
from iscsitrace.measure.throughput import measure
from iscsitrace.report import failure, places
from iscsitrace.report import subject as subjects
from iscsitrace.report.document import Chapter, Fact, FoundProblem, Part, Step
from iscsitrace.report.subject import Subject
from iscsitrace.show.document import Grid
from iscsitrace.show.remedies import Remedies
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import Trace
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import cells
from iscsitrace.wording.parts import BY_NAME


def of_session(trace: Trace, opinion: Opinion, remedies: Remedies) -> Chapter:
    """The chapter on a session; ``remedies`` are those that the report has said before."""
    return of_subject(trace, subjects.of_session(opinion), remedies)


def of_subject(trace: Trace, subject: Subject, remedies: Remedies) -> Chapter:
    """The chapter on a session or story."""
    rows = [row for row in trace.connections.rows() if subject.has(row)]
    return _chapter(trace, _names(trace, subject), rows, subject.commands(trace), subject, remedies)


def _names(trace: Trace, subject: Subject) -> str:
    """Initiator and target, of the first login of them that was captured."""
    sessions = [row for row in trace.sessions.rows() if row["session"] in subject.sessions]
    named = [row for row in sessions if row["initiator_name"] is not None or row["target_name"] is not None]
    if not named:
        return "names unknown: the login was not captured" if sessions else "no login was captured"
    return f"{cells.short(named[0]['initiator_name'])} to {cells.short(named[0]['target_name'])}"


def _chapter(
    trace: Trace,
    names: str,
    connections: list[dict[str, Any]],
    cycles: Table,
    subject: Subject,
    remedies: Remedies,
) -> Chapter:
    label = subject.label
    ends = [f"{cells.endpoint(row, 'initiator')} to {cells.endpoint(row, 'target')}" for row in connections[:2]]
    more = f" and {len(connections) - len(ends)} more" if len(connections) > len(ends) else ""
    parts = _parts(subject.time)
    return Chapter(
        label=label,
        peers=f"{names} ({', '.join(ends)}{more})" if ends else names,
        headline=subject.headline.text,
        facts=tuple(_facts(trace, connections, cycles, subject.time)),
        parts=parts,
        findings=tuple(_finding(finding, subject, remedies) for finding in subject.findings),
        budget=_budget(label, parts),
        places=places.parts(trace, subject),
        failure=failure.facts(trace, subject),
    )


def _parts(time: Budget | None) -> tuple[Part, ...]:
    if not time or not time.jobs_ns:
        return ()
    return tuple(
        Part(
            name=BY_NAME[part].label,
            meaning=BY_NAME[part].meaning,
            share=time.shares[part],
            time=cells.milliseconds(amount),
            color=BY_NAME[part].color,
            is_limiter=part == time.limiter,
        )
        for part, amount in time.parts_ns.items()
        if amount
    )


def _budget(label: str, parts: tuple[Part, ...]) -> Grid | None:
    if not parts:
        return None
    rows = tuple((part.name, part.meaning, part.time, cells.percent(part.share)) for part in parts)
    return Grid(f"Time breakdown of {label}", ("part", "meaning", "ms", "% of busy time"), rows)


def _cost(finding: Finding, subject: Subject) -> str:
    """What it costs; a share is of the busy time of its one session, where the subject is a story of several."""
    cost = finding.cost_in_words
    if not cost or finding.rank == "failure":
        return cost
    is_of_one = len(subject.sessions) > 1 and len(finding.sessions) == 1
    return f"{cost} of the time of session {finding.sessions[0]}" if is_of_one else f"{cost} of the time"


def _finding(finding: Finding, subject: Subject, remedies: Remedies) -> FoundProblem:
    return FoundProblem(
        name=finding.name,
        severity=finding.severity.replace("_", " "),
        cost=_cost(finding, subject),
        text=finding.text,
        steps=tuple(Step(*each) for each in remedies.steps(finding, subject.label)),
        display_filter=finding.display_filter or "",
        is_failure=finding.problem.rank == "failure",
        is_problem=finding.is_problem,
        is_leading=finding.name == subject.headline.name,
    )


def _facts(trace: Trace, connections: list[dict[str, Any]], cycles: Table, time: Budget | None) -> list[Fact]:
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
                f"line rate {wording.rate(found_line.bytes_per_s)}" if found_line else "while active",
            )
        )
    if time and time.idle_fraction is not None:
        busy = f"of {wording.time(time.jobs_ns)} of busy time; no data on the line"
        found.append(Fact("Idle", wording.percent(time.idle_fraction), busy))
    found += _path(trace, connections)
    operations = cycles.words_by_code("operation")
    codes = [place for place, word in enumerate(operations) if word in ("read", "write")]
    is_moving = np.isin(cycles.raw("operation"), codes)
    moved_data = cycles.select(is_moving)
    is_whole = (moved_data.raw("data_bytes") > 0) & moved_data.raw("is_complete")
    asked = workload.of(moved_data.select(is_whole))
    if asked is not None:
        depth = f"queue depth {asked.queue_depth}"
        commands = wording.count(asked.task_count, "command")
        found.append(Fact("Workload", f"{wording.size(asked.block_bytes)} {asked.word}s", f"{depth}, {commands}"))
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


def _path(trace: Trace, connections: list[dict[str, Any]]) -> list[Fact]:
    """The RTT of the path, by the busiest connection."""
    found = path.of_one(trace.connections, trace.senders, (row["connection"] for row in connections))
    rtts, found_ns = dict(zip(path.SIDES, found.rtts_ns[:, 0].tolist(), strict=True)), int(found.whole_ns[0])
    if found_ns < 0:
        return []
    near = tap.position(rtts["initiator"], rtts["target"]) or ""
    where = {"initiator": "tap near the initiator", "target": "tap near the target"}.get(near, "tap between the hosts")
    return [Fact("RTT", wording.time(found_ns), f"minimum; {where}")]
