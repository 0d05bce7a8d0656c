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

from iscsitrace.analysis import budget
from iscsitrace.analysis.diagnosis import wording
from iscsitrace.analysis.model import robust
from iscsitrace.analysis.model.estimate import Estimate
from iscsitrace.analysis.model.observed import Path, Session, is_status_held
from iscsitrace.analysis.model.points import Point, Seen
from iscsitrace.analysis.model.spans import Spans, Tasks
from iscsitrace.analysis.model.waits import Waits
from iscsitrace.table import Table

Array = NDArray[Any]
Source = Callable[[str], Table]

NEEDED: Final = ("budget", "senders")
"""Tables filled on request that a source has to have."""

CYCLES_MIN: Final = 2
"""A single cycle has no spread, and may be chance."""
BYTES_MIN: Final = 0.1
"""Share of the bytes of an operation from which on a block size is one of the workload: less are metadata and tails."""
STALL_TOLERANCE: Final = 0.02
"""Share of the period by which the waits for a window may lie above those of later cycles once a window has grown."""
SCATTER: Final = 3.0
"""Median deviations of these waits by which they may: two standard deviations, where hosts make them scatter."""
WHOLE_WINDOW: Final = 0.1
"""Share of the cycles that have to wait no longer for the congestion window than one does whose window no loss made
small."""
UNKNOWN_MAX: Final = 0.05
"""Share of a period that may be unknown."""
LINE: Final = 0.9
"""Share of the time for which the line has to be busy to be what limits tasks that are outstanding together."""
WINDOW: Final = 0.5
"""Share of their waits that has to be for windows for these to be what limits them."""

_STALLS: Final = ("receive_window", "congestion_window")
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
    found: list[Point] = []
    missing = []
    for number in sorted({row["session"] for row in rows if row["session"] is not None}):
        label = f"{name}, session {number}"
        session = _session(source, number, [row for row in rows if row["session"] == number])
        path = session.path
        tasks = Tasks(session.tables["cycles"], session.busiest["rtt_to_initiator_min_ns"] or 0)
        if not (tasks.operation >= 0).any():
            missing.append(f"{label}: no task read or wrote data")
        elif path is None:
            missing.append(f"{label}: no delay is known, for no round trip to the {session.unseen} was seen")
        else:
            waits = Waits(budget.rows_of(source("budget"), session=number), path.round_trip_ns)
            own = list(_of_session(label, session, path, tasks, waits, missing))
            found += own
    return Survey(tuple(found), tuple(missing) or (() if found else (f"{name}: no iSCSI session",)))


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
        judged = [(spans, _Judgement(tasks, spans, waits)) for spans in large]
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


