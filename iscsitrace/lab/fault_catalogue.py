"""The faults of a run, a row for each: what happens, when, where, and how each world makes it.

A row has a column for our own programs (`Ours`: simulated, in namespaces, some at a target alone) and one for guests
(`InGuests`); None where a world cannot make it.
"""

from __future__ import annotations

from collections.abc import Sequence

from iscsitrace.errors import InputInvalid
from iscsitrace.lab.faults import fault
from iscsitrace.lab.faults import settings as ours
from iscsitrace.lab.faults.fault import (
    INITIATOR_ALONE,
    NAMESPACES,
    SIMULATED,
    TARGET,
    Fault,
    FaultDetail,
    FaultKind,
    InGuests,
    Ours,
)
from iscsitrace.lab.guests import access_faults, host_faults
from iscsitrace.lab.guests.initiator import NAME
from iscsitrace.lab.settings.kinds import COUNT, SHARE, SIZE, TEXT, TIME, one_of

GUESTS = "guests"
WORLDS = (SIMULATED, NAMESPACES, GUESTS, TARGET, INITIATOR_ALONE)
"""The last two are ``iscsitrace target`` and ``iscsitrace initiator``: each has neither a link nor the other."""

_WITH_TARGET = (SIMULATED, NAMESPACES, TARGET)
_DISK = {"disk": FaultDetail(COUNT, "0")}
_DIRECTION = one_of("to-target", "to-initiator")

