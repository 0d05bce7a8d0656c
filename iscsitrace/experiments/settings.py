"""The settings of a definition as those of a run, which both worlds take: ``client``, ``portals``, ``world``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iscsitrace.experiments.vocabulary import DIRECTIONS, TUNING, Value
from iscsitrace.lab.login_keys import LOGIN_KEYS

TARGET_NAME = "iqn.2025-01.org.iscsitrace:memory"
_SECOND_NS = 1_000_000_000
_LIMIT_NS = 3_600 * _SECOND_NS
_NAMES = {
    "link": {
        "rate": "rate_bps",
        "one-way-delay": "delay_ns",
        "queue-packets": "queue_packets",
        "queue-bytes": "queue_bytes",
        "loss": "loss_probability",
        "jitter": "jitter_ns",
        "overhead": "overhead_bytes",
    },
    "tcp": {"window": "receive_buffer_bytes", "send-buffer": "send_buffer_bytes"},
    "workload": {
        "block-size": "block_size_bytes",
        "system-call-size": "system_call_bytes",
        "max-transfer": "max_transfer_bytes",
        "bytes": "total_bytes",
        "think-time": "think_time_ns",
        "deal": "dealing",
    },
}
"""What settings are called in a run; the others have their own name, with ``_`` for ``-``."""
_OWN = {
    "link": ("access-rate", "access-queue-packets", "target-delays", "bypass-from"),
    "workload": (*TUNING, "queue-depth", "connection-depth"),
}
"""Settings that do not simply become one of a run."""
_RULES = {"model": "predicted", "golden": "golden_section"}
_TUNING = {
    "measure-time": "measure_ns",
    "measure-bytes": "measure_bytes",
    "measure-at-once": "is_unsettled",
    "start-connections": "start_connections",
    "most-connections": "most_connections",
}
_BITS = 8


def programs_of(values: Mapping[str, Value]) -> dict[str, Any]:
    """Who takes part in the real world, and over what, as `lab.real.Programs` takes it; the rest is left to that."""
    found: dict[str, Any] = {
        name: str(values[key]).replace("_", "-")
        for name, key in (
            ("initiator", "initiator.program"),
            ("target", "target.program"),
            ("driver", "initiator.driver"),
            ("receive", "initiator.receive"),
        )
        if key in values
    }
    limit, rates = values.get("link.bypass-from"), [link_of(values, way).get("rate_bps") for way in DIRECTIONS]
    if limit and any(rate is None or rate >= limit for rate in rates):
        found["is_bypassed"] = True
    return found


def call_bytes(values: Mapping[str, Value]) -> int:
    """Bytes of a system call; without a size of its own that is a command."""
    found = values.get("workload.system-call-size") or values.get("workload.block-size") or 65_536
    return int(str(found))


def target_delays(values: Mapping[str, Value]) -> list[Value | None]:
    """The one-way delay to each target; None for that of the link."""
    delays = values.get("link.target-delays")
    return list(delays) if isinstance(delays, list) else [None] * int(str(values.get("target.count", 1)))


def copy_count(values: Mapping[str, Value]) -> int:
    """To how many targets each block goes."""
    return len(target_delays(values)) if values.get("workload.layout") == "mirror" else 1


def is_tuned(values: Mapping[str, Value]) -> bool:
    """Whether the number of connections is looked for while the workload runs."""
    return "workload.connections-rule" in values


def queue_depth(values: Mapping[str, Value]) -> int:
    """System calls under way in a session; where the number of connections is looked for on each of them."""
    each = values.get("workload.connection-depth")
    if each is None:
        return int(str(values.get("workload.queue-depth", 1)))
    return int(str(each)) * (1 if is_tuned(values) else int(str(values.get("workload.connections", 1))))


def service_ns(values: Mapping[str, Value]) -> float:
    """The target's service time on average."""
    least_ns, most_ns = _service_range_ns(values)
    return (least_ns + most_ns) / 2


def service_spread_ns(values: Mapping[str, Value]) -> float:
    """How much more or less than the average it may be."""
    least_ns, most_ns = _service_range_ns(values)
    return (most_ns - least_ns) / 2


def _service_range_ns(values: Mapping[str, Value]) -> tuple[float, float]:
    delay = values.get("target.service-delay", 0)
    least, most = delay if isinstance(delay, list) else (delay, delay)
    return float(str(least)), float(str(most))


def stripe_count(values: Mapping[str, Value]) -> int:
    """Over how many targets blocks are dealt."""
    return len(target_delays(values)) // copy_count(values)


def access_of(values: Mapping[str, Value]) -> dict[str, Value]:
    """The line that all targets share, in either direction; empty without one."""
    return {
        name: values[key]
        for name, key in (("rate_bps", "link.access-rate"), ("queue_packets", "link.access-queue-packets"))
        if key in values
    }


def capture_at(values: Mapping[str, Value]) -> tuple[str, ...]:
    """Beside whom captures are taken: ``initiator``, ``target``."""
    if values.get("capture.is-untapped"):
        return ()
    where = str(values.get("capture.at", "both"))
    return {"both": ("initiator", "target"), "none": ()}.get(where, (where,))


