"""Faults as settings of a run of our own programs: what each adds to ``client``, ``portals`` and ``world``.

The core makes them, in virtual time or over the kernel's TCP. Times count from the first I/O, as in guests. A rule of
RFC 7143 that our programs break is a fault of its name in conformance, like ``D18,every=3``. The core breaks it where
it makes the PDU (core/lab/src/protocol/initiator/breach.rs, target/breach.rs).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from iscsitrace.errors import InputInvalid
from iscsitrace.lab import places
from iscsitrace.lab.faults.fault import (
    INITIATOR_ALONE,
    SIMULATED,
    TARGET,
    Fault,
    FaultDetail,
    FaultKind,
    Ours,
    Placed,
    Settings,
    address_of_nobody,
    address_of_target,
)
from iscsitrace.lab.run_files import INITIATOR, targets
from iscsitrace.lab.settings.kinds import COUNT

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
        if fault.kind.ours is None:
            raise InputInvalid(f"{fault.kind.name}: only guests can make it")
        fault.kind.ours.apply(changed, Placed(number, fault, target, world))
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


def black_out(settings: Settings, placed: Placed) -> None:
    _interrupt(settings, placed, placed["direction"])


def mtu_hole(settings: Settings, placed: Placed) -> None:
    _interrupt(settings, placed, more_than_bytes=placed["bytes"] + _ETHERNET_BYTES)


def ack_loss(settings: Settings, placed: Placed) -> None:
    most = _MOST_ACK_BYTES[bool(settings["world"].get("is_ipv6"))]
    _interrupt(settings, placed, placed["direction"], at_most_bytes=most, probability=placed["share"])


def reordering(settings: Settings, placed: Placed) -> None:
    held = {"when": placed.when, "probability": placed["share"], "by_ns": placed["by"]}
    for way in _directions(settings, placed, placed["direction"]):
        way["reorderings"] = [*way.get("reorderings", ()), held]


def host_fault(kind: str) -> Callable[[Settings, Placed], None]:
    def apply_it(settings: Settings, placed: Placed) -> None:
        target = None if placed.fault.host == INITIATOR else placed.target
        settings["world"].setdefault("faults", []).append({"kind": kind, "target": target, "when": placed.when})

    return apply_it


def flap(settings: Settings, placed: Placed) -> None:
    if placed.world == SIMULATED:
        host_fault("card_down")(settings, placed)
        return
    # nothing leaves the card: lab.real
    is_initiator = placed.fault.host == INITIATOR
    paths = settings["world"]["paths"]
    for path in paths if is_initiator else paths[placed.target : placed.target + 1]:
        way = path.setdefault("to_initiator" if is_initiator else "to_target", {})
        way["interruptions"] = [*way.get("interruptions", ()), {"when": placed.when}]


def small_buffers(settings: Settings, placed: Placed) -> None:
    host = "initiator" if placed.fault.host == INITIATOR else "target"
    sizes = dict.fromkeys(("receive_buffer_bytes", "send_buffer_bytes"), placed["bytes"])
    settings["world"][f"{host}_tcp"] = {**settings["world"].get(f"{host}_tcp", {}), **sizes}


def at_target(settings: Settings, placed: Placed, fault: str, **details: Any) -> None:
    """A fault of the core's target (core/lab/src/protocol/target/fault.rs), with details as they are named there."""
    portal = settings["portals"][placed.target]
    portal["faults"] = [*portal.get("faults", ()), {"fault": fault, "when": placed.when, **details}]


def on_disk(fault: str) -> Callable[[Settings, Placed], None]:
    def apply_it(settings: Settings, placed: Placed) -> None:
        for operation in ("read", "write"):
            at_target(settings, placed, fault, lun=_lun(settings, placed), operation=operation)

    return apply_it


def _unit(settings: Settings, placed: Placed) -> Settings:
    units = settings["portals"][placed.target]["targets"][0].get("logical_units") or [{}]
    if placed["disk"] >= len(units):
        raise InputInvalid(f"{placed.fault.kind.name}: {placed.fault.host} has {len(units)} disks")
    return dict(units[placed["disk"]])


