"""A sweep: captures that differ in settings, each with points of its own, and one fit to all of them.

Nothing is added over captures: each is read alone, and a point is the steady cycles of one session in one of them. Here
are the settings in which the points differ, their order, and what each setting is by the others. A setting is left out
with all of its points: repeats, and a second capture of the same run, would tell the answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from iscsitrace.errors import InputInvalid
from iscsitrace.fit.points import Fit, Point, of_operation
from iscsitrace.fit.regression import fit
from iscsitrace.model.prediction import changed
from iscsitrace.model.setting import LOGIN_KEYS
from iscsitrace.model.uncertainty import Interval, predict_with

KNOWN: Final = (
    *("block_bytes", "delay_ns", "queue_depth", "connections", "window_bytes", "start_window_bytes"),
    *("segment_bytes", "solicitation", "target_delays_ns", "loss", "congestion_control"),
)
"""Fields of a setting that are known before it runs; the rest are what the fit has to find."""


@dataclass(frozen=True)
class LeftOut:
    """What the other settings predict for a point."""

    expected: Interval
    error: float
    """Measured throughput / the predicted one, less 1; `apart` has its size."""
    is_held: bool
    """Whether the measured throughput is within the 95 % confidence interval of one more run."""


def apart(error: float) -> float:
    """The size of an error, as a share: the same for half and for twice the throughput."""
    return error if error >= 0 else 1 / (1 + error) - 1


def left_out(
    points: Sequence[Point], keys: Sequence[Hashable], sockets: Sequence[float] | None = None
) -> tuple[LeftOut | None, ...]:
    """Each point by a fit to the points of other keys; None where no others can be fitted.

    ``keys`` and ``sockets`` (C by a plain transfer) have one value for each point; points of one setting share a key.
    """
    fits: dict[Hashable, Fit | None] = {}
    for key in dict.fromkeys(keys):
        others = [place for place, each in enumerate(keys) if each != key]
        try:
            rates = [sockets[place] for place in others] if sockets else None
            fits[key] = fit([points[place] for place in others], rates)
        except InputInvalid:
            fits[key] = None
    return tuple(
        None if (found := fits[key]) is None else _expected(found, point, sockets[place] if sockets else None)
        for place, (point, key) in enumerate(zip(points, keys, strict=True))
    )


def _expected(found: Fit, point: Point, socket_bytes_per_s: float | None) -> LeftOut | None:
    values = {name: getattr(point.setting, name) for name in KNOWN}
    if socket_bytes_per_s:
        # the throughput of a plain transfer is measured in the setting that is left out
        values |= {"c_bytes_per_s": socket_bytes_per_s, "window_bytes": None}
    setting = changed(found.setting, values)
    try:
        expected = predict_with(setting, found, values)
    except InputInvalid:
        return None
    measured = point.throughput_bytes_per_s
    return LeftOut(
        expected,
        measured / expected.prediction.throughput_bytes_per_s - 1,
        expected.low_bytes_per_s <= measured <= expected.high_bytes_per_s,
    )


ALIKE: Final = 1.1
"""Factor within which two measured delays count as the same setting: least RTTs of one path differ by less."""
ALIKE_NS: Final = 50_000
"""The same as a time: hosts answer so much sooner or later."""
POOR: Final = 0.25
"""Error of the model, as a share, from which on it does not describe what it was fitted to: the largest uncertainty
with which the fit takes k or 1 / C from a regression."""
OFF: Final = 0.25
"""Share by which a measured delay may differ from the named one without a remark."""
OFF_NS: Final = 500_000
"""The same as a time: hosts and their links add so much to a delay that was configured."""

_NUMBERS: Final = ("delay_ns", "block_bytes", "queue_depth", "connections")
"""Settings that are read from every capture, in the order in which they become the x axis."""
_ALL: Final = (*_NUMBERS, *LOGIN_KEYS)


@dataclass(frozen=True)
class SweptCapture:
    """One capture of a sweep."""

    name: str
    points: tuple[Point, ...]
    named: Mapping[str, Any]
    """Settings that the user named, by name; they replace what the packets show of the place of its points."""


@dataclass(frozen=True)
class SweptPoint:
    """A point and its place in the sweep."""

    capture: str
    point: Point
    values: Mapping[str, Any]
    """The settings in which the sweep differs, by name."""
    left_out: LeftOut | None
    """By the points of all other settings; None where these cannot be fitted."""
    remarks: tuple[str, ...]
    """Where the packets contradict what was named."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Throughput / what the ``line`` or a ``socket`` carries, where the user named it."""