def of_run(values: Mapping[str, Value], seed: int) -> dict[str, Any]:
    """The settings of a run; ``values`` are those of `vocabulary.SETTINGS` by dotted name."""
    workload = _named(values, "workload") | {"seed": seed}
    if any(f"workload.{name}" in values for name in ("queue-depth", "connection-depth")):
        workload["queue_depth"] = queue_depth(values)
    if is_tuned(values):
        workload["tuning"] = _tuning(values)
    calls, seconds = workload.pop("calls", None), workload.pop("seconds", None)
    if calls is not None:
        workload["total_bytes"] = calls * call_bytes(values)
    if seconds is not None:
        workload["duration_ns"] = round(seconds * _SECOND_NS)
    world = _world(values, seed)
    portals = [_portal(values, number, seed + number) for number in range(len(world["paths"]))]
    login = {"offers": _keys(values, "initiator.keys")}
    return {
        "client": {"login": login, "isid_seed": seed, "challenge_seed": seed, "workload": workload},
        "portals": portals,
        "world": world,
    }


def tcp_of(values: Mapping[str, Value], host: str) -> dict[str, Any]:
    """TCP of the ``initiator`` or the ``target``."""
    # off, as ours over sockets; a status is held by Nagle's algorithm
    is_held = host == "target" and values.get("target.status") == "apart_held"
    return {"nagle": is_held} | _named(values, "tcp") | _named(values, f"{host}.tcp", "tcp")


def link_of(values: Mapping[str, Value], direction: str) -> dict[str, Any]:
    """One direction of the link, ``to-target`` or ``to-initiator``."""
    return _named(values, "link") | _named(values, f"link.{direction}", "link")


def _world(values: Mapping[str, Value], seed: int) -> dict[str, Any]:
    own = [{} if delay_ns is None else {"delay_ns": delay_ns} for delay_ns in target_delays(values)]
    links = {direction.replace("-", "_"): link_of(values, direction) for direction in DIRECTIONS}
    paths: list[dict[str, Any]] = [
        {direction: link | more for direction, link in links.items()} | {"seed": seed + number}
        for number, more in enumerate(own)
    ]
    access = access_of(values)
    world: dict[str, Any] = {
        "initiator_tcp": tcp_of(values, "initiator"),
        "target_tcp": tcp_of(values, "target"),
        "access": dict.fromkeys(links, access) if access else None,
        "paths": paths,
        "seed": seed,
        "limit_ns": _LIMIT_NS,
    }
    for name, setting in (
        ("initiator.host-delay", "initiator_host_delay_ns"),
        ("target.host-delay", "target_host_delay_ns"),
        ("capture.snaplen", "snaplen_bytes"),
        ("capture.is-ipv6", "is_ipv6"),
    ):
        if name in values:
            world[setting] = values[name]
    if values.get("capture.is-untapped"):
        world["is_untapped"] = True
    return world


def _portal(values: Mapping[str, Value], number: int, seed: int) -> dict[str, Any]:
    name = TARGET_NAME if number == 0 else f"{TARGET_NAME}-{number + 1}"
    portal: dict[str, Any] = {"targets": [{"target_name": name}], "seed": seed}
    keys = {"header_digest": ["None", "CRC32C"], "data_digest": ["None", "CRC32C"], "max_connections": 64}
    portal["keys"] = keys | _keys(values, "target.keys")
    if "target.status" in values:
        portal["status"] = values["target.status"]
    if "target.command-window" in values:
        portal["command_window_count"] = values["target.command-window"]
    if values.get("target.is-serial"):
        portal["service_order"] = "one_at_a_time"
    if "target.service-delay" in values:
        delay = _service_delay(values["target.service-delay"])
        portal |= {"read_delay": delay, "write_delay": delay}
    return portal


def _service_delay(value: Value) -> dict[str, Any]:
    if isinstance(value, list):
        low_ns, high_ns = value
        return {"distribution": "uniform", "low_ns": low_ns, "high_ns": high_ns}
    return {"distribution": "fixed", "delay_ns": value}


def _tuning(values: Mapping[str, Value]) -> dict[str, Any]:
    found: dict[str, Any] = {"rule": _RULES[str(values["workload.connections-rule"])]}
    found |= {setting: values[f"workload.{name}"] for name, setting in _TUNING.items() if f"workload.{name}" in values}
    if "workload.path-rate" in values:
        found["line_bytes_per_s"] = int(str(values["workload.path-rate"])) / _BITS
    return found


def _keys(values: Mapping[str, Value], section: str) -> dict[str, Any]:
    return {LOGIN_KEYS[name][0]: value for name, value in _section(values, section).items()}


def _named(values: Mapping[str, Value], section: str, names: str = "") -> dict[str, Any]:
    """The settings of a section, as a run calls them."""
    known = _NAMES.get(names or section, {})
    own = _OWN.get(section, ())
    return {
        known.get(name, name.replace("-", "_")): value
        for name, value in _section(values, section).items()
        if name not in own
    }


def _section(values: Mapping[str, Value], section: str) -> dict[str, Any]:
    """Names and values right below a section."""
    prefix = f"{section}."
    return {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    }
