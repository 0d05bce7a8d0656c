"""The model in a report: k, d, s and C fitted to the steady commands of a session, and predicted gains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from iscsitrace.findings.acknowledgments import STATUS_IN_DATA
from iscsitrace.findings.concurrency import deeper
from iscsitrace.findings.distance import blocks
from iscsitrace.findings.line import TWICE_AS_FAST
from iscsitrace.findings.transport import NO_LOSSES
from iscsitrace.findings.writes import MAX_BURST_BYTES
from iscsitrace.fit import gain
from iscsitrace.fit.gain import OF_A_CONNECTION, OF_R2TS, Change, WhatIf
from iscsitrace.fit.points import REASONS, Fit, Point, of_operation
from iscsitrace.fit.regression import fit
from iscsitrace.fit.situation import Situation
from iscsitrace.fit.steady import NEEDED, survey
from iscsitrace.measure.grouping import Grouping
from iscsitrace.model.estimate import Estimate
from iscsitrace.report.document import Model
from iscsitrace.show.document import Grid
from iscsitrace.tables.trace import Trace
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import cells

__all__ = ["NEEDED", "of_session"]

DEPTHS: Final = (8, 32)
BLOCKS: Final = (256 << 10, 1 << 20, 4 << 20)
_WORTH: Final = 1.05
"""Smallest gain that is shown."""
_SOURCES: Final = {
    "fit": "fit over points",
    "packets": "packets of the commands",
    "line": "queue of the line",
    "given": "given",
    "assumed": "assumed",
}


def of_session(trace: Trace, session: int) -> tuple[Model | None, str]:
    """The model of a session's steady commands; else None, and why there is none."""
    found = survey(trace.table, "", session)
    own = of_operation([point for point in found.points if point.session == session])
    if not own:
        why = "; ".join(each.why for each in found.missing if each.session == session) or "no steady commands"
        return None, f"No model of session {session}: {cells.short(why)}."
    return _model(fit(own), gain.of_session(Grouping(trace.table).sessions[session])), ""


def _model(found: Fit, asked: WhatIf | None) -> Model:
    left_out = sum(found.cycles_left_out.values())
    why = "; ".join(f"{count} {REASONS[reason]}" for reason, count in found.cycles_left_out.items() if count)
    return Model(
        sentence=_sentence(found),
        parameters=Grid(
            "Parameters, with 95 % confidence intervals",
            ("parameter", "meaning", "value", "low", "high", "unit", "source"),
            tuple(_parameters(found)),
        ),
        legs=Grid(
            "Parts of k, from the packets",
            ("part", "one-way delays", "meaning"),
            tuple((leg.name, f"{leg.delays:.2f}", leg.meaning) for leg in found.legs),
        ),
        residuals=Grid(
            "Measured and model",
            ("commands", "one-way delay ms", "MB/s", "period ms", "model ms", "error"),
            tuple(
                (
                    _point(point),
                    cells.milliseconds(point.delay_ns.value),
                    cells.megabytes(point.throughput_bytes_per_s),
                    cells.milliseconds(point.period_ns),
                    cells.milliseconds(model_ns),
                    f"{100 * residual:+.1f} %",
                )
                for point, model_ns, residual in zip(found.points, found.models_ns, found.residuals, strict=True)
            ),
            (f"From {found.cycles_used:,} commands; {left_out:,} not used: {why}.",) if left_out else (),
        ),
        what_if=_gains(asked),
        undetermined=found.undetermined,
    )


def _sentence(found: Fit) -> str:
    setting = found.setting
    terms = [f"{found.k.value:.2f} x {wording.time(found.d_ns.value)}"]
    if found.s_ns.value > 0:
        terms.append(f"{wording.time(found.s_ns.value)} service")
    if found.c_bytes_per_s:
        passing_ns = setting.block_bytes / found.c_bytes_per_s.value * 1e9
        terms.append(f"{wording.time(passing_ns)} for {wording.size(setting.block_bytes)} on the line")
    return f"One {setting.operation} takes k·d + s + B/C = {' + '.join(terms)}."


def _parameters(found: Fit) -> Iterator[tuple[str, ...]]:
    def row(name: str, meaning: str, estimate: Estimate, unit: float, digits: int, word: str) -> tuple[str, ...]:
        ends = [f"{each / unit:,.{digits}f}" for each in (estimate.value, estimate.low, estimate.high)]
        return (name, meaning, *ends, word, _SOURCES[estimate.source])

    yield row("k", "one-way delays per command", found.k, 1, 2, "")
    yield row("d", "one-way delay", found.d_ns, 1e6, 3, "ms")
    yield row("s", "service time of target and hosts", found.s_ns, 1e6, 3, "ms")
    if found.c_bytes_per_s:
        yield row("C", "TCP throughput of the line", found.c_bytes_per_s, 1e6, 1, "MB/s")


def _point(point: Point) -> str:
    setting = point.setting
    depth = setting.queue_depth * setting.connections
    return f"{point.cycle_count:,} {setting.operation}s of {wording.size(setting.block_bytes)}, queue depth {depth}"


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
