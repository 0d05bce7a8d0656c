"""How far a prediction from a fit may be off: its parameters, the next run, and what the fitted settings cannot tell.

The fit knows the places where it was fitted. Beyond them a service time may grow with the I/O size, the delay or the
commands in flight, and a status may be held or not: each of these readings has the same periods where the model was
fitted and other ones elsewhere. The interval of a prediction contains all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log2, prod, sqrt
from typing import Any, Final, Protocol

from iscsitrace.model.prediction import changed, predict
from iscsitrace.model.setting import Prediction, Setting
from iscsitrace.model.transfer import stream_bytes

"""Regression over captures; the packets of the commands; the line rate of ``senders``; the user; or a default that
nothing contradicts."""


@dataclass(frozen=True)
class Estimate:
    """A value with the ends of its 95 % confidence interval, in the unit of its name."""

    value: float
    low: float
    high: float
    source: str
    """``fit``, ``packets``, ``line``, ``given`` or ``assumed``."""

    @classmethod
    def exact(cls, value: float, source: str = "given") -> Estimate:
        """A value without an interval."""
        return cls(value, value, value, source)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"value": self.value, "low": self.low, "high": self.high, "source": self.source}


ALIKE: Final = 1.05
"""Factor within which a delay, or an I/O size, counts as fitted."""
LOSS_ERROR: Final = 0.1
"""Share by which the throughput under losses differs from the model (docs/method.md, section 6)."""

_OF_SETTING: Final = {"d_ns": "delay_ns", "s_ns": "service_ns", "c_bytes_per_s": "c_bytes_per_s"}
"""Parameters of a fit that a setting can replace."""


@dataclass(frozen=True)
class FittedPlace:
    """Where a model was fitted."""

    block_bytes: int
    delay_ns: float
    queue_depth: int
    """Of all connections together."""
    is_status_held: bool
    is_status_apart: bool
    """Whether the status comes in a SCSI Response, so that TCP may hold it."""
    period_ns: float
    bound: str
    """What limits the commands, as in Seen."""
    window_wait_ns: float = 0.0
    """Waits for windows of unknown size in one cycle: the model has them in the service time."""
    throughput_bytes_per_s: float | None = None
    throughput_low_bytes_per_s: float | None = None
    throughput_high_bytes_per_s: float | None = None
    """What was measured, with its 95 % confidence interval; None in fits of an earlier version."""
    model_ns: float | None = None
    """The model's period."""
    ack_delay_ns: float = 0.0
    """How long the ACK was delayed that the status waited for."""
    data_pdu_bytes: int | None = None
    """Payload of a data PDU."""

    def has_odd_segments(self, block_bytes: int, segment_bytes: int) -> bool:
        """Whether a block has an odd number of segments: then its last one waits alone for an ACK."""
        return ceil(stream_bytes(block_bytes, self.data_pdu_bytes or block_bytes) / segment_bytes) % 2 == 1


