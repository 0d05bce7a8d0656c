"""The parameters of the model from points: k, s and C by regression where delays and block sizes tell them apart, and
where they do not, from what the packets show. It says which.

```text
period = k * d + s + B / C + stalls
```
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.diagnosis import wording
from iscsitrace.analysis.model import robust
from iscsitrace.analysis.model.estimate import Estimate
from iscsitrace.analysis.model.legs import legs
from iscsitrace.analysis.model.points import Fit, Point
from iscsitrace.analysis.model.prediction import predict
from iscsitrace.analysis.model.setting import Setting
from iscsitrace.errors import InputInvalid

Array = NDArray[Any]

MODEL_ERROR: Final = 0.005
"""Share of a period by which points differ from the model however many cycles they have: hosts and headers."""
OTHER_LEGS: Final = 0.25
"""Share by which the delays that the packets show may differ from those of the setting's legs; beyond, they count."""

_DELAYS, _SERVICE, _BYTES = "k", "s", "c"


@dataclass(frozen=True)
class _Paid:
    """A point, and how many delays its cycles pay by what is known of them: a whole number, for rounds of writes."""

    point: Point
    of_setting: float
    delays: float

    @classmethod
    def of(cls, point: Point) -> _Paid:
        of_setting = sum(leg.delays for leg in legs(point.setting))
        seen = point.seen.k.value if point.seen.k else of_setting
        if abs(seen / of_setting - 1) <= OTHER_LEGS:
            return cls(point, of_setting, of_setting)
        # there and back, so an even number
        return cls(point, of_setting, 2.0 * max(1, round(seen / 2)))


