"""Faults of programs: a target that restarts, a program that pauses, and captures that miss packets or bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from iscsitrace.lab.faults.fault import Details, FaultImpossible
from iscsitrace.lab.guests import targets
from iscsitrace.lab.guests.faults import Hosts

_CAPTURE_PROGRAM = "tcpdump"


@contextmanager
def target_restart(hosts: Hosts, details: Details) -> Iterator[None]:
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
def paused(hosts: Hosts, details: Details) -> Iterator[None]:
    with _stopped(hosts, details["on"], details["program"]):
        yield


@contextmanager
def capture_drops(hosts: Hosts, details: Details) -> Iterator[None]:
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
