"""The fit: the parameters that points have in common, their sources, and the residual of each point.

```text
period = k * d + s + B / C + stalls
```

k, s, C and the share of the window stalls come from a regression where delays and I/O sizes differ enough, else from
the packets. What could not be determined is listed. C is taken from the line or the bursts first, because window stalls
depend on it; then comes the regression; s is the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.errors import InputInvalid
from iscsitrace.fit import robust
from iscsitrace.fit.points import Fit, Paid, Point
from iscsitrace.measure.line import Line
from iscsitrace.model.cycle import legs
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Prediction
from iscsitrace.model.transfer import line_ns
from iscsitrace.model.uncertainty import Estimate
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]

SURE: Final = 0.25
"""Largest uncertainty of k, or 1 / C, as a share, for which the regression is preferred to the packets."""
LARGE_STALL: Final = 0.1
"""Share of a period from which on waits for windows count: as a column of the regression, and unexplained ones as a
remark.
"""
SURE_STALLS: Final = 1.0
"""Largest uncertainty of the share of the stalls with which it is taken from the regression."""
ALIKE_RATES: Final = 1.25
"""Factor within which the rates of bursts count as that of one line."""
_NARROWING: Final = 40
_DOUBT_MAX: Final = float(np.log(1000))

_DELAYS, _SERVICE, _BYTES, _STALLS = "k", "s_ns", "c_bytes_per_s", "stall_share"


class Parameters:
    """The parameters, and what could not be determined."""

    def __init__(self, paid: Sequence[Paid], reference: Paid, sockets: Sequence[float] | None) -> None:
        """``reference`` is the point that k belongs to; ``sockets``: the socket throughput for each point."""
        self.paid = paid
        self.reference = reference
        self.sockets = sockets
        self.undetermined: list[str] = []
        self.correlations: dict[str, float] = {}
        """Of the coefficients of a regression, by the names of both."""
        self._known: dict[str, Estimate] = {}
        self._uneven = ""
        # where the line or a window is the limit, neither k nor s shows
        usable = [place for place, each in enumerate(paid) if each.point.seen.bound == "cycle"]
        # the period of commands with losses is also what the model of losses is off
        self._lossy = [place for place in usable if paid[place].point.setting.loss]
        self._usable = [place for place in usable if not paid[place].point.setting.loss]
        factor = float(np.median([each.factor for each in paid]))
        self._errors_ns = np.array([each.error_ns(factor) for each in paid])
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

    @property
    def ack_delay_ns(self) -> Estimate | None:
        """How long ACKs are delayed at the points where they are; None where none is."""
        seen = [(each.point.seen.ack_delay, each.point.cycle_count) for each in self.paid]
        delayed = [(delay, count) for delay, count in seen if delay]
        return _pooled(*zip(*delayed, strict=True)) if delayed else None

    @property
    def stall_share(self) -> Estimate:
        """Share of the model's waits for windows that lengthen a cycle; in the rest the hosts work on it."""
        return self._known.get(_STALLS) or Estimate.exact(1.0, "assumed")

    def model(self, place: int, service_ns: float) -> Prediction:
        """The model's prediction for a point, with this service time."""
        factor = self.k.value / self.reference.delays
        return self.paid[place].predict(factor, service_ns, self._c_at(place), self.stall_share.value)

    def model_ns(self, place: int, service_ns: float) -> float:
        """The model's period of a point, with this service time."""
        return self.model(place, service_ns).period_ns

    def scatter(self, models_ns: Sequence[float]) -> float:
        """How much the period of one more run differs from the model's at 95 % confidence, as a share; by the stated
        errors of the points, and by their residuals where these are larger.
        """
        periods = np.array([each.point.period_ns for each in self.paid])
        squares = float(np.sum(((periods - np.asarray(models_ns)) / self._errors_ns) ** 2))
        fitted = max(1, sum(each.source == "fit" for each in self._known.values()))
        share = float(np.sqrt(np.mean((self._errors_ns / periods) ** 2)))
        off = float(np.sqrt(np.mean((periods / np.asarray(models_ns) - 1) ** 2)))
        return max(share * robust.widening(squares, len(periods) - fitted), 2 * off)

    # --- points

    @property
    def _is_c_given(self) -> bool:
        """Whether C is that of sockets or of the line, so that the periods need not show it."""
        return _BYTES in self._known and self._known[_BYTES].source in {"given", "line"}

    def _c_at(self, place: int) -> float | None:
        if self.sockets:
            return self.sockets[place]
        if line := self.paid[place].point.seen.own_line:
            return float(line.bytes_per_s)
        return self.c_bytes_per_s.value if self.c_bytes_per_s else None

    def _over(self, of_place: Callable[[int], float]) -> Array:
        return np.array([of_place(place) for place in self._usable])

    def _times_of_reference(self, place: int) -> float:
        """One-way delays of a point / those of the reference."""
        return self.paid[place].delays / self.reference.delays

    def _transfer_ns(self, place: int) -> float:
        """Time of one I/O on the line; the copies of a mirror share it."""
        setting = replace(self.paid[place].point.setting, c_bytes_per_s=self._c_at(place))
        return predict(setting).transfer_ns if setting.target_delays_ns else line_ns(setting)

    def _stall_ns(self, place: int) -> float:
        """The model's window stalls in a cycle; at queue depth 2 or more commands share them."""
        paid = self.paid[place]
        if not paid.point.seen.k:
            return 0.0
        return paid.predict(1.0, 0.0, self._c_at(place)).stall_ns - self._delayed_ns(place)

    def _delayed_ns(self, place: int) -> float:
        """For how long the ACK is delayed that the status waits for: a timer of a host, not in s."""
        return self.paid[place].point.setting.ack_delay_ns

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
            _STALLS: self._over(self._stall_ns),
        }
        measured = np.array([point.period_ns for point in points])
        held = self._over(self._delayed_ns)
        errors = self._errors_ns[self._usable]
        ways_ns, transfer_ns, nothing = self._over(self._seen_ways_ns), self._over(self._transfer_ns), 0 * measured
        choices: list[tuple[tuple[str, ...], Array]] = [((_DELAYS, _SERVICE), transfer_ns)]
        # at queue depth 2 or more the line carries one command while others wait: the period hardly shows C
        if not self._is_c_given and all(point.seen.k for point in points):
            choices = [((_DELAYS, _SERVICE, _BYTES), nothing), *choices, ((_SERVICE, _BYTES), ways_ns)]
            has_delays = robust.is_solvable(np.column_stack([columns[_DELAYS], columns[_SERVICE]]))
            if has_delays and (columns[_STALLS] > LARGE_STALL * measured).any():
                # both grow with the delay: the packets show k, the periods how much of the stalls hosts do not fill
                stalled = [((_STALLS, _SERVICE, _BYTES), ways_ns), ((_STALLS, _SERVICE), ways_ns + transfer_ns)]
                choices = [*stalled, *choices]
        for names, rest in choices:
            stalls_ns = nothing if _STALLS in names else columns[_STALLS]
            if self._take_fit(names, columns, measured - rest - held - stalls_ns, errors):
                return

    def _take_fit(self, names: Sequence[str], columns: Mapping[str, Array], wanted: Array, errors: Array) -> bool:
        """Takes these parameters from the regression, unless it leaves them too uncertain."""
        design = np.column_stack([columns[name] for name in names])
        if not robust.is_solvable(design):
            return False
        line = robust.solve(design, wanted, errors)
        found = dict(zip(names, zip(line.values.tolist(), line.half_widths.tolist(), strict=True), strict=True))
        if any(half > SURE * value for name, (value, half) in found.items() if name in {_DELAYS, _BYTES}):
            return False
        share, half = found.get(_STALLS, (0.0, 0.0))
        # a share of 1 is the model without it
        if share > 1 or half > SURE_STALLS:
            return False
        self._known |= {name: _of_regression(name, value, half) for name, (value, half) in found.items()}
        self.correlations = {
            f"{names[row]} {names[column]}": float(line.correlation[row, column])
            for row in range(len(names))
            for column in range(row + 1, len(names))
        }
        return True

    # --- from the packets

    def _take_c(self) -> None:
        if self.sockets:
            middle = float(np.median(self.sockets))
            self._known[_BYTES] = Estimate(middle, min(self.sockets), max(self.sockets), "given")
            return
        points = [each.point for each in self.paid]
        if lines := [(line, point.cycle_count) for point in points if (line := point.seen.own_line)]:
            self._known[_BYTES] = _rate_of_lines(lines)
            return
        sized = [point for point in points if point.seen.transfer_ns.value > 0]
        if not sized:
            self.undetermined.append(
                "C: the data came in single packets, which show no line rate; the model assumes zero transfer time"
            )
            return
        of_each = [_scaled(point.seen.transfer_ns, 1 / point.setting.block_bytes) for point in sized]
        least, most = min(each.value for each in of_each), max(each.value for each in of_each)
        if most > ALIKE_RATES * least and not any(point.seen.bound in {"line", "receiver"} for point in sized):
            # one line carries all of them: it is as fast as the fastest, and hosts or the capture slow down the others
            self._known[_BYTES] = Estimate(1e9 / least, 1e9 / most, 1e9 / least * (most / least), "packets")
            self._uneven = f"{wording.rate(1e9 / most)} to {wording.rate(1e9 / least)}"
            return
        inverse = _pooled(of_each, [point.cycle_count * point.setting.block_bytes for point in sized])
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
        why = "several commands in flight" if self._usable or not self._lossy else "losses in all commands"
        self.undetermined.append(
            f"k: with {why} the packets do not show whose delay it is; {self.reference.delays:g} is assumed, from the "
            f"negotiated parameters and the way the status comes"
        )

    def _take_service(self) -> None:
        """Takes as s what the other terms leave of the periods."""
        seen = [
            (point.seen.service_ns, point.cycle_count) for place in self._lossy for point in (self.paid[place].point,)
        ]
        if not self._usable and (known := [(each, count) for each, count in seen if each]):
            self._known[_SERVICE] = _pooled([each for each, _ in known], [count for _, count in known])
            return
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
            half_ns = robust.widening(0.0, 0) * float(self._errors_ns[place])
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
                    f"windows: {wording.time(extra_ns)} per command of {point.name} are not explained by the window "
                    "sizes: a host is slow, or a window is small at times; this time is part of s"
                )

    def _list_undetermined(self) -> None:
        if any(each.point.seen.bound == "receiver" for each in self.paid):
            self.undetermined.append(
                "C: windows keep the sender waiting for longer than their size and the RTT explain; C is the rate that "
                "they leave"
            )
        delays = sorted(each.point.delay_ns.value for each in self.paid)
        how_far = ", ".join(dict.fromkeys(wording.time(each) for each in delays))
        sizes = ", ".join(wording.size(each) for each in sorted({each.point.setting.block_bytes for each in self.paid}))
        if self.k.source == "packets" and self.stall_share.source != "fit":
            self.undetermined.append(
                f"k from s: the delays ({how_far}) differ too little for the scatter; k is from the packets"
            )
        lossy = sum(1 for each in self.paid if each.point.setting.loss)
        if lossy:
            self.undetermined.append(
                f"steady commands: losses leave none at {wording.count(lossy, 'point')}, whose residuals are those of "
                f"the model of losses"
            )
        for point in (each.point for each in self.paid):
            if point.seen.line and point.seen.is_line_shared:
                self.undetermined.append(
                    f"C: {point.name} shares a line of {wording.rate(point.seen.line.bytes_per_s)} with other "
                    f"sessions; C is the part that it got"
                )
        c = self.c_bytes_per_s
        if c and c.source == "packets" and self._uneven:
            self.undetermined.append(
                f"C: bursts pass at {self._uneven}, so hosts or the capture slow some of them down; C is the fastest"
            )
        if c and c.source == "packets":
            self.undetermined.append(
                f"s from B / C: the I/O sizes ({sizes}) differ too little for the scatter; C is the rate of the bursts"
            )


