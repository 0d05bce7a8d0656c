"""Units of axes: nanoseconds and bytes in one unit per axis, named in its label."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from iscsitrace.plots.view import View

Array = NDArray[Any]

_SECOND_NS = 1_000_000_000
_TIME_UNITS = (("s", _SECOND_NS), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1))
_BYTE_UNITS = (("GB", 10**9), ("MB", 10**6), ("KB", 10**3), ("bytes", 1))


TIME = "time"
"""The label of axes whose horizontal axis is time."""


class TimeAxis:
    """The time axis of a view: seconds after the first packet, or for a short view the time after a round value."""

    def __init__(self, view: View) -> None:
        length_ns = max(1, view.end_ns - view.start_ns)
        if length_ns >= 2 * _SECOND_NS:
            self.base_ns, self.unit, self._per_unit = view.origin_ns, "s", _SECOND_NS
            self.label = "seconds after the first packet"
        else:
            # ticks count from a round value, so that they stay short
            self.unit, self._per_unit = next(
                ((unit, size) for unit, size in _TIME_UNITS[1:] if length_ns >= 2 * size), _TIME_UNITS[-1]
            )
            after_ns = (view.start_ns - view.origin_ns) // self._per_unit * self._per_unit
            self.base_ns = view.origin_ns + after_ns
            moment = f"{after_ns / _SECOND_NS:.9g} s" if after_ns else "the first packet"
            self.label = f"{self.unit} after {moment}"
        self._view = view

    def of(self, times_ns: Array) -> Array:
        """Times on this axis."""
        return np.asarray(times_ns - self.base_ns, dtype=np.float64) / self._per_unit

    def at(self, time_ns: int) -> float:
        """One time on this axis."""
        return (time_ns - self.base_ns) / self._per_unit

    def apply(self, axes: Axes, *, has_label: bool = True) -> None:
        """Sets limits and label."""
        axes.set_xlim(self.at(self._view.start_ns), self.at(self._view.end_ns))
        axes.set_xlabel(self.label if has_label else "")
        if has_label:
            axes.set_label(TIME)


class ByteAxis:
    """An axis of bytes, in the largest decimal unit with values above one."""

    def __init__(self, greatest: float) -> None:
        self.unit, self._per_unit = next(((u, s) for u, s in _BYTE_UNITS if greatest >= s), _BYTE_UNITS[-1])

    def of(self, amounts: Array) -> Array:
        """Amounts on this axis."""
        return np.asarray(amounts, dtype=np.float64) / self._per_unit

    def at(self, amount: float) -> float:
        """One amount on this axis."""
        return amount / self._per_unit


class DurationAxis:
    """An axis of durations, in a unit that suits the longest."""

    def __init__(self, greatest_ns: float) -> None:
        self.unit, self._per_unit = next(((u, s) for u, s in _TIME_UNITS if greatest_ns >= 2 * s), _TIME_UNITS[-1])

    def of(self, durations_ns: Array) -> Array:
        """Durations on this axis."""
        return np.asarray(durations_ns, dtype=np.float64) / self._per_unit

    def at(self, duration_ns: float) -> float:
        """One duration on this axis."""
        return duration_ns / self._per_unit


def duration(length_ns: float) -> str:
    """A duration with three significant digits and its unit."""
    rounded_ns = float(f"{length_ns:.3g}")
    unit, per_unit = next(((unit, size) for unit, size in _TIME_UNITS if rounded_ns >= size), _TIME_UNITS[-1])
    amount = rounded_ns / per_unit
    return f"{amount:,.0f} {unit}" if amount >= 1000 else f"{amount:.3g} {unit}"


def step_note(edges_ns: Array) -> str:
    """What a step of a plot over time shows; see iscsitrace.plots.steps."""
    length_ns = (edges_ns[-1] - edges_ns[0]) / (len(edges_ns) - 1)
    return f"each step is {duration(length_ns)}; bursts and waits within commands of less than ten steps are averaged"


def size(amount: int | None) -> str:
    """An I/O size: ``64K``, ``1M`` (units of 1024) where the unit divides it, else the number."""
    if amount is None:
        return "?"
    for unit, per_unit in (("M", 1 << 20), ("K", 1 << 10)):
        if amount and amount % per_unit == 0:
            return f"{amount // per_unit}{unit}"
    return f"{amount}"
