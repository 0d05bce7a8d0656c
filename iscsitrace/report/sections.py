"""The sections after the plots: slowest commands, workload, parameters, connections, capture health, provenance; and
the model: the fit to the steady commands of a session, and what changes would gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from iscsitrace.diagnosis.subject import Subject
from iscsitrace.findings.acknowledgments import STATUS_IN_DATA
from iscsitrace.findings.concurrency import deeper
from iscsitrace.findings.distance import blocks
from iscsitrace.findings.line import TWICE_AS_FAST
from iscsitrace.findings.transport import NO_LOSSES
from iscsitrace.findings.writes import MAX_BURST_BYTES
from iscsitrace.fit import gain
from iscsitrace.fit.gain import OF_A_CONNECTION, OF_R2TS, Change, WhatIf
from iscsitrace.fit.points import Fit, of_operation
from iscsitrace.fit.regression import fit
from iscsitrace.fit.situation import Situation
from iscsitrace.fit.steady import NEEDED, survey
from iscsitrace.measure import capture_health, connection_counts, waits, workload
from iscsitrace.measure.grouping import Grouping
from iscsitrace.measure.selection import display_filter
from iscsitrace.relate.loads import Loads
from iscsitrace.relate.mirrors.account import Account
from iscsitrace.show import cycles as commands
from iscsitrace.show import inputs, loads, mirrors, model_fit, summary
from iscsitrace.show.document import Grid, Section, table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import cells, sentences

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
    measured = workload.latencies(cycles, waits.of(cycles, trace.connections))
    line = f"Commands of {subject.label}. Percentiles are by nearest rank."
    return Section(
        "Workload", (line, summary.latency(measured), summary.sizes(workload.block_sizes(cycles))), "traffic"
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


__all__ = ["NEEDED", "of_session"]

TITLE: Final = "Model and predicted gains"
BLOCKS: Final = (256 << 10, 1 << 20, 4 << 20)
_WORTH: Final = 1.05
"""Smallest gain that is shown."""


def of_session(trace: TraceTables, session: int, name: str, *, has_others: bool = False) -> Section:
    """The model of a session's steady commands in the capture of this name, and what changes would gain; else why there
    is none. Of a story that ``has_others`` the session is named.
    """
    found = survey(trace.table, name, session)
    own = of_operation([point for point in found.points if point.session == session])
    if not own:
        why = "; ".join(each.why for each in found.missing if each.session == session) or "no steady commands"
        return Section(TITLE, (sentences.sentence(f"No model of session {session}: {why}"),), "model")
    fitted, gains = fit(own), _gains(gain.of_session(Grouping(trace.table).sessions[session]))
    sentence = _sentence(fitted)
    first = f"Session {session}: {sentence[:1].lower()}{sentence[1:]}" if has_others else sentence
    return Section(TITLE, (first, *([gains] if gains else []), *model_fit.blocks(fitted)), "model")


_LIMITS: Final = {
    "line": "the line limits them",
    "window": "a window in each RTT limits them",
    "receiver": "windows limit them",
}
_DESCRIBED: Final = 0.2
"""A model whose period is farther from the measured one does not describe the commands."""


def _sentence(found: Fit) -> str:
    """The model's period of most commands, the measured one, and what it is made of, or what limits it."""
    place = max(range(len(found.points)), key=lambda each: found.points[each].cycle_count)
    point, model_ns = found.points[place], found.models_ns[place]
    setting = found.setting
    terms = [f"{found.k.value:.2f} x {wording.time(found.d_ns.value)}"]
    if found.s_ns.value > 0:
        terms.append(f"{wording.time(found.s_ns.value)} of hosts and pauses")
    if found.c_bytes_per_s:
        passing_ns = setting.block_bytes / found.c_bytes_per_s.value * 1e9
        terms.append(f"{wording.time(passing_ns)} for {wording.size(setting.block_bytes)} on the line")
    if setting.ack_delay_ns:
        terms.append(f"{wording.time(setting.ack_delay_ns)}")
    formula = "k·d + s + B/C" + (" + ACK delay" if setting.ack_delay_ns else "")
    of_one = f"{formula} = {' + '.join(terms)}"
    count = point.outstanding
    what = f"from one {setting.operation} to the next" if count == 1 else f"for {count} {setting.operation}s in flight"
    why = _LIMITS.get(point.seen.bound, of_one)
    head = (
        "The model" if abs(found.residuals[place]) <= _DESCRIBED else "The model does not describe these commands: it"
    )
    return f"{head} has {wording.time(model_ns)} {what}, {wording.time(point.period_ns)} were measured: {why}."


def _gains(asked: WhatIf | None) -> Grid | None:
    """Predicted gains of one change each, as findings have them; None if the model does not describe the session."""
    if asked is None:
        return None
    found = [own for change in _changes(asked.measured.situation) if (own := asked.gain(change))]
    rows = tuple(
        (own.change, f"{own.throughput_factor:.1f}", f"{own.low:.1f}", f"{own.high:.1f}")
        for own in found
        if own.throughput_factor >= _WORTH
    )
    columns = ("change", "times as fast", "low", "high")
    return Grid("Predicted gains of one change", columns, rows) if rows else None


HALF_THE_RTT: Final = Change(
    "half the RTT",
    lambda situation: situation.with_setting(delay_ns=situation.setting.delay_ns / 2),
    OF_A_CONNECTION,
)


def _changes(situation: Situation) -> Iterator[Change]:
    setting = situation.setting
    yield from deeper(situation)
    for block in BLOCKS:
        if block > setting.block_bytes:
            yield replace(blocks(block), words=f"I/O size {wording.size(block)}")
    if setting.is_status_held:
        yield STATUS_IN_DATA
    if setting.operation == "write":
        yield Change("InitialR2T=No", partial(Situation.with_keys, is_initial_r2t=False), OF_R2TS)
        long = partial(
            Situation.with_keys,
            is_initial_r2t=False,
            first_burst_bytes=MAX_BURST_BYTES,
            max_burst_bytes=MAX_BURST_BYTES,
        )
        yield Change("InitialR2T=No, bursts as long as the I/O", long, OF_R2TS)
    if setting.window_bytes is not None:
        wide = partial(Situation.with_setting, window_bytes=4 * setting.window_bytes)
        yield Change("receive window 4 times as large", wide, ("receive_window",))
    yield NO_LOSSES
    half = partial(Situation.without, name="target_service", share=0.5)
    yield Change("half the service time", half, ("target_service",))
    yield HALF_THE_RTT
    if setting.c_bytes_per_s:
        yield TWICE_AS_FAST