def _rate_of_lines(lines: Sequence[tuple[Line, int]]) -> Estimate:
    """The mean of their times for a byte, weighted by cycles; from the least lower quartile to the most upper one."""
    inverse = np.average([1e9 / line.bytes_per_s for line, _ in lines], weights=[count for _, count in lines])
    low = min(line.low_bytes_per_s or line.bytes_per_s for line, _ in lines)
    high = max(line.high_bytes_per_s or line.bytes_per_s for line, _ in lines)
    return Estimate(1e9 / float(inverse), float(low), float(high), "line")


def _rate(inverse: float, half: float, source: str) -> Estimate:
    """A coefficient in ns per byte as a rate in bytes/s; its interval is as wide, as a factor."""
    factor = float(np.exp(min(half / inverse, _DOUBT_MAX)))
    return Estimate(1e9 / inverse, 1e9 / inverse / factor, 1e9 / inverse * factor, source)


def _of_regression(name: str, value: float, half: float) -> Estimate:
    if name == _BYTES:
        return _rate(value, half, "fit")
    return Estimate(value, max(0.0, value - half), min(1.0, value + half) if name == _STALLS else value + half, "fit")


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


def fit(points: Sequence[Point], socket_bytes_per_s: float | Sequence[float] | None = None) -> Fit:
    """The parameters that all points have in common, with 95 % confidence intervals.

    ``socket_bytes_per_s`` is the throughput of a plain TCP transfer over the same path, one for all points or one for
    each; without it, C is the rate of line or bursts. InputInvalid where there is nothing to fit.
    """
    if not points:
        raise InputInvalid("nothing to fit: there are no steady cycles")
    if len({point.setting.operation for point in points}) > 1:
        raise InputInvalid("nothing to fit: reads and writes do not share parameters")
    sockets = _sockets(points, socket_bytes_per_s)
    if sockets:
        # the throughput of a plain transfer includes the limit of its windows
        points = [replace(point, setting=replace(point.setting, window_bytes=None)) for point in points]
    paid = [Paid.of(point) for point in points]
    # writes with other R2T rounds pay other delays; k is that of most cycles
    reference = max(paid, key=lambda each: each.point.cycle_count)
    found = Parameters(paid, reference, sockets)
    k, s, c = found.k, found.s_ns, found.c_bytes_per_s
    models = [found.model(place, s.value) for place in range(len(points))]
    middle = sorted(points, key=lambda point: point.delay_ns.value)[len(points) // 2]
    return Fit(
        k=k,
        d_ns=middle.delay_ns,
        s_ns=s,
        c_bytes_per_s=c,
        ack_delay_ns=found.ack_delay_ns,
        stall_share=found.stall_share,
        correlations=found.correlations,
        scatter=found.scatter([model.period_ns for model in models]),
        k_of_legs=reference.delays,
        legs=reference.point.seen.legs or legs(reference.point.setting),
        setting=replace(reference.point.setting, service_ns=s.value, c_bytes_per_s=c.value if c else None),
        points=tuple(points),
        models=tuple(models),
        residuals=tuple(point.period_ns / model.period_ns - 1 for point, model in zip(points, models, strict=True)),
        cycles_used=sum(point.cycle_count for point in points),
        cycles_left_out=dict(sum((Counter(point.left_out) for point in points), Counter[str]())),
        undetermined=tuple(found.undetermined),
    )


def _sockets(points: Sequence[Point], given: float | Sequence[float] | None) -> list[float] | None:
    if given is None:
        return None
    sockets = list(given) if isinstance(given, Sequence) else [given] * len(points)
    if len(sockets) != len(points) or min(sockets) <= 0:
        raise InputInvalid("the socket throughput has to be more than 0: one for all points, or one for each")
    return sockets
