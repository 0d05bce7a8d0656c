"""Faults of programs: a target that restarts, a program that pauses, and captures that miss packets or bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from iscsitrace.lab.faults.fault import Detail, Details, FaultImpossible, FaultKind
from iscsitrace.lab.guests import targets
from iscsitrace.lab.guests.hosts import Hosts
from iscsitrace.lab.settings.kinds import SIZE, TEXT

_CAPTURE_PROGRAM = "tcpdump"


@contextmanager
def _target_restart(hosts: Hosts, details: Details) -> Iterator[None]:
    host = details["on"]
    guest, wanted = hosts.guests[host], hosts.wanted[host]
    if hosts.program == "lio":
        targets.stop_lio(guest, wanted.name)
        try:
            yield
        finally:
            targets.restart_lio(guest, wanted.name)
    else:
        targets.stop_tgt(guest)
        try:
            yield
        finally:
            hosts.until_end.enter_context(targets.tgt(guest, wanted))


@contextmanager
def _paused(hosts: Hosts, details: Details) -> Iterator[None]:
    with _stopped(hosts, details["on"], details["program"]):
        yield


@contextmanager
def _capture_drops(hosts: Hosts, details: Details) -> Iterator[None]:
    with _stopped(hosts, details["on"], _CAPTURE_PROGRAM):
        yield


@contextmanager
def _stopped(hosts: Hosts, host: str, program: str) -> Iterator[None]:
    guest = hosts.guests[host]
    if guest.run("pkill", "-STOP", "-x", program, is_checked=False).code != 0:
        raise FaultImpossible(f"no {program} runs at {host}")
    try:
        yield
    finally:
        guest.run("pkill", "-CONT", "-x", program, is_checked=False)


KINDS = (
    FaultKind(
        "target-restart",
        "A target ends its sessions, and accepts logins again after a while.",
        "target",
        _target_restart,
        lasts="4s",
    ),
    FaultKind(
        "program-paused",
        "A program of a host stops, and goes on later: fio, iscsid or tgtd.",
        "initiator",
        _paused,
        {"program": Detail(TEXT, "fio")},
        lasts="4s",
    ),
    FaultKind(
        "snaplen",
        "A host's capture keeps so many bytes of each packet only.",
        "initiator",
        own={"bytes": Detail(SIZE, "128")},
    ),
    FaultKind(
        "capture-drops",
        "A host's capture misses packets: its program pauses, with a small buffer.",
        "initiator",
        _capture_drops,
        {"buffer": Detail(SIZE, "256K")},
        lasts="1s",
    ),
)
