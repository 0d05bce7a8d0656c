"""The settings of a run, ``client``, ``portals`` and ``world``, from the values of its settings; for both worlds.

The values are those of a definition or of options. Fields that take a value as it is are in `table.SETTINGS`; this
module computes the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iscsitrace.lab.settings.kinds import Value
from iscsitrace.lab.settings.table import DIRECTIONS, SETTINGS, TARGET_NAME, Struct

_SECOND_NS = 1_000_000_000
LIMIT_NS = 3_600 * _SECOND_NS
"""Limit of the virtual time of a simulation."""
_RULES = {
    "model": "predicted",
    "golden": "golden_section",
    "plain_golden": "plain_golden_section",
    "measured": "measured",
}
_BITS = 8
_DEFAULT_CALL_BYTES = 65_536

Values = Mapping[str, Value | None]
"""Values by the dotted names of `table.SETTINGS`. None is the value of a login key that is not to be declared."""


def programs_of(values: Values) -> dict[str, Any]:
    """The programs of the real world, as fields of `lab.real.Programs`; those not named are left to its defaults."""
    found: dict[str, Any] = {
        name: str(word).replace("_", "-") for name, word in _fields(values, Struct.PROGRAM).items()
    }
    limit, rates = values.get("link.bypass-from"), [link_of(values, way).get("rate_bps") for way in DIRECTIONS]
    if limit and any(rate is None or rate >= limit for rate in rates):
        found["is_bypassed"] = True
    return found


def call_bytes(values: Values) -> int:
    """Bytes of a system call; without a system call size, each call is one command."""
    found = values.get("workload.system-call-size") or values.get("workload.block-size") or _DEFAULT_CALL_BYTES
    return int(str(found))


def target_delays(values: Values) -> list[Value | None]:
    """The one-way delay to each target; None for the delay of the link."""
    delays = values.get("link.target-delays")
    return list(delays) if isinstance(delays, list) else [None] * int(str(values.get("target.count", 1)))


def copy_count(values: Values) -> int:
    """The number of targets that get a copy of each block."""
    return len(target_delays(values)) if values.get("workload.layout") == "mirror" else 1


def is_tuned(values: Values) -> bool:
    """Whether the run measures numbers of connections, and may change them."""
    return "workload.connections-rule" in values


def queue_depth(values: Values) -> int:
    """System calls in flight in a session; on each connection where the number of connections is searched for."""
    each = values.get("workload.connection-depth")
    if each is None:
        return int(str(values.get("workload.queue-depth", 1)))
    return int(str(each)) * (1 if is_tuned(values) else int(str(values.get("workload.connections", 1))))


def service_ns(values: Values) -> float:
    """The mean service time of the target."""
    least_ns, most_ns = _service_range_ns(values)
    return (least_ns + most_ns) / 2


def service_spread_ns(values: Values) -> float:
    """The largest deviation of the service time from its mean."""
    least_ns, most_ns = _service_range_ns(values)
    return (most_ns - least_ns) / 2


def _service_range_ns(values: Values) -> tuple[float, float]:
    own = values.get(f"target.{values.get('workload.operation', 'read')}-delay")
    delay = values.get("target.service-delay", 0) if own is None else own
    least, most = delay if isinstance(delay, list) else (delay, delay)
    return float(str(least)), float(str(most))


def stripe_count(values: Values) -> int:
    """The number of targets that blocks are striped over."""
    return len(target_delays(values)) // copy_count(values)


def access_of(values: Values) -> dict[str, Any]:
    """The access link that all targets share, alike in both directions; empty without one."""
    return _fields(values, Struct.ACCESS)


def capture_at(values: Values) -> tuple[str, ...]:
    """Where captures are taken: ``initiator``, ``target``."""
    if values.get("capture.is-untapped"):
        return ()
    where = str(values.get("capture.at", "both"))
    return {"both": ("initiator", "target"), "none": ()}.get(where, (where,))


def of_run(values: Values, seed: int) -> dict[str, Any]:
    """The settings of a run."""
    world = world_of(values, seed)
    portals = [portal_of(values, number, seed + number) for number in range(len(world["paths"]))]
    login = {"offers": offers_of(values)}
    return {
        "client": {
            "login": login,
            "isid_seed": seed,
            "challenge_seed": seed,
            "workload": workload_of(values) | {"seed": seed},
        },
        "portals": portals,
        "world": world | {"limit_ns": LIMIT_NS},
    }


def offers_of(values: Values) -> dict[str, Any]:
    """The login keys that the initiator offers."""
    return _fields(values, Struct.KEYS, "initiator.keys")


def workload_of(values: Values) -> dict[str, Any]:
    """The workload, without a seed."""
    workload = _fields(values, Struct.WORKLOAD)
    if any(f"workload.{name}" in values for name in ("queue-depth", "connection-depth")):
        workload["queue_depth"] = queue_depth(values)
    if is_tuned(values):
        workload["tuning"] = _tuning(values)
    if "workload.calls" in values:
        workload["total_bytes"] = int(str(values["workload.calls"])) * call_bytes(values)
    if "workload.seconds" in values:
        workload["duration_ns"] = round(float(str(values["workload.seconds"])) * _SECOND_NS)
    return workload


def listed(workload: Mapping[str, Any]) -> dict[str, Any]:
    """A workload with a null for each field that is not set, as truth files list it; not every run has an operation."""
    names = [name for name in _names(Struct.WORKLOAD) if name != "operation"]
    found = dict.fromkeys((*names, "queue_depth", "duration_ns", "tuning")) | dict(workload)
    if found["tuning"]:
        # without what only definitions have
        names = [each.field for each in SETTINGS.values() if each.part == Struct.TUNING and each.help]
        found["tuning"] = dict.fromkeys((*names, "line_bytes_per_s")) | found["tuning"]
    return found


def _names(part: Struct) -> list[str]:
    return [setting.field for setting in SETTINGS.values() if setting.part == part]


def tcp_of(values: Values, host: str) -> dict[str, Any]:
    """TCP of the ``initiator`` or the ``target``."""
    # Nagle's algorithm is off, as on our sockets, unless the target's status is to be held by it
    is_held = host == "target" and values.get("target.status") == "apart_held"
    return {"nagle": is_held} | _fields(values, Struct.TCP, "tcp") | _fields(values, Struct.TCP, f"{host}.tcp")


def link_of(values: Values, direction: str) -> dict[str, Any]:
    """One direction of the link, ``to-target`` or ``to-initiator``."""
    return _fields(values, Struct.LINK, "link") | _fields(values, Struct.LINK, f"link.{direction}")


def link_of_both(values: Values) -> dict[str, dict[str, Any]]:
    """Both directions of the link, ``to_target`` and ``to_initiator``."""
    return {direction.replace("-", "_"): link_of(values, direction) for direction in DIRECTIONS}


def world_of(values: Values, seed: int) -> dict[str, Any]:
    """The hosts' TCP and the links between them."""
    own = [{} if delay_ns is None else {"delay_ns": delay_ns} for delay_ns in target_delays(values)]
    links = link_of_both(values)
    paths: list[dict[str, Any]] = [
        {direction: link | more for direction, link in links.items()} | {"seed": seed + number}
        for number, more in enumerate(own)
    ]
    access = access_of(values)
    return {
        "initiator_tcp": tcp_of(values, "initiator"),
        "target_tcp": tcp_of(values, "target"),
        "access": dict.fromkeys(links, access) if access else None,
        "paths": paths,
        "seed": seed,
        **fields_of_world(values),
    }


