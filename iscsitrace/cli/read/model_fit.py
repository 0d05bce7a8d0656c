"""``iscsitrace model fit``: k, d, s and C of captures with confidence intervals, and the residuals of the points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli import units
from iscsitrace.cli.options import CaptureInput, as_json, takes_captures
from iscsitrace.errors import InputInvalid
from iscsitrace.outputs.terminal import show, show_json

if TYPE_CHECKING:
    from iscsitrace.analysis.fit.points import Point
    from iscsitrace.analysis.fit.socket import Socket


@dataclass(frozen=True)
class _Baseline:
    """The value of --socket: a rate or a capture."""

    bytes_per_s: float | None
    capture: str | None


class _RateOrCapture(units.Quantity):
    """A rate such as 320Mbit, in bytes/s; any other text is a file."""

    name = "RATE|CAPTURE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _Baseline:
        """A rate or a capture."""
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
    help="Fit this operation (the one that moved more bytes).",
)
@click.option(
    "--socket",
    "baselines",
    type=_RateOrCapture(),
    multiple=True,
    help="C is the throughput of a plain TCP transfer over the same path: a rate of payload, or a capture of one. With "
    "several captures, each is used for the points of the nearest delay. Without it, C is the rate of the line, or of "
    "the bursts where the line had no queue.",
)
def command(
    capture_input: CaptureInput, is_json: bool, operation: str | None, baselines: tuple[_Baseline, ...]
) -> None:
    """Fit period = k * d + s + B / C to the steady cycles of captures.

    A cycle lasts from a command to the next one: k one-way delays d, the service time s, and the I/O size B at C, the
    TCP throughput. Each capture is read separately. Each I/O size, queue depth and session is a point of one model.
    Captures at two or more delays separate k from s; two or more I/O sizes separate s from C. Parameters that the
    points cannot separate are measured from the packets, and the output tells which. Cycles in slow start, with losses,
    and other cycles that are not steady are left out and counted.
    """
    from iscsitrace.analysis.fit.points import of_operation
    from iscsitrace.analysis.fit.regression import fit
    from iscsitrace.analysis.fit.steady import NEEDED, survey
    from iscsitrace.outputs import model_fit

    points: list[Point] = []
    missing: list[str] = []
    heads, inputs = [], []
    for source in capture_input.sources:
        trace = replace(capture_input, sources=(source,)).read(NEEDED)
        found = survey(trace.table, source)
        points += found.points
        missing += [str(each) for each in found.missing]
        heads.append(trace.provenance)
        inputs += trace.inputs
    chosen = of_operation(points, operation)
    if not chosen:
        what = f"no steady {operation}" if operation and points else "; ".join(missing)
        raise InputInvalid(f"nothing to fit: {what}")
    result = fit(chosen, _c_of(chosen, baselines))
    if is_json:
        show_json(heads[0] | {"input": inputs} | result.as_dict() | {"missing": missing})
    else:
        show(model_fit.sections(inputs, result, missing))


def _c_of(points: Sequence[Point], baselines: Sequence[_Baseline]) -> float | list[float] | None:
    """C of all points or of each, in bytes/s; None without --socket."""
    from iscsitrace.analysis.fit import socket

    rates = [each.bytes_per_s for each in baselines if each.bytes_per_s is not None]
    if rates and len(baselines) > 1:
        raise click.UsageError("--socket takes one rate, or captures")
    if rates:
        return rates[0]
    sockets = {each.capture: _socket(each.capture) for each in baselines if each.capture is not None}
    return socket.of_points(points, sockets) if sockets else None


def _socket(capture: str) -> Socket:
    from iscsitrace.analysis.fit import socket
    from iscsitrace.tables.trace import read

    whole = read(capture, tables=()).connections
    from_ns, to_ns = socket.steady_times_ns(capture, whole)
    steady = read(capture, tables=(), time_from_ns=from_ns, time_to_ns=to_ns).connections
    return socket.measure(capture, whole, steady)
