"""The steady cycles of a trace by session, operation, I/O size and queue depth: the points of a fit.

Other cycles are left out, and counted by reason. A model of losses also needs what steady points leave out: the
throughput of all commands under losses and the rate at which segments were lost, in parts of the time that test each
other. Nothing is fitted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from iscsitrace.fit import robust
from iscsitrace.fit.conditions import Conditions
from iscsitrace.fit.judgement import CycleWaits, Judgement, stalls_ns
from iscsitrace.fit.points import REASONS, Losses, OfConnection, Point, Seen
from iscsitrace.fit.robust import throughput_of_batches
from iscsitrace.measure import NEEDED, budget
from iscsitrace.measure import line as lines
from iscsitrace.measure import losses as recovered
from iscsitrace.measure import path as paths
from iscsitrace.measure.grouping import Grouping
from iscsitrace.measure.line import Times
from iscsitrace.measure.path import Path
from iscsitrace.measure.session import Session
from iscsitrace.measure.spans import Commands, CycleSpans
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import CONGESTION_CONTROLS, Setting
from iscsitrace.model.uncertainty import Estimate
from iscsitrace.relate.mirrors import recognition
from iscsitrace.relate.mirrors.recognition import Mirror
from iscsitrace.tables.table import Array, Source
from iscsitrace.wording import amounts as wording

__all__ = ["NEEDED", "Missing", "Survey", "points", "survey"]


LOSSES_MIN: Final = 10
"""Losses that a loss rate needs: with ten its standard error is a third, and that of the throughput a sixth."""
LOSSES_OF_FOLD: Final = 5
FOLDS_MOST: Final = 10
"""A part of the time needs losses of its own; more parts would have too few."""
CYCLES_MIN: Final = 2
"""Cycles that a point needs: a single one has no spread, and says too little."""


def _losses_of_kind(conditions: Conditions, judgement: Judgement, waits: CycleWaits) -> Losses | None:
    """The commands of one kind of cycles; None with too few losses."""
    spans = judgement.spans.where(judgement.whole)
    if len(spans.starts) < CYCLES_MIN:
        return None
    times = _loss_times_ns(conditions)
    place = np.searchsorted(spans.starts, times, side="right") - 1
    is_within = (place >= 0) & (times < spans.ends[place.clip(0)])
    lost = np.bincount(place[is_within], minlength=len(spans.starts))
    count = int(lost.sum())
    if count < LOSSES_MIN:
        return None
    moved = np.full(len(spans.starts), spans.block_bytes * spans.queue_depth)
    lengths = spans.ends - spans.starts
    segments = moved / conditions.segment_bytes
    setting = conditions.setting(spans.block_bytes, spans.queue_depth).dealt()
    parts = {name: lasted[judgement.whole] for name, lasted in judgement.parts.items()}
    transfer_ns = float(parts["transfer"].sum()) / len(lengths) / spans.queue_depth
    line = conditions.busiest_sender.get("line_bytes_per_s")
    c = line or (spans.block_bytes / transfer_ns * 1e9 if transfer_ns else None)
    control = conditions.busiest_sender.get("congestion_control")
    setting = replace(
        setting,
        c_bytes_per_s=c,
        data_pdu_bytes=conditions.data_pdu_bytes if line else None,
        service_ns=service.value if (service := _service(conditions, judgement, waits, parts)) else 0.0,
        loss=count / float(segments.sum()),
        congestion_control=control if control in CONGESTION_CONTROLS else Setting.congestion_control,
    )
    return Losses(
        service_ns=service,
        setting=setting,
        loss_count=count,
        segment_count=round(float(segments.sum())),
        command_count=len(lengths) * spans.tasks_in_each,
        throughput=throughput_of_batches(moved, lengths),
        folds=tuple(_folds(lost, segments, moved, lengths)),
    )


def suffering(point: Point, losses: Losses, spans: CycleSpans) -> Point:
    """A point of commands with their losses: its period is the mean of all of them, as the model's is.

    A wait for a loss hides the delay that it contains, so the packets do not show k.
    """
    lengths = (spans.ends - spans.starts).astype(float)
    return replace(
        point,
        name=f"{point.name}, with {wording.count(losses.loss_count, 'loss', 'losses')}",
        setting=replace(losses.setting, start_window_bytes=None),
        period_ns=float(lengths.mean()),
        period_spread_ns=float(lengths.std(ddof=1) / np.sqrt(len(lengths))),
        seen=replace(point.seen, k=None, service_ns=losses.service_ns, legs=()),
    )


def _loss_times_ns(conditions: Conditions) -> Array:
    """When data of these commands was lost."""
    found = recovered.losses(conditions.session.tables["recoveries"])
    is_own = found.raw("to_target") == (conditions.operation == "write")
    return np.asarray(found.raw("time_first_ns")[is_own])


def _folds(lost: Array, segments: Array, moved: Array, lengths: Array) -> list[tuple[float, float]]:
    """The parts of the time, each with the loss rate of all others; at least two."""
    count = max(2, min(FOLDS_MOST, int(lost.sum()) // LOSSES_OF_FOLD, len(lengths)))
    found = []
    for part in np.array_split(np.arange(len(lengths)), count):
        others = float(lost.sum() - lost[part].sum()) / float(segments.sum() - segments[part].sum())
        if others > 0:
            found.append((others, float(moved[part].sum() / lengths[part].sum()) * 1e9))
    return found


def _service(
    conditions: Conditions, judgement: Judgement, waits: CycleWaits, parts: dict[str, Array]
) -> Estimate | None:
    """Time of a command that neither path, line, windows nor losses explain; None for commands in flight together,
    whose packets do not show whose time it is.
    """
    spans = judgement.spans.where(judgement.whole)
    if spans.queue_depth > 1:
        return None
    explained = waits.path_ns(conditions.session.commands, spans).sum(axis=1) + stalls_ns(parts)
    explained = explained + parts["transfer"] + parts["loss_recovery"] + parts["outage"]
    rest = np.maximum(spans.ends - spans.starts - explained, 0).astype(float)
    weights = robust.weights(rest)
    value = float(np.average(rest, weights=weights))
    half = robust.student_975(len(rest) - 1) * robust.standard_error(rest, weights)
    return Estimate(value, max(0.0, value - half), value + half, "packets")


BYTES_MIN: Final = 0.1
"""Share of an operation's bytes from which on an I/O size is a point: smaller shares are metadata and remainders."""
SLOW_START: Final = 0.02
"""Share of the period from which on waits for the congestion window show that each I/O begins in slow start."""
LINE: Final = 0.9
"""Share of the time for which a busy line is the limit of commands in flight together."""
WINDOW: Final = 0.5
"""Share of their waits from which on windows are their limit."""
ACK_TIMER_NS: Final = 5_000_000
"""Mean time beyond an RTT from which on a wait for an ACK is that of a timer, not of the host: Linux delays ACKs by 40
ms or more, others by up to 200 ms. Where not every ACK is delayed, or the timer runs during an RTT, it is less."""
FULL_WINDOW: Final = 0.8
"""Share of a window per RTT that has to be carried for the window size to be the limit, not the receiver."""


