"""Faults of access to a target: wrong secrets, names and portals, a reservation held by another, a second initiator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from iscsitrace.errors import ToolMissing
from iscsitrace.lab import peers, places
from iscsitrace.lab.faults.fault import Details, FaultImpossible
from iscsitrace.lab.guests import initiator, second_machine, targets
from iscsitrace.lab.guests.hosts import Hosts
from iscsitrace.lab.run_files import INITIATOR

_S = 1_000_000_000
_ACCOUNT = peers.ChapAccount("backup", "SecretOfTarget")
_OTHER = "iqn.2025-01.org.iscsitrace:other"
_KEY = "0xabc"
# SPC-4 table 209
_RESERVATION_TYPES = {"write_exclusive": 1, "exclusive_access": 3}
_DROPPED = """
add table inet faults
add chain inet faults input {{ type filter hook input priority 0; }}
add rule inet faults input tcp dport {port} drop
"""


@contextmanager
def wrong_chap(hosts: Hosts, details: Details) -> Iterator[None]:
    host = details["on"]
    wanted = hosts.wanted[host]
    account = wanted.accounts[0] if wanted.accounts else _ACCOUNT
    if not wanted.accounts:
        targets.require_account(hosts.guests[host], hosts.program, wanted.name, account)
    wrong = initiator.Login(account=replace(account, secret=details["secret"])).account_settings()
    lines = "".join(f"{name} = {value}\n" for name, value in wrong.items())
    hosts.initiator.run("tee", "-a", "/etc/iscsi/iscsid.conf", input_text=lines)
    yield


@contextmanager
def no_acl(hosts: Hosts, details: Details) -> Iterator[None]:
    host = details["on"]
    targets.admit_only(hosts.guests[host], hosts.program, hosts.wanted[host].name, _OTHER)
    # such a target is not listed either
    hosts.is_discovering = False
    yield


@contextmanager
def unknown_target(hosts: Hosts, details: Details) -> Iterator[None]:
    number = list(hosts.wanted).index(details["on"])
    hosts.portals[number] = replace(hosts.portals[number], name=details["name"])
    hosts.is_discovering = False
    yield


@contextmanager
def unreachable_portal(hosts: Hosts, details: Details) -> Iterator[None]:
    host, port = details["on"], details["port"]
    wanted = hosts.wanted[host]
    targets.add_portal(hosts.guests[host], wanted, port)
    hosts.guests[host].run("nft", "-f", "-", input_text=_DROPPED.format(port=port))
    hosts.portals.append(initiator.TargetPortal(places.portal(wanted.address, port), wanted.name, is_further=True))
    yield


@contextmanager
def reservation(hosts: Hosts, details: Details) -> Iterator[None]:
    """A session under another name, of the same guest, registers and reserves the disk."""
    guest, portal = hosts.initiator, hosts.portal(details["on"])
    with initiator.logged_in_as(guest, portal, _OTHER) as device:
        kind = _RESERVATION_TYPES[details["type"]]
        guest.shell(
            f"""
            sg_persist --out --register --param-sark={_KEY} {device}
            sg_persist --out --reserve --param-rk={_KEY} --prout-type={kind} {device}
            """
        )
        try:
            yield
        finally:
            with suppress(ToolMissing):
                guest.run("sg_persist", "--out", "--clear", f"--param-rk={_KEY}", device)


@contextmanager
def duplicate(hosts: Hosts, details: Details) -> Iterator[None]:
    wanted = hosts.wanted[details["on"]]
    initiator_name = details["name"]
    with second_machine.logging_in(
        hosts.namespaces[INITIATOR], wanted, initiator_name, every_s=details["every"] / _S
    ) as logins:
        yield
    if not logins.count:
        raise FaultImpossible(f"the second initiator did not log in: {logins.last_error or 'no answer'}")
