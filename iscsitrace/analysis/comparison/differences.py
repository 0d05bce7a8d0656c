"""What two situations differ in, and what each difference is worth: Shapley's shares of a gap in throughput.

One difference at a time is changed from the one situation to the other, in every order; what that does to the model's
throughput, on average over all orders, is the factor of the difference. So factors multiply to the whole gap of the
model exactly, whichever of the two is called slow, and two differences that only help together share what they win
(L. S. Shapley, A Value for n-Person Games, 1953).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, factorial, log
from typing import Any, Final

from iscsitrace.analysis.session.situation import STALLS, WAITS, Measured, Situation

MOST: Final = 8
"""Differences that are told apart: orders are reckoned by subsets, of which there are 2 ** MOST; the rest, those that
alone do least, count as one, ELSE."""
LEAST_EFFECT: Final = 0.001
"""Share of the throughput; differences that alone do less count among the rest."""
ELSE: Final = "all_else"
LEAST_GAP: Final = 0.02
"""Throughputs that differ by less are equal: shares of so small a gap say nothing."""

_LABELS: Final = {
    "queue_depth": "queue depth",
    "block_bytes": "block size",
    "delay_ns": "one-way delay",
    "c_bytes_per_s": "line",
    "window_bytes": "receive window",
    "start_window_bytes": "congestion window at the start of a block",
    "segment_bytes": "segment size",
    "data_pdu_bytes": "data PDU size",
    "is_status_held": "status held for an ACK",
    "target_service": "target's service",
    "initiator_service": "initiator's answers to R2Ts",
    "initiator_think": "initiator's think time",
    "ack_wait": "other waits for ACKs",
    "loss": "losses and the congestion window after them",
    "slow_start": "congestion window before any loss",
    "receiver": "receiver that stalled",
    "unknown": "time without an owner",
    ELSE: "all else",
}
"""Names as a sentence says them; keys are their own."""
_SETTING: Final = (
    ("queue_depth", "tasks"),
    ("connections", "connections"),
    ("block_bytes", "bytes"),
    ("delay_ns", "ns"),
    ("c_bytes_per_s", "B/s"),
    ("window_bytes", "bytes"),
    ("start_window_bytes", "bytes"),
    ("segment_bytes", "bytes"),
    ("data_pdu_bytes", "bytes"),
    ("is_status_held", "yes/no"),
)
_KEYS: Final = (
    ("is_initial_r2t", "InitialR2T", "yes/no"),
    ("is_immediate_data", "ImmediateData", "yes/no"),
    ("first_burst_bytes", "FirstBurstLength", "bytes"),
    ("max_burst_bytes", "MaxBurstLength", "bytes"),
    ("max_outstanding_r2t", "MaxOutstandingR2T", "R2Ts"),
    ("max_recv_data_segment_bytes", "MaxRecvDataSegmentLength", "bytes"),
)


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same on both sides."""

    name: str
    """A field of Setting, a key, one of WAITS or STALLS, or ELSE."""
    unit: str
    """Of the values; empty where there are none."""
    a: Any
    b: Any
    factor: float
    """What changing it from a to b does to the throughput, by the model."""
    share: float | None
    """Of the gap as measured, on a logarithmic scale, so that shares of factors add up; None where there is no gap."""

    @property
    def label(self) -> str:
        """The name as a sentence says it."""
        return _LABELS.get(self.name, self.name)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "unit": self.unit,
            "a": self.a,
            "b": self.b,
            "throughput_factor": self.factor,
            "share": self.share,
        }


@dataclass(frozen=True)
class Explanation:
    """A gap in throughput, and what it is made of."""

    factor: float
    """Throughput of b / throughput of a, as measured."""
    model_factor: float
    """The same by the model: the product of all factors."""
    differences: tuple[Difference, ...]
    """The weightiest first; ELSE last."""

    @property
    def unexplained_factor(self) -> float:
        """What the model leaves: measured / model."""
        return self.factor / self.model_factor

    @property
    def unexplained_share(self) -> float | None:
        """Of the gap; None where there is none."""
        return _share(self.unexplained_factor, self.factor)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "throughput_factor": self.factor,
            "model_throughput_factor": self.model_factor,
            "differences": [difference.as_dict() for difference in self.differences],
            "unexplained_throughput_factor": self.unexplained_factor,
            "unexplained_share": self.unexplained_share,
        }


@dataclass(frozen=True)
class _Change:
    """A difference that is still to be weighed: how to carry it from the other situation into one."""

    name: str
    unit: str
    a: Any
    b: Any
    apply: Callable[[Situation], Situation]
    """Gives a situation the value of b."""


