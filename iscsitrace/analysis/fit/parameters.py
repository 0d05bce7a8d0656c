"""The parameters that points have in common: k, s and C by regression where delays and I/O sizes differ enough, else
from the packets. What could not be determined is listed.

C is taken from the bursts first, because window stalls depend on it; then comes the regression; s is the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.fit import robust
from iscsitrace.analysis.fit.paid import Paid
from iscsitrace.analysis.model.estimate import Estimate
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]

MODEL_ERROR: Final = 0.005
"""Share of a period by which a point differs from the model however many cycles it has: hosts and headers."""
SURE: Final = 0.25
"""Largest uncertainty of k, or 1 / C, as a share, for which the regression is preferred to the packets."""
LARGE_STALL: Final = 0.1
"""Share of a period from which on waits for windows that no window size explains are reported."""
_NARROWING: Final = 40
_DOUBT_MAX: Final = float(np.log(1000))

_DELAYS, _SERVICE, _BYTES = "k", "s", "c"


class Parameters:
    """The parameters, and what could not be determined."""

    def __init__(self, paid: Sequence[Paid], reference: Paid, sockets: Sequence[float] | None) -> None:
        """``reference`` is the point that k belongs to; ``sockets``: the socket throughput for each point."""
        self.paid = paid
        self.reference = reference
        self.sockets = sockets
        self.undetermined: list[str] = []
        self._known: dict[str, Estimate] = {}
        # where the line or a window is the limit, neither k nor s shows
        self._usable = [place for place, each in enumerate(paid) if each.point.seen.bound == "cycle"]
        self._take_c()
        self._regress()
        if _DELAYS not in self._known:
            self._take_k()
        if _SERVICE not in self._known:
            self._take_service()
        self._list_undetermined()

    @property
    def k(self) -> Estimate:
        """One-way delays of a cycle of the reference."""
        return self._known[_DELAYS]

    @property
    def s_ns(self) -> Estimate:
        """Service time: what neither path, line nor windows explain."""
        return self._known[_SERVICE]

    @property
    def c_bytes_per_s(self) -> Estimate | None:
        """What TCP carries; None where the packets do not show it."""
        return self._known.get(_BYTES)

    def model_ns(self, place: int, service_ns: float) -> float:
        """The model's period of a point, with this service time."""
        factor = self.k.value / self.reference.delays
        return self.paid[place].predict(factor, service_ns, self._c_at(place)).period_ns

    # --- points

    def _c_at(self, place: int) -> float | None:
        if self.sockets:
            return self.sockets[place]
        return self.c_bytes_per_s.value if self.c_bytes_per_s else None

    def _over(self, of_place: Callable[[int], float]) -> Array:
        return np.array([of_place(place) for place in self._usable])

    def _times_of_reference(self, place: int) -> float:
        """One-way delays of a point / those of the reference."""
        return self.paid[place].delays / self.reference.delays

    def _transfer_ns(self, place: int) -> float:
        point = self.paid[place].point
        if self.sockets or point.setting.target_delays_ns:
            # the copies of a mirror share the line
            return self.paid[place].predict(1.0, 0.0, self._c_at(place)).transfer_ns
        return point.seen.transfer_ns.value

    def _stall_ns(self, place: int) -> float:
        """The model's window stalls in a cycle; at queue depth 2 or more commands share them."""
        paid = self.paid[place]
        return paid.predict(1.0, 0.0, self._c_at(place)).stall_ns if paid.point.seen.k else 0.0

    def _seen_ways_ns(self, place: int) -> float:
        """Time of the delays in a cycle: by its packets where they show them, else by its legs."""
        paid = self.paid[place]
        return (paid.point.seen.k.value if paid.point.seen.k else paid.delays) * paid.point.delay_ns.value

    # --- by regression

    def _regress(self) -> None:
        """Fits the parameters that differences of delay and I/O size between the points determine."""
        if not self._usable:
            return
        points = [self.paid[place].point for place in self._usable]
        columns = {
            _DELAYS: self._over(lambda place: self._times_of_reference(place) * self.paid[place].point.delay_ns.value),
            _SERVICE: np.ones(len(points)),
            _BYTES: self._over(lambda place: float(self.paid[place].point.setting.block_bytes)),
        }
        measured = np.array([point.period_ns for point in points]) - self._over(self._stall_ns)
        errors = np.array([np.hypot(_finite(each.period_spread_ns), MODEL_ERROR * each.period_ns) for each in points])
        choices: list[tuple[tuple[str, ...], Array]] = [((_DELAYS, _SERVICE), self._over(self._transfer_ns))]
        # at queue depth 2 or more the line carries one command while others wait: the period hardly shows C
        if not self.sockets and all(point.seen.k for point in points):
            choices = [
                ((_DELAYS, _SERVICE, _BYTES), np.zeros(len(points))),
                *choices,
                ((_SERVICE, _BYTES), self._over(self._seen_ways_ns)),
            ]
        for names, rest in choices:
            design = np.column_stack([columns[name] for name in names])
            if not robust.is_solvable(design):
                continue
            line = robust.solve(design, measured - rest, errors)
            values = dict(zip(names, line.values.tolist(), strict=True))
            halves = dict(zip(names, line.half_widths.tolist(), strict=True))
            if any(halves[name] > SURE * values[name] for name in names if name != _SERVICE):
                continue
            self._known |= {name: _of_regression(name, values[name], halves[name]) for name in names}
            return

    # --- from the packets

    def _take_c(self) -> None:
        if self.sockets:
            middle = float(np.median(self.sockets))
            self._known[_BYTES] = Estimate(middle, min(self.sockets), max(self.sockets), "given")
            return
        sized = [each.point for each in self.paid if each.point.seen.transfer_ns.value > 0]
        if not sized:
            self.undetermined.append(
                "C: the data came in single packets, which show no line rate; the model assumes zero transfer time"
            )
            return
        inverse = _pooled(
            [_scaled(point.seen.transfer_ns, 1 / point.setting.block_bytes) for point in sized],
            [point.cycle_count * point.setting.block_bytes for point in sized],
        )
        self._known[_BYTES] = _rate(inverse.value, inverse.high - inverse.value, "packets")

    def _take_k(self) -> None:
        estimates, counts = [], []
        for place in self._usable:
            point = self.paid[place].point
            if point.seen.k:
                estimates.append(_scaled(point.seen.k, 1 / self._times_of_reference(place)))
                counts.append(point.cycle_count)
        if estimates:
            self._known[_DELAYS] = _pooled(estimates, counts)
            return
        self._known[_DELAYS] = Estimate.exact(self.reference.delays, "assumed")
        self.undetermined.append(
            f"k: with several commands in flight the packets do not show whose delay it is; {self.reference.delays:g} "
            f"is assumed, from the negotiated parameters and the way the status comes"
        )

    def _take_service(self) -> None:
        """Takes as s what the other terms leave of the periods."""
        if not self._usable:
            self._known[_SERVICE] = Estimate(0.0, 0.0, max(each.point.period_ns for each in self.paid), "assumed")
            self.undetermined.append("s: the line or a window limits all cycles and hides their other waits")
            return
        if len(self._usable) == 1:
            self.undetermined.append("residuals: with a single point s is the remainder, so its residual is 0")
        rests, counts = [], []
        for place in self._usable:
            point = self.paid[place].point
            rest_ns = self._rest_ns(place)
            seen = point.seen.service_ns
            half_ns = seen.high - seen.value if seen else 2 * _finite(point.period_spread_ns)
            rests.append(Estimate(rest_ns, max(0.0, rest_ns - half_ns), rest_ns + half_ns, "packets"))
            counts.append(point.cycle_count)
        self._known[_SERVICE] = _pooled(rests, counts)
        self._list_stalls()

    def _rest_ns(self, place: int) -> float:
        """The service time with which the model has the period of the point."""
        wanted_ns = self.paid[place].point.period_ns
        low, high = 0.0, wanted_ns
        if self.model_ns(place, low) >= wanted_ns:
            return 0.0
        if self.paid[place].point.setting.queue_depth == 1:
            return wanted_ns - self.model_ns(place, low)
        for _ in range(_NARROWING):
            middle = (low + high) / 2
            low, high = (middle, high) if self.model_ns(place, middle) < wanted_ns else (low, middle)
        return high

    # --- what could not be determined

    def _list_stalls(self) -> None:
        for place in self._usable:
            point = self.paid[place].point
            extra_ns = point.seen.stall_ns - self._stall_ns(place)
            if extra_ns > LARGE_STALL * point.period_ns:
                self.undetermined.append(
                    f"windows: each cycle of {point.name} waits {wording.time(extra_ns)} longer for windows than their "
                    f"size explains: a host is slow, or a window is small at times; this is part of s"
                )

    def _list_undetermined(self) -> None:
        if any(each.point.seen.bound == "receiver" for each in self.paid):
            self.undetermined.append(
                "C: the receiver keeps its window closed for longer than size and RTT explain; C is its rate"
            )
        delays = sorted(each.point.delay_ns.value for each in self.paid)
        how_far = ", ".join(dict.fromkeys(wording.time(each) for each in delays))
        sizes = ", ".join(wording.size(each) for each in sorted({each.point.setting.block_bytes for each in self.paid}))
        if self.k.source == "packets":
            self.undetermined.append(
                f"k from s: the delays ({how_far}) differ too little for the scatter; k is from the packets"
            )
        if self.c_bytes_per_s and self.c_bytes_per_s.source == "packets":
            self.undetermined.append(
                f"s from B / C: the I/O sizes ({sizes}) differ too little for the scatter; C is the rate of the bursts"
            )


def _finite(value: float) -> float:
    return value if np.isfinite(value) else 0.0


def _rate(inverse: float, half: float, source: str) -> Estimate:
    """A coefficient in ns per byte as a rate in bytes/s; its interval is as wide, as a factor."""
    factor = float(np.exp(min(half / inverse, _DOUBT_MAX)))
    return Estimate(1e9 / inverse, 1e9 / inverse / factor, 1e9 / inverse * factor, source)


def _of_regression(name: str, value: float, half: float) -> Estimate:
    if name == _BYTES:
        return _rate(value, half, "fit")
    return Estimate(value, max(0.0, value - half), value + half, "fit")


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(estimate.value * factor, estimate.low * factor, estimate.high * factor, estimate.source)


def _pooled(estimates: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """The weighted mean; its interval follows from those of its parts, or from their scatter if that is wider."""
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
