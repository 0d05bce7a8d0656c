"""The model in a report: k, d, s and C fitted to the steady commands of a session, and predicted gains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from iscsitrace.analysis.fit.points import REASONS, Fit, Point, of_operation
from iscsitrace.analysis.fit.regression import fit
from iscsitrace.analysis.fit.steady import NEEDED, survey
from iscsitrace.analysis.model.estimate import Estimate
from iscsitrace.analysis.model.prediction import changed
from iscsitrace.analysis.model.setting import Setting
from iscsitrace.analysis.model.uncertainty import Interval, predict_with
from iscsitrace.errors import InputInvalid
from iscsitrace.outputs.document import Grid
from iscsitrace.report.document import Model
from iscsitrace.tables.trace import Trace
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import cells

__all__ = ["NEEDED", "of_session"]

DEPTHS: Final = (8, 32)
BLOCKS: Final = (256 << 10, 1 << 20, 4 << 20)
MAX_BURST: Final = 16_776_192
_WORTH: Final = 0.01
"""Smallest change of throughput that is shown."""
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
    return _model(fit(own)), ""


def _model(found: Fit) -> Model:
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
        what_if=_what_if(found),
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


def _what_if(found: Fit) -> Grid | None:
    """Predicted throughputs after one change each; None if the model does not cover the setting."""
    try:
        now = predict_with(found.setting, found)
    except InputInvalid:
        return None
    before = now.prediction.throughput_bytes_per_s
    rows = [("as captured", *_predicted(now), "1.0", _bound(now.prediction.bound))]
    for name, values in _changes(found.setting):
        try:
            then = predict_with(changed(found.setting, values), found, values)
        except InputInvalid:
            continue
        prediction = then.prediction
        factor = prediction.throughput_bytes_per_s / before
        if abs(factor - 1) >= _WORTH and prediction.is_in_range:
            rows.append((name, *_predicted(then), f"{factor:.1f}", _bound(prediction.bound)))
    if len(rows) == 1:
        return None
    columns = ("change", "MB/s", "low", "high", "factor", "then limited by")
    return Grid("Predicted throughput after one change", columns, tuple(rows))


def _predicted(found: Interval) -> tuple[str, str, str]:
    ends = (found.prediction.throughput_bytes_per_s, found.low_bytes_per_s, found.high_bytes_per_s)
    value, low, high = map(cells.megabytes, ends)
    return value, low, high


def _bound(word: str) -> str:
    return {"cycle": "time per command", "line": "line rate", "window": "TCP window", "loss": "packet loss"}.get(
        word, word.replace("_", " ")
    )


def _changes(setting: Setting) -> Iterator[tuple[str, dict[str, Any]]]:
    """The changes, in words and as settings."""
    for depth in DEPTHS:
        if depth > setting.queue_depth:
            yield f"queue depth {depth}", {"queue_depth": depth}
    for block in BLOCKS:
        if block > setting.block_bytes:
            yield f"I/O size {wording.size(block)}", {"block_bytes": block}
    if setting.is_status_held:
        yield "status in the last Data-In", {"is_status_held": False, "ack_delay_ns": 0.0}
    if setting.operation == "write":
        yield "InitialR2T=No", {"is_initial_r2t": False}
        yield (
            "InitialR2T=No, bursts as long as the I/O",
            {"is_initial_r2t": False, "first_burst_bytes": MAX_BURST, "max_burst_bytes": MAX_BURST},
        )
    if setting.window_bytes is not None:
        yield "TCP windows 4 times as large", {"window_bytes": 4 * setting.window_bytes}
    if setting.loss:
        yield "no packet loss", {"loss": 0.0}
    if setting.service_ns:
        yield "half the service time", {"service_ns": setting.service_ns / 2}
    yield "half the RTT", {"delay_ns": setting.delay_ns / 2}
    if setting.c_bytes_per_s:
        yield "line twice as fast", {"c_bytes_per_s": 2 * setting.c_bytes_per_s}