class _Judgement:
    """Which cycles count, and why the others do not."""

    def __init__(self, tasks: Tasks, spans: Spans, waits: Waits) -> None:
        self.left_out = Counter[str]()
        has_end = spans.has_end
        self._leave("no_period", int((~has_end).sum()), spans)
        self.spans = spans.where(has_end)
        self.parts = waits.parts(self.spans)
        self.lengths = self.spans.ends - self.spans.starts
        self.counts = self._judge(tasks) if len(self.lengths) else np.zeros(0, dtype=bool)

    def _leave(self, reason: str, count: int, spans: Spans) -> None:
        if count:
            self.left_out[reason] += count * spans.tasks_in_each

    def _judge(self, tasks: Tasks) -> Array:
        of_tasks = tasks.table
        whole = of_tasks.raw("is_complete") & ~of_tasks.raw("has_capture_gap") & ~of_tasks.raw("is_aborted")
        is_incomplete = self._any(~whole) | (self.parts["unknown"] > UNKNOWN_MAX * self.lengths)
        is_lossy = (self._any(of_tasks.raw("has_retransmission")) | (self.parts["loss_recovery"] > 0)) & ~is_incomplete
        think = self.parts["initiator_think"]
        steady_ns = float(np.median(think)) if len(think) >= budget.STEADY_COUNT_MIN else 0.0
        least_ns = max(budget.BETWEEN_JOBS_MIN_NS, budget.BETWEEN_JOBS_MIN_MEDIANS * steady_ns)
        has_pause = (think > least_ns) & ~is_incomplete & ~is_lossy
        fine = ~(is_incomplete | is_lossy | has_pause)
        growing = self._growing(fine, is_lossy, has_pause)
        for reason, which in (
            ("incomplete", is_incomplete),
            ("lossy", is_lossy | (growing == _AFTER_LOSS)),
            ("pause", has_pause),
            ("slow_start", growing == _AFTER_START),
        ):
            self._leave(reason, int(which.sum()), self.spans)
        return np.asarray(fine & (growing == 0))

    def _any(self, of_tasks: Array) -> Array:
        """Whether it holds for some task of each span."""
        sums = np.concatenate([[0], np.cumsum(of_tasks)])
        return np.asarray(sums[self.spans.last] > sums[self.spans.first])

    def _growing(self, fine: Array, is_lossy: Array, has_pause: Array) -> Array:
        """Cycles whose window has still to grow: from the start of a job, or a loss, on, as long as they wait more for
        windows than later ones do.
        """
        found = np.zeros(len(fine), dtype=np.int8)
        if not fine.any():
            return found
        tolerance_ns = STALL_TOLERANCE * float(np.median(self.lengths[fine]))
        congestion = self.parts["congestion_window"]
        stalls = congestion + self.parts["receive_window"]
        later = stalls[fine][fine.sum() // 2 :]
        grown_ns = float(np.median(later))
        scatter_ns = SCATTER * float(np.median(np.abs(later - grown_ns)))
        # where losses are many, half of the cycles may suffer from one: the window of few is whole
        whole_ns = float(np.quantile(congestion[fine], WHOLE_WINDOW))
        since = _AFTER_START
        for place in range(len(fine)):
            if is_lossy[place]:
                since = _AFTER_LOSS
            elif has_pause[place]:
                since = _AFTER_START
            elif fine[place] and since:
                is_small = stalls[place] > grown_ns + max(tolerance_ns, scatter_ns)
                if since == _AFTER_LOSS:
                    is_small = congestion[place] > whole_ns + tolerance_ns
                found[place] = since if is_small else 0
                since = since if is_small else 0
        return found


_AFTER_START, _AFTER_LOSS = 1, 2


def _point(
    label: str,
    session: Session,
    path: Path,
    tasks: Tasks,
    waits: Waits,
    judgement: _Judgement,
    left_out: Counter[str],
) -> Point:
    spans, lengths = judgement.spans.where(judgement.counts), judgement.lengths[judgement.counts]
    parts = {part: lasted[judgement.counts] for part, lasted in judgement.parts.items()}
    weights = robust.weights(lengths.astype(float))
    mean = {part: float(np.average(lasted, weights=weights)) for part, lasted in parts.items()}
    period_ns = float(np.average(lengths, weights=weights))
    seen = _seen(path, tasks, waits, spans, parts, weights)
    setting = session.setting(spans)
    held_ns = np.minimum(parts["ack_wait"], path.round_trip_ns)
    transfer_ns = seen.transfer_ns.value
    setting = replace(
        setting,
        c_bytes_per_s=spans.block_bytes / transfer_ns * 1e9 if transfer_ns else None,
        service_ns=seen.service_ns.value if seen.service_ns else 0.0,
        is_status_held=is_status_held(tasks, spans, held_ns, path.delay_ns),
        start_window_bytes=setting.start_window_bytes
        if mean["congestion_window"] > STALL_TOLERANCE * period_ns
        else None,
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


def _seen(path: Path, tasks: Tasks, waits: Waits, spans: Spans, parts: dict[str, Array], weights: Array) -> Seen:
    lengths = spans.ends - spans.starts
    stalls = sum((parts[part] for part in _STALLS), np.zeros(len(lengths), dtype=np.int64))
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
    whole = float(lengths.sum())
    if float(parts["transfer"].sum()) >= LINE * whole:
        bound = "line"
    else:
        waits_ns = whole - float(parts["transfer"].sum())
        bound = "window" if float(stalls.sum()) >= WINDOW * waits_ns else "cycle"
    return Seen(bound, None, None, transfer, 0.0, ())


def _estimate(values: Array, weights: Array) -> Estimate:
    value = float(np.average(values, weights=weights))
    half = robust.student_975(len(values) - 1) * robust.standard_error(values.astype(float), weights)
    return Estimate(value, max(0.0, value - half), value + half, "packets")
