"""Published models of TCP under losses, and which model of losses describes captures best, by cross-validation.

The first three are of a bulk transfer: a sender that always has data. They know neither commands nor RTTs that a
command waits for, so of commands with pauses between them they are upper bounds. The last is of a transfer of known
length, which is what one command is. None knows the line: no model may exceed it here, nor the receive window.

Each part of the time of a capture is predicted with the loss rate of the other parts; RTT, window, line and service
time are those of the whole. So no model sees the losses that it has to explain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import expm1, inf, log, log1p, sqrt
from typing import Any, Final

import numpy as np

from iscsitrace.errors import InputInvalid
from iscsitrace.fit import robust
from iscsitrace.fit.points import Losses, Point
from iscsitrace.model.bounds import CUBIC_CONSTANT, LEAST_TIMEOUT_NS
from iscsitrace.model.cycle import legs
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Setting
from iscsitrace.model.transfer import line_ns, stream_bytes

SEGMENTS_PER_ROUND: Final = 1
"""``b`` of the papers, the rounds for a segment more: 1, because Linux counts the segments that an ACK covers (RFC
3465), also where ACKs are delayed. The papers have 2 for delayed ACKs."""
INITIAL_SEGMENTS: Final = 10
"""RFC 6928."""
GROWTH: Final = 1 + 1 / SEGMENTS_PER_ROUND
"""Factor by which slow start enlarges the window in a round: ``gamma``."""


@dataclass(frozen=True)
class Rival:
    """A model of throughput."""

    name: str
    source: str
    """Authors, title, venue and year, and which formula."""
    bytes_per_s: Callable[[Setting], float]
    """Throughput of a setting with losses, in bytes/s of I/Os."""


def _bulk(window_segments: Callable[[Setting], float]) -> Callable[[Setting], float]:
    """Throughput of connections that always have data, from their average window."""

    def bytes_per_s(setting: Setting) -> float:
        most = setting.window_bytes / setting.segment_bytes if setting.window_bytes else inf
        window = min(window_segments(setting), most)
        return _on_the_line(setting, setting.connections * window * setting.segment_bytes / round_trip_s(setting))

    return bytes_per_s


def _on_the_line(setting: Setting, stream_bytes_per_s: float) -> float:
    """The rate of I/Os: without the headers of their PDUs, and no faster than the line."""
    payload = setting.block_bytes / stream_bytes(setting.block_bytes, setting.data_pdu_bytes)
    return payload * min(stream_bytes_per_s, setting.c_bytes_per_s or inf)


def round_trip_s(setting: Setting) -> float:
    """RTT of the path; queues are not part of it."""
    return 2 * setting.delay_ns / 1e9


def _timeout_s(setting: Setting) -> float:
    return round_trip_s(setting) + LEAST_TIMEOUT_NS / 1e9


def _square_root(setting: Setting) -> float:
    return sqrt(3 / (2 * SEGMENTS_PER_ROUND * setting.loss))


def _with_timeouts(setting: Setting) -> float:
    """Segments per RTT of Padhye and others, equation 30, without its limit by the window."""
    p, b = setting.loss, SEGMENTS_PER_ROUND
    trip, timeout = round_trip_s(setting), _timeout_s(setting)
    lost = min(1.0, 3 * sqrt(3 * b * p / 8)) * p * (1 + 32 * p**2)
    return trip / (trip * sqrt(2 * b * p / 3) + timeout * lost)


def _cubic(setting: Setting) -> float:
    """The larger of both regions, as RFC 9438 chooses between them."""
    return max(_square_root(setting), CUBIC_CONSTANT * float((round_trip_s(setting) / setting.loss) ** 0.75))


def _short_flow(setting: Setting) -> float:
    """Cardwell and others, sections 3.2 to 3.4, for the data of each command; their delayed first ACK is left out.

    The paper's transfers are new ones: each command begins in slow start, without the handshake. Commands in flight
    together are one longer transfer, which is no faster than a bulk one.
    """
    p, trip = setting.loss, round_trip_s(setting)
    most = setting.window_bytes / setting.segment_bytes if setting.window_bytes else inf
    steady = min(_with_timeouts(setting), most)
    first = min(float(INITIAL_SEGMENTS), most)
    size = stream_bytes(setting.block_bytes, setting.data_pdu_bytes) / setting.segment_bytes
    met = -expm1(size * log1p(-p))
    # by slow start, up to the first loss; the paper counts the lost segment, also where none is lost
    begun = met * (1 - p) / p + 1
    window = begun * (GROWTH - 1) / GROWTH + first / GROWTH
    if window > most:
        rest = begun - (GROWTH * most - first) / (GROWTH - 1)
        start_s = trip * (log(most / first, GROWTH) + 1 + rest / most)
    else:
        start_s = trip * log(begun * (GROWTH - 1) / first + 1, GROWTH)
    by_timeout = _by_timeout(p, min(window, most))
    wait_s = _timeout_s(setting) * _backed_off(p) / (1 - p)
    loss_s = met * (by_timeout * wait_s + (1 - by_timeout) * trip)
    rest_s = max(0.0, size - begun) * trip / steady
    # the last data needs no ACK, but the command took as long; R2Ts and held statuses are delays of their own
    more_s = (sum(leg.delays for leg in legs(setting)) - 2) * setting.delay_ns / 1e9 + setting.service_ns / 1e9
    period_s = max(start_s + loss_s + rest_s, trip + line_ns(setting) / 1e9) + more_s
    together = setting.queue_depth * setting.connections * setting.block_bytes / period_s
    if setting.queue_depth == 1:
        return _on_the_line(setting, together)
    return min(together, _PADHYE.bytes_per_s(setting))


def _by_timeout(p: float, window: float) -> float:
    """Probability that a loss in a window ends in a timeout: ``Q`` of Padhye and others, equation 24."""
    if window <= 3:
        return 1.0
    three, others, every = (float((1 - p) ** segments) for segments in (3, window - 3, window))
    return min(1.0, (1 - three) * (1 + three * (1 - others)) / (1 - every))


def _backed_off(p: float) -> float:
    """Timeouts in a row, each twice as long: ``f`` or ``G`` of both papers."""
    return float(1 + sum(2 ** (place - 1) * p**place for place in range(1, 7)))


def _ours(setting: Setting) -> float:
    return predict(setting).throughput_bytes_per_s


_PADHYE: Final = Rival(
    "Padhye (PFTK)",
    "Padhye, Firoiu, Towsley, Kurose: Modeling TCP Throughput: A Simple Model and its Empirical Validation, SIGCOMM "
    "1998, equation 30",
    _bulk(_with_timeouts),
)
RIVALS: Final = (
    Rival("this model", "iscsitrace docs method 6", _ours),
    Rival(
        "Mathis",
        "Mathis, Semke, Mahdavi, Ott: The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm, Computer "
        "Communication Review 27(3), 1997, equation 3",
        _bulk(_square_root),
    ),
    _PADHYE,
    Rival(
        "CUBIC",
        "Xu, Ha, Rhee, Goel, Eggert: CUBIC for Fast and Long-Distance Networks, 2023, RFC 9438, sections 4.3 and 5.1",
        _bulk(_cubic),
    ),
    Rival(
        "Cardwell",
        "Cardwell, Savage, Anderson: Modeling TCP Latency, INFOCOM 2000, sections 3.2 to 3.4",
        _short_flow,
    ),
)
"""The model of this package first."""


FOLDS_MIN: Final = 3
"""Parts of the time from which on models can be told apart."""


@dataclass(frozen=True)
class Candidate:
    """A model, and how far it is off."""

    rival: Rival
    predicted_bytes_per_s: tuple[float | None, ...]
    """For each point as a whole, with its own loss rate; None where the model has no throughput."""
    errors: tuple[float, ...]
    """Of each part of the time: predicted / measured throughput, less 1; infinite without a throughput."""

    @property
    def error(self) -> float:
        """The median of the sizes of the errors."""
        return float(np.median(np.abs(self.errors)))


@dataclass(frozen=True)
class Rivalry:
    """The models beside each other."""

    points: tuple[Point, ...]
    """Those with losses."""
    candidates: tuple[Candidate, ...]
    """In the order of RIVALS."""

    @property
    def best(self) -> tuple[Candidate, ...]:
        """The candidates that may be the best one, the one with the least error first: all others are worse by more
        than the parts of the time scatter.
        """
        order = sorted(self.candidates, key=lambda each: each.error)
        first = order[0]
        return tuple(each for each in order if each is first or not _is_worse(each, first))

    def as_dict(self) -> dict[str, Any]:
        """For JSON, as in ``model fit --json``."""
        return {
            "points": [
                {
                    "point": point.name,
                    "loss": point.losses.setting.loss,
                    "loss_count": point.losses.loss_count,
                    "segment_count": point.losses.segment_count,
                    "throughput_bytes_per_s": point.losses.throughput.value,
                    "throughput_low_bytes_per_s": point.losses.throughput.low,
                    "throughput_high_bytes_per_s": point.losses.throughput.high,
                    "predicted_bytes_per_s": {
                        each.rival.name: each.predicted_bytes_per_s[place] for each in self.candidates
                    },
                }
                for place, point in enumerate(self.points)
                if point.losses
            ],
            "models": [
                {
                    "name": each.rival.name,
                    "source": each.rival.source,
                    "median_error": each.error if np.isfinite(each.error) else None,
                    "part_count": len(each.errors),
                }
                for each in self.candidates
            ],
            "best": [each.rival.name for each in self.best],
        }


def compare(points: Sequence[Point]) -> Rivalry | None:
    """The models on all points with losses; None where there are none."""
    lossy = [point for point in points if point.losses and point.losses.folds]
    if not lossy:
        return None
    return Rivalry(
        tuple(lossy),
        tuple(
            Candidate(
                rival,
                tuple(_predict(rival, point.losses, point.losses.setting.loss) for point in lossy if point.losses),
                tuple(error for point in lossy if point.losses for error in _errors(rival, point.losses)),
            )
            for rival in RIVALS
        ),
    )


def _errors(rival: Rival, losses: Losses) -> list[float]:
    found = []
    for loss, measured in losses.folds:
        predicted = _predict(rival, losses, loss)
        found.append(float("inf") if predicted is None else predicted / measured - 1)
    return found


def _predict(rival: Rival, losses: Losses, loss: float) -> float | None:
    try:
        return rival.bytes_per_s(replace(losses.setting, loss=loss))
    except InputInvalid:
        return None


def _is_worse(one: Candidate, best: Candidate) -> bool:
    """Whether its errors are larger by more than chance, at 95 % confidence: pairs of the same part."""
    more = np.abs(one.errors) - np.abs(best.errors)
    if len(more) < FOLDS_MIN:
        return False
    if not np.isfinite(more).all():
        return True
    error = float(more.std(ddof=1) / np.sqrt(len(more)))
    return float(more.mean()) > robust.student_975(len(more) - 1) * error
