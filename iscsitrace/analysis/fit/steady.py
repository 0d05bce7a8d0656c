"""The steady cycles of a trace, by session, operation, block size and queue depth: the points that a fit goes through.

What does not count is left out by rule, and counted by why. Nothing is fitted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.fit import robust
from iscsitrace.analysis.fit.judgement import STALLS, Judgement
from iscsitrace.analysis.fit.mirror import Candidate, join
from iscsitrace.analysis.fit.points import Point, Seen
from iscsitrace.analysis.groups.mirrors import recognition
from iscsitrace.analysis.measures import budget
from iscsitrace.analysis.model.estimate import Estimate
from iscsitrace.analysis.model.setting import Setting
from iscsitrace.analysis.session.observed import Path, Session, is_status_held
from iscsitrace.analysis.session.spans import Spans, Tasks
from iscsitrace.analysis.session.waits import Waits
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]
Source = Callable[[str], Table]

NEEDED: Final = ("budget", "senders")
"""Tables filled on request that a source has to have."""

CYCLES_MIN: Final = 2
"""A single cycle has no spread, and may be chance."""
BYTES_MIN: Final = 0.1
"""Share of the bytes of an operation from which on a block size is one of the workload: less are metadata and tails."""
SLOW_START: Final = 0.02
"""Share of the periods that waits for the congestion window have to take for each block to begin in slow start."""
LINE: Final = 0.9
"""Share of the time for which the line has to be busy to be what limits tasks that are outstanding together."""
WINDOW: Final = 0.5
"""Share of their waits that has to be for windows for these to be what limits them."""
FULL_WINDOW: Final = 0.8
"""Share of a window per round trip that has to be carried for its size to be the limit, not its receiver."""

_CONNECTION_COLUMNS: Final = (
    *("connection", "session", "is_iscsi", "rtt_to_target_min_ns", "rtt_to_initiator_min_ns"),
    *("stream_bytes_to_target", "stream_bytes_to_initiator"),
)


@dataclass(frozen=True)
class Survey:
    """What a trace has to offer to a fit."""

    points: tuple[Point, ...]
    missing: tuple[str, ...]
    """What is in the way of more points, session by session, in words."""


def points(source: Source, name: str) -> list[Point]:
    """The points of a trace read with the tables NEEDED; ``source`` is its method ``table``."""
    return list(survey(source, name).points)


def survey(source: Source, name: str) -> Survey:
    """The same, and what is in the way of more."""
    rows = [row for row in source("connections").rows(_CONNECTION_COLUMNS) if row["is_iscsi"]]
    found: list[Candidate] = []
    missing: list[str] = []
    for number in sorted({row["session"] for row in rows if row["session"] is not None}):
        label = f"{name}, session {number}"
        session = _session(source, number, [row for row in rows if row["session"] == number])
        path = session.path
        tasks = Tasks(session.tables["cycles"], session.busiest["rtt_to_initiator_min_ns"] or 0)
        if not (tasks.operation >= 0).any():
            missing.append(f"{label}: no task read or wrote data")
        elif path is None:
            missing.append(f"{label}: no delay is known, for {session.why_no_path}")
        else:
            waits = Waits(budget.rows_of(source("budget"), session=number), path.round_trip_ns)
            made = _of_session(label, session, path, tasks, waits, missing)
            found += [Candidate(point, number) for point in made]
    mirrors = recognition.find(source) if len({candidate.session for candidate in found}) > 1 else []
    return Survey(tuple(join(found, mirrors)), tuple(missing) or (() if found else (f"{name}: no iSCSI session",)))


def _session(source: Source, number: int, connections: list[dict[str, Any]]) -> Session:
    members = [row["connection"] for row in connections]
    cycles = source("cycles")
    is_own = np.ma.filled(np.ma.asarray(cycles["session"]) == number, False)
    rounds = source("rounds")
    tables = {
        "cycles": cycles.select(is_own),
        "rounds": rounds.select(is_own[rounds.raw("cycle")]) if len(rounds) else rounds,
    }
    for name in ("senders", "parameters"):
        table = source(name)
        tables[name] = table.select(np.isin(table.raw("connection"), members))
    return Session(connections, tables)


def _of_session(
    label: str, session: Session, path: Path, tasks: Tasks, waits: Waits, missing: list[str]
) -> Iterator[Point]:
    kinds = list(tasks.spans())
    for operation in dict.fromkeys(spans.operation for spans in kinds):
        moved = int(tasks.bytes[tasks.operation == (operation == "write")].sum())
        own = [spans for spans in kinds if spans.operation == operation]
        large = [spans for spans in own if _bytes(spans) >= BYTES_MIN * moved]
        task_count = int((tasks.operation == (operation == "write")).sum())
        if moved < BYTES_MIN * int(tasks.bytes[tasks.operation >= 0].sum()):
            continue
        judged = [(spans, Judgement(tasks, spans, waits)) for spans in large]
        usable = [pair for pair in judged if pair[1].counts.sum() >= CYCLES_MIN]
        if not usable:
            reasons = sum((judgement.left_out for _, judgement in judged), Counter[str]())
            why = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
            what = wording.count(task_count, f"{operation} task")
            missing.append(f"{label}: of {what} too few are steady" + (f" ({why})" if why else ""))
            continue
        most = max(usable, key=lambda pair: _bytes(pair[0]))[0]
        others = task_count - sum(len(spans.first) * spans.tasks_in_each for spans in large)
        for spans, judgement in usable:
            left_out = judgement.left_out + Counter({"other_block": others} if spans is most and others else {})
            yield _point(label, session, path, tasks, waits, judgement, left_out)


def _bytes(spans: Spans) -> int:
    return len(spans.first) * spans.block_bytes * spans.queue_depth


def _point(
    label: str,
    session: Session,
    path: Path,
    tasks: Tasks,
    waits: Waits,
    judgement: Judgement,
    left_out: Counter[str],
) -> Point:
    spans, lengths = judgement.spans.where(judgement.counts), judgement.lengths[judgement.counts]
    parts = {part: lasted[judgement.counts] for part, lasted in judgement.parts.items()}
    weights = robust.weights(lengths.astype(float))
    mean = {part: float(np.average(lasted, weights=weights)) for part, lasted in parts.items()}
    period_ns = float(np.average(lengths, weights=weights))
    setting = session.setting(spans)
    seen = _seen(setting, path, tasks, waits, spans, parts, weights)
    held_ns = np.minimum(parts["ack_wait"], path.round_trip_ns)
    transfer_ns = seen.transfer_ns.value
    setting = replace(
        setting,
        c_bytes_per_s=spans.block_bytes / transfer_ns * 1e9 if transfer_ns else None,
        service_ns=seen.service_ns.value if seen.service_ns else 0.0,
        is_status_held=is_status_held(tasks, spans, held_ns, path.delay_ns),
        start_window_bytes=setting.start_window_bytes if mean["congestion_window"] > SLOW_START * period_ns else None,
    )
    together = f" in {spans.together} tasks at once" if spans.together > 1 else ""
    return Point(
        name=f"{label}, {spans.operation} {wording.size(spans.block_bytes)}{together}, QD {spans.queue_depth}",
        setting=setting,
        period_ns=period_ns,
        period_spread_ns=robust.standard_error(lengths.astype(float), weights),
        throughput_bytes_per_s=spans.block_bytes * spans.queue_depth / float(lengths.mean()) * 1e9,
        cycle_count=len(lengths) * spans.tasks_in_each,
        left_out=dict(left_out),
        parts_ns=mean,
        delay_ns=Estimate(path.delay_ns, path.delay_low_ns, path.delay_ns, "packets"),
        seen=seen,
    )


def _seen(
    setting: Setting,
    path: Path,
    tasks: Tasks,
    waits: Waits,
    spans: Spans,
    parts: dict[str, Array],
    weights: Array,
) -> Seen:
    lengths = spans.ends - spans.starts
    stalls = sum((parts[part] for part in STALLS), np.zeros(len(lengths), dtype=np.int64))
    transfer = _estimate(parts["transfer"] / spans.queue_depth, weights)
    if spans.queue_depth == 1:
        path_ns = waits.path_ns(spans.starts, spans.ends)
        return Seen(
            bound="cycle",
            k=_estimate(path_ns / path.delay_ns, weights),
            service_ns=_estimate(np.maximum(lengths - path_ns - parts["transfer"] - stalls, 0), weights),
            transfer_ns=transfer,
            stall_ns=float(np.average(stalls, weights=weights)),
            legs=waits.legs(tasks, spans, weights, path.delay_ns),
        )
    whole, busy = float(lengths.sum()), float(parts["transfer"].sum())
    bound = "line" if busy >= LINE * whole else "cycle"
    if bound == "cycle" and float(stalls.sum()) >= WINDOW * (whole - busy):
        bound = "window"
        carried = spans.block_bytes * spans.queue_depth * len(lengths) / whole
        window = (setting.window_bytes or 0) * setting.connections / path.round_trip_ns
        if carried < FULL_WINDOW * window or not window:
            bound, transfer = "receiver", _estimate(lengths / spans.queue_depth, weights)
    return Seen(bound, None, None, transfer, 0.0, ())


def _estimate(values: Array, weights: Array) -> Estimate:
    value = float(np.average(values, weights=weights))
    half = robust.student_975(len(values) - 1) * robust.standard_error(values.astype(float), weights)
    return Estimate(value, max(0.0, value - half), value + half, "packets")
