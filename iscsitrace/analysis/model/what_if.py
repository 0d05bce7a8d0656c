"""What-if: settings that differ in some parameters, the prediction for each, and its gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from iscsitrace.analysis.model.prediction import changed, predict
from iscsitrace.analysis.model.setting import LOGIN_KEYS, Prediction, Setting
from iscsitrace.analysis.model.transfer import rate_of_line
from iscsitrace.analysis.model.uncertainty import Fitting, predict_with

LINE_RATE: Final = "rate_bps"
SOCKET_RATE: Final = "socket_bps"


@dataclass(frozen=True)
class Parameter:
    """A parameter that can be varied."""

    label: str
    kind: str
    """``bytes``, ``ns``, ``bps``, ``count``, ``share``, ``truth`` or ``word``; ``ways`` for the delays of a mirror."""


PARAMETERS: Final = {
    "operation": Parameter("operation", "word"),
    "block_bytes": Parameter("I/O size", "bytes"),
    "delay_ns": Parameter("one-way delay", "ns"),
    "target_delays_ns": Parameter("one-way delays of the mirror", "ways"),
    LINE_RATE: Parameter("line rate", "bps"),
    SOCKET_RATE: Parameter("socket rate", "bps"),
    "queue_depth": Parameter("queue depth", "count"),
    "connections": Parameter("connections", "count"),
    "window_bytes": Parameter("window", "bytes"),
    "start_window_bytes": Parameter("window at the start of an I/O", "bytes"),
    "service_ns": Parameter("service time", "ns"),
    "is_status_held": Parameter("status held", "truth"),
    "ack_delay_ns": Parameter("delay of the last ACK", "ns"),
    "is_initial_r2t": Parameter(LOGIN_KEYS["is_initial_r2t"], "truth"),
    "is_immediate_data": Parameter(LOGIN_KEYS["is_immediate_data"], "truth"),
    "first_burst_bytes": Parameter(LOGIN_KEYS["first_burst_bytes"], "bytes"),
    "max_burst_bytes": Parameter(LOGIN_KEYS["max_burst_bytes"], "bytes"),
    "max_outstanding_r2t": Parameter(LOGIN_KEYS["max_outstanding_r2t"], "count"),
    "max_recv_data_segment_bytes": Parameter(LOGIN_KEYS["max_recv_data_segment_bytes"], "bytes"),
    "loss": Parameter("loss", "share"),
    "congestion_control": Parameter("congestion control", "word"),
    "segment_bytes": Parameter("segment", "bytes"),
}
"""By name: fields of Setting and Solicitation; the two rates become C."""


@dataclass(frozen=True)
class Answer:
    """The prediction for one setting."""

    values: Mapping[str, Any]
    """Values of the varied parameters, by name."""
    prediction: Prediction
    low_bytes_per_s: float | None
    """Least throughput at 95 % confidence; None without a fit."""
    high_bytes_per_s: float | None
    gain: float | None
    """Throughput / throughput of the fit's setting, less 1; None without a fit."""
    doubts: tuple[str, ...] = ()
    """What the fitted settings do not show about this one, so that the interval is wider."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: names as in ``model predict --json``."""
        return {
            "values": dict(self.values),
            **self.prediction.as_dict(),
            "throughput_low_bytes_per_s": self.low_bytes_per_s,
            "throughput_high_bytes_per_s": self.high_bytes_per_s,
            "gain": self.gain,
            "doubts": list(self.doubts),
        }


def ask(base: Setting, lists: Mapping[str, Sequence[Any]], fit: Fitting | None = None) -> list[Answer]:
    """The prediction for every combination of values, the last list varying fastest; names are those of PARAMETERS."""
    now = predict_with(base, fit).prediction.throughput_bytes_per_s if fit else None
    answers = []
    for combination in product(*lists.values()):
        values = dict(zip(lists, combination, strict=True))
        setting = with_values(base, values)
        if fit is None:
            answers.append(Answer(values, predict(setting), None, None, None))
            continue
        found = predict_with(setting, fit, values)
        gain = found.prediction.throughput_bytes_per_s / now - 1 if now else None
        answers.append(
            Answer(values, found.prediction, found.low_bytes_per_s, found.high_bytes_per_s, gain, found.doubts)
        )
    return answers


def with_values(base: Setting, values: Mapping[str, Any]) -> Setting:
    """A setting with other values; with a rate as C, the headers of data PDUs are counted."""
    setting = changed(base, {name: value for name, value in values.items() if name not in (LINE_RATE, SOCKET_RATE)})
    if LINE_RATE in values:
        c = rate_of_line(values[LINE_RATE], setting.segment_bytes)
    elif SOCKET_RATE in values:
        c = values[SOCKET_RATE] / 8
    else:
        return setting
    return replace(setting, c_bytes_per_s=c, data_pdu_bytes=setting.solicitation.max_recv_data_segment_bytes)