def fields_of_world(values: Values) -> dict[str, Any]:
    """Hosts, packets and captures: the fields of a world that are neither TCP nor links."""
    return _fields(values, Struct.WORLD) | ({"is_untapped": True} if values.get("capture.is-untapped") else {})


def portal_of(values: Values, number: int, seed: int) -> dict[str, Any]:
    """The portal of one of several targets, each with a unique name; without logical units."""
    name = str(values.get("target.name", TARGET_NAME))
    if number:
        name = f"{name}-{number + 1}"
    keys = {"header_digest": ["None", "CRC32C"], "data_digest": ["None", "CRC32C"], "max_connections": 64}
    portal: dict[str, Any] = {
        "targets": [{"target_name": name}],
        "seed": seed,
        "keys": keys | _fields(values, Struct.KEYS, "target.keys"),
        **_fields(values, Struct.PORTAL),
    }
    if "target.is-serial" in values:
        portal["service_order"] = "one_at_a_time" if values["target.is-serial"] else "parallel"
    for operation in ("read", "write"):
        delay = values.get(f"target.{operation}-delay", values.get("target.service-delay"))
        if delay is not None:
            portal[f"{operation}_delay"] = _service_delay(delay)
    return portal


def _service_delay(value: Value) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        low_ns, high_ns = value
        return {"distribution": "uniform", "low_ns": low_ns, "high_ns": high_ns}
    return {"distribution": "fixed", "delay_ns": value}


def _tuning(values: Values) -> dict[str, Any]:
    found: dict[str, Any] = {"rule": _RULES[str(values["workload.connections-rule"])]}
    found |= _fields(values, Struct.TUNING)
    if "workload.path-rate" in values:
        found["line_bytes_per_s"] = int(str(values["workload.path-rate"])) / _BITS
    return found


def _fields(values: Values, part: Struct, section: str | None = None) -> dict[str, Any]:
    """The fields of a part that take a value as it is; of every section that has some, or of one."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        setting = SETTINGS[name]
        if setting.part == part and (section is None or name.rpartition(".")[0] == section):
            found |= {setting.field: value} if setting.field else value if isinstance(value, dict) else {}
    return found
