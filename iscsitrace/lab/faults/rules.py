"""The rules of RFC 7143 that our programs break on demand, by their identifiers in conformance: by whom, and how.

A rule is a fault of its name, like ``D18,every=3``. The core breaks it where it makes the PDU
(core/lab/src/protocol/initiator/breach.rs, target/breach.rs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from iscsitrace.errors import InputInvalid
from iscsitrace.lab.faults import settings as ours
from iscsitrace.lab.faults.fault import INITIATOR_ALONE, TARGET, Fault, FaultDetail, FaultKind, Ours, Placed, Settings
from iscsitrace.lab.run_files import INITIATOR
from iscsitrace.lab.settings.kinds import COUNT

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


def _require_side(fault: Fault) -> None:
    rule, side = fault.kind.name, _side(fault.host)
    if side not in BREACHES[rule]:
        raise InputInvalid(f"{rule}: the {side} cannot break it; on={next(iter(BREACHES[rule]))} can")


def _counted(placed: Placed) -> Settings:
    every = placed["every"]
    return {"nth": every or placed["nth"], "is_repeated": bool(every)}


def _break(settings: Settings, placed: Placed) -> None:
    rule, side = placed.fault.kind.name, _side(placed.fault.host)
    if rule == "L5":
        incident = {"kind": {"duplicate_login": {"every_ns": _PING_NS}}, "when": placed.when | {"at_ns": _PING_NS}}
        settings["client"].setdefault("incidents", []).append(incident)
        return
    if rule == "M7":
        ours.at_target(settings, placed, "reject", **_counted(placed))
        return
    for portal in settings["portals"]:
        if rule == "M1":
            portal.setdefault("nop_in_interval_ns", _PING_NS)
        if rule == "M6":
            portal["faults"] = [*portal.get("faults", ()), {"fault": "logout_requested", "nth": _LOGOUT_AT}]
    breaker = settings["client"] if side == INITIATOR else settings["portals"][placed.target]
    breach = {"rule": rule, "fault": placed.number, **_counted(placed)}
    breaker["breaks"] = [*breaker.get("breaks", ()), breach]


def _kind(rule: str, sides: Mapping[str, str]) -> FaultKind:
    alone = {INITIATOR: INITIATOR_ALONE, "target": TARGET}
    meaning = " ".join(f"{side.capitalize()}: {what}" for side, what in sides.items())
    on = "target" if "target" in sides else INITIATOR
    worlds = (*Ours.worlds, *(alone[side] for side in sides))
    count = {"nth": FaultDetail(COUNT, "1"), "every": FaultDetail(COUNT, "0")}
    return FaultKind(rule, meaning, on, count, ours=Ours(_break, worlds, _require_side))


KINDS: Final = tuple(_kind(rule, sides) for rule, sides in BREACHES.items())
"""A kind of fault for each rule."""
