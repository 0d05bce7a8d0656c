"""What-if: settings that differ in some parameters, the prediction for each, and its gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from iscsitrace.errors import InputInvalid
from iscsitrace.model.prediction import changed, predict
from iscsitrace.model.setting import LOGIN_KEYS, Prediction, Setting, in_commands
from iscsitrace.model.transfer import rate_of_line
from iscsitrace.model.uncertainty import Fitting, predict_with

LINE_RATE: Final = "rate_bps"
SOCKET_RATE: Final = "socket_bps"
SYSTEM_CALL: Final = "system_call_bytes"
COMMAND_WINDOW: Final = "command_window_count"
_NO_FIELDS: Final = (LINE_RATE, SOCKET_RATE, SYSTEM_CALL, COMMAND_WINDOW)
"""Parameters that are no field of a setting, and change several."""
_LIMITS: Final = {
    "first_burst_bytes": (512, (1 << 24) - 1, "13.14"),
    "max_burst_bytes": (512, (1 << 24) - 1, "13.13"),
    "max_recv_data_segment_bytes": (512, (1 << 24) - 1, "13.12"),
    "max_outstanding_r2t": (1, (1 << 16) - 1, "13.17"),
    "connections": (1, (1 << 16) - 1, "13.2"),
}
"""Least and largest value that can be negotiated, and the section of RFC 7143."""


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
    SYSTEM_CALL: Parameter("system call", "bytes"),
    "queue_depth": Parameter("queue depth", "count"),
    COMMAND_WINDOW: Parameter("command window", "count"),
    "connections": Parameter("connections", "count"),
    "window_bytes": Parameter("window", "bytes"),
    "start_window_bytes": Parameter("window at the start of an I/O", "bytes"),
    "service_ns": Parameter("service time", "ns"),
    "is_status_held": Parameter("status held", "truth"),
    "part_bytes": Parameter("part", "bytes"),
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
"""By name: fields of Setting and Solicitation; rates become C, calls and command window decide what is in flight."""


@dataclass(frozen=True)
class Alternative:
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


def ask(base: Setting, lists: Mapping[str, Sequence[Any]], fit: Fitting | None = None) -> list[Alternative]:
    """The prediction for every combination of values, the last list varying fastest; names are those of PARAMETERS."""
    now = predict_with(base, fit).prediction.throughput_bytes_per_s if fit else None
    answers = []
    for combination in product(*lists.values()):
        values = dict(zip(lists, combination, strict=True))
        setting = with_values(base, values)
        if fit is None:
            answers.append(Alternative(values, predict(setting), None, None, None))
            continue
        found = predict_with(setting, fit, values)
        gain = found.prediction.throughput_bytes_per_s / now - 1 if now else None
        answers.append(
            Alternative(values, found.prediction, found.low_bytes_per_s, found.high_bytes_per_s, gain, found.doubts)
        )
    return answers


def with_values(base: Setting, values: Mapping[str, Any]) -> Setting:
    """A setting with other values; with a rate as C, the headers of data PDUs are counted.

    InputInvalid for negotiated parameters that RFC 7143 does not allow.
    """
    setting = changed(base, {name: value for name, value in values.items() if name not in _NO_FIELDS})
    _check_negotiable(setting, values)
    if LINE_RATE in values or SOCKET_RATE in values:
        is_line = LINE_RATE in values
        c = rate_of_line(values[LINE_RATE], setting.segment_bytes) if is_line else values[SOCKET_RATE] / 8
        setting = replace(setting, c_bytes_per_s=c, data_pdu_bytes=setting.solicitation.max_recv_data_segment_bytes)
    if SYSTEM_CALL in values or COMMAND_WINDOW in values:
        setting = in_commands(setting, values.get(SYSTEM_CALL), values.get(COMMAND_WINDOW))
    return setting


def _check_negotiable(setting: Setting, values: Mapping[str, Any]) -> None:
    """Refuses what no login can agree on, if it is set here: a capture may show a session that does it anyway."""
    for name, (least, most, section) in _LIMITS.items():
        if name in values and not least <= values[name] <= most:
            key = LOGIN_KEYS.get(name, "MaxConnections")
            raise InputInvalid(f"{key} is {values[name]}; it is {least} to {most} (RFC 7143, section {section})")
    keys = setting.solicitation
    is_set = "first_burst_bytes" in values or "max_burst_bytes" in values
    if is_set and keys.first_burst_bytes > keys.max_burst_bytes:
        raise InputInvalid(
            f"FirstBurstLength ({keys.first_burst_bytes}) is larger than MaxBurstLength ({keys.max_burst_bytes}): no "
            "login can agree on that (RFC 7143, section 13.14); set both"
        )
