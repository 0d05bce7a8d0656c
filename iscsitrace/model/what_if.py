"""What-if: settings that differ in some parameters, the prediction for each, and its gain. And the model asked the
other way round: what a wanted throughput needs, one change at a time.

A plan predicts nothing itself. A throughput is a function that the caller has, of the model or of a measured session,
and the search tries it with one value after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from math import ceil, inf
from typing import Any, Final

from iscsitrace.errors import InputInvalid
from iscsitrace.model.prediction import changed, predict
from iscsitrace.model.setting import LOGIN_KEYS, Prediction, Setting, Solicitation, in_commands
from iscsitrace.model.transfer import first_burst_bytes, rate_of_line, solicited_bytes, stream_bytes
from iscsitrace.model.uncertainty import LOSS_ERROR, Fitting, predict_with

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


HIDDEN: Final = 0.9
"""Share of the throughput without delay at which the delay counts as hidden."""
BLOCK_MOST: Final = 1 << 24
"""I/O size up to which a plan looks: MaxBurstLength and FirstBurstLength end there (RFC 7143, section 13.13)."""
COUNT_MOST: Final = 1_024
"""Commands in flight on a connection up to which a plan looks: the most that node.session.queue_depth takes."""
CONNECTIONS_MOST: Final = 64
DELAY_MOST_NS: Final = 1e9
_WINDOW_MOST: Final = 65_535 << 14
"""The largest window of TCP (RFC 7323, section 2.3)."""
_BLOCK_GRAIN, _WINDOW_GRAIN = 4_096, 4_096
"""A page."""
_STEPS: Final = 16
"""Values between two powers of two."""
_NARROWING: Final = 14
_SHORT_NS: Final = 1_000.0
"""A distance is told in microseconds."""


@dataclass(frozen=True)
class Plan:
    """One change that reaches the wanted throughput, with what it needs besides; or how far it gets."""

    name: str
    """One of CHANGES."""
    is_enough: bool
    """Whether the wanted throughput is reached."""
    values: Mapping[str, Any]
    """What to set, by names of PARAMETERS; empty where the change is not enough."""
    prediction: Prediction
    """With these values; where the change is not enough, the best that it reaches."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: predictions as in ``model predict --json``."""
        return {
            "change": self.name,
            "is_enough": self.is_enough,
            "values": dict(self.values),
            "burst_packets": burst_packets(self.prediction.setting),
            **self.prediction.as_dict(),
            "setting": asdict(self.prediction.setting),
        }


def burst_packets(setting: Setting) -> int:
    """Packets that may come to the line at once, at most: a queue that holds as many loses none.

    It is all that commands and windows allow to be under way, because a host with a faster interface sends that in one
    burst, for instance when R2Ts of several commands come together.
    """
    asked = (first_burst_bytes(setting), sum(solicited_bytes(setting)[: setting.solicitation.max_outstanding_r2t]))
    each = setting.block_bytes if setting.operation == "read" else max(asked)
    sent = setting.queue_depth * stream_bytes(each, setting.data_pdu_bytes)
    pdus = setting.queue_depth * ceil(each / (setting.data_pdu_bytes or each))
    packets = ceil(min(sent, setting.window_bytes or inf) / setting.segment_bytes)
    # the end of each data PDU is a packet of its own; commands, ACKs and R2Ts are others
    streams = setting.connections * max(1, len(setting.target_delays_ns))
    return streams * (packets + pdus + setting.queue_depth)


Forward = Callable[[Setting], Prediction]
"""The model: `predict`, or the same with the parameters of a fit."""


@dataclass(frozen=True)
class Planned:
    """A wanted throughput, and what reaches it."""

    now: Prediction
    """Of the load as it is."""
    near: Prediction | None
    """Of the load without delay; None where a throughput was named."""
    wanted_bytes_per_s: float
    plans: tuple[Plan, ...]


