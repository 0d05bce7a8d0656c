"""Looks at a live pass interval by interval: figures, totals, findings, oddities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iscsitrace.analysis import budget, health
from iscsitrace.analysis.running.distribution import Distribution
from iscsitrace.analysis.running.totals import Totals
from iscsitrace.live import Live, Pace, View
from iscsitrace.schema import SCHEMA_VERSION
from iscsitrace.watch.figures import Line, Load, Transport, load_of, mask_of, transports_of
from iscsitrace.watch.findings import Findings, Found

PATIENCE_S = 0.2


@dataclass(frozen=True)
class Report:
    """One interval."""

    from_ns: int
    to_ns: int
    packet_count: int
    """Since the start."""
    new_packets: int
    whole: Load
    whole_total_latency_ns: dict[str, int | None]
    sessions: list[Line]
    connections: list[Line]
    findings: tuple[Found, ...]
    verdicts: dict[int, str]
    counters: list[dict[str, Any]]
    """Above zero, the worst first; ``new`` is what this interval added."""
    pace: Pace
    late_count: int
    dropped: int | None
    """Packets that the capture says it dropped so far; None where it says nothing."""
    is_last: bool = False

    def as_dict(self) -> dict[str, Any]:
        """A line of JSON."""
        return {
            "schema": SCHEMA_VERSION,
            "kind": "interval",
            "from_ns": self.from_ns,
            "to_ns": self.to_ns,
            "packet_count": self.new_packets,
            "all": self.whole.as_dict() | {"latency_total_ns": self.whole_total_latency_ns},
            "sessions": [line.as_dict() for line in self.sessions],
            "connections": [line.as_dict() for line in self.connections],
            "findings": [found.as_dict() for found in self.findings],
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
    """A live pass, and everything that is to be said of it."""

    def __init__(self, live: Live, *, has_findings: bool = True) -> None:
        self.live = live
        self.totals = Totals()
        self.findings = Findings()
        self.last: Report | None = None
        self._has_findings = has_findings
        self._latencies: dict[int | None, Distribution] = defaultdict(Distribution)
        self._of_connections: dict[int, Distribution] = defaultdict(Distribution)
        self._counts: dict[tuple[int, bool], dict[str, int]] = {}
        self._counters: dict[str, int] = {}
        self._packet_count = 0
        self._final: View | None = None

    def step(self, patience_s: float = PATIENCE_S) -> Report | None:
        """Reads on for at most so long; the report of an interval when one is over."""
        step = self.live.advance(patience_s)
        if step == "look":
            return self._report(self.live.look(), is_last=False)
        if step == "end" and self._final is None:
            self._final = self.live.finish()
            return self._report(self._final, is_last=True)
        return None

    @property
    def is_over(self) -> bool:
        """Whether the input has ended."""
        return self._final is not None

    def run(self, show: Callable[[Report], None]) -> None:
        """Reads to the end of the input; ``show`` gets every report."""
        while not self.is_over:
            report = self.step()
            if report:
                show(report)

    def document(self) -> dict[str, Any]:
        """The totals at the end: the keys of ``summary --json``, and what only a live view knows."""
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
            "late_command_count": self._final.late_count,
            "left_out_packets": pace.left_out_packets,
            "ended_because": self.live.change,
        }

    def _report(self, view: View, *, is_last: bool) -> Report:
        trace = view.trace
        cycles = trace.cycles
        self.totals.add(cycles, view.settled_ns)
        self.totals.add_turnarounds(cycles, view.turnaround_operation, view.turnaround_ns)
        forgotten = view.forgotten.connections
        self.totals.forget(forgotten)
        for number in forgotten.raw("connection").tolist():
            self._of_connections.pop(number, None)
        length_ns = view.to_ns - view.from_ns
        transports = transports_of(view.now, trace.senders, self._counts)
        self._latencies[None].add(cycles["latency_ns"])
        connections = self._connections(view, transports, length_ns)
        sessions = self._sessions(view, connections, length_ns)
        if self._has_findings and not is_last and self.findings.is_due(view.to_ns):
            if self.live.pace.is_reduced:
                self.findings.current = ()
            else:
                self.findings.update(self.live.recent(), view.to_ns)
        new_packets, self._packet_count = trace.packet_count - self._packet_count, trace.packet_count
        self.last = Report(
            from_ns=view.from_ns,
            to_ns=view.to_ns,
            packet_count=trace.packet_count,
            new_packets=new_packets,
            whole=load_of(cycles, length_ns),
            whole_total_latency_ns=self._latencies[None].percentiles(),
            sessions=sessions,
            connections=connections,
            findings=self.findings.current,
            verdicts=self.findings.verdicts,
            counters=self._health(trace.counters),
            pace=self.live.pace,
            late_count=view.late_count,
            dropped=_dropped(trace.inputs),
            is_last=is_last,
        )
        return self.last

    def _connections(self, view: View, transports: dict[int, Transport], length_ns: int) -> list[Line]:
        trace = view.trace
        budgets = budget.of_connections(trace.budget)
        now = {row["connection"]: row for row in view.now}
        cycles = trace.cycles
        busy = set(cycles.raw("connection").tolist())
        lines = []
        columns = ("connection", "session", "is_iscsi", "initiator_address", "initiator_port", "target_address")
        for row in trace.connections.rows((*columns, "target_port")):
            number = row["connection"]
            # what is over is shown no longer than it has something new
            if not row["is_iscsi"] or (number not in now and number not in busy):
                continue
            own = cycles.select(mask_of(cycles, "connection", number))
            latency = self._of_connections[number]
            latency.add(own["latency_ns"])
            transport = transports.get(number)
            lines.append(
                Line(
                    "connection",
                    number,
                    load_of(own, length_ns),
                    budgets.get(number),
                    now[number]["open_task_count"] if number in now else 0,
                    latency.percentiles(),
                    {
                        "session": row["session"],
                        "initiator": _endpoint(row["initiator_address"], row["initiator_port"]),
                        "target": _endpoint(row["target_address"], row["target_port"]),
                    },
                    (number,),
                    {number: transport} if transport else {},
                    number in now,
                )
            )
        return lines

    def _sessions(self, view: View, connections: list[Line], length_ns: int) -> list[Line]:
        trace = view.trace
        budgets = budget.of_sessions(trace.budget)
        cycles = trace.cycles
        lines = []
        for row in trace.sessions.rows(("session", "session_type", "initiator_name", "target_name")):
            number = row["session"]
            members = [line for line in connections if line.names["session"] == number]
            if not members:
                self._latencies.pop(number, None)
                continue
            own = cycles.select(mask_of(cycles, "session", number))
            latency = self._latencies[number]
            latency.add(own["latency_ns"])
            lines.append(
                Line(
                    "session",
                    number,
                    load_of(own, length_ns),
                    budgets.get(number),
                    sum(line.open_task_count for line in members),
                    latency.percentiles(),
                    {name: row[name] for name in ("session_type", "initiator_name", "target_name")},
                    tuple(line.number for line in members),
                    {number: each for line in members for number, each in line.transports.items()},
                    any(line.is_open for line in members),
                )
            )
        return lines

    def _health(self, counters: Any) -> list[dict[str, Any]]:
        entries = health.by_name(counters)
        for entry in entries:
            entry["new"] = entry["count"] - self._counters.get(entry["name"], 0)
        self._counters = {entry["name"]: entry["count"] for entry in entries}
        return entries


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _dropped(inputs: list[dict[str, Any]]) -> int | None:
    known = [
        interface["dropped"] for each in inputs for interface in each["interfaces"] if interface["dropped"] is not None
    ]
    return sum(known) if known else None
