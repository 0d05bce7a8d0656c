"""The sections after the plots: slowest commands, workload, parameters, connections, capture health, provenance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from iscsitrace.diagnosis.subject import Subject
from iscsitrace.measure import capture_health, connection_counts, operations, waits
from iscsitrace.measure.selection import display_filter
from iscsitrace.relate.loads import Loads
from iscsitrace.relate.mirrors.account import Account
from iscsitrace.show import cycles as commands
from iscsitrace.show import inputs, loads, mirrors, summary
from iscsitrace.show.document import Section, table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording import cells

SLOWEST: Final = 12
WRITES: Final = 8
"""Most mirrored writes that are shown, largest skew first."""
ROWS: Final = 24
"""Rows of any other table; the remaining rows are counted."""


def of_trace(trace: TraceTables, subject: Subject | None, accounts: Sequence[Account] = ()) -> tuple[Section, ...]:
    """Every section; ``subject`` is what the report is about, ``accounts`` are the mirrors."""
    found: list[Section] = []
    if subject is not None and len(subject.commands(trace)):
        found += [_slowest(trace, subject), _traffic(trace, subject), *_connection_counts(trace, subject)]
    if len(trace.cycles):
        found.append(_loads(trace))
    if accounts:
        found.append(Section("Mirrors", tuple(mirrors.of_trace(trace, accounts, WRITES)), "mirrors"))
    sessions = subject.sessions if subject else ()
    return (*found, _parameters(trace, sessions), _connections(trace, sessions), _health(trace), _making(trace))


def _slowest(trace: TraceTables, subject: Subject) -> Section:
    cycles = subject.commands(trace)
    waited = waits.of(cycles, trace.connections)
    ranked = waited.slowest_first()
    shown = cycles.select(ranked[:SLOWEST])
    lines = ["The commands with the highest latency, from command to status."]
    if open_count := int(waited.is_open.sum()):
        noun = "command has" if open_count == 1 else "commands have"
        lines.append(
            f"{open_count:,} {noun} no status: > is the time until the abort, or the end of connection or capture."
        )
    if missing := len(cycles) - len(ranked):
        noun = "command" if missing == 1 else "commands"
        lines.append(f"The latency of {missing:,} {noun} is unknown: packets are missing from the capture.")
    caption = f"Slowest {len(shown)} of {len(ranked):,} commands"
    reading, grid = commands.commands(trace, shown, waited.select(ranked[:SLOWEST]), caption)
    filters = ((row["cycle"], display_filter(row)) for row in shown.rows())
    blocks = (
        grid._replace(notes=(reading, commands.READING)),
        table(("cycle", "display filter"), filters, "Display filters for Wireshark"),
    )
    return Section("Slowest commands", (*lines, *blocks), "slow")


def _traffic(trace: TraceTables, subject: Subject) -> Section:
    cycles = subject.commands(trace)
    measured = operations.latencies(cycles, waits.of(cycles, trace.connections))
    line = f"Commands of {subject.label}. Percentiles are by nearest rank."
    return Section(
        "Workload", (line, summary.latency(measured), summary.sizes(operations.block_sizes(cycles))), "traffic"
    )


def _connection_counts(trace: TraceTables, subject: Subject) -> Iterator[Section]:
    """What each number of connections carries, of sessions that change it."""
    has_resent = "retransmissions" in trace.options["tables"]
    resent = trace.table("retransmissions") if has_resent else None
    for found in connection_counts.of_cycles(subject.commands(trace), resent):
        yield Section("Connections over time", (f"{found.sentence}.", summary.counts_grid(found.as_dict())), "counts")


def _loads(trace: TraceTables) -> Section:
    """All commands of the capture by volume and by operation, and by initiator where there are several."""
    loads_of = Loads(trace.table)
    found = {name: loads_of.by(name) for name in ("volume", "operation", "initiator")}
    grids = (
        loads.grid(name, each, ROWS) for name, each in found.items() if each and (name != "initiator" or len(each) > 1)
    )
    return Section("Load", (loads.READING, *grids), "load")


def _parameters(trace: TraceTables, sessions: tuple[int, ...]) -> Section:
    parameters = trace.parameters.select(np.isin(trace.parameters.raw("session"), sessions))
    rows = [row for row in parameters.rows() if row["source"] != "offered"]
    known = summary.offers(rows) if rows else "The capture has no login, so the parameters are unknown."
    return Section("Login parameters", (known,), "parameters")


def _connections(trace: TraceTables, sessions: tuple[int, ...]) -> Section:
    # those of the report's subject first
    rows = sorted(trace.connections.rows(), key=lambda row: (row["session"] not in sessions, row["connection"]))
    found = [row for row in rows if row["is_iscsi"]]
    grid = summary.connections_grid(found, ROWS)
    return Section("Connections", (grid, *summary.others(rows)), "connections")


def _health(trace: TraceTables) -> Section:
    counters = capture_health.by_name(trace.counters)
    losses = ", ".join(entry["name"] for entry in capture_health.reaching(counters, "data_loss"))
    line = f"The capture is incomplete: {losses}." if losses else "Nothing is missing that would affect these numbers."
    *parts, total = trace.coverage
    coverage = inputs.coverage([part.as_dict() for part in (*parts[:ROWS], total)], len(trace.coverage))
    return Section("Capture health", (line, coverage, inputs.counters(counters, "Counters")), "health")


def _making(trace: TraceTables) -> Section:
    made = trace.provenance
    options = [
        f"{name}: {cells.short(value)}"
        for name, value in made["options"].items()
        if value not in (None, False) and name != "tables"
    ]
    return Section(
        "How this was made",
        (
            *inputs.lines(made["input"], ROWS),
            f"iscsitrace {made['tool']['version']}, schema {made['schema']}, from {cells.count(trace.packet_count)} "
            f"packets ({cells.count(trace.tcp_packet_count)} TCP).",
            f"Options: {'; '.join(options)}." if options else "No filters.",
            "The same input and options give the same bytes. `iscsitrace docs method` defines each number, "
            "`iscsitrace explain` each finding.",
        ),
        "making",
    )