@dataclass(frozen=True)
class Missing:
    """Why a session has no point, or fewer."""

    source: str
    """The capture."""
    session: int | None
    """Its number; None where the capture has no session at all."""
    why: str

    def __str__(self) -> str:
        session = "" if self.session is None else f", session {self.session}"
        return f"{self.source}{session}: {self.why}"


@dataclass(frozen=True)
class Survey:
    """The points of a trace, and what prevents more."""

    points: tuple[Point, ...]
    missing: tuple[Missing, ...]


def points(source: Source, name: str) -> list[Point]:
    """The steady points of a trace read with the tables NEEDED; ``source`` is its method ``table``."""
    return [point for point in survey(source, name).points if not point.setting.loss]


def survey(source: Source, name: str, only: int | None = None) -> Survey:
    """The same and, where losses leave no command steady, points with their losses; with the reasons for which there
    are not more. ``only`` is the number of a session: only its points, and those of sessions that mirror it.
    """
    found: list[Point] = []
    missing: list[Missing] = []
    grouping = Grouping(source)
    mirrors = recognition.find(source) if len(grouping.sessions) > 1 else []
    wanted = {*grouping.sessions} if only is None else {only}.union(*_mirroring(only, mirrors))
    for number in sorted(wanted & {*grouping.sessions}):
        session = grouping.sessions[number]
        if not session.connections:
            continue
        path, commands = session.path, session.commands
        if not (commands.operation >= 0).any():
            missing.append(Missing(name, number, "no reads or writes of data"))
        elif path is None:
            missing.append(Missing(name, number, f"RTT unknown: {paths.why_unknown(session.rtts_ns)}"))
        else:
            waits = CycleWaits(
                session.tables["budget"], session.rtt_ns("target") or 0, session.rtt_ns("initiator") or 0
            )
            found += _of_session(name, session, path, waits, grouping.connections, missing)
    if not found and not missing:
        missing.append(Missing(name, None, "no iSCSI session"))
    found = with_lines(found, lines.times_by_line(source), mirrors)
    return Survey(tuple(join(found, mirrors)), tuple(missing))


