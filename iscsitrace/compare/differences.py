"""The differences of two situations, and the share of each in the gap in throughput, by Shapley values.

One difference at a time is changed from one situation to the other, in every order. The factor of a difference is its
effect on the model's throughput, averaged over all orders. So the factors multiply exactly to the model's gap, in
either direction, and two differences that only help together share their gain (L. S. Shapley, A Value for n-Person
Games, 1953).

Of captures of the same traffic at two taps or more on both sides, what the network, the target and the initiator's host
take of a command's latency is compared, too. A difference is B less A.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, factorial, log, prod
from typing import Any, Final

from iscsitrace.fit.situation import STALLS, WAITS, Measured, Situation
from iscsitrace.model.setting import LOGIN_KEYS
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps import places
from iscsitrace.taps.places import PLACES, Place, PlaceFinding, TimePlaces
from iscsitrace.taps.reading import TappedTables

MOST: Final = 8
"""Differences with a factor of their own: the orders need 2 ** MOST subsets. The others, those with the least effect,
count as one, ELSE."""
LEAST_EFFECT: Final = 0.001
"""Effect on the throughput, as a share, below which a difference counts among ELSE."""
ELSE: Final = "all_else"
SMALL: Final = 0.01
"""Logarithm of a factor below which a difference is small: only the product of such factors is shown."""
LEAST_GAP: Final = 0.02
"""Gap below which throughputs count as equal: shares of a smaller gap mean nothing."""

_LABELS: Final = {
    "queue_depth": "queue depth",
    "block_bytes": "I/O size",
    # one tap measures round trips
    "delay_ns": "RTT",
    "c_bytes_per_s": "line rate",
    "window_bytes": "receive window",
    "start_window_bytes": "congestion window at the start of an I/O",
    "segment_bytes": "segment size",
    "data_pdu_bytes": "data PDU size",
    "is_status_held": "status held for an ACK",
    "target_service": "target service time",
    "initiator_service": "initiator answers to R2Ts",
    "initiator_think": "initiator think time",
    "ack_wait": "other waits for ACKs",
    "loss": "losses and the congestion window after them",
    "slow_start": "congestion window before any loss",
    "receiver": "receiver stalls",
    "outage": "outages",
    "unknown": "unknown time",
    ELSE: "all else",
}
"""Names in sentences; negotiated parameters keep their names."""
_SETTING: Final = (
    ("queue_depth", "tasks"),
    ("connections", "connections"),
    ("delay_ns", "ns"),
    ("c_bytes_per_s", "B/s"),
    ("window_bytes", "bytes"),
    ("start_window_bytes", "bytes"),
    ("segment_bytes", "bytes"),
    ("data_pdu_bytes", "bytes"),
    ("is_status_held", "yes/no"),
)


@dataclass(frozen=True)
class Difference:
    """One property that differs between both sides."""

    name: str
    """A field of Setting, a login key, one of WAITS or STALLS, or ELSE."""
    unit: str
    """Unit of the values; empty where there are none."""
    a: Any
    b: Any
    factor: float
    """The model's factor on the throughput for a change from a to b."""
    share: float | None
    """Share of the measured gap, on a logarithmic scale so that shares add up; None where there is no gap."""

    @property
    def label(self) -> str:
        """The name in sentences."""
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
    """A gap in throughput, and its differences."""

    factor: float
    """Measured throughput of b / measured throughput of a."""
    model_factor: float
    """The same of the model: the product of all factors."""
    differences: tuple[Difference, ...]
    """The largest first; ELSE last."""

    @property
    def large(self) -> tuple[Difference, ...]:
        """The differences that change the throughput by about SMALL or more."""
        return tuple(each for each in self.differences if abs(log(each.factor)) >= SMALL)

    @property
    def small(self) -> Difference | None:
        """All others as one; None where there are none."""
        rest = [each for each in self.differences if abs(log(each.factor)) < SMALL]
        if not rest:
            return None
        share = None if rest[0].share is None else sum(each.share or 0 for each in rest)
        return Difference(ELSE, "", None, None, prod(each.factor for each in rest), share)

    @property
    def unexplained_factor(self) -> float:
        """The factor that the model does not explain: measured / model."""
        return self.factor / self.model_factor

    @property
    def unexplained_share(self) -> float | None:
        """Its share of the gap; None where there is no gap."""
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
    """A difference without a factor yet, and how to apply it to a situation."""

    name: str
    unit: str
    a: Any
    b: Any
    apply: Callable[[Situation], Situation]
    """Sets the value of b in a situation."""