_ROWS = (
    # the path
    FaultKind(
        "black-out",
        "The path to a target drops every packet, in both directions or in one.",
        "target",
        {"direction": FaultDetail(one_of("both", "to-target", "to-initiator"), "both")},
        lasts="12s",
        ours=Ours(ours.black_out),
        guests=InGuests(host_faults.black_out),
    ),
    FaultKind(
        "mtu-hole",
        "The path to a target drops packets larger than so many bytes, without an ICMP message.",
        "target",
        {"bytes": FaultDetail(SIZE, "1400")},
        lasts="5s",
        ours=Ours(ours.mtu_hole),
        guests=InGuests(host_faults.mtu_hole),
    ),
    FaultKind(
        "ack-loss",
        "The path to a target drops a share of the TCP segments without data, in one direction.",
        "target",
        {"direction": FaultDetail(_DIRECTION, "to-target"), "share": FaultDetail(SHARE, "100%")},
        lasts="2s",
        ours=Ours(ours.ack_loss),
    ),
    FaultKind(
        "reordering",
        "The path to a target holds a share of the packets back, so that later ones overtake them.",
        "target",
        {
            "direction": FaultDetail(_DIRECTION, "to-initiator"),
            "share": FaultDetail(SHARE, "5%"),
            "by": FaultDetail(TIME, "3ms"),
        },
        lasts="5s",
        ours=Ours(ours.reordering),
    ),
    # a host and its programs
    FaultKind(
        "flap",
        "A host's network card goes down and comes up again.",
        "initiator",
        lasts="3s",
        ours=Ours(ours.flap),
        guests=InGuests(host_faults.flap),
    ),
    FaultKind(
        "rst",
        "A host resets its iSCSI connections.",
        "initiator",
        lasts="0s",
        ours=Ours(ours.host_fault("reset")),
        guests=InGuests(host_faults.connection_reset),
    ),
    FaultKind(
        "small-buffers",
        "The socket buffers of a host are limited to so many bytes.",
        "initiator",
        {"bytes": FaultDetail(SIZE, "32K")},
        ours=Ours(ours.small_buffers),
        guests=InGuests(host_faults.small_buffers),
    ),
    FaultKind(
        "target-restart",
        "A target ends its sessions, and accepts logins again after a while.",
        "target",
        lasts="4s",
        ours=Ours(ours.target_restart, _WITH_TARGET),
        guests=InGuests(host_faults.target_restart),
    ),
    FaultKind(
        "program-paused",
        "A program of a host stops, and goes on later: fio, iscsid or tgtd.",
        "initiator",
        {"program": FaultDetail(TEXT, "fio")},
        lasts="4s",
        ours=Ours(ours.program_paused, require=ours.require_workload),
        guests=InGuests(host_faults.paused),
    ),
    # the capture
    FaultKind(
        "snaplen",
        "A host's capture keeps so many bytes of each packet only.",
        "initiator",
        {"bytes": FaultDetail(SIZE, "128")},
        guests=InGuests(),
    ),
    FaultKind(
        "capture-drops",
        "A host's capture misses packets: its program pauses, with a small buffer.",
        "initiator",
        {"buffer": FaultDetail(SIZE, "256K")},
        lasts="1s",
        guests=InGuests(host_faults.capture_drops),
    ),
    # the storage
    FaultKind(
        "storage-errors",
        "A disk of a target fails every I/O, or that to some sectors.",
        "target",
        {**_DISK, "sectors": FaultDetail(TEXT, "all")},
        lasts="2s",
        ours=Ours(ours.storage_errors, _WITH_TARGET),
        guests=InGuests(host_faults.errors),
    ),
    FaultKind(
        "storage-flaky",
        "A disk of a target works and fails by turns, some seconds each.",
        "target",
        {**_DISK, "up": FaultDetail(TIME, "1s"), "down": FaultDetail(TIME, "1s")},
        lasts="6s",
        ours=Ours(ours.storage_flaky, _WITH_TARGET),
        guests=InGuests(host_faults.flaky),
    ),
    FaultKind(
        "storage-slow",
        "A disk of a target takes longer for every I/O, or for reads or writes only.",
        "target",
        {**_DISK, "by": FaultDetail(TIME, "50ms"), "operation": FaultDetail(one_of("all", "read", "write"), "all")},
        lasts="5s",
        ours=Ours(ours.storage_slow, _WITH_TARGET),
        guests=InGuests(host_faults.slow),
    ),
    FaultKind(
        "storage-full",
        "A thin-provisioned disk of a target has room for so many bytes only.",
        "target",
        {**_DISK, "bytes": FaultDetail(SIZE, "512K")},
        lasts="30s",
        ours=Ours(ours.storage_full, _WITH_TARGET),
        guests=InGuests(host_faults.full),
    ),
    FaultKind(
        "stuck-command",
        "A disk of a target answers no I/O, and the initiator's commands time out: it aborts them and resets.",
        "target",
        {**_DISK, "timeout": FaultDetail(TIME, "5s")},
        lasts="15s",
        ours=Ours(ours.stuck_command),
        guests=InGuests(
            host_faults.stuck,
            {
                "node.session.err_timeo.abort_timeout": "3",
                "node.session.err_timeo.lu_reset_timeout": "3",
                "node.session.err_timeo.tgt_reset_timeout": "3",
            },
        ),
    ),
    FaultKind(
        "lun-reset",
        "The initiator resets the LUN during its I/O.",
        "initiator",
        lasts="0s",
        ours=Ours(ours.lun_reset, require=ours.require_on_initiator),
        guests=InGuests(host_faults.disk_reset),
    ),
    FaultKind(
        "lun-removed",
        "A target no longer has a LUN, while the session goes on.",
        "target",
        _DISK,
        lasts="0s",
        ours=Ours(ours.lun_removed, _WITH_TARGET),
        guests=InGuests(host_faults.removed),
    ),
    FaultKind(
        "slow-unmap",
        "The initiator sends UNMAP commands, for each of which the disk takes long.",
        "target",
        {
            **_DISK,
            "by": FaultDetail(TIME, "500ms"),
            "blocks": FaultDetail(COUNT, "2048"),
            "count": FaultDetail(COUNT, "3"),
        },
        lasts="0s",
        ours=Ours(ours.slow_unmap),
        guests=InGuests(host_faults.slow_unmap),
    ),
    FaultKind(
        "busy",
        "A disk of a target answers commands with BUSY.",
        "target",
        _DISK,
        lasts="2s",
        ours=Ours(ours.on_disk("busy"), _WITH_TARGET),
    ),
    FaultKind(
        "task-set-full",
        "A disk of a target answers commands with TASK SET FULL.",
        "target",
        _DISK,
        lasts="2s",
        ours=Ours(ours.on_disk("task_set_full"), _WITH_TARGET),
    ),
    # access
    FaultKind(
        "wrong-chap",
        "The target asks for CHAP, and the initiator has the wrong secret.",
        "target",
        {"secret": FaultDetail(TEXT, "NotTheSecret")},
        ours=Ours(ours.wrong_chap),
        guests=InGuests(access_faults.wrong_chap),
    ),
    FaultKind(
        "no-acl",
        "The target admits another initiator only.",
        "target",
        ours=Ours(ours.no_acl, _WITH_TARGET),
        guests=InGuests(access_faults.no_acl),
    ),
    FaultKind(
        "unknown-target",
        "The initiator logs in to a target name that the portal does not have.",
        "target",
        {"name": FaultDetail(TEXT, "iqn.2025-01.org.iscsitrace:gone")},
        ours=Ours(ours.unknown_target, _WITH_TARGET),
        # LIO answers that it is not available: open-iscsi tries again
        guests=InGuests(access_faults.unknown_target, {"node.session.initial_login_retry_max": "3"}),
    ),
    FaultKind(
        "login-refused",
        "A target refuses logins with this status class and detail, the first COUNT of them; 0 for all.",
        "target",
        {"status": FaultDetail(TEXT, "3/1"), "count": FaultDetail(COUNT, "0")},
        ours=Ours(ours.login_refused, _WITH_TARGET, require=ours.require_status),
    ),
    FaultKind(
        "login-redirected",
        "A target redirects the first login to its own address, where the next succeeds.",
        "target",
        ours=Ours(ours.login_redirected),
    ),
    FaultKind(
        "key-mismatch",
        "The target requires a digest that the initiator does not offer.",
        "target",
        {"key": FaultDetail(one_of("HeaderDigest", "DataDigest"), "HeaderDigest")},
        ours=Ours(ours.key_mismatch),
    ),
    FaultKind(
        "unreachable-portal",
        "SendTargets lists one more portal of the target, which never answers a SYN; with LIO only.",
        "target",
        {"port": FaultDetail(COUNT, "3261")},
        ours=Ours(ours.unreachable_portal, require=ours.require_on_target),
        guests=InGuests(
            access_faults.unreachable_portal,
            {"node.conn[0].timeo.login_timeout": "6", "node.session.initial_login_retry_max": "1"},
            programs=("lio",),
        ),
    ),
    FaultKind(
        "reservation-held",
        "Another initiator holds a persistent reservation of the disk.",
        "target",
        {"type": FaultDetail(one_of("write-exclusive", "exclusive-access"), "exclusive-access")},
        lasts="4s",
        ours=Ours(ours.reservation_held, _WITH_TARGET),
        guests=InGuests(access_faults.reservation),
    ),
    FaultKind(
        "duplicate-initiator",
        "A second machine logs in with the same initiator name and ISID, again and again.",
        "target",
        {"name": FaultDetail(TEXT, NAME), "every": FaultDetail(TIME, "2s")},
        lasts="10s",
        ours=Ours(ours.duplicate_initiator, require=ours.require_own_name),
        guests=InGuests(access_faults.duplicate),
    ),
)
KINDS = {kind.name: kind for kind in (*_ROWS, *ours.RULE_KINDS)}
"""All kinds by name."""