def fit(points: Sequence[Point], socket_bytes_per_s: float | Sequence[float] | None = None) -> Fit:
    """The parameters that all points have in common, with 95 % confidence intervals.

    ``socket_bytes_per_s`` is what a plain transfer carries over the same path, one figure for all points or one for
    each; without it, C is the pace of the bursts. InputInvalid where there is nothing to fit.
    """
    if not points:
        raise InputInvalid("nothing to fit: no cycle counts")
    if len({point.setting.operation for point in points}) > 1:
        raise InputInvalid("nothing to fit: reads and writes have no parameters in common")
    paid = [_Paid.of(point) for point in points]
    # writes of other R2T rounds pay other delays; k is that of most cycles
    reference = max(paid, key=lambda each: each.point.cycle_count)
    sockets = _sockets(points, socket_bytes_per_s)
    found = _Search(paid, reference, sockets)
    found.regress()
    found.complete()
    k, s, c = found.known[_DELAYS], found.known[_SERVICE], found.known.get(_BYTES)
    models = [
        _model_ns(each, k.value / reference.delays, s.value, socket or (c.value if c else None))
        for each, socket in zip(paid, sockets or [0.0] * len(paid), strict=True)
    ]
    middle = sorted(points, key=lambda point: point.delay_ns.value)[len(points) // 2]
    left_out = sum((Counter(point.left_out) for point in points), Counter[str]())
    return Fit(
        k=k,
        d_ns=middle.delay_ns,
        s_ns=s,
        c_bytes_per_s=c,
        k_of_legs=reference.delays,
        legs=reference.point.seen.legs or legs(reference.point.setting),
        setting=replace(reference.point.setting, service_ns=s.value, c_bytes_per_s=c.value if c else None),
        points=tuple(points),
        models_ns=tuple(models),
        residuals=tuple(point.period_ns / model - 1 for point, model in zip(points, models, strict=True)),
        cycles_used=sum(point.cycle_count for point in points),
        cycles_left_out=dict(left_out),
        undetermined=tuple(found.undetermined),
    )


def _sockets(points: Sequence[Point], given: float | Sequence[float] | None) -> list[float] | None:
    if given is None:
        return None
    sockets = list(given) if isinstance(given, Sequence) else [given] * len(points)
    if len(sockets) != len(points) or min(sockets) <= 0:
        raise InputInvalid("a socket's throughput has to be above 0, one for all points or one for each")
    return sockets


def _model_ns(paid: _Paid, factor: float, service_ns: float, c_bytes_per_s: float | None) -> float:
    setting: Setting = replace(paid.point.setting, service_ns=service_ns, c_bytes_per_s=c_bytes_per_s)
    return predict(setting, k_factor=factor * paid.delays / paid.of_setting).period_ns


class _Search:
    """What is known of the parameters so far, and what could not be told."""

    def __init__(self, paid: Sequence[_Paid], reference: _Paid, sockets: Sequence[float] | None) -> None:
        self.paid = paid
        self.reference = reference
        self.known: dict[str, Estimate] = {}
        self.undetermined: list[str] = []
        self.sockets = sockets
        if sockets:
            middle = float(np.median(sockets))
            self.known[_BYTES] = Estimate(middle, min(sockets), max(sockets), "given")
        # of what the line or windows limit, neither k nor s can be seen
        self.usable = [place for place, each in enumerate(paid) if each.point.seen.bound == "cycle"]

    # --- what the packets of each point show

    def _transfer_ns(self, place: int) -> float:
        point = self.paid[place].point
        if self.sockets:
            return point.setting.block_bytes / self.sockets[place] * 1e9
        return point.seen.transfer_ns.value

    def _delays(self, place: int) -> float:
        """One-way delays of a point, as multiples of those of the reference."""
        return self.paid[place].delays / self.reference.delays

    # --- by regression

    def regress(self) -> None:
        """Finds what differences of delay and block size between the points tell."""
        points = [self.paid[place].point for place in self.usable]
        if not points:
            return
        columns = {
            _DELAYS: np.array([self._delays(place) * self.paid[place].point.delay_ns.value for place in self.usable]),
            _SERVICE: np.ones(len(points)),
            _BYTES: np.array([float(point.setting.block_bytes) for point in points]),
        }
        measured = np.array([point.period_ns - point.seen.stall_ns for point in points])
        errors = np.array(
            [np.hypot(_finite(point.period_spread_ns), MODEL_ERROR * point.period_ns) for point in points]
        )
        transfer = np.array([self._transfer_ns(place) for place in self.usable])
        delays = np.array([self._seen_delays(place) * self.paid[place].point.delay_ns.value for place in self.usable])
        choices: list[tuple[tuple[str, ...], Array]] = [((_DELAYS, _SERVICE), transfer)]
        if not self.sockets:
            # one after another is outstanding: only then a block's own time on the line is in the period
            choices.insert(0, ((_DELAYS, _SERVICE, _BYTES), 0 * transfer))
            choices.append(((_SERVICE, _BYTES), delays))
        for names, rest in choices:
            design = np.column_stack([columns[name] for name in names])
            if not robust.is_solvable(design):
                continue
            line = robust.solve(design, measured - rest, errors)
            values = dict(zip(names, line.values.tolist(), strict=True))
            halves = dict(zip(names, line.half_widths.tolist(), strict=True))
            if (values[names[-1]] == 0 and names[-1] == _BYTES) or values.get(_DELAYS) == 0:
                # nothing that grows with the block, or with the delay: no use
                continue
            for name in names:
                self.known[name] = _of_regression(name, values[name], halves[name])
            return

    def _seen_delays(self, place: int) -> float:
        """Delays of a point's cycles as its packets show them; those of its legs where they do not."""
        seen = self.paid[place].point.seen.k
        return seen.value if seen else self.paid[place].delays

    # --- the rest

    def complete(self) -> None:
        """Takes what is missing from the packets, or assumes it; and says so."""
        seen = [place for place in self.usable if self.paid[place].point.seen.k]
        is_service_fitted, is_c_known = _SERVICE in self.known, _BYTES in self.known
        if not is_c_known:
            self._take_c()
        if _DELAYS not in self.known:
            self._take_k(seen)
        if not is_service_fitted:
            self._take_service(seen)
        how_far = " and ".join(sorted({wording.time(each.point.delay_ns.value) for each in self.paid}))
        sizes = " and ".join(sorted({wording.size(each.point.setting.block_bytes) for each in self.paid}))
        if self.known[_DELAYS].source == "packets":
            self.undetermined.append(
                f"k from s: all cycles are at one delay ({how_far}); k is counted in the packets instead"
            )
        if self.known.get(_BYTES) and self.known[_BYTES].source == "packets":
            self.undetermined.append(
                f"s from B / C: the blocks are of one size, or nearly ({sizes}); C is the pace of the bursts instead"
            )

    def _take_c(self) -> None:
        sized = [each.point for each in self.paid if each.point.seen.transfer_ns.value > 0]
        if not sized:
            self.undetermined.append("C: single packets show no pace; blocks are taken to need no time on the line")
            return
        inverse = _pooled(
            [_scaled(point.seen.transfer_ns, 1 / point.setting.block_bytes) for point in sized],
            [point.cycle_count * point.setting.block_bytes for point in sized],
        )
        low = max(inverse.low, inverse.value / 1e3)
        self.known[_BYTES] = Estimate(1e9 / inverse.value, 1e9 / inverse.high, 1e9 / low, "packets")

    def _take_k(self, seen: Sequence[int]) -> None:
        if seen:
            estimates = [
                _scaled(estimate, 1 / self._delays(place))
                for place in seen
                if (estimate := self.paid[place].point.seen.k) is not None
            ]
            self.known[_DELAYS] = _pooled(estimates, [self.paid[place].point.cycle_count for place in seen])
            return
        self.known[_DELAYS] = Estimate.exact(self.reference.delays, "assumed")
        self.undetermined.append(
            f"k: with several tasks outstanding nobody sees whose delay it is; {self.reference.delays:g} is assumed, "
            f"from the keys in force and how the status comes"
        )

    def _take_service(self, seen: Sequence[int]) -> None:
        if seen:
            estimates = [each for place in seen if (each := self.paid[place].point.seen.service_ns) is not None]
            self.known[_SERVICE] = _pooled(estimates, [self.paid[place].point.cycle_count for place in seen])
        elif self.usable:
            rests = []
            for place in self.usable:
                point = self.paid[place].point
                ways_ns = self.known[_DELAYS].value * self._delays(place) * point.delay_ns.value
                rest_ns = max(0.0, point.period_ns - ways_ns - self._transfer_ns(place))
                half_ns = 2 * _finite(point.period_spread_ns)
                rests.append(Estimate(rest_ns, max(0.0, rest_ns - half_ns), rest_ns + half_ns, "packets"))
            self.known[_SERVICE] = _pooled(rests, [self.paid[place].point.cycle_count for place in self.usable])
            self.undetermined.append("s: it is what the other terms leave of the period")
        else:
            most = max(each.point.period_ns for each in self.paid)
            self.known[_SERVICE] = Estimate(0.0, 0.0, most, "assumed")
            self.undetermined.append("s: the line or a window limits all cycles, and hides what else they wait for")


def _finite(value: float) -> float:
    return value if np.isfinite(value) else 0.0


def _of_regression(name: str, value: float, half: float) -> Estimate:
    if name != _BYTES:
        return Estimate(value, max(0.0, value - half), value + half, "fit")
    # C is 1 / its coefficient, and no interval of it ends at infinity
    return Estimate(1e9 / value, 1e9 / (value + half), 1e9 / max(value - half, value / 1e3), "fit")


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(estimate.value * factor, estimate.low * factor, estimate.high * factor, estimate.source)


def _pooled(estimates: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """The mean; its interval is as wide as those of its parts on average, or as their differences ask for."""
    shares = np.asarray(weights, dtype=float) / np.sum(weights)
    values = np.array([each.value for each in estimates])
    value = float(shares @ values)
    within = np.sqrt(shares**2 @ np.array([(each.high - each.value) ** 2 for each in estimates]))
    between = 0.0
    if len(values) > 1:
        spread = np.sqrt(shares @ (values - value) ** 2 * len(values) / (len(values) - 1))
        between = robust.student_975(len(values) - 1) * spread / np.sqrt(len(values))
    half = float(max(within, between))
    return Estimate(value, max(0.0, value - half), value + half, "packets")
