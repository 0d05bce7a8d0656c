"""Faults as settings of a run of our own programs: what each adds to ``client``, ``portals`` and ``world``.

The core makes them, in virtual time or over the kernel's TCP. Times count from the first I/O, as in guests.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iscsitrace.errors import InputInvalid
from iscsitrace.lab import places
from iscsitrace.lab.faults import addresses
from iscsitrace.lab.faults.addresses import NAMESPACES, SIMULATED
from iscsitrace.lab.faults.fault import Fault
from iscsitrace.lab.run_files import INITIATOR, targets

TARGET = "target"
_RUNS = (SIMULATED, NAMESPACES)
_ALL = (SIMULATED, NAMESPACES, TARGET)

_S = 1_000_000_000
_SECTOR_BYTES = 512
_ETHERNET_BYTES = 14
# an Ethernet frame with the longest headers of IP and TCP, and no data; the shortest PDU makes any other frame longer
_MOST_ACK_BYTES = {False: 14 + 20 + 60, True: 14 + 40 + 60}
_READ_ERROR, _WRITE_ERROR = (0x03, 0x11, 0x00), (0x03, 0x0C, 0x00)
_NO_SPACE, _NO_UNIT = (0x07, 0x27, 0x07), (0x05, 0x25, 0x00)
_AUTHORIZATION_FAILURE, _NOT_FOUND, _MOVED = (2, 2), (2, 3), (1, 1)
_MANAGEMENT_NS = 15 * _S
_STUCK_MANAGEMENT_NS = 3 * _S
_ERRORS_ALLOWED = 1 << 40
_UNMAP_AT_SHARE = 2
_PORT = 3260
# for the login through a portal that never answers: three SYNs
_LOGIN_NS = 6 * _S
_STATUS_PARTS, _CLASSES, _MOST_DETAIL = 2, (2, 3), 255

Settings = dict[str, Any]
"""``client``, ``portals`` and ``world`` of a run; of a target alone, its ``portals``."""


@dataclass(frozen=True)
class Placed:
    """A fault in a run: its number there, its details, and the target that it is about."""

    number: int
    fault: Fault
    target: int
    """0 for one of the initiator."""
    world: str

    def __getitem__(self, name: str) -> Any:
        return self.fault.details[name]

    @property
    def when(self) -> dict[str, Any]:
        """When it is there, for the core."""
        if not self.fault.kind.is_timed:
            return {"fault": self.number}
        return {"fault": self.number, "at_ns": self["at"], "for_ns": self["for"]}


@dataclass(frozen=True)
class Effect:
    """What a kind of fault changes in the settings, and the worlds where it does."""

    apply: Callable[[Settings, Placed], None]
    worlds: tuple[str, ...] = _RUNS
    require: Callable[[Fault], None] = lambda _: None
    """Raises InputInvalid for details that these worlds do not have."""


def with_faults(settings: Mapping[str, Any], faults: Sequence[Fault], world: str) -> Settings:
    """The settings of a run with faults: the initiator then recovers lost sessions, and goes on after errors."""
    changed: Settings = copy.deepcopy(dict(settings))
    if not faults:
        return changed
    client = changed.setdefault("client", {})
    client["recovery"] = {}
    client.setdefault("timeouts", {}).setdefault("management_ns", _MANAGEMENT_NS)
    client.setdefault("workload", {})["errors_allowed"] = _ERRORS_ALLOWED
    hosts = targets(len(changed["portals"]))
    for number, fault in enumerate(faults):
        target = 0 if fault.host == INITIATOR else hosts.index(fault.host)
        EFFECTS[fault.kind.name].apply(changed, Placed(number, fault, target, world))
    return changed


def duration_ns(faults: Sequence[Fault], after_ns: int = 5 * _S) -> int | None:
    """How long a run lasts that shows all its timed faults and some time after them; None without timed ones."""
    ends = [each.details["at"] + each.details["for"] for each in faults if each.kind.is_timed]
    return max(ends) + after_ns if ends else None


def _directions(settings: Settings, placed: Placed, direction: str = "both") -> list[Settings]:
    path = settings["world"]["paths"][placed.target]
    names = ("to_target", "to_initiator") if direction == "both" else (direction,)
    return [path.setdefault(name, {}) for name in names]


def _interrupt(settings: Settings, placed: Placed, direction: str = "both", **what: Any) -> None:
    for way in _directions(settings, placed, direction):
        way["interruptions"] = [*way.get("interruptions", ()), {"when": placed.when, **what}]


def _black_out(settings: Settings, placed: Placed) -> None:
    _interrupt(settings, placed, placed["direction"])


def _mtu_hole(settings: Settings, placed: Placed) -> None:
    _interrupt(settings, placed, more_than_bytes=placed["bytes"] + _ETHERNET_BYTES)


def _ack_loss(settings: Settings, placed: Placed) -> None:
    most = _MOST_ACK_BYTES[bool(settings["world"].get("is_ipv6"))]
    _interrupt(settings, placed, placed["direction"], at_most_bytes=most, probability=placed["share"])


def _reordering(settings: Settings, placed: Placed) -> None:
    held = {"when": placed.when, "probability": placed["share"], "by_ns": placed["by"]}
    for way in _directions(settings, placed, placed["direction"]):
        way["reorderings"] = [*way.get("reorderings", ()), held]


def _host_fault(kind: str) -> Callable[[Settings, Placed], None]:
    def apply_it(settings: Settings, placed: Placed) -> None:
        target = None if placed.fault.host == INITIATOR else placed.target
        settings["world"].setdefault("faults", []).append({"kind": kind, "target": target, "when": placed.when})

    return apply_it


def _flap(settings: Settings, placed: Placed) -> None:
    if placed.world == SIMULATED:
        _host_fault("card_down")(settings, placed)
        return
    # nothing leaves the card: lab.faults.hosts
    is_initiator = placed.fault.host == INITIATOR
    paths = settings["world"]["paths"]
    for path in paths if is_initiator else paths[placed.target : placed.target + 1]:
        way = path.setdefault("to_initiator" if is_initiator else "to_target", {})
        way["interruptions"] = [*way.get("interruptions", ()), {"when": placed.when}]


def _small_buffers(settings: Settings, placed: Placed) -> None:
    host = "initiator" if placed.fault.host == INITIATOR else "target"
    sizes = dict.fromkeys(("receive_buffer_bytes", "send_buffer_bytes"), placed["bytes"])
    settings["world"][f"{host}_tcp"] = {**settings["world"].get(f"{host}_tcp", {}), **sizes}


def _condition(settings: Settings, placed: Placed, kind: Any, **more: Any) -> None:
    portal = settings["portals"][placed.target]
    condition = {"kind": kind, "when": placed.when, **more}
    portal["conditions"] = [*portal.get("conditions", ()), condition]


def _on_disk(kind: str) -> Callable[[Settings, Placed], None]:
    def apply_it(settings: Settings, placed: Placed) -> None:
        for operation in ("read", "write"):
            _condition(settings, placed, kind, lun=_lun(settings, placed), operation=operation)

    return apply_it


def _unit(settings: Settings, placed: Placed) -> Settings:
    units = settings["portals"][placed.target]["targets"][0].get("logical_units") or [{}]
    if placed["disk"] >= len(units):
        raise InputInvalid(f"{placed.fault.kind.name}: {placed.fault.host} has {len(units)} disks")
    return dict(units[placed["disk"]])


def _lun(settings: Settings, placed: Placed) -> int:
    _unit(settings, placed)
    return int(placed["disk"])


def _storage_errors(settings: Settings, placed: Placed) -> None:
    _fail(settings, placed, placed.when, _blocks(placed["sectors"], _unit(settings, placed)))


def _fail(settings: Settings, placed: Placed, when: Settings, blocks: list[int] | None = None) -> None:
    for operation, sense in (("read", _READ_ERROR), ("write", _WRITE_ERROR)):
        lun, kind = _lun(settings, placed), {"check_condition": list(sense)}
        _condition(settings, placed, kind, lun=lun, operation=operation, blocks=blocks)
        settings["portals"][placed.target]["conditions"][-1]["when"] = when


def _blocks(sectors: str, unit: Settings) -> list[int] | None:
    """The first and last logical block of ``all`` (None), or of sectors like ``0-2047``."""
    if sectors == "all":
        return None
    words = sectors.split("-")
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[0]) > int(words[1]):
        raise InputInvalid(f"storage-errors: sectors={sectors} is neither all nor a range like 0-2047")
    each = unit.get("block_bytes", _SECTOR_BYTES) // _SECTOR_BYTES
    return [int(word) // each for word in words]


def _storage_flaky(settings: Settings, placed: Placed) -> None:
    at_ns, end_ns = placed["at"] + placed["up"], placed["at"] + placed["for"]
    period_ns = placed["up"] + placed["down"]
    if not placed["down"] or period_ns <= 0:
        raise InputInvalid("storage-flaky: down=0s is never")
    while at_ns < end_ns:
        when = {"fault": placed.number, "at_ns": at_ns, "for_ns": min(placed["down"], end_ns - at_ns)}
        _fail(settings, placed, when)
        at_ns += period_ns


def _storage_slow(settings: Settings, placed: Placed) -> None:
    for operation in ("read", "write"):
        if placed["operation"] in {operation, "all"}:
            _condition(settings, placed, {"slow": placed["by"]}, lun=_lun(settings, placed), operation=operation)


def _storage_full(settings: Settings, placed: Placed) -> None:
    kind = {"check_condition": list(_NO_SPACE)}
    lun = _lun(settings, placed)
    _condition(settings, placed, kind, lun=lun, operation="write", after_bytes=placed["bytes"])


def _stuck(settings: Settings, placed: Placed) -> None:
    settings["client"]["timeouts"] |= {"task_ns": placed["timeout"], "management_ns": _STUCK_MANAGEMENT_NS}
    _condition(settings, placed, "stuck", lun=_lun(settings, placed))


def _removed(settings: Settings, placed: Placed) -> None:
    _condition(settings, placed, {"check_condition": list(_NO_UNIT)}, lun=_lun(settings, placed))
    # for good, unless it says how long
    if not placed["for"]:
        settings["portals"][placed.target]["conditions"][-1]["when"]["for_ns"] = None


def _incident(settings: Settings, placed: Placed, kind: Any) -> None:
    settings["client"].setdefault("incidents", []).append({"kind": kind, "when": placed.when})


def _unreachable_portal(settings: Settings, placed: Placed) -> None:
    is_ipv6 = bool(settings["world"].get("is_ipv6"))
    own = addresses.of_target(placed.world, placed.target, is_ipv6=is_ipv6)
    nobody = addresses.of_nobody(placed.world, is_ipv6=is_ipv6)
    listed = [places.portal(str(own), _PORT), places.portal(str(nobody), placed["port"])]
    settings["portals"][placed.target]["addresses"] = listed
    settings["client"]["timeouts"]["login_ns"] = _LOGIN_NS
    _incident(settings, placed, "rescan")
    settings["client"]["incidents"][-1]["when"]["at_ns"] = 0


def _require_own_name(fault: Fault) -> None:
    _on_target(fault)
    if fault.details["name"] != fault.kind.details["name"].default:
        raise InputInvalid("duplicate-initiator: here the second initiator takes the name of ours, and no other")


def _on_target(fault: Fault) -> None:
    if fault.host != "target":
        raise InputInvalid(f"{fault.kind.name}: only on=target")


def _slow_unmap(settings: Settings, placed: Placed) -> None:
    unit = _unit(settings, placed)
    block_count = unit.get("size_bytes", 1 << 30) // unit.get("block_bytes", _SECTOR_BYTES)
    lba = block_count // _UNMAP_AT_SHARE
    if lba + placed["blocks"] * placed["count"] > block_count:
        raise InputInvalid(f"slow-unmap: the disk has no room for {placed['count']} times {placed['blocks']} blocks")
    _incident(settings, placed, {"unmap": {"lba": lba, "blocks": placed["blocks"], "count": placed["count"]}})
    _condition(settings, placed, {"slow": placed["by"]}, lun=_lun(settings, placed), operation="unmap")
    settings["portals"][placed.target]["conditions"][-1]["when"]["for_ns"] = None


def _wrong_chap(settings: Settings, placed: Placed) -> None:
    portal, login = settings["portals"][placed.target], settings["client"].setdefault("login", {})
    account = ((portal.get("chap") or {}).get("initiators") or [{"name": "backup", "secret": "SecretOfTarget"}])[0]
    portal["chap"] = portal.get("chap") or {"initiators": [account]}
    login["chap"] = {"name": account["name"], "secret": placed["secret"]}


def _refused(status: tuple[int, int]) -> Callable[[Settings, Placed], None]:
    def apply_it(settings: Settings, placed: Placed) -> None:
        _condition(settings, placed, {"login_refused": {"status": list(status)}})

    return apply_it


def _status(text: str) -> list[int]:
    parts = [int(part) for part in text.split("/") if part.isdecimal()]
    is_read = len(parts) == _STATUS_PARTS == len(text.split("/")) and parts[0] in _CLASSES and parts[1] <= _MOST_DETAIL
    if not is_read:
        raise InputInvalid(f"login-refused: status={text} is not a class and detail like 2/1, 2/3 or 3/1")
    return parts


def _require_status(fault: Fault) -> None:
    _status(fault.details["status"])


def _login_refused(settings: Settings, placed: Placed) -> None:
    kind = {"login_refused": {"status": _status(placed["status"])}}
    _condition(settings, placed, kind, most=placed["count"] or None)


def _login_redirected(settings: Settings, placed: Placed) -> None:
    own = addresses.of_target(placed.world, placed.target, is_ipv6=bool(settings["world"].get("is_ipv6")))
    kind = {"login_refused": {"status": list(_MOVED), "addresses": [f"{places.portal(str(own), _PORT)},1"]}}
    _condition(settings, placed, kind, most=1)


def _key_mismatch(settings: Settings, placed: Placed) -> None:
    key = {"HeaderDigest": "header_digest", "DataDigest": "data_digest"}[placed["key"]]
    settings["portals"][placed.target]["keys"] |= {key: ["CRC32C"]}
    settings["client"].setdefault("login", {}).setdefault("offers", {})[key] = ["None"]


def _reservation(settings: Settings, placed: Placed) -> None:
    for operation in ("write",) if placed["type"] == "write_exclusive" else ("read", "write"):
        _condition(settings, placed, "reservation_conflict", operation=operation)


def _on_initiator(fault: Fault) -> None:
    if fault.host != INITIATOR:
        raise InputInvalid(f"{fault.kind.name}: only with on=initiator")


def _require_workload(fault: Fault) -> None:
    _on_initiator(fault)
    if fault.details["program"] != "fio":
        raise InputInvalid(
            "program-paused: our initiator has no iscsid, and our target no tgtd; it pauses the workload"
        )


EFFECTS = {
    "black-out": Effect(_black_out),
    "mtu-hole": Effect(_mtu_hole),
    "ack-loss": Effect(_ack_loss),
    "reordering": Effect(_reordering),
    "flap": Effect(_flap),
    "rst": Effect(_host_fault("reset")),
    "small-buffers": Effect(_small_buffers),
    "target-restart": Effect(lambda settings, placed: _condition(settings, placed, "restart"), _ALL),
    "program-paused": Effect(lambda settings, placed: _incident(settings, placed, "pause"), require=_require_workload),
    "storage-errors": Effect(_storage_errors, _ALL),
    "storage-flaky": Effect(_storage_flaky, _ALL),
    "storage-slow": Effect(_storage_slow, _ALL),
    "storage-full": Effect(_storage_full, _ALL),
    "stuck-command": Effect(_stuck),
    "lun-reset": Effect(
        lambda settings, placed: _incident(settings, placed, "logical_unit_reset"), require=_on_initiator
    ),
    "lun-removed": Effect(_removed, _ALL),
    "slow-unmap": Effect(_slow_unmap),
    "wrong-chap": Effect(_wrong_chap),
    "no-acl": Effect(_refused(_AUTHORIZATION_FAILURE), _ALL),
    "unknown-target": Effect(_refused(_NOT_FOUND), _ALL),
    "login-refused": Effect(_login_refused, _ALL, require=_require_status),
    "login-redirected": Effect(_login_redirected),
    "unreachable-portal": Effect(_unreachable_portal, require=_on_target),
    "duplicate-initiator": Effect(
        lambda settings, placed: _incident(settings, placed, {"duplicate_login": {"every_ns": placed["every"]}}),
        require=_require_own_name,
    ),
    "key-mismatch": Effect(_key_mismatch),
    "reservation-held": Effect(_reservation, _ALL),
    "busy": Effect(_on_disk("busy"), _ALL),
    "task-set-full": Effect(_on_disk("task_set_full"), _ALL),
}
"""What each fault that our own programs make changes."""
