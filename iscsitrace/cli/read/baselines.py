"""What a line or a plain TCP transfer carries, as the user names it: ``--link-rate`` and ``--socket``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli import units
from iscsitrace.cli.sections import Function

if TYPE_CHECKING:
    from iscsitrace.fit.points import Point
    from iscsitrace.fit.socket import Socket


@dataclass(frozen=True)
class Baseline:
    """A value of --socket: a rate or a capture."""

    bytes_per_s: float | None
    capture: str | None


class RateOrCapture(units.Quantity):
    """A rate such as 320Mbit, in bytes/s; any other text is a file."""

    name = "RATE|CAPTURE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Baseline:
        """A rate or a capture."""
        if isinstance(value, Baseline):
            return value
        if not str(value).endswith("bit"):
            return Baseline(None, value)
        return Baseline(units.Rate().convert(value, param, ctx) / 8, None)


takes_link_rate = click.option(
    "--link-rate",
    "link_bps",
    type=units.Rate(),
    help="Rate of the line: throughput is also shown as its share (payload / rate).",
)


def takes_yardsticks(function: Function) -> Function:
    """Adds ``--link-rate`` and ``--socket`` to a command, which gets them as ``link_bps`` and ``baselines``."""
    socket = click.option(
        "--socket",
        "baselines",
        type=RateOrCapture(),
        multiple=True,
        help="Throughput of a plain TCP transfer over the same path, a rate of payload or a capture of one: throughput "
        "is also shown as its share.",
    )
    return takes_link_rate(socket(function))


def yardsticks(link_bps: int | None, baselines: Sequence[Baseline]) -> dict[str, float]:
    """What throughput is compared with, in bytes/s: ``line``, ``socket``. UsageError for several sockets."""
    if len(baselines) > 1:
        raise click.UsageError("--socket takes one rate or capture")
    found = {} if link_bps is None else {"line": link_bps / 8}
    for each in baselines:
        if each.capture is not None:
            found["socket"] = socket_of(each.capture).bytes_per_s
        elif each.bytes_per_s is not None:
            found["socket"] = each.bytes_per_s
    return found


def rates_of(points: Sequence[Point], baselines: Sequence[Baseline]) -> dict[int, float] | None:
    """C of each point in bytes/s, by its ``id``; None without --socket."""
    c = c_of(points, baselines) if points else None
    if c is None:
        return None
    rates = c if isinstance(c, list) else [c] * len(points)
    return {id(point): rate for point, rate in zip(points, rates, strict=True)}


def c_of(points: Sequence[Point], baselines: Sequence[Baseline]) -> float | list[float] | None:
    """C of all points or of each, in bytes/s; None without --socket."""
    from iscsitrace.fit import socket

    rates = [each.bytes_per_s for each in baselines if each.bytes_per_s is not None]
    if rates and len(baselines) > 1:
        raise click.UsageError("--socket takes one rate, or captures")
    if rates:
        return rates[0]
    sockets = {each.capture: socket_of(each.capture) for each in baselines if each.capture is not None}
    return socket.of_points(points, sockets) if sockets else None


def socket_of(capture: str) -> Socket:
    """The busiest connection of a capture."""
    from iscsitrace.fit import socket
    from iscsitrace.tables.trace import read

    trace = read(capture, tables=("senders",))
    from_ns, to_ns = socket.steady_times_ns(capture, trace.connections)
    steady = read(capture, tables=(), time_from_ns=from_ns, time_to_ns=to_ns).connections
    return socket.measure(capture, trace.connections, trace.senders, steady)