def _mirroring(session: int, mirrors: Sequence[recognition.Mirror]) -> Iterator[tuple[int, ...]]:
    """The sessions of each mirror that the session is a side of."""
    return (mirror.sessions for mirror in mirrors if session in mirror.sessions)


def _of_session(
    name: str, session: Session, path: Path, waits: CycleWaits, members: Mapping[int, Session], missing: list[Missing]
) -> Iterator[Point]:
    commands = session.commands
    kinds = list(commands.spans())
    for operation in dict.fromkeys(spans.operation for spans in kinds):
        is_own = commands.is_of(operation)
        moved = int(commands.bytes[is_own].sum())
        own = [spans for spans in kinds if spans.operation == operation]
        large = [spans for spans in own if _bytes(spans) >= BYTES_MIN * moved]
        task_count = int(is_own.sum())
        if moved < BYTES_MIN * int(commands.bytes[commands.operation >= 0].sum()):
            continue
        conditions = Conditions(session, operation)
        judged = [
            (spans, judgement, _losses_of_kind(conditions, judgement, waits))
            for spans in large
            for judgement in (Judgement(commands, spans, waits),)
        ]
        usable = [each for each in judged if each[1].counts.sum() >= CYCLES_MIN]
        if not usable:
            # under many losses no cycle is steady: the model has to have the losses
            usable = [(spans, judgement.with_losses(), found) for spans, judgement, found in judged if found]
        if not usable:
            reasons = sum((judgement.left_out for _, judgement, _ in judged), Counter[str]())
            if apart := task_count - sum(len(spans.first) * spans.tasks_in_each for spans in own):
                reasons["apart"] = apart
            why = "; ".join(f"{count} {reason}: {REASONS[reason]}" for reason, count in reasons.items())
            what = wording.count(task_count, operation)
            unsteady = f"{what}, too few of them steady: a fit needs {CYCLES_MIN} of one I/O size"
            missing.append(Missing(name, session.number, unsteady + (f" ({why})" if why else "")))
            continue
        most = max(usable, key=lambda each: _bytes(each[0]))[0]
        others = task_count - sum(len(spans.first) * spans.tasks_in_each for spans in large)
        for spans, judgement, found in usable:
            left_out = judgement.left_out + Counter({"other_block": others} if spans is most and others else {})
            point = _point(name, conditions, path, waits, judgement, left_out)
            counted = judgement.spans.where(judgement.counts)
            if found and judgement.has_losses:
                point = suffering(point, found, counted)
            carried = tuple(_connections_of(commands, counted, members))
            yield replace(point, connections=carried, losses=found)


def _bytes(spans: CycleSpans) -> int:
    return len(spans.first) * spans.block_bytes * spans.queue_depth


