"""Faults of access to a target: wrong secrets, names and portals, a reservation held by another, a second initiator.

The second initiator is the bridge of the first one's namespace, with an address of its own: what it sends reaches the
target through the same path, and not the guest.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address

from iscsitrace.errors import ToolMissing
from iscsitrace.lab import peers, places
from iscsitrace.lab.faults.fault import Details, FaultImpossible
from iscsitrace.lab.guests import initiator, targets
from iscsitrace.lab.guests.faults import Hosts
from iscsitrace.lab.guests.targets import Wanted
from iscsitrace.lab.namespaces import Namespace
from iscsitrace.lab.run_files import INITIATOR

_DEVICE = "bridge0"
_HOST_NUMBER = 200
_LIMIT_S = 5.0
_HEADER_BYTES = 48
# open-iscsi's first session: its OUI, then the number of the session
_ISID = bytes.fromhex("00023d000001")
# RFC 7143 11.12 and 11.13
_LOGIN, _LOGIN_RESPONSE, _IMMEDIATE = 0x03, 0x23, 0x40
_TRANSIT_TO_FULL_FEATURE = 0x87
_EXCHANGES_MAX = 5
# of every key, so that the target only answers
_OFFERS = {
    "HeaderDigest": "None",
    "DataDigest": "None",
    "DefaultTime2Wait": "2",
    "DefaultTime2Retain": "0",
    "IFMarker": "No",
    "OFMarker": "No",
    "ErrorRecoveryLevel": "0",
    "InitialR2T": "No",
    "ImmediateData": "Yes",
    "MaxBurstLength": "16776192",
    "FirstBurstLength": "262144",
    "MaxOutstandingR2T": "1",
    "MaxConnections": "1",
    "DataPDUInOrder": "Yes",
    "DataSequenceInOrder": "Yes",
    "MaxRecvDataSegmentLength": "262144",
}


@dataclass
class Logins:
    """What the second machine has done so far."""

    count: int = 0
    last_error: str = ""


@contextmanager
def logging_in(namespace: Namespace, wanted: Wanted, initiator_name: str, *, every_s: float) -> Iterator[Logins]:
    """Logs in to a target while the block runs, keeps the session until it is ended, and logs in again."""
    address = _beside(wanted.address)
    length = 64 if ":" in address else 24
    words = ("addr", f"{address}/{length}", "dev", _DEVICE)
    namespace.run("ip", words[0], "add", *words[1:], *(("nodad",) if length == 64 else ()), package="iproute2")
    found, is_over = Logins(), threading.Event()
    thread = threading.Thread(
        target=lambda: namespace.call(lambda: _log_in_often(wanted, initiator_name, every_s, found, is_over)),
        name="second initiator",
        daemon=True,
    )
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()
        namespace.run("ip", words[0], "del", *words[1:], package="iproute2", is_checked=False)


def _beside(address: str) -> str:
    """The address of the second machine in the network of another."""
    found = ip_address(address)
    mask = 0xFF if found.version == 4 else (1 << 64) - 1
    return str(type(found)((int(found) & ~mask) | _HOST_NUMBER))


def _log_in_often(wanted: Wanted, initiator_name: str, every_s: float, found: Logins, is_over: threading.Event) -> None:
    keys = {"InitiatorName": initiator_name, "TargetName": wanted.name, "SessionType": "Normal", **_OFFERS}
    text = b"".join(f"{name}={value}\0".encode() for name, value in keys.items())
    while not is_over.is_set():
        try:
            with socket.create_connection((wanted.address, wanted.port), timeout=_LIMIT_S) as connection:
                _log_in(connection, text)
                found.count += 1
                _wait_for_end(connection, is_over)
        except OSError as error:
            found.last_error = str(error)
        is_over.wait(every_s)


def _log_in(connection: socket.socket, text: bytes) -> None:
    """Logs in without a security stage; OSError if it is refused."""
    stat_sn = 0
    for number in range(_EXCHANGES_MAX):
        sent = text if number == 0 else b""
        header = struct.pack(
            ">BBBBI6sHIHHII16x",
            *(_LOGIN | _IMMEDIATE, _TRANSIT_TO_FULL_FEATURE, 0, 0, len(sent)),
            *(_ISID, 0, 1, 1, 0, 1, stat_sn),
        )
        connection.sendall(header + sent + bytes(-len(sent) % 4))
        answer = _exactly(connection, _HEADER_BYTES)
        length = struct.unpack(">I", answer[4:8])[0] & 0xFFFFFF
        stat_sn = (struct.unpack(">I", answer[24:28])[0] + 1) & 0xFFFFFFFF
        _exactly(connection, length + -length % 4)
        status = struct.unpack(">H", answer[36:38])[0]
        if answer[0] != _LOGIN_RESPONSE or status:
            raise ConnectionRefusedError(f"login status 0x{status:04x}")
        if answer[1] & _TRANSIT_TO_FULL_FEATURE == _TRANSIT_TO_FULL_FEATURE:
            return
    raise ConnectionRefusedError("the login does not end")


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise ConnectionResetError("the target closed the connection")
        found += part
    return found


def _wait_for_end(connection: socket.socket, is_over: threading.Event) -> None:
    """Reads until the target ends the connection."""
    connection.settimeout(0.2)
    while not is_over.is_set():
        with suppress(TimeoutError):
            if not connection.recv(4096):
                return


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
    with logging_in(hosts.namespaces[INITIATOR], wanted, initiator_name, every_s=details["every"] / _S) as logins:
        yield
    if not logins.count:
        raise FaultImpossible(f"the second initiator did not log in: {logins.last_error or 'no answer'}")
