"""Curves of the model over one parameter, with measured values where there are some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.model.setting import Setting
from iscsitrace.model.uncertainty import ALIKE, FittedPlace
from iscsitrace.model.what_if import PARAMETERS, Alternative

Array = NDArray[np.float64]

_UNITS = {"ns": 1e6, "bps": 1e6, "share": 0.01}
_UNIT_NAMES = {"ns": "ms", "bps": "Mbit/s", "share": "%", "bytes": "bytes (K, M of 1024)"}
_PLACED = frozenset(("delay_ns", "block_bytes", "queue_depth"))
"""Parameters that a fitted place has: with another one set, what was measured there is no measurement of the curve."""
_WIDE = 8
"""Ratio of largest to smallest value from which on the axis is logarithmic."""


@dataclass(frozen=True)
class Axis:
    """The parameter along the x axis."""

    label: str
    positions: Array
    """One for each value; numbers are in ascending order."""
    ticks: tuple[str, ...]
    """Labels of the values."""
    is_logarithmic: bool = False


@dataclass(frozen=True)
class MeasuredMarks:
    """Measured throughput in bytes/s, each array with one value for each measured point."""

    positions: Array
    measured: Array
    low: Array
    high: Array
    """Ends of the 95 % confidence interval; NaN where it is unknown."""
    model: Array
    """Of the model at the same settings; NaN where it does not describe them."""


@dataclass(frozen=True)
class Curve:
    """Throughput over the axis, in bytes/s; NaN where it is unknown."""

    label: str
    model: Array
    low: Array | None = None
    high: Array | None = None
    """Bounds at 95 % confidence, where a fit has them."""
    is_in_range: NDArray[np.bool_] | None = None
    """Whether the formulas hold for each value; None: for all."""
    positions: Array | None = None
    """Along the axis, one for each value of the model; None: those of the axis."""
    marks: MeasuredMarks | None = None


@dataclass(frozen=True)
class ModelCurves:
    """The curves of one plot."""

    axis: Axis
    curves: tuple[Curve, ...]
    constants: tuple[str, ...] = field(default=())
    """Parameters that all curves share."""


def axis_of(name: str, values: Sequence[Any]) -> Axis:
    """The axis of a parameter of PARAMETERS, or of another setting; words and mirrors have equal steps."""
    kind, label = _kind(name, values), label_of(name)
    ticks = tuple(text_of(name, value, has_unit=False) for value in values)
    if kind in {"word", "truth", "ways"}:
        return Axis(label, np.arange(len(values), dtype=np.float64), ticks)
    positions = np.array(values, dtype=np.float64) / _UNITS.get(kind, 1.0)
    least, most = float(positions.min()), float(positions.max())
    unit = _UNIT_NAMES.get(kind)
    return Axis(f"{label}, {unit}" if unit else label, positions, ticks, least > 0 and most / least > _WIDE)


def label_of(name: str) -> str:
    """The name of a parameter in words; another setting keeps the name that the user chose."""
    return PARAMETERS[name].label if name in PARAMETERS else name


def _kind(name: str, values: Sequence[Any]) -> str:
    if len(values) > 1 and None in values:
        # named for some captures only
        return "word"
    if name in PARAMETERS:
        return PARAMETERS[name].kind
    is_number = all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
    return "count" if is_number else "word"


def text_of(name: str, value: Any, *, has_unit: bool = True) -> str:
    """A value of a parameter as text, with its unit."""
    kind = _kind(name, [value])
    if value is None:
        return "not named"
    if kind == "ways":
        return " + ".join(f"{each / 1e6:g}" for each in value) + (" ms" if has_unit else "")
    if kind == "truth":
        return "yes" if value else "no"
    if kind == "bytes":
        unit, per_unit = next(((u, p) for u, p in (("M", 1 << 20), ("K", 1 << 10)) if value % p == 0), ("", 1))
        return f"{value // per_unit}{unit}"
    if kind in _UNITS:
        return f"{value / _UNITS[kind]:g}" + (f" {_UNIT_NAMES[kind]}" if has_unit else "")
    return str(value)


def of_answers(
    answers: Sequence[Alternative], lists: Mapping[str, Sequence[Any]], fitted: Sequence[FittedPlace] = ()
) -> ModelCurves:
    """Throughput over the first parameter with several values; a curve for each combination of the others.

    Of the ``fitted`` places each stands beside the curve of its settings.
    """
    along = next((name for name, values in lists.items() if len(values) > 1), next(iter(lists)))
    order = sorted(range(len(lists[along])), key=lambda place: _sortable(lists[along][place]))
    varied = [name for name, values in lists.items() if len(values) > 1 and name != along]
    grouped: dict[tuple[Any, ...], list[Alternative]] = {}
    for answer in answers:
        grouped.setdefault(tuple(answer.values[name] for name in varied), []).append(answer)
    curves = []
    for key, found in grouped.items():
        ordered = [found[place] for place in order]
        names = zip(varied, key, strict=True)
        label = ", ".join(f"{PARAMETERS[name].label} {text_of(name, value)}" for name, value in names)
        has_bands = all(answer.low_bytes_per_s is not None for answer in ordered)
        curves.append(
            Curve(
                label or "model",
                np.array([answer.prediction.throughput_bytes_per_s for answer in ordered]),
                np.array([answer.low_bytes_per_s for answer in ordered], dtype=np.float64) if has_bands else None,
                np.array([answer.high_bytes_per_s for answer in ordered], dtype=np.float64) if has_bands else None,
                is_in_range=np.array([answer.prediction.is_in_range for answer in ordered]),
                marks=_marks(fitted, along, ordered[0].prediction.setting) if set(lists) <= _PLACED else None,
            )
        )
    constants = tuple(
        f"{PARAMETERS[name].label} {text_of(name, values[0])}" for name, values in lists.items() if len(values) == 1
    )
    return ModelCurves(axis_of(along, [lists[along][place] for place in order]), tuple(curves), constants)


def _marks(fitted: Sequence[FittedPlace], along: str, setting: Setting) -> MeasuredMarks | None:
    """The measured places that differ from a setting only along the axis; None where there are none."""

    def is_beside(place: FittedPlace) -> bool:
        alike = {
            "delay_ns": setting.delay_ns / ALIKE <= place.delay_ns <= setting.delay_ns * ALIKE,
            "block_bytes": place.block_bytes == setting.block_bytes,
            "queue_depth": place.queue_depth == setting.queue_depth * setting.connections,
        }
        return all(is_alike for name, is_alike in alike.items() if name != along)

    found = [place for place in fitted if place.throughput_bytes_per_s and is_beside(place)]
    if along not in _PLACED or not found:
        return None

    def position(place: FittedPlace) -> float:
        value = place.queue_depth / setting.connections if along == "queue_depth" else float(getattr(place, along))
        return value / _UNITS.get(PARAMETERS[along].kind, 1.0)

    def rates(name: str) -> Array:
        values = [getattr(place, name) for place in found]
        return np.array([np.nan if each is None else each for each in values], dtype=np.float64)

    moved = np.array([1e9 * place.block_bytes * place.queue_depth for place in found])
    measured, low, high = (rates(f"throughput_{end}bytes_per_s") for end in ("", "low_", "high_"))
    return MeasuredMarks(np.array([position(place) for place in found]), measured, low, high, moved / rates("model_ns"))


def _sortable(value: Any) -> Any:
    """Sort key: numbers ascend along an axis, words and mirrors keep the given order."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
