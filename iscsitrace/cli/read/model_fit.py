"""``iscsitrace model fit``: k, d, s and C of captures, how sure they are, and how far the points are off the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click

from iscsitrace.cli import units
from iscsitrace.cli.options import CaptureInput, as_json, takes_captures
from iscsitrace.cli.output import envelope, show_heading, show_json, show_line, show_table
from iscsitrace.cli.record import capture_content
from iscsitrace.errors import InputInvalid
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.analysis.fit.points import Fit, Point
    from iscsitrace.analysis.fit.socket import Socket
    from iscsitrace.analysis.model.estimate import Estimate

_SOURCES: Final = {
    "fit": "the differences between the points",
    "packets": "what the packets of the cycles show",
    "given": "--socket",
    "assumed": "an assumption",
}


@dataclass(frozen=True)
class _Baseline:
    """What --socket names: a figure, or a capture."""

    bytes_per_s: float | None
    capture: str | None


class _RateOrCapture(units.Quantity):
    """A rate, to bytes a second; what is none is a file."""

    name = "RATE|CAPTURE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _Baseline:
        """What is named."""
        if isinstance(value, _Baseline):
            return value
        if not str(value).endswith("bit"):
            return _Baseline(None, value)
        return _Baseline(units.Rate().convert(value, param, ctx) / 8, None)


@click.command(epilog="Example:  iscsitrace model fit --operation read near.pcapng far.pcapng")
@takes_captures
@as_json
@click.option(
    "--operation",
    type=click.Choice(("read", "write")),
    help="What to fit where captures have both; without it, what moved more bytes.",
)
@click.option(
    "--socket",
    "baselines",
    type=_RateOrCapture(),
    multiple=True,
    help="C is what a plain TCP transfer carries over the same path: a rate of payload, or a capture of one; several "
    "captures go each to the points of the nearest delay. Without it, C is the pace of the bursts.",
)
def command(
    capture_input: CaptureInput, is_json: bool, operation: str | None, baselines: tuple[_Baseline, ...]
) -> None:
    """Fits period = k * d + s + B / C to the steady cycles of captures.

    A cycle goes from a command to the next; it pays the one-way delay d k times, s for service, and its block B at C,
    what TCP carries. Each capture is read apart from the others, and each block size, queue depth and session is a
    point of one model: captures at two delays or more tell k from s, blocks of two sizes or more s from C. What the
    points cannot tell apart is read off the packets, and the output says so. Cycles in slow start, with losses, and
    others that are not steady are left out and counted.
    """
    from iscsitrace.analysis.fit.regression import fit
    from iscsitrace.analysis.fit.steady import NEEDED, survey

    points: list[Point] = []
    missing: list[str] = []
    envelopes, inputs = [], []
    for source in capture_input.sources:
        trace = replace(capture_input, sources=(source,)).read(NEEDED)
        found = survey(trace.table, source)
        points += found.points
        missing += found.missing
        envelopes.append(envelope(trace))
        inputs += trace.inputs
    chosen = _of_operation(points, operation)
    if not chosen:
        what = f"no {operation} is steady" if operation and points else "; ".join(missing)
        raise InputInvalid(f"nothing to fit: {what}")
    result = fit(chosen, _sockets(chosen, baselines))
    if is_json:
        show_json(envelopes[0] | {"input": inputs} | result.as_dict() | {"missing": missing})
    else:
        capture_content.show_inputs(inputs)
        _show(result, missing)


def _of_operation(points: Sequence[Point], operation: str | None) -> list[Point]:
    """The points of one operation; where none is asked for, of the one that moved more bytes."""
    moved: dict[str, int] = {}
    for point in points:
        setting = point.setting
        moved[setting.operation] = moved.get(setting.operation, 0) + point.cycle_count * setting.block_bytes
    wanted = operation or max(moved, key=lambda each: moved[each], default=None)
    return [point for point in points if point.setting.operation == wanted]


def _sockets(points: Sequence[Point], baselines: Sequence[_Baseline]) -> float | list[float] | None:
    """C of each point."""
    if not baselines:
        return None
    figures = [each.bytes_per_s for each in baselines if each.bytes_per_s is not None]
    captures = [each.capture for each in baselines if each.capture is not None]
    if figures and len(baselines) > 1:
        raise click.UsageError("--socket takes one rate, or captures")
    if figures:
        return figures[0]
    sockets = [_socket(capture) for capture in captures]
    if len(sockets) == 1:
        return sockets[0].bytes_per_s
    return [_nearest(sockets, captures, point).bytes_per_s for point in points]


def _socket(capture: str) -> Socket:
    from iscsitrace.analysis.fit import socket
    from iscsitrace.tables.trace import read

    whole = read(capture, tables=()).connections
    from_ns, to_ns = socket.steady_times_ns(capture, whole)
    steady = read(capture, tables=(), time_from_ns=from_ns, time_to_ns=to_ns).connections
    return socket.measure(capture, whole, steady)


def _nearest(sockets: Sequence[Socket], captures: Sequence[str], point: Point) -> Socket:
    for socket, capture in zip(sockets, captures, strict=True):
        if socket.delay_ns is None:
            raise InputInvalid(f"{capture}: its delay is not known, so nobody knows which points it belongs to")
    return min(sockets, key=lambda socket: abs((socket.delay_ns or 0) - point.delay_ns.value))


# --- text


def _show(result: Fit, missing: Sequence[str]) -> None:
    show_heading(
        f"period = k * d + s + B / C, from {result.cycles_used} tasks at {len(result.points)} "
        f"{'point' if len(result.points) == 1 else 'points'}"
    )
    rows = [
        ("k", *_ends(result.k, 1, "{:.2f}"), "", _SOURCES[result.k.source], f"{result.k_of_legs:g} by the legs"),
        ("d", *_ends(result.d_ns, 1e6, "{:.3f}"), "ms", _SOURCES[result.d_ns.source], _delays(result)),
        ("s", *_ends(result.s_ns, 1e6, "{:.3f}"), "ms", _SOURCES[result.s_ns.source], ""),
    ]
    if result.c_bytes_per_s:
        c = result.c_bytes_per_s
        rows.append(("C", *_ends(c, 1e6, "{:.2f}"), "MB/s", _SOURCES[c.source], ""))
    show_table(("", "value", "from", "to", "unit", "known by", ""), rows)
    show_line("from .. to: 95 % confidence interval")
    show_heading("What k is made of, in one-way delays, as the packets show it")
    show_table(("between", "delays", "meaning"), [(leg.name, f"{leg.delays:.2f}", leg.meaning) for leg in result.legs])
    show_heading("Points: measured against the model")
    show_table(
        ("one way ms", "block size", "QD", "tasks", "left out", "MB/s", "period ms", "model ms", "residual %", "point"),
        [
            (
                f"{point.delay_ns.value / 1e6:.3f}",
                cells.size(point.setting.block_bytes),
                point.setting.queue_depth * point.setting.connections,
                point.cycle_count,
                sum(point.left_out.values()),
                cells.megabytes(point.throughput_bytes_per_s),
                f"{point.period_ns / 1e6:.3f}",
                f"{model_ns / 1e6:.3f}",
                f"{100 * residual:.2f}",
                point.name,
            )
            for point, model_ns, residual in zip(result.points, result.models_ns, result.residuals, strict=True)
        ],
    )
    _show_left_out(result)
    for heading, lines in (("Not told by these captures", result.undetermined), ("Not fitted", missing)):
        if lines:
            show_heading(heading)
            for line in lines:
                show_line(f"- {line}")


def _show_left_out(result: Fit) -> None:
    from iscsitrace.analysis.fit.points import REASONS

    if not result.cycles_left_out:
        return
    show_heading("Tasks left out")
    show_table(
        ("why", "tasks", "meaning"),
        [(reason, count, REASONS[reason]) for reason, count in result.cycles_left_out.items()],
    )


def _ends(estimate: Estimate, unit: float, form: str) -> tuple[str, str, str]:
    return form.format(estimate.value / unit), form.format(estimate.low / unit), form.format(estimate.high / unit)


def _delays(result: Fit) -> str:
    """Where several delays are fitted, d is the middle one."""
    delays = sorted({round(point.delay_ns.value / 1e6, 3) for point in result.points})
    return f"the middle one of {delays[0]:g} to {delays[-1]:g} ms" if len(delays) > 1 else ""