def _point(
    name: str,
    conditions: Conditions,
    path: Path,
    waits: CycleWaits,
    judgement: Judgement,
    left_out: Counter[str],
) -> Point:
    spans, lengths = judgement.spans.where(judgement.counts), judgement.lengths[judgement.counts]
    parts = {part: lasted[judgement.counts] for part, lasted in judgement.parts.items()}
    weights = robust.weights(lengths.astype(float))
    mean = {part: float(np.average(lasted, weights=weights)) for part, lasted in parts.items()}
    period_ns = float(np.average(lengths, weights=weights))
    setting = conditions.setting(spans.block_bytes, spans.queue_depth).dealt()
    pace = spans.block_bytes * spans.queue_depth * len(lengths) * 1e9 / float(lengths.sum())
    setting = replace(setting, window_bytes=conditions.window_at(pace, path.round_trip_ns))
    seen = _seen(setting, path, conditions.session.commands, waits, spans, parts, weights)
    seen = replace(seen, line=lines.of_sender(conditions.busiest_sender), data_pdu_bytes=conditions.data_pdu_bytes)
    transfer_ns = seen.transfer_ns.value
    setting = replace(
        setting,
        ack_delay_ns=seen.ack_delay.value if seen.ack_delay else 0.0,
        c_bytes_per_s=spans.block_bytes / transfer_ns * 1e9 if transfer_ns else None,
        service_ns=seen.service_ns.value if seen.service_ns else 0.0,
        start_window_bytes=setting.start_window_bytes if mean["congestion_window"] > SLOW_START * period_ns else None,
    )
    together = f" as {spans.together} commands at once" if spans.together > 1 else ""
    number = conditions.session.number
    rate = throughput_of_batches(np.full(len(lengths), spans.block_bytes * spans.queue_depth), lengths)
    described = f"{spans.operation} {wording.size(spans.block_bytes)}{together}, QD {spans.queue_depth}"
    return Point(
        session=number,
        name=f"{name}, session {number}, {described}",
        setting=setting,
        period_ns=period_ns,
        period_spread_ns=robust.standard_error(lengths.astype(float), weights),
        throughput_bytes_per_s=rate.value,
        cycle_count=len(lengths) * spans.tasks_in_each,
        left_out=dict(left_out),
        parts_ns=mean,
        delay_ns=Estimate(path.delay_ns, path.delay_low_ns, path.delay_ns, "packets"),
        seen=seen,
        is_status_apart=conditions.is_status_apart,
        throughput_low_bytes_per_s=rate.low,
        throughput_high_bytes_per_s=rate.high,
        idle_fraction=1 - float(parts["transfer"].sum() / lengths.sum()),
    )


