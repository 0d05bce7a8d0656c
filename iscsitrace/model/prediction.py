"""Predictions of the model: ``predict`` for a setting; ``grid`` makes many settings.

```text
period = k * d + s + B / C + stalls       throughput = queue depth * connections * B / period, or a bound that is less
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from itertools import product
from math import inf
from typing import Any

from iscsitrace.errors import InputInvalid
from iscsitrace.model.bounds import (
    LEAST_DELAY_NS,
    LEAST_SEGMENTS,
    loss_window_bytes,
    mirror_bytes_per_s,
    window_bytes_per_s,
)
from iscsitrace.model.cycle import Cycle, bytes_per_s, cycle_of
from iscsitrace.model.setting import CONGESTION_CONTROLS, OPERATIONS, Prediction, Setting, Solicitation
from iscsitrace.model.transfer import first_burst_bytes, solicited_bytes, stream_bytes

_KEYS = frozenset(field.name for field in fields(Solicitation))
_REACHED = 1.005
"""Factor within which a bound counts as the one that decides."""
_POSITIVE = ("block_bytes", "queue_depth", "connections", "segment_bytes")
_KEY_NUMBERS = ("first_burst_bytes", "max_burst_bytes", "max_outstanding_r2t", "max_recv_data_segment_bytes")
_NOT_NEGATIVE = ("delay_ns", "service_ns", "service_spread_ns", "ack_delay_ns")
_POSITIVE_OR_NONE = (
    "c_bytes_per_s",
    "call_bytes",
    "part_bytes",
    "data_pdu_bytes",
    "window_bytes",
    "start_window_bytes",
)


def predict(setting: Setting, *, k_factor: float = 1.0, stall_share: float = 1.0) -> Prediction:
    """Period, throughput and what bounds it; ``k_factor`` multiplies the delays of the cycle's legs, ``stall_share``
    the waits for windows of a command alone.

    InputInvalid for a setting that makes no sense.
    """
    _check(setting)
    cycle = cycle_of(setting, k_factor, stall_share)
    copies = max(1, len(setting.target_delays_ns))
    outstanding = setting.queue_depth * setting.connections
    bounds = _bounds(setting, cycle, copies, k_factor)
    throughput = min(bounds.values())
    if throughput == inf:
        raise InputInvalid("a cycle without delay, service time and rate has no duration: set one of them")
    return Prediction(
        setting=setting,
        period_ns=outstanding * setting.block_bytes / throughput * 1e9,
        throughput_bytes_per_s=throughput,
        bound=_name(bounds, throughput, setting, cycle),
        legs=cycle.legs,
        transfer_ns=cycle.transfer_ns,
        stall_ns=cycle.stall_ns,
        idle_fraction=max(0.0, 1 - throughput / bounds["line"]) if setting.c_bytes_per_s else 1.0,
        is_in_range=_is_in_range(setting),
    )


def grid(setting: Setting, **lists: Iterable[Any]) -> tuple[Setting, ...]:
    """The setting with every combination of the values in these lists, the last list varying fastest; names are fields
    of Setting and Solicitation.
    """
    return tuple(
        changed(setting, dict(zip(lists, values, strict=True))) for values in product(*map(tuple, lists.values()))
    )


def changed(setting: Setting, values: Mapping[str, Any]) -> Setting:
    """The setting with other values; names are fields of Setting and Solicitation."""
    keys = {name: value for name, value in values.items() if name in _KEYS}
    others = {name: value for name, value in values.items() if name not in _KEYS}
    if keys:
        others["solicitation"] = replace(others.get("solicitation", setting.solicitation), **keys)
    return replace(setting, **others)


def _bounds(setting: Setting, cycle: Cycle, copies: int, k_factor: float) -> dict[str, float]:
    """The throughput that each bound alone would allow, in bytes/s of I/Os."""
    farthest = setting
    if setting.target_delays_ns:
        farthest = replace(setting, delay_ns=max((setting.delay_ns, *setting.target_delays_ns)))
    payload = setting.block_bytes / stream_bytes(setting.block_bytes, setting.data_pdu_bytes)
    connections = setting.connections * payload
    lossy = (
        payload * mirror_bytes_per_s(setting)
        if setting.loss and setting.target_delays_ns
        else connections * window_bytes_per_s(farthest, loss_window_bytes(farthest))
    )
    return {
        "line": setting.c_bytes_per_s * payload / copies if setting.c_bytes_per_s else inf,
        "window": connections * window_bytes_per_s(farthest),
        "loss": lossy,
        "cycle": bytes_per_s(setting, cycle, k_factor),
    }


def _name(bounds: Mapping[str, float], throughput: float, setting: Setting, cycle: Cycle) -> str:
    """The bound as one of BOUNDS: the first that is reached; of a cycle what most of it is."""
    copies = len(setting.target_delays_ns)
    bound = next(name for name, value in bounds.items() if value <= throughput * _REACHED)
    if bound == "line":
        return "shared_line" if copies > 1 or setting.connections > 1 else "line"
    if bound == "cycle":
        half_ns = cycle.period_ns(setting) / 2
        if cycle.loss_stall_ns > half_ns:
            return "loss"
        held_ns = setting.ack_delay_ns if setting.is_status_held else 0.0
        if cycle.stall_ns - cycle.loss_stall_ns - held_ns > half_ns:
            return "window"
        if copies > 1:
            return "slowest_target"
    return bound


def _is_in_range(setting: Setting) -> bool:
    """Always without losses; with losses where the average window and the data in flight have enough segments
    for a loss to be repaired without a timeout, and where a timer of TCP is not much longer than the RTT.
    """
    if not setting.loss:
        return True
    if max((setting.delay_ns, *setting.target_delays_ns)) < LEAST_DELAY_NS:
        return False
    sizes: tuple[int, ...] = (setting.block_bytes,)
    if setting.operation == "write":
        sizes = (first_burst_bytes(setting), *solicited_bytes(setting))
    most = min(loss_window_bytes(setting), setting.window_bytes or inf, max(sizes) * setting.queue_depth)
    return most >= LEAST_SEGMENTS * setting.segment_bytes


def _check(setting: Setting) -> None:
    """Raises InputInvalid, with one line, for values that make no sense."""
    words = {"operation": OPERATIONS, "congestion_control": CONGESTION_CONTROLS}
    for name, known in words.items():
        if getattr(setting, name) not in known:
            raise InputInvalid(f"{name} is {getattr(setting, name)!r}; there are {', '.join(known)}")
    for name in _POSITIVE:
        if not 0 < getattr(setting, name) < inf:
            raise InputInvalid(f"{name} is {getattr(setting, name)}; it has to be more than 0")
    for name in _POSITIVE_OR_NONE:
        value = getattr(setting, name)
        if value is not None and not 0 < value < inf:
            raise InputInvalid(f"{name} is {value}; it has to be more than 0")
    for name in _KEY_NUMBERS:
        if getattr(setting.solicitation, name) < 1:
            raise InputInvalid(f"{name} is {getattr(setting.solicitation, name)}; it has to be at least 1")
    for name in _NOT_NEGATIVE:
        if not 0 <= getattr(setting, name) < inf:
            raise InputInvalid(f"{name} is {getattr(setting, name)}; it has to be 0 or more")
    if not 0 <= setting.loss < 1:
        raise InputInvalid(f"loss is {setting.loss}; it has to be from 0 to less than 1")
    if setting.target_delays_ns and (
        setting.operation != "write" or not all(0 <= d < inf for d in setting.target_delays_ns)
    ):
        raise InputInvalid("target_delays_ns belongs to a mirrored write, and each delay has to be 0 or more")
