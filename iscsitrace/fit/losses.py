"""Commands under losses: their loss rate and throughput, in parts of the time that test each other.

A steady point leaves out what waited for losses. A model of losses has to have the throughput of all commands, and the
rate at which segments were lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.fit import robust
from iscsitrace.fit.conditions import Conditions
from iscsitrace.fit.judgement import CycleWaits, Judgement, stalls_ns
from iscsitrace.fit.points import Losses, Point
from iscsitrace.fit.robust import throughput_of_batches
from iscsitrace.measure import losses as recovered
from iscsitrace.measure.spans import CycleSpans
from iscsitrace.model.setting import CONGESTION_CONTROLS, Setting
from iscsitrace.model.uncertainty import Estimate
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]

LOSSES_MIN: Final = 10
"""Losses that a loss rate needs: with ten its standard error is a third, and that of the throughput a sixth."""
LOSSES_OF_FOLD: Final = 5
FOLDS_MOST: Final = 10
"""A part of the time needs losses of its own; more parts would have too few."""
CYCLES_MIN: Final = 2


def of_kind(conditions: Conditions, judgement: Judgement, waits: CycleWaits) -> Losses | None:
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