def planned(
    setting: Setting, wanted_bytes_per_s: float | None, share: float | None = None, forward: Forward = predict
) -> Planned:
    """The plans for a throughput or, without one, for a share of that without delay: HIDDEN if it is None."""
    now, near = forward(setting), None
    if wanted_bytes_per_s is None:
        near = without_delay(setting, forward)
        wanted_bytes_per_s = (HIDDEN if share is None else share) * near.throughput_bytes_per_s
    return Planned(now, near, wanted_bytes_per_s, tuple(plans(setting, wanted_bytes_per_s, forward)))


def without_delay(setting: Setting, forward: Forward = predict) -> Prediction:
    """The same load without distance: no delay, and no losses, each of which costs an RTT.

    InputInvalid where nothing else takes time.
    """
    near = replace(
        setting,
        delay_ns=0.0,
        loss=0.0,
        start_window_bytes=None,
        target_delays_ns=(0.0,) * len(setting.target_delays_ns),
    )
    try:
        return forward(near)
    except InputInvalid as error:
        raise InputInvalid(
            "without the delay this load has no limit: set a rate or a service time, or name the wanted rate"
        ) from error


def plans(setting: Setting, wanted_bytes_per_s: float, forward: Forward = predict) -> list[Plan]:
    """Each of CHANGES that applies to the setting, alone, with the least value that reaches the wanted throughput.

    Where no value is enough, the window and the negotiated parameters of writes are widened, too: first the one, then
    the other, then both. Under losses the plan has a margin, because the model is that much off.
    """
    wanted = wanted_bytes_per_s * (1 + LOSS_ERROR if setting.loss else 1)
    return [_planned(name, setting, wanted, forward) for name in CHANGES if _applies(name, setting)]


