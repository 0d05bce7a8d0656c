"""Reads a live pass interval by interval: figures, totals, findings, counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.diagnosis.headline import Headline
from iscsitrace.measure import budget, waits
from iscsitrace.measure import capture_health as health
from iscsitrace.measure.waits import Waits
from iscsitrace.relate.stories import sessions_over
from iscsitrace.tables.memory import Trimmer
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.passes import Live, Pace, PassView
from iscsitrace.tables.schema import SCHEMA_VERSION
from iscsitrace.watch.figures import (
    NO_HANG,
    NO_LOAD,
    NOTHING,
    Hang,
    IntervalLoad,
    Quiet,
    Transport,
    WatchLine,
    busiest,
    hang_of,
    is_closed,
    load_of,
    loads_of,
    transports_of,
)
from iscsitrace.watch.findings import CurrentFindings, SessionFinding
from iscsitrace.watch.meters import Meters
from iscsitrace.watch.totals import Distribution, Totals
from iscsitrace.wording.cells import endpoint

PATIENCE_S = 0.2


@dataclass(frozen=True)
class Report:
    """One interval."""

    from_ns: int
    to_ns: int
    packet_count: int
    """Since the start."""
    new_packets: int
    whole: IntervalLoad
    whole_total_latency_ns: dict[str, int | None]
    sessions: list[WatchLine]
    connections: list[WatchLine]
    findings: tuple[SessionFinding, ...]
    headline: Headline | None
    """Of the last diagnosis: what broke, else what limits the busiest session."""
    stories: tuple[tuple[tuple[int, ...], Headline], ...]
    """The sessions of each story, and its headline."""
    counters: list[dict[str, Any]]
    """Counters above zero, the most severe first; ``new`` is the increase in this interval."""
    pace: Pace
    late_count: int
    dropped: int | None
    """Packets that the capture dropped so far; None if it does not report them."""
    is_last: bool = False
    undiagnosed_count: int = 0
    """Sessions of the last diagnosis that are not in findings and stories, because others are worse."""

    @cached_property
    def present(self) -> tuple[list[WatchLine], list[WatchLine]]:
        """The sessions and connections that are open, or had packets or commands in the interval."""
        return _present(self.sessions), _present(self.connections)

    @cached_property
    def listed(self) -> tuple[list[WatchLine], list[WatchLine]]:
        """Those of `present` that text and JSON have: where there are many, the busiest."""
        sessions, connections = self.present
        return busiest(sessions), busiest(connections)

    def as_dict(self) -> dict[str, Any]:
        """A line of JSON."""
        (every_session, every_connection), (sessions, connections) = self.present, self.listed
        return {
            "schema": SCHEMA_VERSION,
            "kind": "interval",
            "from_ns": self.from_ns,
            "to_ns": self.to_ns,
            "packet_count": self.new_packets,
            "all": self.whole.as_dict() | {"latency_total_ns": self.whole_total_latency_ns},
            "sessions": [line.as_dict() for line in sessions],
            "connections": [line.as_dict() for line in connections],
            "not_listed": {
                "sessions": len(every_session) - len(sessions),
                "connections": len(every_connection) - len(connections),
                "sessions_with_findings": self.undiagnosed_count,
            },
            "findings": [found.as_dict() for found in self.findings],
            "headline": self.headline.as_dict() if self.headline else None,
            "stories": [
                {"sessions": list(sessions), "headline": headline.as_dict()} for sessions, headline in self.stories
            ],
            "counters": [
                {name: row[name] for name in ("name", "severity", "count", "new", "first_frame")}
                for row in self.counters
            ],
            "lag_s": self.pace.lag_ns / 1e9,
            "waiting_bytes": self.pace.waiting_bytes,
            "sampled": {
                "is_without_dynamics": self.pace.is_reduced,
                "is_leaving_out": self.pace.is_leaving_out,
                "left_out_packets": self.pace.left_out_packets,
            },
            "late_command_count": self.late_count,
            "capture_dropped_packets": self.dropped,
        }


class Watcher:
    """A live pass with its reports and totals."""

    def __init__(self, live: Live, *, has_findings: bool = True) -> None:
        self.live = live
        self.meters = Meters()
        self.totals = Totals()
        self.findings = CurrentFindings()
        self.last: Report | None = None
        self._has_findings = has_findings
        self._latencies: dict[int | None, Distribution] = defaultdict(_for_display)
        self._of_connections: dict[int, Distribution] = defaultdict(_for_display)
        self._quiet = Quiet()
        self._lines: dict[int, WatchLine] = {}
        """The connections of the last interval."""
        self._of_sessions: dict[int, WatchLine] = {}
        """The sessions of the last interval."""
        self._counts: dict[tuple[int, bool], dict[str, int]] = {}
        self._counters: dict[str, int] = {}
        self._packet_count = 0
        self._forgotten_inputs = 0
        self._forgotten_drops: int | None = None
        self._final: PassView | None = None
        self._trimmer = Trimmer()

    def step(self, patience_s: float = PATIENCE_S) -> Report | None:
        """Reads for at most this time; returns the report of an interval that has ended."""
        step = self.live.advance(patience_s)
        if step == "look":
            self._trimmer.pass_interval()
            return self._report(self.live.look(), is_last=False)
        if step == "end" and self._final is None:
            self._final = self.live.finish()
            return self._report(self._final, is_last=True)
        return None

    @property
    def packet_count(self) -> int:
        """The packets so far."""
        return sum(each["packet_count"] for each in self.live.inputs)

    @property
    def is_over(self) -> bool:
        """Whether the input has ended."""
        return self._final is not None

    def run(self, show: Callable[[Report], None]) -> None:
        """Reads to the end of the input; calls ``show`` with every report."""
        while not self.is_over:
            report = self.step()
            if report:
                show(report)

    def document(self) -> dict[str, Any]:
        """The totals at the end: the keys of ``summary --json``, and those of a live view."""
        assert self._final is not None, "the input has not ended"  # noqa: S101 -- a mistake of the caller
        trace = self._final.trace
        pace = self.live.pace
        return {
            "kind": "totals",
            **trace.provenance,
            "packet_count": trace.packet_count,
            "tcp_packet_count": trace.tcp_packet_count,
            "sessions": list(trace.sessions.rows()),
            "connections": list(trace.connections.rows()),
            "parameters": list(trace.parameters.rows()),
            **self.totals.document(),
            "coverage": [part.as_dict() for part in self.totals.coverage(trace.connections)],
            "counters": health.by_name(trace.counters),
            "forgotten_connection_count": self.totals.forgotten_connections,
            "forgotten_session_count": self.totals.forgotten_sessions,
            "forgotten_input_count": self._forgotten_inputs,
            "late_command_count": self._final.late_count,
            "left_out_packets": pace.left_out_packets,
            "ended_because": self.live.change,
        }

    def _report(self, view: PassView, *, is_last: bool) -> Report:
        trace = view.trace
        cycles, waited = trace.cycles, waits.of_trace(trace.table)
        self.totals.add(cycles, waited, view.settled_ns)
        self.totals.add_turnarounds(cycles, view.turnaround_operation, view.turnaround_ns)
        forgotten = view.forgotten.connections
        self.totals.forget(forgotten)
        for number in forgotten.raw("connection").tolist():
            self._of_connections.pop(number, None)
        if len(forgotten) or is_last:
            self.totals.forget_sessions(set(trace.sessions.raw("session").tolist()))
        length_ns = view.to_ns - view.from_ns
        budgets = budget.of_connections(trace.budget)
        kind = (length_ns, is_last, self.live.pace.is_reduced)
        past = sessions_over(trace.sessions, view.from_ns, "refused")
        quiet = self._quiet.update(view, budgets, kind) & self._lines.keys()
        quiet -= {
            number
            for number in quiet
            if self._lines[number].names["session"] in past and not self._lines[number].is_past
        }
        transports = transports_of(view.now, trace.senders, self._counts, quiet)
        _add(self._latencies[None], waited)
        now = _now(view, past)
        hangs = {number: hang_of([row], view.to_ns) for number, row in now.items() if number not in quiet}
        connections = self._connections(view, now, waited, transports, hangs, budgets, quiet, past)
        sessions = self._sessions(view, now, waited, connections, quiet)
        self._lines = {line.number: line for line in connections}
        self._of_sessions = {line.number: line for line in sessions}
        in_flight = _old(hangs.values())
        self.meters.add(sessions, connections, cycles, waited, view.to_ns)
        if self._has_findings and not is_last and self.findings.is_due(view.to_ns):
            if self.live.pace.is_reduced:
                self.findings.forget()
            else:
                self.findings.update(self.live.recent(), view.to_ns)
        dropped = _total(self._forgotten_drops, _dropped(trace.inputs))
        self._forgotten_inputs += len(view.forgotten.inputs)
        self._forgotten_drops = _total(self._forgotten_drops, _dropped(view.forgotten.inputs))
        new_packets, self._packet_count = trace.packet_count - self._packet_count, trace.packet_count
        self.last = Report(
            from_ns=view.from_ns,
            to_ns=view.to_ns,
            packet_count=trace.packet_count,
            new_packets=new_packets,
            whole=load_of(cycles, waited, length_ns, in_flight),
            whole_total_latency_ns=self._latencies[None].percentiles(in_flight),
            sessions=sessions,
            connections=connections,
            findings=self.findings.current,
            headline=self.findings.headline,
            stories=self.findings.stories,
            undiagnosed_count=self.findings.left_out,
            counters=self._health(trace.counters),
            pace=self.live.pace,
            late_count=view.late_count,
            dropped=dropped,
            is_last=is_last,
        )
        return self.last

    def _connections(
        self,
        view: PassView,
        now: Mapping[int, Mapping[str, Any]],
        waited: Waits,
        transports: dict[int, Transport],
        hangs: dict[int, Hang],
        budgets: budget.Budgets,
        quiet: Set[int],
        past: Set[int],
    ) -> list[WatchLine]:
        trace, length_ns = view.trace, view.to_ns - view.from_ns
        nothing = replace(NO_LOAD, length_ns=length_ns)
        old = {number: _old([hang]) for number, hang in hangs.items() if hang.old_ns}
        loads = loads_of(trace.cycles, waited, trace.cycles.raw("connection"), length_ns, old)
        latencies = _parts(waited, trace.cycles.raw("connection"))
        # a closed connection is shown only while it has new commands
        numbers = trace.connections.raw("connection")
        shown = np.isin(numbers, [*now, *loads]) & trace.connections.raw("is_iscsi")
        lines = {number: self._lines[number] for number in quiet}
        closed = set(numbers[is_closed(trace.connections)].tolist())
        # those whose commands make their session wait for the next one
        waiting = {row["connection"] for row in view.now if row["open_task_count"]}
        new = shown & ~np.isin(numbers, [*quiet])
        columns = ("connection", "session", "initiator_address", "initiator_port", "target_address", "target_port")
        for row in trace.connections.select(new).rows((*columns, "time_last_ns")):
            number = row["connection"]
            open_task_count = now[number]["open_task_count"] if number in now else 0
            has_ended = row["session"] in past
            is_over = has_ended or (number in closed and number not in waiting)
            is_past = is_over and row["time_last_ns"] < view.from_ns
            latency = self._of_connections[number]
            if number in latencies:
                _add(latency, latencies[number])
            transport = transports.get(number)
            lines[number] = WatchLine(
                "connection",
                number,
                loads.get(number, nothing),
                budgets.get(number),
                open_task_count,
                latency.percentiles(old.get(number, NOTHING)),
                {
                    "session": row["session"],
                    "initiator": endpoint(row, "initiator"),
                    "target": endpoint(row, "target"),
                },
                (number,),
                {number: transport} if transport else {},
                number in now and not has_ended,
                hangs.get(number, NO_HANG),
                is_past and number not in loads,
            )
        return [lines[number] for number in numbers[shown].tolist()]

    def _sessions(
        self,
        view: PassView,
        now: Mapping[int, Mapping[str, Any]],
        waited: Waits,
        connections: list[WatchLine],
        quiet: Set[int],
    ) -> list[WatchLine]:
        trace, length_ns = view.trace, view.to_ns - view.from_ns
        budgets = budget.of_sessions(trace.budget)
        nothing = replace(NO_LOAD, length_ns=length_ns)
        of_session: dict[int | None, list[WatchLine]] = defaultdict(list)
        for line in connections:
            of_session[line.names["session"]].append(line)
        old = {
            number: _old(line.hang for line in members)
            for number, members in of_session.items()
            if number is not None and any(line.hang.old_ns for line in members)
        }
        loads = loads_of(trace.cycles, waited, trace.cycles.raw("session"), length_ns, old)
        latencies = _parts(waited, trace.cycles.raw("session"))
        for gone in self._latencies.keys() - of_session.keys() - {None}:
            del self._latencies[gone]
        shown = np.isin(trace.sessions.raw("session"), [number for number in of_session if number is not None])
        names = ("session", "session_type", "initiator_name", "target_name")
        numbers = trace.sessions.raw("session")[shown].tolist()
        lines = {
            number: last
            for number in numbers
            if (last := self._of_sessions.get(number))
            and number not in loads
            and _is_quiet(last, of_session[number], quiet)
        }
        shown &= ~np.isin(trace.sessions.raw("session"), [*lines])
        for row in trace.sessions.select(shown).rows(names):
            number = row["session"]
            members = of_session[number]
            latency = self._latencies[number]
            if number in latencies:
                _add(latency, latencies[number])
            lines[number] = WatchLine(
                "session",
                number,
                loads.get(number, nothing),
                budgets.get(number),
                sum(line.open_task_count for line in members),
                latency.percentiles(old.get(number, NOTHING)),
                {name: row[name] for name in names[1:]},
                tuple(line.number for line in members),
                {number: each for line in members for number, each in line.transports.items()},
                any(line.is_open for line in members),
                hang_of([now[line.number] for line in members if line.number in now], view.to_ns),
                all(line.is_past for line in members),
            )
        return [lines[number] for number in numbers]

    def _health(self, counters: Any) -> list[dict[str, Any]]:
        entries = health.by_name(counters)
        for entry in entries:
            entry["new"] = entry["count"] - self._counters.get(entry["name"], 0)
        self._counters = {entry["name"]: entry["count"] for entry in entries}
        return entries


def _present(lines: list[WatchLine]) -> list[WatchLine]:
    return [line for line in lines if not line.is_past]


def _is_quiet(session: WatchLine, connections: list[WatchLine], quiet: Set[int]) -> bool:
    """Whether it has the connections of the last interval, and nothing happened to them."""
    numbers = tuple(line.number for line in connections)
    return session.connections == numbers and quiet >= set(numbers)


def _for_display() -> Distribution:
    """A distribution whose percentiles are read in every interval."""
    return Distribution(exact=1024)


def _add(latency: Distribution, waited: Waits) -> None:
    """Adds the latencies of commands, and the waits of those that never got a status."""
    latency.add(waited.latencies_ns)
    if waited.is_lost.any():
        latency.add_bounds(waited.lost_ns)


def _parts(waited: Waits, groups: NDArray[Any]) -> dict[int, Waits]:
    """The waits, by session or connection."""
    return {number: waited.select(rows) for number, rows in grouped(groups).items()}


def _now(view: PassView, past: Set[int]) -> Mapping[int, Mapping[str, Any]]:
    """The rows of ``PassView.now`` by connection. No command is in flight where both sides closed the
    connection or one reset it, nor in a session that is past; the session may wait for the next one.
    """
    connections = view.trace.connections
    closed = set(connections.raw("connection")[is_closed(connections)].tolist())
    found = {}
    for row in view.now:
        is_gone = row["connection"] in closed or row["session"] in past
        ended = {"open_task_count": 0, "begun_ns": row["begun_ns"][:0]} if is_gone else {}
        found[row["connection"]] = row | ended
    return found


def _old(hangs: Iterable[Hang]) -> NDArray[Any]:
    """The time for which each of their commands has been in flight, where that is as long as an outage."""
    return np.array([age_ns for each in hangs for age_ns in each.old_ns], dtype=np.int64)


def _dropped(inputs: list[dict[str, Any]]) -> int | None:
    return _total(*(interface["dropped"] for each in inputs for interface in each["interfaces"]))


def _total(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