@dataclass(frozen=True)
class Sweep:
    """The points of one operation, in order of their settings, and the fit to all of them."""

    operation: str
    varied: tuple[str, ...]
    """Names of the settings that differ: first the one along the x axis."""
    constants: Mapping[str, Any]
    """The other settings, with their value."""
    places: tuple[SweptPoint, ...]
    fit: Fit
    """Its points are those of ``places``, in the same order."""

    @property
    def error(self) -> float | None:
        """The median error of the settings that were left out; without any, that of the residuals.

        None where a single point leaves no residual.
        """
        found = [apart(each.left_out.error) for each in self.places if each.left_out]
        if not found and len(self.places) > 1:
            found = [apart(self.off(number)) for number in range(len(self.places))]
        return float(np.median(found)) if found else None

    @property
    def is_poor(self) -> bool:
        """Whether the model does not describe these captures, so that its numbers say nothing."""
        return self.error is not None and self.error > POOR

    def off(self, place: int) -> float:
        """Measured throughput of a point / that of the model, less 1."""
        point, model = self.places[place].point, self.fit.models[place]
        return point.throughput_bytes_per_s / model.throughput_bytes_per_s - 1

    def is_off(self, place: int) -> bool:
        """Whether the model does not describe a point."""
        return self.is_poor or apart(self.off(place)) > POOR


def sweeps(
    captures: Sequence[SweptCapture], sockets: Mapping[int, float] | None = None, line_bytes_per_s: float | None = None
) -> list[Sweep]:
    """A sweep for each operation; none without a steady point.

    ``sockets``: C by a plain transfer, by ``id`` of the point; ``line_bytes_per_s``: the rate of the line.
    """
    found = []
    points = [point for capture in captures for point in capture.points]
    for operation in dict.fromkeys(point.setting.operation for point in points):
        own = [(capture, point) for capture in captures for point in of_operation(capture.points, operation)]
        found.append(_sweep(operation, own, sockets, line_bytes_per_s))
    return found


def _sweep(
    operation: str,
    own: Sequence[tuple[SweptCapture, Point]],
    sockets: Mapping[int, float] | None,
    line_bytes_per_s: float | None,
) -> Sweep:
    delays = _clustered([point.delay_ns.value for _, point in own])
    settings = [
        _settings(point, delay_ns) | dict(capture.named) for (capture, point), delay_ns in zip(own, delays, strict=True)
    ]
    names = [*_ALL, *dict.fromkeys(name for each in settings for name in each if name not in _ALL)]
    values = {name: [each.get(name) for each in settings] for name in names}
    varied = [name for name in names if len(set(values[name])) > 1]
    varied.sort(key=lambda name: (not _is_numeric(values[name]), -len(set(values[name]))))
    # all settings but the one of the x axis make the lines, and a line is in order of the axis
    along = [*varied[1:], *varied[:1]]
    order = sorted(range(len(own)), key=lambda place: [_sortable(values[name][place]) for name in along])
    points = [own[place][1] for place in order]
    keys: list[Hashable] = [tuple(values[name][place] for name in varied) for place in order]
    rates = [sockets[id(point)] for point in points] if sockets else None
    held_back = left_out(points, keys, rates)
    return Sweep(
        operation=operation,
        varied=tuple(varied),
        constants={
            name: each[0]
            for name, each in values.items()
            if name not in varied and (name not in LOGIN_KEYS or operation == "write")
        },
        places=tuple(
            SweptPoint(
                own[place][0].name,
                own[place][1],
                {name: values[name][place] for name in varied},
                without,
                tuple(_remarks(own[place][1], own[place][0].named)),
                _shares(own[place][1], sockets, line_bytes_per_s),
            )
            for place, without in zip(order, held_back, strict=True)
        ),
        fit=fit(points, rates),
    )


def _shares(point: Point, sockets: Mapping[int, float] | None, line_bytes_per_s: float | None) -> dict[str, float]:
    named = {"line": line_bytes_per_s, "socket": sockets[id(point)] if sockets else None}
    return {name: point.throughput_bytes_per_s / each for name, each in named.items() if each}


def _settings(point: Point, delay_ns: float) -> dict[str, Any]:
    setting = point.setting
    found: dict[str, Any] = {
        "delay_ns": delay_ns,
        "block_bytes": setting.block_bytes,
        "queue_depth": point.outstanding,
        # one command at a time may take turns on several connections
        "connections": len(point.connections) or setting.connections,
    }
    if setting.operation == "write":
        found |= {name: getattr(setting.solicitation, name) for name in LOGIN_KEYS}
    return found


def _clustered(delays_ns: Sequence[float]) -> list[float]:
    """For each delay the median of those that are the same setting as it, with three digits."""
    order = sorted(range(len(delays_ns)), key=lambda place: delays_ns[place])
    groups: list[list[int]] = []
    for place in order:
        last = delays_ns[groups[-1][-1]] if groups else None
        if last is not None and delays_ns[place] <= max(ALIKE * last, last + ALIKE_NS):
            groups[-1].append(place)
        else:
            groups.append([place])
    found = list(delays_ns)
    for group in groups:
        # three digits are more than hosts repeat
        middle = float(f"{np.median([delays_ns[place] for place in group]):.3g}")
        for place in group:
            found[place] = middle
    return found


def _remarks(point: Point, named: Mapping[str, Any]) -> list[str]:
    """The names of the settings that the packets contradict."""
    seen = _settings(point, point.delay_ns.value)
    found = []
    for name, value in named.items():
        if name not in seen or seen[name] == value:
            continue
        is_near = name == "delay_ns" and abs(seen[name] - value) <= max(OFF_NS, OFF * value)
        if not is_near:
            found.append(name)
    return found


def _is_numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)


def _sortable(value: Any) -> tuple[int, float, str]:
    """Sort key: nothing, then numbers by size, then words."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, str(value))