class Fitting(Protocol):
    """What a prediction needs of a fit."""

    @property
    def k(self) -> Estimate: ...  # noqa: D102 -- as in Fit
    @property
    def d_ns(self) -> Estimate: ...  # noqa: D102
    @property
    def s_ns(self) -> Estimate: ...  # noqa: D102
    @property
    def c_bytes_per_s(self) -> Estimate | None: ...  # noqa: D102
    @property
    def stall_share(self) -> Estimate: ...  # noqa: D102
    @property
    def correlations(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def scatter(self) -> float: ...  # noqa: D102
    @property
    def k_of_legs(self) -> float: ...  # noqa: D102
    @property
    def setting(self) -> Setting: ...  # noqa: D102
    @property
    def places(self) -> Sequence[FittedPlace]: ...  # noqa: D102


@dataclass(frozen=True)
class Doubt:
    """Something that the fitted settings do not show about another one."""

    why: str
    """Empty for a combination of others."""
    bytes_per_s: float
    """The throughput by the other reading."""


@dataclass(frozen=True)
class Interval:
    """A prediction with the least and the greatest throughput, in bytes/s, at 95 % confidence."""

    prediction: Prediction
    low_bytes_per_s: float
    high_bytes_per_s: float
    doubts: tuple[str, ...]
    """What widens the interval beyond that of the fitted settings."""


def predict_with(setting: Setting, fit: Fitting, given: Collection[str] = ()) -> Interval:
    """The prediction for a setting with the parameters of a fit, and the interval for the throughput of one more run.

    Uncertain are the parameters that the setting has from the fit; a parameter set to another value is exact, and so
    are the fields in ``given``. Each is moved to both ends of its interval. The changes are added as squares, with the
    correlations of the fit, the scatter of runs, and the doubts about settings that were not fitted. Unless given, the
    status is held where it is at the nearest fitted I/O size.
    """
    return _asked(setting, fit, given).answer()


def predicted_with(setting: Setting, fit: Fitting, given: Collection[str] = ()) -> Prediction:
    """The prediction alone, without the interval."""
    return _asked(setting, fit, given).prediction


def _asked(setting: Setting, fit: Fitting, given: Collection[str]) -> _Question:
    places = fit.places if setting.operation == fit.setting.operation else ()
    if places and setting.operation == "read" and "is_status_held" not in given:
        nearest = min(places, key=lambda place: _doublings(setting.block_bytes, place.block_bytes))
        setting = replace(setting, is_status_held=nearest.is_status_held)
    if any(place.ack_delay_ns for place in places) and "ack_delay_ns" not in given:
        setting = replace(setting, ack_delay_ns=_ack_delay_ns(setting, places))
    return _Question(setting, fit, places, frozenset(given))


def _delayed(places: Sequence[FittedPlace]) -> list[FittedPlace]:
    """The places whose statuses were held, of one command at a time."""
    return [place for place in places if place.is_status_held and place.queue_depth == 1]


def _is_by_segments(places: Sequence[FittedPlace], segment_bytes: int) -> bool:
    """Whether ACKs were delayed at all places with an odd number of segments, and at no other."""
    return all(
        bool(place.ack_delay_ns) == place.has_odd_segments(place.block_bytes, segment_bytes)
        for place in _delayed(places)
    )


def _ack_delay_ns(setting: Setting, places: Sequence[FittedPlace]) -> float:
    """The delay of the ACK that a status waits for: by the number of segments, else that at the nearest I/O size."""
    if setting.queue_depth * setting.connections > 1:
        return 0.0
    nearest = min(_delayed(places), key=lambda place: _doublings(setting.block_bytes, place.block_bytes), default=None)
    if nearest is None or nearest.block_bytes == setting.block_bytes:
        return nearest.ack_delay_ns if nearest else 0.0
    if not _is_by_segments(places, setting.segment_bytes):
        return nearest.ack_delay_ns
    is_odd = nearest.has_odd_segments(setting.block_bytes, setting.segment_bytes)
    return max(place.ack_delay_ns for place in places) if is_odd else 0.0


class _Question:
    """One setting, asked of a fit."""

    def __init__(self, setting: Setting, fit: Fitting, places: Sequence[FittedPlace], given: frozenset[str]) -> None:
        self.setting = setting
        self.fit = fit
        self.places = places
        self.given = given
        self.prediction = self._predict()

    def _predict(self, **values: Any) -> Prediction:
        """The prediction for the setting with other values; ``k`` and ``stall_share`` are those of the fit."""
        return self._of(self.setting, **values)

    def _of(
        self, setting: Setting, k: float | None = None, stall_share: float | None = None, **values: Any
    ) -> Prediction:
        k_of_legs = self.fit.k_of_legs
        return predict(
            changed(setting, values),
            k_factor=(self.fit.k.value if k is None else k) / k_of_legs if k_of_legs > 0 else 1.0,
            stall_share=self.fit.stall_share.value if stall_share is None else stall_share,
        )

    def answer(self) -> Interval:
        """The interval."""
        found = self.prediction.throughput_bytes_per_s
        steps = {name: [each.throughput_bytes_per_s - found for each in ends] for name, ends in self._ends()}
        doubts = tuple(self._doubts())
        scattered = 1 + self.fit.scatter * (1 + self._distance())
        lossy = 1 + LOSS_ERROR if self.setting.loss else 1.0
        factors = (scattered, 1 / scattered, lossy, 1 / lossy)
        others = [found * each - found for each in factors] + [each.bytes_per_s - found for each in doubts]
        below, above = (
            sqrt(self._square(steps, sign) + sum(max(0.0, sign * each) ** 2 for each in others)) for sign in (-1, 1)
        )
        high = max(found, min(found + above, self._line()))
        return Interval(self.prediction, max(0.0, found - below), high, tuple(each.why for each in doubts if each.why))

    def _line(self) -> float:
        """The most that the line carries."""
        c, estimate = self.setting.c_bytes_per_s, self.fit.c_bytes_per_s
        if c is None:
            return inf
        most = estimate.high if estimate and self._is_of_fit("c_bytes_per_s") else c
        found = self._predict(c_bytes_per_s=most)
        return found.throughput_bytes_per_s / (1 - found.idle_fraction) if found.idle_fraction < 1 else inf

    def _square(self, steps: Mapping[str, Sequence[float]], sign: int) -> float:
        """The square of the change of the throughput upwards or downwards, by all parameters together."""
        moved = {name: max(0.0, *(sign * each for each in ends)) for name, ends in steps.items()}
        square = sum(each**2 for each in moved.values())
        for names, correlation in self.fit.correlations.items():
            one, two = names.split()
            square += 2 * correlation * moved.get(one, 0.0) * moved.get(two, 0.0)
        return max(0.0, square)

    def _ends(self) -> Iterator[tuple[str, list[Prediction]]]:
        """The predictions at both ends of the interval of each parameter."""
        fit = self.fit
        if fit.k_of_legs > 0:
            yield "k", [self._moved("k", k=max(0.0, end)) for end in (fit.k.low, fit.k.high)]
        if fit.stall_share.source == "fit":
            yield "stall_share", [self._predict(stall_share=end) for end in (fit.stall_share.low, fit.stall_share.high)]
        for name, field in _OF_SETTING.items():
            estimate: Estimate | None = getattr(fit, name)
            if estimate is not None and self._is_of_fit(name):
                ends = [end for end in (estimate.low, estimate.high) if end > 0 or field != "c_bytes_per_s"]
                yield name, [self._moved(name, **{field: max(0.0, end)}) for end in ends]

    def _moved(self, name: str, **values: float) -> Prediction:
        """The prediction with a parameter at an end of its interval.

        If it is from the packets, s is what the other terms leave of the fitted periods: it changes too.
        """
        fit = self.fit
        estimate: Estimate | None = getattr(fit, name)
        is_alone = fit.setting.queue_depth * fit.setting.connections == 1
        is_free = name in {"k", "c_bytes_per_s"} and estimate is not None and estimate.source in {"packets", "line"}
        if is_free and is_alone and self._is_of_fit("s_ns"):
            longer_ns = self._of(fit.setting, **values).period_ns - self._of(fit.setting).period_ns
            values["service_ns"] = max(0.0, self.setting.service_ns - longer_ns)
        return self._predict(**values)

    def _is_of_fit(self, name: str) -> bool:
        """Whether the setting has this parameter from the fit."""
        estimate: Estimate | None = getattr(self.fit, name)
        field = _OF_SETTING[name]
        return field not in self.given and estimate is not None and getattr(self.setting, field) == estimate.value

    # --- settings that were not fitted

    def _distance(self) -> float:
        """How far the period is from the fitted ones, in doublings, where the setting is outside of their range."""
        if not (self._is_outside("block_bytes") or self._is_outside("delay_ns") or self._is_outside("queue_depth")):
            return 0.0
        return min(_doublings(self.prediction.period_ns, place.period_ns) for place in self.places)

    def _value(self, name: str) -> float:
        if name == "queue_depth":
            return self.setting.queue_depth * self.setting.connections
        return float(getattr(self.setting, name))

    def _nearest(self, name: str) -> float:
        """The fitted value nearest to that of the setting."""
        value = self._value(name)
        return min((float(getattr(place, name)) for place in self.places), key=lambda each: _doublings(value, each))

    def _is_outside(self, name: str) -> bool:
        """Whether the setting is outside of the fitted range of a field of FittedPlace."""
        fitted, value = [getattr(place, name) for place in self.places], self._value(name)
        return bool(fitted) and not min(fitted) / ALIKE <= value <= max(fitted) * ALIKE

    def _doubts(self) -> Iterator[Doubt]:
        yield from self._held()
        yield from self._delayed()
        yield from self._hidden()
        yield from self._of_hosts()
        yield from self._of_unknown_windows()
        is_slow = any(place.bound == "receiver" for place in self.places)
        if is_slow and self._is_of_fit("c_bytes_per_s") and self._is_outside("delay_ns"):
            ratio = self._nearest("delay_ns") / max(self.setting.delay_ns, 1.0)
            found = self._predict(c_bytes_per_s=(self.setting.c_bytes_per_s or 0.0) * ratio)
            why = "delay outside the fitted range: the rate that windows leave may depend on it"
            yield Doubt(why, found.throughput_bytes_per_s)

    def _of_hosts(self) -> Iterator[Doubt]:
        """The hosts' time in proportion to what is outside of its fitted range, each alone and all together."""
        fit, service_ns = self.fit, self.setting.service_ns
        if not self._is_of_fit("s_ns") or service_ns <= 0:
            return
        has_fitted_c = fit.c_bytes_per_s is not None and fit.c_bytes_per_s.source == "fit"
        readings = {
            name: f"{word} outside the fitted range: {why}"
            for name, word, why, is_separate in (
                ("block_bytes", "I/O size", "the hosts' time may grow with the I/O size", has_fitted_c),
                ("delay_ns", "delay", "the hosts' time may contain delays of the path", fit.k.source != "assumed"),
                ("queue_depth", "queue depth", "the hosts may serve commands one after another", False),
            )
            if self._is_outside(name) and not is_separate
        }
        # without a delay there is still some time
        ratios = [max(self._value(name) / self._nearest(name), 1e-3) for name in readings]
        for why, ratio in zip(readings.values(), ratios, strict=True):
            yield Doubt(why, self._predict(service_ns=service_ns * ratio).throughput_bytes_per_s)
        if len(ratios) > 1:
            together = self._predict(service_ns=service_ns * prod(ratios))
            yield Doubt("", together.throughput_bytes_per_s)

    def _of_unknown_windows(self) -> Iterator[Doubt]:
        """Waits for windows of unknown size in proportion to the delay: a window that limits is filled once per RTT."""
        if not (self._is_of_fit("s_ns") and self._is_outside("delay_ns")):
            return
        delay_ns = self._nearest("delay_ns")
        waits_ns = max(place.window_wait_ns for place in self.places if place.delay_ns == delay_ns)
        if waits_ns:
            more_ns = waits_ns * (self.setting.delay_ns / delay_ns - 1)
            found = self._predict(service_ns=max(0.0, self.setting.service_ns + more_ns))
            why = "delay outside the fitted range: waits for a window of unknown size may grow with it"
            yield Doubt(why, found.throughput_bytes_per_s)

    def _held(self) -> Iterator[Doubt]:
        """The other reading of whether a status is held: large reads escape it, and small ones may be subject to it."""
        size = self.setting.block_bytes
        if self.setting.operation != "read" or not self.places or "is_status_held" in self.given:
            return
        sizes = [place.block_bytes for place in self.places]
        around = {
            max((each for each in sizes if each <= size * ALIKE), default=None),
            min((each for each in sizes if each >= size / ALIKE), default=None),
        }
        held = {place.is_status_held for place in self.places if place.block_bytes in around}
        if len(held) > 1 or (None in around and any(place.is_status_apart for place in self.places)):
            other = self._predict(is_status_held=not self.setting.is_status_held)
            why = "no fitted I/O sizes on both sides show whether the status waits for an ACK"
            yield Doubt(why, other.throughput_bytes_per_s)

    def _delayed(self) -> Iterator[Doubt]:
        """The other reading of whether the ACK is delayed that a status waits for."""
        delays_ns = {place.ack_delay_ns > 0: place.ack_delay_ns for place in _delayed(self.places)}
        is_known = any(place.block_bytes == self.setting.block_bytes for place in _delayed(self.places))
        is_by_segments = len(delays_ns) == 2 and _is_by_segments(self.places, self.setting.segment_bytes)
        if True not in delays_ns or is_known or is_by_segments or "ack_delay_ns" in self.given:
            return
        other = self._predict(ack_delay_ns=0.0 if self.setting.ack_delay_ns else delays_ns[True])
        why = "the fitted I/O sizes do not show whether the ACK of this one is delayed"
        yield Doubt(why, other.throughput_bytes_per_s)

    def _hidden(self) -> Iterator[Doubt]:
        """The reading in which hosts work while a command waits for a window: at most as much as they are seen to."""
        setting, fit = self.setting, self.fit
        outstanding = setting.queue_depth * setting.connections
        if fit.stall_share.source == "fit" or outstanding > 1 or not self.places or not self._is_of_fit("s_ns"):
            return
        stall_ns, service_ns = self.prediction.stall_ns, setting.service_ns
        fitted_ns = self._of(fit.setting).stall_ns
        before_ns = min(fitted_ns, service_ns)
        growth = stall_ns / fitted_ns if fitted_ns else inf
        now_ns = min(service_ns + before_ns, before_ns * growth if before_ns else stall_ns)
        if abs(now_ns - before_ns) > 1:
            period_ns = self.prediction.period_ns + before_ns - now_ns
            why = "delays and windows that were not varied do not show how much the hosts work during waits for windows"
            yield Doubt(why, setting.block_bytes * 1e9 / period_ns)


def _doublings(one: float, two: float) -> float:
    """By how many factors of two both differ."""
    return abs(log2(max(one, 1e-9) / max(two, 1e-9)))