def explain(a: Measured, b: Measured) -> Explanation:
    """What the gap between two sessions is made of."""
    start, end = _comparable(a.situation, b.situation)
    changes, count = _by_effect(_changes(start, end), start)
    told, rest = changes[:count], changes[count:]
    groups = [[change] for change in told] + ([rest] if rest else [])
    factors = _shapley(start, [[change.apply for change in group] for group in groups])
    whole = b.throughput_bytes_per_s / a.throughput_bytes_per_s
    found = [
        Difference(change.name, change.unit, change.a, change.b, factor, _share(factor, whole))
        for change, factor in zip(told, factors, strict=False)
    ]
    found.sort(key=lambda difference: -abs(log(difference.factor)))
    if rest:
        found.append(Difference(ELSE, "", None, None, factors[-1], _share(factors[-1], whole)))
    return Explanation(whole, end.throughput() / start.throughput(), tuple(found))


def _share(factor: float, whole: float) -> float | None:
    return log(factor) / log(whole) if abs(log(whole)) > LEAST_GAP else None


def _comparable(a: Situation, b: Situation) -> tuple[Situation, Situation]:
    """Both; what the packets of one do not tell has the value of the other, for then it is no difference."""
    for name in a.open_names | b.open_names:
        if name in a.open_names and name not in b.open_names:
            a = _with(a, name, _value(b, name))
        else:
            b = _with(b, name, _value(a, name))
    return a, b


def _value(situation: Situation, name: str) -> Any:
    is_key = hasattr(situation.setting.solicitation, name)
    return getattr(situation.setting.solicitation if is_key else situation.setting, name)


def _with(situation: Situation, name: str, value: Any) -> Situation:
    is_key = hasattr(situation.setting.solicitation, name)
    return situation.with_keys(**{name: value}) if is_key else situation.with_setting(**{name: value})


def _changes(a: Situation, b: Situation) -> list[_Change]:
    """Everything that is not the same."""
    found = []
    for name, unit in _SETTING:
        one, other = _value(a, name), _value(b, name)
        if one != other:
            found.append(_Change(name, unit, one, other, _value_to(name, other)))
    if a.setting.operation == "write":
        for name, key, unit in _KEYS:
            one, other = _value(a, name), _value(b, name)
            if one != other:
                found.append(_Change(key, unit, one, other, _value_to(name, other)))
    for kind, names, unit in (("waits_ns", WAITS, "ns"), ("stalls_ns_per_byte", STALLS, "ns/B")):
        for name in names:
            one, other = getattr(a, kind).get(name, 0.0), getattr(b, kind).get(name, 0.0)
            if one != other:
                found.append(_Change(name, unit, one, other, _amount_to(kind, name, other)))
    return found


def _value_to(name: str, value: Any) -> Callable[[Situation], Situation]:
    return lambda situation: _with(situation, name, value)


def _amount_to(kind: str, name: str, value: float) -> Callable[[Situation], Situation]:
    def to(situation: Situation) -> Situation:
        amounts: Any = {kind: {**getattr(situation, kind), name: value}}
        return replace(situation, **amounts)

    return to


def _by_effect(changes: Sequence[_Change], start: Situation) -> tuple[list[_Change], int]:
    """Those that do most first, and how many of them to tell apart: what counts is the effect of each alone from the
    beginning, or as the last one to the end.
    """
    before = start.throughput()
    end = start
    for change in changes:
        end = change.apply(end)
    after = end.throughput()

    def effect(change: _Change) -> float:
        others = start
        for other in changes:
            if other is not change:
                others = other.apply(others)
        return max(abs(log(change.apply(start).throughput() / before)), abs(log(after / others.throughput())))

    effects = [effect(change) for change in changes]
    order = sorted(range(len(changes)), key=lambda place: -effects[place])
    count = sum(amount >= LEAST_EFFECT for amount in effects)
    if count < len(changes) or count > MOST:
        count = min(count, MOST - 1)
    return [changes[place] for place in order], count


def _shapley(start: Situation, groups: Sequence[Sequence[Callable[[Situation], Situation]]]) -> list[float]:
    """The factor of each group of changes: what it does to the throughput, on average over all orders."""
    count = len(groups)

    @cache
    def logarithm(chosen: int) -> float:
        situation = start
        for place, group in enumerate(groups):
            if chosen >> place & 1:
                for apply in group:
                    situation = apply(situation)
        return log(situation.throughput())

    weights = [factorial(size) * factorial(count - size - 1) / factorial(count) for size in range(count)]
    return [
        exp(
            sum(
                weights[chosen.bit_count()] * (logarithm(chosen | 1 << place) - logarithm(chosen))
                for chosen in range(1 << count)
                if not chosen >> place & 1
            )
        )
        for place in range(count)
    ]