def least(throughput: Callable[[int], float], wanted: float, first: int, most: int, grain: int = 1) -> int | None:
    """The least value from ``first`` to ``most`` that reaches a throughput; None where none does.

    It is searched in steps of a sixteenth of the last power of two, multiples of ``grain``: nobody sets a queue depth
    of 211, but 208 or 216.
    """
    before = first
    for value in _doubled(first, most):
        if throughput(value) >= wanted:
            step = max(grain, before // _STEPS)
            between = range(before + step, value, step) if value > first else ()
            return next((each for each in between if throughput(each) >= wanted), value)
        before = value
    return None


def _doubled(first: int, most: int) -> Iterator[int]:
    value = first
    while value < most:
        yield value
        value *= 2
    yield most


def greatest_delay_ns(throughput: Callable[[float], float], wanted: float) -> float | None:
    """The greatest one-way delay at which a throughput is still reached; None where none is short enough."""
    if throughput(0.0) < wanted:
        return None
    if throughput(DELAY_MOST_NS) >= wanted:
        return DELAY_MOST_NS
    far = DELAY_MOST_NS
    # first to the right power of two, then within it
    while far > _SHORT_NS and throughput(far / 2) < wanted:
        far /= 2
    near = far / 2
    for _ in range(_NARROWING):
        middle = (near + far) / 2
        near, far = (middle, far) if throughput(middle) >= wanted else (near, middle)
    return float(near // _SHORT_NS * _SHORT_NS)


# --- changes

CHANGES: Final = ("block_bytes", "queue_depth", "connections", "window_bytes", "keys", "delay_ns")
"""I/O size, commands in flight, connections, window, negotiated parameters, distance."""


def _applies(name: str, setting: Setting) -> bool:
    if name == "keys":
        return setting.operation == "write" and bool(solicited_bytes(setting))
    if name == "window_bytes":
        return setting.window_bytes is not None
    # a system call decides how many of its commands are in flight, and of what size
    return setting.call_bytes is None or name in {"connections", "delay_ns"}


def _planned(name: str, setting: Setting, wanted: float, forward: Forward) -> Plan:
    """The least value of one change, with as little besides as possible."""
    best: Prediction | None = None
    for has_window, has_keys in _widened(name, setting):
        base = replace(setting, window_bytes=None) if has_window else setting
        value = _value(name, base, wanted, forward, has_keys=has_keys)
        if value is None:
            reached = forward(_with(base, name, _end(name, base), has_keys=has_keys))
            if best is None or reached.throughput_bytes_per_s > best.throughput_bytes_per_s:
                best = reached
            continue
        found = _with(base, name, value, has_keys=has_keys)
        if has_window:
            found = _with_least_window(found, wanted, forward)
        return Plan(name, True, _changed(name, setting, found), forward(found))
    assert best is not None  # noqa: S101 -- each change is tried at least once
    return Plan(name, False, {}, best)


def _widened(name: str, setting: Setting) -> Iterator[tuple[bool, bool]]:
    """What is widened besides the change: window, keys."""
    windows = (False, True) if setting.window_bytes is not None and name != "window_bytes" else (False,)
    keys = (False, True) if _applies("keys", setting) and name != "keys" else (False,)
    yield from ((window, key) for key in keys for window in windows)


def _value(name: str, setting: Setting, wanted: float, forward: Forward, *, has_keys: bool) -> Any:
    """The value of a change that is just enough; None where none is."""

    def reached(value: Any) -> float:
        return forward(_with(setting, name, value, has_keys=has_keys)).throughput_bytes_per_s

    if name == "keys":
        return True if reached(True) >= wanted else None
    if name == "delay_ns":
        return greatest_delay_ns(reached, wanted)
    grain = {"block_bytes": _BLOCK_GRAIN, "window_bytes": _WINDOW_GRAIN}.get(name, 1)
    return least(reached, wanted, grain, _end(name, setting), grain)


def _end(name: str, setting: Setting) -> Any:
    """The value of a change that promises most."""
    return {
        "block_bytes": BLOCK_MOST,
        "queue_depth": COUNT_MOST,
        "connections": max(setting.connections, CONNECTIONS_MOST),
        "window_bytes": _WINDOW_MOST,
        "keys": True,
        "delay_ns": 0.0,
    }[name]


def _with(setting: Setting, name: str, value: Any, *, has_keys: bool) -> Setting:
    if name == "delay_ns":
        setting = at_distance(setting, value)
    elif name != "keys":
        setting = replace(setting, **{name: value})
    return _with_long_bursts(setting) if has_keys or name == "keys" else setting


def at_distance(setting: Setting, delay_ns: float) -> Setting:
    """The same over another delay; of a mirror that of the farthest target, than which no other is farther."""
    ways = setting.target_delays_ns
    farthest = max(ways, default=0.0)
    targets = tuple(delay_ns if each == farthest else min(each, delay_ns) for each in ways)
    return replace(setting, delay_ns=delay_ns if not ways else max(targets), target_delays_ns=targets)


def _with_long_bursts(setting: Setting) -> Setting:
    """A write that waits for no R2T."""
    size = min(setting.block_bytes, BLOCK_MOST - 1)
    keys = setting.solicitation
    longer = {
        "is_initial_r2t": False,
        "first_burst_bytes": max(size, keys.first_burst_bytes),
        "max_burst_bytes": max(size, keys.max_burst_bytes),
    }
    return changed(setting, longer)


def _with_least_window(found: Setting, wanted: float, forward: Forward) -> Setting:
    """The same with the least window that is enough."""

    def reached(window_bytes: int) -> float:
        return forward(replace(found, window_bytes=window_bytes)).throughput_bytes_per_s

    return replace(found, window_bytes=least(reached, wanted, _WINDOW_GRAIN, _WINDOW_MOST, _WINDOW_GRAIN))


def _changed(name: str, before: Setting, after: Setting) -> dict[str, Any]:
    """What the change sets, and what differs besides, by names of PARAMETERS; the distance of a mirror is that of each
    target.
    """
    if name == "delay_ns" and after.target_delays_ns:
        name = "target_delays_ns"
    found = {} if name == "keys" else {name: getattr(after, name)}
    for each in fields(Setting):
        if getattr(after, each.name) != getattr(before, each.name) and each.name not in ("solicitation", "delay_ns"):
            found[each.name] = getattr(after, each.name)
    for each in fields(Solicitation):
        if getattr(after.solicitation, each.name) != getattr(before.solicitation, each.name):
            found[each.name] = getattr(after.solicitation, each.name)
    return found