def _lun(settings: Settings, placed: Placed) -> int:
    _unit(settings, placed)
    return int(placed["disk"])


def storage_errors(settings: Settings, placed: Placed) -> None:
    _fail(settings, placed, placed.when, _blocks(placed["sectors"], _unit(settings, placed)))


def _fail(settings: Settings, placed: Placed, when: Settings, blocks: list[int] | None = None) -> None:
    for operation, sense in (("read", _READ_ERROR), ("write", _WRITE_ERROR)):
        where = {"lun": _lun(settings, placed), "operation": operation, "blocks": blocks}
        at_target(settings, placed, "check_condition", sense=list(sense), when=when, **where)


def _blocks(sectors: str, unit: Settings) -> list[int] | None:
    """The first and last logical block of ``all`` (None), or of sectors like ``0-2047``."""
    if sectors == "all":
        return None
    words = sectors.split("-")
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[0]) > int(words[1]):
        raise InputInvalid(f"storage-errors: sectors={sectors} is neither all nor a range like 0-2047")
    each = unit.get("block_bytes", _SECTOR_BYTES) // _SECTOR_BYTES
    return [int(word) // each for word in words]


def storage_flaky(settings: Settings, placed: Placed) -> None:
    at_ns, end_ns = placed["at"] + placed["up"], placed["at"] + placed["for"]
    period_ns = placed["up"] + placed["down"]
    if not placed["down"] or period_ns <= 0:
        raise InputInvalid("storage-flaky: down=0s is never")
    while at_ns < end_ns:
        when = {"fault": placed.number, "at_ns": at_ns, "for_ns": min(placed["down"], end_ns - at_ns)}
        _fail(settings, placed, when)
        at_ns += period_ns


def storage_slow(settings: Settings, placed: Placed) -> None:
    for operation in ("read", "write"):
        if placed["operation"] in {operation, "all"}:
            at_target(settings, placed, "slow", by_ns=placed["by"], lun=_lun(settings, placed), operation=operation)


def storage_full(settings: Settings, placed: Placed) -> None:
    where = {"lun": _lun(settings, placed), "operation": "write"}
    at_target(settings, placed, "check_condition", sense=list(_NO_SPACE), after_bytes=placed["bytes"], **where)


def stuck_command(settings: Settings, placed: Placed) -> None:
    settings["client"]["timeouts"] |= {"task_ns": placed["timeout"], "management_ns": _STUCK_MANAGEMENT_NS}
    at_target(settings, placed, "stuck", lun=_lun(settings, placed))


def lun_removed(settings: Settings, placed: Placed) -> None:
    # for good, unless it says how long
    when = placed.when | {"for_ns": placed["for"] or None}
    at_target(settings, placed, "check_condition", sense=list(_NO_UNIT), lun=_lun(settings, placed), when=when)


def _incident(settings: Settings, placed: Placed, kind: Any) -> None:
    settings["client"].setdefault("incidents", []).append({"kind": kind, "when": placed.when})


def unreachable_portal(settings: Settings, placed: Placed) -> None:
    is_ipv6 = bool(settings["world"].get("is_ipv6"))
    own = address_of_target(placed.world, placed.target, is_ipv6=is_ipv6)
    nobody = address_of_nobody(placed.world, is_ipv6=is_ipv6)
    listed = [places.portal(str(own), _PORT), places.portal(str(nobody), placed["port"])]
    settings["portals"][placed.target]["addresses"] = listed
    settings["client"]["timeouts"]["login_ns"] = _LOGIN_NS
    _incident(settings, placed, "rescan")
    settings["client"]["incidents"][-1]["when"]["at_ns"] = 0


def require_own_name(fault: Fault) -> None:
    require_on_target(fault)
    if fault.details["name"] != fault.kind.details["name"].default:
        raise InputInvalid("duplicate-initiator: here the second initiator takes the name of ours, and no other")


def require_on_target(fault: Fault) -> None:
    if fault.host != "target":
        raise InputInvalid(f"{fault.kind.name}: only on=target")


def slow_unmap(settings: Settings, placed: Placed) -> None:
    unit = _unit(settings, placed)
    block_count = unit.get("size_bytes", 1 << 30) // unit.get("block_bytes", _SECTOR_BYTES)
    lba = block_count // _UNMAP_AT_SHARE
    if lba + placed["blocks"] * placed["count"] > block_count:
        raise InputInvalid(f"slow-unmap: the disk has no room for {placed['count']} times {placed['blocks']} blocks")
    _incident(settings, placed, {"unmap": {"lba": lba, "blocks": placed["blocks"], "count": placed["count"]}})
    where = {"lun": _lun(settings, placed), "operation": "unmap"}
    at_target(settings, placed, "slow", by_ns=placed["by"], when=placed.when | {"for_ns": None}, **where)


def wrong_chap(settings: Settings, placed: Placed) -> None:
    portal, login = settings["portals"][placed.target], settings["client"].setdefault("login", {})
    account = ((portal.get("chap") or {}).get("initiators") or [{"name": "backup", "secret": "SecretOfTarget"}])[0]
    portal["chap"] = portal.get("chap") or {"initiators": [account]}
    login["chap"] = {"name": account["name"], "secret": placed["secret"]}


def no_acl(settings: Settings, placed: Placed) -> None:
    at_target(settings, placed, "login_refused", status=list(_AUTHORIZATION_FAILURE))


def unknown_target(settings: Settings, placed: Placed) -> None:
    at_target(settings, placed, "login_refused", status=list(_NOT_FOUND))


def _status(text: str) -> list[int]:
    parts = [int(part) for part in text.split("/") if part.isdecimal()]
    is_read = len(parts) == _STATUS_PARTS == len(text.split("/")) and parts[0] in _CLASSES and parts[1] <= _MOST_DETAIL
    if not is_read:
        raise InputInvalid(f"login-refused: status={text} is not a class and detail like 2/1, 2/3 or 3/1")
    return parts


def require_status(fault: Fault) -> None:
    _status(fault.details["status"])


def login_refused(settings: Settings, placed: Placed) -> None:
    at_target(settings, placed, "login_refused", status=_status(placed["status"]), most=placed["count"] or None)


def login_redirected(settings: Settings, placed: Placed) -> None:
    own = address_of_target(placed.world, placed.target, is_ipv6=bool(settings["world"].get("is_ipv6")))
    elsewhere = [f"{places.portal(str(own), _PORT)},1"]
    at_target(settings, placed, "login_refused", status=list(_MOVED), addresses=elsewhere, most=1)


def key_mismatch(settings: Settings, placed: Placed) -> None:
    key = {"HeaderDigest": "header_digest", "DataDigest": "data_digest"}[placed["key"]]
    settings["portals"][placed.target]["keys"] |= {key: ["CRC32C"]}
    settings["client"].setdefault("login", {}).setdefault("offers", {})[key] = ["None"]


def reservation_held(settings: Settings, placed: Placed) -> None:
    for operation in ("write",) if placed["type"] == "write_exclusive" else ("read", "write"):
        at_target(settings, placed, "reservation_conflict", operation=operation)


def require_on_initiator(fault: Fault) -> None:
    if fault.host != INITIATOR:
        raise InputInvalid(f"{fault.kind.name}: only with on=initiator")


def require_workload(fault: Fault) -> None:
    require_on_initiator(fault)
    if fault.details["program"] != "fio":
        raise InputInvalid(
            "program-paused: our initiator has no iscsid, and our target no tgtd; it pauses the workload"
        )


def target_restart(settings: Settings, placed: Placed) -> None:
    at_target(settings, placed, "restart")


def program_paused(settings: Settings, placed: Placed) -> None:
    _incident(settings, placed, "pause")


def lun_reset(settings: Settings, placed: Placed) -> None:
    _incident(settings, placed, "logical_unit_reset")


def duplicate_initiator(settings: Settings, placed: Placed) -> None:
    _incident(settings, placed, {"duplicate_login": {"every_ns": placed["every"]}})


_PING_NS: Final = 1_000_000_000
_LOGOUT_AT: Final = 10

BREACHES: Final[Mapping[str, Mapping[str, str]]] = {
    # command and status numbers
    "S1": {"initiator": "Skips a CmdSN."},
    "S2": {"initiator": "Sends a command with the CmdSN of the one before it."},
    "S3": {"initiator": "Sends a command beyond MaxCmdSN."},
    "S4": {"initiator": "Uses up a CmdSN for an immediate PDU."},
    "S5": {"target": "Acknowledges 8 commands that were not sent: ExpCmdSN is too high."},
    "S6": {"target": "Takes ExpCmdSN back by 8."},
    "S7": {"target": "Sends a MaxCmdSN 8 below ExpCmdSN."},
    "S8": {"target": "Never increases MaxCmdSN again."},
    "S9": {"target": "Skips a StatSN."},
    "S10": {"target": "Uses a StatSN for two PDUs."},
    "S11": {"target": "Uses up a StatSN for an R2T, or for a ping of its own."},
    "S12": {"initiator": "Acknowledges 8 PDUs that were not sent: ExpStatSN is too high."},
    "S13": {"initiator": "Never increases ExpStatSN again."},
    "S14": {"target": "Skips a DataSN of a read."},
    "S15": {"initiator": "Skips a DataSN of a burst."},
    "S16": {"target": "Skips an R2TSN."},
    "S17": {"target": "Sends an ExpDataSN that is one more than the Data-In of the read; for --set status=apart."},
    # tasks
    "T1": {"initiator": "Sends a command with the Initiator Task Tag of an open task."},
    "T2": {"target": "Sends a SCSI Response with a tag that no task has."},
    "T3": {"target": "Sends a SCSI Response twice, with a StatSN each."},
    "T4": {"target": "Sends an R2T with the Target Transfer Tag 0xffffffff."},
    "T5": {"initiator": "Sends a Data-Out with a Target Transfer Tag that no R2T has."},
    "T6": {"initiator": "Sends a Data-Out, or the answer to a ping, with another LUN than the target's."},
    "T7": {"target": "Sends an R2T with another LUN than the command's."},
    "T8": {
        "initiator": "Sends the data for an R2T over another connection of the session.",
        "target": "Sends a SCSI Response over another connection of the session.",
    },
    # data
    "D1": {"initiator": "Sends immediate data although ImmediateData=No."},
    "D2": {"initiator": "Sends unsolicited Data-Out although InitialR2T=Yes."},
    "D3": {"initiator": "Sends a whole write unsolicited, beyond FirstBurstLength."},
    "D4": {"initiator": "Leaves out F in the last Data-Out of a burst."},
    "D5": {"target": "Asks for more than MaxBurstLength by an R2T, in a session."},
    "D6": {"target": "Asks by an R2T for 512 bytes beyond the Expected Data Transfer Length."},
    "D7": {"target": "Asks by R2T for data that arrived unsolicited."},
    "D8": {"target": "Sends one R2T more than MaxOutstandingR2T, in a session."},
    "D9": {"initiator": "Ends a burst 512 bytes before its R2T is filled."},
    "D10": {
        "initiator": "Exchanges two Data-Out of a burst.",
        "target": "Exchanges two Data-In of a sequence.",
    },
    "D11": {
        "initiator": "Sends the data for an R2T before that for an earlier one of the task.",
        "target": "Asks for the parts of writes in reverse, or as --set r2t-order says, in a session.",
    },
    "D12": {"target": "Sends a Data-In twice, under the next DataSN."},
    "D13": {"target": "Sends 512 bytes beyond the Expected Data Transfer Length of a read."},
    "D14": {"target": "Leaves out F where a sequence of Data-In reaches MaxBurstLength."},
    "D15": {"target": "Sets S without F."},
    "D16": {
        "initiator": "Sends a Data-Out longer than the target's MaxRecvDataSegmentLength.",
        "target": "Sends a Data-In longer than the initiator's MaxRecvDataSegmentLength.",
    },
    "D17": {"target": "Answers a read GOOD after half of its data, without a residual."},
    "D18": {"target": "Answers a write GOOD without having asked for its data."},
    "D19": {"target": "Reports an overflow of 512 bytes that the command does not have."},
    "D20": {"target": "Sets U with a Residual Count of 0."},
    "D21": {
        "initiator": "Computes a digest wrongly, the data digest if both are agreed.",
        "target": "Computes a digest wrongly, the data digest if both are agreed.",
    },
    # management
    "M1": {"initiator": "Leaves a ping of the target unanswered; the target pings after 1 s without a PDU."},
    "M2": {"target": "Leaves a NOP-Out unanswered."},
    "M3": {"target": "Answers a task after it has reported its abort."},
    "M5": {"target": "Leaves a Logout Request unanswered."},
    "M6": {"initiator": "Ignores that the target requests a logout within 3 s; the target does at its 10th command."},
    "M7": {"target": "Rejects a command that is legal."},
    "M8": {"initiator": "Sends a SNACK at ErrorRecoveryLevel 0."},
    "M9": {"initiator": "Sends a command after the Logout Request."},
    "M10": {"target": "Leaves a task management function unanswered."},
    # login and text
    "L1": {
        "initiator": "Asks to go on to the stage that the login is in.",
        "target": "Goes to a stage that was not asked for.",
    },
    "L2": {"target": "Answers HeaderDigest with CRC32C, or with None: the other one than it chose."},
    "L3": {
        "initiator": "Offers MaxBurstLength=511.",
        "target": "Answers MaxBurstLength with 16777215.",
    },
    "L4": {
        "initiator": "Offers MaxBurstLength twice.",
        "target": "Does not answer MaxOutstandingR2T.",
    },
    "L5": {"initiator": "Logs in with the name and ISID of a live session, once a second."},
    "L6": {
        "initiator": "Sends a Text Request with both F and C.",
        "target": "Sends a final Text Response with a Target Transfer Tag.",
    },
    "L7": {
        "initiator": "Offers a FirstBurstLength one above its MaxBurstLength.",
        "target": "Answers MaxBurstLength with half of its FirstBurstLength.",
    },
}
"""What each side does that breaks a rule, by rule and side."""


def _side(host: str) -> str:
    return INITIATOR if host == INITIATOR else "target"


def _require_breaking_side(fault: Fault) -> None:
    rule, side = fault.kind.name, _side(fault.host)
    if side not in BREACHES[rule]:
        raise InputInvalid(f"{rule}: the {side} cannot break it; on={next(iter(BREACHES[rule]))} can")


def _count_of_breach(placed: Placed) -> Settings:
    every = placed["every"]
    return {"nth": every or placed["nth"], "is_repeated": bool(every)}


def _break_rule(settings: Settings, placed: Placed) -> None:
    rule, side = placed.fault.kind.name, _side(placed.fault.host)
    if rule == "L5":
        incident = {"kind": {"duplicate_login": {"every_ns": _PING_NS}}, "when": placed.when | {"at_ns": _PING_NS}}
        settings["client"].setdefault("incidents", []).append(incident)
        return
    if rule == "M7":
        at_target(settings, placed, "reject", **_count_of_breach(placed))
        return
    for portal in settings["portals"]:
        if rule == "M1":
            portal.setdefault("nop_in_interval_ns", _PING_NS)
        if rule == "M6":
            portal["faults"] = [*portal.get("faults", ()), {"fault": "logout_requested", "nth": _LOGOUT_AT}]
    breaker = settings["client"] if side == INITIATOR else settings["portals"][placed.target]
    breach = {"rule": rule, "fault": placed.number, **_count_of_breach(placed)}
    breaker["breaks"] = [*breaker.get("breaks", ()), breach]


def _kind_of_rule(rule: str, sides: Mapping[str, str]) -> FaultKind:
    alone = {INITIATOR: INITIATOR_ALONE, "target": TARGET}
    meaning = " ".join(f"{side.capitalize()}: {what}" for side, what in sides.items())
    on = "target" if "target" in sides else INITIATOR
    worlds = (*Ours.worlds, *(alone[side] for side in sides))
    count = {"nth": FaultDetail(COUNT, "1"), "every": FaultDetail(COUNT, "0")}
    return FaultKind(rule, meaning, on, count, ours=Ours(_break_rule, worlds, _require_breaking_side))


RULE_KINDS: Final = tuple(_kind_of_rule(rule, sides) for rule, sides in BREACHES.items())
"""A kind of fault for each rule."""