def _seen(
    setting: Setting,
    path: Path,
    commands: Commands,
    waits: CycleWaits,
    spans: CycleSpans,
    parts: dict[str, Array],
    weights: Array,
) -> Seen:
    lengths = spans.ends - spans.starts
    stalls = stalls_ns(parts)
    transfer = _estimate(parts["transfer"] / spans.queue_depth, weights)
    if spans.queue_depth == 1:
        has_timer = setting.is_status_held and _has_timer(waits, spans, parts, weights)
        intervals_ns = waits.path_ns(commands, spans, has_timer=has_timer)
        path_ns = intervals_ns.sum(axis=1)
        of_acks_ns = np.minimum(waits.of_acks_ns(spans), waits.one_rtt_ns(spans))
        delayed_ns = parts["ack_wait"] - of_acks_ns if has_timer else 0 * lengths
        return Seen(
            bound="cycle",
            k=_estimate(path_ns / path.delay_ns, weights),
            service_ns=_estimate(np.maximum(lengths - path_ns - parts["transfer"] - stalls - delayed_ns, 0), weights),
            transfer_ns=transfer,
            stall_ns=float(np.average(stalls, weights=weights)),
            legs=waits.legs(spans.operation, intervals_ns, weights, path.delay_ns),
            ack_delay=_estimate(delayed_ns, weights) if has_timer else None,
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


def _has_timer(waits: CycleWaits, spans: CycleSpans, parts: Mapping[str, Array], weights: Array) -> bool:
    """Whether the ACKs that statuses wait for are delayed by a timer: longer than RTT and hosts explain."""
    longer_ns = parts["ack_wait"] - waits.of_acks_ns(spans)
    return bool(np.average(longer_ns, weights=weights) >= ACK_TIMER_NS)


def _estimate(values: Array, weights: Array) -> Estimate:
    value = float(np.average(values, weights=weights))
    half = robust.student_975(len(values) - 1) * robust.standard_error(values.astype(float), weights)
    return Estimate(value, max(0.0, value - half), value + half, "packets")


def with_lines(
    points: Sequence[Point],
    times_by_line: Mapping[int, Times],
    mirrors: Sequence[Mirror],
) -> list[Point]:
    """The points with the rate of their line as C. Of a line that another session filled meanwhile, each gets a part:
    there C stays the rate of the bursts. The copies of a mirror are one workload.
    """
    mirrored: dict[int, set[int]] = {}
    for mirror in mirrors:
        for session in mirror.sessions:
            mirrored.setdefault(session, {session}).update(mirror.sessions)
    return [_with_line(point, times_by_line, mirrored) if point.seen.line else point for point in points]


def _with_line(point: Point, times_by_line: Mapping[int, Times], mirrored: Mapping[int, set[int]]) -> Point:
    """``mirrored`` are the sessions of the mirrors of each session."""
    number = point.seen.line.number if point.seen.line else None
    times = times_by_line.get(number, Times()) if number is not None else Times()
    copies = sum(times.are_together(point.session, each) for each in mirrored.get(point.session, {point.session}))
    seen = replace(point.seen, is_line_shared=times.count(point.session) > copies)
    if seen.own_line is None:
        return replace(point, seen=seen)
    c_bytes_per_s = float(seen.own_line.bytes_per_s)
    setting = replace(point.setting, c_bytes_per_s=c_bytes_per_s, data_pdu_bytes=seen.data_pdu_bytes)
    return replace(point, seen=seen, setting=setting)


_TRANSFER: Final = budget.PARTS.index("transfer")


def _connections_of(commands: Commands, spans: CycleSpans, members: Mapping[int, Session]) -> Iterator[OfConnection]:
    """Throughput and idle fraction of each connection that carried commands of these spans, by number.

    ``members`` are the connections of the trace, each with its own time breakdown.
    """
    lengths = spans.ends - spans.starts
    connection = commands.table.raw("connection")
    for number in np.unique(connection).tolist():
        sums = np.concatenate([[0], np.cumsum(np.where(connection == number, commands.bytes, 0))])
        carried = sums[spans.last] - sums[spans.first]
        if carried.any():
            own = budget.of_cycles(members[number].tables["budget"], spans.starts, spans.ends)
            has_own = bool(own.any())
            idle = 1 - float(own[:, _TRANSFER].sum() / lengths.sum()) if has_own else None
            path = members[number].path
            yield OfConnection(number, throughput_of_batches(carried, lengths), idle, path.delay_ns if path else None)


SHARED: Final = 0.99
"""Share of the period of copies on one line from which on a cycle shows that they share it."""


def join(points: Sequence[Point], mirrors: Sequence[Mirror]) -> list[Point]:
    """The points, with those of a mirror joined into one."""
    mirrors_of: dict[int, list[int]] = {}
    for number, mirror in enumerate(mirrors):
        for session in mirror.sessions:
            mirrors_of.setdefault(session, []).append(number)
    writes: dict[tuple[int, tuple[int, int, int]], list[int]] = {}
    for place, point in enumerate(points):
        for number in mirrors_of.get(point.session, ()) if point.setting.operation == "write" else ():
            writes.setdefault((number, _asked(point)), []).append(place)
    found: list[Point] = []
    joined: set[int] = set()
    for place, point in enumerate(points):
        if place in joined:
            continue
        # writes of one mirror, of the same size and queue depth
        own, asked = mirrors_of.get(point.session, ()), _asked(point)
        alike = {each for number in own for each in writes.get((number, asked), ())}
        copies = sorted(each for each in alike - joined if points[each].session != point.session)
        is_copied = bool(copies) and point.setting.operation == "write"
        joined.update(copies if is_copied else ())
        found.append(_one([point, *(points[each] for each in copies)]) if is_copied else point)
    return found


def _one(copies: Sequence[Point]) -> Point:
    points = sorted(copies, key=lambda point: point.setting.delay_ns)
    farthest = points[-1]
    delays_ns = tuple(point.setting.delay_ns for point in points)
    shared = replace(farthest.setting, target_delays_ns=delays_ns, service_ns=0.0)
    # a cycle faster than copies on one line could be has a line to each target
    is_shared = farthest.period_ns >= SHARED * predict(shared).period_ns
    nearer = len(points) - 1
    return replace(
        farthest,
        name=f"{farthest.name}, mirrored with {nearer} nearer {'target' if nearer == 1 else 'targets'}",
        setting=replace(shared, service_ns=farthest.setting.service_ns) if is_shared else farthest.setting,
    )


def _asked(point: Point) -> tuple[int, int, int]:
    return point.setting.block_bytes, point.setting.queue_depth, point.setting.connections