def worlds_of(name: str) -> tuple[str, ...]:
    """The worlds that can make a fault."""
    kind = KINDS[name]
    found = (*(kind.ours.worlds if kind.ours else ()), *((GUESTS,) if kind.guests else ()))
    return tuple(world for world in WORLDS if world in found)


def names_in(world: str) -> list[str]:
    """The names of the faults of a world."""
    return [name for name in KINDS if world in worlds_of(name)]


def parse(text: str) -> Fault:
    """A fault as it is typed: ``black-out,at=2s,for=12s``. InputInvalid lists what there is."""
    name, *rest = text.split(",")
    if name not in KINDS:
        raise InputInvalid(f"no fault is named {name!r}; there are {', '.join(sorted(KINDS, key=str.swapcase))}")
    typed = {}
    for each in rest:
        detail, separator, value = each.partition("=")
        if not separator:
            raise InputInvalid(f"{name}: {each!r} is not like NAME=VALUE; it has {', '.join(KINDS[name].details)}")
        typed[detail] = value
    return fault.fault(KINDS[name], typed)


def require_in(world: str, faults: Sequence[Fault], hosts: Sequence[str]) -> None:
    """InputInvalid for a fault that a world cannot make, or of a host that the run does not have."""
    for each in faults:
        name = each.kind.name
        if world not in worlds_of(name):
            raise InputInvalid(f"{name}: not in {world}; it can be made in {', '.join(worlds_of(name))}")
        if each.host not in hosts:
            raise InputInvalid(f"{name}: there is no host {each.host!r}; there are {', '.join(hosts)}")
        if world != GUESTS and each.kind.ours:
            each.kind.ours.require(each)