def explain(a: Measured, b: Measured) -> Explanation:
    """Explains the gap between two sessions by their differences."""
    start, end = _comparable(a.situation, b.situation)
    changes, count = _by_effect(_changes(start, end), start)
    told, rest = changes[:count], changes[count:]
    groups = [[change] for change in told] + ([rest] if rest else [])
    factors = _shapley(start, [[change.apply for change in group] for group in groups])
    whole = b.pace_bytes_per_s / a.pace_bytes_per_s
    found = [
        Difference(change.name, change.unit, change.a, change.b, factor, _share(factor, whole))
        for change, factor in zip(told, factors, strict=False)
    ]
    found.sort(key=lambda difference: abs(log(difference.factor)), reverse=True)
    if rest:
        found.append(Difference(ELSE, "", None, None, factors[-1], _share(factors[-1], whole)))
    return Explanation(whole, end.throughput() / start.throughput(), tuple(found))


def _share(factor: float, whole: float) -> float | None:
    return log(factor) / log(whole) if abs(log(whole)) > LEAST_GAP else None


def _comparable(a: Situation, b: Situation) -> tuple[Situation, Situation]:
    """Both situations; a value that the packets of one do not show is set to that of the other."""
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
    """All properties that differ."""
    found = []
    if (a.setting.block_bytes, a.sizes) != (b.setting.block_bytes, b.sizes):
        one, other = a.setting.block_bytes, b.setting.block_bytes
        found.append(_Change("block_bytes", "bytes", one, other, lambda situation: situation.with_sizes_of(b)))
    for name, unit in _SETTING:
        one, other = _value(a, name), _value(b, name)
        if one != other:
            found.append(_Change(name, unit, one, other, _value_to(name, other)))
    if a.setting.operation == "write":
        for name, key in LOGIN_KEYS.items():
            one, other = _value(a, name), _value(b, name)
            if one != other:
                unit = "yes/no" if name.startswith("is_") else "bytes" if name.endswith("_bytes") else "R2Ts"
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
    """The changes by effect, the largest first, and how many of them get a factor of their own. The effect is that of
    the change alone, or as the last of all: the larger of the two.
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
    order = sorted(range(len(changes)), key=lambda place: effects[place], reverse=True)
    count = sum(amount >= LEAST_EFFECT for amount in effects)
    if count < len(changes) or count > MOST:
        count = min(count, MOST - 1)
    return [changes[place] for place in order], count


def _shapley(start: Situation, groups: Sequence[Sequence[Callable[[Situation], Situation]]]) -> list[float]:
    """The factor of each group of changes: its effect on the throughput, averaged over all orders."""
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


@dataclass(frozen=True)
class ByPlace:
    """The places of two sessions, A and B."""

    a: TimePlaces
    b: TimePlaces
    findings: dict[str, list[PlaceFinding]]
    """By ``a`` and ``b``: the problems with a place, of the network or of this session."""

    @property
    def latency_ns(self) -> int:
        """Difference of the median latencies."""
        return self.b.latency_ns - self.a.latency_ns

    @property
    def parts_ns(self) -> dict[Place, int]:
        """Difference of each part; they add up to that of the median latencies."""
        return {place: self.b.parts_ns[place] - self.a.parts_ns[place] for place in PLACES}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "a": self.a.as_dict(),
            "b": self.b.as_dict(),
            "latency_ns": self.latency_ns,
            "parts_ns": self.parts_ns,
            "findings": {name: [each.as_dict() for each in found] for name, found in self.findings.items()},
        }


def compare_by_place(trace_a: TraceTables, trace_b: TraceTables, session_a: int, session_b: int) -> ByPlace | None:
    """The comparison; None unless both traces are of several taps, and both sessions have reads or writes with legs."""
    found = [_of_session(trace, session) for trace, session in ((trace_a, session_a), (trace_b, session_b))]
    (a, findings_a), (b, findings_b) = found
    return ByPlace(a, b, {"a": findings_a, "b": findings_b}) if a and b else None


def _of_session(trace: TraceTables, session: int) -> tuple[TimePlaces | None, list[PlaceFinding]]:
    if not isinstance(trace, TappedTables):
        return None, []
    verdict = next((each for each in places.verdicts(trace) if each.session == session), None)
    return verdict, [each for each in places.findings(trace) if not each.sessions or session in each.sessions]
